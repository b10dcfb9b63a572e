package ctxpage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// What cannot mean what was said is refused, and the error says what to do.

func TestMissingFileRoots(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	for name, root := range map[string]string{"missing": filepath.Join(dir, "none"), "no directory": file, "no name": ""} {
		path := filepath.Join(t.TempDir(), "agent.ctx")
		_, err := Open(path, Options{FileRoots: []string{dir, root}})
		require.ErrorIs(t, err, ErrInvalid, name)
		require.Contains(t, err.Error(), "a directory", name)
		db, err := Open(path, Options{FileRoots: []string{dir}})
		require.NoError(t, err, "the failed open let go of the file")
		require.ErrorIs(t, db.Admin().AddFileRoot(ctx, root), ErrInvalid, name)
		roots, err := db.Admin().FileRoots(ctx)
		require.NoError(t, err)
		require.Empty(t, roots)
		require.NoError(t, db.Close())
	}

	gone := filepath.Join(dir, "gone") // one that was recorded may be missing later, or on another computer
	require.NoError(t, os.Mkdir(gone, 0o700))
	db := open(t, Options{})
	require.NoError(t, db.Admin().AddFileRoot(ctx, gone))
	require.NoError(t, os.Remove(gone))
	reopen(t, db, Options{RecordedRoots: true})
}

func TestSupersedesOfNothing(t *testing.T) {
	db := open(t, Options{})
	parent, s := db.Scope("acme"), db.Scope("acme/agent")
	put(t, parent, Artefact{ID: "theirs", Text: "of the parent"})
	for _, id := range []string{"never", "theirs"} {
		_, err := s.Put(ctx, Artefact{ID: "new", Text: "instead", Supersedes: []string{id}})
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorIs(t, err, ErrNotFound)
		require.Contains(t, err.Error(), "put them first")
		_, err = db.Admin().PutVerified(ctx, "acme/agent", "ann", Artefact{ID: "new", Text: "instead", Supersedes: []string{id}})
		require.ErrorIs(t, err, ErrInvalid)
		tx := begin(t, s)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "new", Text: "instead", Supersedes: []string{id}}), "it may be put later")
		require.ErrorIs(t, tx.Commit(ctx, good), ErrInvalid)
		require.NoError(t, tx.Rollback())
	}
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		return errors.Join(tx.Put(ctx, Artefact{ID: "d", Text: "two", Supersedes: []string{"c"}}), tx.Put(ctx, Artefact{ID: "c", Text: "one"}))
	}))
	put(t, s, Artefact{ID: "old", Text: "before"})
	again := Artefact{ID: "new", Text: "instead", Supersedes: []string{"old"}}
	ref := put(t, s, again)
	require.Equal(t, ref, put(t, s, again), "putting it again is a touch")
	require.NoError(t, s.Delete(ctx, "old"))
	require.Equal(t, ref, put(t, s, again), "also when what it replaced is deleted")
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		return errors.Join(tx.Put(ctx, Artefact{ID: "a", Text: "one"}), tx.Put(ctx, Artefact{ID: "b", Text: "two", Supersedes: []string{"a"}}))
	}))
}

func TestTextBesideASource(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "policy")
	require.NoError(t, os.WriteFile(file, []byte("refunds up to 400"), 0o600))
	db := open(t, Options{FileRoots: []string{dir}})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "page", Text: "of the page"})
	for source, text := range map[string]string{"file:" + file: "refunds up to 900", "page:page": "another", "file:" + dir + "/none": "x"} {
		_, err := s.Put(ctx, Artefact{ID: "x", Text: text, Source: source})
		require.ErrorContains(t, err, "text", source)
		_, err = s.Put(ctx, Artefact{ID: "x", Parts: []Part{{Type: "text", Text: text}}, Source: source})
		require.Error(t, err, source)
		_, err = s.Get(ctx, "x")
		require.ErrorIs(t, err, ErrNotFound)
	}
	ref := put(t, s, Artefact{ID: "policy", Source: "file:" + file})
	v := get(t, s, "policy") // what was read back can be put back
	require.NotEmpty(t, v.Text)
	require.Equal(t, ref, put(t, s, v.Artefact))
	require.NoError(t, os.WriteFile(file, []byte("refunds up to 500"), 0o600))
	_, err := s.Put(ctx, v.Artefact)
	require.ErrorIs(t, err, ErrInvalid)
	require.Equal(t, "refunds up to 500", get(t, s, "policy").Text)
}

func TestAssemblyForASessionThatIsNotThere(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 400"})
	_, err := s.Session("chat").Append(ctx, Turn{Role: "user", Text: "what of refunds?"})
	require.NoError(t, err)
	for _, q := range []Query{{Session: "chta"}, {Session: "chat "}, {Session: "chta", AsOf: 1}} {
		q.Text, q.Budget = "refunds", 1000
		_, err := s.Assemble(ctx, q)
		require.ErrorIs(t, err, ErrNotFound)
		require.ErrorContains(t, err, "append")
		tx := begin(t, s)
		_, err = tx.Assemble(ctx, q)
		require.ErrorIs(t, err, ErrNotFound)
		require.NoError(t, tx.Rollback())
	}
	_, err = db.Scope("acme/agent").Assemble(ctx, Query{Text: "refunds", Budget: 1000, Session: "chat"})
	require.ErrorIs(t, err, ErrNotFound, "a session is of one scope")
	require.NoError(t, s.Session("fresh").SetWindow(ctx, session.Config{Total: 128_000}))
	for _, id := range []string{"chat", "fresh"} {
		require.Contains(t, ids(assemble(t, s, Query{Text: "refunds", Session: id})), "policy")
	}
}

// A transaction that could not write all it was told to commits nothing.
func TestCommitAfterAFailedWrite(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme", WithActor("agent"))
	put(t, s, Artefact{ID: "old", Text: "before"})
	fails := map[string]func(tx *Txn) error{
		"invalid":   func(tx *Txn) error { return tx.Put(ctx, Artefact{Text: "no id"}) },
		"too large": func(tx *Txn) error { return tx.Put(ctx, Artefact{ID: "x", Text: strings.Repeat("x", store.MaxText+1)}) },
		"no source": func(tx *Txn) error { return tx.Put(ctx, Artefact{ID: "x", Source: "file:/none"}) },
		"no parent": func(tx *Txn) error {
			return tx.Put(ctx, Artefact{ID: "x", Text: "x", DerivedFrom: []Ref{{ID: "none"}}})
		},
		"not allowed":   func(tx *Txn) error { return tx.Put(ctx, Artefact{ID: "x", Text: "x", Provenance: HumanVerified}) },
		"delete no id":  func(tx *Txn) error { return tx.Delete(ctx, "") },
		"both replaced": func(tx *Txn) error { return tx.Put(ctx, Artefact{ID: "b", Text: "x", Supersedes: []string{"b"}}) },
	}
	for name, fail := range fails {
		tx := begin(t, s)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "half", Text: "the half of it"}), name)
		cause := fail(tx)
		require.Error(t, cause, name)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "more", Text: "more of it"}), name)
		for range 2 {
			err := tx.Commit(ctx, good)
			require.ErrorIs(t, err, ErrTxnFailed, name)
			require.ErrorContains(t, err, cause.Error(), name)
		}
		require.NoError(t, tx.Rollback(), name)
		err := s.Update(ctx, func(tx *Txn) error {
			_ = tx.Put(ctx, Artefact{ID: "half", Text: "the half of it"})
			_ = fail(tx)
			return nil
		})
		require.ErrorIs(t, err, ErrTxnFailed, name)
		invisible(t, s, "half", "half")
	}
	held, err := listing.Collect(db.Review().Batches(ctx, "", true))
	require.NoError(t, err)
	require.Empty(t, held)

	tx := begin(t, s) // the negative control: a read that finds nothing is no failed write
	_, err = tx.Get(ctx, "none")
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorIs(t, tx.Delete(ctx, "none"), ErrNotFound, "nor is one that deletes what is not there")
	require.NoError(t, tx.Put(ctx, Artefact{ID: "whole", Text: "all of it"}))
	require.NoError(t, tx.Commit(ctx, good))
}

// A turn says which context it was written from: one that nobody was given is refused, also where another scope made it.
func TestTraceOfATurnThatNamesNoAssembly(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	chat := s.Session("chat")
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 400"})
	theirs := assemble(t, db.Scope("umbrella"), Query{Text: "refunds"})
	below := assemble(t, db.Scope("acme/agent"), Query{Text: "refunds"})
	committed := begin(t, s)
	require.NoError(t, committed.Put(ctx, Artefact{ID: "x", Text: "a draft"}))
	require.NoError(t, committed.Commit(ctx, good))
	before := dbtest.SizeOf(db.Manifests())
	for name, trace := range map[string]string{
		"never": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "other scope": theirs.Trace, "child": below.Trace, "a commit": committed.ID(), "no ulid": "yesterday",
	} {
		turn := Turn{ID: "answer", Role: "assistant", Text: "at most 400", Trace: trace}
		_, err := chat.Append(ctx, Turn{Role: "user", Text: "how much?"}, turn)
		require.ErrorIs(t, err, ErrInvalid, name)
		require.ErrorContains(t, err, "trace", name)
		_, err = chat.Try(ctx, turn)
		require.ErrorIs(t, err, ErrInvalid, name)
		if name != "no ulid" {
			require.ErrorIs(t, err, ErrNotFound, name)
			require.ErrorContains(t, err, "scope acme has recorded no assembly", name)
		}
	}
	require.Equal(t, before, dbtest.SizeOf(db.Manifests()))
	turns, err := listing.Collect(chat.Turns(ctx, 0))
	require.NoError(t, err)
	require.Empty(t, turns)
	invisible(t, s, "answer", "at most 400")

	a := assemble(t, s, Query{Text: "refunds"}) // the negative control; its trace in another spelling is the same
	for i, trace := range []string{a.Trace, strings.ToLower(a.Trace)} {
		turn := Turn{ID: fmt.Sprint("answer", i), Role: "assistant", Text: "at most 400", Trace: trace}
		for range 2 { // appending it again is no new turn
			_, err = chat.Append(ctx, turn)
			require.NoError(t, err)
			require.Equal(t, trace, turn.Trace, "the caller's turn stays as it is")
		}
	}
	leaves, err := db.Manifests().ByTrace(ctx, a.Trace)
	require.NoError(t, err)
	require.Len(t, leaves, 3)
}

// Whether a draft is unchanged is no question where it could not be committed.
func TestUnchangedOfWhatCannotBeCommitted(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "new", Text: "same"})
	tx := begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "new", Text: "same", Supersedes: []string{"never"}}))
	_, err := tx.Unchanged(ctx, "new", 0)
	require.ErrorIs(t, err, ErrInvalid)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "never", Text: "now it is"}))
	_, err = tx.Unchanged(ctx, "new", 0)
	require.NoError(t, err)
	require.Error(t, tx.Put(ctx, Artefact{Text: "no id"}))
	_, err = tx.Unchanged(ctx, "new", 0)
	require.ErrorIs(t, err, ErrTxnFailed)
	require.NoError(t, tx.Rollback())
}

// What reads the audit of a closed database says that it is closed, as every other method does.
func TestAuditOfAClosedDatabase(t *testing.T) {
	db := open(t, Options{})
	ref, err := db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: "zebra"})
	require.NoError(t, err)
	a := db.Manifests()
	require.NoError(t, db.Close())
	one := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"size": one(a.Size(ctx)), "leaf": one(a.Leaf(ctx, 0)), "body": one(a.Body(ctx, 0)), "records": one(a.Records(ctx, 0, 1, false, 1)),
		"trace": one(a.ByTrace(ctx, "x")), "names": one(a.Names(ctx)), "root": one(a.Root(ctx, 1)), "inclusion": one(a.ProveInclusion(ctx, 0, 1)),
		"verify": one(a.Verify(ctx, nil, nil)), "why": one(db.Why(ctx, "01M8ACCQ45MK2DHG4K854PVE35", ref)),
	} {
		if err != nil || name == "records" { // what is in memory may still be told
			require.ErrorIs(t, err, ErrClosed, name)
		}
	}
}
