package main

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// plainIndex is what most agents have today: texts with their vectors, filled once from the same store, asked for the k
// nearest. It knows no expiry, no provenance, no source, no scope and no budget.
type plainIndex struct {
	docs []plainDoc
}

type plainDoc struct {
	scope, id, text string
	at              time.Time
	expires         time.Time
	tokens          int
	vector          []float32
	near            float64 // to the question
}

func (p *plainIndex) add(d plainDoc) {
	d.vector = embed(d.text)
	p.docs = append(p.docs, d)
}

// plainK is the number of neighbours asked for: 50 whole documents, as many as a query of ours may win places by default.
const plainK = 50

// plainPack is what such an index hands to the model: the k nearest, nearest first, and what is left of them once the
// provider has cut the prompt at the window, silently and at its end.
type plainPack struct {
	wanted  []plainDoc
	tokens  int // of all that was wanted
	served  []plainDoc
	text    string // what the model sees, the last document perhaps in part
	dropped []plainDoc
}

func (p *plainIndex) top(question string, budget int, count func(string) int) plainPack {
	q := embed(question)
	docs := slices.Clone(p.docs)
	for i := range docs {
		docs[i].near = cosine(q, docs[i].vector)
	}
	slices.SortStableFunc(docs, func(a, b plainDoc) int { return cmp.Compare(b.near, a.near) })
	var out plainPack
	var text strings.Builder
	for _, d := range docs[:min(plainK, len(docs))] {
		out.wanted = append(out.wanted, d)
		room := budget - out.tokens
		out.tokens += d.tokens
		switch {
		case room >= d.tokens:
			out.served = append(out.served, d)
			text.WriteString(d.text + "\n\n")
		default:
			out.dropped = append(out.dropped, d)
			text.WriteString(cutTo(d.text, max(room, 0), count))
		}
	}
	out.text = text.String()
	return out
}

// cutTo is the beginning of a text that takes at most room tokens.
func cutTo(text string, room int, count func(string) int) string {
	lo, hi := 0, len(text)
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if count(text[:mid]) <= room {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return strings.ToValidUTF8(text[:lo], "")
}
