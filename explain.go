package ctxpage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/triage"
)

// ErrReplay means that a past assembly cannot be rendered again to the same bytes; the error says why.
var ErrReplay = errors.New("ctxpage: replay differs")

// assemblyLeaf finds the leaf of an assembly by its trace.
func (db *DB) assemblyLeaf(ctx context.Context, trace string) (*manifest.Record, error) {
	leaves, err := db.Manifests().ByTrace(ctx, trace)
	if err != nil && !errors.Is(err, manifest.ErrNoLeaf) {
		return nil, filestore.LogError(err)
	}
	for _, l := range leaves {
		if l.Type == manifest.TypeAssemble && l.Trace == trace {
			return l, nil
		}
	}
	return nil, fmt.Errorf("%w: no assembly with trace %q in the manifest", ErrNotFound, trace)
}

// Replay is a past assembly, rendered again from its manifest and the immutable page versions it names.
type Replay struct {
	Trace string `json:"trace"`
	Text  string `json:"text"`
	// Same: the bytes have the digest that was recorded.
	Same bool `json:"same"`
	// Missing names pages that gc took, and why the replay cannot be whole.
	Missing []string `json:"missing,omitempty"`
}

// Replay renders a past assembly again, asking nobody: no source, no counter. The error matches ErrReplay when the
// bytes differ from what was recorded, ErrGone when gc took a page.
func (db *DB) Replay(ctx context.Context, trace string) (*Replay, error) {
	leaf, err := db.assemblyLeaf(ctx, trace)
	if err != nil {
		return nil, err
	}
	if leaf.Renderer < 1 || leaf.Renderer > render.Version {
		return nil, fmt.Errorf("%w: rendered by renderer %d, this program has 1 to %d", ErrReplay, leaf.Renderer, render.Version)
	}
	out := &Replay{Trace: trace}
	pages, err := db.replayPages(ctx, leaf, out)
	if err != nil {
		return out, err
	}
	text, err := render.TextOf(leaf.Renderer, db.fence+"/"+leaf.Scope, pages)
	if err != nil {
		return out, err
	}
	out.Text = string(text)
	if out.Same = bytes.Equal(db.keyed("rendered", text), leaf.Rendered); !out.Same {
		return out, fmt.Errorf("%w: the digest of %d bytes is not the recorded one", ErrReplay, len(text))
	}
	return out, nil
}

func (db *DB) replayPages(ctx context.Context, leaf *manifest.Record, out *Replay) ([]render.Page, error) {
	keys := make([]store.PageKey, len(leaf.Pages))
	for i, p := range leaf.Pages {
		keys[i] = store.PageKey{Num: p.Num, Version: p.Version}
	}
	loaded, err := db.store.Load(ctx, store.ScopeChain(leaf.Scope), keys, store.WantText)
	if err != nil {
		return nil, err
	}
	forms, err := db.replayForms(ctx, leaf)
	if err != nil {
		return nil, err
	}
	drafts, err := db.shownDrafts(ctx, leaf)
	if err != nil {
		return nil, err
	}
	merged := turnMerger{pages: make([]render.Page, 0, len(loaded))}
	for i := range loaded {
		l, p := &loaded[i], &leaf.Pages[i]
		if p.Num == 0 && len(drafts) > 0 {
			l, drafts = &drafts[0], drafts[1:]
		}
		switch {
		case p.Num == 0 && l.Head == nil:
			out.Missing = append(out.Missing, "a draft of the transaction, which was not kept, or was dropped by gc")
			continue
		case errors.Is(l.Err, ErrGone):
			out.Missing = append(out.Missing, goneText(l.Err))
			continue
		case errors.Is(l.Err, ErrNotFound):
			out.Missing = append(out.Missing, fmt.Sprintf("page %d version %d: not found", p.Num, p.Version))
			continue
		case l.Err != nil:
			return nil, l.Err
		}
		text := l.Text
		switch p.Form {
		case manifest.FormRange:
			if err := checkRanges(p.Ranges, text); err != nil {
				return nil, err
			}
			text = cutShown(l.Head.Kind, l.Head.ID, text, p.Ranges)
		case manifest.FormStub:
			text = stubOf(l.Head, session.Title(text))
		case manifest.FormSummary:
			if text, err = forms[p.Via].Text, forms[p.Via].Err; err != nil {
				out.Missing = append(out.Missing, fmt.Sprintf("%s, which stood for page %d", goneText(err), p.Num))
				continue
			}
		}
		ref := Ref{Scope: l.Head.Scope, ID: l.Head.ID, Page: l.Page, Version: l.Head.Rows[l.Page-1].Version}.String()
		merged.add(l.Head, l.Page, renderPage(l.Head, ref, text, p.Form, p.Stale, leaf.Session))
	}
	if len(out.Missing) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrGone, strings.Join(out.Missing, "; "))
	}
	return merged.pages, nil
}

// replayForms loads the derived pages that stood for others.
func (db *DB) replayForms(ctx context.Context, leaf *manifest.Record) (map[uint64]store.Loaded, error) {
	var keys []store.PageKey
	for _, p := range leaf.Pages {
		if p.Form == manifest.FormSummary {
			keys = append(keys, store.PageKey{Num: p.Via})
		}
	}
	loaded, err := db.store.Load(ctx, store.ScopeChain(leaf.Scope), keys, store.WantText)
	if err != nil {
		return nil, err
	}
	out := make(map[uint64]store.Loaded, len(loaded))
	for i, l := range loaded {
		if l.Err != nil && !errors.Is(l.Err, ErrGone) && !errors.Is(l.Err, ErrNotFound) {
			return nil, l.Err
		}
		out[keys[i].Num] = l
	}
	return out, nil
}

func checkRanges(ranges [][2]uint32, text string) error {
	last := uint32(0)
	for _, r := range ranges {
		if r[0] < last || r[1] < r[0] || int(r[1]) > len(text) {
			return fmt.Errorf("%w: range %v of a page of %d bytes", ErrReplay, r, len(text))
		}
		last = r[1]
	}
	return nil
}

// Why says why a page is in a past assembly, or is not.
type Why struct {
	Trace string `json:"trace"`
	Ref   Ref    `json:"ref"`
	In    bool   `json:"in"`
	// Question is what was asked. QuestionGone: something was, and the text was erased or not kept.
	Question     string         `json:"question,omitempty"`
	QuestionGone bool           `json:"question_gone,omitempty"`
	Page         *manifest.Page `json:"page,omitempty"`
	// Steps tells it in plain words, in the order of the stages.
	Steps []string `json:"steps"`
}

// Why explains the place of an artefact or a page in a past assembly, also of one that was never a candidate.
func (db *DB) Why(ctx context.Context, trace string, ref Ref) (*Why, error) {
	leaf, err := db.assemblyLeaf(ctx, trace)
	if err != nil {
		return nil, err
	}
	w := &Why{Trace: trace, Ref: ref}
	if w.Question, err = db.asked(ctx, leaf); err != nil {
		return nil, err
	}
	w.QuestionGone = w.Question == "" && len(leaf.Query) > 0
	nums, err := db.numbers(ctx, leaf, ref)
	if err != nil {
		return nil, err
	}
	for i := range leaf.Pages {
		p := &leaf.Pages[i]
		if standsIn := p.Form == manifest.FormSummary && nums[p.Via]; standsIn || nums[p.Num] {
			w.In, w.Page = true, p
			if standsIn {
				w.say("it stands in for page %d, which was chosen and had no room in full:", p.Num)
			}
			if turn, err := db.explainTurn(ctx, w, leaf, p.Reason); turn || err != nil {
				w.explainPlace(leaf, i)
				return w, err
			}
			w.explainIn(leaf, i)
			return w, nil
		}
	}
	for i := range leaf.Excluded {
		e := &leaf.Excluded[i]
		for j := range e.Nearest {
			if nums[e.Nearest[j].Num] {
				w.Page = &e.Nearest[j]
				if turn, err := db.explainTurn(ctx, w, leaf, e.Reason); turn || err != nil {
					return w, err
				}
				w.explainOut(leaf, e.Reason)
				return w, nil
			}
		}
	}
	return w, db.explainAbsent(ctx, w, leaf, nums)
}

// numbers are all page numbers a reference may have had in a leaf: any version, if it names none.
func (db *DB) numbers(ctx context.Context, leaf *manifest.Record, ref Ref) (map[uint64]bool, error) {
	chain := store.ScopeChain(leaf.Scope)
	nums := map[uint64]bool{}
	cursor := ""
	for {
		page, err := db.store.Scan(ctx, store.ScanQuery{What: store.ScanHistory, Scopes: scopesOf(chain, ref), ID: ref.ID, Cursor: cursor, Limit: 100})
		if errors.Is(err, ErrNotFound) {
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
		if cursor = page.Next; cursor == "" {
			return nums, nil
		}
	}
}

func scopesOf(chain store.Scopes, ref Ref) store.Scopes {
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

func (w *Why) say(format string, args ...any) {
	w.Steps = append(w.Steps, fmt.Sprintf(format, args...))
}

func (w *Why) explainScore(leaf *manifest.Record) {
	p := w.Page
	switch {
	case p.LexOwn+p.LexNear+p.LexGroup > 0:
		w.say("triage: its words match the question: %.3f of the best match (own %.3f, neighbours %.3f, group %.3f)",
			p.LexOwn.Float()+p.LexNear.Float()+p.LexGroup.Float(), p.LexOwn.Float(), p.LexNear.Float(), p.LexGroup.Float())
	default:
		w.say("triage: its words do not match the question; it was a candidate by its standing (pinned, system, human-verified, or recent)")
	}
	switch {
	case p.Vector > 0:
		w.say("triage: its vector has cosine %.3f with the question's (model %s)", 2*p.Vector.Float()-1, leaf.Embedder)
	case leaf.Embedder == "" && leaf.Note != "":
		w.say("triage: %s", leaf.Note)
	}
	if p.Via != 0 && p.Form != manifest.FormSummary {
		w.say("triage: it answers for page %d, an older version whose words matched", p.Via)
	}
	w.say("triage: score %.3f from recency %.3f, provenance %.3f, relevance %.3f under preset %s: %s",
		p.Score.Float(), p.R.Float(), p.P.Float(), p.S.Float(), leaf.Preset, p.Tag)
}

func (w *Why) explainIn(leaf *manifest.Record, at int) {
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
	if w.Page.Form == manifest.FormSummary {
		w.say("fit: no room in full; its summary, page %d, stands in for it", w.Page.Via)
	}
	w.explainPlace(leaf, at)
}

func (w *Why) explainPlace(leaf *manifest.Record, at int) {
	w.say("fit: in, as %s, with %d of %d tokens (tier %d), place %d of %d",
		w.Page.Form, w.Page.Tokens, leaf.Budget-leaf.Reserve, leaf.Tier, at+1, len(leaf.Pages))
}

// explainTurn tells how the session that asked showed a turn of it, and why: a turn is not ranked with other pages, so
// triage has nothing to say of it. It reports whether the page is such a turn. What a pass saw is told as it stands now:
// verdicts are not kept for the past.
func (db *DB) explainTurn(ctx context.Context, w *Why, leaf *manifest.Record, reason string) (bool, error) {
	if leaf.Session == "" || reason == "" || !w.In && w.Page.Tag != manifest.TagBlack {
		return false, nil
	}
	loaded, err := db.store.Load(ctx, store.ScopeChain(leaf.Scope), []store.PageKey{{Num: w.Page.Num, Version: w.Page.Version}}, store.WantHead)
	if err != nil || loaded[0].Head == nil {
		return false, err
	}
	h := loaded[0].Head
	if h.Scope != leaf.Scope || !isTurn(h, leaf.Session) {
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
	now, err := db.Scope(leaf.Scope).Session(leaf.Session).Explain(ctx, h.ID)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrReadOnly) {
		return true, nil
	}
	for line := range strings.Lines(now) {
		w.say("session, as it stands now: %s", strings.TrimSuffix(line, "\n"))
	}
	return true, err
}

func (w *Why) explainOut(leaf *manifest.Record, reason string) {
	if w.Page.Tag == manifest.TagBlack {
		w.say("triage: excluded before scoring: %s", reason)
		return
	}
	w.explainScore(leaf)
	if w.Page.Dirty {
		w.say("page in: left out: %s", reason)
		return
	}
	w.say("fit: left out: %s; its text alone takes %d tokens, the context took %d of %d (tier %d)",
		reason, w.Page.Tokens, leaf.Tokens, leaf.Budget-leaf.Reserve, leaf.Tier)
}

// explainAbsent is for pages that the leaf does not name.
func (db *DB) explainAbsent(ctx context.Context, w *Why, leaf *manifest.Record, nums map[uint64]bool) error {
	if len(nums) == 0 {
		if w.Ref.Page != 0 || w.Ref.Version != 0 {
			if l, err := db.store.Resolve(ctx, scopesOf(store.ScopeChain(leaf.Scope), w.Ref), Ref{ID: w.Ref.ID}); err == nil {
				w.say("%s has no such page or version; its newest is version %d, of %d pages", Ref{Scope: l.Scope, ID: w.Ref.ID}, l.Version, len(l.Pages))
				return nil
			}
		}
		w.say("scope: %s had no such artefact in sight: it is not in %s or its ancestors, or did not exist", leaf.Scope, leaf.Scope)
		return nil
	}
	l, err := db.store.Resolve(ctx, scopesOf(store.ScopeChain(leaf.Scope), w.Ref), Ref{ID: w.Ref.ID})
	switch {
	case errors.Is(err, ErrNotFound):
		w.say("it is deleted now; in the assembly it was not among the candidates")
		return nil
	case err != nil:
		return err
	case l.LSN > leaf.LSN:
		w.say("its newest version has lsn %d, the assembly read as of lsn %d", l.LSN, leaf.LSN)
	case l.By != 0:
		w.say("triage: it is superseded by %s, which answers for it", db.RefOf(ctx, l.By))
	case l.ByID != "":
		w.say("triage: it is superseded by %s, which is deleted: nothing answers for it until it is put again", Ref{Scope: l.Scope, ID: l.ByID})
	case l.Expires != 0 && l.Expires <= leaf.Time:
		w.say("triage: excluded before scoring: it expired at %s", codec.FromMicros(l.Expires).Format("2006-01-02 15:04:05Z"))
	default:
		return db.explainUnnamed(ctx, w, leaf, l)
	}
	w.explainCounts(leaf)
	return nil
}

// explainUnnamed is for a live page that the leaf neither served nor named: it says which of the counted reasons fits.
func (db *DB) explainUnnamed(ctx context.Context, w *Why, leaf *manifest.Record, l store.Located) error {
	loaded, err := db.store.Load(ctx, store.ScopeChain(leaf.Scope), l.Pages[:1], store.WantHead)
	if err != nil {
		return err
	}
	counted := func(reason string) bool {
		return slices.ContainsFunc(leaf.Excluded, func(e manifest.Exclusion) bool { return e.Reason == reason })
	}
	switch h := loaded[0].Head; {
	case h != nil && h.Provenance == Scratch && counted(store.ReasonFloor):
		w.say("triage: excluded before scoring: its provenance, %s, is below the floor", h.Provenance)
	case counted(string(triage.NotKept)):
		w.say("triage: not scored: recency and provenance kept others (preset %s)", leaf.Preset)
	default:
		w.say("triage: it was never a candidate: its words did not place it among the best matches, and it is neither pinned, human-verified nor recent")
	}
	w.explainCounts(leaf)
	return nil
}

// explainCounts tells what the leaf counts without naming all of it.
func (w *Why) explainCounts(leaf *manifest.Record) {
	for _, e := range leaf.Excluded {
		w.say("triage: left out for %q: %d pages, of which the nearest are named in the manifest", e.Reason, e.Count)
	}
}

// Diff compares two past assemblies.
func (db *DB) Diff(ctx context.Context, a, b string) (manifest.Difference, error) {
	la, err := db.assemblyLeaf(ctx, a)
	if err != nil {
		return manifest.Difference{}, err
	}
	lb, err := db.assemblyLeaf(ctx, b)
	if err != nil {
		return manifest.Difference{}, err
	}
	for _, l := range []*manifest.Record{la, lb} {
		if l.Question, err = db.asked(ctx, l); err != nil {
			return manifest.Difference{}, err
		}
	}
	return manifest.Diff(la, lb), nil
}

// asked is the question of a leaf; empty: it was erased or not kept.
func (db *DB) asked(ctx context.Context, leaf *manifest.Record) (string, error) {
	text, err := db.Manifests().Question(ctx, leaf)
	if errors.Is(err, manifest.ErrNoQuestion) {
		err = nil
	}
	return text, err
}

// RefOf names a page number for people: its reference, also where gc took it, or the bare number.
func (db *DB) RefOf(ctx context.Context, num uint64) string {
	loaded, err := db.store.Load(ctx, nil, []store.PageKey{{Num: num}}, store.WantHead)
	if err != nil || loaded[0].Head == nil {
		return fmt.Sprintf("page %d", num)
	}
	l := &loaded[0]
	if l.Page > len(l.Head.Rows) { // of a version of which gc left nothing but the number
		return Ref{Scope: l.Head.Scope, ID: l.Head.ID, Page: l.Page, Version: l.Head.Version}.String()
	}
	return Ref{Scope: l.Head.Scope, ID: l.Head.ID, Page: l.Page, Version: l.Head.Rows[l.Page-1].Version}.String()
}
