package lexical

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A part that is entered into the memory of the part before takes as much of it as it takes of new memory: what is left
// there is not taken for links. The lists are the same in any case.
func TestListsAreUsedAgain(t *testing.T) {
	fill := func(l *lists, round uint32) (docs []docRow) {
		for d := uint32(0); len(l.uses) < partPosts; d++ {
			docs = append(docs, docRow{num: uint64(d + 1)})
			var terms []TermCount
			for i := range 50 + 25*round {
				terms = append(terms, TermCount{Term: fmt.Sprintf("w%d-%d", round, (d*37+i*i*(round+1))%(3000*(round+1))), N: 1})
			}
			slices.SortFunc(terms, func(a, b TermCount) int { return strings.Compare(a.Term, b.Term) })
			terms = slices.CompactFunc(terms, func(a, b TermCount) bool { return a.Term == b.Term })
			l.add(1, terms)
		}
		return docs
	}
	var used, fresh partWriter
	again := used.lists()
	for round := range uint32(4) {
		once := fresh.lists()
		docs := fill(again, round)
		require.Equal(t, docs, fill(once, round))
		require.Equal(t, fresh.packer.pack(once, docs), used.packer.pack(again, docs))
		once.forReaders()
		again.forReaders()
		require.Equal(t, once.posts, again.posts, "round %d", round)
		again.reset()
	}
}

// An index that is given lent analyses is the same as one that is given analyses of its own, though their memory is used
// again. The control gives one back too early.
func TestLentAnalyses(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var texts []string
	for range 3 * mostFresh {
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
		x.Invert()
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
