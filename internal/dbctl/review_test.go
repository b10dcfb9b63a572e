package dbctl

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
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

// A reviewer sees everything that an approval does: what it overwrites and takes out of use, and every field that is set.
func TestReviewShowsEverything(t *testing.T) {
	file := newDB(t)
	ok(t, "Refunds up to 500.", "put", file, "acme/support", "policy", "-")
	db := must(ctxpage.Open(file, ctxpage.Options{}))(t)
	s := db.Scope("acme/support", ctxpage.WithActor("agent"))
	tx := must(s.Begin(t.Context()))(t)
	relevance := 0.5
	full := ctxpage.Artefact{
		ID: "policy", Text: "The shop opens at nine.", Kind: store.KindMessage, Role: "assistant", Name: "nora", Group: "chat-1", Seq: 3, Subject: "ann",
		Supersedes: []string{"refund-policy"}, DerivedFrom: []ctxpage.Ref{{Scope: "acme/support", ID: "refund-policy"}},
		Tags: []string{"t1"}, Meta: map[string]string{"m1": "v1"}, Pinned: true, Priority: store.PriorityHigh, Relevance: &relevance,
		ExpiresAt: time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC), CurrentAsOf: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		ToolCalls: []store.ToolCall{{ID: "c1", Name: "bash", Arguments: `{"rm":"-rf"}`}},
	}
	require.NoError(t, tx.Put(t.Context(), full))
	require.ErrorIs(t, tx.Commit(t.Context(), ctxpage.Verdict{Confidence: 0.1, By: "judge"}), store.ErrHeld)
	require.NoError(t, db.Close())

	view := asJSON(t, "", "review", "ls", file)["held"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"acme/support:policy@1"}, view["replaces"])
	show := ok(t, "", "review", "show", file, view["id"].(string))
	for _, says := range []string{
		"REPLACES acme/support:policy@1", "SUPERSEDES refund-policy", "BECOMES a turn of the assistant in chat-1, at place 3", "name: nora", "subject: ann", "derived from: ",
		"t1", `"m1":"v1"`, "pinned: true", "priority: high", "relevance: 0.5", "expires at: 2099-01-02T03:04:05Z", "current as of: 2026-01-02T03:04:05Z", `"rm`, "provenance: scratch",
	} {
		require.Contains(t, show, says)
	}
	require.Less(t, strings.Index(show, "REPLACES"), strings.Index(show, "The shop opens at nine."), "above the text")
	var names []string
	for i, typ := 0, reflect.TypeFor[ctxpage.Artefact](); i < typ.NumField(); i++ {
		names = append(names, typ.Field(i).Name)
	}
	require.Empty(t, slices.DeleteFunc(names, func(n string) bool {
		return slices.Contains(strings.Fields("ID Kind Text Supersedes Provenance Parts Role Name ToolCalls ToolCallID Source ExpiresAt TTL CurrentAsOf Priority Relevance Group Seq Subject DerivedFrom Pinned Tags Meta Unknown"), n)
	}), "a new field: give it a value above, and see that review show prints it")
}

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
