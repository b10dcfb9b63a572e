package engine

import (
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// written is what one put becomes. It goes through these steps in order, and each fills its own
// fields:
//
//	given            put, the head its artefact has, the head it makes, what the catalogue says of supersession
//	number           the head gets its artefact, version and group
//	pages            the head gets its rows: pages of the old version that continue, and new ones with their texts
//	report           the caller's references and the leaf's writes
//
// A put that changes nothing (touches) makes no head. number has then counted nothing, because a
// touch needs an artefact and a group that exist, and pages has counted nothing, because all its
// pages continue.
//
// A page keeps its number as long as its content stays in its place. So a new version of a long
// document costs the pages that changed, and a question finds each text once.
type written struct {
	put  *store.Put
	prev *store.Head // nil: the artefact is new
	head *store.Head
	replacing
	renew bool // an erase that has begun takes prev: the put makes a version even if it repeats prev

	texts []format.PageText // of new pages
}

// number gives the head its numbers. A new artefact and a new group get the next ones. A put of
// several pages without a group gets a group of its own, so that its pages are neighbours; the name
// begins with a zero byte, which no caller can use.
func (n *numbering) number(w *written, scope uint32) {
	h := w.head
	h.LSN, h.Art, h.Version = n.rec.LSN, n.art, 1
	if w.prev != nil {
		h.Art, h.Version = w.prev.Art, w.prev.Version+1
	} else {
		n.art++
	}
	switch {
	case h.Group != "":
		h.GroupNum = n.groupOf(scope, h.Group)
	case len(w.put.Pages) > 1:
		h.GroupNum = n.groupOf(scope, "\x00"+h.ID) // callers cannot use control characters
	}
}

// pages gives the head its rows, and numbers to the pages that are new.
func (n *numbering) pages(w *written) {
	h, goesOn := w.head, w.goesOn()
	for i := range w.put.Pages {
		np := &w.put.Pages[i]
		if row := format.SamePage(goesOn, i, np); row != nil {
			h.Rows = append(h.Rows, *row)
			h.Rows[i].Tokens = uint32(np.Tokens) // the counter may have changed
			continue
		}
		h.Rows = append(h.Rows, store.PageRow{
			Num: n.num, Version: h.Version, LSN: h.LSN, Tokens: uint32(np.Tokens), Bytes: uint32(len(np.Text)),
			Hash: np.Hash, Salt: np.Salt, Digest: np.Digest,
		})
		w.texts = append(w.texts, format.PageText{Num: n.num, Text: np.Text, Analysis: np.Analysis})
		n.num++
	}
}

// goesOn returns the old version if the new one may share pages with it; nil: all its pages are
// new. Pages are not shared when the artefact becomes current again (recency and supersession count
// from now on), unless a source repeats its text, nor when the index would find them in another way
// (foundOtherwise).
func (w *written) goesOn() *store.Head {
	switch {
	case w.prev == nil:
		return nil
	case w.superseded && (w.head.Artefact.Source == "" || !format.Repeats(w.prev, w.head, w.put)):
		return nil // it is current again, from now on; a source that repeats its text has put nothing
	case foundOtherwise(w.prev, w.head, w.put) && !format.Repeats(w.prev, w.head, w.put):
		return nil // the index holds a page by the head it came with
	}
	return w.prev
}

// touches reports whether the put repeats what its artefact says and replaces no other artefact.
// Then no version is made.
func (w *written) touches() bool {
	return w.prev != nil && !w.renew && len(w.texts) == 0 && len(w.prev.Rows) == len(w.head.Rows) && !w.supersedes && format.SameHead(w.prev, w.head, w.put.AsOfGiven)
}

// report adds a put to the outcome and to the leaf. touch is true if nothing was. A leaf has a
// write for each new page, with its digest: that is how the audit knows what was committed.
func (w *written) report(out *store.Outcome, leaf *manifest.Record) (touch bool) {
	h := w.head
	ref := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
	if w.touches() {
		ref.Version = w.prev.Version
		out.Refs, out.Repeats = append(out.Refs, ref), append(out.Repeats, ref)
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: w.prev.Rows[0].Num, Ref: ref.String(), Version: ref.Version, Touch: true})
		return true
	}
	out.Refs = append(out.Refs, ref)
	for i := range h.Rows {
		if r := &h.Rows[i]; r.LSN == h.LSN {
			page := store.Ref{Scope: h.Scope, ID: h.ID, Page: i + 1, Version: h.Version}
			leaf.Writes = append(leaf.Writes, manifest.Write{Num: r.Num, Ref: page.String(), Version: h.Version, Digest: r.Digest[:]})
		}
	}
	if len(w.texts) == 0 { // only the head changed: the leaf still says so
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: h.Rows[0].Num, Ref: ref.String(), Version: h.Version})
	}
	return false
}
