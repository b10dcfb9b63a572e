package store

import (
	"github.com/ctxpage/ctxpage/triage"
)

// Why a store leaves a page out of the candidates (Excluded.Reason).
const (
	ReasonExpired    = string(triage.Expired)
	ReasonFloor      = string(triage.BelowFloor)
	ReasonKind       = string(triage.OtherKind)
	ReasonSuperseded = string(triage.Superseded)
	ReasonOther      = "turn of another session"
)

// Why the pipeline leaves a candidate out, as manifests name it. No store gives these.
const (
	ReasonFetchFailed = string(triage.FetchFailed)
	ReasonVanished    = string(triage.Vanished)
	ReasonReadOnly    = string(triage.ReadOnly)
	ReasonNoRoot      = string(triage.NoRoot)
	ReasonNoScheme    = string(triage.NoScheme)
	ReasonDerived     = "dirty: derived from a page that changed"
	ReasonGone        = "gone"
	ReasonDamaged     = "damaged: checksum"
	ReasonBeyond      = string(triage.BeyondTopK)
)
