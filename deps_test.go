package ctxpage_test

import (
	"go/ast"
	godoc "go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/ctxpage/ctxpage"

// importMap is where each package stands: what of this module it may import, in tests too unless the name begins with
// "test:". Imports point down. A package without a line fails the test, so that somebody decides on its place.
var importMap = map[string]string{
	".":        "manifest wal lexical render budget token triage session directive test:internal/dbtest test:internal/faultfs test:token/bpe",
	"manifest": "wal test:internal/faultfs",
	"wal":      "test:internal/faultfs",
	"lexical":  "", "render": "", "triage": "", "session": "", "directive": "",
	"budget": "token", "budget/contexty": "budget test:token", "token": "test:token/bpe", "token/bpe": "token",

	"embed":      "triage internal/retry test:.",
	"httpsource": ". internal/retry",

	"cmd/dbctl": ". budget directive manifest render session token token/bpe triage lexical httpsource embed budget/contexty " +
		"internal/budgetcli internal/directivecli internal/pagercli internal/dbtest",
	"bench":          ". budget budget/contexty directive lexical manifest render session token token/bpe triage wal bench/evidence",
	"bench/evidence": ". budget lexical manifest render token token/bpe triage embed", "examples/escalation": ". budget manifest render token triage",

	"internal/budgetcli":    "budget budget/contexty token token/bpe",
	"internal/directivecli": "directive",
	"internal/pagercli":     "session",
	"internal/conformance":  ". budget budget/contexty directive session token internal/budgetcli internal/directivecli internal/pagercli",
	"internal/faultfs":      "wal",
	"internal/dbtest":       "",
	"internal/deps":         "",
	"internal/retry":        "",
}

// leaves keep rules: no files, no goroutines, no clock, no randomness, so that they can be tested without a world. The
// log and its audit work on files; only the log waits, and draws its generations.
var leaves = map[string]string{
	"lexical": "", "render": "", "triage": "", "session": "", "directive": "", "budget": "", "budget/contexty": "", "token": "", "token/bpe": "",
	"manifest": "os", "wal": "os go time rand",
}

type sourceFile struct {
	dir  string // of the package, "." for the root
	name string
	test bool
	ast  *ast.File
	set  *token.FileSet
}

// sources parses every Go file of the module itself: what `go list` says would be served from the test cache.
func sources(t *testing.T) []sourceFile {
	t.Helper()
	fset := token.NewFileSet()
	var out []sourceFile
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(p, "go.mod"))
			if name := d.Name(); p != "." && (name == "testdata" || name[0] == '.' || name[0] == '_' || nested == nil) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, sourceFile{filepath.ToSlash(filepath.Dir(p)), filepath.Base(p), strings.HasSuffix(p, "_test.go"), f, fset})
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(out), 100)
	return out
}

func (f *sourceFile) imports() []string {
	var out []string
	for _, i := range f.ast.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		out = append(out, p)
	}
	return out
}

func TestImportMap(t *testing.T) {
	for _, f := range sources(t) {
		line, ok := importMap[f.dir]
		if !ok {
			t.Errorf("package %s has no line in the map: decide what it may import", f.dir)
			continue
		}
		allowed := strings.Fields(line)
		for _, p := range f.imports() {
			if p == "unsafe" || p == "C" {
				t.Errorf("%s/%s imports %s", f.dir, f.name, p)
			}
			own, ok := strings.CutPrefix(p+"/", module+"/")
			if !ok {
				continue
			}
			own = path.Clean("./" + own)
			if own == f.dir || slices.Contains(allowed, own) || f.test && slices.Contains(allowed, "test:"+own) {
				continue
			}
			t.Errorf("%s/%s imports %s; the map allows %q", f.dir, f.name, own, line)
		}
	}
}

func TestLeavesArePure(t *testing.T) {
	clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker", "Tick"}
	for _, f := range sources(t) {
		line, leaf := leaves[f.dir]
		if !leaf || f.test {
			continue
		}
		may := strings.Fields(line)
		for _, p := range f.imports() {
			switch p {
			case "os", "io/ioutil", "net", "net/http", "os/exec", "syscall", "golang.org/x/sys/unix", "path/filepath":
				if !slices.Contains(may, "os") {
					t.Errorf("%s/%s imports %s: a leaf opens no file", f.dir, f.name, p)
				}
			case "math/rand", "math/rand/v2", "crypto/rand":
				if !slices.Contains(may, "rand") {
					t.Errorf("%s/%s imports %s: a leaf rolls no dice", f.dir, f.name, p)
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				if !slices.Contains(may, "go") {
					t.Errorf("%s/%s starts a goroutine", f.dir, f.name)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) && !slices.Contains(may, "time") {
					t.Errorf("%s/%s calls time.%s", f.dir, f.name, n.Sel.Name)
				}
			}
			return true
		})
	}
}

// Every package says what it is, where go doc shows it.
func TestPackageDocs(t *testing.T) {
	packages := map[string][]*ast.File{}
	var set *token.FileSet
	for _, f := range sources(t) {
		set = f.set
		if !f.test {
			packages[f.dir] = append(packages[f.dir], f.ast)
		}
	}
	for dir, files := range packages {
		p, err := godoc.NewFromFiles(set, files, module+"/"+dir)
		require.NoError(t, err, dir)
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "" // a command says what it does
		}
		if p.Doc == "" || !strings.HasPrefix(p.Doc, want) {
			t.Errorf("package %s has no doc that begins %q", dir, want)
		}
	}
}

var verbs = regexp.MustCompile(`%[-+# 0]*(\[\d+\])?[0-9.*]*[a-zA-Z%]`)

// An error inside an error is wrapped, so that errors.Is finds it.
func TestErrorsWrap(t *testing.T) {
	seen := 0
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 || !isErrorf(call.Fun) {
				return true
			}
			lit, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				return true
			}
			format, _ := strconv.Unquote(lit.Value)
			used := slices.DeleteFunc(verbs.FindAllString(format, -1), func(v string) bool { return v == "%%" })
			for i, arg := range call.Args[1:] {
				if id, ok := arg.(*ast.Ident); ok && (id.Name == "err" || strings.HasSuffix(id.Name, "Err")) {
					seen++
					if i >= len(used) || used[i] != "%w" {
						t.Errorf("%s/%s: Errorf(%q): %s is not wrapped with %%w", f.dir, f.name, format, id.Name)
					}
				}
			}
			return true
		})
	}
	require.Greater(t, seen, 50, "the look-out sees something")
}

func isErrorf(fun ast.Expr) bool {
	s, ok := fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Errorf" {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "fmt"
}
