package eino

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudwego/eino/components/indexer"
	"github.com/cloudwego/eino/components/retriever"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

func open(t testing.TB) *ctxpage.DB {
	t.Helper()
	db, err := ctxpage.Open(filepath.Join(t.TempDir(), "agent.ctx"), ctxpage.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		problems, err := db.Admin().Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.NoError(t, db.Close())
	})
	return db
}

// memory is a checkpoint store as Eino's own tests have one.
type memory map[string][]byte

func (m memory) Get(_ context.Context, id string) ([]byte, bool, error) {
	v, ok := m[id]
	return v, ok, nil
}

func (m memory) Set(_ context.Context, id string, data []byte) error { m[id] = data; return nil }

// compare runs 3,000 random operations on a store and on one in memory, and returns the first difference.
func compare(s compose.CheckPointStore, seed uint64) error {
	own, r := memory{}, rand.New(rand.NewPCG(seed, 1))
	ids := []string{"a", "b", "", "a/b", "ü", "a%2Fb", "x\ny\x00", strings.Repeat("long", 200), strings.Repeat("long", 200) + "!", "\xff"}
	for n := range 3000 {
		id := ids[r.IntN(len(ids))]
		if r.IntN(2) == 0 {
			data := make([]byte, r.IntN(40))
			for i := range data {
				data[i] = byte(r.IntN(256))
			}
			if err := errors.Join(s.Set(ctx, id, data), own.Set(ctx, id, data)); err != nil {
				return fmt.Errorf("operation %d: %w", n, err)
			}
			continue
		}
		got, ok, err := s.Get(ctx, id)
		if want, there, _ := own.Get(ctx, id); err != nil || ok != there || !bytes.Equal(got, want) {
			return fmt.Errorf("operation %d: checkpoint %q is %q, %t, %w; expected %q, %t", n, id, got, ok, err, want, there)
		}
	}
	return nil
}

// truncates is a broken store.
type truncates struct{ *CheckPoints }

func (b truncates) Set(ctx context.Context, id string, data []byte) error {
	return b.CheckPoints.Set(ctx, id, data[:min(30, len(data))])
}

func TestCheckPointsSameAsInMemory(t *testing.T) {
	db := open(t)
	for seed := range uint64(2) {
		require.NoError(t, compare(NewCheckPoints(db.Scope(fmt.Sprintf("s%d", seed))), seed))
	}
	require.ErrorContains(t, compare(truncates{NewCheckPoints(db.Scope("broken"))}, 0), "expected", "a store that cuts checkpoints is seen")
}

// graph interrupts after its first node.
func graph(t *testing.T, s compose.CheckPointStore) compose.Runnable[string, string] {
	t.Helper()
	g := compose.NewGraph[string, string]()
	for _, name := range []string{"1", "2"} {
		require.NoError(t, g.AddLambdaNode(name, compose.InvokableLambda(func(_ context.Context, in string) (string, error) { return in + name, nil })))
	}
	require.NoError(t, errors.Join(g.AddEdge(compose.START, "1"), g.AddEdge("1", "2"), g.AddEdge("2", compose.END)))
	r, err := g.Compile(ctx, compose.WithCheckPointStore(s), compose.WithInterruptBeforeNodes([]string{"2"}))
	require.NoError(t, err)
	return r
}

// A graph is interrupted, the process ends, and another one resumes it.
func TestGraphResumesAfterReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(t, err)
	_, err = graph(t, NewCheckPoints(db.Scope("c"))).Invoke(ctx, "in", compose.WithCheckPointID("run"))
	_, interrupted := compose.ExtractInterruptInfo(err)
	require.True(t, interrupted, "%v", err)
	require.NoError(t, db.Close())

	db, err = ctxpage.Open(path, ctxpage.Options{})
	require.NoError(t, err)
	out, err := graph(t, NewCheckPoints(db.Scope("c"))).Invoke(ctx, "", compose.WithCheckPointID("run"))
	require.NoError(t, err)
	require.Equal(t, "in12", out)
	_, err = graph(t, NewCheckPoints(db.Scope("other"))).Invoke(ctx, "", compose.WithCheckPointID("run"))
	_, interrupted = compose.ExtractInterruptInfo(err)
	require.True(t, interrupted, "without its checkpoint a run begins anew: %v", err)
	require.NoError(t, db.Close())
}

func TestCheckPointPages(t *testing.T) {
	db := open(t)
	scope := db.Scope("acme")
	c := NewCheckPoints(scope)
	require.NoError(t, c.Set(ctx, "a", []byte("refunds need a receipt")))
	v, err := scope.Get(ctx, "checkpoint/a")
	require.NoError(t, err)
	require.Equal(t, store.KindTool, v.Kind)
	found, err := scope.Search(ctx, "refunds receipt", 10)
	require.NoError(t, err)
	require.Empty(t, found.Hits, "the words of a checkpoint are not indexed")
	_, ok, err := NewCheckPoints(db.Scope("acme/below")).Get(ctx, "a")
	require.NoError(t, err)
	require.False(t, ok, "a checkpoint of the scope above")
	require.ErrorIs(t, NewCheckPoints(db.Scope("acme", ctxpage.Gated())).Set(ctx, "a", nil), store.ErrGated)
	_, err = scope.Put(ctx, ctxpage.Artefact{ID: "checkpoint/b", Text: "a note"})
	require.NoError(t, err)
	_, _, err = c.Get(ctx, "b")
	require.ErrorContains(t, err, "another program wrote it")
	require.ErrorIs(t, c.Set(ctx, "big", make([]byte, 13<<20)), store.ErrInvalid)
	require.NoError(t, c.Set(ctx, "big", make([]byte, 12<<20)))
}

var handbook = []*schema.Document{
	{ID: "refunds", Content: "Refunds up to $400 need no approval.", MetaData: map[string]any{"team": "support", "page": 7, "nested": map[string]any{"a": []any{1.5, "x"}}}},
	{ID: "shipping", Content: "Parcels leave the depot every weekday at noon.", MetaData: map[string]any{"team": "logistics"}},
	{ID: "warranty", Content: "A warranty claim needs the serial number, and no approval."},
}

func ids(docs []*schema.Document) []string {
	out := []string{}
	for _, d := range docs {
		out = append(out, d.ID)
	}
	return out
}

func TestDocuments(t *testing.T) {
	scope := open(t).Scope("acme")
	d := NewDocuments(scope, "handbook/")
	stored, err := d.Store(ctx, handbook, indexer.WithSubIndexes([]string{"2026"}))
	require.NoError(t, err)
	require.Equal(t, ids(handbook), stored)
	_, err = scope.Put(ctx, ctxpage.Artefact{ID: "refunds", Text: "Refunds of another prefix need approval."})
	require.NoError(t, err)

	docs, err := d.Retrieve(ctx, "do refunds need approval?")
	require.NoError(t, err)
	require.Equal(t, []string{"refunds", "warranty"}, ids(docs))
	first := docs[0]
	require.Equal(t, handbook[0].Content, first.Content)
	require.Greater(t, first.Score(), docs[1].Score())
	require.Equal(t, []string{"2026"}, first.SubIndexes())
	require.Equal(t, "support", first.MetaData["team"])
	require.Equal(t, 7.0, first.MetaData["page"])
	require.Equal(t, handbook[0].MetaData["nested"], first.MetaData["nested"])
	require.Contains(t, first.MetaData[MetaRef], "refunds#1")
	require.NotContains(t, handbook[0].MetaData, MetaRef, "the caller's documents are not changed")

	for _, c := range []struct {
		want []string
		opts []retriever.Option
	}{
		{[]string{"refunds"}, []retriever.Option{retriever.WithTopK(1)}},
		{[]string{"refunds"}, []retriever.Option{retriever.WithScoreThreshold(first.Score())}},
		{[]string{"refunds", "warranty"}, []retriever.Option{retriever.WithSubIndex("2026")}},
		{[]string{}, []retriever.Option{retriever.WithSubIndex("2025")}},
		{[]string{"warranty"}, []retriever.Option{Where(ctxpage.Filter{IDPrefix: "w"})}},
		{[]string{"refunds"}, []retriever.Option{Where(filter(t, `{"meta":{"team":"support"}}`))}},
	} {
		docs, err := d.Retrieve(ctx, "do refunds need approval?", c.opts...)
		require.NoError(t, err)
		require.Equal(t, c.want, ids(docs))
	}
	all, err := NewDocuments(scope, "").Retrieve(ctx, "do refunds need approval?")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"handbook/refunds", "handbook/warranty", "refunds"}, ids(all))

	for _, o := range []retriever.Option{retriever.WithIndex("x"), retriever.WithTopK(0), retriever.WithDSLInfo(map[string]any{})} {
		_, err := d.Retrieve(ctx, "x", o)
		require.ErrorContains(t, err, "eino: option With")
	}
}

func filter(t *testing.T, text string) ctxpage.Filter {
	t.Helper()
	f, err := store.ParseFilter(text)
	require.NoError(t, err)
	return *f
}

// What is stored again under its id is the next version; what has no id gets one; vectors and scores are not kept.
func TestDocumentVersions(t *testing.T) {
	scope := open(t).Scope("acme")
	d := NewDocuments(scope, "")
	_, err := d.Store(ctx, []*schema.Document{{ID: "a", Content: "the office closes at five"}})
	require.NoError(t, err)
	doc := (&schema.Document{ID: "a", Content: "the office closes at six"}).WithScore(3).WithDenseVector([]float64{1}).WithSparseVector(map[int]float64{1: 1})
	_, err = d.Store(ctx, []*schema.Document{doc})
	require.NoError(t, err)
	docs, err := d.Retrieve(ctx, "when does the office close?")
	require.NoError(t, err)
	require.Len(t, docs, 1)
	require.Equal(t, "the office closes at six", docs[0].Content)
	require.Nil(t, docs[0].DenseVector())
	require.NotEqual(t, 3.0, docs[0].Score())

	made, err := d.Store(ctx, []*schema.Document{{Content: "one"}, {Content: "two"}})
	require.NoError(t, err)
	require.Len(t, made, 2)
	require.NotEqual(t, made[0], made[1])
	for i, want := range []string{"one", "two"} {
		v, err := scope.Get(ctx, made[i])
		require.NoError(t, err)
		require.Equal(t, want, v.Text)
	}
	_, err = d.Store(ctx, []*schema.Document{{ID: "b", Content: "x"}, nil})
	require.ErrorContains(t, err, "document 2 of 2 is nil")
	_, err = d.Store(ctx, []*schema.Document{{ID: "b", Content: "x", MetaData: map[string]any{"f": func() {}}}})
	require.ErrorContains(t, err, "is no JSON")
	_, err = scope.Get(ctx, "b")
	require.ErrorIs(t, err, store.ErrNotFound, "all or none")
}

// The write gate holds documents.
func TestDocumentsGate(t *testing.T) {
	db := open(t)
	d := NewDocuments(db.Scope("acme", ctxpage.Gated()), "")
	_, err := d.Store(ctx, handbook)
	require.ErrorIs(t, err, store.ErrHeld)
	docs, err := d.Retrieve(ctx, "do refunds need approval?")
	require.NoError(t, err)
	require.Empty(t, docs)
	for held, err := range db.Review().Batches(ctx, "acme", false) {
		require.NoError(t, err)
		require.Len(t, held.Writes, 3)
		_, err = db.Review().Approve(ctx, held.ID, ctxpage.Approval{By: "ann"})
		require.NoError(t, err)
	}
	docs, err = d.Retrieve(ctx, "do refunds need approval?")
	require.NoError(t, err)
	require.Equal(t, []string{"refunds", "warranty"}, ids(docs))
}
