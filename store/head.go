package store

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// PageRow is what the store keeps of one page version.
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

	// Unknown holds fields of this version that a later release stored, beside those of the
	// artefact.
	Unknown []byte
}

// SourceHost names the host that read the file: source of a version; "": none is recorded, or it
// has no such source.
func (h *Head) SourceHost() string {
	if !strings.HasPrefix(h.Artefact.Source, "file:") {
		return ""
	}
	_, host, _ := strings.Cut(h.Source.Stamp, hostMark)
	return host
}

// PageRef names a page in the version in which it appeared.
func (h *Head) PageRef(page int) Ref {
	r := Ref{Scope: h.Scope, ID: h.ID, Page: page}
	if page <= len(h.Rows) {
		r.Version = h.Rows[page-1].Version
	}
	return r
}

// Below returns what is still known of a version below the floor.
func (h *Head) Below(version uint32) *Head {
	return &Head{Artefact: Artefact{ID: h.ID, Kind: h.Kind}, Scope: h.Scope, Art: h.Art, Version: version, Gone: true, GoneBy: h.GoneBy}
}

// CheckIDs rejects a batch that writes an artefact twice, by puts or deletes: it would be unclear
// which version readers see.
func (b *Batch) CheckIDs() error {
	if err := errors.Join(b.checkCarried(), b.checkHeld(), b.checkState()); err != nil {
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
