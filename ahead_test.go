package ctxpage_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// BenchmarkAhead is a small question over so many files, none of which changed.
func BenchmarkAhead(b *testing.B) {
	for _, n := range []int{50, 300, 3000, 10_000} {
		dir := b.TempDir()
		sub := filepath.Join(dir, "src", "deep", "er")
		require.NoError(b, os.MkdirAll(sub, 0o700))
		db := open(b, WithoutSync(Options{FileRoots: []string{dir}}))
		s := db.Scope("acme/agent")
		manyFiles(b, db.Scope("acme"), sub, n)
		past := time.Now().Add(-time.Hour) // a stamp of just now proves nothing
		for i := range n {
			require.NoError(b, os.Chtimes(filepath.Join(sub, fmt.Sprintf("doc-%03d.md", i)), past, past))
		}
		for name, check := range map[string]CheckPolicy{"always": CheckAlways, "never": CheckNever} {
			ask := func() {
				if _, err := s.Assemble(ctx, Query{Text: "payment ledger part 17", Budget: 2000, Check: check}); err != nil {
					b.Fatal(err)
				}
			}
			ask()
			b.Run(fmt.Sprintf("files=%d/check=%s", n, name), func(b *testing.B) {
				for range b.N {
					ask()
				}
			})
		}
	}
}

// manyFiles writes so many files and puts each of them as an artefact.
func manyFiles(t testing.TB, s *Scope, dir string, n int) {
	t.Helper()
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		for i := range n {
			path := filepath.Join(dir, fmt.Sprintf("doc-%03d.md", i))
			writeFile(t, path, "# Part "+fmt.Sprint(i)+"\n\n"+words(i, 120)+"\n")
			if err := tx.Put(ctx, Artefact{ID: fmt.Sprintf("doc-%03d", i), Kind: KindChunk, Source: "file:" + path, Group: fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// best is the block with the highest score.
func best(a *Assembly) Block {
	return slices.MaxFunc(a.Blocks, func(x, y Block) int { return cmp.Compare(x.Score, y.Score) })
}

// refetched says what the manifest says of an artefact.
func refetched(a *Assembly, id string) bool {
	i := slices.IndexFunc(a.Blocks, func(b Block) bool { return b.Ref.ID == id })
	return i >= 0 && a.Manifest.Pages[i].Refetched
}

// A sentence put before one of many files is found by the very first question that asks for it, and a file that was
// rewritten is found by its new words although none of its old ones is asked for.
func TestNewWordsAreFoundAtOnce(t *testing.T) {
	for _, check := range []CheckPolicy{CheckAlways, CheckEvery(time.Hour)} {
		clk, dir := newClock(), t.TempDir()
		db := open(t, WithoutSync(Options{Clock: clk.now, FileRoots: []string{dir}}))
		s := db.Scope("acme/agent")
		manyFiles(t, db.Scope("acme"), dir, 304)
		assemble(t, s, Query{Text: "payment ledger", Budget: 1500, Check: check})
		clk.add(2 * time.Hour)

		old, err := os.ReadFile(filepath.Join(dir, "doc-117.md"))
		require.NoError(t, err)
		writeFile(t, filepath.Join(dir, "doc-117.md"), "The codeword for the kitchen door is heliotrope.\n\n"+string(old))
		a := assemble(t, s, Query{Text: "what is the codeword of the payment ledger?", Budget: 1500, Check: check})
		require.Contains(t, a.Text(), "heliotrope")
		require.Equal(t, "doc-117", best(a).Ref.ID, "it is scored by its new words")
		require.True(t, refetched(a, "doc-117"))

		clk.add(2 * time.Hour)
		writeFile(t, filepath.Join(dir, "doc-203.md"), "Zebras sleep in hammocks.\n")
		hits, err := hitsOf(s.Search(ctx, "hammocks", 3, WithCheck(check)))
		require.NoError(t, err)
		require.Equal(t, []string{"doc-203"}, hitIDs(hits))
		clk.add(2 * time.Hour)
		writeFile(t, filepath.Join(dir, "doc-204.md"), "Okapis prefer verandas.\n")
		a = assemble(t, s, Query{Text: "verandas", Budget: 1500, Check: check})
		require.Equal(t, "doc-204", best(a).Ref.ID)
		r, err := db.Replay(ctx, a.Trace)
		require.NoError(t, err)
		require.Equal(t, a.Text(), r.Text)

		clk.add(2 * time.Hour)
		writeFile(t, filepath.Join(dir, "doc-205.md"), "Tapirs collect umbrellas.\n")
		tx := begin(t, s)
		b, err := tx.Assemble(ctx, Query{Text: "umbrellas", Budget: 1500, Check: check})
		require.NoError(t, err)
		require.Equal(t, "doc-205", best(b).Ref.ID)
		require.NoError(t, tx.Rollback())

		writeFile(t, filepath.Join(dir, "doc-206.md"), "Lemurs repair accordions.\n")
		require.NotContains(t, assemble(t, s, Query{Text: "accordions", Budget: 1500, Check: CheckNever}).Text(), "accordions", "control: nobody looked")
	}
}

// What cannot be looked at before the question is scored again in the same assembly, once: a source of a host whose old
// words bring it in far behind is first by its new ones.
func TestScoredAgainAfterRefetch(t *testing.T) {
	m := newMemo()
	db := open(t, WithoutSync(Options{Sources: map[string]store.Source{"memo": m}}))
	s := db.Scope("acme")
	for i := range 60 {
		m.set(fmt.Sprint(i), "payment "+words(i, 80))
		put(t, s, Artefact{ID: fmt.Sprintf("doc-%02d", i), Kind: KindChunk, Source: "memo:" + fmt.Sprint(i), CurrentAsOf: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)})
	}
	const ask = "payment heliotrope"
	last := ""
	for _, p := range assemble(t, s, Query{Text: ask, Budget: 1500}).Left {
		if last = p.Ref.ID; p.Reason == "over budget" {
			break
		}
	}
	require.NotEmpty(t, last)
	n := 0
	_, err := fmt.Sscanf(last, "doc-%d", &n)
	require.NoError(t, err)
	m.set(fmt.Sprint(n), "The heliotrope rule: "+m.texts[fmt.Sprint(n)])
	probes := m.probes.Load()
	a := assemble(t, s, Query{Text: ask, Budget: 1500})
	require.Equal(t, last, best(a).Ref.ID, "its new words count in the assembly that fetched it")
	require.True(t, refetched(a, last))
	require.Contains(t, a.Text(), "heliotrope rule")
	require.LessOrEqual(t, m.probes.Load()-probes, int64(60), "each source is asked once an assembly")
}

// A page that takes the place of one that was fetched anew is checked in its turn, and scored by its new words too.
func TestScoredAgainInTheSecondRound(t *testing.T) {
	m := newMemo()
	db := open(t, WithoutSync(Options{Sources: map[string]store.Source{"memo": m}}))
	s := db.Scope("acme")
	for id, text := range map[string]string{"first": "payment payment heliotrope", "second": "payment heliotrope among other words here", "third": "payment among quite a few other words that are here"} {
		m.set(id, text)
		put(t, s, Artefact{ID: id, Kind: KindChunk, Source: "memo:" + id, CurrentAsOf: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)})
	}
	m.mu.Lock()
	delete(m.texts, "first")
	m.mu.Unlock()
	m.set("third", "payment heliotrope heliotrope heliotrope")
	q := Query{Text: "payment heliotrope", Budget: 1500, TopK: 2}
	a := assemble(t, s, q)
	require.Equal(t, "third", best(a).Ref.ID)
	require.InDelta(t, best(assemble(t, s, q)).Score, best(a).Score, 1e-6, "as an assembly that finds all of it clean")
}

// Pages of files that are gone are left out under that name, everywhere, and take nobody's place.
func TestVanishedFiles(t *testing.T) {
	dir := t.TempDir()
	opts := WithoutSync(Options{FileRoots: []string{dir}})
	db := open(t, opts)
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "here", Text: "a zebra crossing of our own"})
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		for i := range 120 {
			path := filepath.Join(dir, fmt.Sprint(i))
			writeFile(t, path, "zebra zebra crossing")
			if err := tx.Put(ctx, Artefact{ID: fmt.Sprint("gone-", i), Source: "file:" + path, Group: fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return nil
	}))
	put(t, s, Artefact{ID: "derived", Kind: KindSummary, Text: "zebra summary", DerivedFrom: []Ref{{Scope: "acme", ID: "gone-3", Version: 1}}})
	put(t, s, Artefact{ID: "copy", Source: "page:gone-4"})
	for i := range 120 {
		require.NoError(t, os.Remove(filepath.Join(dir, fmt.Sprint(i))))
	}
	for _, readOnly := range []bool{false, true} {
		opts.ReadOnly = readOnly
		db = reopen(t, db, opts)
		s = db.Scope("acme")
		a := assemble(t, s, Query{Text: "zebra crossing", Budget: 2000})
		require.Equal(t, []string{"here"}, ids(a), "although 120 pages would be before it")
		require.Equal(t, []string{"dirty: source vanished"}, left(a, "gone-7"))
		require.Equal(t, []string{"dirty: source vanished"}, left(a, "derived"))
		require.Equal(t, []string{"dirty: source vanished"}, left(a, "copy"))
		n := 0
		for _, e := range a.Manifest.Excluded {
			if e.Reason == "dirty: source vanished" {
				n = e.Count
			}
		}
		require.Equal(t, 122, n)
		hits, err := hitsOf(s.Search(ctx, "zebra crossing", 3))
		require.NoError(t, err)
		require.Equal(t, []string{"here"}, hitIDs(hits))
		_, err = s.Get(ctx, "gone-7")
		require.ErrorIs(t, err, ErrDirty)
		require.ErrorIs(t, err, ErrVanished)
		require.ErrorIs(t, err, os.ErrNotExist)
		if readOnly {
			continue // it keeps no manifest
		}
		w, err := db.Why(ctx, a.Trace, Ref{ID: "gone-7"})
		require.NoError(t, err)
		require.False(t, w.In)
		require.Contains(t, strings.Join(w.Steps, "\n"), "dirty: source vanished")
	}
	opts.ReadOnly = false
	db = reopen(t, db, opts)
	s = db.Scope("acme")
	a := assemble(t, s, Query{Text: "zebra crossing", Budget: 4000, ServeStale: true})
	require.Contains(t, a.Text(), `stale="source changed"`)
	writeFile(t, filepath.Join(dir, "7"), "zebra crossing, restored")
	require.Contains(t, ids(assemble(t, s, Query{Text: "zebra crossing", Budget: 2000})), "gone-7", "and it heals")

	require.NoError(t, os.Rename(dir, dir+"-away"))
	_, err := s.Get(ctx, "gone-7")
	require.ErrorIs(t, err, ErrDirty)
	require.NotErrorIs(t, err, ErrVanished, "a root that is away says nothing about its files")
	require.NoError(t, os.Rename(dir+"-away", dir))
}

// A read-only database fetches nothing, whatever changed; it leaves out what is dirty.
func TestReadOnlyLooksAndWritesNothing(t *testing.T) {
	dir := t.TempDir()
	opts := WithoutSync(Options{FileRoots: []string{dir}})
	db := open(t, opts)
	manyFiles(t, db.Scope("acme"), dir, 20)
	lsn := assemble(t, db.Scope("acme"), Query{Text: "payment"}).LSN
	opts.ReadOnly = true
	db = reopen(t, db, opts)
	writeFile(t, filepath.Join(dir, "doc-003.md"), "payment by heliotrope")
	a := assemble(t, db.Scope("acme"), Query{Text: "payment part heliotrope"})
	require.NotContains(t, ids(a), "doc-003")
	require.NotEmpty(t, left(a, "doc-003"))
	require.Equal(t, lsn, a.LSN)
}

// Many files that changed at once are written in a few transactions, in the order of their ids, whatever the number of
// processors.
func TestManyChangedFilesTogether(t *testing.T) {
	dir := t.TempDir()
	db := open(t, WithoutSync(Options{FileRoots: []string{dir}}))
	s := db.Scope("acme")
	manyFiles(t, s, dir, 200)
	for i := range 200 {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("doc-%03d.md", i)), fmt.Sprint("heliotrope number ", i))
	}
	assemble(t, s, Query{Text: "heliotrope", Budget: 1200})
	writes, last := 0, uint64(0)
	require.NoError(t, store.EachRecord(ctx, db.Manifests(), 0, dbtest.SizeOf(db.Manifests()), false, func(r *manifest.Record) error {
		if r.Type == manifest.TypeRefetch {
			writes++
		}
		return nil
	}))
	require.LessOrEqual(t, writes, 2)
	for i := range 200 {
		v := get(t, s, fmt.Sprintf("doc-%03d", i))
		require.Equal(t, fmt.Sprint("heliotrope number ", i), v.Text)
		require.Greater(t, v.Pages[0].Num, last)
		last = v.Pages[0].Num
	}
}
