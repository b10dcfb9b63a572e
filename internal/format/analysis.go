package format

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// Analyse returns the analysis of a page that the index keeps. Of a message only the text is
// analysed: its speaker and time are kept beside it (TurnOf). The header of any other page is
// indexed with the text, because people search for a date, an author or a source as for any other
// word. The header has the month by name, as people write it. It does not have the kind, which is
// the same word on most pages.
func Analyse(an *lexical.Analyzer, a *store.Artefact, text string) lexical.Analysis {
	return analyse(a, text, an.Analyze)
}

// LendAnalysis returns the same, for use by an index alone: see lexical.Analyzer.Lend.
func LendAnalysis(an *lexical.Analyzer, a *store.Artefact, text string) lexical.Analysis {
	return analyse(a, text, an.Lend)
}

func analyse(a *store.Artefact, text string, with func(parts ...string) lexical.Analysis) lexical.Analysis {
	if a.Kind != store.KindMessage {
		return with(IndexHeader(a), text)
	}
	text = spoken(a, text)
	out := with(text)
	out.Traits = lexical.TraitsOf(text, a.Role != "assistant" && a.Role != "tool")
	return out
}

// TurnOf returns what the index keeps of a message in addition to its words: speaker, time and the
// like. It is nil for pages of other kinds.
func TurnOf(a *store.Artefact) *lexical.Turn {
	if a.Kind != store.KindMessage {
		return nil
	}
	return &lexical.Turn{Speaker: a.Name, Month: lexical.MonthOf(a.CurrentAsOf)}
}

// spoken returns a message without the name of its speaker, where that stands before it as in a
// transcript.
func spoken(a *store.Artefact, text string) string {
	if rest, ok := strings.CutPrefix(text, a.Name); ok && a.Name != "" && strings.HasPrefix(rest, ":") {
		return rest[1:]
	}
	return text
}

// IndexHeader returns the words by which a page is found in addition to its text. A page whose
// header changed gets a new number.
func IndexHeader(a *store.Artefact) string {
	header := dateOf(a.CurrentAsOf) + a.Name
	if a.Source != "" {
		header += " " + a.ID
	}
	return header
}

// day is a date and how it is written.
type day struct {
	number int64 // since 1970
	text   string
}

// lastDay is the one that was asked for last: most pages are of the same.
var lastDay atomic.Pointer[day]

// dateOf is the date of a time, and a space.
func dateOf(t time.Time) string {
	t = t.UTC()
	number := t.Unix() / (24 * 60 * 60)
	if t.Unix() < 0 { // a part of a day before 1970 would count as one of 1970
		return t.Format(dateForm)
	}
	if d := lastDay.Load(); d != nil && d.number == number {
		return d.text
	}
	d := &day{number, t.Format(dateForm)}
	lastDay.Store(d)
	return d.text
}

const dateForm = "2 January 2006 "

// FoundAlike reports whether the index keeps the same entries for a text under either head.
func FoundAlike(a, b *store.Artefact) bool {
	return IndexHeader(a) == IndexHeader(b) && (a.Kind == store.KindMessage) == (b.Kind == store.KindMessage)
}

// Finite reports whether a vector has neither infinities nor NaN.
func Finite(v []float32) bool {
	return !slices.ContainsFunc(v, func(f float32) bool { return f-f != 0 })
}
