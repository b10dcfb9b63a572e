package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// What a past assembly was, from its leaf alone: the same bytes once more (Replay), why a page is in it (Why), how two
// assemblies differ (Diff). A leaf names immutable page versions and the parameters of the assembly, so nothing that
// changed since changes the answers. What gc dropped is missing from a replay, which then says so; Why answers from the
// leaf.

// Replay is a past assembly, rendered again from its manifest and the immutable page versions that the manifest names.
type Replay struct {
	Trace string `json:"trace"`
	Text  string `json:"text"`
	// Same: the digest of the bytes equals the recorded one.
	Same bool `json:"same"`
	// Missing names pages that gc dropped; without them the replay is not whole.
	Missing []string `json:"missing,omitempty"`
	// Blocks are the pages of the context and Messages is the same context as messages, as Assembly has them. They are empty
	// if a page is missing.
	Blocks   []Block          `json:"-"`
	Messages []render.Message `json:"-"`
}

// Replay renders a past assembly again. It calls no source and no counter. Like every read it leaves a manifest: a
// recall by the operator in the scope of the assembly, whose Parent is trace. The error matches ErrReplay when the bytes
// differ from what was recorded, ErrGone when gc dropped a page, ErrErased when a page was erased.
func (db *DB) Replay(ctx context.Context, trace string) (*Replay, error) {
	leaf, err := db.assemblyLeaf(ctx, trace)
	if err != nil {
		return nil, err
	}
	return db.Scope(leaf.Scope, WithActor(store.OperatorScope)).replay(ctx, leaf)
}

// Replay renders a past assembly of the scope again, as DB.Replay does; the manifest names the actor of the handle.
// ErrNotFound when the scope itself recorded no assembly under trace.
func (s *Scope) Replay(ctx context.Context, trace string) (*Replay, error) {
	if s.err != nil {
		return nil, s.err
	}
	leaf, err := s.db.assemblyLeaf(ctx, trace)
	if err == nil && leaf.Scope != s.name || errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%w: scope %s recorded no assembly under the trace %.100q", store.ErrNotFound, s.name, trace)
	}
	if err != nil {
		return nil, err
	}
	return s.replay(ctx, leaf)
}

// Replayable returns nil if Replay would return the bytes that were recorded, and its error otherwise. It serves no
// content and leaves no manifest.
func (db *DB) Replayable(ctx context.Context, trace string) error {
	leaf, err := db.assemblyLeaf(ctx, trace)
	if err == nil {
		_, err = db.rendered(ctx, leaf)
	}
	return err
}

// replay renders an assembly for the scope that recorded it, and records the read.
func (s *Scope) replay(ctx context.Context, leaf *manifest.Record) (*Replay, error) {
	out, err := s.db.rendered(ctx, leaf)
	if out.Text == "" {
		return out, err
	}
	read := &manifest.Record{
		Type: manifest.TypeRecall, Parent: leaf.Trace, LSN: leaf.LSN, Action: "replay", Tokens: leaf.Tokens, Renderer: leaf.Renderer, Shape: leaf.Shape,
		Rendered: s.db.keyed("rendered", []byte(out.Text)), Pages: make([]manifest.Page, len(leaf.Pages)),
	}
	for i, p := range leaf.Pages {
		read.Pages[i] = manifest.Page{Num: p.Num, Version: p.Version, Form: p.Form, Ranges: p.Ranges, Tokens: p.Tokens, Via: p.Via}
	}
	if unlogged := s.emit(ctx, read); unlogged != nil {
		return nil, unlogged
	}
	return out, err
}

// rendered renders an assembly again.
func (db *DB) rendered(ctx context.Context, leaf *manifest.Record) (*Replay, error) {
	past := rendering.Replayer{Store: db.store, File: db.path, Fence: db.fence, Digest: func(text []byte) []byte { return db.keyed("rendered", text) }}
	r, err := past.Replay(ctx, leaf)
	out := &Replay{Trace: leaf.Trace, Text: r.Text, Same: r.Same, Missing: r.Missing, Messages: r.Messages}
	for i := range r.Shown {
		b, p := blockOf(&r.Shown[i]), &leaf.Pages[i]
		b.Num, b.Tokens, b.Score = p.Num, p.Tokens, p.Score.Float()
		out.Blocks = append(out.Blocks, b)
	}
	return out, err
}

// Why says why a page is, or is not, in a past assembly.
type Why struct {
	Trace string `json:"trace"`
	Ref   Ref    `json:"ref"`
	In    bool   `json:"in"`
	// Question is the text of the question. QuestionGone: there was a question, and its text was erased or not kept.
	Question     string         `json:"question,omitempty"`
	QuestionGone bool           `json:"question_gone,omitempty"`
	Page         *manifest.Page `json:"page,omitempty"`
	// Twin is the chosen page that says the same, if this page was left out for it.
	Twin string `json:"twin,omitempty"`
	// Steps tells it in plain words, in the order of the stages.
	Steps []string `json:"steps"`
}

// Why explains the place of an artefact or a page in a past assembly, even if it was never a candidate. With a zero ref
// it explains the whole assembly: what was asked, what it cost, what is in it and what was left out. Version.Trace and
// WindowTurn.Trace name the assembly that a turn was written from. Why serves no content and leaves no manifest.
func (db *DB) Why(ctx context.Context, trace string, ref Ref) (*Why, error) {
	leaf, err := db.assemblyLeaf(ctx, trace)
	if err != nil {
		return nil, err
	}
	w := &Why{Trace: trace, Ref: ref}
	if w.Question, err = db.asked(ctx, leaf); err != nil {
		return nil, err
	}
	w.QuestionGone = w.Question == "" && len(leaf.Query) > 0
	turn := func(ctx context.Context, scope, session, id string) (string, error) {
		in, err := db.Scope(scope).Session(session).Inspect(ctx, id)
		if err != nil {
			return "", err
		}
		return in.Turn[id], nil
	}
	teller := rendering.Teller{Store: db.store, Turn: turn}
	if ref == (Ref{}) {
		w.Steps = teller.Context(ctx, leaf)
		return w, nil
	}
	a, err := teller.Why(ctx, leaf, ref)
	if err != nil {
		return nil, err
	}
	w.In, w.Page, w.Twin, w.Steps = a.In, a.Page, a.Twin, a.Steps
	return w, nil
}

// Diff compares two past assemblies.
func (db *DB) Diff(ctx context.Context, a, b string) (manifest.Difference, error) {
	la, err := db.assemblyLeaf(ctx, a)
	if err != nil {
		return manifest.Difference{}, err
	}
	lb, err := db.assemblyLeaf(ctx, b)
	if err != nil {
		return manifest.Difference{}, err
	}
	for _, l := range []*manifest.Record{la, lb} {
		if l.Question, err = db.asked(ctx, l); err != nil {
			return manifest.Difference{}, err
		}
	}
	return manifest.Diff(la, lb), nil
}

// RefOf returns the reference of a page number for people, even if gc dropped the page; failing that, the bare number.
func (db *DB) RefOf(ctx context.Context, num uint64) string {
	return rendering.RefOf(ctx, db.store, num)
}

// Leaves ranges over the audit leaves that pass a filter, newest first, with the texts of the questions that were kept
// (Record.Question). It reads every leaf of the audit. An error is yielded once, last. Leaves that are written meanwhile
// are not listed. It serves no page contents and leaves no manifest.
func (db *DB) Leaves(ctx context.Context, f manifest.Filter) iter.Seq2[*manifest.Record, error] {
	f.Session = store.Canonical(f.Session)
	return func(yield func(*manifest.Record, error) bool) {
		for r, err := range store.Records(ctx, db.Manifests(), 0, math.MaxUint64, true) {
			if err == nil && !f.Match(r) {
				continue
			}
			if err == nil && len(r.Query) > 0 {
				r.Question, err = db.asked(ctx, r)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}
