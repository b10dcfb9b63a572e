package store

import (
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
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
