package ctxpage

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// observed tells Options.Observer what goes through a store. A database without an observer has the store itself, so nothing is paid. Events
// wait in a list for the goroutine of the observer: who commits may hold locks, and an observer may be slow. That goroutine takes many events
// at once, and does what need not be done in the call: waking it for each, and naming scopes, took a fifth of a hot get.
type observed struct {
	store.Store
	clock  func() time.Time
	watch  *stopwatch
	name   func(scope string) string
	some   chan struct{} // events wait
	stop   chan struct{}
	done   sync.WaitGroup
	once   sync.Once
	mu     sync.Mutex // after every other lock; guards the following
	events waiting
	idle   bool // nobody looks for events until it is woken
}

const (
	keptEvents = 4096
	manyEvents = 2048                  // wake the goroutine at once
	manyWhole  = 64                    // more of them are not kept for the next ones
	tellEvery  = 10 * time.Millisecond // events wait so long for others, if they are few
)

// waiting are events on their way to the observer, in order.
type waiting struct {
	told    []told  // at most keptEvents
	whole   []whole // those that are more than a plain read
	dropped int     // after these
}

// told is an event on its way to the observer. Most are hot reads. The price of one is its memory, which goes from one processor to another,
// so it has the size of a cache line.
type told struct {
	ctx    context.Context
	scope  string
	at     int64 // ns since 1970
	took   time.Duration
	lsn    uint64
	tokens int32
	pages  uint16
	kind   manifest.Type // 0: the next one of waiting.whole
}

// whole is an event that is more than a plain read.
type whole struct {
	ops.Event
	ctx context.Context
	err error
}

// newObserved makes an observer that has no store yet: the files tell of checkpoints as soon as they are open. name returns what stands for a
// scope in events.
func newObserved(opts *Options, watch *stopwatch, name func(scope string) string) *observed {
	o := &observed{clock: opts.Clock, watch: watch, name: name, some: make(chan struct{}, 1), stop: make(chan struct{}), idle: true}
	if opts.ObserveScopes {
		o.name = func(scope string) string { return scope }
	}
	return o
}

// before puts the observer before a store, and begins to tell it events.
func (o *observed) before(st store.Store, to ops.Observer) *observed {
	o.Store = st
	o.done.Go(func() {
		t := teller{to: to, name: o.name}
		var now waiting
		for ended := false; !ended; {
			select {
			case <-o.some:
				ended = o.gather()
			case <-o.stop:
				ended = true
			}
			for more := true; more; {
				more = o.take(&now, ended) && !ended // Close waits for no event that it makes itself
				t.tell(&now)
				ended = ended || more && o.gather()
			}
		}
	})
	return o
}

// take exchanges the events that wait for a list that was told. If there are none, the next one wakes the goroutine, unless that ends.
func (o *observed) take(told *waiting, ends bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cap(told.whole) > manyWhole {
		told.whole = nil
	}
	*told, o.events = o.events, waiting{told: told.told[:0], whole: told.whole[:0]}
	o.idle = len(told.told) == 0 && !ends
	return len(told.told) > 0
}

// gather waits for further events, and reports whether the observer ends.
func (o *observed) gather() (ended bool) {
	wait := time.NewTimer(tellEvery)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-o.some: // there are many
	case <-o.stop:
		return true
	}
	return false
}

// teller tells the observer. It belongs to one goroutine.
type teller struct {
	to           ops.Observer
	name         func(scope string) string
	scope, named string // of the event before: most are of the same scope
	dropped      int    // since the event before
}

// tell tells events, and lets them go.
func (t *teller) tell(all *waiting) {
	var plain ops.Event
	next := 0
	for i := range all.told {
		of := &all.told[i]
		if of.kind == 0 {
			w := &all.whole[next]
			next++
			if w.err != nil {
				w.Error = remote.ErrorKind(w.err)
			}
			t.one(w.ctx, &w.Event)
			continue
		}
		plain.Kind, plain.Scope, plain.At, plain.Took = of.kind.String(), of.scope, time.Unix(0, of.at), of.took
		plain.Pages, plain.Tokens, plain.LSN = int(of.pages), int(of.tokens), of.lsn
		t.one(of.ctx, &plain)
	}
	clear(all.told)
	clear(all.whole)
	t.dropped += all.dropped
}

func (t *teller) one(ctx context.Context, e *ops.Event) {
	if e.Scope != t.scope {
		t.scope, t.named = e.Scope, t.name(e.Scope)
	}
	e.Scope, e.Traceparent, e.Dropped = t.named, loop.Traceparent(ctx), t.dropped
	t.dropped = 0
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	t.to.Observe(ctx, *e)
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

// beganIn returns the note of when the call of a context began; nil: there is none.
func beganIn(ctx context.Context) *began {
	if b, is := ctx.(*began); is {
		return b
	}
	b, _ := ctx.Value(beganKey{}).(*began)
	return b
}

// began returns when a call begins, if somebody wants to know; else 0.
func (db *DB) began() (at moment) {
	if db.watch != nil {
		at = db.watch.now()
	}
	return at
}

// timed notes in the context when a call began, if somebody wants to know.
func (db *DB) timed(ctx context.Context) context.Context {
	return db.since(ctx, db.began())
}

// since notes in the context when a call began, if somebody wants to know.
func (db *DB) since(ctx context.Context, at moment) context.Context {
	if db.watch == nil {
		return ctx
	}
	return &began{Context: ctx, at: at}
}

// tell hands an event over. It ended at e.At, or ends now; it began at began; 0: nobody noted it.
func (o *observed) tell(ctx context.Context, began moment, e *ops.Event, err error) {
	if e.At.IsZero() {
		e.At = o.clock()
	}
	if began != 0 {
		e.Took = time.Duration(o.watch.at(e.At) - began)
	}
	o.add(&told{}, &whole{*e, ctx, err})
}

// add hands an event to the goroutine of the observer.
func (o *observed) add(t *told, w *whole) {
	o.mu.Lock()
	list := &o.events
	if len(list.told) == keptEvents {
		list.dropped++
		o.mu.Unlock()
		return
	}
	list.told = append(list.told, *t)
	if w != nil {
		list.whole = append(list.whole, *w)
	}
	wake := o.idle || len(list.told) == manyEvents
	o.idle = false
	o.mu.Unlock()
	if wake {
		select {
		case o.some <- struct{}{}:
		default:
		}
	}
}

// Commit implements store.Store.
func (o *observed) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	began := o.watch.now()
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
	var at moment
	var ended time.Time
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
			o.add(&told{ctx: ctx, scope: l.Scope, at: ended.UnixNano(), took: time.Duration(o.watch.at(ended) - at), lsn: l.LSN, tokens: int32(l.Tokens), pages: uint16(len(l.Pages)), kind: l.Type}, nil)
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
	began := o.watch.now()
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
	return len(l.Excluded) == 0 && len(l.Pages) <= math.MaxUint16 && l.Tokens <= math.MaxInt32 && l.Budget == 0 && l.Tier == 0 && l.Match == ""
}

// jobNames are the kinds of events of jobs. The files themselves tell of checkpoints, most of which nobody asks for.
var jobNames = map[store.JobKind]string{
	store.JobBackup: "backup", store.JobCheck: "check", store.JobGC: "gc", store.JobErase: "erase", store.JobCompact: "compact",
}

// Maintain implements store.Store.
func (o *observed) Maintain(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	began := o.watch.now()
	rep, err := o.Store.Maintain(ctx, job, progress)
	if kind := jobNames[job.Kind]; kind != "" {
		o.tell(ctx, began, &ops.Event{Kind: kind, Bytes: int(rep.Bytes)}, err)
	}
	return rep, err
}

// checkpointed tells of a checkpoint of the files, which is made in the background or before another job.
func (o *observed) checkpointed(began time.Time, rep store.JobReport, err error) {
	o.tell(context.Background(), o.watch.at(began), &ops.Event{Kind: "checkpoint", Bytes: int(rep.Bytes), LSN: rep.Applied}, err)
}

// synced tells of a sync of the log.
func (o *observed) synced(began time.Time, err error) {
	o.tell(context.Background(), o.watch.at(began), &ops.Event{Kind: "sync"}, err)
}
