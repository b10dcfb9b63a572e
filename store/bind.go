package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// boundBytes is how much of the digest of a batch its outcome keeps.
const boundBytes = 16

// Bind sets Bound to a digest of what the batch asks for. The digest leaves out what comes from
// the clock, the salts, the gate and the state of the database, so a host that repeats the batch
// after a crash computes the same one.
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
		a.DerivedFrom = w.refs[:0]
		for _, r := range p.Artefact.DerivedFrom {
			a.DerivedFrom = append(a.DerivedFrom, Ref{Scope: r.Scope, ID: r.ID})
		}
		w.refs = a.DerivedFrom
		err = errors.Join(err, w.artefact(a))
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
	err = errors.Join(err, e.Encode(b.Deletes))
	for i := range b.Carry {
		h := &b.Carry[i].Head
		err = errors.Join(err, e.EncodeString(h.Scope), e.EncodeString(h.ID), e.EncodeUint(uint64(h.Version)))
	}
	if err != nil {
		return fmt.Errorf("ctxpage: digest of batch %s: %w", b.ID, err)
	}
	d := sha256.Sum256(w.said.Bytes())
	b.Bound = bytes.Clone(d[:boundBytes])
	return nil
}

// binder is the memory of one Bind, which the next one uses again: every commit makes a digest. The
// encoder writes into a buffer, not into the hash, which takes no single bytes and no strings
// without an allocation for each.
type binder struct {
	said bytes.Buffer
	enc  *msgpack.Encoder
	put  Artefact
	refs []Ref
}

var binders = sync.Pool{New: func() any {
	w := &binder{refs: []Ref{}} // not nil, which is encoded otherwise
	w.enc = msgpack.NewEncoder(&w.said)
	w.enc.SetSortMapKeys(true)
	return w
}}

// done gives w back, unless a large batch made its buffer large.
func (w *binder) done() {
	clear(w.refs)
	if w.put = (Artefact{}); w.said.Cap() > 1<<20 {
		return
	}
	w.said.Reset()
	binders.Put(w)
}

// plain says that of an artefact only those fields are set which artefact writes itself.
func plain(a *Artefact) bool {
	return a.Parts == nil && a.ToolCalls == nil && a.Relevance == nil && a.ExpiresAt.IsZero() && a.TTL == 0 && a.CurrentAsOf == (time.Time{}) &&
		a.DerivedFrom != nil && len(a.DerivedFrom) == 0 && a.Supersedes == nil && a.Tags == nil && a.Meta == nil && len(a.Unknown) == 0
}

// zeroTime is what the encoder makes of the zero time.
const zeroTime = "\xc7\x0c\xff\x00\x00\x00\x00\xff\xff\xff\xf1\x88n\x09\x00"

// artefact writes what the encoder makes of an artefact by reflection, byte by byte the same:
// outcomes that are stored have digests of it. Reflection took most of a Bind; it is left what has
// one of the rarer fields.
func (w *binder) artefact(a *Artefact) error {
	kind, err := a.Kind.MarshalText()
	if err != nil || !plain(a) {
		return w.enc.Encode(a)
	}
	var seq [8]byte
	binary.BigEndian.PutUint64(seq[:], uint64(a.Seq))
	pinned := byte(0xc2)
	if a.Pinned {
		pinned = 0xc3
	}
	b := &w.said
	b.WriteString("\xde\x00\x17\xa2ID")
	w.str(a.ID)
	b.WriteString("\xa4Kind\xc4")
	b.WriteByte(byte(len(kind)))
	b.Write(kind)
	b.WriteString("\xaaProvenance\xcc")
	b.WriteByte(byte(a.Provenance))
	b.WriteString("\xa4Text")
	w.str(a.Text)
	b.WriteString("\xa5Parts\xc0\xa4Role")
	w.str(a.Role)
	b.WriteString("\xa4Name")
	w.str(a.Name)
	b.WriteString("\xa9ToolCalls\xc0\xaaToolCallID")
	w.str(a.ToolCallID)
	b.WriteString("\xa6Source")
	w.str(a.Source)
	b.WriteString("\xa9ExpiresAt" + zeroTime + "\xa3TTL\xd3\x00\x00\x00\x00\x00\x00\x00\x00\xabCurrentAsOf" + zeroTime + "\xa8Priority\xcc")
	b.WriteByte(byte(a.Priority))
	b.WriteString("\xa9Relevance\xc0\xa5Group")
	w.str(a.Group)
	b.WriteString("\xa3Seq\xd3")
	b.Write(seq[:])
	b.WriteString("\xa7Subject")
	w.str(a.Subject)
	b.WriteString("\xabDerivedFrom\x90\xaaSupersedes\xc0\xa6Pinned")
	b.WriteByte(pinned)
	b.WriteString("\xa4Tags\xc0\xa4Meta\xc0")
	return nil
}

// str writes a string as the encoder does; a buffer takes everything.
func (w *binder) str(s string) { _ = w.enc.EncodeString(s) }
