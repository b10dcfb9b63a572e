package engine

import (
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// Inside a snapshot of the rows nobody takes the catalogue's lock: with a remap of bbolt's file under way that is a
// deadlock.
func TestLoadTakesNoLockInsideASnapshot(t *testing.T) {
	m := newMemory(t, time.Now)
	m.put("acme", store.Artefact{ID: "a", Text: "some words"})
	require.NoError(t, m.checkpoint())
	l := &loading{s: m.Engine, want: store.WantText, out: make([]store.Loaded, 1), arts: make([]uint64, 1), newest: make([]uint32, 1), rows: make([][]byte, 1), names: map[uint32]string{}, heads: map[format.HeadKey]*store.Head{}}
	l.look(store.Scopes{"acme"}, []store.PageKey{{Num: 1}})
	require.Equal(t, []int{0}, l.missing)
	m.cat.mu.Lock()
	defer m.cat.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- m.host.View(l.fromFile) }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("a read of the rows waits for the catalogue")
	}
	require.Equal(t, "some words", l.out[0].Text)
	require.Equal(t, "acme", l.out[0].Head.Scope)
}

// A row that only a later release can read is not taken for damage.
func TestNewerRowIsNoDamage(t *testing.T) {
	s := &Engine{}
	newer := s.Corrupt("head row", codec.ErrNewer)
	require.ErrorIs(t, newer, store.ErrNewerFormat)
	require.NotErrorIs(t, newer, store.ErrCorrupt)
	require.ErrorIs(t, s.Corrupt("head row", codec.ErrMalformed), store.ErrCorrupt, "the control")
}

// A text whose row has another checksum is damage, also if the text itself is sound: the digest alone would let it pass.
func TestTextWithAnotherChecksum(t *testing.T) {
	m := newMemory(t, time.Now)
	m.put("acme", store.Artefact{ID: "a", Text: "some words"})
	require.NoError(t, m.checkpoint())
	row := m.host.o.tables[TableContent][string(format.TextRowKey(1))]
	require.NotEmpty(t, row)
	load := func() error {
		got := must(m.Load(t.Context(), store.Scopes{"acme"}, []store.PageKey{{Num: 1}}, store.WantText))(t)
		return got[0].Err
	}
	require.NoError(t, load(), "control")
	for i := len(row) - 8; i < len(row); i++ {
		row[i] ^= 1
		require.ErrorIs(t, load(), store.ErrCorrupt)
		row[i] ^= 1
	}
	require.NoError(t, load())
}
