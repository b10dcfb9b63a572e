package ctxpage

import (
	"io"

	"github.com/ctxpage/ctxpage/internal/budget"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// The names of other packages that a user of the library writes. Their contracts are in package store.
// Each name has a line of its own and all lines one shape, because Go exports names of another package in no other way,
// and go doc shows what is here.

type (
	Artefact       = store.Artefact           // what a caller puts; stored as one or more pages
	Part           = store.Part               // one part of a message that is not only text
	ToolCall       = store.ToolCall           // a call that an assistant message makes
	Ref            = store.Ref                // names an artefact, a page of it, or a version of either
	Filter         = store.Filter             // restricts a read to artefacts with given properties
	Kind           = store.Kind               // what an artefact is: gives the defaults of class, provenance and priority
	Provenance     = store.Provenance         // an order of trust: who wrote an artefact
	Priority       = store.Priority           // what the watcher protects first
	OnStale        = store.OnStale            // what a commit does when the context it was written from has changed
	Overflow       = budget.Overflow          // what happens when not all winners fit (Query.Overflow)
	ExportOptions  = portable.ExportOptions   // what Admin.Export writes
	ImportOptions  = portable.ImportOptions   // what Admin.Import takes
	SalvageOptions = filestore.SalvageOptions // how Salvage copies
	HeldError      = store.HeldError          // names the batch that waits for review
)

// What happens when not all winners fit: fill up with the best, or step down for all at once.
const (
	Fill   Overflow = budget.Fill
	Ladder Overflow = budget.Ladder
)

// What Commit does when a page that the transaction saw has changed (WithOnStale).
const (
	HoldStale  OnStale = store.HoldStale
	FailStale  OnStale = store.FailStale
	AllowStale OnStale = store.AllowStale
)

// The kinds of artefacts. KindAuto picks message for an artefact with a role, chunk for one with a source, otherwise fact.
const (
	KindAuto    Kind = store.KindAuto
	KindSystem  Kind = store.KindSystem
	KindFact    Kind = store.KindFact
	KindMessage Kind = store.KindMessage
	KindChunk   Kind = store.KindChunk
	KindTool    Kind = store.KindTool
	KindSummary Kind = store.KindSummary
	KindScratch Kind = store.KindScratch
)

// The order of trust, highest first.
const (
	HumanVerified Provenance = store.HumanVerified
	Chunk         Provenance = store.Chunk
	Validated     Provenance = store.Validated
	Tool          Provenance = store.Tool
	Scratch       Provenance = store.Scratch
)

// What the watcher protects, in ascending order. PriorityAuto takes that of the role or kind.
const (
	PriorityAuto     Priority = store.PriorityAuto
	PriorityLow      Priority = store.PriorityLow
	PriorityMedium   Priority = store.PriorityMedium
	PriorityHigh     Priority = store.PriorityHigh
	PriorityCritical Priority = store.PriorityCritical
)

// The errors, to be matched with errors.Is; package store says when each is returned. ErrHeadroom is matched by the
// *session.HeadroomError of a commit that would overfill a window, ErrReplay by a past assembly that cannot be rendered to
// the same bytes.
var (
	// Opening a database.
	ErrLocked         = store.ErrLocked         // another process has the file
	ErrNewerFormat    = store.ErrNewerFormat    // a later release wrote the file
	ErrOldFormat      = store.ErrOldFormat      // it was made before v0.1.0
	ErrCorrupt        = store.ErrCorrupt        // damaged bytes, here and at any later read
	ErrMisfit         = store.ErrMisfit         // file and log are not from the same moment
	ErrNotDatabase    = store.ErrNotDatabase    // the file is something else
	ErrNotExist       = store.ErrNotExist       // there is no database, and Open may not create one
	ErrKey            = store.ErrKey            // an encrypted database and no key that fits, or a plain one and a key
	ErrReadOnly       = store.ErrReadOnly       // a write on a read-only database
	ErrClosed         = store.ErrClosed         // a call after Close
	ErrNoSpace        = store.ErrNoSpace        // the disk is full; reads, deletes and gc still work
	ErrOutcomeUnknown = store.ErrOutcomeUnknown // a commit may or may not have happened

	// Putting and reading.
	ErrNotFound   = store.ErrNotFound   // nothing of that name is visible from the scope
	ErrGone       = store.ErrGone       // gc dropped the version
	ErrErased     = store.ErrErased     // it was erased, by whom and when
	ErrExpired    = store.ErrExpired    // the artefact has expired
	ErrDirty      = store.ErrDirty      // the source changed and could not be fetched
	ErrVanished   = store.ErrVanished   // the source does not exist any more
	ErrFileRoot   = store.ErrFileRoot   // no file root allows the source
	ErrInvalid    = store.ErrInvalid    // an input broke a rule or a limit
	ErrGated      = store.ErrGated      // a gated handle asked for what only its host may do
	ErrProvenance = store.ErrProvenance // a scope asked for a trust that only the operator can give
	ErrBudget     = store.ErrBudget     // the system part alone does not fit the budget
	ErrHeadroom   = session.ErrHeadroom // a commit would overfill the session's window
	ErrReplay     = rendering.ErrReplay // a past assembly does not render to the recorded bytes

	// Ending a transaction.
	ErrConflict      = store.ErrConflict      // an artefact that it overwrites has a newer version
	ErrStaleContext  = store.ErrStaleContext  // a page that it saw has changed
	ErrHeld          = store.ErrHeld          // the gate held it for review
	ErrTxnDone       = store.ErrTxnDone       // it was committed or rolled back before
	ErrTxnExpired    = store.ErrTxnExpired    // its id is too old to tell the outcome
	ErrTxnFailed     = store.ErrTxnFailed     // one of its writes failed
	ErrSelfCertified = store.ErrSelfCertified // the writer tried to approve its own batch
	ErrReviewed      = store.ErrReviewed      // the batch was already decided the other way
)

// ParseRef reads the text form of a reference. The error matches ErrInvalid and says which part is wrong.
func ParseRef(s string) (Ref, error) { return store.ParseRef(s) }

// ExportOf reads the beginning of an export and returns the id and secret of its database, for Options.Identity of a new one.
func ExportOf(r io.Reader) (store.Info, error) {
	h, err := portable.ReadHeader(r)
	if err != nil {
		return store.Info{}, err
	}
	return h.Identity(), nil
}

// ParseKind reads the name of a kind.
func ParseKind(s string) (Kind, error) { return store.ParseKind(s) }
