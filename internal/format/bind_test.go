package format_test

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// Every commit makes a digest of its batch, in the memory of the last one. The bound leaves room for the race detector,
// under which a pool forgets some of what it is given.
func TestBindAllocates(t *testing.T) {
	b := store.Batch{Scope: "acme", Puts: []store.Put{{
		Artefact: store.Artefact{ID: "a", Kind: store.KindFact}, Pages: []store.NewPage{{Text: "a text"}},
	}}}
	format.Bind(&b)
	first := string(b.Bound)
	require.Less(t, testing.AllocsPerRun(1000, func() {
		if format.Bind(&b); string(b.Bound) != first {
			t.Error("the digest of a batch changed")
		}
	}), 14.)
	b.Puts[0].Pages[0].Text = "another text"
	format.Bind(&b)
	require.NotEqual(t, first, string(b.Bound), "the control")
}

// The digest of a batch is stored with its outcome, for as long as ids are remembered: a release that made another one of
// the same batch would refuse what a host repeats after an upgrade. So these are fixed. A new field of Artefact leaves them
// as they are while it is zero.
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
		format.Bind(&b)
		return hex.EncodeToString(b.Bound)
	}
	require.Equal(t, "96df5071e4baafe02114e5435dbe7927", digest(bare))
	require.Equal(t, "37142ea16a7ad2c44262e55c8b3c53d6", digest(full))

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

// Every field of an artefact is part of the digest, except those that Bind leaves out.
func TestBindSeesEveryField(t *testing.T) {
	digest := func(a store.Artefact) string {
		b := store.Batch{Scope: "acme", Puts: []store.Put{{Artefact: a, AsOfGiven: true}}}
		format.Bind(&b)
		return string(b.Bound)
	}
	zero := digest(store.Artefact{})
	all := reflect.TypeFor[store.Artefact]()
	for i := range all.NumField() {
		var a store.Artefact
		dbtest.Fill(reflect.ValueOf(&a).Elem().Field(i).Addr().Interface())
		if name := all.Field(i).Name; name == "ExpiresAt" || name == "TTL" {
			require.Equal(t, zero, digest(a), name)
		} else {
			require.NotEqual(t, zero, digest(a), name)
		}
	}
}
