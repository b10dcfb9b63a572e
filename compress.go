package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// When not all winners fit, a page may enter a context in a short form. In this order of preference:
//
//	a stored summary of exactly this page version
//	a summary that Options.Summarizer makes now; it is stored, so it is made once
//	whole sentences cut out of the page (package cut)
//
// A stored summary is an artefact of kind summary that derives from one page, or from an artefact of one page, and from
// nothing else. It belongs to the version that it was made of: when the page changes the summary is dirty, and another
// one is made.
//
// A cut keeps about a third of its page, and about Query.SummaryTokens at most; a summary may take as much.
//
// Invariant: a short form costs no more than the budget was told. A summary may take at most what the cut would have
// taken, so the allocator's answer holds whatever the summarizer returns. A summary never has more trust than its page,
// nor than what passes the gate, and ends when its page ends.

// noteNoSummary is the manifest's note on a page for which the summarizer returned nothing usable.
const noteNoSummary = "the summarizer gave nothing that fits; cut to sentences"

// metaSummarizer is the metadata of a summary that the database made: the name of the summarizer.
const metaSummarizer = "summarizer"

// reasonSummed leaves a summary out when its page is a winner too. One of the two is enough, and the page can take the
// form of the summary.
const reasonSummed = "the page it sums up was chosen itself"

// compress offers the allocator a short form of a page. An extract is offered by an estimate: making and counting those of all
// winners takes as long as the rest of an assembly, and few of them are taken (extract). Turns keep the form that the window gave them, but the newest one:
// where nothing else helps, a question that is cut short is better than none.
func (a *assembling) compress(ctx context.Context, it *item, b *triage.Item) error {
	if it.whole || it.fixed() != manifest.FormFull || it.turn != nil && it.turn.Managed && !it.turn.Newest && !it.turn.Asks && it.turn.Pages == nil || len(it.head.Rows) == 0 {
		return nil
	}
	if it.sum == nil && it.own == nil {
		sum, err := a.storedSummary(ctx, it)
		if err != nil {
			return err
		}
		it.sum = sum
	}
	if it.sum != nil {
		b.Compressed = it.sum.tokens
		return nil
	}
	if it.cutCost > 0 && it.cutQuoted == it.quoted {
		b.Compressed = it.cutCost
	} else if prose.Cuttable(it.text) {
		b.Compressed, b.Rough = max(1, min(b.Tokens/prose.CutShare, a.q.SummaryTokens)), true
	}
	return nil
}

// extract makes the extract of a page that the allocator may take, and counts it.
func (a *assembling) extract(it *item, b *triage.Item) {
	if it.cuts == nil {
		it.cuts = a.parts(it).Extract(a.asked, a.summaryBytes(it))
	}
	if b.Compressed, b.Rough = 0, false; len(it.cuts) > 0 {
		it.cutCost, it.cutQuoted = a.costAs(it, manifest.FormRange, it.cut()), it.quoted
		b.Compressed = it.cutCost
	}
}

// summaryBytes returns the bytes of a page that Query.SummaryTokens allows in a short form, if its tokens are equally long.
func (a *assembling) summaryBytes(it *item) int {
	n := tokens(a.counter, it.head, it.page, it.text)
	if n <= a.q.SummaryTokens {
		return len(it.text)
	}
	return len(it.text) * a.q.SummaryTokens / n
}

// parts returns the sentences of a page, computed once for each frame.
func (a *assembling) parts(it *item) *prose.Parts {
	if a.asked == nil {
		a.asked = prose.QuestionTerms(a.s.db.lexer, a.q.Text)
	}
	if it.frame == nil || it.frame.text != it.text {
		return prose.PartsOf(it.text, a.s.db.lexer)
	}
	x := it.frame.parts.Load()
	if x == nil {
		x = prose.PartsOf(it.text, a.s.db.lexer)
		if it.frame.parts.CompareAndSwap(nil, x) {
			a.s.db.table.grew(it.frame, x.Bytes())
		}
	}
	return x
}

// storedSummary finds the newest usable summary of a page version; nil: none.
func (a *assembling) storedSummary(ctx context.Context, it *item) (*summary, error) {
	page, err := a.s.db.store.Scan(ctx, store.ScanQuery{What: store.ScanSummaries, Scopes: a.s.chain, Of: Ref{Scope: it.head.Scope, ID: it.head.ID}})
	if err != nil {
		return nil, err
	}
	for _, h := range page.Heads {
		if !a.usable(it, h) || !a.summarises(ctx, h, it.cand.Key.Num) {
			continue
		}
		loaded, err := a.s.db.store.Load(ctx, a.s.chain, []store.PageKey{{Num: h.Rows[0].Num, Version: h.Version}}, store.WantText)
		if err != nil {
			return nil, err
		}
		if l := &loaded[0]; l.Err == nil {
			return a.summaryOf(it, l), nil
		} else if !errors.Is(l.Err, store.ErrGone) && !errors.Is(l.Err, store.ErrNotFound) && !errors.Is(l.Err, store.ErrCorrupt) {
			return nil, l.Err
		}
	}
	return nil, nil
}

// summaryOf makes the short form of an item from a loaded summary, with the cost of its header.
func (a *assembling) summaryOf(it *item, l *store.Loaded) *summary {
	return &summary{num: l.Key.Num, head: l.Head, text: l.Text, tokens: a.costAs(it, manifest.FormSummary, l.Text)}
}

// usable applies the exclusions to a summary. A summary of a page that is exempt from the floor is exempt too.
func (a *assembling) usable(it *item, h *store.Head) bool {
	return (h.ExpiresAt.IsZero() || h.ExpiresAt.After(a.now)) && h.Provenance >= min(a.q.Floor, it.head.Provenance) && (a.q.AsOf == 0 || h.LSN <= a.q.AsOf)
}

// summarises reports whether a summary was made of exactly this page version.
func (a *assembling) summarises(ctx context.Context, h *store.Head, num uint64) bool {
	l, err := a.s.db.store.Resolve(ctx, a.s.chain, h.DerivedFrom[0])
	return err == nil && len(l.Pages) == 1 && l.Pages[0].Num == num
}

// dropSummaries leaves out summaries whose page is among the winners, and those that the database made of what an agent or a
// tool said in another conversation, which is visible there only.
func (a *assembling) dropSummaries(ctx context.Context) error {
	var nums map[uint64]bool
	for _, it := range a.ranked {
		if it.reason != "" || it.head == nil || it.head.Kind != store.KindSummary || len(it.head.DerivedFrom) != 1 || it.protected() {
			continue
		}
		if nums == nil {
			nums = map[uint64]bool{}
			for _, o := range a.ranked {
				if o.reason == "" {
					nums[o.cand.Key.Num] = true
				}
			}
		}
		l, err := a.s.db.store.Resolve(ctx, a.s.chain, it.head.DerivedFrom[0])
		if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrGone) {
			return err
		}
		switch {
		case len(l.Pages) == 1 && nums[l.Pages[0].Num]:
			it.reason = reasonSummed
		case len(l.Pages) > 0 && it.head.Provenance <= store.Tool && (strings.HasPrefix(it.head.ID, directivelog.Reserved) || it.head.Meta[metaSummarizer] != ""):
			of, err := a.s.db.store.Load(ctx, a.s.chain, l.Pages[:1], store.WantHead)
			if err != nil {
				return err
			}
			if of[0].Err == nil && a.saidElsewhere(of[0].Head) {
				it.reason = triage.OtherSession
			}
		}
	}
	return nil
}

// saidElsewhere reports whether an agent or a tool said a page in a conversation that does not ask.
func (a *assembling) saidElsewhere(h *store.Head) bool {
	own := h.Group == a.q.Session && h.Scope == a.s.name
	return h.Kind == store.KindMessage && h.Provenance <= store.Tool && h.Group != "" && !own
}

// summarise requests summaries for the pages that are about to be cut, and stores them. Up to eight requests run at
// once, each under SummarizeTimeout. A read-only database, an assembly of the past and a dry one request none, because they
// could not store the result. A page whose summary would fall below the floor of the query gets none either.
func (a *assembling) summarise(ctx context.Context, res triage.Result, at []int) {
	by := a.s.db.opts.Summarizer
	if by == nil || a.s.db.opts.ReadOnly || a.q.AsOf != 0 || a.q.Dry {
		return
	}
	var asked []*item
	var limits []int // tokens that each summary may take
	for _, p := range res.Placed {
		it := a.ranked[at[p.Index]]
		trusted := min(it.head.Provenance, store.Validated) >= min(a.q.Floor, it.head.Provenance)
		if p.Form == triage.Compressed && it.sum == nil && it.own == nil && !it.asked && trusted {
			asked, limits = append(asked, it), append(limits, p.Tokens)
		}
	}
	texts := make([]string, len(asked))
	var wg sync.WaitGroup
	gate := make(chan struct{}, 8)
	for i, it := range asked {
		wg.Add(1)
		gate <- struct{}{}
		text, most := it.text, limits[i]-a.costAs(it, manifest.FormSummary, "") // the item is the next assembly's if that panics
		go func() {
			defer wg.Done()
			defer func() { <-gate }()
			texts[i] = a.s.db.shorten(ctx, by, text, most)
		}()
	}
	wg.Wait()
	a.keepSummaries(ctx, by, asked, texts, limits)
}

// shorten asks the summarizer for one summary; "": nothing usable came in time.
func (db *DB) shorten(ctx context.Context, by conversation.Summarizer, text string, most int) string {
	if most <= 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, db.opts.SummarizeTimeout)
	defer cancel()
	short, err := loop.Call(ctx, func() (string, error) { return by.Summarize(ctx, text, most) })
	if short = strings.TrimSpace(short); err == nil && (short == "" || !utf8.ValidString(short) || len(short) > len(text)) {
		err = fmt.Errorf("got %d bytes for a text of %d, expected fewer, and UTF-8", len(short), len(text))
	}
	if err != nil {
		db.opts.Logger.Warn("the summarizer failed; an extract is used", "summarizer", by.Name(), "error", err)
		return ""
	}
	return short
}

// keepSummaries stores the summaries in one commit and puts them in place of their pages.
func (a *assembling) keepSummaries(ctx context.Context, by Summarizer, asked []*item, texts []string, limits []int) {
	var puts []store.Put
	var made []*item
	for i, it := range asked {
		it.asked = true
		if texts[i] == "" || a.costAs(it, manifest.FormSummary, texts[i]) > limits[i] {
			continue
		}
		put, err := a.s.db.makePut(summaryArtefact(it, by.Name(), texts[i]), store.Validator{})
		if err == nil && len(put.Pages) == 1 && a.free(ctx, put.Artefact.ID) {
			puts, made = append(puts, put), append(made, it)
		}
	}
	if len(puts) == 0 {
		return
	}
	_, err := a.s.db.commit(ctx, store.Batch{
		Trace: a.q.Trace, Scope: a.s.name, Actor: "summarizer", OnStale: store.AllowStale, Puts: puts,
		Leaf: manifest.Record{Type: manifest.TypeCommit, Action: actionSummary, By: by.Name(), Reason: "made in an assembly"},
	})
	if err != nil { // the context does without them; a store that cannot write fails at the manifest
		return
	}
	for i, it := range made {
		a.standIn(ctx, it, puts[i].Artefact.ID)
	}
}

// standIn puts a summary that was just stored in place of its page.
func (a *assembling) standIn(ctx context.Context, it *item, id string) {
	l, err := a.s.db.store.Resolve(ctx, a.s.chain[:1], Ref{ID: id})
	if err != nil || len(l.Pages) != 1 {
		return
	}
	loaded, err := a.s.db.store.Load(ctx, a.s.chain, l.Pages, store.WantText)
	if err != nil || loaded[0].Err != nil {
		return
	}
	it.sum = a.summaryOf(it, &loaded[0])
}

// free reports whether a summary may be stored under an id: no artefact of the host has it.
func (a *assembling) free(ctx context.Context, id string) bool {
	h, _, err := a.s.db.headOf(ctx, a.s.chain[:1], Ref{ID: id})
	return errors.Is(err, store.ErrNotFound) || err == nil && h.Kind == store.KindSummary
}

// summaryArtefact is a summary as it is stored: in the scope that made it, with at most the trust of its page and of
// what passes the gate, about the same subject, with the expiry of its page. Its id is derived from the page, so the
// summary of the next page version is the next version of the summary.
func summaryArtefact(it *item, by, text string) Artefact {
	h := it.head
	of := Ref{Scope: h.Scope, ID: h.ID, Page: it.page}
	id := "summary of " + of.String()
	if len(id) > store.MaxID {
		id = "summary of page " + strconv.FormatUint(it.cand.Key.Num, 10)
	}
	of.Version = h.Version
	return Artefact{
		ID: id, Kind: store.KindSummary, Provenance: min(h.Provenance, store.Validated), Text: text, DerivedFrom: []Ref{of}, Subject: h.Subject,
		ExpiresAt: h.ExpiresAt, CurrentAsOf: h.CurrentAsOf, Priority: cmp.Or(h.Priority, store.PriorityMedium), Meta: map[string]string{metaSummarizer: by},
	}
}
