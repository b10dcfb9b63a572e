package ctxpage

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
)

var updateGolden = flag.Bool("update", false, "write the golden database anew; only while its version is unreleased")

// goldenTrace is the assembly that is replayed from the golden database.
const goldenTrace = "01JZZZZZZZ0000000000000000"

// writeGolden makes a database with a row of every kind, and leaves part of it in the log alone.
func writeGolden(t *testing.T, path string) manifest.Head {
	t.Helper()
	ctx := context.Background()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	var seed [32]byte
	db := openTest(t, path, Options{Clock: func() time.Time { now = now.Add(time.Second); return now }, Rand: rand.NewChaCha8(seed)})
	s := db.Scope("acme/support", WithActor("agent"))
	relevance := .5
	for _, a := range []Artefact{
		{ID: "system", Kind: KindSystem, Text: "You answer billing questions."},
		{ID: "policy", Text: "Refunds up to $200 need no approval.", Tags: []string{"billing"}, Meta: map[string]string{"owner": "anna"}, Relevance: &relevance},
		{ID: "policy", Text: "Refunds up to $400 need no approval.", Tags: []string{"billing"}},
		{ID: "old", Text: "Refunds up to $100.", TTL: time.Hour},
		{ID: "turn-1", Role: "user", Name: "Bob", Group: "talk", Seq: 1, Text: "May I have a refund?"},
		{ID: "turn-2", Role: "assistant", Group: "talk", Seq: 2, ToolCalls: []ToolCall{{ID: "c1", Name: "lookup", Arguments: "{}"}}, Text: "Let me look."},
		{ID: "gone", Text: "This one is deleted."},
	} {
		_, err := s.Put(ctx, a)
		require.NoError(t, err)
	}
	require.NoError(t, s.Delete(ctx, "gone"))
	_, err := db.PutVerified(ctx, "acme", "anna", Artefact{ID: "fact", Text: "The refund desk closes at noon."})
	require.NoError(t, err)
	_, err = s.Directives().Step(ctx, "prohibit gift cards")
	require.NoError(t, err)
	_, err = db.Checkpoint(ctx)
	require.NoError(t, err)
	_, err = s.Assemble(ctx, Query{Text: "What may I refund?", Budget: 2000, Trace: goldenTrace})
	require.NoError(t, err)
	tx, err := s.Resume(ctx, goldenTrace)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "Up to $400."}))
	require.ErrorIs(t, tx.Commit(ctx, Verdict{Confidence: .6, By: "checker"}), ErrHeld)
	head, err := db.Head(ctx)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return head
}

// pack replaces a file by its compressed form: most of a small bbolt file is empty.
func pack(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err = w.Write(raw)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(path+".gz", b.Bytes(), 0o644))
	require.NoError(t, os.Remove(path))
}

func unpackTo(t *testing.T, from, to string) {
	t.Helper()
	f, err := os.Open(from)
	require.NoError(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	require.NoError(t, err)
	raw, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, raw, 0o600))
}

// A database of each released version is opened for ever: contents, audit, replay, held drafts.
func TestGolden(t *testing.T) {
	ctx := context.Background()
	const dir = "testdata/golden/v1"
	if *updateGolden {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		path := filepath.Join(t.TempDir(), "agent.ctx")
		head := writeGolden(t, path)
		require.NoError(t, dbtest.Copy(path, filepath.Join(dir, "golden.db")))
		pack(t, filepath.Join(dir, "golden.db"))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "head.txt"), []byte(head.String()+"\n"), 0o644))
	}
	path := filepath.Join(t.TempDir(), "agent.ctx")
	require.NoError(t, os.CopyFS(path+"-wal", os.DirFS(filepath.Join(dir, "golden.db-wal"))))
	require.NoError(t, os.CopyFS(path+"-manifest", os.DirFS(filepath.Join(dir, "golden.db-manifest"))))
	unpackTo(t, filepath.Join(dir, "golden.db.gz"), path)
	db := openTest(t, path, Options{})
	defer db.Close()
	s := db.Scope("acme/support", WithActor("agent"))
	v, err := s.Get(ctx, "policy")
	require.NoError(t, err)
	require.Equal(t, "Refunds up to $400 need no approval.", v.Text)
	v, err = s.GetRef(ctx, Ref{Scope: "acme/support", ID: "policy", Version: 1})
	require.NoError(t, err)
	require.Equal(t, "anna", v.Meta["owner"])
	require.Equal(t, .5, *v.Relevance)
	_, err = s.Get(ctx, "gone")
	require.ErrorIs(t, err, ErrNotFound)
	_, err = s.Get(ctx, "answer")
	require.ErrorIs(t, err, ErrNotFound)
	held, _, err := db.Review().List(ctx, "", false, "", 0)
	require.NoError(t, err)
	require.Len(t, held, 1)
	state, err := s.Directives().State(ctx)
	require.NoError(t, err)
	require.Contains(t, state.Own.State.Text(), "gift cards")
	r, err := db.Replay(ctx, goldenTrace)
	require.NoError(t, err)
	require.True(t, r.Same)
	require.True(t, bytes.Contains([]byte(r.Text), []byte("$400")))
	line, err := os.ReadFile(filepath.Join(dir, "head.txt"))
	require.NoError(t, err)
	head, err := manifest.ParseHead(string(bytes.TrimSpace(line)))
	require.NoError(t, err)
	found, err := db.Manifests().Verify(ctx, &head, nil)
	require.NoError(t, err)
	require.Empty(t, found.Problems)
	problems, err := db.Check(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, problems)
}
