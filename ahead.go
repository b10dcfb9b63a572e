package ctxpage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
)

// A page is found by the words it was stored with. If its file was rewritten since, a question in the new words does
// not find it, and the check of the winners comes too late. So Assemble and Search look at the files of the visible
// scopes before they query the index: one stat per file, and no read while nothing changed.
//
//	FilesOf (listed once, kept current) ─▶ LookAt: stat ─▶ unchanged: nothing to do
//	                                                 └───▶ changed: Freshen in parts ─▶ settle: what was found
//
// Invariant: what was found for an artefact holds for the whole assembly (fresh, sweep). Each source is asked once, so
// all stages see one state of it and the rounds of rescore end.
//
// Other sources may be a network, so only the sources of winners are asked. If one changed, the question is asked
// once more in the same assembly (rescore).

// aheadChunk bounds how many changed files are in memory at once.
const aheadChunk = 256

// looksAhead reports whether files are looked at before the index is queried.
func (a *assembling) looksAhead() bool {
	return a.q.AsOf == 0 && a.q.Check >= 0 && a.s.db.checker.OwnFiles()
}

// ahead looks at the files of the visible scopes and fetches changed ones, before anything is proposed.
func (a *assembling) ahead(ctx context.Context) error {
	db := a.s.db
	if !a.looksAhead() {
		return nil
	}
	var files []freshness.File
	total := 0
	for _, name := range a.s.chain {
		list, n, err := db.checker.FilesOf(ctx, name)
		if err != nil {
			return err
		}
		total += n
		if files = append(files, list...); len(files) == len(list) {
			files = list // mostly one scope has them all
		}
	}
	if total > freshness.MaxListed {
		a.unprobed = total
		return nil
	}
	if len(files) == 0 {
		return nil
	}
	return a.settleFiles(ctx, files)
}

// settleFiles looks at files and brings their artefacts up to date.
func (a *assembling) settleFiles(ctx context.Context, files []freshness.File) error {
	a.sweep = a.s.db.checker.BeginSweep()
	changed, unasked := a.s.view.LookAt(ctx, files, a.q.Check, a.now, a.sweep)
	a.unprobed = unasked
	if err := ctx.Err(); err != nil {
		return err
	}
	for len(changed) > 0 {
		part := changed[:min(len(changed), aheadChunk)]
		changed = changed[len(part):]
		if err := a.settleChanged(ctx, files, part); err != nil {
			return err
		}
	}
	return nil
}

// settleChanged checks artefacts whose files look different. A file outside the allowed roots is not read.
func (a *assembling) settleChanged(ctx context.Context, files []freshness.File, at []int) error {
	var keys []store.PageKey
	for _, i := range at {
		f := &files[i]
		if err := a.s.db.checker.Files.Allowed(f.Path); err != nil {
			a.settle(f.Origin(), freshness.Unfetched(err), f.Pages)
			continue
		}
		keys = append(keys, f.Page)
	}
	if len(keys) == 0 {
		return nil
	}
	loaded, err := a.s.db.store.Load(ctx, a.s.chain, keys, store.WantHead)
	if err != nil {
		return err
	}
	heads := make([]*store.Head, 0, len(loaded))
	for i := range loaded {
		if loaded[i].Err == nil {
			heads = append(heads, loaded[i].Head)
		}
	}
	found := a.s.view.Freshen(ctx, heads, a.q.Check)
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, h := range heads {
		a.settle(freshness.OriginOf(h), found[i], len(h.Rows))
	}
	return nil
}

// settle keeps what a check found for the rest of the assembly.
func (a *assembling) settle(o freshness.Origin, f freshness.Finding, pages int) {
	if a.fresh == nil {
		a.fresh = map[freshness.Origin]freshness.Finding{}
	}
	if f.Reason != "" && !a.q.ServeStale && a.fresh[o].Reason == "" {
		a.lost += pages
	}
	a.fresh[o] = f
}

// settled returns what this assembly already knows of an artefact.
func (a *assembling) settled(h *store.Head) (f freshness.Finding, ok bool) {
	if f, ok = a.fresh[freshness.OriginOf(h)]; ok || a.sweep == 0 {
		return f, ok
	}
	return freshness.Finding{}, a.s.db.checker.SeenClean(h, a.sweep)
}

// widen asks for more candidates, as many as are known to be left out, so that those do not displace others.
func (a *assembling) widen(k int) int { return min(k+a.lost, max(k, MaxTopK)) }

// leaveLost leaves out what is known to be dirty before places are given away.
func (a *assembling) leaveLost(items []*item) {
	if a.lost == 0 {
		return
	}
	for _, it := range items {
		if it.own != nil || it.turn != nil || it.reason != "" {
			continue
		}
		if f := a.fresh[freshness.Origin{Scope: it.cand.Ref.Scope, ID: it.cand.Ref.ID}]; f.Reason != "" {
			it.fresh, it.reason = f, f.Reason
		}
	}
}

// crowded reports whether another page may take the place of one that was left out.
func (a *assembling) crowded() bool {
	if a.full {
		return true
	}
	for _, it := range a.ranked {
		if it.reason == triage.BeyondTopK {
			return true
		}
	}
	return false
}

// note returns the manifest's note on an assembly that had to do without something.
func (a *assembling) note() string {
	unprobed := ""
	if a.unprobed > 0 {
		unprobed = fmt.Sprintf("%d sources were not looked at before the question", a.unprobed)
	}
	read := ""
	switch n := len(a.cands.Typed.Read); { // without the words: a page that has them may be erased
	case n == 1:
		read = "a word of the question, which no page has, was read as another"
	case n > 1:
		read = fmt.Sprintf("%d words of the question, which no page has, were read as others", n)
	}
	notes := slices.DeleteFunc([]string{a.degraded(), read, unprobed, a.q.cut}, func(s string) bool { return s == "" })
	return strings.Join(notes, "; ")
}
