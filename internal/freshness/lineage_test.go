package freshness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

// plainLineage is the rule without a memo: each page walks all it was made from by itself. It is what ancestry must agree
// with.
type plainLineage struct {
	s      *View
	c      *round
	probed map[VersionKey]store.Validator
	writes bool
}

type plainWalk map[locator]bool

func (p *plainLineage) freshen(heads []*store.Head) []Finding {
	p.c, p.probed = &round{got: map[VersionKey]*refetching{}, own: map[VersionKey]*refetching{}}, map[VersionKey]store.Validator{}
	defer p.s.memory.release(p.c.own)
	out := make([]Finding, len(heads))
	for i, h := range heads {
		out[i] = p.via(p.s, h, plainWalk{})
	}
	p.writes = true
	for i, h := range heads {
		if out[i].pending {
			out[i] = p.via(p.s, h, plainWalk{})
		}
	}
	return out
}

func (p *plainLineage) via(s *View, h *store.Head, seen plainWalk) Finding {
	s = s.owner(h)
	if seen[locator{"", h.Scope, h.ID}] {
		return Finding{}
	}
	seen[locator{"", h.Scope, h.ID}] = true
	if r := p.lineage(s, h, seen); r.Reason != "" || r.pending || h.Artefact.Source == "" {
		return r
	}
	if key, ok := strings.CutPrefix(h.Artefact.Source, "page:"); ok {
		if l, err := (pageSource{s}).locate(context.Background(), key); err == nil && l.Current {
			switch r := p.at(s, l, seen); {
			case r.Reason != "":
				return Finding{Dirty: true, Reason: reasonOf(r.Err), Err: r.Err}
			case r.pending:
				return Finding{pending: true}
			}
		}
	}
	return p.own(s, h)
}

func (p *plainLineage) at(s *View, l store.Located, seen plainWalk) Finding {
	loaded, err := s.Store.Load(context.Background(), s.chain, l.Pages[:1], store.WantHead)
	if err != nil || loaded[0].Err != nil {
		return Finding{Dirty: true, Reason: reasonOf(errors.Join(err, loaded[0].Err)), Err: errors.Join(err, loaded[0].Err)}
	}
	return p.via(s, loaded[0].Head, seen)
}

func (p *plainLineage) own(s *View, h *store.Head) Finding {
	ctx, k := context.Background(), KeyOf(h)
	have := h.Source
	if last, ok := s.memory.get(k); ok {
		have = last.v
	}
	got, ok := p.probed[k]
	if !ok {
		var err error
		if got, err = s.probe(ctx, h.Artefact.Source, have); err != nil {
			return Finding{Dirty: true, Reason: reasonOf(err), Err: err}
		}
		p.probed[k] = got
	}
	if sameContent(have, got) {
		return Finding{}
	}
	r := p.c.fetched(k)
	if r == nil {
		if r = s.fetchOnce(ctx, h, got, p.c); r == nil {
			return Finding{}
		}
	}
	switch {
	case r.err != nil:
		return Finding{Dirty: true, Reason: reasonOf(r.err), Err: r.err}
	case !p.writes:
		return Finding{Dirty: true, pending: true}
	}
	return s.writeRefetched(ctx, h, r)
}

func (p *plainLineage) lineage(s *View, h *store.Head, seen plainWalk) (out Finding) {
	for _, ref := range h.DerivedFrom {
		changed := func() (store.Located, bool) {
			l, err := s.Store.Resolve(context.Background(), s.chain, store.Ref{Scope: ref.Scope, ID: ref.ID})
			return l, err != nil || l.Version != ref.Version && !s.samePages(context.Background(), ref, l)
		}
		l, moved := changed()
		if moved || s.ended(h, ref.ID, &l) != "" {
			return Finding{Dirty: true, Reason: triage.Derived}
		}
		switch r := p.at(s, l, seen); {
		case r.Refetched:
			if _, moved := changed(); moved {
				return Finding{Dirty: true, Reason: triage.Derived}
			}
		case r.pending:
			out.pending = true
		case r.Reason != "":
			return Finding{Dirty: true, Reason: r.Reason}
		}
	}
	return out
}

// texts is a source whose answers a test sets before it is asked.
type texts struct {
	mu     sync.Mutex
	of     map[string]string
	bad    map[string]bool
	probes atomic.Int64
}

func (m *texts) Probe(_ context.Context, key string, _ store.Validator) (store.Validator, error) {
	m.probes.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bad[key] {
		return store.Validator{}, errors.New("out of order")
	}
	return store.Validator{Stamp: m.of[key]}, nil
}

func (m *texts) Fetch(_ context.Context, key string) (store.Fetched, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.Fetched{Text: m.of[key], Validator: store.Validator{Stamp: m.of[key]}}, nil
}

// world is a scope of the reference store and the checker over it.
type world struct {
	t   *testing.T
	s   *View
	now time.Time
}

func newWorld(t *testing.T, sources map[string]store.Source) *world {
	w := &world{t: t, now: time.Unix(1_700_000_000, 0)}
	clock := func() time.Time { return w.now }
	st := must(storetest.NewMemory(storetest.Config{Now: clock}))(t)
	t.Cleanup(func() { st.Close() })
	host := Host{Store: st, Files: NewFiles(store.MaxText, clock), Sources: sources, Clock: clock, Timeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	host.Write = func(ctx context.Context, heads []*store.Head, fetched []Got) error {
		b := store.Batch{Scope: heads[0].Scope}
		for i, h := range heads {
			a := h.Artefact
			a.Text = fetched[i].Text
			b.Puts = append(b.Puts, store.Put{Artefact: a, Source: fetched[i].Validator, Pages: onePage(a.Text)})
			b.Expect = append(b.Expect, store.Precondition{Ref: store.Ref{Scope: h.Scope, ID: h.ID}, LSN: h.LSN})
		}
		return w.commit(b)
	}
	host.Read = func(ctx context.Context, scopes store.Scopes, l store.Located) (Got, error) {
		loaded, err := st.Load(ctx, scopes, l.Pages, store.WantText)
		if err != nil || loaded[0].Err != nil {
			return Got{}, errors.Join(err, loaded[0].Err)
		}
		return Got{Fetched: store.Fetched{Text: loaded[0].Text}}, nil
	}
	v := New(host).Of("acme", store.ScopeChain("acme"))
	w.s = &v
	return w
}

func onePage(text string) []store.NewPage {
	return []store.NewPage{{Text: text, Tokens: 1, Hash: store.ContentHash(text), Digest: store.SaltedDigest(make([]byte, store.DigestSaltSize), text)}}
}

func (w *world) commit(b store.Batch) error {
	var err error
	if b.ID, err = store.NewID(w.now, rand.NewChaCha8([32]byte{byte(w.s.Store.Mark().LSN), byte(w.s.Store.Mark().LSN >> 8)})); err != nil {
		return err
	}
	b.Actor, b.Now, b.Leaf = "test", w.now, manifest.Record{Type: manifest.TypeCommit}
	_, err = w.s.Store.Commit(context.Background(), b)
	return err
}

// put writes an artefact as a transaction does: what has a source is fetched, versions of parents are fixed.
func (w *world) put(a store.Artefact) {
	ctx := context.Background()
	p := store.Put{}
	if a.Source != "" {
		f := must(w.s.Fetch(ctx, a.Source))(w.t)
		a.Text, p.Source = f.Text, f.Validator
	}
	for i := range a.DerivedFrom {
		l := must(w.s.Store.Resolve(ctx, w.s.chain, store.Ref{Scope: a.DerivedFrom[i].Scope, ID: a.DerivedFrom[i].ID}))(w.t)
		a.DerivedFrom[i].Scope, a.DerivedFrom[i].Version = l.Scope, l.Version
	}
	a.KindDefaults()
	p.Artefact, p.Pages = a, onePage(a.Text)
	require.NoError(w.t, w.commit(store.Batch{Scope: "acme", Puts: []store.Put{p}}))
}

// head is the newest version of an artefact; nil when there is none that may be read.
func (w *world) head(id string) *store.Head {
	l, err := w.s.Store.Resolve(context.Background(), w.s.chain, store.Ref{ID: id})
	if err != nil {
		return nil
	}
	loaded := must(w.s.Store.Load(context.Background(), w.s.chain, l.Pages, store.WantHead))(w.t)
	return loaded[0].Head
}

// family makes a random database of artefacts made from each other and then changes some of it, all by a seed.
func family(t *testing.T, seed uint64, circles bool) (*View, *texts, []*store.Head) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	m := &texts{of: map[string]string{}, bad: map[string]bool{}}
	w := newWorld(t, map[string]store.Source{"text": m})
	n := 4 + rnd.IntN(20)
	id := func(i int) string { return fmt.Sprint("a", i) }
	for i := range n {
		a := store.Artefact{ID: id(i), Text: fmt.Sprint("text ", i)}
		switch rnd.IntN(4) {
		case 0:
			m.of[a.ID] = a.Text
			a.Text, a.Source = "", "text:"+a.ID
		case 1:
			if i > 0 {
				a.Text, a.Source = "", "page:"+id(rnd.IntN(i))
			}
		}
		for j := 0; i > 0 && j < rnd.IntN(4); j++ {
			a.DerivedFrom = append(a.DerivedFrom, store.Ref{ID: id(rnd.IntN(i))})
		}
		if rnd.IntN(12) == 0 {
			a.ExpiresAt = w.now.Add(time.Minute)
		}
		w.put(a)
	}
	if circles { // the text stays, so what was made from it stays valid, but it now was made from what follows
		for range 3 {
			if h := w.head(id(rnd.IntN(n))); h != nil && h.Artefact.Source == "" {
				a := h.Artefact
				a.Text = "text " + a.ID[1:]
				a.DerivedFrom = append(slices.Clone(a.DerivedFrom), store.Ref{ID: id(rnd.IntN(n))})
				w.put(a)
			}
		}
	}
	var heads []*store.Head
	for i := range n {
		if h := w.head(id(i)); h != nil {
			heads = append(heads, h)
		}
	}
	for range rnd.IntN(4) {
		i := rnd.IntN(n)
		switch rnd.IntN(5) {
		case 0:
			w.put(store.Artefact{ID: id(i), Text: "another text"})
		case 1:
			w.put(store.Artefact{ID: fmt.Sprint("new", i), Text: "instead", Supersedes: []string{id(i)}})
		case 2:
			m.of[id(i)] = "moved on"
		case 3:
			m.bad[id(i)] = true
		case 4:
			w.now = w.now.Add(2 * time.Minute)
		}
	}
	return w.s, m, heads
}

// TestLineageAgrees holds the memo against the walk without one, over families of artefacts.
func TestLineageAgrees(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(40) {
		circles := seed%4 == 0
		s, _, heads := family(t, seed, circles)
		want := (&plainLineage{s: s}).freshen(heads)
		s, m, heads := family(t, seed, circles)
		before := m.probes.Load()
		got := s.Freshen(t.Context(), heads, 0)
		require.LessOrEqual(t, m.probes.Load()-before, int64(len(heads)), "each source is asked once")
		for i := range heads {
			if circles { // which of several reasons comes first depends on where a walk enters the circle
				require.Equal(t, want[i].Reason != "", got[i].Reason != "", "seed %d %s: %v %v", seed, heads[i].ID, want[i], got[i])
				continue
			}
			want[i].Err, got[i].Err = nil, nil
			require.Equal(t, want[i], got[i], "seed %d %s", seed, heads[i].ID)
			kinds[fmt.Sprint(got[i].Reason, got[i].Refetched)]++
		}
	}
	require.GreaterOrEqual(t, len(kinds), 4, "fresh, refetched, derived and failed all happened: %v", kinds)
}

// TestTooMuchLineage: beyond the bound a page is left out and says why; the others are served.
func TestTooMuchLineage(t *testing.T) {
	w := newWorld(t, nil)
	g := newAncestry(w.s, 0, &round{got: map[VersionKey]*refetching{}, own: map[VersionKey]*refetching{}})
	w.put(store.Artefact{ID: "base", Text: "base"})
	var heads []*store.Head
	for _, id := range []string{"one", "two"} {
		w.put(store.Artefact{ID: id, Text: id, DerivedFrom: []store.Ref{{ID: "base"}}})
		heads = append(heads, w.head(id))
	}
	g.count = maxLines - 1
	for _, h := range heads {
		g.survey(t.Context(), h)
	}
	g.ask(t.Context(), heads, []int{0, 1})
	require.Equal(t, Finding{}, g.verdict(t.Context(), heads[0]))
	r := g.verdict(t.Context(), heads[1])
	require.Equal(t, triage.Derived, r.Reason)
	require.ErrorContains(t, r.Err, "expected fewer")
}

// A look at a file that began late has not failed when the time of all looks is over: the file is probed by itself. Only
// the first looks had all that time.
func TestLateLookIsNoFailure(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page")
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, old, old))
	w := newWorld(t, nil)
	files := w.s.Files
	require.NoError(t, files.AddRoot(filepath.Dir(path)))
	files.now = time.Now
	w.s.Sources, w.s.Timeout = map[string]store.Source{"file": files}, time.Hour
	known := must(files.Probe(t.Context(), path, store.Validator{}))(t)
	heads := make([]*store.Head, 10_000)
	for i := range heads {
		heads[i] = &store.Head{Scope: "acme", Artefact: store.Artefact{ID: fmt.Sprint(i), Source: "file:" + path}, Source: known}
	}
	hung := 0
	for range 1000 {
		out, open := make([]Finding, len(heads)), []int(nil)
		looking, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			open = w.s.glance(looking, heads, 0, out)
		}()
		time.Sleep(3 * time.Millisecond)
		files.mu.Lock() // in the middle of the looks, whoever begins the next one hangs
		time.Sleep(3 * time.Millisecond)
		end()
		select {
		case <-done:
		case <-time.After(time.Second): // it had not begun
		}
		files.mu.Unlock()
		<-done
		for i := maxProbes; i < len(heads); i++ {
			require.Equal(t, Finding{}, out[i], i)
		}
		if same := len(heads) - len(open); same >= maxProbes && len(open) > maxProbes { // those who found them same went on to late ones
			if hung++; hung == 10 {
				return
			}
		}
	}
	t.Fatal("no look hung in the middle of the others")
}

// TestFileStamp: a file of the same size and mtime that was written again, or moved into the place of another one, is
// seen; one that nobody touched is not read.
func TestFileStamp(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "page"), filepath.Join(dir, "other")
	at := time.Now().Add(-time.Hour)
	write := func(path, text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(path, at, at))
	}
	s := &Files{roots: []string{dir}, limit: store.MaxText, now: time.Now}
	settled := func() (v store.Validator) {
		require.Eventually(t, func() bool {
			var err error
			v, err = s.Probe(t.Context(), path, store.Validator{})
			require.NoError(t, err)
			return !strings.HasSuffix(v.Stamp, "unsettled")
		}, time.Minute, time.Millisecond)
		return v
	}
	probe := func(have store.Validator) store.Validator {
		v := must(s.Probe(t.Context(), path, have))(t)
		return v
	}
	write(path, "limit 200")
	have := settled()
	wrong := have
	wrong.Hash++
	require.Equal(t, wrong, probe(wrong), "the control: what was not touched is not read")
	write(path, "limit 900")
	require.NotEqual(t, have.Hash, probe(have).Hash, "written again, its mtime set back")
	have = settled()
	write(other, "limit 100")
	require.NoError(t, os.Rename(other, path))
	require.NotEqual(t, have.Hash, probe(have).Hash, "another file in its place")
	write(path, "limit 300")
	fresh := probe(store.Validator{})
	write(path, "limit 400") // perhaps within the same tick
	require.NotEqual(t, fresh.Hash, probe(fresh).Hash)
}

// TestFileBeingWritten: a file that was changed a moment ago is read again until it is quiet, so that nobody sees it between its
// truncation and its new text. One that stays empty is empty, and one that never rests is read as it is.
func TestFileBeingWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	var wall time.Time // of the file system; only waits move it
	var waited time.Duration
	var during func(waited time.Duration)
	write := func(text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) // truncates, then writes
		fi := must(os.Stat(path))(t)
		wall, _ = changeOf(fi)
	}
	s := NewFiles(store.MaxText, time.Now)
	require.NoError(t, s.AddRoot(filepath.Dir(path)))
	s.quiet = fileClock{func() time.Time { return wall }, func(ctx context.Context, d time.Duration) error {
		waited, wall = waited+d, wall.Add(d)
		during(waited)
		return ctx.Err()
	}}
	fetch := func(ctx context.Context, steps func(time.Duration)) (string, error) {
		waited, during = 0, steps
		f, err := s.Fetch(ctx, path)
		return f.Text, err
	}
	nothing := func(time.Duration) {}

	write("half")
	text, err := fetch(t.Context(), func(waited time.Duration) {
		if waited == quietTime {
			write("half and whole")
			wall = wall.Add(quietTime / 2)
		}
	})
	require.NoError(t, err)
	require.Equal(t, "half and whole", text)

	write("")
	text, err = fetch(t.Context(), func(waited time.Duration) {
		if waited == 5*quietTime {
			write("new text")
		}
	})
	require.NoError(t, err)
	require.Equal(t, "new text", text)

	write("")
	text = must(fetch(t.Context(), nothing))(t)
	require.Empty(t, text, "it was emptied")
	require.GreaterOrEqual(t, waited, emptyTime)

	write("log")
	text = must(fetch(t.Context(), func(time.Duration) { write("log") }))(t)
	require.Equal(t, "log", text)
	require.Equal(t, restless, waited)

	write("old")
	wall = wall.Add(time.Hour)
	must(fetch(t.Context(), nothing))(t)
	require.Zero(t, waited, "what is at rest is read once")

	write("of another clock")
	wall = wall.Add(-time.Hour)
	must(fetch(t.Context(), nothing))(t)
	require.Zero(t, waited)

	ctx, cancel := context.WithCancel(t.Context())
	write("")
	_, err = fetch(ctx, func(time.Duration) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// TestSourcedScopesKeepTheRecent: what is remembered is bounded, scopes without files included, and the scopes that are
// asked for stay.
func TestSourcedScopesKeepTheRecent(t *testing.T) {
	c := &sourcedScopes{}
	entries := func() (n int) {
		for _, s := range c.in.Values() {
			n += s.entries()
		}
		return n
	}
	c.put("hot", &sourcedScope{lsn: 7, list: make([]File, 100)})
	most := make([]File, MaxListed)
	for i := range 3 * maxSourced {
		scope := &sourcedScope{lsn: 1}
		if i%50 == 0 {
			scope.list = most
		}
		c.put(fmt.Sprint("scope", i%(2*maxSourced)), scope)
		if c.n > maxSourced || c.get("hot").lsn != 7 || i%1000 == 0 && entries() != c.n {
			t.Fatalf("after %d: %d of %d entries, and what was asked for last is %+v", i, c.n, maxSourced, c.get("hot").lsn)
		}
	}
	require.Zero(t, c.get("scope0").lsn, "forgotten")
	for i := range 10 { // the same scope again takes its place and no other
		c.put("hot", &sourcedScope{lsn: uint64(i), list: make([]File, i)})
		require.Equal(t, entries(), c.n)
	}
}
