package engine

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/numbers"
)

// statePlaces are the places in the audit of all state rows of a snapshot, by tag.
//
// The three lists are parallel and sorted by tag. They do not change after they were read or taken;
// rows that commits delete later are noted in gone. A row that a commit writes later has a greater
// LSN and is not compared with the snapshot.
type statePlaces struct {
	tags   []stateTag
	leaves []uint64
	places []uint32
	gone   sync.Map // tags of the rows that commits deleted since
}

// append writes the lists behind b.
func (p *statePlaces) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(p.tags)))
	b = numbers.AppendAll(b, len(p.tags), func(i int) uint64 { return binary.BigEndian.Uint64(p.tags[i][:]) })
	b = numbers.AppendAll(b, len(p.tags), func(i int) uint64 { return p.leaves[i] })
	return numbers.AppendAll(b, len(p.tags), func(i int) uint64 { return uint64(p.places[i]) })
}

// readPlaces returns nil for a damaged part.
func readPlaces(b []byte) *statePlaces {
	d := &imageDecoder{Decoder: codec.Decoder{B: b}}
	n := d.length()
	if d.Err != nil {
		return nil
	}
	p := &statePlaces{tags: make([]stateTag, n), leaves: make([]uint64, n), places: make([]uint32, n)}
	d.read(n, func(from int, v []uint64) {
		for i, x := range v {
			binary.BigEndian.PutUint64(p.tags[from+i][:], x)
		}
	})
	d.read(n, func(from int, v []uint64) { copy(p.leaves[from:], v) })
	d.read(n, func(from int, v []uint64) {
		for i, x := range v {
			p.places[from+i] = uint32(x)
		}
	})
	if d.Done() != nil {
		return nil
	}
	return p
}

// find returns the place of a row; false: there was no row of that key.
func (p *statePlaces) find(tag stateTag) (i int, there bool) {
	return slices.BinarySearchFunc(p.tags, tag, func(a, b stateTag) int { return slices.Compare(a[:], b[:]) })
}

// same reports whether a row that is not newer than the snapshot is the one it had.
func (p *statePlaces) same(tag stateTag, proof format.Proof) bool {
	i, there := p.find(tag)
	return there && p.leaves[i] == proof.Leaf && p.places[i] == proof.Place
}

// missing reports whether a row of the snapshot should be there that is not.
func (p *statePlaces) missing(tag stateTag) bool {
	if p == nil {
		return false
	}
	_, there := p.find(tag)
	_, gone := p.gone.Load(tag)
	return there && !gone
}

// delete notes that a commit deleted a row.
func (p *statePlaces) delete(tag stateTag) { p.gone.Store(tag, true) }

// placesNow takes the places of the state rows of the file. false: they differ from the ones that
// were proved.
func (s *Engine) placesNow(tx Reader, known *found) (*statePlaces, bool) {
	type place struct {
		tag   stateTag
		proof format.Proof
	}
	var all []place
	for k, v := range tx.From(TableState, nil) {
		body, err := format.StateBodyOf(k, v)
		if err != nil {
			return nil, false
		}
		at := place{s.stateTag(k), format.StateProof(body)}
		if known.places != nil && format.StateLSN(body) <= known.lsn && !known.places.same(at.tag, at.proof) {
			return nil, false
		}
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b place) int { return slices.Compare(a.tag[:], b.tag[:]) })
	p := &statePlaces{}
	for _, at := range all {
		p.tags, p.leaves, p.places = append(p.tags, at.tag), append(p.leaves, at.proof.Leaf), append(p.places, at.proof.Place)
	}
	if known.places != nil {
		for _, tag := range known.places.tags {
			if _, there := p.find(tag); !there && known.places.missing(tag) {
				return nil, false
			}
		}
	}
	return p, true
}
