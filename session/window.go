package session

import "time"

// Window is the window of a session as it stands.
type Window struct {
	Session string `json:"session"`
	LSN     uint64 `json:"lsn"`
	Pass    uint64 `json:"pass"`     // number of the last pass, 0: none
	InForce uint64 `json:"in_force"` // the pass whose verdicts hold, 0: none
	Tokens  int    `json:"tokens"`   // of all turns as they are shown
	Stored  int    `json:"stored"`   // of all turns whole
	// Limits of the window; nil if none was set.
	Limits *Thresholds  `json:"limits,omitempty"`
	Turns  []WindowTurn `json:"turns"`
}

// WindowTurn is one turn and how the window shows it.
type WindowTurn struct {
	ID      string `json:"id"` // Recall and Pin take it
	Version uint32 `json:"version"`
	Seq     int64  `json:"seq"`
	Role    string `json:"role,omitempty"`
	Kind    string `json:"kind"` // of the artefact
	Level   Level  `json:"level"`
	Tokens  int    `json:"tokens"` // as it is shown
	Stored  int    `json:"stored"` // whole
	Pinned  bool   `json:"pinned,omitempty"`
	Verdict string `json:"verdict,omitempty"` // of the pass in force; empty: none has judged it
	Why     string `json:"why,omitempty"`     // why it is not whole
	Trace   string `json:"trace,omitempty"`   // of the assembly that it was written from
}

// Inspection is a session as it stands: its window, the pass in force, the notes, and explanations of the turns that
// were asked for.
type Inspection struct {
	Window
	Force *StoredPass       // nil: no pass is in force
	Notes Notes             // recorded last
	Turn  map[string]string // why the window shows a turn as it does, by its id
}

// Notes are records of a host beside the turns of a session, for contracts and handoffs. Nothing judges them.
type Notes struct {
	Goal       string         `json:"goal,omitempty"`
	State      string         `json:"state,omitempty"`
	Status     string         `json:"status,omitempty"` // of the intent
	Claims     []BasisItem    `json:"claims,omitempty"`
	Questions  []QuestionItem `json:"questions,omitempty"`
	Done       []string       `json:"done,omitempty"`
	Open       []string       `json:"open,omitempty"`
	Boundaries []BoundaryItem `json:"boundaries,omitempty"`
	Next       string         `json:"next,omitempty"`
	Text       string         `json:"text,omitempty"`
}

// Level is the degree to which a section is compacted. The content of lower levels is kept, so a section can always go back.
type Level uint8

// The levels, each one step further.
const (
	Raw     Level = iota // as it came
	Trimmed              // repeated and log lines dropped
	Summary              // the host's summary, or an extract
	Stub                 // id, digest, tokens, title
	Cold                 // out of the working set: no tokens
)

var levelNames = [...]string{"raw", "trimmed", "summary", "stub", "cold"}

func (l Level) String() string { return levelNames[l] }

// MarshalText is String.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Signals are facts about a section that the host or the database knows. Zero means not known; the detector then stays
// silent.
type Signals struct {
	Digest      uint64    // hash of the content
	Source      string    // key of the source it shows
	Version     uint64    // version of that source
	Stale       bool      // the source changed on disk since
	Call        string    // key of the call it is the result of
	Failed      bool      // that call failed
	Refetchable bool      // asking the tool again returns it
	Finding     bool      // what this log showed is recorded elsewhere
	Closed      bool      // belongs to a finished sub-task
	Keep        bool      // a correction or a decision: never touched
	ExpiresAt   time.Time // zero: never
	LastRead    int64     // turn of the last read according to the manifests; 0: not known
}
