package ctxpage_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A long text becomes pages that join to it, and a change makes new versions of the pages it touches only.
func TestPagesOfAText(t *testing.T) {
	db := open(t, Options{PageTokens: 64})
	s := db.Scope("acme")
	section := func(i, seed int) string { return fmt.Sprintf("# Section %d\n\n%s\n\n", i, words(seed, 40)) }
	var text []string
	for i := range 6 {
		text = append(text, section(i, i))
	}
	put(t, s, Artefact{ID: "manual", Text: strings.Join(text, ""), Meta: map[string]string{"of": "one"}})
	before := get(t, s, "manual")
	require.Equal(t, strings.Join(text, ""), before.Text)
	require.Len(t, before.Pages, 6)
	for i, p := range before.Pages {
		require.Equal(t, text[i], p.Text, "cut at headings")
		require.LessOrEqual(t, p.Tokens, 64)
		require.Equal(t, Ref{Scope: "acme", ID: "manual", Page: i + 1, Version: 1}, p.Ref)
		require.Equal(t, p.Text, must(s.Recall(ctx, p.Ref))(t).Text)
	}

	text[2] = section(2, 99)
	put(t, s, Artefact{ID: "manual", Text: strings.Join(text, ""), Meta: map[string]string{"of": "one"}})
	after := get(t, s, "manual")
	for i := range after.Pages {
		if i == 2 {
			require.Equal(t, uint32(2), after.Pages[i].Ref.Version)
			require.NotEqual(t, before.Pages[i].Num, after.Pages[i].Num)
			continue
		}
		require.Equal(t, before.Pages[i], after.Pages[i])
	}

	put(t, s, Artefact{ID: "manual", Text: strings.Join(text[:4], ""), Meta: map[string]string{"of": "one"}})
	require.Len(t, get(t, s, "manual").Pages, 4)
	require.ErrorIs(t, errOf(s.Recall(ctx, Ref{ID: "manual", Page: 6})), store.ErrNotFound)
	require.Equal(t, text[5], must(s.Recall(ctx, Ref{ID: "manual", Page: 6, Version: 2}))(t).Text)

	put(t, s, Artefact{ID: "manual", Text: strings.Join(text[:4], ""), Meta: map[string]string{"of": "two"}})
	v := get(t, s, "manual")
	require.Equal(t, []any{uint32(4), "two"}, []any{v.Version, v.Meta["of"]})
	for i, p := range v.Pages {
		require.Less(t, p.Ref.Version, uint32(3), "the head alone changed, not page %d", i+1)
	}
	for _, a := range []Artefact{{ID: "m", Role: "user"}, {ID: "f"}, {ID: "r", Kind: store.KindTool}} {
		a.Text = words(1, 20)
		put(t, s, a)
		require.Len(t, get(t, s, a.ID).Pages, 1, "what fits stays one page")
	}
}

// Any text comes back as it was put, through a checkpoint and a reopen, whole and by page.
func TestAnyTextComesBack(t *testing.T) {
	t.Parallel()
	opts := Options{PageTokens: 16, WorkingSet: 2000}
	db := open(t, opts)
	texts := map[string]string{}
	rapid.Check(t, func(rt *rapid.T) {
		id := fmt.Sprint("t", rapid.IntRange(0, 30).Draw(rt, "id"))
		texts[id] = strings.ToValidUTF8(rapid.StringN(1, 300, -1).Draw(rt, "text"), "?")
		must(db.Scope("acme").Put(ctx, Artefact{ID: id, Text: texts[id]}))(rt)
		switch rapid.IntRange(0, 20).Draw(rt, "then") {
		case 0:
			db = reopen(t, db, opts)
		case 1:
			must(db.Admin().Checkpoint(ctx))(rt)
		}
		require.Equal(rt, texts[id], must(db.Scope("acme").Get(ctx, id))(rt).Text)
	})
	db = reopen(t, db, opts)
	for id, text := range texts {
		require.Equal(t, text, get(t, db.Scope("acme"), id).Text)
	}
}

// A text of one byte, of each value that is text, comes back: its row is as short as what stands for a row that was destroyed.
func TestTextOfOneByte(t *testing.T) {
	t.Parallel()
	for name, key := range map[string][]byte{"plain": nil, "encrypted": bytes.Repeat([]byte{7}, 32)} {
		t.Run(name, func(t *testing.T) {
			opts := Options{Key: key}
			db := open(t, opts)
			for c := range 128 {
				put(t, db.Scope("acme"), Artefact{ID: fmt.Sprint(c), Text: string(rune(c))})
			}
			must(db.Admin().Checkpoint(ctx))(t)
			db = reopen(t, db, opts) // it is checked there
			for c := range 128 {
				require.Equal(t, string(rune(c)), get(t, db.Scope("acme"), fmt.Sprint(c)).Text)
			}
		})
	}
}

// What a caller holds of an artefact is his: changing it changes nothing.
func TestFieldsAreCopies(t *testing.T) {
	a := Artefact{
		ID: "turn", Kind: store.KindMessage, Role: "assistant", Parts: []store.Part{{Type: "text", Text: "see this"}}, ToolCalls: []store.ToolCall{{ID: "c1", Type: "function", Name: "look"}},
		Supersedes: []string{"other"}, Tags: []string{"b", "a"}, Meta: map[string]string{"k": "v"},
	}
	s := open(t, Options{}).Scope("acme")
	put(t, s, Artefact{ID: "other", Text: "before"})
	put(t, s, a)
	want := must(json.Marshal(get(t, s, "turn").Artefact))(t)
	for range 2 {
		v := get(t, s, "turn")
		require.Equal(t, string(want), string(must(json.Marshal(v.Artefact))(t)))
		v.Tags[0], v.Meta["k"], v.Parts[0].Text, v.ToolCalls[0].Name, v.Supersedes[0] = "x", "x", "x", "x", "x"
		a.Tags[0], a.Meta["k"], a.Parts[0].Text, a.ToolCalls[0].Name, a.Supersedes[0] = "y", "y", "y", "y", "y"
	}
}

// The digest of a text is under a salt of its version: equal texts cannot be told from it, and yet it proves its text.
func TestSaltedDigests(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "a", Text: "yes"})
	put(t, s, Artefact{ID: "b", Text: "yes"})
	put(t, s, Artefact{ID: "a", Text: "no"})
	put(t, s, Artefact{ID: "a", Text: "yes"})
	first := must(s.Recall(ctx, Ref{ID: "a", Version: 1}))(t)
	plain := sha256.Sum256([]byte("yes"))
	unsalted := hmac.New(sha256.New, nil)
	unsalted.Write([]byte("yes"))
	seen := map[string]bool{string(plain[:]): true, string(unsalted.Sum(nil)): true}
	for _, v := range []*Version{first, get(t, s, "a"), get(t, s, "b")} {
		d := string(v.Pages[0].Digest[:])
		require.False(t, seen[d])
		seen[d] = true
		require.True(t, db.ProvesText(v.Pages[0].Num, "yes"))
		require.False(t, db.ProvesText(v.Pages[0].Num, "no"))
	}
	for i := range dbtest.SizeOf(db.Manifests()) {
		require.NotContains(t, string(must(db.Manifests().Body(ctx, i))(t)), "yes", "no contents in the audit")
	}
}

// At its expiry an artefact is gone from every path; a clock set back does not wake what a reader's clock still kills.
func TestExpiry(t *testing.T) {
	clk := newClock()
	db := open(t, Options{Clock: clk.now})
	s := db.Scope("acme")
	at := clk.now().Add(time.Hour)
	put(t, s, Artefact{ID: "by time", Text: "zebra one", ExpiresAt: at})
	put(t, s, Artefact{ID: "by ttl", Text: "zebra two", TTL: time.Hour})
	put(t, s, Artefact{ID: "pinned", Text: "zebra three", TTL: time.Hour, Pinned: true})
	put(t, s, Artefact{ID: "system", Kind: store.KindSystem, Text: "zebra four", TTL: time.Hour})
	put(t, s, Artefact{ID: "never", Text: "zebra five"})
	must(db.Admin().PutVerified(ctx, "acme", "anna", Artefact{ID: "verified", Text: "zebra six", TTL: time.Hour}))(t)
	require.True(t, get(t, s, "by ttl").ExpiresAt.Equal(at))
	look := func() (int, int) {
		return len(must(hitsOf(s.Search(ctx, "zebra", 0)))(t)), len(assemble(t, s, Query{Text: "zebra"}).Blocks)
	}
	clk.add(time.Hour - time.Microsecond)
	hits, blocks := look()
	require.Equal(t, []int{6, 6}, []int{hits, blocks}, "not yet")
	clk.add(time.Microsecond)
	hits, blocks = look()
	require.Equal(t, []int{1, 1}, []int{hits, blocks}, "at its expiry it is expired")
	a := assemble(t, s, Query{Text: "zebra"})
	require.Equal(t, "expired", a.Manifest.Excluded[0].Reason)
	require.Equal(t, 5, a.Manifest.Excluded[0].Count)
	for _, id := range []string{"by time", "by ttl", "pinned", "system", "verified"} {
		require.ErrorIs(t, errOf(s.Get(ctx, id)), store.ErrExpired, id)
		require.ErrorIs(t, errOf(s.Get(ctx, id, ServeStale(), WithCheck(CheckNever))), store.ErrExpired, id)
		require.ErrorIs(t, errOf(s.Recall(ctx, Ref{ID: id})), store.ErrExpired, id)
		require.Equal(t, []string{"expired"}, left(a, id))
	}
	var out strings.Builder
	require.Equal(t, 1, must(s.Export(ctx, &out))(t))
	old, err := s.Recall(ctx, Ref{ID: "by time", Version: 1})
	require.ErrorIs(t, err, store.ErrExpired, "%v", old)
	put(t, s, Artefact{ID: "by time", Text: "zebra again"})
	old, err = s.Recall(ctx, Ref{ID: "by time", Version: 1})
	require.NoError(t, err, "history is history")
	require.Equal(t, "zebra one", old.Text)

	clk.add(-30 * 24 * time.Hour)
	put(t, s, Artefact{ID: "late", Text: "zebra late", TTL: time.Minute})
	clk.add(-10 * 365 * 24 * time.Hour)
	require.NotEmpty(t, assemble(t, s, Query{Text: "zebra"}).Blocks, "years before the puts: ages are zero, nothing breaks")
	early := open(t, Options{Clock: func() time.Time { return time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC) }}).Scope("acme")
	put(t, early, Artefact{ID: "x", Text: "zebra", TTL: time.Hour})
	require.Len(t, assemble(t, early, Query{Text: "zebra"}).Blocks, 1, "before 1970")
}

// A repeated put is a touch: recorded, nothing stored. (TestEveryFieldMakesAVersion: anything that differs is a version.)
func TestTouch(t *testing.T) {
	clk := newClock()
	db := open(t, Options{Clock: clk.now})
	s := db.Scope("acme")
	a := Artefact{ID: "a", Text: "zebra", Tags: []string{"t"}}
	first := put(t, s, a)
	clk.add(time.Hour)
	require.Equal(t, first, put(t, s, a))
	require.Equal(t, uint32(1), get(t, s, "a").Version)
	require.True(t, lastOf(t, db).Writes[0].Touch)
	require.Equal(t, manifest.TypeCommit, lastOf(t, db).Type)
	a.CurrentAsOf = clk.now().Add(-time.Minute)
	n := put(t, s, a).Version
	a.CurrentAsOf = time.Time{}
	require.Equal(t, n, put(t, s, a).Version, "a repetition that gives no time does not change the one given")
	require.NoError(t, s.Delete(ctx, "a"))
	require.Equal(t, n+2, put(t, s, a).Version, "what was deleted is written again")
}

// A derived page has the lowest trust of its parents, and is dirty when one of them changes.
func TestLineage(t *testing.T) {
	db := open(t, Options{})
	org, s := db.Scope("acme"), db.Scope("acme/agent")
	put(t, org, Artefact{ID: "chunk", Kind: store.KindChunk, Text: "zebra chunk"})
	put(t, s, Artefact{ID: "tool", Kind: store.KindTool, Text: "zebra tool"})
	put(t, s, Artefact{ID: "note", Kind: store.KindScratch, Text: "zebra note"})
	for name, c := range map[string]struct {
		parents []string
		want    store.Provenance
	}{
		"none": {nil, store.Chunk}, "chunk": {[]string{"chunk"}, store.Chunk}, "tool": {[]string{"chunk", "tool"}, store.Tool}, "note": {[]string{"note", "chunk"}, store.Scratch},
	} {
		a := Artefact{ID: "sum of " + name, Kind: store.KindSummary, Provenance: store.Chunk, Text: "summary " + name}
		for _, p := range c.parents {
			a.DerivedFrom = append(a.DerivedFrom, Ref{ID: p})
		}
		put(t, s, a)
		v := get(t, s, a.ID)
		require.Equal(t, c.want, v.Provenance, name)
		for i, r := range v.DerivedFrom {
			require.Equal(t, []any{c.parents[i], uint32(1)}, []any{r.ID, r.Version}, "the parent's version is fixed")
			require.NotEmpty(t, r.Scope)
		}
	}
	put(t, org, Artefact{ID: "chunk", Kind: store.KindChunk, Text: "zebra chunk", Tags: []string{"only the head"}})
	get(t, s, "sum of chunk")
	put(t, org, Artefact{ID: "chunk", Kind: store.KindChunk, Text: "zebra changed"})
	for _, id := range []string{"sum of chunk", "sum of tool", "sum of note"} {
		require.ErrorIs(t, errOf(s.Get(ctx, id)), store.ErrDirty, id)
	}
	a := assemble(t, s, Query{Text: "summary"})
	require.Contains(t, ids(a), "sum of none")
	require.NotContains(t, ids(a), "sum of tool")
	require.Contains(t, left(a, "sum of tool")[0], "derived from")
	require.True(t, get(t, s, "sum of chunk", ServeStale()).Stale)
	require.NoError(t, s.Delete(ctx, "tool"))
	require.ErrorIs(t, errOf(s.Get(ctx, "sum of tool")), store.ErrDirty)

	put(t, db.Scope("acme/other"), Artefact{ID: "hidden", Text: "hidden"})
	for _, parent := range []Ref{{ID: "none"}, {Scope: "acme/other", ID: "hidden"}, {ID: "chunk", Version: 9}, {ID: "chunk", Page: 7}} {
		require.ErrorIs(t, errOf(s.Put(ctx, Artefact{ID: "x", Text: "x", DerivedFrom: []Ref{parent}})), store.ErrNotFound, parent)
	}
	old := put(t, s, Artefact{ID: "of the old", Text: "x", DerivedFrom: []Ref{{Scope: "acme", ID: "chunk", Version: 1}}})
	require.ErrorIs(t, errOf(s.Recall(ctx, Ref{ID: old.ID})), store.ErrDirty, "what it was made from is not current")
}

// A derived page goes with the end of its parent, and when something else supersedes its parent; not when it does so
// itself.
func TestLineageEnds(t *testing.T) {
	clk := newClock()
	db := open(t, Options{Clock: clk.now})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "offer", Text: "zebra offer", TTL: time.Hour})
	put(t, s, Artefact{ID: "of the offer", Text: "summary zebra", Kind: store.KindSummary, DerivedFrom: []Ref{{ID: "offer"}}})
	put(t, s, Artefact{ID: "limit 1", Text: "zebra limit"})
	put(t, s, Artefact{ID: "of the limit", Text: "summary limit", Kind: store.KindSummary, DerivedFrom: []Ref{{ID: "limit 1"}}})
	put(t, s, Artefact{ID: "chat 1", Text: "zebra chat"})
	put(t, s, Artefact{ID: "rolled", Text: "summary chat", Kind: store.KindSummary, DerivedFrom: []Ref{{ID: "chat 1"}}, Supersedes: []string{"chat 1"}})
	for _, id := range []string{"of the offer", "of the limit", "rolled"} {
		get(t, s, id)
	}
	sub := db.Scope("acme/agent") // its own artefact of that name is another
	put(t, sub, Artefact{ID: "limit 1", Text: "theirs"})
	put(t, sub, Artefact{ID: "of theirs", Text: "summary of theirs", Kind: store.KindSummary, DerivedFrom: []Ref{{Scope: "acme", ID: "limit 1"}}, Supersedes: []string{"limit 1"}})
	get(t, sub, "of theirs")
	put(t, s, Artefact{ID: "limit 2", Text: "zebra limit changed", Supersedes: []string{"limit 1"}})
	_, err := sub.Get(ctx, "of theirs")
	require.ErrorIs(t, err, store.ErrDirty)
	require.ErrorContains(t, err, "supersedes")
	clk.add(time.Hour)
	for id, why := range map[string]string{"of the offer": "expired", "of the limit": "supersedes"} {
		_, err := s.Get(ctx, id)
		require.ErrorIs(t, err, store.ErrDirty, id)
		require.ErrorContains(t, err, why)
	}
	a := assemble(t, s, Query{Text: "summary"})
	require.Contains(t, ids(a), "rolled")
	require.NotContains(t, ids(a), "of the offer")
	require.NotContains(t, ids(a), "of the limit")
}

// TestPastStands: whatever is put, superseded, put again and deleted, a context as of each moment has what it had then,
// also after a reopen.
func TestPastStands(t *testing.T) {
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 5))
		db := open(t, Options{})
		look := func(asOf uint64) (texts []string) {
			for _, b := range assemble(t, db.Scope("acme"), Query{Text: "zebra", AsOf: asOf, Budget: 100_000}).Blocks {
				texts = append(texts, b.Ref.ID+" "+b.Text)
			}
			slices.Sort(texts)
			return texts
		}
		put(t, db.Scope("acme"), Artefact{ID: "r0", Text: "zebra 0"})
		past := map[uint64][]string{}
		for range 25 {
			a := Artefact{ID: fmt.Sprint("r", rng.IntN(4)), Text: fmt.Sprint("zebra ", rng.IntN(2)), Pinned: rng.IntN(5) == 0}
			if rng.IntN(3) == 0 {
				a.Tags = []string{"t"}
			}
			if rng.IntN(3) == 0 {
				a.Group, a.Seq = fmt.Sprint("g", rng.IntN(2)), int64(rng.IntN(3))
			}
			switch kind := rng.IntN(8); kind {
			case 0:
				if err := db.Scope("acme").Delete(ctx, a.ID); err != nil {
					require.ErrorIs(t, err, store.ErrNotFound)
				}
			case 1:
				must(db.Admin().Checkpoint(ctx))(t)
			default:
				old := fmt.Sprint("r", rng.IntN(4))
				if _, err := loop.Collect(db.Scope("acme").Versions(ctx, old, AtMost(1, "", nil))); err == nil && kind > 4 && old != a.ID {
					a.Supersedes = []string{old}
				}
				put(t, db.Scope("acme"), a)
			}
			stats := must(db.Stats(ctx))(t)
			past[stats.LSN] = look(0)
		}
		for range 2 {
			for lsn, texts := range past {
				require.Equal(t, texts, look(lsn), "seed %d, as of %d", seed, lsn)
			}
			db = reopen(t, db, Options{})
		}
	}
}

// The source of a parent that ended is not asked: the answer is known, and nothing is fetched for it.
func TestLineageEndsUnasked(t *testing.T) {
	clk, m := newClock(), newMemo()
	db := open(t, Options{Clock: clk.now, Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme")
	m.set("k", "zebra offer")
	put(t, s, Artefact{ID: "offer", Source: "memo:k", TTL: time.Hour})
	put(t, s, Artefact{ID: "of the offer", Text: "summary zebra", Kind: store.KindSummary, DerivedFrom: []Ref{{ID: "offer"}}})
	m.set("k", "zebra offer, another")
	clk.add(time.Hour)
	probes, fetches := m.probes.Load(), m.fetches.Load()
	_, err := s.Get(ctx, "of the offer")
	require.ErrorIs(t, err, store.ErrDirty)
	require.ErrorContains(t, err, "expired")
	require.Equal(t, []int64{probes, fetches}, []int64{m.probes.Load(), m.fetches.Load()})
}

// What was replaced is found through what replaced it, and does not come back by itself: not by a checkpoint, a reopen,
// nor by the end of its successor; it does by a put.
func TestSupersession(t *testing.T) {
	t.Parallel()
	opts := Options{}
	db := open(t, opts)
	scope := func() *Scope { return db.Scope("acme") }
	found := func(word string) []string {
		hits := must(hitsOf(scope().Search(ctx, word, 0)))(t)
		a := assemble(t, scope(), Query{Text: word})
		require.Subset(t, ids(a), hitIDs(hits))
		return hitIDs(hits)
	}
	steps := []func(){func() {}, func() { require.NoError(t, errOf(db.Admin().Checkpoint(ctx))) }, func() { db = reopen(t, db, opts) }}
	put(t, scope(), Artefact{ID: "third", Kind: store.KindChunk, Text: "violin"})
	put(t, scope(), Artefact{ID: "old", Text: "zebra limit"})
	put(t, scope(), Artefact{ID: "gone", Text: "nothing alike"})
	require.NoError(t, scope().Delete(ctx, "gone"))
	put(t, scope(), Artefact{ID: "new", Text: "apple amount", Supersedes: []string{"old", "gone"}})
	for _, step := range steps {
		step()
		require.Equal(t, []string{"new"}, found("zebra"), "the old words find the new page")
		v := get(t, scope(), "old")
		require.Equal(t, "zebra limit", v.Text, "by its name it is still there")
	}
	a := assemble(t, scope(), Query{Text: "zebra", TopK: 1})
	require.NotContains(t, a.Text(), "zebra")
	require.NotZero(t, a.Manifest.Pages[0].Via)
	why := must(db.Why(ctx, a.Trace, Ref{ID: "old"}))(t)
	require.False(t, why.In)
	require.Contains(t, strings.Join(why.Steps, "\n"), "superseded")

	put(t, scope(), Artefact{ID: "third", Text: "violin sum", Supersedes: []string{"old"}})
	for _, step := range steps {
		step()
		require.Equal(t, []string{"third"}, found("zebra"), "the later of two replacements answers, though it was made first")
	}
	put(t, scope(), Artefact{ID: "fourth", Text: "harbour", Supersedes: []string{"third"}})
	for _, step := range steps {
		step()
		require.Equal(t, []string{"fourth"}, found("zebra"), "a chain is followed")
	}
	require.NoError(t, scope().Delete(ctx, "fourth"))
	for _, step := range steps {
		step()
		require.Empty(t, found("zebra"))
	}
	why = must(db.Why(ctx, assemble(t, scope(), Query{Text: "violin"}).Trace, Ref{Scope: "acme", ID: "third"}))(t)
	require.Contains(t, strings.Join(why.Steps, "\n"), "it is superseded by acme:fourth, which is deleted: nothing answers for it until it is put again")
	put(t, scope(), Artefact{ID: "old", Text: "zebra again"})
	put(t, scope(), Artefact{ID: "third", Text: "violin again"})
	require.NoError(t, scope().Delete(ctx, "new"))
	require.NoError(t, scope().Delete(ctx, "third"))
	for _, step := range steps {
		step()
		require.Equal(t, []string{"old"}, found("zebra"), "a put stands again, and no end of a successor changes that")
	}
	require.NoError(t, scope().Update(ctx, func(tx *Txn) error {
		for _, id := range []string{"z", "y", "x"} {
			require.NoError(t, tx.Put(ctx, Artefact{ID: id, Text: "copper " + id, Supersedes: []string{"old"}}))
		}
		return nil
	}))
	one := found("zebra")
	require.Len(t, one, 1)
	for _, step := range steps {
		step()
		require.Equal(t, one, found("zebra"), "of three in one commit always the same one")
	}
	require.NoError(t, scope().Update(ctx, func(tx *Txn) error { // both in one commit, in the unusual order
		require.NoError(t, tx.Put(ctx, Artefact{ID: "b", Text: "giraffe two", Supersedes: []string{"a"}}))
		require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "giraffe one"}))
		return nil
	}))
	for _, by := range []string{"b", "c"} { // not each in place of the other
		tx := begin(t, scope())
		require.NoError(t, tx.Put(ctx, Artefact{ID: "b", Text: "giraffe two", Supersedes: []string{"a"}}))
		require.NoError(t, tx.Put(ctx, Artefact{ID: "c", Text: "other", Supersedes: []string{"b"}}))
		require.ErrorIs(t, tx.Put(ctx, Artefact{ID: "a", Text: "giraffe one", Supersedes: []string{by}}), store.ErrInvalid)
		require.NoError(t, tx.Rollback())
	}
	for _, step := range steps {
		step()
		require.Equal(t, []string{"b"}, found("giraffe"))
	}
	require.ErrorIs(t, errOf(db.Scope("acme/agent").Put(ctx, Artefact{ID: "child", Text: "of the child", Supersedes: []string{"old"}})), store.ErrNotFound)
	put(t, db.Scope("acme/agent"), Artefact{ID: "old", Text: "of the child itself"})
	put(t, db.Scope("acme/agent"), Artefact{ID: "child", Text: "of the child", Supersedes: []string{"old"}})
	require.Equal(t, one, found("zebra"), "from below nothing is replaced")
}

// A neighbour of what was found may come along; one that was replaced, expired, or is not trusted may not.
func TestGroups(t *testing.T) {
	clk := newClock()
	db := open(t, Options{Clock: clk.now})
	s := db.Scope("acme")
	texts := []string{"we met at the harbour", "somebody asked about the zebra", "the answer was forty", "an idle remark", "a secret remark"}
	for i, text := range texts {
		a := Artefact{ID: fmt.Sprint("turn-", i), Role: "user", Group: "chat", Seq: int64(i), Text: text}
		if i == 4 {
			a.Provenance = store.Scratch
		}
		put(t, s, a)
	}
	for i := range 30 {
		put(t, s, Artefact{ID: fmt.Sprint("filler-", i), Kind: store.KindChunk, Text: words(i, 12)})
	}
	near := func() []string {
		return hitIDs(must(hitsOf(s.Search(ctx, "zebra", 3)))(t))
	}
	require.Equal(t, "turn-1", near()[0])
	require.Contains(t, near(), "turn-2", "the neighbour holds the answer")
	put(t, s, Artefact{ID: "turn-2b", Role: "user", Text: "unrelated", Supersedes: []string{"turn-2"}})
	require.NotContains(t, near(), "turn-2", "replaced")
	require.NoError(t, s.Delete(ctx, "turn-0"))
	put(t, s, Artefact{ID: "turn-0", Role: "user", Group: "chat", Seq: 0, Text: texts[0], TTL: time.Hour})
	require.Contains(t, near(), "turn-0")
	clk.add(time.Hour)
	require.NotContains(t, near(), "turn-0", "expired")
	require.NotContains(t, near(), "turn-4", "not trusted")
	put(t, s, Artefact{ID: "turn-3", Role: "user", Group: "other", Seq: 3, Text: texts[3]})
	require.NotContains(t, near(), "turn-3", "moved to another group")
}

// Concurrent readers and writers with a working set of a page or two: every read is whole, and afterwards no pin and no
// byte is left over.
func TestWorkingSetUnderPressure(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{-1, 1000, 4000} {
		db := open(t, Options{WorkingSet: size})
		s := db.Scope("acme")
		for i := range 12 {
			put(t, s, Artefact{ID: fmt.Sprint(i), Text: words(i, 30)})
		}
		done := make(chan error, 6)
		for g := range 6 {
			go func() {
				r := rand.New(rand.NewPCG(uint64(g), 1))
				for i := range 150 {
					id := fmt.Sprint(r.IntN(12))
					var err error
					switch r.IntN(6) {
					case 0: // the head alone changes: the same page under a new version
						_, err = s.Put(ctx, Artefact{ID: id, Text: words(int(id[0]), 30), Seq: int64(i)})
					case 1:
						_, err = s.Put(ctx, Artefact{ID: id, Text: words(i, 30)})
					case 2:
						_, err = s.Assemble(ctx, Query{Text: words(i, 2), Budget: 2000})
					default:
						var v *Version
						if v, err = s.Get(ctx, id); err == nil && len(strings.Fields(v.Text)) != 30 {
							err = fmt.Errorf("read %q", v.Text)
						}
					}
					if err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range 6 {
			require.NoError(t, <-done)
		}
		st := must(db.Stats(ctx))(t)
		require.LessOrEqual(t, st.Table.Bytes, max(size, 0), "what was pinned together is let go together")
		checkAndClose(t, db)
	}
}

// A put that changes author, date or group of the same words is found by what holds now, in memory, from the log and
// from the file; one that changes nothing of it keeps its pages.
func TestHeadsAreFoundAsTheyStand(t *testing.T) {
	ctx := t.Context()
	db := open(t, Options{})
	put := func(a Artefact) Ref {
		a.ID, a.Text = "note", "the refund limit is ten"
		return must(db.Scope("acme").Put(ctx, a))(t)
	}
	day := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	put(Artefact{Name: "Bob", Group: "one", CurrentAsOf: day})
	check := func(version uint32, words ...string) {
		for _, w := range words {
			hits := must(hitsOf(db.Scope("acme").Search(ctx, w, 5)))(t)
			require.Len(t, hits, 1, w)
			require.Equal(t, version, hits[0].Ref.Version, w)
			require.Zero(t, hits[0].Via, w)
		}
	}
	check(1, "Bob", "March", "refund")
	put(Artefact{Name: "Carol", Group: "two", CurrentAsOf: day.AddDate(0, 3, 0)})
	check(2, "Carol", "June", "refund")
	require.EqualValues(t, 3, put(Artefact{Name: "Carol", Group: "two", CurrentAsOf: day.AddDate(0, 3, 0), Tags: []string{"x"}}).Version)
	check(2, "Carol") // a tag is not looked for by words: the page goes on

	db = reopen(t, db, Options{})
	check(2, "Carol", "June")
	must(db.Admin().Checkpoint(ctx))(t)
	check(2, "Carol", "June")
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
}

// A text that is edited on another day, put or read from its file, keeps the pages that say what they said; words that
// are put again with another date do not.
func TestEditedAnotherDay(t *testing.T) {
	clk := newClock()
	path := filepath.Join(t.TempDir(), "doc.md")
	db := open(t, Options{Clock: clk.now, PageTokens: 64, FileRoots: []string{filepath.Dir(path)}})
	s := db.Scope("acme")
	text := func(end string) string {
		var b strings.Builder
		for i := range 6 {
			fmt.Fprintf(&b, "# Part %d\n\n%s\n\n", i, strings.Repeat(fmt.Sprintf("some words that fill part %d. ", i), 8))
		}
		return b.String() + "# End\n\n" + end + "\n"
	}
	nums := func(id string) (nums []uint64) {
		v := must(s.Get(ctx, id))(t)
		for _, p := range v.Pages {
			nums = append(nums, p.Num)
		}
		require.Greater(t, len(nums), 6)
		return nums
	}
	write := func(end string) {
		writeFile(t, path, text(end))
		require.NoError(t, os.Chtimes(path, clk.now(), clk.now()))
		put(t, s, Artefact{ID: "put", Text: text(end)})
	}
	write("one")
	put(t, s, Artefact{ID: "file", Source: "file:" + path})
	first := map[string][]uint64{"put": nums("put"), "file": nums("file")}
	clk.add(48 * time.Hour)
	write("two")
	for id, was := range first {
		is := nums(id)
		require.Len(t, is, len(was))
		last := len(is) - 1
		require.Equal(t, was[:last], is[:last], id)
		require.NotEqual(t, was[last], is[last], id)
	}
	was := nums("put")
	put(t, s, Artefact{ID: "put", Text: text("two"), CurrentAsOf: clk.now().Add(240 * time.Hour)})
	for i, n := range nums("put") {
		require.NotEqual(t, was[i], n)
	}
}

func TestSupersedesOfNothing(t *testing.T) {
	db := open(t, Options{})
	parent, s := db.Scope("acme"), db.Scope("acme/agent")
	put(t, parent, Artefact{ID: "theirs", Text: "of the parent"})
	for _, id := range []string{"never", "theirs"} {
		_, err := s.Put(ctx, Artefact{ID: "new", Text: "instead", Supersedes: []string{id}})
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.Contains(t, err.Error(), "put them first")
		require.ErrorIs(t, errOf(db.Admin().PutVerified(ctx, "acme/agent", "ann", Artefact{ID: "new", Text: "instead", Supersedes: []string{id}})), store.ErrInvalid)
		tx := begin(t, s)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "new", Text: "instead", Supersedes: []string{id}}), "it may be put later")
		require.ErrorIs(t, tx.Commit(ctx, good), store.ErrInvalid)
		require.NoError(t, tx.Rollback())
	}
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		return errors.Join(tx.Put(ctx, Artefact{ID: "d", Text: "two", Supersedes: []string{"c"}}), tx.Put(ctx, Artefact{ID: "c", Text: "one"}))
	}))
	put(t, s, Artefact{ID: "old", Text: "before"})
	again := Artefact{ID: "new", Text: "instead", Supersedes: []string{"old"}}
	ref := put(t, s, again)
	require.Equal(t, ref, put(t, s, again), "putting it again is a touch")
	require.NoError(t, s.Delete(ctx, "old"))
	require.Equal(t, ref, put(t, s, again), "also when what it replaced is deleted")
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		return errors.Join(tx.Put(ctx, Artefact{ID: "a", Text: "one"}), tx.Put(ctx, Artefact{ID: "b", Text: "two", Supersedes: []string{"a"}}))
	}))
}

func TestRefText(t *testing.T) {
	for text, ref := range map[string]Ref{
		"acme:policy":                {Scope: "acme", ID: "policy"},
		"acme/support:policy#3":      {Scope: "acme/support", ID: "policy", Page: 3},
		"acme:policy@2":              {Scope: "acme", ID: "policy", Version: 2},
		"acme:policy#3@2147483647":   {Scope: "acme", ID: "policy", Page: 3, Version: 2147483647},
		"a%20b:docs%2Frefund.md#1@1": {Scope: "a b", ID: "docs/refund.md", Page: 1, Version: 1},
		"a%3Ab:%231%402%25":          {Scope: "a:b", ID: "#1@2%"},
		"%C3%A4:%F0%9F%90%8C":        {Scope: "ä", ID: "🐌"},
	} {
		require.Equal(t, text, ref.String())
		require.Equal(t, ref, must(store.ParseRef(text))(t))
	}
	for _, bad := range []string{
		"", ":", "acme", "acme:", ":x", "acme:x#", "acme:x@", "acme:x#0", "acme:x@0", "acme:x#-1", "acme:x#+1", "acme:x#01", "acme:x#1@02",
		"acme:x#1#2", "acme:x@1@2", "acme:x@1#2", "acme:x#2147483648", "acme:x@4294967296", "acme:%", "acme:%zz", "%zz:x", "acme:a:b#x", "/:x", "a//b:x",
		"acme:%00", "acme:%ff", "a%2F%2Fb:x", "acme:x# 1", "acme:" + strings.Repeat("x", store.MaxID+1),
	} {
		require.ErrorIs(t, errOf(store.ParseRef(bad)), store.ErrInvalid, bad)
	}
}

func name(t *rapid.T, label string) string {
	s := rapid.StringN(1, 40, 120).Filter(func(s string) bool { return strings.ToValidUTF8(s, "") != "" }).Draw(t, label)
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return 'x'
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return s
}

func TestRefRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var scope []string
		for range rapid.IntRange(1, 4).Draw(t, "depth") {
			n := strings.ReplaceAll(name(t, "scope"), "/", "_")
			if n == "." || n == ".." {
				n = "dot"
			}
			scope = append(scope, n)
		}
		r := Ref{
			Scope: strings.Join(scope, "/"), ID: store.Canonical(name(t, "id")), Page: rapid.IntRange(0, 1<<31-1).Draw(t, "page"),
			Version: rapid.Uint32Range(0, 1<<31-1).Draw(t, "version"),
		}
		require.Equal(t, r, must(store.ParseRef(r.String()))(t))
	})
}

// What parses, renders and parses to the same; and its rendering is plain ASCII, fit for a log or a shell.
func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"acme:policy#3@2", "a%20b:docs%2Frefund.md#1@1", "a/b:x@1", "a:%23", ":", "a:b:c", "a:b#1@", "%2e:x", "a:\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := store.ParseRef(s)
		if err != nil {
			return
		}
		text := r.String()
		again, err := store.ParseRef(text)
		if err != nil || again != r {
			t.Fatalf("%q is %+v, which renders as %q and parses as %+v, %v", s, r, text, again, err)
		}
		for i := range len(text) {
			if text[i] <= ' ' || text[i] >= 0x7f {
				t.Fatalf("%q renders as %q", s, text)
			}
		}
	})
}
