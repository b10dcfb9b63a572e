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
	p.EditHead, p.EditHeld = editHead, editHeld
	p.EditState, p.MoveState = editState, moveState
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
	scope := uint32(0)
	h, err := format.DecodeHead(row, func(n uint32) string { scope = n; return "of that number" })
	if err != nil {
		return nil, err
	}
	change(h, &scope)
	_, p, err := format.CutHeadProof(row)
	return p.AppendHead(format.EncodeHead(nil, h, scope, format.EncodeCold(h))), err
}

// editHeld changes the row of a held batch and keeps its proof.
func editHeld(row []byte, change func(*store.HeldBatch)) ([]byte, error) {
	h, err := format.DecodeHeld(row)
	if err != nil {
		return nil, err
	}
	change(&h)
	_, p, err := format.CutProof(row)
	return p.Append(format.EncodeHeld(&h)), err
}

// editState changes the value of a state row and keeps its place in the audit.
func editState(key, sealed, value []byte) ([]byte, error) {
	body, err := format.StateBodyOf(key, sealed)
	if err != nil {
		return nil, err
	}
	p := format.StateProof(body)
	return codec.Seal(format.TagState, key, format.StateBody(format.StateLSN(body), p, value)), nil
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
