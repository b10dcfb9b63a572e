package filestore_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
)

// What an open had to redo after a kill goes into the file at once, so that the open after the next kill is not slower still.
// The control: a little is left to the next checkpoint that is due.
func TestRedoneGoesIntoTheFile(t *testing.T) {
	defer filestore.PeekAge(filestore.PeekAge(10 * time.Second)) // so it is not parallel
	for name, puts := range map[string]int{"much": 400, "little": 5} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { redone(t, puts) })
		})
	}
}

// A checkpoint that somebody asked for does this, too: what is put after it waits for its own.
func TestCheckpointTakesWhatWasRedone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openRedone(t, 400)
		must(db.Admin().Checkpoint(t.Context()))(t)
		must(db.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: "late", Text: "in the log only"}))(t)
		time.Sleep(time.Second)
		synctest.Wait()
		s := must(db.Stats(t.Context()))(t)
		require.Equal(t, s.LSN-1, s.Applied)
	})
}

// openRedone opens the files that a kill left after some puts, none of them in a checkpoint.
func openRedone(t *testing.T, puts int) *ctxpage.DB {
	path, opts := dbtest.MemoryPath(t), ctxpage.Options{Exclusive: true} // a bubble waits forever for what comes by a socket
	db := must(ctxpage.Open(path, opts))(t)
	defer db.Close()
	for n := range puts {
		must(db.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: fmt.Sprint("page-", n), Text: strings.Repeat("zebra ", 200)}))(t)
	}
	killed := filepath.Join(t.TempDir(), "killed.ctx")
	require.NoError(t, dbtest.Copy(path, killed))

	next := must(ctxpage.Open(killed, opts))(t)
	t.Cleanup(func() { next.Close() })
	return next
}

func redone(t *testing.T, puts int) {
	next := openRedone(t, puts)
	flushed := func(after time.Duration) bool {
		time.Sleep(after)
		synctest.Wait() // what is due has been done
		s := must(next.Stats(t.Context()))(t)
		require.EqualValues(t, puts, s.LSN)
		return s.Applied == s.LSN
	}
	if puts > 100 {
		require.True(t, flushed(time.Second), "before one is due by its age, 10 s")
		return
	}
	require.False(t, flushed(9*time.Second))
	require.True(t, flushed(5*time.Second), "the control: by its age")
}
