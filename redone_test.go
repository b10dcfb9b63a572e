package ctxpage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
)

// What an open had to redo after a kill goes into the file at once, so that the open after the next kill is not slower still.
// The control: a little is left to the next checkpoint that is due.
func TestRedoneGoesIntoTheFile(t *testing.T) {
	t.Parallel()
	for name, puts := range map[string]int{"much": 400, "little": 5} {
		t.Run(name, func(t *testing.T) {
			path := dbtest.MemoryPath(t)
			db, err := ctxpage.Open(path, ctxpage.Options{})
			require.NoError(t, err)
			defer db.Close()
			for n := range puts {
				_, err := db.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: fmt.Sprint("page-", n), Text: strings.Repeat("zebra ", 200)})
				require.NoError(t, err)
			}
			killed := filepath.Join(t.TempDir(), "killed.ctx") // its files as a kill leaves them
			for _, part := range []string{"-wal", "-manifest"} {
				require.NoError(t, os.CopyFS(killed+part, os.DirFS(path+part)))
			}
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(killed, b, 0o600))

			next, err := ctxpage.Open(killed, ctxpage.Options{})
			require.NoError(t, err)
			defer next.Close()
			begun := time.Now()
			flushed := func() bool {
				s, err := next.Stats(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, puts, s.LSN)
				return s.Applied == s.LSN
			}
			if puts > 100 {
				require.Eventually(t, flushed, 8*time.Second, 10*time.Millisecond, "before one is due by its age, 10 s")
				return
			}
			for time.Since(begun) < 300*time.Millisecond {
				require.False(t, flushed())
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
}
