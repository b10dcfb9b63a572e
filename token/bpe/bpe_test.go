package bpe_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/token"
	"github.com/ctxpage/ctxpage/token/bpe"
)

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		text          string
		o200k, cl100k int
	}{
		{"", 0, 0}, {"hello world", 2, 2}, {"tiktoken is great!", 6, 6}, {"1234567", 3, 3},
		{"<|endoftext|>", 7, 7}, {"antidisestablishmentarianism", 6, 6}, {"a\xffb", 3, 3},
	} {
		require.Equal(t, c.o200k, bpe.O200k().Count(c.text), "o200k %q", c.text)
		require.Equal(t, c.cl100k, bpe.CL100k().Count(c.text), "cl100k %q", c.text)
	}
}

func TestFind(t *testing.T) {
	for _, name := range []string{token.O200k, token.CL100k} {
		c, ok := bpe.Find(name)
		require.True(t, ok)
		require.Equal(t, name, c.Name())
		require.Equal(t, token.Exact, token.LabelOf(c))
	}
	_, ok := bpe.Find("p50k_base")
	require.False(t, ok)
}

func TestConcurrentUse(t *testing.T) {
	text := strings.Repeat("one counter serves many goroutines. ", 20)
	want := bpe.O200k().Count(text)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if n := bpe.O200k().Count(text); n != want {
					t.Errorf("got %d, want %d", n, want)
				}
			}
		})
	}
	wg.Wait()
}
