package ctxpage_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/health"
)

// Each finding counts what it says, and nothing of a scope that is in order.
func TestHealth(t *testing.T) {
	t.Parallel()
	now := &clock{t: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	db := open(t, Options{Clock: now.now})
	s := db.Scope("acme")
	count := func() map[string]int {
		r, err := s.Health(ctx, health.Options{})
		require.NoError(t, err)
		require.Len(t, r.Findings, 7)
		out := map[string]int{}
		for _, f := range r.Findings {
			require.NotEmpty(t, f.Mend)
			if f.Count > 0 {
				require.NotEmpty(t, f.Examples, f.What)
				out[f.What] = f.Count
			}
		}
		return out
	}
	long := "the quick brown fox jumps over the lazy dog near the river bank at noon on a %s day of the year"
	put(t, s, Artefact{ID: "one", Text: fmt.Sprintf(long, "sunny")})
	put(t, s, Artefact{ID: "fine", Text: fmt.Sprintf(long, "rainy")})
	put(t, s, Artefact{ID: "color-old", Text: "blue", Subject: "ada", Meta: map[string]string{"key": "color"}})
	put(t, s, Artefact{ID: "color-bob", Text: "red", Subject: "bob", Meta: map[string]string{"key": "color"}})
	put(t, s, Artefact{ID: "base", Text: "a base of something"})
	require.Empty(t, count(), "control: nothing is wrong yet")

	put(t, s, Artefact{ID: "two", Text: fmt.Sprintf(long, "sunny")})
	put(t, s, Artefact{ID: "three", Text: "The quick, brown FOX" + fmt.Sprintf(long, "sunny")[len("the quick brown fox"):]})
	put(t, s, Artefact{ID: "color-new", Text: "green", Subject: "ada", Meta: map[string]string{"key": "color"}})
	put(t, s, Artefact{ID: "brief", Text: "soon over", TTL: time.Hour})
	put(t, s, Artefact{ID: "replaced", Text: "old rule"})
	put(t, s, Artefact{ID: "rule", Text: "new rule", Supersedes: []string{"replaced"}})
	put(t, s, Artefact{ID: "child", Text: "made from a base", DerivedFrom: []Ref{{ID: "base"}}})
	require.NoError(t, s.Delete(ctx, "base"))
	now.add(2 * time.Hour)
	require.Equal(t, map[string]int{health.Duplicate: 1, health.NearDuplicate: 1, health.Contradiction: 1, health.Expired: 1, health.Superseded: 1, health.Orphan: 1}, count())

	_, err := s.Assemble(ctx, Query{Text: "rule", Budget: 150})
	require.NoError(t, err)
	require.Positive(t, count()[health.NeverServed])
	require.Less(t, count()[health.NeverServed], 9)

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Health(ended, health.Options{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Health(ctx, health.Options{Examples: health.MaxExamples + 1})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = db.Scope("acme", Gated()).Health(ctx, health.Options{})
	require.ErrorIs(t, err, ErrGated)
}
