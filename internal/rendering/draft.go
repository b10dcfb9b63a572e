package rendering

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// A draft of an open transaction has no version yet, and may never get one. What a context showed of drafts is therefore
// kept in a state row of its own, which nothing but a replay reads: no search, no listing, no export.
//
// It is committed before the manifest of the context. A crash in between leaves a row that no manifest names.

// Drafts gathers what a context shows of drafts, in the order of their pages in the manifest.
type Drafts struct {
	row draftsRow
	at  map[*store.Put]int
}

// draftsRow holds the drafts in a context. It is written once, so nothing keeps fields of a later release: a row that has
// some is refused.
type draftsRow struct {
	Actor string
	Puts  []store.Put
	Shown []shownDraft // in the order of their pages in the manifest
}

const draftsVersion = 1

// draftsFields is the row. Tags are never given twice.
var draftsFields = codec.Record[draftsRow]{Name: "drafts of a context", Fields: []codec.Field[draftsRow]{
	codec.Text(1, "Actor", func(r *draftsRow) *string { return &r.Actor }),
	codec.List(2, "Puts", &format.PutFields, func(r *draftsRow) *[]store.Put { return &r.Puts }),
	codec.List(3, "Shown", &shownFields, func(r *draftsRow) *[]shownDraft { return &r.Shown }),
}}

var shownFields = codec.Record[shownDraft]{Name: "a page of a draft", Fields: []codec.Field[shownDraft]{
	codec.Int(1, "Put", func(d *shownDraft) *int { return &d.Put }),
	codec.Int(2, "Page", func(d *shownDraft) *int { return &d.Page }),
}}

func readDrafts(raw []byte) (row draftsRow, err error) {
	err = codec.ReadRow(&draftsFields, raw, draftsVersion, &row)
	return row, err
}

type shownDraft struct {
	Put  int // index in Puts
	Page int // counted from 1
}

const draftsPrefix = "drafts/"

// DraftsKind says what a store must know of these rows.
func DraftsKind() store.StateKind {
	return store.StateKind{Prefix: draftsPrefix, Past: past, Stays: true}
}

// past: only a replay of its context reads the row.
func past(key string) (at int64, of store.Ref) {
	trace, _, _ := strings.Cut(strings.TrimPrefix(key, draftsPrefix), "/")
	if id, err := ulid.ParseStrict(trace); err == nil {
		at = int64(id.Time()) * 1000
	}
	return at, store.Ref{}
}

// draftsKey tells contexts with one trace apart by what they showed.
func draftsKey(leaf *manifest.Record) string {
	return draftsPrefix + leaf.Trace + "/" + hex.EncodeToString(leaf.Rendered)
}

// Add notes that a page of a draft, counted from 1, is shown.
func (d *Drafts) Add(p *store.Put, page int) {
	i, ok := d.at[p]
	if !ok {
		if d.at == nil {
			d.at = map[*store.Put]int{}
		}
		i = len(d.row.Puts)
		d.at[p] = i
		d.row.Puts = append(d.row.Puts, untold(p))
	}
	d.row.Puts[i].Pages[page-1].Text = p.Pages[page-1].Text
	d.row.Shown = append(d.row.Shown, shownDraft{Put: i, Page: page})
}

// Row is the state row of a context by actor; ok reports whether there is anything to keep. It needs no precondition: the
// key is a digest of what was shown, so whoever else writes this row writes the same.
func (d *Drafts) Row(leaf *manifest.Record, actor string) (row store.StateRow, ok bool) {
	if len(d.row.Shown) == 0 {
		return row, false
	}
	d.row.Actor = actor
	row.Key = draftsKey(leaf)
	row.Value = codec.Row(&draftsFields, draftsVersion, &d.row, 4096)
	return row, true
}

// untold is a put without the texts of its pages: a context shows a few pages of a draft, which may have thousands.
func untold(p *store.Put) store.Put {
	out := *p
	out.Pages = slices.Clone(p.Pages)
	for i := range out.Pages {
		out.Pages[i].Text = ""
	}
	return out
}

// drafts returns the drafts of a past context as if they were pages, in the order of its manifest; nil when none are kept.
func (a Replayer) drafts(ctx context.Context, leaf *manifest.Record) ([]store.Loaded, error) {
	key := draftsKey(leaf)
	stored, err := a.Store.State(ctx, key)
	if err != nil || stored.Value == nil {
		return nil, err
	}
	row, err := readDrafts(stored.Value)
	switch {
	case errors.Is(err, codec.ErrNewer):
		return nil, fmt.Errorf("%w: state row %q: %w; use a newer release", store.ErrNewerFormat, key, err)
	case err != nil:
		return nil, &store.CorruptError{File: a.File, Err: fmt.Errorf("state row %q: %w", key, err)}
	}
	out := make([]store.Loaded, len(row.Shown))
	for i, d := range row.Shown {
		if d.Put < 0 || d.Put >= len(row.Puts) || d.Page < 1 || d.Page > len(row.Puts[d.Put].Pages) {
			return nil, &store.CorruptError{File: a.File, Err: fmt.Errorf("state row %q: draft %d is page %d of artefact %d", key, i, d.Page, d.Put)}
		}
		p := &row.Puts[d.Put]
		out[i] = store.Loaded{Head: DraftHead(p, leaf.Scope, row.Actor), Page: d.Page, Text: p.Pages[d.Page-1].Text}
	}
	return out, nil
}

// DraftHead is the head a draft would have.
func DraftHead(p *store.Put, scope, actor string) *store.Head {
	rows := make([]store.PageRow, len(p.Pages))
	for i, page := range p.Pages {
		rows[i] = store.PageRow{Tokens: uint32(page.Tokens), Digest: page.Digest}
	}
	h := &store.Head{Artefact: p.Artefact, Scope: scope, Actor: actor, Rows: rows, Counter: p.Counter}
	h.ToolCalls = slices.Clone(h.ToolCalls) // a context outlives the draft, which its caller may change
	return h
}

// DraftsOf returns the trace of the context that a row is of, and the drafts it showed.
func DraftsOf(row store.StateRow) (trace string, puts []store.Put, err error) {
	trace, _, _ = strings.Cut(strings.TrimPrefix(row.Key, draftsPrefix), "/")
	r, err := readDrafts(row.Value)
	return trace, r.Puts, err
}
