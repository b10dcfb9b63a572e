package store

import (
	"time"
)

// PageRow is the store's record of one page version.
type PageRow struct {
	Num     uint64
	Version uint32 // version of the artefact in which this content appeared
	LSN     uint64
	Tokens  uint32
	Bytes   uint32
	Hash    uint64
	Salt    [DigestSaltSize]byte
	Digest  [32]byte
}

// Head is one version of an artefact without its content. It is immutable once made.
type Head struct {
	Artefact // Text empty; text parts carry no text
	Scope    string
	Art      uint64 // number of the artefact
	Version  uint32
	LSN      uint64
	PutAt    time.Time
	Actor    string
	Trace    string // of the read that it was written from, see format.WrittenFrom; "": none is known. gc keeps none
	Deleted  bool
	Gone     bool   // gc dropped the version: what remains names it and what it replaced, and can prove its text
	GoneBy   string // trace of the run of gc, or of the erase
	ErasedBy string // the operator who erased it; "": not erased. Nothing of its content is kept then, not even a proof of a copy
	Floor    bool   // nothing is kept of the versions before it
	GroupNum uint64
	Source   Validator
	Rows     []PageRow
	// PartBytes is, for each of Parts that is text, its length in the joined text.
	PartBytes []int
	// Counter is the name of the token counter that counted Rows.
	Counter string
	// Turn holds what a session measured of a turn, in the session's encoding. It can be computed
	// again from the texts, so it does not count as content when puts are compared. A deletion has
	// none.
	Turn []byte

	// Forgotten is set only in a batch of gc: all rows of the artefact are removed.
	Forgotten bool

	Superseded string // id of the artefact that supersedes it; only in listings

	// Unknown holds fields of this version that a later release stored, beside the fields of the
	// artefact.
	Unknown []byte
}

// PageRef names a page in the version in which it appeared.
func (h *Head) PageRef(page int) Ref {
	r := Ref{Scope: h.Scope, ID: h.ID, Page: page}
	if page <= len(h.Rows) {
		r.Version = h.Rows[page-1].Version
	}
	return r
}
