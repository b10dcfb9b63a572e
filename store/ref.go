package store

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Ref names an artefact, a page of it, or a version of either. Its text form is
//
//	scope:id#page@version
//
// with scope and id percent-encoded, so that every legal name survives the round trip. Page counts
// from 1; 0 names the artefact as a whole. Version 0 names the version that is current when the
// reference is read.
type Ref struct {
	Scope   string
	ID      string
	Page    int
	Version uint32
}

// String renders the reference; ParseRef is its inverse.
func (r Ref) String() string {
	var b strings.Builder
	b.Grow(len(r.Scope) + len(r.ID) + 12)
	b.WriteString(escapeName(r.Scope, true))
	b.WriteByte(':')
	b.WriteString(escapeName(r.ID, false))
	if r.Page > 0 {
		b.WriteByte('#')
		b.WriteString(strconv.Itoa(r.Page))
	}
	if r.Version > 0 {
		b.WriteByte('@')
		b.WriteString(strconv.FormatUint(uint64(r.Version), 10))
	}
	return b.String()
}

// ParseRef reads the text form of a reference. The error matches ErrInvalid and says which part is
// wrong.
func ParseRef(s string) (Ref, error) {
	bad := func(why string) (Ref, error) {
		return Ref{}, Invalid("reference", strconv.Quote(s), "scope:id, scope:id#page or scope:id#page@version ("+why+")")
	}
	scope, rest, ok := strings.Cut(s, ":")
	if !ok {
		return bad("no ':'")
	}
	var r Ref
	rest, version, hasVersion := strings.Cut(rest, "@")
	rest, page, hasPage := strings.Cut(rest, "#")
	var err error
	if r.Scope, err = url.PathUnescape(scope); err != nil {
		return bad("scope is not percent-encoded")
	}
	if r.ID, err = url.PathUnescape(rest); err != nil {
		return bad("id is not percent-encoded")
	}
	r.ID = Canonical(r.ID)
	if hasPage {
		if r.Page, err = parsePositive(page); err != nil {
			return bad("page is not a number from 1")
		}
	}
	if hasVersion {
		v, err := parsePositive(version)
		if err != nil {
			return bad("version is not a number from 1")
		}
		r.Version = uint32(v)
	}
	if err := CheckScope(r.Scope); err != nil {
		return Ref{}, err
	}
	if err := CheckID("id", r.ID); err != nil {
		return Ref{}, err
	}
	return r, nil
}

func parsePositive(s string) (int, error) {
	v, err := strconv.ParseUint(s, 10, 32)
	if err != nil || v == 0 || v > 1<<31-1 || s[0] == '+' || s[0] == '0' {
		return 0, fmt.Errorf("not a number from 1: %q", s)
	}
	return int(v), nil
}

// escapeName percent-encodes everything but unreserved bytes; a scope keeps its slashes, which no
// name may contain.
func escapeName(s string, slash bool) string {
	plain := func(c byte) bool {
		return c == '-' || c == '_' || c == '.' || c == '~' || slash && c == '/' ||
			'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+2*n)
	for i := 0; i < len(s); i++ {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// SourceRef reads the reference behind the page: of a source.
func SourceRef(key string) (Ref, error) {
	if strings.Contains(key, ":") {
		return ParseRef(key)
	}
	return Ref{ID: key}, CheckID("source", key)
}
