package ctxpage_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// TestSearchLooksFurther: matches that cannot be served take no places, however many of them are better than those that
// can. Each source is asked once, and no more of them than it takes.
func TestSearchLooksFurther(t *testing.T) {
	m := newMemo()
	db := open(t, Options{Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme")
	const lost, plain = 150, 20
	for i := range lost {
		m.set(fmt.Sprint(i), "zebra zebra")
		put(t, s, Artefact{ID: fmt.Sprint("lost-", i), Source: fmt.Sprint("memo:", i)})
	}
	for i := range plain {
		put(t, s, Artefact{ID: fmt.Sprintf("plain-%02d", i), Text: "a zebra among many other animals of the plain " + words(i, 30)})
	}
	search := func(limit int, opts ...ReadOption) Found {
		m.probes.Store(0)
		return must(s.Search(ctx, "zebra", limit, opts...))(t)
	}
	require.Len(t, search(10).Hits, 10)
	require.Equal(t, int64(10), m.probes.Load(), "nothing is lost: nobody beyond the limit is asked")

	m.do(func(m *memo) { m.fail = errors.New("the source is away") })
	for _, limit := range []int{1, 3, 10, plain} {
		found := search(limit)
		require.Len(t, found.Hits, limit)
		for _, h := range found.Hits {
			require.Contains(t, h.Ref.ID, "plain-")
		}
		require.Len(t, found.Left, lost)
		require.LessOrEqual(t, m.probes.Load(), int64(lost), "each once")
	}
	require.Len(t, search(plain+1).Hits, plain, "the matches end")
	stale := search(10, ServeStale())
	require.Len(t, stale.Hits, 10)
	require.Empty(t, stale.Left)
	require.LessOrEqual(t, m.probes.Load(), int64(10))
}

// TestSearchServesAnArtefactOnce: a long document takes one place among the hits, and names its other pages there; the
// places that its pages leave go to other documents.
func TestSearchServesAnArtefactOnce(t *testing.T) {
	s := open(t, Options{PageTokens: 64}).Scope("acme")
	var long strings.Builder
	for i := range 12 {
		fmt.Fprintf(&long, "# Part %d\n\nThe zebra and the zebra's stripes. %s\n\n", i, words(i, 40))
	}
	put(t, s, Artefact{ID: "long", Kind: store.KindChunk, Text: long.String()})
	for i := range 5 {
		put(t, s, Artefact{ID: fmt.Sprint("short-", i), Kind: store.KindChunk, Text: "one zebra, seen from far away " + words(50+i, 30)})
	}
	found := must(s.Search(ctx, "zebra stripes", 4))(t)
	require.Len(t, found.Hits, 4)
	require.Equal(t, "long", found.Hits[0].Ref.ID)
	require.Len(t, found.Hits[0].More, 3)
	seen := map[string]bool{}
	for _, h := range found.Hits {
		require.False(t, seen[h.Ref.ID], "%s is there twice", h.Ref.ID)
		seen[h.Ref.ID] = true
	}
	for _, ref := range found.Hits[0].More {
		require.Equal(t, "long", ref.ID)
		require.NotEqual(t, found.Hits[0].Ref.Page, ref.Page)
	}
	more := must(s.Search(ctx, "zebra stripes", 100))(t)
	require.Len(t, more.Hits, 6, "each artefact once")
	require.Empty(t, more.Left, "pages that are named are not left out")
}

// TestSearchPassesAPage: the best page of a document says what another one says, so the next of its pages is served.
func TestSearchPassesAPage(t *testing.T) {
	s := open(t, Options{PageTokens: 64}).Scope("acme")
	same := "# Animals\n\nThe zebra has stripes, and the zebra is known for its stripes. " + words(1, 26)
	put(t, s, Artefact{ID: "older", Kind: store.KindChunk, Text: same + "\n\n# More\n\nA zebra lives here. " + words(2, 45)})
	put(t, s, Artefact{ID: "twin", Kind: store.KindChunk, Text: same})
	found := must(s.Search(ctx, "zebra stripes", 2))(t)
	require.Len(t, found.Hits, 2)
	require.Equal(t, "twin", found.Hits[0].Ref.ID)
	require.Equal(t, "older", found.Hits[1].Ref.ID)
	require.Equal(t, 2, found.Hits[1].Ref.Page)
	require.Len(t, found.Left, 1)
	require.Equal(t, "older", found.Left[0].Ref.ID)
	require.Equal(t, 1, found.Left[0].Ref.Page)
}

// A question of stop words alone finds the texts that have them. What the index knows of them, names and texts of
// nothing else, comes first. Rules of other searches hold: scopes, floor, expiry, the drafts of a transaction.
func TestSearchByStopWords(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme/a")
	for id, text := range map[string]string{
		"allergy": "The user is not allergic to peanuts.", "hamlet": "To be or not to be", "band": "The Who is a band from London.",
		"dept": "IT department handles laptops.", "us": "Call us on weekdays.", "plain": "Invoices are paid monthly.",
	} {
		put(t, s, Artefact{ID: id, Text: text})
	}
	put(t, db.Scope("acme"), Artefact{ID: "parent", Text: "Do not refund above 400."})
	put(t, db.Scope("acme/b"), Artefact{ID: "sibling", Text: "Do not tell anyone."})
	put(t, s, Artefact{ID: "draft", Text: "It is not certain.", Provenance: store.Scratch})

	search := func(find func() (Found, error)) (ids []string) {
		found := must(find())(t)
		for i, h := range found.Hits {
			ids = append(ids, h.Ref.ID)
			require.Positive(t, h.Score)
			require.True(t, i == 0 || h.Score <= found.Hits[i-1].Score)
		}
		return ids
	}
	ask := func(question string, opts ...ReadOption) []string {
		return search(func() (Found, error) { return s.Search(ctx, question, 10, opts...) })
	}
	require.Equal(t, []string{"hamlet", "parent", "allergy"}, ask("not"))
	require.Equal(t, []string{"band"}, ask("the who")[:1])
	require.Equal(t, []string{"us"}, ask("us"))
	require.Equal(t, []string{"dept"}, ask("IT"), "a name, and not the pronoun")
	require.Contains(t, ask("not", WithFloor(store.Scratch)), "draft")
	require.Equal(t, []string{"plain"}, ask("not monthly")[:1], "beside other words they are ignored")
	require.Len(t, ask("not monthly"), 1)
	require.Equal(t, ask("not"), ask("not"))

	tx := must(s.Begin(ctx))(t)
	defer tx.Rollback()
	require.NoError(t, tx.Put(ctx, Artefact{ID: "mine", Text: "That was not said."}))
	require.NoError(t, tx.Put(ctx, Artefact{ID: "hamlet", Text: "A play."}))
	require.ElementsMatch(t, []string{"parent", "allergy", "mine"}, search(func() (Found, error) { return tx.Search(ctx, "not", 10) }))
}

// The pages read for stop words are bounded: the newest are.
func TestSearchByStopWordsIsBounded(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "oldest", Text: "not this"})
	put(t, s, Artefact{ID: "old", Text: "not found in an old page"})
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		for i := range 1000 {
			if err := tx.Put(ctx, Artefact{ID: fmt.Sprint(i), Text: fmt.Sprint("page ", i)}); err != nil {
				return err
			}
		}
		return nil
	}))
	found := must(s.Search(ctx, "not", 10))(t)
	require.Len(t, found.Hits, 1, "the index has the text of stop words alone")
	require.Equal(t, "oldest", found.Hits[0].Ref.ID)
}

func filterDB(t *testing.T) (*DB, *Scope) {
	db := open(t, Options{})
	s := db.Scope("acme/support")

	for i := range 40 {
		a := Artefact{ID: fmt.Sprintf("ticket/%02d", i), Text: fmt.Sprintf("refund of order %d was approved", i), Tags: []string{"closed"}, Meta: map[string]string{"rank": fmt.Sprint(i)}}
		if i%4 == 0 {
			a.Tags, a.Subject = []string{"open"}, "Ada"
		}
		must(s.Put(ctx, a))(t)
	}
	must(s.Put(ctx, Artefact{ID: "rules", Kind: store.KindSystem, Text: "refund rules"}))(t)
	must(db.Scope("acme/other").Put(ctx, Artefact{ID: "theirs", Text: "refund of strangers", Tags: []string{"open"}}))(t)
	return db, s
}

func TestFilterAssemble(t *testing.T) {
	t.Parallel()
	db, s := filterDB(t)

	q := Query{Text: "which refund was approved?", Budget: 4000, Filter: Filter{TagsAny: []string{"open"}}}
	a := must(s.Assemble(ctx, q))(t)
	require.Len(t, a.Blocks, 11, "ten open tickets and the system page")
	for _, b := range a.Blocks {
		require.Equal(t, "acme/support", b.Ref.Scope)
	}
	require.Equal(t, `{"tags_any":["open"]}`, a.Manifest.Filter)
	require.Contains(t, a.Manifest.Excluded, manifest.Exclusion{Reason: triage.Filtered, Count: 30})

	r := must(db.Replay(ctx, a.Trace))(t)
	require.True(t, r.Same)
	require.Equal(t, a.Text(), r.Text)
	w := must(db.Why(ctx, a.Trace, Ref{ID: "ticket/01"}))(t)
	require.False(t, w.In)
	require.Contains(t, w.Steps, `triage: excluded by the filter: it has none of the tags "open"`)
	w = must(db.Why(ctx, a.Trace, Ref{Scope: "acme/other", ID: "theirs"}))(t)
	require.NotContains(t, strings.Join(w.Steps, "\n"), "filter", "what a scope does not see is not explained by it")

	q.Filter = Filter{}
	a = must(s.Assemble(ctx, q))(t)
	require.Len(t, a.Blocks, 41)
	require.Empty(t, a.Manifest.Filter)
}

func TestFilterSearchAndList(t *testing.T) {
	t.Parallel()
	_, s := filterDB(t)

	f := Filter{Subject: "Ada", Meta: store.Conditions{{Key: "rank", Op: store.OpGreaterOrEqual, Value: "32"}}}
	found := must(s.Search(ctx, "refund", 10, Where(f)))(t)
	require.Len(t, found.Hits, 2)
	require.Empty(t, found.Left)
	var next string
	vs := must(loop.Collect(s.Artefacts(ctx, "", AtMost(10, "", &next), Where(f), NewestFirst())))(t)
	require.Empty(t, next)
	require.Equal(t, []string{"ticket/36", "ticket/32"}, []string{vs[0].ID, vs[1].ID})

	require.NoError(t, s.Update(ctx, func(tx *Txn) error { // the drafts of a transaction pass as pages do
		require.NoError(t, tx.Put(ctx, Artefact{ID: "ticket/36", Text: "refund of order 36 is closed", Tags: []string{"closed"}}))
		require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: "refund of a draft", Subject: "Ada", Meta: map[string]string{"rank": "99"}}))
		found := must(tx.Search(ctx, "refund", 10, Where(f)))(t)
		ids := map[string]bool{}
		for _, h := range found.Hits {
			ids[h.Ref.ID] = true
		}
		require.Equal(t, map[string]bool{"ticket/32": true, "draft": true}, ids)
		return nil
	}))
}

func TestFilterInvalid(t *testing.T) {
	t.Parallel()
	_, s := filterDB(t)
	now := time.Now()
	for field, f := range map[string]Filter{
		"filter.id_prefix":     {IDPrefix: "a\x00"},
		"filter.subject":       {Subject: strings.Repeat("x", store.MaxID+1)},
		"filter.tags_any":      {TagsAny: make([]string, store.MaxTags+1)},
		"filter.tags_all":      {TagsAll: []string{""}},
		`filter.meta."k"`:      {Meta: store.Conditions{{Key: "k", Op: "$regex", Value: "x"}}},
		"filter.meta":          {Meta: store.Conditions{{Key: "k", Op: store.OpEqual, Value: strings.Repeat("x", store.MaxFilterValue+1)}}},
		"filter.kinds":         {Kinds: []store.Kind{store.KindAuto}},
		"filter.until":         {Since: now, Until: now},
		"filter.written_until": {WrittenSince: now, WrittenUntil: now.Add(-time.Hour)},
	} {
		_, err := s.Search(ctx, "refund", 1, Where(f))
		var invalid *store.InvalidError
		require.True(t, errors.As(err, &invalid), field)
		require.Equal(t, field, invalid.Field)
		require.NotEmpty(t, invalid.Expected)
		require.ErrorIs(t, errOf(loop.Collect(s.Artefacts(ctx, "", AtMost(1, "", nil), Where(f)))), store.ErrInvalid, field)
		require.ErrorIs(t, errOf(s.Assemble(ctx, Query{Text: "refund", Budget: 1000, Filter: f})), store.ErrInvalid, field)
	}
}

// manyFiles writes so many files and puts each of them as an artefact.
func manyFiles(t testing.TB, s *Scope, dir string, n int) {
	t.Helper()
	file := func(i int) string { return filepath.Join(dir, fmt.Sprintf("doc-%03d.md", i)) }
	for i := range n { // all of them first: a Put waits until nobody seems to be writing its file
		writeFile(t, file(i), "# Part "+fmt.Sprint(i)+"\n\n"+words(i, 120)+"\n")
	}
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		for i := range n {
			if err := tx.Put(ctx, Artefact{ID: fmt.Sprintf("doc-%03d", i), Kind: store.KindChunk, Source: "file:" + file(i), Group: fmt.Sprint(i)}); err != nil {
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
	for _, check := range []time.Duration{0, time.Hour} {
		clk, dir := newClock(), t.TempDir()
		db := open(t, Options{Clock: clk.now, FileRoots: []string{dir}})
		s := db.Scope("acme/agent")
		manyFiles(t, db.Scope("acme"), dir, 304)
		assemble(t, s, Query{Text: "payment ledger", Budget: 1500, Check: check})
		clk.add(2 * time.Hour)

		old := must(os.ReadFile(filepath.Join(dir, "doc-117.md")))(t)
		writeFile(t, filepath.Join(dir, "doc-117.md"), "The codeword for the kitchen door is heliotrope.\n\n"+string(old))
		a := assemble(t, s, Query{Text: "what is the codeword of the payment ledger?", Budget: 1500, Check: check})
		require.Contains(t, a.Text(), "heliotrope")
		require.Equal(t, "doc-117", best(a).Ref.ID, "it is scored by its new words")
		require.True(t, refetched(a, "doc-117"))

		clk.add(2 * time.Hour)
		writeFile(t, filepath.Join(dir, "doc-203.md"), "Zebras sleep in hammocks.\n")
		require.Equal(t, []string{"doc-203"}, hitIDs(must(hitsOf(s.Search(ctx, "hammocks", 3, WithCheck(check))))(t)))
		clk.add(2 * time.Hour)
		writeFile(t, filepath.Join(dir, "doc-204.md"), "Okapis prefer verandas.\n")
		a = assemble(t, s, Query{Text: "verandas", Budget: 1500, Check: check})
		require.Equal(t, "doc-204", best(a).Ref.ID)
		require.Equal(t, a.Text(), must(db.Replay(ctx, a.Trace))(t).Text)

		clk.add(2 * time.Hour)
		writeFile(t, filepath.Join(dir, "doc-205.md"), "Tapirs collect umbrellas.\n")
		tx := begin(t, s)
		b := must(tx.Assemble(ctx, Query{Text: "umbrellas", Budget: 1500, Check: check}))(t)
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
	db := open(t, Options{Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme")
	for i := range 60 {
		m.set(fmt.Sprint(i), "payment "+words(i, 80))
		put(t, s, Artefact{ID: fmt.Sprintf("doc-%02d", i), Kind: store.KindChunk, Source: "memo:" + fmt.Sprint(i), CurrentAsOf: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)})
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
	must(fmt.Sscanf(last, "doc-%d", &n))(t)
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
	db := open(t, Options{Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme")
	for id, text := range map[string]string{"first": "payment payment heliotrope", "second": "payment heliotrope among other words here", "third": "payment among quite a few other words that are here"} {
		m.set(id, text)
		put(t, s, Artefact{ID: id, Kind: store.KindChunk, Source: "memo:" + id, CurrentAsOf: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)})
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
	opts := Options{FileRoots: []string{dir}}
	db := open(t, opts)
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "here", Text: "a zebra crossing of our own"})
	for i := range 120 {
		writeFile(t, filepath.Join(dir, fmt.Sprint(i)), "zebra zebra crossing")
	}
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		for i := range 120 {
			path := filepath.Join(dir, fmt.Sprint(i))
			if err := tx.Put(ctx, Artefact{ID: fmt.Sprint("gone-", i), Source: "file:" + path, Group: fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return nil
	}))
	put(t, s, Artefact{ID: "derived", Kind: store.KindSummary, Text: "zebra summary", DerivedFrom: []Ref{{Scope: "acme", ID: "gone-3", Version: 1}}})
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
		require.Equal(t, []string{"here"}, hitIDs(must(hitsOf(s.Search(ctx, "zebra crossing", 3)))(t)))
		_, err := s.Get(ctx, "gone-7")
		require.ErrorIs(t, err, store.ErrDirty)
		require.ErrorIs(t, err, store.ErrVanished)
		require.ErrorIs(t, err, os.ErrNotExist)
		if readOnly {
			continue // it keeps no manifest
		}
		w := must(db.Why(ctx, a.Trace, Ref{ID: "gone-7"}))(t)
		require.False(t, w.In)
		require.Contains(t, strings.Join(w.Steps, "\n"), "dirty: source vanished")
	}
	opts.ReadOnly = false
	db = reopen(t, db, opts)
	s = db.Scope("acme")
	a := assemble(t, s, Query{Text: "zebra crossing", Budget: 4000, ServeStale: true})
	require.Contains(t, a.Text(), ", source changed, ")
	writeFile(t, filepath.Join(dir, "7"), "zebra crossing, restored")
	require.Contains(t, ids(assemble(t, s, Query{Text: "zebra crossing", Budget: 2000})), "gone-7", "and it heals")

	require.NoError(t, os.Rename(dir, dir+"-away"))
	_, err := s.Get(ctx, "gone-7")
	require.ErrorIs(t, err, store.ErrDirty)
	require.NotErrorIs(t, err, store.ErrVanished, "a root that is away says nothing about its files")
	require.NoError(t, os.Rename(dir+"-away", dir))
}

// A read-only database fetches nothing, whatever changed; it leaves out what is dirty.
func TestReadOnlyLooksAndWritesNothing(t *testing.T) {
	dir := t.TempDir()
	opts := Options{FileRoots: []string{dir}}
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
	db := open(t, Options{FileRoots: []string{dir}})
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
