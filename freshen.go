package ctxpage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// freshness is what a dirty check found of one artefact.
type freshness struct {
	dirty     bool   // its source moved on
	refetched bool   // and was fetched anew: resolve it again
	pending   bool   // it was fetched anew, or what it was made from, but nothing is written yet
	reason    string // why it cannot be served, "": it can
	err       error
}

// checks remembers when a source was probed and what it was, so that an unchanged stamp costs no hash next time.
type checks struct {
	sweeps atomic.Uint64 // looks ahead so far

	mu   sync.Mutex
	seen map[checkKey]checked
	busy map[checkKey]*refetching // the second who wants the same waits for the first
}

// refetching is a fetch under way. The fields are set before done is closed. It stays in checks.busy until who began it
// has written what came, so that nobody fetches the same again meanwhile.
type refetching struct {
	done   chan struct{}
	at     time.Time
	got    Fetched
	err    error
	gaveUp bool // its caller did: that says nothing about the source
}

// checking is one dirty check of several artefacts, in two rounds. In the first all sources are asked at once and
// nothing is written. In the second what changed is written, one after the other in the order of the artefacts: page
// numbers break ties, and must not depend on which source was quickest.
type checking struct {
	wrote bool // something was fetched anew and written

	mu  sync.Mutex
	got map[checkKey]*refetching
	own map[checkKey]*refetching // of those, the ones that this check began
}

type checkKey struct {
	scope, id string
	version   uint32
}

type checked struct {
	at    time.Time
	v     Validator
	sweep uint64 // the last look ahead that found it clean
}

const maxChecks = 1 << 16

func (c *checks) get(k checkKey) (checked, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.seen[k]
	return v, ok
}

func (c *checks) put(k checkKey, v checked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(k, v)
}

// keep is put under the lock.
func (c *checks) keep(k checkKey, v checked) {
	if len(c.seen) >= maxChecks {
		clear(c.seen) // forgetting costs a probe each, nothing else
	}
	c.seen[k] = v
}

func checkKeyOf(h *store.Head) checkKey { return checkKey{h.Scope, h.ID, h.Version} }

// ages says whether an artefact was made from something that may change.
func ages(h *store.Head) bool { return h.Artefact.Source != "" || len(h.DerivedFrom) > 0 }

// freshen checks the sources and the lineage of heads, concurrently, and fetches anew what is dirty.
func (s *Scope) freshen(ctx context.Context, heads []*store.Head, policy CheckPolicy) []freshness {
	out, _ := s.bringUpToDate(ctx, heads, policy)
	return out
}

// bringUpToDate is freshen, and says whether anything was written, be it of what a head was made from.
func (s *Scope) bringUpToDate(ctx context.Context, heads []*store.Head, policy CheckPolicy) (out []freshness, wrote bool) {
	out = make([]freshness, len(heads))
	if policy < 0 {
		return out, false
	}
	open := s.glance(ctx, heads, policy, out)
	if len(open) == 0 {
		return out, false
	}
	c := &checking{got: map[checkKey]*refetching{}, own: map[checkKey]*refetching{}}
	defer s.db.checks.release(c.own)
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

// maxProbes is how many sources are asked at once.
const maxProbes = 16

// glance settles the heads for which a look at a file's stamp is all there is to do, and gives the places of
// the others. Fifty looks go together, under one deadline: a goroutine, a timer and a handle of the root for each would
// take longer than the looks.
func (s *Scope) glance(ctx context.Context, heads []*store.Head, policy CheckPolicy, out []freshness) (open []int) {
	files, now := s.db.files, s.db.opts.Clock()
	g := &glances{files: files, done: make(chan struct{})}
	s.db.checks.mu.Lock()
	for i, h := range heads {
		if h == nil || !ages(h) {
			continue
		}
		key, ok := strings.CutPrefix(h.Artefact.Source, "file:")
		if !ok || len(h.DerivedFrom) > 0 || s.db.sources["file"] != Source(files) {
			open = append(open, i)
			continue
		}
		have := h.Source
		if last, known := s.db.checks.seen[checkKeyOf(h)]; known {
			if age := now.Sub(last.at); age >= 0 && age < time.Duration(policy) {
				continue
			}
			have = last.v
		}
		g.looks = append(g.looks, look{at: i, key: key, have: have})
	}
	s.db.checks.mu.Unlock()
	if len(g.looks) == 0 {
		return open
	}
	ctx, cancel := context.WithTimeout(ctx, s.db.opts.SourceTimeout)
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
			s.db.checks.put(checkKeyOf(heads[l.at]), checked{at: now, v: l.have})
		case g.failed(i, state):
			out[l.at] = freshness{dirty: true, reason: store.ReasonFetchFailed, err: ctx.Err()}
		default:
			open = append(open, l.at)
		}
	}
	slices.Sort(open)
	return open
}

// failed says whether a look took as long as a source may. Those behind the first began later than the time, and are probed
// by themselves.
func (g *glances) failed(i int, state int32) bool { return state == lookBegun && i < maxProbes }

// glances are looks at files. Those who look may outlive the deadline of who waits for them, so nobody else writes here.
type glances struct {
	files *fileSource
	looks []look
	step  int64 // how many looks one takes at a time; 0: one
	next  atomic.Int64
	left  atomic.Int64  // who still looks; the last closes done
	done  chan struct{} // all were looked at
}

// look is one file, and what it was known by.
type look struct {
	at    int // in the heads
	key   string
	have  Validator
	state atomic.Int32
}

// The states of a look. Unless it is the same, a file is probed by itself.
const (
	lookOpen = iota
	lookBegun
	lookSame
	lookOther
)

func (g *glances) run() {
	n := min(len(g.looks), maxProbes)
	g.left.Store(int64(n))
	for range n {
		go g.work()
	}
}

func (g *glances) work() {
	step := max(g.step, 1)
	o := opened{files: g.files}
	for i := g.next.Add(step) - step; i < int64(len(g.looks)); i = g.next.Add(step) - step {
		for n := i; n < min(i+step, int64(len(g.looks))); n++ {
			l := &g.looks[n]
			l.state.Store(lookBegun)
			if o.same(l) {
				l.state.Store(lookSame)
			} else {
				l.state.Store(lookOther)
			}
		}
	}
	o.close()
	if g.left.Add(-1) == 0 {
		close(g.done)
	}
}

// opened is the directory that one who looks at files has open: files mostly come in the order of their paths, and to
// walk down from the root for each takes longer than the look. Directories are not kept for the next time: one may be
// replaced by another of its name.
type opened struct {
	files *fileSource
	name  string
	root  *os.Root
}

func (o *opened) close() {
	if o.root != nil {
		o.root.Close()
	}
	o.root = nil
}

// same says whether a file looks as it did. A link that leads out of its directory is looked at from the root, by a probe.
func (o *opened) same(l *look) bool {
	dir, rel, err := o.files.nearest(l.key)
	if err != nil {
		return false
	}
	below, name := filepath.Split(rel)
	if at := dir + "\x00" + below; o.root == nil || o.name != at {
		o.close()
		root, err := os.OpenRoot(dir)
		if err != nil {
			return false
		}
		if below != "" {
			top := root
			root, err = top.OpenRoot(below)
			top.Close()
			if err != nil {
				return false
			}
		}
		o.name, o.root = at, root
	}
	return o.files.unchanged(o.root, name, l.have)
}

// owner is the handle from which the source of an artefact is found: of the scope it lives in, not of the reader's. Else
// what a child scope calls by the same name would be written into its parent.
func (s *Scope) owner(h *store.Head) *Scope {
	if h.Scope == s.name {
		return s
	}
	o := *s
	o.name, o.chain = h.Scope, store.ScopeChain(h.Scope)
	return &o
}

// ask probes the source of an artefact and fetches it when it changed. Nothing is written yet.
func (s *Scope) ask(ctx context.Context, h *store.Head, policy CheckPolicy, c *checking) freshness {
	k := checkKeyOf(h)
	last, known := s.db.checks.get(k)
	now := s.db.opts.Clock()
	if age := now.Sub(last.at); known && age >= 0 && age < time.Duration(policy) {
		return freshness{}
	}
	have := h.Source
	if known {
		have = last.v
	}
	got, err := s.probe(ctx, h.Artefact.Source, have)
	switch {
	case err != nil:
		return unfetched(err)
	case sameContent(have, got):
		s.db.checks.put(k, checked{at: now, v: got})
		return freshness{}
	}
	return s.refetch(ctx, h, got, c)
}

// sameContent compares hashes where both are known, else stamps.
func sameContent(a, b Validator) bool {
	if a.Hash != 0 && b.Hash != 0 {
		return a.Hash == b.Hash
	}
	return a.Stamp == b.Stamp
}

// ended says why what an artefact was made from is not to be used any more, "" when it is. Its source is not asked then.
func (s *Scope) ended(h *store.Head, id string, parent *store.Located) string {
	switch {
	case parent.Expires != 0 && parent.Expires <= codec.Micros(s.db.opts.Clock()):
		return "expired"
	case parent.By != 0 && (parent.Scope != h.Scope || !slices.Contains(h.Supersedes, id)): // it supersedes within its scope
		return "another artefact supersedes"
	}
	return ""
}

// samePages says whether the pages a parent reference names are still the same content under a newer head.
func (s *Scope) samePages(ctx context.Context, parent Ref, now store.Located) bool {
	then, err := s.db.store.Resolve(ctx, s.chain, parent)
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
// another process's newer version is adopted. found is what the probe saw.
func (s *Scope) refetch(ctx context.Context, h *store.Head, found Validator, c *checking) freshness {
	if s.db.opts.ReadOnly || s.dry {
		return freshness{dirty: true, reason: store.ReasonReadOnly, err: ErrReadOnly}
	}
	switch r := s.fetchOnce(ctx, h, found, c); {
	case r == nil:
		return freshness{}
	case r.err != nil:
		return unfetched(r.err)
	}
	return freshness{dirty: true, pending: true}
}

// fetchOnce fetches what a dirty artefact is now, or takes what somebody else is fetching; nil when that was settled
// between our probe and now.
func (s *Scope) fetchOnce(ctx context.Context, h *store.Head, found Validator, up *checking) *refetching {
	k := checkKeyOf(h)
	c := &s.db.checks
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
	r := &refetching{done: make(chan struct{}), at: s.db.opts.Clock()}
	c.busy[k] = r
	c.mu.Unlock()
	up.began(k, r)
	defer close(r.done)
	if s.replaced(ctx, h) { // it is adopted
		return r
	}
	if r.got, r.err = s.fetch(ctx, h.Artefact.Source); r.err == nil {
		s.db.table.refetches.Add(1)
	}
	if r.gaveUp = r.err != nil && ctx.Err() != nil; r.gaveUp {
		c.release(map[checkKey]*refetching{k: r})
	}
	return r
}

// writeRefetched commits what a source gave.
func (s *Scope) writeRefetched(ctx context.Context, h *store.Head, r *refetching) freshness {
	k := checkKeyOf(h)
	if last, ok := s.db.checks.get(k); s.replaced(ctx, h) || ok && sameContent(last.v, r.got.Validator) {
		return freshness{dirty: true, refetched: true} // somebody else wrote it, or found that nothing was to be written
	}
	err := s.db.writeFetched(ctx, []*store.Head{h}, []Fetched{r.got})
	if errors.Is(err, ErrConflict) { // somebody wrote a newer version meanwhile: adopt it
		err = nil
	}
	if err != nil {
		return freshness{dirty: true, reason: unreadable(err), err: err}
	}
	if !s.replaced(ctx, h) { // the content is what it was, under a new stamp: no new version carries it
		s.db.checks.put(k, checked{at: r.at, v: r.got.Validator})
	}
	return freshness{dirty: true, refetched: true}
}

// release lets others fetch again.
func (c *checks) release(own map[checkKey]*refetching) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, r := range own {
		if c.busy[k] == r {
			delete(c.busy, k)
		}
	}
}

func (c *checking) fetched(k checkKey) *refetching {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[k]
}

func (c *checking) took(k checkKey, r *refetching) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[k] = r
}

func (c *checking) began(k checkKey, r *refetching) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[k], c.own[k] = r, r
}

// replaced says whether an artefact has another version than this one by now.
func (s *Scope) replaced(ctx context.Context, h *store.Head) bool {
	l, err := s.db.store.Resolve(ctx, s.chain, Ref{Scope: h.Scope, ID: h.ID})
	return err != nil || l.Version != h.Version
}
