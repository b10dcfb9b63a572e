package main

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
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		require.NotContains(t, string(b), "zq1", path)
		require.NotContains(t, string(b), "zq2", path)
		return err
	}))
	r := dbctl("", "replay", file, trace)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "by desk: acme:a#1@1")
	require.Contains(t, ok(t, "", "why", file, trace, "acme:a"), "erased at ")
	require.Contains(t, ok(t, "", "check", file), "no damage found")
	ok(t, "", "manifest", "verify", file, "--head", head)
	require.Contains(t, ok(t, "", "manifest", "ls", file, "--type", "erase"), "erase")

	require.Contains(t, ok(t, "", "erase", "verify", receipt), "erased by desk, request 4711")
	require.Contains(t, ok(t, "", "erase", "verify", receipt), "that head came with the receipt")
	b, err := os.ReadFile(receipt)
	require.NoError(t, err)
	require.Equal(t, exitFailed, dbctl(strings.Replace(string(b), `"versions": 2`, `"versions": 3`, 1), "erase", "verify", "-").code, "control: an edited receipt")
	require.Equal(t, exitFailed, dbctl("", erase("--subject", "ann")...).code, "nothing is left")
	require.Contains(t, done, "not erased: backup old.ctx of ")
	restored := filepath.Join(t.TempDir(), "restored.ctx")
	require.Contains(t, ok(t, "", "restore", backup, restored, "--erased", receipt, "--dry-run"), "would erase acme:a")
	require.NoFileExists(t, restored)
	require.Contains(t, ok(t, "", "restore", backup, restored, "--erased", receipt), "erased acme:a")
	require.NotEqual(t, exitOK, dbctl("", "get", restored, "acme", "a").code)
	require.Contains(t, ok(t, "", "get", restored, "acme", "other"), "lemur")
	require.NotEqual(t, exitOK, dbctl("", "restore", backup, restored+"2", "--erased", restored).code, "that is no receipt")
	require.Equal(t, "acme:sum", asJSON(t, "", erase("acme:sum")...)["erased"].([]any)[0].(map[string]any)["ref"])
	for _, bad := range [][]string{erase(), erase("acme:a@1"), erase("--session", "talk"), erase("--subject", "ann", "acme:a"), {"erase", file, "acme:a", "--by", "x"}} {
		require.Equal(t, exitUsage, dbctl("", bad...).code, bad)
	}
}
