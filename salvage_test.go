package ctxpage

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/internal/dbtest"
)

// editRow changes a row of a closed database's file.
func editRow(t *testing.T, path string, bucket, key []byte, change func(v []byte) []byte) {
	t.Helper()
	raw, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		v := slices.Clone(b.Get(key))
		require.NotEmpty(t, v)
		return b.Put(key, change(v))
	}))
	require.NoError(t, raw.Close())
}

func flipFirst(v []byte) []byte { v[0] ^= 1; return v }

// TestDamagedContent: of a database whose index is all tail, a damaged text costs that page and nothing else. Who reads
// it is told, a question and an assembly name it, the check finds it, and so does the next open.
func TestDamagedContent(t *testing.T) {
	ctx := context.Background()
	path := closedDatabase(t)
	editRow(t, path, bucketContent, textRowKey(3), flipFirst) // of page-2
	for _, opts := range []Options{{ReadOnly: true}, {}, {}} {
		db := openTest(t, path, opts)
		s := db.Scope("acme")
		for n := range 5 {
			v, err := s.Get(ctx, fmt.Sprint("page-", n))
			if n == 2 {
				var damage *CorruptError
				require.ErrorAs(t, err, &damage)
				require.ErrorContains(t, err, "content of page 3")
				continue
			}
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint("text ", n), v.Text)
		}
		hits, err := s.Search(ctx, "text 4", 10)
		require.NoError(t, err)
		require.Len(t, hits, 4)
		a, err := s.Assemble(ctx, Query{Text: "text 4", Budget: 2000})
		require.NoError(t, err)
		require.Len(t, a.Blocks, 4)
		left := slices.IndexFunc(a.Left, func(l LeftOut) bool { return l.Ref.ID == "page-2" })
		require.GreaterOrEqual(t, left, 0, "%+v", a.Left)
		require.Equal(t, reasonDamaged, a.Left[left].Reason)
		problems, err := db.Check(ctx, nil)
		require.NoError(t, err)
		require.Len(t, problems, 1, "%+v", problems)
		require.Equal(t, "content 3", problems[0].Where)
		if !opts.ReadOnly {
			_, err = s.Put(ctx, Artefact{ID: "later", Text: "written beside damage"})
			require.NoError(t, err)
			require.NoError(t, s.Delete(ctx, "later"))
		}
		require.NoError(t, db.Close())
	}
	db := openTest(t, path, Options{})
	defer db.Close()
	_, err := db.Scope("acme").Put(ctx, Artefact{ID: "page-2", Text: "text 2"})
	require.NoError(t, err, "putting it again heals it")
	v, err := db.Scope("acme").Get(ctx, "page-2")
	require.NoError(t, err)
	require.Equal(t, "text 2", v.Text)
}

// TestUnreadIsNamed: a damaged page that nothing proposes, for its words are not known, is named all the same.
func TestUnreadIsNamed(t *testing.T) {
	ctx := context.Background()
	path := dbtest.MemoryPath(t)
	db := openTest(t, path, Options{})
	for n := range 300 {
		_, err := db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprint("needle number ", n)})
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())
	editRow(t, path, bucketContent, textRowKey(1), flipFirst)
	db = openTest(t, path, Options{})
	defer db.Close()
	a, err := db.Scope("acme").Assemble(ctx, Query{Text: "needle", Budget: 500, TopK: 5})
	require.NoError(t, err)
	require.Contains(t, a.Left, LeftOut{Ref: Ref{Scope: "acme", ID: "page-0", Page: 1, Version: 1}, Reason: reasonDamaged})
	_, err = db.Scope("acme/other").Assemble(ctx, Query{Text: "needle", Budget: 500, TopK: 5})
	require.NoError(t, err)
	b, err := db.Scope("else").Assemble(ctx, Query{Text: "needle", Budget: 500, TopK: 5})
	require.NoError(t, err)
	require.Empty(t, b.Left, "another scope hears nothing of it")
}

// TestDamagedTree: a zeroed page of bbolt below which only texts lie costs those texts, not the database.
func TestDamagedTree(t *testing.T) {
	ctx := context.Background()
	path := dbtest.MemoryPath(t)
	makeDamageBase(t, path)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	raw, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	var leaf uint64
	require.NoError(t, raw.View(func(tx *bbolt.Tx) error {
		leaf = uint64(tx.Bucket(bucketContent).Root())
		return nil
	}))
	require.NoError(t, raw.Close())
	clear(good[leaf*4096 : leaf*4096+4096])
	require.NoError(t, os.WriteFile(path, good, 0o600))
	db := openTest(t, path, Options{ReadOnly: true})
	defer db.Close()
	list, _, err := db.Scope("acme").List(ctx, "", "", 100)
	require.NoError(t, err)
	require.NotEmpty(t, list)
	_, err = db.Scope("acme/bulk").Get(ctx, "bulk-8")
	require.ErrorIs(t, err, ErrCorrupt)
}

// hold holds a draft for review and gives the id of its batch.
func hold(t *testing.T, s *Scope, id, text string) string {
	t.Helper()
	ctx := context.Background()
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: id, Text: text}))
	var held *HeldError
	require.ErrorAs(t, tx.Commit(ctx, Verdict{}), &held)
	return held.Batch
}

// TestHeldRows: the count of what waits for review follows holds and decisions, before and after it was first asked for,
// across checkpoints and opens; lists come in pages; a damaged row costs itself.
func TestHeldRows(t *testing.T) {
	ctx := context.Background()
	path := dbtest.MemoryPath(t)
	db := openTest(t, path, Options{})
	count := func(db *DB) int {
		st, err := db.Stats(ctx)
		require.NoError(t, err)
		list, _, err := db.Review().List(ctx, "", false, "", 100)
		require.NoError(t, err)
		require.Len(t, list, st.Held)
		return st.Held
	}
	var ids []string
	for n := range 12 {
		ids = append(ids, hold(t, db.Scope("acme", WithActor("writer")), fmt.Sprint("draft-", n), fmt.Sprint("text ", n)))
		if n%5 == 0 {
			_, err := db.Checkpoint(ctx)
			require.NoError(t, err)
		}
		if n > 5 {
			require.Equal(t, n+1, count(db))
		}
	}
	for n, id := range ids[:4] {
		_, err := db.Review().Approve(ctx, id, Approval{By: "ann"})
		require.NoError(t, err)
		_, err = db.Review().Approve(ctx, id, Approval{By: "ann"})
		require.NoError(t, err)
		require.Equal(t, 11-n, count(db))
	}
	_, err := db.Review().Reject(ctx, ids[4], "ann", "")
	require.NoError(t, err)
	require.Equal(t, 7, count(db))
	slices.Sort(ids[5:]) // the list is by id: oldest first, within a millisecond in any order
	for range 2 {
		var got []string
		for cursor := ""; ; {
			page, next, err := db.Review().List(ctx, "acme", false, cursor, 3)
			require.NoError(t, err)
			for _, h := range page {
				got = append(got, h.ID)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		slices.Sort(ids[5:])
		require.Equal(t, ids[5:], got)
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{})
		require.Equal(t, 7, count(db))
	}
	require.NoError(t, db.Close())
	_, _, err = db.Review().List(ctx, "", false, "", 3)
	require.ErrorIs(t, err, ErrClosed)

	key := ulid.MustParse(ids[7])
	editRow(t, path, bucketHeld, key[:], flipFirst)
	db = openTest(t, path, Options{})
	defer db.Close()
	list, _, err := db.Review().List(ctx, "", false, "", 100)
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, ids[7])
	require.Len(t, list, 6)
	_, err = db.Review().Show(ctx, ids[7])
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = db.Review().Approve(ctx, ids[8], Approval{By: "ann"})
	require.NoError(t, err)
	st, err := db.Stats(ctx)
	require.ErrorIs(t, err, ErrCorrupt)
	require.Equal(t, 5, st.Held)
	_, _, err = db.Review().List(ctx, "", false, "nonsense", 3)
	require.ErrorIs(t, err, ErrInvalid)
}
