package dbtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file is renamed over one that is before it, between the listing and the reading: what it had is found. The control reads once, and
// fails as the tests did that walked a directory on their own.
func TestFilesThatAreRenamed(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "mark")
	rename := func(path string) {
		if path != mark+".tmp" { // the other was read
			return
		}
		if err := os.Rename(mark+".tmp", mark); err != nil {
			t.Error(err)
		}
	}
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(mark, "old")
	write(mark+".tmp", "new")
	_, err := readOnce([]string{dir}, rename)
	require.ErrorIs(t, err, fs.ErrNotExist, "the control")

	write(mark+".tmp", "newer")
	var files map[string][]byte
	times := 0
	require.NoError(t, Again(func() (err error) {
		times++
		files, err = readOnce([]string{dir}, rename)
		return err
	}))
	require.Equal(t, 2, times)
	require.Equal(t, map[string][]byte{mark: []byte("newer")}, files)

	write(mark+".tmp", "newest")
	files, err = Files(mark, mark+".tmp")
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{mark: []byte("newer"), mark + ".tmp": []byte("newest")}, files)
	_, err = Files(dir, filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist, "a place that is not there")
}

func TestAgainEnds(t *testing.T) {
	for _, c := range []struct {
		err   error
		times int
	}{{nil, 1}, {fs.ErrPermission, 1}, {fs.ErrNotExist, 1000}} {
		times := 0
		require.ErrorIs(t, Again(func() error { times++; return c.err }), c.err)
		require.Equal(t, c.times, times)
	}
}

// A checkpoint writes into the file, which was read, what it takes from the log, which was not: a copy has it all the same. The control
// reads once, and has it nowhere.
func TestCopyIsOfOneMoment(t *testing.T) {
	from := filepath.Join(t.TempDir(), "agent.ctx")
	log := filepath.Join(from+"-wal", "1.wal")
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	for _, dir := range []string{"-wal", "-manifest"} {
		require.NoError(t, os.Mkdir(from+dir, 0o700))
	}
	times := 0
	checkpoint := func(path string) {
		if path != log {
			return
		}
		if times++; times == 1 {
			write(from, "old new")
			write(log, "")
		}
	}
	write(from, "old")
	write(log, "new")
	files, err := readOnce([]string{from, from + "-wal"}, checkpoint)
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{from: []byte("old"), log: {}}, files, "the control")

	times = 0
	write(from, "old")
	write(log, "new")
	files, err = still(from, checkpoint)
	require.NoError(t, err)
	require.Equal(t, 3, times)
	require.Equal(t, map[string][]byte{from: []byte("old new"), log: {}}, files)

	_, err = still(from, func(path string) {
		times++
		write(from, strings.Repeat("x", times))
	})
	require.ErrorContains(t, err, "is written all the time")
	require.ErrorIs(t, Copy(from+"none", from+".copy"), fs.ErrNotExist)
	require.NoError(t, Copy(from, from+".copy"))
	require.DirExists(t, from+".copy-manifest", "it is empty")
	require.FileExists(t, from+".copy-wal/1.wal")
}
