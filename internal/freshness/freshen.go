package freshness

import (
	"context"
	"errors"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// One dirty check of several artefacts, in stages. Each stage handles all of them, so a hundred slow sources cost the time
// of one.
//
// 	glance   files whose stamp is unchanged are settled, fifty under one deadline
// 	survey   what the others were made from, in all generations        reads the store
// 	ask      probe each source once; fetch those that changed          no writes yet
// 	write    commit everything that was fetched, together if possible
// 	verdict  an artefact is as fresh as its own source and all of its ancestors
//
// A source is the author of its page, so a refetch has no gate. Two checks that want the same source share one fetch
// (memory.busy); of two that write it the loser adopts the version of the winner. After a write the caller resolves the
// artefact again (Finding.Refetched): a Finding never carries text.
//
// What a probe saw is remembered by version, in memory only. Forgetting costs a probe.
//
// Locks: memory.mu and round.mu are never held while a source, the store or the other lock is used.

// Finding is the result of a dirty check of one artefact.
type Finding struct {
	Dirty     bool   // its source moved on
	Refetched bool   // and was fetched anew: resolve it again
	Elsewhere string // another host has the file of its source, or of something that it was made from: nothing was asked
	pending   bool   // it was fetched anew, or what it was made from, but nothing is written yet
	Reason    string // why it cannot be served, "": it can
	Err       error
}

// memory remembers when a source was probed and what it was, so that an unchanged stamp costs no hash next time.
type memory struct {
	sweeps atomic.Uint64 // looks ahead so far

	mu   sync.Mutex
	seen map[VersionKey]probed
	busy map[VersionKey]*refetching // the second who wants the same waits for the first
}

// refetching is a fetch under way. The fields are set before done is closed. It stays in memory.busy until who began it
// has written what came, so that nobody fetches the same again meanwhile.
type refetching struct {
	done   chan struct{}
	at     time.Time
	got    Got
	err    error
	gaveUp bool // its caller did: that says nothing about the source
}

// round is one dirty check of several artefacts: what was fetched for it, and by whom.
type round struct {
	wrote bool // something was fetched anew and written

	mu  sync.Mutex
	got map[VersionKey]*refetching
	own map[VersionKey]*refetching // of those, the ones that this check began
}

// VersionKey names a version of an artefact.
type VersionKey struct {
	scope, id string
	version   uint32
}

type probed struct {
	at    time.Time
	v     store.Validator
	sweep uint64 // the last look ahead that found it clean
}

// maxChecks is how many versions are remembered.
const maxChecks = 1 << 16

func (c *memory) get(k VersionKey) (probed, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.seen[k]
	return v, ok
}

func (c *memory) put(k VersionKey, v probed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enter(k, v)
}

// enter is put under the lock.
func (c *memory) enter(k VersionKey, v probed) {
	if len(c.seen) >= maxChecks {
		clear(c.seen) // forgetting costs a probe each, nothing else
	}
	c.seen[k] = v
}

// KeyOf names the version that a head is of.
func KeyOf(h *store.Head) VersionKey { return VersionKey{h.Scope, h.ID, h.Version} }

// Ages reports whether an artefact was made from something that may change.
func Ages(h *store.Head) bool { return h.Artefact.Source != "" || len(h.DerivedFrom) > 0 }

// Freshen checks the sources and the lineage of heads, concurrently, and fetches anew what is dirty.
func (s *View) Freshen(ctx context.Context, heads []*store.Head, policy time.Duration) []Finding {
	out, _ := s.BringUpToDate(ctx, heads, policy)
	return out
}

// FreshenOne is Freshen for one head. Most were made from nothing that changes.
func (s *View) FreshenOne(ctx context.Context, h *store.Head, policy time.Duration) Finding {
	if h == nil || policy < 0 || !Ages(h) {
		return Finding{}
	}
	return s.Freshen(ctx, []*store.Head{h}, policy)[0]
}

// BringUpToDate is Freshen, and reports whether anything was written, also of ancestors of a head.
func (s *View) BringUpToDate(ctx context.Context, heads []*store.Head, policy time.Duration) (out []Finding, wrote bool) {
	out = make([]Finding, len(heads))
	if policy < 0 || !slices.ContainsFunc(heads, func(h *store.Head) bool { return h != nil && Ages(h) }) {
		return out, false
	}
	open := s.glance(ctx, heads, policy, out)
	if len(open) == 0 {
		return out, false
	}
	c := &round{got: map[VersionKey]*refetching{}, own: map[VersionKey]*refetching{}}
	defer s.memory.release(c.own)
	g := newAncestry(s, policy, c)
	for _, i := range open {
		g.survey(ctx, heads[i])
	}
	g.ask(ctx, heads, open)
	for _, i := range open {
		out[i] = g.verdict(ctx, heads[i])
	}
	s.writeTogether(ctx, heads, open, out, c)
	g.write()
	for _, i := range open {
		if out[i].pending {
			out[i] = g.verdict(ctx, heads[i])
		}
	}
	return out, c.wrote
}

// glance settles the heads for which a look at a file's stamp is enough, and returns the places of
// the others. Fifty looks go together, under one deadline: a goroutine, a timer and a handle of the root for each would
// take longer than the looks.
func (s *View) glance(ctx context.Context, heads []*store.Head, policy time.Duration, out []Finding) (open []int) {
	files, now := s.Files, s.Clock()
	g := &glances{files: files, done: make(chan struct{})}
	s.memory.mu.Lock()
	for i, h := range heads {
		if h == nil || !Ages(h) {
			continue
		}
		if host := s.Elsewhere(h); host != "" && len(h.DerivedFrom) == 0 {
			out[i].Elsewhere = host
			continue
		}
		key, ok := strings.CutPrefix(h.Artefact.Source, "file:")
		if !ok || len(h.DerivedFrom) > 0 || !s.OwnFiles() {
			open = append(open, i)
			continue
		}
		have := h.Source
		if last, known := s.memory.seen[KeyOf(h)]; known {
			if age := now.Sub(last.at); age >= 0 && age < policy {
				continue
			}
			have = last.v
		}
		g.looks = append(g.looks, look{at: i, key: key, have: have})
	}
	s.memory.mu.Unlock()
	if len(g.looks) == 0 {
		return open
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	g.run()
	select {
	case <-g.done:
	case <-ctx.Done():
		g.next.Store(int64(len(g.looks))) // nobody waits for the rest
	}
	for i := range g.looks {
		l := &g.looks[i]
		switch state := l.state.Load(); {
		case state == lookSame:
			s.memory.put(KeyOf(heads[l.at]), probed{at: now, v: l.have})
		case g.failed(i, state):
			out[l.at] = Finding{Dirty: true, Reason: triage.FetchFailed, Err: ctx.Err()}
		default:
			open = append(open, l.at)
		}
	}
	slices.Sort(open)
	return open
}

// owner is the handle from which the source of an artefact is found: of the scope it lives in, not of the reader's. Else
// what a child scope calls by the same name would be written into its parent.
func (s *View) owner(h *store.Head) *View {
	if h.Scope == s.name {
		return s
	}
	return &View{Checker: s.Checker, name: h.Scope, chain: store.ScopeChain(h.Scope), dry: s.dry}
}

// ask probes the source of an artefact and fetches it when it changed. Nothing is written yet.
func (s *View) ask(ctx context.Context, h *store.Head, policy time.Duration, c *round) Finding {
	if host := s.Elsewhere(h); host != "" {
		return Finding{Elsewhere: host}
	}
	k := KeyOf(h)
	last, known := s.memory.get(k)
	now := s.Clock()
	if age := now.Sub(last.at); known && age >= 0 && age < policy {
		return Finding{}
	}
	have := h.Source
	if known {
		have = last.v
	}
	got, err := s.probe(ctx, h.Artefact.Source, have)
	switch {
	case err != nil:
		return Unfetched(err)
	case sameContent(have, got):
		s.memory.put(k, probed{at: now, v: got})
		return Finding{}
	}
	return s.refetch(ctx, h, got, c)
}

// sameContent compares hashes where both are known, else stamps.
func sameContent(a, b store.Validator) bool {
	if a.Hash != 0 && b.Hash != 0 {
		return a.Hash == b.Hash
	}
	return a.Stamp == b.Stamp
}

// ended says why what an artefact was made from is not to be used any more, "" when it is. Its source is not asked then.
func (s *View) ended(h *store.Head, id string, parent *store.Located) string {
	switch {
	case parent.Expires != 0 && parent.Expires <= codec.Micros(s.Clock()):
		return "expired"
	case parent.By != 0 && (parent.Scope != h.Scope || !slices.Contains(h.Supersedes, id)): // it supersedes within its scope
		return "another artefact supersedes"
	}
	return ""
}

// samePages reports whether the pages a parent reference names are still the same content under a newer head.
func (s *View) samePages(ctx context.Context, parent store.Ref, now store.Located) bool {
	then, err := s.Store.Resolve(ctx, s.chain, parent)
	if err != nil || parent.Page == 0 && len(then.Pages) != len(now.Pages) {
		return false
	}
	for i, k := range then.Pages {
		j := i
		if parent.Page > 0 {
			j = parent.Page - 1
		}
		if j >= len(now.Pages) || now.Pages[j].Num != k.Num {
			return false
		}
	}
	return true
}

// refetch loads a dirty artefact anew; writeRefetched commits it as a version written by its source: the source is the
// author, so there is no gate. Of several fetches in this process one does the work and the others take its result;
// another process's newer version is adopted. found is the result of the probe.
func (s *View) refetch(ctx context.Context, h *store.Head, found store.Validator, c *round) Finding {
	if s.ReadOnly || s.dry {
		return Finding{Dirty: true, Reason: triage.ReadOnly, Err: store.ErrReadOnly}
	}
	switch r := s.fetchOnce(ctx, h, found, c); {
	case r == nil:
		return Finding{}
	case r.err != nil:
		return Unfetched(r.err)
	}
	return Finding{Dirty: true, pending: true}
}

// fetchOnce fetches what a dirty artefact is now, or takes what somebody else is fetching; nil when that was settled
// between our probe and now.
func (s *View) fetchOnce(ctx context.Context, h *store.Head, found store.Validator, up *round) *refetching {
	k := KeyOf(h)
	c := &s.memory
	c.mu.Lock()
	if first := c.busy[k]; first != nil {
		c.mu.Unlock()
		select {
		case <-first.done:
			if first.gaveUp {
				return s.fetchOnce(ctx, h, found, up)
			}
			up.took(k, first)
			return first
		case <-ctx.Done():
			return &refetching{err: ctx.Err()}
		}
	}
	if last, ok := c.seen[k]; ok && sameContent(last.v, found) {
		c.mu.Unlock()
		return nil
	}
	r := &refetching{done: make(chan struct{}), at: s.Clock()}
	c.busy[k] = r
	c.mu.Unlock()
	up.began(k, r)
	defer close(r.done)
	if s.replaced(ctx, h) { // it is adopted
		return r
	}
	if r.got, r.err = s.Fetch(ctx, h.Artefact.Source); r.err == nil {
		r.got.Began = r.at
		s.Refetches.Add(1)
	}
	if r.gaveUp = r.err != nil && ctx.Err() != nil; r.gaveUp {
		c.release(map[VersionKey]*refetching{k: r})
	}
	return r
}

// writeRefetched commits what a source gave.
func (s *View) writeRefetched(ctx context.Context, h *store.Head, r *refetching) Finding {
	k := KeyOf(h)
	if last, ok := s.memory.get(k); s.replaced(ctx, h) || ok && sameContent(last.v, r.got.Validator) {
		return Finding{Dirty: true, Refetched: true} // somebody else wrote it, or found that nothing was to be written
	}
	err := s.Write(ctx, []*store.Head{h}, []Got{r.got})
	if errors.Is(err, store.ErrConflict) { // somebody wrote a newer version meanwhile: adopt it
		err = nil
	}
	if err != nil {
		return Finding{Dirty: true, Reason: reasonOf(err), Err: err}
	}
	if !s.replaced(ctx, h) { // the content is unchanged, under a new stamp: no new version carries it
		s.memory.put(k, probed{at: r.at, v: r.got.Validator})
	}
	return Finding{Dirty: true, Refetched: true}
}

// release lets others fetch again.
func (c *memory) release(own map[VersionKey]*refetching) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, r := range own {
		if c.busy[k] == r {
			delete(c.busy, k)
		}
	}
}

func (c *round) fetched(k VersionKey) *refetching {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[k]
}

func (c *round) took(k VersionKey, r *refetching) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[k] = r
}

func (c *round) began(k VersionKey, r *refetching) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[k], c.own[k] = r, r
}

// replaced reports whether an artefact has another version than this one by now.
func (s *View) replaced(ctx context.Context, h *store.Head) bool {
	l, err := s.Store.Resolve(ctx, s.chain, store.Ref{Scope: h.Scope, ID: h.ID})
	return err != nil || l.Version != h.Version
}

// Note returns what a manifest says of a page whose source was not asked because another host has the file; "": the source
// was asked, or the page has none.
func (f *Finding) Note() string {
	if f.Elsewhere == "" {
		return ""
	}
	return "unchecked: its file is on host " + f.Elsewhere
}
