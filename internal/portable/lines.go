package portable

import (
	"fmt"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// Format is the name of the format in the header of an export; Version is the version that this
// program writes and reads.
const (
	Format  = "ctxpage-export"
	Version = 1
)

// Types of lines.
const (
	typeHeader   = "header"
	typeVersion  = "version"
	typeState    = "state"
	typeHeld     = "held"
	typeQuestion = "question"
	typeEnd      = "end"
)

// Header is the first line of an export.
type Header struct {
	Type     string    `json:"type"`
	Format   string    `json:"format"`
	Version  int       `json:"version"`
	Database string    `json:"database"` // id of the database it was made of
	LSN      uint64    `json:"lsn"`      // of the newest commit in it
	Head     string    `json:"head,omitempty"`
	At       time.Time `json:"at"`
	Scope    string    `json:"scope,omitempty"`    // it has the data of this scope and of those below it
	Subject  string    `json:"subject,omitempty"`  // it has the data of this person
	Since    uint64    `json:"since,omitempty"`    // it has no versions of commits up to this LSN
	Versions bool      `json:"versions,omitempty"` // it has versions only
	// Erasures are the traces of the erases that the database knew. The file has nothing of what they
	// erased.
	Erasures []string `json:"erasures,omitempty"`
	// Secret keys the fences of contexts. Only whole exports have it, unless ExportOptions.NoSecret was set.
	Secret []byte `json:"secret,omitempty"`
}

// Identity returns the id and secret that a new database takes over from an export; zero: the
// export has no secret.
func (h *Header) Identity() store.Info {
	if len(h.Secret) == 0 {
		return store.Info{}
	}
	return store.Info{ID: h.Database, Secret: h.Secret}
}

func (h *Header) check() error {
	switch {
	case h.Type != typeHeader || h.Format != Format:
		return store.Invalid("header", fmt.Sprintf("type %q, format %q", h.Type, h.Format), fmt.Sprintf("%q and %q", typeHeader, Format))
	case h.Version > Version:
		return fmt.Errorf("%w: the export has version %d, this program reads up to %d; use a newer release", store.ErrNewerFormat, h.Version, Version)
	case h.Version < 1 || h.Database == "":
		return store.Invalid("header", fmt.Sprintf("version %d of database %q", h.Version, h.Database), "a version from 1, and the id of a database")
	}
	return nil
}

type versionLine struct {
	Type string `json:"type"`
	oneVersion
	// Before are the versions before it that have no content any more, oldest first; the first may stand for all below.
	Before []oneVersion `json:"before,omitempty"`
}

type oneVersion struct {
	Scope     string           `json:"scope"`
	ID        string           `json:"id"`
	Version   uint32           `json:"version"`
	LSN       uint64           `json:"lsn"` // in the database it was made of
	PutAt     time.Time        `json:"put_at"`
	Actor     string           `json:"actor,omitempty"`
	Trace     string           `json:"trace,omitempty"` // of the read it was written from, in the audit of the database it was made of
	Deleted   bool             `json:"deleted,omitempty"`
	Gone      bool             `json:"gone,omitempty"`
	GoneBy    string           `json:"gone_by,omitempty"`
	ErasedBy  string           `json:"erased_by,omitempty"`
	Floor     bool             `json:"floor,omitempty"`
	Artefact  *store.Artefact  `json:"artefact,omitempty"`
	Source    *store.Validator `json:"source_state,omitempty"`
	Counter   string           `json:"counter,omitempty"`
	PartBytes []int            `json:"part_bytes,omitempty"`
	Unknown   []byte           `json:"unknown,omitempty"`
	Pages     []pageLine       `json:"pages,omitempty"`
}

type pageLine struct {
	Version uint32  `json:"version"` // of the artefact in which it appeared
	Tokens  uint32  `json:"tokens"`
	Bytes   uint32  `json:"bytes"`
	Salt    []byte  `json:"salt"`
	Digest  []byte  `json:"digest"`
	Text    *string `json:"text,omitempty"` // null: an earlier line has it, or it is lost
	Hash    uint64  `json:"hash,omitempty"` // of a text that is not here
}

// stateLine is a row of state. Pages are those that it names by number.
type stateLine struct {
	Type  string     `json:"type"`
	Key   []byte     `json:"key"` // it may have bytes that JSON strings have not
	Name  string     `json:"name"`
	Value []byte     `json:"value"`
	Pages []pageName `json:"pages,omitempty"`
}

type pageName struct {
	Num uint64 `json:"num"`
	Ref string `json:"ref"`
}

type heldLine struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Scope   string          `json:"scope"`
	Actor   string          `json:"actor"`
	At      time.Time       `json:"at"`
	Trace   string          `json:"trace,omitempty"`
	Reason  string          `json:"reason"`
	Stale   []string        `json:"stale,omitempty"`
	Decided string          `json:"decided,omitempty"`
	By      string          `json:"by,omitempty"`
	Note    string          `json:"note,omitempty"`
	Refs    []string        `json:"refs,omitempty"` // what the decision wrote
	OnStale store.OnStale   `json:"on_stale,omitempty"`
	Raise   bool            `json:"raise,omitempty"`
	Force   bool            `json:"force,omitempty"`
	Expect  []expectLine    `json:"expect,omitempty"`
	Context []seenLine      `json:"context,omitempty"`
	Puts    []putLine       `json:"puts,omitempty"`
	Deletes []string        `json:"deletes,omitempty"`
	Leaf    manifest.Record `json:"leaf"`
	Unknown []byte          `json:"unknown,omitempty"`
}

// expectLine expects a version of an artefact: 0 none, and Elsewhere one that is no longer the newest.
type expectLine struct {
	Ref       string `json:"ref"`
	Elsewhere bool   `json:"changed_since,omitempty"`
}

type seenLine struct {
	Ref string `json:"ref"` // with page and version
}

type putLine struct {
	Artefact  store.Artefact   `json:"artefact"`
	Source    *store.Validator `json:"source_state,omitempty"`
	AsOfGiven bool             `json:"as_of_given,omitempty"`
	PartBytes []int            `json:"part_bytes,omitempty"`
	Counter   string           `json:"counter,omitempty"`
	Unknown   []byte           `json:"unknown,omitempty"`
	Pages     []pageLine       `json:"pages"`
}

// questionLine is a question whose answer showed data of a person, or that was asked in their session.
type questionLine struct {
	Type  string    `json:"type"`
	Trace string    `json:"trace"`
	At    time.Time `json:"at"`
	Scope string    `json:"scope,omitempty"`
	Actor string    `json:"actor,omitempty"`
	Text  string    `json:"text"`
}

// Counts say how much a file has. They are the fields of its last line.
type Counts struct {
	Lines     uint64 `json:"lines"` // with header and end
	Artefacts uint64 `json:"artefacts"`
	Versions  uint64 `json:"versions"` // with those that have no content any more
	Pages     uint64 `json:"pages"`    // with a text
	State     uint64 `json:"state"`
	Held      uint64 `json:"held"`
	Questions uint64 `json:"questions,omitempty"`
}

type endLine struct {
	Type string `json:"type"`
	Counts
	Digest []byte `json:"digest"` // SHA-256 of all bytes before this line
}

// LineError says in which line and field a file is wrong.
type LineError struct {
	Line  int    // from 1
	Field string // "": the line as a whole
	Err   error
}

func (e *LineError) Error() string {
	why := strings.TrimPrefix(e.Err.Error(), "ctxpage: ")
	if e.Field == "" {
		return fmt.Sprintf("ctxpage: line %d: %s", e.Line, why)
	}
	return fmt.Sprintf("ctxpage: line %d, field %s: %s", e.Line, e.Field, why)
}

// Unwrap returns the cause.
func (e *LineError) Unwrap() error { return e.Err }

// of makes the line of a version. An erased one has names and times only.
func (o *oneVersion) of(h *store.Head) {
	*o = oneVersion{
		Scope: h.Scope, ID: h.ID, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt.UTC(), Actor: h.Actor, Trace: h.Trace, Deleted: h.Deleted, Gone: h.Gone, GoneBy: h.GoneBy,
		ErasedBy: h.ErasedBy, Floor: h.Floor, Counter: h.Counter, PartBytes: h.PartBytes, Unknown: h.Unknown,
	}
	a := h.Artefact
	a.ID, a.Text = "", ""
	o.Artefact = &a
	if h.Source != (store.Validator{}) {
		o.Source = &h.Source
	}
	if h.ErasedBy != "" {
		return
	}
	o.Pages = make([]pageLine, len(h.Rows))
	for i := range h.Rows {
		r := &h.Rows[i]
		o.Pages[i] = pageLine{Version: r.Version, Tokens: r.Tokens, Bytes: r.Bytes, Salt: r.Salt[:], Digest: r.Digest[:], Hash: r.Hash}
	}
}

// carried returns the version as a store takes it. Texts are compared with their digests, and counted anew. A version whose text came
// with an earlier line that n has forgotten has no counter: it is counted when it is read.
func (o *oneVersion) carried(n *counted) (store.Carried, error) {
	c := store.Carried{Head: store.Head{
		Scope: o.Scope, Version: o.Version, PutAt: o.PutAt, Actor: o.Actor, Trace: o.Trace, Deleted: o.Deleted, Gone: o.Gone, GoneBy: o.GoneBy, ErasedBy: o.ErasedBy,
		Floor: o.Floor, Counter: o.Counter, PartBytes: o.PartBytes, Unknown: o.Unknown,
	}}
	h := &c.Head
	if o.Artefact == nil {
		return c, fieldError("artefact", store.Invalid("artefact", "nothing", "the fields of the artefact"))
	}
	h.Artefact = *o.Artefact
	h.ID = o.ID
	if o.Source != nil {
		h.Source = *o.Source
	}
	if len(o.Pages) > 0 && !h.Gone && !h.Deleted && h.ErasedBy == "" {
		h.Counter = n.Name()
	}
	h.Rows, c.Texts = make([]store.PageRow, len(o.Pages)), make([]string, len(o.Pages))
	for i := range o.Pages {
		p, r := &o.Pages[i], &h.Rows[i]
		where := fmt.Sprintf("pages[%d]", i)
		if len(p.Salt) != len(r.Salt) || len(p.Digest) != len(r.Digest) {
			return c, fieldError(where, store.Invalid("salt and digest", fmt.Sprintf("%d and %d bytes", len(p.Salt), len(p.Digest)), fmt.Sprintf("%d and %d", len(r.Salt), len(r.Digest))))
		}
		*r = store.PageRow{Version: p.Version, Tokens: p.Tokens, Bytes: p.Bytes, Hash: p.Hash, Salt: [store.DigestSaltSize]byte(p.Salt), Digest: [32]byte(p.Digest)}
		if !h.Gone && !h.Deleted && h.ErasedBy == "" {
			n.count(h, r, p.Text)
		}
		if p.Text == nil {
			continue
		}
		c.Texts[i], r.Hash = *p.Text, store.ContentHash(*p.Text)
		if _, ok := format.CarriedText(&c, i); !ok {
			return c, fieldError(where+".text", store.Invalid("text", "a text that is not the one of its digest", "the text as it was exported; the file was edited or damaged"))
		}
	}
	if h.Deleted {
		h.Rows, c.Texts = nil, nil
	}
	return c, nil
}

// counted counts pages, and remembers the tokens of the newest: later versions of an artefact share texts with earlier ones.
type counted struct {
	token.Counter
	tokens map[[32]byte]uint32 // by digest
}

// maxCounted bounds what is remembered. bytesPerToken guesses the tokens of a text that is neither here nor remembered.
const (
	maxCounted    = 1 << 18
	bytesPerToken = 4
)

// count sets the tokens of a page of the version h. Its text is nil if an earlier line had it.
func (n *counted) count(h *store.Head, r *store.PageRow, text *string) {
	known, ok := n.tokens[r.Digest]
	switch {
	case text != nil:
		if len(n.tokens) >= maxCounted || n.tokens == nil {
			n.tokens = map[[32]byte]uint32{}
		}
		r.Tokens = uint32(n.Count(*text))
		n.tokens[r.Digest] = r.Tokens
	case ok:
		r.Tokens = known
	default:
		r.Tokens, h.Counter = r.Bytes/bytesPerToken, ""
	}
}

func fieldError(field string, err error) error { return &LineError{Field: field, Err: err} }

type raw struct {
	Type string `json:"type"`
}
