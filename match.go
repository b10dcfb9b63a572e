package ctxpage

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// How well a context matches its question, so that an agent can say that it has nothing on it. It follows from the share of
// the question's words that pages of the context have (Covered), and from what brought its pages in.
//
// Measured on chats with an assistant (bench/README.md, Nothing matches): the share tells questions about something else
// from questions that can be answered. It cannot tell that a detail of something known was never said: all words but the
// one for the detail are there.

const (
	// goodMatch and weakMatch are the shares of words from which a match is good or weak.
	goodMatch = .6
	weakMatch = .2
	// nearMatch is the cosine from which a page counts as near in meaning. Models differ in what they give to texts that
	// have nothing in common, so meaning makes a match weak and never good.
	nearMatch = .3
	// matchWithin bytes of a context are read for the words of the question, from its best page on. Their words come early;
	// the rest of a large context would cost as much as the assembly itself.
	matchWithin = 16 << 10
)

// judges reports whether there is a question that a context can match: one with words, or with a vector. What is not asked
// for by its content, such as "what is it?", is answered by recency.
func (a *assembling) judges() bool {
	if a.q.Text == "" {
		return a.embedder != ""
	}
	return len(a.terms) > 0 && a.s.db.lexer.StopWords(a.q.Text) == nil
}

// near reports whether a page is near the question in meaning.
func (it *item) near() bool { return it.cosine != nil && *it.cosine >= nearMatch }

// match judges the context. If nothing matches, it is made again without pages that are only recent or trusted.
func (a *assembling) match(ctx context.Context) error {
	a.judgeMatch()
	if a.out.Match != manifest.MatchNone || a.q.Recent || a.q.Session != "" || !slices.ContainsFunc(a.placed, (*item).unasked) {
		return nil
	}
	a.unplace()
	for _, it := range a.ranked {
		if it.reason == "" && it.unasked() {
			it.reason = triage.NoMatch
		}
	}
	if err := a.fit(ctx); err != nil {
		return err
	}
	if a.judgeMatch(); a.out.Match == manifest.MatchNone {
		return nil
	}
	for _, it := range a.ranked { // they had taken the room of pages that match
		if it.reason == triage.NoMatch {
			it.reason = triage.ReasonLow
		}
	}
	return nil
}

// unasked reports whether a page is only recent or trusted: where no page matches the question, an agent would take it for
// an answer. Protected pages, what people have verified, and drafts are not.
func (it *item) unasked() bool {
	return it.cand.Lexical.Score <= 0 && !it.near() && !it.protected() && it.own == nil && it.cand.Provenance != store.HumanVerified
}

// judgeMatch says how well the context matches the question. A word that no page has is not covered, even if it was read as
// another: that may be wrong, so it makes a match weak and never good.
func (a *assembling) judgeMatch() {
	if read := a.readAs(); read != "" {
		a.out.Degraded = strings.TrimPrefix(a.out.Degraded+"; "+read, "; ")
	}
	if !a.judges() {
		return
	}
	covered := func(terms []string) float64 {
		return a.s.db.lexer.Covered(terms, a.searched(), a.evidence(), matchWithin)
	}
	a.out.Covered = covered(a.terms)
	switch {
	case a.out.Covered >= goodMatch:
		a.out.Match = manifest.MatchGood
	case a.out.Covered >= weakMatch || slices.ContainsFunc(a.placed, (*item).near) || covered(a.cands.Typed.Terms) >= weakMatch:
		a.out.Match = manifest.MatchWeak
	default:
		a.out.Match = manifest.MatchNone
	}
}

// searched returns the terms that the index looked for.
func (a *assembling) searched() []string {
	if a.cands.Typed.Terms != nil {
		return a.cands.Typed.Terms
	}
	return a.terms
}

// readAs says which words of the question no page has, and what they were read as.
func (a *assembling) readAs() string {
	var b strings.Builder
	for _, r := range a.cands.Typed.Read {
		fmt.Fprintf(&b, "; no page has %q, it was read as %q", r.Asked, r.As)
	}
	return strings.TrimPrefix(b.String(), "; ")
}

// evidence returns the texts of the context that can answer the question, best first, with what else finds them: all but
// system pages and the turn that asks. What the index found no word in has none, and need not be read. What the index knows
// of the words of a text comes with it (lexical.Hit.Has).
func (a *assembling) evidence() iter.Seq2[string, uint32] {
	order := make([]int, 0, len(a.placed))
	for i, it := range a.placed {
		if it.cand.Lexical.Score > 0 && it.cand.Kind != store.KindSystem && (it.turn == nil || !it.turn.Newest && !it.turn.Asks) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return cmp.Compare(a.placed[y].scored.score, a.placed[x].scored.score)
	})
	return func(yield func(string, uint32) bool) {
		speaker, dated, left := "", false, matchWithin
		for _, i := range order {
			it, h := a.placed[i], &a.placed[i].cand.Lexical
			has, text, header := h.Has, a.out.shown[i].Text, format.IndexHeader(&it.head.Artefact)
			left -= len(text) + len(header)
			if left < 0 || it.frame == nil || it.frame.num != h.Num || text != it.frame.text || it.cand.Kind == store.KindMessage {
				has = 0 // it is not what the index has, or it is not read to its end
			}
			if (h.Own > 0 || h.Forms > 0) && !yield(text, has) {
				return
			}
			if it.cand.Kind == store.KindMessage { // named speakers and months are the same on many turns: once will do
				if known := (h.Speaker == 0 || it.head.Name == speaker) && (h.Date == 0 || dated); known {
					continue
				}
				speaker, dated = it.head.Name, dated || h.Date > 0
			}
			if !yield(header, has) {
				return
			}
		}
	}
}
