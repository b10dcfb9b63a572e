package ctxpage_test

import (
	"path/filepath"
	"strings"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// The walk of one datum: a policy is put, committed, checkpointed, read, found dirty, fetched anew, assembled into a
// context, and an answer to it is held, then committed. Each step names the file where it happens; `make walk` tells it
// as it goes. README, "Reading the source", is this test in words.
func TestWalk(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "refunds.md")
	writeFile(t, file, "# Refunds\nRefunds up to $200 need no approval.\n")
	db := open(t, Options{FileRoots: []string{dir}})
	s := db.Scope("acme/support", WithActor("agent-7"))
	stat := func() Stats {
		return must(db.Stats(ctx))(t)
	}

	t.Log("1  txn.go, page.go: a put makes pages: split, counted, digested. They wait in the transaction, seen by nobody else")
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		require.NoError(t, tx.Put(ctx, Artefact{ID: "refunds", Source: "file:" + file}))
		must(tx.Get(ctx, "refunds"))(t)
		require.ErrorIs(t, errOf(s.Get(ctx, "refunds")), store.ErrNotFound)
		return nil
	}))

	t.Log("2  sequence.go: the commit got the next LSN; it was durable, then visible, then answered")
	require.EqualValues(t, 1, stat().LSN)
	v := get(t, s, "refunds")
	require.Equal(t, []any{uint32(1), store.KindChunk, store.Chunk}, []any{v.Version, v.Kind, v.Provenance})
	_, written, err := db.Manifests().Written(ctx, v.Pages[0].Num, 1)
	require.NoError(t, err)
	require.Equal(t, v.Pages[0].Digest[:], []byte(written.Digest), "the audit holds its digest, not its text")

	t.Log("3  checkpoint.go: the log's effect goes into the file; it changes no answer")
	require.Positive(t, stat().Overlay)
	must(db.Admin().Checkpoint(ctx))(t)
	require.Zero(t, stat().Overlay)
	require.EqualValues(t, 1, stat().Applied)

	t.Log("4  pagetable.go: a read finds the page in memory and pins it while it looks at it")
	hits := stat().Table.Hits
	get(t, s, "refunds")
	require.Equal(t, hits+1, stat().Table.Hits)
	require.Zero(t, stat().Table.Pinned)

	t.Log("5  internal/freshness: the file changed. The next read finds the page dirty and fetches it anew; the source is the author")
	writeFile(t, file, "# Refunds\nRefunds up to $400 need no approval.\n")
	v = get(t, s, "refunds")
	require.Equal(t, []any{uint32(2), "source"}, []any{v.Version, v.Actor})
	require.Contains(t, v.Text, "$400")
	require.EqualValues(t, 1, stat().Table.Refetches)

	t.Log("6  assemble.go: the index proposes, triage orders, the budget decides, the manifest is written")
	tx := begin(t, s)
	question := "How much may I refund without approval?"
	a := must(tx.Assemble(ctx, Query{Text: question, Budget: 1000, Reserve: 200}))(t)
	require.Equal(t, []string{"refunds"}, ids(a))
	require.LessOrEqual(t, a.Tokens, 800)
	t.Logf("   the model gets, in %d of 800 tokens:\n%s", a.Tokens, a.Text())

	t.Log("7  txn.go: the answer is a draft: in this transaction, nowhere else")
	answer := Artefact{ID: "answer-1", Text: "Up to $400; above that a colleague decides.", DerivedFrom: []Ref{{ID: "refunds"}}}
	require.NoError(t, tx.Put(ctx, answer))
	own := must(tx.Get(ctx, "answer-1"))(t)
	require.Equal(t, []any{store.Validated, v.Ref}, []any{own.Provenance, own.DerivedFrom[0]})

	t.Log("8  txn.go, sequence.go: a checker is not convinced (0.6): held. The same answer at 0.88 is committed")
	err = tx.Commit(ctx, Verdict{Confidence: .6, By: "checker"})
	held := heldAs(t, err, ReasonLowConfidence)
	invisible(t, s, "answer-1", "colleague")
	tx = must(s.Resume(ctx, a.Trace))(t)
	require.NoError(t, tx.Put(ctx, answer))
	require.NoError(t, tx.Commit(ctx, Verdict{Confidence: .88, By: "checker"}))
	require.Equal(t, store.Validated, get(t, s, "answer-1").Provenance)

	t.Log("9  manifest/, explain.go: one trace leads from the context to both answers; the context can be had again")
	leaves := must(db.Manifests().ByTrace(ctx, a.Trace))(t)
	var told []string
	for _, l := range leaves {
		told = append(told, l.Type.String()+" "+l.Status)
		t.Logf("   %-9s %-8s lsn %d  confidence %.2f  %s", l.Type, l.Status, l.LSN, l.Confidence, l.Reason)
	}
	require.Equal(t, []string{"assemble ", "held held", "commit applied"}, told)
	require.Equal(t, held.Batch, leaves[1].Batch)
	why := must(db.Why(ctx, a.Trace, Ref{ID: "refunds"}))(t)
	require.True(t, why.In)
	t.Log("   " + strings.Join(why.Steps, "\n   "))
	writeFile(t, file, "# Refunds\nNo refunds.\n")
	require.Contains(t, get(t, s, "refunds").Text, "No refunds")
	require.Equal(t, a.Text(), must(db.Replay(ctx, a.Trace))(t).Text, "whatever changed since")
	head := must(db.Head(ctx))(t)
	require.Empty(t, must(db.Manifests().Verify(ctx, &head, nil))(t).Problems)
	require.Equal(t, manifest.TypeRefetch, lastOf(t, db).Type)
}

// lastOf is the newest leaf that is no read.
func lastOf(t testing.TB, db *DB) *manifest.Record {
	t.Helper()
	for i := dbtest.SizeOf(db.Manifests()); i > 0; i-- {
		l := must(db.Manifests().Leaf(ctx, i-1))(t)
		if !l.Type.Reads() {
			return l
		}
	}
	return nil
}
