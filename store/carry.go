package store

import "strconv"

// Carried is a version of an artefact as another database had it. An import writes it with its number, time and writer, and
// its pages under the salts and digests that they had there. Numbers of this database (Art, LSN, GroupNum, those of Rows and
// the LSNs of Rows) are given here.
type Carried struct {
	// Head is the version. Deleted: it says that the artefact was deleted. Gone: nothing of its content is kept; with
	// ErasedBy also no Rows. Floor: of the versions before it nothing is kept; without it versions follow each other by one.
	Head Head
	// Texts are the texts of Rows, by place. A page that the version before has too, told by salt and digest, goes on under
	// its number and needs none.
	Texts []string
}

// CarriedHold is what a batch that was held in another database has beside the batch: with it, ActHold stores the batch as it
// was there, decided or not. Neither Expect nor Context is judged: that is for whoever approves it.
type CarriedHold struct {
	Stale   []Ref
	Decided string // as in HeldBatch
	By      string
	Note    string
	Outcome Outcome // of the decision; LSN and Leaf are those of the other database, 0 where they mean nothing here
}

// checkCarried refuses what no database can have had. A version that is gone is followed by a later one of its artefact in
// the same batch: nothing else could be read of the artefact in between.
func (b *Batch) checkCarried() error {
	if b.Hold != nil && (b.Action != ActHold || b.Reason == "") {
		return Invalid("batch", "a hold of another database that is not held", "ActHold and a Reason")
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

// text is that of a page, "": none is given.
func (c *Carried) text(i int) string {
	if i < len(c.Texts) {
		return c.Texts[i]
	}
	return ""
}

// Text gives the text of the page in a place, counted from 0; ok: it is the one that its row has the digest of.
func (c *Carried) Text(i int) (text string, ok bool) {
	r := &c.Head.Rows[i]
	text = c.text(i)
	return text, int(r.Bytes) == len(text) && r.Hash == ContentHash(text) && r.Digest == SaltedDigest(r.Salt[:], text)
}

// SamePage says whether two rows are of one page: salts are random, so nobody else has this one.
func SamePage(a, b *PageRow) bool {
	return a.Salt == b.Salt && a.Digest == b.Digest && a.Salt != [DigestSaltSize]byte{}
}
