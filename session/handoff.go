package session

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxHandoff bounds, in bytes of JSON, what Handoff makes of the window, the sources and the directives, however long
// the session was: about 12,000 tokens, as much as an agent can well read before it begins. The bound holds for
// references of up to 512 bytes. What the host recorded is added as it was recorded.
const MaxHandoff = 48 << 10

// How MaxHandoff is shared out. Beside these the ranges of the oldest turns
// take 1/12, and 1/6 is for what is said of the rest. Turns named one by one are
// up to twenty: each becomes a page of some 100 tokens where the packet is
// received, and together they take no more than half of a context of 4,000.
const (
	turnsShare      = MaxHandoff / 12 // turns named one by one
	rangesShare     = MaxHandoff / 12 // ranges of turns
	sourcesShare    = MaxHandoff / 4  // sources and what must not be claimed of them
	directivesShare = MaxHandoff / 6  // decisions, and as much for corrections
	maxItem         = 1 << 10         // bytes of one text that was not recorded for the packet
)

// Packet is a handoff packet: what the next agent needs to continue. Its JSON form has exactly these 18 fields.
type Packet struct {
	CreatedFor          string           `json:"created_for"`
	CreatedBy           string           `json:"created_by"`
	Date                string           `json:"date"`
	SessionOrProject    string           `json:"session_or_project"`
	CurrentGoal         string           `json:"current_goal"`
	CurrentState        string           `json:"current_state"`
	ActiveIntent        ActiveIntent     `json:"active_intent"`
	VerifiedSources     []PacketSource   `json:"verified_sources"`
	InferredClaims      []BasisItem      `json:"inferred_claims"`
	LockedDecisions     []BasisItem      `json:"locked_decisions"`
	OpenQuestions       []QuestionItem   `json:"open_questions"`
	Corrections         []CorrectionItem `json:"active_user_corrections"`
	Context             []ContextItem    `json:"context_to_preserve"`
	WorkCompleted       []string         `json:"work_completed"`
	WorkNotYetCompleted []string         `json:"work_not_yet_completed"`
	DoNotClaim          []BoundaryItem   `json:"do_not_claim_beyond_this"`
	NextAction          string           `json:"recommended_next_action"`
	Notes               string           `json:"handoff_notes"`
}

// ActiveIntent is what the session was doing.
type ActiveIntent struct {
	PrimaryIntent    string   `json:"primary_intent"` // one of the eight of the schema
	TargetOrArtifact string   `json:"target_or_artifact"`
	Status           string   `json:"status"`
	Basis            string   `json:"basis"`
	SecondaryIntent  string   `json:"secondary_intent,omitempty"`
	UnresolvedSlots  []string `json:"unresolved_slots,omitempty"`
	Flags            []string `json:"flags,omitempty"`
}

// PacketSource is one source and how far it may be relied on.
type PacketSource struct {
	Source          string `json:"source"`
	Type            string `json:"type"`
	State           string `json:"state"` // verified, scanned, referenced, unavailable
	WhatWasVerified string `json:"what_was_verified"`
}

// BasisItem is a claim or a decision with its basis.
type BasisItem struct {
	Text  string `json:"text"`
	Basis string `json:"basis"`
}

// QuestionItem is an open question.
type QuestionItem struct {
	Question     string `json:"question"`
	WhyItMatters string `json:"why_it_matters"`
}

// CorrectionItem is a correction of the user that still holds.
type CorrectionItem struct {
	Correction          string `json:"correction"`
	MeaningForNextAgent string `json:"meaning_for_next_agent"`
}

// ContextItem is a piece of context that must not get lost.
type ContextItem struct {
	Context      string `json:"context"`
	WhyItMatters string `json:"why_it_matters"`
}

// BoundaryItem is something that must not be claimed.
type BoundaryItem struct {
	Boundary string `json:"boundary"`
	Reason   string `json:"reason"`
}

var (
	intentVerbs  = []string{"explain", "create", "transform", "analyze", "decide", "plan", "fix", "unknown"}
	sourceStates = []string{"verified", "scanned", "referenced", "unavailable"}
)

// SourceFact is what is known of one source at the time of the handoff.
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
	Action Action
	Pinned bool
	Title  string // first line
	Why    string
}

// HandoffInput is what a packet is made from. No model judges any of it: sources come from hashes and manifests,
// decisions and corrections from the directives, the rest from what the host recorded.
type HandoffInput struct {
	For, By, Session string
	At               time.Time
	Goal, State      string
	Intent           IntentIR
	Status           string
	Sources          []SourceFact
	Claims           []BasisItem
	Decisions        []BasisItem
	Questions        []QuestionItem
	Corrections      []CorrectionItem
	Window           []WindowItem
	Done, Open       []string
	Boundaries       []BoundaryItem
	Next, Notes      string
}

// Handoff makes the packet; equal inputs give equal packets. Sources that changed, are gone or were never read also
// become boundaries. MaxHandoff bounds what grows with the session: turns that are not named one by one become ranges
// with their number and tokens, and sources and directives that do not fit are counted.
func Handoff(in HandoffInput) Packet {
	p := Packet{
		CreatedFor: orNone(in.For), CreatedBy: orNone(in.By), Date: in.At.UTC().Format(time.RFC3339), SessionOrProject: orNone(in.Session),
		CurrentGoal: orNone(in.Goal), CurrentState: orNone(in.State), ActiveIntent: activeIntent(in),
		InferredClaims: list(in.Claims), LockedDecisions: decisions(in.Decisions), OpenQuestions: list(in.Questions), Corrections: corrections(in.Corrections),
		VerifiedSources: []PacketSource{}, Context: contextOf(in.Window),
		WorkCompleted: list(in.Done), WorkNotYetCompleted: list(in.Open), DoNotClaim: list(in.Boundaries), NextAction: orNone(in.Next), Notes: orNone(in.Notes),
	}
	p.judge(in.Sources)
	return p
}

// judge lists sources, in their order, and the boundaries that follow from
// them. Where there is no room for all, those that an answer read come before
// the others and the newest before the older; a boundary covers the rest.
func (p *Packet) judge(facts []SourceFact) {
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
	n := within(len(order), sourcesShare, func(i int) int {
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
		p.VerifiedSources = append(p.VerifiedSources, PacketSource{countMore(left, "source"), "not listed", "referenced", "nothing: " + leftOut})
		p.DoNotClaim = append(p.DoNotClaim, BoundaryItem{"what sources that this packet does not list say", countMore(left, "source") + " " + leftOut})
	}
}

func (s SourceFact) judged() (source PacketSource, boundary BoundaryItem) {
	state, what := s.state()
	if state == "referenced" || state == "unavailable" {
		boundary = BoundaryItem{"what " + s.Source + " says now", strings.TrimPrefix(what, "nothing: ")}
	}
	return PacketSource{s.Source, orNone(s.Type), state, what}, boundary
}

const leftOut = "left out to keep the packet short"

// countMore says how many more there are, as "3 more turns".
func countMore(n int, what string) string {
	if n == 1 {
		return "1 more " + what
	}
	return fmt.Sprintf("%d more %ss", n, what)
}

func decisions(items []BasisItem) []BasisItem {
	return bounded(items, func(i BasisItem) BasisItem { return BasisItem{clip(i.Text, maxItem), clip(i.Basis, maxItem)} },
		func(left int) BasisItem {
			return BasisItem{countMore(left, "decision"), leftOut + "; the directives in force name all"}
		})
}

func corrections(items []CorrectionItem) []CorrectionItem {
	return bounded(items, func(i CorrectionItem) CorrectionItem {
		return CorrectionItem{clip(i.Correction, maxItem), clip(i.MeaningForNextAgent, maxItem)}
	}, func(left int) CorrectionItem {
		return CorrectionItem{countMore(left, "correction"), leftOut + "; ask for the directives in force before acting"}
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
	n := within(len(out), directivesShare, func(i int) int { return cost(out[i]) })
	if left := len(out) - n; left > 0 {
		out = append(out[:n], rest(left))
	}
	return out
}

// within counts how many of n items, from the first on, take at most limit.
func within(n, limit int, cost func(int) int) int {
	for i := range n {
		if limit -= cost(i); limit < 0 {
			return i
		}
	}
	return n
}

// cost is what an item takes in the JSON of a packet, in bytes, line ends and
// indents included.
func cost(item any) int {
	const layout = 64
	raw, err := json.Marshal(item)
	if err != nil {
		return MaxHandoff // cannot be: items are made of strings
	}
	return len(raw) + layout
}

// clip cuts a text to limit bytes and says so.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return fmt.Sprintf("%s ... (cut, %d bytes in all)", strings.ToValidUTF8(s[:limit], ""), len(s))
}

func activeIntent(in HandoffInput) ActiveIntent {
	verb := Lower(in.Intent.Verb)
	basis := "intent of the last pass"
	if !slices.Contains(intentVerbs, verb) {
		if verb != "" {
			basis += ", verb " + strconv.Quote(in.Intent.Verb)
		}
		verb = "unknown"
	}
	a := ActiveIntent{
		PrimaryIntent: verb, TargetOrArtifact: orNone(strings.Join(flatten(in.Intent.Slots), ", ")), Status: orNone(in.Status), Basis: basis,
		UnresolvedSlots: flatten(in.Intent.Gaps), Flags: flatten(in.Intent.AmberFlags),
	}
	if second := flatten(in.Intent.Secondary); len(second) > 0 {
		a.SecondaryIntent = second[0]
	}
	return a
}

// list is a copy that is never nil, as the schema wants arrays.
func list[T any](items []T) []T { return append([]T{}, items...) }

func orNone(s string) string {
	if strings.TrimSpace(s) == "" {
		return "none recorded"
	}
	return s
}

// Reference is a block of the window as a packet carries it.
type Reference struct {
	Ref    string
	Form   string // pinned, retained, paged, evicted
	Digest string
	Tokens int
}

var contextForm = expression(`^(pinned|retained|paged|evicted) (\S+) \((\d+) tokens, digest (\S+)\)`)

// item writes a block so that References can read it back. References have no
// white space in them: they are percent-encoded.
func (w WindowItem) item() ContextItem {
	why := map[string]string{
		"pinned":   "pinned: must not be evicted",
		"retained": "whole in the window of the session",
		"paged":    "a stub in the window; recall it by its reference before relying on it",
		"evicted":  "left the window; recall it by its reference if it is needed",
	}[w.form()]
	if w.Why != "" {
		why += "; " + clip(w.Why, maxItem)
	}
	text := fmt.Sprintf("%s %s (%d tokens, digest %s)", w.form(), w.Ref, w.Tokens, strings.ReplaceAll(orNone(w.Digest), " ", "-"))
	if title := strings.TrimSpace(oneLine(w.Title)); title != "" {
		text += ": " + clip(title, maxItem)
	}
	return ContextItem{text, why}
}

// forms are the forms of blocks, those first that are named one by one before
// the others; evicted ones are notices, alone or as a range.
var forms = []string{"pinned", "retained", "paged", "evicted"}

func (w WindowItem) form() string {
	if w.Pinned {
		return "pinned"
	}
	return map[Action]string{Retain: "retained", Page: "paged", Evict: "evicted"}[w.Action]
}

// run is a number of blocks of one form, all those from the first to the last
// or, among the oldest, some of them.
type run struct{ first, last, turns, tokens int }

// contextOf names the blocks of the window in its order: see listed for those
// that stand alone. Blocks of one form that follow one another are a range. The
// newest ranges find room; of the older ones each form has one, which stands
// before all others.
func contextOf(window []WindowItem) []ContextItem {
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
	out, left, oldest := []ContextItem{}, rangesShare, map[string]run{}
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

func (r run) item(window []WindowItem) ContextItem {
	first, last := window[r.first], window[r.last]
	if r.turns == 1 {
		return first.item()
	}
	of := ""
	if all := r.last - r.first + 1; all > r.turns {
		of = fmt.Sprintf(" of the %d", all)
	}
	return ContextItem{
		fmt.Sprintf("%s %d%s turns from %s to %s (%d tokens)", first.form(), r.turns, of, first.Ref, last.Ref, r.tokens),
		map[string]string{
			"pinned": "pinned: must not be evicted", "retained": "whole in the window of the session",
			"paged": "stubs in the window", "evicted": "left the window",
		}[first.form()] + "; a range to keep the packet short: the window of the session lists those between, and each is recalled by its reference",
	}
}

// References returns the blocks that the packet's context names, in order, each once. It skips ranges, and items that
// Handoff did not write.
func (p Packet) References() []Reference {
	var out []Reference
	seen := map[string]bool{}
	for _, c := range p.Context {
		m := contextForm().FindStringSubmatch(c.Context)
		if m == nil || seen[m[2]] {
			continue
		}
		tokens, err := strconv.Atoi(m[3])
		if err != nil {
			continue
		}
		seen[m[2]] = true
		out = append(out, Reference{Ref: m[2], Form: m[1], Digest: m[4], Tokens: tokens})
	}
	return out
}

// MaxReferences bounds how many turns of the sender's window a received packet may name one by one, because each
// becomes a page. Handoff names some twenty and gives the others as ranges; a packet of another program may name more.
const MaxReferences = 512

// Receivable refuses a packet that names more than MaxReferences turns one by one. The error matches ErrPacket.
func (p Packet) Receivable() error {
	n := 0
	for _, r := range p.References() {
		if r.Form != "evicted" {
			n++
		}
	}
	if n > MaxReferences {
		return fmt.Errorf("%w: context_to_preserve names %d turns one by one, expected at most %d: name the older as ranges", ErrPacket, n, MaxReferences)
	}
	return nil
}

// Received is the packet as the receiving side may hold it: what the sender verified is not verified here, and the
// sender's decisions are claims.
func (p Packet) Received() Packet {
	out := p
	out.VerifiedSources = list(p.VerifiedSources)
	for i, s := range out.VerifiedSources {
		if s.State == "verified" || s.State == "scanned" {
			out.VerifiedSources[i].State = "referenced"
			out.VerifiedSources[i].WhatWasVerified = "nothing here; " + p.CreatedBy + " reported: " + s.WhatWasVerified
		}
	}
	out.LockedDecisions = markUnverified(p.LockedDecisions, p.CreatedBy)
	out.InferredClaims = markUnverified(p.InferredClaims, p.CreatedBy)
	return out
}

// markUnverified says in the basis of each item who handed it over, and that it is unverified.
func markUnverified(items []BasisItem, by string) []BasisItem {
	out := list(items)
	for i, b := range out {
		out[i].Basis = "handed over by " + by + ", unverified: " + b.Basis
	}
	return out
}

// oneLine puts spaces for line ends and controls.
func oneLine(s string) string {
	return strings.Map(unbroken, strings.ToValidUTF8(s, "\uFFFD"))
}
