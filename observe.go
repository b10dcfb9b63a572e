package ctxpage

import (
	"context"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// observed tells Options.Observer what goes through a store. A database without an observer has the store itself, so nothing is paid. Events
// wait in a list for the goroutine of the observer: who commits may hold locks, and an observer may be slow. That goroutine is woken for many
// events at once, and does what need not be done in the call: waking it for each, and naming scopes, took a fifth of a hot get.
type observed struct {
	store.Store
	clock func() time.Time
	start func() time.Time // see stopwatch
	name  func(scope string) string
	some  chan struct{} // events wait
	stop  chan struct{}
	done  sync.WaitGroup
	once  sync.Once

	mu      sync.Mutex // after every other lock; guards the following
	events  []told     // at most keptEvents
	dropped int        // since the newest event
}

const (
	keptEvents = 2048
	tellEvery  = 2 * time.Millisecond // events wait so long for others, if they are few
)

// told is an event on its way to the observer. Most are hot reads, for which the memory of a whole event would cost as much as all the rest:
// it goes from one processor to another.
type told struct {
	ctx    context.Context
	whole  *whole // nil: what follows is all
	scope  string
	at     time.Time
	took   time.Duration
	lsn    uint64
	drops  int // since the event before
	pages  int32
	tokens int32
	kind   manifest.Type
}

// whole is an event that is more than a plain read.
type whole struct {
	ops.Event
	err error
}

// newObserved makes an observer that has no store yet: the files tell of checkpoints as soon as they are open. name returns what stands for a
// scope in events.
func newObserved(opts *Options, start func() time.Time, name func(scope string) string) *observed {
	o := &observed{clock: opts.Clock, start: start, name: name, some: make(chan struct{}, 1), stop: make(chan struct{})}
	if opts.ObserveScopes {
		o.name = func(scope string) string { return scope }
	}
	return o
}

// before puts the observer before a store, and begins to tell it events.
func (o *observed) before(st store.Store, to ops.Observer) *observed {
	o.Store = st
	o.done.Go(func() {
		var told []told
		var scope, name string // of the event before: most are of the same scope
		for ended := false; !ended; {
			select {
			case <-o.some:
				ended = o.gather()
			case <-o.stop:
				ended = true
			}
			o.mu.Lock()
			told, o.events = o.events, told[:0]
			o.mu.Unlock()
			for i := range told {
				e := told[i].event()
				if e.Scope != scope {
					scope, name = e.Scope, o.name(e.Scope)
				}
				e.Scope = name
				ctx := told[i].ctx
				told[i].ctx, told[i].whole = nil, nil // they can go
				if ctx.Done() != nil {
					ctx = context.WithoutCancel(ctx)
				}
				to.Observe(ctx, e)
			}
		}
	})
	return o
}

// gather waits for further events, and reports whether the observer ends.
func (o *observed) gather() (ended bool) {
	wait := time.NewTimer(tellEvery)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-o.some: // the list is half full
	case <-o.stop:
		return true
	}
	return false
}

// event returns what the observer is told.
func (t *told) event() (e ops.Event) {
	if t.whole == nil {
		e = ops.Event{Kind: t.kind.String(), Scope: t.scope, At: t.at, Took: t.took, Pages: int(t.pages), Tokens: int(t.tokens), LSN: t.lsn}
	} else if e = t.whole.Event; t.whole.err != nil {
		e.Error = remote.ErrorKind(t.whole.err)
	}
	e.Traceparent, e.Dropped = loop.Traceparent(t.ctx), t.drops
	return e
}

// unobserved is the store that an observer stands before.
func unobserved(st store.Store) store.Store {
	if o, is := st.(*observed); is {
		return o.Store
	}
	return st
}

// end tells the observer what waits, and lets it go.
func (o *observed) end() {
	o.once.Do(func() { close(o.stop) })
	o.done.Wait()
}

// Close closes the store, then ends the observer.
func (o *observed) Close() error {
	defer o.end()
	return o.Store.Close()
}

// stopwatch returns the clock with which durations begin; nil: without an observer. It is Options.Clock, or that of the system, read for Sub
// alone: its time of day would take as long again.
func stopwatch(opts *Options) func() time.Time {
	switch {
	case opts.Observer == nil:
		return nil
	case opts.Clock != nil:
		return opts.Clock
	}
	opened := time.Now()
	return func() time.Time { return opened.Add(time.Since(opened)) }
}

// beganIn returns the note of when the call of a context began; nil: there is none.
func beganIn(ctx context.Context) *began {
	if b, is := ctx.(*began); is {
		return b
	}
	b, _ := ctx.Value(beganKey{}).(*began)
	return b
}

// began returns when a call begins, if somebody wants to know; else zero.
func (db *DB) began() (at time.Time) {
	if db.start != nil {
		at = db.start()
	}
	return at
}

// timed notes in the context when a call began, if somebody wants to know.
func (db *DB) timed(ctx context.Context) context.Context {
	return db.since(ctx, db.began())
}

// since notes in the context when a call began, if somebody wants to know.
func (db *DB) since(ctx context.Context, at time.Time) context.Context {
	if db.start == nil {
		return ctx
	}
	return &began{Context: ctx, at: at}
}

// tell hands an event over. It ended at e.At, or ends now; it began at began; zero: nobody noted it.
func (o *observed) tell(ctx context.Context, began time.Time, e *ops.Event, err error) {
	if e.At.IsZero() {
		e.At = o.clock()
	}
	if !began.IsZero() {
		e.Took = e.At.Sub(began)
	}
	o.add(&told{ctx: ctx, whole: &whole{*e, err}})
}

// add hands an event to the goroutine of the observer.
func (o *observed) add(t *told) {
	o.mu.Lock()
	if len(o.events) == keptEvents {
		o.dropped++
		o.mu.Unlock()
		return
	}
	t.drops, o.dropped = o.dropped, 0
	o.events = append(o.events, *t)
	n := len(o.events)
	o.mu.Unlock()
	if n == 1 || n == keptEvents/2 {
		select {
		case o.some <- struct{}{}:
		default:
		}
	}
}

// Commit implements store.Store.
func (o *observed) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	began := o.start()
	out, err := o.Store.Commit(ctx, b)
	e := ops.Event{Kind: b.Leaf.Type.String(), Scope: b.Scope, LSN: out.LSN}
	if call := beganIn(ctx); call != nil && (b.Leaf.Type == manifest.TypePass || b.Leaf.Type == manifest.TypeRefetch) {
		began = call.at
	}
	switch {
	case err == nil && b.Action == store.ActHold || out.Status == store.StatusHeld:
		e.Kind = manifest.TypeHeld.String()
	case b.Leaf.Type == 0:
		e.Kind = manifest.TypeCommit.String()
	}
	for i := range b.Puts {
		e.Pages += len(b.Puts[i].Pages)
		for j := range b.Puts[i].Pages {
			e.Bytes += len(b.Puts[i].Pages[j].Text)
		}
	}
	o.tell(ctx, began, &e, err)
	return out, err
}

// Append implements store.Store.
func (o *observed) Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	var at, ended time.Time
	call := beganIn(ctx)
	if call != nil {
		at = call.at
	}
	if call != nil && call == ctx {
		// The note may be in memory that the next read uses.
		ctx = call.Context
		if d != store.Synced { // else the call waits for the disk
			ended = call.leaf
		}
		call.leaf = time.Time{} // of one append
	}
	err := o.Store.Append(ctx, leaves, d)
	if err != nil && call != nil {
		return err // whoever noted the beginning tells
	}
	for _, l := range leaves {
		if !ended.IsZero() && plain(l) && err == nil {
			o.add(&told{ctx: ctx, scope: l.Scope, at: ended, took: ended.Sub(at), lsn: l.LSN, pages: int32(len(l.Pages)), tokens: int32(l.Tokens), kind: l.Type})
			continue
		}
		e := ops.Event{Kind: l.Type.String(), Scope: l.Scope, At: ended, Pages: len(l.Pages), Tokens: l.Tokens, Budget: l.Budget, Tier: l.Tier, Match: string(l.Match), LSN: l.LSN}
		if len(l.Excluded) > 0 {
			e.Left = make(map[string]int, len(l.Excluded))
		}
		for i := range l.Excluded {
			e.Left[l.Excluded[i].Reason] += l.Excluded[i].Count
		}
		o.tell(ctx, at, &e, err)
	}
	return err
}

// Load implements store.Store.
func (o *observed) Load(ctx context.Context, scopes store.Scopes, pages []store.PageKey, want store.Want) ([]store.Loaded, error) {
	if want != store.WantText {
		return o.Store.Load(ctx, scopes, pages, want)
	}
	began := o.start()
	out, err := o.Store.Load(ctx, scopes, pages, want)
	e := ops.Event{Kind: "fault", Pages: len(pages)}
	for i := range out {
		e.Bytes += len(out[i].Text)
	}
	o.tell(ctx, began, &e, err)
	return out, err
}

// plain reports whether a leaf has no more than told has place for.
func plain(l *manifest.Record) bool {
	return len(l.Excluded) == 0 && l.Budget == 0 && l.Tier == 0 && l.Match == ""
}

// jobNames are the kinds of events of jobs. The files themselves tell of checkpoints, most of which nobody asks for.
var jobNames = map[store.JobKind]string{
	store.JobBackup: "backup", store.JobCheck: "check", store.JobGC: "gc", store.JobErase: "erase", store.JobCompact: "compact",
}

// Maintain implements store.Store.
func (o *observed) Maintain(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	began := o.start()
	rep, err := o.Store.Maintain(ctx, job, progress)
	if kind := jobNames[job.Kind]; kind != "" {
		o.tell(ctx, began, &ops.Event{Kind: kind, Bytes: int(rep.Bytes)}, err)
	}
	return rep, err
}

// checkpointed tells of a checkpoint of the files, which is made in the background or before another job.
func (o *observed) checkpointed(began time.Time, rep store.JobReport, err error) {
	o.tell(context.Background(), began, &ops.Event{Kind: "checkpoint", Bytes: int(rep.Bytes), LSN: rep.Applied}, err)
}

// synced tells of a sync of the log.
func (o *observed) synced(began time.Time, err error) {
	o.tell(context.Background(), began, &ops.Event{Kind: "sync"}, err)
}
