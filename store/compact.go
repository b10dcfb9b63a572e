package store

// CompactReport says what a compaction gives back to the disk.
type CompactReport struct {
	DryRun bool  `json:"dry_run,omitempty"`
	Before int64 `json:"before"` // bytes of the file
	After  int64 `json:"after"`  // of a dry run: about
	Free   int64 `json:"free"`   // bytes of pages that nothing used, and that later writes would have used
	// Log is how many bytes of the log were cut because the file has them; of a dry run: 0.
	Log int64 `json:"log"`
}
