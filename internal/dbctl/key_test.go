package dbctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/system"
)

// A database made with a key opens with that key, by flag and by environment, until it is rotated; other keys, none, and a file
// that others may read are refused.
func TestKeyVerbs(t *testing.T) {
	dir := t.TempDir()
	file, key, next := filepath.Join(dir, "agent.ctx"), filepath.Join(dir, "a.key"), filepath.Join(dir, "b.key")
	for _, name := range []string{key, next} {
		require.NoError(t, os.WriteFile(name, []byte(ok(t, "", "key", "new")), 0o600))
	}
	says := func(code int, what string, args ...string) {
		t.Helper()
		got := dbctl("", args...)
		require.Equal(t, code, got.code, "%s %s", got.out, got.err)
		require.Contains(t, got.out+got.err, what)
	}
	says(exitOK, "made", "init", file, "--key-file", key)
	ok(t, "a kettle", "put", file, "acme", "a", "-", "--key-file", key)
	says(exitOK, "a kettle", "get", file, "acme", "a", "--key-file", key)
	says(exitFailed, "is encrypted; give its key", "get", file, "acme", "a")
	says(exitFailed, "another key", "get", file, "acme", "a", "--key-file", next)
	says(exitOK, "get", "manifest", "ls", file, "--key-file", key)
	says(exitFailed, "key", "manifest", "ls", file)
	says(exitOK, "is encrypted with the key in", "key", "rotate", file, "--key-file", key, "--to", next)
	says(exitFailed, "another key", "get", file, "acme", "a", "--key-file", key)
	t.Setenv("CTXPAGE_KEY_FILE", next)
	says(exitOK, "a kettle", "get", file, "acme", "a")
	backup, restored := filepath.Join(dir, "b.ctx"), filepath.Join(dir, "r.ctx")
	says(exitOK, "", "backup", file, backup)
	says(exitFailed, "no keyring", "restore", backup, restored)
	third := filepath.Join(dir, "t.ctx")
	says(exitOK, "is sound", "restore", backup, third, "--keyring", file+".keys", "--dry-run")
	says(exitOK, "restored", "restore", backup, third, "--keyring", file+".keys")
	says(exitOK, "a kettle", "get", third, "acme", "a")
	says(exitUsage, "expected none", "restore", backup, third, "--keyring", file+".keys", "--force") // it could have keys that third has destroyed
	says(exitOK, "restored", "restore", backup, third, "--force")
	b := must(os.ReadFile(file + ".keys"))(t)
	require.NoError(t, os.WriteFile(restored+".keys", b, 0o600))
	says(exitOK, "restored", "restore", backup, restored)
	says(exitOK, "a kettle", "get", restored, "acme", "a")
	if system.Modes {
		require.NoError(t, os.Chmod(next, 0o644))
		says(exitFailed, "others may read", "get", file, "acme", "a")
	}
	require.NoError(t, os.WriteFile(next, []byte(strings.Repeat("zz", 32)), 0o600))
	require.NoError(t, os.Chmod(next, 0o600))
	says(exitFailed, "in hex or base64", "get", file, "acme", "a")
}

// A plain database is encrypted in place and made plain again.
func TestKeyAdd(t *testing.T) {
	file, dir := newDB(t), t.TempDir()
	key := filepath.Join(dir, "a.key")
	require.NoError(t, os.WriteFile(key, []byte(ok(t, "", "key", "new")), 0o600))
	ok(t, "", "backup", file, filepath.Join(dir, "b.ctx"))
	before := ok(t, "", "ls", file, "acme/support")
	require.Equal(t, exitUsage, dbctl("", "key", "add", file).code)
	require.Contains(t, ok(t, "", "key", "add", file, "--key-file", key, "--dry-run"), "would be written anew, encrypted")
	require.Equal(t, before, ok(t, "", "ls", file, "acme/support"), "a dry run changes nothing")
	got := ok(t, "", "key", "add", file, "--key-file", key, "--by", "ann")
	require.Contains(t, got, "is encrypted now")
	require.Contains(t, got, "backups from before are not encrypted: b.ctx")
	require.Contains(t, dbctl("", "ls", file, "acme/support").err, "is encrypted; give its key")
	require.Equal(t, before, ok(t, "", "ls", file, "acme/support", "--key-file", key))
	require.Contains(t, ok(t, "", "check", file, "--key-file", key), "no damage")
	require.Contains(t, ok(t, "", "manifest", "ls", file, "--key-file", key, "--json"), "written anew, encrypted")
	require.Contains(t, dbctl("", "key", "add", file, "--key-file", key).err, "is encrypted")
	require.Contains(t, ok(t, "", "key", "remove", file, "--key-file", key), "is in plain text now")
	require.Equal(t, before, ok(t, "", "ls", file, "acme/support"))
}
