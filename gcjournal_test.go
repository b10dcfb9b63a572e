package ctxpage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// openJournals opens a database whose store knows of state rows what kinds say.
func openJournals(t *testing.T, kinds []store.StateKind) (*DB, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	st, err := filestore.Open(filestore.Options{Path: path, NoSync: true, State: kinds, Now: newClock().now})
	require.NoError(t, err)
	t.Cleanup(func() { st.Close() })
	db, err := Open(path, Options{Store: st, Clock: newClock().now})
	require.NoError(t, err)
	return db, path
}

// journalsAfter runs rounds of the same work on a live set of fixed size, each with gc, and gives the size of the file
// after each round. Premises and keywords are long, so that a few hundred of them are told from the file's spare room.
func journalsAfter(t *testing.T, db *DB, path string, rounds int) (sizes []int64) {
	t.Helper()
	s := db.Scope("acme")
	chat := s.Session("chat")
	if _, err := chat.Append(ctx, Turn{Role: "user", Text: "harbour"}, Turn{Role: "assistant", Text: "a quiet one"}); err != nil {
		require.NoError(t, err)
	}
	for round := range rounds {
		for i := range 50 {
			long := strings.Repeat(fmt.Sprintf("reader%dx%d ", round, i), 300)
			_, err := s.Directives().Step(ctx, "set premise "+long)
			if err == nil && round+i > 0 {
				_, err = s.Directives().Step(ctx, "change premise to "+long)
			}
			require.NoError(t, err)
			_, err = chat.Pass(ctx, session.PassQuery{Keywords: strings.Fields(long)})
			require.NoError(t, err)
		}
		_, err := db.Admin().GC(ctx, GCOptions{KeepFor: -1})
		require.NoError(t, err)
		_, err = db.Admin().Checkpoint(ctx)
		require.NoError(t, err)
		at, err := os.Stat(path)
		require.NoError(t, err)
		sizes = append(sizes, at.Size())
	}
	return sizes
}

// TestGCBoundsJournals: the records of passes and of directives that newer ones replaced go with gc, so the file stays
// flat; without that rule it grows.
func TestGCBoundsJournals(t *testing.T) {
	t.Parallel()
	const rounds = 12 // the file grows by about a megabyte at once, and when it first does depends on when rows are written
	db, path := openJournals(t, StateKinds())
	sizes := journalsAfter(t, db, path, rounds)
	require.LessOrEqual(t, sizes[rounds-1], 3*sizes[0], "%v", sizes)

	s := db.Scope("acme")
	passes, err := s.Session("chat").Passes(ctx)
	require.NoError(t, err)
	require.Len(t, passes, 32)
	require.EqualValues(t, 50*rounds, passes[31].Number)
	list, err := listing.Collect(s.Directives().Entries(ctx, AtMost(1000, "", nil)))
	require.NoError(t, err)
	require.Len(t, list, 32)
	newest, oldest := list[0].Version, list[31].Version
	require.Equal(t, newest-31, oldest)
	require.NoError(t, s.Directives().Restore(ctx, oldest))
	require.ErrorIs(t, s.Directives().Restore(ctx, oldest-1), ErrGone)
	require.ErrorIs(t, s.Directives().Restore(ctx, newest+9), ErrNotFound)
	for range 31 { // as far back as verdicts are kept
		_, err = s.Session("chat").Undo(ctx, 0)
		require.NoError(t, err)
	}
	_, err = s.Session("chat").Undo(ctx, 1)
	require.ErrorIs(t, err, ErrGone)
	problems, err := db.Admin().Check(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, problems)

	unbounded := StateKinds()
	for i := range unbounded {
		unbounded[i].Journal = nil
	}
	db, path = openJournals(t, unbounded)
	sizes = journalsAfter(t, db, path, rounds)
	require.Greater(t, sizes[rounds-1], 6*sizes[0], "the control: %v", sizes)
}

// TestGCKeepsJournals: records stay for as long as KeepFor says, as many as KeepVersions says, and what an undo comes back
// to stays whatever its age.
func TestGCKeepsJournals(t *testing.T) {
	t.Parallel()
	clock := newClock()
	db := open(t, Options{Clock: clock.now})
	s := db.Scope("acme")
	chat := s.Session("chat")
	_, err := chat.Append(ctx, Turn{Role: "user", Text: "harbour"})
	require.NoError(t, err)
	for i := range 40 {
		_, err := chat.Pass(ctx, session.PassQuery{Keywords: []string{fmt.Sprint("word", i)}})
		require.NoError(t, err)
		_, err = s.Directives().Step(ctx, fmt.Sprint("use tool", i))
		require.NoError(t, err)
	}
	dropped := func(o GCOptions) int {
		t.Helper()
		rep, err := db.Admin().GC(ctx, o)
		require.NoError(t, err)
		return rep.Journal
	}
	require.Zero(t, dropped(GCOptions{}), "younger than 30 days")
	require.Zero(t, dropped(GCOptions{KeepFor: -1, KeepVersions: 40}))
	require.Zero(t, dropped(GCOptions{KeepFor: -1, Scope: "acme"}), "a run over all scopes drops them")
	require.Equal(t, 16, dropped(GCOptions{KeepFor: -1, DryRun: true}))
	require.Equal(t, 16, dropped(GCOptions{KeepFor: -1}))
	require.Zero(t, dropped(GCOptions{KeepFor: -1}))
	in, err := chat.Inspect(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 40, in.Force.Number)
}
