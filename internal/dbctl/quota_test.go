package dbctl

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuota(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	require.Contains(t, ok(t, "", "quota", "show", file), "no quota is set")
	require.Contains(t, ok(t, "", "quota", "set", file, "acme", "--bytes", "1K", "--dry-run"), "acme: 1024 bytes, any pages, any held")
	require.Contains(t, ok(t, "", "quota", "show", file), "no quota is set", "a dry run stores nothing")
	ok(t, "", "quota", "set", file, "acme", "--bytes", "1K")
	require.Equal(t, "acme: 1024 bytes, 1 pages, any held\n", ok(t, "", "quota", "set", file, "acme", "--pages", "1"))
	ok(t, "", "put", file, "acme/support", "a", "kettle")
	r := dbctl("", "put", file, "acme/support", "b", "pan", "--json")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, `"kind":"over quota"`)
	require.Contains(t, r.err, "dbctl gc FILE")
	require.Contains(t, ok(t, "", "quota", "show", file, "acme/support"), "acme")
	require.Contains(t, ok(t, "", "quota", "show", file, "other"), "no quota is set")
	require.Regexp(t, `acme/support +fact +1 +6 `, ok(t, "", "stat", file, "--space"))
	require.NotContains(t, ok(t, "", "stat", file), "acme/support")
	ok(t, "", "quota", "set", file, "acme", "--pages", "0", "--bytes", "0")
	ok(t, "", "put", file, "acme/support", "b", "pan")
	for _, bad := range [][]string{{"set", file, "acme"}, {"set", file, "acme", "--bytes", "much"}, {"set", file, "acme", "--pages", "-1"}, {"set", file, "a//b", "--pages", "1"}, {"show", file, "a//b"}} {
		require.Equal(t, exitUsage, dbctl("", append([]string{"quota"}, bad...)...).code, bad)
	}
}
