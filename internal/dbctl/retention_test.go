package dbctl

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

func TestRetention(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	require.Contains(t, ok(t, "", "retention", "show", file), "everything is kept")
	db := must(ctxpage.Open(file, ctxpage.Options{Exclusive: true, Clock: func() time.Time { return time.Now().Add(-100 * 24 * time.Hour) }}))(t)
	must(db.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: "old", Kind: store.KindScratch, Text: "kettle"}))(t)
	must(db.Scope("acme").Session("talk").Append(t.Context(), ctxpage.Turn{Role: "user", Text: "what of it?"}))(t)
	require.NoError(t, db.Close())

	require.Contains(t, ok(t, "", "retention", "set", file, "acme", "--kind", "scratch=30d", "--held", "14d", "--dry-run"), "acme: scratch 30d, held 14d")
	require.Contains(t, ok(t, "", "retention", "show", file), "everything is kept", "a dry run stores nothing")
	ok(t, "", "retention", "set", file, "acme", "--kind", "scratch=30d", "--held", "14d")
	ok(t, "", "retention", "set", file, "acme", "--held", "inherit", "--versions", "8w", "--keep-versions", "2")
	ok(t, "", "retention", "set", file, "--default", "--decided", "30d")
	require.Equal(t, "(whole database): decided 30d\nacme: scratch 30d, versions 56d, keep 2 versions\n", ok(t, "", "retention", "show", file))
	e := asJSON(t, "", "retention", "show", file, "acme/support")
	require.Equal(t, map[string]any{"age": "30d", "from": ""}, e["decided"])
	require.Contains(t, ok(t, "", "retention", "show", file, "acme"), "no policy")

	require.Contains(t, ok(t, "", "retention", "run", file, "--dry-run"), "scratch")
	require.Contains(t, ok(t, "", "get", file, "acme", "old"), "kettle")
	rep := asJSON(t, "", "retention", "run", file, "--by", "ann")
	require.Len(t, rep["items"], 1)
	require.NotEqual(t, exitOK, dbctl("", "get", file, "acme", "old").code)
	require.Contains(t, ok(t, "", "session", "rm", file, "acme", "talk", "--dry-run"), "would remove 1 turn")
	require.Contains(t, ok(t, "", "session", "rm", file, "acme", "talk"), "removed 1 turn")
	require.Equal(t, exitFailed, dbctl("", "session", "rm", file, "acme", "talk").code)
	require.Contains(t, ok(t, "", "review", "purge", file, "--by", "ann"), "nothing matches")
	require.Contains(t, ok(t, "", "retention", "set", file, "acme", "--clear"), "no policy")
	for _, bad := range [][]string{
		{"set", file}, {"set", file, "acme", "--default", "--held", "1d"}, {"set", file, "acme", "--kind", "thing=3d"}, {"set", file, "acme", "--kind", "fact"},
		{"set", file, "acme", "--held", "soon"}, {"set", file, "acme", "--keep-versions", "x"}, {"show", file, "a//b"},
	} {
		require.Equal(t, exitUsage, dbctl("", append([]string{"retention"}, bad...)...).code, bad)
	}
}
