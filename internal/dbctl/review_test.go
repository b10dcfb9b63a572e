package dbctl

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
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
