package ctxpage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// afterListing is a store that does something once, right after a listing of artefacts.
type afterListing struct {
	store.Store
	do func()
}

func (s *afterListing) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	page, err := s.Store.Scan(ctx, q)
	if do := s.do; do != nil && q.What == store.ScanArtefacts {
		s.do = nil
		do()
	}
	return page, err
}

// TestExportBesideJobs: an export leaves out what is erased between the listing and the read of the texts, and gc leaves it the
// versions that it listed.
func TestExportBesideJobs(t *testing.T) {
	ctx := t.Context()
	erases := func(names bool) func(db *DB) error {
		return func(db *DB) error {
			_, err := db.Admin().Erase(ctx, ops.Request{Refs: []Ref{{Scope: "acme", ID: "a"}}, By: "desk", Reason: "asked", Names: names})
			return err
		}
	}
	for name, job := range map[string]struct {
		do    func(db *DB) error
		wants string
	}{
		"erase":            {erases(false), "b1"},
		"erase with names": {erases(true), "b1"},
		"gc": {func(db *DB) error {
			if _, err := db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: "a2"}); err != nil {
				return err
			}
			_, err := db.Admin().GC(ctx, GCOptions{KeepFor: -1})
			return err
		}, "a1b1"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := filestore.Open(filestore.Options{Path: dbtest.MemoryPath(t), State: StateKinds()})
			require.NoError(t, err)
			st := &afterListing{Store: files}
			db, err := Open("files", Options{Store: st, WorkingSet: -1, NoWatch: true})
			require.NoError(t, err)
			defer db.Close()
			for _, id := range []string{"a", "b"} {
				_, err := db.Scope("acme").Put(ctx, Artefact{ID: id, Text: id + "1"})
				require.NoError(t, err)
			}
			var failed error
			st.do = func() { failed = job.do(db) }
			var out bytes.Buffer
			_, err = db.Scope("acme").Export(ctx, &out)
			require.NoError(t, failed)
			require.NoError(t, err)
			texts := ""
			for dec := json.NewDecoder(&out); dec.More(); {
				var v Version
				require.NoError(t, dec.Decode(&v))
				texts += v.Text
			}
			require.Equal(t, job.wants, texts)
		})
	}
}
