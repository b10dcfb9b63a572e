package filestore_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// The golden databases of many pages have what those of a few lack: segments of the index, the snapshot of the columns, vectors, dense and
// brief leaves, bodies that were pruned, an erase, policies and quotas. The second one is encrypted.
var goldenMany = map[string][]byte{"many": nil, "sealed": bytes.Repeat([]byte{7}, 32)}

const manyScopes, manyPages = 11, 100 // pages in each

func manyScope(i int) string { return fmt.Sprintf("acme/desk-%02d", i) }

// manyWord is the word that no other page has.
func manyWord(scope, page int) string {
	const syllables = "bacedifoguhajekilomunaperisotu"
	word := ""
	for n := scope*manyPages + page + 1000; n > 0; n /= 15 {
		word += syllables[n%15*2 : n%15*2+2]
	}
	return word
}

func manyText(scope, page int) string {
	return fmt.Sprintf("The %s desk keeps record %d: refunds above $%d need %s.", manyWord(scope, page), page, 100+scope, []string{"a receipt", "two signatures", "no approval"}[page%3])
}

// sums is an embedder that adds bytes up.
type sums struct{}

func (sums) Model() string { return "sums-8" }

func (sums) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		v := []float32{1, 0, 0, 0, 0, 0, 0, 0}
		for j := range len(text) {
			v[j%8] += float32(text[j])
		}
		out[i] = v
	}
	return out, nil
}

func writeMany(t *testing.T, path string, key []byte) {
	t.Helper()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	var seed [32]byte
	db := openTest(t, path, Options{Key: key, Embedder: sums{}, Clock: func() time.Time { now = now.Add(time.Second); return now }, Rand: rand.NewChaCha8(seed)})
	for i := range manyScopes {
		s := db.Scope(manyScope(i), WithActor("agent"))
		require.NoError(t, s.Update(ctx, func(tx *Txn) error {
			for p := range manyPages / 2 {
				if err := tx.Put(ctx, Artefact{ID: fmt.Sprint("page-", p), Text: manyText(i, p), Provenance: store.Tool}); err != nil {
					return err
				}
			}
			return nil
		}))
		for p := manyPages / 2; p < manyPages; p++ {
			must(s.Put(ctx, Artefact{ID: fmt.Sprint("page-", p), Text: manyText(i, p), Provenance: store.Tool}))(t)
		}
		must(db.Admin().Checkpoint(ctx))(t)
	}
	must(db.Admin().Embed(ctx, store.EmbedOptions{}))(t)
	must(db.Scope(manyScope(0)).Assemble(ctx, Query{Text: "Which refunds need two signatures?", Budget: 1000, Trace: goldenTrace}))(t)
	must(db.Scope(manyScope(2)).Assemble(ctx, Query{Text: "Which refunds need a receipt?", Budget: 1000}))(t)
	must(db.Admin().Erase(ctx, ops.Request{Scope: manyScope(1), By: "anna", Reason: "asked to"}))(t)
	now = now.Add(48 * time.Hour)
	require.NoError(t, db.Admin().Retention().Set(ctx, manyScope(2), ops.Policy{Prune: ops.Age(24 * time.Hour)}, "anna"))
	must(db.Admin().Retention().Run(ctx, ops.RunOptions{By: "anna"}))(t)
	require.NoError(t, db.Admin().Quotas().Set(ctx, manyScope(3), store.Quota{Pages: manyPages}, "anna"))
	require.NoError(t, db.Close())
}

func TestGoldenMany(t *testing.T) {
	for name, key := range goldenMany {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata/golden", name)
			if *updateGolden {
				path := filepath.Join(t.TempDir(), "agent.ctx")
				writeMany(t, path, key)
				keepGolden(t, path, dir)
			}
			useGoldenMany(t, dir, key)
		})
	}
}

// useGoldenMany finds each page of a database of dir by its word, writes to a copy of it, and finds them again.
func useGoldenMany(t *testing.T, dir string, key []byte) {
	t.Helper()
	path := openGolden(t, dir)
	if key == nil {
		require.Subset(t, indexRows(t, path), []byte("LDST"), "the index is in the file, and is not made anew")
	}
	db := openTest(t, path, Options{ReadOnly: true, Key: key})
	findMany(t, db)
	require.NoError(t, db.Close())

	db = openTest(t, path, Options{Key: key, Embedder: sums{}})
	near := must(db.Scope(manyScope(6)).Search(ctx, manyText(6, 11), 1))(t)
	require.Equal(t, "page-11", near.Hits[0].Ref.ID)
	require.InDelta(t, 1, near.Hits[0].Score, 1e-3, "by words and by meaning")
	require.Zero(t, must(db.Admin().Embed(ctx, store.EmbedOptions{DryRun: true}))(t).Left, "each page has its vector")
	replayed := must(db.Replay(ctx, goldenTrace))(t)
	require.True(t, replayed.Same)
	require.Contains(t, replayed.Text, "two signatures")
	erased := must(db.Admin().Erasures(ctx))(t)
	require.Len(t, erased, 2, "of a scope, and of bodies")
	require.Equal(t, manyPages, erased[0].Artefacts)
	policies := must(db.Admin().Retention().All(ctx))(t)
	require.Equal(t, ops.Age(24*time.Hour), policies[0].Prune)
	require.ErrorIs(t, errOf(db.Scope(manyScope(3)).Put(ctx, Artefact{ID: "more", Text: "One page too many."})), store.ErrQuota)

	must(db.Scope(manyScope(4)).Put(ctx, Artefact{ID: "page-3", Text: "Written by this program: zweihundert.", Provenance: store.Tool}))(t)
	must(db.Admin().Checkpoint(ctx))(t)
	require.NoError(t, db.Close())
	db = openTest(t, path, Options{Key: key})
	findMany(t, db)
	require.Equal(t, []string{"page-3"}, foundIn(t, db, manyScope(4), "zweihundert"))
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
}

// findMany asks for pages by the word that each has alone, and for those that were erased.
func findMany(t *testing.T, db *DB) {
	t.Helper()
	for i := range manyScopes {
		for p := 0; p < manyPages; p += 7 {
			want := []string{fmt.Sprint("page-", p)}
			if i == 1 {
				want = nil
			}
			require.Equal(t, want, foundIn(t, db, manyScope(i), manyWord(i, p)), "%s, page %d", manyScope(i), p)
		}
	}
}

// foundIn returns what a word finds.
func foundIn(t *testing.T, db *DB, scope, word string) (ids []string) {
	t.Helper()
	found := must(db.Scope(scope).Search(ctx, word, 5))(t)
	for _, h := range found.Hits {
		ids = append(ids, h.Ref.ID)
	}
	return ids
}

// indexRows are the first bytes of the keys of the index.
func indexRows(t *testing.T, path string) (kinds []byte) {
	t.Helper()
	file := must(bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true}))(t)
	defer file.Close()
	require.NoError(t, file.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("seg")).ForEach(func(k, _ []byte) error {
			if !bytes.Contains(kinds, k[:1]) {
				kinds = append(kinds, k[0])
			}
			return nil
		})
	}))
	return kinds
}
