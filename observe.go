package ctxpage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// observed tells Options.Observer what goes through a store. A database without an observer has the store itself, so nothing is paid. Events
// wait in a channel for the goroutine of the observer: who commits may hold locks, and an observer may be slow.
type observed struct {
	store.Store
	clock   func() time.Time
	name    func(scope string) string
	events  chan ops.Event
	dropped atomic.Int64
	stop    chan struct{}
	done    sync.WaitGroup
	once    sync.Once
}

const keptEvents = 1024

// observe puts an observer before a store. name returns what stands for a scope in events.
func observe(st store.Store, opts *Options, name func(scope string) string) *observed {
	o := &observed{Store: st, clock: opts.Clock, name: name, events: make(chan ops.Event, keptEvents), stop: make(chan struct{})}
	if opts.ObserveScopes {
		o.name = func(scope string) string { return scope }
	}
	o.done.Go(func() {
		for {
			select {
			case e := <-o.events:
				opts.Observer.Observe(e)
			case <-o.stop:
				for len(o.events) > 0 {
					opts.Observer.Observe(<-o.events)
				}
				return
			}
		}
	})
	return o
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

type beganKey struct{}

// timed notes in the context when a read began, if somebody wants to know.
func (db *DB) timed(ctx context.Context) context.Context {
	if db.opts.Observer == nil {
		return ctx
	}
	return context.WithValue(ctx, beganKey{}, db.opts.Clock())
}

// tell hands an event over.
func (o *observed) tell(scope string, began time.Time, e ops.Event) {
	e.Scope, e.At = o.name(scope), o.clock()
	if !began.IsZero() {
		e.Took = e.At.Sub(began)
	}
	dropped := o.dropped.Swap(0)
	e.Dropped = int(dropped)
	select {
	case o.events <- e:
	default:
		o.dropped.Add(dropped + 1)
	}
}

// Commit implements store.Store.
func (o *observed) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	began := o.clock()
	out, err := o.Store.Commit(ctx, b)
	e := ops.Event{Kind: b.Leaf.Type.String(), LSN: out.LSN, Failed: err != nil}
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
	o.tell(b.Scope, began, e)
	return out, err
}

// Append implements store.Store.
func (o *observed) Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	err := o.Store.Append(ctx, leaves, d)
	began, _ := ctx.Value(beganKey{}).(time.Time)
	for _, l := range leaves {
		o.tell(l.Scope, began, ops.Event{Kind: l.Type.String(), Pages: len(l.Pages), Tokens: l.Tokens, Tier: l.Tier, LSN: l.LSN, Failed: err != nil})
	}
	return err
}

// Load implements store.Store.
func (o *observed) Load(ctx context.Context, scopes store.Scopes, pages []store.PageKey, want store.Want) ([]store.Loaded, error) {
	if want != store.WantText {
		return o.Store.Load(ctx, scopes, pages, want)
	}
	began := o.clock()
	out, err := o.Store.Load(ctx, scopes, pages, want)
	e := ops.Event{Kind: "fault", Pages: len(pages), Failed: err != nil}
	for i := range out {
		e.Bytes += len(out[i].Text)
	}
	o.tell("", began, e)
	return out, err
}

// jobNames are the kinds of events of jobs.
var jobNames = map[store.JobKind]string{
	store.JobCheckpoint: "checkpoint", store.JobBackup: "backup", store.JobCheck: "check", store.JobGC: "gc", store.JobErase: "erase", store.JobCompact: "compact",
}

// Maintain implements store.Store.
func (o *observed) Maintain(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	began := o.clock()
	rep, err := o.Store.Maintain(ctx, job, progress)
	if kind := jobNames[job.Kind]; kind != "" {
		o.tell("", began, ops.Event{Kind: kind, Bytes: int(rep.Bytes), Failed: err != nil})
	}
	return rep, err
}
