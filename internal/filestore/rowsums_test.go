package filestore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// hidings are edits of the file, each with right checksums and counts, that take the page "policy" out of what can be found
// in the scope acme.
func (e *editable) hidings() map[string]func(tx *bbolt.Tx) {
	meta := func(tx *bbolt.Tx, n int) {
		sys := tx.Bucket(names.Sys)
		require.NoError(e.t, sys.Put(names.SysKey, must(names.Recount(sys.Get(names.SysKey), engine.TableMeta, n))(e.t)))
	}
	return map[string]func(tx *bbolt.Tx){
		"expired":    e.head("policy", headEdits["expired"]),
		"distrusted": e.head("policy", headEdits["lower"]),
		"deleted":    e.head("policy", headEdits["no pages"]),
		"moved":      e.head("policy", headEdits["scope"]),
		"other kind": e.head("policy", func(h *store.Head, _ *uint32) { h.Kind = store.KindTool }),
		"replaced":   e.head("plain", func(h *store.Head, _ *uint32) { h.Supersedes = []string{"policy"} }),
		"scope's name": func(tx *bbolt.Tx) {
			require.NoError(e.t, tx.Bucket(names.Meta).Put(scopeKey(1), codec.Seal('m', scopeKey(1), []byte("evil"))))
		},
		"taken away": func(tx *bbolt.Tx) {
			require.NoError(e.t, tx.Bucket(names.Meta).Delete(headKey(1, 1)))
			meta(tx, -1)
		},
		"a version on top": func(tx *bbolt.Tx) {
			b := tx.Bucket(names.Meta)
			row := must(codec.Unseal('m', headKey(1, 1), slices.Clone(b.Get(headKey(1, 1)))))(e.t)
			row = must(editHead(row, func(h *store.Head, _ *uint32) {
				h.Version, h.LSN, h.Deleted, h.Rows = 2, 2, true, nil
			}))(e.t)
			require.NoError(e.t, b.Put(headKey(1, 2), codec.Seal('m', headKey(1, 2), row)))
			meta(tx, 1)
		},
	}
}

// A page that an edit of the file hides from questions is found by a check, and is served by none in another form. The control
// compares no row with the audit, and finds only that a name of the audit has no row.
func TestCheckFindsAHiddenPage(t *testing.T) {
	e := newEditable(t)
	hidings := e.hidings()
	missed := []string{"moved", "scope's name", "taken away"} // what the audit says was written is not there
	for _, name := range slices.Sorted(maps.Keys(hidings)) {
		t.Run(name, func(t *testing.T) {
			e.t = t
			for _, trust := range []bool{false, true} {
				db := e.edit(trust, hidings[name])
				a := must(db.Scope("acme").Assemble(ctx, Query{Text: "how long do refunds take", Budget: 2000, Kinds: []store.Kind{store.KindMessage, store.KindFact, store.KindChunk}}))(t)
				require.NotContains(t, a.Text(), editText)
				problems := must(db.Admin().Check(ctx, nil))(t)
				found := slices.ContainsFunc(problems, func(p store.Problem) bool { return p.Invariant == "I17" })
				require.Equal(t, !trust || slices.Contains(missed, name), found, "%v", problems)
			}
		})
	}
}

// A check of a database that nobody edited finds nothing, whatever has been done with it: versions, deletions, artefacts
// that replace others, drafts approved and rejected, gc that drops, folds and forgets, checkpoints and none, reopened or not.
func TestNothingIsHiddenOfASoundDatabase(t *testing.T) {
	for _, columns := range []int{-1, 1} { // opened from the rows, and from a snapshot of the columns
		t.Run(fmt.Sprintf("columns %d", columns), func(t *testing.T) { nothingIsHidden(t, columns) })
	}
}

func nothingIsHidden(t *testing.T, columns int) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	files := filestore.Options{Columns: columns}
	db := openTest(t, path, Options{}, files)
	s := db.Scope("acme", WithActor("writer"))
	ask := func() {
		t.Helper()
		a := must(s.Assemble(ctx, Query{Text: "words of a page", Budget: 4000}))(t)
		require.False(t, slices.ContainsFunc(a.Manifest.Excluded, func(x manifest.Exclusion) bool { return x.Reason == triage.Damaged }))
		require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	}
	reopen := func() {
		t.Helper()
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{}, files)
		s = db.Scope("acme", WithActor("writer"))
		require.Equal(t, columns > 0, must(db.Stats(ctx))(t).ColumnsRead)
	}
	long := strings.Repeat("words of a long page that is split into several. ", 200)
	for round := range 4 {
		for i := range 12 {
			text := long[:200*(i+1)]
			must(s.Put(ctx, Artefact{ID: string(rune('a' + i)), Text: strings.Repeat("x ", round) + text, Group: "talk"}))(t)
		}
		must(s.Put(ctx, Artefact{ID: "successor", Text: "words that replace others", Supersedes: []string{"a", "b"}}))(t)
		require.NoError(t, s.Delete(ctx, "c"))
		for _, id := range []string{"held", "done", "waits"} {
			tx, err := s.Begin(ctx)
			require.NoError(t, err)
			require.NoError(t, tx.Put(ctx, Artefact{ID: id, Text: "words of a draft " + long[:round]}))
			require.ErrorIs(t, tx.Commit(ctx, Verdict{}), store.ErrHeld)
			switch id {
			case "held":
				_, err = db.Review().Approve(ctx, tx.ID(), Approval{By: "kim"})
			case "done":
				_, err = db.Review().Reject(ctx, tx.ID(), "kim", "no")
			}
			require.NoError(t, err)
		}
		ask()
		reopen()
		ask()
		must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepRecords: 1, KeepNames: 1}))(t)
		ask()
		reopen()
		ask()
	}
	for i := range 12 {
		if err := s.Delete(ctx, string(rune('a'+i))); !errors.Is(err, store.ErrNotFound) {
			require.NoError(t, err)
		}
	}
	reopen()
	must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepRecords: 1, KeepNames: 1}))(t)
	reopen()
	ask()
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	require.NoError(t, db.Close())
}

// An export of a file that was edited gives an error, and of what it gave before nothing that was edited.
func TestAnEditedRowIsNotExported(t *testing.T) {
	t.Parallel()
	e := newEditable(t)
	edits := map[string]func(tx *bbolt.Tx){
		"text": func(tx *bbolt.Tx) {
			require.NoError(e.t, tx.Bucket(names.Content).Put(textKey(1), codec.Seal('c', textKey(1), []byte("refunds take forty days"))))
		},
	}
	for field, change := range headEdits {
		edits[field] = e.head("policy", change)
	}
	for _, name := range slices.Sorted(maps.Keys(edits)) {
		t.Run(name, func(t *testing.T) {
			e.t = t
			var out bytes.Buffer
			_, err := e.edit(false, edits[name]).Scope("acme").Export(ctx, &out)
			if name != "no pages" && name != "scope" { // these are not asked for; a check finds them
				require.ErrorIs(t, err, store.ErrCorrupt)
			}
			require.NotContains(t, out.String(), "refunds")

			out.Reset() // the control gives what the file says
			_, err = e.edit(true, edits[name]).Scope("acme").Export(ctx, &out)
			if err != nil {
				return // a row that contradicts itself
			}
			for line := range strings.Lines(out.String()) {
				var v Version
				require.NoError(t, json.Unmarshal([]byte(line), &v))
			}
			require.True(t, name == "expired" || name == "no pages" || name == "scope" || strings.Contains(out.String(), "refunds"))
		})
	}
}
