package store

import (
	"time"
)

// Validator identifies the state of a source.
type Validator struct {
	Stamp string    `json:"stamp,omitempty"` // cheap: size and mtime, ETag, version
	Hash  uint64    `json:"hash,omitempty"`  // xxhash64 of the content; 0 unknown. Fast, not cryptographic
	At    time.Time `json:"at,omitzero"`     // when it was taken
}
