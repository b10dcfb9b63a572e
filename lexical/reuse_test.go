package lexical

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A part that is entered into the memory of the part before takes as much of it as it takes of new memory: what is left
// there is not taken for links. The lists are the same in any case.
func TestListsAreUsedAgain(t *testing.T) {
	fill := func(l *lists, round uint32) (docs []docRow) {
		for d := uint32(0); l.n < partPosts; d++ {
			docs = append(docs, docRow{num: uint64(d + 1)})
			var terms []TermCount
			for i := range 50 + 25*round {
				terms = append(terms, TermCount{Term: fmt.Sprintf("w%d-%d", round, (d*37+i*i*(round+1))%(3000*(round+1))), N: 1})
			}
			slices.SortFunc(terms, func(a, b TermCount) int { return strings.Compare(a.Term, b.Term) })
			terms = slices.CompactFunc(terms, func(a, b TermCount) bool { return a.Term == b.Term })
			l.room(len(terms))
			for some := range slices.Chunk(terms, together) {
				l.add(d, 1, some)
			}
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
		require.Equal(t, len(once.posts), len(again.posts), "round %d", round)
		again.reset()
	}
}
