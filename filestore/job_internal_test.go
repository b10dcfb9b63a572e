package filestore

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
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
	require.Eventually(t, st.ending.Load, 10*time.Second, time.Millisecond)
	close(goOn)
	for range jobs {
		require.ErrorIs(t, <-waits, store.ErrClosed)
	}
	require.NoError(t, <-first)
	require.NoError(t, <-closed)
}
