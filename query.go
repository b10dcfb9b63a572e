package ctxpage

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ctxpage/ctxpage/budget"
	"github.com/ctxpage/ctxpage/internal/shown"
	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/internal/vectors"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// Defaults and limits of a query.
const (
	DefaultTopK = 50
	MaxTopK     = 2000
	recentTail  = 10            // newest pages that are always candidates
	recentShare = .10           // of the budget, tried for them first
	newestTurns = .50           // the same for the turns of a window that no pass has judged, less what the newest one takes
	foundShare  = .25           // of the budget, tried next for what the question found beside the window of a session
	namedLeft   = talk.MaxNamed // left-out pages named per reason, beside the winners, which all are
)

// Query asks for a context.
type Query struct {
	// Text is the question; it finds pages and is not itself part of the context.
	Text string
	// Budget is how many tokens the context may take, by Options.Counter; Reserve of them are kept free. 0 in a session
	// that has a window: the usable part of that, which its turns and what the question finds share.
	Budget  int
	Reserve int
	// TopK bounds the pages that may win a place; 0: 50, and one for every 32 tokens of a large budget. Pinned and
	// system pages come on top.
	TopK int
	// Kinds restricts what may enter; empty: all but scratch, which Floor keeps out. Directives enter always.
	Kinds []Kind
	// Floor is the lowest provenance that may enter; 0: Tool, which keeps drafts and notes out.
	Floor Provenance
	// Session is the conversation that asks: its turns enter whatever their provenance, as its window shows them. What
	// a pass retained is whole, what it paged is a stub, what it evicted is left out and counted; the newest turn comes
	// last. Where the window is larger than the budget, half of that goes to its newest turns first, and a quarter is tried
	// for what the question found. ErrNotFound where the scope itself has no such session: append the turn first. Before a
	// session has had a pass, a window or a pin, and with AsOf, its turns compete as other pages do.
	Session string
	// Vector is the vector of the question, by the model of Options.Embedder, for hosts that have it already; nil: the
	// embedder is asked, if there is one and Text is not empty.
	Vector []float32
	// Preset weighs recency, provenance and relevance; "": "default". "START" is the published two-pass form.
	Preset string
	// Overflow is what happens when not all winners fit: budget.Fill (default) or budget.Ladder.
	Overflow budget.Overflow
	// Check says when sources are probed; ServeStale serves what is dirty and cannot be fetched, marked as stale.
	Check      CheckPolicy
	ServeStale bool
	// AsOf assembles from the past, as of an LSN; sources are then not probed. 0: now. One beyond the newest commit is an
	// *InvalidError: what will stand there is not known yet, so the context could not be made again.
	AsOf uint64
	// Charge says what a page costs: what it takes as rendered text, header and fence included (default), or its
	// contents alone, for hosts that render the blocks themselves.
	Charge Charge
	// Trace names the assembly in the manifest: a ULID that names nothing there yet. "": a new one.
	Trace string
}

// Charge is what the budget is charged for.
type Charge uint8

// The charges.
const (
	ChargeRendered Charge = iota
	ChargeContents
)

// Assembly is a context ready for a model.
type Assembly struct {
	Trace  string      `json:"trace"`
	LSN    uint64      `json:"lsn"`
	Tier   budget.Tier `json:"tier"`
	Tokens int         `json:"tokens"`
	Limit  int         `json:"limit"`
	// Review: not even what is protected fitted; a person should look.
	Review bool      `json:"review,omitempty"`
	Blocks []Block   `json:"blocks"`
	Left   []LeftOut `json:"left,omitempty"`
	// Degraded says why relevance was judged by words alone although there is an embedder.
	Degraded string `json:"degraded,omitempty"`
	// Manifest is the leaf that was written.
	Manifest *manifest.Record `json:"manifest"`
	seed     string
	session  string
	shown    []shown.Page
	text     string
}

// Block is one page of a context, in the order of the context.
type Block struct {
	Ref    Ref           `json:"ref"`
	Num    uint64        `json:"num"`
	Form   manifest.Form `json:"form"`
	Tokens int           `json:"tokens"`
	Score  float64       `json:"score"`
	Text   string        `json:"text"`
	Stale  bool          `json:"stale,omitempty"`

	Kind       Kind              `json:"kind"`
	Provenance Provenance        `json:"provenance"`
	Role       string            `json:"role,omitempty"`
	Name       string            `json:"name,omitempty"`
	Source     string            `json:"source,omitempty"`
	AsOf       time.Time         `json:"as_of"`
	Meta       map[string]string `json:"meta,omitempty"`
}

// LeftOut is a page that was considered and is not in the context, and why.
type LeftOut struct {
	Ref    Ref     `json:"ref"`
	Reason string  `json:"reason"`
	Score  float64 `json:"score"`
	// DuplicateOf is the page that was chosen and says the same, where Reason says so.
	DuplicateOf Ref `json:"duplicate_of,omitzero"`
	// Err is what went wrong when its source was checked or fetched, such as a *FileRootError; nil for other reasons.
	Err error `json:"-"`
}

// Text is the context as plain text: a header and a fence for each page. The same assembly always gives the same bytes.
func (a *Assembly) Text() string { return a.text }

// Messages is the context as neutral messages, for render.OpenAI, render.Anthropic and render.Gemini.
func (a *Assembly) Messages() []render.Message {
	return render.Messages(a.seed, shown.Pages(nil, a.shown, a.session))
}

func (q Query) withDefaults() (Query, error) {
	if q.TopK == 0 {
		// 50 short pages leave a large budget empty: on conversations recall at 8k tokens falls from .958 to .907.
		q.TopK = min(max(DefaultTopK, q.Budget/32), MaxTopK)
	}
	if q.Floor == 0 {
		q.Floor = Tool
	}
	if q.Preset == "" {
		q.Preset = "default"
	}
	var errs []error
	bad := func(field, got, exp string) { errs = append(errs, store.Invalid(field, got, exp)) }
	if q.Budget <= 0 {
		bad("budget", strconv.Itoa(q.Budget), "a number of tokens above 0, or none in a session that has a window")
	}
	if q.Reserve < 0 || q.Budget > 0 && q.Reserve >= q.Budget {
		bad("reserve", strconv.Itoa(q.Reserve), "0 or more, below the budget")
	}
	if q.TopK < 0 || q.TopK > MaxTopK {
		bad("top_k", strconv.Itoa(q.TopK), "1 to "+strconv.Itoa(MaxTopK))
	}
	if len(q.Text) > store.MaxQueryText {
		bad("text", strconv.Itoa(len(q.Text))+" bytes", "at most "+strconv.Itoa(store.MaxQueryText))
	}
	if len(q.Vector) > vectors.MaxNumbers || !store.Finite(q.Vector) {
		bad("vector", strconv.Itoa(len(q.Vector))+" numbers", "finite numbers, at most "+strconv.Itoa(vectors.MaxNumbers))
	}
	if !q.Floor.Valid() {
		bad("floor", strconv.Itoa(int(q.Floor)), "a provenance")
	}
	if q.Charge > ChargeContents {
		bad("charge", strconv.Itoa(int(q.Charge)), "rendered or contents")
	}
	if slices.ContainsFunc(q.Kinds, func(k Kind) bool { return k == KindAuto || int(k) >= len(store.KindNames) }) {
		bad("kinds", fmt.Sprint(q.Kinds), "kinds such as fact or chunk")
	}
	if q.Overflow != budget.Fill && q.Overflow != budget.Ladder {
		bad("overflow", strconv.Itoa(int(q.Overflow)), "fill or ladder")
	}
	if q.Trace != "" {
		id, err := parseBatchID(q.Trace)
		if err != nil {
			bad("trace", strconv.Quote(q.Trace), "a ULID, or nothing")
		}
		q.Trace = id.String() // in one spelling
	}
	return q, errors.Join(errs...)
}

// CheckPolicy says when a read probes the sources of what it serves. The zero value probes at every read; CheckEvery
// at most every so often; CheckNever not at all.
type CheckPolicy time.Duration

// CheckNever trusts what is stored: neither sources nor what a derived page was made from are looked at.
const CheckNever CheckPolicy = -1

// CheckAlways probes at every read.
const CheckAlways CheckPolicy = 0

// CheckEvery probes a source when its last probe is at least d old.
func CheckEvery(d time.Duration) CheckPolicy { return CheckPolicy(max(d, 0)) }
