package store

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// PageRef names a page in the version in which it appeared.
func (h *Head) PageRef(page int) Ref {
	r := Ref{Scope: h.Scope, ID: h.ID, Page: page}
	if page <= len(h.Rows) {
		r.Version = h.Rows[page-1].Version
	}
	return r
}

// Bytes is the length of the texts that a batch puts.
func (b *Batch) Bytes() (n int64) {
	for i := range b.Puts {
		for j := range b.Puts[i].Pages {
			n += int64(len(b.Puts[i].Pages[j].Text))
		}
	}
	return n
}

// Below is what is known of a version below a floor.
func (h *Head) Below(version uint32) *Head {
	return &Head{Artefact: Artefact{ID: h.ID, Kind: h.Kind}, Scope: h.Scope, Art: h.Art, Version: version, Gone: true, GoneBy: h.GoneBy}
}

// boundBytes is how much of the digest of a batch its outcome keeps.
const boundBytes = 16

// Bind digests what a batch asks for. What the clock, the salts, the gate and the state of the database put into it is
// left out, so that a host that repeats the batch after a crash gives the same digest.
func (b *Batch) Bind() error {
	w := binders.Get().(*binder)
	defer w.done()
	e := w.enc
	err := errors.Join(e.EncodeString(b.Scope), e.EncodeInt(int64(len(b.Puts))))
	for i := range b.Puts {
		p := &b.Puts[i]
		a := &w.put
		*a = p.Artefact
		a.ExpiresAt, a.TTL = time.Time{}, 0
		if !p.AsOfGiven || a.Source != "" {
			a.CurrentAsOf = time.Time{}
		}
		if len(a.DerivedFrom) > 0 {
			a.Provenance = 0 // that of the least of its parents, as they are by now
		}
		a.DerivedFrom = make([]Ref, len(p.Artefact.DerivedFrom))
		for j, r := range p.Artefact.DerivedFrom {
			a.DerivedFrom[j] = Ref{Scope: r.Scope, ID: r.ID}
		}
		err = errors.Join(err, e.Encode(a))
		if a.Source != "" {
			continue // its text is the source's, which may say something else by now
		}
		size := 0
		for j := range p.Pages {
			size += len(p.Pages[j].Text)
		}
		err = errors.Join(err, e.EncodeInt(int64(size)))
		for j := range p.Pages { // joined: where a text is cut is no part of it
			w.said.WriteString(p.Pages[j].Text)
		}
	}
	if err = errors.Join(err, e.Encode(b.Deletes)); err != nil {
		return fmt.Errorf("ctxpage: digest of batch %s: %w", b.ID, err)
	}
	d := sha256.Sum256(w.said.Bytes())
	b.Bound = bytes.Clone(d[:boundBytes])
	return nil
}

// binder is the memory of one Bind, which the next one uses again: every commit makes a digest. The encoder writes into a
// buffer, not into the hash, which takes no single bytes and no strings without an allocation for each.
type binder struct {
	said bytes.Buffer
	enc  *msgpack.Encoder
	put  Artefact
}

var binders = sync.Pool{New: func() any {
	w := &binder{}
	w.enc = msgpack.NewEncoder(&w.said)
	w.enc.SetSortMapKeys(true)
	return w
}}

// done gives w back, unless a large batch made its buffer large.
func (w *binder) done() {
	if w.put = (Artefact{}); w.said.Cap() > 1<<20 {
		return
	}
	w.said.Reset()
	binders.Put(w)
}
