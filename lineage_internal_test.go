package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// plainLineage is the rule without a memo: each page walks all it was made from by itself. It is what ancestry must agree
// with.
type plainLineage struct {
	s      *Scope
	c      *checking
	probed map[checkKey]Validator
	writes bool
}

type plainWalk map[locator]bool

func (p *plainLineage) freshen(heads []*store.Head) []freshness {
	p.c, p.probed = &checking{got: map[checkKey]*refetching{}, own: map[checkKey]*refetching{}}, map[checkKey]Validator{}
	defer p.s.db.checks.release(p.c.own)
	out := make([]freshness, len(heads))
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

func (p *plainLineage) via(s *Scope, h *store.Head, seen plainWalk) freshness {
	s = s.owner(h)
	if seen[locator{"", h.Scope, h.ID}] {
		return freshness{}
	}
	seen[locator{"", h.Scope, h.ID}] = true
	if r := p.lineage(s, h, seen); r.reason != "" || r.pending || h.Artefact.Source == "" {
		return r
	}
	if key, ok := strings.CutPrefix(h.Artefact.Source, "page:"); ok {
		if l, err := (pageSource{s.db, s.chain}).locate(context.Background(), key); err == nil && l.Current {
			switch r := p.at(s, l, seen); {
			case r.reason != "":
				return freshness{dirty: true, reason: unreadable(r.err), err: r.err}
			case r.pending:
				return freshness{pending: true}
			}
		}
	}
	return p.own(s, h)
}

func (p *plainLineage) at(s *Scope, l store.Located, seen plainWalk) freshness {
	loaded, err := s.db.store.Load(context.Background(), s.chain, l.Pages[:1], store.WantHead)
	if err != nil || loaded[0].Err != nil {
		return freshness{dirty: true, reason: unreadable(errors.Join(err, loaded[0].Err)), err: errors.Join(err, loaded[0].Err)}
	}
	return p.via(s, loaded[0].Head, seen)
}

func (p *plainLineage) own(s *Scope, h *store.Head) freshness {
	ctx, k := context.Background(), checkKeyOf(h)
	have := h.Source
	if last, ok := s.db.checks.get(k); ok {
		have = last.v
	}
	got, ok := p.probed[k]
	if !ok {
		var err error
		if got, err = s.probe(ctx, h.Artefact.Source, have); err != nil {
			return freshness{dirty: true, reason: unreadable(err), err: err}
		}
		p.probed[k] = got
	}
	if sameContent(have, got) {
		return freshness{}
	}
	r := p.c.fetched(k)
	if r == nil {
		if r = s.fetchOnce(ctx, h, got, p.c); r == nil {
			return freshness{}
		}
	}
	switch {
	case r.err != nil:
		return freshness{dirty: true, reason: unreadable(r.err), err: r.err}
	case !p.writes:
		return freshness{dirty: true, pending: true}
	}
	return s.writeRefetched(ctx, h, r)
}

func (p *plainLineage) lineage(s *Scope, h *store.Head, seen plainWalk) (out freshness) {
	for _, ref := range h.DerivedFrom {
		changed := func() (store.Located, bool) {
			l, err := s.db.store.Resolve(context.Background(), s.chain, Ref{Scope: ref.Scope, ID: ref.ID})
			return l, err != nil || l.Version != ref.Version && !s.samePages(context.Background(), ref, l)
		}
		l, moved := changed()
		if moved || s.ended(h, ref.ID, &l) != "" {
			return freshness{dirty: true, reason: store.ReasonDerived}
		}
		switch r := p.at(s, l, seen); {
		case r.refetched:
			if _, moved := changed(); moved {
				return freshness{dirty: true, reason: store.ReasonDerived}
			}
		case r.pending:
			out.pending = true
		case r.reason != "":
			return freshness{dirty: true, reason: r.reason}
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

func (m *texts) Probe(_ context.Context, key string, _ Validator) (Validator, error) {
	m.probes.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bad[key] {
		return Validator{}, errors.New("out of order")
	}
	return Validator{Stamp: m.of[key]}, nil
}

func (m *texts) Fetch(_ context.Context, key string) (Fetched, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Fetched{Text: m.of[key], Validator: Validator{Stamp: m.of[key]}}, nil
}

// family makes a random database of artefacts made from each other and then changes some of it, all by a seed.
func family(t *testing.T, seed uint64, circles bool) (*Scope, *texts, []*store.Head) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	m := &texts{of: map[string]string{}, bad: map[string]bool{}}
	now := time.Unix(1_700_000_000, 0)
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{noSync: true, Sources: map[string]Source{"text": m}, Clock: func() time.Time { return now }})
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	s := db.Scope("acme")
	n := 4 + rnd.IntN(20)
	id := func(i int) string { return fmt.Sprint("a", i) }
	artefact := func(i int) Artefact {
		a := Artefact{ID: id(i), Text: fmt.Sprint("text ", i)}
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
			a.DerivedFrom = append(a.DerivedFrom, Ref{ID: id(rnd.IntN(i))})
		}
		if rnd.IntN(12) == 0 {
			a.ExpiresAt = now.Add(time.Minute)
		}
		return a
	}
	must := func(_ Ref, err error) { require.NoError(t, err) }
	for i := range n {
		must(s.Put(t.Context(), artefact(i)))
	}
	if circles { // the text stays, so what was made from it stays valid, but it now was made from what follows
		for range 3 {
			i := rnd.IntN(n)
			if v, err := s.Get(t.Context(), id(i), WithCheck(CheckNever)); err == nil && v.Source == "" {
				a := v.Artefact
				a.DerivedFrom = append(a.DerivedFrom, Ref{ID: id(rnd.IntN(n))})
				must(s.Put(t.Context(), a))
			}
		}
	}
	var heads []*store.Head
	for i := range n {
		if v, err := s.Get(t.Context(), id(i), WithCheck(CheckNever)); err == nil {
			heads = append(heads, v.head())
		}
	}
	for range rnd.IntN(4) {
		i := rnd.IntN(n)
		switch rnd.IntN(5) {
		case 0:
			must(s.Put(t.Context(), Artefact{ID: id(i), Text: "another text"}))
		case 1:
			must(s.Put(t.Context(), Artefact{ID: fmt.Sprint("new", i), Text: "instead", Supersedes: []string{id(i)}}))
		case 2:
			m.of[id(i)] = "moved on"
		case 3:
			m.bad[id(i)] = true
		case 4:
			now = now.Add(2 * time.Minute)
		}
	}
	return s, m, heads
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
		got := s.freshen(t.Context(), heads, CheckAlways)
		require.LessOrEqual(t, m.probes.Load()-before, int64(len(heads)), "each source is asked once")
		for i := range heads {
			if circles { // which of several reasons comes first depends on where a walk enters the circle
				require.Equal(t, want[i].reason != "", got[i].reason != "", "seed %d %s: %v %v", seed, heads[i].ID, want[i], got[i])
				continue
			}
			want[i].err, got[i].err = nil, nil
			require.Equal(t, want[i], got[i], "seed %d %s", seed, heads[i].ID)
			kinds[fmt.Sprint(got[i].reason, got[i].refetched)]++
		}
		s.db.Close()
	}
	require.GreaterOrEqual(t, len(kinds), 4, "fresh, refetched, derived and failed all happened: %v", kinds)
}

// TestLineageOfLayers: layers of which each artefact is made from the whole layer before it. The ways through them are
// millions of millions; what they lead by is looked at once for a whole assembly.
func TestLineageOfLayers(t *testing.T) {
	const layers, wide = 6, 64
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{noSync: true})
	require.NoError(t, err)
	defer db.Close()
	s := db.Scope("acme")
	layer := func(i, j int) string { return fmt.Sprintf("layer%d-%d", i, j) }
	for i := range layers {
		require.NoError(t, s.Update(t.Context(), func(tx *Txn) error {
			for j := range wide {
				a := Artefact{ID: layer(i, j), Text: fmt.Sprintf("zebra %d %d", i, j)}
				for k := 0; i > 0 && k < wide; k++ {
					a.DerivedFrom = append(a.DerivedFrom, Ref{ID: layer(i-1, k)})
				}
				if err := tx.Put(t.Context(), a); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	start := time.Now()
	q := Query{Text: "zebra", Budget: 100_000, TopK: layers * wide}
	a, err := s.Assemble(t.Context(), q)
	require.NoError(t, err)
	require.Len(t, a.Blocks, layers*wide)
	require.Less(t, time.Since(start), 3*time.Second)
	_, err = s.Put(t.Context(), Artefact{ID: layer(0, 0), Text: "another animal"})
	require.NoError(t, err)
	start = time.Now()
	a, err = s.Assemble(t.Context(), q)
	require.NoError(t, err)
	require.Less(t, time.Since(start), 3*time.Second)
	require.Len(t, a.Blocks, wide, "all that was made from what changed is left out")
	_, err = s.Get(t.Context(), layer(layers-1, 0))
	require.ErrorIs(t, err, ErrDirty)
	require.ErrorContains(t, err, "which changed")
}

// TestLongLineage: what follows from thousands of generations is served, and its error stays short.
func TestLongLineage(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{noSync: true})
	require.NoError(t, err)
	defer db.Close()
	s := db.Scope("acme")
	const n = 4500
	for i := range n {
		a := Artefact{ID: fmt.Sprint("s", i), Text: fmt.Sprint("summary ", i)}
		if i > 0 {
			a.DerivedFrom = []Ref{{ID: fmt.Sprint("s", i-1)}}
		}
		_, err := s.Put(t.Context(), a)
		require.NoError(t, err)
	}
	v, err := s.Get(t.Context(), fmt.Sprint("s", n-1))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint("summary ", n-1), v.Text)
	_, err = s.Put(t.Context(), Artefact{ID: "s0", Text: "another"})
	require.NoError(t, err)
	_, err = s.Get(t.Context(), fmt.Sprint("s", n-1))
	require.ErrorIs(t, err, ErrDirty)
	require.Less(t, len(err.Error()), 1000)
	require.ErrorContains(t, err, "derived from acme:s0")
}

// TestTooMuchLineage: beyond the bound a page is left out and says why; the others are served.
func TestTooMuchLineage(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{noSync: true})
	require.NoError(t, err)
	defer db.Close()
	s := db.Scope("acme")
	g := newAncestry(s, CheckAlways, &checking{got: map[checkKey]*refetching{}, own: map[checkKey]*refetching{}})
	for _, id := range []string{"base", "one", "two"} {
		a := Artefact{ID: id, Text: id}
		if id != "base" {
			a.DerivedFrom = []Ref{{ID: "base"}}
		}
		_, err := s.Put(t.Context(), a)
		require.NoError(t, err)
	}
	var heads []*store.Head
	for _, id := range []string{"one", "two"} {
		v, err := s.Get(t.Context(), id)
		require.NoError(t, err)
		heads = append(heads, v.head())
	}
	g.count = maxLines - 1
	for _, h := range heads {
		g.survey(t.Context(), h)
	}
	g.ask(t.Context(), heads, []int{0, 1})
	require.Equal(t, freshness{}, g.verdict(t.Context(), heads[0]))
	r := g.verdict(t.Context(), heads[1])
	require.Equal(t, store.ReasonDerived, r.reason)
	require.ErrorContains(t, r.err, "expected fewer")
}
