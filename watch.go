package ctxpage

import (
	"context"
	"time"

	"github.com/ctxpage/ctxpage/internal/live"
	"github.com/ctxpage/ctxpage/session"
)

// Watcher keeps the headroom of one session ahead of need, so that commits rarely have to make room themselves. The process
// that owns the files does the work for every session with a window, whichever process appends (Options.NoWatch switches
// that off). A Watcher follows it from any process, looks by itself (Step), or has this process do the work (Start). All
// handles that Watch returns for a session of an open database share it. All methods are safe for concurrent use. The work
// itself is in internal/live.
type Watcher struct{ in *live.Watcher }

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
// dropped and counted, and the manifest has all of them.
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

// Step looks at the window once, in this process. It warns, plans and compacts as the limits say, and returns the events.
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
