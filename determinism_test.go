package ctxpage_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/budget"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// archiveOf writes a hundred and some artefacts of every kind: batch of them in a transaction, a checkpoint after so many
// transactions (0: none).
func archiveOf(t testing.TB, db *DB, clk *clock, batch, checkpoint int) {
	t.Helper()
	var puts []func(tx *Txn) error
	add := func(a Artefact) { puts = append(puts, func(tx *Txn) error { return tx.Put(ctx, a) }) }
	start := clk.now()
	at := func(i int) time.Time { return start.Add(-time.Duration(i) * 7 * time.Hour) }
	add(Artefact{ID: "system", Kind: KindSystem, Text: "You answer questions about parcels.", CurrentAsOf: at(0)})
	for i := range 40 {
		add(Artefact{ID: fmt.Sprint("doc-", i), Kind: KindChunk, Text: words(i, 10+i*3), CurrentAsOf: at(i), Tags: []string{"t"}})
		add(Artefact{ID: fmt.Sprint("fact-", i), Text: words(i+100, 12), CurrentAsOf: at(i + 3), Pinned: i == 7})
	}
	for i := range 24 {
		add(Artefact{ID: fmt.Sprint("turn-", i), Role: []string{"user", "assistant"}[i%2], Group: "chat", Seq: int64(i), Text: words(i+200, 15), CurrentAsOf: at(24 - i)})
	}
	for i := range 12 { // some again, some gone, some replaced, some that will expire
		add(Artefact{ID: fmt.Sprint("doc-", i), Kind: KindChunk, Text: words(i+300, 30), CurrentAsOf: at(i)})
		add(Artefact{ID: fmt.Sprint("new-", i), Text: words(i+400, 14), Supersedes: []string{fmt.Sprint("fact-", i+20)}, CurrentAsOf: at(1)})
		add(Artefact{ID: fmt.Sprint("brief-", i), Text: words(i+500, 14), ExpiresAt: start.Add(time.Duration(i-6) * time.Hour), CurrentAsOf: at(1)})
	}
	s := db.Scope("acme/support")
	for i := 0; len(puts) > 0; i++ {
		n := min(batch, len(puts))
		require.NoError(t, s.Update(ctx, func(tx *Txn) error {
			for _, p := range puts[:n] {
				if err := p(tx); err != nil {
					return err
				}
			}
			return nil
		}))
		puts = puts[n:]
		if checkpoint > 0 && i%checkpoint == checkpoint-1 {
			_, err := db.Admin().Checkpoint(ctx)
			require.NoError(t, err)
		}
	}
	_, err := db.Admin().PutVerified(ctx, "acme", "anna", Artefact{ID: "verified", Text: words(600, 20), CurrentAsOf: at(90)})
	require.NoError(t, err)
}

var determined = []Query{
	{Text: words(3, 6), Budget: 1500, Reserve: 100},
	{Text: words(203, 6), Budget: 900, Session: "chat"},
	{Text: words(420, 8), Budget: 4000, Overflow: budget.Ladder, Preset: "START", Floor: Scratch},
	{Text: "", Budget: 700},
}

// body is a leaf without what names the call itself; of what was asked it has the text.
func body(a *Assembly) manifest.Record {
	r := *a.Manifest
	r.Trace, r.Parent, r.Index = "", "", 0
	if r.QuestionKept { // then the digest has a salt of its own, as those of pages have
		r.Query = nil
	}
	return r
}

// Same pages, same clock, same question, same bytes, and the same manifest: on one processor or eight, with no memory,
// a page's worth, or all, before and after a checkpoint and a reopen, alone or beside others.
func TestDeterminism(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	clk := newClock()
	opts := WithoutSync(Options{Clock: clk.now, Rand: seeded(1)})
	db := open(t, opts)
	archiveOf(t, db, clk, 1, 0)
	type answer struct {
		text string
		leaf manifest.Record
	}
	want := make([]answer, len(determined))
	runs := make([]int, len(determined))
	look := func(s *Scope, i int) {
		a, err := s.Assemble(ctx, determined[i])
		if err != nil {
			t.Error(err)
			return
		}
		if want[i].text == "" {
			want[i] = answer{a.Text(), body(a)}
			require.NotEmpty(t, a.Blocks)
		}
		require.Equal(t, want[i].text, a.Text())
		require.Equal(t, want[i].leaf, body(a))
		runs[i]++
	}
	all := func() {
		for i := range determined {
			look(db.Scope("acme/support"), i)
		}
	}
	all()
	for _, size := range []int64{-1, 700, 64 << 20} {
		opts.WorkingSet = size
		db = reopen(t, db, opts)
		for _, procs := range []int{1, 2, 8} {
			runtime.GOMAXPROCS(procs)
			for range 6 {
				all()
			}
			_, err := db.Admin().Checkpoint(ctx)
			require.NoError(t, err)
			for range 5 {
				all()
			}
		}
	}
	require.GreaterOrEqual(t, slices.Min(runs), 100)
	var wg sync.WaitGroup
	texts := make([][]string, 8)
	for g := range texts {
		wg.Go(func() {
			for i := range determined {
				a, err := db.Scope("acme/support").Assemble(ctx, determined[(i+g)%len(determined)])
				if err != nil {
					t.Error(err)
					return
				}
				texts[g] = append(texts[g], a.Text())
			}
		})
	}
	wg.Wait()
	for g := range texts {
		for i := range texts[g] {
			require.Equal(t, want[(i+g)%len(determined)].text, texts[g][i])
		}
	}
	t.Run("control: another clock is another answer", func(t *testing.T) {
		clk.add(3 * time.Hour)
		require.NotEqual(t, want[0].leaf, body(assemble(t, db.Scope("acme/support"), determined[0])))
	})
}

// How the writes were batched, and when a checkpoint cut them into segments, is not in the answer.
func TestBatchingDoesNotMatter(t *testing.T) {
	t.Parallel()
	var want []string
	var leaves []manifest.Record
	for _, c := range []struct{ batch, checkpoint int }{{1, 0}, {1, 1}, {1, 9}, {7, 0}, {7, 2}, {40, 1}} {
		clk := newClock()
		opts := WithoutSync(Options{Clock: clk.now, Rand: seeded(1), Identity: store.Info{ID: "01KJMGW6W0PFJ1X8EKYMKH1C7P", Secret: make([]byte, 32)}}) // the same fence
		db := open(t, opts)
		archiveOf(t, db, clk, c.batch, c.checkpoint)
		var got []string
		var bodies []manifest.Record
		for _, q := range determined {
			a := assemble(t, db.Scope("acme/support"), q)
			b := body(a)
			b.LSN = 0 // counts transactions
			got, bodies = append(got, a.Text()), append(bodies, b)
		}
		if want == nil {
			want, leaves = got, bodies
		}
		require.Equal(t, want, got, c)
		require.Equal(t, leaves, bodies, c)
	}
}

// TestReopenAfterNewHead: an artefact that changed its group and author but not its text is found as before, whether its
// words are in memory, analysed again after a reopen, or in a segment.
func TestReopenAfterNewHead(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	s := db.Scope("acme")
	for i := range 6 {
		put(t, s, Artefact{ID: fmt.Sprint("turn-", i), Text: fmt.Sprint("zebra crossing number ", i), Group: "chat", Name: "ann", Seq: int64(i)})
	}
	put(t, s, Artefact{ID: "else", Text: "of another matter", Group: "b"})
	put(t, s, Artefact{ID: "turn-1", Text: "zebra crossing number 1", Group: "b", Name: "zebra"})
	find := func() []Hit {
		hits, err := hitsOf(s.Search(ctx, "zebra crossing", 10))
		require.NoError(t, err)
		require.NotEmpty(t, hits)
		return hits
	}
	first := find()
	for _, step := range []func() error{func() error { return nil }, func() error { _, err := db.Admin().Checkpoint(ctx); return err }} {
		require.NoError(t, step())
		require.Equal(t, first, find())
		db = reopen(t, db, Options{})
		s = db.Scope("acme")
		require.Equal(t, first, find())
	}
}
