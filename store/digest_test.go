package store_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

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

// The digests in the audit are HMAC-SHA256 as the standard library has it: anybody can check one with another program.
func TestSaltedDigestIsHMAC(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 4096, 2 << 20, 10} { // a short text after a long one: memory is used again
		for _, saltSize := range []int{0, 1, store.DigestSaltSize, sha256.BlockSize} {
			salt, text := bytes.Repeat([]byte{7}, saltSize), bytes.Repeat([]byte("x"), n)
			h := hmac.New(sha256.New, salt)
			h.Write(text)
			require.Equal(t, [32]byte(h.Sum(nil)), store.SaltedDigest(salt, string(text)), "text of %d bytes, salt of %d", n, saltSize)
		}
	}
}

// The digest of a batch is stored with its outcome, for as long as ids are remembered: a release that made another one of
// the same batch would refuse what a host repeats after an upgrade. So these are fixed. A new field of Artefact must leave
// them as they are while it is empty (omitempty).
func TestBindIsFixed(t *testing.T) {
	at, half := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), .5
	bare := store.Batch{Scope: "acme", Puts: []store.Put{{Artefact: store.Artefact{ID: "a", Kind: store.KindFact}, Pages: []store.NewPage{{Text: "a text"}}}}}
	full := store.Batch{Scope: "acme/support", Deletes: []string{"gone", "older"}, Puts: []store.Put{
		{AsOfGiven: true, Pages: []store.NewPage{{Text: "one "}, {Text: "two"}}, Artefact: store.Artefact{
			ID: "policy", Kind: store.KindChunk, Provenance: store.HumanVerified, Priority: 2, CurrentAsOf: at, Pinned: true,
			Tags: []string{"law", "tax"}, Meta: map[string]string{"b": "2", "a": "1"}, Supersedes: []string{"old"}, Subject: "refunds",
			Group: "chat", Seq: 7, Name: "Ann", Role: "user", Relevance: &half,
		}},
		{Pages: []store.NewPage{{Text: "what the file says"}}, Artefact: store.Artefact{ID: "file", Kind: store.KindFact, Source: "file:/etc/hosts", CurrentAsOf: at}},
		{Pages: []store.NewPage{{Text: "short"}}, Artefact: store.Artefact{
			ID: "sum", Kind: store.KindSummary, DerivedFrom: []store.Ref{{Scope: "acme/support", ID: "policy", Page: 1, Version: 3}},
		}},
	}}
	digest := func(b store.Batch) string {
		require.NoError(t, b.Bind())
		return hex.EncodeToString(b.Bound)
	}
	require.Equal(t, "6c7cb6641ea6d110d789525ec2862fc4", digest(bare))
	require.Equal(t, "71883e45f9716f8a46e64217a4ba2bb9", digest(full))

	// What the clock, the gate and the state of the database put into a batch is no part of it.
	again := full
	again.Puts = append([]store.Put(nil), full.Puts...)
	again.Now, again.Trace, again.Raise = at, "other", true
	again.Puts[0].Artefact.ExpiresAt, again.Puts[0].Pages = at, []store.NewPage{{Text: "one two"}}
	again.Puts[1].Pages = []store.NewPage{{Text: "what it says by now"}}
	again.Puts[2].Artefact.Provenance = store.Tool
	again.Puts[2].Artefact.DerivedFrom = []store.Ref{{Scope: "acme/support", ID: "policy", Version: 4}}
	require.Equal(t, digest(full), digest(again))
	for name, change := range map[string]func(*store.Batch){
		"scope":   func(b *store.Batch) { b.Scope = "acme" },
		"text":    func(b *store.Batch) { b.Puts[0].Pages[1].Text = "three" },
		"a tag":   func(b *store.Batch) { b.Puts[0].Artefact.Tags = []string{"law"} },
		"deletes": func(b *store.Batch) { b.Deletes = b.Deletes[:1] },
		"time":    func(b *store.Batch) { b.Puts[0].Artefact.CurrentAsOf = at.Add(time.Second) },
	} {
		other := full
		other.Puts = append([]store.Put(nil), full.Puts...)
		other.Puts[0].Pages = append([]store.NewPage(nil), full.Puts[0].Pages...)
		change(&other)
		require.NotEqual(t, digest(full), digest(other), name)
	}
}
