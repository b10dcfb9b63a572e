package main

import (
	"fmt"
	"math/rand"
	"strings"
)

// words draws from a lexicon of invented words, so that no stemmer and no stop list favours a system, with the
// frequencies of natural text (Zipf).
type words struct {
	lexicon []string
	zipf    *rand.Zipf
}

func newWords(seed int64) *words {
	r := rand.New(rand.NewSource(7))
	seen := map[string]bool{}
	w := &words{}
	for len(w.lexicon) < 20_000 {
		var b strings.Builder
		for range 2 + r.Intn(3) {
			b.WriteByte("bcdfghklmnprtvz"[r.Intn(15)])
			b.WriteByte("aiou"[r.Intn(4)])
		}
		if word := b.String(); !seen[word] {
			seen[word] = true
			w.lexicon = append(w.lexicon, word)
		}
	}
	w.zipf = rand.NewZipf(rand.New(rand.NewSource(seed)), 1.1, 50, uint64(len(w.lexicon)-1))
	return w
}

func (w *words) text(size int) string {
	b := make([]byte, 0, size+16)
	for len(b) < size {
		b = append(append(b, w.lexicon[w.zipf.Uint64()]...), ' ')
	}
	return string(b[:size-1]) + "."
}

func (w *words) texts(n, size int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = w.text(size)
	}
	return out
}

// question has six words, as often asked for as they are used.
func (w *words) question() string {
	q := make([]string, 6)
	for i := range q {
		q[i] = w.lexicon[w.zipf.Uint64()]
	}
	return strings.Join(q, " ")
}

func pageID(i uint64) string { return fmt.Sprintf("page-%09d", i) }
