package lexical

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

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
