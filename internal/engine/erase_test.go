package engine

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

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
