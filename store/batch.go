package store

import (
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/oklog/ulid/v2"
)

// Action is the request of a batch.
type Action uint8

// The actions.
const (
	ActApply Action = iota
	ActHold
	ActApprove
	ActReject
)

// OnStale says what happens if the context that a batch was written from has changed.
type OnStale uint8

// HoldStale, the default, holds the batch for review; FailStale refuses it with ErrStaleContext;
// AllowStale commits it. The decision is made together with the commit, so a crash cannot lose the
// draft.
const (
	HoldStale OnStale = iota
	FailStale
	AllowStale
)

// Precondition expects that an artefact still has this LSN; 0: that it is absent.
type Precondition struct {
	Ref Ref
	LSN uint64
}

// Seen is a page version the model saw.
type Seen struct {
	Scope string
	ID    string
	Page  int
	Num   uint64
}

// Put is one artefact to write, its pages already made.
type Put struct {
	Artefact Artefact // Text moved into Pages
	Source   Validator
	Pages    []NewPage // at least one
	// AsOfGiven: the caller gave CurrentAsOf; otherwise it is the time of the put, and a repeated
	// put does not change it.
	AsOfGiven bool
	// PartBytes, Counter and Turn as in Head.
	PartBytes []int
	Counter   string
	Turn      []byte
	// Unknown holds fields of a held put that a later release stored.
	Unknown []byte
}

// NewPage is a page to write.
type NewPage struct {
	Text     string
	Tokens   int
	Hash     uint64
	Salt     [DigestSaltSize]byte
	Digest   [32]byte
	Analysis *lexical.Analysis // nil: made when it is needed
}

// Batch is the unit of commit.
type Batch struct {
	ID     ulid.ULID
	Trace  string // of the assembly it came from
	From   ulid.ULID
	Scope  string
	Actor  string
	Action Action
	Reason string // of a hold
	Expect []Precondition
	// ExpectState are preconditions on state rows.
	ExpectState []StatePre
	Context     []Seen
	OnStale     OnStale
	Now         time.Time
	Puts        []Put
	Deletes     []string // ids of Scope
	// State are rows of state to write. A batch to hold (ActHold) has none, and a batch that has some is never held: with
	// HoldStale a stale Context returns ErrStaleContext.
	State []StateRow
	// Carry lists versions from another database, of any scope. Each must continue its artefact
	// here, or the batch returns a ConflictError. Only an operator's import uses it.
	Carry []Carried
	// Hold says that the batch was held in another database.
	Hold  *CarriedHold
	Raise bool            // approve as human-verified
	Force bool            // approve although the context went stale
	Leaf  manifest.Record // Type, Confidence, By, Note, Evaluator; the store fills what it decides
	// Bound binds the id to a request: it is a digest of scope and content as the caller asked for
	// them. A batch that repeats the id returns the outcome only if its Bound is the same. nil: the
	// store computes it from the batch.
	Bound []byte
	// Unknown holds fields of a held batch that a later release stored.
	Unknown []byte
}

// Status is the end of a batch.
type Status uint8

// The outcomes.
const (
	StatusApplied Status = iota
	StatusHeld
	StatusRejected
)

func (s Status) String() string {
	if names := [...]string{"applied", "held", "rejected"}; int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// Outcome is the result of a batch. A store remembers the newest 10,000 outcomes under the ids of their
// batches, for 7 days.
type Outcome struct {
	Status  Status
	LSN     uint64
	Leaf    uint64 // index of its audit leaf
	Refs    []Ref
	Reason  string
	Stale   []Ref
	Repeats []Ref // pages that puts merely repeated (touches)
}

// HeldBatch waits for review, or was reviewed.
type HeldBatch struct {
	Batch   Batch
	Reason  string
	Stale   []Ref
	At      time.Time
	LSN     uint64
	Decided string // "", approved, rejected
	By      string
	Note    string
	Outcome Outcome
	// Unknown holds fields that a later release stored, beside the fields of the batch.
	Unknown []byte
}

// ReasonStaleContext is HeldError.Reason for a batch with a stale Context.
const ReasonStaleContext = "stale context"

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

// Carried is a version of an artefact from another database. An import keeps its version number,
// time and writer, and the salts and digests of its pages. The store assigns its own numbers (Art,
// LSN, GroupNum, and those in Rows).
type Carried struct {
	// Head is the version. Deleted: the artefact was deleted with it. Gone: its content is not
	// kept; with ErasedBy it has no Rows either. Floor: earlier versions are not kept; otherwise
	// version numbers are consecutive.
	Head Head
	// Texts holds the texts of Rows, by index. A page that the previous version already has (same
	// salt and digest) keeps its number and needs no text.
	Texts []string
}

// CarriedHold makes ActHold store a batch that another database held, decided or not, as it was
// there. Expect and Context are not checked: the reviewer who approves the batch does that.
type CarriedHold struct {
	Stale   []Ref
	Decided string // as in HeldBatch
	By      string
	Note    string
	Outcome Outcome // of the decision; LSN and Leaf count in the other database, 0 where they mean nothing here
}
