package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage/internal/prose"
)

// Action is a decision of a pass about a turn.
type Action uint8

// The three actions, in the order of the summary line.
const (
	Retain Action = iota // whole in the window
	Page                 // a stub in the window, the text one recall away
	Evict                // out of the window, still recallable
)

var actionNames = [3]string{"retain", "page", "evict"}

func (a Action) String() string { return actionNames[a] }

// Params are the weights, the cuts and the guards of a pass. CompatParams and RecommendedParams are the two presets.
type Params struct {
	Alpha, Beta         float64 // weights of similarity and recency
	RetainCut, EvictCut float64 // R ≥ RetainCut retains, R < EvictCut evicts
	KeepLast            int     // the newest blocks, always retained
	UserFloor           bool    // user turns are never below page, the newest one is retained
	MinEvictAge         int64   // turns a block must be behind the head to be evicted
	ClampFuture         bool    // a block newer than the head counts as being at the head
}

// CompatParams are the defaults of the reference pager, without guards.
func CompatParams() Params { return Params{Alpha: 0.7, Beta: 0.3, RetainCut: 0.55, EvictCut: 0.20} }

// RecommendedParams have lower cuts, and the guards on.
func RecommendedParams() Params {
	return Params{Alpha: 0.7, Beta: 0.3, RetainCut: 0.30, EvictCut: 0.10, KeepLast: 6, UserFloor: true}
}

// Verdict is the decision of a pass on one turn, and why.
type Verdict struct {
	Index      int
	ID         string
	Action     Action
	Reason     string  // "score", or the guard that raised the action
	R          float64 // the score, unrounded
	Similarity float64
	Recency    float64
	Hits       int   // keywords found in the turn
	Delta      int64 // turns behind the head
}

// StoredPass is the outcome of a pass: its verdicts, in the order of the turns. Equal keys mean equal verdicts.
type StoredPass struct {
	Number   uint64 // 0: a dry run
	At       time.Time
	Key      string // of history, intent and parameters; 16 hexadecimal digits
	Repeated bool   // the key is the key of the pass in force: nothing was written
	Keywords int    // of the intent
	Params   Params
	Verdicts []Verdict
	Count    [3]int // turns by Action
	Tokens   [3]int // tokens by Action
}

// Explain states a verdict of the pass in one sentence. Equal verdicts have equal sentences.
func (p *StoredPass) Explain(v Verdict) string {
	short := prose.Short
	why := fmt.Sprintf("%s: R %s = %s × similarity %s (%d of %d keywords) + %s × recency %s (%d turns behind); retain from %s, evict below %s",
		v.Action, short(v.R), short(p.Params.Alpha), short(v.Similarity), v.Hits, p.Keywords, short(p.Params.Beta), short(v.Recency), v.Delta,
		short(p.Params.RetainCut), short(p.Params.EvictCut))
	if v.Reason != "score" {
		why += "; raised by guard: " + v.Reason
	}
	return why
}

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

// IntentIR is an intent as the prompt compiler writes it (schema prosecode.intent.v0), without the members that are not
// used here.
type IntentIR struct {
	Schema     string         `json:"schema,omitempty"`
	Verb       string         `json:"verb"`
	Slots      map[string]any `json:"slots"`
	Gaps       []any          `json:"gaps,omitempty"`
	AmberFlags []any          `json:"amber_flags,omitempty"`
	Secondary  []any          `json:"secondary_intents,omitempty"`
}

// ParseIntentIR reads an intent IR object. It refuses an object with neither verb nor slots, so that no other object is
// taken for an intent.
func ParseIntentIR(raw []byte) (IntentIR, error) {
	var ir IntentIR
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&ir); err != nil {
		return ir, fmt.Errorf("session: intent: expected keywords or an intent IR object: %w", err)
	}
	if ir.Verb == "" && ir.Slots == nil {
		return ir, errors.New("session: intent: expected an object with \"verb\" or \"slots\"")
	}
	return ir, nil
}

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

// WatchStats is a snapshot of a watcher.
type WatchStats struct {
	Limits   Thresholds `json:"limits"`
	Phase    string     `json:"phase"` // idle, warned, compacting or blocked
	Counters Counters   `json:"counters"`
	Actual   int        `json:"actual"`
	Analysis Analysis   `json:"analysis"`
	Dropped  int64      `json:"dropped_events"`
	Holder   string     `json:"holder,omitempty"` // the process that was asked to run it; "": the owner
	Running  bool       `json:"running"`          // in this process
}

// Row is one line of a token analysis.
type Row struct {
	Name   string `json:"name"`
	Items  int    `json:"items"`
	Tokens int    `json:"tokens"`
	Share  PPM    `json:"share_ppm"`             // of the window
	Cap    int    `json:"cap_tokens,omitempty"`  // 0: none
	Over   int    `json:"over_tokens,omitempty"` // above the cap
}

// Analysis counts the tokens of a window. Kinds are sorted alphabetically, priorities from critical
// to low.
type Analysis struct {
	Tokens     int   `json:"tokens"`
	Items      int   `json:"items"`
	Protected  int   `json:"protected_tokens"`
	ByKind     []Row `json:"by_kind"`
	ByPriority []Row `json:"by_priority"`
}

// PlanItem is one step of a plan: a section moves from one level to another.
type PlanItem struct {
	Index      int     `json:"index"` // place in the window
	ID         string  `json:"id"`
	Kind       string  `json:"kind"`
	Priority   string  `json:"priority"`
	Score      float64 `json:"score"`
	Reason     string  `json:"reason"`
	From       Level   `json:"from"`
	To         Level   `json:"to"`
	Before     int     `json:"tokens_before"`
	After      int     `json:"tokens_after"`
	Cumulative int     `json:"freed_so_far"`
}

// Plan lists what a pass would do and what it would leave. It is valid for one generation of the state. Equal states at
// equal times have equal plans.
type Plan struct {
	Generation   uint64       `json:"generation"`
	Pass         uint64       `json:"pass"`
	At           time.Time    `json:"at"`
	Recency      RecencyModel `json:"recency_model"`
	Backstop     bool         `json:"backstop"`
	Thresholds   Thresholds   `json:"thresholds"`
	Actual       int          `json:"actual"`
	Predicted    int          `json:"predicted"`
	Freed        int          `json:"freed"`
	Headroom     PPM          `json:"predicted_headroom_ppm"`
	FirstChanged int          `json:"first_changed_index"` // -1: nothing changes; from here on a prompt cache is lost
	Blocked      string       `json:"blocked,omitempty"`   // why the plan is not worth applying; empty: it is
	Items        []PlanItem   `json:"items"`
	Analysis     Analysis     `json:"analysis"`
}

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	EventWarn       EventKind = "warn"
	EventPlanned    EventKind = "planned"
	EventApplied    EventKind = "applied"
	EventBlocked    EventKind = "blocked"
	EventUndone     EventKind = "undone"
	EventHeadroomOK EventKind = "headroom_ok"
)

// Event is one thing that happened; each fires once per crossing.
type Event struct {
	Seq      uint64    `json:"seq"`
	At       time.Time `json:"time"`
	Kind     EventKind `json:"kind"`
	Pass     uint64    `json:"pass"`
	Actual   int       `json:"actual"`
	Usable   int       `json:"usable"`
	Total    int       `json:"total"`
	Headroom PPM       `json:"headroom_ppm"`
	Freed    int       `json:"freed"`
	Items    int       `json:"items"`
	Reason   string    `json:"reason,omitempty"`
}

// Counters count events since the machine was made.
type Counters struct {
	Warnings int `json:"warnings"`
	Plans    int `json:"plans"`
	Passes   int `json:"passes"`
	Freed    int `json:"freed"`
	Blocked  int `json:"blocked"`
	Undone   int `json:"undone"`
	Expanded int `json:"expanded"` // sections fetched back after a pass: regret
}
