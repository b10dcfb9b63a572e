package handoff

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
)

// Entry is one item of a list, with an optional reason.
type Entry struct{ Text, Because string }

// List is a named list of a contract.
type List struct {
	Name  string
	Items []Entry
}

// Records are the records of a session in a contract, besides the pager's buckets. Only what the file does not have yet
// is written, so the same records may be passed again and again.
type Records struct {
	SourceState string   // how far the sources were checked: unscanned, scanned or verified; "": unchanged
	ClaimBasis  string   // what the claims rest on: none, inference, document or verified; "": unchanged
	Claims      []string // texts
	Decisions   []Entry
	Questions   []Entry
	Corrections []Entry
	Lists       []List
	// OwnReasons are phrases that mark the reasons of entries that this writer keeps up to date. An entry of the file
	// whose reason contains one of them, and that is not among the entries given here, is removed.
	OwnReasons []string
	keep       []string // lists that nothing is withdrawn from
}

// Records returns the lines for what is new in r. A blank text fails the whole export, and nothing changes.
func (l *Ledger) Records(r Records) ([]byte, error) {
	return l.export(func(d *draft) { d.records(r) })
}

func (d *draft) records(r Records) {
	d.state("source-state", r.SourceState)
	d.state("claim-basis", r.ClaimBasis)
	for _, c := range r.Claims {
		name, q := slug("claim", c), d.quoted(c)
		if `"`+d.l.names[name].text+`"` != q {
			d.emit("remember a claim called %s with %s", name, q)
		}
	}
	lists := []List{
		{"tracked-decisions", named("decision", r.Decisions)},
		{"open-questions", named("question", r.Questions)},
		{"session-corrections", r.Corrections},
	}
	for _, own := range r.Lists {
		lists = append(lists, List{listName(own.Name), own.Items})
	}
	d.withdraw(r, lists)
	for _, l := range lists {
		d.list(l.Name, l.Items)
	}
}

// state remembers a string unless it is the one remembered.
func (d *draft) state(name, value string) {
	if v := d.l.names[name]; value != "" && (v.kind != aText || v.text != value) {
		d.emit("remember a string called %s with %s", name, d.quoted(value))
	}
}

// withdraw removes entries of the file that have one of the writer's own reasons and are no longer given.
func (d *draft) withdraw(r Records, given []List) {
	if len(r.OwnReasons) == 0 {
		return
	}
	holds := map[[2]string]bool{}
	for _, l := range given {
		for _, e := range l.Items {
			holds[[2]string{l.Name, strings.Trim(d.quoted(e.Text), `"`)}] = true
		}
	}
	for _, list := range slices.Sorted(maps.Keys(d.l.names)) {
		if slices.Contains(r.keep, list) {
			continue
		}
		for _, i := range slices.Clone(d.l.names[list].items) {
			owned := slices.ContainsFunc(r.OwnReasons, func(phrase string) bool { return strings.Contains(i.why, phrase) })
			if owned && i.kind == aText && !holds[[2]string{list, i.text}] {
				d.emit(`remove "%s" from %s because "withdrawn"`, i.text, list)
			}
		}
	}
}

// named turns entries into short names, the text going to the reason.
func named(prefix string, entries []Entry) []Entry {
	out := make([]Entry, len(entries))
	for i, e := range entries {
		why := e.Text
		if !blank(e.Because) {
			why += " (" + e.Because + ")"
		}
		out[i] = Entry{slug(prefix, e.Text), why}
	}
	return out
}

// list declares a list once and adds what it does not hold. Going over the
// items twice brings back an item "none" whose place the next one took.
func (d *draft) list(name string, items []Entry) {
	for _, e := range slices.Concat(items, items) {
		item := d.quoted(e.Text)
		if _, ok := d.l.find(name, strings.Trim(item, `"`)); d.err != nil || ok {
			continue
		}
		d.declare(name)
		if blank(e.Because) {
			d.emit("add %s to %s", item, name)
		} else {
			d.emit("add %s to %s because %s", item, name, d.quoted(e.Because))
		}
	}
}

// Packet returns the lines to append so that the file has the facts of a packet: decisions, questions, corrections,
// claims, work and boundaries as lists, sources as a list for each state, the creation of the packet, and the mark that
// a handoff is ready. It writes only what the file does not have yet.
//
// The reason of each added entry names the session of the packet. By that name a later packet of the session removes
// what it no longer has: finished work, removed directives, answered questions. ownReasons are further phrases of reasons
// that belong to this session alone, as in Records.OwnReasons. Entries that a packet left out for lack of space stay.
//
// A text that means nothing to the interpreter is a reason, so the list tells how far a source may be relied on. The
// sources' state is verified only if every source is. Blank texts are skipped.
func (l *Ledger) Packet(p session.Packet, ownReasons ...string) ([]byte, error) {
	raw, err := p.JSON() // with U+FFFD for bytes that are not UTF-8, as in the other forms
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err != nil {
		return nil, err
	}
	r := recordsOf(p)
	r.OwnReasons = append(slices.Clone(ownReasons), noted(p.SessionOrProject), handedOn(p.SessionOrProject))
	return l.export(func(d *draft) {
		d.moveSources(p)
		before := len(d.lines)
		d.records(r)
		d.state("handoff-state", "ready")
		d.created(p, len(d.lines) > before)
	})
}

// sourceStates are the states of the sources of a packet.
var sourceStates = []string{"verified", "scanned", "referenced", "unavailable"}

// recordsOf returns the facts of a packet as records of a contract.
func recordsOf(p session.Packet) Records {
	by := func(phrase string) func(text, why string) Entry {
		return func(text, why string) Entry { return Entry{text, strings.TrimPrefix(why+"; "+phrase, "; ")} }
	}
	shared, own := by(noted(p.SessionOrProject)), by(handedOn(p.SessionOrProject))
	plain := func(text string) Entry { return shared(text, "") }
	claims := entries(p.InferredClaims, func(c session.BasisItem) Entry { return own(c.Text, c.Basis) })
	r := Records{
		SourceState: "unscanned", ClaimBasis: "document",
		Decisions:   entries(p.LockedDecisions, func(d session.BasisItem) Entry { return shared(d.Text, d.Basis) }),
		Questions:   entries(p.OpenQuestions, func(q session.QuestionItem) Entry { return shared(q.Question, q.WhyItMatters) }),
		Corrections: entries(p.Corrections, func(c session.CorrectionItem) Entry { return shared(c.Correction, c.MeaningForNextAgent) }),
		Lists: []List{
			{"work-completed", entries(p.WorkCompleted, plain)},
			{"work-remaining", entries(p.WorkNotYetCompleted, plain)},
			{"context-to-preserve", entries(p.Context, func(c session.ContextItem) Entry { return own(c.Context, c.WhyItMatters) })},
			{"do-not-claim", entries(p.DoNotClaim, func(b session.BoundaryItem) Entry { return own(b.Boundary, b.Reason) })},
			{"inferred-claims", claims},
		},
		keep: incomplete(p),
	}
	if len(p.VerifiedSources) > 0 {
		r.SourceState = "verified"
	}
	if slices.ContainsFunc(p.VerifiedSources, func(s session.PacketSource) bool { return s.State != "verified" }) {
		r.SourceState = "scanned"
	}
	for _, c := range claims {
		r.ClaimBasis = "inference"
		r.Claims = append(r.Claims, c.Text)
	}
	for _, state := range sourceStates {
		r.Lists = append(r.Lists, List{state + "-sources", entries(sourcesOf(p, state), func(e Entry) Entry { return own(e.Text, e.Because) })})
	}
	return r
}

// incomplete names the lists of which the packet has only a part, for lack of room.
func incomplete(p session.Packet) (lists []string) {
	if n := len(p.LockedDecisions); n > 0 && strings.HasPrefix(p.LockedDecisions[n-1].Basis, leftOut) {
		lists = append(lists, "tracked-decisions")
	}
	if n := len(p.Corrections); n > 0 && strings.HasPrefix(p.Corrections[n-1].MeaningForNextAgent, leftOut) {
		lists = append(lists, "session-corrections")
	}
	if n := len(p.VerifiedSources); n > 0 && strings.HasSuffix(p.VerifiedSources[n-1].WhatWasVerified, leftOut) {
		for _, state := range sourceStates {
			lists = append(lists, state+"-sources")
		}
	}
	return lists
}

// sourcesOf returns the sources of one state.
func sourcesOf(p session.Packet, state string) []Entry {
	return entries(p.VerifiedSources, func(s session.PacketSource) Entry {
		if s.State != state {
			return Entry{}
		}
		return Entry{s.Source, s.WhatWasVerified}
	})
}

// created records that the packet was made. The packet that the file has as its
// last, with nothing new in it, is not another one.
func (d *draft) created(p session.Packet, news bool) {
	const list, item = "tracked-decisions", "handoff-packet-created"
	why := p.CreatedBy + " for " + p.CreatedFor + ", " + p.Date
	if last, ok := d.l.find(list, item); !news && ok && last.why == strings.Trim(d.quoted(why), `"`) {
		return
	}
	d.declare(list)
	d.emit("add %q to %s because %s", item, list, d.quoted(why))
}

// noted returns the phrase that names a session in the reasons of entries that notes write as well; handedOn returns the
// phrase of entries that only packets write.
func noted(session string) string    { return "noted in " + bracketed(session) }
func handedOn(session string) string { return "handed on by " + bracketed(session) }

// bracketed keeps a name from standing for one that is longer.
func bracketed(name string) string {
	return "[" + strings.Map(quotable, strings.NewReplacer("[", "%5B", "]", "%5D").Replace(name)) + "]"
}

// moveSources takes sources out of the lists of the states that they had, whoever
// wrote them there.
func (d *draft) moveSources(p session.Packet) {
	states := map[string][]string{} // by the source as it stands in a list
	for _, state := range sourceStates {
		for _, e := range sourcesOf(p, state) {
			item := strings.Trim(d.quoted(e.Text), `"`)
			states[item] = append(states[item], state)
		}
	}
	for _, state := range sourceStates {
		for _, i := range d.l.names[state+"-sources"].items {
			if is := states[i.text]; i.kind == aText && len(is) > 0 && !slices.Contains(is, state) {
				d.emit(`remove "%s" from %s-sources because "%s now"`, i.text, state, is[0])
			}
		}
	}
}

// entries turns items into entries, blank ones left out.
func entries[T any](items []T, of func(T) Entry) (out []Entry) {
	for _, i := range items {
		if e := of(i); !blank(e.Text) {
			out = append(out, e)
		}
	}
	return out
}

func blank(s string) bool { return strings.TrimSpace(prose.OneLine(s)) == "" }
