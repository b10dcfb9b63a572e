package storetest

import (
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// edges are cases in which two implementations can differ without anybody noticing for a long time. Each is a sentence of
// the package comment of store.
var edges = []clause{
	{"Arguments", "an argument without what its call needs is an InvalidError, and whatever else an argument is, no call panics or harms the database", checkArguments},
	{"Forged", "a caller cannot write leaves and rows that the store vouches for: those of decisions, erases and other jobs", checkForged},
	{"OneID", "a batch that writes an artefact twice is an InvalidError and writes nothing", checkOneID},
	{"SeenUnknown", "a Seen page whose number no page has makes nothing stale", checkSeenUnknown},
	{"IDAhead", "the id of a batch may be up to 12 hours ahead of Batch.Now, and no more", checkIDAhead},
	{"NamedDeletion", "a deletion that is named by version or scope is ErrNotFound, whatever an ancestor has", checkNamedDeletion},
	{"AnyVersion", "version 0 of a page key is the newest version that has the page", checkAnyVersion},
	{"GCCommits", "a run of gc is commits of its own, whose leaves are found under its trace; one that drops nothing is none", checkGCCommits},
	{"GCDeletion", "an expired artefact that gc drops was deleted first, by the operator, in a version of its own", checkGCDeletion},
	{"StatsAsOf", "the statistics of a question are those of now, whatever AsOf says", checkStatsAsOf},
	{"MaskedCount", "what a rule keeps out is counted whatever the Mask says", checkMaskedCount},
	{"NearestVia", "a page that is left out names in Via the ended page whose words were found; a superseded one is itself", checkNearestVia},
	{"Typed", "a word that no page has is read as one that a page has which the question may see, and never by the words of other scopes", checkTyped},
}

func checkOneID(b *bench) {
	before := b.put("rule", "one")
	deleted := b.batch(b.fact("rule", "two"))
	deleted.Deletes = []string{"rule"}
	twice := b.batch()
	twice.Deletes = []string{"rule", "rule"}
	for _, batch := range []store.Batch{b.batch(b.fact("new", "one"), b.fact("new", "two")), deleted, twice} {
		_, err := b.st.Commit(b.ctx, batch)
		require.ErrorIs(b, err, store.ErrInvalid)
		require.ErrorContains(b, err, "once")
		batch.Action, batch.Reason = store.ActHold, "look"
		_, err = b.st.Commit(b.ctx, batch)
		require.ErrorIs(b, err, store.ErrInvalid, "nor is it held")
	}
	require.Equal(b, before.LSN, b.st.Mark().LSN)
	b.absent("new")
	require.Equal(b, "one", b.text("rule"))
}

func checkSeenUnknown(b *bench) {
	b.put("rule", "one")
	batch := b.batch(b.fact("answer", "from it"))
	batch.OnStale = store.FailStale
	batch.Context = []store.Seen{b.seen("rule"), {Scope: scope, ID: "draft", Page: 1}, {Scope: scope, ID: "never", Page: 1, Num: 9999}}
	out := b.commit(batch)
	require.Equal(b, store.StatusApplied, out.Status)
	require.Empty(b, out.Stale)
}

func checkIDAhead(b *bench) {
	ahead := func(d time.Duration) error {
		batch := b.batch(b.fact("rule", "by a clock ahead"))
		batch.ID = ulid.MustNew(ulid.Timestamp(b.time().Add(d)), b.rand)
		_, err := b.st.Commit(b.ctx, batch)
		return err
	}
	require.NoError(b, ahead(12*time.Hour))
	require.ErrorIs(b, ahead(12*time.Hour+time.Second), store.ErrInvalid)
}

func checkNamedDeletion(b *bench) {
	up := b.batch(b.fact("rule", "of the parent"))
	up.Scope = "acme"
	b.commit(up)
	b.put("rule", "of the child")
	del := b.batch()
	del.Deletes = []string{"rule"}
	b.commit(del)
	up = b.batch(b.fact("rule", "of the parent, again"))
	up.Scope = "acme"
	b.commit(up) // an ancestor has a version 2, too
	look := func() {
		for _, ref := range []store.Ref{{ID: "rule", Version: 2}, {Scope: scope, ID: "rule"}, {Scope: scope, ID: "rule", Version: 2}} {
			l, err := b.st.Resolve(b.ctx, chain, ref)
			require.ErrorIs(b, err, store.ErrNotFound, ref)
			require.Equal(b, store.Located{}, l, ref)
		}
	}
	look()
	require.Equal(b, "of the parent, again", b.text("rule"))
	b.put("rule", "of the child, again")
	look2, err := b.st.Resolve(b.ctx, chain, store.Ref{ID: "rule", Version: 2})
	require.ErrorIs(b, err, store.ErrNotFound, "also of an older deletion")
	require.Equal(b, store.Located{}, look2)
}

func checkAnyVersion(b *bench) {
	b.put("rule", "one")
	first := b.find("rule").Pages[0]
	p := b.fact("rule", "one")
	p.Artefact.Tags = []string{"law"}
	b.commit(b.batch(p)) // another version, the same page
	newest := func(key store.PageKey) store.Loaded {
		got, err := b.st.Load(b.ctx, chain, []store.PageKey{{Num: key.Num}}, store.WantText)
		require.NoError(b, err)
		require.NoError(b, got[0].Err)
		return got[0]
	}
	require.Equal(b, store.PageKey{Num: first.Num, Version: 2}, newest(first).Key)
	b.put("rule", "two")
	ended := newest(first)
	require.Equal(b, store.PageKey{Num: first.Num, Version: 2}, ended.Key, "the newest version that has it, not the newest")
	require.Equal(b, "one", ended.Text)
}

func checkGCCommits(b *bench) {
	b.put("rule", "one")
	second := b.put("rule", "two")
	b.pass(time.Hour)
	require.Empty(b, b.gc(store.JobGCPlan).Trace)
	require.Equal(b, second.LSN, b.st.Mark().LSN, "a plan is no commit")
	rep := b.gc(store.JobGC)
	require.Equal(b, 1, rep.Dropped.Versions)
	leaves, err := b.st.Audit().ByTrace(b.ctx, rep.Trace)
	require.NoError(b, err)
	last, gone := second.LSN, []string{}
	for _, l := range leaves {
		require.Equal(b, manifest.TypeGC, l.Type)
		require.Greater(b, l.LSN, last, "each has an LSN of its own")
		last = l.LSN
		for _, w := range l.Writes {
			if w.Gone {
				gone = append(gone, w.Ref)
			}
		}
	}
	require.Equal(b, b.st.Mark().LSN, last)
	require.Equal(b, []string{scope + ":rule@1"}, gone)
	require.Equal(b, second.LSN, b.find("rule").LSN, "no artefact was changed by it")
	rep = b.gc(store.JobGC)
	require.Empty(b, rep.Trace)
	require.Equal(b, last, b.st.Mark().LSN)
}

func checkGCDeletion(b *bench) {
	p := b.fact("brief", "expires soon")
	p.Artefact.ExpiresAt, p.Artefact.Supersedes = b.time().Add(time.Minute), []string{"none"}
	b.commit(b.batch(p))
	b.pass(time.Hour)
	rep, err := b.st.Maintain(b.ctx, store.Job{Kind: store.JobGC, GC: &store.GCJob{Expired: true, KeepRecords: 4, KeepNames: 100, By: "ann"}}, nil)
	require.NoError(b, err)
	require.Equal(b, 1, rep.GC.Dropped.Versions)
	page, err := b.st.Scan(b.ctx, store.ScanQuery{What: store.ScanHistory, Scopes: chain, ID: "brief"})
	require.NoError(b, err)
	require.Len(b, page.Heads, 2)
	del, was := page.Heads[0], page.Heads[1]
	require.True(b, del.Deleted)
	require.Equal(b, uint32(2), del.Version)
	require.Equal(b, store.OperatorScope, del.Actor, "not whom the job names: its leaf does")
	require.True(b, del.PutAt.Equal(b.time()))
	require.Greater(b, del.LSN, was.LSN)
	require.LessOrEqual(b, del.LSN, b.st.Mark().LSN)
	require.Empty(b, del.Rows)
	require.Empty(b, del.Supersedes)
	require.Equal(b, store.KindFact, del.Kind)
	require.True(b, was.Gone)
	require.Equal(b, rep.GC.Trace, was.GoneBy)
	require.Equal(b, []string{"none"}, was.Supersedes)
	require.Empty(b, was.Actor)
}

func checkStatsAsOf(b *bench) {
	then := b.put("rule", "zebra")
	b.put("rule", "okapi")
	b.put("later", "zebra okapi")
	q := b.ask("zebra", "okapi")
	q.Mask = []store.Ref{{Scope: scope, ID: "none"}}
	now, err := b.st.Candidates(b.ctx, q)
	require.NoError(b, err)
	require.EqualValues(b, 3, now.Stats.Pages, "of all page versions, ended ones among them")
	q.AsOf = then.LSN
	past, err := b.st.Candidates(b.ctx, q)
	require.NoError(b, err)
	require.Equal(b, then.LSN, past.LSN)
	require.Equal(b, now.Stats, past.Stats)
}

// leftOut returns the answer's record of pages that a reason excluded.
func (b *bench) leftOut(q store.CandidateQuery, reason string) store.Excluded {
	b.Helper()
	out, err := b.st.Candidates(b.ctx, q)
	require.NoError(b, err)
	for _, e := range out.Excluded {
		if e.Reason == reason {
			return e
		}
	}
	return store.Excluded{}
}

func checkMaskedCount(b *bench) {
	b.put("old law", "zebra")
	p := b.fact("new law", "okapi")
	p.Artefact.Supersedes = []string{"old law"}
	b.commit(b.batch(p))
	q := b.ask("lemur")
	require.Equal(b, 1, b.leftOut(q, triage.Superseded).Count)
	q.Mask = []store.Ref{{Scope: scope, ID: "old law"}, {Scope: scope, ID: "new law"}}
	require.Equal(b, 1, b.leftOut(q, triage.Superseded).Count)
	q.AsOf = 1
	require.Equal(b, 1, b.leftOut(q, triage.Superseded).Count, "by what is so now")
}

func checkTyped(b *bench) {
	b.put("law", "zebra stripes")
	other := b.batch(b.fact("theirs", "porcupine"))
	other.Scope = "acme/other"
	b.commit(other)
	draft := b.fact("draft", "marmalade")
	draft.Artefact.Provenance = store.Scratch
	b.commit(b.batch(draft))
	ask := func(word string) (store.Candidates, store.CandidateQuery) {
		q := b.ask(word)
		q.Words, q.Floor = []string{word}, store.Tool
		out, err := b.st.Candidates(b.ctx, q)
		require.NoError(b, err)
		return out, q
	}
	out, q := ask("zebar")
	require.Equal(b, []lexical.Reading{{Asked: "zebar", As: "zebra"}}, out.Typed.Read)
	require.Equal(b, []string{"zebra"}, out.Typed.Terms)
	require.Equal(b, []string{"law"}, b.hits(q))
	q.Mask = []store.Ref{{Scope: scope, ID: "other"}}
	out, err := b.st.Candidates(b.ctx, q)
	require.NoError(b, err)
	require.Equal(b, []uint64{1}, out.Stats.DF, "drafts are scored by the terms that were searched for")
	q.Words = nil
	require.Empty(b, b.hits(q), "control")
	for _, word := range []string{"porcupien", "marmalaed", "zebra"} {
		out, _ = ask(word)
		require.Zero(b, out.Typed, word)
	}
}

func checkNearestVia(b *bench) {
	b.put("old law", "zebra")
	old := b.find("old law").Pages[0].Num
	p := b.fact("new law", "okapi")
	p.Artefact.Supersedes = []string{"old law"}
	b.commit(b.batch(p))
	out, err := b.st.Candidates(b.ctx, b.ask("zebra"))
	require.NoError(b, err)
	require.Len(b, out.Hits, 1)
	require.Equal(b, "new law", out.Hits[0].Ref.ID)
	require.Equal(b, old, out.Hits[0].Lexical.Via)
	e := b.leftOut(b.ask("zebra"), triage.Superseded)
	require.Equal(b, 1, e.Matched)
	require.Len(b, e.Nearest, 1)
	require.Equal(b, old, e.Nearest[0].Key.Num)
	require.Zero(b, e.Nearest[0].Lexical.Via)

	b.put("brief", "lemur")
	ended := b.find("brief").Pages[0].Num
	p = b.fact("brief", "quagga")
	p.Artefact.ExpiresAt = b.time().Add(time.Minute)
	b.commit(b.batch(p))
	is := b.find("brief").Pages[0].Num
	b.pass(time.Hour)
	e = b.leftOut(b.ask("lemur"), triage.Expired)
	require.Len(b, e.Nearest, 1)
	require.Equal(b, is, e.Nearest[0].Key.Num)
	require.Equal(b, ended, e.Nearest[0].Lexical.Via)
}
