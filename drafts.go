package ctxpage

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
)

// A draft of an open transaction has no version yet, and may never get one. What a context showed of drafts is therefore
// kept in a state row of its own, which nothing but Replay reads: no search, no listing, no export.
//
// It is committed before the manifest of the context. A crash in between leaves a row that no manifest names.

// draftsRow holds the drafts in a context. Fields are written in order; new ones go to the end.
type draftsRow struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack struct{} `msgpack:",as_array"`
	Actor    string
	Puts     []store.Put
	Shown    []shownDraft // in the order of their pages in the manifest
}

type shownDraft struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack struct{} `msgpack:",as_array"`
	Put      int      // index in Puts
	Page     int      // counted from 1
}

const draftsPrefix = "drafts/"

// draftsKey tells contexts with one trace apart by what they showed.
func draftsKey(trace string, rendered []byte) string {
	return draftsPrefix + trace + "/" + hex.EncodeToString(rendered)
}

// keepDrafts stores the drafts that stand in the context.
func (a *assembling) keepDrafts(ctx context.Context, leaf *manifest.Record) error {
	row := draftsRow{Actor: a.s.actor}
	at := map[*store.Put]int{}
	for _, it := range a.placed {
		if it.own == nil {
			continue
		}
		i, ok := at[it.own.put]
		if !ok {
			i = len(row.Puts)
			at[it.own.put] = i
			row.Puts = append(row.Puts, untold(it.own.put))
		}
		row.Puts[i].Pages[it.own.page-1].Text = it.own.put.Pages[it.own.page-1].Text
		row.Shown = append(row.Shown, shownDraft{Put: i, Page: it.own.page})
	}
	if len(row.Shown) == 0 || a.s.db.opts.ReadOnly {
		return nil
	}
	b, err := msgpack.Marshal(&row)
	if err != nil {
		return err
	}
	id, err := a.s.db.newID()
	if err != nil {
		return err
	}
	_, err = a.s.db.store.Commit(ctx, store.Batch{
		ID: id, Trace: leaf.Trace, Scope: a.s.name, Actor: a.s.actor, Now: a.s.db.opts.Clock(), OnStale: AllowStale,
		State: []store.StateRow{{Key: draftsKey(leaf.Trace, leaf.Rendered), Value: b}},
		Leaf:  manifest.Record{Type: manifest.TypeCommit, Action: actionDrafts, Reason: "shown in an assembly"},
	})
	return err
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

// shownDrafts gives the drafts of a past context as if they were pages, in the order of its manifest; nil when none are
// kept.
func (db *DB) shownDrafts(ctx context.Context, leaf *manifest.Record) ([]store.Loaded, error) {
	key := draftsKey(leaf.Trace, leaf.Rendered)
	b, err := db.store.State(ctx, key)
	if err != nil || b == nil {
		return nil, err
	}
	var row draftsRow
	if err := codec.Unpack(b, &row); err != nil {
		return nil, &CorruptError{File: db.path, Err: fmt.Errorf("state row %q: %w", key, err)}
	}
	out := make([]store.Loaded, len(row.Shown))
	for i, d := range row.Shown {
		if d.Put < 0 || d.Put >= len(row.Puts) || d.Page < 1 || d.Page > len(row.Puts[d.Put].Pages) {
			return nil, &CorruptError{File: db.path, Err: fmt.Errorf("state row %q: draft %d is page %d of artefact %d", key, i, d.Page, d.Put)}
		}
		p := &row.Puts[d.Put]
		out[i] = store.Loaded{Head: draftHead(p, leaf.Scope, row.Actor), Page: d.Page, Text: p.Pages[d.Page-1].Text}
	}
	return out, nil
}

// draftHead is the head a draft would have.
func draftHead(p *store.Put, scope, actor string) *store.Head {
	rows := make([]store.PageRow, len(p.Pages))
	for i, page := range p.Pages {
		rows[i] = store.PageRow{Tokens: uint32(page.Tokens), Digest: page.Digest}
	}
	h := &store.Head{Artefact: p.Artefact, Scope: scope, Actor: actor, Rows: rows, Counter: p.Counter}
	h.ToolCalls = slices.Clone(h.ToolCalls) // a context outlives the draft, which its caller may change
	return h
}

// Unchanged says whether the draft of an artefact says what its current version says already, so that committing it now
// would make no version. trust is the provenance it would get, as an operator may give another; 0: the draft's own. It
// writes nothing and leaves no manifest. What a commit now would be refused for before anything is looked at is the error
// here too: a write that failed, a supersession of nothing.
func (tx *Txn) Unchanged(ctx context.Context, id string, trust Provenance) (bool, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state == txnDone {
		return false, ErrTxnDone
	}
	if err := tx.whole(); err != nil {
		return false, err
	}
	w := tx.writes[id]
	if w == nil {
		return false, fmt.Errorf("%w: the transaction has no draft of %q", ErrNotFound, id)
	}
	scopes := store.Scopes{tx.s.name}
	l, err := tx.s.db.store.Resolve(ctx, scopes, Ref{Scope: tx.s.name, ID: id})
	if errors.Is(err, ErrNotFound) || err == nil && l.By != 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	loaded, err := tx.s.db.store.Load(ctx, scopes, l.Pages[:1], store.WantHead)
	if err == nil {
		err = loaded[0].Err
	}
	if err != nil {
		return false, err
	}
	h := draftHead(w, tx.s.name, tx.s.actor)
	h.Source = w.Source
	if trust != 0 {
		h.Provenance = trust
	}
	return engine.Repeats(loaded[0].Head, h, w), nil
}
