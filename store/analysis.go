package store

import (
	"slices"

	"github.com/ctxpage/ctxpage/lexical"
)

// Analyse indexes the header of a page as text: its date, author and source are asked for like any other word. The
// month stands by name, as people ask for it; the kind is left out, for it is the same word on most pages.
func Analyse(an *lexical.Analyzer, a *Artefact, text string) lexical.Analysis {
	return an.Analyze(IndexHeader(a), text)
}

func IndexHeader(a *Artefact) string {
	header := a.CurrentAsOf.UTC().Format("2 January 2006 ") + a.Name
	if a.Source != "" {
		header += " " + a.ID
	}
	return header
}

func Finite(v []float32) bool {
	return !slices.ContainsFunc(v, func(f float32) bool { return f-f != 0 })
}
