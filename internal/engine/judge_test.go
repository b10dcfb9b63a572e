package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestJudgement: what stops a batch is the first step that says no, and judging changes nothing: asked twice, the answer
// is the same.
func TestJudgement(t *testing.T) {
	m := newMemory(t, time.Now)
	old := m.put("acme", store.Artefact{ID: "a", Text: "one"})
	m.put("acme", store.Artefact{ID: "a", Text: "two"}, store.Artefact{ID: "b", Text: "three"})
	m.put("acme", store.Artefact{ID: "c", Text: "four", Supersedes: []string{"b"}})
	seen := []store.Seen{{Num: 1, Scope: "acme", ID: "a", Page: 1}}
	for name, c := range map[string]struct {
		change func(b *Request)
		want   string // retry, conflict, error, hold or apply
	}{
		"apply":                  {func(*Request) {}, "apply"},
		"conflict goes first":    {func(b *Request) { b.Expect, b.Context, b.OnStale = expect(old.LSN), seen, store.FailStale }, "conflict"},
		"carried expects none":   {func(b *Request) { b.Expect, b.Carried = expect(old.LSN), true }, "apply"},
		"stale is held":          {func(b *Request) { b.Context = seen }, "hold"},
		"stale fails":            {func(b *Request) { b.Context, b.OnStale = seen, store.FailStale }, "error"},
		"stale is allowed":       {func(b *Request) { b.Context, b.OnStale = seen, store.AllowStale }, "apply"},
		"stale approval":         {func(b *Request) { b.Context, b.Action = seen, store.ActApprove }, "error"},
		"stale approval, forced": {func(b *Request) { b.Context, b.Action, b.Force = seen, store.ActApprove, true }, "apply"},
		"rejected, stale or not": {func(b *Request) { b.Context, b.Action = seen, store.ActReject }, "apply"},
	} {
		t.Run(name, func(t *testing.T) {
			b := Request{Batch: m.batch("acme", store.Artefact{ID: "b", Text: "again", Supersedes: []string{"a"}})}
			pre := must(m.prepare(t.Context(), &b))(t)
			c.change(&b)
			v := m.judge(&b, pre)
			require.Equal(t, v, m.judge(&b, pre))
			got := map[bool]string{v.retry: "retry", v.conflict != nil: "conflict", v.err != nil: "error", v.hold != "": "hold"}[true]
			if got == "" {
				got = "apply"
			}
			require.Equal(t, c.want, got)
			if c.want == "apply" {
				require.Equal(t, []replacing{{superseded: true, supersedes: true}}, v.puts)
			}
		})
	}
	b := Request{Batch: m.batch("acme", store.Artefact{ID: "a", Text: "three"})}
	pre := must(m.prepare(t.Context(), &b))(t)
	m.put("acme", store.Artefact{ID: "a", Text: "meanwhile"})
	require.True(t, m.judge(&b, pre).retry)
}

func expect(lsn uint64) []store.Precondition {
	return []store.Precondition{{Ref: store.Ref{Scope: "acme", ID: "a"}, LSN: lsn}}
}

// put commits artefacts of one page each to a scope.
func (m *memory) put(scope string, as ...store.Artefact) store.Outcome {
	m.t.Helper()
	out := must(m.Commit(context.Background(), m.batch(scope, as...)))(m.t)
	return out
}

func (m *memory) batch(scope string, as ...store.Artefact) store.Batch {
	m.t.Helper()
	b := store.Batch{Scope: scope, Now: m.opts.Now(), Leaf: manifest.Record{Type: manifest.TypeCommit}}
	var err error
	b.ID, err = store.NewID(b.Now, rand.Reader)
	require.NoError(m.t, err)
	for _, a := range as {
		p := store.NewPage{Text: a.Text, Tokens: len(a.Text)/4 + 1, Hash: store.ContentHash(a.Text)}
		_, _ = rand.Read(p.Salt[:])
		p.Digest = store.SaltedDigest(p.Salt[:], a.Text)
		given := !a.CurrentAsOf.IsZero()
		if !given {
			a.CurrentAsOf = b.Now
		}
		a.Text, a.Provenance = "", cmp.Or(a.Provenance, store.Validated)
		b.Puts = append(b.Puts, store.Put{Artefact: a, AsOfGiven: given, Pages: []store.NewPage{p}})
	}
	return b
}

// fill commits n artefacts to a scope, 500 a commit. Of two with one id in a commit the later one counts.
func (m *memory) fill(scope string, n int, a func(i int) store.Artefact) {
	m.t.Helper()
	for i := 0; i < n; {
		var as []store.Artefact
		for ; i < n && len(as) < 500; i++ {
			next := a(i)
			as = append(slices.DeleteFunc(as, func(was store.Artefact) bool { return was.ID == next.ID }), next)
		}
		m.put(scope, as...)
	}
}

// A listing gives the same whenever it is asked for, and pages of it are the whole.
func TestListing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCatalogue()
		c.addScope(1, "a")
		c.addScope(2, "b")
		ids := map[uint32][]string{}
		for num := uint64(1); num < 60; num++ {
			scope := uint32(rapid.IntRange(1, 2).Draw(t, "scope"))
			id := rapid.StringMatching(`[ab]{1,5}`).Draw(t, "id")
			if slices.Contains(ids[scope], id) {
				continue
			}
			c.growArts(c.arts.len() + 1)
			c.art(uint64(c.arts.len())).first = 1
			c.addKey(uint64(c.arts.len()), scope, id)
			ids[scope] = append(ids[scope], id)
			if rapid.IntRange(0, 3).Draw(t, "ask") == 0 {
				checkListing(t, c, scope, ids[scope], rapid.StringMatching(`[ab]{0,2}`).Draw(t, "prefix"), rapid.IntRange(1, 5).Draw(t, "limit"))
			}
		}
	})
}

func checkListing(t *rapid.T, c *catalogue, scope uint32, ids []string, prefix string, limit int) {
	want := slices.Sorted(slices.Values(ids))
	want = slices.DeleteFunc(want, func(id string) bool { return !strings.HasPrefix(id, prefix) })
	got, after := []string{}, ""
	for {
		page, last, err := (&Engine{cat: c}).listed(scope, &store.ScanQuery{Prefix: prefix, Cursor: after, Limit: limit})
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), limit)
		for _, num := range page {
			got = append(got, c.id(c.art(num)))
		}
		if last == 0 {
			break
		}
		after = c.id(c.art(last))
	}
	require.Equal(t, want, got)
}

func TestLeastOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfDistinct(rapid.StringN(1, 3, -1), rapid.ID).Draw(t, "names")
		n := rapid.IntRange(1, 20).Draw(t, "n")
		want := slices.Sorted(slices.Values(names))
		require.ElementsMatch(t, want[:min(n, len(want))], leastOf(n, slices.Values(names)))
		require.True(t, slices.IsSorted(leastOf(n, slices.Values(names))))
	})
}

// What ended is told once to each who asks in time, and who comes too late is told to forget all.
func TestChanges(t *testing.T) {
	var c changes
	c.start(10)
	out, next := c.after(10)
	require.NotNil(t, next)
	require.Empty(t, out.Ended)
	c.add(11, []uint64{1, 2}, nil)
	<-next
	c.add(12, nil, []store.StateRow{{Key: "a", LSN: 12}, {Key: "b", LSN: 12}})
	c.add(13, []uint64{3}, []store.StateRow{{Key: "a", LSN: 13}})
	out, _ = c.after(10)
	require.ElementsMatch(t, []uint64{1, 2, 3}, out.Ended)
	require.Equal(t, uint64(13), out.LSN)
	require.ElementsMatch(t, []store.StateRow{{Key: "a", LSN: 13}, {Key: "b", LSN: 12}}, out.Told)
	out, _ = c.after(11)
	require.Equal(t, []uint64{3}, out.Ended)
	for n := range uint64(keptChanges) {
		c.add(14+n, []uint64{n}, nil)
	}
	out, _ = c.after(13)
	require.Len(t, out.Ended, keptChanges)
	require.False(t, out.All)
	out, _ = c.after(12)
	require.True(t, out.All)
	require.Empty(t, out.Ended)
	require.False(t, out.AllTold, "rows are remembered apart from pages")
	require.Len(t, out.Told, 1)
	for n := range uint64(keptChanges) {
		c.add(10_000+n, nil, []store.StateRow{{Key: "a", LSN: 10_000 + n}})
	}
	out, _ = c.after(9999)
	require.Len(t, out.Told, 1)
	out, _ = c.after(12)
	require.True(t, out.AllTold)
}

// unknownField is one that no list of fields has.
var unknownField = []byte{0xff, 0x7f, 2, 'h', 'i'}

// A held batch that has fields of a later release is not approved by this one, which would apply it without them. It can
// be rejected. The control has none, and a field of an artefact is no reason: it is kept with the artefact.
func TestApprovalOfUnknownFields(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*store.Batch)
		refused bool
	}{
		"of the batch":    {func(b *store.Batch) { b.Unknown = unknownField }, true},
		"of a put":        {func(b *store.Batch) { b.Puts[0].Unknown = unknownField }, true},
		"of an artefact":  {func(b *store.Batch) { b.Puts[0].Artefact.Unknown = unknownField }, false},
		"none: a control": {func(*store.Batch) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(t, time.Now)
			held := m.batch("acme", store.Artefact{ID: "answer", Kind: store.KindFact, Text: "perhaps"})
			held.Action, held.Reason = store.ActHold, "look at it"
			c.change(&held)
			out := must(m.Commit(t.Context(), held))(t)
			require.Equal(t, store.StatusHeld, out.Status)
			review := func(a store.Action) error {
				b := m.batch("acme")
				b.From, b.Action, b.Leaf = held.ID, a, manifest.Record{By: "ann"}
				_, err := m.Commit(t.Context(), b)
				return err
			}
			before := m.Mark().LSN
			err := review(store.ActApprove)
			if !c.refused {
				require.NoError(t, err)
				l := must(m.Resolve(t.Context(), store.Scopes{"acme"}, store.Ref{ID: "answer"}))(t)
				got := must(m.Load(t.Context(), nil, l.Pages, store.WantHead))(t)
				require.Equal(t, held.Puts[0].Artefact.Unknown, got[0].Head.Artefact.Unknown)
				return
			}
			require.ErrorIs(t, err, store.ErrNewerFormat)
			require.ErrorContains(t, err, "later release")
			require.ErrorContains(t, err, held.ID.String())
			require.Equal(t, before, m.Mark().LSN)
			require.ErrorIs(t, errOf(m.Resolve(t.Context(), store.Scopes{"acme"}, store.Ref{ID: "answer"})), store.ErrNotFound)
			h := must(m.Held(t.Context(), held.ID))(t)
			require.Empty(t, h.Decided, "it still waits")
			require.NoError(t, review(store.ActReject))
		})
	}
}

// Who waits for told rows is called once, by the next commit that writes one, at once if there was one, and not by others.
func TestAfterTold(t *testing.T) {
	m := newMemory(t, time.Now)
	m.opts.State = []store.StateKind{{Prefix: "told/", Told: true}}
	called := make(chan string, 9)
	any := func(store.StateRow) bool { return true }
	wait := func(lsn uint64, name string) (stop func()) { return m.AfterTold(lsn, any, func() { called <- name }) }
	write := func(key string) uint64 {
		b := m.batch("acme")
		b.State = []store.StateRow{{Key: key, Value: []byte("row")}}
		return must(m.Commit(t.Context(), b))(t).LSN
	}
	wait(m.Mark().LSN, "first")
	wait(m.Mark().LSN, "stopped")()
	m.put("acme", store.Artefact{ID: "a", Text: "one"})
	m.put("acme", store.Artefact{ID: "a", Text: "another"})
	write("other")
	require.Len(t, m.changes.calls, 1)
	told := write("told/a")
	require.Equal(t, "first", <-called)
	require.Empty(t, m.changes.calls)
	m.put("acme", store.Artefact{ID: "b", Text: "two"})
	wait(told-1, "late")
	require.Equal(t, "late", <-called)
	wait(told, "in time")
	require.Len(t, m.changes.calls, 1)
	write("told/a")
	require.Equal(t, "in time", <-called)
	m.AfterTold(m.Mark().LSN, func(r store.StateRow) bool { return r.Key == "told/b" }, func() { called <- "wanted" })
	write("told/a")
	require.Len(t, m.changes.calls, 1)
	write("told/b")
	require.Equal(t, "wanted", <-called)
	require.Empty(t, m.changes.calls)
	require.Empty(t, called)
}
