package engine

import (
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// emptied is a database with a scope in which nothing is left.
func emptied(t *testing.T) *memory {
	m := newMemory(t, time.Now)
	m.put("acme", store.Artefact{ID: "a", Text: "stays"})
	m.put("beta", store.Artefact{ID: "b", Text: "goes", Group: "talk"})
	b := m.batch("beta")
	b.Puts, b.Deletes = nil, []string{"b"}
	must(m.Commit(t.Context(), b))(t)
	for range 2 { // the text, then the name of the artefact; a run over one scope keeps the name of that
		m.collect(store.GCJob{Scope: "beta", By: "test"})
	}
	return m
}

func (m *memory) collect(job store.GCJob) store.GCReport {
	m.t.Helper()
	rep := must(m.Collect(m.t.Context(), store.Job{Kind: store.JobGC, GC: &job}, func(string, uint64, uint64) {}))(m.t)
	return rep.GC
}

// TestScopeInFlightKeepsItsName: a commit that is in the log and not yet installed holds the name of its scope.
func TestScopeInFlightKeepsItsName(t *testing.T) {
	m := emptied(t)
	names := []string{"acme", "beta", "nobody's"}
	gone := goneScopes(m.unname(names))
	require.Len(t, gone, 1, "the control")
	num := m.scopeNumber("beta")
	require.Equal(t, "beta", gone[num])
	b := Request{Batch: m.batch("beta", store.Artefact{ID: "c", Text: "comes"})}
	pre := must(m.prepare(t.Context(), &b))(t)
	r, _, err := m.atTail(t.Context(), &b, pre)
	require.NoError(t, err)
	require.Empty(t, m.unname(names))
	must(m.awaitInstall(t.Context(), r.commit))(t)
	require.Empty(t, m.unname(names))
	require.Zero(t, m.collect(store.GCJob{By: "test"}).Scopes)
	require.Equal(t, num, m.scopeNumber("beta"))
}

// TestScopesGoForAll: an engine that follows the log lets go of the name, too, and gives the scope that comes back the same
// new number; so does one that begins with the rows.
func TestScopesGoForAll(t *testing.T) {
	m := emptied(t)
	other := m.join(t, time.Now)
	was := m.scopeNumber("beta")
	require.Equal(t, 1, m.collect(store.GCJob{By: "test"}).Scopes)
	other.meet()
	m.same(other)
	late := m.join(t, time.Now)
	for _, e := range []*memory{m, other, late} {
		require.Zero(t, e.scopeNumber("beta"))
		require.Zero(t, e.groupNumber(artKey{was, "talk"}))
		require.Equal(t, was+1, e.nextScope())
	}
	other.put("beta", store.Artefact{ID: "b", Text: "another", Group: "talk"})
	for _, e := range []*memory{m, late} {
		e.meet()
		e.same(other)
		require.Equal(t, was+1, e.scopeNumber("beta"))
		at := must(e.Resolve(t.Context(), store.Scopes{"beta"}, store.Ref{ID: "b"}))(t)
		require.EqualValues(t, 1, at.Version)
	}
}
