package manifest

import (
	"cmp"
	"fmt"
	"strconv"
)

// Difference lists what changed between two reads.
type Difference struct {
	Fields  []FieldChange `json:"fields,omitempty"`  // of the leaf itself
	In      []Page        `json:"in,omitempty"`      // served by the second only, in its order
	Out     []Page        `json:"out,omitempty"`     // served by the first only, in its order
	Changed []Change      `json:"changed,omitempty"` // served by both, differently; in the order of the second
}

// FieldChange is a field of the leaf and its two values as text.
type FieldChange struct {
	Name string `json:"name"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// Change is a page both reads served; What says which fields differ, each from what to what: "tokens 120 → 80".
type Change struct {
	A    Page     `json:"a"`
	B    Page     `json:"b"`
	What []string `json:"what"`
}

// Diff compares two reads, a before b. It does not compare trace, time and
// index, which always differ.
func Diff(a, b *Record) Difference {
	d := Difference{Fields: diffFields(a, b)}
	before := map[uint64]Page{}
	for _, p := range a.Pages {
		before[p.Num] = p
	}
	after := map[uint64]bool{}
	for _, p := range b.Pages {
		after[p.Num] = true
		old, ok := before[p.Num]
		if !ok {
			d.In = append(d.In, p)
		} else if what := diffPage(&old, &p); len(what) > 0 {
			d.Changed = append(d.Changed, Change{A: old, B: p, What: what})
		}
	}
	for _, p := range a.Pages {
		if !after[p.Num] {
			d.Out = append(d.Out, p)
		}
	}
	return d
}

// diffFields compares what two leaves say of a call as a whole, in a fixed order.
func diffFields(a, b *Record) (out []FieldChange) {
	for _, f := range []struct {
		name string
		text func(*Record) string
	}{
		{"type", func(r *Record) string { return r.Type.String() }},
		{"scope", func(r *Record) string { return r.Scope }},
		{"actor", func(r *Record) string { return r.Actor }},
		{"lsn", func(r *Record) string { return strconv.FormatUint(r.LSN, 10) }},
		{"budget", func(r *Record) string { return strconv.Itoa(r.Budget) }},
		{"reserve", func(r *Record) string { return strconv.Itoa(r.Reserve) }},
		{"tokens", func(r *Record) string { return strconv.Itoa(r.Tokens) }},
		{"tier", func(r *Record) string { return strconv.Itoa(r.Tier) }},
		{"overflow", func(r *Record) string { return r.Overflow }},
		{"preset", func(r *Record) string { return r.Preset }},
		{"counter", func(r *Record) string { return r.Counter }},
		{"renderer", func(r *Record) string { return strconv.Itoa(r.Renderer) }},
		{"shape", func(r *Record) string { return r.Shape }},
		{"rendered", func(r *Record) string { return r.Rendered.String() }},
	} {
		if x, y := f.text(a), f.text(b); x != y {
			out = append(out, FieldChange{f.name, x, y})
		}
	}
	if x, y, differs := diffQuestion(a, b); differs {
		out = append(out, FieldChange{"query", x, y})
	}
	return out
}

// diffQuestion compares what was asked: the texts if both are there, otherwise
// the digests. Salted digests always differ, so a salted digest without its
// text cannot be compared.
func diffQuestion(a, b *Record) (x, y string, differs bool) {
	if !a.QuestionKept && !b.QuestionKept {
		x, y = a.Query.String(), b.Query.String()
		return x, y, x != y
	}
	shown := func(r *Record) string {
		switch {
		case r.Question != "":
			return r.Question
		case r.QuestionKept:
			return "(text not available; cannot be compared)"
		}
		return r.Query.String()
	}
	x, y = shown(a), shown(b)
	return x, y, a.Question == "" || b.Question == "" || a.Question != b.Question
}

// diffPage names what two leaves say differently of one page, from what to what: what the caller saw, and the parts of
// the score that decided it.
func diffPage(a, b *Page) (what []string) {
	for _, f := range []struct {
		name string
		text func(*Page) string
	}{
		{"version", func(p *Page) string { return strconv.FormatUint(uint64(p.Version), 10) }},
		{"form", func(p *Page) string {
			if len(p.Ranges) > 0 {
				return fmt.Sprintf("%s of bytes %v", p.Form, p.Ranges)
			}
			return p.Form.String()
		}},
		{"tokens", func(p *Page) string { return strconv.Itoa(p.Tokens) }},
		{"score", func(p *Page) string { return p.Score.text() }},
		{"r", func(p *Page) string { return p.R.text() }},
		{"p", func(p *Page) string { return p.P.text() }},
		{"s", func(p *Page) string { return p.S.text() }},
		{"tag", func(p *Page) string { return p.Tag.String() }},
		{"reason", func(p *Page) string { return p.Reason }},
		{"source", func(p *Page) string {
			switch {
			case p.Refetched:
				return "refetched"
			case p.Stale:
				return "stale"
			case p.Dirty:
				return "dirty"
			}
			return "clean"
		}},
		{"via", func(p *Page) string { return strconv.FormatUint(p.Via, 10) }},
	} {
		if x, y := f.text(a), f.text(b); x != y {
			what = append(what, fmt.Sprintf("%s %s → %s", f.name, cmp.Or(x, "-"), cmp.Or(y, "-")))
		}
	}
	return what
}
