package dbctl

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/stretchr/testify/require"
)

// named counts the files of a directory that have a word.
func named(t *testing.T, dir, word string) (n int) {
	t.Helper()
	files := must(dbtest.Files(dir))(t)
	for _, b := range files {
		if strings.Contains(string(b), word) {
			n++
		}
	}
	return n
}

// TestEraseNames: --names beside an agent that owns the files takes the name out of them; a restore takes it out of the
// backup, when it is given the receipt.
func TestEraseNames(t *testing.T) {
	dir, kept := t.TempDir(), t.TempDir()
	file, receipt, backup := filepath.Join(dir, "agent.ctx"), filepath.Join(kept, "receipt.json"), filepath.Join(kept, "old.ctx")
	liveWriter(t, file)
	ok(t, "", "put", file, "acme/live", "zqname", "the zebra is striped", "--subject", "ann")
	trace := asJSON(t, "", "assemble", file, "acme/live", "which zebra is striped?")["trace"].(string)
	head := strings.TrimSpace(ok(t, "", "manifest", "head", file))
	ok(t, "", "backup", file, backup)
	by := []string{"--by", "desk", "--reason", "request 4711", "--names"}

	dry := asJSON(t, "", append([]string{"erase", file, "--subject", "ann", "--dry-run"}, by...)...)
	require.NotZero(t, dry["bodies"])
	require.NotZero(t, named(t, dir, "zqname"), "a dry run changes nothing")
	done := ok(t, "", append([]string{"erase", file, "--subject", "ann", "--receipt", receipt}, by...)...)
	require.Contains(t, done, "of the audit that name it")
	require.Zero(t, named(t, dir, "zqname"))
	require.NotEqual(t, exitOK, dbctl("", "get", file, "acme/live", "zqname").code)
	require.Contains(t, dbctl("", "replay", file, trace).err, "gone")
	require.Contains(t, ok(t, "", "erase", "verify", receipt), "erased by desk, request 4711")
	ok(t, "", "manifest", "verify", file, "--head", head)

	for _, r := range []struct {
		to   string
		more []string
		has  bool
	}{{"without.ctx", nil, true}, {"with.ctx", []string{"--erased", receipt}, false}} {
		to := filepath.Join(t.TempDir(), r.to)
		ok(t, "", append([]string{"restore", backup, to}, r.more...)...)
		require.Equal(t, r.has, named(t, filepath.Dir(to), "zqname") > 0, r.to)
		require.Equal(t, r.has, dbctl("", "get", to, "acme/live", "zqname").code == exitOK)
		ok(t, "", "manifest", "verify", to, "--head", head)
		require.Contains(t, ok(t, "", "check", to), "no damage found")
	}
}
