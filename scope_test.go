package ctxpage_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// An artefact is seen from its scope and from below, in the nearest version, and from nowhere else.
func TestAncestorVisibility(t *testing.T) {
	db := open(t, Options{})
	org, team, agent, sibling := db.Scope("acme"), db.Scope("acme/support"), db.Scope("acme/support/a"), db.Scope("acme/support/b")
	put(t, org, Artefact{ID: "policy", Text: "policy of the org"})
	put(t, team, Artefact{ID: "policy", Text: "policy of the team"})
	put(t, agent, Artefact{ID: "own", Text: "policy note of the agent"})

	require.Equal(t, "acme/support", get(t, agent, "policy").Ref.Scope)
	require.Equal(t, "acme", get(t, org, "policy").Ref.Scope)
	require.Equal(t, "policy of the org", must(agent.Recall(ctx, Ref{Scope: "acme", ID: "policy"}))(t).Text)
	for _, s := range []*Scope{org, team, sibling, db.Scope("acme/support/aa"), db.Scope("acm"), db.Scope("a")} {
		require.ErrorIs(t, errOf(s.Get(ctx, "own")), store.ErrNotFound, s.Name())
	}
	require.NoError(t, team.Delete(ctx, "policy"))
	require.Equal(t, "acme", get(t, agent, "policy").Ref.Scope, "an ancestor's stands again")
	require.ErrorIs(t, agent.Delete(ctx, "policy"), store.ErrNotFound, "not from below")
	put(t, agent, Artefact{ID: "policy", Text: "policy of the agent"})
	require.Equal(t, "policy of the org", get(t, sibling, "policy").Text)
	require.Len(t, must(loop.Collect(agent.Artefacts(ctx, "")))(t), 2, "a listing is of the own scope")
}

// What a reader of a child scope makes the database fetch is found from where the artefact lives, not from where the
// reader stands: else a child's page would be written into its parent, where all siblings read it.
func TestRefetchDoesNotBleed(t *testing.T) {
	db := open(t, Options{})
	org, agent := db.Scope("acme"), db.Scope("acme/agent")
	put(t, org, Artefact{ID: "base", Text: "the base"})
	put(t, org, Artefact{ID: "copy", Source: "page:base"})
	put(t, agent, Artefact{ID: "base", Text: "a secret of the agent"})
	require.Equal(t, "the base", get(t, agent, "copy").Text)
	require.NotContains(t, assemble(t, agent, Query{Text: "base", Kinds: []store.Kind{store.KindChunk}}).Text(), "secret")
	require.Equal(t, "the base", get(t, db.Scope("acme/other"), "copy").Text)
	put(t, org, Artefact{ID: "base", Text: "the newer base"})
	require.Equal(t, "the newer base", get(t, agent, "copy").Text, "and its own changes are followed")
}

func TestPromote(t *testing.T) {
	db := open(t, Options{})
	agent, sibling := db.Scope("acme/support/a"), db.Scope("acme/support/b")
	ref := put(t, agent, Artefact{ID: "finding", Text: "the gateway retries twice", Provenance: store.Validated, Tags: []string{"net"}})
	require.ErrorIs(t, errOf(sibling.Get(ctx, "finding")), store.ErrNotFound)
	for _, to := range []string{"acme/support/a", "acme/support/b", "acme/support/a/b", "other", ""} {
		require.ErrorIs(t, errOf(db.Admin().Promote(ctx, ref, to, "anna")), store.ErrInvalid, to)
	}
	require.Equal(t, "acme/support", must(db.Admin().Promote(ctx, ref, "acme/support", "anna"))(t).Scope)
	v := get(t, sibling, "finding")
	require.Equal(t, []any{"the gateway retries twice", store.Validated, "anna"}, []any{v.Text, v.Provenance, v.Actor}, "trust stays what it was")
	require.ErrorIs(t, errOf(db.Admin().Promote(ctx, Ref{Scope: "acme/support/a", ID: "none"}, "acme", "anna")), store.ErrNotFound)
}

// world is what a reader can find out: every answer he can get, errors included, without the numbers of the whole file
// (LSN, page numbers, versions of scopes he does not see move them).
func world(t require.TestingT, db *DB, scope string, questions []string, refs []Ref) string {
	s := db.Scope(scope)
	var b strings.Builder
	say := func(what string, v any, err error) {
		j := must(json.Marshal(v))(t)
		fmt.Fprintf(&b, "%s %s %v\n", what, j, err)
	}
	plain := func(v *Version) any {
		if v == nil {
			return nil
		}
		return []any{v.Ref, v.Text, v.Version, v.Tokens, v.Deleted, v.Provenance, v.Group, len(v.Pages)}
	}
	for _, r := range refs {
		v, err := s.Get(ctx, r.ID)
		say("get "+r.ID, plain(v), err)
		v, err = s.Recall(ctx, r)
		say("ref "+r.String(), plain(v), err)
		h, err := loop.Collect(s.Versions(ctx, r.ID))
		say("history", len(h), err)
	}
	var next string
	list, err := loop.Collect(s.Artefacts(ctx, "", AtMost(0, "", &next)))
	for _, v := range list {
		say("list", plain(v), nil)
	}
	say("listed", next, err)
	var export bytes.Buffer
	n, err := s.Export(ctx, &export)
	say("export", n, err)
	for _, q := range questions {
		found, err := s.Search(ctx, q, 5)
		for _, h := range found.Hits {
			say("hit", []any{h.Ref, h.Score, h.Tokens, h.Text}, nil)
		}
		say("hits", len(found.Hits), err)
		say("not served", []any{found.Left, found.Counts}, nil)
		a, err := s.Assemble(ctx, Query{Text: q, Budget: 900, TopK: 6, Session: "g1"})
		if errors.Is(err, store.ErrNotFound) { // nothing of the scope has that group
			say("assemble", nil, err)
			a, err = s.Assemble(ctx, Query{Text: q, Budget: 900, TopK: 6})
		}
		if errors.Is(err, store.ErrBudget) { // long system pages alone
			say("assemble", nil, err)
			continue
		}
		require.NoError(t, err)
		say("text", a.Text(), nil)
		say("left", a.Left, nil)
		for _, e := range a.Manifest.Excluded {
			say("excluded", []any{e.Reason, e.Count, len(e.Nearest)}, nil)
		}
		for _, p := range a.Manifest.Pages {
			say("page", []any{p.Score, p.R, p.P, p.S, p.LexOwn, p.LexNear, p.LexGroup, p.Tag, p.Tokens}, nil)
		}
		for _, r := range refs {
			w := must(db.Why(ctx, a.Trace, r))(t)
			say("why", []any{w.In, len(w.Steps)}, nil)
		}
	}
	return b.String()
}

// Two databases get the same writes in the scopes a reader sees, and different ones in the scopes he does not see. The
// reader cannot tell the two apart: not by results, scores, counts, errors, or explanations.
func TestScopesDoNotBleed(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(dbtest.MemoryPath(t))
	rapid.Check(t, func(rt *rapid.T) {
		names := []string{"a", "b", "a/a", "a/b", "ab", "a/a/a", "a/a/b", "a/ab"}
		reader := rapid.SampledFrom(names).Draw(rt, "reader")
		sees := func(s string) bool { return s == reader || strings.HasPrefix(reader, s+"/") }
		var dbs [2]*DB
		for i := range dbs {
			sub := must(os.MkdirTemp(dir, ""))(rt)
			clk := newClock() // every database its own, moved alike
			db := must(Open(sub+"/agent.ctx", Options{Clock: clk.now, Rand: seeded(1), PageTokens: 24}))(rt)
			defer func() { checkAndClose(rt, db); os.RemoveAll(sub) }()
			dbs[i] = db
		}
		id := rapid.SampledFrom([]string{"x", "y", "z", "w"})
		var refs []Ref
		for range rapid.IntRange(3, 14).Draw(rt, "writes") {
			scope := rapid.SampledFrom(names).Draw(rt, "scope")
			a := Artefact{
				ID: id.Draw(rt, "id"), Text: words(rapid.IntRange(0, 30).Draw(rt, "words"), rapid.IntRange(1, 40).Draw(rt, "length")),
				Group: rapid.SampledFrom([]string{"", "g1"}).Draw(rt, "group"), Seq: int64(rapid.IntRange(0, 3).Draw(rt, "seq")),
				Kind: rapid.SampledFrom([]store.Kind{store.KindFact, store.KindScratch, store.KindChunk, store.KindSystem}).Draw(rt, "kind"),
			}
			if rapid.Bool().Draw(rt, "dead") {
				a.ExpiresAt = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
			}
			refs = append(refs, Ref{Scope: scope, ID: a.ID}, Ref{Scope: scope, ID: a.ID, Version: 2, Page: 1})
			drop := rapid.IntRange(0, 4).Draw(rt, "drop") == 0
			for i, db := range dbs {
				if i == 1 && !sees(scope) { // the second database has other things there
					if rapid.Bool().Draw(rt, "skip") {
						continue
					}
					a.Text, a.ID = words(rapid.IntRange(0, 30).Draw(rt, "other words"), 20), id.Draw(rt, "other id")
				}
				s := db.Scope(scope)
				must(s.Put(ctx, a))(rt)
				if drop {
					require.NoError(rt, s.Delete(ctx, a.ID))
				}
			}
		}
		questions := []string{words(3, 3), words(9, 6)}
		first, second := world(rt, dbs[0], reader, questions, refs), world(rt, dbs[1], reader, questions, refs)
		require.Equal(rt, first, second)
	})
}

// The operator names pages by their number; an agent's view of a page number of another scope is nothing.
func TestRefOf(t *testing.T) {
	db := open(t, Options{})
	ref := put(t, db.Scope("acme/a"), Artefact{ID: "x y", Text: "text"})
	num := get(t, db.Scope("acme/a"), "x y").Pages[0].Num
	ref.Page = 1
	require.Equal(t, ref.String(), db.RefOf(ctx, num))
	require.Equal(t, "page 99", db.RefOf(ctx, 99))
}

// Names that look alike, or like parts of one another, are different scopes; wrong ones are told by every method.
func TestScopeNames(t *testing.T) {
	db := open(t, Options{})
	deep := strings.TrimSuffix(strings.Repeat("a/", store.MaxScopeDepth), "/")
	for _, name := range []string{"a", "a b", "ä/ö", "a:b", "a%2Fb", "a#1@2", deep, strings.Repeat("x", store.MaxScope)} {
		put(t, db.Scope(name), Artefact{ID: "x", Text: "of " + name})
		require.Equal(t, "of "+name, get(t, db.Scope(name), "x").Text)
	}
	for _, name := range []string{"", "/", "/a", "a/", "a//b", ".", "a/../b", "a/.", "a\x00b", "a\nb", "\xff", deep + "/a", strings.Repeat("x", store.MaxScope+1)} {
		s := db.Scope(name)
		for what, call := range map[string]func() error{
			"put":      func() error { _, err := s.Put(ctx, Artefact{ID: "x", Text: "t"}); return err },
			"get":      func() error { _, err := s.Get(ctx, "x"); return err },
			"getref":   func() error { _, err := s.Recall(ctx, Ref{ID: "x"}); return err },
			"recall":   func() error { _, err := s.Recall(ctx, Ref{ID: "x"}); return err },
			"delete":   func() error { return s.Delete(ctx, "x") },
			"list":     func() error { _, err := loop.Collect(s.Artefacts(ctx, "")); return err },
			"history":  func() error { _, err := loop.Collect(s.Versions(ctx, "x")); return err },
			"search":   func() error { _, err := s.Search(ctx, "x", 1); return err },
			"assemble": func() error { _, err := s.Assemble(ctx, Query{Budget: 100}); return err },
			"begin":    func() error { _, err := s.Begin(ctx); return err },
			"resume":   func() error { _, err := s.Resume(ctx, "x"); return err },
			"update":   func() error { return s.Update(ctx, func(*Txn) error { return nil }) },
			"export":   func() error { _, err := s.Export(ctx, &bytes.Buffer{}); return err },
			"verified": func() error { _, err := db.Admin().PutVerified(ctx, name, "anna", Artefact{ID: "x"}); return err },
		} {
			require.ErrorIs(t, call(), store.ErrInvalid, "%s %q", what, name)
		}
	}
	require.ErrorIs(t, errOf(db.Scope("a", WithActor("")).Get(ctx, "x")), store.ErrInvalid)
	require.ErrorIs(t, errOf(db.Scope("a", WithActor("a\x00")).Get(ctx, "x")), store.ErrInvalid)
}

// Two tenants use one name for two people. An export and an erase of the one leave the other alone, turns and held drafts
// included; a receipt repeats the same on an older copy.
func TestSubjectsStayInTheirTenant(t *testing.T) {
	ctx := t.Context()
	path := t.TempDir() + "/agent.ctx"
	db := must(Open(path, Options{}))(t)
	const words = "pelican"
	for _, scope := range []string{"acme/support", "acme", "globex/support"} {
		s := db.Scope(scope)
		must(s.Put(ctx, Artefact{ID: "note", Text: words + " in " + scope, Subject: "user07"}))(t)
		must(s.Put(ctx, Artefact{ID: "other", Text: "about somebody else in " + scope, Subject: "user08"}))(t)
		must(s.Session("chat").Append(ctx, Turn{Role: "user", Text: words + " said in " + scope, Subject: "user07"}))(t)
		tx := must(s.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: words + " drafted in " + scope, Subject: "user07"}))
		require.ErrorIs(t, tx.Commit(ctx, Verdict{Confidence: .1, By: "judge"}), store.ErrHeld)
	}
	export := func(db *DB, scope string) string {
		var out strings.Builder
		must(db.Admin().Export(ctx, &out, portable.ExportOptions{Subject: "user07", Scope: scope}))(t)
		return out.String()
	}
	held := export(db, "acme")
	for _, what := range []string{" in ", " said in ", " drafted in "} {
		require.Contains(t, held, words+what+"acme/support")
		require.NotContains(t, held, words+what+"globex")
		require.Contains(t, export(db, ""), words+what+"globex", "control: without a scope it is everywhere")
	}
	require.NotContains(t, held, "user08")
	must(db.Admin().Backup(ctx, path+".old", nil))(t)

	req := ops.Request{Subject: "user07", Scope: "acme", By: "desk", Reason: "asked", Names: true}
	rep := must(db.Admin().Erase(ctx, req))(t)
	require.Len(t, rep.Erased, 4)
	require.Len(t, rep.Held, 2)
	left := func(db *DB) {
		t.Helper()
		var out strings.Builder
		must(db.Admin().Export(ctx, &out, portable.ExportOptions{}))(t)
		for _, what := range []string{" in ", " said in ", " drafted in "} {
			require.NotContains(t, out.String(), words+what+"acme")
			require.Contains(t, out.String(), words+what+"globex/support")
		}
		require.Contains(t, out.String(), "about somebody else in acme/support")
	}
	left(db)
	head := must(db.Head(ctx))(t)
	receipt := must(ops.NewReceipt(ctx, db.Manifests(), *rep.Done, head))(t)
	require.NoError(t, db.Close())

	db = must(Open(path+".old", Options{}))(t)
	must(db.Admin().RepeatErase(ctx, []*ops.Receipt{receipt}, false, nil))(t)
	left(db)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	require.NoError(t, db.Close())
}

// The preset year bounds the audit: after two years of daily contexts half of the bodies go, and every head still verifies.
func TestPresetYearBoundsTheAudit(t *testing.T) {
	ctx := t.Context()
	now := dbtest.NewClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	db := open(t, Options{Clock: func() time.Time { return now.Add(time.Second) }})
	s := db.Scope("acme")
	for i := range 40 {
		require.NoError(t, errOf(s.Put(ctx, Artefact{ID: "note-" + string(rune('a'+i%26)) + string(rune('a'+i/26)), Text: strings.Repeat("refunds and returns of the desk ", 3+i)})))
	}
	for range 240 {
		now.Add(3 * 24 * time.Hour)
		must(s.Assemble(ctx, Query{Text: "how are refunds made today?", Budget: 3000}))(t)
	}
	bodies := func() (n, questions int) {
		for r, err := range db.Leaves(ctx, manifest.Filter{Type: manifest.TypeAssemble}) {
			require.NoError(t, err)
			if r.Pruned == nil {
				n++
			}
			if r.Question != "" {
				questions++
			}
		}
		return n, questions
	}
	must(db.Admin().Checkpoint(ctx))(t)
	head := must(db.Head(ctx))(t)
	require.NoError(t, db.Admin().Retention().Set(ctx, "", ops.Presets()["year"], "ann"))
	must(db.Admin().Retention().Run(ctx, ops.RunOptions{By: "ann"}))(t)
	n, questions := bodies()
	require.InDelta(t, 121, n, 2, "those of a year")
	require.Equal(t, n, questions)
	must(db.Manifests().Verify(ctx, &head, nil))(t)
	require.NotEmpty(t, must(s.Get(ctx, "note-aa"))(t).Text, "contents stay")
}

// A version has the fields of its put alone, as Put says, and a reviewer is told what an approval would drop.
func TestReviewNamesWhatANewVersionDrops(t *testing.T) {
	ctx := t.Context()
	db := open(t, Options{})
	s := db.Scope("acme")
	must(s.Put(ctx, Artefact{
		ID: "policy", Text: "Refunds take 14 days.", ExpiresAt: time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC), Subject: "refunds", Tags: []string{"a", "b"}, Pinned: true,
		Meta: map[string]string{"owner": "kim"},
	}))(t)
	shown := func(a Artefact) []string {
		tx := must(s.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, a))
		var held *store.HeldError
		require.ErrorAs(t, tx.Commit(ctx, Verdict{Confidence: .1, By: "judge"}), &held)
		return must(db.Review().Show(ctx, held.Batch))(t).Drops
	}
	require.Equal(t, []string{"acme:policy@1: expires 2090-01-01T00:00:00Z, subject refunds, pinned, tag b, meta owner=kim"},
		shown(Artefact{ID: "policy", Text: "Refunds take 10 days.", Tags: []string{"a"}}))
	require.Empty(t, shown(Artefact{ID: "new", Text: "Something else."}), "control: it replaces nothing")

	_, err := s.Put(ctx, Artefact{ID: "nothing"})
	require.ErrorIs(t, err, store.ErrInvalid, "an empty text")
	require.ErrorContains(t, err, "text")
}

func TestScopeOf(t *testing.T) {
	for want, names := range map[string][]string{
		"acme/support/agent-7":   {"acme", "support", "agent-7"},
		"acme/bob%2Feve":         {"acme", "bob/eve"},
		"acme/bob%E2%88%95eve":   {"acme", "bob∕eve"},
		"acme/bob%EF%BC%8Feve":   {"acme", "bob／eve"},
		"acme/bob%E2%81%84eve":   {"acme", "bob⁄eve"},
		`acme/bob%5Ceve`:         {"acme", `bob\eve`},
		"acme/bob%252Feve":       {"acme", "bob%2Feve"},
		"acme/%2E%2E":            {"acme", ".."},
		"acme/%2E":               {"acme", "."},
		"acme/%E2%80%A5":         {"acme", "‥"},
		"acme/v1.2":              {"acme", "v1.2"},
		"acme/bob%00":            {"acme", "bob\x00"},
		"acme/bob%0A":            {"acme", "bob\n"},
		"acme/bob%E2%80%8B":      {"acme", "bob\u200b"},
		"acme/%E2%80%AEbob":      {"acme", "\u202ebob"},
		"acme/bob%20":            {"acme", "bob "},
		"acme/Bob Eve":           {"acme", "Bob Eve"},
		"acme/%FFbob":            {"acme", "\xffbob"},
		"acme/Zoë/山田/ivan@x.org": {"acme", "Zoë", "山田", "ivan@x.org"},
	} {
		require.Equal(t, want, ScopeOf(names...))
	}
	db := open(t, Options{})
	put(t, db.Scope(ScopeOf("bob")), Artefact{ID: "secret", Text: "of bob"})
	require.ErrorIs(t, errOf(db.Scope(ScopeOf("bob/eve")).Get(ctx, "secret")), store.ErrNotFound)
	require.NoError(t, errOf(db.Scope("bob/eve").Get(ctx, "secret")), "the negative control: a path that was joined by hand is inside")
	long := strings.Repeat("a", store.MaxScope+1)
	for _, names := range [][]string{nil, {""}, {"acme", ""}, {"", "acme"}, {"a", "", "b"}, {long}, strings.Split(strings.Repeat("a/", store.MaxScopeDepth)+"a", "/")} {
		require.ErrorIs(t, errOf(db.Scope(ScopeOf(names...)).Get(ctx, "secret")), store.ErrInvalid, "%q", names)
	}
}

// Whatever the names are, the path has their number of levels, is one that a scope can have, and no other names have it.
func TestScopeOfProperties(t *testing.T) {
	db := open(t, Options{})
	name := rapid.OneOf(rapid.StringN(1, 6, 24), rapid.StringMatching(`[./\\% a]{1,4}`),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 6), func(b []byte) string { return string(b) }))
	names := rapid.SliceOfN(name, 1, 4)
	rapid.Check(t, func(rt *rapid.T) {
		a, b := names.Draw(rt, "a"), names.Draw(rt, "b")
		path := ScopeOf(a...)
		require.Len(rt, strings.Split(norm.NFKC.String(path), "/"), len(a))
		require.True(rt, utf8.ValidString(path))
		require.Equal(rt, -1, strings.IndexFunc(path, unicode.IsControl))
		if fmt.Sprintf("%q", a) != fmt.Sprintf("%q", b) {
			require.NotEqual(rt, path, ScopeOf(b...))
		}
		require.ErrorIs(rt, errOf(db.Scope(path).Get(ctx, "none")), store.ErrNotFound)
		require.Equal(rt, path, must(store.ParseRef(Ref{Scope: path, ID: "x"}.String()))(rt).Scope)
	})
}

var selves = []string{ // of agent-7 and of acme/support
	"agent-7", "AGENT-7", "ａｇｅｎｔ-７", "agent\u200b-7", "agent-7\u00ad", "\u2060agent-7\ufe0f", " agent-7 ", "agent-7\u00a0", "Agent-７\U000e0041", "аgеnt-7",
	"acme/support", "ACME/Support", "acme／support", "acme/sup\u200dport",
}

var blanks = []string{"", " ", "\u00a0", "\u200b", "\u2060\ufeff", "\u3164", "\u2800", "\u00ad \u034f", "\u3000"}

// Nobody certifies himself under another spelling of his name, and nobody who is nobody certifies anything.
func TestJudgesAreCompared(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme/support", WithActor("agent-7"))
	n := 0
	commit := func(by string) error {
		n++
		tx := begin(t, s)
		require.NoError(t, tx.Put(ctx, Artefact{ID: fmt.Sprint("note-", n), Text: fmt.Sprint("note ", n)}))
		return tx.Commit(ctx, Verdict{Confidence: .99, By: by})
	}
	var batch string
	for _, by := range selves {
		batch = heldAs(t, commit(by), ReasonSelfCertified).Batch
	}
	for _, by := range blanks {
		heldAs(t, commit(by), ReasonNoVerdict)
	}
	for _, by := range []string{"checker", "agent-8", "support", "agent", "агент-8", "Ann"} {
		require.NoError(t, commit(by), by)
	}
	for _, by := range selves {
		require.ErrorIs(t, errOf(db.Review().Approve(ctx, batch, Approval{By: by})), store.ErrSelfCertified, by)
	}
	for _, by := range blanks {
		require.ErrorIs(t, errOf(db.Review().Approve(ctx, batch, Approval{By: by})), store.ErrInvalid, "%q", by)
		require.ErrorIs(t, errOf(db.Review().Reject(ctx, batch, by, "no")), store.ErrInvalid, "%q", by)
		require.ErrorIs(t, errOf(db.Admin().PutVerified(ctx, "acme", by, Artefact{ID: "fact", Text: "by nobody"})), store.ErrInvalid, "%q", by)
	}
	must(db.Review().Approve(ctx, batch, Approval{By: "ann"}))(t)

	e := &evaluator{name: "Agent\u200b-7", confidence: .99}
	tx := begin(t, db.Scope("acme/support", WithActor("agent-7"), JudgedBy(e)))
	require.NoError(t, tx.Put(ctx, Artefact{ID: "by-itself", Text: "x"}))
	heldAs(t, tx.Commit(ctx, Verdict{}), ReasonSelfCertified)
}

// Names in a held batch that look the same and are not are pointed out.
func TestLookAlikesAreShown(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme", WithActor("checker"))
	for by, shown := range map[string]bool{"сhecker": true, "Checker": true, "che\u0441\u043aer": true, "сhесkеr": true, "ann": false, "checkers": false} {
		tx := begin(t, s)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "note", Text: "x"}))
		held := &store.HeldError{}
		require.ErrorAs(t, tx.Commit(ctx, Verdict{Confidence: .1, By: by}), &held)
		h := must(db.Review().Show(ctx, held.Batch))(t)
		require.Equal(t, shown, len(h.LookAlikes) == 1, "%s: %q", by, h.LookAlikes)
		require.Equal(t, h.LookAlikes, must(loop.Collect(db.Review().Batches(ctx, "", false)))(t)[0].LookAlikes)
		must(db.Review().Reject(ctx, held.Batch, "ann", ""))(t)
	}
}
