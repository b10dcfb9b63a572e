package ctxpage

import (
	"github.com/ctxpage/ctxpage/store"
)

// The names of package store that a user of the library writes.

type (
	Action         = store.Action
	Artefact       = store.Artefact
	Audit          = store.Audit
	Batch          = store.Batch
	Candidate      = store.Candidate
	CandidateQuery = store.CandidateQuery
	Candidates     = store.Candidates
	ConflictError  = store.ConflictError
	CorruptError   = store.CorruptError
	Durability     = store.Durability
	Excluded       = store.Excluded
	FileRootError  = store.FileRootError
	GCJob          = store.GCJob
	GCReport       = store.GCReport
	GCTally        = store.GCTally
	Head           = store.Head
	HeldBatch      = store.HeldBatch
	HeldError      = store.HeldError
	Info           = store.Info
	InvalidError   = store.InvalidError
	Job            = store.Job
	JobKind        = store.JobKind
	JobReport      = store.JobReport
	Kind           = store.Kind
	Loaded         = store.Loaded
	Located        = store.Located
	LockedError    = store.LockedError
	NoSpaceError   = store.NoSpaceError
	NewPage        = store.NewPage
	OnStale        = store.OnStale
	Outcome        = store.Outcome
	PageKey        = store.PageKey
	PageRow        = store.PageRow
	Part           = store.Part
	Precondition   = store.Precondition
	Priority       = store.Priority
	Problem        = store.Problem
	Progress       = store.Progress
	Provenance     = store.Provenance
	Put            = store.Put
	Ref            = store.Ref
	ScanKind       = store.ScanKind
	ScanPage       = store.ScanPage
	ScanQuery      = store.ScanQuery
	ScopeInfo      = store.ScopeInfo
	Scopes         = store.Scopes
	Seen           = store.Seen
	StateKind      = store.StateKind
	StateRow       = store.StateRow
	StateUnit      = store.StateUnit
	Status         = store.Status
	Store          = store.Store
	StoreStats     = store.StoreStats
	ToolCall       = store.ToolCall
	Validator      = store.Validator
	Want           = store.Want
)

const (
	ActApply           = store.ActApply
	ActApprove         = store.ActApprove
	ActHold            = store.ActHold
	ActReject          = store.ActReject
	AllowStale         = store.AllowStale
	Chunk              = store.Chunk
	DefaultKeepNames   = store.DefaultKeepNames
	DefaultKeepRecords = store.DefaultKeepRecords
	FailStale          = store.FailStale
	HoldStale          = store.HoldStale
	HumanVerified      = store.HumanVerified
	JobBackup          = store.JobBackup
	JobCheck           = store.JobCheck
	JobCheckpoint      = store.JobCheckpoint
	JobGC              = store.JobGC
	JobGCPlan          = store.JobGCPlan
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
	ScanArtefacts      = store.ScanArtefacts
	ScanGroup          = store.ScanGroup
	ScanHeld           = store.ScanHeld
	ScanHistory        = store.ScanHistory
	ScanMembers        = store.ScanMembers
	ScanScopes         = store.ScanScopes
	ScanSourced        = store.ScanSourced
	ScanState          = store.ScanState
	ScanSummaries      = store.ScanSummaries
	Scratch            = store.Scratch
	StatusApplied      = store.StatusApplied
	StatusHeld         = store.StatusHeld
	StatusRejected     = store.StatusRejected
	Synced             = store.Synced
	Tool               = store.Tool
	Validated          = store.Validated
	WantHead           = store.WantHead
	WantText           = store.WantText
	Written            = store.Written
)

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
