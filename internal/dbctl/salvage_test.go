package dbctl

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A text that is damaged in the file costs that text: the verbs go on, check lists it, salvage copies the rest.
func TestDamagedText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "the first text")
	ok(t, "", "put", file, "acme", "b", "the second text")
	require.Contains(t, ok(t, "", "check", file), "no damage found")
	b := must(os.ReadFile(file))(t)
	require.Contains(t, string(b), "the second text")
	require.NoError(t, os.WriteFile(file, bytes.ReplaceAll(b, []byte("the second text"), []byte("the sacond text")), 0o600))

	require.Contains(t, ok(t, "", "get", file, "acme", "a"), "the first text")
	r := dbctl("", "get", file, "acme", "b")
	require.Equal(t, exitDamaged, r.code)
	require.NotContains(t, r.out+r.err, "sacond")
	require.Contains(t, r.err, "dbctl salvage")
	require.NotContains(t, ok(t, "", "search", file, "acme", "text"), "sacond")
	require.Contains(t, ok(t, "", "assemble", file, "acme", "text"), "the first text")
	ok(t, "", "put", file, "acme", "c", "the third text")
	ok(t, "", "stat", file)
	r = dbctl("", "check", file)
	require.Equal(t, exitDamaged, r.code, r.out+r.err)
	require.Contains(t, r.out, "content 2")

	saved := filepath.Join(t.TempDir(), "saved.ctx")
	require.Contains(t, ok(t, "", "salvage", file, saved, "--by", "ann"), "nothing is lost", "the log still has it")
	require.Contains(t, ok(t, "", "get", saved, "acme", "b"), "the second text")
	require.Equal(t, exitFailed, dbctl("", "salvage", file, saved).code, "there is one already")

	logs := must(filepath.Glob(file + "-wal/*"))(t)
	for _, name := range logs {
		b := must(os.ReadFile(name))(t)
		require.NoError(t, os.WriteFile(name, bytes.ReplaceAll(b, []byte("the second text"), []byte("the sacond text")), 0o600))
	}
	saved = filepath.Join(t.TempDir(), "less.ctx")
	r = dbctl("", "salvage", file, saved)
	require.Equal(t, exitDamaged, r.code, r.out+r.err)
	require.Contains(t, r.out, "copied 2 artefacts")
	require.Contains(t, r.out, "acme:b@1")
	require.Contains(t, ok(t, "", "get", saved, "acme", "c"), "the third text")
	require.Contains(t, ok(t, "", "check", saved), "no damage found")
}
