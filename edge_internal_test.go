package ctxpage

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func openInternal(t *testing.T) (*DB, *fileStore) {
	t.Helper()
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{noSync: true})
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db, db.store.(*fileStore)
}

// Inside a transaction of bbolt nobody takes the catalogue's lock: with a remap of the file under way that is a deadlock.
func TestLoadTakesNoLockInsideBbolt(t *testing.T) {
	ctx := context.Background()
	db, s := openInternal(t)
	_, err := db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: "some words"})
	require.NoError(t, err)
	_, err = db.Checkpoint(ctx)
	require.NoError(t, err)
	l := &loading{s: s, want: WantText, out: make([]Loaded, 1), arts: make([]uint64, 1), rows: make([][]byte, 1), names: map[uint32]string{}, heads: map[headKey]*Head{}}
	l.look(Scopes{"acme"}, []PageKey{{Num: 1}})
	require.Equal(t, []int{0}, l.missing)
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- s.view(l.fromFile) }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("a read of the file waits for the catalogue")
	}
	require.Equal(t, "some words", l.out[0].Text)
	require.Equal(t, "acme", l.out[0].Head.Scope)
}

// A page that a version does not have is gone, whatever a manifest says.
func TestLoadOfAVersionWithoutThePage(t *testing.T) {
	ctx := context.Background()
	db, s := openInternal(t)
	scope := db.Scope("acme")
	for _, text := range []string{"one", "two"} {
		_, err := scope.Put(ctx, Artefact{ID: "a", Text: text})
		require.NoError(t, err)
	}
	for range 2 { // from the overlay, then from the file
		out, err := s.Load(ctx, nil, []PageKey{{1, 1}, {1, 2}, {2, 1}, {2, 2}, {2, 9}}, WantHead)
		require.NoError(t, err)
		require.NoError(t, out[0].Err)
		require.NoError(t, out[3].Err)
		for _, i := range []int{1, 2, 4} {
			require.ErrorIs(t, out[i].Err, ErrGone)
		}
		_, err = db.Checkpoint(ctx)
		require.NoError(t, err)
	}
}

