package format

import (
	"bytes"
	"crypto/sha256"
	"sync"
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
	w := binders.Get().(*binder)
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
	b.Bound = bytes.Clone(d[:boundBytes])
	w.done()
}

// binder is the memory of one Bind, which the next one uses again: every commit makes a digest.
type binder struct {
	codec.Encoder
	artefact store.Artefact
	refs     []store.Ref
}

var binders = sync.Pool{New: func() any { return new(binder) }}

// put appends what a put asks for.
func (w *binder) put(p *store.Put) {
	a := &w.artefact
	*a = p.Artefact
	a.ExpiresAt, a.TTL = time.Time{}, 0
	if !p.AsOfGiven || a.Source != "" {
		a.CurrentAsOf = time.Time{}
	}
	if len(a.DerivedFrom) > 0 {
		a.Provenance = 0 // the lowest of its parents', as they are by now
	}
	w.refs = w.refs[:0]
	for _, r := range p.Artefact.DerivedFrom {
		w.refs = append(w.refs, store.Ref{Scope: r.Scope, ID: r.ID})
	}
	a.DerivedFrom = w.refs
	from := w.Begin()
	ArtefactFields.Append(&w.Encoder, a)
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

// done returns w to the pool, unless a large batch made its buffer large.
func (w *binder) done() {
	clear(w.refs)
	if w.artefact = (store.Artefact{}); cap(w.B) > 1<<20 {
		return
	}
	w.B = w.B[:0]
	binders.Put(w)
}
