package filestore_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

var updateGolden = flag.Bool("update", false, "write the golden databases of this revision anew; those of releases stay")

// goldenTrace is the assembly that is replayed from the golden database.
const goldenTrace = "01JZZZZZZZ0000000000000000"

// golden is where the golden database is kept.
const golden = "testdata/golden/pages"

// goldenTool and goldenPart are artefacts with most fields set; goldenWords is what the second one's text is.
func goldenTool() Artefact {
	relevance := .25
	return Artefact{
		ID: "tool", Kind: store.KindMessage, Role: "assistant", Name: "Eve", Provenance: store.Tool, Text: "The desk is open.", Priority: store.PriorityHigh, Relevance: &relevance,
		ToolCalls: []store.ToolCall{{ID: "c9", Type: "function", Name: "hours", Arguments: "{}"}}, Group: "desk", Seq: 7, Subject: "bob", Pinned: true,
		Tags: []string{"a", "b"}, Meta: map[string]string{"k": "v", "a": "b"}, CurrentAsOf: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC),
		ExpiresAt: time.Date(2096, 6, 1, 0, 0, 0, 0, time.UTC), DerivedFrom: []Ref{{ID: "policy", Version: 2}}, Supersedes: []string{"turn-1"},
	}
}

func goldenPart() Artefact {
	return Artefact{ID: "part", Role: "user", Parts: []store.Part{{Type: "text", Text: "Look: "}, {Type: "image_url", URL: "https://example.org/a.png", Detail: "low"}, {Type: "text", Text: "a cat"}}}
}

// writeGolden makes a database with a row of every kind, and leaves part of it in the log alone.
func writeGolden(t *testing.T, path string) manifest.Head {
	t.Helper()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	var seed [32]byte
	db := openTest(t, path, Options{Clock: func() time.Time { now = now.Add(time.Second); return now }, Rand: rand.NewChaCha8(seed)})
	s := db.Scope("acme/support", WithActor("agent"))
	relevance := .5
	for _, a := range []Artefact{
		{ID: "system", Kind: store.KindSystem, Text: "You answer billing questions."},
		{ID: "policy", Text: "Refunds up to $200 need no approval.", Tags: []string{"billing"}, Meta: map[string]string{"owner": "anna"}, Relevance: &relevance},
		{ID: "policy", Text: "Refunds up to $400 need no approval.", Tags: []string{"billing"}},
		{ID: "old", Text: "Refunds up to $100.", TTL: time.Hour},
		{ID: "turn-1", Role: "user", Name: "Bob", Group: "talk", Seq: 1, Text: "May I have a refund?"},
		{ID: "turn-2", Role: "assistant", Group: "talk", Seq: 2, ToolCalls: []store.ToolCall{{ID: "c1", Name: "lookup", Arguments: "{}"}}, Text: "Let me look."},
		{ID: "gone", Text: "This one is deleted."},
	} {
		must(s.Put(ctx, a))(t)
	}
	require.NoError(t, s.Delete(ctx, "gone"))
	must(db.Admin().PutVerified(ctx, "acme", "anna", Artefact{ID: "fact", Text: "The refund desk closes at noon."}))(t)
	must(s.Directives().Step(ctx, "prohibit gift cards"))(t)
	for _, text := range []string{"First.", "Second."} {
		must(db.Scope("acme/notes").Put(ctx, Artefact{ID: "note", Text: text}))(t)
	}
	must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, Scope: "acme/notes"}))(t)
	for _, a := range []Artefact{goldenTool(), goldenPart()} {
		must(s.Put(ctx, a))(t)
	}
	must(db.Admin().Checkpoint(ctx))(t)
	must(s.Assemble(ctx, Query{Text: "What may I refund?", Budget: 2000, Trace: goldenTrace}))(t)
	tx := must(s.Resume(ctx, goldenTrace))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "Up to $400."}))
	require.ErrorIs(t, tx.Commit(ctx, Verdict{Confidence: .6, By: "checker"}), store.ErrHeld)
	holdGolden(t, db, s)
	head := must(db.Head(ctx))(t)
	require.NoError(t, db.Close())
	return head
}

// holdGolden leaves a batch that was approved and one that was rejected, and both put again, to wait.
func holdGolden(t *testing.T, db *DB, s *Scope) {
	t.Helper()
	for i, end := range []string{"approve", "reject", ""} {
		tx, err := s.Begin(ctx)
		require.NoError(t, err)
		tool, part := goldenTool(), goldenPart()
		tool.ID, part.ID = fmt.Sprint("held-tool-", i), fmt.Sprint("held-part-", i)
		require.NoError(t, tx.Put(ctx, tool))
		require.NoError(t, tx.Put(ctx, part))
		require.ErrorIs(t, tx.Commit(ctx, Verdict{Confidence: .5, By: "checker", Note: "unsure"}), store.ErrHeld)
		switch end {
		case "approve":
			_, err = db.Review().Approve(ctx, tx.ID(), Approval{By: "anna", Note: "yes"})
		case "reject":
			_, err = db.Review().Reject(ctx, tx.ID(), "anna", "no")
		}
		require.NoError(t, err)
	}
}

// sameGolden says whether an artefact that was read is the one that was put. A version has its own times and texts.
func sameGolden(t *testing.T, want Artefact, got *Version) {
	t.Helper()
	a := got.Artefact
	a.ID, want.ID = "", ""
	a.Kind, a.Priority, a.Provenance, want.Kind, want.Priority, want.Provenance = 0, 0, 0, 0, 0, 0
	if want.CurrentAsOf.IsZero() {
		a.CurrentAsOf = time.Time{}
	}
	a.CurrentAsOf, a.ExpiresAt = a.CurrentAsOf.UTC(), a.ExpiresAt.UTC()
	for i := range a.DerivedFrom {
		a.DerivedFrom[i].Scope = ""
	}
	require.Equal(t, want, a)
}

// checkGoldenRows reads artefacts with most fields set, also from held batches.
func checkGoldenRows(t *testing.T, db *DB) {
	t.Helper()
	s := db.Scope("acme/support", WithActor("agent"))
	for _, id := range []string{"", "held-"} {
		for _, want := range []Artefact{goldenTool(), goldenPart()} {
			id := id + want.ID
			if id != want.ID {
				id += "-0"
			}
			v := must(s.Get(ctx, id))(t)
			sameGolden(t, want, v)
		}
	}
	require.ErrorIs(t, errOf(db.Scope("acme/notes").Recall(ctx, Ref{ID: "note", Version: 1})), store.ErrGone)
	held := must(loop.Collect(db.Review().Batches(ctx, "", true)))(t)
	var decided []string
	for _, h := range held {
		decided = append(decided, h.Decided)
	}
	require.Equal(t, []string{"", "approved", "rejected", ""}, decided)
	last := must(db.Review().Show(ctx, held[3].ID))(t)
	require.Equal(t, []string{"checker", "unsure"}, []string{last.By, last.Note})
	require.Len(t, last.Writes, 2)
	sameGolden(t, goldenTool(), &last.Writes[0])
	require.Equal(t, "Look: a cat", last.Writes[1].Text)
	require.Len(t, last.Writes[1].Parts, 3)
	must(db.Review().Approve(ctx, last.ID, Approval{By: "anna"}))(t)
	v := must(s.Get(ctx, "held-tool-2"))(t)
	sameGolden(t, goldenTool(), v)
	require.Equal(t, uint32(1), must(s.Put(ctx, goldenPart()))(t).Version, "a stored row is compared as what it says")
}

// pack replaces a file by its compressed form: most of a small bbolt file is empty.
func pack(t *testing.T, path string) {
	t.Helper()
	raw := must(os.ReadFile(path))(t)
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	must(w.Write(raw))(t)
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(path+".gz", b.Bytes(), 0o644))
	require.NoError(t, os.Remove(path))
}

func unpackTo(t *testing.T, from, to string) {
	t.Helper()
	f := must(os.Open(from))(t)
	defer f.Close()
	r := must(gzip.NewReader(f))(t)
	require.NoError(t, os.WriteFile(to, must(io.ReadAll(r))(t), 0o600))
}

// The golden database is read as it was written: contents, audit, replay, held drafts.
func TestGolden(t *testing.T) {
	if *updateGolden {
		path := filepath.Join(t.TempDir(), "agent.ctx")
		head := writeGolden(t, path)
		keepGolden(t, path, golden)
		require.NoError(t, os.WriteFile(filepath.Join(golden, "head.txt"), []byte(head.String()+"\n"), 0o644))
	}
	useGolden(t, golden)
}

// useGolden reads a database of dir, writes to a copy of it, and opens it again.
func useGolden(t *testing.T, dir string) {
	t.Helper()
	path := openGolden(t, dir)
	db := openTest(t, path, Options{})
	checkGolden(t, db, dir)
	require.NoError(t, db.Close())
	db = openTest(t, path, Options{}) // with rows that this program wrote beside those
	require.Empty(t, must(db.Admin().Check(context.Background(), nil))(t))
}

// released has a folder for each release with the golden databases of that day (make freeze). They are never changed: every later
// program opens them, serves what they hold, replays their contexts byte for byte, and writes to them.
const released = "testdata/released"

func TestReleased(t *testing.T) {
	dirs := must(filepath.Glob(filepath.Join(released, "v*")))(t)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			useGolden(t, filepath.Join(dir, "pages"))
			useGoldenTalk(t, filepath.Join(dir, "talk"))
			for name, key := range goldenMany {
				useGoldenMany(t, filepath.Join(dir, name), key)
			}
		})
	}
}

// keepGolden makes a database the golden one in dir.
func keepGolden(t *testing.T, path, dir string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, dbtest.Copy(path, filepath.Join(dir, "golden.db")))
	pack(t, filepath.Join(dir, "golden.db"))
}

// openGolden copies the golden database in dir to a place where it can be written.
func openGolden(t *testing.T, dir string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent.ctx")
	require.NoError(t, os.CopyFS(path+"-wal", os.DirFS(filepath.Join(dir, "golden.db-wal"))))
	require.NoError(t, os.CopyFS(path+"-manifest", os.DirFS(filepath.Join(dir, "golden.db-manifest"))))
	unpackTo(t, filepath.Join(dir, "golden.db.gz"), path)
	if ring, err := os.ReadFile(filepath.Join(dir, "golden.db.keys")); err == nil {
		require.NoError(t, os.WriteFile(path+".keys", ring, 0o600))
	}
	return path
}

func checkGolden(t *testing.T, db *DB, dir string) {
	t.Helper()
	s := db.Scope("acme/support", WithActor("agent"))
	v := must(s.Get(ctx, "policy"))(t)
	require.Equal(t, "Refunds up to $400 need no approval.", v.Text)
	v = must(s.Recall(ctx, Ref{Scope: "acme/support", ID: "policy", Version: 1}))(t)
	require.Equal(t, "anna", v.Meta["owner"])
	require.Equal(t, .5, *v.Relevance)
	require.ErrorIs(t, errOf(s.Get(ctx, "gone")), store.ErrNotFound)
	require.ErrorIs(t, errOf(s.Get(ctx, "answer")), store.ErrNotFound)
	held := must(loop.Collect(db.Review().Batches(ctx, "", false)))(t)
	require.NotEmpty(t, held)
	require.Equal(t, "Up to $400.", must(db.Review().Show(ctx, held[0].ID))(t).Writes[0].Text)
	require.Contains(t, must(s.Directives().State(ctx))(t).Own.State.Text(), "gift cards")
	r := must(db.Replay(ctx, goldenTrace))(t)
	require.True(t, r.Same)
	require.True(t, bytes.Contains([]byte(r.Text), []byte("$400")))
	line := must(os.ReadFile(filepath.Join(dir, "head.txt")))(t)
	head := must(manifest.ParseHead(string(bytes.TrimSpace(line))))(t)
	require.Empty(t, must(db.Manifests().Verify(ctx, &head, nil))(t).Problems)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	checkGoldenRows(t, db)
}

// goldenTalk is where the golden conversation is kept.
const goldenTalk = "testdata/golden/talk"

// writeTalk makes a conversation with a turn that its host told something of, a pin, a compaction and a deleted turn.
func writeTalk(t *testing.T, path string) {
	t.Helper()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	var seed [32]byte
	db := openTest(t, path, Options{Clock: func() time.Time { now = now.Add(time.Second); return now }, Rand: rand.NewChaCha8(seed)})
	s := db.Scope("acme/support", WithActor("agent"))
	chat := s.Session("chat")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 1000, Reserve: 100}))
	for i := range 12 {
		turn := Turn{Role: []string{"user", "assistant"}[i%2], Text: fmt.Sprintf("Refund %d.\n\n%s", i, strings.Repeat(fmt.Sprint("The desk paid case ", i, " today. "), 4+i%3*6))}
		if i == 3 {
			turn.Signals = session.Signals{Source: "file:desk.md", Keep: true}
		}
		must(chat.Append(ctx, turn))(t)
	}
	require.NoError(t, chat.Pin(ctx, "block-chat-2"))
	require.NoError(t, s.Delete(ctx, "block-chat-7"))
	must(db.Admin().Checkpoint(ctx))(t)
	must(chat.Append(ctx, Turn{Role: "user", Text: "This one is in the log alone."}))(t)
	require.NoError(t, db.Close())
}

// talkShape is the window of a conversation, and the rows of its turns.
func talkShape(t *testing.T, db *DB) (out []string) {
	t.Helper()
	chat := db.Scope("acme/support").Session("chat")
	w := must(chat.Inspect(context.Background()))(t)
	for _, v := range w.Turns {
		out = append(out, fmt.Sprintf("%+v", v))
	}
	return out
}

// turnRows returns the rows of the turns that have one of their own.
func turnRows(t *testing.T, db *DB) (rows []string) {
	t.Helper()
	require.NoError(t, format.Walk(context.Background(), storeOf(db), conversation.TurnRowKey, func(r store.StateRow) error { rows = append(rows, string(r.Value)); return nil }))
	return rows
}

// The golden conversation has a row of its own for the one turn that its host told something of; the others are measured in
// their heads. Its window does not move when it is written to.
func TestGoldenTalk(t *testing.T) {
	if *updateGolden {
		path := filepath.Join(t.TempDir(), "agent.ctx")
		writeTalk(t, path)
		keepGolden(t, path, goldenTalk)
	}
	useGoldenTalk(t, goldenTalk)
}

// useGoldenTalk reads a conversation of dir, appends to a copy of it, and opens it again.
func useGoldenTalk(t *testing.T, dir string) {
	t.Helper()
	path := openGolden(t, dir)
	db := openTest(t, path, Options{ReadOnly: true})
	was := talkShape(t, db)
	require.Len(t, was, 12)
	require.NoError(t, db.Close())

	db = openTest(t, path, Options{})
	require.Equal(t, was, talkShape(t, db))
	told := turnRows(t, db)
	require.Len(t, told, 1)
	require.Contains(t, told[0], "file:desk.md", "what the host told")
	chat := db.Scope("acme/support").Session("chat")
	must(chat.Append(ctx, Turn{Role: "assistant", Text: "Written by this program."}))(t)
	require.Equal(t, told, turnRows(t, db), "the new one is in its head")
	was = talkShape(t, db)
	require.NoError(t, db.Close())
	db = openTest(t, path, Options{})
	require.Equal(t, was, talkShape(t, db))
	require.Equal(t, told, turnRows(t, db))
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
}
