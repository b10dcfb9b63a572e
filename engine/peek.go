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

// What tests of this module reach of an engine: see peek.Engine, which is the only way to these functions from outside.
func init() {
	p := &peek.Engine
	p.Bounds = func() peek.Bounds {
		return peek.Bounds{Outcomes: outcomesKept, DropVersions: dropVersions, DropPages: dropPages}
	}
	p.Numbers = func(e any) (arts, pages, groups uint64) { return e.(*Engine).peekNumbers() }
	p.Gone = func(e any, num uint64) (undo func()) { return e.(*Engine).peekGone(num) }
	p.Detach = func(e, rows any) { e.(*Engine).rows = rows.(Rows) }
	p.WriteOverlay = func(e, rows any) error { return applyOverlay(rows.(Writer), e.(*Engine).overlay, &RowCounts{}) }
	p.EditHead, p.EditAsOld, p.EditHeld = editHead, editAsOld, editHeld
	p.EditState, p.EditStateAsOld, p.MoveState = editState, editStateAsOld, moveState
	p.EditOutcome = editOutcome
}

func (s *Engine) peekNumbers() (arts, pages, groups uint64) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	h := s.cat.highest()
	return h.art, h.num, h.group
}

func (s *Engine) peekGone(num uint64) (undo func()) {
	set := func(p pageCol) {
		s.cat.mu.Lock()
		defer s.cat.mu.Unlock()
		*s.cat.page(num) = p
	}
	s.cat.mu.RLock()
	was := *s.cat.page(num)
	s.cat.mu.RUnlock()
	set(goneCol(was.art, was.scope, &store.PageRow{LSN: was.lsn, Version: was.version}, 1))
	return func() { set(was) }
}

func editHead(row []byte, change func(h *store.Head, scope *uint32)) ([]byte, error) {
	h, scope, cold, err := editedHead(row, change)
	if err != nil {
		return nil, err
	}
	_, p, err := cutProof(row)
	return p.append(encodeHead(nil, h, scope, cold)), err
}

func editAsOld(row []byte, change func(h *store.Head, scope *uint32)) ([]byte, error) {
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

func editHeld(row []byte, change func(*store.HeldBatch)) ([]byte, error) {
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

func editState(key, sealed, value []byte, proof bool) ([]byte, error) {
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

func editStateAsOld(key, value []byte) []byte {
	return codec.Seal(tagStateOld, key, value)
}

func moveState(key, sealed, to []byte) ([]byte, error) {
	body, err := unsealState(key, sealed)
	return codec.Seal(tagState, to, body), err
}

func editOutcome(row []byte, change func(*store.Outcome)) ([]byte, error) {
	var r outcomeRow
	if err := codec.Unpack(row, &r); err != nil {
		return nil, err
	}
	change(&r.Outcome)
	return msgpack.Marshal(&r)
}
