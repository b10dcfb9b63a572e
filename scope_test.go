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

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/store"
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
	v, err := agent.Recall(ctx, Ref{Scope: "acme", ID: "policy"})
	require.NoError(t, err)
	require.Equal(t, "policy of the org", v.Text)
	for _, s := range []*Scope{org, team, sibling, db.Scope("acme/support/aa"), db.Scope("acm"), db.Scope("a")} {
		_, err := s.Get(ctx, "own")
		require.ErrorIs(t, err, ErrNotFound, s.Name())
	}
	require.NoError(t, team.Delete(ctx, "policy"))
	require.Equal(t, "acme", get(t, agent, "policy").Ref.Scope, "an ancestor's stands again")
	require.ErrorIs(t, agent.Delete(ctx, "policy"), ErrNotFound, "not from below")
	put(t, agent, Artefact{ID: "policy", Text: "policy of the agent"})
	require.Equal(t, "policy of the org", get(t, sibling, "policy").Text)
	list, err := listing.Collect(agent.Artefacts(ctx, ""))
	require.NoError(t, err)
	require.Len(t, list, 2, "a listing is of the own scope")
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
	require.NotContains(t, assemble(t, agent, Query{Text: "base", Kinds: []Kind{KindChunk}}).Text(), "secret")
	require.Equal(t, "the base", get(t, db.Scope("acme/other"), "copy").Text)
	put(t, org, Artefact{ID: "base", Text: "the newer base"})
	require.Equal(t, "the newer base", get(t, agent, "copy").Text, "and its own changes are followed")
}

func TestPromote(t *testing.T) {
	db := open(t, Options{})
	agent, sibling := db.Scope("acme/support/a"), db.Scope("acme/support/b")
	ref := put(t, agent, Artefact{ID: "finding", Text: "the gateway retries twice", Provenance: Validated, Tags: []string{"net"}})
	_, err := sibling.Get(ctx, "finding")
	require.ErrorIs(t, err, ErrNotFound)
	for _, to := range []string{"acme/support/a", "acme/support/b", "acme/support/a/b", "other", ""} {
		_, err := db.Admin().Promote(ctx, ref, to, "anna")
		require.ErrorIs(t, err, ErrInvalid, to)
	}
	up, err := db.Admin().Promote(ctx, ref, "acme/support", "anna")
	require.NoError(t, err)
	require.Equal(t, "acme/support", up.Scope)
	v := get(t, sibling, "finding")
	require.Equal(t, []any{"the gateway retries twice", Validated, "anna"}, []any{v.Text, v.Provenance, v.Actor}, "trust stays what it was")
	_, err = db.Admin().Promote(ctx, Ref{Scope: "acme/support/a", ID: "none"}, "acme", "anna")
	require.ErrorIs(t, err, ErrNotFound)
}

// world is what a reader can find out: every answer he can get, errors included, without the numbers of the whole file
// (LSN, page numbers, versions of scopes he does not see move them).
func world(t require.TestingT, db *DB, scope string, questions []string, refs []Ref) string {
	s := db.Scope(scope)
	var b strings.Builder
	say := func(what string, v any, err error) {
		j, jerr := json.Marshal(v)
		require.NoError(t, jerr)
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
		h, err := listing.Collect(s.Versions(ctx, r.ID))
		say("history", len(h), err)
	}
	var next string
	list, err := listing.Collect(s.Artefacts(ctx, "", AtMost(0, "", &next)))
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
		if errors.Is(err, ErrNotFound) { // nothing of the scope has that group
			say("assemble", nil, err)
			a, err = s.Assemble(ctx, Query{Text: q, Budget: 900, TopK: 6})
		}
		if errors.Is(err, ErrBudget) { // long system pages alone
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
			w, err := db.Why(ctx, a.Trace, r)
			require.NoError(t, err)
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
			sub, err := os.MkdirTemp(dir, "")
			require.NoError(rt, err)
			clk := newClock() // every database its own, moved alike
			db, err := Open(sub+"/agent.ctx", WithoutSync(Options{Clock: clk.now, Rand: seeded(1), PageTokens: 24}))
			require.NoError(rt, err)
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
				Kind: rapid.SampledFrom([]Kind{KindFact, KindScratch, KindChunk, KindSystem}).Draw(rt, "kind"),
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
				_, err := s.Put(ctx, a)
				require.NoError(rt, err)
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
			"list":     func() error { _, err := listing.Collect(s.Artefacts(ctx, "")); return err },
			"history":  func() error { _, err := listing.Collect(s.Versions(ctx, "x")); return err },
			"search":   func() error { _, err := s.Search(ctx, "x", 1); return err },
			"assemble": func() error { _, err := s.Assemble(ctx, Query{Budget: 100}); return err },
			"begin":    func() error { _, err := s.Begin(ctx); return err },
			"resume":   func() error { _, err := s.Resume(ctx, "x"); return err },
			"update":   func() error { return s.Update(ctx, func(*Txn) error { return nil }) },
			"export":   func() error { _, err := s.Export(ctx, &bytes.Buffer{}); return err },
			"verified": func() error { _, err := db.Admin().PutVerified(ctx, name, "anna", Artefact{ID: "x"}); return err },
		} {
			require.ErrorIs(t, call(), ErrInvalid, "%s %q", what, name)
		}
	}
	_, err := db.Scope("a", WithActor("")).Get(ctx, "x")
	require.ErrorIs(t, err, ErrInvalid)
	_, err = db.Scope("a", WithActor("a\x00")).Get(ctx, "x")
	require.ErrorIs(t, err, ErrInvalid)
}
