package ctxpage

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/session"
)

// TestHandoffVerifiesByTheOwner: a page of the session's scope does not change what the source of an ancestor's page
// verifies against.
func TestHandoffVerifiesByTheOwner(t *testing.T) {
	db, _ := openInternal(t)
	ctx := t.Context()
	parent, child := db.Scope("acme"), db.Scope("acme/bob")
	put := func(s *Scope, a Artefact) {
		t.Helper()
		_, err := s.Put(ctx, a)
		require.NoError(t, err)
	}
	put(parent, Artefact{ID: "policy", Text: "zebra: the limit is 200"})
	put(parent, Artefact{ID: "copy", Source: "page:policy"})
	c := child.Session("chat")
	_, err := c.Append(ctx, Turn{Role: "user", Text: "what is the zebra limit?"})
	require.NoError(t, err)
	_, err = child.Assemble(ctx, Query{Text: "zebra limit", Budget: 2000, Session: "chat"})
	require.NoError(t, err)
	source := func() []session.PacketSource {
		p, err := c.Handoff(ctx, "next")
		require.NoError(t, err)
		return p.VerifiedSources
	}
	before := source()
	require.Contains(t, sourceNames(before), "page:acme:policy")
	put(child, Artefact{ID: "policy", Text: "zebra: bob says it is 900"})
	require.Equal(t, before, source(), "what bob calls policy is another page")
	put(parent, Artefact{ID: "policy", Text: "zebra: the limit is 300"})
	require.NotEqual(t, before, source(), "the negative control")
}

func sourceNames(sources []session.PacketSource) (out []string) {
	for _, s := range sources {
		out = append(out, s.Source)
	}
	return out
}

// TestMessagesNameNoLSN: how much others commit is not told by an error.
func TestMessagesNameNoLSN(t *testing.T) {
	db, _ := openInternal(t)
	ctx := t.Context()
	s := db.Scope("acme")
	for _, other := range []*Scope{s, db.Scope("other")} {
		for range 40 {
			_, err := other.Put(ctx, Artefact{ID: "x", Text: "text " + db.opts.Clock().String()})
			require.NoError(t, err)
		}
	}
	_, err := s.Assemble(ctx, Query{Text: "x", Budget: 100, AsOf: 12_345})
	require.ErrorIs(t, err, ErrInvalid)
	require.NotContains(t, err.Error(), "80")
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Get(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "x", Text: "mine"}))
	_, err = s.Put(ctx, Artefact{ID: "x", Text: "theirs"})
	require.NoError(t, err)
	err = tx.Commit(ctx, Verdict{Confidence: 1, By: "judge"})
	require.ErrorIs(t, err, ErrConflict)
	require.NotRegexp(t, `\d`, err.Error())
	require.NotContains(t, err.Error(), "lsn")
	require.ErrorContains(t, err, "changed since it was read")
}
