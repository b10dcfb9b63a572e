package handoff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
)

// How MaxHandoff is shared out. Beside these the ranges of the oldest turns
// take 1/12, and 1/6 is for what is said of the rest. Turns named one by one are
// up to twenty: each becomes a page of some 100 tokens where the packet is
// received, and together they take no more than half of a context of 4,000.
const (
	turnsShare      = session.MaxHandoff / 12 // turns named one by one
	rangesShare     = session.MaxHandoff / 12 // ranges of turns
	sourcesShare    = session.MaxHandoff / 4  // sources and what must not be claimed of them
	directivesShare = session.MaxHandoff / 6  // decisions, and as much for corrections
	maxItem         = 1 << 10                 // bytes of one text that was not recorded for the packet
)

// SourceFact describes one source at the time of the handoff.
type SourceFact struct {
	Source  string // reference, URL or path
	Type    string // file, http, page, message ...
	Digest  string // hash of what was read, as text; not necessarily cryptographic
	Gone    bool   // it cannot be reached now
	Checked bool   // its hash was computed now ...
	Same    bool   // ... and is the one kept at load
	Read    bool   // a manifest shows that a commit of the session read it
}

// state follows from what was seen, not from what anybody says: verified needs
// a hash checked now and a read in the manifests.
func (s SourceFact) state() (state, what string) {
	switch {
	case s.Gone:
		return "unavailable", "nothing: the source cannot be reached now"
	case s.Checked && !s.Same:
		return "referenced", "nothing: the source changed since it was loaded"
	case !s.Read:
		return "referenced", "nothing: no answer of this session read it"
	case s.Checked:
		return "verified", "hash " + orNone(s.Digest) + " checked at the handoff; read by an answer of this session"
	}
	return "scanned", "read by an answer of this session; its hash was not checked at the handoff"
}

// WindowItem is one block of the session's window.
type WindowItem struct {
	Ref    string // reference of the page
	Digest string
	Tokens int
	Action session.Action
	Pinned bool
	Title  string // first line
	Why    string
}

// Input has the facts of a packet. No model judges any of it: sources come from hashes and manifests,
// decisions and corrections from the directives, the rest from what the host recorded.
type Input struct {
	For, By, Session string
	At               time.Time
	Goal, State      string
	Intent           session.IntentIR
	Status           string
	Sources          []SourceFact
	Claims           []session.BasisItem
	Decisions        []session.BasisItem
	Questions        []session.QuestionItem
	Corrections      []session.CorrectionItem
	Window           []WindowItem
	Done, Open       []string
	Boundaries       []session.BoundaryItem
	Next, Notes      string
}

// Handoff makes the packet. Equal inputs give equal packets. Sources that changed, are gone or were never read also
// become boundaries. MaxHandoff bounds what grows with the session: turns that are not named one by one become ranges
// with their number and tokens, and sources and directives that do not fit are counted.
func Handoff(in Input) session.Packet {
	p := session.Packet{
		CreatedFor: orNone(in.For), CreatedBy: orNone(in.By), Date: in.At.UTC().Format(time.RFC3339), SessionOrProject: orNone(in.Session),
		CurrentGoal: orNone(in.Goal), CurrentState: orNone(in.State), ActiveIntent: activeIntent(in),
		InferredClaims: list(in.Claims), LockedDecisions: decisions(in.Decisions), OpenQuestions: list(in.Questions), Corrections: corrections(in.Corrections),
		VerifiedSources: []session.PacketSource{}, Context: contextOf(in.Window),
		WorkCompleted: list(in.Done), WorkNotYetCompleted: list(in.Open), DoNotClaim: list(in.Boundaries), NextAction: orNone(in.Next), Notes: orNone(in.Notes),
	}
	judge(&p, in.Sources)
	return p
}

func (s SourceFact) judged() (source session.PacketSource, boundary session.BoundaryItem) {
	state, what := s.state()
	if state == "referenced" || state == "unavailable" {
		boundary = session.BoundaryItem{Boundary: "what " + s.Source + " says now", Reason: strings.TrimPrefix(what, "nothing: ")}
	}
	return session.PacketSource{Source: s.Source, Type: orNone(s.Type), State: state, WhatWasVerified: what}, boundary
}

const leftOut = "left out to keep the packet short"

// countMore says how many more there are, as "3 more turns".
func countMore(n int, what string) string {
	if n == 1 {
		return "1 more " + what
	}
	return fmt.Sprintf("%d more %ss", n, what)
}

func decisions(items []session.BasisItem) []session.BasisItem {
	return bounded(items, func(i session.BasisItem) session.BasisItem {
		return session.BasisItem{Text: prose.Clip(i.Text, maxItem), Basis: prose.Clip(i.Basis, maxItem)}
	},
		func(left int) session.BasisItem {
			return session.BasisItem{Text: countMore(left, "decision"), Basis: leftOut + "; the directives in force name all"}
		})
}

func corrections(items []session.CorrectionItem) []session.CorrectionItem {
	return bounded(items, func(i session.CorrectionItem) session.CorrectionItem {
		return session.CorrectionItem{Correction: prose.Clip(i.Correction, maxItem), MeaningForNextAgent: prose.Clip(i.MeaningForNextAgent, maxItem)}
	}, func(left int) session.CorrectionItem {
		return session.CorrectionItem{Correction: countMore(left, "correction"), MeaningForNextAgent: leftOut + "; ask for the directives in force before acting"}
	})
}

// bounded shortens items and keeps the first that directivesShare holds, and
// says how many it left out. Directives come in the order in which they are
// applied, so none is newer than another.
func bounded[T any](items []T, shorten func(T) T, rest func(left int) T) []T {
	out := list(items)
	for i := range out {
		out[i] = shorten(out[i])
	}
	n := prose.Within(len(out), directivesShare, func(i int) int { return cost(out[i]) })
	if left := len(out) - n; left > 0 {
		out = append(out[:n], rest(left))
	}
	return out
}

// cost returns the bytes of an item in the JSON of a packet, with line ends and indents.
func cost(item any) int {
	const layout = 64
	raw, err := json.Marshal(item)
	if err != nil {
		return session.MaxHandoff // cannot be: items are made of strings
	}
	return len(raw) + layout
}

func activeIntent(in Input) session.ActiveIntent {
	verb := prose.Lower(in.Intent.Verb)
	basis := "intent of the last pass"
	if (session.Packet{ActiveIntent: session.ActiveIntent{PrimaryIntent: verb}}).Validate() != nil {
		if verb != "" {
			basis += ", verb " + strconv.Quote(in.Intent.Verb)
		}
		verb = "unknown"
	}
	a := session.ActiveIntent{
		PrimaryIntent: verb, TargetOrArtifact: orNone(strings.Join(conversation.Flatten(in.Intent.Slots), ", ")), Status: orNone(in.Status), Basis: basis,
		UnresolvedSlots: conversation.Flatten(in.Intent.Gaps), Flags: conversation.Flatten(in.Intent.AmberFlags),
	}
	if second := conversation.Flatten(in.Intent.Secondary); len(second) > 0 {
		a.SecondaryIntent = second[0]
	}
	return a
}

// Reference is a turn that a packet names.
type Reference struct {
	Ref    string
	Form   string // pinned, retained, paged, evicted
	Digest string
	Text   string // of the context that names it
}

var contextForm = prose.Expression(`^(pinned|retained|paged|evicted) (\S+) \((\d+) tokens, digest (\S+)\)`)

// item writes a block so that References can read it back. References have no
// white space in them: they are percent-encoded.
func (w WindowItem) item() session.ContextItem {
	why := map[string]string{
		"pinned":   "pinned: must not be evicted",
		"retained": "whole in the window of the session",
		"paged":    "a stub in the window; recall it by its reference before relying on it",
		"evicted":  "left the window; recall it by its reference if it is needed",
	}[w.form()]
	if w.Why != "" {
		why += "; " + prose.Clip(w.Why, maxItem)
	}
	text := fmt.Sprintf("%s %s (%d tokens, digest %s)", w.form(), w.Ref, w.Tokens, strings.ReplaceAll(orNone(w.Digest), " ", "-"))
	if title := strings.TrimSpace(prose.OneLine(w.Title)); title != "" {
		text += ": " + prose.Clip(title, maxItem)
	}
	return session.ContextItem{Context: text, WhyItMatters: why}
}

// forms are the forms of blocks, those first that are named one by one before
// the others; evicted ones are notices, alone or as a range.
var forms = []string{"pinned", "retained", "paged", "evicted"}

func (w WindowItem) form() string {
	if w.Pinned {
		return "pinned"
	}
	return map[session.Action]string{session.Retain: "retained", session.Page: "paged", session.Evict: "evicted"}[w.Action]
}

// run is a number of blocks of one form, all those from the first to the last
// or, among the oldest, some of them.
type run struct{ first, last, turns, tokens int }

// contextOf names the blocks of the window in its order: see listed for those
// that stand alone. Blocks of one form that follow one another are a range. The
// newest ranges find room; of the older ones each form has one, which stands
// before all others.
func contextOf(window []WindowItem) []session.ContextItem {
	alone := listedAlone(window)
	var runs []run
	for i, w := range window {
		k := len(runs) - 1
		if k < 0 || alone[i] || alone[i-1] || window[i-1].form() != w.form() {
			runs = append(runs, run{first: i})
			k++
		}
		runs[k].last = i
		runs[k].turns++
		runs[k].tokens += w.Tokens
	}
	out, left, oldest := []session.ContextItem{}, rangesShare, map[string]run{}
	for _, r := range slices.Backward(runs) {
		item := r.item(window)
		if !alone[r.first] && left >= 0 {
			left -= cost(item)
		}
		if alone[r.first] || left >= 0 {
			out = append(out, item)
			continue
		}
		form := window[r.first].form()
		if o, ok := oldest[form]; ok {
			r = run{r.first, o.last, r.turns + o.turns, r.tokens + o.tokens}
		}
		oldest[form] = r
	}
	for _, form := range slices.Backward(forms) {
		if r, ok := oldest[form]; ok {
			out = append(out, r.item(window))
		}
	}
	slices.Reverse(out)
	return out
}

// listedAlone says which blocks are listed one by one: pinned ones before whole ones before stubs,
// the newest first, while there is room.
func listedAlone(window []WindowItem) []bool {
	out, left := make([]bool, len(window)), turnsShare
	for _, form := range forms[:3] {
		for i, w := range slices.Backward(window) {
			if w.form() != form {
				continue
			}
			if left -= cost(w.item()); left < 0 {
				return out
			}
			out[i] = true
		}
	}
	return out
}

func (r run) item(window []WindowItem) session.ContextItem {
	first, last := window[r.first], window[r.last]
	if r.turns == 1 {
		return first.item()
	}
	of := ""
	if all := r.last - r.first + 1; all > r.turns {
		of = fmt.Sprintf(" of the %d", all)
	}
	return session.ContextItem{Context: fmt.Sprintf("%s %d%s turns from %s to %s (%d tokens)", first.form(), r.turns, of, first.Ref, last.Ref, r.tokens), WhyItMatters: map[string]string{
		"pinned": "pinned: must not be evicted", "retained": "whole in the window of the session",
		"paged": "stubs in the window", "evicted": "left the window",
	}[first.form()] + "; a range to keep the packet short: the window of the session lists those between, and each is recalled by its reference"}
}

// References returns the turns that the packet's context names, in order, each once. It skips ranges, and items that
// Handoff did not write.
func References(p session.Packet) []Reference {
	var out []Reference
	seen := map[string]bool{}
	for _, c := range p.Context {
		m := contextForm().FindStringSubmatch(c.Context)
		if m == nil || seen[m[2]] {
			continue
		}
		seen[m[2]] = true
		out = append(out, Reference{Ref: m[2], Form: m[1], Digest: m[4], Text: c.Context})
	}
	return out
}

// judge lists sources, in their order, and the boundaries that follow from
// them. Where there is no room for all, those that an answer read come before
// the others and the newest before the older; a boundary covers the rest.
func judge(p *session.Packet, facts []SourceFact) {
	order := make([]int, len(facts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if facts[a].Read != facts[b].Read {
			return map[bool]int{true: -1, false: 1}[facts[a].Read]
		}
		return cmp.Compare(b, a)
	})
	n := prose.Within(len(order), sourcesShare, func(i int) int {
		source, boundary := facts[order[i]].judged()
		return cost(source) + cost(boundary)
	})
	slices.Sort(order[:n])
	for _, i := range order[:n] {
		source, boundary := facts[i].judged()
		p.VerifiedSources = append(p.VerifiedSources, source)
		if boundary.Boundary != "" {
			p.DoNotClaim = append(p.DoNotClaim, boundary)
		}
	}
	if left := len(facts) - n; left > 0 {
		p.VerifiedSources = append(p.VerifiedSources, session.PacketSource{Source: countMore(left, "source"), Type: "not listed", State: "referenced", WhatWasVerified: "nothing: " + leftOut})
		p.DoNotClaim = append(p.DoNotClaim, session.BoundaryItem{Boundary: "what sources that this packet does not list say", Reason: countMore(left, "source") + " " + leftOut})
	}
}

// list returns a copy that is never nil: the schema knows no null.
func list[T any](items []T) []T { return append([]T{}, items...) }

func orNone(s string) string {
	if strings.TrimSpace(s) == "" {
		return "none recorded"
	}
	return s
}
