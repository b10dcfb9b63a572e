package ctxpage

import (
	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/store"
)

// The names of package store that a user of the library writes; their contracts stand there.

type (
	Artefact      = store.Artefact      // what a caller puts; stored as one or more pages
	Part          = store.Part          // one part of a message that is not only text
	ToolCall      = store.ToolCall      // a call that an assistant message makes
	Ref           = store.Ref           // names an artefact, a page of it, or a version of either
	Kind          = store.Kind          // what an artefact is: gives the defaults of class, provenance and priority
	Provenance    = store.Provenance    // an order of trust: who wrote an artefact
	Priority      = store.Priority      // what the watcher protects first
	Outcome       = store.Outcome       // how a batch ended
	OnStale       = store.OnStale       // what a commit does when the context it was written from has changed
	Store         = store.Store         // the place where pages live (Options.Store)
	ConflictError = store.ConflictError // names the artefact that has a newer version
	CorruptError  = store.CorruptError  // says where a file is damaged
	HeldError     = store.HeldError     // names the batch that waits for review
	InvalidError  = store.InvalidError  // names the input that broke a rule, and the rule
	LockedError   = store.LockedError   // says who has the file
	NoSpaceError  = store.NoSpaceError  // says how much space is missing
)

const (
	AllowStale         = store.AllowStale
	Chunk              = store.Chunk
	FailStale          = store.FailStale
	HoldStale          = store.HoldStale
	HumanVerified      = store.HumanVerified
	KindAuto           = store.KindAuto
	KindChunk          = store.KindChunk
	KindFact           = store.KindFact
	KindMessage        = store.KindMessage
	KindScratch        = store.KindScratch
	KindSummary        = store.KindSummary
	KindSystem         = store.KindSystem
	KindTool           = store.KindTool
	MaxID              = store.MaxID
	MaxLineage         = store.MaxLineage
	MaxMeta            = store.MaxMeta
	MaxNote            = store.MaxNote
	MaxPageTokens      = store.MaxPageTokens
	MaxParts           = store.MaxParts
	MaxScope           = store.MaxScope
	MaxScopeDepth      = store.MaxScopeDepth
	MaxSource          = store.MaxSource
	MaxTags            = store.MaxTags
	MaxText            = store.MaxText
	MaxToolBytes       = store.MaxToolBytes
	MaxToolCalls       = store.MaxToolCalls
	MaxTxnBytes        = store.MaxTxnBytes
	MaxTxnWrites       = store.MaxTxnWrites
	PageTokens         = store.PageTokens
	PriorityAuto       = store.PriorityAuto
	PriorityCritical   = store.PriorityCritical
	PriorityHigh       = store.PriorityHigh
	PriorityLow        = store.PriorityLow
	PriorityMedium     = store.PriorityMedium
	ReasonStaleContext = store.ReasonStaleContext
	Scratch            = store.Scratch
	Tool               = store.Tool
	Validated          = store.Validated
)

// FormatVersion is the version of the file format that this program writes.
const FormatVersion = filestore.FormatVersion

var (
	ErrBudget         = store.ErrBudget
	ErrClosed         = store.ErrClosed
	ErrConflict       = store.ErrConflict
	ErrCorrupt        = store.ErrCorrupt
	ErrDirty          = store.ErrDirty
	ErrExpired        = store.ErrExpired
	ErrFileRoot       = store.ErrFileRoot
	ErrGated          = store.ErrGated
	ErrGone           = store.ErrGone
	ErrHeld           = store.ErrHeld
	ErrInvalid        = store.ErrInvalid
	ErrLocked         = store.ErrLocked
	ErrNewerFormat    = store.ErrNewerFormat
	ErrMisfit         = store.ErrMisfit
	ErrNoSpace        = store.ErrNoSpace
	ErrNotDatabase    = store.ErrNotDatabase
	ErrNotExist       = store.ErrNotExist
	ErrNotFound       = store.ErrNotFound
	ErrOutcomeUnknown = store.ErrOutcomeUnknown
	ErrProvenance     = store.ErrProvenance
	ErrReadOnly       = store.ErrReadOnly
	ErrReviewed       = store.ErrReviewed
	ErrSelfCertified  = store.ErrSelfCertified
	ErrStaleContext   = store.ErrStaleContext
	ErrTxnDone        = store.ErrTxnDone
	ErrTxnExpired     = store.ErrTxnExpired
	ErrTxnFailed      = store.ErrTxnFailed
	ErrVanished       = store.ErrVanished
)

// ParseRef reads the text form of a reference. The error matches ErrInvalid and says which part is wrong.
func ParseRef(s string) (Ref, error) { return store.ParseRef(s) }

// ParseKind reads the name of a kind.
func ParseKind(s string) (Kind, error) { return store.ParseKind(s) }
