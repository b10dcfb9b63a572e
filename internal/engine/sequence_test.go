package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// A batch that retires an artefact is waited for by those who saw it.
func TestRetiredArtefactsAreInFlight(t *testing.T) {
	b := store.Batch{Scope: "acme", Puts: []store.Put{{Artefact: store.Artefact{ID: "new", Supersedes: []string{"old"}}}}}
	require.ElementsMatch(t, []string{flightKey("acme", "new"), flightKey("acme", "old")}, writeKeys(&Request{Batch: b}))
}

// TestBrokenTakesNothing: a batch that was judged before the store failed, and comes to the log after it, is not taken: the
// ones before it will never be installed, and nobody would wake who waits for it.
func TestBrokenTakesNothing(t *testing.T) {
	m := newMemory(t, time.Now)
	_ = m.Fail(errors.New("the disk died"))
	c := &Commit{done: make(chan struct{}), record: format.Commit{LSN: 1}}
	tail := must(m.host.Acquire(t.Context()))(t)
	err := m.enter(tail, c)
	tail.Release()
	require.ErrorIs(t, err, store.ErrOutcomeUnknown)
	require.Zero(t, c.Seq)
	require.Empty(t, m.records)
	require.Empty(t, m.seq.ids)
	require.ErrorContains(t, m.Failure(), "the disk died")
}
