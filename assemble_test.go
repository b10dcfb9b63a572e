package ctxpage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/ctxpage/ctxpage/token/bpe"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Counters of hosts: the estimator, bytes, one that counts a whole above the sum of its parts, one that counts in lumps.
type growing struct{}

func (growing) Name() string       { return "growing" }
func (growing) Count(s string) int { return len(s)/4 + len(s)*len(s)/40_000 }

type lumps struct{}

func (lumps) Name() string { return "lumps" }
func (lumps) Count(s string) int {
	return (len(s) + 99) / 100 * 30
}

// Whatever is stored and asked for, a context takes no more than its budget, and says what it left out: every page of
// every candidate is in the context or on the list, once, with a reason.
func TestBudgetIsNeverExceeded(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(dbtest.MemoryPath(t))
	rapid.Check(t, func(rt *rapid.T) {
		sub, err := os.MkdirTemp(dir, "")
		require.NoError(rt, err)
		defer os.RemoveAll(sub)
		var by Summarizer
		if rapid.Bool().Draw(rt, "summarizer") {
			by = &head{words: rapid.IntRange(0, 200).Draw(rt, "summary")}
		}
		count := rapid.SampledFrom([]token.Counter{token.Default(), token.Estimate(token.CL100k), bpe.O200k(), bytesCounter{}, byRune{}, superadditive{}, growing{}, lumps{}}).Draw(rt, "counter")
		db := must(Open(sub+"/agent.ctx", Options{Counter: count, PageTokens: rapid.SampledFrom([]int{16, 64, 512}).Draw(rt, "page"), Summarizer: by}))(rt)
		defer func() { checkAndClose(rt, db) }()
		s := db.Scope("acme")
		for i := range rapid.IntRange(0, 14).Draw(rt, "artefacts") {
			a := Artefact{
				ID: fmt.Sprint("a", i), Kind: rapid.SampledFrom([]store.Kind{store.KindSystem, store.KindFact, store.KindChunk, store.KindChunk, store.KindTool, store.KindSummary, store.KindMessage}).Draw(rt, "kind"),
				Text: words(rapid.IntRange(0, 99).Draw(rt, "seed"), rapid.IntRange(1, 120).Draw(rt, "words")), Pinned: rapid.IntRange(0, 7).Draw(rt, "pin") == 0,
			}
			if rapid.IntRange(0, 3).Draw(rt, "strange") == 0 {
				a.Text = strings.ReplaceAll(a.Text, " ", rapid.SampledFrom([]string{"\u202e", "<", "🐌", "\n", " </page ", ": ", "/", "'s "}).Draw(rt, "with"))
			}
			if a.Kind == store.KindMessage {
				a.Role, a.Group, a.Seq = rapid.SampledFrom([]string{"user", "assistant", "tool"}).Draw(rt, "role"), "chat", int64(i)
				if a.Role == "assistant" && rapid.Bool().Draw(rt, "calls") {
					a.ToolCalls = []store.ToolCall{{ID: fmt.Sprint("c", i), Name: "look", Arguments: words(i, 10)}}
				}
				if a.Role == "tool" {
					a.ToolCallID = fmt.Sprint("c", i-1)
				}
			}
			if rapid.IntRange(0, 5).Draw(rt, "verified") == 0 && a.Kind == store.KindFact {
				_, err = db.Admin().PutVerified(ctx, "acme", "anna", a)
			} else {
				_, err = s.Put(ctx, a)
			}
			require.NoError(rt, err)
		}
		var q Query
		for i := range 3 {
			if i != 1 { // the second finds the summaries of the first
				q = Query{
					Text: words(rapid.IntRange(0, 99).Draw(rt, "question"), 4), Budget: rapid.IntRange(1, 3000).Draw(rt, "budget"),
					Ladder: rapid.Bool().Draw(rt, "ladder"), TopK: rapid.IntRange(0, 9).Draw(rt, "k"),
					Session: rapid.SampledFrom([]string{"", "chat"}).Draw(rt, "session"), Preset: rapid.SampledFrom([]string{"", "START"}).Draw(rt, "preset"),
				}
				q.LongForm = rapid.Bool().Draw(rt, "long")
				q.Reserve = rapid.IntRange(0, q.Budget-1).Draw(rt, "reserve")
			}
			a, err := s.Assemble(ctx, q)
			if q.Session != "" && errors.Is(err, store.ErrNotFound) { // none was begun
				q.Session = ""
				a, err = s.Assemble(ctx, q)
			}
			exact := q
			if err != nil {
				require.ErrorIs(rt, err, store.ErrBudget)
				var short *triage.BudgetError
				require.ErrorAs(rt, err, &short)
				exact.Budget += short.Shortfall
				require.NoError(rt, errOf(s.Assemble(ctx, exact)), "the shortfall is what was missing: %v", err)
				continue
			}
			exact.Budget = q.Reserve + a.Tokens
			require.NoError(rt, errOf(s.Assemble(ctx, exact)), "a context fits into a budget of its size")
			require.LessOrEqual(rt, count.Count(a.Text()), q.Budget-q.Reserve)
			require.Equal(rt, count.Count(a.Text()), a.Tokens)
			fate := map[Ref]bool{}
			for _, b := range a.Blocks {
				require.False(rt, fate[b.Ref], "%v twice", b.Ref)
				fate[b.Ref] = true
			}
			for _, l := range a.Left {
				require.NotEmpty(rt, l.Reason)
				require.False(rt, fate[l.Ref], "%v is in and out, or out twice", l.Ref)
				fate[l.Ref] = true
			}
			sum := 0
			for _, b := range a.Blocks {
				sum += b.Tokens
			}
			require.True(rt, sum == a.Tokens || len(a.Blocks) == 0, "the shares of the blocks add up to %d of %d", sum, a.Tokens)
			sameInText(rt, a, q.LongForm)
			require.Equal(rt, len(a.Blocks), len(a.Manifest.Pages))
			require.Equal(rt, a.Text(), must(db.Replay(ctx, a.Trace))(rt).Text)
		}
	})
}

// sameInText checks that the text of a context tells of the same pages as its blocks, in the same order and by their numbers.
func sameInText(t require.TestingT, a *Assembly, long bool) {
	rest := a.Text()
	mark, _, _ := strings.Cut(rest, " ")
	if long {
		require.Equal(t, len(a.Blocks), strings.Count(rest, "\n<page "))
	} else {
		require.Len(t, regexp.MustCompile("\n"+mark+`\d`).FindAllString(rest, -1), len(a.Blocks))
	}
	for i, b := range a.Blocks {
		opens, closes := fmt.Sprint("\n", mark, i+1), "\n"+mark
		if long {
			opens, closes = ` ref="`+b.Ref.String()+`"`, "\n</page "
		}
		_, page, ok := strings.Cut(rest, opens)
		require.True(t, ok, "text and blocks tell the same, in the same order")
		page, after, _ := strings.Cut(page, closes)
		require.True(t, strings.HasSuffix(strings.TrimRight(page, "\n"), render.Escape(strings.TrimRight(b.Text, "\n"))), "%q: %q", page, b.Text)
		require.Equal(t, b.Ref, a.Refs[i])
		rest = closes + after
	}
}

// What stands around a page takes few tokens: at most 30 around a lone one, 6 around a turn of a conversation, and 15 around a
// page of a document. The control is the long form.
func TestPackagingIsSmall(t *testing.T) {
	c := bpe.O200k()
	db := open(t, Options{Counter: c})
	day := time.Date(2026, 5, 8, 13, 56, 0, 0, time.UTC)
	around := func(scope string, long bool) (tokens float64, a *Assembly) {
		a = must(db.Scope(scope).Assemble(ctx, Query{Text: "parcel rule", Budget: 2048, LongForm: long}))(t)
		n := a.Tokens
		for _, b := range a.Blocks {
			n -= c.Count(b.Text)
		}
		return float64(n) / float64(len(a.Blocks)), a
	}
	put(t, db.Scope("lone"), Artefact{ID: "refunds", Text: "The parcel rule is of May.", CurrentAsOf: day})
	for i := range 120 {
		put(t, db.Scope("talk"), Artefact{
			ID: fmt.Sprint("turn-", i), Kind: store.KindMessage, Role: "user", Name: []string{"Ana", "Caroline"}[i%2], Group: fmt.Sprint("day ", i/8), Seq: int64(i),
			CurrentAsOf: day.AddDate(0, 0, i/8), Text: []string{"Ana", "Caroline"}[i%2] + ": The parcel rule " + fmt.Sprint(i) + " is what I asked for, " + words(i, 16) + ".",
		})
	}
	for i := range 6 {
		put(t, db.Scope("docs"), Artefact{ID: fmt.Sprintf("policy/rule-%d.md", i), Kind: store.KindChunk, CurrentAsOf: day, Text: doc(i, 700), Group: "docs"})
	}
	for scope, most := range map[string]float64{"lone": 30, "talk": 6, "docs": 15} {
		got, a := around(scope, false)
		t.Logf("%s: %.1f tokens around each of %d pages", scope, got, len(a.Blocks))
		require.LessOrEqual(t, got, most, a.Text())
		long, _ := around(scope, true)
		require.Greater(t, long, 2*most, "control")
		require.Len(t, a.Refs, len(a.Blocks))
		require.Equal(t, "dense", a.Manifest.Shape)
		replays(t, db, a)
	}
}

func TestPinsAndSystemFirst(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "system", Kind: store.KindSystem, Text: "You sell zebras."})
	put(t, s, Artefact{ID: "pin", Pinned: true, Text: "about something else entirely"})
	for i := range 20 {
		put(t, s, Artefact{ID: fmt.Sprint("doc-", i), Kind: store.KindChunk, Text: "zebra zebra " + words(i, 60)})
	}
	must(db.Admin().PutVerified(ctx, "acme", "anna", Artefact{ID: "core", Text: "what a person said of lions"}))(t)
	for _, q := range []Query{{Text: "zebra", Budget: 600}, {Text: "zebra", Budget: 600, TopK: 1}, {Text: "zebra", Budget: 600, Preset: "START"}} {
		a := assemble(t, s, q)
		require.Equal(t, "system", ids(a)[0])
		require.Contains(t, ids(a), "pin")
		if q.TopK == 0 {
			require.Contains(t, ids(a), "core")
		}
		require.Less(t, slices.Index(ids(a), "pin"), 3, "in the stable prefix")
		for _, l := range a.Left {
			require.NotContains(t, []string{"system", "pin"}, l.Ref.ID)
		}
	}
	a := assemble(t, s, Query{Text: "zebra", Budget: 330})
	b := assemble(t, s, Query{Text: "lions", Budget: 330})
	require.Equal(t, ids(a)[:3], ids(b)[:3], "the prefix does not depend on the question")
}

// When the system part alone is too large, the error says by how much, and that much more is enough.
func TestShortfall(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "system", Kind: store.KindSystem, Text: words(1, 200)})
	put(t, s, Artefact{ID: "doc", Text: words(2, 20)})
	for _, reserve := range []int{0, 40} {
		_, err := s.Assemble(ctx, Query{Text: "x", Budget: 150, Reserve: reserve})
		require.ErrorIs(t, err, store.ErrBudget)
		var short *triage.BudgetError
		require.True(t, errors.As(err, &short))
		require.Positive(t, short.Shortfall)
		a := assemble(t, s, Query{Text: "x", Budget: 150 + short.Shortfall, Reserve: reserve})
		require.Equal(t, []string{"system"}, ids(a))
		require.NotEmpty(t, left(a, "doc"))
	}
	require.ErrorIs(t, errOf(open(t, Options{}).Scope("empty").Assemble(ctx, Query{Text: "x", Budget: 1})), store.ErrBudget, "not even the frame of a context")
	a := assemble(t, db.Scope("nobody"), Query{Text: "x"})
	require.Empty(t, a.Blocks)
}

// Why answers for everything: what is in, what was left out by the budget, what was excluded, what was no candidate,
// what is in another scope, and what does not exist.
func TestWhy(t *testing.T) {
	clk := newClock()
	opts := Options{Clock: clk.now}
	db := open(t, opts)
	s := db.Scope("acme/a")
	old := clk.now().Add(-90 * 24 * time.Hour)
	put(t, s, Artefact{ID: "best", Kind: store.KindChunk, Text: "zebra crossing rules"})
	put(t, s, Artefact{ID: "large", Text: "zebra " + words(1, 400), CurrentAsOf: old})
	put(t, s, Artefact{ID: "expired", Text: "zebra once", TTL: time.Minute})
	put(t, s, Artefact{ID: "note", Kind: store.KindScratch, Text: "zebra note"})
	put(t, s, Artefact{ID: "tool", Kind: store.KindTool, Text: "zebra tool"})
	put(t, s, Artefact{ID: "before", Text: "zebra before"})
	put(t, s, Artefact{ID: "after", Text: "unrelated lion", Supersedes: []string{"before"}})
	for i := range 30 {
		put(t, s, Artefact{ID: fmt.Sprint("far-", i), Kind: store.KindChunk, Text: words(i, 20), CurrentAsOf: old.Add(time.Duration(-i) * time.Hour)})
	}
	put(t, db.Scope("acme/b"), Artefact{ID: "secret", Text: "zebra secret"})
	clk.add(time.Hour)
	a := assemble(t, s, Query{Text: "zebra crossing", Budget: 320, Kinds: []store.Kind{store.KindFact, store.KindChunk, store.KindScratch}})
	put(t, s, Artefact{ID: "best", Kind: store.KindChunk, Text: "zebra crossing rules, newer"})
	put(t, s, Artefact{ID: "later", Text: "zebra crossing, written later"})
	put(t, s, Artefact{ID: "deleted", Text: "x"})
	require.NoError(t, s.Delete(ctx, "tool"))
	db = reopen(t, db, opts)
	for id, want := range map[string]struct {
		in   bool
		says string
	}{
		"best": {true, "fit: in"}, "after": {true, "answers for page"}, "large": {false, "fit: left out"}, "expired": {false, "expired"},
		"note": {false, "below the provenance floor"}, "tool": {false, "kind not asked for"}, "before": {false, "superseded"},
		"far-29": {false, "never a candidate"}, "later": {false, "lsn"}, "secret": {false, "no such artefact in sight"}, "none": {false, "no such artefact in sight"},
	} {
		w, err := db.Why(ctx, a.Trace, Ref{ID: id})
		require.NoError(t, err, id)
		require.Equal(t, want.in, w.In, "%s: %v", id, w.Steps)
		require.Contains(t, strings.Join(w.Steps, "\n"), want.says, id)
		if id == "secret" {
			other := must(db.Why(ctx, a.Trace, Ref{Scope: "acme/b", ID: id}))(t)
			require.Equal(t, w.Steps, other.Steps, "a full reference tells no more")
		}
	}
	w := must(db.Why(ctx, a.Trace, Ref{ID: "best", Page: 1, Version: 1}))(t)
	require.True(t, w.In)
	w = must(db.Why(ctx, a.Trace, Ref{ID: "best", Page: 1, Version: 2}))(t)
	require.False(t, w.In, "that version came later")
	require.ErrorIs(t, errOf(db.Why(ctx, "01ARZ3NDEKTSV4RRFFQ69G5FAV", Ref{ID: "best"})), store.ErrNotFound)
}

// A past context comes back byte for byte: after a checkpoint, a reopen, newer versions, a deletion, an expiry, with
// another working set, another counter, and without its sources.
func TestReplay(t *testing.T) {
	clk := newClock()
	dir := t.TempDir()
	file := filepath.Join(dir, "doc.md")
	writeFile(t, file, "zebra "+words(4, 80)+"\n\n"+words(5, 80)+" zebra.")
	opts := Options{Clock: clk.now, FileRoots: []string{dir}, PageTokens: 64}
	db := open(t, opts)
	s := db.Scope("acme/a")
	put(t, db.Scope("acme"), Artefact{ID: "system", Kind: store.KindSystem, Text: "zebra\u202e <page 1> rules"})
	put(t, s, Artefact{ID: "doc", Source: "file:" + file})
	put(t, s, Artefact{ID: "long", Kind: store.KindChunk, Text: strings.Repeat("A sentence of some length. Another about a zebra here! And a third one? ", 3)})
	put(t, s, Artefact{ID: "brief", Text: "zebra soon gone", TTL: time.Hour})
	for i := range 4 {
		put(t, s, Artefact{ID: fmt.Sprint("turn-", i), Role: []string{"user", "assistant"}[i%2], Group: "chat", Seq: int64(i), Text: words(i, 12)})
	}
	var past []*Assembly
	for _, q := range []Query{
		{Text: "zebra", Budget: 2000}, {Text: "zebra", Budget: 420, Session: "chat"}, {Text: "zebra", Budget: 420, Ladder: true},
		{Text: "zebra", Budget: 330}, {Text: "nothing", Budget: 260, Preset: "START"},
	} {
		past = append(past, assemble(t, s, q))
	}
	tiers := map[triage.Tier]bool{}
	for _, a := range past {
		tiers[a.Tier] = true
	}
	require.GreaterOrEqual(t, len(tiers), 2, "several forms are replayed")
	same := func(db *DB) {
		t.Helper()
		for _, a := range past {
			r := must(db.Replay(ctx, a.Trace))(t)
			require.True(t, r.Same)
			require.Equal(t, a.Text(), r.Text)
		}
	}
	same(db)
	must(db.Admin().Checkpoint(ctx))(t)
	same(db)
	put(t, s, Artefact{ID: "long", Text: "zebra short now", Meta: map[string]string{"k": "v"}})
	require.NoError(t, s.Delete(ctx, "turn-1"))
	require.NoError(t, os.Remove(file))
	clk.add(48 * time.Hour)
	same(db)
	for _, o := range []Options{
		{Clock: clk.now, WorkingSet: -1}, {Clock: clk.now, Counter: lumps{}, PageTokens: 512}, {ReadOnly: true},
	} {
		db = reopen(t, db, o)
		same(db)
	}
	require.ErrorIs(t, errOf(db.Replay(ctx, "01ARZ3NDEKTSV4RRFFQ69G5FAV")), store.ErrNotFound)

	d := must(db.Diff(ctx, past[0].Trace, past[0].Trace))(t)
	require.Zero(t, d)
	d = must(db.Diff(ctx, past[0].Trace, past[3].Trace))(t)
	require.NotEmpty(t, d.Out)
	require.True(t, slices.ContainsFunc(d.Fields, func(f manifest.FieldChange) bool { return f.Name == "budget" }), "%+v", d.Fields)
}

// An assembly of the past sees what was there then.
func TestAsOf(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	lsn := func() uint64 {
		return must(db.Stats(ctx))(t).LSN
	}
	put(t, s, Artefact{ID: "a", Text: "zebra one"})
	put(t, s, Artefact{ID: "gone", Text: "zebra gone"})
	then := lsn()
	put(t, s, Artefact{ID: "a", Text: "zebra two"})
	put(t, s, Artefact{ID: "b", Text: "zebra three"})
	require.NoError(t, s.Delete(ctx, "gone"))
	for range 2 {
		a := assemble(t, s, Query{Text: "zebra", AsOf: then})
		require.ElementsMatch(t, []string{"a", "gone"}, ids(a))
		require.Contains(t, a.Text(), "zebra one")
		require.Equal(t, then, a.LSN)
		require.Equal(t, a.Text(), must(db.Replay(ctx, a.Trace))(t).Text)
		require.ElementsMatch(t, []string{"a", "b"}, ids(assemble(t, s, Query{Text: "zebra"})))
		must(db.Admin().Checkpoint(ctx))(t)
	}
}

// A page of the past is found although its artefact has left its group since.
// What will stand at a later LSN is not known: a context made of what stands now would not come out again.
func TestAsOfTheFuture(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "a", Text: "zebra"})
	lsn := assemble(t, s, Query{Text: "zebra"}).LSN
	require.Len(t, assemble(t, s, Query{Text: "zebra", AsOf: lsn}).Blocks, 1, "the newest is no future")
	leaves := dbtest.SizeOf(db.Manifests())
	for _, asOf := range []uint64{lsn + 1, math.MaxUint64} {
		_, err := s.Assemble(ctx, Query{Text: "zebra", Budget: 1000, AsOf: asOf})
		var e *store.InvalidError
		require.ErrorAs(t, err, &e)
		require.Equal(t, "as_of", e.Field)
		require.Contains(t, e.Expected, "nothing has been committed at this one yet")
	}
	require.Equal(t, leaves, dbtest.SizeOf(db.Manifests()), "nothing was served")
	put(t, s, Artefact{ID: "b", Text: "zebra too"})
	require.Len(t, assemble(t, s, Query{Text: "zebra", AsOf: lsn + 1}).Blocks, 2, "it is there by now")

	empty := open(t, Options{})
	require.ErrorIs(t, errOf(empty.Scope("acme").Assemble(ctx, Query{Text: "zebra", Budget: 1000, AsOf: 1})), store.ErrInvalid)
}

func TestAsOfGroupLeft(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	for i := range 3 {
		put(t, s, Artefact{ID: fmt.Sprint("turn-", i), Group: "chat", Seq: int64(i), Text: fmt.Sprint("zebra ", i)})
	}
	then := assemble(t, s, Query{Text: "zebra"})
	put(t, s, Artefact{ID: "turn-1", Text: "zebra alone"})
	past := assemble(t, s, Query{Text: "zebra", AsOf: then.LSN})
	require.ElementsMatch(t, []string{"turn-0", "turn-1", "turn-2"}, ids(past))
	require.Contains(t, past.Text(), "zebra 1")
	now := assemble(t, s, Query{Text: "zebra"})
	require.Contains(t, now.Text(), "zebra alone")
}

// The floor keeps out what is not trusted enough, but for a session's own turns and a transaction's own drafts.
func TestFloor(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "system", Kind: store.KindSystem, Text: "zebra rules"})
	for p, id := range map[store.Provenance]string{store.Chunk: "chunk", store.Validated: "validated", store.Tool: "tool", store.Scratch: "scratch"} {
		put(t, s, Artefact{ID: id, Provenance: p, Text: "zebra " + id})
	}
	put(t, s, Artefact{ID: "pinned", Provenance: store.Scratch, Pinned: true, Text: "zebra pinned"})
	put(t, s, Artefact{ID: "turn", Role: "assistant", Group: "chat", Text: "zebra turn"})
	put(t, s, Artefact{ID: "other", Role: "assistant", Group: "other chat", Text: "zebra other"})
	all := []string{"system", "chunk", "validated", "tool", "scratch", "pinned", "turn", "other"}
	for _, c := range []struct {
		q    Query
		want []string
	}{
		{Query{}, all[:4]},
		{Query{Floor: store.Scratch}, all[:6]},
		{Query{Floor: store.Scratch, Session: "chat"}, all[:7]},
		{Query{Floor: store.Validated}, all[:3]},
		{Query{Floor: store.Chunk}, all[:2]},
		{Query{Floor: store.HumanVerified}, all[:1]},
		{Query{Session: "chat"}, append(slices.Clone(all[:4]), "turn")},
		{Query{Floor: store.Scratch, Preset: "START"}, all[:6]},
		{Query{Session: "chat", Preset: "START"}, append(slices.Clone(all[:4]), "turn")},
	} {
		c.q.Text = "zebra"
		a := assemble(t, s, c.q)
		require.ElementsMatch(t, c.want, ids(a), "%+v", c.q)
		out := 0
		for _, e := range a.Manifest.Excluded {
			require.Contains(t, []string{"below the provenance floor", "turn of another session"}, e.Reason)
			require.GreaterOrEqual(t, e.Count, len(e.Nearest))
			out += e.Count
		}
		require.Equal(t, len(all)-len(c.want), out, "%+v", c.q)
	}
	tx := begin(t, s)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Kind: store.KindScratch, Text: "zebra draft"}))
	a := must(tx.Assemble(ctx, Query{Text: "zebra", Budget: 4000}))(t)
	require.ElementsMatch(t, append(slices.Clone(all[:4]), "draft"), ids(a))
}

// What one assembly gave stays as it is while others are made, by turns and at once, in the memory that it used.
func TestAssembliesStandAlone(t *testing.T) {
	db := open(t, Options{})
	for _, name := range []string{"acme", "umbrella"} {
		s := db.Scope(name)
		for i := range 80 {
			put(t, s, Artefact{ID: fmt.Sprint(name, i), Text: fmt.Sprintf("%s keeps zebra %d at gate %d", name, i, i%7), Meta: map[string]string{"of": name}})
		}
	}
	type given struct {
		a        *Assembly
		hits     []Hit
		fields   []byte
		text     string
		messages []render.Message
	}
	take := func(name string, i int) given {
		a := assemble(t, db.Scope(name), Query{Text: fmt.Sprint("zebra gate ", i), Budget: 1000 + 100*(i%9), TopK: 20})
		hits := must(hitsOf(db.Scope(name).Search(ctx, fmt.Sprint("zebra ", i), 5)))(t)
		return given{a, hits, must(json.Marshal(a))(t), strings.Clone(a.Text()), a.Messages()}
	}
	check := func(name string, g given) {
		b := must(json.Marshal(g.a))(t)
		require.Equal(t, string(g.fields), string(b))
		require.Equal(t, g.text, g.a.Text())
		require.Equal(t, g.messages, g.a.Messages())
		require.NotEmpty(t, g.a.Left)
		other := map[string]string{"acme": "umbrella", "umbrella": "acme"}[name]
		require.NotContains(t, string(b)+g.text, other)
		for _, h := range g.hits {
			require.Equal(t, name, h.Ref.Scope)
			require.Contains(t, h.Text, name)
		}
	}
	var wg sync.WaitGroup
	for _, name := range []string{"acme", "umbrella", "acme", "umbrella"} {
		wg.Go(func() {
			var all []given
			for i := range 30 {
				all = append(all, take(name, i))
			}
			for _, g := range all {
				check(name, g)
			}
		})
	}
	wg.Wait()
}

// lying is a store that shows another text in the place of a page's.
type lying struct {
	store.Store
	num  uint64
	text string
}

func (l *lying) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	loaded, err := l.Store.Load(ctx, scopes, keys, want)
	for i := range loaded {
		if loaded[i].Key.Num == l.num {
			loaded[i].Text = l.text
		}
	}
	return loaded, err
}

// A page whose text is another than the one that was served is found by the digest of what was rendered, whatever the store
// says of it.
func TestReplayFindsTampering(t *testing.T) {
	st := must(filestore.Open(filestore.Options{Path: dbtest.MemoryPath(t), State: StateKinds()}))(t)
	l := &lying{Store: st}
	db := must(Open("lying", Options{Store: l, WorkingSet: -1}))(t)
	defer db.Close()
	put(t, db.Scope("acme"), Artefact{ID: "a", Text: "zebra costs ten"})
	a := assemble(t, db.Scope("acme"), Query{Text: "zebra"})
	r := must(db.Replay(ctx, a.Trace))(t)
	require.True(t, r.Same, "the control")
	l.num, l.text = a.Blocks[0].Num, "zebra costs six"
	r, err := db.Replay(ctx, a.Trace)
	require.ErrorIs(t, err, ErrReplay)
	require.False(t, r.Same)
	require.Contains(t, r.Text, "six")
}

func TestAssemblyForASessionThatIsNotThere(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 400"})
	must(s.Session("chat").Append(ctx, Turn{Role: "user", Text: "what of refunds?"}))(t)
	for _, q := range []Query{{Session: "chta"}, {Session: "chat "}, {Session: "chta", AsOf: 1}} {
		q.Text, q.Budget = "refunds", 1000
		_, err := s.Assemble(ctx, q)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorContains(t, err, "append")
		tx := begin(t, s)
		require.ErrorIs(t, errOf(tx.Assemble(ctx, q)), store.ErrNotFound)
		require.NoError(t, tx.Rollback())
	}
	require.ErrorIs(t, errOf(db.Scope("acme/agent").Assemble(ctx, Query{Text: "refunds", Budget: 1000, Session: "chat"})), store.ErrNotFound, "a session is of one scope")
	require.NoError(t, s.Session("fresh").SetWindow(ctx, session.Config{Total: 128_000}))
	for _, id := range []string{"chat", "fresh"} {
		require.Contains(t, ids(assemble(t, s, Query{Text: "refunds", Session: id})), "policy")
	}
}

// askedCounter counts how often it is asked.
type askedCounter struct {
	token.Counter
	n atomic.Int64
}

func (c *askedCounter) Count(text string) int {
	c.n.Add(1)
	return c.Counter.Count(text)
}

// What a page takes in a context is counted once for each form it is shown in, also in a session, and is the same when it
// is not counted again.
func TestCostsAreKept(t *testing.T) {
	c := &askedCounter{Counter: token.Default()}
	db := open(t, Options{Counter: c})
	s := db.Scope("acme")
	for i := range 30 {
		putPages(t, s, Artefact{ID: fmt.Sprint("page-", i), Text: fmt.Sprintf("Zebras number %d cross the road", i)})
	}
	chat := s.Session("chat")
	for i := range 20 {
		must(chat.Append(t.Context(), Turn{Role: []string{"user", "assistant"}[i%2], Text: fmt.Sprintf("zebra %d?", i)}))(t)
	}
	for _, session := range []string{"", "chat"} {
		assemble := func() (text string, asked int64) {
			before := c.n.Load()
			a := must(s.Assemble(t.Context(), Query{Text: "zebras", Budget: 6000, Session: session}))(t)
			return a.Text(), c.n.Load() - before
		}
		text, first := assemble()
		again, second := assemble()
		require.Equal(t, text, again)
		require.Greater(t, first, int64(10), "session %q: the control", session)
		require.Less(t, second, int64(10), "session %q", session)
	}
}

// TestMatch: a context says how much of the question its pages have, in the answer and in the manifest. If it is next to
// nothing, pages that are only recent stay out unless they are asked for; protected and verified ones stay.
func TestMatch(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	for _, a := range []Artefact{
		{ID: "refund", Text: "The refund limit is 500 dollars since March."},
		{ID: "cat", Text: "The office cat sleeps in the printer room and was bought in Leeds."},
		{ID: "rule", Text: "Answer in French.", Kind: store.KindSystem},
	} {
		put(t, s, a)
	}
	must(db.Admin().PutVerified(ctx, "acme", "anna", Artefact{ID: "vouched", Text: "Ann leads the support team."}))(t)
	for _, c := range []struct {
		q       Query
		match   manifest.Match
		covered float64
		in, out string
	}{
		{Query{Text: "What is the refund limit?"}, manifest.MatchGood, 1, "refund", ""},
		{Query{Text: "Who buys cats?"}, manifest.MatchGood, 1, "cat", ""}, // by an irregular form
		{Query{Text: "refund deadline of parcels abroad"}, manifest.MatchWeak, .25, "refund", ""},
		{Query{Text: "Where did we park the yellow submarine on Tuesday?"}, manifest.MatchNone, 0, "rule vouched", "cat refund"},
		{Query{Text: "Where did we park the yellow submarine on Tuesday?", Recent: true}, manifest.MatchNone, 0, "cat refund", ""},
		{Query{Text: "What is it?"}, "", 0, "cat refund", ""},
	} {
		c.q.Budget = 4000
		a := assemble(t, s, c.q)
		require.Equal(t, c.match, a.Match, c.q.Text)
		require.Equal(t, c.covered, a.Covered, c.q.Text)
		require.Equal(t, c.match, a.Manifest.Match)
		require.Equal(t, manifest.Quantise(c.covered), a.Manifest.Covered)
		for _, id := range strings.Fields(c.in) {
			require.Contains(t, ids(a), id, c.q.Text)
		}
		for _, id := range strings.Fields(c.out) {
			require.NotContains(t, ids(a), id, c.q.Text)
			at := -1
			for i, l := range a.Left {
				if l.Ref.ID == id {
					at = i
				}
			}
			require.GreaterOrEqual(t, at, 0, "%s is named", id)
			require.Equal(t, triage.NoMatch, a.Left[at].Reason)
		}
		again := must(db.Replay(ctx, a.Trace))(t)
		require.Equal(t, a.Text(), again.Text, "it replays")
	}
}

// TestMisspeltQuestions asks in words that no page has: by search, by assembly, in a transaction, with a key and without.
func TestMisspeltQuestions(t *testing.T) {
	for _, opts := range []Options{{}, {Key: []byte(strings.Repeat("\a", 32))}} {
		db := open(t, opts)
		s := db.Scope("acme")
		put(t, s, Artefact{ID: "refund", Text: "The refund limit is 500 dollars since March."})
		put(t, db.Scope("other"), Artefact{ID: "theirs", Text: "Porcupines are shipped on Mondays."})
		must(db.Admin().Checkpoint(ctx))(t)

		a := assemble(t, s, Query{Text: "refnud", Budget: 4000})
		require.Equal(t, []string{"refund"}, ids(a))
		require.Equal(t, manifest.MatchWeak, a.Match, "a reading may be wrong")
		require.Zero(t, a.Covered, "no page has the word")
		require.Equal(t, `no page has "refnud", it was read as "refund"`, a.Degraded)
		require.Equal(t, "a word of the question, which no page has, was read as another", a.Manifest.Note, "the audit has no word of a page")
		why := must(db.Why(ctx, a.Trace, Ref{}))(t)
		require.Contains(t, strings.Join(why.Steps, "\n"), a.Manifest.Note)

		a = assemble(t, s, Query{Text: "refund limti", Budget: 4000})
		require.Equal(t, manifest.MatchWeak, a.Match)
		require.Equal(t, .5, a.Covered)
		a = assemble(t, s, Query{Text: "porcupien", Budget: 4000})
		require.Equal(t, manifest.MatchNone, a.Match, "a word of another scope")
		require.Empty(t, a.Degraded)

		found := must(s.Search(ctx, "refnud", 10))(t)
		require.Len(t, found.Hits, 1)
		require.Equal(t, `no page has "refnud", it was read as "refund"`, found.Degraded)
		tx := must(s.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: "The refund takes a week."}))
		found = must(tx.Search(ctx, "refnud", 10))(t)
		require.Len(t, found.Hits, 2, "a draft of the transaction, too")
		require.NoError(t, tx.Rollback())
	}
}
