package session

import "time"

// What a database says of the sessions that it keeps: plain data, made by its session handle.

// The kinds of passes, as PassInfo.Kind and the audit name them.
const (
	PassPager    = "pager"    // Pass decided what stays in the window
	PassWatcher  = "watcher"  // the watcher compacted ahead of need
	PassBackstop = "backstop" // a commit made the room it needed
)

// PassQuery asks for a pass over a stored session.
type PassQuery struct {
	// Keywords say what the conversation is about now, as words or whole sentences; IR says the same as an intent IR
	// object, and then Keywords are added to it.
	Keywords []string
	IR       *IntentIR
	// Params: zero takes RecommendedParams; CompatParams are the reference's defaults.
	Params Params
	// Head is the turn that counts as now; 0: the newest.
	Head int64
	// DryRun decides and writes nothing; the pass has no number then.
	DryRun bool
}

// Intent returns the intent of the query.
func (q PassQuery) Intent() Intent {
	if q.IR == nil {
		return NewIntent(q.Keywords...)
	}
	return NewIntent(append(q.IR.Intent().Words(), q.Keywords...)...)
}

// StoredPass is the outcome of a pass that a session keeps: its number, and the verdicts in the order of the turns. The
// number of a dry run is 0.
type StoredPass struct {
	Result
	Number uint64
	At     time.Time
}

// PassInfo is the record of one pass.
type PassInfo struct {
	Number   uint64    `json:"number"`
	Kind     string    `json:"kind"` // PassPager, PassWatcher or PassBackstop
	At       time.Time `json:"at"`
	Actor    string    `json:"actor"`
	Keywords []string  `json:"keywords,omitempty"`
	Retained int       `json:"retained"` // turns by verdict, of the pager
	Paged    int       `json:"paged"`
	Evicted  int       `json:"evicted"`
	Items    int       `json:"items"` // units compacted, of the watcher and the backstop
	Freed    int       `json:"freed"` // tokens freed by them
	Undone   bool      `json:"undone,omitempty"`
}

// Window is what a session currently shows.
type Window struct {
	Session string `json:"session"`
	LSN     uint64 `json:"lsn"`
	Pass    uint64 `json:"pass"`     // number of the last pass, 0: none
	InForce uint64 `json:"in_force"` // the pass whose verdicts hold, 0: none
	Tokens  int    `json:"tokens"`   // of all turns as they are shown
	Stored  int    `json:"stored"`   // of all turns whole
	// Limits are those of the window that was set, nil without one.
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

// WatchStats is a snapshot of a watcher.
type WatchStats struct {
	Limits   Thresholds `json:"limits"`
	Phase    Phase      `json:"phase"`
	Counters Counters   `json:"counters"`
	Actual   int        `json:"actual"`
	Analysis Analysis   `json:"analysis"`
	Dropped  int64      `json:"dropped_events"`
	Holder   string     `json:"holder,omitempty"` // the process that was asked to run it; "": the owner
	Running  bool       `json:"running"`          // in this process
}

// Notes are what a host records of a session besides its turns, for contracts and handoffs. They are not judged.
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
