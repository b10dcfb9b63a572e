package engine

import (
	"crypto/rand"
	"encoding/json"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// Tests of what is read in two places while something moves between them: the move is made in the middle.

// between is rows of which the next snapshot is taken after something has happened.
type between struct {
	Rows
	happens func()
}

func (b *between) View(fn func(Reader) error) error {
	if do := b.happens; do != nil {
		b.happens = nil
		do()
	}
	return b.Rows.View(fn)
}

// A page that is erased while it is loaded is gone, not damaged: the checkpoint of the erase takes rows away after the load has
// looked at the overlays.
func TestLoadWhileErased(t *testing.T) {
	const text = "some words"
	job := &store.EraseJob{Refs: []store.Ref{{Scope: "acme", ID: "a"}}, By: "desk", Reason: "asked"}
	for name, c := range map[string]struct {
		version uint32 // in the overlay, with a page that is in the rows
		names   bool
	}{"its text goes": {version: 2}, "its rows go": {version: 1, names: true}, "both": {version: 2, names: true}} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(t, time.Now)
			m.put("acme", store.Artefact{ID: "a", Text: text})
			require.NoError(t, m.checkpoint())
			if c.version == 2 {
				m.put("acme", store.Artefact{ID: "a", Text: text, Tags: []string{"more"}})
			}
			rows := &between{Rows: m.rows}
			m.rows = rows
			load := func() store.Loaded {
				out := must(m.Load(t.Context(), store.Scopes{"acme"}, []store.PageKey{{Num: 1, Version: c.version}}, store.WantText))(t)
				return out[0]
			}
			got := load()
			require.NoError(t, got.Err, "control")
			require.Equal(t, text, got.Text)
			rows.happens = func() {
				job := *job
				job.Names = c.names
				must(m.Erase(t.Context(), &job, func(string, uint64, uint64) {}))(t)
				require.NoError(t, m.checkpoint())
			}
			got = load()
			require.Nil(t, rows.happens, "it happened")
			require.NotErrorIs(t, got.Err, store.ErrCorrupt)
			require.ErrorIs(t, got.Err, store.ErrGone)
			require.Empty(t, got.Text)
		})
	}
}

// hooked is randomness that something happens before.
type hooked func()

func (h hooked) Read(b []byte) (int, error) {
	h()
	return rand.Read(b)
}

// A held batch counts in its quota also when it is installed while the next one is built, together with a row of another quota:
// from that row on installs do not count, until the quotas are read again.
func TestQuotaReadAgainWhileBuilt(t *testing.T) {
	m := newMemory(t, time.Now)
	quota := func(scope string) store.Batch {
		value := must(json.Marshal(store.StoredQuota{Scope: scope, By: "ann", At: time.Now(), Quota: store.Quota{Held: 1}}))(t)
		b := m.batch(store.OperatorScope)
		b.State = []store.StateRow{{Key: format.QuotaRows + scope, Value: value}}
		return b
	}
	held := func(id string) *Request {
		b := m.batch("acme", store.Artefact{ID: id, Text: "perhaps"})
		b.Action, b.Reason = store.ActHold, "look at it"
		return &Request{Batch: b}
	}
	must(m.Commit(t.Context(), quota("acme")))(t)
	for _, b := range []*Request{{Batch: quota("beta")}, held("first")} { // in flight
		r := must(m.sequence(t.Context(), b))(t)
		require.NotNil(t, r.commit)
	}
	before := m.Mark().LSN
	m.opts.Rand = hooked(func() {
		if m.Mark().LSN == before {
			require.NoError(t, m.host.flush())
		}
	})
	_, err := m.Submit(t.Context(), *held("second"))
	require.Equal(t, before+2, m.Mark().LSN, "both were installed while the second was built, and it was not")
	var exceeded *store.QuotaError
	require.ErrorAs(t, err, &exceeded)
	require.EqualValues(t, 1, exceeded.Used)
}

// A vector that was put while gc runs stays, also when a checkpoint under way has it.
func TestDroppedVectorIsPutAgain(t *testing.T) {
	m := newMemory(t, time.Now)
	m.put("acme", store.Artefact{ID: "a", Text: "some words"})
	put := func() {
		require.NoError(t, m.PutVectors(t.Context(), "old", []uint64{1}, [][]float32{{1, 0}}))
	}
	vector := func() []float32 {
		got := must(m.Vectors(t.Context(), store.Scopes{"acme"}, "old", []uint64{1}))(t)
		return got[0]
	}
	put()
	require.NoError(t, m.checkpoint())
	keys, _, err := m.vectorsOfOthers(nil, nil, nil)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	put()
	m.freeze()
	m.dropVectors(keys)
	require.NoError(t, m.checkpoint())
	require.NoError(t, m.checkpoint())
	require.NotNil(t, vector(), "it was put after gc looked")
	m.dropVectors(keys)
	require.NoError(t, m.checkpoint())
	require.Nil(t, vector(), "control")
}
