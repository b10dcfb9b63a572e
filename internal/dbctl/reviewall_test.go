package dbctl

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// Many batches are approved with one command: those that the filters select, each by itself, and none that would take
// pages out of use.
func TestReviewApproveAll(t *testing.T) {
	file := newDB(t)
	db := must(ctxpage.Open(file, ctxpage.Options{}))(t)
	hold := func(scope, actor, id string, kind store.Kind, tags ...string) {
		tx := must(db.Scope(scope, ctxpage.WithActor(actor)).Begin(t.Context()))(t)
		require.NoError(t, tx.Put(t.Context(), ctxpage.Artefact{ID: id, Text: "text of " + id, Kind: kind, Tags: tags}))
		require.ErrorIs(t, tx.Commit(t.Context(), ctxpage.Verdict{}), store.ErrHeld)
	}
	for i := range 3 {
		hold("acme/support", "claude", fmt.Sprintf("note-%d", i), store.KindFact, "web")
	}
	hold("acme/support", "ann", "own", store.KindFact)
	hold("acme/sales", "claude", "sales", store.KindSummary)
	hold("acme/support", "claude", "late", store.KindFact)
	for _, id := range []string{"late", "policy"} { // the host writes what the draft would, meanwhile
		must(db.Scope("acme/support").Put(t.Context(), ctxpage.Artefact{ID: id, Text: "of the host"}))(t)
	}
	tx := must(db.Scope("acme/support", ctxpage.WithActor("claude")).Begin(t.Context()))(t)
	require.NoError(t, tx.Delete(t.Context(), "policy"))
	require.ErrorIs(t, tx.Commit(t.Context(), ctxpage.Verdict{}), store.ErrHeld)
	require.NoError(t, db.Close())

	all := func(code int, args ...string) (approved, left float64, ids []string) {
		r := dbctl("", append([]string{"--json", "review", "approve", file, "--all", "--by", "ann"}, args...)...)
		require.Equal(t, code, r.code, r.err)
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(r.out), &v))
		for _, b := range v["batches"].([]any) {
			ids = append(ids, b.(map[string]any)["ids"].([]any)[0].(string))
		}
		return v["approved"].(float64), v["left"].(float64), ids
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--scope", "acme/sales"}, []string{"sales"}}, {[]string{"--actor", "ann"}, []string{"own"}}, {[]string{"--kind", "summary"}, []string{"sales"}},
		{[]string{"--tag", "web"}, []string{"note-0", "note-1", "note-2"}}, {[]string{"--reason", "no verdict", "--tag", "web"}, []string{"note-0", "note-1", "note-2"}},
		{[]string{"--reason", "stale"}, nil}, {[]string{"--older", "1h"}, nil},
	} {
		code := exitOK
		if slices.Contains(c.want, "own") { // nobody approves their own
			code = exitFailed
		}
		_, _, ids := all(code, append(c.args, "--dry-run")...)
		require.ElementsMatch(t, c.want, ids, c.args)
	}
	approved, left, ids := all(exitFailed, "--dry-run")
	require.Equal(t, []any{4.0, 3.0, 7}, []any{approved, left, len(ids)}, "two take a page out of use, one is the approver's own")
	require.Len(t, asJSON(t, "", "review", "ls", file)["held"], 7, "a dry run decides nothing")

	approved, left, _ = all(exitOK, "--tag", "web")
	require.Equal(t, []any{3.0, 0.0}, []any{approved, left})
	require.Contains(t, ok(t, "", "get", file, "acme/support", "note-2"), "text of note-2")
	text := dbctl("", "review", "approve", file, "--all", "--by", "ann")
	require.Equal(t, exitFailed, text.code)
	require.Contains(t, text.out, "approved 1, left 3")
	require.Contains(t, text.out, "ann wrote", "nobody approves their own")
	require.Contains(t, text.out, "takes pages out of use")
	require.Contains(t, ok(t, "", "get", file, "acme/support", "policy"), "of the host")
	approved, left, _ = all(exitFailed, "--replacing")
	require.Equal(t, []any{1.0, 2.0}, []any{approved, left}, "the page that was written meanwhile is a conflict")
	for _, args := range [][]string{{"review", "approve", file, "--by", "ann"}, {"review", "approve", file, "01J", "--all", "--by", "ann"}, {"review", "approve", file, "01J", "--tag", "x", "--by", "ann"}} {
		require.Equal(t, exitUsage, dbctl("", args...).code, args)
	}
}
