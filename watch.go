package ctxpage

import (
	"context"
	"time"

	"github.com/ctxpage/ctxpage/internal/live"
	"github.com/ctxpage/ctxpage/session"
)

// Watcher keeps the headroom of one session ahead of need, so that commits rarely have to make room themselves. An open
// database has one for each watched session: all handles that Watch returns for a session share it. It works when Step
// is called, or in the background between Start and Stop. All methods are safe for concurrent use. The work itself is
// in internal/live.
type Watcher struct{ in *live.Watcher }

// Watch returns the watcher of the session, which stays in memory with it until Close. ErrInvalid without a window:
// call SetWindow first.
func (c *Session) Watch(ctx context.Context) (*Watcher, error) {
	conv, err := c.hostConversation("Watch")
	if err != nil {
		return nil, err
	}
	w, err := conv.Watch(ctx, c.s.actor, c.s.emit)
	if err != nil {
		return nil, err
	}
	return &Watcher{w}, nil
}

// Events returns what happened, in order. Nobody has to read it: events that find no room are dropped and counted, and
// the manifest has all of them.
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

// Step looks at the window once. It warns, plans and compacts as the limits say, and returns the events.
func (w *Watcher) Step(ctx context.Context, now time.Time) ([]session.Event, error) {
	return w.in.Step(ctx, now)
}

// Start works in the background until Stop, the end of ctx, or the end of the database. It looks at once, after each
// commit of the session, and once a second while the machine is not idle. ErrInvalid when it is running already.
func (w *Watcher) Start(ctx context.Context) error { return w.in.Start(ctx) }

// Stop ends the background work and waits for it. It is harmless when nothing runs.
func (w *Watcher) Stop() { w.in.Stop() }
