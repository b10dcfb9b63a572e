package filestore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// editable is a closed database that an attacker has on his disk.
type editable struct {
	t    *testing.T
	dir  string
	held string // id of a batch that waits for review, and of one that was rejected
	done string
}

const editText = "refunds take fourteen days"

func newEditable(t *testing.T) *editable {
	e := &editable{t: t, dir: t.TempDir()}
	db := must(Open(filepath.Join(e.dir, "agent.ctx"), Options{}))(t)
	s := db.Scope("acme", WithActor("writer"))
	half := .5
	require.NoError(t, errOf(s.Put(ctx, Artefact{
		ID: "policy", Text: editText, Kind: store.KindMessage, Role: "user", Name: "ann", Subject: "bob", Tags: []string{"law"}, Meta: map[string]string{"k": "v"},
		Group: "talk", Seq: 1, Relevance: &half, TTL: time.Hour, Pinned: true, Priority: store.PriorityHigh,
	})))
	must(s.Put(ctx, Artefact{ID: "plain", Text: "shipping takes three days"}))(t)
	must(s.Put(ctx, Artefact{ID: "gone", Text: "it was here"}))(t)
	require.NoError(t, s.Delete(ctx, "gone"))
	must(db.Scope("other").Put(ctx, Artefact{ID: "far", Text: "elsewhere", Group: "talk"}))(t)
	for _, id := range []*string{&e.held, &e.done} {
		tx := must(s.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: "the draft"}))
		require.ErrorIs(t, tx.Commit(ctx, Verdict{}), store.ErrHeld)
		*id = tx.ID()
	}
	must(db.Review().Reject(ctx, e.done, "judge", "no"))(t)
	require.NoError(t, db.Close())
	return e
}

// edit copies the database, lets change edit its file, and opens it.
func (e *editable) edit(trust bool, change func(tx *bbolt.Tx)) *DB {
	e.t.Helper()
	db := must(openOver(e.file(change), Options{}, filestore.Options{Trust: trust}))(e.t)
	e.t.Cleanup(func() { db.Close() })
	return db
}

// file copies the database and lets change edit its file.
func (e *editable) file(change func(tx *bbolt.Tx)) string {
	e.t.Helper()
	dir := filepath.Join(e.t.TempDir(), "copy")
	require.NoError(e.t, os.CopyFS(dir, os.DirFS(e.dir)))
	path := filepath.Join(dir, "agent.ctx")
	require.NoError(e.t, os.Chmod(path, 0o600))
	raw := must(bbolt.Open(path, 0o600, nil))(e.t)
	require.NoError(e.t, raw.Update(func(tx *bbolt.Tx) error { change(tx); return nil }))
	require.NoError(e.t, raw.Close())
	return path
}

// head edits the newest head row of an artefact of acme, and keeps its proof and a right checksum.
func (e *editable) head(id string, change func(h *store.Head, scope *uint32)) func(tx *bbolt.Tx) {
	return func(tx *bbolt.Tx) {
		meta := tx.Bucket(names.Meta)
		var key, found []byte
		c := meta.Cursor()
		for k, v := c.Seek([]byte{'h'}); k != nil && k[0] == 'h'; k, v = c.Next() {
			row := must(codec.Unseal('m', k, slices.Clone(v)))(e.t)
			h := must(format.DecodeHead(row, func(uint32) string { return "" }))(e.t)
			if h.ID == id {
				key, found = slices.Clone(k), row
			}
		}
		require.NoError(e.t, meta.Put(key, codec.Seal('m', key, must(editHead(found, change))(e.t))))
	}
}

// headEdits are the fields of a head row, each with an edit.
var headEdits = map[string]func(h *store.Head, scope *uint32){
	"kind":       func(h *store.Head, _ *uint32) { h.Kind = store.KindSystem },
	"provenance": func(h *store.Head, _ *uint32) { h.Provenance = store.HumanVerified },
	"lower":      func(h *store.Head, _ *uint32) { h.Provenance = store.Scratch },
	"priority":   func(h *store.Head, _ *uint32) { h.Priority = store.PriorityCritical },
	"pinned":     func(h *store.Head, _ *uint32) { h.Pinned = false },
	"expired":    func(h *store.Head, _ *uint32) { h.ExpiresAt = time.Unix(1000, 0) },
	"for ever":   func(h *store.Head, _ *uint32) { h.ExpiresAt = time.Time{} },
	"as of":      func(h *store.Head, _ *uint32) { h.CurrentAsOf = h.CurrentAsOf.Add(time.Hour) },
	"put at":     func(h *store.Head, _ *uint32) { h.PutAt = h.PutAt.Add(time.Hour) },
	"seq":        func(h *store.Head, _ *uint32) { h.Seq = 7 },
	"role":       func(h *store.Head, _ *uint32) { h.Role = "system" },
	"name":       func(h *store.Head, _ *uint32) { h.Name = "eve" },
	"subject":    func(h *store.Head, _ *uint32) { h.Subject = "eve" },
	"tags":       func(h *store.Head, _ *uint32) { h.Tags = []string{"other"} },
	"meta":       func(h *store.Head, _ *uint32) { h.Meta = map[string]string{"k": "w"} },
	"relevance":  func(h *store.Head, _ *uint32) { one := 1.0; h.Relevance = &one },
	"actor":      func(h *store.Head, _ *uint32) { h.Actor = "boss" },
	"counter":    func(h *store.Head, _ *uint32) { h.Counter = "another" },
	"source":     func(h *store.Head, _ *uint32) { h.Artefact.Source = "file:/etc/passwd" },
	"stamp":      func(h *store.Head, _ *uint32) { h.Source.Stamp = "x" },
	"derived":    func(h *store.Head, _ *uint32) { h.DerivedFrom = []Ref{{Scope: "acme", ID: "plain"}} },
	"supersedes": func(h *store.Head, _ *uint32) { h.Supersedes = []string{"plain"} },
	"tool call":  func(h *store.Head, _ *uint32) { h.ToolCalls = []store.ToolCall{{ID: "1", Name: "rm"}} },
	"call id":    func(h *store.Head, _ *uint32) { h.ToolCallID = "1" },
	"tokens":     func(h *store.Head, _ *uint32) { h.Rows[0].Tokens = 1 },
	"page lsn":   func(h *store.Head, _ *uint32) { h.Rows[0].LSN++ },
	"digest":     func(h *store.Head, _ *uint32) { h.Rows[0].Digest[3] ^= 1 },
	"no pages":   func(h *store.Head, _ *uint32) { h.Rows, h.Deleted = nil, true },
	"scope":      func(h *store.Head, scope *uint32) { *scope, h.GroupNum = 2, 2 },
	"group":      func(h *store.Head, _ *uint32) { h.GroupNum, h.Group = 0, "" },
}

// Whoever edits a head row in the file, and makes its checksum right, gets an error from every path, or the truth.
func TestAnEditedHeadIsNotServed(t *testing.T) {
	t.Parallel()
	e := newEditable(t)
	for _, field := range slices.Sorted(maps.Keys(headEdits)) {
		t.Run(field, func(t *testing.T) {
			e.t = t
			db := e.edit(false, e.head("policy", headEdits[field]))
			for _, scope := range []string{"acme", "other"} {
				s := db.Scope(scope)
				_, err := s.Get(ctx, "policy")
				if scope == "acme" && field != "scope" {
					require.ErrorIs(t, err, store.ErrCorrupt)
				}
				require.Error(t, err)
				a, err := s.Assemble(ctx, Query{Text: "how long do refunds take", Budget: 2000, Session: "talk"})
				switch {
				case err == nil:
					require.NotContains(t, a.Text(), editText)
				default: // a session that cannot be read whole is not shown, and not called absent
					require.ErrorIs(t, err, store.ErrCorrupt)
				}
				a = must(s.Assemble(ctx, Query{Text: "how long do refunds take", Budget: 2000}))(t)
				require.NotContains(t, a.Text(), editText)
				found := must(s.Search(ctx, "refunds take", 10))(t)
				for _, hit := range found.Hits {
					require.NotContains(t, hit.Text, editText)
				}
				require.Error(t, errOf(loop.Collect(s.Versions(ctx, "policy", AtMost(10, "", nil)))))
			}
			problems := must(db.Admin().Check(ctx, nil))(t)
			require.True(t, slices.ContainsFunc(problems, func(p store.Problem) bool { return p.Invariant == "I17" }), "%v", problems)

			// The control: without the comparison the edit is what is served, or hides the page.
			db = e.edit(true, e.head("policy", headEdits[field]))
			v, err := db.Scope(map[bool]string{false: "acme", true: "other"}[field == "scope"]).Get(ctx, "policy")
			require.NotErrorIs(t, err, store.ErrCorrupt)
			if err == nil {
				require.Equal(t, editText, v.Text)
			}
		})
	}
}

// The same holds for texts, for names that rows stand for, and for rows that were put in the place of others or taken away.
func TestAnEditedRowIsNotServed(t *testing.T) {
	t.Parallel()
	e := newEditable(t)
	put := func(bucket []byte, tag byte, key []byte, value []byte) func(tx *bbolt.Tx) {
		return func(tx *bbolt.Tx) { require.NoError(e.t, tx.Bucket(bucket).Put(key, codec.Seal(tag, key, value))) }
	}
	edited := map[string][]string{"name of scope": {"evil"}, "name of group": {"acme"}} // scopes with an edited row
	for name, change := range map[string]func(tx *bbolt.Tx){
		"text":          put(names.Content, 'c', textKey(1), []byte("refunds take forty days")),
		"same length":   put(names.Content, 'c', textKey(1), []byte("refunds take fourteen year")),
		"name of scope": put(names.Meta, 'm', scopeKey(1), []byte("evil")),
		"name of group": put(names.Meta, 'm', groupKey(1), append([]byte{0, 0, 0, 1}, "kalt"...)),
	} {
		t.Run(name, func(t *testing.T) {
			e.t = t
			db := e.edit(false, change)
			for _, scope := range []string{"acme", "evil", "other"} {
				v, err := db.Scope(scope).Get(ctx, "policy")
				require.Error(t, err, "%+v", v)
				for _, session := range []string{"talk", "kalt"} {
					a, err := db.Scope(scope).Assemble(ctx, Query{Text: "how long do refunds take", Budget: 2000, Session: session})
					switch {
					case err == nil:
						require.NotContains(t, a.Text(), "refunds take")
					case slices.Contains(edited[name], scope) || edited[name] == nil && scope == "acme" && session == "talk": // not called absent
						require.ErrorIs(t, err, store.ErrCorrupt, "%s %s", scope, session)
					default:
						require.ErrorIs(t, err, store.ErrNotFound, "%s %s", scope, session)
					}
				}
			}
			require.NotEmpty(t, must(db.Admin().Check(ctx, nil))(t))

			db = e.edit(true, change) // the control
			served := false
			for _, scope := range []string{"acme", "evil"} {
				_, err := db.Scope(scope).Get(ctx, "policy")
				served = served || err == nil
			}
			require.True(t, served)
		})
	}
}

// A deleted artefact whose row says otherwise does not come back, and one whose last version was taken away is missed by
// the check.
func TestAnEditedDeletionIsNotServed(t *testing.T) {
	e := newEditable(t)
	db := e.edit(false, e.head("gone", func(h *store.Head, _ *uint32) {
		h.Deleted, h.Rows = false, []store.PageRow{{Num: 3, Version: 1, LSN: 3, Bytes: 11}}
	}))
	require.ErrorIs(t, errOf(db.Scope("acme").Get(ctx, "gone")), store.ErrCorrupt)
	db = e.edit(false, func(tx *bbolt.Tx) {
		require.NoError(e.t, tx.Bucket(names.Meta).Delete(headKey(3, 2)))
		b := must(names.Recount(tx.Bucket(names.Sys).Get(names.SysKey), engine.TableMeta, -1))(e.t)
		require.NoError(e.t, tx.Bucket(names.Sys).Put(names.SysKey, b))
	})
	problems := must(db.Admin().Check(ctx, nil))(t)
	require.True(t, slices.ContainsFunc(problems, func(p store.Problem) bool { return p.Invariant == "I17" }), "%v", problems)
}

// A held batch that was edited in the file is neither shown nor approved: not with another text, writer, scope or
// precondition, and not as one that nobody has decided yet.
func TestAnEditedDraftIsNotApproved(t *testing.T) {
	t.Parallel()
	e := newEditable(t)
	edit := func(id string, change func(h *store.HeldBatch)) func(tx *bbolt.Tx) {
		return func(tx *bbolt.Tx) {
			key := ulid.MustParse(id)
			row := must(codec.Unseal('d', key[:], tx.Bucket(names.Held).Get(key[:])))(e.t)
			row = must(editHeld(row, change))(e.t)
			require.NoError(e.t, tx.Bucket(names.Held).Put(key[:], codec.Seal('d', key[:], row)))
		}
	}
	for name, c := range map[string]struct {
		id     string
		change func(h *store.HeldBatch)
	}{
		"text":     {e.held, func(h *store.HeldBatch) { h.Batch.Puts[0].Pages[0].Text = "another" }},
		"writer":   {e.held, func(h *store.HeldBatch) { h.Batch.Actor = "judge2" }},
		"scope":    {e.held, func(h *store.HeldBatch) { h.Batch.Scope = "other" }},
		"expect":   {e.held, func(h *store.HeldBatch) { h.Batch.Expect = nil; h.Batch.Context = []store.Seen{} }},
		"trust":    {e.held, func(h *store.HeldBatch) { h.Batch.Puts[0].Artefact.Provenance = store.HumanVerified }},
		"verdict":  {e.held, func(h *store.HeldBatch) { h.Batch.Leaf.Confidence = .99 }},
		"decided":  {e.done, func(h *store.HeldBatch) { h.Decided = "" }},
		"approved": {e.held, func(h *store.HeldBatch) { h.Decided = "approved" }},
	} {
		t.Run(name, func(t *testing.T) {
			e.t = t
			db := e.edit(false, edit(c.id, c.change))
			require.ErrorIs(t, errOf(db.Review().Show(ctx, c.id)), store.ErrCorrupt)
			require.ErrorIs(t, errOf(db.Review().Approve(ctx, c.id, Approval{By: "writer"})), store.ErrCorrupt)
			require.ErrorIs(t, errOf(db.Review().Approve(ctx, c.id, Approval{By: "judge"})), store.ErrCorrupt)
			require.ErrorIs(t, errOf(loop.Collect(db.Review().Batches(ctx, "", true, AtMost(10, "", nil)))), store.ErrCorrupt)
			for _, scope := range []string{"acme", "other"} {
				require.ErrorIs(t, errOf(db.Scope(scope).Get(ctx, "draft")), store.ErrNotFound)
			}
			problems := must(db.Admin().Check(ctx, nil))(t)
			require.True(t, slices.ContainsFunc(problems, func(p store.Problem) bool { return p.Invariant == "I17" }), "%v", problems)

			db = e.edit(true, edit(c.id, c.change)) // the control
			must(db.Review().Approve(ctx, c.id, Approval{By: "judge"}))(t)
		})
	}
	e.t = t
	// The row as it was before the decision has a digest in the audit, and a decision after it.
	var before []byte
	key := ulid.MustParse(e.held)
	e.edit(false, func(tx *bbolt.Tx) { before = slices.Clone(tx.Bucket(names.Held).Get(key[:])) })
	db := must(Open(filepath.Join(e.dir, "agent.ctx"), Options{}))(t)
	must(db.Review().Reject(ctx, e.held, "judge", "no"))(t)
	require.NoError(t, db.Close())
	db = e.edit(false, func(tx *bbolt.Tx) { require.NoError(t, tx.Bucket(names.Held).Put(key[:], before)) })
	require.ErrorIs(t, errOf(db.Review().Approve(ctx, e.held, Approval{By: "ann"})), store.ErrCorrupt)
}

// The outcome of a batch that was edited in the file is not given to who repeats the batch, and one that was taken away
// does not let it be applied once more. The control gives the edited one, or applies it twice.
func TestAnEditedOutcomeIsNotGiven(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	began, ticks := time.Now(), atomic.Int64{}
	clock := func() time.Time { return began.Add(time.Duration(ticks.Add(1)) * time.Millisecond) } // ids of one moment have no order
	db := openTest(t, filepath.Join(dir, "agent.ctx"), Options{Clock: clock})
	must(db.Scope("acme").Put(ctx, Artefact{ID: "earlier", Text: "so that a lesser id is in the file, too"}))(t)
	id := must(newID())(t)
	commit := func(db *DB) (store.Outcome, error) {
		return storeOf(db).Commit(ctx, store.Batch{ID: id, Scope: "acme", Actor: "test", Now: time.Now(), Bound: []byte("sixteen bytes ..."), State: []store.StateRow{{Key: "note/n", Value: []byte("1")}}, Leaf: manifest.Record{Type: manifest.TypeCommit}})
	}
	first := must(commit(db))(t)
	must(db.Scope("acme").Put(ctx, Artefact{ID: "later", Text: "so that a greater id is in the file"}))(t)
	require.NoError(t, db.Close())
	e := &editable{t: t, dir: dir}
	edited := func(change func(*store.Outcome)) func(tx *bbolt.Tx) {
		return func(tx *bbolt.Tx) {
			b := tx.Bucket(names.Txn)
			row := must(codec.Unseal('t', id[:], slices.Clone(b.Get(id[:]))))(t)
			row = must(editOutcome(row, change))(t)
			require.NoError(t, b.Put(id[:], codec.Seal('t', id[:], row)))
		}
	}
	for name, change := range map[string]func(tx *bbolt.Tx){
		"untouched": func(*bbolt.Tx) {},
		"status":    edited(func(o *store.Outcome) { o.Status = store.StatusHeld }),
		"lsn":       edited(func(o *store.Outcome) { o.LSN++ }),
		"leaf":      edited(func(o *store.Outcome) { o.Leaf++ }),
		"refs":      edited(func(o *store.Outcome) { o.Refs = []Ref{{Scope: "acme", ID: "later", Version: 1}} }),
		"taken away": func(tx *bbolt.Tx) {
			require.NoError(t, tx.Bucket(names.Txn).Delete(id[:]))
			sys := tx.Bucket(names.Sys)
			require.NoError(t, sys.Put(names.SysKey, must(names.Recount(sys.Get(names.SysKey), engine.TableTxn, -1))(t)))
		},
	} {
		db := e.edit(false, change)
		out, err := commit(db)
		switch name {
		case "untouched":
			require.NoError(t, err)
			require.Equal(t, first, out)
		case "taken away":
			require.ErrorIs(t, err, store.ErrTxnExpired)
		default:
			require.ErrorIs(t, err, store.ErrCorrupt, name)
		}
		if name != "taken away" {
			out, err = commit(e.edit(true, change)) // the control
			require.NoError(t, err)
			require.Equal(t, name == "untouched", out.LSN == first.LSN && out.Leaf == first.Leaf && out.Status == first.Status && len(out.Refs) == 0)
		}
	}
}

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
