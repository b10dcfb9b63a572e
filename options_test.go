package ctxpage_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

func several[T any](n int, make func(i int) T) []T {
	out := make0[T](n)
	for i := range n {
		out = append(out, make(i))
	}
	return out
}

func make0[T any](n int) []T { return make([]T, 0, n) }

// Each limit of an artefact at the limit and one above it: stored whole, or refused with the field that is wrong.
func TestArtefactLimits(t *testing.T) {
	t.Parallel()
	db := open(t, Options{Counter: bytesCounter{}, PageTokens: store.MaxPageTokens})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "parent", Text: "parent"})
	x := func(n int) string { return strings.Repeat("x", n) }
	for field, c := range map[string]struct {
		at  int
		of  func(n int) Artefact
		say string
	}{
		"id":           {store.MaxID, func(n int) Artefact { return Artefact{ID: x(n), Text: "t"} }, "id"},
		"id of runes":  {store.MaxID / 4, func(n int) Artefact { return Artefact{ID: strings.Repeat("🐌", n), Text: "t"} }, "id"},
		"group":        {store.MaxID, func(n int) Artefact { return Artefact{ID: "a", Text: "t", Group: x(n)} }, "group"},
		"subject":      {store.MaxID, func(n int) Artefact { return Artefact{ID: "a", Text: "t", Subject: x(n)} }, "subject"},
		"role":         {store.MaxID, func(n int) Artefact { return Artefact{ID: "a", Text: "t", Role: x(n)} }, "role"},
		"name":         {store.MaxID, func(n int) Artefact { return Artefact{ID: "a", Text: "t", Name: x(n)} }, "name"},
		"tool_call_id": {store.MaxID, func(n int) Artefact { return Artefact{ID: "a", Text: "t", ToolCallID: x(n)} }, "tool_call_id"},
		"tag":          {store.MaxID, func(n int) Artefact { return Artefact{ID: "a", Text: "t", Tags: []string{x(n)}} }, "tag"},
		"tags": {store.MaxTags, func(n int) Artefact {
			return Artefact{ID: "a", Text: "t", Tags: several(n, func(i int) string { return fmt.Sprint(i) })}
		}, "tags"},
		"text": {store.MaxText, func(n int) Artefact { return Artefact{ID: "a", Text: x(n)} }, "text"},
		"meta": {store.MaxMeta, func(n int) Artefact { return Artefact{ID: "a", Text: "t", Meta: map[string]string{"k": x(n - 1)}} }, "meta"},
		"parts": {store.MaxParts, func(n int) Artefact {
			return Artefact{ID: "a", Parts: several(n, func(int) store.Part { return store.Part{Type: "text", Text: "t"} })}
		}, "parts"},
		"tool_calls": {store.MaxToolCalls, func(n int) Artefact {
			return Artefact{ID: "a", Text: "t", ToolCalls: several(n, func(i int) store.ToolCall { return store.ToolCall{ID: fmt.Sprint(i), Name: "f"} })}
		}, "tool_calls"},
		"tool bytes": {store.MaxToolBytes, func(n int) Artefact {
			return Artefact{ID: "a", Text: "t", ToolCalls: []store.ToolCall{{ID: "i", Name: "f", Arguments: x(n - 2)}}}
		}, "tool_calls"},
		"derived_from": {store.MaxLineage, func(n int) Artefact {
			return Artefact{ID: "a", Text: "t", DerivedFrom: several(n, func(int) Ref { return Ref{ID: "parent"} })}
		}, "derived_from"},
		"supersedes": {store.MaxLineage, func(n int) Artefact {
			return Artefact{ID: "a", Text: "t", Supersedes: several(n, func(i int) string { return fmt.Sprint("old", i) })}
		}, "supersedes"},
	} {
		t.Run(field, func(t *testing.T) {
			want := c.of(c.at)
			require.NoError(t, s.Update(ctx, func(tx *Txn) error {
				for _, id := range want.Supersedes {
					if err := tx.Put(ctx, Artefact{ID: id, Text: "old"}); err != nil {
						return err
					}
				}
				return nil
			}))
			ref := put(t, s, want)
			v := get(t, s, ref.ID)
			require.Equal(t, want.Text, v.Text)
			require.Equal(t, []any{want.Group, want.Subject, want.Tags, want.Meta, want.Parts, want.ToolCalls, want.Supersedes},
				[]any{v.Group, v.Subject, v.Tags, v.Meta, v.Parts, v.ToolCalls, v.Supersedes})
			_, err := s.Put(ctx, c.of(c.at+1))
			var bad *store.InvalidError
			require.ErrorAs(t, err, &bad)
			require.ErrorIs(t, err, store.ErrInvalid)
			require.Equal(t, c.say, bad.Field)
			require.NotEmpty(t, bad.Expected)
			require.Less(t, len(err.Error()), 400, "an error does not repeat the input")
		})
	}
}

// bytesCounter counts bytes: cheap for the largest texts.
type bytesCounter struct{}

func (bytesCounter) Name() string       { return "bytes" }
func (bytesCounter) Count(s string) int { return len(s) }

func TestArtefactIsRefused(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	f := func(x float64) *float64 { return &x }
	for name, a := range map[string]Artefact{
		"no id":                 {Text: "t"},
		"control in id":         {ID: "a\nb", Text: "t"},
		"delete in id":          {ID: "a\x7f", Text: "t"},
		"NUL in id":             {ID: "a\x00", Text: "t"},
		"id not UTF-8":          {ID: "\xff", Text: "t"},
		"text not UTF-8":        {ID: "a", Text: "t\xff"},
		"part not UTF-8":        {ID: "a", Parts: []store.Part{{Type: "text", Text: "\xff"}}},
		"part url not UTF-8":    {ID: "a", Parts: []store.Part{{Type: "image", URL: "\xff"}}},
		"call not UTF-8":        {ID: "a", ToolCalls: []store.ToolCall{{ID: "i", Name: "f", Arguments: "\xff"}}},
		"call name not UTF-8":   {ID: "a", ToolCalls: []store.ToolCall{{ID: "i", Name: "\xff"}}},
		"meta not UTF-8":        {ID: "a", Meta: map[string]string{"k": "\xff"}},
		"meta key not UTF-8":    {ID: "a", Meta: map[string]string{"\xff": "v"}},
		"source not UTF-8":      {ID: "a", Text: "t", Source: "file:/\xff"},
		"kind":                  {ID: "a", Text: "t", Kind: 99},
		"provenance":            {ID: "a", Text: "t", Provenance: 99},
		"priority":              {ID: "a", Text: "t", Priority: 99},
		"negative ttl":          {ID: "a", Text: "t", TTL: -1},
		"ttl and expiry":        {ID: "a", Text: "t", TTL: 1, ExpiresAt: time.Now()},
		"year 10000":            {ID: "a", Text: "t", ExpiresAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"year 0":                {ID: "a", Text: "t", CurrentAsOf: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)},
		"relevance NaN":         {ID: "a", Text: "t", Relevance: f(math.NaN())},
		"relevance above":       {ID: "a", Text: "t", Relevance: f(math.Nextafter(1, 2))},
		"relevance below":       {ID: "a", Text: "t", Relevance: f(-.001)},
		"text and parts":        {ID: "a", Text: "t", Parts: []store.Part{{Type: "text"}}},
		"supersedes itself":     {ID: "a", Text: "t", Supersedes: []string{"a"}},
		"supersedes nothing":    {ID: "a", Text: "t", Supersedes: []string{""}},
		"unknown scheme":        {ID: "a", Text: "t", Source: "ftp:x"},
		"no scheme":             {ID: "a", Text: "t", Source: "x"},
		"group with a control":  {ID: "a", Text: "t", Group: "\x00a"},
		"tag with a line break": {ID: "a", Text: "t", Tags: []string{"a\nb"}},
	} {
		require.ErrorIs(t, errOf(s.Put(ctx, a)), store.ErrInvalid, name)
		require.ErrorIs(t, errOf(db.Admin().PutVerified(ctx, "acme", "anna", a)), store.ErrInvalid, name)
		tx := begin(t, s)
		require.ErrorIs(t, tx.Put(ctx, a), store.ErrInvalid, name)
	}
	require.ErrorIs(t, errOf(s.Get(ctx, "a")), store.ErrNotFound, "nothing of it was kept")
	for _, r := range []float64{0, 1, math.Copysign(0, -1)} {
		put(t, s, Artefact{ID: "a", Text: "t", Relevance: f(r)})
	}
	require.ErrorIs(t, errOf(s.Put(ctx, Artefact{ID: "a", Text: ""})), store.ErrInvalid, "a text without words is never found")
	require.Equal(t, "t", get(t, s, "a").Text)
}

func TestQueryLimits(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "a", Text: "some words"})
	for name, q := range map[string]Query{
		"no budget":       {},
		"negative budget": {Budget: -1},
		"reserve":         {Budget: 100, Reserve: 100},
		"reserve below":   {Budget: 100, Reserve: -1},
		"top k":           {Budget: 100, TopK: MaxTopK + 1},
		"top k below":     {Budget: 100, TopK: -1},
		"floor":           {Budget: 100, Floor: 9},
		"kind":            {Budget: 100, Kinds: []store.Kind{store.KindFact, 99}},
		"kind auto":       {Budget: 100, Kinds: []store.Kind{store.KindAuto}},
		"preset":          {Budget: 100, Preset: "stop"},
		"trace":           {Budget: 100, Trace: "mine"},
	} {
		require.ErrorIs(t, errOf(s.Assemble(ctx, q)), store.ErrInvalid, name)
	}
	for name, q := range map[string]Query{
		"largest":     {Budget: math.MaxInt, Reserve: math.MaxInt - 4000, TopK: MaxTopK, Text: strings.Repeat("x", 64<<10), Floor: store.HumanVerified, Ladder: true},
		"huge budget": {Budget: math.MaxInt, Text: "words"},
		"long text":   {Budget: 4000, Text: strings.Repeat("x", 64<<10+1)},
		"all kinds":   {Budget: 1000, Kinds: []store.Kind{store.KindSystem, store.KindFact, store.KindChunk, store.KindMessage, store.KindTool, store.KindScratch, store.KindSummary}},
	} {
		require.NoError(t, errOf(s.Assemble(ctx, q)), name)
	}
	for _, limit := range []int{-1, MaxTopK + 1} {
		require.ErrorIs(t, errOf(s.Search(ctx, "words", limit)), store.ErrInvalid)
	}
	must(s.Search(ctx, strings.Repeat("x", 64<<10+1), 1))(t)
	require.Len(t, must(hitsOf(s.Search(ctx, "words", MaxTopK)))(t), 1)
	for _, text := range []string{"", "   ", "!?", "the of and", "\x00", "\xff\xfe", strings.Repeat("words ", 5000)} {
		require.NoError(t, errOf(s.Search(ctx, text, 1)), "%q", text)
		require.NoError(t, errOf(s.Assemble(ctx, Query{Text: text, Budget: 1000})), "%q", text)
	}
}

func TestOptionLimits(t *testing.T) {
	dir := t.TempDir()
	for name, o := range map[string]Options{
		"gate above":     {Gate: 1.01},
		"gate below":     {Gate: -.5},
		"gate NaN":       {Gate: math.NaN()},
		"page above":     {PageTokens: store.MaxPageTokens + 1},
		"page below":     {PageTokens: 15},
		"source timeout": {SourceTimeout: -1},
		"lock timeout":   {LockTimeout: -1},
	} {
		require.ErrorIs(t, errOf(Open(filepath.Join(dir, "x"), o)), store.ErrInvalid, name)
	}
	_, err := Open(filepath.Join(dir, "x"), Options{Gate: 2, PageTokens: 1, LockTimeout: -1})
	require.Equal(t, 3, strings.Count(err.Error(), "expected"), "all faults of a configuration at once: %v", err)
	require.ErrorIs(t, errOf(Open(filepath.Join(dir, "x"), Options{MustExist: true})), store.ErrNotExist)
	require.ErrorIs(t, errOf(Open(filepath.Join(dir, "x"), Options{ReadOnly: true})), store.ErrNotExist)
	require.Error(t, errOf(Open(filepath.Join(dir, "none", "x"), Options{})))
	require.Empty(t, must(filepath.Glob(filepath.Join(dir, "*")))(t), "a refused open leaves nothing behind")
	for _, o := range []Options{{Gate: 1}, {Gate: GateOff}, {PageTokens: 16}, {PageTokens: store.MaxPageTokens}, {WorkingSet: math.MaxInt64}} {
		require.NoError(t, must(Open(filepath.Join(dir, "x"), o))(t).Close())
	}
}

// After Close every method says so, and none breaks.
func TestClosed(t *testing.T) {
	for _, ro := range []bool{false, true} {
		db := open(t, Options{})
		s := db.Scope("acme")
		put(t, s, Artefact{ID: "a", Text: "some words"})
		trace := assemble(t, s, Query{Text: "words"}).Trace
		if ro {
			db = reopen(t, db, Options{ReadOnly: true})
			s = db.Scope("acme")
			get(t, s, "a")
		}
		checkAndClose(t, db)
		for what, call := range map[string]func() error{
			"put":        func() error { _, err := s.Put(ctx, Artefact{ID: "b", Text: "t"}); return err },
			"get":        func() error { _, err := s.Get(ctx, "a"); return err },
			"recall":     func() error { _, err := s.Recall(ctx, Ref{ID: "a"}); return err },
			"list":       func() error { _, err := loop.Collect(s.Artefacts(ctx, "")); return err },
			"history":    func() error { _, err := loop.Collect(s.Versions(ctx, "a")); return err },
			"search":     func() error { _, err := s.Search(ctx, "words", 1); return err },
			"assemble":   func() error { _, err := s.Assemble(ctx, Query{Text: "words", Budget: 100}); return err },
			"delete":     func() error { return s.Delete(ctx, "a") },
			"replay":     func() error { _, err := db.Replay(ctx, trace); return err },
			"review":     func() error { _, err := loop.Collect(db.Review().Batches(ctx, "", true)); return err },
			"checkpoint": func() error { _, err := db.Admin().Checkpoint(ctx); return err },
			"check":      func() error { _, err := db.Admin().Check(ctx, nil); return err },
			"backup":     func() error { _, err := db.Admin().Backup(ctx, filepath.Join(t.TempDir(), "b"), nil); return err },
			"stats":      func() error { _, err := db.Stats(ctx); return err },
			"head":       func() error { _, err := db.Head(ctx); return err },
		} {
			err := call()
			require.Error(t, err, what)
			require.True(t, errors.Is(err, store.ErrClosed) || ro && errors.Is(err, store.ErrReadOnly), "%s: %v", what, err)
		}
	}
}

// A text of the largest size is read in its own transaction, and a database that holds it is checked, in memory and time
// that grow with the text, not with its square: each page once meant all rows, or all text, once more.
func TestManyPagesOfOneArtefact(t *testing.T) {
	const size = 2 << 20 // the square of it is a thousand times this
	db := open(t, Options{})
	s := db.Scope("acme")
	grown := func(what string, factor uint64, fn func()) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		before := m.TotalAlloc
		fn()
		runtime.ReadMemStats(&m)
		require.Less(t, m.TotalAlloc-before, factor*size, what)
	}
	tx := must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: strings.Repeat("x", size)}))
	grown("read in its own transaction", 20, func() {
		v := must(tx.Get(ctx, "a"))(t)
		require.Len(t, v.Text, size)
		require.Greater(t, len(v.Pages), 700)
	})
	err := tx.Commit(ctx, Verdict{Confidence: .1, By: "checker"})
	require.ErrorIs(t, err, store.ErrHeld)
	var held *store.HeldError
	require.ErrorAs(t, err, &held)
	grown("shown as held", 100, func() {
		require.Len(t, must(db.Review().Show(ctx, held.Batch))(t).Writes[0].Text, size)
	})
	must(db.Review().Approve(ctx, held.Batch, Approval{By: "ann"}))(t)
	grown("checked", 100, func() {
		require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	})
}

// A backup to a path where something of a database stands is refused, and takes nothing away.
func TestBackupTakesNothingAway(t *testing.T) {
	db := open(t, Options{})
	put(t, db.Scope("acme"), Artefact{ID: "a", Text: "t"})
	for _, suffix := range []string{"", "-wal", "-manifest"} {
		to := filepath.Join(t.TempDir(), "copy.ctx")
		require.NoError(t, os.Mkdir(to+suffix, 0o700))
		writeFile(t, filepath.Join(to+suffix, "mine"), "precious")
		require.ErrorContains(t, errOf(db.Admin().Backup(ctx, to, nil)), to+suffix+" already exists")
		require.Equal(t, "precious", string(must(os.ReadFile(filepath.Join(to+suffix, "mine")))(t)))
	}
}

// A reader makes no file, not even a lock, and a writer is kept out all the same.
func TestReadOnlyMakesNoFile(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	put(t, db.Scope("acme"), Artefact{ID: "a", Text: "t"})
	to := filepath.Join(t.TempDir(), "copy.ctx")
	must(db.Admin().Backup(ctx, to, nil))(t)
	files := func() (names []string) {
		require.NoError(t, filepath.Walk(filepath.Dir(to), func(path string, _ os.FileInfo, err error) error {
			names = append(names, path)
			return err
		}))
		return names
	}
	before := files()
	ro := must(Open(to, Options{ReadOnly: true}))(t)
	get(t, ro.Scope("acme"), "a")
	require.Equal(t, before, files())
	require.ErrorIs(t, errOf(Open(to, Options{})), store.ErrLocked)
	require.NoError(t, ro.Close())
}

func TestMissingFileRoots(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	for name, root := range map[string]string{"missing": filepath.Join(dir, "none"), "no directory": file, "no name": ""} {
		path := filepath.Join(t.TempDir(), "agent.ctx")
		_, err := Open(path, Options{FileRoots: []string{dir, root}})
		require.ErrorIs(t, err, store.ErrInvalid, name)
		require.Contains(t, err.Error(), "a directory", name)
		db, err := Open(path, Options{FileRoots: []string{dir}})
		require.NoError(t, err, "the failed open let go of the file")
		require.ErrorIs(t, db.Admin().AddFileRoot(ctx, root), store.ErrInvalid, name)
		require.Empty(t, must(db.Admin().FileRoots(ctx))(t))
		require.NoError(t, db.Close())
	}

	gone := filepath.Join(dir, "gone") // one that was recorded may be missing later, or on another computer
	require.NoError(t, os.Mkdir(gone, 0o700))
	db := open(t, Options{})
	require.NoError(t, db.Admin().AddFileRoot(ctx, gone))
	require.NoError(t, os.Remove(gone))
	reopen(t, db, Options{RecordedRoots: true})
}

// What reads the audit of a closed database says that it is closed, as every other method does.
func TestAuditOfAClosedDatabase(t *testing.T) {
	db := open(t, Options{})
	ref := must(db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: "zebra"}))(t)
	a := db.Manifests()
	require.NoError(t, db.Close())
	one := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"size": one(a.Size(ctx)), "leaf": one(a.Leaf(ctx, 0)), "body": one(a.Body(ctx, 0)), "records": one(a.Records(ctx, 0, 1, false, 1)),
		"trace": one(a.ByTrace(ctx, "x")), "names": one(a.Names(ctx)), "root": one(a.Root(ctx, 1)), "inclusion": one(a.ProveInclusion(ctx, 0, 1)),
		"verify": one(a.Verify(ctx, nil, nil)), "why": one(db.Why(ctx, "01M8ACCQ45MK2DHG4K854PVE35", ref)),
	} {
		if err != nil || name == "records" { // what is in memory may still be told
			require.ErrorIs(t, err, store.ErrClosed, name)
		}
	}
}

type oddFamily struct {
	name string
	of   func(r *rand.Rand, b *strings.Builder)
}

// oddTexts are texts of few repetitions, or of pieces that no writer makes: what the index pays for a word, a page or a
// cut is paid most often.
var oddTexts = []oddFamily{
	{"unique words", func(r *rand.Rand, b *strings.Builder) { fmt.Fprintf(b, "%07x ", r.Uint32()>>4) }},
	{"Han without spaces", func(r *rand.Rand, b *strings.Builder) { b.WriteRune(rune(0x4e00 + r.IntN(20000))) }},
	{"one token", func(r *rand.Rand, b *strings.Builder) { b.WriteByte(byte('a' + r.IntN(26))) }},
	{"base64", func(r *rand.Rand, b *strings.Builder) {
		for range 76 {
			b.WriteByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[r.IntN(64)])
		}
		b.WriteByte('\n')
	}},
	{"digits", func(r *rand.Rand, b *strings.Builder) { fmt.Fprintf(b, "%d ", r.IntN(10_000_000)) }},
	{"mixed scripts", func(r *rand.Rand, b *strings.Builder) {
		s := [...][2]int{{'a', 26}, {0x430, 32}, {0x621, 26}, {0xe01, 46}, {0x4e00, 20000}, {0xac00, 11000}, {0x1f600, 60}, {0x3b1, 24}}[r.IntN(8)]
		for range 1 + r.IntN(6) {
			b.WriteRune(rune(s[0] + r.IntN(s[1])))
		}
		b.WriteByte(' ')
	}},
	{"white space", func(r *rand.Rand, b *strings.Builder) { b.WriteByte(" \n"[r.IntN(2)]) }},
}

// oddFamilies are the worst three in every run, and all of them in the long form. Under the race detector it is the first:
// it slows them tenfold, and they run on one goroutine.
func oddFamilies() []oddFamily {
	switch {
	case dbtest.Long:
		return oddTexts
	case dbtest.Race:
		return oddTexts[:1]
	}
	return oddTexts[:dbtest.Size(1, 3)]
}

func oddText(of func(*rand.Rand, *strings.Builder), seed uint64, size int) string {
	r, b := rand.New(rand.NewPCG(seed, 7)), strings.Builder{}
	for b.Grow(size + 128); b.Len() < size; {
		of(r, &b)
	}
	return strings.ToValidUTF8(b.String()[:size], "")
}

// heapBytes is what objects of the heap take, garbage that was not collected yet included.
func heapBytes() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

func liveBytes() int64 {
	runtime.GC()
	runtime.GC()
	return heapBytes()
}

// stopped is true in a process whose collector stops the world: what a heap has at most then follows from what is
// allocated, and not from how long the collector waits for a processor. Elsewhere it runs the test again in such a process.
func stopped(t *testing.T) bool {
	t.Helper()
	const how = "gcstoptheworld=1"
	if os.Getenv("GODEBUG") == how {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "GODEBUG="+how)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	t.Logf("%s", out)
	return false
}

// heapPeak is the most that the heap has while fn runs above what was live before. It collects as a user's program does:
// the tests' own setting lets the heap grow fivefold, and the peak was then one of garbage.
func heapPeak(fn func()) int64 { return heapPeakAt(100, fn) }

// heapPeakAt is heapPeak of a program that collects when the heap has grown by so many percent.
func heapPeakAt(percent int, fn func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	base, most := liveBytes(), int64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(500 * time.Microsecond)
		defer tick.Stop()
		for {
			most = max(most, heapBytes())
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	fn()
	close(stop)
	<-done
	return max(most, heapBytes()) - base
}

// TestOddTextsTakeLittle: whatever a text is made of, to put it, to write its index, and to read it back from the log
// take at most twelve times the text and a fixed bound, and what stays of it until the next checkpoint is less. Of
// unique words a put took 26 times the text, and a checkpoint 129 times. Of 16 MiB of random Han, the worst of them, put
// and checkpoint together take 11 times the text, with 104 MiB live at most.
func TestOddTextsTakeLittle(t *testing.T) {
	if !stopped(t) {
		return
	}
	const size, fixed = 1 << 20, 48 << 20
	atMost := func(t *testing.T, times float64, plus, took int64, what string) {
		t.Helper()
		t.Logf("%s: %.1f times the text", what, float64(took)/size)
		require.Less(t, took, int64(times*size)+plus, what)
	}
	for _, odd := range oddFamilies() {
		t.Run(odd.name, func(t *testing.T) {
			text := oddText(odd.of, 1, size)
			path := filepath.Join(t.TempDir(), "a.ctx")
			db := must(Open(path, Options{Exclusive: true}))(t) // its files are copied as they are
			defer func() { db.Close() }()
			must(db.Scope("acme").Put(ctx, Artefact{ID: "small", Text: "what the first put makes for all"}))(t)
			before := liveBytes()
			atMost(t, 12, 8<<20, heapPeak(func() {
				must(db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: text}))(t)
			}), "put")
			atMost(t, 10, 0, liveBytes()-before, "stays") // of random Han 6.4 to 8.2 times: maps grow by their seeds
			crashed := filepath.Join(t.TempDir(), "a.ctx")
			require.NoError(t, dbtest.Copy(path, crashed))
			atMost(t, 12, fixed, heapPeak(func() {
				must(db.Admin().Checkpoint(ctx))(t)
			}), "checkpoint")
			require.NoError(t, db.Close())
			for what, path := range map[string]string{"open": path, "open after a crash": crashed} {
				atMost(t, 12, fixed, heapPeak(func() {
					db = must(Open(path, Options{}))(t)
				}), what)
				require.True(t, must(db.Scope("acme").Get(ctx, "a"))(t).Text == text)
				require.NoError(t, db.Close())
			}
		})
	}
}

// TestMergeTakesLittle: when eight segments of unique words become one, what is in memory does not grow with them.
func TestMergeTakesLittle(t *testing.T) {
	if !stopped(t) {
		return
	}
	size := 1 << 19
	if dbtest.Race || !dbtest.Full {
		size >>= 3
	}
	db := open(t, Options{})
	s := db.Scope("acme")
	for i := range uint64(9) { // eight are merged when the ninth comes
		text := oddText(oddTexts[0].of, i, size)
		took := heapPeakAt(20, func() {
			must(s.Put(ctx, Artefact{ID: fmt.Sprint("a", i), Text: text}))(t)
			must(db.Admin().Checkpoint(ctx))(t)
		})
		t.Logf("%d: %.1f MiB", i, float64(took)/(1<<20))
		require.Less(t, took, int64(48<<20), "put and checkpoint %d", i)
		require.NotEmpty(t, must(s.Search(ctx, text[:7], 5))(t).Hits)
	}
}

// TestOddQuestionTakesLittle: the longest question of words that nobody asks takes no more than an odd text.
func TestOddQuestionTakesLittle(t *testing.T) {
	if !stopped(t) {
		return
	}
	db := open(t, Options{})
	s := db.Scope("acme")
	for i, odd := range oddFamilies() {
		text := oddText(odd.of, 1, 64<<10)
		must(s.Put(ctx, Artefact{ID: fmt.Sprint("a", i), Text: text}))(t)
		for _, question := range []string{text, strings.Repeat(text, 16)} {
			took := heapPeakAt(20, func() {
				must(s.Search(ctx, question, 10))(t)
			})
			require.Less(t, took, int64(32<<20), odd.name)
		}
	}
}

// watched gathers events.
type watched struct {
	mu     sync.Mutex
	events []ops.Event
	block  chan struct{}                          // nil: it does not wait
	look   func(ctx context.Context, e ops.Event) // nil: nothing
}

func (w *watched) Observe(ctx context.Context, e ops.Event) {
	if w.block != nil {
		<-w.block
	}
	if w.look != nil {
		w.look(ctx, e)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// The observer is told what was done, how long it took and how much it was, without text, ids or names.
func TestObserver(t *testing.T) {
	for _, names := range []bool{false, true} {
		c, w, src := newClock(), &watched{}, newMemo()
		src.set("secret-key", "as it was")
		opts := Options{
			Observer: w, ObserveScopes: names, NoWatch: true, WorkingSet: -1, Sources: map[string]store.Source{"memo": src},
			Clock: func() time.Time { c.add(time.Millisecond); return c.now() },
		}
		db := open(t, opts)
		s := db.Scope("acme/secret")
		put(t, s, Artefact{ID: "secret-id", Text: "refunds take 14 days"})
		get(t, s, "secret-id")
		must(s.Recall(ctx, Ref{ID: "secret-id"}))(t)
		must(hitsOf(s.Search(ctx, "refunds", 0)))(t)
		a := assemble(t, s, Query{Text: "refunds"})
		put(t, s, Artefact{ID: "secret-doc", Kind: store.KindChunk, Source: "memo:secret-key"})
		src.set("secret-key", "as it is now")
		get(t, s, "secret-doc")
		tx := begin(t, s)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: "a draft"}))
		require.ErrorIs(t, tx.Commit(ctx, Verdict{}), store.ErrHeld)
		chat := s.Session("secret-chat")
		must(chat.Append(ctx, Turn{Role: "user", Text: "When do refunds come?"}))(t)
		must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"refunds"}}))(t)
		must(chat.Handoff(ctx, "secret-other"))(t)
		must(db.Admin().GC(ctx, GCOptions{}))(t)
		checkAndClose(t, db)
		found := map[string]ops.Event{}
		for _, e := range w.events {
			if _, is := found[e.Kind]; !is {
				found[e.Kind] = e
			}
			require.Zero(t, e.Dropped)
			require.Empty(t, e.Error, "%+v", e)
			if names {
				require.Contains(t, []string{"", "acme/secret"}, e.Scope)
			} else {
				require.NotContains(t, fmt.Sprintf("%+v", e), "secret")
			}
		}
		kinds := []string{"commit", "get", "recall", "search", "assemble", "held", "fault", "refetch", "pass", "handoff", "gc"}
		if !ThroughClient() { // the owner of the files has its own observer
			kinds = append(kinds, "checkpoint", "sync")
			require.Positive(t, found["checkpoint"].Bytes)
		}
		for _, kind := range kinds {
			require.Positive(t, found[kind].Took, "%s of %v", kind, found)
			if kind != "handoff" && kind != "gc" && kind != "checkpoint" && kind != "sync" && kind != "pass" {
				require.Positive(t, found[kind].Pages, kind)
			}
			require.Equal(t, kind == "fault" || kind == "gc" || kind == "checkpoint" || kind == "sync", found[kind].Scope == "", kind)
		}
		e := found["assemble"]
		require.Equal(t, []any{a.Tokens, int(a.Tier), a.Manifest.Budget, string(a.Match)}, []any{e.Tokens, e.Tier, e.Budget, e.Match})
		require.Equal(t, len("refunds take 14 days"), found["commit"].Bytes)
		require.Greater(t, found["refetch"].Took, found["commit"].Took, "from when the source was asked")
	}
}

// Reads that fail are told once, with the kind of the error and nothing of its text.
func TestObserverOfErrors(t *testing.T) {
	c, w := newClock(), &watched{}
	db := open(t, Options{Observer: w, NoWatch: true, Clock: func() time.Time { c.add(time.Millisecond); return c.now() }})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "a", Text: "x"})
	require.ErrorIs(t, errOf(s.Get(ctx, "secret")), store.ErrNotFound)
	require.ErrorIs(t, errOf(s.Recall(ctx, Ref{ID: "secret"})), store.ErrNotFound)
	require.ErrorIs(t, errOf(s.Search(ctx, "secret", -1)), store.ErrInvalid)
	require.ErrorIs(t, errOf(s.Assemble(ctx, Query{Text: "secret", Budget: -1})), store.ErrInvalid)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, errOf(s.Assemble(ended, Query{Text: "secret", Budget: 100})), context.Canceled)
	require.ErrorIs(t, errOf(db.Scope("secret\n").Get(ctx, "a")), store.ErrInvalid, "it has no name, so it is told nobody")
	one, two := begin(t, s), begin(t, s)
	require.ErrorIs(t, errOf(one.Get(ctx, "secret")), store.ErrNotFound)
	for _, tx := range []*Txn{one, two} {
		must(tx.Get(ctx, "a"))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "y"}))
	}
	require.NoError(t, one.Commit(ctx, Verdict{Confidence: 1, By: "judge"}))
	require.ErrorIs(t, two.Commit(ctx, Verdict{Confidence: 1, By: "judge"}), store.ErrConflict)
	checkAndClose(t, db)
	var got []string
	for _, e := range w.events {
		require.NotContains(t, fmt.Sprintf("%+v", e), "secret")
		if e.Error != "" {
			got = append(got, e.Kind+" "+e.Error)
			require.Positive(t, e.Took, e.Kind)
		}
	}
	require.Equal(t, []string{"get not_found", "recall not_found", "search invalid", "assemble invalid", "assemble canceled", "get not_found", "commit conflict"}, got)
}

// An observer runs under no lock, so it may call the database; and it gets the values of the context of the call, also when that has ended.
func TestObserverMayCall(t *testing.T) {
	type key struct{}
	w := &watched{}
	var db *DB
	seen := make(chan int, 10)
	w.look = func(of context.Context, e ops.Event) {
		if e.Kind == "get" && of.Value(key{}) == "agent" {
			require.NoError(t, of.Err())
			must(db.Stats(ctx))(t)
			put(t, db.Scope("acme/seen"), Artefact{ID: "seen", Text: fmt.Sprint(e.Pages)})
			seen <- e.Pages
		}
	}
	db = open(t, Options{Observer: w, NoWatch: true})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "a", Text: "x"})
	for range 10 {
		of, cancel := context.WithCancel(context.WithValue(ctx, key{}, "agent"))
		must(s.Get(of, "a"))(t)
		cancel()
		get(t, s, "a") // nobody's
	}
	for range cap(seen) {
		require.Equal(t, 1, <-seen)
	}
	checkAndClose(t, db)
}

// An observer that does not return keeps nobody waiting; what it missed is counted.
func TestSlowObserver(t *testing.T) {
	w := &watched{block: make(chan struct{})}
	db := open(t, Options{Observer: w, NoWatch: true})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "a", Text: "x"})
	for range 10_000 {
		get(t, s, "a")
	}
	close(w.block)
	checkAndClose(t, db)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Less(t, len(w.events), 10_000)
	require.GreaterOrEqual(t, len(w.events), 1024)
}
