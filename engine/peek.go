package engine

import (
	"github.com/ctxpage/ctxpage/internal/peek"
	"github.com/ctxpage/ctxpage/store"
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
