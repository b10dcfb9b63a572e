//go:build rehome

package ctxpage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ctxpage/ctxpage/internal/dbtest"
)

// Who knows the members of a group as of an LSN and is told only what came after them knows the same as who is told all,
// whatever was put, put anew, moved, superseded or deleted in between.
func TestScanMembersSince(t *testing.T) {
	ctx := context.Background()
	db, err := Open(dbtest.MemoryPath(t), Options{noSync: true})
	require.NoError(t, err)
	defer db.Close()
	s := db.Scope("acme")
	rng := rand.New(rand.NewPCG(3, 4))
	var keys []PageKey
	known, short, seq := uint64(0), 0, int64(1000)
	for range 400 {
		err := s.Update(ctx, func(tx *Txn) error {
			for range 1 + rng.IntN(3) {
				seq++
				a := Artefact{ID: fmt.Sprint("a-", seq), Text: strings.Repeat("words of a page ", 1+rng.IntN(2)*rng.IntN(600)), Group: "g", Seq: seq}
				switch rng.IntN(12) {
				case 0:
					a.Seq -= int64(rng.IntN(5))
				case 1:
					a.ID = fmt.Sprint("a-", 1000+rng.Int64N(seq-999))
				case 2:
					a.Group = "other"
				case 3:
					a.Supersedes = []string{fmt.Sprint("a-", seq-rng.Int64N(3)-1)}
				case 4:
					if err := tx.Delete(ctx, fmt.Sprint("a-", seq-rng.Int64N(3)-1)); err == nil {
						continue
					}
				}
				if err := tx.Put(ctx, a); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid) // of an id that another of the transaction has, or one that is not there
			continue
		}
		q := ScanQuery{What: ScanMembers, Scopes: Scopes{"acme"}, Group: "g"}
		all, err := db.store.Scan(ctx, q)
		require.NoError(t, err)
		q.Known = known
		since, err := db.store.Scan(ctx, q)
		require.NoError(t, err)
		if known = since.LSN; since.Same {
			short++
			keys = append(keys, since.Keys...)
		} else {
			keys = since.Keys
		}
		require.Equal(t, all.Keys, keys)
	}
	require.Greater(t, short, 40)
	require.Less(t, short, 360)
}

// A listing gives the same whenever it is asked for, and pages of it are the whole.
func TestListing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := filestore.newCatalogue()
		c.addScope(1, "a")
		c.addScope(2, "b")
		ids := map[uint32][]string{}
		for num := uint64(1); num < 60; num++ {
			scope := uint32(rapid.IntRange(1, 2).Draw(t, "scope"))
			id := rapid.StringMatching(`[ab]{1,5}`).Draw(t, "id")
			if slices.Contains(ids[scope], id) {
				continue
			}
			c.arts = append(c.arts, filestore.artCol{pages: 1})
			c.addKey(uint64(len(c.arts)), scope, id)
			ids[scope] = append(ids[scope], id)
			if rapid.IntRange(0, 3).Draw(t, "ask") == 0 {
				checkListing(t, c, scope, ids[scope], rapid.StringMatching(`[ab]{0,2}`).Draw(t, "prefix"), rapid.IntRange(1, 5).Draw(t, "limit"))
			}
		}
	})
}

func checkListing(t *rapid.T, c *filestore.catalogue, scope uint32, ids []string, prefix string, limit int) {
	want := slices.Sorted(slices.Values(ids))
	want = slices.DeleteFunc(want, func(id string) bool { return !strings.HasPrefix(id, prefix) })
	got, after := []string{}, ""
	for {
		page := c.list(scope, prefix, after, false, limit)
		for _, num := range page {
			got = append(got, c.id(c.art(num)))
		}
		if len(page) < limit {
			break
		}
		after = got[len(got)-1]
	}
	require.Equal(t, want, got)
}
