package rendering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Answer says why a page is in a past context, or is not.
type Answer struct {
	In   bool
	Page *manifest.Page // as the leaf has it; nil where it names it not
	// Twin is the page that was chosen and says the same as this one, which was left out for it.
	Twin string
	// Steps tells it in plain words, in the order of the stages.
	Steps []string

	ref  store.Ref
	head *store.Head // of the page, where its score needs it
}

// Teller explains contexts of one store.
type Teller struct {
	Store store.Store
	// Turn tells how a session shows a turn now, a line for each reason.
	Turn func(ctx context.Context, scope, session, id string) (string, error)
}

// Why explains the place of an artefact or a page in a past context, also of one that was never a candidate, or was erased
// since.
func (t Teller) Why(ctx context.Context, leaf *manifest.Record, ref store.Ref) (*Answer, error) {
	w, err := t.why(ctx, leaf, ref)
	if err == nil && w.Page != nil {
		t.sayErased(ctx, w, leaf, *w.Page)
	}
	return w, err
}

// Context describes a past context: who asked, what it cost, what is in it in the order served, and what was left out,
// for each reason with the nearest pages that the leaf names.
func (t Teller) Context(ctx context.Context, leaf *manifest.Record) []string {
	w := &Answer{}
	asked := fmt.Sprintf("asked in %s by %s at %s", leaf.Scope, leaf.Actor, codec.FromMicros(leaf.Time).Format("2006-01-02 15:04:05Z"))
	if leaf.Session != "" {
		asked += ", in session " + leaf.Session
	}
	w.say("%s", asked)
	w.say("fit: %d tokens of a budget of %d, %d of it reserved; tier %d, preset %s", leaf.Tokens, leaf.Budget, leaf.Reserve, leaf.Tier, leaf.Preset)
	if leaf.Match != "" {
		w.say("match: %s; its pages have %.0f %% of the question's words", leaf.Match, 100*leaf.Covered.Float())
	}
	if leaf.Note != "" {
		w.say("note: %s", leaf.Note)
	}
	for i := range leaf.Pages {
		p := &leaf.Pages[i]
		why := ""
		if p.Reason != "" {
			why = ": " + p.Reason
		}
		w.say("in: %s, %s, %d tokens, score %.3f%s", RefOf(ctx, t.Store, p.Num), p.Form, p.Tokens, p.Score.Float(), why)
	}
	for _, e := range leaf.Excluded {
		nearest := ""
		for i := range e.Nearest {
			sep := ", "
			if i == 0 {
				sep = "; the nearest: "
			}
			nearest += sep + RefOf(ctx, t.Store, e.Nearest[i].Num)
		}
		w.say("left out: %d for %q%s", e.Count, e.Reason, nearest)
	}
	t.sayErased(ctx, w, leaf, leaf.Pages...)
	return w.Steps
}

// sayErased tells which of pages were erased since.
func (t Teller) sayErased(ctx context.Context, w *Answer, leaf *manifest.Record, pages ...manifest.Page) {
	keys := make([]store.PageKey, len(pages))
	for i := range pages {
		keys[i] = store.PageKey{Num: pages[i].Num, Version: pages[i].Version}
	}
	loaded, err := t.Store.Load(ctx, store.ScopeChain(leaf.Scope), keys, store.WantHead)
	for i := range loaded {
		if err == nil && errors.Is(loaded[i].Err, store.ErrErased) {
			w.say("since then: %s", strings.TrimPrefix(loaded[i].Err.Error(), store.ErrGone.Error()+": "))
		}
	}
}

func (t Teller) why(ctx context.Context, leaf *manifest.Record, ref store.Ref) (*Answer, error) {
	w := &Answer{ref: ref}
	nums, err := t.numbers(ctx, leaf, ref)
	if err != nil {
		return nil, err
	}
	for i := range leaf.Pages {
		p := &leaf.Pages[i]
		if substitute := p.Form == manifest.FormSummary && nums[p.Via]; substitute || nums[p.Num] {
			w.In, w.Page = true, p
			if substitute {
				w.say("it stands in for page %d, which was chosen and had no room in full:", p.Num)
			}
			if turn, err := t.explainTurn(ctx, w, leaf, p.Reason); turn || err != nil {
				w.explainPlace(leaf, i)
				return w, err
			}
			t.loadScored(ctx, w, leaf)
			w.explainIn(leaf, i)
			return w, nil
		}
	}
	for i := range leaf.Excluded {
		e := &leaf.Excluded[i]
		for j := range e.Nearest {
			if nums[e.Nearest[j].Num] {
				w.Page = &e.Nearest[j]
				if turn, err := t.explainTurn(ctx, w, leaf, e.Reason); turn || err != nil {
					return w, err
				}
				if e.Reason == triage.Duplicate {
					w.Twin = RefOf(ctx, t.Store, w.Page.Via)
				}
				t.loadScored(ctx, w, leaf)
				w.explainOut(leaf, e.Reason)
				return w, nil
			}
		}
	}
	return w, t.explainAbsent(ctx, w, leaf, nums)
}

// numbers are all page numbers a reference may have had in a leaf: any version, if it names none.
func (t Teller) numbers(ctx context.Context, leaf *manifest.Record, ref store.Ref) (map[uint64]bool, error) {
	scopes := scopesOf(store.ScopeChain(leaf.Scope), ref)
	nums := map[uint64]bool{}
	if len(scopes) == 0 { // the scope of the leaf does not see that of the reference
		return nums, nil
	}
	for page, err := range format.Pages(ctx, t.Store, store.ScanQuery{What: store.ScanHistory, Scopes: scopes, ID: ref.ID, Limit: 100}) {
		if errors.Is(err, store.ErrNotFound) {
			return nums, nil
		}
		if err != nil {
			return nil, err
		}
		for _, h := range page.Heads {
			for i, r := range h.Rows {
				if (ref.Page == 0 || ref.Page == i+1) && (ref.Version == 0 || ref.Version == r.Version || ref.Version == h.Version) {
					nums[r.Num] = true
				}
			}
		}
	}
	return nums, nil
}

func scopesOf(chain store.Scopes, ref store.Ref) store.Scopes {
	if ref.Scope == "" {
		return chain
	}
	for _, s := range chain {
		if s == ref.Scope {
			return store.Scopes{s}
		}
	}
	return store.Scopes{} // outside what the agent could see
}

func (w *Answer) say(format string, args ...any) {
	w.Steps = append(w.Steps, fmt.Sprintf(format, args...))
}

func (w *Answer) explainScore(leaf *manifest.Record) {
	p := w.Page
	turn := p.LexSpeaker > 0 || p.LexDate > 0 || p.LexForms > 0
	switch {
	case p.LexOwn+p.LexNear+p.LexGroup > 0:
		w.say("triage: its words match the question: %.3f of the best match (own %.3f, neighbours %.3f, group %.3f)",
			p.LexOwn.Float()+p.LexNear.Float()+p.LexGroup.Float(), p.LexOwn.Float(), p.LexNear.Float(), p.LexGroup.Float())
		w.explainTurnScore()
	case turn:
		w.say("triage: none of its words is asked for; it was a candidate by who speaks and when")
		w.explainTurnScore()
	case p.Vector > 0:
		w.say("triage: none of its words is asked for; it was a candidate by its meaning, or by its standing (pinned, system, human-verified, or recent)")
	default:
		w.say("triage: its words do not match the question; it was a candidate by its standing (pinned, system, human-verified, or recent)")
	}
	switch {
	case p.Vector > 0:
		w.say("triage: near in meaning: %.2f to the question, of at most 1 (model %s)", 2*p.Vector.Float()-1, leaf.Embedder)
	case leaf.Note != "":
		w.say("triage: %s", leaf.Note)
	}
	if p.Via != 0 && p.Form != manifest.FormSummary && w.Twin == "" {
		w.say("triage: it answers for page %d, an older version whose words matched", p.Via)
	}
	w.say("triage: score %.3f from recency %.3f, provenance %.3f, relevance %.3f under preset %s: %s",
		p.Score.Float(), p.R.Float(), p.P.Float(), p.S.Float(), leaf.Preset, p.Tag)
}

// loadScored loads the head of the version by which a page was scored, where who spoke and when counted. It may be gone.
func (t Teller) loadScored(ctx context.Context, w *Answer, leaf *manifest.Record) {
	p := w.Page
	if p.LexSpeaker == 0 && p.LexDate == 0 {
		return
	}
	key := store.PageKey{Num: p.Num, Version: p.Version}
	if p.Via != 0 && p.Form != manifest.FormSummary && w.Twin == "" {
		key = store.PageKey{Num: p.Via}
	}
	if loaded, err := t.Store.Load(ctx, store.ScopeChain(leaf.Scope), []store.PageKey{key}, store.WantHead); err == nil {
		w.head = loaded[0].Head
	}
}

// explainTurnScore tells what a page has beside its words where turns are asked.
func (w *Answer) explainTurnScore() {
	p := w.Page
	speaker, month := "somebody", "the month"
	if w.head != nil && w.head.Name != "" {
		speaker, month = w.head.Name, w.head.CurrentAsOf.UTC().Format("January 2006")
	}
	for _, part := range []struct {
		score manifest.Score
		text  string
	}{
		{p.LexSpeaker, "spoken by " + speaker + ", whom the question names"},
		{p.LexDate, "said in " + month + ": the question names the month"},
		{p.LexFirst, "its author tells of himself or herself, or how to answer"},
		{p.LexForms, "it has an irregular form of a word of the question, as bought is of buy"},
		{p.LexLevel, "it is no turn of a conversation: it has what a turn of who and when the question names has"},
	} {
		if part.score > 0 {
			w.say("triage: %s (%.3f)", part.text, part.score.Float())
		}
	}
}

func (w *Answer) explainIn(leaf *manifest.Record, at int) {
	w.explainScore(leaf)
	switch p := w.Page; {
	case p.Refetched:
		w.say("page in: its source had changed, so it was fetched anew before use")
	case p.Stale:
		w.say("page in: its source had changed and could not be fetched; it was served as stale, as asked")
	default:
		w.say("page in: version %d, clean", p.Version)
	}
	if w.Page.Reason != "" {
		w.say("page in: %s", w.Page.Reason)
	}
	switch w.Page.Form {
	case manifest.FormSummary:
		w.say("fit: no room in full; its summary, page %d, stands in for it", w.Page.Via)
	case manifest.FormRange:
		w.say("fit: no room in full; an extract of it, bytes %s; %s#%d names all of it", spans(w.Page.Ranges), leaf.Trace, at+1)
	}
	w.explainPlace(leaf, at)
}

// spans names ranges of bytes, by the first of each and the last.
func spans(ranges [][2]uint32) string {
	var b strings.Builder
	for i, r := range ranges {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d–%d", r[0], r[1]-1)
	}
	return b.String()
}

func (w *Answer) explainPlace(leaf *manifest.Record, at int) {
	w.say("fit: in, as %s, with %d of %d tokens (tier %d), place %d of %d",
		w.Page.Form, w.Page.Tokens, leaf.Budget-leaf.Reserve, leaf.Tier, at+1, len(leaf.Pages))
}

// explainTurn tells how the session that asked showed a turn of it, and why: a turn is not ranked with other pages, so
// triage has nothing to say of it. It reports whether the page is such a turn. What a pass saw is told as it stands now:
// verdicts are not kept for the past.
func (t Teller) explainTurn(ctx context.Context, w *Answer, leaf *manifest.Record, reason string) (bool, error) {
	if leaf.Session == "" || reason == "" || !w.In && w.Page.Tag != manifest.TagBlack {
		return false, nil
	}
	loaded, err := t.Store.Load(ctx, store.ScopeChain(leaf.Scope), []store.PageKey{{Num: w.Page.Num, Version: w.Page.Version}}, store.WantHead)
	if err != nil || loaded[0].Head == nil {
		return false, err
	}
	h := loaded[0].Head
	if h.Scope != leaf.Scope || !IsTurn(h, leaf.Session) {
		return false, nil
	}
	switch {
	case !w.In:
		w.say("session: a turn of %s, left out: %s", leaf.Session, reason)
	case w.Page.Form == manifest.FormFull:
		w.say("session: a turn of %s, shown whole: %s", leaf.Session, reason)
	default:
		w.say("session: a turn of %s, shown as %s: %s", leaf.Session, w.Page.Form, reason)
	}
	now, err := t.Turn(ctx, leaf.Scope, leaf.Session, h.ID)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrReadOnly) {
		return true, nil
	}
	for line := range strings.Lines(now) {
		w.say("session, as it stands now: %s", strings.TrimSuffix(line, "\n"))
	}
	return true, err
}

func (w *Answer) explainOut(leaf *manifest.Record, reason string) {
	if w.Page.Tag == manifest.TagBlack {
		w.say("triage: excluded before scoring: %s", reason)
		return
	}
	w.explainScore(leaf)
	if w.Page.Dirty {
		w.say("page in: left out: %s", reason)
		return
	}
	if w.Twin != "" {
		w.say("fit: left out: it says the same as %s, which stands for both", w.Twin)
		return
	}
	w.say("fit: left out: %s; its text alone takes %d tokens, the context took %d of %d (tier %d)",
		reason, w.Page.Tokens, leaf.Tokens, leaf.Budget-leaf.Reserve, leaf.Tier)
}

// explainAbsent is for pages that the leaf does not name.
func (t Teller) explainAbsent(ctx context.Context, w *Answer, leaf *manifest.Record, nums map[uint64]bool) error {
	if len(nums) == 0 {
		if w.ref.Page != 0 || w.ref.Version != 0 {
			if l, err := t.Store.Resolve(ctx, scopesOf(store.ScopeChain(leaf.Scope), w.ref), store.Ref{ID: w.ref.ID}); err == nil {
				w.say("%s has no such page or version; its newest is version %d, of %d pages", store.Ref{Scope: l.Scope, ID: w.ref.ID}, l.Version, len(l.Pages))
				return nil
			}
		}
		w.say("scope: %s had no such artefact in sight: it is not in %s or its ancestors, or did not exist", leaf.Scope, leaf.Scope)
		return nil
	}
	l, err := t.Store.Resolve(ctx, scopesOf(store.ScopeChain(leaf.Scope), w.ref), store.Ref{ID: w.ref.ID})
	switch {
	case errors.Is(err, store.ErrNotFound):
		w.say("it is deleted now; in the assembly it was not among the candidates")
		return nil
	case err != nil:
		return err
	case l.LSN > leaf.LSN:
		w.say("its newest version has lsn %d, the assembly read as of lsn %d", l.LSN, leaf.LSN)
	case l.By != 0:
		w.say("triage: it is superseded by %s, which answers for it", RefOf(ctx, t.Store, l.By))
	case l.ByID != "":
		w.say("triage: it is superseded by %s, which is deleted: nothing answers for it until it is put again", store.Ref{Scope: l.Scope, ID: l.ByID})
	case l.Expires != 0 && l.Expires <= leaf.Time:
		w.say("triage: excluded before scoring: it expired at %s", codec.FromMicros(l.Expires).Format("2006-01-02 15:04:05Z"))
	default:
		return t.explainUnnamed(ctx, w, leaf, l)
	}
	w.explainCounts(leaf)
	return nil
}

// explainUnnamed is for a live page that the leaf neither served nor named: it says which of the counted reasons fits.
func (t Teller) explainUnnamed(ctx context.Context, w *Answer, leaf *manifest.Record, l store.Located) error {
	loaded, err := t.Store.Load(ctx, store.ScopeChain(leaf.Scope), l.Pages[:1], store.WantHead)
	if err != nil {
		return err
	}
	counted := func(reason string) bool {
		return slices.ContainsFunc(leaf.Excluded, func(e manifest.Exclusion) bool { return e.Reason == reason })
	}
	out, err := leftByFilter(leaf, loaded[0].Head)
	if err != nil {
		return err
	}
	switch h := loaded[0].Head; {
	case out != "":
		w.say("triage: excluded by the filter: %s", out)
	case h != nil && h.Provenance == store.Scratch && counted(triage.BelowFloor):
		w.say("triage: excluded before scoring: its provenance, %s, is below the floor", h.Provenance)
	case counted(triage.NotKept):
		w.say("triage: not scored: recency and provenance kept others (preset %s)", leaf.Preset)
	default:
		by := "its words did"
		if leaf.Embedder != "" {
			by = "its words and its meaning did"
		}
		w.say("triage: it was never a candidate: %s not place it among the best matches, and it is neither pinned, human-verified nor recent", by)
	}
	w.explainCounts(leaf)
	return nil
}

// leftByFilter says which condition of a context's filter a version does not meet; "": none, or it enters whatever the
// filter.
func leftByFilter(leaf *manifest.Record, h *store.Head) (string, error) {
	f, err := store.ParseFilter(leaf.Filter)
	if err != nil || f == nil || h == nil {
		return "", err
	}
	q := store.CandidateQuery{Filter: f, Session: leaf.Session}
	if !format.LeavesOut(&q, h, h.PutAt) {
		return "", nil
	}
	return f.Mismatch(h), nil
}

// explainCounts tells what the leaf counts without naming all of it.
func (w *Answer) explainCounts(leaf *manifest.Record) {
	for _, e := range leaf.Excluded {
		if e.Reason == triage.Filtered {
			w.say("triage: the filter excluded %d pages; it was %s", e.Count, leaf.Filter)
			continue
		}
		w.say("triage: left out for %q: %d pages, of which the nearest are named in the manifest", e.Reason, e.Count)
	}
}

// RefOf names a page number for people: its reference, also where gc took it, or the bare number.
func RefOf(ctx context.Context, st store.Store, num uint64) string {
	loaded, err := st.Load(ctx, nil, []store.PageKey{{Num: num}}, store.WantHead)
	if err != nil || loaded[0].Head == nil {
		return fmt.Sprintf("page %d", num)
	}
	l := &loaded[0]
	if l.Page > len(l.Head.Rows) { // of a version of which gc left nothing but the number
		return store.Ref{Scope: l.Head.Scope, ID: l.Head.ID, Page: l.Page, Version: l.Head.Version}.String()
	}
	return store.Ref{Scope: l.Head.Scope, ID: l.Head.ID, Page: l.Page, Version: l.Head.Rows[l.Page-1].Version}.String()
}
