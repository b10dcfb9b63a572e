package ctxpage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
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
	var keys []store.PageKey
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
		q := store.ScanQuery{What: store.ScanMembers, Scopes: store.Scopes{"acme"}, Group: "g"}
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
