package session

import "time"

// PPM is a share in parts per million: 150,000 is 15 %. Shares are integers
// because 0.15*x is off by one at the edges.
type PPM int64

// Priority is how much a section matters. The zero value is Medium.
type Priority int8

// The priorities, from least to most.
const (
	Low      Priority = -1
	Medium   Priority = 0
	High     Priority = 1
	Critical Priority = 2
)

// Level is how far a section is compacted.
type Level uint8

// The levels, each one step further than the one before.
const (
	Raw Level = iota
	Trimmed
	Summary
	Stub
	Cold // out of the working set
	levels
)

// RecencyModel is how age lowers a score.
type RecencyModel uint8

// The recency models.
const (
	Exp24    RecencyModel = iota // exp(-age/24 h), the written formula
	HalfLife                     // 2^(-age/half-life)
)

// Section is one item of the window as the watcher sees it: metadata only.
type Section struct {
	ID       string
	Kind     string
	Role     Role
	Priority Priority
	// Relevance is task specific, 0..1; Rated says that it was given.
	Relevance float64
	Rated     bool
	At        time.Time // when this was current; zero: unknown
	Turn      int64
	Level     Level
	Sizes     [levels]int // tokens at each level; -1: this level does not exist
	Pinned    bool
	Traits    Traits
	Signals   Signals
}

// State is the window: the sections in their order, and the configuration.
type State struct {
	Generation uint64 // changes with every write
	Turn       int64  // newest turn
	Pass       uint64 // number of the last pass
	Config     Config
	Sections   []Section
}
