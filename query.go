package ctxpage

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/internal/vector"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// The shares of a budget. recentShare applies in a conversation only, because elsewhere it costs recall. foundPart and
// historyLeast apply when the window of a session is larger than the budget (shareOut).

// Defaults and limits of a query.
const (
	defaultTopK = 50
	MaxTopK     = 2000

	defaultSummaryTokens = 200 // of a short form

	recentTail  = 10  // this many of the newest pages are always candidates
	shortShare  = .25 // share of a context that chunks and long turns enter as extracts when not all fit (bench/README.md, Extracts)
	recentShare = .10 // share of the budget tried first for those
	foundPart   = 4   // a quarter is tried for what the question found beside the history of a session

	historyLeast = 2. / 3                // of its share, when the window is larger (cutHistory); so half of the budget or more
	quotedFirst  = 1 << 50               // brings quoted turns before other pages, in their order
	namedLeft    = conversation.MaxNamed // left-out pages named per reason; winners are all named
)

// Query asks for a context. Budget is required unless the session has a window; every other field has a default.
type Query struct {
	// Text is the question. It finds pages and is not part of the context. Of a text above store.MaxQueryText, such as a
	// pasted log, the search uses the beginning and the end; the manifest says so (Note) and keeps those.
	Text string
	// Budget limits the tokens of the context, counted by Counter; Reserve tokens stay free. 0 in a
	// session with a window: the usable part of the window, which turns and found pages share.
	Budget  int
	Reserve int
	// TopK bounds the number of scored pages; 0: 50, and one for every 32 tokens of a large budget. Pinned and system
	// pages come on top.
	TopK int
	// Kinds restricts what may enter; empty: every kind, though Floor excludes scratch. Directives always enter.
	Kinds []store.Kind
	// Filter restricts what may enter, before the best are chosen. Directives, system pages and the turns of Session enter
	// always. What it excluded is counted in the manifest, which records the filter.
	Filter Filter
	// Floor is the lowest provenance that may enter; 0: Tool, which excludes drafts and notes.
	Floor store.Provenance
	// Session is the conversation that asks. Its turns enter whatever their provenance, as its window shows them:
	// retained turns whole, paged ones as stubs, evicted ones left out and counted, and the newest turn last. Turns that
	// became stubs or left the window for want of room enter whole where the question finds them, in at most a quarter
	// of the budget. Results of tools follow their calls, even those that came late. If the window does not fit into the
	// budget beside what the question found, for which at most a quarter is kept, the newest turns take between two
	// thirds and all of the rest: they begin with the same turn in as many contexts as possible, whatever is asked,
	// because providers cache the beginning of a request. Older turns that the question found come after them, as quoted
	// pages. Before a session has had a pass, a window or a pin, and with AsOf, its turns compete as other pages do.
	// ErrNotFound if the scope itself has no such session: append the turn first.
	Session string
	// Vector is the vector of the question by the model of Options.Embedder, for hosts that have it; nil: the embedder
	// is asked, if there is one and Text is not empty.
	Vector []float32
	// Preset weighs recency, provenance and relevance; "": "default". "START" is the published form in two passes.
	Preset string
	// Ladder steps all pages down together when not all winners fit. Without it the context is filled up with the best.
	Ladder bool
	// SummaryTokens is about how many tokens a summary made here, or an extract, takes; 0: 200. A short page keeps a third
	// of its text.
	SummaryTokens int
	// Check is the age at which the last probe of a source no longer counts; 0: sources are probed at every read, CheckNever:
	// never. ServeStale serves dirty pages that cannot be fetched, marked as stale.
	Check      time.Duration
	ServeStale bool
	// AsOf assembles as of an LSN in the past, without probing sources; 0: now. An LSN above the newest commit is an
	// *InvalidError: what will be committed there is unknown, so the context could not be made again.
	AsOf uint64
	// Recent lets recent pages fill the context even if nothing matches the question. Without it such a context has none but
	// protected pages, and what people have verified; a question without words of its own, and that of a session, has recent
	// pages always.
	Recent bool
	// ContentsOnly charges a page for its contents alone, for hosts that render the blocks themselves. Without it a page costs
	// its rendered text, with its header and a share of the lines around it.
	ContentsOnly bool
	// LongForm renders a context in the long form: a header and a fence for each page, with its reference. The dense form says
	// once what pages have in common, and names pages by number (Assembly.Refs).
	LongForm bool
	// Counter counts this context, in place of Options.Counter; nil: that one. Budget and Reserve are in its tokens.
	Counter token.Counter
	// WordsOnly leaves Options.Embedder out of this question.
	WordsOnly bool
	// Dry tries a question. Nothing is fetched or stored but the manifest, whose Action is then "dry"; a page whose source
	// changed is left out.
	Dry bool
	// Trace names the assembly in the manifest: a ULID that names nothing there yet; "": a new one.
	Trace string

	cut string // how Text was shortened; "": it was not
}

// shortQuestion returns the part of a question that the search uses, and a note if that is not all of it. People put their
// question before what they paste, or behind it.
func shortQuestion(text string) (short, note string) {
	const most, end = store.MaxQueryText - 8, store.MaxQueryText / 4
	if len(text) <= store.MaxQueryText {
		return text, ""
	}
	short = strings.ToValidUTF8(text[:most-end], "") + "\n" + strings.ToValidUTF8(text[len(text)-end:], "")
	return short, fmt.Sprintf("the question has %d bytes: the search used the first %d and the last %d", len(text), most-end, end)
}

// SetNames sets what a query says by name: the lowest provenance, the preset, the overflow policy, the charge and the form.
// An empty name leaves the default. An unknown one is an *InvalidError that lists what is expected.
func (q *Query) SetNames(floor, preset, overflow, charge, form string) (err error) {
	var errs []error
	bad := func(field, got, exp string) {
		errs = append(errs, store.Invalid(field, fmt.Sprintf("%.40q", got), exp))
	}
	if floor != "" {
		if q.Floor, err = triage.ParseProvenance(floor); err != nil {
			bad("floor", floor, "scratch, tool, validated, chunk or human-verified")
		}
	}
	if q.Preset = preset; preset != "" {
		if _, err := presetOf(preset); err != nil {
			errs = append(errs, err)
		}
	}
	switch overflow {
	case "", triage.Fill.String():
	case triage.Ladder.String():
		q.Ladder = true
	default:
		bad("overflow", overflow, "fill or ladder")
	}
	switch charge {
	case "", "rendered":
	case "contents":
		q.ContentsOnly = true
	default:
		bad("charge", charge, "rendered or contents")
	}
	switch form {
	case "", rendering.Dense:
	case rendering.Long:
		q.LongForm = true
	default:
		bad("form", form, "dense or long")
	}
	return errors.Join(errs...)
}

// Assembly is a context for a model. The caller owns it.
type Assembly struct {
	Trace string `json:"trace"`
	LSN   uint64 `json:"lsn"`
	// Tier reports what was lost. Without Query.Ladder it counts the red and yellow pages (package triage): 1 all are in,
	// whole; 2 all are in, some shortened; 3 some are left out; 4 what is protected does not fit. With it, it is the
	// step that triage.Fit took.
	Tier   triage.Tier `json:"tier"`
	Tokens int         `json:"tokens"`
	Limit  int         `json:"limit"`
	// Review: not even the protected pages fitted; a person should look.
	Review bool    `json:"review,omitempty"`
	Blocks []Block `json:"blocks"`
	// Refs has the references of the pages by the numbers of the text: number n is Refs[n-1], the page of Blocks[n-1] and of
	// Manifest.Pages[n-1].
	Refs []Ref     `json:"-"`
	Left []LeftOut `json:"left,omitempty"`
	// Match reports how well the context matches the question: none, weak or good; "" if the question has no words of its own.
	// With none an agent should say that it has nothing on it. Weak may be about something else, or found by meaning alone.
	// Good means that most of the words are there, not that the answer is.
	Match manifest.Match `json:"match,omitempty"`
	// Covered is the share of the question's words that pages of the context have, 0 to 1, without stop words.
	Covered float64 `json:"covered"`
	// Degraded says why relevance used words only although there is an embedder, that pages have no vector yet, or which words
	// of the question no page has, and what they were read as.
	Degraded string `json:"degraded,omitempty"`
	// Manifest is the leaf that was written.
	Manifest *manifest.Record `json:"manifest"`
	seed     string
	session  string
	long     bool
	shown    []rendering.Page
	text     string
}

// Block is one page of a context, in the order of the context.
type Block struct {
	Ref   Ref           `json:"ref"`
	Pages int           `json:"pages"` // of the artefact
	Num   uint64        `json:"num"`
	Form  manifest.Form `json:"form"`
	// Tokens is its share of Assembly.Tokens, headers included: the shares add up. A context without blocks still has the tokens
	// of its first and last line.
	Tokens int     `json:"tokens"`
	Score  float64 `json:"score"`
	Text   string  `json:"text"`
	Stale  bool    `json:"stale,omitempty"`

	Kind       store.Kind        `json:"kind"`
	Provenance store.Provenance  `json:"provenance"`
	Pinned     bool              `json:"pinned,omitempty"`
	Role       string            `json:"role,omitempty"`
	Name       string            `json:"name,omitempty"`
	Source     string            `json:"source,omitempty"`
	AsOf       time.Time         `json:"as_of"`
	Meta       map[string]string `json:"meta,omitempty"`
}

// LeftOut is a page that was considered and is not in the context, with the reason.
type LeftOut struct {
	Ref    Ref     `json:"ref"`
	Reason string  `json:"reason"`
	Score  float64 `json:"score"`
	// DuplicateOf is the chosen page that says the same, if that is the reason.
	DuplicateOf Ref `json:"duplicate_of,omitzero"`
	// Err is the error of checking or fetching its source, such as a *FileRootError; nil for other reasons.
	Err error `json:"-"`
}

// Text returns the context as plain text, in the form that the query asked for. One assembly always has the same bytes.
func (a *Assembly) Text() string { return a.text }

// Messages returns the context as neutral messages, for render.OpenAI, render.Anthropic and render.Gemini. The question is not one of
// them: in a session it is the newest turn, elsewhere the host adds it as the last. Without it there may be none but system messages,
// which Anthropic and Gemini refuse.
func (a *Assembly) Messages() []render.Message {
	return render.Messages(a.seed, rendering.Pages(nil, a.shown, a.session), a.long)
}

// withDefaults fills in the defaults and reports all broken rules at once.
func (q Query) withDefaults() (Query, error) {
	if q.TopK == 0 {
		// 50 short pages leave a large budget empty: on conversations recall at 8k tokens falls from .958 to .907.
		q.TopK = min(max(defaultTopK, q.Budget/32), MaxTopK)
	}
	if q.Floor == 0 {
		q.Floor = store.Tool
	}
	if q.Preset == "" {
		q.Preset = "default"
	}
	if q.SummaryTokens == 0 {
		q.SummaryTokens = defaultSummaryTokens
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
	q.Text, q.cut = shortQuestion(q.Text)
	if q.SummaryTokens < 0 {
		bad("summary_tokens", strconv.Itoa(q.SummaryTokens), "a number of tokens, or 0 for "+strconv.Itoa(defaultSummaryTokens))
	}
	if len(q.Vector) > vector.MaxNumbers || !format.Finite(q.Vector) {
		bad("vector", strconv.Itoa(len(q.Vector))+" numbers", "finite numbers, at most "+strconv.Itoa(vector.MaxNumbers))
	}
	if !q.Floor.Valid() {
		bad("floor", strconv.Itoa(int(q.Floor)), "a provenance")
	}
	if slices.ContainsFunc(q.Kinds, func(k store.Kind) bool { return k == store.KindAuto || int(k) >= len(store.KindNames) }) {
		bad("kinds", fmt.Sprint(q.Kinds), "kinds such as fact or chunk")
	}
	if err := q.Filter.Check(); err != nil {
		errs = append(errs, err)
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

// CheckNever trusts what is stored: it looks neither at sources nor at the parents of a derived page.
const CheckNever time.Duration = -1

// overflow returns the policy of the allocator.
func (q *Query) overflow() triage.Overflow {
	if q.Ladder {
		return triage.Ladder
	}
	return triage.Fill
}

// presetOf returns the weights of a preset by its name.
func presetOf(name string) (triage.Preset, error) {
	switch name {
	case "default":
		return triage.Default(), nil
	case "START":
		return triage.START(), nil
	}
	return triage.Preset{}, store.Invalid("preset", strconv.Quote(name), "default or START")
}
