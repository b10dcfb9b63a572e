package filestore_test

import (
	"bytes"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clockCalls are the calls that keep a time, or answer by it. They get what prepare made.
func clockCalls(db *DB, trace, held string) map[string]func(ctx context.Context) error {
	s := db.Scope("acme", WithActor("writer"))
	chat := s.Session("chat")
	drop := func(_ any, err error) error { return err }
	return map[string]func(ctx context.Context) error{
		"Put":      func(ctx context.Context) error { return drop(s.Put(ctx, Artefact{ID: "new", Text: "text"})) },
		"Delete":   func(ctx context.Context) error { return s.Delete(ctx, "page") },
		"Get":      func(ctx context.Context) error { return drop(s.Get(ctx, "page")) },
		"Search":   func(ctx context.Context) error { return drop(s.Search(ctx, "text", 5)) },
		"Assemble": func(ctx context.Context) error { return drop(s.Assemble(ctx, Query{Text: "text", Budget: 1000})) },
		"Begin":    func(ctx context.Context) error { return drop(s.Begin(ctx)) },
		"Resume":   func(ctx context.Context) error { return drop(s.Resume(ctx, trace)) },
		"Recall":   func(ctx context.Context) error { return drop(s.Recall(ctx, Ref{ID: "page"})) },
		"Export":   func(ctx context.Context) error { return drop(s.Export(ctx, &bytes.Buffer{})) },
		"Step":     func(ctx context.Context) error { return drop(s.Directives().Step(ctx, "use zerolog")) },
		"Window":   func(ctx context.Context) error { return chat.SetWindow(ctx, session.Config{Total: 64_000}) },
		"Append": func(ctx context.Context) error {
			return drop(chat.Append(ctx, Turn{Role: "user", Text: "another"}))
		},
		"Record":  func(ctx context.Context) error { return chat.Record(ctx, session.Notes{Goal: "a goal"}) },
		"Handoff": func(ctx context.Context) error { return drop(chat.Handoff(ctx, "next")) },
		"Verified": func(ctx context.Context) error {
			return drop(db.Admin().PutVerified(ctx, "acme", "ann", Artefact{ID: "fact", Text: "a fact"}))
		},
		"Approve": func(ctx context.Context) error { return drop(db.Review().Approve(ctx, held, Approval{By: "ann"})) },
		"Reject":  func(ctx context.Context) error { return drop(db.Review().Reject(ctx, held, "ann", "")) },
		"GC":      func(ctx context.Context) error { return drop(db.Admin().GC(ctx, GCOptions{})) },
		"Head":    func(ctx context.Context) error { return drop(db.Head(ctx)) },
	}
}

// TestClockOutOfRange: a clock that shows what cannot be kept is named by every call that asks it, and nothing is written.
// What needs no clock goes on.
func TestClockOutOfRange(t *testing.T) {
	path := dbtest.CheckedMemoryPath(t, openChecked)
	good := time.Date(9999, 12, 1, 0, 0, 0, 0, time.UTC)
	var now atomic.Pointer[time.Time]
	now.Store(&good)
	clock := func() time.Time { return *now.Load() }
	db := openTest(t, path, Options{Clock: clock})
	s := db.Scope("acme", WithActor("writer"))
	_, err := s.Put(ctx, Artefact{ID: "page", Text: "text"})
	require.NoError(t, err)
	must(s.Session("chat").Append(ctx, Turn{Role: "user", Text: "question"}))(t)
	a := must(s.Assemble(ctx, Query{Text: "text", Budget: 1000}))(t)
	held := hold(t, s, "draft", "a draft")
	begun := func() *Txn {
		now.Store(&good)
		tx := must(s.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "later", Text: "put while the clock was right"}))
		return tx
	}
	require.ErrorIs(t, begun().Put(ctx, Artefact{ID: "ttl", Text: "too late", TTL: 100 * 24 * time.Hour}), store.ErrInvalid)
	size := dbtest.SizeOf(db.Manifests())

	bad := []time.Time{good.AddDate(1, 0, 0), good.AddDate(5000, 0, 0), {}, time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC).In(time.FixedZone("east", 14*3600))}
	for i := range bad {
		open := begun()
		now.Store(&bad[i])
		for name, call := range clockCalls(db, a.Trace, held) {
			var invalid *store.InvalidError
			if assert.ErrorAs(t, call(ctx), &invalid, "%s at %v", name, bad[i]) {
				assert.Contains(t, invalid.Field, "Clock", name)
			}
		}
		assert.ErrorIs(t, open.Commit(ctx, Verdict{Confidence: 1, By: "checker"}), store.ErrInvalid)
		for name, call := range map[string]func() error{
			"Open":     func() error { _, err := Open(path+"2", Options{Clock: clock}); return err },
			"OpenRead": func() error { _, err := Open(path, Options{Clock: clock, ReadOnly: true}); return err },
			"Restore": func() error {
				_, err := filestore.Restore(ctx, path, path+"2", filestore.RestoreOptions{Clock: clock})
				return err
			},
			"Salvage": func() error {
				_, err := Salvage(ctx, path, path+"2", filestore.SalvageOptions{Clock: clock})
				return err
			},
		} {
			assert.ErrorIs(t, call(), store.ErrInvalid, name)
		}
		_, err = db.Admin().Checkpoint(ctx)
		assert.NoError(t, err)
		problems, err := db.Admin().Check(ctx, nil)
		assert.NoError(t, err)
		assert.Empty(t, problems)
	}
	require.Equal(t, size, dbtest.SizeOf(db.Manifests()), "nothing was written")
	require.Empty(t, must(filepath.Glob(path+"2*"))(t))

	now.Store(&good)
	calls := clockCalls(db, a.Trace, held)
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if name != "Reject" && name != "Delete" { // the control; what is approved cannot be rejected
			require.NoError(t, calls[name](ctx), name)
		}
	}
	require.NoError(t, calls["Delete"](ctx))
	require.NoError(t, db.Close())
}
