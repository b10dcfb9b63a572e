package dbctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/stretchr/testify/require"
)

func TestErase(t *testing.T) {
	dir := t.TempDir()
	file, receipt := filepath.Join(dir, "agent.ctx"), filepath.Join(t.TempDir(), "receipt.json")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "zebra zq1", "--subject", "ann")
	trace := asJSON(t, "", "assemble", file, "acme", "zebra")["trace"].(string)
	ok(t, "", "put", file, "acme", "a", "zebra zq2", "--subject", "ann")
	ok(t, "", "put", file, "acme", "sum", "violin", "--from", "acme:a")
	ok(t, "", "put", file, "acme", "other", "lemur")
	head := strings.TrimSpace(ok(t, "", "manifest", "head", file))
	by := []string{"--by", "desk", "--reason", "request 4711"}
	erase := func(args ...string) []string { return append(append([]string{"erase", file}, args...), by...) }

	dry := ok(t, "", erase("--subject", "ann", "--dry-run")...)
	require.Contains(t, dry, "would erase 1 artefact")
	require.Contains(t, dry, "would erase acme:a (fact, 2 versions): its subject")
	require.Contains(t, dry, "acme:sum was derived from acme:a and stays")
	require.Contains(t, dry, trace)
	require.Contains(t, ok(t, "", "get", file, "acme", "a"), "zq2", "a dry run erases nothing")

	backup := filepath.Join(t.TempDir(), "old.ctx")
	ok(t, "", "backup", file, backup)
	done := ok(t, "", erase("--subject", "ann", "--receipt", receipt)...)
	require.Contains(t, done, "erased acme:a")
	require.Zero(t, named(t, dir, "zq1"))
	require.Zero(t, named(t, dir, "zq2"))
	again := filepath.Join(t.TempDir(), "again.json")
	run := asJSON(t, "", "erase", "ls", file)["erases"].([]any)[0].(map[string]any)["trace"].(string)
	require.Contains(t, ok(t, "", "erase", "ls", file), "request 4711")
	ok(t, "", "erase", "receipt", file, run[:20], "-o", again)
	require.Contains(t, ok(t, "", "erase", "verify", again), "erased by desk, request 4711")
	require.Contains(t, ok(t, ok(t, "", "erase", "receipt", file, run), "erase", "verify", "-"), run[:3])
	require.Equal(t, exitFailed, dbctl("", "erase", "receipt", file, run, "-o", again).code, "it is there")
	require.Equal(t, exitFailed, dbctl("", "erase", "receipt", file, "01J").code, "no such erase")
	r := dbctl("", "replay", file, trace)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "by desk: acme:a#1@1")
	require.Contains(t, ok(t, "", "why", file, trace, "acme:a"), "erased at ")
	require.Contains(t, ok(t, "", "check", file), "no damage found")
	ok(t, "", "manifest", "verify", file, "--head", head)
	require.Contains(t, ok(t, "", "manifest", "ls", file, "--type", "erase"), "erase")

	require.Contains(t, ok(t, "", "erase", "verify", receipt), "erased by desk, request 4711")
	require.Contains(t, ok(t, "", "erase", "verify", receipt), "that head came with the receipt")
	b := must(os.ReadFile(receipt))(t)
	require.Equal(t, exitFailed, dbctl(strings.Replace(string(b), `"versions": 2`, `"versions": 3`, 1), "erase", "verify", "-").code, "control: an edited receipt")
	for _, edit := range [][2]string{{`"size": `, `"size": 9`}, {`"at": "2`, `"at": "3`}, {"\n}\n", "\n}\n{}"}, {`"root": "`, `"root": "A`}} {
		require.Contains(t, string(b), edit[0])
		r := dbctl(strings.Replace(string(b), edit[0], edit[1], 1), "erase", "verify", "-")
		require.Equal(t, exitFailed, r.code, "%s: %s", edit[1], r.err)
		require.Contains(t, r.err, "the receipt is not valid")
	}
	bare := strings.Replace(string(b), `"limits": [`, `"limits": [], "were": [`, 1)
	require.Contains(t, dbctl(bare, "erase", "verify", "-").out, "not proved: backups, copies and exports", "whatever the receipt says of itself")
	require.Equal(t, exitFailed, dbctl("", erase("--subject", "ann")...).code, "nothing is left")
	require.Contains(t, ok(t, "", erase("acme:other", "acme:othr", "--dry-run")...), "nothing is held of acme:othr")
	require.Contains(t, done, "not erased: backup old.ctx of ")
	restored := filepath.Join(t.TempDir(), "restored.ctx")
	require.Contains(t, ok(t, "", "restore", backup, restored, "--erased", receipt, "--dry-run"), "would erase acme:a")
	require.NoFileExists(t, restored)
	require.Contains(t, ok(t, "", "restore", backup, restored, "--erased", receipt), "erased acme:a")
	require.NotEqual(t, exitOK, dbctl("", "get", restored, "acme", "a").code)
	require.Contains(t, ok(t, "", "get", restored, "acme", "other"), "lemur")
	require.NotEqual(t, exitOK, dbctl("", "restore", backup, restored+"2", "--erased", restored).code, "that is no receipt")
	require.Equal(t, "acme:sum", asJSON(t, "", erase("acme:sum")...)["erased"].([]any)[0].(map[string]any)["ref"])
	for _, s := range [][]string{{"acme", "chat/1"}, {"acme/chat", "1"}, {"acme", "one/two"}, {"acme", "a:b"}} {
		ok(t, "", "session", "append", file, s[0], s[1], "hello")
	}
	r = dbctl("", erase("--session", "acme/chat/1", "--dry-run")...)
	require.Equal(t, exitUsage, r.code, "two sessions have this name")
	require.Contains(t, r.err, "acme/chat:1 or acme:chat%2F1")
	for given, turn := range map[string]string{"acme:chat%2F1": "acme:block-chat%2F1-1", "acme%2Fchat:1": "acme/chat:block-1-1", "acme/one/two": "acme:block-one%2Ftwo-1", "acme/a:b": "acme:block-a%3Ab-1"} {
		require.Contains(t, ok(t, "", erase("--session", given, "--dry-run")...), "would erase "+turn, given)
	}
	for _, bad := range [][]string{erase(), erase("acme:a@1"), erase("--session", "talk"), erase("--subject", "ann", "acme:a"), {"erase", file, "acme:a", "--by", "x"}} {
		require.Equal(t, exitUsage, dbctl("", bad...).code, bad)
	}
}

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
