package lexical

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Terms that come with the ids of their stems get the numbers that they get without: though two ids share a place of the memo,
// a term has several ids, and the memory was another part's. The control keeps what was remembered of the part before.
func TestMemo(t *testing.T) {
	const words = 3 * mostMemo / 2
	pages := func(r *rand.Rand, withIDs bool) func(l *lists) {
		return func(l *lists) {
			for range 600 {
				var terms []TermCount
				for w := r.Uint32N(400); w < words; w += 1 + r.Uint32N(800) {
					c := TermCount{Term: fmt.Sprint("w", w), N: 1 + w%3}
					if id := 1 + w + words*r.Uint32N(3); withIDs && w%5 > 0 { // some are no stems
						c.stem = id
					}
					terms = append(terms, c)
				}
				l.add(1+r.Uint32N(2), terms)
			}
		}
	}
	parts := func(withIDs bool, reset func(*lists)) (numbers [][]use) {
		l := (&partWriter{}).lists()
		for round := range uint64(3) {
			pages(rand.New(rand.NewPCG(1, round)), withIDs)(l)
			numbers = append(numbers, slices.Clone(l.uses))
			require.Len(t, l.df, len(l.terms))
			reset(l)
		}
		return numbers
	}
	want := parts(false, (*lists).reset)
	require.Equal(t, want, parts(true, (*lists).reset))
	broken := func() (broken bool) {
		defer func() { broken = recover() != nil || broken }() // a number of more terms than there are
		return !reflect.DeepEqual(want, parts(true, func(l *lists) {
			memo := slices.Clone(l.memo)
			l.reset()
			copy(l.memo, memo)
		}))
	}
	require.True(t, broken(), "the control")
}

// TestLentAnalyses: an index of lent analyses equals one of its own analyses, though their memory is used again. The control
// returns one too early.
func TestLentAnalyses(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var texts []string
	for range flushDocs - 1 { // the last part stays open
		texts = append(texts, randomText(r))
	}
	a := NewAnalyzer()
	filled := func(analyse func(...string) Analysis) tail {
		x := &Index{cols: newColumns()}
		for i, text := range texts {
			x.Add(Doc{Num: uint64(i + 1), Scope: 1, Analysis: analyse(text)})
			if i%7 == 0 {
				x.Invert()
			}
		}
		for x.Invert() {
		}
		x.tail[len(x.tail)-1].lists.memo = nil // words that the cache of stems lost have new ids
		return x.tail
	}
	want := filled(a.Analyze)
	require.Equal(t, want, filled(a.Lend))
	broken := func() (broken bool) {
		defer func() { broken = recover() != nil || broken }() // a page may have no term twice
		return !reflect.DeepEqual(want, filled(func(parts ...string) Analysis {
			early := a.Lend(parts...)
			early.done()
			early.lender = nil
			return early
		}))
	}
	require.True(t, broken(), "the control")
}

// A part whose lists still have the terms of the parts before is packed as one with new lists, and terms that only those had
// are not found in it; when there are too many terms they go. The control counts their pages, too.
func TestTermsAreKept(t *testing.T) {
	const vocabulary, many = 30_000, 5
	fill := func(l *lists, round uint64) (docs []docRow) {
		r := rand.New(rand.NewPCG(7, round))
		for d := range 300 {
			docs = append(docs, docRow{num: uint64(d + 1)})
			var terms []TermCount
			for w := r.IntN(100); w < vocabulary; w += 1 + r.IntN(400) {
				terms = append(terms, TermCount{Term: fmt.Sprintf("%x", uint64(w+1000*int(round))*0x9e3779b97f4a7c15>>(w%48)), N: 1})
			}
			l.add(1+r.Uint32N(2), terms)
		}
		return docs
	}
	kept := 0
	same := func(reset func(*lists)) bool {
		var w packer
		used := (&partWriter{}).lists()
		for round := range uint64(many) {
			fresh := (&partWriter{}).lists()
			docs := fill(fresh, round)
			before := len(used.terms)
			fill(used, round)
			if before > 0 {
				kept++
			}
			for i := range used.terms {
				c := &used.terms[i]
				_, want := fresh.find(c.scope, string(used.bytes(c)))
				if _, found := used.find(c.scope, string(used.bytes(c))); found != want {
					return false
				}
			}
			var v packer
			if !reflect.DeepEqual(v.pack(fresh, docs), w.pack(used, docs)) {
				return false
			}
			used.forReaders()
			fresh.forReaders()
			for i := range fresh.terms {
				c := &fresh.terms[i]
				if at, _ := used.find(c.scope, string(fresh.bytes(c))); !slices.Equal(fresh.posts[i], used.posts[at]) {
					return false
				}
			}
			reset(used)
			require.Less(t, len(used.terms), partTerms)
		}
		return true
	}
	require.True(t, same((*lists).reset))
	require.Positive(t, kept)
	require.Less(t, kept, many-1, "they went at least once")
	require.False(t, same(func(l *lists) {
		df := slices.Clone(l.df)
		l.reset()
		copy(l.df, df)
	}), "the control")
}

// A part that was folded answers as before, and unfolded it takes pages and is packed as if it had never been; pages that were removed and pages
// without words are in it. Whether the pages of an open were entered before it ended makes no difference.
func TestFolded(t *testing.T) {
	t.Parallel()
	const pages = 30
	fill := func(at uint64, loaded, entered bool) (memStore, []Hit) {
		s, w := memStore{}, newWorld()
		x := s.open(t)
		var hits []Hit
		ask := func() {
			for _, term := range []string{"all", "m1", "m3", "none"} {
				hits = append(hits, s.search(t, x, w, Query{Scopes: []uint32{1, 2, 3}, Terms: []string{term}, K: pages})...)
			}
		}
		for num := uint64(1); num <= pages; num++ {
			d := Doc{Num: num, Scope: uint32(num%3 + 1), Group: num/10 + 1, Analysis: words("all", 1, fmt.Sprintf("m%d", num%7), int(num%4+1))}
			if num%5 == 1 {
				d.Analysis = Analysis{}
			}
			w.add(d)
			if x.Add(d); num != at {
				continue
			}
			if entered {
				x.invertAll()
			}
			if loaded {
				x.Loaded()
			}
			ask()
			x.Remove(num / 2)
			ask()
			require.Equal(t, loaded, x.tail[0].packed != nil)
		}
		ask()
		require.Len(t, x.tail, 1)
		require.Equal(t, loaded && at == pages, x.tail[0].packed != nil)
		s.checkpoint(t, x, false)
		require.Empty(t, s, "it waits for more pages")
		s.checkpoint(t, x, true)
		require.EqualValues(t, pages, x.Through())
		return s, hits
	}
	for at := range uint64(pages) {
		rows, hits := fill(at+1, false, false)
		require.NotEmpty(t, hits)
		for _, entered := range []bool{false, true} {
			s, h := fill(at+1, true, entered)
			require.Equal(t, rows, s)
			require.Equal(t, hits, h)
		}
	}
}

// A part that is larger is not folded: the page that comes next would wait.
func TestFoldedIsSmall(t *testing.T) {
	for pages, want := range map[uint64]bool{foldedDocs: true, foldedDocs + 1: false} {
		x := memStore{}.open(t)
		for num := range pages {
			x.Add(Doc{Num: num + 1, Scope: 1, Analysis: words("all", 1)})
		}
		x.Loaded()
		x.invertAll()
		require.Equal(t, want, x.tail[0].packed != nil)
	}
}
