package ctxpage

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A search is an assembly without a budget: ahead, propose, page in, rescore, then lookFurther and a leaf. It proposes
// by words, and by meaning if there is an embedder (proposeHits), and takes the best in their order.
//
// Invariant: a match that cannot be served never takes the place of one that can. lookFurther doubles the number of
// matches it looks at until enough can be served, no match is left, or MaxTopK were looked at. Every match that was
// looked at and not served is named in Left.
//
// A hit is an artefact. A long document has many pages with the words of a question, which would take the places of other
// documents, so its best page is the hit, and the next ones are named there (oneEach). Measured on manual pages and on Go's
// documentation (bench/README.md); to sum what several pages score, however it is weighed, found less.

// Hit is one result of a search.
type Hit struct {
	Ref    Ref     `json:"ref"`
	Num    uint64  `json:"num"`
	Score  float64 `json:"score"` // by words; with an embedder words and meaning joined, 0 to 1
	Tokens int     `json:"tokens"`
	Text   string  `json:"text"`
	Stale  bool    `json:"stale,omitempty"`
	// Via is the superseded version whose words matched, when the page answers for one.
	Via uint64 `json:"via,omitempty"`
	// More names further pages of the artefact that match, best first, at most three.
	More []Ref `json:"more,omitempty"`
}

const (
	pagesPerHit = 3 // pages that are proposed for each hit where documents are long, so that those of a few leave enough others
	morePages   = 3 // pages that a hit names in More
)

// Found is the result of a search: what it serves and what it left out.
type Found struct {
	// Trace names the search in the manifest.
	Trace string `json:"trace"`
	Hits  []Hit  `json:"hits"`
	// Left names matching pages that were not served: all of those that were looked at, and the nearest of those that a
	// rule excludes, such as expired pages and drafts.
	Left []LeftOut `json:"left,omitempty"`
	// Counts counts them by reason, sorted by reason. Of pages that a rule excludes it counts the nearest.
	Counts []LeftCount `json:"counts,omitempty"`
	// Degraded says why the search went by words alone, or did not see all pages, although there is an embedder, and which
	// words of the question no page has, and what they were read as.
	Degraded string `json:"degraded,omitempty"`
}

// Below says how many matches are below the provenance floor, and how to see them; "" if there are none.
func (f *Found) Below() string {
	for _, c := range f.Counts {
		if c.Reason == triage.BelowFloor {
			return "matches below the provenance floor: " + strconv.Itoa(c.Count) + ". They are drafts, or imports that nobody vouched for. A search with the floor scratch shows them, but turns of a conversation are shown only there (dbctl session ls); the operator raises either (dbctl promote, Admin.Raise)"
		}
	}
	return ""
}

// LeftCount counts pages that were left out for one reason.
type LeftCount struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// Search finds the pages of the visible scopes that answer a question by their words, and with Options.Embedder also by
// their meaning. It returns at most limit hits (0: 10), best first, one for each artefact: its best page, with others in
// Hit.More. Pages whose source changed are fetched again.
//
// A page that cannot be checked or served, and one of two pages with the same text, is named in Left, and the next match
// takes its place, up to MaxTopK. Expired pages and pages below provenance Tool, or below WithFloor, are not served; what a filter (Where)
// excludes is not served and not named. No hits with a non-empty Left does not mean that nothing is known.
func (s *Scope) Search(ctx context.Context, text string, limit int, opts ...ReadOption) (Found, error) {
	return s.search(ctx, text, limit, readOpts(opts), nil)
}

// Search finds pages as Scope.Search does, the transaction's own drafts among them. Its hits join the read set.
func (tx *Txn) Search(ctx context.Context, text string, limit int, opts ...ReadOption) (Found, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done {
		return Found{}, store.ErrTxnDone
	}
	return tx.s.search(ctx, text, limit, readOpts(opts), tx)
}

// search runs the stages of a search. tx is nil outside a transaction.
func (s *Scope) search(ctx context.Context, text string, limit int, o readOptions, tx *Txn) (_ Found, err error) {
	ctx = s.db.timed(ctx)
	defer func() { _ = s.failed(ctx, manifest.TypeSearch, err) }()
	if s.err != nil {
		return Found{}, s.err
	}
	if limit == 0 {
		limit = 10
	}
	if limit < 0 || limit > MaxTopK {
		return Found{}, store.Invalid("limit", strconv.Itoa(limit), "1 to "+strconv.Itoa(MaxTopK))
	}
	text, cut := shortQuestion(text)
	trace, err := s.db.newID()
	if err != nil {
		return Found{}, err
	}
	if err := o.filter.Check(); err != nil {
		return Found{}, err
	}
	if o.floor != 0 && !o.floor.Valid() {
		return Found{}, store.Invalid("floor", o.floor.String(), "a provenance from scratch to human-verified")
	}
	a := s.begin(Query{Text: text, Filter: o.filter, TopK: limit, Floor: cmp.Or(o.floor, store.Tool), Preset: "default", Check: o.check, ServeStale: o.stale, Trace: trace.String(), cut: cut}, tx)
	defer a.end()
	rescore := func(ctx context.Context) error { return a.rescore(ctx, a.proposeHits) }
	for _, stage := range [...]func(context.Context) error{a.ahead, a.proposeHits, a.pageIn, rescore, a.lookFurther} {
		if err := stage(ctx); err != nil {
			return Found{}, err
		}
	}
	a.ranked = firstServable(a.ranked, limit)
	return a.hits(ctx)
}

// lookFurther looks at twice as many matches each time, until enough can be served, no match is left, or MaxTopK were
// looked at. It asks each source once.
func (a *assembling) lookFurther(ctx context.Context) error {
	a.dropDuplicates()
	for limit := a.q.TopK; a.q.TopK < MaxTopK && countServable(a.ranked) < limit && (a.pass() || a.full); {
		a.q.TopK = min(2*a.q.TopK, MaxTopK)
		if err := a.proposeHits(ctx); err != nil {
			return err
		}
		if err := a.pageIn(ctx); err != nil {
			return err
		}
		a.dropDuplicates()
	}
	return nil
}

// pass lets the next page of an artefact take the place of one that cannot be served. It reports whether there is one.
func (a *assembling) pass() (any bool) {
	for _, it := range a.ranked {
		if it.reason != "" && len(it.more) > 0 && !a.passed[it.cand.Ref] {
			if a.passed == nil {
				a.passed = map[Ref]bool{}
			}
			a.passed[it.cand.Ref], any = true, true
		}
	}
	return any
}

// oneEach leaves the best page of each artefact, and what is left out, in the list. Pages that were passed are not the best.
func (a *assembling) oneEach(ranked []*item) []*item {
	best := make(map[Ref]*item, len(ranked))
	return slices.DeleteFunc(ranked, func(it *item) bool {
		if it.reason != "" || a.passed[it.cand.Ref] {
			return false
		}
		whole := Ref{Scope: it.cand.Ref.Scope, ID: it.cand.Ref.ID}
		first := best[whole]
		if first == nil {
			best[whole] = it
			return false
		}
		if len(first.more) < morePages {
			first.more = append(first.more, it.cand.Ref)
		}
		return true
	})
}

// countServable counts the matches that can be served.
func countServable(ranked []*item) (n int) {
	for _, it := range ranked {
		if it.reason == "" {
			n++
		}
	}
	return n
}

// proposeHits proposes pages by words and by meaning. Of equal scores the later page comes first. Drafts of the transaction are
// scored with the statistics of the store, so they compare with stored pages.
func (a *assembling) proposeHits(ctx context.Context) (err error) {
	weights := lexical.DefaultWeights()
	a.readQuestion()
	q := store.CandidateQuery{Scopes: a.s.chain, Terms: a.terms, Words: a.words, Floor: a.q.Floor, Now: a.now, Dates: lexical.DatesOf(a.q.Text), Weights: &weights, Filter: &a.q.Filter, Strict: true}
	if a.tx != nil {
		q.Mask = a.tx.mask()
	}
	preset := triage.Preset{Floor: a.q.Floor}
	if err := a.proposePages(ctx, &q, preset); err != nil {
		return err
	}
	items := appendItems(append(a.scratch.items[:0], a.drafts(&q)...), a.cands.Hits)
	if items, err = a.byStopWords(ctx, q, items); err != nil {
		return err
	}
	a.scratch.items = items
	if err := a.compare(ctx, preset, items); err != nil {
		return err
	}
	var relevance []float64
	if a.embedder != "" {
		relevance = triage.Relevance(a.triage(items))
	}
	a.scratch.best = a.scratch.best[:0]
	for i := range items {
		it := &items[i]
		if relevance != nil {
			it.scored.score, it.scored.semantic = relevance[i], relevance[i]
		}
		if (it.cand.Lexical.Score > 0 || it.cand.Near || it.own != nil && it.cosine != nil) && it.cand.Excluded == "" {
			a.scratch.best = append(a.scratch.best, it)
		}
	}
	a.ranked = a.scratch.best
	slices.SortFunc(a.ranked, func(x, y *item) int {
		return cmp.Or(cmp.Compare(a.worth(y), a.worth(x)), cmp.Compare(y.cand.Key.Num, x.cand.Key.Num))
	})
	a.leaveLost(a.ranked)
	all := a.oneEach(a.ranked)
	a.ranked = firstServable(all, a.q.TopK)
	a.full = a.full || len(a.ranked) < len(all)
	return nil
}

// proposePages proposes enough pages for a.q.TopK hits. Pages of short artefacts are a hit each, and mostly there are no others:
// pagesPerHit times as many, which cost about as many times more, are asked for only where an artefact of several pages matches.
// With an embedder, how much a page is worth depends on the pages beside it, so there are always as many.
func (a *assembling) proposePages(ctx context.Context, q *store.CandidateQuery, preset triage.Preset) (err error) {
	each := pagesPerHit
	if a.s.db.opts.Embedder == nil && !a.long {
		each = 1
	}
	for ; ; each = pagesPerHit {
		q.K = a.widen(min(each*a.q.TopK, MaxTopK))
		enough := q.K
		if err := a.near(ctx, q, preset); err != nil {
			return err
		}
		if a.cands, err = a.s.db.store.Candidates(ctx, *q); err != nil {
			return err
		}
		a.full = len(a.cands.Hits) >= enough
		if each == pagesPerHit || !a.full || !slices.ContainsFunc(a.cands.Hits, func(c store.Candidate) bool { return c.Pages != 1 }) {
			return nil
		}
		a.long = true
	}
}

// What a question of stop words alone reads: the newest pages, up to so many and up to so many tokens.
const (
	stopWordPages  = 1000
	stopWordTokens = 200_000
)

// byStopWords scores pages by stop words if the question has no other words. The index keeps stop words only where they
// are names or stand alone, so the newest pages that may be served are read, and the drafts of the transaction. Pages
// that the index found stay ahead. Assemble does not ask for this: for a question like "what is it?", recency
// says more than its words.
func (a *assembling) byStopWords(ctx context.Context, q store.CandidateQuery, items []item) ([]item, error) {
	terms := a.s.db.lexer.StopWords(a.q.Text)
	if terms == nil {
		return items, nil
	}
	q.Terms, q.Words, q.K, q.Near, q.Recent, q.AsOf = nil, nil, 0, nil, stopWordPages, a.cands.LSN
	newest, err := a.s.db.store.Candidates(ctx, q)
	if err != nil {
		return nil, err
	}
	items = withNewest(items, newest.Hits)
	var keys []store.PageKey
	var unscored []int
	lowest := math.Inf(1) // score of a page that the index found
	for i := range items {
		it := &items[i]
		if it.cand.Lexical.Score > 0 {
			lowest = min(lowest, it.cand.Lexical.Score)
			continue
		}
		if unscored = append(unscored, i); it.own == nil {
			keys = append(keys, it.cand.Key)
		}
	}
	loaded, err := a.s.db.store.Load(ctx, a.s.chain, keys, store.WantText)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(unscored))
	for n, i := range unscored {
		if o := items[i].own; o != nil {
			texts[n] = o.put.Pages[o.page-1].Text
			continue
		}
		texts[n], loaded = loaded[0].Text, loaded[1:] // "" if it cannot be read
	}
	scores := a.s.db.lexer.ScoreStopWords(terms, texts)
	scale := 1.0
	if most := slices.Max(append(scores, 0)); most >= lowest {
		scale = lowest / most / 2
	}
	for n, i := range unscored {
		if c := items[i].cand; scores[n] > 0 {
			c.Lexical = lexical.Hit{Num: c.Key.Num, Own: scores[n] * scale, Score: scores[n] * scale}
		}
	}
	return items, nil
}

// withNewest adds the newest of some pages to the items, each once, until stopWordTokens are reached.
func withNewest(items []item, pages []store.Candidate) []item {
	known := make(map[uint64]bool, len(items))
	for i := range items {
		known[items[i].cand.Key.Num] = true
	}
	sort.Slice(pages, func(i, j int) bool {
		x, y := &pages[i], &pages[j]
		return cmp.Or(cmp.Compare(y.AsOf, x.AsOf), cmp.Compare(y.Key.Num, x.Key.Num)) < 0
	})
	left := stopWordTokens
	for i := range pages {
		if left -= pages[i].Tokens; left < 0 {
			break
		}
		if !known[pages[i].Key.Num] {
			items = append(items, item{cand: &pages[i]})
		}
	}
	return items
}

// worth returns the score by which a search orders pages: by words, or by words and meaning joined.
func (a *assembling) worth(it *item) float64 {
	if a.embedder != "" {
		return it.scored.semantic
	}
	return it.cand.Lexical.Score
}

// firstServable cuts the list after the first limit matches that may be served.
func firstServable(ranked []*item, limit int) []*item {
	for i, it := range ranked {
		if it.reason != "" {
			continue
		}
		if limit--; limit < 0 {
			return ranked[:i]
		}
	}
	return ranked
}

// hits turns the best items into hits and writes the leaf. Without a budget nothing is rendered, so a hit costs its
// stored tokens.
func (a *assembling) hits(ctx context.Context) (Found, error) {
	leaf := &manifest.Record{Type: manifest.TypeSearch, Trace: a.q.Trace, LSN: a.cands.LSN, ServeStale: a.q.ServeStale, Embedder: a.embedder, Note: a.note(), Filter: a.q.Filter.JSON()}
	a.s.db.ask(leaf, a.q.Text)
	best := a.bestLexical()
	out := Found{Trace: a.q.Trace, Degraded: strings.Trim(a.degraded()+"; "+a.readAs(), "; ")}
	if n := countServable(a.ranked); n > 0 {
		out.Hits, leaf.Pages = make([]Hit, 0, n), make([]manifest.Page, 0, n)
	}
	for i := range a.ranked {
		it := a.ranked[i]
		if it.reason != "" {
			continue
		}
		it.tokens = tokens(a.counter, it.head, it.page, it.text)
		leaf.Tokens += it.tokens
		leaf.Pages = append(leaf.Pages, it.leafPage(best))
		if a.tx != nil && it.own == nil {
			a.tx.see(it.head, it.page, it.cand.Key.Num)
		}
		out.Hits = append(out.Hits, Hit{Ref: it.ref(), Num: it.cand.Key.Num, Score: a.worth(it), Tokens: it.tokens, Text: it.text, Stale: it.stale, Via: it.cand.Lexical.Via, More: it.more})
	}
	leaf.Excluded = a.exclusions(best)
	if out.Counts = a.leftCounts(); len(out.Counts) > 0 {
		out.Left = a.left()
	}
	if a.tx != nil {
		leaf.Parent = a.tx.trace
	}
	return out, a.s.emit(ctx, leaf)
}

// leftCounts counts the matches that are not served.
func (a *assembling) leftCounts() (out []LeftCount) {
	add := func(reason string, n int) {
		i := slices.IndexFunc(out, func(c LeftCount) bool { return c.Reason == reason })
		if i < 0 {
			i, out = len(out), append(out, LeftCount{Reason: reason})
		}
		out[i].Count += n
	}
	for i := range a.ranked {
		if r := a.ranked[i].reason; r != "" {
			add(r, 1)
		}
	}
	for _, e := range a.cands.Excluded {
		if e.Matched > 0 {
			add(e.Reason, e.Matched)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Reason < out[j].Reason })
	return out
}
