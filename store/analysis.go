package store

import (
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/lexical"
)

// Analyse makes ready what the index keeps of a page. Of a message that is what was said: who says
// it and when are kept beside it (TurnOf). The header of other pages is indexed as text: date,
// author and source are asked for like any other word. The month stands by name, as people ask for
// it; the kind is left out, for it is the same word on most pages.
func Analyse(an *lexical.Analyzer, a *Artefact, text string) lexical.Analysis {
	return analyse(a, text, an.Analyze)
}

// LendAnalysis returns what Analyse returns, for an index alone: see lexical.Analyzer.Lend.
func LendAnalysis(an *lexical.Analyzer, a *Artefact, text string) lexical.Analysis {
	return analyse(a, text, an.Lend)
}

func analyse(a *Artefact, text string, with func(parts ...string) lexical.Analysis) lexical.Analysis {
	if a.Kind != KindMessage {
		return with(IndexHeader(a), text)
	}
	text = said(a, text)
	out := with(text)
	out.First = lexical.FirstPerson(text)
	return out
}

// TurnOf is what the index keeps of a message beside its words; nil for pages of other kinds.
func TurnOf(a *Artefact) *lexical.Turn {
	if a.Kind != KindMessage {
		return nil
	}
	return &lexical.Turn{Speaker: a.Name, Month: lexical.MonthOf(a.CurrentAsOf)}
}

// said is a message without the name of its speaker, where that stands before it as in a
// transcript.
func said(a *Artefact, text string) string {
	if rest, ok := strings.CutPrefix(text, a.Name); ok && a.Name != "" && strings.HasPrefix(rest, ":") {
		return rest[1:]
	}
	return text
}

// VisitAnalysis gives fn what Analyse returns; fn must not keep it.
func VisitAnalysis(an *lexical.Analyzer, a *Artefact, text string, fn func(lexical.Analysis)) {
	if a.Kind != KindMessage {
		an.Visit(fn, IndexHeader(a), text)
		return
	}
	text = said(a, text)
	an.Visit(func(out lexical.Analysis) {
		out.First = lexical.FirstPerson(text)
		fn(out)
	}, text)
}

// IndexHeader is what a page is found by beside its text. A page whose header changed cannot go on
// under its number.
func IndexHeader(a *Artefact) string {
	header := a.CurrentAsOf.UTC().Format("2 January 2006 ") + a.Name
	if a.Source != "" {
		header += " " + a.ID
	}
	return header
}

// FoundAlike says whether the index keeps the same of a text under two heads.
func FoundAlike(a, b *Artefact) bool {
	return IndexHeader(a) == IndexHeader(b) && (a.Kind == KindMessage) == (b.Kind == KindMessage)
}

// Finite says that a vector has neither infinities nor NaN.
func Finite(v []float32) bool {
	return !slices.ContainsFunc(v, func(f float32) bool { return f-f != 0 })
}
