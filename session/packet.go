package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/prose"
)

// MaxHandoff bounds, in bytes of JSON, what Handoff makes of the window, the sources and the directives, however long
// the session was: about 12,000 tokens, as much as an agent can well read before it begins. The bound holds for
// references of up to 512 bytes. What the host recorded is added as it was recorded.
const MaxHandoff = 48 << 10

// MaxReferences bounds how many turns of the sender's window a received packet may name one by one, because each
// becomes a page. A handoff names some twenty and lists the others as ranges; a packet of another program may name more.
const MaxReferences = 512

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

// ActiveIntent is the task of the session.
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

// list is a copy that is never nil, as the schema wants arrays.
func list[T any](items []T) []T { return append([]T{}, items...) }

// JSON is the packet as the schema has it, indented, with a final newline. Each byte that is not UTF-8 becomes U+FFFD,
// as in the other forms.
func (p Packet) JSON() ([]byte, error) {
	p = p.filled()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(p); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPacket, err)
	}
	return b.Bytes(), nil
}

// filled has empty arrays for nil ones: the schema knows no null.
func (p Packet) filled() Packet {
	p.VerifiedSources, p.InferredClaims, p.LockedDecisions = list(p.VerifiedSources), list(p.InferredClaims), list(p.LockedDecisions)
	p.OpenQuestions, p.Corrections, p.Context = list(p.OpenQuestions), list(p.Corrections), list(p.Context)
	p.WorkCompleted, p.WorkNotYetCompleted, p.DoNotClaim = list(p.WorkCompleted), list(p.WorkNotYetCompleted), list(p.DoNotClaim)
	return p
}

// valid has U+FFFD for each byte that is no UTF-8: every form of a packet says the same.
func (p Packet) valid() Packet {
	var out Packet
	if raw, err := json.Marshal(p); err != nil || json.Unmarshal(raw, &out) != nil {
		return p // cannot be: a packet is made of strings
	}
	return out
}

// Markdown is the packet as a document of 14 sections in a fixed order. Texts cannot break out of their place: line
// ends in items become spaces, and characters that would make a heading or a table cell are escaped.
func (p Packet) Markdown() []byte {
	p = p.valid()
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Handoff Packet\n\n**Created for:** %s\n**Created by:** %s\n**Date:** %s\n**Session / project:** %s\n",
		line(p.CreatedFor), line(p.CreatedBy), line(p.Date), line(p.SessionOrProject))
	for i, s := range p.sections() {
		fmt.Fprintf(&b, "\n## %d. %s\n\n%s\n", i+1, s.title, strings.TrimSuffix(s.body, "\n"))
	}
	return b.Bytes()
}

// MaxBrief bounds Packet.Brief, in bytes: about 1,000 tokens, a quarter of a context of 4,000.
const MaxBrief = 4 << 10

// Brief returns the part that the next agent needs at all times: goal and next action, then as many corrections, boundaries,
// decisions, open work and questions as fit, with a count of the others. It is Markdown of at most MaxBrief bytes.
// whole, an id of up to 256 bytes, says where the packet is.
func (p Packet) Brief(whole string) []byte {
	p = p.valid()
	short := func(s string, limit int) string { return line(prose.Clip(s, limit)) }
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Handoff in brief\n\n**Created by:** %s, unverified\n**Whole packet:** %s\n\n## Goal\n\n%s\n\n## Next\n\n%s\n",
		short(p.CreatedBy, 64), line(whole), short(p.CurrentGoal, 256), short(p.NextAction, 128))
	few := func(title string, n int, text func(int) (string, string)) {
		const space, item = 400, 160
		if n == 0 {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		entry := func(i int) string {
			x, y := text(i)
			if y != "" {
				y = " (" + short(y, item/4) + ")"
			}
			return "- " + short(x, item) + y + "\n"
		}
		fit := prose.Within(n, space, func(i int) int { return len(entry(i)) })
		for i := range fit {
			b.WriteString(entry(i))
		}
		if fit < n {
			fmt.Fprintf(&b, "- %d of %d are in the whole packet only\n", n-fit, n)
		}
	}
	few("Corrections", len(p.Corrections), func(i int) (string, string) { return p.Corrections[i].Correction, p.Corrections[i].MeaningForNextAgent })
	few("Do not claim", len(p.DoNotClaim), func(i int) (string, string) { return p.DoNotClaim[i].Boundary, p.DoNotClaim[i].Reason })
	few("Decisions", len(p.LockedDecisions), func(i int) (string, string) { return p.LockedDecisions[i].Text, p.LockedDecisions[i].Basis })
	few("Open work", len(p.WorkNotYetCompleted), func(i int) (string, string) { return p.WorkNotYetCompleted[i], "" })
	few("Open questions", len(p.OpenQuestions), func(i int) (string, string) { return p.OpenQuestions[i].Question, p.OpenQuestions[i].WhyItMatters })
	return b.Bytes()
}

type section struct{ title, body string }

func (p Packet) sections() []section {
	return []section{
		{"Current Goal", paragraph(p.CurrentGoal)},
		{"Current State", paragraph(p.CurrentState)},
		{"Active Intent", p.ActiveIntent.markdown()},
		{"Verified Sources", sourceTable(p.VerifiedSources)},
		{"Inferred Claims", bullets("Inferred", "Basis", p.InferredClaims, func(i BasisItem) (string, string) { return i.Text, i.Basis })},
		{"Locked Decisions", bullets("Decision", "Basis", p.LockedDecisions, func(i BasisItem) (string, string) { return i.Text, i.Basis })},
		{"Open Questions", bullets("Question", "Why it matters", p.OpenQuestions, func(i QuestionItem) (string, string) { return i.Question, i.WhyItMatters })},
		{"Active User Corrections", bullets("Correction", "Meaning for next agent", p.Corrections, func(i CorrectionItem) (string, string) { return i.Correction, i.MeaningForNextAgent })},
		{"Context to Preserve", bullets("Context", "Why it matters", p.Context, func(i ContextItem) (string, string) { return i.Context, i.WhyItMatters })},
		{"Work Completed", bullets("Completed", "", p.WorkCompleted, func(s string) (string, string) { return s, "" })},
		{"Work Not Yet Completed", bullets("Remaining", "", p.WorkNotYetCompleted, func(s string) (string, string) { return s, "" })},
		{"Do Not Claim Beyond This", bullets("Boundary", "Reason", p.DoNotClaim, func(i BoundaryItem) (string, string) { return i.Boundary, i.Reason })},
		{"Recommended Next Action", paragraph(p.NextAction)},
		{"Handoff Notes for the Receiving Agent", paragraph(p.Notes)},
	}
}

func (a ActiveIntent) markdown() string {
	var b strings.Builder
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "- %s: %s\n", name, line(value))
		}
	}
	row("Primary intent", a.PrimaryIntent)
	row("Target/artifact", a.TargetOrArtifact)
	row("Status", a.Status)
	row("Basis", a.Basis)
	row("Secondary intent", a.SecondaryIntent)
	row("Unresolved slots", strings.Join(a.UnresolvedSlots, "; "))
	row("Flags", strings.Join(a.Flags, "; "))
	return b.String()
}

func sourceTable(sources []PacketSource) string {
	var b strings.Builder
	b.WriteString("| Source | Type | State | What was verified |\n|---|---|---|---|\n")
	for _, s := range sources {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", line(s.Source), line(s.Type), line(s.State), line(s.WhatWasVerified))
	}
	return b.String()
}

// bullets lists items, each with its second text one level below.
func bullets[T any](first, second string, items []T, of func(T) (string, string)) string {
	if len(items) == 0 {
		return "None recorded."
	}
	var b strings.Builder
	for _, i := range items {
		x, y := of(i)
		fmt.Fprintf(&b, "- %s: %s\n", first, line(x))
		if second != "" {
			fmt.Fprintf(&b, "  - %s: %s\n", second, line(y))
		}
	}
	return b.String()
}

// line makes a text safe inside one line of a list or a table.
func line(s string) string {
	return strings.NewReplacer(`\`, `\\`, "|", `\|`, "<", `\<`, "`", "\\`", "[", `\[`, "]", `\]`).Replace(strings.TrimSpace(prose.OneLine(s)))
}

// paragraph keeps the lines of a text and disarms those that would be anything
// but text.
func paragraph(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i, l := range lines {
		l = line(l)
		if l != "" && strings.ContainsAny(l[:1], "#-*+=>~_") {
			l = `\` + l
		}
		lines[i] = l
	}
	return strings.Join(lines, "\n")
}

// Validate checks the enumerations.
func (p Packet) Validate() error {
	var faults []error
	if !slices.Contains(intentVerbs, p.ActiveIntent.PrimaryIntent) {
		faults = append(faults, fmt.Errorf("%w: primary_intent %q is not one of %s", ErrPacket, p.ActiveIntent.PrimaryIntent, strings.Join(intentVerbs, ", ")))
	}
	for i, s := range p.VerifiedSources {
		if !slices.Contains(sourceStates, s.State) {
			faults = append(faults, fmt.Errorf("%w: verified_sources[%d].state %q is not one of %s", ErrPacket, i, s.State, strings.Join(sourceStates, ", ")))
		}
	}
	return errors.Join(faults...)
}
