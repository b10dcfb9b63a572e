package ctxpage_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

var good = Verdict{Confidence: .88, By: "checker"}

// heldAs requires that a commit was held for a reason, and gives its batch.
func heldAs(t testing.TB, err error, reason string) *store.HeldError {
	t.Helper()
	var held *store.HeldError
	require.ErrorAs(t, err, &held)
	require.ErrorIs(t, err, store.ErrHeld)
	require.Equal(t, reason, held.Reason)
	return held
}

// invisible requires that nothing of an artefact can be seen by a handle, on any path.
func invisible(t testing.TB, s *Scope, id, word string) {
	t.Helper()
	require.ErrorIs(t, errOf(s.Get(ctx, id)), store.ErrNotFound, "get")
	require.ErrorIs(t, errOf(s.Recall(ctx, Ref{Scope: s.Name(), ID: id, Version: 1})), store.ErrNotFound, "getref")
	require.ErrorIs(t, errOf(s.Recall(ctx, Ref{ID: id})), store.ErrNotFound, "recall")
	require.ErrorIs(t, errOf(loop.Collect(s.Versions(ctx, id))), store.ErrNotFound, "history")
	require.NotContains(t, hitIDs(must(hitsOf(s.Search(ctx, word, 0)))(t)), id, "search")
	a := assemble(t, s, Query{Text: word, Floor: store.Scratch})
	require.NotContains(t, ids(a), id, "assemble")
	require.Empty(t, left(a, id), "left out")
	require.NotContains(t, a.Text(), word)
	list := must(loop.Collect(s.Artefacts(ctx, "")))(t)
	require.False(t, slices.ContainsFunc(list, func(v *Version) bool { return v.ID == id }), "list")
	var export strings.Builder
	must(s.Export(ctx, &export))(t)
	require.NotContains(t, export.String(), word, "export")
}

func TestGateVerdicts(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme", WithActor("agent"))
	for _, c := range []struct {
		name    string
		verdict Verdict
		reason  string
	}{
		{"none", Verdict{}, ReasonNoVerdict},
		{"nobody", Verdict{Confidence: 1}, ReasonNoVerdict},
		{"self", Verdict{Confidence: 1, By: "agent"}, ReasonSelfCertified},
		{"low", Verdict{Confidence: .6, By: "checker"}, ReasonLowConfidence},
		{"just-below", Verdict{Confidence: math.Nextafter(.7, 0), By: "checker"}, ReasonLowConfidence},
		{"nan", Verdict{Confidence: math.NaN(), By: "checker"}, ReasonLowConfidence},
		{"negative", Verdict{Confidence: -1, By: "checker"}, ReasonLowConfidence},
		{"at-the-gate", Verdict{Confidence: .7, By: "checker"}, ""},
		{"above", good, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx := begin(t, s)
			require.NoError(t, tx.Put(ctx, Artefact{ID: c.name, Text: "answer zebra" + c.name}))
			err := tx.Commit(ctx, c.verdict)
			if c.reason == "" {
				require.NoError(t, err)
				require.Equal(t, store.Validated, get(t, s, c.name).Provenance)
				return
			}
			held := heldAs(t, err, c.reason)
			invisible(t, s, c.name, "zebra"+c.name)
			h := must(db.Review().Show(ctx, held.Batch))(t)
			require.Equal(t, c.reason, h.Reason)
			require.Equal(t, "agent", h.Actor)
			require.Equal(t, "answer zebra"+c.name, h.Writes[0].Text)
			require.False(t, math.IsNaN(h.Confidence) || h.Confidence < 0)
		})
	}
}

// The gate belongs to the handle; switched off it still asks for a verdict from outside.
func TestGateOfTheHandle(t *testing.T) {
	db := open(t, Options{Gate: .9})
	commit := func(s *Scope, v Verdict) error {
		tx := begin(t, s)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: words(1, 5)}))
		return tx.Commit(ctx, v)
	}
	heldAs(t, commit(db.Scope("a"), good), ReasonLowConfidence)
	require.NoError(t, commit(db.Scope("b", WithGate(.8)), good))
	off := db.Scope("c", WithGate(GateOff), WithActor("agent"))
	require.NoError(t, commit(off, Verdict{By: "checker"}))
	require.NoError(t, commit(off, Verdict{By: "checker", Confidence: math.NaN()}))
	heldAs(t, commit(off, Verdict{Confidence: 1}), ReasonNoVerdict)
	heldAs(t, commit(off, Verdict{Confidence: 1, By: "agent"}), ReasonSelfCertified)
	for _, gate := range []float64{0, -2, 1.01, math.NaN(), math.Inf(1)} {
		require.ErrorIs(t, errOf(db.Scope("d", WithGate(gate)).Get(ctx, "a")), store.ErrInvalid, gate)
	}
}

// Conflict comes before staleness, staleness before the verdict.
func TestCommitOrder(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme", WithActor("agent"))
	setup := func() *Txn {
		put(t, s, Artefact{ID: "policy", Text: "limit " + words(int(dbtest.SizeOf(db.Manifests())), 6)})
		put(t, s, Artefact{ID: "answer", Text: "old " + words(int(dbtest.SizeOf(db.Manifests())), 6)})
		tx := begin(t, s)
		must(tx.Get(ctx, "policy"))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "new answer"}))
		return tx
	}
	changePolicy := func() { put(t, s, Artefact{ID: "policy", Text: words(int(dbtest.SizeOf(db.Manifests())), 9)}) }
	changeAnswer := func() { put(t, s, Artefact{ID: "answer", Text: words(int(dbtest.SizeOf(db.Manifests())), 9)}) }

	tx := setup()
	changePolicy()
	changeAnswer()
	err := tx.Commit(ctx, Verdict{})
	require.ErrorIs(t, err, store.ErrConflict)
	var conflict *store.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "answer", conflict.Ref.ID)
	require.Less(t, conflict.Have, conflict.Now)
	require.NotEqual(t, "new answer", get(t, s, "answer").Text)
	require.Empty(t, must(loop.Collect(db.Review().Batches(ctx, "", true)))(t), "a conflict holds nothing")

	tx = setup()
	changePolicy()
	h := heldAs(t, tx.Commit(ctx, good), store.ReasonStaleContext)
	require.Equal(t, "policy", h.Stale[0].ID)

	tx = setup()
	changePolicy() // the verdict alone would hold it too: the reason named is the verdict's, the stale page is recorded
	h = heldAs(t, tx.Commit(ctx, Verdict{Confidence: .1, By: "checker"}), ReasonLowConfidence)
	require.Len(t, h.Stale, 1)

	tx = setup()
	require.NoError(t, tx.Commit(ctx, good))
	require.Equal(t, "new answer", get(t, s, "answer").Text)
}

func TestStaleContext(t *testing.T) {
	clk := newClock()
	db := open(t, Options{Clock: clk.now})
	s := db.Scope("acme/agent")
	parent := db.Scope("acme")
	for name, change := range map[string]func(){
		"replaced": func() { put(t, parent, Artefact{ID: "policy", Text: "limit 400"}) },
		"deleted":  func() { require.NoError(t, parent.Delete(ctx, "policy")) },
		"expired":  func() { clk.add(time.Hour) },
	} {
		for _, how := range []store.OnStale{store.HoldStale, store.FailStale, store.AllowStale} {
			put(t, parent, Artefact{ID: "policy", Text: "limit 200", TTL: time.Hour, Meta: map[string]string{"of": name}})
			tx := begin(t, s, WithOnStale(how))
			require.Contains(t, ids(must(tx.Assemble(ctx, Query{Text: "limit", Budget: 1000}))(t)), "policy")
			id := "answer-" + name
			require.NoError(t, tx.Put(ctx, Artefact{ID: id, Text: "you may refund " + words(len(id), 4)}))
			change()
			switch err := tx.Commit(ctx, good); how {
			case store.HoldStale:
				held := heldAs(t, err, store.ReasonStaleContext)
				require.Equal(t, "policy", held.Stale[0].ID)
				require.Equal(t, name, must(db.Manifests().ByTrace(ctx, held.Batch))(t)[0].Stale[0].Reason)
				invisible(t, s, id, "refund")
			case store.FailStale:
				require.ErrorIs(t, err, store.ErrStaleContext)
				require.ErrorIs(t, tx.Rollback(), store.ErrTxnDone)
				leaves, err := db.Manifests().ByTrace(ctx, tx.ID())
				require.NoError(t, err, "every end is in the manifest")
				require.Len(t, leaves, 1)
				require.Equal(t, name, leaves[0].Stale[0].Reason)
				invisible(t, s, id, "refund")
			default:
				require.NoError(t, err)
				get(t, s, id)
				require.NoError(t, s.Delete(ctx, id))
			}
		}
	}
}

// A page that changed and changed back is another version: the answer was written from the first.
func TestStaleByVersionNotByText(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "policy", Text: "limit 200"})
	tx := begin(t, s)
	must(tx.Get(ctx, "policy"))(t)
	put(t, s, Artefact{ID: "policy", Text: "limit 400"})
	put(t, s, Artefact{ID: "policy", Text: "limit 200"})
	require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "up to 200"}))
	heldAs(t, tx.Commit(ctx, good), store.ReasonStaleContext)
}

// Reading a page again does not make what was written from its first version new.
func TestOwnLaterReadDoesNotReplace(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "policy", Text: "limit 200"})
	twice := func(write ...Artefact) error {
		tx := begin(t, s)
		for i := range 2 {
			must(tx.Get(ctx, "policy"))(t)
			if i == 0 {
				put(t, s, Artefact{ID: "policy", Text: "limit 400"})
				put(t, s, Artefact{ID: "policy", Text: "limit 200"})
			}
		}
		for _, a := range write {
			require.NoError(t, tx.Put(ctx, a))
		}
		return tx.Commit(ctx, good)
	}
	heldAs(t, twice(Artefact{ID: "answer", Text: "up to 200"}), store.ReasonStaleContext)
	require.ErrorIs(t, twice(Artefact{ID: "policy", Text: "limit 200, asked once"}), store.ErrConflict)
	tx := begin(t, s)
	must(tx.Get(ctx, "policy"))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "policy", Text: "limit 200, asked once"}))
	require.NoError(t, tx.Commit(ctx, good))
}

// An artefact whose page was seen in an assembly, and which changed before the transaction first wrote it, is a lost
// update in the making.
func TestConflictOnWhatWasAssembled(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	for name, start := range map[string]func() *Txn{
		"assembled": func() *Txn {
			tx := begin(t, s)
			must(tx.Assemble(ctx, Query{Text: "balance", Budget: 1000}))(t)
			return tx
		},
		"resumed": func() *Txn {
			return must(s.Resume(ctx, assemble(t, s, Query{Text: "balance"}).Trace))(t)
		},
		"read": func() *Txn {
			tx := begin(t, s)
			must(tx.Get(ctx, "account"))(t)
			return tx
		},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, s, Artefact{ID: "account", Text: "balance is ten " + name})
			tx := start()
			put(t, s, Artefact{ID: "account", Text: "balance is twenty " + name})
			require.NoError(t, tx.Put(ctx, Artefact{ID: "account", Text: "balance is eleven " + name}))
			require.ErrorIs(t, tx.Commit(ctx, good), store.ErrConflict)
			require.Contains(t, get(t, s, "account").Text, "twenty")
		})
	}
	t.Run("control: what was not seen is written blindly", func(t *testing.T) {
		tx := begin(t, s)
		put(t, s, Artefact{ID: "account", Text: "balance is thirty"})
		require.NoError(t, tx.Put(ctx, Artefact{ID: "account", Text: "balance is one"}))
		require.NoError(t, tx.Commit(ctx, good))
	})
	t.Run("update", func(t *testing.T) {
		tries := 0
		require.NoError(t, s.Update(ctx, func(tx *Txn) error {
			a := must(tx.Assemble(ctx, Query{Text: "balance", Budget: 1000}))(t)
			require.NotEmpty(t, a.Blocks)
			if tries++; tries == 1 {
				put(t, s, Artefact{ID: "account", Text: "balance is fifty"})
			}
			return tx.Put(ctx, Artefact{ID: "account", Text: a.Blocks[0].Text + " and one"})
		}))
		require.Equal(t, 2, tries)
		require.Equal(t, "balance is fifty and one", get(t, s, "account").Text)
	})
}

func TestCommitEnds(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	tx := begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "one"}))
	require.NoError(t, tx.Commit(ctx, good))
	require.ErrorIs(t, tx.Commit(ctx, good), store.ErrTxnDone)
	require.ErrorIs(t, tx.Rollback(), store.ErrTxnDone)
	require.ErrorIs(t, tx.Put(ctx, Artefact{ID: "b"}), store.ErrTxnDone)
	require.ErrorIs(t, tx.Delete(ctx, "a"), store.ErrTxnDone)
	require.ErrorIs(t, errOf(tx.Get(ctx, "a")), store.ErrTxnDone)
	require.ErrorIs(t, errOf(tx.Assemble(ctx, Query{Text: "x", Budget: 100})), store.ErrTxnDone)

	tx = begin(t, s)
	a := must(tx.Assemble(ctx, Query{Text: "one", Budget: 1000}))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "b", Text: "zebra"}))
	require.NoError(t, tx.Rollback())
	require.ErrorIs(t, tx.Rollback(), store.ErrTxnDone)
	require.ErrorIs(t, tx.Commit(ctx, good), store.ErrTxnDone)
	invisible(t, s, "b", "zebra")
	leaves := must(db.Manifests().ByTrace(ctx, tx.ID()))(t)
	require.Equal(t, manifest.TypeRollback, leaves[0].Type)
	require.Equal(t, a.Trace, leaves[0].Parent, "linked to its assembly")

	require.Panics(t, func() {
		_ = s.Update(ctx, func(tx *Txn) error {
			require.NoError(t, tx.Put(ctx, Artefact{ID: "c", Text: "giraffe"}))
			require.ErrorIs(t, tx.Commit(ctx, good), store.ErrTxnDone)
			panic("host")
		})
	})
	invisible(t, s, "c", "giraffe")
	mine := errors.New("mine")
	require.ErrorIs(t, s.Update(ctx, func(tx *Txn) error {
		require.NoError(t, tx.Put(ctx, Artefact{ID: "c", Text: "giraffe"}))
		return mine
	}), mine)
	invisible(t, s, "c", "giraffe")
}

// Only the transaction sees what it wrote, in Get as in Assemble, also in place of what is committed.
func TestTransactionSeesItsOwnWrites(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme/agent")
	put(t, db.Scope("acme"), Artefact{ID: "below", Text: "platypus of the parent"})
	put(t, s, Artefact{ID: "old", Text: "platypus old"})
	put(t, s, Artefact{ID: "gone", Text: "platypus gone"})
	put(t, s, Artefact{ID: "below", Text: "platypus of the child"})
	tx := begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "old", Text: "platypus new"}))
	require.NoError(t, tx.Put(ctx, Artefact{ID: "note", Kind: store.KindScratch, Text: "platypus note"}))
	require.NoError(t, tx.Delete(ctx, "gone"))
	require.NoError(t, tx.Delete(ctx, "below"))
	v := must(tx.Get(ctx, "old"))(t)
	require.Equal(t, "platypus new", v.Text)
	require.ErrorIs(t, errOf(tx.Get(ctx, "gone")), store.ErrNotFound)
	v, err := tx.Get(ctx, "below")
	require.NoError(t, err, "as it will be after the commit")
	require.Equal(t, "platypus of the parent", v.Text)
	a := must(tx.Assemble(ctx, Query{Text: "platypus", Budget: 2000}))(t)
	require.ElementsMatch(t, []string{"old", "note", "below"}, ids(a))
	require.Contains(t, a.Text(), "platypus new")
	require.NotContains(t, a.Text(), "platypus old")
	require.Contains(t, a.Text(), "of the parent")
	require.Equal(t, "platypus old", get(t, s, "old").Text, "others see what is committed")
	require.NoError(t, tx.Commit(ctx, good))
	require.Equal(t, "platypus new", get(t, s, "old").Text)
	require.Equal(t, "platypus of the parent", get(t, s, "below").Text)
}

// A recorded assembly is enough to commit an answer to it: after a reopen, in another program.
func TestResume(t *testing.T) {
	opts := Options{}
	db := open(t, opts)
	s := db.Scope("acme", WithActor("agent"))
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 400"})
	a := assemble(t, s, Query{Text: "refunds"})
	b := assemble(t, s, Query{Text: "refunds"})
	db = reopen(t, db, opts)
	s = db.Scope("acme", WithActor("agent"))

	tx := must(s.Resume(ctx, a.Trace))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "up to 400 it is"}))
	require.NoError(t, tx.Commit(ctx, good))
	leaves := must(db.Manifests().ByTrace(ctx, a.Trace))(t)
	require.Equal(t, []manifest.Type{manifest.TypeAssemble, manifest.TypeCommit}, []manifest.Type{leaves[0].Type, leaves[1].Type})

	put(t, s, Artefact{ID: "policy", Text: "refunds up to 500"})
	tx = must(s.Resume(ctx, b.Trace))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "answer-2", Text: "up to 400, I said"}))
	heldAs(t, tx.Commit(ctx, good), store.ReasonStaleContext)

	for _, trace := range []string{"", "nonsense", "01ARZ3NDEKTSV4RRFFQ69G5FAV"} {
		require.ErrorIs(t, errOf(s.Resume(ctx, trace)), store.ErrNotFound)
	}
	require.ErrorIs(t, errOf(db.Scope("acme/other").Resume(ctx, a.Trace)), store.ErrNotFound, "another scope's trace is no trace")
}

// What a context showed of drafts is rendered again whatever became of them: written over, committed, held, dropped; cut
// short or whole; also after a checkpoint and a reopen. Nothing else finds it.
func TestDraftsAreReplayed(t *testing.T) {
	db := open(t, Options{})
	s := func() *Scope { return db.Scope("acme", WithActor("agent")) }
	put(t, s(), Artefact{ID: "policy", Text: "refunds up to 400"})
	var seen []*Assembly
	look := func(tx *Txn, budget int) {
		a := must(tx.Assemble(ctx, Query{Text: "parcel refunds", Budget: budget}))(t)
		require.Contains(t, ids(a), "answer")
		seen = append(seen, a)
	}
	for i, verdict := range []Verdict{{Confidence: .9, By: "checker"}, {Confidence: .1, By: "checker"}, {}} {
		tx := begin(t, s())
		require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: fmt.Sprint("refunds ", i, doc(i, 900))}))
		require.NoError(t, tx.Put(ctx, Artefact{ID: fmt.Sprint("turn-", i), Kind: store.KindMessage, Role: "user", Text: "what of refunds?"}))
		look(tx, 8000)
		look(tx, 420)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: fmt.Sprint("refunds anew ", i)}))
		look(tx, 8000)
		switch {
		case verdict.By == "":
			tx.Rollback()
		case verdict.Confidence > .5:
			require.NoError(t, tx.Commit(ctx, verdict))
		default:
			require.ErrorIs(t, tx.Commit(ctx, verdict), store.ErrHeld)
		}
	}
	require.Contains(t, forms(seen[1]), manifest.FormRange)
	for range 2 {
		for _, a := range seen {
			replays(t, db, a)
		}
		hits := must(hitsOf(s().Search(ctx, "parcel", 0)))(t)
		require.Empty(t, hits, "the drafts that spoke of it were never committed")
		must(db.Admin().Checkpoint(ctx))(t)
		db = reopen(t, db, Options{})
	}
}

// Of a large draft a context keeps what it showed, not all of it.
func TestDraftsKeepWhatWasShown(t *testing.T) {
	db := open(t, Options{})
	tx := begin(t, db.Scope("acme"))
	defer tx.Rollback()
	require.NoError(t, tx.Put(ctx, Artefact{ID: "book", Text: "zebra crossing. " + doc(1, 30_000)}))
	size := func() int64 {
		return must(db.Stats(ctx))(t).LogBytes
	}
	before := size()
	require.Contains(t, ids(must(tx.Assemble(ctx, Query{Text: "zebra", Budget: 1000}))(t)), "book")
	require.Less(t, size()-before, int64(100_000), "of 230,000 bytes of text")
}

// An assembly that had drafts in it can be resumed: drafts have no version to go stale.
func TestResumeAfterDrafts(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 400"})
	tx := begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: "refunds are nice"}))
	a := must(tx.Assemble(ctx, Query{Text: "refunds", Budget: 1000}))(t)
	require.ElementsMatch(t, []string{"policy", "draft"}, ids(a))
	again := must(s.Resume(ctx, a.Trace))(t)
	require.NoError(t, again.Put(ctx, Artefact{ID: "answer", Text: "they are"}))
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 500"})
	heldAs(t, again.Commit(ctx, good), store.ReasonStaleContext)
	tx.Rollback()
	replays(t, db, a)
}

type evaluator struct {
	name       string
	confidence float64
	err        error
	drafts     []Draft
}

func (e *evaluator) Name() string { return e.name }
func (e *evaluator) Evaluate(_ context.Context, d Draft) (float64, string, error) {
	e.drafts = append(e.drafts, d)
	return e.confidence, "looked at it", e.err
}

func TestEvaluator(t *testing.T) {
	e := &evaluator{name: "rules", confidence: .9}
	db := open(t, Options{Evaluator: e})
	s := db.Scope("acme", WithActor("agent"))
	tx := begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "one"}))
	require.NoError(t, tx.Commit(ctx, Verdict{}))
	require.Equal(t, "one", e.drafts[0].Writes[0].Text)
	require.Equal(t, "agent", e.drafts[0].Actor)
	leaves := must(db.Manifests().ByTrace(ctx, tx.ID()))(t)
	require.Equal(t, []any{"rules", "rules", "looked at it"}, []any{leaves[0].Evaluator, leaves[0].By, leaves[0].Note})

	tx = begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "b", Text: "two"}))
	require.NoError(t, tx.Commit(ctx, good), "a verdict that is given is not asked for")
	require.Len(t, e.drafts, 1)

	e.confidence = math.NaN()
	tx = begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "c", Text: "three"}))
	heldAs(t, tx.Commit(ctx, Verdict{}), ReasonLowConfidence)

	e.err = errors.New("out of order")
	tx = begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "d", Text: "four"}))
	require.ErrorIs(t, tx.Commit(ctx, Verdict{}), e.err)
	e.err, e.confidence = nil, 1
	require.NoError(t, tx.Commit(ctx, Verdict{}), "nothing happened, it may be tried again")

	tx = begin(t, db.Scope("acme", WithActor("rules")))
	require.NoError(t, tx.Put(ctx, Artefact{ID: "e", Text: "five"}))
	heldAs(t, tx.Commit(ctx, Verdict{}), ReasonSelfCertified)
}

func TestReview(t *testing.T) {
	clk := newClock()
	opts := Options{Clock: clk.now}
	db := open(t, opts)
	s := db.Scope("acme", WithActor("agent"))
	hold := func(id string) string {
		tx := begin(t, s)
		must(tx.Assemble(ctx, Query{Text: "policy", Budget: 1000}))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: id, Text: "answer " + id}))
		clk.add(time.Second)
		return heldAs(t, tx.Commit(ctx, Verdict{Confidence: .6, By: "checker", Note: "unsure"}), ReasonLowConfidence).Batch
	}
	put(t, s, Artefact{ID: "policy", Text: "policy one"})
	first, second, third := hold("first"), hold("second"), hold("third")
	r := db.Review()

	var next string
	list, err := loop.Collect(r.Batches(ctx, "", false, AtMost(2, "", &next)))
	require.NoError(t, err)
	require.Equal(t, []string{first, second}, []string{list[0].ID, list[1].ID})
	list = must(loop.Collect(r.Batches(ctx, "acme", false, AtMost(2, next, &next))))(t)
	require.Empty(t, next)
	require.Equal(t, third, list[0].ID)
	require.Equal(t, []any{"agent", "checker", "unsure", .6}, []any{list[0].Actor, list[0].By, list[0].Note, list[0].Confidence})
	list = must(loop.Collect(r.Batches(ctx, "other", true)))(t)
	require.Empty(t, list)

	for _, by := range []string{"", "agent"} {
		require.Error(t, errOf(r.Approve(ctx, first, Approval{By: by})))
	}
	require.ErrorIs(t, errOf(r.Approve(ctx, first, Approval{By: "agent"})), store.ErrSelfCertified)
	out := must(r.Approve(ctx, first, Approval{By: "anna", Note: "checked"}))(t)
	require.Equal(t, store.StatusApplied, out.Status)
	require.Equal(t, store.Validated, get(t, s, "first").Provenance)
	require.Equal(t, "agent", get(t, s, "first").Actor, "the writer stays the writer")
	again := must(r.Approve(ctx, first, Approval{By: "berta", HumanVerified: true}))(t)
	require.Equal(t, out, again)
	require.Equal(t, store.Validated, get(t, s, "first").Provenance)
	require.ErrorIs(t, errOf(r.Reject(ctx, first, "anna", "")), store.ErrReviewed)

	out = must(r.Reject(ctx, second, "anna", "wrong"))(t)
	require.Equal(t, store.StatusRejected, out.Status)
	require.ErrorIs(t, errOf(r.Approve(ctx, second, Approval{By: "anna"})), store.ErrReviewed)
	again = must(r.Reject(ctx, second, "anna", "wrong"))(t)
	require.Equal(t, out, again)
	invisible(t, s, "second", "second")

	put(t, s, Artefact{ID: "policy", Text: "policy two"})
	put(t, s, Artefact{ID: "third", Text: "somebody else's"})
	h := must(r.Show(ctx, third))(t)
	require.Equal(t, "third", h.Conflicts[0].ID)
	require.Equal(t, "policy", h.StaleNow[0].ID)
	require.ErrorIs(t, errOf(r.Approve(ctx, third, Approval{By: "anna", Stale: true})), store.ErrConflict, "force does not reach over a conflict")
	require.NoError(t, s.Delete(ctx, "third"))
	require.ErrorIs(t, errOf(r.Approve(ctx, third, Approval{By: "anna"})), store.ErrStaleContext)
	require.ErrorIs(t, errOf(s.Get(ctx, "third")), store.ErrNotFound)

	db = reopen(t, db, opts)
	s, r = db.Scope("acme"), db.Review()
	must(r.Approve(ctx, third, Approval{By: "anna", Stale: true, HumanVerified: true}))(t)
	require.Equal(t, store.HumanVerified, get(t, s, "third").Provenance)
	list = must(loop.Collect(r.Batches(ctx, "", false)))(t)
	require.Empty(t, list)
	list = must(loop.Collect(r.Batches(ctx, "", true)))(t)
	require.Equal(t, []string{"approved", "rejected", "approved"}, []string{list[0].Decided, list[1].Decided, list[2].Decided})
	for _, id := range []string{"", "x", "01ARZ3NDEKTSV4RRFFQ69G5FAV"} {
		_, err = r.Show(ctx, id)
		require.True(t, errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrNotFound), err)
	}
}

// Of an approval and a rejection at the same moment one wins, and the batch says which.
func TestReviewRace(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme", WithActor("agent"))
	for i := range 60 {
		put(t, s, Artefact{ID: "page", Text: words(i, 5)})
		tx := begin(t, s)
		require.NoError(t, tx.Delete(ctx, "page"))
		id := heldAs(t, tx.Commit(ctx, Verdict{}), ReasonNoVerdict).Batch
		var wg sync.WaitGroup
		var approved, rejected error
		wg.Go(func() { _, approved = db.Review().Approve(ctx, id, Approval{By: "anna"}) })
		wg.Go(func() { _, rejected = db.Review().Reject(ctx, id, "berta", "") })
		wg.Wait()
		require.NotEqual(t, approved == nil, rejected == nil, "%v, %v", approved, rejected)
		require.ErrorIs(t, errors.Join(approved, rejected), store.ErrReviewed)
		h := must(db.Review().Show(ctx, id))(t)
		_, err := s.Get(ctx, "page")
		require.Equal(t, approved == nil, errors.Is(err, store.ErrNotFound))
		require.Equal(t, map[bool]string{true: "approved", false: "rejected"}[approved == nil], h.Decided)
	}
}

// The same id gives the same outcome, applied once, also held. At once, and after a crash: storetest, SameID.
func TestIdempotentIDs(t *testing.T) {
	clk := newClock()
	s := open(t, Options{Clock: clk.now}).Scope("acme")
	id := begin(t, s).ID()
	commit := func(s *Scope, id, text string, v Verdict) (store.Outcome, error) {
		tx := begin(t, s, WithID(id))
		require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: text}))
		err := tx.Commit(ctx, v)
		return tx.Outcome(), err
	}
	first := must(commit(s, id, "one", good))(t)
	require.Equal(t, first, must(commit(s, id, "one", good))(t))
	require.Equal(t, "one", get(t, s, "a").Text)

	held := begin(t, s).ID()
	_, err := commit(s, held, "three", Verdict{})
	heldAs(t, err, ReasonNoVerdict)
	_, err = commit(s, held, "three", good)
	heldAs(t, err, ReasonNoVerdict)
	require.ErrorIs(t, errOf(commit(s, held, "other", good)), store.ErrInvalid)

	clk.add(7*24*time.Hour + time.Second)
	require.ErrorIs(t, errOf(commit(s, id, "late", good)), store.ErrTxnExpired)
	require.ErrorIs(t, errOf(s.Begin(ctx, WithID("no id"))), store.ErrInvalid)
}

// An answer that says a served page word for word is a touch, not a new page; nothing else is lost by that.
func TestEchoIsATouch(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 400"})
	answer := func(a Artefact) *Txn {
		tx := begin(t, s, WithOnStale(store.AllowStale))
		require.Contains(t, ids(must(tx.Assemble(ctx, Query{Text: "refunds policy", Budget: 2000}))(t)), "policy")
		require.NoError(t, tx.Put(ctx, a))
		return tx
	}
	tx := answer(Artefact{ID: "echo", Text: "refunds up to 400"})
	require.NoError(t, tx.Commit(ctx, good))
	require.ErrorIs(t, errOf(s.Get(ctx, "echo")), store.ErrNotFound)
	require.True(t, must(db.Manifests().ByTrace(ctx, tx.ID()))(t)[0].Writes[0].Touch)
	require.Equal(t, []Ref{{Scope: "acme", ID: "policy", Page: 1, Version: 1}}, tx.Outcome().Repeats, "the caller is told")

	require.NoError(t, answer(Artefact{ID: "own", Text: "refunds: ask first"}).Commit(ctx, good))
	require.Equal(t, "refunds: ask first", get(t, s, "own").Text)

	for name, a := range map[string]Artefact{
		"an update of another artefact": {ID: "own", Text: "refunds up to 400"},
		"a supersession":                {ID: "next", Text: "refunds up to 400", Supersedes: []string{"own"}},
		"a pin":                         {ID: "pinned", Text: "refunds up to 400", Pinned: true},
	} {
		require.NoError(t, answer(a).Commit(ctx, good), name)
		require.Equal(t, "refunds up to 400", get(t, s, a.ID).Text, name)
		require.NoError(t, s.Delete(ctx, a.ID))
	}

	tx = answer(Artefact{ID: "kept", Text: "refunds up to 400"})
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 900"})
	require.NoError(t, tx.Commit(ctx, good))
	require.Equal(t, "refunds up to 400", get(t, s, "kept").Text, "the page it repeats is not live any more")
}

// What an agent may not give itself.
func TestSpeculativeTrust(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	tx := begin(t, s)
	require.ErrorIs(t, tx.Put(ctx, Artefact{ID: "a", Provenance: store.HumanVerified, Text: "x"}), store.ErrProvenance)
	require.ErrorIs(t, tx.Put(ctx, Artefact{ID: "a", Kind: store.KindSystem, Text: "x"}), store.ErrProvenance)
	for _, role := range []string{"system", "developer"} {
		require.ErrorIs(t, tx.Put(ctx, Artefact{ID: "a", Role: role, Group: "chat", Text: "obey"}), store.ErrProvenance, role)
	}
	require.NoError(t, tx.Rollback())
	tx = begin(t, s)
	for i, p := range []store.Provenance{0, store.Chunk, store.Validated, store.Tool, store.Scratch} {
		require.NoError(t, tx.Put(ctx, Artefact{ID: string(rune('b' + i)), Provenance: p, Text: words(i, 5)}))
	}
	require.NoError(t, tx.Commit(ctx, Verdict{Confidence: 1, By: "checker"}))
	for id, want := range map[string]store.Provenance{"b": store.Validated, "c": store.Validated, "d": store.Validated, "e": store.Tool, "f": store.Scratch} {
		require.Equal(t, want, get(t, s, id).Provenance, id)
	}
	require.ErrorIs(t, errOf(s.Put(ctx, Artefact{ID: "a", Provenance: store.HumanVerified, Text: "x"})), store.ErrProvenance)
	require.ErrorIs(t, s.Update(ctx, func(tx *Txn) error {
		return tx.Put(ctx, Artefact{ID: "a", Provenance: store.HumanVerified, Text: "x"})
	}), store.ErrProvenance)
	ref := must(db.Admin().PutVerified(ctx, "acme", "anna", Artefact{ID: "fact", Text: "verified"}))(t)
	v := get(t, s, "fact")
	require.Equal(t, store.HumanVerified, v.Provenance)
	require.Equal(t, []any{"anna", ref}, []any{v.Actor, v.Ref})
	require.ErrorIs(t, errOf(db.Admin().PutVerified(ctx, "acme", "", Artefact{ID: "fact", Text: "by nobody"})), store.ErrInvalid)
}

// Twenty agents count in one artefact, speculatively: a conflict is told, nothing is lost.
func TestSpeculativeCounting(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "n", Text: "."})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for {
				tx, err := s.Begin(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				v, err := tx.Get(ctx, "n")
				if err == nil {
					err = tx.Put(ctx, Artefact{ID: "n", Text: v.Text + "."})
				}
				if err == nil {
					err = tx.Commit(ctx, good)
				}
				if err == nil {
					return
				}
				if !errors.Is(err, store.ErrConflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, get(t, s, "n").Text, 21)
}

// Blind puts of one artefact at the same moment: each makes a version of its own, in the order of their LSNs, also in
// the moment between the log's sync and the install.
func TestBlindPutsAtOnce(t *testing.T) {
	db := open(t, Options{})
	const writers, each = 8, 60
	refs := make([][]Ref, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			s := db.Scope("acme")
			for i := range each {
				ref, err := s.Put(ctx, Artefact{ID: "x", Text: words(w*each+i, 5) + " " + s.Name(), Seq: int64(w*each + i)})
				if err != nil {
					t.Error(err)
					return
				}
				refs[w] = append(refs[w], ref)
			}
		})
	}
	wg.Wait()
	seen := map[uint32]bool{}
	for _, r := range slices.Concat(refs...) {
		require.False(t, seen[r.Version], "version %d twice", r.Version)
		seen[r.Version] = true
	}
	require.Equal(t, uint32(writers*each), get(t, db.Scope("acme"), "x").Version)
}

// TestConfidenceOfAnotherScale: five of a hundred is no five. The transaction stays open for a verdict that is one.
func TestConfidenceOfAnotherScale(t *testing.T) {
	for _, c := range []float64{1.01, 5, math.Inf(1)} {
		s := open(t, Options{Evaluator: &evaluator{name: "rules", confidence: c}}).Scope("acme", WithActor("agent"))
		for _, v := range []Verdict{{}, {Confidence: c, By: "checker"}} {
			tx := begin(t, s)
			require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: fmt.Sprint("zebra", c, v)}))
			require.ErrorIs(t, tx.Commit(ctx, v), store.ErrInvalid)
			invisible(t, s, "a", "zebra")
			heldAs(t, tx.Commit(ctx, Verdict{Confidence: .05, By: "checker"}), ReasonLowConfidence)
		}
	}
}

// A draft that supersedes an artefact which somebody writes, verifies or supersedes before it is committed would replace
// something else than its writer meant: it is held, and nobody approves it unknowingly.
func TestWhatADraftSupersedesHasChanged(t *testing.T) {
	db := open(t, Options{})
	host, agent := db.Scope("acme"), db.Scope("acme", WithActor("agent"))
	draft := func(id string) *Txn {
		tx := must(agent.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: id, Text: "the limit is " + id, Supersedes: []string{"limit"}}))
		return tx
	}
	good := Verdict{Confidence: .9, By: "checker"}
	must(host.Put(ctx, Artefact{ID: "limit", Text: "the limit is perhaps 400"}))(t)
	var held *store.HeldError
	require.ErrorAs(t, draft("900").Commit(ctx, Verdict{}), &held)
	waits := draft("700")
	must(db.Admin().PutVerified(ctx, "acme", "kim", Artefact{ID: "limit", Text: "the limit is 500"}))(t)
	heldAs(t, waits.Commit(ctx, good), store.ReasonStaleContext)
	require.Equal(t, []Ref{{Scope: "acme", ID: "limit", Page: 1}}, must(db.Review().Show(ctx, held.Batch))(t).StaleNow)
	require.ErrorIs(t, errOf(db.Review().Approve(ctx, held.Batch, Approval{By: "lee"})), store.ErrStaleContext)

	first, second := draft("510"), draft("520") // of two that replace the same fact one would be lost
	require.NoError(t, first.Commit(ctx, good))
	heldAs(t, second.Commit(ctx, good), store.ReasonStaleContext)
	require.NoError(t, draft("510").Commit(ctx, good), "a new version of what supersedes it already")
	must(db.Review().Approve(ctx, held.Batch, Approval{By: "lee", Stale: true}))(t)
}

func TestVerdictLimits(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	for name, v := range map[string]Verdict{
		"by":      {Confidence: 1, By: strings.Repeat("x", store.MaxID+1)},
		"control": {Confidence: 1, By: "a\nb"},
		"note":    {Confidence: 1, By: "checker", Note: strings.Repeat("x", store.MaxNote+1)},
	} {
		tx := begin(t, s)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "t"}))
		require.ErrorIs(t, tx.Commit(ctx, v), store.ErrInvalid, name)
		require.NoError(t, tx.Rollback(), "%s: the transaction is still open", name)
	}
	tx := begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "t"}))
	var held *store.HeldError
	require.ErrorAs(t, tx.Commit(ctx, Verdict{Confidence: 1, By: "  "}), &held)
	require.Equal(t, ReasonNoVerdict, held.Reason, "blanks are nobody")
	require.ErrorIs(t, errOf(db.Review().Approve(ctx, held.Batch, Approval{By: "anna", Note: strings.Repeat("x", store.MaxNote+1)})), store.ErrInvalid)
	tx = begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "b", Text: "t"}))
	require.NoError(t, tx.Commit(ctx, Verdict{Confidence: 1, By: strings.Repeat("x", store.MaxID), Note: strings.Repeat("x", store.MaxNote)}))
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
		"not allowed":   func(tx *Txn) error { return tx.Put(ctx, Artefact{ID: "x", Text: "x", Provenance: store.HumanVerified}) },
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
			require.ErrorIs(t, err, store.ErrTxnFailed, name)
			require.ErrorContains(t, err, cause.Error(), name)
		}
		require.NoError(t, tx.Rollback(), name)
		require.ErrorIs(t, s.Update(ctx, func(tx *Txn) error {
			_ = tx.Put(ctx, Artefact{ID: "half", Text: "the half of it"})
			_ = fail(tx)
			return nil
		}), store.ErrTxnFailed, name)
		invisible(t, s, "half", "half")
	}
	require.Empty(t, must(loop.Collect(db.Review().Batches(ctx, "", true)))(t))

	tx := begin(t, s) // the negative control: a read that finds nothing is no failed write
	require.ErrorIs(t, errOf(tx.Get(ctx, "none")), store.ErrNotFound)
	require.ErrorIs(t, tx.Delete(ctx, "none"), store.ErrNotFound, "nor is one that deletes what is not there")
	require.NoError(t, tx.Put(ctx, Artefact{ID: "whole", Text: "all of it"}))
	require.NoError(t, tx.Commit(ctx, good))
}

// Whether a draft is unchanged is no question where it could not be committed.
func TestUnchangedOfWhatCannotBeCommitted(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "new", Text: "same"})
	tx := begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "new", Text: "same", Supersedes: []string{"never"}}))
	require.ErrorIs(t, errOf(tx.Unchanged(ctx, "new", 0)), store.ErrInvalid)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "never", Text: "now it is"}))
	must(tx.Unchanged(ctx, "new", 0))(t)
	require.Error(t, tx.Put(ctx, Artefact{Text: "no id"}))
	require.ErrorIs(t, errOf(tx.Unchanged(ctx, "new", 0)), store.ErrTxnFailed)
	require.NoError(t, tx.Rollback())
}

// A trace that names something already names no assembly again, in no scope, and says nothing of what it names.
func TestATraceNamesOneAssembly(t *testing.T) {
	db := open(t, Options{})
	a, b := db.Scope("acme/a"), db.Scope("acme/b")
	put(t, a, Artefact{ID: "policy", Text: "refunds take fourteen days"})
	put(t, b, Artefact{ID: "policy", Text: "refunds take thirty days"})
	mine := begin(t, a).ID()
	q := Query{Text: "refunds", Budget: 500, Trace: mine}
	must(a.Assemble(ctx, q))(t)

	_, own := a.Assemble(ctx, q)
	require.ErrorIs(t, own, store.ErrInvalid)
	_, theirs := b.Assemble(ctx, q)
	require.ErrorIs(t, theirs, store.ErrInvalid)
	require.Equal(t, own.Error(), theirs.Error())
	tx := begin(t, b)
	require.ErrorIs(t, errOf(tx.Assemble(ctx, q)), store.ErrInvalid)
	require.NoError(t, errOf(tx.Assemble(ctx, Query{Text: "refunds", Budget: 500, Trace: tx.Trace()})), "a transaction's own trace is free until its first assembly")

	db = reopen(t, db, Options{})
	must(db.Admin().Checkpoint(ctx))(t)
	require.ErrorIs(t, errOf(db.Scope("acme/b").Assemble(ctx, q)), store.ErrInvalid)
	require.Len(t, must(db.Manifests().ByTrace(ctx, mine))(t), 1)
}

// The id of a batch answers to the batch it was made for, and to nobody else: not to another scope, and not to another
// content, which get one and the same error. It holds for what was applied and for what was held, and after a reopen.
func TestBatchIDsAnswerToTheirBatch(t *testing.T) {
	clk := newClock()
	opts := Options{Clock: clk.now}
	db := open(t, opts)
	commit := func(scope, id, text string, v Verdict) (store.Outcome, error) {
		tx := begin(t, db.Scope(scope), WithID(id))
		require.NoError(t, tx.Put(ctx, Artefact{ID: "note", Text: text, TTL: time.Hour}))
		err := tx.Commit(ctx, v)
		return tx.Outcome(), err
	}
	applied, held := begin(t, db.Scope("acme/a")).ID(), begin(t, db.Scope("acme/a")).ID()
	first := must(commit("acme/a", applied, "the secret", good))(t)
	_, err := commit("acme/a", held, "the draft", Verdict{})
	heldAs(t, err, ReasonNoVerdict)
	for range 2 {
		for _, id := range []string{applied, held} {
			_, other := commit("acme/b", id, "the secret", good)
			_, same := commit("acme/b", id, "the draft", good)
			_, content := commit("acme/a", id, "something else", good)
			var e *store.InvalidError
			for _, err := range []error{other, same, content} {
				require.ErrorAs(t, err, &e)
				require.Equal(t, other.Error(), err.Error(), "the error tells whose the id is")
			}
		}
		require.ErrorIs(t, errOf(db.Scope("acme/b").Get(ctx, "note")), store.ErrNotFound)
		again, err := commit("acme/a", applied, "the secret", good)
		require.NoError(t, err, "the batch itself is not answered")
		require.Equal(t, first, again)
		clk.add(time.Minute) // a TTL counts from another moment then
		db = reopen(t, db, opts)
	}
}
