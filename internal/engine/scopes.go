package engine

import (
	"iter"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// scopeTable has the scopes by number-1. After an open most of a hundred thousand are bytes of the snapshot (packed), a fifth of
// what they take as columns and lists. The first look at one unpacks it, also under a read lock. Whatever changes a list that a
// scope has looks at the scope before it changes a page, so the times of its pages are still those of the snapshot.
type scopeTable struct {
	cols   []atomic.Pointer[scopeCol] // nil: packed, or gc dropped its name
	packed []packedScope              // of the snapshot, by the same numbers; those that came later are not in it
	states []byte                     // of all packed scopes
	bad    func()                     // called if one does not decode
}

// packedScope is a scope of a snapshot. name is "" for a number that is not in use.
type packedScope struct {
	name        string
	from, to    uint32 // in states
	arts, known uint32 // live artefacts, and those in byID
}

// grow adds empty places until there are n.
func (t *scopeTable) grow(n int) {
	t.cols = append(t.cols, make([]atomic.Pointer[scopeCol], max(0, n-len(t.cols)))...)
}

// name returns the name of a scope; "": the number is not in use.
func (t *scopeTable) name(num uint32) string {
	if s := t.cols[num-1].Load(); s != nil {
		return s.name
	}
	if int(num) <= len(t.packed) {
		return t.packed[num-1].name
	}
	return ""
}

// drop takes a scope out.
func (t *scopeTable) drop(num uint32) {
	t.cols[num-1].Store(nil)
	if int(num) <= len(t.packed) {
		t.packed[num-1] = packedScope{}
	}
}

// named yields numbers and names of the scopes that have one.
func (t *scopeTable) named() iter.Seq2[uint32, string] {
	return func(yield func(uint32, string) bool) {
		for i := range t.cols {
			if name := t.name(uint32(i + 1)); name != "" && !yield(uint32(i+1), name) {
				return
			}
		}
	}
}

// scope returns a scope; nil: gc dropped its name. The caller holds mu, for reading or writing.
func (c *catalogue) scope(num uint32) *scopeCol {
	t := &c.scopes
	at := &t.cols[num-1]
	if s := at.Load(); s != nil || int(num) > len(t.packed) || t.packed[num-1].name == "" {
		return s
	}
	p := &t.packed[num-1]
	d := &imageDecoder{Decoder: codec.Decoder{B: t.states[p.from:p.to]}, c: c}
	s := &scopeCol{name: p.name}
	if d.scope(s); d.Done() != nil || s.arts != int(p.arts) || len(s.byID.arts) != int(p.known) { // its digest was compared
		s = &scopeCol{name: p.name}
		t.bad()
	}
	if !at.CompareAndSwap(nil, s) { // another reader was faster
		return at.Load()
	}
	return s
}

// counts returns how many live artefacts a scope has, and how many there are with the deleted ones. It unpacks nothing.
func (c *catalogue) counts(num uint32) (live, known int) {
	t := &c.scopes
	if s := t.cols[num-1].Load(); s != nil {
		return s.arts, len(s.byID.all())
	}
	if int(num) > len(t.packed) {
		return 0, 0
	}
	return int(t.packed[num-1].arts), int(t.packed[num-1].known)
}

// appendScopes appends the scopes to a snapshot: all names, then sizes and counts, then what else there is. A scope that is still
// packed goes on as it is.
func (c *catalogue) appendScopes() []byte {
	t := &c.scopes
	var names, states []byte
	sizes := &codec.Encoder{}
	for i := range t.cols {
		num, from := uint32(i+1), len(states)
		name := t.name(num)
		names = append(names, name...)
		if sizes.Count(len(name)); name == "" {
			continue
		}
		if s := t.cols[i].Load(); s != nil {
			e := &imageEncoder{codec.Encoder{B: states}}
			e.scope(s)
			states = e.B
		} else {
			states = append(states, t.states[t.packed[i].from:t.packed[i].to]...)
		}
		live, known := c.counts(num)
		sizes.Count(len(states) - from)
		sizes.Count(live)
		sizes.Count(known)
	}
	e := &codec.Encoder{}
	e.Count(len(t.cols))
	e.Bytes(names)
	e.B = append(append(e.B, sizes.B...), states...)
	return e.B
}

// readScopes is the reverse of appendScopes. The scopes stay packed; the names share their memory.
func (c *catalogue) readScopes(b []byte) bool {
	d := &codec.Decoder{B: b}
	t := &c.scopes
	n := d.Count(1)
	names := d.Str()
	t.packed, c.byName = make([]packedScope, n), make(map[string]uint32, n)
	t.grow(n)
	at := uint64(0)
	for i := range t.packed {
		k := d.Uvarint()
		if k == 0 {
			continue
		}
		p, size := &t.packed[i], d.Uvarint()
		if k > uint64(len(names)) || size > uint64(len(b)) {
			return false
		}
		p.name, names = names[:k], names[k:]
		p.from, p.to, p.arts, p.known = uint32(at), uint32(at+size), uint32(d.Uvarint()), uint32(d.Uvarint())
		at += size
		c.byName[p.name] = uint32(i + 1)
	}
	if d.Err != nil || names != "" || at != uint64(len(d.B)) || at > mostNumber {
		return false
	}
	t.states = append([]byte(nil), d.B...) // the part goes
	return true
}

// scope writes what a scope has beside its name.
func (e *imageEncoder) scope(s *scopeCol) {
	there := uint8(0)
	for i, cl := range s.classes {
		if cl != nil {
			there |= 1 << i
		}
	}
	e.U8(there)
	for _, cl := range s.classes {
		if cl == nil {
			continue
		}
		e.Count(cl.n)
		e.Count(int(cl.retired))
		e.Count(int(cl.turns))
		e.Varint(cl.swept)
		e.sorted(&cl.recent)
		e.sorted(&cl.expiry)
	}
	e.nums(s.unconditional)
	e.Count(s.arts)
	e.Uvarint(s.sourced)
	arts := s.byID.all()
	e.Count(s.byID.done)
	e.small(arts)
	e.Count(len(s.uses))
	for _, u := range s.uses {
		e.Count(u.pages)
		e.Varint(u.bytes)
	}
}

// scope is the reverse, for a scope that has its name.
func (d *imageDecoder) scope(s *scopeCol) {
	there := d.U8()
	if there>>provenances != 0 {
		d.Fail()
	}
	for i := range s.classes {
		if there>>i&1 == 0 {
			continue
		}
		cl := &class{}
		s.classes[i] = cl
		cl.n, cl.retired, cl.turns, cl.swept = int(d.Uvarint()), int32(d.Uvarint()), int32(d.Uvarint()), d.Varint()
		d.sorted(&cl.recent, pageAsOf)
		d.sorted(&cl.expiry, pageExpires)
	}
	s.unconditional, s.arts, s.sourced = d.nums(), int(d.Uvarint()), d.Uvarint()
	s.byID.done, s.byID.arts = int(d.Uvarint()), d.small()
	if n := d.Uvarint(); n > uint64(len(store.KindNames)) {
		d.Fail()
	} else if n > 0 {
		s.uses = make([]use, n)
	}
	for i := range s.uses {
		s.uses[i] = use{int(d.Uvarint()), d.Varint()}
	}
}
