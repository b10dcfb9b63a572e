package dbctl

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGC(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "zebra one")
	trace := asJSON(t, "", "assemble", file, "acme", "zebra")["trace"].(string)
	ok(t, "", "put", file, "acme", "a", "zebra two")
	ok(t, "", "put", file, "acme", "old", "violin", "--expires", "2020-01-01")

	require.Contains(t, ok(t, "", "gc", file), "dropped 0 versions", "after 30 days")
	dry := ok(t, "", "gc", file, "--keep-for", "0s", "--dry-run")
	require.Contains(t, dry, "would drop 1 version, 1 page, 9 bytes of text")
	require.Contains(t, dry, "expired, which was not asked for")
	require.Contains(t, ok(t, "", "replay", file, trace), "zebra one", "a dry run drops nothing")
	require.Contains(t, ok(t, "", "gc", file, "--keep-for", "0s", "--keep-versions", "2"), "among the newest versions")
	require.Contains(t, ok(t, "", "gc", file, "--keep-for", "0s", "--scope", "other"), "dropped 0 versions")
	done := ok(t, "", "gc", file, "--keep-for", "0s", "--expired", "--by", "ann")
	require.Contains(t, done, "dropped 2 versions")
	require.Contains(t, done, "dropped acme:a@1\ndropped acme:old@1\n")

	r := dbctl("", "get", file, "acme", "a", "--version", "1", "--json")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, `"kind":"gone"`)
	require.Contains(t, r.err, "acme:a@1, dropped by gc ")
	r = dbctl("", "replay", file, trace)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "acme:a#1@1, dropped by gc ")
	require.Contains(t, ok(t, "", "why", file, trace, "a"), "fit: in")
	require.Contains(t, ok(t, "", "history", file, "acme", "a"), "gone")
	ls := ok(t, "", "manifest", "ls", file, "--type", "gc")
	require.Contains(t, ls, "gc")
	require.Contains(t, ok(t, "", "manifest", "show", file, asJSON(t, "", "manifest", "ls", file, "--type", "gc")["leaves"].([]any)[0].(map[string]any)["trace"].(string)), "version 1, dropped")
	require.Contains(t, ok(t, "", "check", file), "no damage found")

	for _, bad := range [][]string{{"--keep-for", "-1h"}, {"--keep-versions", "-1"}, {"--scope", "/"}} {
		require.Equal(t, exitUsage, dbctl("", append([]string{"gc", file}, bad...)...).code, bad)
	}
}
