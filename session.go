package ctxpage

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// A session in layers, each of which knows only those below it:
//
//	session.go, append.go, handoff.go, window.go   the methods users call; the gate for gated handles; turns on their way in and into contexts
//	internal/conversation              the session in the memory of this process: its turns, passes and watcher, one lock, its commits;
//	                                   in window*.go the rules: what to retain, when to compact
//	internal/handoff                   packets and contracts
//
// In the store a turn is a page of kind message, in the group that bears the session's name, plus state rows. The page is
// never rewritten; what a pass, a pin or the watcher decides about it is in the rows. So losing every decision would lose
// no word, and a turn that a plain Put writes into the group belongs to the session too.

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
func (c *Session) conversation() (*conversation.Conversation, error) {
	if c.s.err != nil {
		return nil, c.s.err
	}
	if err := store.CheckID("session", c.id); err != nil {
		return nil, err
	}
	return c.s.db.sessions.Of(c.s.name, c.id), nil
}

// hostConversation is conversation for calls that a gated handle must not make.
func (c *Session) hostConversation(what string) (*conversation.Conversation, error) {
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

// Inspect describes the session: its turns without their texts and how the window shows them, the pass in force, and the
// notes. For each turn that is named it explains why the window shows the turn as it does. It serves no content and leaves
// no manifest.
func (c *Session) Inspect(ctx context.Context, turns ...string) (*session.Inspection, error) {
	conv, err := c.conversation()
	if err != nil {
		return nil, err
	}
	return conv.Inspect(ctx, turns...)
}

// Turns ranges over the turns of the session, whole, starting at a sequence number, whatever the window shows. The limit of AtMost
// applies. Expired turns are skipped. Turns that are appended before the loop ends are listed. Each part that is
// read is in the manifest as an export, even if the loop breaks before its end.
func (c *Session) Turns(ctx context.Context, from int64, opts ...ReadOption) iter.Seq2[*Version, error] {
	o, limit := readOpts(opts), listedAtOnce
	if o.part != nil {
		limit = o.part.size()
	}
	return loop.All(ctx, from, func(from int64) ([]*Version, int64, bool, error) {
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
	list, err := conv.Located(ctx, from, limit, codec.Micros(c.s.db.opts.Clock()))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	leaf := &manifest.Record{Type: manifest.TypeExport, Session: c.id, Counter: c.s.db.opts.Counter.Name()}
	out := make([]*Version, len(list))
	for i, l := range list {
		if out[i], err = c.s.db.version(ctx, c.s.chain[:1], l); err != nil {
			return nil, err
		}
		out[i].exported(leaf)
	}
	return out, c.s.emit(ctx, leaf)
}

// Recall reads a turn in full, whatever the window shows of it. The manifest records the read under the session. It
// does not bring the turn back into the window; Pin does.
func (c *Session) Recall(ctx context.Context, id string) (*Version, error) {
	conv, err := c.conversation()
	if err != nil {
		return nil, err
	}
	compacted, err := conv.Recalled(ctx, id)
	if err != nil {
		return nil, err
	}
	at := c.s.db.began()
	v, leaf, err := c.s.read(ctx, Ref{Scope: c.s.name, ID: id}, readOptions{})
	if err != nil {
		return nil, err
	}
	leaf.Type, leaf.Session = manifest.TypeRecall, c.id
	if w := conv.Watcher(); w != nil && compacted {
		w.Expanded()
	}
	return v, c.s.emitRead(ctx, at, leaf)
}

// SetWindow sets the window of the session in tokens, and how it is kept, for every handle and process from now on: no
// commit leaves more than its usable part in the window. A zero Total removes the limit. If the window is above the new
// limit, the same transaction compacts it; ErrHeadroom when that is not enough, and then nothing changes.
func (c *Session) SetWindow(ctx context.Context, cfg session.Config) error {
	conv, err := c.hostConversation("SetWindow")
	if err != nil {
		return err
	}
	return conv.SetWindow(ctx, c.s.actor, cfg)
}

// Observe corrects the estimates of the session by what a provider counted. Turns are then budgeted by it, never below the
// estimate. ErrHeadroom when the turns exceed the window by the new count; the observation is kept all the same.
func (c *Session) Observe(ctx context.Context, estimated, actual int) error {
	conv, err := c.hostConversation("Observe")
	if err != nil {
		return err
	}
	return conv.Observe(ctx, c.s.actor, estimated, actual)
}

// Pass decides which turns stay whole, which become stubs and which leave the window, in one transaction. It reads
// metadata only. With the history, intent and parameters of the pass in force it returns that pass's verdicts and
// writes nothing. If SetWindow was called and the verdicts would overfill the window, the same transaction compacts it;
// ErrHeadroom when that is not enough, and then nothing changes. ErrNotFound for a session that nobody has begun.
func (c *Session) Pass(ctx context.Context, q session.PassQuery) (*session.StoredPass, error) {
	if !q.DryRun {
		if err := c.s.hostOnly("Session.Pass"); err != nil {
			return nil, err
		}
	}
	conv, err := c.conversation()
	if err != nil {
		return nil, err
	}
	return conv.Pass(c.s.db.timed(ctx), c.s.actor, q)
}

// Pin shows a turn whole, with its calls and results, whatever a pass or the watcher decides, until Unpin. ErrHeadroom
// when the window cannot take it. A pin yields to a newest turn that has no room beside it, and comes back later
// (Append); session.WindowTurn.Why reports it meanwhile.
func (c *Session) Pin(ctx context.Context, id string) error { return c.pin(ctx, id, true) }

// Unpin removes a pin.
func (c *Session) Unpin(ctx context.Context, id string) error { return c.pin(ctx, id, false) }

func (c *Session) pin(ctx context.Context, id string, on bool) error {
	conv, err := c.hostConversation("Pin")
	if err != nil {
		return err
	}
	return conv.Pin(ctx, c.s.actor, id, on)
}

// Passes lists all passes of the session, oldest first: of the pager, the watcher and the backstop.
func (c *Session) Passes(ctx context.Context) ([]session.PassInfo, error) {
	conv, err := c.conversation()
	if err != nil {
		return nil, err
	}
	return conv.Passes(ctx)
}

// Undo undoes a pass; 0: the newest that was not undone. The window then shows what it showed before, byte for byte and
// in order. A pager's pass can be undone while its verdicts are in force; the verdicts of the pass before it are then
// in force again. A watcher's pass can be undone while nothing has changed what it compacted. Otherwise the error is
// session.ErrUndo.
//
// ErrGone when the verdicts of the pass before are no longer kept; ErrHeadroom when the window has no room for what
// would come back.
func (c *Session) Undo(ctx context.Context, pass uint64) (session.PassInfo, error) {
	conv, err := c.hostConversation("Undo")
	if err != nil {
		return session.PassInfo{}, err
	}
	return conv.Undo(ctx, c.s.actor, pass)
}

// Watcher keeps the headroom of one session ahead of need, so that commits rarely have to make room themselves. The process
// that owns the files does the work for every session with a window, whichever process appends (Options.NoWatch switches
// that off). A Watcher follows it from any process, looks by itself (Step), or has this process do the work (Start). All
// handles that Watch returns for a session of an open database share it. All methods are safe for concurrent use.
type Watcher struct{ in *conversation.Watcher }

// Watch returns the watcher of the session. Its Events begin with the first one after this call. ErrInvalid without a
// window: call SetWindow first.
func (c *Session) Watch(ctx context.Context) (*Watcher, error) {
	conv, err := c.hostConversation("Watch")
	if err != nil {
		return nil, err
	}
	w, err := conv.Watch(ctx, c.s.actor)
	if err != nil {
		return nil, err
	}
	return &Watcher{w}, nil
}

// Events returns what happened, in order, whichever process did it. Nobody has to read it: events that find no room are
// dropped and counted, and the manifest has all events.
func (w *Watcher) Events() <-chan session.Event { return w.in.Events() }

// Stats returns the limits, the phase and the counters of the watcher.
func (w *Watcher) Stats(ctx context.Context) (session.WatchStats, error) { return w.in.Stats(ctx) }

// Plan returns what a pass would do at that time. It changes nothing.
func (w *Watcher) Plan(ctx context.Context, now time.Time) (session.Plan, error) {
	return w.in.Plan(ctx, now)
}

// Apply carries out a plan in one transaction, exactly, or fails: with session.ErrGeneration when the session has
// changed since the plan was made, with session.ErrPlan when the plan names a turn twice or a level that is not
// further. It makes the summaries first, under no lock.
func (w *Watcher) Apply(ctx context.Context, p session.Plan) (session.PassInfo, error) {
	return w.in.Apply(ctx, p)
}

// Step looks at the window once, in this process. It warns, plans and compacts as the limits require, and returns the
// events.
func (w *Watcher) Step(ctx context.Context, now time.Time) ([]session.Event, error) {
	return w.in.Step(ctx, now)
}

// Start has this process run the watcher of the session until Stop, the end of ctx, or the end of the database: its
// Summarizer and its Counter are used then. The owner of the files asks it after each commit that fills the window, and
// does the work itself when nothing was done within its Options.SummarizeTimeout. Of two processes that call Start the last
// one is asked. ErrInvalid when this process runs it already.
func (w *Watcher) Start(ctx context.Context) error { return w.in.Start(ctx) }

// Stop ends what Start began and waits for it. The owner goes on. It is harmless when nothing was started.
func (w *Watcher) Stop() { w.in.Stop() }

// Record replaces the notes of the session, which contracts and handoffs contain. Inspect returns them.
func (c *Session) Record(ctx context.Context, n session.Notes) error {
	conv, err := c.hostConversation("Record")
	if err != nil {
		return err
	}
	return conv.Record(ctx, c.s.actor, n)
}
