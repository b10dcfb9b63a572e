// Package static embeds texts in the process, by a static model: a table with a vector for each token, whose mean is
// the vector of a text. Such models are made from a transformer by distilling it (model2vec is the best known maker).
// They ignore the order of words, and are a thousand times faster than the transformer they come from: a text takes
// microseconds, and needs no server.
//
//	e, err := static.Load("/models/potion-base-8M")
//	db, err := ctxpage.Open("agent.ctx", ctxpage.Options{Embedder: e})
//
// Load reads a folder that the user names, with the files that model2vec writes: model.safetensors, tokenizer.json and,
// if it is there, config.json. Nothing is ever downloaded.
//
// Transformers run in a server (package embed), or slowly in the process: embed/hugot, a module of its own because it brings a tensor compiler into
// the build.
package static

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Limits of a model.
const (
	// maxFile is the size of the largest file of a model, in bytes.
	maxFile = 2 << 30
	// maxTokens limits the tokens of a text that are read. Later tokens do not count.
	maxTokens = 8192
)

// ErrModel is matched by every error of a folder that holds no model that this package can use. The error names the file
// and says what was expected.
var ErrModel = errors.New("static: not a static model")

// Model is a static model. It never changes and is safe for concurrent use.
type Model struct {
	name      string
	dims      int
	table     []float32 // of tokens, one vector after another
	small     []byte    // the table, if it is of int8
	weights   []float32 // by token; nil: all 1
	rows      []int32   // by token: its place in the table; nil: the token itself
	unknown   int       // token of what the vocabulary does not have; -1: none
	tokens    tokenizer
	normalise bool
}

// Load reads a model from a folder. Errors match ErrModel, or are of the file system.
func Load(dir string) (*Model, error) {
	m := &Model{}
	tensors, sum, err := readTensors(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "tokenizer.json")
	body, err := readFile(file)
	if err != nil {
		return nil, err
	}
	if m.tokens, m.unknown, err = newTokenizer(body); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrModel, file, err)
	}
	if err := m.take(tensors); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrModel, filepath.Join(dir, "model.safetensors"), err)
	}
	if m.normalise, err = normalises(filepath.Join(dir, "config.json")); err != nil {
		return nil, err
	}
	// The vectors change with any of the three, so the name does.
	d := xxhash.New()
	fmt.Fprintln(d, sum, m.normalise)
	d.Write(body)
	m.name = fmt.Sprintf("static-%d@%016x", m.dims, d.Sum64())
	return m, nil
}

// normalises reads config.json, which may be absent: then vectors get length 1.
func normalises(file string) (bool, error) {
	body, err := readFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	config := struct{ Normalize *bool }{}
	if err := json.Unmarshal(body, &config); err != nil {
		return false, fmt.Errorf("%w: %s: expected a JSON object: %w", ErrModel, file, err)
	}
	return config.Normalize == nil || *config.Normalize, nil
}

func readFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("static: %w; a model is a folder with model.safetensors and tokenizer.json", err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%w: %s: %d bytes, expected at most %d", ErrModel, file, info.Size(), maxFile)
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("static: %w", err)
	}
	return body, nil
}

// take finds the table, and the weights and the mapping of tokens to rows that some models have, among the tensors.
func (m *Model) take(tensors map[string]tensor) error {
	table, ok := tensors[tableName]
	if !ok {
		table, ok = tensors["embedding.weight"] // as sentence-transformers writes it
	}
	if !ok || len(table.shape) != 2 || table.shape[1] == 0 {
		return fmt.Errorf("has tensors %s, expected a table named "+tableName+" of tokens × numbers; a transformer needs a server (package embed)", namesOf(tensors))
	}
	m.dims, m.table, m.small = table.shape[1], table.numbers, table.small
	rows := table.shape[0]
	if t, ok := tensors["mapping"]; ok {
		m.rows = make([]int32, len(t.numbers))
		for i, n := range t.numbers {
			if n < 0 || int(n) >= rows {
				return fmt.Errorf("token %d is mapped to row %v of %d", i, n, rows)
			}
			m.rows[i] = int32(n)
		}
		rows = len(t.numbers)
	}
	if t, ok := tensors["weights"]; ok {
		if len(t.numbers) < rows {
			return fmt.Errorf("has %d weights for %d tokens", len(t.numbers), rows)
		}
		m.weights = t.numbers
	}
	if n := m.tokens.size(); n > rows {
		return fmt.Errorf("has vectors of %d tokens, and tokenizer.json names %d", rows, n)
	}
	for i, f := range m.table {
		if f-f != 0 {
			return fmt.Errorf("the vector of row %d is not finite", i/m.dims)
		}
	}
	return nil
}

// Model names the vectors by their length and a digest of the files. It is the same wherever the folder is.
func (m *Model) Model() string { return m.name }

// Dimensions is the length of the vectors.
func (m *Model) Dimensions() int { return m.dims }

// Embed returns the vector of each text, in order. A text of which the vocabulary knows nothing gets zeros. The only error
// is ctx.Err().
func (m *Model) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, t := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out[i] = m.embed(t)
	}
	return out, nil
}

func (m *Model) embed(text string) []float32 {
	sum := make([]float64, m.dims)
	n := 0
	m.tokens.each(text, func(token int) bool {
		if token == m.unknown {
			return true
		}
		row, weight := token, 1.0
		if m.rows != nil {
			row = int(m.rows[token])
		}
		if m.weights != nil {
			weight = float64(m.weights[token])
		}
		m.add(sum, row, weight)
		n++
		return n < maxTokens
	})
	return finish(sum, n, m.normalise)
}

// add adds a row of the table to a sum.
func (m *Model) add(sum []float64, row int, weight float64) {
	if m.small != nil {
		for i, b := range m.small[row*m.dims:][:m.dims] {
			sum[i] += float64(weight * float64(int8(b)))
		}
		return
	}
	for i, f := range m.table[row*m.dims:][:m.dims] {
		sum[i] += float64(weight * float64(f))
	}
}

// finish makes the mean of a sum, of length 1 if need be.
func finish(sum []float64, n int, normalise bool) []float32 {
	out := make([]float32, len(sum))
	by := float64(n)
	if normalise {
		square := 0.0
		for _, f := range sum {
			square += float64(f * f)
		}
		by = math.Sqrt(square)
	}
	if by == 0 {
		return out
	}
	for i, f := range sum {
		out[i] = float32(f / by)
	}
	return out
}

func namesOf(tensors map[string]tensor) string {
	names := slices.Sorted(maps.Keys(tensors))
	if len(names) > 5 {
		names = append(names[:5], "…")
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
