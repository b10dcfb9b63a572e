package static

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// The vectors and the tokens of the model that Small returns. small/distill.py wrote them; row and line have the same number.
// A program that does not call Small does not contain them.
var (
	//go:embed small/model.safetensors
	smallTensors []byte
	//go:embed small/vocabulary.txt
	smallVocabulary string
)

// Small returns the model that comes with this package, for English. It was distilled from all-MiniLM-L6-v2; small/README.md
// has source, licence and figures. It adds 4 MB to a program. The first call reads it, in some milliseconds; later calls
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
	tensors, err := parseTensors(smallTensors)
	if err != nil {
		return nil, err
	}
	tokens := strings.Split(strings.TrimSuffix(smallVocabulary, "\n"), "\n")
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
	d.Write(smallTensors)
	d.WriteString(smallVocabulary)
	m.name = fmt.Sprintf("small-%d@%016x", m.dims, d.Sum64())
	return m, nil
}
