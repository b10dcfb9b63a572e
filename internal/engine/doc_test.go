package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// hostCalls are the exported functions, and the methods of Engine that are none of store.Store.
func hostCalls(t *testing.T) (names []string) {
	t.Helper()
	of := reflect.TypeFor[store.Store]()
	paths := must(filepath.Glob("*.go"))(t)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f := must(parser.ParseFile(token.NewFileSet(), path, nil, 0))(t)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() {
				continue
			}
			if fn.Recv != nil {
				_, above := of.MethodByName(fn.Name.Name)
				if above || types.ExprString(fn.Recv.List[0].Type) != "*Engine" {
					continue
				}
			}
			names = append(names, fn.Name.Name)
		}
	}
	return names
}

// unlisted are the names that a text does not mention.
func unlisted(text string, names []string) []string {
	words := regexp.MustCompile(`\w+`).FindAllString(text, -1)
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(words, n) })
}

// The package comment lists all that a host calls: what is exported and not there is called by nobody, or by somebody who
// had to search for it.
func TestHostCallsAreListed(t *testing.T) {
	t.Parallel()
	f := must(parser.ParseFile(token.NewFileSet(), "engine.go", nil, parser.ParseComments))(t)
	_, list, ok := strings.Cut(f.Doc.Text(), "# What a host calls")
	require.True(t, ok)
	names := hostCalls(t)
	require.Greater(t, len(names), 30)
	require.Empty(t, unlisted(list, names))
	require.Equal(t, []string{"Unheard"}, unlisted(list, append(names, "Unheard")), "the control")
}
