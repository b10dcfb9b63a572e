package bench

import (
	"cmp"
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

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/embed"
	"github.com/ctxpage/ctxpage/embed/static"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
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

// Whether long pages should enter a context whole or as the extract that answers. Each question of TestKnownDocuments is
// given the pages that Assemble ranks for it, and a context is filled with them by score: whole, or those above some tokens
// as their extract. It tells how many contexts hold a page of the document that is asked for, and how many hold the passage
// that the question was taken from (of a manual page the first paragraph of its description): its first words, and half of
// its words.

// inContext is what one way of filling held.
type inContext struct{ document, begins, half int }

// packing is one way to fill a context: once less than a share of the budget is left, pages above some tokens are cut to
// their extract.
type packing struct {
	name  string
	above int
	left  float64
}

var packings = []packing{
	{"as Assemble fills it", 0, 0}, // not by fill
	{"whole pages", store.MaxPageTokens + 1, 0},
	{"all above 200 cut", 200, 1},
	{"those above 100 cut in the last half", 100, .5}, {"in the last quarter", 100, .25}, {"in the last eighth", 100, .125},
}

// TestKnownContexts takes minutes: CTXPAGE_LONG=1 runs it, KNOWN_MAN as in TestKnownDocuments.
func TestKnownContexts(t *testing.T) {
	questions, passages, texts, of := typeDocs(t)
	asked := dbtest.Times(10, 40, 300)
	got := contexts(t, "Go's types", questions[:asked], passages, texts, of)
	require.Greater(t, got[packings[1]][8192].document, asked*6/10)
	if dir := os.Getenv("KNOWN_MAN"); dir != "" {
		questions, texts := manPages(t, dir)
		var described, passages []string
		var of []int
		for i, text := range texts {
			if passage := description(text); len(strings.Fields(passage)) >= 12 {
				described, passages, of = append(described, questions[i]), append(passages, passage), append(of, i)
			}
		}
		contexts(t, "manual pages", described[:min(300, len(described))], passages, texts, of)
	}
}

// description is the first paragraph of what a manual page describes.
func description(text string) string {
	_, after, _ := strings.Cut(text, "# DESCRIPTION\n")
	paragraph, _, _ := strings.Cut(strings.TrimSpace(after), "\n\n")
	return paragraph
}

func contexts(t *testing.T, name string, questions, passages, texts []string, of []int) map[packing]map[int]*inContext {
	db, err := ctxpage.Open(filepath.Join(t.TempDir(), "known.ctx"), ctxpage.Options{})
	require.NoError(t, err)
	defer db.Close()
	s := db.Scope("docs")
	putDocuments(t, s, texts)
	out := map[packing]map[int]*inContext{}
	for _, p := range packings {
		out[p] = map[int]*inContext{2048: {}, 8192: {}}
	}
	analyzer := lexical.NewAnalyzer()
	for i, q := range questions {
		ranked, err := s.Assemble(context.Background(), ctxpage.Query{Text: q, Budget: 200_000, TopK: 300})
		require.NoError(t, err)
		blocks := slices.Clone(ranked.Blocks)
		slices.SortStableFunc(blocks, func(a, b ctxpage.Block) int { return cmp.Compare(b.Score, a.Score) })
		for _, p := range packings {
			for budget, in := range out[p] {
				filled := p.fill(blocks, q, analyzer, budget)
				if p == packings[0] {
					real, err := s.Assemble(context.Background(), ctxpage.Query{Text: q, Budget: budget})
					require.NoError(t, err)
					filled = real.Blocks
				}
				in.count(filled, strconv.Itoa(of[i]), passages[i], analyzer)
			}
		}
	}
	for _, p := range packings {
		for _, budget := range []int{2048, 8192} {
			in, n := out[p][budget], float64(len(questions))
			t.Logf("%s, %d tokens, %s: document %.3f, its first words %.3f, half of its words %.3f", name, budget, p.name, float64(in.document)/n, float64(in.begins)/n, float64(in.half)/n)
		}
	}
	return out
}

// fill takes blocks in their order while they fit.
func (p packing) fill(blocks []ctxpage.Block, question string, an *lexical.Analyzer, budget int) (taken []ctxpage.Block) {
	asked, left := prose.QuestionTerms(an, question), budget
	for _, b := range blocks {
		if b.Tokens > p.above && float64(left-b.Tokens) < p.left*float64(budget) {
			if ranges := prose.PartsOf(b.Text, an).Extract(asked, len(b.Text)); len(ranges) > 0 {
				text := prose.ShowParts(b.Text, ranges)
				b.Tokens = b.Tokens*len(text)/len(b.Text) + 1
				b.Text = text
			}
		}
		if b.Tokens <= left {
			left -= b.Tokens
			taken = append(taken, b)
		}
	}
	return taken
}

// count looks for a document and a passage of it.
func (in *inContext) count(blocks []ctxpage.Block, id, passage string, an *lexical.Analyzer) {
	var text strings.Builder
	for _, b := range blocks {
		if b.Ref.ID == id {
			text.WriteString(b.Text + "\n")
		}
	}
	if text.Len() == 0 {
		return
	}
	in.document++
	if strings.Contains(firstWords(text.String(), math.MaxInt), firstWords(passage, 6)) {
		in.begins++
	}
	has, held := map[string]bool{}, 0
	for _, c := range an.Analyze(text.String()).Terms {
		has[c.Term] = true
	}
	terms := an.Analyze(passage).Terms
	for _, c := range terms {
		if has[c.Term] {
			held++
		}
	}
	if 2*held >= len(terms) {
		in.half++
	}
}

func firstWords(s string, n int) string {
	words := strings.Fields(s)
	return strings.Join(words[:min(n, len(words))], " ")
}
