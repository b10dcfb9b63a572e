package dbctl

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/triage"
)

type searchCmd struct {
	File  string   `arg:"" help:"Database."`
	Scope string   `arg:"" help:"Scope to read as. It sees its own pages and those of its ancestors."`
	Words []string `arg:"" help:"Words to search for."`
	Limit int      `help:"Maximum number of hits." default:"10"`
	Floor string   `help:"Lowest provenance shown: human-verified, chunk, validated, tool or scratch. Scratch also shows drafts, and imports that nobody has promoted." default:"tool"`
	readFlags
	filterFlags
	modelFlags
}

type hitView struct {
	Ref    string  `json:"ref"`
	Num    uint64  `json:"num"`
	Score  float64 `json:"score"`
	Tokens int     `json:"tokens"`
	Stale  bool    `json:"stale,omitempty"`
	Via    uint64  `json:"via,omitempty"`
	Text   string  `json:"text"`
	// More names further pages of the artefact that match.
	More []string `json:"more,omitempty"`
}

type searchView struct {
	Trace  string      `json:"trace"`
	Hits   []hitView   `json:"hits"`
	Left   []leftView  `json:"left"`
	Counts []countView `json:"left_counts"`
	// Degraded says why the search went by words alone, or did not see all pages, although there is a model, and which words
	// were read as others.
	Degraded string `json:"degraded,omitempty"`
}

func refsOf(refs []ctxpage.Ref) (names []string) {
	for _, r := range refs {
		names = append(names, r.String())
	}
	return names
}

func (c *searchCmd) Run(a *app) error {
	if c.Limit < 1 || c.Limit > ctxpage.MaxTopK { // 0 is the library's word for its default
		return usage("--limit %d: expected 1 to %d", c.Limit, ctxpage.MaxTopK)
	}
	opts, err := c.options()
	where, bad := c.where()
	floor, below := triage.ParseProvenance(c.Floor)
	if below != nil {
		return usage("--floor: %v", below)
	}
	opts = append(opts, where, ctxpage.WithFloor(floor))
	if err := errors.Join(err, bad, c.allow(a), c.embedWith(a)); err != nil {
		return err
	}
	return a.with(c.File, !c.ReadOnly, func(db *ctxpage.DB) error {
		if err := a.noteEmptyScope(db, c.Scope); err != nil {
			return err
		}
		found, err := c.scope(db, c.Scope).Search(a.ctx, strings.Join(c.Words, " "), c.Limit, opts...)
		if err != nil {
			return err
		}
		v := searchView{Trace: found.Trace, Hits: []hitView{}, Left: leftOf(found.Left), Counts: countsOf(found.Counts, found.Left), Degraded: found.Degraded}
		a.noteDegraded(v.Degraded)
		for _, h := range found.Hits {
			v.Hits = append(v.Hits, hitView{h.Ref.String(), h.Num, h.Score, h.Tokens, h.Stale, h.Via, h.Text, refsOf(h.More)})
		}
		a.noteLeft(v.Counts, found.Left)
		return a.emit(v, func(w io.Writer) {
			switch {
			case len(v.Hits) == 0 && len(v.Counts) > 0:
				fmt.Fprintln(w, "nothing to show: what matches was left out")
				return
			case len(v.Hits) == 0:
				fmt.Fprintln(w, "nothing found")
				a.noteUnknownKeys(db, c.Scope, &c.filterFlags)
				return
			}
			rows(w, "SCORE TOKENS REF TEXT", v.Hits, func(h *hitView) []any { return []any{fmt.Sprintf("%.2f", h.Score), h.Tokens, h.Ref, cut(h.Text, 80)} })
		})
	})
}
