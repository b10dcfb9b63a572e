// Package view defines the JSON of pages that all doors share: the socket, dbctl --json and MCP. It is apart from the
// library's types, so that those may grow without a change of what programs of other languages read.
//
// Which door shows which field:
//
//	socket    Page without Pages; Write; Filter
//	dbctl     Page
//	MCP       Filter; its tools have pages of their own with fewer fields, because a model reads them
//
// The tags of the fields are their documentation: GET /v1/schema shows them.
//
// The doors also share two checks here: of JSON that a decoder accepts although it should not, because it changes a text or because another
// program would read other fields (CheckUnicode, CheckFields), and a limit of the connections of an HTTP server (ServeLimited).
package view

import (
	"encoding/hex"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/ctxpage/ctxpage"
)

// ToolCall is a call that an assistant message makes.
type ToolCall struct {
	ID        string `json:"id"`
	Type      string `json:"type,omitempty"`
	Name      string `json:"name"`
	Arguments string `json:"arguments,omitempty"`
}

// Part is a part of a message.
type Part struct {
	Type   string `json:"type" jsonschema:"text, or a type of yours that is carried as it is"`
	Text   string `json:"text,omitempty"`
	URL    string `json:"url,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Page is a page, or a version of one. Listings have no text.
type Page struct {
	Ref          string            `json:"ref"`
	Scope        string            `json:"scope"`
	ID           string            `json:"id"`
	Version      uint32            `json:"version"`
	LSN          uint64            `json:"lsn"`
	Kind         string            `json:"kind"`
	Provenance   string            `json:"provenance" jsonschema:"an order of trust: scratch, tool, validated, chunk, human-verified"`
	Text         string            `json:"text,omitempty"`
	Parts        []Part            `json:"parts,omitempty"`
	Role         string            `json:"role,omitempty"`
	Name         string            `json:"name,omitempty"`
	ToolCalls    []ToolCall        `json:"tool_calls,omitempty"`
	ToolCallID   string            `json:"tool_call_id,omitempty"`
	Source       string            `json:"source,omitempty"`
	Tokens       int               `json:"tokens"`
	Pages        []Piece           `json:"pages,omitempty"`
	PutAt        time.Time         `json:"put_at,omitzero" jsonschema:"absent in a held batch"`
	CurrentAsOf  time.Time         `json:"current_as_of,omitzero"`
	ExpiresAt    time.Time         `json:"expires_at,omitzero"`
	Actor        string            `json:"actor,omitempty"`
	Trace        string            `json:"trace,omitempty" jsonschema:"of the read that it was written from, for why and replay"`
	Group        string            `json:"group,omitempty"`
	Seq          int64             `json:"seq,omitempty"`
	Subject      string            `json:"subject,omitempty"`
	DerivedFrom  []string          `json:"derived_from,omitempty"`
	Supersedes   []string          `json:"supersedes,omitempty"`
	SupersededBy string            `json:"superseded_by,omitempty"`
	Pinned       bool              `json:"pinned,omitempty"`
	Tags         []string          `json:"tags,omitempty"`
	Meta         map[string]string `json:"meta,omitempty"`
	Deleted      bool              `json:"deleted,omitempty"`
	Gone         bool              `json:"gone,omitempty"`
	GoneBy       string            `json:"gone_by,omitempty" jsonschema:"trace of the gc or the erase that took its text"`
	Stale        bool              `json:"stale,omitempty"`
	Elsewhere    string            `json:"elsewhere,omitempty" jsonschema:"the host that has the file of its source: it could not be checked here"`
}

// Piece is one of the pages that an artefact is split into.
type Piece struct {
	Ref    string `json:"ref"`
	Num    uint64 `json:"num"`
	Tokens int    `json:"tokens"`
	Digest string `json:"digest"`
}

// Of returns a version without its pages. Text holds the texts of the parts too, so that a caller who reads only Text
// misses no words.
func Of(v *ctxpage.Version) Page {
	out := Page{
		Ref: v.Ref.String(), Scope: v.Ref.Scope, ID: v.ID, Version: v.Version, LSN: v.LSN, Kind: v.Kind.String(), Provenance: v.Provenance.String(), Text: Text(v),
		Role: v.Role, Name: v.Name, ToolCallID: v.ToolCallID, Source: v.Source, Tokens: v.Tokens, PutAt: utc(v.PutAt), CurrentAsOf: utc(v.CurrentAsOf),
		ExpiresAt: utc(v.ExpiresAt), Actor: v.Actor, Trace: v.Trace, Group: v.Group, Seq: v.Seq, Subject: v.Subject, Supersedes: v.Supersedes, SupersededBy: v.SupersededBy,
		Pinned: v.Pinned, Tags: v.Tags, Meta: v.Meta, Deleted: v.Deleted, Gone: v.Gone, GoneBy: v.GoneBy, Stale: v.Stale, Elsewhere: v.Elsewhere,
	}
	for _, p := range v.Parts {
		out.Parts = append(out.Parts, Part(p))
	}
	for _, c := range v.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, ToolCall(c))
	}
	if len(v.DerivedFrom) > 0 {
		out.DerivedFrom = Refs(v.DerivedFrom)
	}
	return out
}

// Whole returns a version with its pages.
func Whole(v *ctxpage.Version) Page {
	out := Of(v)
	for _, p := range v.Pages {
		out.Pages = append(out.Pages, Piece{p.Ref.String(), p.Num, p.Tokens, hex.EncodeToString(p.Digest[:])})
	}
	return out
}

// State describes in a few words why a version is not the current one; "-" if it is.
func (p *Page) State() string {
	switch {
	case p.Gone:
		return "gone"
	case p.Deleted:
		return "deleted"
	case p.SupersededBy != "":
		return "superseded by " + p.SupersededBy
	}
	return "-"
}

// Text returns the text of a version, including a message whose text is in its parts.
func Text(v *ctxpage.Version) string {
	text := v.Text
	for _, p := range v.Parts {
		text += p.Text
	}
	return text
}

// Refs returns references as text: an empty list, never nil, if there are none.
func Refs(refs []ctxpage.Ref) []string {
	out := []string{}
	for _, r := range refs {
		out = append(out, r.String())
	}
	return out
}

// utc converts a time to UTC. A zero time stays zero, so that it is left out.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// FillLists makes the nil lists of a report empty, at any depth: in JSON a list is [] or absent, never null. v points to the report.
func FillLists(v any) { fillLists(reflect.ValueOf(v)) }

func fillLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fillLists(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			fillLists(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			empty := f.Type.Kind() == reflect.Slice && v.Field(i).IsNil()
			if f.IsExported() && !(empty && strings.Contains(f.Tag.Get("json"), ",omit")) {
				fillLists(v.Field(i))
			}
		}
	}
}

// Steers reports whether a terminal may act on a rune instead of showing it, or whether it turns round the order of the runes beside it.
func Steers(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// Hidden reports whether a rune leaves no trace on the screen: zero-width ones, tags, fillers, variation selectors. Two names
// that look alike may differ by them, and a text may carry words that only a model reads.
func Hidden(r rune) bool {
	return r >= 0x80 && !unicode.Is(unicode.Prepended_Concatenation_Mark, r) &&
		unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Shapes reports whether a hidden rune is one that scripts and emoji are written with.
func Shapes(r rune) bool {
	return r == '\u200c' || r == '\u200d' || r >= '\ufe00' && r <= '\ufe0f'
}
