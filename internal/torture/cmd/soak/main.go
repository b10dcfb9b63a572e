// Command soak works on one database for a long time, with a live set of fixed size and gc at intervals, and prints how
// large each file and bucket is.
//
//	go run ./cmd/soak -for 30m -gc 1m
//
// It puts new versions, reads, assembles, keeps conversations of a fixed length, rolls drafts back, has batches held,
// approved and rejected, makes passes, changes directives, and puts and deletes artefacts under ever new ids. The database file must stay flat: with -flat
// the exit code is 1 if the file of the last interval is larger than that of the first third. The log is bounded; the
// manifest keeps every read and every commit by design, and is shown apart.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

var (
	total  = flag.Duration("for", 30*time.Minute, "how long")
	every  = flag.Duration("gc", time.Minute, "time between two runs of gc")
	keep   = flag.Duration("keep", time.Second, "GCOptions.KeepFor")
	rate   = flag.Int("rate", 60, "operations a second; 0: as many as possible")
	ops    = flag.Int("ops", 0, "operations between two runs of gc, instead of a time")
	runs   = flag.Int("runs", 0, "end after so many runs of gc, instead of a time")
	pages  = flag.Int("live", 400, "artefacts that are put again and again")
	dir    = flag.String("dir", "", "directory of the database; \"\": a temporary one, removed in the end")
	seed   = flag.Uint64("seed", 1, "of the workload")
	flat   = flag.Float64("flat", 0, "fail if the file in the end is larger than this many times its size after a third; 0: only print")
	assert = func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
)

func main() {
	flag.Parse()
	log.SetFlags(0)
	path := *dir
	if path == "" {
		var err error
		path, err = os.MkdirTemp("", "soak")
		assert(err)
		defer os.RemoveAll(path)
	}
	w, err := start(filepath.Join(path, "agent.ctx"))
	assert(err)
	sizes, err := w.run(context.Background())
	assert(errors.Join(err, w.finish()))
	if early, last := sizes[len(sizes)/3], sizes[len(sizes)-1]; *flat > 0 && float64(last) > *flat*float64(early) {
		log.Fatalf("the file grew from %d to %d bytes", early, last)
	}
}

// work is the workload. It is one goroutine: what it does follows from the seed.
type work struct {
	db   *ctxpage.DB
	s    *ctxpage.Scope
	rnd  *rand.Rand
	path string
	next int      // of ids that are used once
	temp []string // live ones of those
	said []string // live turns
	held []string // batches that wait for review
	ops  map[string]int
}

func start(path string) (*work, error) {
	db, err := ctxpage.Open(path, ctxpage.Options{})
	if err != nil {
		return nil, err
	}
	w := &work{db: db, s: db.Scope("soak", ctxpage.WithActor("agent")), rnd: rand.New(rand.NewPCG(*seed, 0)), path: path, ops: map[string]int{}}
	for i := range *pages {
		if err := w.put(context.Background(), liveID(i)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *work) finish() error {
	problems, err := w.db.Admin().Check(context.Background(), nil)
	for _, p := range problems {
		fmt.Println("problem:", p)
	}
	if len(problems) > 0 {
		err = errors.Join(err, fmt.Errorf("%d problems", len(problems)))
	}
	return errors.Join(err, w.db.Close())
}

// run works until the time is over. It returns the size of the file after each run of gc.
func (w *work) run(ctx context.Context) (sizes []int64, err error) {
	begin := time.Now()
	next := begin.Add(*every)
	header()
	for n := 0; ; n++ {
		now := time.Now()
		if *ops == 0 && now.After(next) || *ops > 0 && n > 0 && n%*ops == 0 {
			next = next.Add(*every)
			rep, err := w.db.Admin().GC(ctx, ctxpage.GCOptions{KeepFor: *keep})
			if err != nil {
				return sizes, err
			}
			size, err := w.report(ctx, now.Sub(begin), rep)
			if err != nil {
				return sizes, err
			}
			if sizes = append(sizes, size); len(sizes) == *runs || *runs == 0 && now.Sub(begin) >= *total {
				return sizes, nil
			}
		}
		if *rate > 0 { // what a busy machine held up is not made up for: the work between two runs of gc stays the same
			time.Sleep(time.Second / time.Duration(*rate))
		}
		if err := w.step(ctx); err != nil {
			return sizes, err
		}
	}
}

// step does one thing.
func (w *work) step(ctx context.Context) error {
	ways := []struct {
		name  string
		share int
		do    func(context.Context) error
	}{
		{"put", 20, func(ctx context.Context) error { return w.put(ctx, w.any()) }},
		{"get", 30, w.get},
		{"assemble", 20, w.assemble},
		{"turn", 8, w.turn},
		{"new and delete", 8, w.newAndDelete},
		{"draft", 8, w.draft},
		{"hold", 4, w.hold},
		{"review", 4, w.review},
		{"pass", 4, w.pass},
		{"directive", 4, w.directive},
	}
	n := w.rnd.IntN(110)
	for _, way := range ways {
		if n -= way.share; n < 0 {
			w.ops[way.name]++
			if err := way.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			return nil
		}
	}
	return nil
}

func liveID(n int) string { return fmt.Sprintf("doc/%04d", n) }

func (w *work) any() string { return liveID(w.rnd.IntN(*pages)) }

// text is some words of which questions are made, too. One in ten is long enough for several pages.
func (w *work) text() string {
	words := 60 + w.rnd.IntN(120)
	if w.rnd.IntN(10) == 0 {
		words *= 12
	}
	var b strings.Builder
	for i := range words {
		fmt.Fprintf(&b, "word%d ", w.rnd.IntN(3000))
		if i%15 == 14 {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func (w *work) put(ctx context.Context, id string) error {
	_, err := w.s.Put(ctx, ctxpage.Artefact{ID: id, Text: w.text()})
	return err
}

func (w *work) get(ctx context.Context) error {
	_, err := w.s.Get(ctx, w.any())
	return err
}

func (w *work) question() string {
	return fmt.Sprintf("word%d word%d word%d", w.rnd.IntN(3000), w.rnd.IntN(3000), w.rnd.IntN(3000))
}

func (w *work) assemble(ctx context.Context) error {
	_, err := w.s.Assemble(ctx, ctxpage.Query{Text: w.question(), Budget: 2000})
	return err
}

const turns, temps = 200, 100

// turn appends to one of some conversations, and deletes the oldest turn of all.
func (w *work) turn(ctx context.Context) error {
	c := w.s.Session(fmt.Sprintf("chat/%d", w.rnd.IntN(5)))
	refs, err := c.Append(ctx, ctxpage.Turn{Role: []string{"user", "assistant"}[w.rnd.IntN(2)], Text: w.question()})
	if err != nil {
		return err
	}
	if w.said = append(w.said, refs[0].ID); len(w.said) <= turns {
		return nil
	}
	id := w.said[0]
	w.said = w.said[1:]
	return w.s.Delete(ctx, id)
}

// pass decides anew what the window of a conversation shows.
func (w *work) pass(ctx context.Context) error {
	c := w.s.Session(fmt.Sprintf("chat/%d", w.rnd.IntN(5)))
	_, err := c.Pass(ctx, session.PassQuery{Keywords: strings.Fields(w.question())})
	if errors.Is(err, store.ErrNotFound) { // no turn has begun it yet
		return nil
	}
	return err
}

// directive changes what the scope's user has decided: there is one premise, however often it changes.
func (w *work) directive(ctx context.Context) error {
	s, say := w.db.Scope("soak/user"), "set premise "
	now, err := s.Directives().State(ctx)
	if err != nil {
		return err
	}
	if now.Own.State.Premise() != "" {
		say = "change premise to "
	}
	_, err = s.Directives().Step(ctx, say+w.question())
	return err
}

func (w *work) newAndDelete(ctx context.Context) error {
	w.next++
	id := fmt.Sprintf("note/%08d", w.next)
	if err := w.put(ctx, id); err != nil {
		return err
	}
	if w.temp = append(w.temp, id); len(w.temp) <= temps {
		return nil
	}
	id = w.temp[0]
	w.temp = w.temp[1:]
	return w.s.Delete(ctx, id)
}

// begin is a transaction with a draft that its context shows.
func (w *work) begin(ctx context.Context) (*ctxpage.Txn, error) {
	tx, err := w.s.Begin(ctx, ctxpage.WithOnStale(store.AllowStale))
	if err != nil {
		return nil, err
	}
	question := w.question()
	if err := tx.Put(ctx, ctxpage.Artefact{ID: w.any(), Text: question + w.text()}); err != nil {
		return nil, err
	}
	_, err = tx.Assemble(ctx, ctxpage.Query{Text: question, Budget: 2000, Floor: store.Scratch})
	return tx, err
}

func (w *work) draft(ctx context.Context) error {
	tx, err := w.begin(ctx)
	if err != nil {
		return err
	}
	if w.rnd.IntN(2) == 0 {
		return tx.Rollback()
	}
	return tx.Commit(ctx, ctxpage.Verdict{Confidence: .9, By: "tests"})
}

func (w *work) hold(ctx context.Context) error {
	tx, err := w.begin(ctx)
	if err != nil {
		return err
	}
	err = tx.Commit(ctx, ctxpage.Verdict{Confidence: .2, By: "tests"})
	if !errors.Is(err, store.ErrHeld) {
		return fmt.Errorf("expected a held batch: %v", err)
	}
	w.held = append(w.held, tx.ID())
	return nil
}

// review decides a held batch. An approval that comes too late is a rejection.
func (w *work) review(ctx context.Context) error {
	if len(w.held) < 5 {
		return nil
	}
	id := w.held[0]
	w.held = w.held[1:]
	if w.rnd.IntN(2) == 0 {
		_, err := w.db.Review().Approve(ctx, id, ctxpage.Approval{By: "operator", Stale: true})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	_, err := w.db.Review().Reject(ctx, id, "operator", "")
	return err
}

var buckets = []string{"meta", "content", "seg", "held", "txn", "state"}

func header() {
	fmt.Printf("%6s %9s", "min", "file KiB")
	for _, b := range buckets {
		fmt.Printf(" %7s", b)
	}
	fmt.Printf(" %7s %7s %8s %6s %6s %8s  %s\n", "free", "log", "manifest", "live", "pages", "leaves", "gc: versions, records, names, drafts, reviews, turns, journal")
}

// report measures a backup, in which nothing moves: the bytes in use of each bucket, and what is free.
func (w *work) report(ctx context.Context, at time.Duration, rep store.GCReport) (int64, error) {
	st, err := w.db.Stats(ctx)
	if err != nil {
		return 0, err
	}
	used, free := map[string]int{}, 0
	if *measure {
		if used, free, err = w.buckets(ctx); err != nil {
			return 0, err
		}
	}
	fmt.Printf("%6.1f %9d", at.Minutes(), st.FileBytes>>10)
	for _, b := range buckets {
		fmt.Printf(" %7d", used[b]>>10)
	}
	fmt.Printf(" %7d %7d %8d %6d %6d %8d  %d %d %d %d %d %d %d\n", free>>10, dirSize(w.path+"-wal")>>10, dirSize(w.path+"-manifest")>>10,
		st.Artefacts, st.Pages, st.Leaves, rep.Dropped.Versions, rep.Records, rep.Names, rep.Drafts, rep.Reviews, rep.Turns, rep.Journal)
	return st.FileBytes, nil
}

func (w *work) buckets(ctx context.Context) (used map[string]int, free int, err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(w.path), "copy")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(tmp)
	path := filepath.Join(tmp, "copy.ctx")
	if _, err := w.db.Admin().Backup(ctx, path, nil); err != nil {
		return nil, 0, err
	}
	b, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		return nil, 0, err
	}
	defer b.Close()
	used = map[string]int{}
	err = b.View(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			s := tx.Bucket([]byte(name)).Stats()
			used[name] = s.LeafAlloc + s.BranchAlloc + s.InlineBucketInuse
		}
		return prefixes(tx)
	})
	return used, b.Stats().FreePageN * b.Info().PageSize, err
}

// A backup reads one moment of the file: what is freed meanwhile is not used again before it ends, and the file may grow
// by that.
var measure = flag.Bool("buckets", true, "measure buckets and free pages, in a backup")

var verbose = flag.Bool("v", false, "also count rows by the beginning of their keys")

// prefixes counts the rows of meta by their letter and those of state by their first two words.
func prefixes(tx *bbolt.Tx) error {
	if !*verbose {
		return nil
	}
	rows, bytes := map[string]int{}, map[string]int{}
	for _, name := range []string{"meta", "state"} {
		err := tx.Bucket([]byte(name)).ForEach(func(k, v []byte) error {
			key := name + "/" + string(k[:1])
			if name == "state" {
				p := strings.SplitN(string(k), "/", 3)
				key = strings.Join(p[:min(2, len(p)-1)], "/")
				if p[0] == "drafts" {
					key = p[0]
				}
			}
			rows[key]++
			bytes[key] += len(k) + len(v)
			return nil
		})
		if err != nil {
			return err
		}
	}
	keys := make([]string, 0, len(rows))
	for k := range rows {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Printf("       %-20s %8d rows %8d KiB\n", k, rows[k], bytes[k]>>10)
	}
	return nil
}

func dirSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				n += fi.Size()
			}
		}
		return nil
	})
	return n
}
