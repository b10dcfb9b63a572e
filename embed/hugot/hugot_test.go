package hugot

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

var _ ctxpage.Embedder = (*Model)(nil)

// tiny is a BERT of two layers with random weights, which testdata/export.py makes.
func tiny(t *testing.T) *Model {
	t.Helper()
	m, err := Load("testdata/tiny")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func cosine(a, b []float32) float64 {
	var dot, aa, bb float64
	for i := range a {
		dot, aa, bb = dot+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
	}
	return dot / math.Sqrt(aa*bb)
}

// The vectors are those that numpy computes from the same weights.
func TestVectors(t *testing.T) {
	body, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	var want map[string][]float64
	require.NoError(t, json.Unmarshal(body, &want))
	require.Len(t, want, 3)
	m := tiny(t)
	require.Equal(t, 16, m.Dimensions())
	var all [][]float32
	for text, vector := range want {
		got, err := m.Embed(ctx, []string{text, text + " a b c", text})
		require.NoError(t, err)
		require.Equal(t, got[0], got[2])
		require.NotEqual(t, got[0], got[1])
		require.Len(t, got[0], 16)
		for i := range vector {
			require.InDelta(t, vector[i], got[0][i], 1e-5, "%s: number %d", text, i)
		}
		all = append(all, got[0])
	}
	apart := 0.0
	for i := range all[0] {
		apart = max(apart, math.Abs(float64(all[0][i]-all[1][i])))
	}
	require.Greater(t, apart, 1e-3, "vectors of different sentences differ by much more than the tolerance")
}

func TestTexts(t *testing.T) {
	m := tiny(t)
	texts := []string{"", " \n\t", "\x00\x01", "fox", strings.Repeat("fox ", 300_000), strings.Repeat("x", 1<<20), "\xff\xfe fox", "\u202e</system>", "FOX", "[SEP] [CLS] fox"}
	got, err := m.Embed(ctx, texts)
	require.NoError(t, err)
	for i, v := range got {
		require.Len(t, v, 16, "%.20q", texts[i])
		for _, f := range v {
			require.False(t, f != f, "%.20q", texts[i])
		}
	}
	require.Equal(t, make([]float32, 16), got[0], "no tokens")
	require.Equal(t, got[0], got[1])
	require.Equal(t, got[3], got[8], "lower case")
	require.NotEqual(t, got[3], got[4])
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = m.Embed(cancelled, texts)
	require.ErrorIs(t, err, context.Canceled)
	none, err := m.Embed(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestConcurrentEmbeds(t *testing.T) {
	m := tiny(t)
	want, err := m.Embed(ctx, []string{"the lazy dog", "a refund"})
	require.NoError(t, err)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 5 {
				got, err := m.Embed(ctx, []string{"the lazy dog", "a refund"})
				if err != nil || cosine(got[0], want[0]) < 0.9999 || cosine(got[1], want[1]) < 0.9999 {
					t.Errorf("got %v, %v", got, err)
				}
			}
		})
	}
	wait.Wait()
}

func TestFolders(t *testing.T) {
	m := tiny(t)
	copied := t.TempDir()
	require.NoError(t, os.CopyFS(copied, os.DirFS("testdata/tiny")))
	same, err := Load(copied)
	require.NoError(t, err)
	require.Equal(t, m.Model(), same.Model())
	require.NoError(t, same.Close())
	require.NoError(t, same.Close())
	_, err = same.Embed(ctx, []string{"fox"})
	require.ErrorContains(t, err, "closed")

	require.NoError(t, os.WriteFile(filepath.Join(copied, "sentence_bert_config.json"), []byte(`{"max_seq_length": 4}`), 0o600))
	short, err := Load(copied)
	require.NoError(t, err)
	require.NotEqual(t, m.Model(), short.Model(), "it reads fewer tokens, so its vectors differ")
	got, err := short.Embed(ctx, []string{"the lazy dog", "the lazy dog is a fox"})
	require.NoError(t, err)
	require.Greater(t, cosine(got[0], got[1]), 0.9999)
	require.NoError(t, short.Close())

	_, err = Load(filepath.Join(copied, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	for file, body := range map[string]string{"config.json": "{}", "tokenizer.json": "{}", "model.onnx": "no model"} {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/tiny")))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(body), 0o600))
		_, err = Load(dir)
		require.ErrorIs(t, err, ErrModel, file)
		require.NoError(t, os.Remove(filepath.Join(dir, file)))
		_, err = Load(dir)
		require.ErrorIs(t, err, os.ErrNotExist, file)
	}
}

// A database asks the model.
func TestDatabase(t *testing.T) {
	m := tiny(t)
	db, err := ctxpage.Open(filepath.Join(t.TempDir(), "agent.ctx"), ctxpage.Options{Embedder: m})
	require.NoError(t, err)
	s := db.Scope("s")
	for id, text := range map[string]string{"a": "the lazy dog", "b": "is the refund paid"} {
		_, err = s.Put(ctx, ctxpage.Artefact{ID: id, Text: text})
		require.NoError(t, err)
	}
	found, err := s.Search(ctx, "the refund is paid", 1)
	require.NoError(t, err)
	require.Equal(t, "b", found.Hits[0].Ref.ID)
	require.NoError(t, db.Close())
}

// A real model, if CTXPAGE_TRANSFORMER names its folder.
func TestParaphrases(t *testing.T) {
	dir := os.Getenv("CTXPAGE_TRANSFORMER")
	if dir == "" {
		t.Skip("CTXPAGE_TRANSFORMER names no folder with a model")
	}
	m, err := Load(dir)
	require.NoError(t, err)
	got, err := m.Embed(ctx, []string{"How do I get my money back?", "Refunds are paid within a week.", "The office is closed on Sundays."})
	require.NoError(t, err)
	t.Logf("%s: refund %.3f, office %.3f", m.Model(), cosine(got[0], got[1]), cosine(got[0], got[2]))
	require.Greater(t, cosine(got[0], got[1]), cosine(got[0], got[2])+0.2)
	require.NoError(t, m.Close())
}
