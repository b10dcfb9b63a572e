package engine

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// everFilled is a database with one artefact for each reason to list it, and one without any.
func everFilled(t *testing.T) *memory {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	m := newMemory(t, func() time.Time { return now })
	ann := func(id, text string) store.Artefact { return store.Artefact{ID: id, Text: text, Subject: "ann"} }
	m.put("acme", ann("now", "one"), ann("past", "one"), ann("same", "one"), ann("deleted", "one"), store.Artefact{ID: "left", Text: "one", Group: "talk"},
		store.Artefact{ID: "in", Text: "one", Group: "talk"}, store.Artefact{ID: "made", Text: "one", DerivedFrom: []store.Ref{{Scope: "acme", ID: "now"}}},
		store.Artefact{ID: "copy", Text: "one", Source: "page:now"}, store.Artefact{ID: "fetched", Text: "one", Source: "file:now"},
		store.Artefact{ID: "old", Text: "one"}, store.Artefact{ID: "packet", Text: "one", Kind: store.KindScratch, Group: "chat", Meta: map[string]string{"handoff": "packet"}},
		store.Artefact{ID: "bob", Text: "one", Subject: "bob"}, store.Artefact{ID: "plain", Text: "one", Tags: []string{"ann"}})
	m.put("acme", store.Artefact{ID: "past", Text: "two", Subject: "bob"}, store.Artefact{ID: "same", Text: "one", Tags: []string{"x"}}, store.Artefact{ID: "left", Text: "two"},
		store.Artefact{ID: "made", Text: "two"}, store.Artefact{ID: "copy", Text: "two"}, store.Artefact{ID: "new", Text: "two", Supersedes: []string{"old"}})
	b := m.batch("acme")
	b.Deletes = []string{"deleted"}
	must(m.Commit(t.Context(), b))(t)
	return m
}

// everListed lists the ids that a query gives, one artefact a page.
func (m *memory) everListed(e *store.Ever) (ids []string) {
	m.t.Helper()
	q := store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{"acme"}, Deleted: true, Ever: e, Limit: 1}
	for {
		page := must(m.Scan(m.t.Context(), q))(m.t)
		for _, h := range page.Heads {
			ids = append(ids, h.ID)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return ids
		}
	}
}

func TestEver(t *testing.T) {
	t.Parallel()
	m := everFilled(t)
	links := []string{"copy", "made", "packet"}
	for _, c := range []struct {
		ever *store.Ever
		want []string
	}{
		{&store.Ever{}, links},
		{&store.Ever{Subject: "ann"}, []string{"copy", "deleted", "made", "now", "packet", "past", "same"}},
		{&store.Ever{Subject: "nobody"}, []string{"copy", "deleted", "made", "packet", "past", "same"}}, // those of several subjects are listed for any
		{&store.Ever{Group: "talk"}, []string{"copy", "in", "left", "made", "packet"}},
		{&store.Ever{Replaces: true}, []string{"copy", "made", "new", "packet"}},
		{nil, []string{"bob", "copy", "deleted", "fetched", "in", "left", "made", "new", "now", "old", "packet", "past", "plain", "same"}},
	} {
		require.Equal(t, c.want, m.everListed(c.ever), "%+v", c.ever)
	}
}

// A listing of few artefacts among many ends its page early, so that commits do not wait for it.
func TestEverEndsPages(t *testing.T) {
	t.Parallel()
	m := everFilled(t)
	m.fill("acme/many", historyAtOnce+10, func(i int) store.Artefact { return store.Artefact{ID: strconv.Itoa(i), Text: "one"} })
	page := must(m.Scan(t.Context(), store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{"acme/many"}, Ever: &store.Ever{Subject: "ann"}}))(t)
	require.Empty(t, page.Heads)
	require.NotEmpty(t, page.Next)
	page, err := m.Scan(t.Context(), store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{"acme/many"}, Ever: &store.Ever{Subject: "ann"}, Cursor: page.Next})
	require.NoError(t, err)
	require.Empty(t, page.Heads)
	require.Empty(t, page.Next)
}

// A check tells of each version that an erase would overlook.
func TestEverChecked(t *testing.T) {
	t.Parallel()
	m := everFilled(t)
	require.NoError(t, m.checkpoint())
	overlooked := func() (where []string) {
		problems := must(m.Check(t.Context(), m.base, func(string, uint64, uint64) {}))(t)
		for _, p := range problems {
			if p.Invariant == "I7" && strings.Contains(p.What, "an erase") {
				where = append(where, p.Where)
			}
		}
		return where
	}
	require.Empty(t, overlooked())
	for i := range uint64(m.cat.arts.len()) {
		*m.cat.history.at(i) = 0
	}
	require.ElementsMatch(t, []string{"acme:now@1", "acme:past@1", "acme:past@2", "acme:same@1", "acme:deleted@1", "acme:deleted@2", "acme:left@1", "acme:made@1", "acme:copy@1",
		"acme:packet@1", "acme:bob@1", "acme:new@1"}, overlooked())
}

// A check finds that the catalogue says of a page that gc dropped it, and the rows do not.
func TestCheckFindsAWrongCatalogue(t *testing.T) {
	t.Parallel()
	m := everFilled(t)
	require.NoError(t, m.checkpoint())
	problems := func() []store.Problem {
		out := must(m.Check(t.Context(), m.base, func(string, uint64, uint64) {}))(t)
		return out
	}
	require.Empty(t, problems(), "the control")
	p := m.cat.page(1)
	n := m.cat.numbers(p)
	m.cat.setGone(p, &format.Hot{Art: uint64(p.art), Scope: p.scope}, &store.PageRow{LSN: n.lsn, Version: n.version}, 1)
	require.NotEmpty(t, problems())
}

// Columns of another moment than the rows are not used: they would hide commits, or show some that the rows do not have.
func TestColumnsOfAnotherMoment(t *testing.T) {
	t.Parallel()
	m := everFilled(t)
	require.NoError(t, m.checkpoint())
	kept := must(m.Columns(m.base.Applied, 1))(t)
	for moved, want := range map[uint64]bool{0: true, 1: false, ^uint64(0): false} {
		e := New(m.opts)
		e.Attach(m.host)
		require.NoError(t, m.host.Snapshot(t.Context(), func(tx Reader, b Base) error {
			used, whole, err := e.LoadColumns(tx, b, &Columns{LSN: kept.LSN + moved, Parts: kept.Parts})
			require.Equal(t, want, used)
			require.Equal(t, want, whole)
			return err
		}))
	}
}

const erasedArtefacts = 300 // more than one commit takes

// eraseCut commits artefacts and the first part of their erase, and ends as a host that is killed then.
func eraseCut(t *testing.T, m *memory) *store.EraseJob {
	t.Helper()
	var facts []store.Artefact
	job := &store.EraseJob{By: "desk", Reason: "asked"}
	for i := range erasedArtefacts {
		id := fmt.Sprint("k", i)
		facts = append(facts, store.Artefact{ID: id, Kind: store.KindFact, Text: "kettle " + id})
		job.Refs = append(job.Refs, store.Ref{Scope: "acme", ID: id})
	}
	must(m.Commit(t.Context(), m.batch("acme", facts...)))(t)
	over := make(chan uint64)
	go func() {
		var parts uint64
		defer func() { over <- parts }()
		_, _ = m.Erase(t.Context(), job, func(_ string, _, total uint64) { parts = total; runtime.Goexit() })
	}()
	require.Greater(t, <-over, uint64(1))
	return job
}

func (m *memory) text(id string) string {
	l, err := m.Resolve(m.t.Context(), store.Scopes{"acme"}, store.Ref{ID: id})
	if err != nil {
		return err.Error()
	}
	got := must(m.Load(m.t.Context(), store.Scopes{"acme"}, l.Pages, store.WantText))(m.t)
	require.NoError(m.t, got[0].Err)
	return got[0].Text
}

// An erase of a host that was killed is finished by another one. What was put since its first commit stays: under a name that
// was erased by then, under one that was not, and the same text once more. The controls: what nobody put again is erased, and a
// host that has the rows only after the puts finishes the same way.
func TestEraseFinishedByAnotherHost(t *testing.T) {
	t.Parallel()
	for _, c := range []string{"", "repeated", "late"} {
		t.Run(c, func(t *testing.T) {
			o := newShared()
			job := eraseCut(t, o.join(t, time.Now))
			m := o.join(t, time.Now)
			require.Equal(t, "kettle k299", m.text("k299"), "control: its part is missing")
			none := func(string, uint64, uint64) {}
			if c == "repeated" {
				rep := must(m.Erase(t.Context(), job, none))(t)
				require.Less(t, rep.Artefacts, erasedArtefacts)
				require.NoError(t, m.EraseDone(t.Context(), rep))
			}
			texts := map[string]string{"k0": "teapot", "k299": "lamp", "k298": "kettle k298"}
			for id, text := range texts {
				out := must(m.Commit(t.Context(), m.batch("acme", store.Artefact{ID: id, Kind: store.KindFact, Text: text})))(t)
				require.Greater(t, out.Refs[0].Version, uint32(1), id)
			}
			if c == "late" {
				require.NoError(t, m.checkpoint())
				m = o.join(t, time.Now)
			}
			rest := must(m.EraseRest(t.Context()))(t)
			require.Len(t, rest, 1)
			for id, text := range texts {
				require.Equal(t, text, m.text(id))
			}
			for _, id := range []string{"k1", "k150", "k297"} {
				require.ErrorIs(t, errOf(m.Resolve(t.Context(), store.Scopes{"acme"}, store.Ref{ID: id})), store.ErrNotFound, id)
			}
			require.ErrorIs(t, errOf(m.Resolve(t.Context(), store.Scopes{"acme"}, store.Ref{ID: "k299", Version: 1})), store.ErrErased)
			require.NoError(t, m.EraseDone(t.Context(), rest[0]))
			rest = must(m.EraseRest(t.Context()))(t)
			require.Empty(t, rest)
			out := must(m.Commit(t.Context(), m.batch("acme", store.Artefact{ID: "k298", Kind: store.KindFact, Text: "kettle k298"})))(t)
			require.Len(t, out.Repeats, 1, "a repetition is one again")
		})
	}
}

// A row of an erase that no erase wrote does nothing, whatever it says. The control is the same row of one that did.
func TestForgedEraseRow(t *testing.T) {
	t.Parallel()
	m := newMemory(t, time.Now)
	job := eraseCut(t, m)
	var row store.StateRow
	require.NoError(t, m.eraseRows(t.Context(), func(r *eraseRow, _ uint64) (err error) {
		row, err = m.State(t.Context(), format.EraseRows+r.Report.Trace)
		return err
	}))
	require.NotEmpty(t, row.Key, "control")

	other := newMemory(t, time.Now)
	_, err := other.Commit(t.Context(), other.batch("acme", store.Artefact{ID: job.Refs[0].ID, Kind: store.KindFact, Text: "mine"}))
	require.NoError(t, err)
	b := other.batch("acme")
	b.Trace, b.State = row.Key[len(format.EraseRows):], []store.StateRow{{Key: row.Key, Value: row.Value}}
	require.ErrorIs(t, errOf(other.Commit(t.Context(), b)), store.ErrInvalid)
	for _, leaf := range []manifest.Record{{Type: manifest.TypeCommit, By: "desk"}, {Type: manifest.TypePromote, By: "desk"}} {
		b.ID, b.Leaf, b.Bound = other.batch("acme").ID, leaf, nil
		_, err = other.Submit(t.Context(), Request{Batch: b}) // as if the refusal were missing
		require.NoError(t, err)
		rest := must(other.EraseRest(t.Context()))(t)
		require.Empty(t, rest)
		require.Equal(t, "mine", other.text(job.Refs[0].ID))
	}
}

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
