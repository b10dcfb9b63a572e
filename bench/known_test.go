package bench

import (
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/lexical"
)

// TestKnownItems asks for pages of Go's own documentation (BSD licence, read from GOROOT): the first sentence of what is
// said of a symbol is the question, the rest of it, without the symbol's name, the page to be found. It holds the
// constants for documents against those for turns, and tells nDCG@10 of both.
func TestKnownItems(t *testing.T) {
	index, err := lexical.Open(lexNothing{})
	require.NoError(t, err)
	analyzer := lexical.NewAnalyzer()
	var questions []string
	for _, pkg := range []string{
		"archive/zip", "bufio", "bytes", "compress/gzip", "context", "crypto/tls", "crypto/x509", "database/sql", "encoding/binary", "encoding/json",
		"encoding/xml", "errors", "flag", "fmt", "go/ast", "go/types", "html/template", "image", "io", "io/fs", "log/slog", "math", "math/big",
		"math/rand/v2", "mime/multipart", "net", "net/http", "net/mail", "net/netip", "net/url", "os", "os/exec", "path/filepath", "reflect", "regexp",
		"runtime", "slices", "sort", "strconv", "strings", "sync", "sync/atomic", "syscall", "testing", "text/template", "time", "unicode", "unicode/utf8",
	} {
		for _, text := range symbolDocs(t, filepath.Join(build.Default.GOROOT, "src", pkg)) {
			question, page, ok := strings.Cut(text, ". ")
			if _, question, _ = strings.Cut(question, " "); !ok || len(strings.Fields(question)) < 4 || len(strings.Fields(page)) < 12 {
				continue
			}
			questions = append(questions, question)
			index.Add(lexical.Doc{Num: uint64(len(questions)), Scope: 1, Analysis: analyzer.Analyze(page)})
		}
	}
	require.Greater(t, len(questions), 500)
	ndcg := func(r lexical.Ranker) (sum float64) {
		for i, q := range questions {
			hits, err := index.Search(lexNothing{}, lexCorpus{pages: uint64(len(questions))}, lexical.Query{
				Scopes: []uint32{1}, Terms: analyzer.Terms(q), K: 10, Weights: lexical.DefaultWeights(), Ranker: r,
			})
			require.NoError(t, err)
			if at := slices.IndexFunc(hits, func(h lexical.Hit) bool { return h.Num == uint64(i+1) }); at >= 0 {
				sum += 1 / math.Log2(float64(at+2))
			}
		}
		return sum / float64(len(questions))
	}
	pages, turns := ndcg(nil), ndcg(lexical.TurnRanker())
	t.Logf("%d pages: nDCG@10 %.4f by the constants for documents, %.4f by those for turns", len(questions), pages, turns)
	require.GreaterOrEqual(t, pages, turns)
}

// lexNothing is a store without segments.
type lexNothing struct{}

func (lexNothing) Get([]byte) []byte                          { return nil }
func (lexNothing) Scan(_, _ []byte, _ func(k, v []byte) bool) {}

// symbolDocs gives what is said of the exported symbols of a package, in the order of their names.
func symbolDocs(t *testing.T, dir string) (texts []string) {
	set := token.NewFileSet()
	pkg, err := build.ImportDir(dir, 0)
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(dir, name), nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	d, err := doc.NewFromFiles(set, files, pkg.Name)
	require.NoError(t, err)
	funcs := d.Funcs
	for _, typ := range d.Types {
		texts = append(texts, typ.Doc)
		funcs = append(append(funcs, typ.Funcs...), typ.Methods...)
	}
	for _, f := range funcs {
		texts = append(texts, f.Doc)
	}
	for i, text := range texts {
		texts[i] = strings.Join(strings.Fields(text), " ")
	}
	return texts
}
