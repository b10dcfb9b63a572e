package engine

import (
	"testing"
	"time"

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
				out, err := m.Load(t.Context(), store.Scopes{"acme"}, []store.PageKey{{Num: 1, Version: c.version}}, store.WantText)
				require.NoError(t, err)
				return out[0]
			}
			got := load()
			require.NoError(t, got.Err, "control")
			require.Equal(t, text, got.Text)
			rows.happens = func() {
				job := *job
				job.Names = c.names
				_, err := m.Erase(t.Context(), &job, func(string, uint64, uint64) {})
				require.NoError(t, err)
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
