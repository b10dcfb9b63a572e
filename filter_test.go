package ctxpage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

func filterDB(t *testing.T) (*DB, *Scope) {
	db := open(t, Options{})
	s := db.Scope("acme/support")

	for i := range 40 {
		a := Artefact{ID: fmt.Sprintf("ticket/%02d", i), Text: fmt.Sprintf("refund of order %d was approved", i), Tags: []string{"closed"}, Meta: map[string]string{"rank": fmt.Sprint(i)}}
		if i%4 == 0 {
			a.Tags, a.Subject = []string{"open"}, "Ada"
		}
		_, err := s.Put(ctx, a)
		require.NoError(t, err)
	}
	_, err := s.Put(ctx, Artefact{ID: "rules", Kind: KindSystem, Text: "refund rules"})
	require.NoError(t, err)
	_, err = db.Scope("acme/other").Put(ctx, Artefact{ID: "theirs", Text: "refund of strangers", Tags: []string{"open"}})
	require.NoError(t, err)
	return db, s
}

func TestFilterAssemble(t *testing.T) {
	t.Parallel()
	db, s := filterDB(t)

	q := Query{Text: "which refund was approved?", Budget: 4000, Filter: Filter{TagsAny: []string{"open"}}}
	a, err := s.Assemble(ctx, q)
	require.NoError(t, err)
	require.Len(t, a.Blocks, 11, "ten open tickets and the system page")
	for _, b := range a.Blocks {
		require.Equal(t, "acme/support", b.Ref.Scope)
	}
	require.Equal(t, `{"tags_any":["open"]}`, a.Manifest.Filter)
	require.Contains(t, a.Manifest.Excluded, manifest.Exclusion{Reason: triage.Filtered, Count: 30})

	r, err := db.Replay(ctx, a.Trace)
	require.NoError(t, err)
	require.True(t, r.Same)
	require.Equal(t, a.Text(), r.Text)
	w, err := db.Why(ctx, a.Trace, Ref{ID: "ticket/01"})
	require.NoError(t, err)
	require.False(t, w.In)
	require.Contains(t, w.Steps, `triage: excluded by the filter: it has none of the tags "open"`)
	w, err = db.Why(ctx, a.Trace, Ref{Scope: "acme/other", ID: "theirs"})
	require.NoError(t, err)
	require.NotContains(t, strings.Join(w.Steps, "\n"), "filter", "what a scope does not see is not explained by it")

	q.Filter = Filter{}
	a, err = s.Assemble(ctx, q)
	require.NoError(t, err)
	require.Len(t, a.Blocks, 41)
	require.Empty(t, a.Manifest.Filter)
}

func TestFilterSearchAndList(t *testing.T) {
	t.Parallel()
	_, s := filterDB(t)

	f := Filter{Subject: "Ada", Meta: store.Conditions{{Key: "rank", Op: store.OpGreaterOrEqual, Value: "32"}}}
	found, err := s.Search(ctx, "refund", 10, Where(f))
	require.NoError(t, err)
	require.Len(t, found.Hits, 2)
	require.Empty(t, found.Left)
	var next string
	vs, err := listing.Collect(s.Artefacts(ctx, "", AtMost(10, "", &next), Where(f), NewestFirst()))
	require.NoError(t, err)
	require.Empty(t, next)
	require.Equal(t, []string{"ticket/36", "ticket/32"}, []string{vs[0].ID, vs[1].ID})

	require.NoError(t, s.Update(ctx, func(tx *Txn) error { // the drafts of a transaction pass as pages do
		require.NoError(t, tx.Put(ctx, Artefact{ID: "ticket/36", Text: "refund of order 36 is closed", Tags: []string{"closed"}}))
		require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: "refund of a draft", Subject: "Ada", Meta: map[string]string{"rank": "99"}}))
		found, err := tx.Search(ctx, "refund", 10, Where(f))
		require.NoError(t, err)
		ids := map[string]bool{}
		for _, h := range found.Hits {
			ids[h.Ref.ID] = true
		}
		require.Equal(t, map[string]bool{"ticket/32": true, "draft": true}, ids)
		return nil
	}))
}

func TestFilterInvalid(t *testing.T) {
	t.Parallel()
	_, s := filterDB(t)
	now := time.Now()
	for field, f := range map[string]Filter{
		"filter.id_prefix":     {IDPrefix: "a\x00"},
		"filter.subject":       {Subject: strings.Repeat("x", store.MaxID+1)},
		"filter.tags_any":      {TagsAny: make([]string, store.MaxFilterTags+1)},
		"filter.tags_all":      {TagsAll: []string{""}},
		`filter.meta."k"`:      {Meta: store.Conditions{{Key: "k", Op: "$regex", Value: "x"}}},
		"filter.meta":          {Meta: store.Conditions{{Key: "k", Op: store.OpEqual, Value: strings.Repeat("x", store.MaxFilterValue+1)}}},
		"filter.kinds":         {Kinds: []Kind{KindAuto}},
		"filter.until":         {Since: now, Until: now},
		"filter.written_until": {WrittenSince: now, WrittenUntil: now.Add(-time.Hour)},
	} {
		_, err := s.Search(ctx, "refund", 1, Where(f))
		var invalid *store.InvalidError
		require.True(t, errors.As(err, &invalid), field)
		require.Equal(t, field, invalid.Field)
		require.NotEmpty(t, invalid.Expected)
		_, err = listing.Collect(s.Artefacts(ctx, "", AtMost(1, "", nil), Where(f)))
		require.ErrorIs(t, err, ErrInvalid, field)
		_, err = s.Assemble(ctx, Query{Text: "refund", Budget: 1000, Filter: f})
		require.ErrorIs(t, err, ErrInvalid, field)
	}
}
