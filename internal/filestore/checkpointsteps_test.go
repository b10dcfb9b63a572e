package filestore_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/ctxpage/ctxpage"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/stretchr/testify/require"
)

// TestKilledBetweenSteps: of a database whose checkpoint was killed between two steps of its index nothing is lost and
// nothing counted twice.
func TestKilledBetweenSteps(t *testing.T) {
	t.Parallel()
	live := dbtest.MemoryPath(t)
	var copies []string
	db := openTest(t, live, Options{}, filestore.Options{Hook: func(step string) error {
		if step != "after a step" || len(copies) == 3 {
			return nil
		}
		copies = append(copies, dbtest.MemoryPath(t))
		return dbtest.Copy(live, copies[len(copies)-1])
	}})
	var b strings.Builder
	const words = 200_000 // three steps
	for i := range words {
		fmt.Fprintf(&b, "w%x ", i)
	}
	must(db.Scope("acme").Put(ctx, Artefact{ID: "long", Text: b.String()}))(t)
	found := func(db *DB) (all []string) {
		for _, i := range []int{1, words / 3, words / 2, words - 1} {
			f := must(db.Scope("acme").Search(ctx, fmt.Sprintf("w%x", i), 10))(t)
			require.NotEmpty(t, f.Hits)
			for _, h := range f.Hits { // the page and its neighbours
				all = append(all, fmt.Sprint(h.Num, h.Score))
			}
		}
		return all
	}
	want := found(db)
	must(db.Admin().Checkpoint(ctx))(t)
	require.Equal(t, want, found(db))
	require.NoError(t, db.Close())
	require.Len(t, copies, 3)
	if dbtest.Race { // which writes each of them ten times slower: the one in the middle
		copies = copies[1:2]
	}
	for _, path := range copies {
		db := openTest(t, path, Options{})
		require.Equal(t, want, found(db))
		must(db.Admin().Checkpoint(ctx))(t)
		require.Equal(t, want, found(db))
		require.NoError(t, db.Close())
	}
}
