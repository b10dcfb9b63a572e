package dbctl

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompact(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "kettle")
	plan := asJSON(t, "", "compact", file, "--dry-run")
	require.Equal(t, true, plan["dry_run"])
	require.Contains(t, ok(t, "", "compact", file, "--dry-run"), "compacted it would have about")
	rep := asJSON(t, "", "compact", file)
	require.LessOrEqual(t, rep["after"], rep["before"])
	require.Contains(t, ok(t, "", "compact", file), "the file has")
	require.Contains(t, ok(t, "", "get", file, "acme", "a"), "kettle")
	require.Equal(t, exitFailed, dbctl("", "compact", filepath.Join(t.TempDir(), "none.ctx")).code)
}
