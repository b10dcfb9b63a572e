package ctxpage_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/budget"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/store"
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
			return Artefact{ID: "a", Parts: several(n, func(int) Part { return Part{Type: "text", Text: "t"} })}
		}, "parts"},
		"tool_calls": {store.MaxToolCalls, func(n int) Artefact {
			return Artefact{ID: "a", Text: "t", ToolCalls: several(n, func(i int) ToolCall { return ToolCall{ID: fmt.Sprint(i), Name: "f"} })}
		}, "tool_calls"},
		"tool bytes": {store.MaxToolBytes, func(n int) Artefact {
			return Artefact{ID: "a", Text: "t", ToolCalls: []ToolCall{{ID: "i", Name: "f", Arguments: x(n - 2)}}}
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
			require.ErrorIs(t, err, ErrInvalid)
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
		"part not UTF-8":        {ID: "a", Parts: []Part{{Type: "text", Text: "\xff"}}},
		"part url not UTF-8":    {ID: "a", Parts: []Part{{Type: "image", URL: "\xff"}}},
		"call not UTF-8":        {ID: "a", ToolCalls: []ToolCall{{ID: "i", Name: "f", Arguments: "\xff"}}},
		"call name not UTF-8":   {ID: "a", ToolCalls: []ToolCall{{ID: "i", Name: "\xff"}}},
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
		"text and parts":        {ID: "a", Text: "t", Parts: []Part{{Type: "text"}}},
		"supersedes itself":     {ID: "a", Text: "t", Supersedes: []string{"a"}},
		"supersedes nothing":    {ID: "a", Text: "t", Supersedes: []string{""}},
		"unknown scheme":        {ID: "a", Text: "t", Source: "ftp:x"},
		"no scheme":             {ID: "a", Text: "t", Source: "x"},
		"group with a control":  {ID: "a", Text: "t", Group: "\x00a"},
		"tag with a line break": {ID: "a", Text: "t", Tags: []string{"a\nb"}},
	} {
		_, err := s.Put(ctx, a)
		require.ErrorIs(t, err, ErrInvalid, name)
		_, err = db.Admin().PutVerified(ctx, "acme", "anna", a)
		require.ErrorIs(t, err, ErrInvalid, name)
		tx := begin(t, s)
		require.ErrorIs(t, tx.Put(ctx, a), ErrInvalid, name)
	}
	_, err := s.Get(ctx, "a")
	require.ErrorIs(t, err, ErrNotFound, "nothing of it was kept")
	for _, r := range []float64{0, 1, math.Copysign(0, -1)} {
		put(t, s, Artefact{ID: "a", Text: "t", Relevance: f(r)})
	}
	_, err = s.Put(ctx, Artefact{ID: "a", Text: ""})
	require.ErrorIs(t, err, ErrInvalid, "a text without words is never found")
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
		"kind":            {Budget: 100, Kinds: []Kind{KindFact, 99}},
		"kind auto":       {Budget: 100, Kinds: []Kind{KindAuto}},
		"preset":          {Budget: 100, Preset: "stop"},
		"overflow":        {Budget: 100, Overflow: 9},
		"charge":          {Budget: 100, Charge: 9},
		"trace":           {Budget: 100, Trace: "mine"},
	} {
		_, err := s.Assemble(ctx, q)
		require.ErrorIs(t, err, ErrInvalid, name)
	}
	for name, q := range map[string]Query{
		"largest":     {Budget: math.MaxInt, Reserve: math.MaxInt - 4000, TopK: MaxTopK, Text: strings.Repeat("x", 64<<10), Floor: HumanVerified, Overflow: budget.Ladder},
		"huge budget": {Budget: math.MaxInt, Text: "words"},
		"long text":   {Budget: 4000, Text: strings.Repeat("x", 64<<10+1)},
		"all kinds":   {Budget: 1000, Kinds: []Kind{KindSystem, KindFact, KindChunk, KindMessage, KindTool, KindScratch, KindSummary}},
	} {
		_, err := s.Assemble(ctx, q)
		require.NoError(t, err, name)
	}
	for _, limit := range []int{-1, MaxTopK + 1} {
		_, err := s.Search(ctx, "words", limit)
		require.ErrorIs(t, err, ErrInvalid)
	}
	_, err := s.Search(ctx, strings.Repeat("x", 64<<10+1), 1)
	require.NoError(t, err)
	hits, err := hitsOf(s.Search(ctx, "words", MaxTopK))
	require.NoError(t, err)
	require.Len(t, hits, 1)
	for _, text := range []string{"", "   ", "!?", "the of and", "\x00", "\xff\xfe", strings.Repeat("words ", 5000)} {
		_, err := s.Search(ctx, text, 1)
		require.NoError(t, err, "%q", text)
		_, err = s.Assemble(ctx, Query{Text: text, Budget: 1000})
		require.NoError(t, err, "%q", text)
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
		_, err := Open(filepath.Join(dir, "x"), o)
		require.ErrorIs(t, err, ErrInvalid, name)
	}
	_, err := Open(filepath.Join(dir, "x"), Options{Gate: 2, PageTokens: 1, LockTimeout: -1})
	require.Equal(t, 3, strings.Count(err.Error(), "expected"), "all faults of a configuration at once: %v", err)
	_, err = Open(filepath.Join(dir, "x"), Options{MustExist: true})
	require.ErrorIs(t, err, ErrNotExist)
	_, err = Open(filepath.Join(dir, "x"), Options{ReadOnly: true})
	require.ErrorIs(t, err, ErrNotExist)
	_, err = Open(filepath.Join(dir, "none", "x"), Options{})
	require.Error(t, err)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Empty(t, left, "a refused open leaves nothing behind")
	for _, o := range []Options{{Gate: 1}, {Gate: GateOff}, {PageTokens: 16}, {PageTokens: store.MaxPageTokens}, {WorkingSet: math.MaxInt64}} {
		db, err := Open(filepath.Join(dir, "x"), o)
		require.NoError(t, err)
		require.NoError(t, db.Close())
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
			"list":       func() error { _, err := listing.Collect(s.Artefacts(ctx, "")); return err },
			"history":    func() error { _, err := listing.Collect(s.Versions(ctx, "a")); return err },
			"search":     func() error { _, err := s.Search(ctx, "words", 1); return err },
			"assemble":   func() error { _, err := s.Assemble(ctx, Query{Text: "words", Budget: 100}); return err },
			"delete":     func() error { return s.Delete(ctx, "a") },
			"replay":     func() error { _, err := db.Replay(ctx, trace); return err },
			"review":     func() error { _, err := listing.Collect(db.Review().Batches(ctx, "", true)); return err },
			"checkpoint": func() error { _, err := db.Admin().Checkpoint(ctx); return err },
			"check":      func() error { _, err := db.Admin().Check(ctx, nil); return err },
			"backup":     func() error { _, err := db.Admin().Backup(ctx, filepath.Join(t.TempDir(), "b"), nil); return err },
			"stats":      func() error { _, err := db.Stats(ctx); return err },
			"head":       func() error { _, err := db.Head(ctx); return err },
		} {
			err := call()
			require.Error(t, err, what)
			require.True(t, errors.Is(err, ErrClosed) || ro && errors.Is(err, ErrReadOnly), "%s: %v", what, err)
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
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: strings.Repeat("x", size)}))
	grown("read in its own transaction", 20, func() {
		v, err := tx.Get(ctx, "a")
		require.NoError(t, err)
		require.Len(t, v.Text, size)
		require.Greater(t, len(v.Pages), 700)
	})
	err = tx.Commit(ctx, Verdict{Confidence: .1, By: "checker"})
	require.ErrorIs(t, err, ErrHeld)
	var held *HeldError
	require.ErrorAs(t, err, &held)
	grown("shown as held", 100, func() {
		h, err := db.Review().Show(ctx, held.Batch)
		require.NoError(t, err)
		require.Len(t, h.Writes[0].Text, size)
	})
	_, err = db.Review().Approve(ctx, held.Batch, Approval{By: "ann"})
	require.NoError(t, err)
	grown("checked", 100, func() {
		problems, err := db.Admin().Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems)
	})
}
