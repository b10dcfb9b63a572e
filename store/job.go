package store

import (
	"time"
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
