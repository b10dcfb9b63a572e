package dbctl

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// After an import refresh sees what is new, changed and gone, in this scope or in all.
func TestRefresh(t *testing.T) {
	dir, file := aFolder(t), newDB(t)
	ok(t, "", "import", file, "acme/docs", dir, "--max-size", "4000", "--prefix", "shop/")
	only := func(v map[string]any) map[string]any {
		for _, s := range v["scopes"].([]any) {
			if s := s.(map[string]any); s["scope"] == "acme/docs" {
				return s
			}
		}
		require.Fail(t, "no report of acme/docs")
		return nil
	}
	v := only(asJSON(t, "", "refresh", file))
	require.Equal(t, []any{7.0, 7.0}, []any{v["sources"], v["unchanged"]})

	write(t, dir, "docs/policy.md", "Return within 14 days, in the heliotrope box.\n")
	write(t, dir, "docs/new.md", "A new page.\n")
	write(t, dir, "docs/new.tmp", "ignored\n")
	require.NoError(t, os.Remove(filepath.Join(dir, "src/main.txt")))
	lsn := asJSON(t, "", "stat", file)["lsn"]
	for _, args := range [][]string{{"refresh", file, "acme/docs", "--dry-run"}, {"refresh", file, "acme/docs"}} {
		v = only(asJSON(t, "", args...))
		require.Equal(t, []any{"shop/docs/policy.md"}, v["changed"])
		require.Equal(t, []any{"shop/docs/new.md"}, v["new"])
		require.Equal(t, []any{"shop/src/main.txt"}, v["vanished"])
		require.Empty(t, v["deleted"])
		if len(args) == 4 {
			require.Equal(t, lsn, asJSON(t, "", "stat", file)["lsn"], "a dry run writes nothing")
		}
	}
	require.Contains(t, ok(t, "", "search", file, "acme/docs", "heliotrope"), "policy.md#1@2")
	out := ok(t, "", "refresh", file)
	require.Contains(t, out, "1 vanished, left out until the file is back\n    shop/src/main.txt\n")
	require.Contains(t, ok(t, "", "refresh", file, "acme/docs", "--delete"), "1 deleted\n    shop/src/main.txt\n")
	require.NotContains(t, imported(t, file), "shop/src/main.txt")
	require.NotContains(t, dbctl("", "refresh", file, "--progress").out, "%")

	require.Equal(t, exitFailed, dbctl("", "refresh", file, "acme/docs", "--no-roots").code)
	require.Equal(t, exitOK, dbctl("", "refresh", file, "acme/docs", "--no-roots", "--root", dir).code)
	require.Equal(t, exitUsage, dbctl("", "refresh", file, "--forget", dir).code)
	require.Equal(t, exitUsage, dbctl("", "refresh", file, "acme/docs", "--prefix", "x").code)
	require.Equal(t, exitFailed, dbctl("", "refresh", file, "acme/docs", "--forget", dir).code, "with another prefix it is not known")
	ok(t, "", "refresh", file, "acme/docs", "--forget", dir, "--prefix", "shop/")
	write(t, dir, "docs/newer.md", "A newer page.\n")
	require.Empty(t, only(asJSON(t, "", "refresh", file))["new"])
	ok(t, "", "check", file)
}
