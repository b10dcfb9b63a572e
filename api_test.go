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
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// publicPackages are those that a program outside of this module may import as a library.
var publicPackages = []string{
	".", "directive", "embed", "httpsource", "manifest", "render", "session", "source", "store", "token", "wal",
}

// foreign are the types of other modules that an exported declaration may mention, by package, and why.
var foreign = map[string]string{
	"store github.com/oklog/ulid/v2.ULID":       "the id of a batch: whoever writes a store sorts by it",
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
		pkg, err := imp.Import(path)
		require.NoError(t, err)
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
	files, err := exportData()
	require.NoError(t, err)
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

// mentions walks the types of exported declarations.
type mentions struct {
	pkg   *types.Package
	seen  map[types.Type]bool
	found map[string]bool
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
