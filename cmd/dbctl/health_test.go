package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHealth: each finding has a count, an example and the command that mends it, and that command does.
func TestHealth(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "one", "Refunds are made within thirty days of the purchase.")
	ok(t, "", "put", file, "acme", "two", "Refunds are made within thirty days of the purchase.")
	ok(t, "", "put", file, "acme", "ann-1", "Ann lives in Oslo.", "--subject", "ann", "--meta", "key=city")
	ok(t, "", "put", file, "acme", "ann-2", "Ann lives in Bergen.", "--subject", "ann", "--meta", "key=city")
	ok(t, "", "put", file, "acme", "old", "a notice", "--expires", "2020-01-01")
	ok(t, "", "put", file, "other", "two", "not looked at")

	out := ok(t, "", "health", file, "acme")
	require.Contains(t, out, "acme: 5 artefacts")
	require.Contains(t, out, "1 exact duplicate")
	require.Contains(t, out, "mend: dbctl rm ")
	v := asJSON(t, "", "health", file, "acme", "--examples", "1")
	counts := map[string]any{}
	for _, f := range v["findings"].([]any) {
		finding := f.(map[string]any)
		counts[finding["what"].(string)] = finding["count"]
	}
	require.EqualValues(t, 1, counts["contradiction"])
	require.EqualValues(t, 1, counts["expired"])

	ok(t, "", "rm", file, "acme", "two")
	require.Contains(t, ok(t, "", "health", file, "acme"), "0 exact duplicate")
	for _, args := range [][]string{{"--examples", "0"}, {"--assemblies", "0"}} {
		require.Equal(t, exitUsage, dbctl("", append([]string{"health", file, "acme"}, args...)...).code)
	}
}
