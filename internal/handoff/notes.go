package handoff

import (
	"slices"
	"strings"
	"unicode"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Told are the phrases that end the reasons of what the scope and its ancestors were told: as the reasons end, so that no
// scope stands for one whose name is longer.
func Told(chain store.Scopes) (phrases []string) {
	for _, scope := range chain {
		for _, end := range []string{")", ":", ";"} {
			phrases = append(phrases, directiveOf+scope+end)
		}
	}
	return phrases
}

// directiveOf begins the reason of what a scope was told.
const directiveOf = "directive of the user in "

// Directives are the locked decisions and the corrections of the user: what the scope and its ancestors were told.
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

// Records adds what notes and directives say to records of a session, a name of which is given.
func Records(r *session.Records, n session.Notes, told directive.Effective, of store.Ref, chain store.Scopes) {
	decisions, corrections := Directives(told)
	for _, d := range decisions {
		r.Decisions = append(r.Decisions, session.Entry{Text: d.Text, Because: d.Basis})
	}
	for _, x := range corrections {
		r.Corrections = append(r.Corrections, session.Entry{Text: x.Correction, Because: x.MeaningForNextAgent})
	}
	noted := "noted in [" + of.String() + "]" // so that no id stands for one that is longer
	for _, q := range n.Questions {
		if !visible(q.Question) {
			continue
		}
		r.Questions = append(r.Questions, session.Entry{Text: q.Question, Because: strings.TrimPrefix(q.WhyItMatters+"; "+noted, "; ")})
	}
	for _, l := range []struct {
		name  string
		items []string
	}{{"work-completed", n.Done}, {"work-remaining", n.Open}} {
		list := session.List{Name: l.name}
		for _, item := range l.items {
			if visible(item) {
				list.Items = append(list.Items, session.Entry{Text: item, Because: noted})
			}
		}
		r.Lists = append(r.Lists, list)
	}
	r.OwnReasons = append(append(r.OwnReasons, noted), Told(chain)...)
}

// visible reports whether a note shows anything. One that does not is passed over: it would make the whole contract fail.
func visible(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) })
}

// References are the texts of the references of a packet, and which of them are pinned: the newest that were pinned
// there, up to session.MaxBrief bytes.
func References(p session.Packet) (texts []string, pinned []bool) {
	items := map[string]string{} // the context of a reference, by its form and name
	for _, item := range p.Context {
		if key, _, ok := strings.Cut(item.Context, " ("); ok && items[key] == "" {
			items[key] = item.Context
		}
	}
	refs := p.References()
	texts, pinned = make([]string, len(refs)), make([]bool, len(refs))
	remaining := session.MaxBrief
	for i, r := range slices.Backward(refs) {
		texts[i] = "handed over by " + p.CreatedBy + ", unverified: " + items[r.Form+" "+r.Ref]
		if r.Form == "pinned" {
			remaining -= len(texts[i])
			pinned[i] = remaining >= 0
		}
	}
	return texts, pinned
}
