package store

// PageRef names a page in the version in which it appeared.
func (h *Head) PageRef(page int) Ref {
	r := Ref{Scope: h.Scope, ID: h.ID, Page: page}
	if page <= len(h.Rows) {
		r.Version = h.Rows[page-1].Version
	}
	return r
}

// Bytes is the length of the texts that a batch puts.
func (b *Batch) Bytes() (n int64) {
	for i := range b.Puts {
		for j := range b.Puts[i].Pages {
			n += int64(len(b.Puts[i].Pages[j].Text))
		}
	}
	return n
}

// Below is what is known of a version below a floor.
func (h *Head) Below(version uint32) *Head {
	return &Head{Artefact: Artefact{ID: h.ID, Kind: h.Kind}, Scope: h.Scope, Art: h.Art, Version: version, Gone: true, GoneBy: h.GoneBy}
}
