package store

import (
	"github.com/ctxpage/ctxpage/internal/triage"
)

// Why a store leaves a page out of the candidates (Excluded.Reason). The pipeline has reasons of
// its own for pages that it leaves out later.
const (
	ReasonExpired    = string(triage.Expired)
	ReasonFloor      = string(triage.BelowFloor)
	ReasonKind       = string(triage.OtherKind)
	ReasonSuperseded = string(triage.Superseded)
	ReasonOther      = "turn of another session"
	ReasonGone       = "gone"              // gc dropped the text of a page that was current as of the LSN asked for
	ReasonDamaged    = "damaged: checksum" // its words, or its row, cannot be read
	// ReasonFilter: the filter of the question excludes it. Such pages are counted and not named:
	// they were not asked for.
	ReasonFilter = "excluded by the filter"
)
