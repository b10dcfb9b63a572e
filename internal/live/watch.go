package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// WatchTick is how often the background looks again while the machine is not idle.
const WatchTick = time.Second

// WatchEvents is how many events wait for a reader. Further ones are dropped and counted.
const WatchEvents = 256

// planTries is how often a pass is planned when the session changes under it. The last time runs under the lock.
const planTries = 3

// The rules are those of session.Machine, a value:
//
//	Step: Machine.Step (what to do now) ─▶ act (do it) ─▶ Machine.Done (what came of it)
//	act:  Plan, under the lock ─▶ MakeForms, without it: a summarizer may be slow ─▶ Apply, under it, if Rev is unchanged
//	           ▲                                                                       │
//	           └──────────────── the session changed: plan again, planTries times ◀────┘
//
// Ownership: machine changes under the session's lock only; stop, ending and done are guarded by mu. After planTries
// changed sessions a pass is planned and applied under one lock, with extracts instead of summaries (actAtOnce): a
// session that is written to without a pause would otherwise leave all the work to its commits.

// Watcher keeps the headroom of one session ahead of need, so that commits rarely have to make room themselves. An open
// database has one for each watched session; Watch returns it. It works when Step is called, or in the background
// between Start and Stop. All methods are safe for concurrent use.
type Watcher struct {
	c      *Conversation
	actor  string
	emit   func(context.Context, *manifest.Record) error // signs and writes a leaf
	events chan session.Event
	signal chan struct{}

	// Under c.lock.
	machine session.Machine

	dropped atomic.Int64
	mu      sync.Mutex // guards those below
	stop    context.CancelFunc
	ending  <-chan struct{} // of the context of the background work
	done    chan struct{}
}

// Watch returns the watcher of the session, which then stays in memory with the conversation. The first call decides who
// acts (actor) and who writes leaves (emit). ErrInvalid without a window.
func (c *Conversation) Watch(ctx context.Context, actor string, emit func(context.Context, *manifest.Record) error) (w *Watcher, err error) {
	err = c.Exclusively(ctx, func() error {
		if w = c.Watcher(); w != nil {
			return nil
		}
		machine, err := machineOf(c)
		if err != nil {
			return err
		}
		w = &Watcher{c: c, actor: actor, emit: emit, machine: machine, events: make(chan session.Event, WatchEvents), signal: make(chan struct{}, 1)}
		c.SetWatcher(w)
		return nil
	})
	return w, err
}

// machineOf makes the machine for the session's current window.
func machineOf(c *Conversation) (session.Machine, error) {
	if c.State.Config == nil {
		return session.Machine{}, noWindow(c)
	}
	return session.NewMachine(*c.State.Config)
}

// noWindow is the error of a session without a window.
func noWindow(c *Conversation) error {
	return store.Invalid("window", "none of session "+c.ID, "one that was set (Session.SetWindow; dbctl watch --total N --once)")
}

// Configure starts the machine again after the window of the session changed.
func (w *Watcher) Configure(ctx context.Context) error {
	return w.c.Exclusively(ctx, func() (err error) {
		if w.c.State.Config == nil {
			return nil // Step rests
		}
		w.machine, err = machineOf(w.c)
		return err
	})
}

// Events returns what happened, in order. Nobody has to read it: events that find no room are dropped and counted, and
// the manifest has all of them.
func (w *Watcher) Events() <-chan session.Event { return w.events }

// Stats returns the limits, the phase and the counters of the watcher.
func (w *Watcher) Stats(ctx context.Context) (out session.WatchStats, err error) {
	err = w.c.Exclusively(ctx, func() error {
		out = session.WatchStats{
			Limits: w.machine.Thresholds(), Phase: w.machine.Phase(), Counters: w.machine.Counters(), Actual: w.c.Tokens(),
			Analysis: w.c.Window().Analyse(), Dropped: w.dropped.Load(),
		}
		if w.c.State.Config == nil { // the window was taken away
			out.Limits = session.Thresholds{}
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	out.Running = w.running()
	return out, err
}

// running reports whether the background works. The caller holds w.mu.
func (w *Watcher) running() bool {
	if w.stop == nil {
		return false
	}
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// Plan returns what a pass would do at that time. It changes nothing.
func (w *Watcher) Plan(ctx context.Context, now time.Time) (p session.Plan, err error) {
	err = w.c.Exclusively(ctx, func() error {
		p, err = w.plan(now)
		return err
	})
	return p, err
}

// plan is Plan for a caller that holds the lock of the session.
func (w *Watcher) plan(now time.Time) (session.Plan, error) {
	if w.c.State.Config == nil {
		return session.Plan{}, noWindow(w.c)
	}
	return w.c.Window().Plan(now)
}

// Apply carries out a plan in one transaction, exactly, or fails: with session.ErrGeneration when the session has
// changed since the plan was made, with session.ErrPlan when the plan names a turn twice or a level that is not
// further. It makes the summaries first, under no lock.
func (w *Watcher) Apply(ctx context.Context, p session.Plan) (info session.PassInfo, err error) {
	var forms []talk.Form
	same := func() error {
		if p.Generation != w.c.Rev {
			return fmt.Errorf("%w (plan %d, session %d)", session.ErrGeneration, p.Generation, w.c.Rev)
		}
		return nil
	}
	err = w.c.Exclusively(ctx, func() error {
		forms = w.c.FormsOf(p)
		return same()
	})
	if err != nil {
		return info, err
	}
	if forms, err = w.c.MakeForms(ctx, forms, w.c.host.Summarizer); err != nil {
		return info, err
	}
	err = w.c.Exclusively(ctx, func() error {
		if err := same(); err != nil {
			return err
		}
		info, err = w.apply(ctx, p, forms)
		return err
	})
	return info, err
}

// apply carries out a plan and commits it. The caller holds the lock of the session and has checked the revision.
func (w *Watcher) apply(ctx context.Context, p session.Plan, forms []talk.Form) (session.PassInfo, error) {
	c := w.c
	ch := c.Begin()
	items, err := c.CarryOut(ch, p, forms)
	if err != nil {
		c.Discard()
		return session.PassInfo{}, err
	}
	row := talk.PassRow{Kind: session.PassWatcher, Items: items}
	c.Number(ch, &row, w.c.host.Clock(), w.actor)
	leaf := manifest.Record{Type: manifest.TypePass, Reason: "headroom", Action: fmt.Sprintf("pass %d: %d compacted, %d tokens freed", row.Number, len(items), row.Freed())}
	return row.Info(), c.Commit(ctx, w.actor, ch, leaf)
}

// Step looks at the window once. It warns, plans and compacts as the limits say, and returns the events.
func (w *Watcher) Step(ctx context.Context, now time.Time) ([]session.Event, error) {
	var move session.Move
	var events []session.Event
	err := w.c.Exclusively(ctx, func() error {
		if w.c.State.Config == nil {
			return nil
		}
		w.machine, move, events = w.machine.Step(now, session.Snapshot{Generation: w.c.Rev, Actual: w.c.Tokens()})
		return nil
	})
	if err != nil || move == session.Rest {
		return events, errors.Join(err, w.Publish(ctx, events))
	}
	out, err := w.act(ctx, now, move)
	// The machine waits for the answer, so it must get one even when the context has ended.
	doneErr := w.c.Exclusively(context.WithoutCancel(ctx), func() error {
		var more []session.Event
		if out.Applied {
			out.Actual = w.c.Tokens()
		}
		w.machine, more = w.machine.Done(now, move, out)
		events = append(events, more...)
		return nil
	})
	return events, errors.Join(err, doneErr, w.Publish(ctx, events))
}

// act carries out a move.
func (w *Watcher) act(ctx context.Context, now time.Time, move session.Move) (out session.Outcome, err error) {
	if move != session.Compact {
		out.Plan, err = w.Plan(ctx, now)
		return out, err
	}
	for try := 1; ; try++ {
		var info session.PassInfo
		if try == planTries {
			out.Plan, info, err = w.actAtOnce(ctx, now)
		} else if out.Plan, err = w.Plan(ctx, now); err == nil && out.Plan.Blocked == "" {
			info, err = w.Apply(ctx, out.Plan)
		}
		if errors.Is(err, session.ErrGeneration) {
			continue
		}
		if err == nil && out.Plan.Blocked == "" {
			out.Applied, out.Freed, out.Plan.Pass = true, info.Freed, info.Number
		}
		return out, err
	}
}

// actAtOnce plans and applies under one lock, without a summarizer: appends wait for it.
func (w *Watcher) actAtOnce(ctx context.Context, now time.Time) (p session.Plan, info session.PassInfo, err error) {
	err = w.c.Exclusively(ctx, func() (err error) {
		if p, err = w.plan(now); err != nil || p.Blocked != "" {
			return err
		}
		forms, err := w.c.MakeForms(ctx, w.c.FormsOf(p), nil)
		if err != nil {
			return err
		}
		info, err = w.apply(ctx, p, forms)
		return err
	})
	return p, info, err
}

// Publish hands events on. It writes those to the manifest that do not end a transaction, which has a leaf of its own.
func (w *Watcher) Publish(ctx context.Context, events []session.Event) error {
	var errs []error
	for _, e := range events {
		select {
		case w.events <- e:
		default:
			w.dropped.Add(1)
		}
		if e.Kind == session.EventApplied || e.Kind == session.EventUndone || w.c.host.ReadOnly {
			continue
		}
		errs = append(errs, w.emit(ctx, &manifest.Record{
			Type: manifest.TypePass, Session: w.c.ID, Tokens: e.Actual, Budget: e.Usable, Reason: e.Reason,
			Action: fmt.Sprintf("watch %s: pass %d, %d items, %d tokens", e.Kind, e.Pass, e.Items, e.Freed),
		}))
	}
	return errors.Join(errs...)
}

// Expanded counts a turn that was read back after a pass compacted it.
func (w *Watcher) Expanded(ctx context.Context) {
	_ = w.c.Exclusively(ctx, func() error {
		w.machine = w.machine.Expanded()
		return nil
	})
}

// Undone tells the machine and the readers of events that a pass was undone.
func (w *Watcher) Undone(ctx context.Context, pass uint64) error {
	var e session.Event
	err := w.c.Exclusively(ctx, func() error {
		w.machine, e = w.machine.Undone(w.c.host.Clock(), pass, w.c.Tokens())
		return nil
	})
	return errors.Join(err, w.Publish(ctx, []session.Event{e}))
}

// Start works in the background until Stop, the end of ctx, or the end of the database. It looks at once, after each
// commit of the session, and once a second while the machine is not idle. ErrInvalid when it is running already.
func (w *Watcher) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running() {
		select {
		case <-w.ending:
			<-w.done // its context has ended: it stops soon
		default:
			return store.Invalid("watcher", "running already", "Stop first")
		}
	}
	if w.stop != nil {
		w.stop()
	}
	ctx, w.stop = context.WithCancel(ctx)
	w.ending, w.done = ctx.Done(), make(chan struct{})
	go w.run(ctx, w.done)
	return nil
}

// Stop ends the background work and waits for it. It is harmless when nothing runs.
func (w *Watcher) Stop() {
	w.mu.Lock()
	stop, done := w.stop, w.done
	w.stop = nil
	w.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}

// run is the background work. It steps at once, on every signal, and on a timer only while the machine is not idle, so
// a quiet session costs nothing.
func (w *Watcher) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		case <-tick.C:
		}
		_, err := w.Step(ctx, w.c.host.Clock())
		if errors.Is(err, store.ErrClosed) {
			return // the database was closed: nobody else would stop it
		}
		if err != nil && ctx.Err() == nil {
			w.c.host.Logger.Warn("watcher", "session", w.c.ID, "error", err)
		}
		if w.armed(ctx) {
			tick.Reset(WatchTick)
		}
	}
}

// armed reports whether to look again without a commit.
func (w *Watcher) armed(ctx context.Context) (yes bool) {
	_ = w.c.Exclusively(ctx, func() error {
		yes = w.machine.Phase() != session.Idle
		return nil
	})
	return yes
}

// wake tells the background work that something was committed. Signals that wait are merged into one.
func (w *Watcher) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}
