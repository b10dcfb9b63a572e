package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	shortPage = 130  // bytes
	longPage  = 1024 // bytes
	chatTurn  = 150  // bytes
	topK      = 50
	perFill   = 500 // pages of one transaction
)

// opened is a system in a directory of its own. Closing it twice is harmless, which not every system allows.
type opened struct {
	system
	dir    string
	closed bool
}

func (o *opened) reopen() error {
	err := o.system.open(o.dir)
	o.closed = err != nil
	return err
}

func (o *opened) close() error {
	if o.closed {
		return nil
	}
	s := o.system
	o.closed, o.system = true, made(s.name())[0] // a new one: nothing of the closed one stays in memory
	return s.close()
}

// settled closes a system that has finished what it put off, and gives what its files take: all of them, and without
// the log, whose end is kept whole in segments and does not grow with what is stored.
func (o *opened) settled(ctx context.Context) (bytes, kept int64, err error) {
	if err := o.settle(ctx); err != nil {
		return 0, 0, err
	}
	if err := o.close(); err != nil {
		return 0, 0, err
	}
	if bytes, err = onDisk(o.dir); err != nil {
		return 0, 0, err
	}
	kept = bytes
	if l, ok := o.system.(logged); ok {
		log, err := onDisk(l.logDir(o.dir))
		return bytes, kept - log, err
	}
	return bytes, kept, nil
}

func (c config) open(s system) (*opened, error) {
	dir, err := os.MkdirTemp(c.dir, "peers-")
	if err != nil {
		return nil, err
	}
	if err := s.open(dir); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("%s: %w", s.name(), err)
	}
	return &opened{system: s, dir: dir}, nil
}

// openAll opens systems; drop closes them and removes their files.
func (c config) openAll(systems []system) (all []*opened, drop func(), err error) {
	drop = func() {
		for _, o := range all {
			o.close()
			os.RemoveAll(o.dir)
		}
	}
	for _, s := range systems {
		o, err := c.open(s)
		if err != nil {
			drop()
			return nil, nil, err
		}
		all = append(all, o)
	}
	return all, drop, nil
}

// turns gives every system its turn in each round. The order moves on by one a round, so that none always follows the
// same other one.
func (c config) turns(ctx context.Context, label string, n int, name func(i int) string, turn func(i int) (round, error)) (*result, error) {
	r := &result{Label: label}
	for i := range n {
		r.Systems = append(r.Systems, &measure{System: name(i)})
	}
	for at := range c.rounds {
		for k := range n {
			i := (at + k) % n
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			got, err := turn(i)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name(i), err)
			}
			r.Systems[i].Rounds = append(r.Systems[i].Rounds, got)
		}
		c.say("%s: round %d of %d", label, at+1, c.rounds)
	}
	return r, nil
}

var writers = []string{"ctxpage", "bbolt Update", "bbolt Batch", "pebble", "SQLite", "SQLite FTS5", "raw append", "raw overwrite"}

func (c config) puts(ctx context.Context, rep *report) error {
	texts := newWords(3).texts(4096, longPage)
	for _, n := range []int{1, 8, 64} {
		all, drop, err := c.openAll(made(writers...))
		if err != nil {
			return err
		}
		defer drop() // again, harmlessly, unless an error comes first
		next := make([]uint64, len(all))
		for i, o := range all {
			if err := stored(ctx, o.system, pageID(0), texts[0]); err != nil {
				return err
			}
			next[i] = 1
		}
		r, err := c.turns(ctx, fmt.Sprintf("put, %d writers", n), len(all), func(i int) string { return all[i].name() },
			func(i int) (round, error) {
				base := next[i]
				got, err := run(n, c.length, func(k uint64) error {
					return all[i].put(ctx, pageID(base+k), texts[(base+k)%uint64(len(texts))])
				})
				next[i] += uint64(got.Ops)
				return got, err
			})
		if err != nil {
			return err
		}
		for i, o := range all {
			if err := last(ctx, o, next[i]-1, texts); err != nil {
				return err
			}
		}
		r.Job = "put"
		rep.Jobs = append(rep.Jobs, r)
		drop()
	}
	return nil
}

// last reads what was put last, and finds it by its words where there is an index.
func last(ctx context.Context, o *opened, n uint64, texts []string) error {
	want := texts[n%uint64(len(texts))]
	if r, ok := o.system.(*raw); ok {
		found, err := r.holds(want)
		if err != nil || !found {
			return fmt.Errorf("%s: put %d is not in the file: %w", o.name(), n, err)
		}
		return nil
	}
	got, err := o.get(ctx, pageID(n))
	if err != nil || got != want {
		return fmt.Errorf("%s: put %d has %d bytes, expected %d: %w", o.name(), n, len(got), len(want), err)
	}
	return nil
}

// sustained lets 64 writers put for a long time, one system after the other. A writer that appends 1 KiB to a file and syncs
// it, every 2 ms, runs beside each: its longest wait is what the disk itself costs in that interval.
func (c config) sustained(ctx context.Context, rep *report) error {
	texts := newWords(3).texts(4096, longPage)
	r := &result{Job: "sustained", Label: "sustained, 64 writers"}
	for _, name := range writers[:len(writers)-1] {
		o, err := c.open(made(name)[0])
		if err != nil {
			return err
		}
		got, disk, err := c.sustain(ctx, o, texts)
		share := 1.0
		if b, ok := o.system.(backlog); ok && err == nil {
			share, err = b.applied(ctx) // at once: what is applied when the writers stop
		}
		idle()
		if cerr := o.close(); err == nil {
			err = cerr
		}
		os.RemoveAll(o.dir)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.Systems = append(r.Systems, &measure{System: name, Rounds: []round{got}})
		rep.Facts = append(rep.Facts,
			fact{"sustained", "longest commit", name, got.Max / 1000, "ms"},
			fact{"sustained", "longest of the raw loop beside it", name, disk / 1000, "ms"},
			fact{"sustained", "applied at the end", name, share, "share"})
		c.say("sustained, %s: %.0f puts a second", name, got.PerSec)
	}
	rep.Jobs = append(rep.Jobs, r)
	return nil
}

func (c config) sustain(ctx context.Context, o *opened, texts []string) (got round, disk float64, err error) {
	if err := stored(ctx, o.system, pageID(0), texts[0]); err != nil {
		return got, 0, err
	}
	loop, err := c.open(&raw{})
	if err != nil {
		return got, 0, err
	}
	defer os.RemoveAll(loop.dir)
	defer loop.close()
	var took []time.Duration
	var lerr error
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for t := time.NewTicker(2 * time.Millisecond); lerr == nil; {
			select {
			case <-stop:
				return
			case <-t.C:
				at := time.Now()
				lerr = loop.put(ctx, "", texts[0])
				took = append(took, time.Since(at))
			}
		}
	})
	length := time.Duration(c.seconds * float64(time.Second))
	got, err = run(64, length, func(k uint64) error {
		return o.put(ctx, pageID(1+k), texts[(1+k)%uint64(len(texts))])
	})
	close(stop)
	wg.Wait()
	if err == nil {
		err = lerr
	}
	if err == nil {
		err = last(ctx, o, uint64(got.Ops), texts)
	}
	return got, quantile(took, 1), err
}

// gets reads a thousand texts of 1 KiB at random, all of them read before.
func (c config) gets(ctx context.Context, rep *report) error {
	const pages = 1000
	texts := newWords(5).texts(pages, longPage)
	all, drop, err := c.openAll(made("ctxpage", "bbolt Update", "pebble", "SQLite", "bleve"))
	if err != nil {
		return err
	}
	defer drop()
	for _, o := range all {
		if err := fillAll(ctx, o, texts); err != nil {
			return err
		}
		for i, want := range texts {
			if got, err := o.get(ctx, pageID(uint64(i))); err != nil || got != want {
				return fmt.Errorf("%s: page %d has %d bytes, expected %d: %w", o.name(), i, len(got), len(want), err)
			}
		}
	}
	for _, n := range []int{1, 8} {
		r, err := c.turns(ctx, fmt.Sprintf("get, hot, %d readers", n), len(all), func(i int) string { return all[i].name() },
			func(i int) (round, error) {
				return run(n, c.length, func(k uint64) error {
					_, err := all[i].get(ctx, pageID(k*7919%pages))
					return err
				})
			})
		if err != nil {
			return err
		}
		r.Job = "get"
		rep.Jobs = append(rep.Jobs, r)
	}
	return nil
}

func fillAll(ctx context.Context, s system, texts []string) error {
	for from := 0; from < len(texts); from += perFill {
		to := min(from+perFill, len(texts))
		var ids []string
		for i := from; i < to; i++ {
			ids = append(ids, pageID(uint64(i)))
		}
		if err := s.fill(ctx, ids, texts[from:to]); err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
	}
	return nil
}

// chats appends turns of a conversation one by one and counts the disk they take when the log is cut. The peers store
// each turn as a text of its own.
func (c config) chats(ctx context.Context, rep *report) error {
	texts := newWords(4).texts(c.chat, chatTurn)
	for _, name := range []string{"ctxpage", "bbolt Batch", "pebble", "SQLite", "SQLite FTS5"} {
		o, err := c.open(made(name)[0])
		if err != nil {
			return err
		}
		r, err := c.chatOf(ctx, o, texts)
		var bytes, kept int64
		if err == nil {
			bytes, kept, err = o.settled(ctx)
		}
		if cerr := o.close(); err == nil {
			err = cerr
		}
		os.RemoveAll(o.dir)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		rep.Facts = append(rep.Facts,
			fact{"chat", fmt.Sprintf("a turn of %d B, %s turns", chatTurn, named(c.chat)), name, float64(bytes) / float64(len(texts)), "B/turn"},
			fact{"chat", "the same without the log", name, float64(kept) / float64(len(texts)), "B/turn"},
			fact{"chat", "append of a turn, p50", name, r.P50, "µs"},
			fact{"chat", "append of a turn, CPU", name, r.CPU, "µs"})
		c.say("chat, %s: %d turns", name, len(texts))
	}
	return nil
}

func (c config) chatOf(ctx context.Context, o *opened, texts []string) (round, error) {
	append := o.put
	if s, ok := o.system.(conversation); ok {
		append = s.turn
	}
	took := make([]time.Duration, len(texts))
	cpu := cpuTime()
	const sessions = 8 // at a time, as several agents write
	var wg sync.WaitGroup
	errs := make([]error, sessions)
	for s := range sessions {
		wg.Go(func() {
			for i := s; i < len(texts) && errs[s] == nil; i += sessions {
				at := time.Now()
				id := pageID(uint64(i))
				if _, ok := o.system.(conversation); ok {
					id = fmt.Sprint("chat-", s)
				}
				errs[s] = append(ctx, id, texts[i])
				took[i] = time.Since(at)
			}
		})
	}
	wg.Wait()
	idle()
	for _, err := range errs {
		if err != nil {
			return round{}, err
		}
	}
	return round{Ops: len(texts), P50: quantile(took, .5), CPU: micros(cpuTime()-cpu) / float64(len(texts))}, nil
}
