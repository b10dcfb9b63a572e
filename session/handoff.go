package session

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Packet is a handoff packet: what a following agent needs to go on. Its JSON
// form has exactly these 18 fields.
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

// BasisItem is a claim or a decision, and what it rests on.
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

// SourceFact is what is known of one source at the moment of the handoff.
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

// HandoffInput is what a packet is made from. Nothing in it is judged by a
// model: sources come from hashes and manifests, decisions and corrections from
// the directives, the rest as recorded.
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

// Handoff makes the packet; the same input gives the same packet. Sources that
// changed, are gone or were never read also become boundaries.
func Handoff(in HandoffInput) Packet {
	p := Packet{
		CreatedFor: orNone(in.For), CreatedBy: orNone(in.By), Date: in.At.UTC().Format(time.RFC3339), SessionOrProject: orNone(in.Session),
		CurrentGoal: orNone(in.Goal), CurrentState: orNone(in.State), ActiveIntent: activeIntent(in),
		InferredClaims: list(in.Claims), LockedDecisions: list(in.Decisions), OpenQuestions: list(in.Questions), Corrections: list(in.Corrections),
		VerifiedSources: []PacketSource{}, Context: []ContextItem{},
		WorkCompleted: list(in.Done), WorkNotYetCompleted: list(in.Open), DoNotClaim: list(in.Boundaries), NextAction: orNone(in.Next), Notes: orNone(in.Notes),
	}
	for _, s := range in.Sources {
		state, what := s.state()
		p.VerifiedSources = append(p.VerifiedSources, PacketSource{s.Source, orNone(s.Type), state, what})
		if state == "referenced" || state == "unavailable" {
			p.DoNotClaim = append(p.DoNotClaim, BoundaryItem{"what " + s.Source + " says now", strings.TrimPrefix(what, "nothing: ")})
		}
	}
	for _, w := range in.Window {
		p.Context = append(p.Context, w.item())
	}
	return p
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

var contextForm = regexp.MustCompile(`^(pinned|retained|paged|evicted) (\S+) \((\d+) tokens, digest (\S+)\)`)

// item writes a block so that References can read it back. References have no
// white space in them: they are percent-encoded.
func (w WindowItem) item() ContextItem {
	form := map[Action]string{Retain: "retained", Page: "paged", Evict: "evicted"}[w.Action]
	why := map[Action]string{
		Retain: "whole in the window of the session",
		Page:   "a stub in the window; recall it by its reference before relying on it",
		Evict:  "left the window; recall it by its reference if it is needed",
	}[w.Action]
	if w.Pinned {
		form, why = "pinned", "pinned: must not be evicted"
	}
	if w.Why != "" {
		why += "; " + w.Why
	}
	text := fmt.Sprintf("%s %s (%d tokens, digest %s)", form, w.Ref, w.Tokens, strings.ReplaceAll(orNone(w.Digest), " ", "-"))
	if title := strings.TrimSpace(oneLine(w.Title)); title != "" {
		text += ": " + title
	}
	return ContextItem{text, why}
}

// References gives the blocks that the packet's context names, in order, each
// once. Items in other words than Handoff's are passed over.
func (p Packet) References() []Reference {
	var out []Reference
	for _, c := range p.Context {
		m := contextForm.FindStringSubmatch(c.Context)
		if m == nil || slices.ContainsFunc(out, func(r Reference) bool { return r.Ref == m[2] }) {
			continue
		}
		tokens, err := strconv.Atoi(m[3])
		if err != nil {
			continue
		}
		out = append(out, Reference{Ref: m[2], Form: m[1], Digest: m[4], Tokens: tokens})
	}
	return out
}

// Received is the packet as the receiving side may hold it: nothing that the
// sender verified is verified here, and its decisions are claims of the sender.
func (p Packet) Received() Packet {
	out := p
	out.VerifiedSources = list(p.VerifiedSources)
	for i, s := range out.VerifiedSources {
		if s.State == "verified" || s.State == "scanned" {
			out.VerifiedSources[i].State = "referenced"
			out.VerifiedSources[i].WhatWasVerified = "nothing here; " + p.CreatedBy + " reported: " + s.WhatWasVerified
		}
	}
	out.LockedDecisions = reported(p.LockedDecisions, p.CreatedBy)
	out.InferredClaims = reported(p.InferredClaims, p.CreatedBy)
	return out
}

func reported(items []BasisItem, by string) []BasisItem {
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
