package main

import (
	"context"
	"hash/fnv"
	"math"
	"strings"
	"sync/atomic"
	"unicode"
)

// bagOfWords is an embedder that needs no model and no network: every word of at least four letters is hashed to one of
// the dimensions, weighed by the logarithm of its count. Texts about the same thing in the same words lie close, which
// is all that this scenario asks for. It counts the texts it was given.
type bagOfWords struct{ texts atomic.Int64 }

const dimensions = 2048

// Model names what makes the vectors.
func (e *bagOfWords) Model() string { return "bag-of-words/1" }

// Embed gives one unit vector for each text.
func (e *bagOfWords) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, t := range texts {
		e.texts.Add(1)
		out[i] = embed(t)
	}
	return out, nil
}

func embed(text string) []float32 {
	v := make([]float32, dimensions)
	for w := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if len(w) < 4 {
			continue
		}
		h := fnv.New32a()
		h.Write([]byte(w))
		v[h.Sum32()%dimensions]++
	}
	sum := 0.0
	for i, n := range v {
		if n > 0 {
			v[i] = float32(1 + math.Log(float64(n)))
			sum += float64(v[i]) * float64(v[i])
		}
	}
	length := float32(math.Sqrt(max(sum, 1)))
	for i := range v {
		v[i] /= length
	}
	return v
}

func cosine(a, b []float32) float64 {
	dot := 0.0
	for i := range a {
		dot += float64(a[i]) * float64(b[i])
	}
	return dot
}
