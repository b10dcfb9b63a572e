package foreign_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/store"
)

// The hash of a text that the specification publishes, and what must not change it.
func TestPAMContentHash(t *testing.T) {
	const want = "sha256:e1bae3ec291c99eced01fc91b4152a0cef541fccf2034fc11b3f90f4e4d79b6e"
	require.Equal(t, want, foreign.ContentHash("User is a cloud infrastructure engineer"))
	require.Equal(t, want, foreign.ContentHash("  user is a\n\tCLOUD infrastructure  engineer "))
	require.Equal(t, foreign.ContentHash("caf\u00e9"), foreign.ContentHash("cafe\u0301"))
	require.NotEqual(t, want, foreign.ContentHash("User is a cloud engineer"), "control")
}

// imported are the artefacts of a scope, without what says when they were written.
func imported(t *testing.T, s *ctxpage.Scope) (out []string) {
	t.Helper()
	for v, err := range s.Artefacts(t.Context(), "") {
		require.NoError(t, err)
		full := must(s.Get(t.Context(), v.ID))(t)
		out = append(out, fmt.Sprint(full.ID, full.Kind, full.Text, full.Tags, full.Meta, full.CurrentAsOf.UTC(), full.ExpiresAt.UTC(), full.Provenance))
	}
	return out
}

// A file of PAM goes in, out, and in again: the same artefacts with the same ids, and nothing new where they are already.
func TestPAMRoundTrip(t *testing.T) {
	ctx := context.Background()
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "a.ctx"), ctxpage.Options{Exclusive: true}))(t)
	defer db.Close()
	file := fmt.Sprintf(`{"schema":"portable-ai-memory","schema_version":"1.0","owner":{"id":"ann"},"memories":[
{"id":"m1","type":"skill","custom_type":null,"status":"active","content":"Ann <writes> Go & \"SQL\"","content_hash":%q,"tags":["go","db"],"confidence":{"initial":0.9,"current":0.85},"temporal":{"created_at":"2024-06-01T10:00:00Z","updated_at":"2026-02-15T20:00:00Z","valid_until":null},"provenance":{"platform":"claude","conversation_ref":"c1"},"metadata":{"language":"en"}},
{"id":"m2","type":"preference","content":"Likes tea","content_hash":%q,"temporal":{"created_at":"2024-06-01T10:00:00Z","valid_until":"2031-01-01T00:00:00Z"},"provenance":{"platform":"chatgpt"}}]}`,
		foreign.ContentHash("Ann <writes> Go & \"SQL\""), foreign.ContentHash("Likes tea"))
	a := db.Scope("acme/a")
	rep := must(foreign.Import(ctx, a, strings.NewReader(file), foreign.Options{Format: foreign.PAM}))(t)
	require.Equal(t, 2, rep.New)
	var out bytes.Buffer
	opts := foreign.PAMOptions{Scope: "acme/a", Owner: "ann", At: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	did := must(foreign.ExportPAM(ctx, db, &out, opts))(t)
	require.Equal(t, 2, did.Memories)
	var was, is struct {
		Schema   string           `json:"schema"`
		Owner    map[string]any   `json:"owner"`
		Memories []map[string]any `json:"memories"`
	}
	require.NoError(t, json.Unmarshal([]byte(file), &was))
	require.NoError(t, json.Unmarshal(out.Bytes(), &is))
	delete(was.Memories[0], "custom_type") // null says nothing
	byID := map[string]map[string]any{}
	for _, m := range is.Memories {
		byID[m["id"].(string)] = m
	}
	was.Memories[1]["tags"] = []any{}
	for _, m := range was.Memories {
		require.Equal(t, m, byID[m["id"].(string)])
	}
	require.Equal(t, was.Owner, is.Owner)

	found, _, err := foreign.Detect(ctx, bytes.NewReader(out.Bytes()))
	require.NoError(t, err)
	require.Equal(t, foreign.PAM, found)
	again := must(foreign.Import(ctx, a, bytes.NewReader(out.Bytes()), foreign.Options{}))(t)
	require.Equal(t, 0, again.New+again.Kept+again.Changed, "%+v", again)
	b := db.Scope("acme/b")
	must(foreign.Import(ctx, b, bytes.NewReader(out.Bytes()), foreign.Options{}))(t)
	var second bytes.Buffer
	opts.Scope = "acme/b"
	must(foreign.ExportPAM(ctx, db, &second, opts))(t)
	require.Equal(t, out.String(), second.String(), "out, in, out: the same bytes")
	require.Len(t, imported(t, b), 2)
}

// What a database has of its own goes out with what the format has a place for; what is no memory is counted.
func TestPAMOut(t *testing.T) {
	ctx := context.Background()
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "a.ctx"), ctxpage.Options{Exclusive: true}))(t)
	defer db.Close()
	s := db.Scope("acme/desk")
	for _, x := range []ctxpage.Artefact{
		{ID: "tea", Text: "Ann likes tea", Subject: "ann", Tags: []string{"drinks"}, Meta: map[string]string{"k": "v"}},
		{ID: "bob", Text: "Bob likes coffee", Subject: "bob"},
		{ID: "old", Text: "gone"},
		{ID: "doc", Kind: store.KindChunk, Text: strings.Repeat("A long paragraph of text.\n\n", 300)},
	} {
		must(s.Put(ctx, x))(t)
	}
	require.NoError(t, s.Delete(ctx, "old"))
	must(s.Session("talk").Append(ctx, ctxpage.Turn{Role: "user", Text: "hello"}))(t)
	must(db.Scope("acme/desk/sub").Put(ctx, ctxpage.Artefact{ID: "below", Text: "below"}))(t)
	must(db.Scope("acme/desktop").Put(ctx, ctxpage.Artefact{ID: "other", Text: "of another scope"}))(t)
	export := func(o foreign.PAMOptions) (string, *foreign.PAMReport) {
		var b bytes.Buffer
		rep := must(foreign.ExportPAM(ctx, db, &b, o))(t)
		require.True(t, json.Valid(b.Bytes()))
		return b.String(), rep
	}
	text, rep := export(foreign.PAMOptions{Scope: "acme/desk"})
	require.Equal(t, 4, rep.Memories)
	require.Equal(t, map[string]int{"message": 1}, rep.Left)
	require.NotContains(t, text, "gone")
	require.NotContains(t, text, "another scope")
	require.Contains(t, text, `"type":"custom"`)
	require.Contains(t, text, `"ctxpage.subject":"ann"`)
	text, rep = export(foreign.PAMOptions{Subject: "ann"})
	require.Equal(t, 1, rep.Memories)
	require.NotContains(t, text, "Bob")
	require.Contains(t, text, `"owner":{"id":"ann"}`)
	require.ErrorIs(t, errOf(foreign.ExportPAM(ctx, db, io.Discard, foreign.PAMOptions{Subject: "nobody"})), store.ErrNotFound)
	text, rep = export(foreign.PAMOptions{})
	require.Equal(t, 5, rep.Memories)
	to := db.Scope("else")
	in := must(foreign.Import(ctx, to, strings.NewReader(text), foreign.Options{}))(t)
	require.Equal(t, 5, in.New)
	for _, line := range imported(t, to) {
		require.Contains(t, line, "scratch", "whatever it was")
	}
}
