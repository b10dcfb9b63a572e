package handoff

import (
	"strings"
	"unicode"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// toldIn returns the phrases that end the reasons of directives of a chain of scopes: with the character behind the name,
// so that no scope stands for one whose name is longer.
func toldIn(chain store.Scopes) (phrases []string) {
	for _, scope := range chain {
		for _, end := range []string{")", ":", ";"} {
			phrases = append(phrases, directiveOf+scope+end)
		}
	}
	return phrases
}

// directiveOf begins the reason of a directive.
const directiveOf = "directive of the user in "

// Directives returns the directives in force as the locked decisions and the corrections of the user.
func Directives(told directive.Effective) (decisions []session.BasisItem, corrections []session.CorrectionItem) {
	for _, p := range told.Premises {
		decisions = append(decisions, session.BasisItem{Text: "premise: " + p.Premise, Basis: directiveOf + p.Scope})
	}
	for _, p := range told.Policies {
		if p.Polarity == directive.Prohibit {
			corrections = append(corrections, session.CorrectionItem{
				Correction: "prohibit " + p.Item, MeaningForNextAgent: directiveOf + p.Scope + ": do not use or propose it",
			})
			continue
		}
		decisions = append(decisions, session.BasisItem{Text: "use " + p.Item, Basis: directiveOf + p.Scope})
	}
	return decisions, corrections
}

// Contract returns the bytes to append to a contract file whose content is have: the lines of the pass in force, nil if
// there is none, then those of the session's notes and directives.
func Contract(have []byte, p *session.StoredPass, n session.Notes, told directive.Effective, of store.Ref, chain store.Scopes) ([]byte, error) {
	l, err := ReadLedger(have)
	if err != nil {
		return nil, err
	}
	var out []byte
	if p != nil {
		if out, err = l.Pass(p, p.At); err != nil {
			return nil, err
		}
	}
	more, err := l.Records(recordsFrom(n, told, of, chain))
	if err != nil {
		return nil, err
	}
	return append(out, more...), nil
}

// PacketContract returns the bytes to append to a contract file whose content is have, so that it has the facts of a packet.
func PacketContract(have []byte, p session.Packet, chain store.Scopes) ([]byte, error) {
	l, err := ReadLedger(have)
	if err != nil {
		return nil, err
	}
	return l.Packet(p, toldIn(chain)...)
}

// recordsFrom returns what notes and directives of a session say.
func recordsFrom(n session.Notes, told directive.Effective, of store.Ref, chain store.Scopes) (r Records) {
	decisions, corrections := Directives(told)
	for _, d := range decisions {
		r.Decisions = append(r.Decisions, Entry{d.Text, d.Basis})
	}
	for _, x := range corrections {
		r.Corrections = append(r.Corrections, Entry{x.Correction, x.MeaningForNextAgent})
	}
	by := noted(of.String())
	for _, q := range n.Questions {
		if visible(q.Question) {
			r.Questions = append(r.Questions, Entry{q.Question, strings.TrimPrefix(q.WhyItMatters+"; "+by, "; ")})
		}
	}
	for _, l := range []struct {
		name  string
		items []string
	}{{"work-completed", n.Done}, {"work-remaining", n.Open}} {
		list := List{Name: l.name}
		for _, item := range l.items {
			if visible(item) {
				list.Items = append(list.Items, Entry{item, by})
			}
		}
		r.Lists = append(r.Lists, list)
	}
	r.OwnReasons = append([]string{by}, toldIn(chain)...)
	return r
}

// visible reports whether a note shows anything. Blank notes are skipped, because they would fail the whole contract.
func visible(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) })
}
