package store_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// A condition means the same however a value is written.
func TestConditionHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value   string
		there   bool
		op      store.Operator
		operand string
		want    bool
	}{
		{"a", true, store.OpEqual, "a", true},
		{"1.0", true, store.OpEqual, "1", true},
		{"1.50", true, store.OpEqual, "1.5", true},
		{"1.50", true, store.OpNotEqual, "1.5", false},
		{"high", true, store.OpGreater, "7", false},
		{"high", true, store.OpLess, "7", false},
		{"high", true, store.OpNotEqual, "7", true},
		{"9", true, store.OpGreater, "high", false},
		{"007", true, store.OpEqual, "7", false},
		{"0.5", true, store.OpEqual, ".50", true},
		{"", false, store.OpEqual, "", false},
		{"", false, store.OpNotEqual, "a", true},
		{"a", true, store.OpNotEqual, "a", false},
		{"10", true, store.OpGreater, "9", true},
		{"10", true, store.OpGreater, "9x", false},
		{"1.0", true, store.OpGreaterOrEqual, "1", true},
		{"-1e3", true, store.OpLess, "0", true},
		{"Inf", true, store.OpGreater, "9", false},
		{"0x10", true, store.OpLess, "9", false},
		{"0x10", true, store.OpLess, "0x9", true}, // as text
		{"2026-03-01T00:00:00Z", true, store.OpLess, "2026-03-02T00:00:00Z", true},
		{"", false, store.OpLess, "z", false},
		{"", true, store.OpLessOrEqual, "", true},
		{"", true, store.OpExists, "true", true},
		{"", false, store.OpExists, "false", true},
		{"", false, store.OpExists, "true", false},
	} {
		is := store.Condition{Key: "k", Op: c.op, Value: c.operand}
		require.Equal(t, c.want, is.Holds(c.value, c.there), "%+v", c)
	}
}

// A filter is read back from what it is recorded as, and two that are the same have the same record.
func TestFilterJSON(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	f := store.Filter{
		IDPrefix: "a/", TagsAny: []string{"x"}, TagsAll: []string{"y", "z"}, Subject: "Ada", Kinds: []store.Kind{store.KindFact}, Since: day, WrittenUntil: day,
		Meta: store.Conditions{{Key: "n", Op: store.OpGreaterOrEqual, Value: "3"}, {Key: "n", Op: store.OpLess, Value: "9"}, {Key: "team", Op: store.OpEqual, Value: "red"}, {Key: "x", Op: store.OpExists, Value: "false"}},
	}
	require.NoError(t, f.Check())
	text := f.JSON()
	require.Contains(t, text, `"meta":{"n":{"$gte":"3","$lt":"9"},"team":"red","x":{"$exists":false}}`)
	got, err := store.ParseFilter(text)
	require.NoError(t, err)
	require.Equal(t, &f, got)
	require.Equal(t, text, got.JSON())

	require.Empty(t, new(store.Filter).JSON())
	none, err := store.ParseFilter("")
	require.NoError(t, err)
	require.Nil(t, none)
	require.True(t, none.Match(&store.Head{}))
	for _, bad := range []string{`{"tag":"x"}`, `[]`, `{"meta":{"k":[1]}}`, `{"meta":{"k":{}}}`, `{"meta":{"k":{"$in":"x"}}}`, `{"meta":7}`} {
		_, err := store.ParseFilter(bad)
		require.ErrorIs(t, err, store.ErrInvalid, bad)
	}
	var loose store.Conditions
	require.NoError(t, json.Unmarshal([]byte(`{"n":{"$gte":3},"on":true}`), &loose))
	require.Equal(t, store.Conditions{{Key: "n", Op: store.OpGreaterOrEqual, Value: "3"}, {Key: "on", Op: store.OpEqual, Value: "true"}}, loose)
}

// Each limit holds at the limit and is refused one above it.
func TestFilterLimits(t *testing.T) {
	t.Parallel()
	tags := make([]string, store.MaxTags)
	meta := make(store.Conditions, 32)
	for i := range tags {
		tags[i] = fmt.Sprint(i)
	}
	for i := range meta {
		meta[i] = store.Condition{Key: fmt.Sprint(i), Op: store.OpExists, Value: "true"}
	}
	f := store.Filter{TagsAny: tags, Meta: meta}
	require.NoError(t, f.Check())
	f.Meta = append(meta, store.Condition{Key: "more", Op: store.OpExists, Value: "true"})
	require.ErrorIs(t, f.Check(), store.ErrInvalid)
	require.ErrorIs(t, (&store.Filter{TagsAll: append(tags, "more")}).Check(), store.ErrInvalid)
	require.ErrorIs(t, (&store.Filter{Meta: store.Conditions{{Key: "k", Op: store.OpNotEqual, Value: "a"}, {Key: "k", Op: store.OpNotEqual, Value: "b"}}}).Check(), store.ErrInvalid)
}

// Every load of a page makes two digests: they use the memory of the last ones. The
// bound leaves room for the race detector, under which a pool forgets some of what it is given.
func TestDigestsAllocate(t *testing.T) {
	salt, text := make([]byte, store.DigestSaltSize), "a text"
	want := store.SaltedDigest(salt, text)
	require.Less(t, testing.AllocsPerRun(1000, func() {
		if store.SaltedDigest(salt, text) != want {
			t.Error("the digest of a text changed")
		}
	}), 2.)
}

// The digests in the audit are HMAC-SHA256 as the standard library has it: anybody can check one with another program.
func TestSaltedDigestIsHMAC(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 4096, 2 << 20, 10} { // a short text after a long one: memory is used again
		for _, saltSize := range []int{0, 1, store.DigestSaltSize, sha256.BlockSize} {
			salt, text := bytes.Repeat([]byte{7}, saltSize), bytes.Repeat([]byte("x"), n)
			h := hmac.New(sha256.New, salt)
			h.Write(text)
			require.Equal(t, [32]byte(h.Sum(nil)), store.SaltedDigest(salt, string(text)), "text of %d bytes, salt of %d", n, saltSize)
		}
	}
}

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
