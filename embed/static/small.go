package static

import (
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// The vectors and the tokens of the model that Small returns. small/distill.py wrote them; row and line have the same number.
// A program that does not call Small does not contain them.
var (
	//go:embed small/model.safetensors.gz
	packedTensors string
	//go:embed small/vocabulary.txt.gz
	packedVocabulary string
)

// Small returns the model that comes with this package, for English. It was distilled from all-MiniLM-L6-v2; small/README.md
// has source, licence and figures. It adds 2.1 MB to a program. The first call reads it, in some milliseconds; later calls
// return the same model.
//
//	db, err := ctxpage.Open("agent.ctx", ctxpage.Options{Embedder: static.Small()})
func Small() *Model { return small() }

var small = sync.OnceValue(func() *Model {
	m, err := parseSmall()
	if err != nil {
		panic(fmt.Sprintf("static: the model in the program is damaged: %v", err)) // a test reads it
	}
	return m
})

func parseSmall() (*Model, error) {
	table, err := unpack(packedTensors)
	if err != nil {
		return nil, err
	}
	vocabulary, err := unpack(packedVocabulary)
	if err != nil {
		return nil, err
	}
	tensors, err := parseTensors(table)
	if err != nil {
		return nil, err
	}
	tokens := strings.Split(strings.TrimSuffix(string(vocabulary), "\n"), "\n")
	t := tokenizer{vocabulary: make(map[string]int, len(tokens)), prefix: "##", maxWord: 100, unknown: -1, lower: true, accents: true, clean: true, cjk: true}
	for i, token := range tokens {
		t.vocabulary[token] = i
		t.longest = max(t.longest, len(token))
	}
	m := &Model{tokens: t, unknown: -1, normalise: true}
	if err := m.take(tensors); err != nil {
		return nil, err
	}
	d := xxhash.New()
	d.Write(table)
	d.Write(vocabulary)
	m.name = fmt.Sprintf("small-%d@%016x", m.dims, d.Sum64())
	return m, nil
}

func unpack(packed string) ([]byte, error) {
	unzip, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unzip)
}
