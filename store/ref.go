package store

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
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

// ReservedPrefix begins the ids of pages that the database writes itself. Callers cannot put, delete or supersede them.
const ReservedPrefix = "ctxpage:"

// CheckClock refuses a time that cannot be stored or shown: rows hold the zero time for "never",
// and dates in JSON and in head lines have four digits. Code that takes a time from Options.Clock
// to store it calls CheckClock, or NewID, which does.
func CheckClock(now time.Time) error {
	if y, utc := now.Year(), now.UTC().Year(); now.IsZero() || min(y, utc) < 1 || max(y, utc) > 9999 {
		return Invalid("Options.Clock", fmt.Sprintf("a time in the year %d", y), "a time from the year 1, which is not the zero time, to the year 9999")
	}
	return nil
}

// NewID makes an id that sorts by time. The caller passes the randomness, so that a test can repeat
// it. It fails if now is out of range (CheckClock) or rand fails.
func NewID(now time.Time, rand io.Reader) (ulid.ULID, error) {
	if err := CheckClock(now); err != nil {
		return ulid.ULID{}, err
	}
	ms := now.UnixMilli()
	if ms < 0 {
		ms = 0
	}
	id, err := ulid.New(uint64(ms), rand)
	if err != nil {
		return id, fmt.Errorf("ctxpage: id: %w", err)
	}
	return id, nil
}

// macs are HMAC-SHA256 states that nobody uses. A fault makes two digests; hmac.New makes four
// objects for each.
var macs = sync.Pool{New: func() any { return &mac{h: sha256.New()} }}

type mac struct {
	h   hash.Hash
	buf []byte
	pad [sha256.BlockSize]byte // here, as sum is, because what goes through hash.Hash would be allocated for each digest
	sum [sha256.Size]byte
}

// SaltedMAC returns the HMAC-SHA256 under a salt of what write appends.
func SaltedMAC(salt []byte, write func(b []byte) []byte) (d [32]byte) {
	m := macs.Get().(*mac)
	defer macs.Put(m)
	pad := &m.pad
	clear(pad[copy(pad[:], salt):]) // a salt is shorter than a block
	for i := range pad {
		pad[i] ^= 0x36
	}
	m.buf = write(append(m.buf[:0], pad[:]...))
	m.h.Reset()
	m.h.Write(m.buf)
	for i := range pad {
		pad[i] ^= 0x36 ^ 0x5c
	}
	inner := m.h.Sum(m.buf[:0])
	m.h.Reset()
	m.h.Write(pad[:])
	m.h.Write(inner)
	m.h.Sum(m.sum[:0])
	if m.buf = inner[:0]; cap(m.buf) > 1<<20 {
		m.buf = nil
	}
	return m.sum
}
