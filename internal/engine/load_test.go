package engine

import (
	"context"
	"errors"
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
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// Inside a snapshot of the rows nobody takes the catalogue's lock: with a remap of bbolt's file under way that is a
// deadlock.
func TestLoadTakesNoLockInsideASnapshot(t *testing.T) {
	m := newMemory(t, time.Now)
	m.put("acme", store.Artefact{ID: "a", Text: "some words"})
	require.NoError(t, m.checkpoint())
	l := &loading{s: m.Engine, want: store.WantText, out: make([]store.Loaded, 1), arts: make([]uint64, 1), newest: make([]uint32, 1), rows: make([][]byte, 1), names: map[uint32]string{}, heads: map[format.HeadKey]*store.Head{}}
	l.look(store.Scopes{"acme"}, []store.PageKey{{Num: 1}})
	require.Equal(t, []int{0}, l.missing)
	m.cat.mu.Lock()
	defer m.cat.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- m.host.View(l.fromFile) }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("a read of the rows waits for the catalogue")
	}
	require.Equal(t, "some words", l.out[0].Text)
	require.Equal(t, "acme", l.out[0].Head.Scope)
}

// A row that only a later release can read is not taken for damage.
func TestNewerRowIsNoDamage(t *testing.T) {
	s := &Engine{}
	newer := s.Corrupt("head row", codec.ErrNewer)
	require.ErrorIs(t, newer, store.ErrNewerFormat)
	require.NotErrorIs(t, newer, store.ErrCorrupt)
	require.ErrorIs(t, s.Corrupt("head row", codec.ErrMalformed), store.ErrCorrupt, "the control")
}

// A text whose row has another checksum is damage, also if the text itself is sound: the digest alone would let it pass.
func TestTextWithAnotherChecksum(t *testing.T) {
	m := newMemory(t, time.Now)
	m.put("acme", store.Artefact{ID: "a", Text: "some words"})
	require.NoError(t, m.checkpoint())
	row := m.host.o.tables[TableContent][string(format.TextRowKey(1))]
	require.NotEmpty(t, row)
	load := func() error {
		got := must(m.Load(t.Context(), store.Scopes{"acme"}, []store.PageKey{{Num: 1}}, store.WantText))(t)
		return got[0].Err
	}
	require.NoError(t, load(), "control")
	for i := len(row) - 8; i < len(row); i++ {
		row[i] ^= 1
		require.ErrorIs(t, load(), store.ErrCorrupt)
		row[i] ^= 1
	}
	require.NoError(t, load())
}

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

// A batch that retires an artefact is waited for by those who saw it.
func TestRetiredArtefactsAreInFlight(t *testing.T) {
	b := store.Batch{Scope: "acme", Puts: []store.Put{{Artefact: store.Artefact{ID: "new", Supersedes: []string{"old"}}}}}
	require.ElementsMatch(t, []string{flightKey("acme", "new"), flightKey("acme", "old")}, writeKeys(&Request{Batch: b}))
}

// TestBrokenTakesNothing: a batch that was judged before the store failed, and comes to the log after it, is not taken: the
// ones before it will never be installed, and nobody would wake who waits for it.
func TestBrokenTakesNothing(t *testing.T) {
	m := newMemory(t, time.Now)
	_ = m.Fail(errors.New("the disk died"))
	c := &Commit{done: make(chan struct{}), record: format.Commit{LSN: 1}}
	tail := must(m.host.Acquire(t.Context()))(t)
	err := m.enter(tail, c)
	tail.Release()
	require.ErrorIs(t, err, store.ErrOutcomeUnknown)
	require.Zero(t, c.Seq)
	require.Empty(t, m.records)
	require.Empty(t, m.seq.ids)
	require.ErrorContains(t, m.Failure(), "the disk died")
}

func TestThrottleGrows(t *testing.T) {
	for _, c := range []struct {
		unflushed, bytes int64
		want             time.Duration
	}{
		{0, 1 << 10, 0},
		{throttleBytes, 1 << 10, 0},
		{throttleBytes * 5 / 4, 1 << 10, throttleDelay / 4},
		{throttleBytes * 2, 0, throttleDelay},
		{throttleBytes * 2, 4 * throttleUnit, 4 * throttleDelay},
		{throttleBytes * 9, 1 << 20, throttleMost},
	} {
		require.Equal(t, c.want, delayFor(c.unflushed, c.bytes), c)
	}
}

// A commit that is told to wait waits before anything happened: the end of its context leaves no trace.
func TestThrottledCommitEndsWithItsContext(t *testing.T) {
	m := newMemory(t, time.Now)
	m.unflushed.Store(1 << 50)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := m.Commit(ctx, m.batch("acme", store.Artefact{ID: "x", Text: "never"}))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, store.ErrOutcomeUnknown)
	require.Empty(t, m.records, "nothing is in the log")
	m.unflushed.Store(0) // the control: nothing else held it up
	out := m.put("acme", store.Artefact{ID: "x", Text: "now"})
	require.Equal(t, uint32(1), out.Refs[0].Version)
}
