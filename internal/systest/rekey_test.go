package systest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	. "github.com/ctxpage/ctxpage"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// TestAddKey: a plain database that has everything is encrypted in place. No file has a needle then, every older head verifies,
// contexts are replayed, and the content is the same; the key is removed again, and it is the same once more.
func TestAddKey(t *testing.T) {
	t.Parallel()
	n := &needles{}
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.ctx")
	vectors := &needleVectors{n: n}
	db := must(Open(path, Options{Embedder: vectors}))(t)
	trace, shown := plant(t, db, n)
	must(db.Scope("acme/cem").Put(ctx, Artefact{ID: "cem", Text: "gnu"}))(t)
	erased := must(db.Admin().Erase(ctx, ops.Request{Scope: "acme/cem", By: "ann", Reason: "asked", Names: true}))(t)
	require.NotZero(t, erased.Done.Bodies, "the archive has stubs")
	h := must(db.Head(ctx))(t)
	heads := []manifest.Head{h}
	lines := func(db *DB) string {
		var b bytes.Buffer
		must(db.Admin().Export(ctx, &b, portable.ExportOptions{}))(t)
		_, rest, _ := bytes.Cut(b.Bytes(), []byte("\n")) // the header has the time
		return string(rest[:bytes.LastIndexByte(rest[:len(rest)-1], '\n')])
	}
	before := lines(db)
	require.NoError(t, db.Close())
	require.NotEmpty(t, n.hits(t, dir), "control: before")
	key := filestore.Options{Path: path, Key: testKey(7)}

	require.Positive(t, must(filestore.AddKey(ctx, key, filestore.RekeyOptions{By: "ann", DryRun: true}))(t).Before)
	require.NoFileExists(t, path+".keys", "a dry run writes nothing")
	steps := 0
	rep := must(filestore.AddKey(ctx, key, filestore.RekeyOptions{By: "ann", Progress: func(string, uint64, uint64) { steps++ }}))(t)
	require.Positive(t, rep.After)
	require.Positive(t, steps)
	require.Empty(t, n.hits(t, dir), "after")
	for _, name := range must(os.ReadDir(dir))(t) {
		require.NotContains(t, name.Name(), ".re", "nothing is left beside it")
	}
	require.ErrorIs(t, errOf(filestore.AddKey(ctx, key, filestore.RekeyOptions{By: "ann"})), store.ErrKey, "it is encrypted")
	require.ErrorIs(t, errOf(Open(path, Options{})), store.ErrKey)

	same := func(opts Options) {
		t.Helper()
		opts.Embedder = vectors
		db := must(Open(path, opts))(t)
		must(db.Replay(ctx, trace))(t)
		require.True(t, must(db.Why(ctx, trace, Ref{Scope: shown.Scope, ID: shown.ID}))(t).In)
		require.Equal(t, before, lines(db))
		v := must(db.Scope("acme/ann").Get(ctx, "child"))(t)
		require.NotEmpty(t, must(hitsOf(db.Scope("acme/ann").Search(ctx, needle.FindString(v.Text), 10)))(t))
		whole(t, db, heads)
		h := must(db.Head(ctx))(t)
		heads = append(heads, h)
		require.NoError(t, db.Close())
	}
	same(Options{Key: testKey(7)})
	require.Empty(t, n.hits(t, dir), "after a reopen")
	require.ErrorIs(t, errOf(filestore.RemoveKey(ctx, filestore.Options{Path: path, Key: testKey(8)}, filestore.RekeyOptions{By: "ann"})), store.ErrKey, "another key")
	must(filestore.RemoveKey(ctx, key, filestore.RekeyOptions{By: "ann"}))(t)
	require.NotEmpty(t, n.hits(t, dir), "plain again")
	same(Options{})
	require.NoError(t, errOf(filestore.AddKey(ctx, key, filestore.RekeyOptions{By: "ann"})), "with the keyring that is there")
	same(Options{Key: testKey(7)})
}
