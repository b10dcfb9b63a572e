package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"
)

// Who may step the directives of a scope, and when. Package directive has the rules, internal/directivelog the rows and the
// page.
//
//	Step ─▶ steps (one step at a time in this process) ─▶ Load: states of the scope and its ancestors
//	                                                        │
//	                 commit: versions, state row, page ◀── decide
//	                   │ refused: another process stepped in between ─▶ Load again (format.Retry)
//	                   └ done: a version for each change, one leaf
//
// Invariant: a step is judged on the states that it read, of ancestors too, and its commit expects all of those rows
// unchanged. So no step of any process is lost or judged on an old state; the lock only spares work. One lock serves
// all scopes, because a step reads its ancestors; steps come at the pace of people typing.

// Directives holds the decisions of the user of a scope: one premise and policies, see package directive. Only Step,
// Apply, Restore and Import change them; no page, model output or assembly does. The host vouches for them, so they
// pass no gate. A change is durable when the call returns, makes a version of its own, and is in the manifest without
// its content. Concurrent calls run one after the other, over all scopes of the database.
//
// The host's loop, for each message of the user and for nothing else:
//
//	decision, err := scope.Directives().Step(ctx, input)
//	switch decision.Kind {
//	case directive.Clarify:     // show decision.Prompt; do not call the model
//	case directive.Update:      // confirm that it is kept
//	case directive.Passthrough: // Assemble for the input, call the model
//	}
//
// Assemble needs nothing more: each context contains the state of the scope and of its ancestors, as class system.
type Directives struct{ s *Scope }

// Directives returns access to what the user of the scope has decided.
func (s *Scope) Directives() *Directives { return &Directives{s} }

// DirectiveState is the current state of a scope's directives.
type DirectiveState struct {
	Own       directive.Session   // the scope's own state, and the open question, if there is one
	Effective directive.Effective // the own state joined with the ancestors'
	Version   uint64              // of Own: 0 before the first change, then rising by one
}

// State returns the current state. It serves no page, so it leaves no manifest.
func (d *Directives) State(ctx context.Context) (out DirectiveState, err error) {
	err = d.exclusively(ctx, func(c *directivelog.Chain) error {
		own := directive.Scoped{Scope: d.s.name, State: c.Own.After.State}
		out = DirectiveState{Own: c.Own.After, Effective: directive.Join(append(c.Above, own)...), Version: c.Own.Version}
		return nil
	})
	return out, err
}

// Step judges one input of the user and keeps the outcome. The judgement includes the ancestors: what an ancestor
// prohibits cannot be used here, what it has set cannot be removed, and the decision names the ancestor. An input that
// changes nothing writes nothing.
//
// Errors: ErrInvalid when an input that changes something is not UTF-8 or longer than 64 KiB, ErrReadOnly, and
// the errors of a commit. The end of ctx ends the wait for other steps, not a commit that has started.
func (d *Directives) Step(ctx context.Context, input string, opts ...directive.Option) (out directive.Decision, err error) {
	if err := d.s.hostOnly("Directives.Step"); err != nil {
		return directive.Decision{}, err
	}
	err = d.exclusively(ctx, func(c *directivelog.Chain) error {
		if err := c.Step(input, opts); err != nil {
			return err
		}
		out = c.Decided
		return d.commit(ctx, c)
	})
	if err != nil {
		return directive.Decision{}, err
	}
	return out, nil
}

// Preview returns what Step would answer. It changes nothing, not even the open question.
func (d *Directives) Preview(ctx context.Context, input string, opts ...directive.Option) (out directive.Trial, err error) {
	err = d.exclusively(ctx, func(c *directivelog.Chain) (err error) {
		out, err = c.Preview(input, opts)
		return err
	})
	if err != nil {
		return directive.Trial{}, err
	}
	return out, nil
}

// Apply steps through the user's messages of a transcript. It stops at the first clarification: earlier changes stay,
// and a question that it opened stays open. All changes are one commit, with a version for each message that changed
// something.
func (d *Directives) Apply(ctx context.Context, messages []directive.Message, opts ...directive.Option) (out directive.Outcome, err error) {
	if err := d.s.hostOnly("Directives.Apply"); err != nil {
		return directive.Outcome{}, err
	}
	err = d.exclusively(ctx, func(c *directivelog.Chain) (err error) {
		if out, err = c.Apply(messages, opts); err != nil {
			return err
		}
		return d.commit(ctx, c)
	})
	if err != nil {
		return directive.Outcome{}, err
	}
	return out, nil
}

// Restore makes a new version that equals an old one, its open question included; version 0 is the empty state. Restore
// does not judge: if an ancestor now prohibits what the old version uses, the prohibition wins. ErrNotFound when the
// scope has no such version.
func (d *Directives) Restore(ctx context.Context, version uint64) error {
	if err := d.s.hostOnly("Directives.Restore"); err != nil {
		return err
	}
	return d.exclusively(ctx, func(c *directivelog.Chain) error {
		var old directive.Entry
		if version > 0 {
			row, err := d.entry(ctx, version)
			if err != nil {
				return err
			}
			old = row
		}
		c.Restore(old, version)
		return d.commit(ctx, c)
	})
}

// Import replaces the session of the scope by one from elsewhere, as directive.ImportJSON or ImportCheckpoint returns
// it. Like Restore it does not judge. ErrInvalid for a session that no directive checkpoint can hold.
func (d *Directives) Import(ctx context.Context, session directive.Session) error {
	if err := d.s.hostOnly("Directives.Import"); err != nil {
		return err
	}
	clean, err := directive.ImportCheckpoint(directive.ExportCheckpoint(session))
	if err != nil {
		return fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return d.exclusively(ctx, func(c *directivelog.Chain) error {
		c.Import(clean)
		return d.commit(ctx, c)
	})
}

// Entries ranges over the versions of the scope's own directives, newest first; AtMost applies. Versions that are made
// meanwhile are not listed.
func (d *Directives) Entries(ctx context.Context, opts ...ReadOption) iter.Seq2[directive.Entry, error] {
	return ranged(ctx, readOpts(opts).part, listedAtOnce, func(cursor string, limit int) ([]directive.Entry, string, error) {
		return d.list(ctx, cursor, limit)
	})
}

// list reads a part of Entries.
func (d *Directives) list(ctx context.Context, cursor string, limit int) (list []directive.Entry, next string, err error) {
	if d.s.err != nil {
		return nil, "", d.s.err
	}
	newest, err := d.s.db.journal().Newest(ctx, d.s.name)
	if err != nil {
		return nil, "", err
	}
	from := newest.Version
	if cursor != "" {
		v, ok := loop.At(cursor, d.s.name)
		if !ok || v > from {
			return nil, "", store.Invalid("cursor", strconv.Quote(cursor), "a cursor from the page before")
		}
		from = v
	}
	for ; from > 0; from-- {
		if len(list) == limit {
			return list, loop.Cursor(from, d.s.name), nil
		}
		row, err := d.entry(ctx, from)
		if errors.Is(err, store.ErrGone) { // and so are those before it
			break
		}
		if err != nil {
			return nil, "", err
		}
		list = append(list, row)
	}
	return list, "", nil
}

// entry reads one version of the scope's own directives.
func (d *Directives) entry(ctx context.Context, version uint64) (directive.Entry, error) {
	return d.s.db.journal().At(ctx, d.s.name, version)
}

// exclusively runs fn on the state of the scope while no other step of this process runs, and runs it again when a step
// of another process came in between.
func (d *Directives) exclusively(ctx context.Context, fn func(c *directivelog.Chain) error) error {
	if d.s.err != nil {
		return d.s.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case d.s.db.steps <- struct{}{}:
		defer func() { <-d.s.db.steps }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return format.Retry(ctx, func() error { // another process may step too
		c, err := d.s.db.journal().Load(ctx, d.s.chain)
		if err != nil {
			return err
		}
		return fn(c)
	})
}

// commit writes the new versions, the state row and the page in one batch.
func (d *Directives) commit(ctx context.Context, c *directivelog.Chain) error {
	if !c.Changed() {
		return nil
	}
	s := d.s
	if s.db.opts.ReadOnly {
		return store.ErrReadOnly
	}
	id, err := s.db.newID()
	if err != nil {
		return err
	}
	b := store.Batch{ID: id, Scope: s.name, Actor: s.actor, Now: s.db.opts.Clock(), OnStale: store.AllowStale}
	c.Write(&b, s.actor, b.Now)
	page, changed, err := c.Page()
	switch {
	case err != nil:
		return err
	case page != nil:
		put, err := s.db.makePages(*page, store.Validator{}, math.MaxInt) // one page, whatever its length
		if err != nil {
			return err
		}
		b.Puts = []store.Put{put}
	case changed:
		b.Deletes = []string{directivelog.PageID}
	}
	// The end of ctx does not end a commit: no second step may be judged while the outcome of this one is open.
	_, err = s.db.store.Commit(context.WithoutCancel(ctx), b)
	return err
}

// journal reads the stored rows of directives.
func (db *DB) journal() directivelog.Journal {
	return directivelog.Journal{Store: db.store, File: db.path}
}

// checkDirectives checks the directives of all scopes while no step of this process runs.
func (db *DB) checkDirectives(ctx context.Context) ([]store.Problem, error) {
	select {
	case db.steps <- struct{}{}:
		defer func() { <-db.steps }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return db.journal().Check(ctx)
}

// overrule resolves the directives of several scopes in one assembly: each page shows only what holds beside the
// others.
func (a *assembling) overrule() {
	var pages []*item
	var texts []string
	for _, it := range a.ranked {
		if it.reason == "" && directivelog.IsPage(it.cand.Kind, it.cand.Ref.ID) {
			pages, texts = append(pages, it), append(texts, it.text)
		}
	}
	for i, r := range directivelog.Overrule(texts) {
		it := pages[i]
		it.whole = true
		switch {
		case r.Out:
			it.reason = r.Why
		case r.Keep != nil:
			it.cuts, it.note = r.Keep, r.Why
		}
	}
}
