package store

import (
	"time"

	"github.com/oklog/ulid/v2"
)

// JobKind is a kind of maintenance.
type JobKind uint8

// The jobs.
const (
	JobCheckpoint JobKind = iota
	JobBackup
	JobCheck
	JobGCPlan
	JobGC
	JobErase
	JobCompactPlan
	JobCompact
)

// Job is a request for maintenance.
type Job struct {
	Kind JobKind
	Path string // backup
	GC   *GCJob // gc plan, gc
	// Erase lists what an erase takes.
	Erase *EraseJob
}

// JobReport says what a job did.
type JobReport struct {
	Applied  uint64 // LSN up to which the log is applied
	Rows     int
	Bytes    int64
	Segments int // log segments removed
	Problems []Problem
	GC       GCReport
	Erase    EraseReport
	Compact  CompactReport
}

// Problem is a broken invariant that a check found.
type Problem struct {
	Invariant string `json:"invariant"`
	Where     string `json:"where"`
	What      string `json:"what"`
}

// StoreStats is a snapshot of sizes and counters.
type StoreStats struct {
	ID           string    `json:"id"`
	Format       int       `json:"format"`
	Created      time.Time `json:"created"`
	LSN          uint64    `json:"lsn"`
	Applied      uint64    `json:"applied_lsn"`
	Artefacts    int       `json:"artefacts"`
	Pages        int       `json:"pages"`
	PageVersions int       `json:"page_versions"`
	Scopes       int       `json:"scopes"`
	Held         int       `json:"held"`
	Leaves       uint64    `json:"leaves"`
	Archived     uint64    `json:"leaves_archived"`
	FileBytes    int64     `json:"file_bytes"`
	LogBytes     int64     `json:"log_bytes"`
	ColumnBytes  int64     `json:"column_bytes,omitempty"` // of the snapshot that makes opening fast
	ColumnsRead  bool      `json:"columns_read,omitempty"` // the open used it
	Overlay      int       `json:"unflushed_rows"`
	Checkpoints  uint64    `json:"checkpoints"`
}

// GCJob configures a gc run. KeepVersions does not count deletions. KeepRecords and KeepNames are
// how many tombstones stay, per artefact and in the whole database; a store may keep more.
type GCJob struct {
	KeepVersions int
	KeepFor      time.Duration
	KeepRecords  int
	KeepNames    int
	Expired      bool
	Scope        string // "": all
	By           string
	// Scopes, if not nil, restricts the job to these scopes. Each has its own values in place of
	// KeepFor and KeepVersions.
	Scopes map[string]GCKeep
	// Reviews, if not nil, lists decided held batches to drop. Nothing else is dropped, and batches
	// that still await review are kept.
	Reviews []ulid.ULID
	// Models, if not nil, names the models whose vectors are kept; vectors of other models are
	// dropped. They are derived and can be made again. A job that is restricted to scopes drops
	// none.
	Models []string
	// Why is recorded as the reason in the leaves of the run.
	Why string
}

// GCKeep says what gc keeps in one scope.
type GCKeep struct {
	For      time.Duration
	Versions int
}

// GCReport says what gc dropped, or would drop, and why the rest was kept. After an early end it
// covers what was done.
type GCReport struct {
	DryRun  bool      `json:"dry_run,omitempty"`
	Trace   string    `json:"trace,omitempty"` // of the run; its leaves and every ErrGone name it. Empty if nothing was dropped
	Dropped GCTally   `json:"dropped"`
	Reasons []GCTally `json:"reasons"` // the same by reason: superseded, deleted, expired
	Kept    []GCTally `json:"kept"`    // versions that have ended and were kept, by reason
	Refs    []Ref     `json:"refs"`    // the first 100 dropped versions

	Records int `json:"records"` // tombstones removed, see GCOptions.KeepRecords
	Names   int `json:"names"`   // artefacts that were forgotten, see GCOptions.KeepNames
	Drafts  int `json:"drafts"`  // contexts whose drafts were dropped; replaying one returns ErrGone
	Reviews int `json:"reviews"` // decided held batches that were dropped
	Turns   int `json:"turns"`   // deleted turns whose signals and verdicts were dropped
	Journal int `json:"journal"` // superseded records of passes and directives
	Scopes  int `json:"scopes"`  // names of empty scopes that were removed
	// Vectors counts those that were dropped, see GCOptions.Models.
	Vectors int `json:"vectors,omitempty"`
}

// GCTally counts versions.
type GCTally struct {
	Reason   string `json:"reason,omitempty"`
	Versions int    `json:"versions"`
	Pages    int    `json:"pages"`
	Bytes    int64  `json:"bytes"` // of their texts
	// Nearest lists the kept versions that ended first.
	Nearest []Ref `json:"nearest,omitempty"`
}

// CompactReport says how much space a compaction returned to the disk.
type CompactReport struct {
	DryRun bool  `json:"dry_run,omitempty"`
	Before int64 `json:"before"` // size of the file in bytes
	After  int64 `json:"after"`  // an estimate for a dry run
	Free   int64 `json:"free"`   // bytes of free pages, which later writes would have reused
	// Log counts the bytes of the log that were cut because the file has them; 0 for a dry run.
	Log int64 `json:"log"`
}

// EmbedOptions say which pages get vectors. The zero value takes all scopes.
type EmbedOptions struct {
	// Scope is the one scope whose own pages are taken, without its ancestors; "": all scopes.
	Scope string
	// DryRun counts and makes no vectors of pages. The embedder is asked once, for the length of its vectors.
	DryRun bool
	// Progress, if not nil, is called from the calling goroutine. It must not call the database.
	Progress Progress
}

// EmbedReport says what was made.
type EmbedReport struct {
	Model  string         `json:"model"`
	Scopes []EmbeddedIn   `json:"scopes"` // those that had pages without a vector, by name
	Made   int            `json:"made"`
	Left   int            `json:"left"` // pages without a vector: those that failed, or all of them after a dry run
	Failed []EmbedFailure `json:"failed"`
	DryRun bool           `json:"dry_run,omitempty"`
}

// EmbeddedIn counts the vectors made in one scope.
type EmbeddedIn struct {
	Scope string `json:"scope"`
	Pages int    `json:"pages"` // without a vector, before
	Made  int    `json:"made"`
}

// EmbedFailure is a page whose vector could not be made.
type EmbedFailure struct {
	Ref Ref    `json:"ref"`
	Err string `json:"error"`
}

// Embedding is the progress of the vectors made in the background.
type Embedding struct {
	Model   string `json:"model"`
	Running bool   `json:"running,omitempty"`
	Made    int    `json:"made"`            // since the database was opened, in the background and ahead of questions
	Left    int    `json:"left"`            // pages without a vector that the last question saw
	Failure string `json:"error,omitempty"` // why the work in the background stopped; the next question starts it again
}
