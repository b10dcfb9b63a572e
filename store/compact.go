package store

// CompactReport says how much space a compaction returned to the disk.
type CompactReport struct {
	DryRun bool  `json:"dry_run,omitempty"`
	Before int64 `json:"before"` // size of the file in bytes
	After  int64 `json:"after"`  // an estimate for a dry run
	Free   int64 `json:"free"`   // bytes of free pages, which later writes would have reused
	// Log counts the bytes of the log that were cut because the file has them; 0 for a dry run.
	Log int64 `json:"log"`
}
