package store

import "strconv"

// Carried is a version of an artefact from another database. An import keeps its version number,
// time and writer, and the salts and digests of its pages. The store assigns its own numbers (Art,
// LSN, GroupNum, and those in Rows).
type Carried struct {
	// Head is the version. Deleted: the artefact was deleted with it. Gone: its content is not
	// kept; with ErasedBy it has no Rows either. Floor: earlier versions are not kept; otherwise
	// version numbers are consecutive.
	Head Head
	// Texts holds the texts of Rows, by index. A page that the previous version already has (same
	// salt and digest) keeps its number and needs no text.
	Texts []string
}

// CarriedHold makes ActHold store a batch that another database held, decided or not, as it was
// there. Expect and Context are not checked: the reviewer who approves the batch does that.
type CarriedHold struct {
	Stale   []Ref
	Decided string // as in HeldBatch
	By      string
	Note    string
	Outcome Outcome // of the decision; LSN and Leaf are those of the other database, 0 where they mean nothing here
}

// checkCarried rejects what no database can have had. A version that is gone must be followed by a
// later one of its artefact in the same batch: otherwise the artefact could not be read in between.
func (b *Batch) checkCarried() error {
	if b.Hold != nil && (b.Action != ActHold || b.Reason == "") {
		return Invalid("batch", "a hold of another database that is not held", "ActHold and a Reason")
	}
	if b.Hold != nil && b.Hold.Decided != "" && b.Hold.Decided != "approved" && b.Hold.Decided != "rejected" {
		return Invalid("decided", strconv.Quote(b.Hold.Decided), "approved, rejected or nothing")
	}
	if len(b.Carry) == 0 {
		return nil
	}
	if b.Action != ActApply || len(b.Puts)+len(b.Deletes) > 0 {
		return Invalid("batch", "carried versions beside other writes", "ActApply and no puts and deletes")
	}
	last, open := map[Ref]*Head{}, 0
	for i := range b.Carry {
		c := &b.Carry[i]
		h := &c.Head
		ref := Ref{Scope: h.Scope, ID: h.ID}
		prev := last[ref]
		if prev != nil && (!prev.Gone || h.Version != prev.Version+1) {
			return Invalid("batch", "two writes of "+strconv.Quote(h.ID), "each artefact to be written once; versions that are gone come before the one that follows them")
		}
		if err := c.check(); err != nil {
			return err
		}
		if last[ref] = h; h.Gone && prev == nil {
			open++
		} else if !h.Gone && prev != nil {
			open--
		}
	}
	if open > 0 {
		return Invalid("batch", "a version that is gone, and none that follows it", "the version that follows it in the same batch")
	}
	return nil
}

// check looks at one carried version.
func (c *Carried) check() error {
	h := &c.Head
	if err := CheckScope(h.Scope); err != nil {
		return err
	}
	if err := h.Artefact.Check(); err != nil {
		return err
	}
	where := Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}.String()
	switch {
	case h.Version == 0 || h.PutAt.IsZero() || !h.Provenance.Valid() || h.Kind == KindAuto:
		return Invalid("carried version", where+" without number, time, kind or provenance", "all of them")
	case h.Floor && !h.Gone, h.Gone && h.Deleted && h.ErasedBy == "", h.Forgotten:
		return Invalid("carried version", where+" with marks that exclude each other", "a version as a database has it")
	case h.Deleted && len(h.Rows) > 0, h.ErasedBy != "" && len(h.Rows) > 0, !h.Deleted && !h.Gone && len(h.Rows) == 0:
		return Invalid("carried version", where+" with "+strconv.Itoa(len(h.Rows))+" pages", "at least one; none of what is deleted or erased")
	case len(c.Texts) > len(h.Rows):
		return Invalid("carried version", where+" with more texts than pages", "a text for each page")
	}
	for i := range h.Rows {
		if v := h.Rows[i].Version; v == 0 || v > h.Version {
			return Invalid("carried version", where+" with a page of version "+strconv.FormatUint(uint64(v), 10), "1 to the version")
		}
	}
	return nil
}

// text returns the text of a page; "" if none is given.
func (c *Carried) text(i int) string {
	if i < len(c.Texts) {
		return c.Texts[i]
	}
	return ""
}

// Text returns the text of page i, counted from 0. ok reports whether it matches the digest in its
// row.
func (c *Carried) Text(i int) (text string, ok bool) {
	r := &c.Head.Rows[i]
	text = c.text(i)
	return text, int(r.Bytes) == len(text) && r.Hash == ContentHash(text) && r.Digest == SaltedDigest(r.Salt[:], text)
}

// SamePage reports whether two rows describe the same page. Salts are random, so an equal salt
// means the same page.
func SamePage(a, b *PageRow) bool {
	return a.Salt == b.Salt && a.Digest == b.Digest && a.Salt != [DigestSaltSize]byte{}
}
