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
	p.Outcomes = func(counts any) int { return counts.(RowCounts).txn }
	p.Detach = func(e, rows any) { e.(*Engine).rows = rows.(Rows) }
	p.WriteOverlay = func(e, rows any) error { return applyOverlay(rows.(Writer), e.(*Engine).overlay, &RowCounts{}) }
	p.EditHead, p.EditAsOld, p.EditHeld = editHead, editAsOld, editHeld
	p.EditState, p.EditStateAsOld, p.MoveState = editState, editStateAsOld, moveState
	p.EditOutcome = editOutcome
}

// peekNumbers returns the highest numbers that were ever given.
func (s *Engine) peekNumbers() (arts, pages, groups, scopes uint64) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	h := s.cat.highest()
	return h.art, h.num, h.group, h.scope
}

// peekGone makes the catalogue say that gc dropped a page, as a wrong catalogue would, until undo
// is called.
func (s *Engine) peekGone(num uint64) (undo func()) {
	set := func(p pageCol) {
		s.cat.mu.Lock()
		defer s.cat.mu.Unlock()
		*s.cat.page(num) = p
	}
	s.cat.mu.RLock()
	was := *s.cat.page(num)
	s.cat.mu.RUnlock()
	set(goneCol(uint64(was.art), was.scope, &store.PageRow{LSN: was.lsn, Version: was.version}, 1))
	return func() { set(was) }
}

// editHead changes a head row as an attacker would who can write the file: the proof at its end
// stays, so the row no longer has the digest that its leaf says. The caller seals the result. The
// other edit functions do the same to other rows.
func editHead(row []byte, change func(h *store.Head, scope *uint32)) ([]byte, error) {
	h, scope, cold, err := editedHead(row, change)
	if err != nil {
		return nil, err
	}
	_, p, err := format.CutHeadProof(row)
	return p.AppendHead(format.EncodeHead(nil, h, scope, cold)), err
}

// editAsOld also gives the row the version of programs that wrote no proof.
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

// editedHead decodes a row, lets change edit it, and returns the parts from which a row is encoded.
func editedHead(row []byte, change func(h *store.Head, scope *uint32)) (h *store.Head, scope uint32, cold []byte, err error) {
	h, err = format.DecodeHead(row, func(n uint32) string { scope = n; return "of that number" })
	if err != nil {
		return nil, 0, nil, err
	}
	change(h, &scope)
	return h, scope, format.EncodeCold(h), nil
}

// editHeld changes the row of a held batch and keeps its proof.
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

// editState gives a state row another value; proof false also takes away its place in the audit, as
// a row of an older program has none.
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

// editStateAsOld makes a state row as older programs wrote it: the value alone.
func editStateAsOld(key, value []byte) []byte {
	return codec.Seal(format.TagStateOld, key, value)
}

// moveState makes the row of one key the row of another.
func moveState(key, sealed, to []byte) ([]byte, error) {
	body, err := format.StateBodyOf(key, sealed)
	return codec.Seal(format.TagState, to, body), err
}

// editOutcome changes the row of an outcome.
func editOutcome(row []byte, change func(*store.Outcome)) ([]byte, error) {
	r, err := decodeOutcome(row)
	if err != nil {
		return nil, err
	}
	change(&r.Outcome)
	return r.encode(), nil
}
