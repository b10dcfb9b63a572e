package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
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
	h := sha256.New()
	e := msgpack.NewEncoder(h)
	e.SetSortMapKeys(true)
	err := errors.Join(e.EncodeString(b.Scope), e.EncodeInt(int64(len(b.Puts))))
	for i := range b.Puts {
		p := &b.Puts[i]
		a := p.Artefact
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
		err = errors.Join(err, e.Encode(&a))
		if a.Source != "" {
			continue // its text is the source's, which may say something else by now
		}
		size := 0
		for j := range p.Pages {
			size += len(p.Pages[j].Text)
		}
		err = errors.Join(err, e.EncodeInt(int64(size)))
		for j := range p.Pages { // joined: where a text is cut is no part of it
			_, _ = h.Write([]byte(p.Pages[j].Text))
		}
	}
	if err = errors.Join(err, e.Encode(b.Deletes)); err != nil {
		return fmt.Errorf("ctxpage: digest of batch %s: %w", b.ID, err)
	}
	b.Bound = h.Sum(nil)[:boundBytes]
	return nil
}
