package ctxpage_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// A page of the newest does not skip an artefact that got a new version since the page before, and lists none twice.
func TestNewestBesideUpdates(t *testing.T) {
	ctx := t.Context()
	db := open(t, Options{})
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		s := db.Scope(fmt.Sprint("acme/", round))
		write := func(n int) {
			put(t, s, Artefact{ID: fmt.Sprintf("a%d", n), Text: fmt.Sprint("text ", n, " of ", rng.Uint64())})
		}
		for n := range 8 {
			write(n)
		}
		seen := map[string]int{}
		for cursor, part := "", 0; ; part++ {
			limit := 1 + rng.IntN(3)
			var next string
			list, err := listing.Collect(s.Artefacts(ctx, "", AtMost(limit, cursor, &next), NewestFirst()))
			require.NoError(t, err)
			require.LessOrEqual(t, len(list), limit)
			for _, v := range list {
				seen[v.ID]++
			}
			if cursor = next; next == "" {
				break
			}
			require.Less(t, part, 40, "a listing ends")
			for range rng.IntN(3) {
				write(rng.IntN(10))
			}
		}
		for n := range 8 {
			require.Equal(t, 1, seen[fmt.Sprintf("a%d", n)], "round %d: a%d in %v", round, n, seen)
		}
	}
}

// A cursor belongs to its listing: its scope, its order, its prefix.
func TestCursorsOfOtherListings(t *testing.T) {
	ctx := t.Context()
	db := open(t, Options{})
	s, other := db.Scope("acme"), db.Scope("other")
	for _, id := range []string{"a", "b", "c"} {
		put(t, s, Artefact{ID: id, Text: id})
		put(t, other, Artefact{ID: id, Text: id})
	}
	var byID string
	_, err := listing.Collect(s.Artefacts(ctx, "", AtMost(1, "", &byID)))
	require.NoError(t, err)
	var newest string
	_, err = listing.Collect(s.Artefacts(ctx, "", AtMost(1, "", &newest), NewestFirst()))
	require.NoError(t, err)
	for name, list := range map[string]func() error{
		"no cursor": func() error {
			_, err := listing.Collect(s.Artefacts(ctx, "", AtMost(1, "zzz", nil)))
			return err
		},
		"an id": func() error { _, err := listing.Collect(s.Artefacts(ctx, "", AtMost(1, "b", nil))); return err },
		"newest by id": func() error {
			_, err := listing.Collect(s.Artefacts(ctx, "", AtMost(1, newest, nil)))
			return err
		},
		"by id newest": func() error {
			_, err := listing.Collect(s.Artefacts(ctx, "", AtMost(1, byID, nil), NewestFirst()))
			return err
		},
		"3.b newest": func() error {
			_, err := listing.Collect(s.Artefacts(ctx, "", AtMost(1, "3.b", nil), NewestFirst()))
			return err
		},
		"another scope": func() error {
			_, err := listing.Collect(other.Artefacts(ctx, "", AtMost(1, byID, nil)))
			return err
		},
		"a prefix": func() error {
			_, err := listing.Collect(s.Artefacts(ctx, "a", AtMost(1, byID, nil)))
			return err
		},
	} {
		require.ErrorIs(t, list(), ErrInvalid, name)
	}
	list, err := listing.Collect(s.Artefacts(ctx, "", AtMost(1, byID, nil)))
	require.NoError(t, err)
	require.Equal(t, "b", list[0].ID, "control")
}

// A name is the same in composed and decomposed form, wherever it is given.
func TestNamesInBothForms(t *testing.T) {
	ctx := t.Context()
	const nfc, nfd = "Jos\u00e9", "Jose\u0301"
	db := open(t, Options{})
	s := db.Scope("acme")
	put(t, s, Artefact{ID: nfd, Text: "likes tea", Subject: nfd, Tags: []string{nfd}})
	for _, id := range []string{nfc, nfd} {
		v, err := s.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, nfc, v.ID)
		for _, f := range []Filter{{Subject: id}, {TagsAny: []string{id}}, {TagsAll: []string{id}}, {IDPrefix: id}} {
			list, err := listing.Collect(s.Artefacts(ctx, "", AtMost(9, "", nil), Where(f)))
			require.NoError(t, err)
			require.Len(t, list, 1, "%+v", f)
			found, err := s.Search(ctx, "tea", 9, Where(f))
			require.NoError(t, err)
			require.Len(t, found.Hits, 1, "%+v", f)
		}
		list, err := listing.Collect(s.Artefacts(ctx, id, AtMost(9, "", nil)))
		require.NoError(t, err)
		require.Len(t, list, 1)
		history, err := listing.Collect(s.Versions(ctx, id, AtMost(9, "", nil)))
		require.NoError(t, err)
		require.Len(t, history, 1)
		report, err := db.Admin().Erase(ctx, ops.Request{Subject: id, By: "ann", Reason: "asked", DryRun: true})
		require.NoError(t, err)
		require.Len(t, report.Erased, 1)
		ref, err := store.ParseRef("acme:" + id)
		require.NoError(t, err)
		_, err = s.Recall(ctx, ref)
		require.NoError(t, err)
	}
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: nfc, Text: "likes coffee"}))
	v, err := tx.Get(ctx, nfd)
	require.NoError(t, err)
	require.Equal(t, "likes coffee", v.Text)
	require.NoError(t, tx.Rollback())
	require.NoError(t, s.Delete(ctx, nfd))
	_, err = s.Get(ctx, nfc)
	require.ErrorIs(t, err, ErrNotFound)
	require.Equal(t, s.Session(nfc).ID(), s.Session(nfd).ID())
}
