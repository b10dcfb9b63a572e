package ctxpage_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fileRefs are the references between files of a package: who names what is declared in which other file.
type fileRefs map[[2]string][]string // from, to: the names

// nothing stands for every imported package: what is asked here is what the files of one package say of each other.
type nothing struct{}

var version = regexp.MustCompile(`^v\d+$`)

func (nothing) Import(name string) (*types.Package, error) {
	base := path.Base(name)
	if version.MatchString(base) {
		base = path.Base(path.Dir(name))
	}
	p := types.NewPackage(name, base)
	p.MarkComplete()
	return p, nil
}

// refsOf computes the references by types, so that a method counts as its file's, whatever variable it is called on.
func refsOf(set *token.FileSet, files []*ast.File) fileRefs {
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: nothing{}, Error: func(error) {}} // of types from elsewhere nothing is known
	pkg, _ := conf.Check(module, set, files, &info)
	at := func(p token.Pos) string { return filepath.Base(set.Position(p).Filename) }
	out := fileRefs{}
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || !obj.Pos().IsValid() || obj.Parent() != nil && obj.Parent() != pkg.Scope() {
			continue // of another package, or local
		}
		if from, to := at(id.Pos()), at(obj.Pos()); from != to {
			pair := [2]string{from, to}
			if !slices.Contains(out[pair], obj.Name()) {
				out[pair] = append(out[pair], obj.Name())
			}
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out
}

// rootOrder is the order of the root's files, those that serve a user first. A file refers to those behind it.
var rootOrder = strings.Fields(`
	open.go search.go assemble.go match.go refresh.go gc.go export.go explain.go record.go drafts.go fit.go handoff.go
	append.go resume.go window.go ahead.go compress.go cost.go statekinds.go
	review.go operator.go directives.go directory.go commit.go judge.go put.go vector.go session.go
	item.go txn.go gated.go scope.go page.go observe.go db.go options.go query.go util.go
	pagetable.go lru.go listing.go aliases.go
`)

// upward is what refers the other way, and may: docs/house.md says why. A reference that is gone leaves the list.
var upward = map[string]string{}

// againstOrder returns the pairs of files that refer upward and are not allowed to, and the allowed ones that do not.
func againstOrder(refs fileRefs, order []string, allowed map[string]string) (bad, unused []string) {
	used := map[string]bool{}
	for pair, names := range refs {
		from, to := slices.Index(order, pair[0]), slices.Index(order, pair[1])
		switch {
		case from < 0 || to < 0:
			bad = append(bad, pair[0]+" or "+pair[1]+" has no place in the order")
		case to > from:
		case slices.Contains(strings.Fields(allowed[pair[0]]), pair[1]):
			used[pair[0]+" "+pair[1]] = true
		default:
			bad = append(bad, pair[0]+" refers upward to "+pair[1]+": "+strings.Join(names, ", "))
		}
	}
	for from, list := range allowed {
		for _, to := range strings.Fields(list) {
			if !used[from+" "+to] {
				unused = append(unused, from+" "+to)
			}
		}
	}
	slices.Sort(bad)
	slices.Sort(unused)
	return slices.Compact(bad), unused
}

// Within the root files refer downward, but for a short list that the house page names.
func TestRootFilesReferDownward(t *testing.T) {
	readsSource(t)
	p := parseAll(t)
	refs := refsOf(p.set, p.code["."])
	require.Contains(t, refs[[2]string{"put.go", "page.go"}], "content", "functions are seen")
	require.Contains(t, refs[[2]string{"assemble.go", "fit.go"}], "fit", "and methods")
	bad, unused := againstOrder(refs, rootOrder, upward)
	require.Empty(t, bad, "a file refers to one above it: move what it needs down, or say in docs/house.md why not")
	require.Empty(t, unused, "allowed, and not there any more: shorten the list")

	for from := range upward {
		page := must(os.ReadFile("docs/house.md"))(t)
		require.Contains(t, string(page), "| `"+from+"` |", "the house page names what refers upward")
	}

	// The control: in the reverse order nearly all of it is upward.
	reverse := slices.Clone(rootOrder)
	slices.Reverse(reverse)
	bad, _ = againstOrder(refs, reverse, upward)
	require.Greater(t, len(bad), len(refs)/2)
	// And one file put in a wrong place is found by name.
	wrong := slices.DeleteFunc(slices.Clone(rootOrder), func(f string) bool { return f == "lru.go" })
	bad, _ = againstOrder(refs, append([]string{"lru.go"}, wrong...), upward)
	require.NotEmpty(t, bad)
	require.True(t, slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, "refers upward to lru.go") }))
}
