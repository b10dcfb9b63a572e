package ctxpage_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// TestMatch: a context says how much of the question its pages have, in the answer and in the manifest. If it is next to
// nothing, pages that are only recent stay out unless they are asked for; protected and verified ones stay.
func TestMatch(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	for _, a := range []Artefact{
		{ID: "refund", Text: "The refund limit is 500 dollars since March."},
		{ID: "cat", Text: "The office cat sleeps in the printer room and was bought in Leeds."},
		{ID: "rule", Text: "Answer in French.", Kind: store.KindSystem},
	} {
		put(t, s, a)
	}
	must(db.Admin().PutVerified(ctx, "acme", "anna", Artefact{ID: "vouched", Text: "Ann leads the support team."}))(t)
	for _, c := range []struct {
		q       Query
		match   manifest.Match
		covered float64
		in, out string
	}{
		{Query{Text: "What is the refund limit?"}, manifest.MatchGood, 1, "refund", ""},
		{Query{Text: "Who buys cats?"}, manifest.MatchGood, 1, "cat", ""}, // by an irregular form
		{Query{Text: "refund deadline of parcels abroad"}, manifest.MatchWeak, .25, "refund", ""},
		{Query{Text: "Where did we park the yellow submarine on Tuesday?"}, manifest.MatchNone, 0, "rule vouched", "cat refund"},
		{Query{Text: "Where did we park the yellow submarine on Tuesday?", Recent: true}, manifest.MatchNone, 0, "cat refund", ""},
		{Query{Text: "What is it?"}, "", 0, "cat refund", ""},
	} {
		c.q.Budget = 4000
		a := assemble(t, s, c.q)
		require.Equal(t, c.match, a.Match, c.q.Text)
		require.Equal(t, c.covered, a.Covered, c.q.Text)
		require.Equal(t, c.match, a.Manifest.Match)
		require.Equal(t, manifest.Quantise(c.covered), a.Manifest.Covered)
		for _, id := range strings.Fields(c.in) {
			require.Contains(t, ids(a), id, c.q.Text)
		}
		for _, id := range strings.Fields(c.out) {
			require.NotContains(t, ids(a), id, c.q.Text)
			at := -1
			for i, l := range a.Left {
				if l.Ref.ID == id {
					at = i
				}
			}
			require.GreaterOrEqual(t, at, 0, "%s is named", id)
			require.Equal(t, triage.NoMatch, a.Left[at].Reason)
		}
		again, err := db.Replay(ctx, a.Trace)
		require.NoError(t, err)
		require.Equal(t, a.Text(), again.Text, "it replays")
	}
}
