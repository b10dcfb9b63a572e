package bench

import (
	"context"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/embed"
	"github.com/ctxpage/ctxpage/embed/static"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// knownPackages are packages of Go itself whose documentation is asked for.
var knownPackages = []string{
	"archive/zip", "bufio", "bytes", "compress/gzip", "context", "crypto/tls", "crypto/x509", "database/sql", "encoding/binary", "encoding/json",
	"encoding/xml", "errors", "flag", "fmt", "go/ast", "go/types", "html/template", "image", "io", "io/fs", "log/slog", "math", "math/big",
	"math/rand/v2", "mime/multipart", "net", "net/http", "net/mail", "net/netip", "net/url", "os", "os/exec", "path/filepath", "reflect", "regexp",
	"runtime", "slices", "sort", "strconv", "strings", "sync", "sync/atomic", "syscall", "testing", "text/template", "time", "unicode", "unicode/utf8",
}

// goroot returns where Go's own packages are; "" if no go command tells. A test that was built with -trimpath does not know.
var goroot = sync.OnceValue(func() string {
	out, _ := exec.Command("go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(out))
})

// knownItems are questions and pages of Go's own documentation (BSD licence, read from GOROOT): the first sentence of what is
// said of a symbol is the question, the rest of it, without the symbol's name, the page to be found.
func knownItems(t *testing.T) (questions, pages []string) {
	for _, pkg := range knownPackages {
		for _, text := range slices.Concat(symbolDocs(t, filepath.Join(goroot(), "src", pkg))...) {
			question, page, ok := strings.Cut(text, ". ")
			if _, question, _ = strings.Cut(question, " "); !ok || len(strings.Fields(question)) < 4 || len(strings.Fields(page)) < 12 {
				continue
			}
			questions, pages = append(questions, question), append(pages, page)
		}
	}
	require.Greater(t, len(questions), 500)
	return questions, pages
}

// gain is what a result at a place counts, 0: the first.
func gain(at int) float64 {
	if at < 0 {
		return 0
	}
	return 1 / math.Log2(float64(at+2))
}

// TestKnownItems holds the constants for documents against those for turns, and tells nDCG@10 of both.
func TestKnownItems(t *testing.T) {
	analyzer := lexical.NewAnalyzer()
	questions, texts := knownItems(t)
	ndcg := func(turn *lexical.Turn) (sum float64) {
		index, err := lexical.Open(lexical.NoRows{})
		require.NoError(t, err)
		for i, page := range texts {
			index.Add(lexical.Doc{Num: uint64(i + 1), Scope: 1, Analysis: analyzer.Analyze(page), Turn: turn})
		}
		for i, q := range questions {
			hits, err := index.Search(lexical.NoRows{}, lexCorpus{pages: uint64(len(questions))}, lexical.Query{
				Scopes: []uint32{1}, Terms: analyzer.Terms(q), K: 10,
			})
			require.NoError(t, err)
			sum += gain(slices.IndexFunc(hits, func(h lexical.Hit) bool { return h.Num == uint64(i+1) }))
		}
		return sum / float64(len(questions))
	}
	pages, turns := ndcg(nil), ndcg(&lexical.Turn{})
	t.Logf("%d pages: nDCG@10 %.4f by the constants for documents, %.4f by those for turns", len(questions), pages, turns)
	require.GreaterOrEqual(t, pages, turns)
}

// TestKnownItemsByMeaning asks Search for the same pages, by words and by words and meaning. EVIDENCE_MODEL names the model,
// as for bench/evidence.
func TestKnownItemsByMeaning(t *testing.T) {
	model := knownModel(t)
	if model == nil {
		t.Skip("EVIDENCE_MODEL names no model")
	}
	questions, texts := knownItems(t)
	ctx := context.Background()
	for _, with := range []ctxpage.Embedder{nil, model} {
		db, err := ctxpage.Open(filepath.Join(t.TempDir(), "known.ctx"), ctxpage.Options{Embedder: with, EmbedTimeout: time.Hour, PageTokens: store.MaxPageTokens})
		require.NoError(t, err)
		defer db.Close()
		s := db.Scope("docs")
		require.NoError(t, s.Update(ctx, func(tx *ctxpage.Txn) error {
			for i, text := range texts {
				if err := tx.Put(ctx, ctxpage.Artefact{ID: strconv.Itoa(i), Kind: store.KindChunk, Text: text}); err != nil {
					return err
				}
			}
			return nil
		}))
		if with != nil {
			_, err = db.Admin().Embed(ctx, store.EmbedOptions{})
			require.NoError(t, err)
		}
		sum := 0.0
		for i, q := range questions {
			found, err := s.Search(ctx, q, 10)
			require.NoError(t, err)
			require.NotRegexp(t, "by meaning|by words alone", found.Degraded)
			sum += gain(slices.IndexFunc(found.Hits, func(h ctxpage.Hit) bool { return h.Ref.ID == strconv.Itoa(i) }))
		}
		t.Logf("%d pages: nDCG@10 %.4f, by meaning: %v", len(texts), sum/float64(len(questions)), with != nil)
	}
}

// knownModel is the model that EVIDENCE_MODEL names; nil: none.
func knownModel(t *testing.T) (model ctxpage.Embedder) {
	name := os.Getenv("EVIDENCE_MODEL")
	if name == "" {
		return nil
	}
	model, err := static.Load(name)
	if strings.HasPrefix(name, "http://") {
		model, err = embed.New(embed.Options{URL: name, Model: "all-MiniLM-L6-v2", CacheBytes: 64 << 20})
	}
	require.NoError(t, err)
	return model
}

// symbolDocs gives what is said of the exported symbols of a package, type by type with its functions and methods, then the
// other functions, in the order of their names.
func symbolDocs(t *testing.T, dir string) (groups [][]string) {
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
	add := func(texts ...string) {
		for i, text := range texts {
			texts[i] = strings.Join(strings.Fields(text), " ")
		}
		groups = append(groups, texts)
	}
	var others []string
	for _, f := range d.Funcs {
		others = append(others, f.Doc)
	}
	for _, typ := range d.Types {
		texts := []string{typ.Doc}
		for _, f := range slices.Concat(typ.Funcs, typ.Methods) {
			texts = append(texts, f.Doc)
		}
		add(texts...)
	}
	add(others...)
	return groups
}
