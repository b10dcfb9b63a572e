// Package hugot runs a transformer in the process, by the library hugot and its backend in pure Go: no server, no C. It is a module of its
// own, because it brings a tensor compiler into a build.
//
//	m, err := hugot.Load("/models/all-MiniLM-L6-v2")
//	db, err := ctxpage.Open("agent.ctx", ctxpage.Options{Embedder: m})
//
// The folder has model.onnx, tokenizer.json and config.json, as sentence-transformers publishes them: a model of the BERT family with 32-bit weights
// whose vector of a text is the mean of its tokens. Where only model.safetensors is published, testdata/export.py makes model.onnx. Nothing is ever
// downloaded.
//
// It is slow: with MiniLM a sentence of 10 words takes about 0.4 s of a core and one of 50 words 0.9 s, where a static model (embed/static) takes
// microseconds. It suits thousands of pages; for more run a server (embed).
package hugot

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"unicode/utf8"

	hugotlib "github.com/knights-analytics/hugot"
	"github.com/knights-analytics/hugot/options"
	"github.com/knights-analytics/hugot/pipelines"
)

// ErrModel is matched by every error of a folder that holds no model that this package can use.
var ErrModel = errors.New("hugot: not a transformer for sentences")

// maxTokenBytes bounds the bytes of a text that are read for each token that the model reads.
const maxTokenBytes = 64

// Model is a transformer. It is safe for concurrent use; texts are embedded one after another, each on several cores.
type Model struct {
	name   string
	dims   int
	tokens int // that the model reads of a text

	mu      sync.Mutex // guards the following: the library says nothing about concurrent runs
	session *hugotlib.Session
	run     *pipelines.FeatureExtractionPipeline
}

// Load reads a model from a folder. It takes about a second for 90 MB. Errors match ErrModel, or are of the file system. Close gives the memory back.
func Load(dir string) (m *Model, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("hugot: %w", err)
	}
	m = &Model{}
	if m.tokens, err = limit(dir); err != nil {
		return nil, err
	}
	sum := sha256.New()
	for _, name := range []string{"model.onnx", "tokenizer.json"} {
		if err := digest(sum, filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	fmt.Fprintln(sum, m.tokens)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
			m = nil
		}
	}()
	if err := m.open(dir); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrModel, dir, err)
	}
	probe, err := m.embed("a")
	if err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrModel, dir, err)
	}
	m.dims = len(probe)
	m.name = fmt.Sprintf("hugot-%d@%x", m.dims, sum.Sum(nil)[:8])
	return m, nil
}

// limit returns how many tokens of a text the model reads.
func limit(dir string) (int, error) {
	var config struct {
		MaxPositionEmbeddings int `json:"max_position_embeddings"`
		MaxSeqLength          int `json:"max_seq_length"`
	}
	for _, name := range []string{"config.json", "sentence_bert_config.json"} {
		file := filepath.Join(dir, name)
		body, err := os.ReadFile(file)
		if name != "config.json" && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("hugot: %w; a model is a folder with model.onnx, tokenizer.json and config.json", err)
		}
		if err := json.Unmarshal(body, &config); err != nil {
			return 0, fmt.Errorf("%w: %s: expected a JSON object: %w", ErrModel, file, err)
		}
	}
	n := config.MaxPositionEmbeddings
	if n < 3 {
		return 0, fmt.Errorf("%w: %s: max_position_embeddings is %d, expected how many tokens the model reads", ErrModel, filepath.Join(dir, "config.json"), n)
	}
	if s := config.MaxSeqLength; s >= 3 {
		n = min(n, s)
	}
	return n, nil
}

func digest(sum io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("hugot: %w; a model is a folder with model.onnx, tokenizer.json and config.json", err)
	}
	defer f.Close()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("hugot: %w", err)
	}
	return nil
}

// open makes the pipeline. The library compiles a program for each length of a text; buckets bound how many it keeps.
func (m *Model) open(dir string) (err error) {
	defer recovered(&err)
	buckets := []int{}
	for n := 16; n < m.tokens; n *= 2 {
		buckets = append(buckets, n)
	}
	if m.session, err = hugotlib.NewGoSession(options.WithGoMLXBatchBuckets([]int{1}), options.WithGoMLXSequenceBuckets(append(buckets, m.tokens))); err != nil {
		return err
	}
	m.run, err = hugotlib.NewPipeline(m.session, hugotlib.FeatureExtractionConfig{ModelPath: dir, OnnxFilename: "model.onnx", Name: "embed",
		Options: []hugotlib.FeatureExtractionOption{pipelines.WithNormalization()}})
	if err != nil {
		return err
	}
	if m.run.Model.Tokenizer == nil || m.run.Model.Tokenizer.GoTokenizer == nil {
		return errors.New("tokenizer.json was not read")
	}
	m.run.Model.Tokenizer.MaxAllowedTokens = m.tokens
	return nil
}

// recovered turns a panic of the library into an error: its tensor compiler reports faults of a model so.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the library failed: %v", r)
	}
}

// Model names the vectors by their length and a digest of the files. It is the same wherever the folder is.
func (m *Model) Model() string { return m.name }

// Dimensions is the length of the vectors.
func (m *Model) Dimensions() int { return m.dims }

// Embed returns the vector of each text, in order, of length 1. A text without tokens gets zeros. Of a long text the model reads the beginning. If ctx ends, Embed
// stops after the text at hand.
func (m *Model) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v, err := m.embed(text)
		if err != nil {
			return nil, fmt.Errorf("hugot: text %d of %d: %w", i+1, len(texts), err)
		}
		out[i] = v
	}
	return out, nil
}

func (m *Model) embed(text string) (v []float32, err error) {
	defer recovered(&err)
	text = cut(text, m.tokens*maxTokenBytes)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run == nil {
		return nil, errors.New("the model is closed")
	}
	// The library ends the process if a text cannot be tokenized, so that is tried here first.
	tokens, err := m.run.Model.Tokenizer.GoTokenizer.Tokenizer.EncodeSingle(text, true)
	if err != nil {
		return nil, fmt.Errorf("it cannot be tokenized: %w", err)
	}
	words := 0
	for _, special := range tokens.SpecialTokenMask {
		if special == 0 {
			words++
		}
	}
	if words == 0 {
		return make([]float32, m.dims), nil
	}
	got, err := m.run.RunPipeline([]string{text})
	if err != nil {
		return nil, err
	}
	if len(got.Embeddings) != 1 || len(got.Embeddings[0]) == 0 || m.dims != 0 && len(got.Embeddings[0]) != m.dims {
		return nil, fmt.Errorf("got %d vectors, expected one of %d numbers", len(got.Embeddings), m.dims)
	}
	for _, f := range got.Embeddings[0] {
		if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
			return nil, errors.New("its vector is not finite")
		}
	}
	return got.Embeddings[0], nil
}

// cut returns at most limit bytes of a text as valid UTF-8, cut at the start of a character.
func cut(text string, limit int) string {
	if len(text) > limit {
		for limit > 0 && !utf8.RuneStart(text[limit]) {
			limit--
		}
		text = text[:limit]
	}
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}

// Close gives the memory of the model back. Embed fails after it. Closing again does nothing.
func (m *Model) Close() (err error) {
	defer recovered(&err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session == nil {
		return nil
	}
	err = m.session.Destroy()
	m.session, m.run = nil, nil
	return err
}
