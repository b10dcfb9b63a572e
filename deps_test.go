package ctxpage_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/stretchr/testify/require"
)

const module = "github.com/ctxpage/ctxpage"

// importMap is what each package may import of this module, its tests apart. Imports point down. A package without a
// line fails the test, so that its place gets decided.
var importMap = map[string]string{
	"wal":                   "internal/codec internal/system",
	"internal/archive":      "internal/codec manifest wal internal/system",
	"manifest":              "internal/codec",
	"internal/lexical":      "internal/codec internal/directivetext token",
	"token":                 "",
	"token/bpe":             "token",
	"render":                "",
	"internal/triage":       "",
	"internal/prose":        "internal/lexical",
	"session":               "internal/prose",
	"store":                 "internal/lexical manifest render internal/triage internal/codec internal/loop",
	"internal/codec":        "internal/system",
	"internal/format":       "internal/archive internal/codec internal/lexical manifest store internal/triage",
	"internal/engine":       "internal/archive internal/codec internal/format internal/lexical internal/triage internal/vector manifest store internal/loop",
	"internal/filestore":    "internal/archive internal/codec internal/engine internal/format internal/lexical manifest store wal internal/system",
	"internal/conversation": "internal/codec internal/prose internal/triage manifest render session store token internal/format",
	"internal/handoff":      "directive internal/conversation internal/freshness internal/directivelog internal/prose manifest session store",
	"internal/vector":       "store internal/format internal/loop",
	"internal/rendering":    "internal/codec internal/format internal/directivelog internal/conversation internal/prose manifest render store internal/triage",
	"internal/directivelog": "directive internal/codec manifest store internal/prose internal/format",
	"internal/eraseplan":    "internal/directivelog internal/rendering internal/conversation internal/handoff manifest store internal/format ops internal/freshness internal/archive",
	"internal/portable":     "internal/eraseplan manifest store token internal/directivelog ops internal/freshness internal/format",
	"internal/freshness":    "internal/codec store internal/triage internal/directivelog internal/format ops internal/loop",
	".":                     "internal/filestore store directive internal/lexical manifest render session token internal/triage internal/codec internal/eraseplan internal/format internal/freshness internal/handoff internal/directivelog internal/rendering internal/conversation internal/vector internal/portable ops internal/prose internal/remote internal/loop",

	"embed":            "internal/loop",
	"serve":            ". directive internal/filestore internal/view manifest internal/remote render session store token/bpe internal/triage ops internal/portable internal/loop",
	"ui":               ". internal/triage internal/view manifest ops render session store token",
	"internal/view":    ". store internal/triage ops",
	"httpsource":       "store internal/loop",
	"cmd/dbctl":        "internal/dbctl",
	"internal/dbctl":   ". directive embed internal/filestore internal/eraseplan internal/freshness internal/handoff internal/view internal/mcpserver manifest internal/remote render session store token token/bpe internal/triage internal/portable internal/foreign serve embed/static internal/archive ops internal/format compat/commands compat/contexty ui internal/loop internal/metrics internal/system",
	"internal/foreign": ". internal/portable render store internal/loop",
	"embed/static":     "",
	"bench":            "",
	"bench/fleet":      ". internal/dbtest",
	"bench/many":       ". internal/dbtest",
	"bench/evidence":   ". embed embed/static internal/prose manifest store token/bpe",

	"storetest":       "internal/lexical internal/triage manifest store internal/archive internal/format",
	"internal/remote": "internal/lexical manifest store internal/archive internal/codec internal/format internal/filestore internal/system",

	"internal/metrics":   ". ops internal/triage",
	"internal/mcpserver": ". internal/view manifest render internal/triage store internal/loop",

	"internal/dbtest":      "internal/codec wal",
	"internal/systest":     ". internal/dbtest internal/filestore store",
	"internal/conformance": "compat/contexty directive internal/directivetext compat/commands",

	"directive":              "internal/directivetext",
	"ops":                    "internal/archive internal/conversation internal/directivelog manifest store internal/prose internal/format",
	"internal/directivetext": "",

	// Published tools to the letter, for dbctl and the conformance runner. The pipeline does not know them.
	"compat/contexty": "token token/bpe internal/triage",
	"compat/commands": "directive internal/directivetext internal/handoff internal/prose session internal/conversation",
	"internal/loop":   "",
	"internal/system": "",
}

// leaves open no file, start no goroutine and read no clock: what they need comes from the caller.
var leaves = []string{"internal/lexical", "token", "compat/contexty", "render", "internal/triage", "session", "directive", "internal/directivetext", "internal/directivelog", "internal/prose"}

// parsed is the files of a package. They are parsed here and not listed by the go command, so that the test cache sees
// every change of them.
type parsed struct {
	set   *token.FileSet
	code  map[string][]*ast.File // by folder
	tests map[string][]*ast.File
}

func parseAll(t *testing.T) parsed {
	t.Helper()
	return must(parseOnce())(t)
}

var parseOnce = sync.OnceValues(func() (parsed, error) {
	p := parsed{token.NewFileSet(), map[string][]*ast.File{}, map[string][]*ast.File{}}
	return p, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(name, "go.mod")); name != "." && (err == nil || d.Name() == "testdata" || d.Name()[0] == '.') {
				return fs.SkipDir // a module of its own, or no package
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(p.set, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(name))
		if strings.HasSuffix(name, "_test.go") {
			p.tests[dir] = append(p.tests[dir], f)
		} else {
			p.code[dir] = append(p.code[dir], f)
		}
		return nil
	})
})

// readsSource begins a test that reads the source of this module and runs none of it. It says the same under the race
// detector, which makes parsing and type checking ten times slower, so it is left out there.
func readsSource(t *testing.T) {
	t.Helper()
	if dbtest.Race {
		t.Skip("it runs nothing that could race; the same test without -race says it all")
	}
	t.Parallel()
}

func imports(files []*ast.File) []string {
	var out []string
	for _, f := range files {
		for _, i := range f.Imports {
			name, _ := strconv.Unquote(i.Path.Value)
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// inside is a package of this module as the map names it.
func inside(name string) (string, bool) {
	if name == module {
		return ".", true
	}
	return strings.CutPrefix(name, module+"/")
}

func TestImportMap(t *testing.T) {
	readsSource(t)
	p := parseAll(t)
	dirs := map[string]bool{}
	for dir := range p.code {
		dirs[dir] = true
	}
	for dir := range p.tests {
		dirs[dir] = true
	}
	for dir := range dirs {
		line, ok := importMap[dir]
		require.True(t, ok, "package %s has no line in the import map: decide where it stands", dir)
		for _, name := range imports(p.code[dir]) {
			if to, ok := inside(name); ok {
				require.Contains(t, strings.Fields(line), to, "%s may not import %s", dir, to)
			}
		}
	}
	for dir := range importMap {
		require.True(t, dirs[dir], "the import map has a line for %s, which is not there", dir)
	}
	requireAcyclic(t)
}

// requireAcyclic keeps the map itself pointing down.
func requireAcyclic(t *testing.T) {
	t.Helper()
	var visit func(dir string, above []string)
	visit = func(dir string, above []string) {
		require.NotContains(t, above, dir, "the import map goes in a circle")
		for _, to := range strings.Fields(importMap[dir]) {
			visit(to, append(slices.Clone(above), dir))
		}
	}
	for dir := range importMap {
		visit(dir, nil)
	}
}

// Rules stay pure.
func TestLeavesArePure(t *testing.T) {
	readsSource(t)
	p := parseAll(t)
	pure := map[string][]*ast.File{}
	for _, dir := range leaves {
		pure[dir] = p.code[dir]
	}
	for _, f := range p.code["internal/conversation"] { // the rules of a window
		if name := path.Base(p.set.Position(f.Pos()).Filename); strings.HasPrefix(name, "window") && name != "window.go" {
			pure["internal/conversation/window*.go"] = append(pure["internal/conversation/window*.go"], f)
		}
	}
	require.NotEmpty(t, pure["internal/conversation/window*.go"])
	for dir, files := range pure {
		for _, name := range imports(files) {
			require.NotContains(t, []string{"os", "net", "net/http", "io/ioutil", "math/rand", "math/rand/v2", "crypto/rand"}, name, dir)
		}
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s: a leaf starts no goroutine", p.set.Position(n.Pos()))
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "NewTimer", "NewTicker", "Sleep"}, n.Sel.Name) {
						t.Errorf("%s: a leaf reads no clock", p.set.Position(n.Pos()))
					}
				}
				return true
			})
		}
	}
}

// Whoever uses the library does not link what only tools and tests need.
func TestLibraryStaysSmall(t *testing.T) {
	readsSource(t)
	p := parseAll(t)
	linked := reaches(".")
	for dir := range p.code {
		if dir == "httpsource" || dir == "serve" || dir == "ui" || dir == "embed" || dir == "storetest" || path.Dir(dir) == "internal" && !linked[dir] || strings.HasPrefix(dir, "examples") || strings.HasPrefix(dir, "bench") {
			continue
		}
		for _, name := range imports(p.code[dir]) {
			for _, heavy := range []string{"net/http", "testing", "github.com/alecthomas/kong", "github.com/schollz/progressbar/v3", "github.com/stretchr/testify/require"} {
				require.NotEqual(t, heavy, name, dir)
			}
			require.False(t, strings.HasPrefix(name, "github.com/go-git/") || strings.HasPrefix(name, "golang.org/x/net/"), "%s imports %s", dir, name)
			require.False(t, strings.HasPrefix(name, "github.com/pkoukk/"), "%s: the published vocabularies are for tests; token/bpe has them packed", dir)
		}
	}
}

// reaches are the packages that a program with this one links. A socket is one of package net: net/http is not needed.
func reaches(dir string) map[string]bool {
	all := map[string]bool{}
	for _, to := range strings.Fields(importMap[dir]) {
		all[to] = true
		for further := range reaches(to) {
			all[further] = true
		}
	}
	return all
}

// TestLogCalls: docs/observe.md lists everything that Options.Logger is told, with its level and what to do, and nothing else. A log call has a
// constant text, so that the list can be compared and an operator can search for it.
func TestLogCalls(t *testing.T) {
	readsSource(t)
	files := maps.Clone(parseAll(t).code)
	set := token.NewFileSet()
	for _, name := range must(filepath.Glob("pgstore/*.go"))(t) { // a module of its own
		if !strings.HasSuffix(name, "_test.go") {
			files["pgstore"] = append(files["pgstore"], must(parser.ParseFile(set, name, nil, 0))(t))
		}
	}
	called := map[string]bool{}
	for dir, in := range files {
		if strings.HasPrefix(dir, "bench") || strings.HasPrefix(dir, "examples") {
			continue
		}
		for _, f := range in {
			ast.Inspect(f, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is {
					return true
				}
				fn, is := call.Fun.(*ast.SelectorExpr)
				if !is || !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, fn.Sel.Name) || len(call.Args) == 0 {
					return true
				}
				to := ""
				switch x := fn.X.(type) {
				case *ast.SelectorExpr:
					to = x.Sel.Name
				case *ast.Ident:
					to = x.Name
				}
				if to != "Logger" && to != "log" {
					return true
				}
				text, is := call.Args[0].(*ast.BasicLit)
				require.True(t, is, "%s: a text that is not constant", dir)
				called[strings.ToLower(fn.Sel.Name)+" "+must(strconv.Unquote(text.Value))(t)] = true
				return true
			})
		}
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(debug|info|warn|error)` \\| `([^`]+)` \\| [^|]{10,} \\|$").FindAllStringSubmatch(string(must(os.ReadFile("docs/observe.md"))(t)), -1) {
		listed[m[1]+" "+m[2]] = true
	}
	require.Equal(t, slices.Sorted(maps.Keys(called)), slices.Sorted(maps.Keys(listed)))
	require.Greater(t, len(called), 20, "the control: calls are found")
}

// Every package says what it is, where go doc finds it.
func TestPackageDocs(t *testing.T) {
	readsSource(t)
	p := parseAll(t)
	for dir, files := range p.code {
		ok := slices.ContainsFunc(files, func(f *ast.File) bool { return f.Doc != nil && len(strings.Fields(f.Doc.Text())) >= 5 })
		require.True(t, ok, "package %s has no doc attached to its package clause", dir)
	}
}

// TestDocCommands: the folders, tests and benchmarks that a page or the Makefile tells its readers to run are there, and so are the
// source files that it names.
func TestDocCommands(t *testing.T) {
	readsSource(t)
	command := regexp.MustCompile("(?:cd ([\\w/]+) && )?(?:go (?:test|run|build)(?: -C ([\\w/]+))?|-bench|-run) [^`\n]*?\\./[^`\n]*")
	folder, pattern := regexp.MustCompile(`(?:^|\s)\./([\w./]*)`), regexp.MustCompile(`-(?:run|bench)[ =]'?([^\s'/]+)`)
	file := regexp.MustCompile("`((?:\\w+/)+\\w+\\.go)`")
	missing := func(text string) (out []string) {
		for _, m := range file.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(m[1]); err != nil && !strings.Contains(m[1], "NAME") {
				out = append(out, m[1])
			}
		}
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			var names []string
			for _, f := range folder.FindAllStringSubmatch(m[0], -1) {
				dir, all := strings.CutSuffix(filepath.Join(m[1], m[2], f[1]), "...")
				if _, err := os.Stat(filepath.Join(".", dir)); err != nil {
					out = append(out, m[0])
				}
				_ = filepath.WalkDir(filepath.Join(".", dir), func(path string, e fs.DirEntry, err error) error {
					if err == nil && strings.HasSuffix(path, "_test.go") && (all || filepath.Dir(path) == filepath.Clean(dir)) {
						for _, name := range regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)`).FindAllStringSubmatch(string(must(os.ReadFile(path))(t)), -1) {
							names = append(names, name[1])
						}
					}
					return nil
				})
			}
			for _, p := range pattern.FindAllStringSubmatch(m[0], -1) {
				if !slices.Contains([]string{"^$", "^$$", "xxx", "NONE", "-", "."}, p[1]) && !slices.ContainsFunc(names, regexp.MustCompile(p[1]).MatchString) {
					out = append(out, m[0])
				}
			}
		}
		return out
	}
	require.Len(t, missing("`go test ./nowhere`, `cd pgstore && go test -run NoSuchTest ./cmd/...`, `-bench Get ./bench`, `store/nowhere.go`, `internal/dbctl/NAME.go`"), 3, "the control")
	for _, name := range slices.Concat(must(filepath.Glob("*.md"))(t), must(filepath.Glob("docs/*.md"))(t), []string{"bench/README.md", "Makefile"}) {
		require.Empty(t, missing(string(must(os.ReadFile(name))(t))), name)
	}
}

// riddles are the forms of a comment that a reader has to read twice. Name what it does: verb and object.
var riddles = regexp.MustCompile(`\b(is|are) (what|who)\b|\bis that of\b|\bare those of\b|\bgives\b|\b(says|tells) whether\b|\bfor ever\b|\bparted\b|\bthe one before\b`)

func TestPlainEnglish(t *testing.T) {
	readsSource(t)
	require.True(t, riddles.MatchString("noPlace is what a connection is answered for which there is no place."), "the control")
	p := parseAll(t)
	for dir, files := range p.code {
		if strings.HasPrefix(dir, "bench") {
			continue
		}
		for _, f := range files {
			for _, c := range f.Comments {
				if found := riddles.FindString(c.Text()); found != "" {
					t.Errorf("%s: %q in a comment: say what it does, has, returns or reports", p.set.Position(c.Pos()), found)
				}
			}
		}
	}
}

// What wraps an error keeps its chain.
func TestErrorsWrap(t *testing.T) {
	readsSource(t)
	p := parseAll(t)
	for _, files := range p.code {
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) < 2 || !isErrorf(call) {
					return true
				}
				format, ok := call.Args[0].(*ast.BasicLit)
				last, isName := call.Args[len(call.Args)-1].(*ast.Ident)
				if ok && isName && (last.Name == "err" || strings.HasSuffix(last.Name, "Err")) && !strings.Contains(format.Value, "%w") {
					t.Errorf("%s: Errorf drops the chain of %s: use %%w", p.set.Position(call.Pos()), last.Name)
				}
				return true
			})
		}
	}
}

func isErrorf(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && fmt.Sprint(s.X) == "fmt" && s.Sel.Name == "Errorf"
}

// publicPackages are those that a program outside of this module may import as a library.
var publicPackages = []string{
	".", "directive", "embed", "embed/static", "httpsource", "manifest", "ops", "render", "serve", "session", "store", "token", "token/bpe", "wal",
}

// foreign are the types of other modules that an exported declaration may mention, by package, and why.
var foreign = map[string]string{
	"store github.com/oklog/ulid/v2.ULID":       "the id of a batch: whoever writes a store sorts by it",
	"ops github.com/oklog/ulid/v2.ULID":         "the source of ids that a database lends to the keepers of policies and quotas",
	"manifest golang.org/x/mod/sumdb/tlog.Hash": "manifest.Hash is that type, so that any tlog program can check a proof",
	"store golang.org/x/mod/sumdb/tlog.Hash":    "the same, in Audit",
}

// TestNoForeignTypes: a program that uses a public package learns no other module's types but for those listed above.
// The types are those of the compiler, so that an alias, an inferred type, a promoted method and a result of an
// unexported type are seen.
func TestNoForeignTypes(t *testing.T) {
	readsSource(t)
	parseAll(t) // the test cache sees what is read, not what the go command reads
	imp := exported(t)
	var found []string
	for _, dir := range publicPackages {
		path := strings.TrimSuffix(module+"/"+dir, "/.")
		pkg := must(imp.Import(path))(t)
		require.NotEmpty(t, pkg.Scope().Names(), dir)
		for _, name := range foreignIn(pkg) {
			found = append(found, dir+" "+name)
		}
	}
	slices.Sort(found)
	require.Equal(t, slices.Sorted(maps.Keys(foreign)), found, "types of other modules in exported declarations: those decided on, and those found")
}

// The negative control: what each form of mention looks like, and what is no mention.
func TestForeignTypesAreSeen(t *testing.T) {
	readsSource(t)
	imp := exported(t)
	for code, seen := range map[string]bool{
		`func F(ulid.ULID) {}`: true,
		`func F() (map[string][]*ulid.ULID, error) { return nil, nil }`: true,
		`type A = ulid.ULID`:                                                     true,
		`type A ulid.ULID`:                                                       false, // a type of its own, made of bytes
		`type A struct{ X func(chan ulid.ULID) }`:                                true,
		`type A struct{ x ulid.ULID }`:                                           false,
		`type A struct{ ulid.ULID }`:                                             true,
		`type a struct{ ulid.ULID }; type A struct{ a }`:                         true,
		`type A struct{}; func (*A) M(ulid.ULID) {}`:                             true,
		`type A struct{}; func (*A) m(ulid.ULID) {}`:                             false,
		`type a struct{}; func (*a) M(ulid.ULID) {}; var _ = (*a).M`:             false,
		`type a struct{}; func (*a) M(ulid.ULID) {}; func F() *a { return nil }`: true,
		`var X = ulid.ULID{}`:                                                    true,
		`var x = ulid.ULID{}`:                                                    false,
		`type A interface{ M() ulid.ULID }`:                                      true,
		`type A[T interface{ ulid.ULID }] struct{}`:                              true,
		`type A[T any] struct{}; func F(A[ulid.ULID]) {}`:                        true,
	} {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, "control.go", "package control\nimport \"github.com/oklog/ulid/v2\"\nvar _ ulid.ULID\n"+code, 0)
		require.NoError(t, err, code)
		pkg, err := (&types.Config{Importer: imp}).Check(module+"/control", set, []*ast.File{f}, nil)
		require.NoError(t, err, code)
		require.Equal(t, seen, len(foreignIn(pkg)) > 0, code)
	}
}

// exported imports public packages of this module, and what they depend on, from what the compiler exported.
func exported(t *testing.T) types.Importer {
	t.Helper()
	files := must(exportData())(t)
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, errors.New("no export data of " + path)
		}
		return os.Open(files[path])
	})
}

// exportData are the files of exports, by package. The go command is asked once for all tests: it may have to compile.
var exportData = sync.OnceValues(func() (map[string]string, error) {
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}
	for _, dir := range publicPackages {
		args = append(args, "./"+dir)
	}
	var stderr bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[path] = file
	}
	return files, nil
})

// foreignIn names the types of other modules that the exported declarations of a package mention.
func foreignIn(pkg *types.Package) []string {
	m := mentions{pkg: pkg, seen: map[types.Type]bool{}, found: map[string]bool{}}
	for _, name := range pkg.Scope().Names() {
		if o := pkg.Scope().Lookup(name); o.Exported() {
			m.declared(o)
		}
	}
	return slices.Sorted(maps.Keys(m.found))
}

// received are internal types that a user of the library reads and never writes: results, and what a store is asked. A store of
// another module is built on engine.Log and engine.Rows, which are internal too.
var received = strings.Fields(`codec.Unit filestore.Loss filestore.Salvaged portable.Counts portable.Exported portable.Header portable.Imported
	portable.Position portable.Tally lexical.Analysis lexical.Dates lexical.Hit lexical.Reading lexical.Stats lexical.TermCount lexical.Traits lexical.Typed lexical.Weights triage.Tier`)

// TestInternalTypesHaveNames: what an exported declaration mentions has a name that other modules can write.
func TestInternalTypesHaveNames(t *testing.T) {
	readsSource(t)
	parseAll(t)
	imp, hidden, named := exported(t), map[string]bool{}, map[string]bool{}
	for _, dir := range publicPackages {
		pkg := must(imp.Import(strings.TrimSuffix(module+"/"+dir, "/.")))(t)
		m := mentions{pkg: pkg, seen: map[types.Type]bool{}, found: map[string]bool{}, hidden: hidden}
		for _, name := range pkg.Scope().Names() {
			o := pkg.Scope().Lookup(name)
			if !o.Exported() {
				continue
			}
			m.declared(o)
			if tn, ok := o.(*types.TypeName); ok && tn.IsAlias() {
				if to, ok := types.Unalias(tn.Type()).(*types.Named); ok && to.Obj().Pkg() != nil {
					named[strings.TrimPrefix(to.Obj().Pkg().Path(), module+"/internal/")+"."+to.Obj().Name()] = true
				}
			}
		}
	}
	for name := range named {
		delete(hidden, name)
	}
	require.Equal(t, slices.Sorted(slices.Values(received)), slices.Sorted(maps.Keys(hidden)), "internal types in exported declarations: those decided on, and those found")
}

// mentions walks the types of exported declarations.
type mentions struct {
	pkg    *types.Package
	seen   map[types.Type]bool
	found  map[string]bool
	hidden map[string]bool // types of internal packages; nil: they are not collected
}

func (m *mentions) declared(o types.Object) {
	if tn, ok := o.(*types.TypeName); ok && tn.IsAlias() {
		m.visit(types.Unalias(tn.Type()))
		return
	}
	m.visit(o.Type())
}

// elsewhere reports whether a package is of another module, and of the standard library.
func elsewhere(pkg *types.Package) (other, std bool) {
	if pkg == nil {
		return false, true
	}
	first, _, _ := strings.Cut(pkg.Path(), "/")
	if pkg.Path() == module || strings.HasPrefix(pkg.Path(), module+"/") {
		return false, false
	}
	return strings.Contains(first, "."), true
}

func (m *mentions) named(t *types.Named) {
	other, std := elsewhere(t.Obj().Pkg())
	for i := range t.TypeArgs().Len() {
		m.visit(t.TypeArgs().At(i))
	}
	switch {
	case other:
		m.found[t.Obj().Pkg().Path()+"."+t.Obj().Name()] = true
		return
	case std:
		return
	case t.Obj().Pkg() != m.pkg && !strings.Contains(t.Obj().Pkg().Path(), "/internal/"):
		return // of a public package, which is looked at by itself
	}
	if m.hidden != nil && strings.Contains(t.Obj().Pkg().Path(), "/internal/") {
		m.hidden[strings.TrimPrefix(t.Obj().Pkg().Path(), module+"/internal/")+"."+t.Obj().Name()] = true
	}
	for i := range t.TypeParams().Len() {
		m.visit(t.TypeParams().At(i).Constraint())
	}
	m.visit(t.Underlying())
	methods := types.NewMethodSet(types.NewPointer(t)) // promoted ones too
	for i := range methods.Len() {
		if f := methods.At(i).Obj(); f.Exported() {
			if other, std := elsewhere(f.Pkg()); !other && !std {
				m.visit(f.Type())
			}
		}
	}
}

func (m *mentions) visit(t types.Type) {
	t = types.Unalias(t)
	if t == nil || m.seen[t] {
		return
	}
	m.seen[t] = true
	switch t := t.(type) {
	case *types.Named:
		m.named(t)
	case *types.Map:
		m.visit(t.Key())
		m.visit(t.Elem())
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		m.visit(t.Elem())
	case *types.Signature:
		for _, list := range []*types.Tuple{t.Params(), t.Results()} {
			for i := range list.Len() {
				m.visit(list.At(i).Type())
			}
		}
		for i := range t.TypeParams().Len() {
			m.visit(t.TypeParams().At(i).Constraint())
		}
	case *types.Struct:
		for i := range t.NumFields() {
			if f := t.Field(i); f.Exported() || f.Embedded() {
				m.visit(f.Type())
			}
		}
	case *types.Interface:
		for i := range t.NumMethods() {
			m.visit(t.Method(i).Type())
		}
		for i := range t.NumEmbeddeds() {
			m.visit(t.EmbeddedType(i))
		}
	case *types.Union:
		for i := range t.Len() {
			m.visit(t.Term(i).Type())
		}
	}
}
