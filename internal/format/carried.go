package format

import (
	"strconv"

	"github.com/ctxpage/ctxpage/store"
)

// checkCarried rejects what no database can have had. A version that is gone must be followed by a
// later one of its artefact in the same batch: otherwise the artefact could not be read in between.
func checkCarried(b *store.Batch) error {
	if b.Hold != nil && (b.Action != store.ActHold || b.Reason == "") {
		return store.Invalid("batch", "a hold of another database that is not held", "ActHold and a Reason")
	}
	if b.Hold != nil && b.Hold.Decided != "" && b.Hold.Decided != "approved" && b.Hold.Decided != "rejected" {
		return store.Invalid("decided", strconv.Quote(b.Hold.Decided), "approved, rejected or nothing")
	}
	if len(b.Carry) == 0 {
		return nil
	}
	if b.Action != store.ActApply || len(b.Puts)+len(b.Deletes) > 0 {
		return store.Invalid("batch", "carried versions beside other writes", "ActApply and no puts and deletes")
	}
	last, open := map[store.Ref]*store.Head{}, 0
	for i := range b.Carry {
		c := &b.Carry[i]
		h := &c.Head
		ref := store.Ref{Scope: h.Scope, ID: h.ID}
		prev := last[ref]
		if prev != nil && (!prev.Gone || h.Version != prev.Version+1) {
			return store.Invalid("batch", "two writes of "+strconv.Quote(h.ID), "each artefact to be written once; versions that are gone come before the one that follows them")
		}
		if err := checkVersion(c); err != nil {
			return err
		}
		if last[ref] = h; h.Gone && prev == nil {
			open++
		} else if !h.Gone && prev != nil {
			open--
		}
	}
	if open > 0 {
		return store.Invalid("batch", "a version that is gone, and none that follows it", "the version that follows it in the same batch")
	}
	return nil
}

// checkVersion looks at one carried version.
func checkVersion(c *store.Carried) error {
	h := &c.Head
	if err := store.CheckScope(h.Scope); err != nil {
		return err
	}
	if err := h.Artefact.Check(); err != nil {
		return err
	}
	where := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}.String()
	switch {
	case h.Version == 0 || h.PutAt.IsZero() || !h.Provenance.Valid() || h.Kind == store.KindAuto:
		return store.Invalid("carried version", where+" without number, time, kind or provenance", "all of them")
	case h.Floor && !h.Gone, h.Gone && h.Deleted && h.ErasedBy == "", h.Forgotten:
		return store.Invalid("carried version", where+" with marks that exclude each other", "a version as a database has it")
	case h.Deleted && len(h.Rows) > 0, h.ErasedBy != "" && len(h.Rows) > 0, !h.Deleted && !h.Gone && len(h.Rows) == 0:
		return store.Invalid("carried version", where+" with "+strconv.Itoa(len(h.Rows))+" pages", "at least one; none of what is deleted or erased")
	case len(c.Texts) > len(h.Rows):
		return store.Invalid("carried version", where+" with more texts than pages", "a text for each page")
	}
	for i := range h.Rows {
		if v := h.Rows[i].Version; v == 0 || v > h.Version {
			return store.Invalid("carried version", where+" with a page of version "+strconv.FormatUint(uint64(v), 10), "1 to the version")
		}
	}
	return nil
}

// carriedText returns the text of a page; "" if none is given.
func carriedText(c *store.Carried, i int) string {
	if i < len(c.Texts) {
		return c.Texts[i]
	}
	return ""
}

// CarriedText returns the text of page i, counted from 0. ok reports whether it matches the digest in its
// row.
func CarriedText(c *store.Carried, i int) (text string, ok bool) {
	r := &c.Head.Rows[i]
	text = carriedText(c, i)
	return text, int(r.Bytes) == len(text) && r.Hash == store.ContentHash(text) && r.Digest == store.SaltedDigest(r.Salt[:], text)
}

// SameRow reports whether two rows describe the same page. Salts are random, so an equal salt
// means the same page.
func SameRow(a, b *store.PageRow) bool {
	return a.Salt == b.Salt && a.Digest == b.Digest && a.Salt != [store.DigestSaltSize]byte{}
}
