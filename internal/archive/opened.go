package archive

import "sync/atomic"

// openedLeaves has leaves of a sealed archive that were opened lately. Every row that is served is
// compared with its digest in a leaf (digests.go), neighbours mostly with the same one, and of a
// sealed leaf no part can be read without the rest.
type openedLeaves struct {
	slots [openedSlots]atomic.Pointer[openedLeaf]
	large atomic.Pointer[openedLeaf] // one of any size
}

// openedLeaf is a leaf and its index. It is never changed after it was stored, so readers need no
// lock.
type openedLeaf struct {
	index uint64
	body  []byte
}

const (
	openedSlots = 128
	openedBytes = 16 << 10 // of a leaf in a slot: 2 MiB, when all are in use
)

// body returns the body of an archived leaf. Callers must not change it.
func (o *openedLeaves) body(v *view, i uint64, r row) ([]byte, error) {
	slot := &o.slots[i%openedSlots]
	for _, at := range [...]*atomic.Pointer[openedLeaf]{slot, &o.large} {
		if l := at.Load(); l != nil && l.index == i {
			return l.body, nil
		}
	}
	body, err := v.frame(i, r)
	if err != nil {
		return nil, err
	}
	if len(body) > openedBytes {
		slot = &o.large
	}
	slot.Store(&openedLeaf{i, body})
	return body, nil
}
