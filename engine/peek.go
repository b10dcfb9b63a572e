package engine

import (
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/peek"
	"github.com/ctxpage/ctxpage/store"
)

// Tests of this module reach into an engine through peek.Engine only.
func init() {
	p := &peek.Engine
	p.Bounds = func() peek.Bounds {
		return peek.Bounds{Outcomes: outcomesKept, DropVersions: dropVersions, DropPages: dropPages}
	}
	p.Numbers = func(e any) (arts, pages, groups, scopes uint64) { return e.(*Engine).peekNumbers() }
	p.Gone = func(e any, num uint64) (undo func()) { return e.(*Engine).peekGone(num) }
	p.Detach = func(e, rows any) { e.(*Engine).rows = rows.(Rows) }
	p.WriteOverlay = func(e, rows any) error { return applyOverlay(rows.(Writer), e.(*Engine).overlay, &RowCounts{}) }
	p.EditHead, p.EditAsOld, p.EditHeld = editHead, editAsOld, editHeld
	p.EditState, p.EditStateAsOld, p.MoveState = editState, editStateAsOld, moveState
	p.EditOutcome = editOutcome
}

func (s *Engine) peekNumbers() (arts, pages, groups, scopes uint64) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	h := s.cat.highest()
	return h.art, h.num, h.group, h.scope
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
	_, p, err := format.CutHeadProof(row)
	return p.AppendHead(format.EncodeHead(nil, h, scope, cold)), err
}

func editAsOld(row []byte, change func(h *store.Head, scope *uint32)) ([]byte, error) {
	h, scope, _, err := editedHead(row, change)
	if err != nil {
		return nil, err
	}
	cold, err := format.EncodePacked(h)
	if err != nil {
		return nil, err
	}
	return format.EncodeFixed(nil, format.RowVersionOld, h, scope, cold), nil
}

func editedHead(row []byte, change func(h *store.Head, scope *uint32)) (h *store.Head, scope uint32, cold []byte, err error) {
	h, err = format.DecodeHead(row, func(n uint32) string { scope = n; return "of that number" })
	if err != nil {
		return nil, 0, nil, err
	}
	change(h, &scope)
	return h, scope, format.EncodeCold(h), nil
}

func editHeld(row []byte, change func(*store.HeldBatch)) ([]byte, error) {
	h, err := format.DecodeHeld(row)
	if err != nil {
		return nil, err
	}
	change(&h)
	_, p, ok, err := format.CutHeld(row)
	if !ok {
		return nil, codec.ErrMalformed
	}
	return p.Append(append([]byte{format.HeldMark}, format.EncodeHeld(&h)...)), err
}

func editState(key, sealed, value []byte, proof bool) ([]byte, error) {
	body, err := format.StateBodyOf(key, sealed)
	if err != nil {
		return nil, err
	}
	p := format.StateProof(body)
	if !proof {
		p = format.Proof{Leaf: format.NoLeaf}
	}
	return codec.Seal(format.TagState, key, format.StateBody(format.StateLSN(body), p, value)), nil
}

func editStateAsOld(key, value []byte) []byte {
	return codec.Seal(format.TagStateOld, key, value)
}

func moveState(key, sealed, to []byte) ([]byte, error) {
	body, err := format.StateBodyOf(key, sealed)
	return codec.Seal(format.TagState, to, body), err
}

func editOutcome(row []byte, change func(*store.Outcome)) ([]byte, error) {
	r, err := decodeOutcome(row)
	if err != nil {
		return nil, err
	}
	change(&r.Outcome)
	return r.encode(), nil
}
