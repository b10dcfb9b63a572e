package ctxpage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

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

// contents is every live artefact with what must come through a salvage, by reference without version.
func contents(t *testing.T, path string) map[string]string {
	ctx := context.Background()
	db := openTest(t, path, Options{ReadOnly: true})
	defer db.Close()
	out := map[string]string{}
	scopes, err := db.store.Scan(ctx, store.ScanQuery{What: store.ScanScopes, Limit: 100})
	require.NoError(t, err)
	for _, sc := range scopes.Names {
		page, err := db.store.Scan(ctx, store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{sc.Name}, Limit: 1 << 20})
		require.NoError(t, err)
		for _, h := range page.Heads {
			l, err := db.store.Resolve(ctx, store.Scopes{sc.Name}, Ref{ID: h.ID})
			require.NoError(t, err)
			loaded, err := db.store.Load(ctx, store.Scopes{sc.Name}, l.Pages, store.WantText)
			require.NoError(t, err)
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

func openInternal(t *testing.T) (*DB, *filestore.Store) {
	t.Helper()
	db, err := Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{noSync: true})
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db, db.files()
}

// scopeKey and groupKey are the keys of rows in the bucket meta.
func scopeKey(num uint32) []byte { return binary.BigEndian.AppendUint32([]byte{'s'}, num) }

func groupKey(num uint64) []byte { return binary.BigEndian.AppendUint64([]byte{'g'}, num) }

// damaged is a store that finds the page with some words damaged.
type damaged struct {
	store.Store
	words string
}

func (d damaged) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	loaded, err := d.Store.Load(ctx, scopes, keys, want)
	for i := range loaded {
		if strings.Contains(loaded[i].Text, d.words) {
			loaded[i].Text, loaded[i].Err = "", &store.CorruptError{File: "a test", Err: errors.New("damaged")}
		}
	}
	return loaded, err
}

// damage lets the page with some words be damaged from now on.
func damage(db *DB, words string) {
	d := damaged{db.store, words}
	db.store, db.table.store = d, d
}
