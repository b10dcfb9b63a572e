package dbctl

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

type diffCmd struct {
	File string `arg:"" help:"Database."`
	A    string `arg:"" name:"a" help:"Trace of an assembly."`
	B    string `arg:"" name:"b" help:"Trace of another assembly."`
	Text bool   `help:"Also show how the texts of pages changed that both have in different versions. This reads the texts, so it writes manifests, unless --read-only is given."`

	ReadOnly bool `help:"With --text: write no manifest of the reads."`
}

type diffChange struct {
	Ref  string   `json:"ref"`
	What []string `json:"what"`
}

type diffView struct {
	A       string                 `json:"a"`
	B       string                 `json:"b"`
	Same    bool                   `json:"same"`
	Fields  []manifest.FieldChange `json:"fields"`
	Only    diffOnly               `json:"only"`
	Changed []diffChange           `json:"changed"`
	Texts   []diffText             `json:"texts,omitempty"` // with --text
}

// diffText lists how the text of a page changed: its lines, each after "-", "+" or a space.
type diffText struct {
	A     string   `json:"a"` // references of the two versions
	B     string   `json:"b"`
	Lines []string `json:"lines"`
}

type diffOnly struct {
	A []string `json:"a"`
	B []string `json:"b"`
}

func (c *diffCmd) Run(a *app) error {
	return show(a, c.File, c.Text && !c.ReadOnly, func(db *ctxpage.DB) (v diffView, err error) {
		for _, t := range []*string{&c.A, &c.B} {
			if *t, err = fullTrace(a.ctx, db.Manifests(), *t); err != nil {
				return v, err
			}
		}
		d, err := db.Diff(a.ctx, c.A, c.B)
		if err != nil {
			return v, err
		}
		names := func(pages []manifest.Page) []string {
			out := []string{}
			for _, p := range pages {
				out = append(out, db.RefOf(a.ctx, p.Num))
			}
			return out
		}
		same := len(d.Fields)+len(d.In)+len(d.Out)+len(d.Changed) == 0
		v = diffView{A: c.A, B: c.B, Same: same, Fields: nonNil(d.Fields), Only: diffOnly{names(d.Out), names(d.In)}, Changed: []diffChange{}}
		for _, x := range d.Changed {
			v.Changed = append(v.Changed, diffChange{db.RefOf(a.ctx, x.B.Num), x.What})
		}
		if c.Text {
			v.Texts, err = changedTexts(a.ctx, db, v.Only)
		}
		return v, err
	}, diffView.print)
}

func (v diffView) print(w io.Writer) {
	if v.Same {
		fmt.Fprintln(w, "the same")
		return
	}
	table(w, "", func(row func(...any)) {
		for _, f := range v.Fields {
			row(f.Name+":", or(f.A, "-"), "→", or(f.B, "-"))
		}
		for _, r := range v.Only.A {
			row("-", r)
		}
		for _, r := range v.Only.B {
			row("+", r)
		}
		for _, x := range v.Changed {
			row("~", x.Ref, strings.Join(x.What, ", "))
		}
	})
	for _, t := range v.Texts {
		fmt.Fprintf(w, "\n%s → %s\n", line(t.A), line(t.B))
		for _, l := range t.Lines {
			fmt.Fprintln(w, printable(w, l))
		}
	}
}

// changedTexts compares the texts of the pages that each context has in a version of its own.
func changedTexts(ctx context.Context, db *ctxpage.DB, only diffOnly) (out []diffText, err error) {
	before := map[ctxpage.Ref]string{}
	for _, r := range only.A {
		if ref, err := store.ParseRef(r); err == nil {
			ref.Version = 0
			before[ref] = r
		}
	}
	for _, r := range only.B {
		ref, err := store.ParseRef(r)
		if err != nil {
			continue // a page of which only the number is left
		}
		ref.Version = 0
		was, ok := before[ref]
		if !ok {
			continue
		}
		t := diffText{A: was, B: r}
		var texts [2]string
		for i, s := range []string{was, r} {
			ref, _ := store.ParseRef(s)
			v, err := db.Scope(ref.Scope).Recall(ctx, ref)
			if err != nil {
				return nil, fmt.Errorf("the text of %s: %w", s, err)
			}
			texts[i] = view.Text(v)
		}
		t.Lines = diffLines(strings.Split(texts[0], "\n"), strings.Split(texts[1], "\n"))
		out = append(out, t)
	}
	return out, nil
}

// maxDiff bounds the lines that are compared with each other; of longer texts all are removed and added.
const maxDiff = 2000

// diffLines returns the lines of two texts in order, marked as removed, added or common.
func diffLines(a, b []string) (out []string) {
	same := make([][]int, len(a)+1) // same[i][j]: lines that a[i:] and b[j:] share
	if len(a) <= maxDiff && len(b) <= maxDiff {
		for i := range same {
			same[i] = make([]int, len(b)+1)
		}
		for i := len(a) - 1; i >= 0; i-- {
			for j := len(b) - 1; j >= 0; j-- {
				if same[i][j] = max(same[i+1][j], same[i][j+1]); a[i] == b[j] {
					same[i][j] = same[i+1][j+1] + 1
				}
			}
		}
	} else {
		a, b, out = nil, nil, append(prefixed("-", a), prefixed("+", b)...)
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, " "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && same[i+1][j] >= same[i][j+1]:
			out = append(out, "-"+a[i])
			i++
		default:
			out = append(out, "+"+b[j])
			j++
		}
	}
	return out
}

func prefixed(mark string, lines []string) (out []string) {
	for _, l := range lines {
		out = append(out, mark+l)
	}
	return out
}
