package filestore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/systest"
	"github.com/ctxpage/ctxpage/store"
)

// Short names for what other tests of the whole use too.
var (
	openOver    = systest.OpenOver
	openTest    = systest.OpenTest
	openChecked = systest.OpenChecked
	storeOf     = systest.StoreOf
	newID       = systest.NewID
	hitsOf      = systest.HitsOf
	textOf      = systest.TextOf
	filesHave   = systest.FilesHave
	together    = systest.Together
)

// names are those of the files and rows.
var names = filestore.PeekNames()

// inside looks into the store of a database that openOver opened.
func inside(db *DB) filestore.Inside { return storeOf(db).Peek() }

// textKey is the key of a page's text. scopeKey and groupKey are those of rows in the bucket meta.
func textKey(num uint64) []byte { return codec.AppendOrdered(nil, num) }

func scopeKey(num uint32) []byte { return binary.BigEndian.AppendUint32([]byte{'s'}, num) }

func groupKey(num uint64) []byte { return binary.BigEndian.AppendUint64([]byte{'g'}, num) }

// hold holds a draft for review and gives the id of its batch.
func hold(t *testing.T, s *Scope, id, text string) string {
	t.Helper()
	tx := must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: id, Text: text}))
	var held *store.HeldError
	require.ErrorAs(t, tx.Commit(ctx, Verdict{}), &held)
	return held.Batch
}

// contents is every live artefact with what must come through a salvage, by reference without version.
func contents(t *testing.T, path string) map[string]string {
	db := openTest(t, path, Options{ReadOnly: true})
	defer db.Close()
	out := map[string]string{}
	scopes := must(storeOf(db).Scan(ctx, store.ScanQuery{What: store.ScanScopes, Limit: 100}))(t)
	for _, sc := range scopes.Names {
		page := must(storeOf(db).Scan(ctx, store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{sc.Name}, Limit: 1 << 20}))(t)
		for _, h := range page.Heads {
			l := must(storeOf(db).Resolve(ctx, store.Scopes{sc.Name}, Ref{ID: h.ID}))(t)
			loaded := must(storeOf(db).Load(ctx, store.Scopes{sc.Name}, l.Pages, store.WantText))(t)
			a := h.Artefact
			a.DerivedFrom, a.Supersedes = nil, nil // what was replaced is said below
			text := fmt.Sprintf("%+v actor %s at %s, replaced %t:", a, h.Actor, h.PutAt, l.By != 0)
			for _, p := range loaded {
				if p.Err != nil {
					text += p.Err.Error()
				}
				text += p.Text
			}
			out[Ref{Scope: sc.Name, ID: h.ID}.String()] = text
		}
	}
	return out
}

// bounds are those of the engine: the outcomes that it keeps, and the versions and page rows that one commit of gc drops.
var bounds = struct{ Outcomes, DropVersions, DropPages int }{10_000, 256, 4096}

// highest are the highest numbers of artefacts, pages and groups that were given.
func highest(db *DB) [3]uint64 {
	n := inside(db).Engine.Counters()
	return [3]uint64{n.Art - 1, n.Num - 1, n.Group - 1}
}

// forge puts another text in the place of a page's, with a right checksum: what somebody with the file could do.
func forge(db *DB, num uint64, text string) error {
	if _, err := db.Admin().Checkpoint(context.Background()); err != nil {
		return err
	}
	return inside(db).Bolt.Update(func(tx *bbolt.Tx) error {
		key := textKey(num)
		return tx.Bucket(names.Content).Put(key, codec.Seal('c', key, []byte(text)))
	})
}

// logFile is the last segment of the log.
func logFile(t *testing.T, path string) string {
	t.Helper()
	files := must(filepath.Glob(path + "-wal/*.wal"))(t)
	require.NotEmpty(t, files)
	return files[len(files)-1]
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

var ctx = context.Background()
