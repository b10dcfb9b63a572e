package engine

import (
	"bytes"

	"github.com/ctxpage/ctxpage/store"
)

// samePage finds the page of the prev version that a new page repeats word for word. The fast hash only proposes: a
// text made to collide with it must not pass for the prev one, so the salted digest decides.
func samePage(prev *store.Head, i int, np *store.NewPage) *store.PageRow {
	if prev == nil || i >= len(prev.Rows) {
		return nil
	}
	r := &prev.Rows[i]
	if r.Hash != np.Hash || int(r.Bytes) != len(np.Text) || store.SaltedDigest(r.Salt[:], np.Text) != r.Digest {
		return nil
	}
	return r
}

// foundOtherwise says whether a question finds a page under another head in another way: by its date, its author or its
// neighbours. A date counts when a caller gave the same words another one: a text that was edited later keeps what was
// not edited, as of when it was written.
func foundOtherwise(prev, h *store.Head, put *store.Put) bool {
	if prev.GroupNum != h.GroupNum {
		return true
	}
	was, is := prev.Artefact, h.Artefact
	if store.FoundAlike(&was, &is) {
		return false
	}
	if !put.AsOfGiven || !sameTexts(prev, put) {
		was.CurrentAsOf = is.CurrentAsOf
	}
	return !store.FoundAlike(&was, &is)
}

// Repeats says whether a put says what its artefact says already.
func Repeats(prev, h *store.Head, put *store.Put) bool {
	return sameTexts(prev, put) && sameHead(prev, h, put.AsOfGiven)
}

func sameTexts(prev *store.Head, put *store.Put) bool {
	for i := range put.Pages {
		if samePage(prev, i, &put.Pages[i]) == nil {
			return false
		}
	}
	return len(prev.Rows) == len(put.Pages)
}

// sameHead says whether a put changes nothing but the time of its writing and the stamp of its source.
func sameHead(prev, h *store.Head, asOf bool) bool {
	fields := sameFields
	if asOf {
		fields = sameFieldsAsOf
	}
	told := len(h.Artefact.Unknown) == 0 || bytes.Equal(prev.Artefact.Unknown, h.Artefact.Unknown) // silence changes nothing
	return told && prev.Source.Hash == h.Source.Hash && fields.Same(prev, h)
}
