package ctxpage_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/store"
)

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
	_, err := db.Scope(ScopeOf("bob/eve")).Get(ctx, "secret")
	require.ErrorIs(t, err, ErrNotFound)
	_, err = db.Scope("bob/eve").Get(ctx, "secret")
	require.NoError(t, err, "the negative control: a path that was joined by hand is inside")
	long := strings.Repeat("a", store.MaxScope+1)
	for _, names := range [][]string{nil, {""}, {"acme", ""}, {"", "acme"}, {"a", "", "b"}, {long}, strings.Split(strings.Repeat("a/", store.MaxScopeDepth)+"a", "/")} {
		_, err := db.Scope(ScopeOf(names...)).Get(ctx, "secret")
		require.ErrorIs(t, err, ErrInvalid, "%q", names)
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
		_, err := db.Scope(path).Get(ctx, "none")
		require.ErrorIs(rt, err, ErrNotFound)
		ref, err := ParseRef(Ref{Scope: path, ID: "x"}.String())
		require.NoError(rt, err)
		require.Equal(rt, path, ref.Scope)
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
		_, err := db.Review().Approve(ctx, batch, Approval{By: by})
		require.ErrorIs(t, err, ErrSelfCertified, by)
	}
	for _, by := range blanks {
		_, err := db.Review().Approve(ctx, batch, Approval{By: by})
		require.ErrorIs(t, err, ErrInvalid, "%q", by)
		_, err = db.Review().Reject(ctx, batch, by, "no")
		require.ErrorIs(t, err, ErrInvalid, "%q", by)
		_, err = db.Admin().PutVerified(ctx, "acme", by, Artefact{ID: "fact", Text: "by nobody"})
		require.ErrorIs(t, err, ErrInvalid, "%q", by)
	}
	_, err := db.Review().Approve(ctx, batch, Approval{By: "ann"})
	require.NoError(t, err)

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
		held := &HeldError{}
		require.ErrorAs(t, tx.Commit(ctx, Verdict{Confidence: .1, By: by}), &held)
		h, err := db.Review().Show(ctx, held.Batch)
		require.NoError(t, err)
		require.Equal(t, shown, len(h.LookAlikes) == 1, "%s: %q", by, h.LookAlikes)
		list, err := listing.Collect(db.Review().Batches(ctx, "", false))
		require.NoError(t, err)
		require.Equal(t, h.LookAlikes, list[0].LookAlikes)
		_, err = db.Review().Reject(ctx, held.Batch, "ann", "")
		require.NoError(t, err)
	}
}
