package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// TestRecentTail: whatever expired, was said in other sessions, or has come back with a clock that went backwards: the
// recent tail of a question is the newest pages that no rule excludes, found by looking at all of them.
func TestRecentTail(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(5, 6))
	start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	m := newMemory(t, func() time.Time { return now })
	swept := 0
	for round := range 24 {
		now = start.Add(time.Duration(round) * 5 * time.Minute)
		m.fill([]string{"acme", "acme/a"}[round%2], 600, func(i int) store.Artefact {
			a := store.Artefact{
				ID: fmt.Sprint("p-", rng.IntN(20_000)), Text: fmt.Sprint("text ", round, i), CurrentAsOf: now.Add(time.Duration(i) * time.Second),
				Provenance: store.Provenance(1 + rng.IntN(4)), Kind: store.KindFact, Seq: int64(i),
			}
			if rng.IntN(3) > 0 {
				a.ExpiresAt = now.Add(time.Duration(1+rng.IntN(120)) * time.Minute)
			}
			if rng.IntN(2) == 0 {
				a.Group = fmt.Sprint("s-", rng.IntN(3))
			}
			if rng.IntN(3) == 0 {
				a.Kind, a.Role = store.KindMessage, "assistant"
			}
			return a
		})
		for range 4 {
			q := store.CandidateQuery{
				Scopes: store.Scopes{"acme/a", "acme"}, Now: start.Add(time.Duration(rng.IntN(3*3600)) * time.Second), Recent: 1 + rng.IntN(30),
				Floor: store.Provenance(1 + rng.IntN(3)), Session: []string{"", "s-0", "s-1", "none"}[rng.IntN(4)],
			}
			got := must(m.Candidates(ctx, q))(t)
			var tail []uint64
			for _, c := range got.Hits {
				if c.Recent {
					tail = append(tail, c.Key.Num)
				}
			}
			want, expired := recentByHand(m.cat, q)
			require.Equal(t, want, tail, "%+v", q)
			for _, e := range got.Excluded {
				if e.Reason == triage.Expired {
					require.Equal(t, expired, e.Count)
				}
			}
		}
		for i := range m.cat.scopes {
			for j := range m.cat.scopes[i].classes {
				if m.cat.scopes[i].class(j).swept != 0 {
					swept++
				}
			}
		}
	}
	require.Greater(t, swept, 20, "nothing was swept: the test shows nothing")
}

func recentByHand(c *catalogue, q store.CandidateQuery) (nums []uint64, expired int) {
	chain := c.chain(q.Scopes)
	var all []entry
	session := c.named[artKey{scope: c.byName[q.Scopes[0]], id: q.Session}]
	for num, p := range c.pages.all() {
		if c.end(p) != 0 || p.retired || !slices.Contains(chain, p.scope) {
			continue
		}
		switch c.excluded(p, &q, session) {
		case "":
			all = append(all, entry{key: p.asOf, num: num})
		case triage.Expired:
			expired++
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return compareEntries(b, a) })
	for _, e := range all[:min(q.Recent, len(all))] {
		nums = append(nums, e.num)
	}
	slices.Sort(nums)
	return nums, expired
}
