package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A judge whose name only looks like another's shows itself to the person who decides.
func TestReviewShowsLookAlikes(t *testing.T) {
	file := newDB(t)
	trace := asJSON(t, "", "assemble", file, "acme/support", "refunds", "--budget", "1000")["trace"].(string)
	hold := func(id, by string) {
		r := dbctl("Up to $400.", "commit", file, "acme/support", "--trace", trace, "--id", id, "--confidence", "0.1", "--by", by, "--actor", "checker")
		require.Equal(t, exitHeld, r.code, r.err)
	}
	hold("a", "ann")
	require.NotRegexp(t, `looks like|\\u`, ok(t, "", "review", "ls", file), "the negative control")
	hold("b", "сhecker") // the first letter is Cyrillic
	list := ok(t, "", "review", "ls", file)
	require.Contains(t, list, `сhecker (\u0441hecker)`)
	require.Contains(t, list, `judge "\u0441hecker" looks like actor "checker"`)
	batch := asJSON(t, "", "review", "ls", file)["held"].([]any)[1].(map[string]any)
	require.Len(t, batch["look_alikes"], 1)
	require.Regexp(t, `look-alike +judge`, ok(t, "", "review", "show", file, batch["id"].(string)))
	require.Equal(t, exitFailed, dbctl("", "review", "approve", file, batch["id"].(string), "--by", "Сhecker").code)
	require.Equal(t, exitUsage, dbctl("", "review", "approve", file, batch["id"].(string), "--by", "\u200b").code)
}
