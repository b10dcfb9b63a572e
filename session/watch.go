package session

import "time"

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
