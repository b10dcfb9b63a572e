package lexical

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// memStore is a key-value store with transactions. What a transaction hands out
// is overwritten when it ends, as the memory of bbolt may be.
type memStore map[string][]byte

type memTx struct {
	rows     memStore
	keys     []string // of rows, in order, from the first scan on
	given    [][]byte
	scanning bool
}

func (t *memTx) lend(b []byte) []byte {
	if b == nil {
		return nil
	}
	b = slices.Clone(b)
	t.given = append(t.given, b)
	return b
}

func (t *memTx) Get(k []byte) []byte {
	v, ok := t.rows[string(k)]
	if !ok {
		return nil
	}
	return t.lend(v)
}

func (t *memTx) Next(key []byte) (k, v []byte) {
	t.Scan(nil, key, func(a, b []byte) bool { k, v = a, b; return false })
	return k, v
}

func (t *memTx) Scan(prefix, from []byte, fn func(k, v []byte) bool) {
	t.scanning = true
	defer func() { t.scanning = false }()
	if t.keys == nil { // sorting them for each scan was most of what the tests of this package did
		t.keys = slices.Sorted(maps.Keys(t.rows))
	}
	at, _ := slices.BinarySearch(t.keys, max(string(prefix), string(from)))
	for _, k := range t.keys[at:] {
		if !strings.HasPrefix(k, string(prefix)) || !fn(t.lend([]byte(k)), t.lend(t.rows[k])) {
			return
		}
	}
}

func (t *memTx) Put(k, v []byte) error {
	if t.scanning {
		panic("write under a scan")
	}
	if at, known := slices.BinarySearch(t.keys, string(k)); t.keys != nil && !known {
		t.keys = slices.Insert(t.keys, at, string(k))
	}
	t.rows[string(k)] = slices.Clone(v)
	return nil
}

func (t *memTx) Delete(k []byte) error {
	if t.scanning {
		panic("write under a scan")
	}
	if at, known := slices.BinarySearch(t.keys, string(k)); known {
		t.keys = slices.Delete(t.keys, at, at+1)
	}
	delete(t.rows, string(k))
	return nil
}

func (t *memTx) end() {
	for _, b := range t.given {
		for i := range b {
			b[i] ^= 0xA5
		}
	}
}

// view runs fn in a read transaction.
func (s memStore) view(fn func(Rows)) {
	tx := &memTx{rows: s}
	defer tx.end()
	fn(tx)
}

// update runs fn in a write transaction; false rolls it back.
func (s *memStore) update(fn func(Writer) bool) {
	tx := &memTx{rows: maps.Clone(*s)}
	defer tx.end()
	if fn(tx) {
		*s = tx.rows
	}
}

func (s memStore) open(t require.TestingT) (x *Index) {
	s.view(func(r Rows) {
		var err error
		x, err = Open(r)
		require.NoError(t, err)
	})
	return x
}

func (s *memStore) checkpoint(t require.TestingT, x *Index, force bool) {
	for more := !force; more; {
		more = s.step(t, x)
	}
	var swap Swap
	s.update(func(w Writer) bool {
		var err error
		swap, err = x.Checkpoint(w, force)
		require.NoError(t, err)
		return true
	})
	x.Apply(swap)
}

// step makes one step, and reports whether it did something.
func (s *memStore) step(t require.TestingT, x *Index) (more bool) {
	var swap Swap
	s.update(func(w Writer) bool {
		var err error
		swap, more, err = x.Step(w)
		require.NoError(t, err)
		return more
	})
	x.Apply(swap)
	return more
}

func (s memStore) search(t require.TestingT, x *Index, c Corpus, q Query) (hits []Hit) {
	s.view(func(r Rows) {
		var err error
		hits, err = x.Search(r, c, q)
		require.NoError(t, err)
	})
	if v, ok := c.(visible); ok {
		v.checkHas(t, q, hits)
	}
	return hits
}

// checkHas compares what hits say of the terms that their pages have with the pages, and takes it off: it is not known on
// every way to a hit.
func (v visible) checkHas(t require.TestingT, q Query, hits []Hit) {
	terms := q.Terms
	if q.Typed != nil && q.Typed.Terms != nil {
		terms = q.Typed.Terms
	}
	for i := range hits {
		if hits[i].Has == 0 {
			continue
		}
		want := uint32(0)
		for at, term := range terms {
			if tf(v.docs[hits[i].Num], term) > 0 {
				want |= bitOf(at)
			}
		}
		require.Equal(t, want, hits[i].Has, hits[i].Num)
		hits[i].Has = 0
	}
}

func (s memStore) stats(t require.TestingT, x *Index, scopes []uint32, terms []string) (st Stats) {
	s.view(func(r Rows) {
		var err error
		st, err = x.Stats(scopes, r, terms)
		require.NoError(t, err)
	})
	return st
}

// world is a Corpus that a test writes down.
type world struct {
	docs   map[uint64]Doc
	next   map[uint64]uint64 // superseded → successor
	hidden map[uint64]bool
	order  map[uint64][]uint64 // group → page numbers; 0 is a gap
}

func newWorld() *world {
	return &world{map[uint64]Doc{}, map[uint64]uint64{}, map[uint64]bool{}, map[uint64][]uint64{}}
}

func (w *world) add(d Doc) {
	w.docs[d.Num] = d
	if d.Group != 0 {
		w.order[d.Group] = append(w.order[d.Group], d.Num)
	}
}

func (w *world) Resolve(num uint64) (uint64, bool) {
	for w.next[num] != 0 {
		num = w.next[num]
	}
	_, ok := w.docs[num]
	return num, ok && !w.hidden[num]
}

func (w *world) Touch(uint64) {}

func (w *world) Alone(num uint64) bool { return w.docs[num].Group == 0 }

func (w *world) Group(live uint64) (uint64, int) {
	g := w.docs[live].Group
	return g, slices.Index(w.order[g], live)
}

func (w *world) At(group uint64, pos int) (uint64, bool) {
	if pos < 0 || pos >= len(w.order[group]) {
		return 0, false
	}
	num := w.order[group][pos]
	return num, num != 0
}

func (w *world) Shown(num uint64) bool {
	live, ok := w.Resolve(num)
	return ok && live == num
}

func words(counts ...any) Analysis {
	var a Analysis
	for i := 0; i < len(counts); i += 2 {
		a.Terms = append(a.Terms, TermCount{Term: counts[i].(string), N: uint32(counts[i+1].(int))})
		a.Length += counts[i+1].(int)
	}
	return a
}

func TestStoreScribbles(t *testing.T) { // the control of every test that uses it
	s := memStore{"k": []byte("v")}
	var kept []byte
	s.view(func(r Rows) { kept = r.Get([]byte("k")) })
	require.NotEqual(t, "v", string(kept))
	require.Equal(t, "v", string(s["k"]))
}
