package format

import "github.com/ctxpage/ctxpage/store"

// CarriedConflict is the first artefact that the carried versions do not continue; nil: there is
// none. newest gives the newest version of an artefact, nil if there is none. A version that does
// not follow it means that one is missing between, or that both databases wrote the artefact since:
// neither can be merged, so the caller decides.
func CarriedConflict(b *store.Batch, newest func(scope, id string) *store.Head) *store.ConflictError {
	if len(b.Carry) == 0 {
		return nil
	}
	seen := map[store.Ref]bool{}
	for i := range b.Carry {
		h := &b.Carry[i].Head
		ref := store.Ref{Scope: h.Scope, ID: h.ID}
		if seen[ref] { // Batch.CheckIDs compared those
			continue
		}
		seen[ref] = true
		switch p := newest(h.Scope, h.ID); {
		case p == nil && (h.Version == 1 || h.Floor):
		case p == nil:
			return &store.ConflictError{Ref: ref}
		case p.Version+1 != h.Version || h.Floor:
			return &store.ConflictError{Ref: ref, Now: p.LSN}
		}
	}
	return nil
}

// PageOf finds the page of a version that a carried row describes; nil: it has none. Pages are the
// same if salt and digest are: salts come along with a carried version.
func PageOf(h *store.Head, r *store.PageRow) *store.PageRow {
	for i := 0; h != nil && i < len(h.Rows); i++ {
		if SameRow(&h.Rows[i], r) {
			return &h.Rows[i]
		}
	}
	return nil
}

// CarriedPage finds page i of a carried version in the version before it, which is nil if there is
// none. fresh: its text is to be stored, since the
// version before does not have it, or lost it; then it is an error if the text is missing or is not
// that of the digest.
func CarriedPage(prev *store.Head, c *store.Carried, i int) (known *store.PageRow, text string, fresh bool, err error) {
	known = PageOf(prev, &c.Head.Rows[i])
	if c.Head.Gone || known != nil && !prev.Gone {
		return known, "", false, nil
	}
	text, ok := CarriedText(c, i)
	if !ok {
		err = store.Invalid("carried version", c.Head.PageRef(i+1).String()+", whose text is missing or is not that of its digest", "the text of each page that the version before does not have")
	}
	return known, text, true, err
}
