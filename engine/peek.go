package engine

import (
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
	h, scope, cold, err := editedHead(row, change)
	if err != nil {
		return nil, err
	}
	b := encodeHead(nil, h, scope, nil)
	b = append(b[:len(b)-1], cold...) // without the length of the cold part
	b[0] = rowVersionOld
	return b, nil
}

func editedHead(row []byte, change func(h *store.Head, scope *uint32)) (h *store.Head, scope uint32, cold []byte, err error) {
	h, err = DecodeHead(row, func(n uint32) string { scope = n; return "" })
	if err != nil {
		return nil, 0, nil, err
	}
	change(h, &scope)
	cold, err = encodeCold(h)
	return h, scope, cold, err
}

// EditHeld is EditHead for the row of a held batch. It is for tests of this module.
func EditHeld(_ peek.Token, row []byte, change func(*store.HeldBatch)) ([]byte, error) {
	var h store.HeldBatch
	if err := UnpackHeld(row, &h); err != nil {
		return nil, err
	}
	change(&h)
	body, err := msgpack.Marshal(&h)
	if err != nil {
		return nil, err
	}
	_, p, ok, err := cutHeld(row)
	if !ok {
		return nil, codec.ErrMalformed
	}
	return p.append(append([]byte{heldMark}, body...)), err
}
