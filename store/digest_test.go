package store_test

import (
	"testing"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// Every load of a page makes two digests, and every commit one of its batch: they use the memory of the last ones. The
// bounds leave room for the race detector, under which a pool forgets some of what it is given.
func TestDigestsAllocate(t *testing.T) {
	salt, text := make([]byte, store.DigestSaltSize), "a text"
	want := store.SaltedDigest(salt, text)
	require.Less(t, testing.AllocsPerRun(1000, func() {
		if store.SaltedDigest(salt, text) != want {
			t.Error("the digest of a text changed")
		}
	}), 2.)

	b := store.Batch{Scope: "acme", Puts: []store.Put{{
		Artefact: store.Artefact{ID: "a", Kind: store.KindFact}, Pages: []store.NewPage{{Text: text}},
	}}}
	require.NoError(t, b.Bind())
	first := string(b.Bound)
	require.Less(t, testing.AllocsPerRun(1000, func() {
		if b.Bind() != nil || string(b.Bound) != first {
			t.Error("the digest of a batch changed")
		}
	}), 14.)
	b.Puts[0].Pages[0].Text = "another text"
	require.NoError(t, b.Bind())
	require.NotEqual(t, first, string(b.Bound), "the control")
}
