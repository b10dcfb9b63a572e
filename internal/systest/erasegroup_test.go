package systest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// An erase that takes the name of a session leaves every row sound, also those of past versions that were in the session: a
// row is proved with the name of its group. The name goes once no row needs it.
func TestEraseNameOfPastGroup(t *testing.T) {
	t.Parallel()
	const session = "zqsession"
	for name, c := range map[string]struct {
		past  func(t *testing.T, db *DB, s *Scope) // what became of the version that was in the session
		stays bool                                 // the name stays: another artefact has a row that needs it
	}{
		"taken":  {func(*testing.T, *DB, *Scope) {}, false},
		"erased": {func(t *testing.T, db *DB, _ *Scope) { eraseRefs(t, db, "moved") }, true},
		"gone": {func(t *testing.T, db *DB, _ *Scope) {
			must(db.Admin().GC(t.Context(), GCOptions{KeepFor: -1, KeepRecords: -1, KeepNames: -1}))(t)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			path := filepath.Join(t.TempDir(), "agent.ctx")
			db := must(Open(path, Options{}))(t)
			s := db.Scope("acme")
			put := func(a Artefact) {
				t.Helper()
				must(s.Put(ctx, a))(t)
			}
			put(Artefact{ID: "old", Text: "a pan"})
			put(Artefact{ID: "moved", Kind: store.KindScratch, Text: "one kettle", Group: session})
			put(Artefact{ID: "moved", Text: "two kettles", Supersedes: []string{"old"}}) // so its rows are not forgotten
			put(Artefact{ID: "turn", Kind: store.KindMessage, Text: "a kettle", Group: session})
			c.past(t, db, s)
			put(Artefact{ID: "moved", Text: "three kettles"})
			must(db.Admin().Erase(ctx, ops.Request{Session: Ref{Scope: "acme", ID: session}, By: "desk", Reason: "asked", Names: true}))(t)
			for range 2 {
				require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
				require.NoError(t, db.Close())
				db = must(Open(path, Options{}))(t)
			}
			require.NoError(t, db.Close())
			require.Equal(t, c.stays, bytes.Contains(must(os.ReadFile(path))(t), []byte(session)))
		})
	}
}

func eraseRefs(t *testing.T, db *DB, ids ...string) {
	t.Helper()
	req := ops.Request{By: "desk", Reason: "asked"}
	for _, id := range ids {
		req.Refs = append(req.Refs, Ref{Scope: "acme", ID: id})
	}
	must(db.Admin().Erase(t.Context(), req))(t)
}
