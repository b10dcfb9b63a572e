package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"time"
)

var searchers = []string{"ctxpage", "SQLite FTS5", "bleve"}

// sized fills databases of each size once and measures all that depends on it.
func (c config) sized(ctx context.Context, rep *report) error {
	for _, pages := range c.sizes {
		if err := c.filled(ctx, rep, pages, shortPage); err != nil {
			return err
		}
	}
	if c.wants("disk") {
		return c.longPages(ctx, rep, c.sizes[0])
	}
	return nil
}

func (c config) filled(ctx context.Context, rep *report, pages, size int) error {
	texts := newWords(1).texts(pages, size)
	label := fmt.Sprintf("%s pages of %d B", named(pages), size)
	all, drop, err := c.openAll(made(searchers...))
	if err != nil {
		return err
	}
	defer drop()
	for _, o := range all {
		if err := c.fillOne(ctx, rep, o, label, texts); err != nil {
			return err
		}
	}
	if c.wants("search") {
		if err := c.searches(ctx, rep, all, label); err != nil {
			return err
		}
	}
	for _, o := range all {
		if err := o.close(); err != nil {
			return err
		}
	}
	texts = nil
	if err := c.memory(ctx, rep, all, label, pages); err != nil {
		return err
	}
	if c.wants("open") {
		for _, cached := range []bool{true, false} {
			if err := c.opens(ctx, rep, all, label, cached); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c config) fillOne(ctx context.Context, rep *report, o *opened, label string, texts []string) error {
	n := float64(len(texts))
	start, cpu, wrote := time.Now(), cpuTime(), writtenBytes()
	if err := fillAll(ctx, o, texts); err != nil {
		return err
	}
	if err := o.settle(ctx); err != nil {
		return err
	}
	took := time.Since(start)
	idle()
	used, bytesWritten := cpuTime()-cpu, writtenBytes()-wrote
	if c.wants("disk") {
		bytes, kept, err := o.settled(ctx)
		if err != nil {
			return err
		}
		if err := o.reopen(); err != nil {
			return err
		}
		rep.Facts = append(rep.Facts,
			fact{"disk", label, o.name(), float64(bytes) / n, "B/page"},
			fact{"disk", label + " without the log", o.name(), float64(kept) / n, "B/page"},
			fact{"disk", "bytes written for " + label, o.name(), float64(bytesWritten) / n, "B/page"},
			fact{"disk", "time to store " + label, o.name(), micros(took) / n, "µs/page"},
			fact{"disk", "CPU to store " + label, o.name(), micros(used) / n, "µs/page"})
	}
	c.say("%s: filled %s in %v", o.name(), label, took.Round(time.Millisecond))
	for _, i := range []int{0, len(texts) / 2, len(texts) - 1} {
		id := pageID(uint64(i))
		if got, err := o.get(ctx, id); err != nil || got != texts[i] {
			return fmt.Errorf("%s: %s has %d bytes, expected %d: %w", o.name(), id, len(got), len(texts[i]), err)
		}
		if err := finds(ctx, o, id, texts[i]); err != nil {
			return err
		}
	}
	return nil
}

// searches asks all systems the same questions: each turn takes up where the one before it stopped.
func (c config) searches(ctx context.Context, rep *report, all []*opened, label string) error {
	w := newWords(9)
	questions := make([]string, 2000)
	for i := range questions {
		questions[i] = w.question()
	}
	type asker struct {
		name string
		ask  func(q string) (int, error)
	}
	var askers []asker
	for _, o := range all {
		askers = append(askers, asker{o.name(), func(q string) (int, error) {
			ids, err := o.search(ctx, q, topK)
			return len(ids), err
		}})
		if a, ok := o.system.(assembler); ok {
			askers = append(askers, asker{o.name() + " (assembly)", func(q string) (int, error) { return a.assemble(ctx, q, topK) }})
		}
	}
	found := make([]int, len(askers))
	for i, a := range askers { // warm, and each finds
		for _, q := range questions[:50] {
			n, err := a.ask(q)
			if err != nil {
				return err
			}
			found[i] += n
		}
		if found[i] < found[0]*8/10 || found[i] == 0 {
			return fmt.Errorf("%s found %d pages for 50 questions, ctxpage %d", a.name, found[i], found[0])
		}
	}
	next := make([]uint64, len(askers))
	r, err := c.turns(ctx, "search of 50, "+label, len(askers), func(i int) string { return askers[i].name }, func(i int) (round, error) {
		base := next[i]
		got, err := run(1, c.length, func(k uint64) error {
			_, err := askers[i].ask(questions[(base+k)%uint64(len(questions))])
			return err
		})
		next[i] += uint64(got.Ops)
		return got, err
	})
	if err != nil {
		return err
	}
	r.Job, r.byTime = "search", true
	rep.Jobs = append(rep.Jobs, r)
	return nil
}

// opens times an open and the first search after it; the close is not timed.
func (c config) opens(ctx context.Context, rep *report, all []*opened, label string, cached bool) error {
	w := newWords(17)
	name := "open and first search, " + label
	if !cached {
		name += ", page cache dropped"
	}
	questions := make([]string, c.rounds*len(all))
	for i := range questions {
		questions[i] = w.question()
	}
	next := make([]int, len(all))
	r, err := c.turns(ctx, name, len(all), func(i int) string { return all[i].name() }, func(i int) (round, error) {
		o := all[i]
		if !cached {
			if err := dropCache(o.dir); err != nil {
				return round{}, err
			}
		}
		cpu, wrote, start := cpuTime(), writtenBytes(), time.Now()
		if err := o.reopen(); err != nil {
			return round{}, err
		}
		ids, err := o.search(ctx, questions[next[i]], topK)
		took := time.Since(start)
		next[i]++
		if err == nil && len(ids) == 0 {
			err = fmt.Errorf("the first search found nothing")
		}
		used, bytes := cpuTime()-cpu, writtenBytes()-wrote
		if cerr := o.close(); err == nil {
			err = cerr
		}
		us := micros(took)
		return round{Ops: 1, PerSec: 1 / took.Seconds(), P50: us, P999: us, Max: us, CPU: micros(used), Written: float64(bytes)}, err
	})
	if err != nil {
		return err
	}
	r.Job, r.byTime = "open", true
	rep.Jobs = append(rep.Jobs, r)
	return nil
}

// memory is what an open, idle system holds: heap of Go, and memory of the process that is no file's, which counts
// what SQLite's own allocator holds too.
func (c config) memory(ctx context.Context, rep *report, all []*opened, label string, pages int) error {
	if !c.wants("memory") {
		return nil
	}
	w := newWords(21)
	for _, o := range all {
		h, a := heap(), anonymous()
		if err := o.reopen(); err != nil {
			return err
		}
		for range 20 {
			if _, err := o.search(ctx, w.question(), topK); err != nil {
				return err
			}
		}
		rep.Facts = append(rep.Facts,
			fact{"memory", "heap, " + label, o.name(), float64(heap()-h) / float64(pages), "B/page"},
			fact{"memory", "memory, " + label, o.name(), float64(anonymous()-a) / float64(pages), "B/page"})
		if err := o.close(); err != nil {
			return err
		}
	}
	return nil
}

// longPages measures the disk that pages of 1 KiB take.
func (c config) longPages(ctx context.Context, rep *report, pages int) error {
	texts := newWords(2).texts(pages, longPage)
	for _, s := range made("ctxpage", "bbolt Update", "pebble", "SQLite", "SQLite FTS5", "bleve") {
		o, err := c.open(s)
		if err != nil {
			return err
		}
		if _, err = o.search(ctx, texts[0], 1); err == errUnsupported {
			err = c.plainFill(ctx, rep, o, pages, texts)
		} else {
			err = c.fillOne(ctx, rep, o, fmt.Sprintf("%s pages of %d B", named(pages), longPage), texts)
		}
		if cerr := o.close(); err == nil {
			err = cerr
		}
		os.RemoveAll(o.dir)
		if err != nil {
			return err
		}
	}
	return nil
}

func (c config) plainFill(ctx context.Context, rep *report, o *opened, pages int, texts []string) error {
	if err := fillAll(ctx, o, texts); err != nil {
		return err
	}
	for range 3 {
		i := rand.Intn(pages)
		if got, err := o.get(ctx, pageID(uint64(i))); err != nil || got != texts[i] {
			return fmt.Errorf("%s: page %d has %d bytes, expected %d: %w", o.name(), i, len(got), len(texts[i]), err)
		}
	}
	bytes, _, err := o.settled(ctx)
	rep.Facts = append(rep.Facts, fact{"disk", fmt.Sprintf("%s pages of %d B", named(pages), longPage), o.name(), float64(bytes) / float64(pages), "B/page"})
	return err
}

func named(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}
