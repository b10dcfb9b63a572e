package store_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// plain says what of a type that crosses the seam is no plain data: functions, channels, fields that another package cannot
// copy, interfaces that only a program of the same process can implement.
type plain struct {
	seen map[reflect.Type]bool
	bad  []string
}

func (p *plain) walk(t reflect.Type, at string) {
	if p.seen[t] || t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[context.Context]() || t == reflect.TypeFor[error]() || t == reflect.TypeFor[store.Progress]() || t == reflect.TypeFor[func(done, total uint64)]() || t == reflect.TypeFor[lexical.Analysis]() {
		return
	}
	p.seen[t] = true
	switch t.Kind() {
	case reflect.Func, reflect.Chan, reflect.UnsafePointer, reflect.Uintptr:
		p.bad = append(p.bad, fmt.Sprintf("%s is a %s", at, t))
	case reflect.Interface:
		if t.NumMethod() == 0 {
			p.bad = append(p.bad, at+" is anything")
		}
		for m := range t.NumMethod() {
			p.method(t.Method(m), at)
		}
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				p.bad = append(p.bad, fmt.Sprintf("%s.%s of %s is unexported", at, f.Name, t))
			}
			p.walk(f.Type, at+"."+f.Name)
		}
	case reflect.Map:
		p.walk(t.Key(), at)
		p.walk(t.Elem(), at)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		p.walk(t.Elem(), at)
	}
}

func (p *plain) method(m reflect.Method, at string) {
	for i := range m.Type.NumIn() {
		p.walk(m.Type.In(i), at+"."+m.Name)
	}
	for i := range m.Type.NumOut() {
		p.walk(m.Type.Out(i), at+"."+m.Name)
	}
}

// What crosses the seam is plain data: it can be sent to another process. Progress is the one function: it is heard by the
// caller, and a store that is elsewhere calls it where the caller is. An Analysis is derived data that a store makes anew
// where it does not come.
func TestSeamIsPlain(t *testing.T) {
	t.Parallel()
	p := plain{seen: map[reflect.Type]bool{}}
	p.walk(reflect.TypeFor[store.Store](), "Store")
	require.Empty(t, p.bad, strings.Join(p.bad, "\n"))
	require.True(t, p.seen[reflect.TypeFor[store.Batch]()])
	require.True(t, p.seen[reflect.TypeFor[store.HeldBatch]()])
}

// The control: the walk finds what is not plain.
func TestSeamIsPlainControl(t *testing.T) {
	t.Parallel()
	type hidden struct{ _ int }
	for name, of := range map[string]reflect.Type{
		"a callback":          reflect.TypeFor[interface{ Each(func(int) error) }](),
		"a channel":           reflect.TypeFor[struct{ Ended chan int }](),
		"a hidden field":      reflect.TypeFor[struct{ Rows []hidden }](),
		"anything at all":     reflect.TypeFor[map[string]any](),
		"a callback in a map": reflect.TypeFor[map[string]*struct{ InUse func(uint64) bool }](),
	} {
		p := plain{seen: map[reflect.Type]bool{}}
		p.walk(of, "T")
		require.NotEmpty(t, p.bad, name)
	}
}

// Every exported name of the package says what it means: a second store is written against go doc.
func TestNamesAreDocumented(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var bare []string
	say := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		for _, d := range docs {
			if d != nil {
				return
			}
		}
		if name.IsExported() {
			bare = append(bare, name.Name)
		}
	}
	conventional := map[string]bool{"Error": true, "Is": true, "Unwrap": true, "String": true}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || !conventional[d.Name.Name] {
					say(d.Name, d.Doc)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						say(s.Name, s.Doc, d.Doc)
					case *ast.ValueSpec:
						say(s.Names[0], s.Doc, s.Comment, d.Doc)
					}
				}
			}
		}
	}
	require.Empty(t, bare)
}
