package store

import (
	"github.com/ctxpage/ctxpage/triage"
)

const ReasonExpired = string(triage.Expired)

const ReasonFloor = string(triage.BelowFloor)

const ReasonKind = string(triage.OtherKind)

const ReasonSuperseded = string(triage.Superseded)

const ReasonOther = "turn of another session"

const ReasonFetchFailed = string(triage.FetchFailed)

const ReasonVanished = string(triage.Vanished)

const ReasonReadOnly = string(triage.ReadOnly)

const ReasonNoRoot = string(triage.NoRoot)

const ReasonNoScheme = string(triage.NoScheme)

const ReasonDerived = "dirty: derived from a page that changed"

const ReasonGone = "gone"

const ReasonDamaged = "damaged: checksum"

const ReasonBeyond = string(triage.BeyondTopK)
