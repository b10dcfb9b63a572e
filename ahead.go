package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// A page proposes itself by the words it was stored with. If its file has been rewritten since, a question in the new
// words does not find it, and a check of the winners comes too late. So Assemble and Search look at the files of the
// visible scopes before they ask the index: a stat per file, no read while nothing changed.
//
// Other sources may be a network and are asked only when their page is a candidate. If one of them moved on, the
// question is asked once more in the same assembly (rescore).

const (
	// MaxProbeAhead is how many sourced artefacts the visible scopes may have for their files to be looked at before a
	// question. Above it only candidates are checked; Scope.Refresh and Options.RefreshEvery cover the others.
	MaxProbeAhead = 10_000
	// aheadTimeout bounds the look: a mount that hangs must not stop every question. Candidates are checked again, each
	// under Options.SourceTimeout.
	aheadTimeout = time.Second
	// aheadStep is how many files one of those who look takes at a time: neighbours share a directory.
	aheadStep = 16
	// aheadChunk is how many changed files are held in memory at once.
	aheadChunk = 256
	// maxSourced is how many sourced artefacts are remembered for all scopes together.
	maxSourced = 1 << 16
)

// sourcedPages remembers which artefacts of a scope come from a source. It follows the catalogue by LSN, so that a scope
// in which no such artefact changed costs one comparison.
type sourcedPages struct {
	mu sync.Mutex
	in map[string]*sourcedScope
	n  int // entries of all lists
}

// sourcedScope is immutable once made.
type sourcedScope struct {
	lsn  uint64
	n    int          // artefacts with a source
	list []sourcedRef // those with a file: source, by id; nil when n is above MaxProbeAhead
}

// sourcedRef is an artefact that comes from a file.
type sourcedRef struct {
	page    store.PageKey
	key     checkKey
	path    string
	have    Validator
	expires int64
	pages   int
	lone    bool // derived from nothing else: the file alone decides whether it is clean
}

// origin names an artefact whatever its version.
type origin struct{ scope, id string }

func (k checkKey) origin() origin { return origin{k.scope, k.id} }

// of gives the sourced artefacts of a scope as they are now.
func (c *sourcedPages) of(ctx context.Context, st Store, scope string) (*sourcedScope, error) {
	c.mu.Lock()
	last := c.in[scope]
	c.mu.Unlock()
	if last == nil {
		last = &sourcedScope{}
	}
	found, err := st.Scan(ctx, store.ScanQuery{What: store.ScanSourced, Scopes: store.Scopes{scope}, Known: last.lsn})
	if err != nil || found.Same {
		return last, err
	}
	next := &sourcedScope{lsn: found.LSN, n: len(found.Keys)}
	if next.n <= MaxProbeAhead {
		if next.list, err = listSourced(ctx, st, scope, last.list, found.Keys); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in == nil || c.n+len(next.list) > maxSourced {
		c.in, c.n = map[string]*sourcedScope{}, 0 // forgetting costs a scan each, nothing else
	}
	if old := c.in[scope]; old != nil {
		c.n -= len(old.list)
	}
	c.in[scope], c.n = next, c.n+len(next.list)
	return next, nil
}

// listSourced describes the artefacts named by keys, taking over what is known of them.
func listSourced(ctx context.Context, st Store, scope string, known []sourcedRef, keys []store.PageKey) ([]sourcedRef, error) {
	have := make(map[store.PageKey]*sourcedRef, len(known))
	for i := range known {
		have[known[i].page] = &known[i]
	}
	var missing []store.PageKey
	for _, k := range keys {
		if have[k] == nil {
			missing = append(missing, k)
		}
	}
	loaded, err := st.Load(ctx, store.Scopes{scope}, missing, store.WantHead)
	if err != nil {
		return nil, err
	}
	for i := range loaded {
		h := loaded[i].Head
		if loaded[i].Err != nil || h == nil {
			continue // whoever reads it is told
		}
		path, _ := strings.CutPrefix(h.Artefact.Source, "file:")
		if path == h.Artefact.Source {
			path = ""
		}
		have[missing[i]] = &sourcedRef{
			page: missing[i], key: checkKeyOf(h), path: path, have: h.Source, expires: codec.Micros(h.ExpiresAt), pages: len(h.Rows), lone: len(h.DerivedFrom) == 0,
		}
	}
	list := make([]sourcedRef, 0, len(keys))
	for _, k := range keys {
		if r := have[k]; r != nil && r.path != "" {
			list = append(list, *r)
		}
	}
	return list, nil
}

// ahead looks at the files of the visible scopes and fetches anew what changed, before anything is proposed.
func (a *assembling) ahead(ctx context.Context) error {
	db := a.s.db
	if a.q.AsOf != 0 || a.q.Check < 0 || db.sources["file"] != Source(db.files) {
		return nil
	}
	var files []sourcedRef
	total := 0
	for _, name := range a.s.chain {
		sc, err := db.sourced.of(ctx, db.store, name)
		if err != nil {
			return err
		}
		total += sc.n
		if files = append(files, sc.list...); len(files) == len(sc.list) {
			files = sc.list // mostly one scope has them all
		}
	}
	if total > MaxProbeAhead {
		a.unprobed = total
		return nil
	}
	if len(files) == 0 {
		return nil
	}
	return a.settleFiles(ctx, files)
}

// settleFiles looks at files and brings their artefacts up to date. What it found stands for the whole assembly.
func (a *assembling) settleFiles(ctx context.Context, files []sourcedRef) error {
	a.sweep = a.s.db.checks.sweeps.Add(1)
	changed, unasked := a.s.lookAt(ctx, files, a.q.Check, a.now, a.sweep)
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

// settleChanged checks artefacts whose files do not look as they did. A file below no allowed root is not asked for.
func (a *assembling) settleChanged(ctx context.Context, files []sourcedRef, at []int) error {
	var keys []store.PageKey
	for _, i := range at {
		f := &files[i]
		if _, _, err := a.s.db.files.nearest(f.path); err != nil {
			a.settle(f.key.origin(), unfetched(err), f.pages)
			continue
		}
		keys = append(keys, f.page)
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
	found := a.s.freshen(ctx, heads, a.q.Check)
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, h := range heads {
		a.settle(checkKeyOf(h).origin(), found[i], len(h.Rows))
	}
	return nil
}

// settle keeps what a check found of an artefact for the rest of the assembly: each is asked once.
func (a *assembling) settle(o origin, f freshness, pages int) {
	if a.fresh == nil {
		a.fresh = map[origin]freshness{}
	}
	if f.reason != "" && !a.q.ServeStale && a.fresh[o].reason == "" {
		a.lost += pages
	}
	a.fresh[o] = f
}

// settled says what is known of an artefact already in this assembly.
func (a *assembling) settled(h *store.Head) (f freshness, ok bool) {
	if f, ok = a.fresh[checkKeyOf(h).origin()]; ok || a.sweep == 0 {
		return f, ok
	}
	last, known := a.s.db.checks.get(checkKeyOf(h))
	return freshness{}, known && last.sweep == a.sweep
}

// widen asks for as many candidates more as are known to be left out, so that they take nobody's place.
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
		if f := a.fresh[origin{it.cand.Ref.Scope, it.cand.Ref.ID}]; f.reason != "" {
			it.fresh, it.reason = f, f.reason
		}
	}
}

// rescore asks the question once more when the check of the winners changed what there is to find: a page was fetched
// anew, or left out while others wait for its place. It is done once: what this round fetches is served by its new text,
// at the score it had.
func (a *assembling) rescore(ctx context.Context, propose func(context.Context) error) error {
	if !a.moved {
		return nil
	}
	a.turns, a.turnOf, a.more, a.embedder, a.wordsErr = nil, nil, nil, "", nil
	if err := propose(ctx); err != nil {
		return err
	}
	return a.pageIn(ctx)
}

// crowded says whether a page may wait for the place of one that was left out.
func (a *assembling) crowded() bool {
	if a.full {
		return true
	}
	for _, it := range a.ranked {
		if it.reason == store.ReasonBeyond {
			return true
		}
	}
	return false
}

// note is what the manifest says of an assembly that was made with less than all.
func (a *assembling) note() string {
	n := a.degraded()
	if a.unprobed > 0 {
		if n != "" {
			n += "; "
		}
		n += fmt.Sprintf("%d sources were not looked at before the question", a.unprobed)
	}
	return n
}

// lookAt compares files with what is known of them, and gives those that do not look the same, and how many could not be
// looked at in time. Those that do are marked as seen by a sweep.
func (s *Scope) lookAt(ctx context.Context, files []sourcedRef, policy CheckPolicy, now time.Time, sweep uint64) (changed []int, unasked int) {
	g := &glances{files: s.db.files, done: make(chan struct{}), looks: make([]look, 0, len(files)), step: aheadStep}
	checks := &s.db.checks
	checks.mu.Lock()
	for i := range files {
		f := &files[i]
		if f.expires != 0 && f.expires <= codec.Micros(now) {
			continue
		}
		have := f.have
		if last, known := checks.seen[f.key]; known {
			if age := now.Sub(last.at); age >= 0 && age < time.Duration(policy) {
				continue
			}
			have = last.v
		}
		g.looks = append(g.looks, look{at: i, key: f.path, have: have})
	}
	checks.mu.Unlock()
	if len(g.looks) == 0 {
		return nil, 0
	}
	ctx, cancel := context.WithTimeout(ctx, min(aheadTimeout, s.db.opts.SourceTimeout))
	defer cancel()
	g.run()
	select {
	case <-g.done:
	case <-ctx.Done():
		g.next.Store(int64(len(g.looks)))
	}
	checks.mu.Lock()
	defer checks.mu.Unlock()
	for i := range g.looks {
		l := &g.looks[i]
		switch f := &files[l.at]; l.state.Load() {
		case lookSame:
			if f.lone {
				checks.keep(f.key, checked{at: now, v: l.have, sweep: sweep})
			}
		case lookOther:
			changed = append(changed, l.at)
		default:
			unasked++
		}
	}
	return changed, unasked
}

// unfetched says that an artefact cannot be brought up to date.
func unfetched(err error) freshness {
	return freshness{dirty: true, reason: unreadable(err), err: err}
}

// writeTogether commits what several sources gave as few transactions: after a checkout hundreds of files change at
// once, and a commit waits for the disk. What it cannot write, a conflict among it, is left to be written one by one.
func (s *Scope) writeTogether(ctx context.Context, heads []*store.Head, open []int, out []freshness, c *checking) {
	byScope := map[string][]int{}
	var scopes []string
	for _, i := range open {
		h := heads[i]
		r := c.own[checkKeyOf(h)]
		if !out[i].pending || r == nil || r.err != nil || r.got.Validator.Hash == 0 || len(h.DerivedFrom) > 0 || strings.HasPrefix(h.Artefact.Source, "page:") || s.replaced(ctx, h) {
			continue
		}
		if byScope[h.Scope] == nil {
			scopes = append(scopes, h.Scope)
		}
		byScope[h.Scope] = append(byScope[h.Scope], i)
	}
	for _, name := range scopes {
		group, bytes := []int{}, 0
		flush := func() {
			if len(group) > 1 {
				s.writeGroup(ctx, heads, group, c)
			}
			group, bytes = group[:0], 0
		}
		for _, i := range byScope[name] {
			size := len(c.own[checkKeyOf(heads[i])].got.Text)
			if bytes+size > batchBytes || len(group) == batchFiles {
				flush()
			}
			group, bytes = append(group, i), bytes+size
		}
		flush()
	}
}

// What one transaction of files takes.
const (
	batchFiles = 300
	batchBytes = 8 << 20
)

func (s *Scope) writeGroup(ctx context.Context, heads []*store.Head, group []int, c *checking) {
	hs, got := make([]*store.Head, len(group)), make([]Fetched, len(group))
	for n, i := range group {
		hs[n], got[n] = heads[i], c.own[checkKeyOf(heads[i])].got
	}
	if err := s.db.writeFetched(ctx, hs, got); err != nil && !errors.Is(err, ErrConflict) {
		s.db.opts.Logger.Warn("changed sources were not written together", "error", err)
	}
}
