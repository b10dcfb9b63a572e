package ctxpage_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// Each finding counts what it says, and nothing of a scope that is in order.
func TestHealth(t *testing.T) {
	t.Parallel()
	now := &clock{t: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	db := open(t, Options{Clock: now.now})
	s := db.Scope("acme")
	count := func() map[string]int {
		r, err := s.Health(ctx, ops.HealthOptions{})
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
	require.Equal(t, map[string]int{"exact duplicate": 1, "near duplicate": 1, "contradiction": 1, "expired": 1, "superseded": 1, "orphan": 1}, count())

	_, err := s.Assemble(ctx, Query{Text: "rule", Budget: 150})
	require.NoError(t, err)
	require.Positive(t, count()["never served"])
	require.Less(t, count()["never served"], 9)

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Health(ended, ops.HealthOptions{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Health(ctx, ops.HealthOptions{Examples: 100 + 1})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = db.Scope("acme", Gated()).Health(ctx, ops.HealthOptions{})
	require.ErrorIs(t, err, ErrGated)
}

// Only a whole artefact repeats another: a page that two documents share makes neither worth deleting.
func TestHealthOfDocuments(t *testing.T) {
	t.Parallel()
	db := open(t, Options{PageTokens: 40})
	s := db.Scope("acme")
	para := func(about string) string {
		return "This paragraph of the handbook is about " + about + " and says at some length what everybody who works here should know of it before the first day.\n\n"
	}
	put(t, s, Artefact{ID: "a", Text: para("the licence") + para("refunds") + para("vouchers")})
	put(t, s, Artefact{ID: "b", Text: para("the licence") + para("holidays") + para("sickness")})
	v, err := s.Get(ctx, "a")
	require.NoError(t, err)
	require.Greater(t, len(v.Pages), 1, "control: the documents have several pages, of which they share the first")
	find := func() map[string]ops.Finding {
		r, err := s.Health(ctx, ops.HealthOptions{})
		require.NoError(t, err)
		out := map[string]ops.Finding{}
		for _, f := range r.Findings {
			if f.Count > 0 {
				out[f.What] = f
			}
		}
		return out
	}
	require.Empty(t, find())
	put(t, s, Artefact{ID: "a again", Text: para("the licence") + para("refunds") + para("vouchers")})
	put(t, s, Artefact{ID: "a nearly", Text: para("the licence") + strings.Replace(para("refunds"), "handbook", "Handbook", 1) + para("vouchers")})
	got := find()
	require.Len(t, got, 2)
	require.Equal(t, []ops.Example{{ID: "a again", With: "a"}}, got["exact duplicate"].Examples)
	require.Equal(t, []ops.Example{{ID: "a nearly", With: "a"}}, got["near duplicate"].Examples)
	require.Equal(t, 1, got["exact duplicate"].Count, "one artefact, however many pages it has")
}

// What people say twice in a conversation is no duplicate, and its turns are not advised to be deleted one by one.
func TestHealthOfConversations(t *testing.T) {
	t.Parallel()
	now := &clock{t: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	db := open(t, Options{Clock: now.now})
	s := db.Scope("acme")
	for range 3 {
		_, err := s.Session("chat").Append(ctx, Turn{Role: "user", Text: "Thank you very much, that is all I wanted to know for today."})
		require.NoError(t, err)
	}
	put(t, s, Artefact{ID: "fact", Text: "something else"})
	now.add(time.Hour)
	_, err := s.Assemble(ctx, Query{Text: "nothing", Budget: 60, Kinds: []Kind{KindSystem}})
	require.NoError(t, err)
	r, err := s.Health(ctx, ops.HealthOptions{})
	require.NoError(t, err)
	for _, f := range r.Findings {
		if f.What == "never served" {
			require.Equal(t, []ops.Example{{ID: "fact"}}, f.Examples, "control: what is no turn is found")
		} else {
			require.Zero(t, f.Count, f.What)
		}
	}
}

// loads counts the calls that read pages.
type loads struct {
	store.Store
	n int
}

func (s *loads) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	s.n++
	return s.Store.Load(ctx, scopes, keys, want)
}

// Beside a busy process each call takes its time, so a report makes at most a few for each artefact, however many are alike.
func TestHealthMakesFewCalls(t *testing.T) {
	t.Parallel()
	files, err := filestore.Open(filestore.Options{Path: dbtest.MemoryPath(t), NoSync: true, State: StateKinds()})
	require.NoError(t, err)
	st := &loads{Store: files}
	db, err := Open("files", Options{Store: st, NoWatch: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	s := db.Scope("acme")
	text := strings.Repeat("the quick brown fox jumps over the lazy dog near the river bank at noon ", 5)
	const n = 60
	for i := range n {
		put(t, s, Artefact{ID: fmt.Sprint("same-", i), Text: strings.Replace(text, "dog", "dog"+strings.Repeat("!", i+1), 1)})
	}
	st.n = 0
	r, err := s.Health(ctx, ops.HealthOptions{})
	require.NoError(t, err)
	for _, f := range r.Findings {
		if f.What == "near duplicate" {
			require.Equal(t, n-1, f.Count)
			require.Len(t, f.Examples, 5)
		}
	}
	require.LessOrEqual(t, st.n, 2*n+3*5)
}
