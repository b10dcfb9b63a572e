package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
)

// filtered puts facts that differ in all that a filter asks for, an hour apart.
func (b *bench) filtered() (start time.Time) {
	start = b.time()
	for i, a := range []store.Artefact{
		{ID: "order/1", Tags: []string{"red", "hot"}, Subject: "Ada", Meta: map[string]string{"rank": "9", "team": "x"}},
		{ID: "order/2", Tags: []string{"red"}, Subject: "Bob", Meta: map[string]string{"rank": "10"}},
		{ID: "ship/1", Tags: []string{"blue"}, Meta: map[string]string{"rank": "high", "note": fmt.Sprintf("%0400d", 1)}},
		{ID: "ship/2", Kind: store.KindChunk},
	} {
		p := b.fact(a.ID, "zebra "+a.ID)
		p.Artefact.Tags, p.Artefact.Subject, p.Artefact.Meta = a.Tags, a.Subject, a.Meta
		if a.Kind != store.KindAuto {
			p.Artefact.Kind = a.Kind
		}
		p.Artefact.CurrentAsOf = start.Add(time.Duration(-i) * 24 * time.Hour)
		b.commit(b.batch(p))
		b.pass(time.Hour)
	}
	system := b.fact("rules", "zebra rules")
	system.Artefact.Kind = store.KindSystem
	other := b.batch(b.fact("order/9", "zebra of strangers"))
	other.Scope, other.Puts[0].Artefact.Tags = "acme/other", []string{"red"}
	b.commit(b.batch(system))
	b.commit(other)
	return start
}

func checkFilter(b *bench) {
	start := b.filtered()
	day := 24 * time.Hour
	meta := func(key string, op store.Operator, value string) store.Filter {
		return store.Filter{Meta: store.Conditions{{Key: key, Op: op, Value: value}}}
	}
	cases := []struct {
		f    store.Filter
		want []string
	}{
		{store.Filter{}, []string{"order/1", "order/2", "ship/1", "ship/2"}},
		{store.Filter{IDPrefix: "order/"}, []string{"order/1", "order/2"}},
		{store.Filter{TagsAny: []string{"hot", "blue"}}, []string{"order/1", "ship/1"}},
		{store.Filter{TagsAll: []string{"red", "hot"}}, []string{"order/1"}},
		{store.Filter{Subject: "Bob"}, []string{"order/2"}},
		{store.Filter{Kinds: []store.Kind{store.KindChunk}}, []string{"ship/2"}},
		{meta("team", store.OpEqual, "x"), []string{"order/1"}},
		{meta("team", store.OpNotEqual, "x"), []string{"order/2", "ship/1", "ship/2"}},
		{meta("rank", store.OpGreater, "9"), []string{"order/2"}},
		{meta("rank", store.OpLessOrEqual, "10"), []string{"order/1", "order/2"}},
		{meta("note", store.OpLess, fmt.Sprintf("%0256d", 0)), []string{}},
		{meta("note", store.OpGreater, fmt.Sprintf("%0256d", 0)), []string{"ship/1"}},
		{meta("rank", store.OpExists, "false"), []string{"ship/2"}},
		{store.Filter{Since: start.Add(-day)}, []string{"order/1", "order/2"}},
		{store.Filter{Until: start.Add(-day)}, []string{"ship/1", "ship/2"}},
		{store.Filter{WrittenSince: start.Add(time.Hour), WrittenUntil: start.Add(3 * time.Hour)}, []string{"order/2", "ship/1"}},
		{store.Filter{TagsAny: []string{"red"}, Subject: "Ada", WrittenUntil: start}, []string{}},
	}
	look := func() {
		for _, c := range cases {
			q := b.ask("zebra")
			q.Filter, q.Strict, q.Newest = &c.f, true, 10
			if c.f.IsZero() {
				q.Filter, q.Kinds = nil, []store.Kind{store.KindFact, store.KindChunk}
			}
			b.checkPasses(q, c.want)
			require.Equal(b, c.want, b.artefacts(store.ScanQuery{What: store.ScanArtefacts, Scopes: chain, Filter: &c.f}), "%+v", c.f)
		}
		for _, id := range []string{"order/1", "order/2", "ship/1", "ship/2"} {
			q := b.ask("zebra")
			q.K, q.Strict, q.Filter = 1, true, &store.Filter{IDPrefix: id}
			require.Contains(b, b.hits(q), id, "the best one of those that pass")
		}
		q := b.ask("zebra")
		q.Filter = &store.Filter{Subject: "Ada"}
		require.ElementsMatch(b, []string{"order/1", "rules"}, b.hits(q), "system pages enter unless the question is strict")
	}
	look()
	b.crash()
	look()
	p := b.fact("order/1", "zebra order/1") // the text stands, the tags do not
	p.Artefact.CurrentAsOf = start
	b.commit(b.batch(p))
	q := b.ask("zebra")
	q.Filter, q.Strict = &store.Filter{TagsAny: []string{"red"}}, true
	b.checkPasses(q, []string{"order/2"})
}

// checkPasses compares the candidates of a question, and the count of what its filter leaves out.
func (b *bench) checkPasses(q store.CandidateQuery, want []string) {
	b.Helper()
	out, err := b.st.Candidates(b.ctx, q)
	require.NoError(b, err)
	var ids []string
	for _, c := range out.Hits {
		if c.Kind != store.KindSystem {
			ids = append(ids, c.Ref.ID)
		}
	}
	require.ElementsMatch(b, want, ids, "%+v", q.Filter)
	i := slices.IndexFunc(out.Excluded, func(e store.Excluded) bool { return e.Reason == triage.Filtered })
	if q.Filter == nil {
		require.Negative(b, i)
		return
	}
	require.GreaterOrEqual(b, i, 0)
	require.Equal(b, 5-len(out.Hits), out.Excluded[i].Count, "%+v", q.Filter)
}

// artefacts lists ids, without those of system pages.
func (b *bench) artefacts(q store.ScanQuery) []string {
	ids := []string{}
	for q.Limit = 2; ; {
		page, err := b.st.Scan(b.ctx, q)
		require.NoError(b, err)
		for _, h := range page.Heads {
			if h.Kind != store.KindSystem {
				ids = append(ids, h.ID)
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return ids
		}
	}
}

func checkNewest(b *bench) {
	b.filtered()
	b.put("order/2", "zebra anew")
	b.commit(b.batch(b.fact("b", "one"), b.fact("a", "two")))
	q := store.ScanQuery{What: store.ScanArtefacts, Scopes: chain, Newest: true}
	require.Equal(b, []string{"a", "b", "order/2", "ship/2", "ship/1", "order/1"}, b.artefacts(q))
	q.Filter = &store.Filter{IDPrefix: "order/"}
	require.Equal(b, []string{"order/2", "order/1"}, b.artefacts(q))
	q.Filter, q.Prefix = nil, "ship"
	require.Equal(b, []string{"ship/2", "ship/1"}, b.artefacts(q))
	q.Cursor = "nonsense"
	_, err := b.st.Scan(b.ctx, q)
	require.ErrorIs(b, err, store.ErrInvalid)
}
