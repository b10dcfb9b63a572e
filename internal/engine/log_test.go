package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// meet waits until an engine has all that is in its order.
func (m *memory) meet() {
	m.t.Helper()
	must(m.Refresh(m.t.Context(), 0))(m.t)
}

// same holds one engine against another: their place in the order, and what a reader finds in them.
func (m *memory) same(other *memory) {
	m.t.Helper()
	require.Equal(m.t, m.Position(), other.Position())
	require.Equal(m.t, m.Counters(), other.Counters())
	require.Equal(m.t, m.shown(), other.shown())
}

// shown is every page that can be found, with its text and its number, and what the audit has.
func (m *memory) shown() (out []string) {
	m.t.Helper()
	scopes := store.Scopes{"acme"}
	for i := range 64 {
		at, err := m.Resolve(m.t.Context(), scopes, store.Ref{ID: fmt.Sprint("a", i)})
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		require.NoError(m.t, err)
		pages := must(m.Load(m.t.Context(), scopes, at.Pages, store.WantText))(m.t)
		out = append(out, fmt.Sprint(at.LSN, at.Version, at.Pages, pages[0].Text, pages[0].Err))
	}
	require.NoError(m.t, m.Leaves.Each(m.t.Context(), 0, m.Leaves.Size(), false, func(r *manifest.Record) error {
		out = append(out, fmt.Sprint(r.Index, r.Trace, r.Type, r.LSN))
		return nil
	}))
	return out
}

// TestTwoEnginesOneLog: engines that follow one order and commit to it in turns are the same engine, down to the head of
// the audit; so is one that comes later, from rows and the log.
func TestTwoEnginesOneLog(t *testing.T) {
	a := newMemory(t, time.Now)
	b := a.join(t, time.Now)
	var all sync.WaitGroup
	for k, m := range []*memory{a, b} {
		for w := range 2 {
			all.Go(func() {
				for i := range 10 {
					m.put("acme", store.Artefact{ID: fmt.Sprint("a", (i*4+k*2+w)%16), Text: fmt.Sprint("words of ", k, w, i), Group: fmt.Sprint("talk", i%3)})
					read := &manifest.Record{Type: manifest.TypeGet, Scope: "acme", Trace: m.batch("acme").ID.String()}
					require.NoError(t, m.Append(t.Context(), []*manifest.Record{read}, store.Written))
				}
			})
		}
	}
	all.Wait()
	a.meet()
	b.meet()
	a.same(b)
	require.EqualValues(t, Position{LSN: 40, Leaves: 80, Root: a.roots[80]}, a.Position())

	require.NoError(t, a.checkpoint())
	a.put("acme", store.Artefact{ID: "a60", Text: "behind the rows"})
	c := a.join(t, time.Now)
	b.meet()
	b.same(c)
	c.put("acme", store.Artefact{ID: "a61", Text: "of the third"})
	a.meet()
	a.same(c)
}

// TestConflictBetweenEngines: a precondition is judged at the head of the order, not at what its engine happens to have.
func TestConflictBetweenEngines(t *testing.T) {
	a := newMemory(t, time.Now)
	b := a.join(t, time.Now)
	old := a.put("acme", store.Artefact{ID: "a", Text: "one"})
	b.meet()
	a.put("acme", store.Artefact{ID: "a", Text: "two"})
	batch := b.batch("acme", store.Artefact{ID: "a", Text: "three"})
	batch.Expect = expect(old.LSN)
	require.ErrorIs(t, errOf(b.Commit(t.Context(), batch)), store.ErrConflict)
	batch.Expect = expect(old.LSN + 1)
	must(b.Commit(t.Context(), batch))(t)
}

// TestLostCommitIsTakenBack: a group that the log does not take leaves no leaf in the tree, no name and no number; the
// batch may be repeated under its id.
func TestLostCommitIsTakenBack(t *testing.T) {
	m := newMemory(t, time.Now)
	m.put("acme", store.Artefact{ID: "a1", Text: "stays"})
	other := m.join(t, time.Now)
	was, next, shown := m.Position(), m.Counters(), m.shown()
	down := true
	m.fail = func() error {
		if down {
			return fmt.Errorf("%w: the server is away", ErrNothing)
		}
		return nil
	}
	b := m.batch("beta", store.Artefact{ID: "a2", Text: "is lost", Group: "talk"})
	require.ErrorIs(t, errOf(m.Commit(t.Context(), b)), ErrNothing)
	require.NoError(t, m.Failure())
	require.Equal(t, was, m.Position())
	require.Equal(t, next, m.Counters())
	require.Equal(t, shown, m.shown())
	require.Zero(t, m.scopeNumber("beta"))
	require.False(t, m.seq.flying(""))
	require.ErrorIs(t, errOf(m.Audit().ByTrace(t.Context(), b.ID.String())), manifest.ErrNoLeaf)
	down = false
	out := must(m.Commit(t.Context(), b))(t)
	require.Equal(t, next.LSN, out.LSN)
	other.meet()
	m.same(other)
}

// TestLeavesEnterAtInstall: neither a head nor the archive has a leaf that is not durable; who asks for one makes it so.
func TestLeavesEnterAtInstall(t *testing.T) {
	m := newMemory(t, time.Now)
	b := Request{Batch: m.batch("acme", store.Artefact{ID: "a", Text: "words"})}
	pre := must(m.prepare(t.Context(), &b))(t)
	r, _, err := m.atTail(t.Context(), &b, pre)
	require.NoError(t, err)
	require.Zero(t, m.Leaves.Size())
	trace := b.ID.String()
	named := must(m.Audit().Named(t.Context(), trace))(t)
	require.True(t, named)
	require.Zero(t, m.Leaves.Size())
	leaves := must(m.Audit().ByTrace(t.Context(), trace))(t)
	require.Len(t, leaves, 1)
	require.EqualValues(t, 1, m.Leaves.Size())
	require.True(t, r.commit.installed)
}

// TestFollowerOfAnotherHistory: an engine that has what its order never had, or less than the order still tells, says so.
func TestFollowerOfAnotherHistory(t *testing.T) {
	a := newMemory(t, time.Now)
	b := a.join(t, time.Now)
	a.put("acme", store.Artefact{ID: "a", Text: "one"})
	b.meet()
	a.put("acme", store.Artefact{ID: "a", Text: "two"})
	a.mu.Lock() // a failover that lost what was committed last
	a.records, a.roots = a.records[:1], slices.Clone(a.roots[:2])
	a.roots[1][0] ^= 1
	a.mu.Unlock()
	require.ErrorIs(t, b.host.Follow(t.Context(), 0), ErrForked)
	require.ErrorIs(t, errOf(b.Commit(t.Context(), b.batch("acme", store.Artefact{ID: "b", Text: "on top of it"}))), ErrForked)
	a.mu.Lock()
	a.records, a.first = nil, 5
	a.mu.Unlock()
	require.ErrorIs(t, b.host.Follow(t.Context(), 0), ErrTooOld)
}

// TestRepeatLost: an engine over a log on a server judges a commit again that the log lost, and the caller gets its outcome. The
// control is TestLostCommitIsTakenBack, without Repeat.
func TestRepeatLost(t *testing.T) {
	m := newMemory(t, time.Now)
	other := m.join(t, time.Now)
	m.opts.Repeat = true
	tries := 0
	m.fail = func() error {
		if tries++; tries < 3 {
			return fmt.Errorf("%w: the transaction was ended", ErrNothing)
		}
		return nil
	}
	out := must(m.Commit(t.Context(), m.batch("acme", store.Artefact{ID: "a", Text: "words"})))(t)
	require.EqualValues(t, 1, out.LSN)
	require.Equal(t, 3, tries)
	other.meet()
	m.same(other)
}
