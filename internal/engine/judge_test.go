package engine

import (
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// TestJudgement: what stops a batch is the first step that says no, and judging changes nothing: asked twice, the answer
// is the same.
func TestJudgement(t *testing.T) {
	m := newMemory(t, time.Now)
	old := m.put("acme", store.Artefact{ID: "a", Text: "one"})
	m.put("acme", store.Artefact{ID: "a", Text: "two"}, store.Artefact{ID: "b", Text: "three"})
	m.put("acme", store.Artefact{ID: "c", Text: "four", Supersedes: []string{"b"}})
	seen := []store.Seen{{Num: 1, Scope: "acme", ID: "a", Page: 1}}
	for name, c := range map[string]struct {
		change func(b *Request)
		want   string // retry, conflict, error, hold or apply
	}{
		"apply":                  {func(*Request) {}, "apply"},
		"conflict goes first":    {func(b *Request) { b.Expect, b.Context, b.OnStale = expect(old.LSN), seen, store.FailStale }, "conflict"},
		"carried expects none":   {func(b *Request) { b.Expect, b.Carried = expect(old.LSN), true }, "apply"},
		"stale is held":          {func(b *Request) { b.Context = seen }, "hold"},
		"stale fails":            {func(b *Request) { b.Context, b.OnStale = seen, store.FailStale }, "error"},
		"stale is allowed":       {func(b *Request) { b.Context, b.OnStale = seen, store.AllowStale }, "apply"},
		"stale approval":         {func(b *Request) { b.Context, b.Action = seen, store.ActApprove }, "error"},
		"stale approval, forced": {func(b *Request) { b.Context, b.Action, b.Force = seen, store.ActApprove, true }, "apply"},
		"rejected, stale or not": {func(b *Request) { b.Context, b.Action = seen, store.ActReject }, "apply"},
	} {
		t.Run(name, func(t *testing.T) {
			b := Request{Batch: m.batch("acme", store.Artefact{ID: "b", Text: "again", Supersedes: []string{"a"}})}
			pre := must(m.prepare(t.Context(), &b))(t)
			c.change(&b)
			v := m.judge(&b, pre)
			require.Equal(t, v, m.judge(&b, pre))
			got := map[bool]string{v.retry: "retry", v.conflict != nil: "conflict", v.err != nil: "error", v.hold != "": "hold"}[true]
			if got == "" {
				got = "apply"
			}
			require.Equal(t, c.want, got)
			if c.want == "apply" {
				require.Equal(t, []replacing{{superseded: true, supersedes: true}}, v.puts)
			}
		})
	}
	b := Request{Batch: m.batch("acme", store.Artefact{ID: "a", Text: "three"})}
	pre := must(m.prepare(t.Context(), &b))(t)
	m.put("acme", store.Artefact{ID: "a", Text: "meanwhile"})
	require.True(t, m.judge(&b, pre).retry)
}

func expect(lsn uint64) []store.Precondition {
	return []store.Precondition{{Ref: store.Ref{Scope: "acme", ID: "a"}, LSN: lsn}}
}
