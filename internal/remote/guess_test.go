package remote_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A page that was read before is read in one call, never as it was before the call, and with one leaf.
func TestGuessedReads(t *testing.T) {
	t.Parallel()
	path, dir := socket(t), t.TempDir()
	mem := newMemory(t)
	serve(t, mem, path, remote.ServerOptions{})
	db, log := remoteDB(t, path, remote.ClientOptions{}, dir)
	s, own := db.Scope("acme/support"), must(ctxpage.Open("guess", ctxpage.Options{Store: mem, NoWatch: true}))(t).Scope("acme/support")
	size := func() uint64 { return must(mem.Audit().Size(ctx))(t) }
	get := func(id, want string, calls ...string) {
		t.Helper()
		var v *ctxpage.Version
		before := size()
		require.Equal(t, calls, log.during(func() { v = must(s.Get(ctx, id))(t) }))
		require.Equal(t, want, v.Text)
		require.Equal(t, before+1, size(), "one leaf")
		leaf := must(mem.Audit().Leaf(ctx, before))(t)
		require.Equal(t, manifest.TypeGet, leaf.Type)
		require.Equal(t, v.LSN, leaf.LSN, "it names the version that was returned")
		require.Equal(t, v.Pages[0].Num, leaf.Pages[0].Num)
	}
	put := func(s *ctxpage.Scope, a ctxpage.Artefact) { t.Helper(); must(s.Put(ctx, a))(t) }

	put(s, ctxpage.Artefact{ID: "page", Text: "a zebra"})
	get("page", "a zebra", "Resolve", "Changes", "Load", "Append")
	get("page", "a zebra", "Append")
	put(own, ctxpage.Artefact{ID: "page", Text: "an okapi"})
	get("page", "an okapi", "Append", "Resolve", "Changes", "Load", "Append")
	get("page", "an okapi", "Append")
	put(own, ctxpage.Artefact{ID: "other", Text: "another animal", Supersedes: []string{"page"}})
	require.Equal(t, "other", must(s.Get(ctx, "page"))(t).SupersededBy)

	above := must(ctxpage.Open("guess", ctxpage.Options{Store: mem, NoWatch: true}))(t).Scope("acme")
	put(above, ctxpage.Artefact{ID: "shared", Text: "of all"})
	for range 2 {
		require.Equal(t, "of all", must(s.Get(ctx, "shared"))(t).Text)
	}
	put(own, ctxpage.Artefact{ID: "shared", Text: "of support"})
	require.Equal(t, "of support", must(s.Get(ctx, "shared"))(t).Text, "a nearer scope has it now")
	require.NoError(t, own.Delete(ctx, "shared"))
	require.Equal(t, "of all", must(s.Get(ctx, "shared"))(t).Text)
	require.NoError(t, above.Delete(ctx, "shared"))
	before := size()
	_, err := s.Get(ctx, "shared")
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, before, size(), "what was not returned has no leaf")

	file := filepath.Join(dir, "zoo.txt")
	require.NoError(t, os.WriteFile(file, []byte("sleeps"), 0o600))
	put(s, ctxpage.Artefact{ID: "zoo", Source: "file:" + file})
	for _, text := range []string{"sleeps", "sleeps", "wakes up", "wakes up"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.Equal(t, text, must(s.Get(ctx, "zoo"))(t).Text)
	}

	// The control: a server that compares with what it knew has old pages read.
	old := socket(t)
	serve(t, &stuck{Store: mem}, old, remote.ServerOptions{})
	db, _ = remoteDB(t, old, remote.ClientOptions{})
	for _, text := range []string{"a mole", "a vole"} {
		put(own, ctxpage.Artefact{ID: "last", Text: text})
		require.Equal(t, "a mole", must(db.Scope("acme/support").Get(ctx, "last"))(t).Text)
	}
}

// stuck is a store that resolves each reference as it did first.
type stuck struct {
	store.Store
	known sync.Map
}

func (s *stuck) Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (store.Located, error) {
	if l, is := s.known.Load(ref); is {
		return l.(store.Located), nil
	}
	l, err := s.Store.Resolve(ctx, scopes, ref)
	s.known.Store(ref, l)
	return l, err
}

// A guess ends with the server it was made for: the process that owns the files next reads again.
func TestGuessAtNextOwner(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	open := func() *ctxpage.DB {
		db := must(ctxpage.Open(path, ctxpage.Options{NoWatch: true}))(t)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	own, client := open(), open()
	for _, text := range []string{"a zebra", "an okapi"} {
		must(own.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "page", Text: text}))(t)
		if text == "a zebra" {
			require.Equal(t, text, must(client.Scope("acme").Get(ctx, "page"))(t).Text)
		}
	}
	require.NoError(t, own.Close())
	size := must(client.Head(ctx))(t).Size
	require.Equal(t, "an okapi", must(client.Scope("acme").Get(ctx, "page"))(t).Text)
	require.Equal(t, size+1, must(client.Head(ctx))(t).Size, "one leaf")
}
