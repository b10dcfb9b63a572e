package session

import (
	"slices"
	"strings"
)

// Limn returns the packet as lines to append to the strict contract of l: decisions, questions, corrections, claims,
// work and boundaries as lists, sources as a list for each state, the creation of the packet, and the mark that a
// handoff is ready. It writes only what the file does not say yet.
//
// The reason of each added entry names the session of the packet. By that name a later packet of the session removes
// what it no longer has: finished work, removed directives, answered questions. ownReasons are further phrases of reasons
// that belong to this session alone, as in Records.OwnReasons. Entries that a packet left out for lack of space stay.
//
// A text that means nothing to the interpreter is a reason, so the list says how far a source may be relied on. The
// sources' state is verified only if every source is. Blank texts are skipped.
func (p Packet) Limn(l *Ledger, ownReasons ...string) ([]byte, error) {
	p = p.valid()
	r := p.records()
	r.OwnReasons = append(slices.Clone(ownReasons), noted(p.SessionOrProject), handedOn(p.SessionOrProject))
	return l.export(func(d *draft) {
		d.moveSources(p)
		before := len(d.lines)
		d.records(r)
		d.state("handoff-state", "ready")
		d.created(p, len(d.lines) > before)
	})
}

// created records that the packet was made. The packet that the file has as its
// last, with nothing new in it, is not another one.
func (d *draft) created(p Packet, news bool) {
	const list, item = "tracked-decisions", "handoff-packet-created"
	why := p.CreatedBy + " for " + p.CreatedFor + ", " + p.Date
	if last, ok := d.l.find(list, item); !news && ok && last.why == strings.Trim(d.quoted(why), `"`) {
		return
	}
	d.declare(list)
	d.emit("add %q to %s because %s", item, list, d.quoted(why))
}

// noted is the phrase by which the reasons of a session's entries name it, where
// Session.Contract of the database writes such entries too; handedOn is that of
// the entries that only packets write.
func noted(session string) string    { return "noted in " + bracketed(session) }
func handedOn(session string) string { return "handed on by " + bracketed(session) }

// bracketed keeps a name from standing for one that is longer.
func bracketed(name string) string {
	return "[" + strings.Map(quotable, strings.NewReplacer("[", "%5B", "]", "%5D").Replace(name)) + "]"
}

// records are the packet's facts as records of a contract.
func (p Packet) records() Records {
	by := func(phrase string) func(text, why string) Entry {
		return func(text, why string) Entry { return Entry{text, strings.TrimPrefix(why+"; "+phrase, "; ")} }
	}
	shared, own := by(noted(p.SessionOrProject)), by(handedOn(p.SessionOrProject))
	plain := func(text string) Entry { return shared(text, "") }
	claims := entries(p.InferredClaims, func(c BasisItem) Entry { return own(c.Text, c.Basis) })
	r := Records{
		SourceState: p.sourceState(), ClaimBasis: BasisDocument,
		Decisions:   entries(p.LockedDecisions, func(d BasisItem) Entry { return shared(d.Text, d.Basis) }),
		Questions:   entries(p.OpenQuestions, func(q QuestionItem) Entry { return shared(q.Question, q.WhyItMatters) }),
		Corrections: entries(p.Corrections, func(c CorrectionItem) Entry { return shared(c.Correction, c.MeaningForNextAgent) }),
		Lists: []List{
			{"work-completed", entries(p.WorkCompleted, plain)},
			{"work-remaining", entries(p.WorkNotYetCompleted, plain)},
			{"context-to-preserve", entries(p.Context, func(c ContextItem) Entry { return own(c.Context, c.WhyItMatters) })},
			{"do-not-claim", entries(p.DoNotClaim, func(b BoundaryItem) Entry { return own(b.Boundary, b.Reason) })},
			{"inferred-claims", claims},
		},
		keep: p.cut(),
	}
	for _, c := range claims {
		r.ClaimBasis = BasisInference
		r.Claims = append(r.Claims, Statement{Name: c.Text, Text: c.Text})
	}
	for _, state := range sourceStates {
		r.Lists = append(r.Lists, List{state + "-sources", entries(p.sourcesOf(state), func(e Entry) Entry { return own(e.Text, e.Because) })})
	}
	return r
}

// cut names the lists of which the packet has a part only, for want of room.
func (p Packet) cut() (lists []string) {
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

// sourcesOf are the sources of one state.
func (p Packet) sourcesOf(state string) []Entry {
	return entries(p.VerifiedSources, func(s PacketSource) Entry {
		if s.State != state {
			return Entry{}
		}
		return Entry{s.Source, s.WhatWasVerified}
	})
}

// moveSources takes sources out of the lists of the states that they had, whoever
// wrote them there.
func (d *draft) moveSources(p Packet) {
	states := map[string][]string{} // by the source as it stands in a list
	for _, state := range sourceStates {
		for _, e := range p.sourcesOf(state) {
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

func blank(s string) bool { return strings.TrimSpace(oneLine(s)) == "" }

func (p Packet) sourceState() SourceState {
	state := Unscanned
	for _, s := range p.VerifiedSources {
		if s.State != "verified" {
			return Scanned
		}
		state = Verified
	}
	return state
}
