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
