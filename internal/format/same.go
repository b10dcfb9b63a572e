package format

import (
	"bytes"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// SamePage finds the page of the prev version that a new page repeats word for word. The fast hash
// only proposes: a text made to collide with it must not pass for the prev one, so the salted
// digest decides.
func SamePage(prev *store.Head, i int, np *store.NewPage) *store.PageRow {
	if prev == nil || i >= len(prev.Rows) {
		return nil
	}
	r := &prev.Rows[i]
	if r.Hash != np.Hash || int(r.Bytes) != len(np.Text) || store.SaltedDigest(r.Salt[:], np.Text) != r.Digest {
		return nil
	}
	return r
}

// Repeats reports whether a put says what its artefact says already.
func Repeats(prev, h *store.Head, put *store.Put) bool {
	return SameTexts(prev, put) && SameHead(prev, h, put.AsOfGiven)
}

// SameTexts reports whether a put has the pages of a version.
func SameTexts(prev *store.Head, put *store.Put) bool {
	for i := range put.Pages {
		if SamePage(prev, i, &put.Pages[i]) == nil {
			return false
		}
	}
	return len(prev.Rows) == len(put.Pages)
}

// SameHead reports whether a put changes nothing but the time of its writing and the stamp of its
// source. The host of the source is no mere stamp: the put of another host makes a version, which
// that host can check.
func SameHead(prev, h *store.Head, asOf bool) bool {
	fields := sameFields
	if asOf {
		fields = sameFieldsAsOf
	}
	told := len(h.Artefact.Unknown) == 0 || bytes.Equal(prev.Artefact.Unknown, h.Artefact.Unknown) // silence changes nothing
	return told && prev.Source.Hash == h.Source.Hash && SourceHost(prev) == SourceHost(h) && fields.Same(prev, h)
}

// noteFields are the fields of an artefact that are information beside its text. A field that is
// added to an artefact is one of them.
var noteFields = ArtefactFields.But("ID", "Kind", "Provenance", "Text", "Name", "ToolCallID", "TTL", "CurrentAsOf", "Priority", "Relevance", "Seq").Known()

// PlainNote reports whether an artefact has nothing but a text and a kind. Any other field is
// information that an echo of its text would lose.
func PlainNote(a *store.Artefact) bool {
	var e codec.Encoder
	noteFields.Append(&e, a)
	return len(e.B) == 0
}
