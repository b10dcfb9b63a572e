package filestore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// A job that waits for another one leaves when its context ends, and when the store is closed: those before it may take
// minutes. The jobs that run at that time come to their end.
func TestWaitingJobsLeave(t *testing.T) {
	st, err := Open(Options{Path: dbtest.MemoryPath(t), NoSync: true})
	require.NoError(t, err)
	running, goOn := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		once := false
		_, err := st.Maintain(context.Background(), store.Job{Kind: store.JobCheck}, func(string, uint64, uint64) {
			if !once {
				once = true
				close(running)
				<-goOn
			}
		})
		first <- err
	}()
	<-running
	jobs := map[string]store.Job{
		"checkpoint": {Kind: store.JobCheckpoint}, "check": {Kind: store.JobCheck}, "compact": {Kind: store.JobCompact},
		"backup": {Kind: store.JobBackup, Path: filepath.Join(t.TempDir(), "copy.ctx")},
	}
	for name, job := range jobs {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		_, err := st.Maintain(ctx, job, nil)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
	}
	waits := make(chan error, len(jobs))
	for _, job := range jobs {
		go func() {
			_, err := st.Maintain(context.Background(), job, nil)
			waits <- err
		}()
	}
	closed := make(chan error, 1)
	go func() { closed <- st.Close() }()
	require.Eventually(t, st.ending.Load, time.Minute, time.Millisecond)
	close(goOn)
	for range jobs {
		require.ErrorIs(t, <-waits, store.ErrClosed)
	}
	require.NoError(t, <-first)
	require.NoError(t, <-closed)
}

// The file grows ahead of its pages while it is open. A closed one ends at its last page, and opens and grows again.
func TestClosedFileEndsAtItsPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	sizes := func(st *Store) (file, pages int64) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, st.view(func(tx *bbolt.Tx) error {
			pages = tx.Size()
			return nil
		}))
		return info.Size(), pages
	}
	for round := range 3 {
		st, err := Open(Options{Path: path, NoSync: true})
		require.NoError(t, err)
		for i := range 200 {
			_, err := put(st, store.ActApply, store.Artefact{ID: fmt.Sprint("a-", round, "-", i)}, strings.Repeat("some words of a text ", 100))
			require.NoError(t, err)
		}
		_, err = st.Maintain(context.Background(), store.Job{Kind: store.JobCheckpoint}, nil)
		require.NoError(t, err)
		file, pages := sizes(st)
		require.Greater(t, file, pages, "control: open, it is ahead")
		require.NoError(t, st.Close())
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), pages+8*boltPage, "round %d", round) // the checkpoint of the close may have changed some
		require.Less(t, info.Size(), file)
	}
}
