package store

import "strconv"

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
	for i := range b.Carry {
		for _, text := range b.Carry[i].Texts {
			n += int64(len(text))
		}
	}
	return n
}

// Below returns what is still known of a version below the floor.
func (h *Head) Below(version uint32) *Head {
	return &Head{Artefact: Artefact{ID: h.ID, Kind: h.Kind}, Scope: h.Scope, Art: h.Art, Version: version, Gone: true, GoneBy: h.GoneBy}
}

// CheckIDs rejects a batch that writes an artefact twice, by puts or deletes: it would be unclear
// which version readers see.
func (b *Batch) CheckIDs() error {
	if err := b.checkCarried(); err != nil {
		return err
	}
	if len(b.Puts)+len(b.Deletes) < 2 {
		return nil
	}
	seen := make(map[string]bool, len(b.Puts)+len(b.Deletes))
	ids := func(yield func(string) bool) {
		for i := range b.Puts {
			if !yield(b.Puts[i].Artefact.ID) {
				return
			}
		}
		for _, id := range b.Deletes {
			if !yield(id) {
				return
			}
		}
	}
	for id := range ids {
		if seen[id] {
			return Invalid("batch", "two writes of "+strconv.Quote(id), "each artefact to be put or deleted once")
		}
		seen[id] = true
	}
	return nil
}
