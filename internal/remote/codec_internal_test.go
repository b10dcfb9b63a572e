package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

// fill sets every field of a value, so that none can be lost unseen.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Type() {
	case timeType:
		v.Set(reflect.ValueOf(time.Unix(int64(*n)*1e8, 123456000).UTC()))
		return
	case errorType:
		v.Set(reflect.ValueOf(store.ErrGone))
		return
	case analysisType:
		return
	case reflect.TypeFor[manifest.Form](), reflect.TypeFor[manifest.Tag]():
		v.SetUint(2)
		return
	case reflect.TypeFor[[]manifest.Span]():
		v.Set(reflect.ValueOf([]manifest.Span{{1, 3}, {5, 9}}))
		return
	case reflect.TypeFor[[][2]uint32]():
		v.Set(reflect.ValueOf([][2]uint32{{1, 3}, {5, 9}}))
		return
	case reflect.TypeFor[manifest.Record](): // what is a count is not negative, digests of rows have their sizes
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Int {
				f.SetInt(int64(*n%100) + 1)
			} else {
				fill(f, n)
			}
		}
		r := v.Addr().Interface().(*manifest.Record)
		r.Rows, r.State = []manifest.Digest{bytes.Repeat([]byte{1}, 32)}, []manifest.Digest{bytes.Repeat([]byte{2}, archive.StateSize)}
		for i := range r.Excluded {
			r.Excluded[i].Count, r.Excluded[i].Nearest[0].Tokens, r.Excluded[i].Nearest[1].Tokens = 7, 8, 9
		}
		for i := range r.Pages {
			r.Pages[i].Tokens = 11 + i
		}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(-int64(*n % 100))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n%200) + 1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(*n) + .5)
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 3 {
			key, el := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, n)
			fill(el, n)
			v.SetMapIndex(key, el)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if fill(v.Field(i), n); v.Type().Field(i).Name == "Unknown" { // fields of a later release
				v.Field(i).SetBytes([]byte{0xff, 0x7f, 2, 'h', 'i'})
			}
		}
	}
}

// crossing is what the methods of store.Store and store.Audit take and give.
func crossing() (all []reflect.Type) {
	for _, face := range []reflect.Type{reflect.TypeFor[store.Store](), reflect.TypeFor[store.Audit]()} {
		for i := range face.NumMethod() {
			f := face.Method(i).Type
			for j := range f.NumIn() {
				all = append(all, f.In(j))
			}
			for j := range f.NumOut() {
				all = append(all, f.Out(j))
			}
		}
	}
	return slices.DeleteFunc(all, func(t reflect.Type) bool {
		return t.Kind() == reflect.Func || t.Kind() == reflect.Interface && t != errorType
	})
}

// Every field of every type that crosses the seam survives, those that the stored forms leave out among them.
func TestCodecKeepsEverything(t *testing.T) {
	t.Parallel()
	n := 0
	for _, typ := range crossing() {
		v, got := reflect.New(typ), reflect.New(typ)
		fill(v.Elem(), &n)
		b, err := pack(v.Interface())
		require.NoError(t, err, typ)
		message := bytes.Clone(b)
		require.NoError(t, unpack(message, got.Interface()), typ)
		clear(message) // the value shares no memory with it
		require.Equal(t, v.Elem().Interface(), got.Elem().Interface(), typ)
		again := must(pack(got.Interface()))(t)
		require.Equal(t, b, again, "%s: the same value has the same bytes", typ)
	}
	require.Greater(t, n, 500)
}

// Nil and empty differ: a state row with an empty value is there, one with nil is deleted.
func TestCodecNilAndEmpty(t *testing.T) {
	t.Parallel()
	type s struct {
		A, B []byte
		C, D []string
		E    *int
		F    map[string]string
		T    time.Time
		X    float64
	}
	is := s{B: []byte{}, D: []string{}, F: map[string]string{}, X: math.Inf(-1)}
	b := must(pack(is))(t)
	var got s
	require.NoError(t, unpack(b, &got))
	require.Equal(t, is, got)
	require.True(t, got.T.IsZero())
}

// A field that this program does not know is skipped, and one that the other did not send is zero.
func TestCodecOfOtherFields(t *testing.T) {
	t.Parallel()
	b := must(pack(struct {
		New  map[string][]store.Ref
		LSN  uint64
		Tail []string
	}{map[string][]store.Ref{"a": {{ID: "x"}}}, 7, []string{"y"}}))(t)
	var m store.Mark
	require.NoError(t, unpack(b, &m))
	require.Equal(t, store.Mark{LSN: 7}, m)
}

// A message that does not keep what it promises is refused before memory is taken for it: by its lengths, by its depth, and
// where something follows it or a record in it is cut.
func TestUnpackRefuses(t *testing.T) { // not parallel: it measures what is allocated
	good := must(pack(store.Candidates{Hits: []store.Candidate{{Kind: store.KindFact, Excluded: "x"}}}))(t)
	var got store.Candidates
	require.NoError(t, unpack(good, &got), "the control")
	for cut := range good {
		require.Error(t, unpack(good[:cut], new(store.Candidates)), cut)
	}
	for name, b := range map[string][]byte{
		"a value behind":     append(bytes.Clone(good), 0xc0),
		"4 G hits":           append([]byte("\x81\xa4Hits"), 0xdd, 0xff, 0xff, 0xff, 0xff),
		"4 G bytes":          append([]byte("\x81\xa4Hits"), 0xc6, 0xff, 0xff, 0xff, 0xff),
		"4 G rows":           []byte("\x81\xa4Hits\xc4\x06\x00\xff\xff\xff\xff\x0f"),
		"4 G of texts":       []byte("\x81\xa4Hits\xc4\x05\xff\xff\xff\xff\x0f"),
		"a number missing":   []byte("\x81\xa4Hits\xc4\x06\x00\x01\x00\x00\x00\x80"),
		"a field cut":        []byte("\x81\xa4Hits\xc4\x06\x00\x01\x00\x00\x02\x00"),
		"a number too large": []byte("\x81\xa4Hits\xc4\x08\x00\x01\x40\x00\x00\x00\x80\x04"),
		"a text too long":    []byte("\x81\xa4Hits\xc4\x08\x01x\x01\x04\x00\x00\x00\x02"),
		"a text left":        []byte("\x81\xa4Hits\xc4\x07\x01x\x01\x00\x00\x00\x00"),
		"a row behind":       []byte("\x81\xa4Hits\xc4\x06\x00\x00\x00\x00\x00\x00"),
		"a deep list":        append([]byte("\x81\xa4Hits"), bytes.Repeat([]byte{0x91}, 1<<20)...),
		"a deep unknown":     append([]byte("\x82\xa3New"), bytes.Repeat([]byte{0x91}, 10<<20)...), // a call for each level would end the process
		"4 G unknown":        append([]byte("\x82\xa3New"), 0xdf, 0xff, 0xff, 0xff, 0xff),
		"4 G unknown bytes":  append([]byte("\x82\xa3New"), 0xc6, 0xff, 0xff, 0xff, 0xff),
		"4 G of text":        append([]byte("\x81\xa8Excluded\x91\x81\xa6Reason"), 0xdb, 0xff, 0xff, 0xff, 0xff),
		"a long name":        append([]byte{0x81, 0xda, 2, 0}, append(bytes.Repeat([]byte{'n'}, 512), 0xc0)...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.Error(t, unpack(b, new(store.Candidates)), name)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), name)
	}
}

// A reader that is used again takes no memory for a length either: not for the first message, and not more with each. The control is the
// decoder below it, which keeps what it took.
func TestLengthsWithoutBytes(t *testing.T) { // not parallel: it measures what is allocated
	taken := func(read func() error) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 20 {
			require.Error(t, read())
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for name, b := range map[string]string{
		"unknown bytes": "\x82\xa3New\xc6\xff\xff\xff\xff", "unknown text": "\x82\xa3New\xdb\xff\xff\xff\xff", "unknown type": "\x82\xa3New\xc9\xff\xff\xff\xff\x01",
		"text": "\x81\xa8Excluded\x91\x81\xa6Reason\xdb\xff\xff\xff\xff", "bytes": "\x81\xa4Hits\xc6\xff\xff\xff\xff",
	} {
		require.Less(t, taken(func() error { return unpack([]byte(b), new(store.Candidates)) }), uint64(1<<20), name)
	}
	d := msgpack.NewDecoder(nil)
	require.Greater(t, taken(func() error {
		d.Reset(bytes.NewReader([]byte("\xc6\xff\xff\xff\xff")))
		return d.Skip()
	}), uint64(20<<20), "the control")
}

func FuzzUnpack(f *testing.F) {
	n := 0
	for _, typ := range []reflect.Type{reflect.TypeFor[store.Batch](), reflect.TypeFor[store.ScanPage](), reflect.TypeFor[manifest.Record](), reflect.TypeFor[store.Candidates]()} {
		v := reflect.New(typ)
		fill(v.Elem(), &n)
		b := must(pack(v.Interface()))(f)
		f.Add(b)
	}
	f.Add(deepError(4 * maxDepth))
	f.Add([]byte("\x81\xa3Err\x94\xb2store.CorruptError\xc0\xc0\xc0")) // a nil of its type
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []any{&store.Batch{}, &store.ScanPage{}, &manifest.Record{}, &store.Candidates{}, &struct{ Err error }{}} {
			if unpack(b, v) == nil {
				must(pack(v))(t)
			}
		}
	})
}

// deepError is a message of an error that has so many others in its fields, one in the other.
func deepError(levels int) []byte {
	w := newWriter()
	w.dict(1)
	w.text("Err")
	for range levels {
		w.list(errorElements)
		w.text("store.CorruptError")
		w.text("x")
		w.dict(1)
		w.text("Err")
	}
	w.null()
	for range levels {
		w.null()
	}
	return w.b.Bytes()
}

// Errors in the fields of errors are bounded like errors that wrap others: read, they would use up the stack, and written,
// they cost the square of their depth.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	var got struct{ Err error }
	require.NoError(t, unpack(deepError(maxDepth), &got), "the control")
	require.ErrorIs(t, got.Err, store.ErrCorrupt)
	require.ErrorContains(t, unpack(deepError(maxDepth+2), &got), "at most 8")
	require.ErrorContains(t, unpack(deepError(1<<20), &got), "at most 8")

	deep := error(fs.ErrPermission)
	for n := range 200 {
		if deep = (&store.CorruptError{File: "f", Err: deep}); n%2 == 0 {
			deep = fmt.Errorf("wrapped: %w", deep)
		}
	}
	back := cross(t, deep)
	require.ErrorIs(t, back, store.ErrCorrupt)
	require.ErrorIs(t, back, fs.ErrPermission, "what is too deep to be described still matches what it is")
}

// cross sends an error to the other side.
func cross(t *testing.T, err error) error {
	t.Helper()
	b := must(pack(struct{ Err error }{err}))(t)
	var got struct{ Err error }
	require.NoError(t, unpack(b, &got))
	return got.Err
}

// Every sentinel keeps its identity, bare, wrapped and joined, and no error matches what it did not.
func TestErrorsKeepIdentity(t *testing.T) {
	t.Parallel()
	require.NoError(t, cross(t, nil))
	for _, s := range sentinels {
		require.True(t, s.err == cross(t, s.err), s.name)
		for _, err := range []error{
			fmt.Errorf("while reading: %w", s.err),
			fmt.Errorf("%w: %w", errors.New("first"), fmt.Errorf("then %w", s.err)),
			errors.Join(errors.New("first"), s.err),
		} {
			got := cross(t, err)
			require.Equal(t, err.Error(), got.Error())
			for _, other := range sentinels {
				require.Equal(t, errors.Is(err, other.err), errors.Is(got, other.err), "%v as %s", err, other.name)
			}
		}
	}
	plain := cross(t, errors.New("nothing we know"))
	require.EqualError(t, plain, "nothing we know")
	for _, s := range sentinels {
		require.NotErrorIs(t, plain, s.err)
	}
}

// Every typed error keeps its fields, its text, what it matches and what it wraps.
func TestErrorsKeepTypes(t *testing.T) {
	t.Parallel()
	n := 0
	for name, typ := range typed {
		v := reflect.New(typ).Elem()
		if typ.Kind() == reflect.Pointer {
			fill(v, &n)
		} else {
			v.SetUint(uint64(syscall.ENOSPC))
		}
		is := v.Interface().(error)
		got := cross(t, is)
		require.Equal(t, is, got, name)
		require.Equal(t, is.Error(), got.Error())
		wrapped := cross(t, fmt.Errorf("while reading: %w", is))
		to := reflect.New(typ)
		require.True(t, errors.As(wrapped, to.Interface()), name)
		require.Equal(t, is, to.Elem().Interface(), name)
		for _, s := range sentinels {
			require.Equal(t, errors.Is(is, s.err), errors.Is(wrapped, s.err), "%s as %s", name, s.name)
		}
	}
	missing := store.InvalidMissing(store.ErrNotFound, "scope", "x", "a scope")
	got := cross(t, missing)
	var invalid *store.InvalidError
	require.ErrorAs(t, got, &invalid)
	require.Equal(t, "scope", invalid.Field)
	require.ErrorIs(t, got, store.ErrNotFound)
	require.Equal(t, missing.Error(), got.Error())
	full := cross(t, &store.NoSpaceError{Path: "p", Err: &fs.PathError{Op: "write", Path: "p", Err: syscall.ENOSPC}})
	require.ErrorIs(t, full, syscall.ENOSPC)
	var path *fs.PathError
	require.ErrorAs(t, full, &path)
}

// The tables have every error that package store declares, so that a new one cannot be forgotten.
func TestErrorsAreAllKnown(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, s := range sentinels {
		known[s.name] = true
	}
	for name := range typed {
		known[name] = true
	}
	count := 0
	for _, dir := range []string{"store", "manifest", "internal/lexical"} {
		paths := must(filepath.Glob("../../" + dir + "/*.go"))(t)
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, name := range declaredErrors(t, path) {
				count++
				require.True(t, known[filepath.Base(dir)+"."+name], "%s.%s does not cross the socket: name it in errors.go", dir, name)
			}
		}
	}
	require.Greater(t, count, 40)
}

// declaredErrors are the exported Err… variables and …Error types of a file.
func declaredErrors(t *testing.T, path string) (names []string) {
	b := must(os.ReadFile(path))(t)
	f := must(parser.ParseFile(token.NewFileSet(), path, b, 0))(t)
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		for i := 0; ok && i < len(g.Specs); i++ {
			switch s := g.Specs[i].(type) {
			case *ast.ValueSpec:
				if g.Tok == token.VAR && strings.HasPrefix(s.Names[0].Name, "Err") {
					names = append(names, s.Names[0].Name)
				}
			case *ast.TypeSpec:
				if ast.IsExported(s.Name.Name) && strings.HasSuffix(s.Name.Name, "Error") {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	return names
}

// A message longer than a frame arrives whole; one that was cut, or is longer than allowed, is an error.
func TestFrames(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, MaxFrame, MaxFrame + 1, 2*MaxFrame + 7} {
		message := bytes.Repeat([]byte{'x'}, size)
		sent := framed(frameEnd, message)
		kind, got, err := readMessage(bytes.NewReader(sent), maxRequest, nil)
		require.NoError(t, err)
		require.Equal(t, byte(frameEnd), kind)
		require.True(t, bytes.Equal(message, got), size)
		_, _, err = readMessage(bytes.NewReader(sent[:len(sent)-1]), maxRequest, nil)
		require.ErrorIs(t, err, errCut)
		_, _, err = readMessage(bytes.NewReader(sent), size-1, nil)
		require.Error(t, err)
	}
	_, _, err := readMessage(bytes.NewReader([]byte{frameEnd, 0xff, 0xff, 0xff, 0xff}), maxAnswer, nil)
	require.ErrorContains(t, err, "at most")
}

// A call that was given up before it came is never made, and one under way is waited for.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	s := newSession("s", time.Minute, func(*session) {})
	require.NoError(t, s.giveUp(background, []uint64{7}))
	_, err := s.once(background, 7, func() ([]byte, error) { t.Error("it was made"); return nil, nil })
	require.Equal(t, errGivenUp, err)

	begun, free := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = s.once(background, 8, func() ([]byte, error) { close(begun); <-free; return []byte("a"), nil })
	}()
	<-begun
	over := make(chan error)
	go func() { over <- s.giveUp(background, []uint64{8}) }()
	select {
	case <-over:
		t.Fatal("a call under way was not waited for")
	case <-time.After(20 * time.Millisecond):
	}
	close(free)
	require.NoError(t, <-over)
	got := must(s.once(background, 8, func() ([]byte, error) { return []byte("b"), nil }))(t)
	require.Equal(t, "a", string(got), "it was made once")

	// One that its connection ended has no answer, and is not made any more.
	ctx, cancel := context.WithCancel(background)
	cancel()
	require.ErrorIs(t, errOf(s.once(ctx, 9, func() ([]byte, error) { return nil, ctx.Err() })), context.Canceled)
	require.NoError(t, s.giveUp(background, []uint64{9}))
	_, err = s.once(background, 9, func() ([]byte, error) { return nil, nil })
	require.Equal(t, errGivenUp, err)
	for n := range uint64(2 * keptCalls) {
		must(s.once(background, 100+n, func() ([]byte, error) { return nil, nil }))(t)
	}
	_, err = s.once(background, 9, func() ([]byte, error) { return nil, nil })
	require.Equal(t, errGivenUp, err, "also when nobody remembers it")
	require.LessOrEqual(t, len(s.calls), keptCalls)
}

// A call that takes long keeps its own answer, and not those of all the calls that come after it.
func TestLongCallKeepsNoOthers(t *testing.T) {
	t.Parallel()
	s := newSession("s", time.Minute, func(*session) {})
	begun, free, over := make(chan struct{}), make(chan struct{}), make(chan error)
	long := func() ([]byte, error) {
		close(begun)
		<-free
		return []byte("long"), nil
	}
	go func() {
		_, err := s.once(background, 1, long)
		over <- err
	}()
	<-begun
	for n := range uint64(4 * keptCalls) {
		got := must(s.once(background, 2+n, func() ([]byte, error) { return []byte{byte(n)}, nil }))(t)
		require.Equal(t, []byte{byte(n)}, got)
	}
	require.LessOrEqual(t, len(s.calls), keptCalls)
	require.LessOrEqual(t, len(s.callOrder), keptCalls)
	close(free)
	require.NoError(t, <-over)
	got := must(s.once(background, 1, func() ([]byte, error) { t.Error("it was made twice"); return nil, nil }))(t)
	require.Equal(t, "long", string(got))
	_, err := s.once(background, 3, func() ([]byte, error) { t.Error("it was made twice"); return nil, nil })
	require.Equal(t, errGivenUp, err, "the oldest that ended is forgotten")
}

// A job reports to a client that has stopped reading once more than it can take, and then goes on.
func TestReplyToStoppedClient(t *testing.T) {
	t.Parallel()
	stopped, writes := errors.New("i/o timeout"), 0
	r := &reply{write: func([]byte, *refused) error {
		if writes++; writes < 3 {
			return nil
		}
		return stopped
	}}
	for n := range uint64(10) {
		r.progress("erase", n, n) // the last one is always sent
	}
	r.end(nil, nil)
	require.Equal(t, 3, writes)
	require.Equal(t, stopped, r.failed)
}
