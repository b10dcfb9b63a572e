package engine

import (
	"strconv"
	"strings"
	"testing"
	"time"

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
	was := *m.cat.page(1)
	*m.cat.page(1) = goneCol(uint64(was.art), was.scope, &store.PageRow{LSN: was.lsn, Version: was.version}, 1)
	require.NotEmpty(t, problems())
}

// Columns of another moment than the rows are not used: they would hide commits, or show some that the rows do not have.
func TestColumnsOfAnotherMoment(t *testing.T) {
	t.Parallel()
	m := everFilled(t)
	require.NoError(t, m.checkpoint())
	kept := must(m.Columns(m.base.Applied))(t)
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
