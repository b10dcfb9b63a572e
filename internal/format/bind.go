package format

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// boundBytes is how much of the digest of a batch its outcome keeps.
const boundBytes = 16

// Bind sets Bound to a digest of what the batch asks for. The digest leaves out what comes from
// the clock, the salts, the gate and the state of the database, so a host that repeats the batch
// after a crash computes the same one.
func Bind(b *store.Batch) {
	var w binder
	w.Str(b.Scope)
	w.Count(len(b.Puts))
	for i := range b.Puts {
		w.put(&b.Puts[i])
	}
	w.Count(len(b.Deletes))
	for _, id := range b.Deletes {
		w.Str(id)
	}
	for i := range b.Carry {
		h := &b.Carry[i].Head
		w.Str(h.Scope)
		w.Str(h.ID)
		w.U32(h.Version)
	}
	d := sha256.Sum256(w.B)
	b.Bound = d[:boundBytes:boundBytes]
}

// binder collects what a digest is made of.
type binder struct{ codec.Encoder }

// put appends what a put asks for.
func (w *binder) put(p *store.Put) {
	a := p.Artefact
	a.ExpiresAt, a.TTL = time.Time{}, 0
	if !p.AsOfGiven || a.Source != "" {
		a.CurrentAsOf = time.Time{}
	}
	if len(a.DerivedFrom) > 0 {
		a.Provenance = 0 // the lowest of its parents', as they are by now
	}
	a.DerivedFrom = slices.Clone(a.DerivedFrom)
	for i, r := range a.DerivedFrom {
		a.DerivedFrom[i] = store.Ref{Scope: r.Scope, ID: r.ID}
	}
	from := w.Begin()
	ArtefactFields.Append(&w.Encoder, &a)
	w.End(from)
	if a.Source != "" {
		return // its text is the source's, which may have changed by now
	}
	size := 0
	for i := range p.Pages {
		size += len(p.Pages[i].Text)
	}
	w.Count(size)
	for i := range p.Pages { // joined: where a text is cut is no part of it
		w.B = append(w.B, p.Pages[i].Text...)
	}
}
