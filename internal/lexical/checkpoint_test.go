package lexical

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// filled is an index of n pages with forced checkpoints every so many.
func filled(t testing.TB, n, every int) (memStore, *Index, *world) {
	s, w := memStore{}, newWorld()
	x := s.open(t)
	for num := uint64(1); num <= uint64(n); num++ {
		d := Doc{Num: num, Scope: uint32(num%3 + 1), Group: num/10 + 1, Analysis: words("all", 1, fmt.Sprintf("m%d", num%17), int(num%4+1))}
		if num%4 == 0 {
			d.Turn = &Turn{Speaker: []string{"", "Ann", "Bob"}[num%3], Month: Month(1200 + num%30)}
			d.Analysis.Traits = Traits(num % 8)
		}
		w.add(d)
		x.Add(d)
		if num%uint64(every) == 0 {
			s.checkpoint(t, x, true)
		}
	}
	return s, x, w
}

func (s memStore) count(prefix string) (n int) {
	for k := range s {
		if strings.HasPrefix(k, prefix) {
			n++
		}
	}
	return n
}

func TestCheckpointWaitsForPages(t *testing.T) {
	s, x, _ := filled(t, flushDocs-1, flushDocs)
	s.checkpoint(t, x, false)
	require.Zero(t, x.Through())
	require.Empty(t, s)

	x.Add(Doc{Num: flushDocs, Scope: 1, Analysis: words("last", 1)})
	s.checkpoint(t, x, false)
	require.Equal(t, uint64(flushDocs), x.Through())
	require.Len(t, x.manifest.segments, 1)
	require.Empty(t, x.tail)
}

func TestMergesKeepFewSegments(t *testing.T) {
	s, x, w := filled(t, 600, 3)
	require.Less(t, len(x.manifest.segments), 2*mergeFactor)
	require.Equal(t, uint64(600), x.Through())
	s.view(func(r Rows) { require.NoError(t, x.Check(r)) })
	require.Len(t, s.search(t, s.open(t), w, Query{Scopes: []uint32{1, 2, 3}, Terms: []string{"all"}, K: 1000}), 600)
}

// A page is written again only as often as the number of pages doubles: a checkpoint of few pages does not write the
// whole of a large index.
func TestMergesWriteAPageFewTimes(t *testing.T) {
	const n, every = 3000, 3
	s, w := memStore{}, newWorld()
	x := s.open(t)
	written, next := uint64(0), uint32(0)
	for num := uint64(1); num <= n; num++ {
		d := Doc{Num: num, Scope: 1, Analysis: words("all", 1)}
		w.add(d)
		x.Add(d)
		if num%every > 0 {
			continue
		}
		s.checkpoint(t, x, true)
		for _, g := range x.manifest.segments {
			if g.id >= next {
				written += g.docs
			}
		}
		next = x.manifest.next
		require.Less(t, len(x.manifest.segments), mergeFactor)
	}
	require.LessOrEqual(t, written, uint64(n*bits.Len(n/every)))
	require.Len(t, s.search(t, s.open(t), w, Query{Scopes: []uint32{1}, Terms: []string{"all"}, K: n}), n)
}

func TestMergedSegmentsGoLater(t *testing.T) {
	s, x, _ := filled(t, 24, 3)
	require.Len(t, x.manifest.segments, 1)
	dead := x.manifest.dead
	require.NotEmpty(t, dead, "the last checkpoint merged")
	require.NotZero(t, s.count(string(segmentKey(rowTerm, dead[0]))), "readers may still hold the old list")
	s.checkpoint(t, x, false)
	for _, id := range dead {
		require.Zero(t, s.count(string(segmentKey(rowTerm, id))))
		require.Zero(t, s.count(string(segmentKey(rowDocs, id))))
	}
}

// Rows of merged segments go in a step of their own if they are many: the checkpoint then writes its rows where they were.
func TestManyDeadRowsGoBeforeTheCheckpoint(t *testing.T) {
	s, x, _ := filled(t, 3*(mergeFactor-1), 3)
	require.Len(t, x.manifest.segments, mergeFactor-1)
	x.Add(Doc{Num: 3 * mergeFactor, Scope: 1, Analysis: words("all", 1)})
	s.update(func(w Writer) bool {
		swap, err := x.Rest(w)
		require.NoError(t, err)
		x.Apply(swap)
		return true
	})
	rows := s.count("T")
	x.stepTerms = 4 * rows // all of them, also of pages and scopes, are no more than one step deletes
	var swap Swap
	step := func(w Writer) (more bool) {
		var err error
		swap, more, err = x.Step(w)
		require.NoError(t, err)
		return more
	}
	s.update(step)
	x.Apply(swap)
	require.Len(t, x.manifest.segments, 1)
	require.Len(t, x.manifest.dead, mergeFactor)
	s.update(step)
	x.Apply(swap)
	require.Empty(t, x.manifest.dead)
	require.Less(t, s.count("T"), rows)
}

func TestRemovedPagesLeaveTheRows(t *testing.T) {
	s, x, w := filled(t, 200, 200)
	before := len(s)
	for num := uint64(1); num <= 60; num++ {
		x.Remove(num)
		w.hidden[num] = true
	}
	require.Equal(t, uint64(140), s.stats(t, x, []uint32{1, 2, 3}, []string{"all"}).DF[0], "at once")
	s.checkpoint(t, x, false)
	s.checkpoint(t, x, false)
	require.Empty(t, x.removed)
	require.Empty(t, x.pending)
	require.Equal(t, uint64(140), x.manifest.segments[0].docs)
	require.LessOrEqual(t, len(s), before+1)

	for num := uint64(61); num <= 200; num++ {
		x.Remove(num)
	}
	s.checkpoint(t, x, false)
	s.checkpoint(t, x, false)
	require.Empty(t, x.manifest.segments)
	require.Zero(t, s.count("T")+s.count("D"))
	require.Equal(t, uint64(200), s.open(t).Through())
}

func TestFewRemovedPagesAreRemembered(t *testing.T) {
	s, x, _ := filled(t, 100, 100)
	x.Remove(5, 50)
	s.checkpoint(t, x, false)
	again := s.open(t)
	require.Equal(t, uint64(98), s.stats(t, again, []uint32{1, 2, 3}, []string{"all"}).DF[0])
	require.Equal(t, uint64(98), s.stats(t, again, []uint32{1, 2, 3}, nil).Pages)
}

func TestNothingToDoWritesNothing(t *testing.T) {
	s, x, _ := filled(t, 40, 20)
	s.checkpoint(t, x, true)
	s.update(func(w Writer) bool {
		swap, err := x.Checkpoint(readOnly{w}, true)
		require.NoError(t, err)
		x.Apply(swap)
		return true
	})
	x.Remove(3)
	s.update(func(w Writer) bool { // the control
		_, err := x.Checkpoint(readOnly{w}, true)
		require.ErrorIs(t, err, errReadOnly)
		return false
	})
}

var errReadOnly = errors.New("read-only")

type readOnly struct{ Writer }

func (readOnly) Put(k, v []byte) error { return errReadOnly }
func (readOnly) Delete(k []byte) error { return errReadOnly }

// failing fails at its n-th write.
type failing struct {
	Writer
	left *int
}

func (f failing) Put(k, v []byte) error {
	if *f.left--; *f.left < 0 {
		return errReadOnly
	}
	return f.Writer.Put(k, v)
}

func (f failing) Delete(k []byte) error {
	if *f.left--; *f.left < 0 {
		return errReadOnly
	}
	return f.Writer.Delete(k)
}

func TestFailedWritesChangeNothing(t *testing.T) {
	s, x, w := filled(t, 70, 10) // seven segments: the next checkpoint merges
	for num := uint64(71); num <= 80; num++ {
		some := []any{"all", 1}
		for i := range 200 { // enough lists for several dozen rows
			some = append(some, fmt.Sprintf("word-%d-of-page-%d", i, num), 1)
		}
		d := Doc{Num: num, Scope: 1, Analysis: words(some...)}
		w.add(d)
		x.Add(d)
	}
	q := Query{Scopes: []uint32{1, 2, 3}, Terms: []string{"all", "m3"}, K: 100, Weights: lending()}
	want := s.search(t, x, w, q)
	failed := 0
	for n := 0; ; n++ {
		left, err := n, error(nil)
		s.update(func(w Writer) bool {
			_, err = x.Checkpoint(failing{w, &left}, true)
			return false
		})
		require.Equal(t, want, s.search(t, x, w, q))
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errReadOnly)
		failed++
	}
	require.Greater(t, failed, 30)
}

func TestRowsOfAnotherVersion(t *testing.T) {
	s, _, _ := filled(t, 20, 10)
	for version, want := range map[byte]error{0: ErrCorrupt, rowVersion: nil, rowVersion + 1: ErrCorrupt} {
		key := []byte{rowList}
		value, err := unseal(key, s["L"])
		require.NoError(t, err)
		value[0] = version
		rows := memStore{"L": seal(key, value)}
		if want == nil {
			rows = s
		}
		rows.view(func(r Rows) {
			_, err := Open(r)
			require.ErrorIs(t, err, want, "version %d", version)
		})
	}
}

func TestResetAndOtherAnalyzer(t *testing.T) {
	s, _, _ := filled(t, 20, 10)
	key := []byte{rowList}
	m, err := decodeManifest(key, s["L"])
	require.NoError(t, err)
	other := m.encode()
	copy(other[2:], strings.ToUpper(AnalyzerVersion))
	s["L"] = seal(key, other)
	s.view(func(r Rows) {
		_, err := Open(r)
		require.ErrorIs(t, err, ErrAnalyzer)
	})
	s.update(func(w Writer) bool { return Reset(w) == nil })
	require.Empty(t, s)
	require.Zero(t, s.open(t).Through())
}

// TestDamageIsFound flips every byte of every row: the index never opens, or
// never answers, with other contents.
func TestDamageIsFound(t *testing.T) {
	s, x, _ := filled(t, 30, 15)
	x.Remove(2)
	s.checkpoint(t, x, false)
	verify := func() error {
		var err error
		s.view(func(r Rows) {
			var y *Index
			if y, err = Open(r); err == nil {
				err = y.Check(r)
			}
		})
		return err
	}
	require.NoError(t, verify(), "the control")
	for k, v := range s {
		for i := range v {
			v[i] ^= 0x10
			require.ErrorIs(t, verify(), ErrCorrupt, "%q byte %d", k, i)
			v[i] ^= 0x10
		}
		s[k] = v[:len(v)-1]
		require.ErrorIs(t, verify(), ErrCorrupt, "%q cut", k)
		s[k] = v
	}
	require.NoError(t, verify())
}

func TestLostAndSwappedRowsAreFound(t *testing.T) {
	s, x, w := filled(t, 30, 15)
	check := func() error {
		var err error
		s.view(func(r Rows) { err = x.Check(r) })
		return err
	}
	require.NoError(t, check(), "the control")
	var keys []string
	for k := range s {
		if k[0] == rowTerm {
			keys = append(keys, k)
		}
	}
	kept := s[keys[0]]
	delete(s, keys[0])
	require.ErrorIs(t, check(), ErrCorrupt)
	s[keys[0]] = s[keys[1]]
	require.ErrorIs(t, check(), ErrCorrupt)
	q := Query{Scopes: []uint32{1, 2, 3}, Terms: []string{keys[0][segPrefix : len(keys[0])-scopeSize]}, K: 5}
	s.view(func(r Rows) {
		_, err := x.Search(r, w, q)
		require.ErrorIs(t, err, ErrCorrupt)
		_, err = x.Stats(q.Scopes, r, q.Terms)
		require.ErrorIs(t, err, ErrCorrupt)
	})
	s[keys[0]] = kept
	require.NotEmpty(t, s.search(t, x, w, q))
}

// TestSoundSumUnsoundList writes lists that a checksum vouches for: decoding
// must find what is wrong with them, and leave the scratch memory clean.
func TestSoundSumUnsoundList(t *testing.T) {
	s, x, w := filled(t, 30, 30)
	key := appendTermKey(nil, x.manifest.segments[0].id, 1, "all")
	good, there := s[string(key)]
	q := Query{Scopes: []uint32{1}, Terms: []string{"all", "m3"}, K: 50, Weights: lending()}
	want := s.search(t, x, w, q)
	for name, value := range map[string][]byte{
		"empty": {}, "no postings": {0}, "more than it says": {1, 2, 2}, "fewer": {3, 2, 2, 0x80},
		"twice the same": {2, 2, 0}, "outside": {1, 0xff, 0x7f}, "zero times": {1, 3, 0}, "count too large": {200, 1},
		"no list before": {0, 0, 1, 1, 2}, "a term without bytes": {0, 1, 1, 0, 2, 1, 2}, "a term behind the last": {0, 1, 1, 1, 'b', 2, 1, 2},
		"bytes in common with none": {0, 1, 1, 0x11, 'a', 2, 1, 2}, "postings behind the end": {0, 1, 1, 1, 'a', 0x7d, 2}, "more lists than bytes": {0, 99, 1, 1, 'a', 2, 1, 2},
		"terms that fall": {0, 2, 1, 2, 'a', 'b', 2, 1, 'a', 2, 1, 2}, "more postings than bytes": {0, 1, 1, 1, 'a', 7, 9, 2, 1, 2}, "a term twice": {0, 2, 1, 1, 'a', 2, 0x10, 2, 1, 2},
		"a scope twice": {0, 2, 1, 1, 'a', 2, 0, 1, 0, 2, 1, 2}, "a run of none": {0, 2, 1, 1, 'a', 2, 0, 0, 1, 2}, "a run behind the end": {0, 2, 1, 1, 'a', 2, 0, 2, 1, 2, 1, 2, 1, 2},
		"a run of no term": {0, 2, 1, 0, 1, 1, 2, 1, 2}, "a scope behind the last": {0, 1, 5, 3, 'a', 'l', 'l', 2, 1, 2}, "one that a run comes to": {0, 2, 0, 3, 'a', 'l', 'l', 2, 0, 1, 1, 2, 1, 2},
	} {
		s[string(key)] = seal(key, value)
		s.view(func(r Rows) {
			_, err := x.Search(r, w, q)
			require.ErrorIs(t, err, ErrCorrupt, name)
		})
	}
	if s[string(key)] = good; !there {
		delete(s, string(key))
	}
	require.Equal(t, want, s.search(t, x, w, q))
}

// A row of scopes that a checksum vouches for is not believed either, nor a list of a scope that is not in it.
func TestSoundSumUnsoundScopes(t *testing.T) {
	s, x, w := filled(t, 30, 30)
	g := x.manifest.segments[0]
	key := scopesKey(g.id, 3)
	good, q := s[string(key)], Query{Scopes: []uint32{1, 2, 3}, Terms: []string{"all"}, K: 50}
	want := s.search(t, s.open(t), w, q)
	require.Len(t, want, 30)
	sound := starts{{1, 3}, {2, 1}, {3, 2}}
	for name, value := range map[string][]byte{
		"empty": {}, "a scope twice": {1, 4, 0, 0, 2, 2}, "a page before the segment": {1, 1, 1, 0, 1, 0}, "a page behind it": {1, 60, 1, 0, 1, 0}, "half a number": {1, 4, 1, 3, 1, 0x80},
		"another last scope": starts{{1, 3}, {2, 1}}.encode(g), "scopes that wrap": {3, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0}, "a scope too large": {0x80, 0x80, 0x80, 0x80, 0x10, 0},
	} {
		s[string(key)] = seal(key, value)
		s.view(func(r Rows) {
			_, err := s.open(t).Search(r, w, q)
			require.ErrorIs(t, err, ErrCorrupt, name)
			require.ErrorIs(t, x.Check(r), ErrCorrupt, name)
		})
	}
	for name, at := range map[string]starts{"one is missing": {{1, 3}, {3, 2}}, "another page": {{1, 2}, {2, 1}, {3, 2}}, "one too many": {{0, 1}, {1, 3}, {2, 1}, {3, 2}}} {
		s[string(key)] = seal(key, at.encode(g))
		s.view(func(r Rows) { require.ErrorIs(t, x.Check(r), ErrCorrupt, name) })
	}
	s[string(key)] = seal(key, starts{{1, 3}, {3, 2}}.encode(g))
	x.Purge(true)
	x.Remove(1)
	s.update(func(wr Writer) bool { // a merge meets lists of a scope that is not there
		_, err := x.Checkpoint(wr, true)
		require.ErrorIs(t, err, ErrCorrupt)
		return false
	})
	s[string(key)] = seal(key, sound.encode(g))
	require.Equal(t, good, s[string(key)], "the control")
	require.Equal(t, want, s.search(t, s.open(t), w, q))
}

// TestInvertInPieces: whether the lists of segments are written and merged at once or a few at a time, the rows are the same
// in the end, and on the way every answer is: also when the transaction of a step fails, when a page is removed between
// two steps, and when the file is opened again in the middle of a merge.
func TestInvertInPieces(t *testing.T) {
	const pages = 8 * flushDocs
	var opened, failed int
	rows := func(step int, disturb bool) memStore {
		s, w := memStore{}, newWorld()
		x := s.open(t)
		for num := uint64(1); num <= pages; num++ {
			d := Doc{Num: num, Scope: uint32(num%3 + 1), Analysis: words("all", 1, fmt.Sprintf("m%d", num%17), int(num%4+1), fmt.Sprintf("alone%d", num%500), 2)}
			x.Add(d)
			w.add(d)
			if num%flushDocs == 0 {
				s.update(func(w Writer) bool { // a segment of its own, and no merge
					swap, err := x.Checkpoint(w, false)
					require.NoError(t, err)
					x.Apply(swap)
					return true
				})
			}
		}
		require.Len(t, x.manifest.segments, 8)
		x.stepTerms = step
		x.Remove(5, 17, flushDocs+1)
		q := Query{Scopes: []uint32{1, 2, 3}, Terms: []string{"all", "m3", "alone40"}, K: 20}
		want := s.search(t, x, w, q)
		for n := 0; s.step(t, x); n++ {
			if !disturb {
				continue
			}
			require.Equal(t, want, s.search(t, x, w, q))
			if n == 2 {
				require.NotNil(t, x.merging)
				x.Remove(6)
				want = s.search(t, x, w, q)
			}
			if n%3 == 1 && x.merging != nil {
				left := 1
				s.update(func(w Writer) bool {
					_, _, err := x.Step(failing{w, &left})
					require.ErrorIs(t, err, errReadOnly)
					failed++
					return false
				})
			}
			if n == 5 {
				require.NotNil(t, x.merging)
				x = s.open(t)
				x.stepTerms = step
				opened++
			}
		}
		if !disturb {
			x.Remove(6)
			want = s.search(t, x, w, q)
		}
		s.checkpoint(t, x, true)
		s.checkpoint(t, x, true)
		s.view(func(r Rows) { require.NoError(t, x.Check(r)) })
		require.Len(t, x.manifest.segments, 1)
		require.Equal(t, uint64(pages-4+len(x.removed)), x.manifest.segments[0].docs)
		require.Equal(t, want, s.search(t, x, w, q))
		return s
	}
	all := rows(1<<20, false)
	require.Greater(t, all.lists(), 1000)
	require.Less(t, all.count("T"), all.lists()/10, "control: they are in blocks")
	require.Equal(t, all, rows(100, false))
	rows(100, true)
	require.Positive(t, opened)
	require.Positive(t, failed)
}

// A purge leaves no word in any row, whole or in parts, that only removed pages had; words of other pages stay, in the
// scopes that have them. Without a purge they are still there, the control.
func TestPurgedWordsAreInNoRow(t *testing.T) {
	const pages = 60
	left := func(purge bool) map[string]bool {
		s, w := memStore{}, newWorld()
		x := s.open(t)
		for num := uint64(1); num <= pages; num++ {
			d := Doc{Num: num, Scope: uint32(num % 7), Analysis: words(fmt.Sprintf("sharing%d", num%10), 1, fmt.Sprintf("sharing%dalone%d", num%10, num), 2)}
			w.add(d)
			x.Add(d)
			if num%20 == 0 {
				s.checkpoint(t, x, true)
			}
		}
		x.Purge(purge)
		x.Remove(3, 13, 23, 33, 43, 53, 17) // all pages of one word, and the only one of another in its scope
		for range 3 {
			s.checkpoint(t, x, false)
		}
		found := map[string]bool{}
		for k, v := range s {
			if k[0] != rowTerm {
				continue
			}
			var r blockReader
			require.NoError(t, r.begin(segment{first: 1, last: pages}, []byte(k), v))
			for r.next() {
				found[fmt.Sprintf("%s in %d", r.term, r.scope)] = true
			}
			require.NoError(t, r.unsound([]byte(k)))
		}
		s.view(func(r Rows) { require.NoError(t, x.Check(r)) })
		return found
	}
	all, rest := left(false), left(true)
	for num := uint64(1); num <= pages; num++ {
		for _, word := range []string{fmt.Sprintf("sharing%d in %d", num%10, num%7), fmt.Sprintf("sharing%dalone%d in %d", num%10, num, num%7)} {
			require.True(t, all[word], "control: %s", word)
			require.Equal(t, num%10 != 3 && num != 17, rest[word], word)
		}
	}
}

// TestBytesWritten bounds what a page costs in rows at a flush of 1,024.
func TestBytesWritten(t *testing.T) {
	const pages = 4 * flushDocs
	s, x := memStore{}, memStore{}.open(t)
	written := 0
	for num := uint64(1); num <= pages; num++ {
		a := Analysis{Length: 12}
		for i := range uint64(12) {
			a.Terms = append(a.Terms, TermCount{Term: fmt.Sprintf("word%02d%03d", i, num*(i+7)%(7<<i%900+1)), N: 1})
		}
		x.Add(Doc{Num: num, Scope: 1, Group: num / 20, Analysis: a})
		if num%flushDocs == 0 {
			s.update(func(w Writer) bool {
				swap, err := x.Checkpoint(counting{w, &written}, false)
				require.NoError(t, err)
				x.Apply(swap)
				return true
			})
		}
	}
	t.Logf("%d bytes a page", written/pages)
	require.Less(t, written/pages, 275)
}

type counting struct {
	Writer
	n *int
}

func (c counting) Put(k, v []byte) error {
	*c.n += len(k) + len(v)
	return c.Writer.Put(k, v)
}
