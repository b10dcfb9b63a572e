package ctxpage

import (
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// Version is one version of an artefact as it is stored: what the caller put, and what the database adds. The caller
// owns it; it shares nothing with the database.
type Version struct {
	Artefact
	Ref     Ref       `json:"ref"`
	Version uint32    `json:"version"`
	LSN     uint64    `json:"lsn"` // log sequence number of the commit that wrote it
	PutAt   time.Time `json:"put_at"`
	Actor   string    `json:"actor,omitempty"`
	// Trace names the read that it was written from, for Why and Replay: the assembly of Turn.Trace, of a resumed
	// transaction, or of the draft that was approved. What a user said has none.
	Trace   string `json:"trace,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// Gone: gc dropped the version; GoneBy is the trace of that run. A list names it, its text cannot be read.
	Gone   bool   `json:"gone,omitempty"`
	GoneBy string `json:"gone_by,omitempty"`
	// SupersededBy is the id of the artefact of the scope that answers for this one; "": none. Only the newest version
	// has it. If that artefact was deleted, nothing answers until this one is put again.
	SupersededBy string `json:"superseded_by,omitempty"`
	// Stale: the source changed, and the reader asked for the page all the same.
	Stale bool `json:"stale,omitempty"`
	// Elsewhere is the host that has the file of its source, if that is another one: the source was not probed.
	Elsewhere string `json:"elsewhere,omitempty"`

	Tokens int `json:"tokens"` // of all pages, by Counter
	// SourceHash is xxhash64 of what the source held when it was loaded; 0: no source. It is not salted, and an erased
	// text could be guessed from it, so it is kept out of JSON.
	SourceHash uint64 `json:"-"`
	Pages      []Page `json:"pages"`
	src        *store.Head
}

// Page is the unit of paging, ranking, budgeting and dirty checking.
type Page struct {
	Ref    Ref    `json:"ref"`
	Num    uint64 `json:"num"` // number of this page version in the database; manifests name pages by it
	Tokens int    `json:"tokens"`
	// Digest is HMAC-SHA256 of the text under a random salt of this version, so that an erased text cannot be guessed
	// from the log.
	Digest [32]byte `json:"-"`
	Text   string   `json:"text,omitempty"`
}
