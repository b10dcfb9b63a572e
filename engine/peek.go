package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/peek"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
)

// Bounds are what the engine keeps, and drops in one commit, for tests of this module.
type Bounds struct {
	Outcomes     int // of batch ids in the rows
	DropVersions int // in one commit of gc
	DropPages    int // likewise
}

// PeekBounds is for tests of this module.
func PeekBounds(peek.Token) Bounds { return Bounds{outcomesKept, dropVersions, dropPages} }

// PeekNumbers gives the highest numbers of artefacts, pages and groups that were given. It is for tests of this module.
func (s *Engine) PeekNumbers(peek.Token) (arts, pages, groups uint64) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	h := s.Catalogue.highest()
	return h.art, h.num, h.group
}

// PeekGone makes the catalogue say that a page is gone, against its rows. undo takes it back. It is for tests of this
// module.
func (s *Engine) PeekGone(_ peek.Token, num uint64) (undo func()) {
	set := func(p pageCol) {
		s.Catalogue.Mu.Lock()
		defer s.Catalogue.Mu.Unlock()
		*s.Catalogue.page(num) = p
	}
	s.Catalogue.Mu.RLock()
	was := *s.Catalogue.page(num)
	s.Catalogue.Mu.RUnlock()
	set(goneCol(was.art, was.scope, &store.PageRow{LSN: was.lsn, Version: was.version}, 1))
	return func() { set(was) }
}

// EditHead gives a head row with what change made of it, and with its proof as it was: what somebody could write who has
// the file. It is for tests of this module.
func EditHead(_ peek.Token, row []byte, change func(h *store.Head, scope *uint32)) ([]byte, error) {
	h, scope, cold, err := editedHead(row, change)
	if err != nil {
		return nil, err
	}
	_, p, err := cutProof(row)
	return p.append(encodeHead(nil, h, scope, cold)), err
}

// EditAsOld is EditHead that gives a row of the old version, which has no proof. It is for tests of this module.
func EditAsOld(_ peek.Token, row []byte, change func(h *store.Head, scope *uint32)) ([]byte, error) {
	h, scope, _, err := editedHead(row, change)
	if err != nil {
		return nil, err
	}
	cold, err := encodePacked(h)
	if err != nil {
		return nil, err
	}
	b := encodeHead(nil, h, scope, cold)
	b[0] = rowVersionOld
	return b, nil
}

// encodePacked makes the cold part of a row of the old versions.
func encodePacked(h *store.Head) ([]byte, error) {
	meta := []string{}
	for _, k := range slices.Sorted(maps.Keys(h.Meta)) {
		meta = append(meta, k, h.Meta[k])
	}
	return msgpack.Marshal(&packed{
		Role: h.Role, Name: h.Name, ToolCalls: h.ToolCalls, ToolCallID: h.ToolCallID, Parts: h.Parts, PartBytes: h.PartBytes,
		Source: h.Artefact.Source, Stamp: h.Source.Stamp, SourceHash: h.Source.Hash, SourceAt: codec.Micros(h.Source.At),
		GroupName: h.Group, Subject: h.Subject, DerivedFrom: h.DerivedFrom, Supersedes: h.Supersedes, Tags: h.Tags,
		Meta: meta, Relevance: h.Relevance, Actor: cmp.Or(h.GoneBy, h.Actor), Counter: h.Counter,
	})
}

func editedHead(row []byte, change func(h *store.Head, scope *uint32)) (h *store.Head, scope uint32, cold []byte, err error) {
	h, err = DecodeHead(row, func(n uint32) string { scope = n; return "" })
	if err != nil {
		return nil, 0, nil, err
	}
	change(h, &scope)
	return h, scope, encodeCold(h), nil
}

// EditHeld is EditHead for the row of a held batch. It is for tests of this module.
func EditHeld(_ peek.Token, row []byte, change func(*store.HeldBatch)) ([]byte, error) {
	h, err := DecodeHeld(row)
	if err != nil {
		return nil, err
	}
	change(&h)
	_, p, ok, err := cutHeld(row)
	if !ok {
		return nil, codec.ErrMalformed
	}
	return p.append(append([]byte{heldMark}, encodeHeld(&h)...)), err
}

// EditState gives a stored state row with another value, and with its proof as it was or with none. It is for tests of this
// module.
func EditState(_ peek.Token, key, sealed, value []byte, proof bool) ([]byte, error) {
	body, err := unsealState(key, sealed)
	if err != nil {
		return nil, err
	}
	p := stateProof(body)
	if !proof {
		p = rowProof{leaf: noLeaf}
	}
	return codec.Seal(tagState, key, stateBody(stateLSN(body), p, value)), nil
}

// EditStateAsOld gives a stored state row as older programs wrote it. It is for tests of this module.
func EditStateAsOld(_ peek.Token, key, value []byte) []byte {
	return codec.Seal(tagStateOld, key, value)
}

// MoveState gives a stored state row the checksum of another key. It is for tests of this module.
func MoveState(_ peek.Token, key, sealed, to []byte) ([]byte, error) {
	body, err := unsealState(key, sealed)
	return codec.Seal(tagState, to, body), err
}

// EditedOutcome is an outcome as a row has it. It is for tests of this module.
type EditedOutcome = outcomeRow

// EditOutcome gives the row of an outcome with what change made of it. It is for tests of this module.
func EditOutcome(_ peek.Token, row []byte, change func(*EditedOutcome)) ([]byte, error) {
	var r outcomeRow
	if err := codec.Unpack(row, &r); err != nil {
		return nil, err
	}
	change(&r)
	return msgpack.Marshal(&r)
}
