package dbctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
