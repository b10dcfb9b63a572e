package genkitsession

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
	"github.com/firebase/genkit/go/core/x/session"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

type state struct {
	Name  string         `json:"name,omitempty"`
	Count int            `json:"count"`
	List  []string       `json:"list,omitempty"`
	More  map[string]any `json:"more,omitempty"`
}

func open(t testing.TB) *ctxpage.DB {
	t.Helper()
	db, err := ctxpage.Open(filepath.Join(t.TempDir(), "agent.ctx"), ctxpage.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		problems, err := db.Admin().Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.NoError(t, db.Close())
	})
	return db
}

// compare runs 3,000 random operations on a store and on Genkit's own, and returns the first difference.
func compare(s session.Store[state], seed uint64) error {
	own, r := session.NewInMemoryStore[state](), rand.New(rand.NewPCG(seed, 1))
	ids := []string{"a", "b", "", "a/b", "ü", "a%2Fb", "x\ny\x00", strings.Repeat("long", 200), strings.Repeat("long", 200) + "!", "../a", "\xff\xfe"}
	for n := range 3000 {
		id := ids[r.IntN(len(ids))]
		switch r.IntN(5) {
		case 0, 1:
			data := &session.Data[state]{ID: id, State: randomState(r)}
			if r.IntN(10) == 0 {
				data.ID = "another" // it is kept as it is
			}
			if err := errors.Join(s.Save(ctx, id, data), own.Save(ctx, id, data)); err != nil {
				return fmt.Errorf("operation %d: %w", n, err)
			}
		case 2:
			if r.IntN(10) == 0 {
				if err := errors.Join(s.Save(ctx, id, nil), own.Save(ctx, id, nil)); err != nil {
					return fmt.Errorf("operation %d: %w", n, err)
				}
			}
		default:
			got, err := s.Get(ctx, id)
			want, err2 := own.Get(ctx, id)
			if err := errors.Join(err, err2); err != nil {
				return fmt.Errorf("operation %d: %w", n, err)
			}
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) && !(got != nil && want != nil && fmt.Sprintf("%+v", *got) == fmt.Sprintf("%+v", *want)) {
				return fmt.Errorf("operation %d: session %q is %+v, expected %+v", n, id, got, want)
			}
		}
	}
	return nil
}

func randomState(r *rand.Rand) state {
	texts := []string{"", "coffee", "</system>", "\x00\u202e", strings.Repeat("line\n", 500), "é\r\n"}
	s := state{Name: texts[r.IntN(len(texts))], Count: r.IntN(1000)}
	for range r.IntN(3) {
		s.List = append(s.List, texts[r.IntN(len(texts))])
	}
	if r.IntN(3) == 0 {
		s.More = map[string]any{texts[r.IntN(len(texts))]: []any{1.5, nil, true, "x"}}
	}
	return s
}

func TestSameAsGenkitsStore(t *testing.T) {
	db := open(t)
	for seed := range uint64(2) {
		require.NoError(t, compare(New[state](db.Scope(fmt.Sprintf("s%d", seed))), seed))
	}
	require.ErrorContains(t, compare(forgets{New[state](db.Scope("broken"))}, 0), "expected", "a store that forgets a field is seen")
}

// forgets is a broken store.
type forgets struct{ *Store[state] }

func (f forgets) Save(ctx context.Context, id string, data *session.Data[state]) error {
	if data != nil {
		data = &session.Data[state]{ID: data.ID, State: state{Name: data.State.Name, Count: data.State.Count, More: data.State.More}}
	}
	return f.Store.Save(ctx, id, data)
}

// The session functions of Genkit, which use the store.
func TestSessions(t *testing.T) {
	s := New[state](open(t).Scope("acme/sessions"))
	one, err := session.New(ctx, session.WithID[state]("chat"), session.WithInitialState(state{Name: "ann"}), session.WithStore[state](s))
	require.NoError(t, err)
	require.NoError(t, one.UpdateState(ctx, state{Name: "ann", Count: 2}))
	again, err := session.Load(ctx, session.Store[state](s), "chat")
	require.NoError(t, err)
	require.Equal(t, state{Name: "ann", Count: 2}, again.State())
	require.Equal(t, "chat", again.ID())
	_, err = session.Load(ctx, session.Store[state](s), "none")
	var missing *session.NotFoundError
	require.ErrorAs(t, err, &missing)
	got, err := s.Get(ctx, "none")
	require.NoError(t, err)
	require.Nil(t, got)
}

func TestConcurrentSaves(t *testing.T) {
	s := New[state](open(t).Scope("s"))
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			for i := range 10 {
				if err := s.Save(ctx, fmt.Sprint(n%4), &session.Data[state]{State: state{Count: i}}); err != nil {
					t.Error(err)
				}
				if _, err := s.Get(ctx, fmt.Sprint((n+1)%4)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	for n := range 4 {
		got, err := s.Get(ctx, fmt.Sprint(n))
		require.NoError(t, err)
		require.Equal(t, 9, got.State.Count)
	}
}

// Sessions are versions of a page, of the scope itself, and a gated scope refuses them.
func TestPages(t *testing.T) {
	db := open(t)
	scope := db.Scope("acme")
	s := New[state](scope)
	for n := range 3 {
		require.NoError(t, s.Save(ctx, "a", &session.Data[state]{ID: "a", State: state{Count: n}}))
	}
	versions := 0
	for v, err := range scope.Versions(ctx, "session/a") {
		require.NoError(t, err)
		require.Equal(t, store.KindTool, v.Kind)
		versions++
	}
	require.Equal(t, 3, versions)
	got, err := New[state](db.Scope("acme/below")).Get(ctx, "a")
	require.NoError(t, err)
	require.Nil(t, got, "a session of the scope above")

	require.ErrorIs(t, New[state](db.Scope("acme", ctxpage.Gated())).Save(ctx, "a", &session.Data[state]{}), store.ErrGated)
	_, err = scope.Put(ctx, ctxpage.Artefact{ID: "session/b", Text: "a note"})
	require.NoError(t, err)
	_, err = s.Get(ctx, "b")
	require.ErrorContains(t, err, "another program wrote it")
	_, err = New[[]int](scope).Get(ctx, "a")
	require.ErrorContains(t, err, "has a state that is no []int")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, s.Save(cancelled, "a", &session.Data[state]{State: state{Count: 9}}), context.Canceled)
}
