package freshness

import (
	"context"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFileStamp: a file of the same size and mtime that was written again, or moved into the place of another one, is
// seen; one that nobody touched is not read.
func TestFileStamp(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "page"), filepath.Join(dir, "other")
	at := time.Now().Add(-time.Hour)
	write := func(path, text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(path, at, at))
	}
	s := &Files{roots: []string{dir}, limit: store.MaxText, now: time.Now}
	settled := func() (v store.Validator) {
		require.Eventually(t, func() bool {
			var err error
			v, err = s.Probe(t.Context(), path, store.Validator{})
			require.NoError(t, err)
			return !strings.HasSuffix(v.Stamp, "unsettled")
		}, time.Minute, time.Millisecond)
		return v
	}
	probe := func(have store.Validator) store.Validator {
		v := must(s.Probe(t.Context(), path, have))(t)
		return v
	}
	write(path, "limit 200")
	have := settled()
	wrong := have
	wrong.Hash++
	require.Equal(t, wrong, probe(wrong), "the control: what was not touched is not read")
	write(path, "limit 900")
	require.NotEqual(t, have.Hash, probe(have).Hash, "written again, its mtime set back")
	have = settled()
	write(other, "limit 100")
	require.NoError(t, os.Rename(other, path))
	require.NotEqual(t, have.Hash, probe(have).Hash, "another file in its place")
	write(path, "limit 300")
	fresh := probe(store.Validator{})
	write(path, "limit 400") // perhaps within the same tick
	require.NotEqual(t, fresh.Hash, probe(fresh).Hash)
}

// TestFileBeingWritten: a file that was changed a moment ago is read again until it is quiet, so that nobody sees it between its
// truncation and its new text. One that stays empty is empty, and one that never rests is read as it is.
func TestFileBeingWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	var wall time.Time // of the file system; only waits move it
	var waited time.Duration
	var during func(waited time.Duration)
	write := func(text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) // truncates, then writes
		fi := must(os.Stat(path))(t)
		wall, _ = changeOf(fi)
	}
	s := NewFiles(store.MaxText, time.Now)
	require.NoError(t, s.AddRoot(filepath.Dir(path)))
	s.quiet = fileClock{func() time.Time { return wall }, func(ctx context.Context, d time.Duration) error {
		waited, wall = waited+d, wall.Add(d)
		during(waited)
		return ctx.Err()
	}}
	fetch := func(ctx context.Context, steps func(time.Duration)) (string, error) {
		waited, during = 0, steps
		f, err := s.Fetch(ctx, path)
		return f.Text, err
	}
	nothing := func(time.Duration) {}

	write("half")
	text, err := fetch(t.Context(), func(waited time.Duration) {
		if waited == quietTime {
			write("half and whole")
			wall = wall.Add(quietTime / 2)
		}
	})
	require.NoError(t, err)
	require.Equal(t, "half and whole", text)

	write("")
	text, err = fetch(t.Context(), func(waited time.Duration) {
		if waited == 5*quietTime {
			write("new text")
		}
	})
	require.NoError(t, err)
	require.Equal(t, "new text", text)

	write("")
	text = must(fetch(t.Context(), nothing))(t)
	require.Empty(t, text, "it was emptied")
	require.GreaterOrEqual(t, waited, emptyTime)

	write("log")
	text = must(fetch(t.Context(), func(time.Duration) { write("log") }))(t)
	require.Equal(t, "log", text)
	require.Equal(t, restless, waited)

	write("old")
	wall = wall.Add(time.Hour)
	must(fetch(t.Context(), nothing))(t)
	require.Zero(t, waited, "what is at rest is read once")

	write("of another clock")
	wall = wall.Add(-time.Hour)
	must(fetch(t.Context(), nothing))(t)
	require.Zero(t, waited)

	ctx, cancel := context.WithCancel(t.Context())
	write("")
	_, err = fetch(ctx, func(time.Duration) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }
