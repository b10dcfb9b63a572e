package engine

import (
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// foundOtherwise reports whether a question finds a page under another head in another way: by its
// date, its author or its neighbours. A date counts when a caller gave the same words another one:
// in a text that was edited later, unedited pages keep the date at which they were written.
func foundOtherwise(prev, h *store.Head, put *store.Put) bool {
	if prev.GroupNum != h.GroupNum {
		return true
	}
	was, is := prev.Artefact, h.Artefact
	if store.FoundAlike(&was, &is) {
		return false
	}
	if !put.AsOfGiven || !format.SameTexts(prev, put) {
		was.CurrentAsOf = is.CurrentAsOf
	}
	return !store.FoundAlike(&was, &is)
}
