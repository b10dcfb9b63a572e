package store

import (
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
)

// GCJob is what gc needs to know. Times are in microseconds.
type GCJob struct {
	KeepVersions int
	KeepFor      time.Duration
	KeepRecords  int
	KeepNames    int
	Expired      bool
	Scope        string // "": all
	By           string
	// InUse says whether a reader in flight may read a version, with these pages, that a commit ended, or that expired at
	// a time (lsn 0). It is called under no lock.
	InUse func(lsn uint64, expired int64, nums []uint64) bool
}

// DefaultKeepRecords is for each artefact.
const DefaultKeepRecords = 4

// DefaultKeepNames is for the whole database.
const DefaultKeepNames = 1024

// GCReport says what gc dropped, or would drop, and what kept the rest. When gc ended early it says how far it came.
type GCReport struct {
	DryRun  bool      `json:"dry_run,omitempty"`
	Trace   string    `json:"trace,omitempty"` // of the run: its leaves and every ErrGone name it; empty when nothing was dropped
	Dropped GCTally   `json:"dropped"`
	Reasons []GCTally `json:"reasons"` // the same by reason: superseded, deleted, expired
	Kept    []GCTally `json:"kept"`    // versions that have ended and stay, by what keeps them
	Refs    []Ref     `json:"refs"`    // of what was dropped, the first 100

	Records int `json:"records"` // rows of versions dropped before that went, see GCOptions.KeepRecords
	Names   int `json:"names"`   // artefacts that were forgotten, see GCOptions.KeepNames
	Drafts  int `json:"drafts"`  // contexts whose drafts were dropped: replaying one is ErrGone
	Reviews int `json:"reviews"` // held batches that were decided, and dropped
	Turns   int `json:"turns"`   // deleted turns of which a session kept signals and verdicts
}

// GCTally counts versions.
type GCTally struct {
	Reason   string `json:"reason,omitempty"`
	Versions int    `json:"versions"`
	Pages    int    `json:"pages"`
	Bytes    int64  `json:"bytes"` // of their texts
	// Nearest are those of what stays that ended first.
	Nearest []Ref `json:"nearest,omitempty"`
}

const GoneSuperseded = "superseded"

const GoneDeleted = "deleted"

const GoneExpired = "expired"

const KeptNewest = "among the newest versions"

const KeptYoung = "ended too lately"

const KeptExpired = "expired, which was not asked for"

const KeptHeld = "named by a held batch"

const KeptParent = "a live artefact is derived from it"

const KeptSource = "the source of a live artefact"

const KeptSession = "named by a session"

const KeptInUse = "in use by a transaction or a read"

const KeptShared = "its pages are needed for a version that stays"

const KeptChanged = "its artefact was written to meanwhile"

// GoneError says which version is gone, by which run of gc, and when. page 0: the whole artefact was asked for.
func GoneError(h *Head, page int) error {
	ref := Ref{Scope: h.Scope, ID: h.ID, Page: page, Version: h.Version}
	when := ""
	if id, err := ulid.ParseStrict(h.GoneBy); err == nil {
		when = " at " + ulid.Time(id.Time()).UTC().Format(time.RFC3339)
	}
	return fmt.Errorf("%w: %s, dropped by gc %s%s", ErrGone, ref, h.GoneBy, when)
}
