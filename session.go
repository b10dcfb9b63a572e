package ctxpage

import (
	"context"
	"iter"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/internal/live"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// A session in layers, each of which knows only those below it:
//
//	session.go, append.go, pass.go, watch.go, headroom.go, handoff.go   the methods users call; the gate for gated handles
//	internal/live    the session in the memory of this process: loaded, one lock, committed, watched
//	internal/conversation    turns, rows, window and passes as data: what a change means
//	package session  the rules: what to retain, when to compact, what a handoff says
//
// In the store a turn is a page of kind message, in the group that bears the session's name, plus state rows
// (internal/conversation). The page is never rewritten; what a pass, a pin or the watcher decides about it is in the rows. So
// losing every decision would lose no word, and a turn that a plain Put writes into the group belongs to the session
// too.

// Session is one conversation of a scope: a group of message pages in order, and a window on them. Turns that a pass or
// the watcher takes out of the window stay stored; Recall reads them. A Session needs no creating and no closing, and
// is safe for concurrent use.
//
// The words of the user are stored with provenance chunk. What the assistant and the tools say is visible in this
// session only, until it passes the gate like any other draft.
type Session struct {
	s  *Scope
	id string
}

// Session returns the handle of a conversation of the scope, named like an artefact. The first method call reports an
// invalid name.
func (s *Scope) Session(id string) *Session { return &Session{s, store.Canonical(id)} }

// ID returns the name of the conversation: the Group of its turns, and Query.Session.
func (c *Session) ID() string { return c.id }

// conversation returns the session in memory, or the error of the handle. It reads nothing yet.
func (c *Session) conversation() (*live.Conversation, error) {
	if c.s.err != nil {
		return nil, c.s.err
	}
	if err := store.CheckID("session", c.id); err != nil {
		return nil, err
	}
	return c.s.db.sessions.Of(c.s.name, c.id), nil
}

// hostConversation is conversation for calls that a gated handle must not make.
func (c *Session) hostConversation(what string) (*live.Conversation, error) {
	if err := c.s.hostOnly("Session." + what); err != nil {
		return nil, err
	}
	return c.conversation()
}

// Sessions ranges over the conversations of the scope, by name: those with turns or a window; AtMost applies. Sessions that begin
// meanwhile may or may not be listed; no name comes twice.
func (s *Scope) Sessions(ctx context.Context, opts ...ReadOption) iter.Seq2[string, error] {
	prefix := conversation.SessionRowKey + s.name + "\x00"
	return stateRows(ctx, s.db.store, s.err, readOpts(opts).part, prefix, func(r store.StateRow) (string, error) { return strings.TrimPrefix(r.Key, prefix), nil })
}

// Window describes the turns without their texts. It serves no content and leaves no manifest.
func (c *Session) Window(ctx context.Context) (*session.Window, error) {
	conv, err := c.conversation()
	if err != nil {
		return nil, err
	}
	w := &session.Window{Session: c.id, Turns: []session.WindowTurn{}}
	err = conv.Exclusively(ctx, func() error {
		w.LSN, w.Pass, w.InForce = conv.LSN, conv.State.Pass, conv.State.InForce
		if cfg := conv.State.Config; cfg != nil {
			t, err := cfg.Thresholds()
			if err != nil {
				return err
			}
			w.Limits = &t
		}
		w.Turns = make([]session.WindowTurn, 0, len(conv.Blocks))
		for i := range conv.Blocks {
			t := conv.WindowTurn(i)
			w.Turns = append(w.Turns, t)
			w.Tokens += t.Tokens
			w.Stored += t.Stored
		}
		return nil
	})
	return w, err
}

// Turns ranges over the turns of the session, whole, starting at a sequence number, whatever the window shows of them. Of AtMost
// the limit applies. Expired turns are skipped. Turns that are appended before the loop ends are listed. Each part that is
// read is in the manifest as an export, even if the loop breaks before its end.
func (c *Session) Turns(ctx context.Context, from int64, opts ...ReadOption) iter.Seq2[*Version, error] {
	o, limit := readOpts(opts), listedAtOnce
	if o.part != nil {
		limit = o.part.size()
	}
	return listing.All(ctx, from, func(from int64) ([]*Version, int64, bool, error) {
		part, err := c.turns(ctx, from, limit)
		if err != nil || len(part) < limit {
			return part, 0, false, err
		}
		return part, part[len(part)-1].Seq + 1, o.part == nil, nil
	})
}

// turns reads a part of Turns.
func (c *Session) turns(ctx context.Context, from int64, limit int) ([]*Version, error) {
	conv, err := c.conversation()
	if err != nil {
		return nil, err
	}
	var list []store.Located
	now := c.s.db.opts.Clock()
	err = conv.Exclusively(ctx, func() error {
		for i := range conv.Blocks {
			b := &conv.Blocks[i]
			if b.Seq < from || len(list) == limit || b.Expires != 0 && b.Expires <= codec.Micros(now) {
				continue
			}
			l := store.Located{Scope: c.s.name, Version: b.Version}
			for _, n := range b.Nums {
				l.Pages = append(l.Pages, store.PageKey{Num: n, Version: b.Version})
			}
			list = append(list, l)
		}
		return nil
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	leaf := &manifest.Record{Type: manifest.TypeExport, Session: c.id, Counter: c.s.db.opts.Counter.Name()}
	out := make([]*Version, len(list))
	for i, l := range list {
		if out[i], err = c.s.db.version(ctx, c.s.chain[:1], l); err != nil {
			return nil, err
		}
		for _, p := range out[i].Pages {
			leaf.Pages = append(leaf.Pages, manifest.Page{Num: p.Num, Version: out[i].Version, Tokens: p.Tokens})
			leaf.Tokens += p.Tokens
		}
		leaf.LSN = max(leaf.LSN, out[i].LSN)
	}
	return out, c.s.emit(ctx, leaf)
}
