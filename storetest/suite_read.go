package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
)

var reading = []clause{
	{"Scopes", "a reader sees the nearest artefact of its chain; a page outside it gives the error of one that is not there", checkScopes},
	{"Versions", "a version is immutable: it reads as it did after later ones were written", checkVersions},
	{"HalfBatch", "no read sees a part of a batch", checkHalfBatch},
	{"Scans", "a listing read page by page is the listing read at once, in its order", checkScans},
	{"Brief", "a brief listing names the versions of the whole one, with their commits and first pages", checkBrief},
	{"Cursors", "a cursor that no page gave is an InvalidError; one of versions goes on in the scope where it began", checkCursors},
	{"Group", "a group is listed in the order of Seq, and its members are live pages", checkGroup},
	{"Summaries", "the summaries of an artefact are the live ones that derive from it and nothing else", checkSummaries},
	{"Candidates", "words find the pages of the chain that say them, but for what a rule keeps out", checkCandidates},
	{"CandidatePages", "a candidate says how many pages its artefact has now", checkCandidatePages},
	{"Preferred", "pinned and verified pages, and the newest, are candidates whatever they say", checkPreferred},
	{"AsOf", "a question as of an LSN finds what was current then", checkAsOf},
	{"Supersedes", "a superseded artefact names its successor, whose page its words find, until it is put again", checkSupersedes},
	{"Filter", "a filter leaves what does not match out of candidates and listings, counts it, and widens nothing", checkFilter},
	{"Newest", "a listing by the newest gives the latest commit first, page by page", checkNewest},
	{"Expiry", "an expired page is no candidate, and is named among what is left out", checkExpiry},
}

func checkScopes(b *bench) {
	for _, s := range []string{"acme", scope, "acme/other"} {
		batch := b.batch(b.fact("rule", "of "+s))
		batch.Scope = s
		b.commit(batch)
	}
	require.Equal(b, "of "+scope, b.text("rule"))
	l, err := b.st.Resolve(b.ctx, chain, store.Ref{Scope: "acme", ID: "rule"})
	require.NoError(b, err)
	require.Equal(b, "of acme", b.load(l).Text)
	_, err = b.st.Resolve(b.ctx, chain, store.Ref{Scope: "acme/other", ID: "rule"})
	require.ErrorIs(b, err, store.ErrNotFound)
	other, err := b.st.Resolve(b.ctx, store.Scopes{"acme/other"}, store.Ref{ID: "rule"})
	require.NoError(b, err)
	got, err := b.st.Load(b.ctx, chain, []store.PageKey{other.Pages[0], {Num: 9999, Version: 1}}, store.WantText)
	require.NoError(b, err)
	for _, o := range got {
		require.ErrorIs(b, o.Err, store.ErrNotFound)
		require.Empty(b, o.Text)
		require.Nil(b, o.Head)
	}
	all, err := b.st.Load(b.ctx, nil, other.Pages, store.WantText)
	require.NoError(b, err)
	require.Equal(b, "of acme/other", all[0].Text, "nil scopes are the operator")
}

func checkVersions(b *bench) {
	for i := 1; i <= 5; i++ {
		b.put("rule", fmt.Sprint("text ", i))
	}
	look := func() {
		for i := uint32(1); i <= 5; i++ {
			l, err := b.st.Resolve(b.ctx, chain, store.Ref{ID: "rule", Version: i})
			require.NoError(b, err)
			require.Equal(b, i == 5, l.Current)
			got := b.load(l)
			require.Equal(b, fmt.Sprint("text ", i), got.Text)
			require.Equal(b, i, got.Head.Version)
		}
		_, err := b.st.Resolve(b.ctx, chain, store.Ref{ID: "rule", Version: 6})
		require.ErrorIs(b, err, store.ErrNotFound)
		_, err = b.st.Resolve(b.ctx, chain, store.Ref{ID: "rule", Page: 2})
		require.ErrorIs(b, err, store.ErrNotFound)
	}
	look()
	b.crash()
	look()
}

func checkHalfBatch(b *bench) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	half := make([]string, 3)
	for r := range half {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					half[r] = max(half[r], b.halfSeen())
				}
			}
		})
	}
	for i := range 60 {
		text := fmt.Sprint("round ", i)
		b.commit(b.batch(b.fact("a", text), b.fact("b", text), b.fact("c", text)))
	}
	close(stop)
	wg.Wait()
	for _, h := range half {
		require.Empty(b, h)
	}
}

// halfSeen says how one listing shows artefacts that are always written together in versions that were not.
func (b *bench) halfSeen() string {
	page, err := b.st.Scan(b.ctx, store.ScanQuery{What: store.ScanArtefacts, Scopes: chain})
	if err != nil {
		return err.Error()
	}
	for _, h := range page.Heads {
		if len(page.Heads) != 3 || h.Version != page.Heads[0].Version || h.LSN > page.LSN {
			return fmt.Sprintf("%d artefacts; %s@%d of commit %d beside %s@%d, at %d", len(page.Heads), h.ID, h.Version, h.LSN, page.Heads[0].ID, page.Heads[0].Version, page.LSN)
		}
	}
	return ""
}

func checkScans(b *bench) {
	for i := range 7 {
		p := b.fact(fmt.Sprint("fact ", i), fmt.Sprint("text ", i))
		p.Artefact.Group, p.Artefact.Seq = "talk", int64(i)
		p.Artefact.Source = "page:elsewhere"
		batch := b.batch(p)
		batch.State = []store.StateRow{{Key: fmt.Sprint("list/", i), Value: []byte("v")}}
		b.commit(batch)
		b.put("often", fmt.Sprint("text ", i))
		b.hold(b.fact("held", fmt.Sprint("text ", i)))
		other := b.batch(b.fact("x", "y"))
		other.Scope = fmt.Sprint("scope ", i)
		b.commit(other)
		b.pass(time.Millisecond)
	}
	del := b.batch()
	del.Deletes = []string{"fact 3"}
	b.commit(del)
	for _, c := range []struct {
		q     store.ScanQuery
		count int
		first string
	}{
		{store.ScanQuery{What: store.ScanArtefacts, Scopes: chain}, 7, "fact 0@1"},
		{store.ScanQuery{What: store.ScanArtefacts, Scopes: chain, Deleted: true}, 8, "fact 0@1"},
		{store.ScanQuery{What: store.ScanArtefacts, Scopes: chain, Prefix: "of"}, 1, "often@7"},
		{store.ScanQuery{What: store.ScanHistory, Scopes: chain, ID: "often"}, 7, "often@7"},
		{store.ScanQuery{What: store.ScanGroup, Scopes: chain, Group: "talk"}, 6, "fact 0@1"},
		{store.ScanQuery{What: store.ScanHeld, Scopes: chain}, 7, ""},
		{store.ScanQuery{What: store.ScanScopes}, 8, scope + " 7"},
		{store.ScanQuery{What: store.ScanScopes, Prefix: "scope"}, 7, "scope 0 1"},
		{store.ScanQuery{What: store.ScanState, Prefix: "list/"}, 7, "list/0=v"},
		{store.ScanQuery{What: store.ScanSourced, Scopes: chain}, 6, ""},
		{store.ScanQuery{What: store.ScanMembers, Scopes: chain, Group: "talk"}, 6, ""},
	} {
		all := b.scan(c.q)
		require.Len(b, all, c.count, "%+v", c.q)
		require.Equal(b, len(all), len(slices.Compact(slices.Sorted(slices.Values(all)))), "twice: %v", all)
		if c.first != "" {
			require.Equal(b, c.first, all[0])
		}
		for limit := 1; limit < 4; limit++ {
			c.q.Limit = limit
			require.Equal(b, all, b.scan(c.q), "%+v", c.q)
		}
	}
}

func checkBrief(b *bench) {
	for i := range 5 {
		b.put(fmt.Sprint("fact ", i), fmt.Sprint("text ", i))
		b.pass(time.Millisecond)
	}
	b.put("fact 1", "another text")
	b.commit(b.batch(b.fact("long", "page one", "page two")))
	del := b.batch()
	del.Deletes = []string{"fact 3"}
	b.commit(del)
	heads := func(q store.ScanQuery) (out []string) {
		for q.Limit = 2; ; {
			page, err := b.st.Scan(b.ctx, q)
			require.NoError(b, err)
			for _, h := range page.Heads {
				first := uint64(0)
				if len(h.Rows) > 0 {
					first = h.Rows[0].Num
				}
				out = append(out, fmt.Sprint(h.Scope, " ", h.ID, " ", h.Art, " ", h.Version, " ", h.LSN, " ", h.PutAt.UnixMicro(), " ", h.Deleted, " ", first))
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return out
			}
		}
	}
	q := store.ScanQuery{What: store.ScanArtefacts, Scopes: chain, Deleted: true}
	whole := heads(q)
	require.Len(b, whole, 6)
	q.Brief = true
	require.Equal(b, whole, heads(q))
}

func checkCursors(b *bench) {
	b.put("rule", "one")
	for _, q := range []store.ScanQuery{
		{What: store.ScanHistory, Scopes: chain, ID: "rule", Cursor: "nonsense"},
		{What: store.ScanHeld, Cursor: "nonsense"},
	} {
		_, err := b.st.Scan(b.ctx, q)
		require.ErrorIs(b, err, store.ErrInvalid)
	}
	_, err := b.st.Scan(b.ctx, store.ScanQuery{What: store.ScanHistory, Scopes: chain, ID: "none"})
	require.ErrorIs(b, err, store.ErrNotFound)
	checkBoundCursor(b)
}

// checkBoundCursor: a list of versions goes on in the scope where it began, and in no other list.
func checkBoundCursor(b *bench) {
	inner := store.Scopes{chain[0] + "/inner", chain[0]}
	n := 0
	put := func(scope, id string) {
		n++
		batch := b.batch(b.fact(id, fmt.Sprint("words ", n)))
		batch.Scope = scope
		b.commit(batch)
	}
	for range 3 {
		put(chain[0], "bound")
		put(chain[0], "other")
	}
	q := store.ScanQuery{What: store.ScanHistory, Scopes: inner, ID: "bound", Limit: 1}
	page, err := b.st.Scan(b.ctx, q)
	require.NoError(b, err)
	put(inner[0], "bound") // nearer to the reader
	put(inner[0], "bound")
	q.Cursor = page.Next
	page, err = b.st.Scan(b.ctx, q)
	require.NoError(b, err)
	require.Len(b, page.Heads, 1)
	require.Equal(b, chain[0], page.Heads[0].Scope)
	require.EqualValues(b, 2, page.Heads[0].Version)
	for _, other := range []store.ScanQuery{
		{Scopes: inner, ID: "other"}, {Scopes: inner[:1], ID: "bound"}, {Scopes: store.Scopes{"elsewhere"}, ID: "bound"},
	} {
		other.What, other.Cursor = store.ScanHistory, q.Cursor
		_, err = b.st.Scan(b.ctx, other)
		require.ErrorIs(b, err, store.ErrInvalid, "%+v", other)
	}
}

func checkGroup(b *bench) {
	for i, seq := range []int64{30, 10, 20} {
		p := b.fact(fmt.Sprint("turn ", i), "words", "more words")
		p.Artefact.Group, p.Artefact.Seq = "talk", seq
		b.commit(b.batch(p))
	}
	require.Equal(b, []string{"turn 1@1", "turn 2@1", "turn 0@1"}, b.scan(store.ScanQuery{What: store.ScanGroup, Scopes: chain, Group: "talk"}))
	q := store.ScanQuery{What: store.ScanMembers, Scopes: chain, Group: "talk"}
	page, err := b.st.Scan(b.ctx, q)
	require.NoError(b, err)
	require.Len(b, page.Keys, 6)
	require.Equal(b, b.find("turn 1").Pages, page.Keys[:2])

	q.Known = page.LSN
	same, err := b.st.Scan(b.ctx, q)
	require.NoError(b, err)
	require.True(b, same.Same)
	require.Empty(b, same.Keys)
	p := b.fact("turn 3", "words")
	p.Artefact.Group, p.Artefact.Seq = "talk", 40
	b.commit(b.batch(p))
	more, err := b.st.Scan(b.ctx, q)
	require.NoError(b, err)
	known := page.Keys
	if !more.Same {
		known = nil
	}
	require.Equal(b, append(slices.Clone(page.Keys), b.find("turn 3").Pages...), append(slices.Clone(known), more.Keys...))
}

func checkSummaries(b *bench) {
	b.commit(b.batch(b.fact("long", "a long text"), b.fact("other", "another")))
	summary := func(id string, of ...string) {
		p := b.fact(id, "short")
		p.Artefact.Kind = store.KindSummary
		for _, o := range of {
			p.Artefact.DerivedFrom = append(p.Artefact.DerivedFrom, store.Ref{Scope: scope, ID: o, Version: 1})
		}
		b.commit(b.batch(p))
	}
	summary("first", "long")
	summary("second", "long")
	summary("both", "long", "other")
	summary("deleted", "long")
	del := b.batch()
	del.Deletes = []string{"deleted"}
	b.commit(del)
	require.Equal(b, []string{"second@1", "first@1"}, b.scan(store.ScanQuery{What: store.ScanSummaries, Scopes: chain, Of: store.Ref{Scope: scope, ID: "long"}}))
}

func checkCandidates(b *bench) {
	low := b.fact("low", "zebra in scratch")
	low.Artefact.Provenance = store.Scratch
	rule := b.fact("rule", "zebra and okapi")
	rule.Artefact.Kind = store.KindChunk
	b.commit(b.batch(low, rule, b.fact("plain", "zebra alone"), b.fact("none", "nothing of it")))
	other := b.batch(b.fact("other", "zebra of strangers"))
	other.Scope = "acme/other"
	b.commit(other)

	require.ElementsMatch(b, []string{"low", "rule", "plain"}, b.hits(b.ask("zebra")))
	require.ElementsMatch(b, []string{"rule"}, b.hits(b.ask("okapi")))
	q := b.ask("zebra")
	q.Floor = store.Validated
	require.ElementsMatch(b, []string{"rule", "plain"}, b.hits(q))
	out, err := b.st.Candidates(b.ctx, q)
	require.NoError(b, err)
	require.Equal(b, b.st.Mark().LSN, out.LSN)
	i := slices.IndexFunc(out.Excluded, func(e store.Excluded) bool { return e.Reason == triage.BelowFloor })
	require.GreaterOrEqual(b, i, 0)
	require.Equal(b, 1, out.Excluded[i].Count)
	require.Equal(b, "low", out.Excluded[i].Nearest[0].Ref.ID)
	q = b.ask("zebra")
	q.Kinds = []store.Kind{store.KindChunk}
	require.ElementsMatch(b, []string{"rule"}, b.hits(q))
	q = b.ask("zebra")
	q.Mask = []store.Ref{{Scope: scope, ID: "plain"}}
	require.ElementsMatch(b, []string{"low", "rule"}, b.hits(q))
	b.crash()
	require.ElementsMatch(b, []string{"low", "rule", "plain"}, b.hits(b.ask("zebra")))
}

func checkCandidatePages(b *bench) {
	b.commit(b.batch(b.fact("long", "zebra", "okapi", "zebra again"), b.fact("short", "zebra"), b.fact("cut", "zebra", "gnu")))
	b.put("cut", "zebra")
	look := func() {
		out, err := b.st.Candidates(b.ctx, b.ask("zebra"))
		require.NoError(b, err)
		pages := map[string]int{}
		for _, c := range out.Hits {
			pages[c.Ref.ID] = c.Pages
		}
		require.Equal(b, map[string]int{"long": 3, "short": 1, "cut": 1}, pages)
	}
	look()
	b.crash()
	look()
}

func checkPreferred(b *bench) {
	pinned, verified := b.fact("pinned", "one"), b.fact("verified", "two")
	pinned.Artefact.Pinned, verified.Artefact.Provenance = true, store.HumanVerified
	b.commit(b.batch(pinned, verified, b.fact("old", "three")))
	b.pass(time.Hour)
	b.put("new", "four")
	q := b.ask()
	ids := func() (ids []string) {
		out, err := b.st.Candidates(b.ctx, q)
		require.NoError(b, err)
		for _, c := range out.Hits {
			ids = append(ids, c.Ref.ID)
		}
		return ids
	}
	require.ElementsMatch(b, []string{"pinned", "verified"}, ids())
	q.Recent = 1
	require.ElementsMatch(b, []string{"pinned", "verified", "new"}, ids())
}

func checkAsOf(b *bench) {
	then := b.put("rule", "zebra")
	b.put("rule", "okapi")
	b.put("later", "zebra")
	q := b.ask("zebra")
	q.AsOf = then.LSN
	out, err := b.st.Candidates(b.ctx, q)
	require.NoError(b, err)
	require.Equal(b, then.LSN, out.LSN)
	require.Equal(b, []string{"rule"}, b.hits(q))
	got, err := b.st.Load(b.ctx, chain, []store.PageKey{out.Hits[0].Key}, store.WantText)
	require.NoError(b, err)
	require.Equal(b, "zebra", got[0].Text)
}

func checkSupersedes(b *bench) {
	b.put("old", "zebra")
	p := b.fact("new", "okapi")
	p.Artefact.Supersedes = []string{"old"}
	b.commit(b.batch(p))
	look := func() {
		l := b.find("old")
		require.Equal(b, "new", l.ByID)
		require.Equal(b, b.find("new").Pages[0].Num, l.By)
		require.Equal(b, []string{"new"}, b.hits(b.ask("zebra")), "its words find who replaced it")
		page, err := b.st.Scan(b.ctx, store.ScanQuery{What: store.ScanArtefacts, Scopes: chain, Prefix: "old"})
		require.NoError(b, err)
		require.Equal(b, "new", page.Heads[0].Superseded)
	}
	look()
	b.crash()
	look()
	b.put("old", "zebra again")
	require.Empty(b, b.find("old").ByID)
	require.ElementsMatch(b, []string{"old", "new"}, b.hits(b.ask("zebra", "okapi")))
}

func checkExpiry(b *bench) {
	p := b.fact("brief", "zebra")
	p.Artefact.ExpiresAt = b.time().Add(time.Hour)
	b.commit(b.batch(p))
	require.Equal(b, p.Artefact.ExpiresAt.UnixMicro(), b.find("brief").Expires)
	require.Equal(b, []string{"brief"}, b.hits(b.ask("zebra")))
	b.pass(time.Hour)
	out, err := b.st.Candidates(b.ctx, b.ask("zebra"))
	require.NoError(b, err)
	require.Empty(b, out.Hits)
	require.Len(b, out.Excluded, 1)
	require.Equal(b, triage.Expired, out.Excluded[0].Reason)
	require.Equal(b, "brief", out.Excluded[0].Nearest[0].Ref.ID)
}
