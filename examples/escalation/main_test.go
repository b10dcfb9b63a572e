package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
)

func TestMain(m *testing.M) {
	dbtest.CollectLess()
	os.Exit(dbtest.InMemory(m.Run))
}

// The six failures by name. Each has plain retrieval over the same store as its control: there it must happen.
func TestEscalation(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r, err := run(context.Background(), t.TempDir(), seed)
			require.NoError(t, err)
			t.Run("stale artefact loaded", func(t *testing.T) { stale(t, r) })
			t.Run("unvalidated note taken as fact", func(t *testing.T) { note(t, r) })
			t.Run("token budget overflow", func(t *testing.T) { overflow(t, r) })
			t.Run("hallucination persisted", func(t *testing.T) { persisted(t, r) })
			t.Run("no audit trail", func(t *testing.T) { trail(t, r) })
			t.Run("scope bleeding", func(t *testing.T) { bleeding(t, r) })
		})
	}
}

func stale(t *testing.T, r *report) {
	require.True(t, r.Plain.StaleServed)
	require.Equal(t, 200, r.Plain.ServedLimit)

	require.Equal(t, 847, r.Artefacts)
	require.Equal(t, 312, r.Expired)
	require.Equal(t, 1, r.DirtyRefetch)
	require.Equal(t, 400, r.ServedLimit)
	require.False(t, r.old.in)
	require.Equal(t, "black", r.old.tag)
	require.Contains(t, strings.Join(r.old.steps, "\n"), "expired")
	require.True(t, r.article.in)
	require.Contains(t, strings.Join(r.article.steps, "\n"), "fetched anew")
}

func note(t *testing.T, r *report) {
	require.True(t, r.Plain.NoteServed)

	require.False(t, r.note.in)
	require.Equal(t, "black", r.note.tag)
	require.Contains(t, strings.Join(r.note.steps, "\n"), "below the provenance floor")
	require.Greater(t, r.BelowFloor, 1)
	require.Greater(t, r.Black, r.Expired+r.BelowFloor, "something was superseded")
	require.Equal(t, 20, r.Scored)
	require.Positive(t, r.EmbedderCalls)
	require.LessOrEqual(t, r.EmbedderCalls, 20)
}

func overflow(t *testing.T, r *report) {
	require.Greater(t, r.Plain.Wanted, r.Budget)
	require.Positive(t, r.Plain.Dropped)
	require.True(t, r.Plain.newestWanted)
	require.True(t, r.Plain.newestDropped)
	require.InDelta(t, float64(r.Plain.Wanted)*15/1e6, r.Plain.USDPerCall, 1e-9)
	require.InDelta(t, 3000*r.Plain.USDPerCall, r.Plain.USDPerMonth, 1e-6)

	require.Equal(t, 40_000, r.Budget)
	require.InDelta(t, 31_200, r.Tokens, 500)
	require.Equal(t, 1, r.Tier)
	require.Equal(t, 21, r.served, "what was kept and the instructions: nothing was cut")
	require.True(t, r.newest)
}

func persisted(t *testing.T, r *report) {
	require.InDelta(t, .88, r.CommittedAt, 1e-9)
	require.InDelta(t, .6, r.HeldAt, 1e-9)
	require.Equal(t, "confidence below the gate", r.heldWhy)
	require.Zero(t, r.heldSeen)
	require.Positive(t, r.committedSeen, "control: what was committed is found the same way")
}

func trail(t *testing.T, r *report) {
	require.True(t, r.replayed)
	for _, w := range []tagged{r.old, r.note, r.article} {
		require.NotEmpty(t, w.steps)
	}
	require.Len(t, r.trace, 26)
}

func bleeding(t *testing.T, r *report) {
	require.Positive(t, r.Plain.leaked)

	require.Zero(t, r.Leaked)
	require.Positive(t, r.siblingSees, "control: the sibling itself finds its note the same way")
}

// The JSON is what others read: its names are pinned.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, play(context.Background(), 7, true, &out))
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	for _, name := range strings.Fields("artefacts expired below_floor black scored dirty_refetched embedder_calls tokens budget tier committed_at held_at served_limit leaked") {
		require.IsType(t, 0.0, got[name], name)
	}
	plain, ok := got["plain_topk"].(map[string]any)
	require.True(t, ok)
	for _, name := range strings.Fields("served_limit note_served stale_served tokens_wanted dropped_by_truncation usd_per_call usd_per_month") {
		require.Contains(t, plain, name)
	}
}

// The numbers are counted, not printed: other data gives other ones.
func TestCounted(t *testing.T) {
	ctx := context.Background()
	d, err := open(t.TempDir(), 3)
	require.NoError(t, err)
	defer d.db.Close()
	for i := range d.entries {
		e := &d.entries[i]
		if e.art.ID == "chat-e000" { // expires at this very moment: one microsecond more, and it lives
			e.art.ExpiresAt = e.art.ExpiresAt.Add(time.Microsecond)
		}
	}
	d.entries = append(d.entries[:10:10], d.entries[11:]...)
	require.NoError(t, d.live(ctx))
	var r report
	_, err = d.assemble(ctx, d.db.Scope(agent), &r)
	require.NoError(t, err)
	require.Equal(t, 311, r.Expired)
	st, err := d.db.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 846, st.Artefacts)
	require.Equal(t, st.Artefacts, st.Pages, "every artefact is one page, so counts of pages are counts of artefacts")
}

// The same seed gives the same bytes wherever the story is played: the directory must not show in the numbers.
func TestSameSeedSameBytes(t *testing.T) {
	var first bytes.Buffer
	require.NoError(t, play(context.Background(), 60, true, &first))
	for range 4 {
		var again bytes.Buffer
		require.NoError(t, play(context.Background(), 60, true, &again))
		require.Equal(t, first.String(), again.String())
	}
}

// Plain retrieval believes the old policy for every seed: no customer's name may bring the hearsay before it.
func TestOldPolicyComesBeforeHearsay(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 118} { // 118: a name that shares a dimension with a word of the note
		s := tell(seed)
		near, question := map[string]float64{}, embed(s.question)
		for _, e := range s.entries {
			if e.art.ID == idOldPolicy || e.art.ID == idNote {
				near[e.art.ID] = cosine(question, embed(e.text+e.art.Text))
			}
		}
		require.Greater(t, near[idOldPolicy], near[idNote]+.01, "seed %d", seed)
	}
}
