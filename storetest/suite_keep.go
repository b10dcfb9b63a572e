package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

var keeping = []clause{
	{"Audit", "leaves stand in the order they were appended, and are found by trace and by parent", checkAudit},
	{"AuditWait", "who waits for the audit sees a leaf that was appended, and what was seen is there after a crash, though nobody asked for a sync", checkAuditWait},
	{"AuditOfCommits", "each commit, hold, review and refusal leaves a leaf that says what it wrote", checkAuditOfCommits},
	{"Head", "a head that was given stays provable, whatever is appended later", checkHead},
	{"GC", "gc drops versions that ended and nothing names, as its plan said, and they answer ErrGone", checkGC},
	{"GCKeeps", "gc keeps what a held batch, a state row, a live artefact or a reader names, and says so", checkGCKeeps},
	{"GCScopes", "gc of given scopes takes what each of them says and leaves the others alone; decided batches that it is given go, those that wait stay", checkGCScopes},
	{"Erase", "an erase takes all versions, whoever names them, held batches, questions and rows of state; what is left says by whom", checkErase},
	{"EraseBound", "an erase takes what was there when it began: what is put while it runs stays, also a repetition; only the store writes its rows", checkEraseBound},
	{"Hold", "a hold keeps what was current at its moment, by LSN and by expiry, until it is released or the store closed", checkHold},
	{"Journal", "gc drops rows of a journal that newer ones replaced, but for the newest and what the head row names", checkJournal},
	{"Outcome", "the outcome of an id is told again, also after a crash; ErrNotFound leaves the id free", checkOutcome},
	{"Refresh", "a refreshed store shows what was answered, and knows no LSN that no commit has", checkRefresh},
	{"Questions", "the text of a question is kept beside its leaf, which has its digest alone", checkQuestions},
	{"Vectors", "vectors are kept by model and page, move no LSN, and show no page outside the chain", checkVectors},
	{"Near", "pages near a vector are candidates without a word in common, the nearest K, of the chain alone", checkNear},
	{"NearRules", "what a rule or a filter excludes is not near, and takes no place", checkNearRules},
	{"Beside", "a page has what its neighbours in its group lend of their cosines", checkBeside},
	{"Unembedded", "the pages that have no vector by a model are listed, until they have one", checkUnembedded},
	{"Changes", "Changes names the page versions that ended since, and waits for a commit as long as it is told", checkChanges},
	{"Crash", "after a crash all that was acknowledged is there", checkCrash},
	{"Closed", "a closed store answers ErrClosed, and a context that ended stops a read", checkClosed},
}

func checkAudit(b *bench) {
	leaf := func(trace, parent string) *manifest.Record {
		return &manifest.Record{Type: manifest.TypeAssemble, Trace: trace, Parent: parent, Time: b.time().UnixMicro(), Scope: scope}
	}
	first := b.leaves(b.st.Audit())
	require.NoError(b, b.st.Append(b.ctx, []*manifest.Record{leaf("t1", ""), leaf("t2", "t1")}, store.Written))
	require.NoError(b, b.st.Append(b.ctx, []*manifest.Record{leaf("t3", "t1")}, store.Synced))
	look := func() {
		log := b.st.Audit()
		for i, want := range []string{"t1", "t2", "t3"} {
			r, err := log.Leaf(b.ctx, first+uint64(i))
			require.NoError(b, err)
			require.Equal(b, want, r.Trace)
		}
		found, err := log.ByTrace(b.ctx, "t1")
		require.NoError(b, err)
		require.Len(b, found, 3)
		found, err = log.ByTrace(b.ctx, "t2")
		require.NoError(b, err)
		require.Len(b, found, 1)
		_, err = log.ByTrace(b.ctx, "none")
		require.ErrorIs(b, err, manifest.ErrNoLeaf)
		_, err = log.Verify(b.ctx, nil, nil)
		require.NoError(b, err)
	}
	look()
	b.crash()
	look()
}

func checkAuditOfCommits(b *bench) {
	one := func(trace string) *manifest.Record {
		found, err := b.st.Audit().ByTrace(b.ctx, trace)
		require.NoError(b, err)
		return found[len(found)-1]
	}
	batch := b.batch(b.fact("rule", "one"))
	out := b.commit(batch)
	leaf := one(batch.ID.String())
	require.Equal(b, out.Leaf, leaf.Index)
	require.Equal(b, out.LSN, leaf.LSN)
	require.Equal(b, "applied", leaf.Status)
	require.Len(b, leaf.Writes, 1)
	require.Equal(b, b.find("rule").Pages[0].Num, leaf.Writes[0].Num)
	require.Equal(b, manifest.Digest(batch.Puts[0].Pages[0].Digest[:]), leaf.Writes[0].Digest)

	held := b.hold(b.fact("answer", "perhaps"))
	require.Equal(b, "held", one(held.ID.String()).Status)
	approve := b.review(store.ActApprove, held.ID)
	b.commit(approve)
	require.Equal(b, held.ID.String(), one(approve.ID.String()).From)
	refused := b.batch(b.fact("rule", "two"))
	refused.Expect = []store.Precondition{{Ref: store.Ref{Scope: scope, ID: "rule"}, LSN: 99}}
	_, err := b.st.Commit(b.ctx, refused)
	require.ErrorIs(b, err, store.ErrConflict)
	leaf = one(refused.ID.String())
	require.Equal(b, manifest.TypeConflict, leaf.Type)
	require.Len(b, leaf.Conflicts, 1)
}

func checkHead(b *bench) {
	b.put("rule", "one")
	old, err := b.st.Head(b.ctx)
	require.NoError(b, err)
	info, err := b.st.Info(b.ctx)
	require.NoError(b, err)
	require.Equal(b, info.ID, old.DB)
	for _, text := range []string{"two", "three"} {
		b.put("rule", text)
	}
	b.crash()
	again, err := b.st.Info(b.ctx)
	require.NoError(b, err)
	require.Equal(b, info, again, "id and secret stay")
	log := b.st.Audit()
	now, err := b.st.Head(b.ctx)
	require.NoError(b, err)
	require.Greater(b, now.Size, old.Size)
	consistent, err := log.ProveConsistency(b.ctx, old.Size, now.Size)
	require.NoError(b, err)
	require.NoError(b, consistent.Verify(old, now))
	in, err := log.ProveInclusion(b.ctx, 0, now.Size)
	require.NoError(b, err)
	body, err := log.Body(b.ctx, 0)
	require.NoError(b, err)
	require.NoError(b, in.Verify(body, now))
}

func (b *bench) gc(kind store.JobKind) store.GCReport {
	b.Helper()
	rep, err := b.st.Maintain(b.ctx, store.Job{Kind: kind, GC: &store.GCJob{KeepVersions: 1, Expired: true, KeepRecords: 4, KeepNames: 100, By: "operator"}}, nil)
	require.NoError(b, err)
	return rep.GC
}

func checkGC(b *bench) {
	for _, text := range []string{"zebra", "okapi", "lemur"} {
		b.put("rule", text)
		b.pass(time.Minute)
	}
	b.pass(time.Hour)
	plan := b.gc(store.JobGCPlan)
	require.True(b, plan.DryRun)
	require.Equal(b, 2, plan.Dropped.Versions)
	require.Empty(b, plan.Trace)
	rep := b.gc(store.JobGC)
	require.Equal(b, plan.Dropped, rep.Dropped)
	require.Equal(b, plan.Reasons, rep.Reasons)
	require.Equal(b, plan.Refs, rep.Refs)
	require.Equal(b, format.GoneSuperseded, rep.Reasons[0].Reason)
	require.NotEmpty(b, rep.Trace)
	look := func() {
		for v := uint32(1); v < 3; v++ {
			_, err := b.st.Resolve(b.ctx, chain, store.Ref{ID: "rule", Version: v})
			require.ErrorIs(b, err, store.ErrGone)
			require.ErrorContains(b, err, rep.Trace)
		}
		require.Equal(b, "lemur", b.text("rule"))
		require.Empty(b, b.hits(b.ask("zebra")))
	}
	look()
	b.crash()
	look()
	require.Zero(b, b.gc(store.JobGC).Dropped.Versions)
}

func checkGCKeeps(b *bench) {
	ids := []string{"held", "expected", "state", "parent", "source", "used"}
	for _, id := range ids {
		b.put(id, "one of "+id)
	}
	held := b.batch(b.fact("answer", "from it"))
	held.Action, held.Reason, held.Context = store.ActHold, "look", []store.Seen{b.seen("held")}
	held.Expect = []store.Precondition{{Ref: store.Ref{Scope: scope, ID: "expected"}, LSN: b.find("expected").LSN}}
	b.commit(held)
	row := b.batch()
	row.State = []store.StateRow{{Key: namesPages + "x", Value: []byte{byte(b.find("state").Pages[0].Num)}}, {Key: pastOnly + "x", Value: []byte("v")}}
	b.commit(row)
	child := b.fact("child", "made of it")
	child.Artefact.DerivedFrom = []store.Ref{{Scope: scope, ID: "parent", Version: 1}}
	copied := b.fact("copied", "made of it, too")
	copied.Artefact.Source = "page:" + store.Ref{Scope: scope, ID: "source", Version: 1}.String()
	b.commit(b.batch(child, copied))
	for _, id := range ids[:5] {
		b.put(id, "two of "+id)
	}
	ticket := b.keep()
	b.put("used", "two of used")
	b.pass(time.Hour)
	rep := b.gc(store.JobGC)
	b.st.Release(ticket)
	require.Zero(b, rep.Dropped.Versions)
	why := map[string]int{}
	for _, k := range rep.Kept {
		why[k.Reason] = k.Versions
	}
	require.Equal(b, map[string]int{format.KeptHeld: 2, format.KeptSession: 1, format.KeptParent: 1, format.KeptSource: 1, format.KeptInUse: 1}, why)
	v, err := b.st.State(b.ctx, pastOnly+"x")
	require.NoError(b, err)
	require.Zero(b, v.LSN, "a row that serves only the past")
	b.commit(b.review(store.ActReject, held.ID))
	require.Equal(b, 3, b.gc(store.JobGC).Dropped.Versions, "what nobody names any more")
}

// keep holds what is current now.
func (b *bench) keep() store.Ticket {
	b.Helper()
	t, err := b.st.Hold(b.ctx, store.Moment{LSN: b.st.Mark().LSN, Time: b.time()})
	require.NoError(b, err)
	require.NotZero(b, t)
	return t
}

func checkHold(b *bench) {
	brief := b.fact("brief", "expires soon")
	brief.Artefact.ExpiresAt = b.time().Add(time.Minute)
	b.commit(b.batch(brief))
	b.put("rule", "one")
	b.put("other", "one")
	b.put("rule", "two") // ended before the hold
	first, second := b.keep(), b.keep()
	require.NotEqual(b, first, second)
	b.put("rule", "three")
	b.put("other", "two")
	b.pass(time.Hour)
	dropped := func(rep store.GCReport) (refs []string) {
		for _, r := range rep.Refs {
			refs = append(refs, r.String())
		}
		return refs
	}
	gc := func() store.GCReport {
		b.Helper()
		rep, err := b.st.Maintain(b.ctx, store.Job{Kind: store.JobGC, GC: &store.GCJob{Expired: true, KeepRecords: 4, KeepNames: 100, By: "operator"}}, nil)
		require.NoError(b, err)
		return rep.GC
	}
	rep := gc()
	require.Equal(b, []string{scope + ":rule@1"}, dropped(rep))
	require.Equal(b, []store.GCTally{{Reason: format.KeptInUse, Versions: 3}}, []store.GCTally{{Reason: rep.Kept[0].Reason, Versions: rep.Kept[0].Versions}})
	b.st.Release(first)
	b.st.Release(first)
	require.Empty(b, dropped(gc()), "the other hold keeps it")
	b.st.Release(second)
	third := b.keep() // of now: it needs nothing of the past
	require.ElementsMatch(b, []string{scope + ":rule@2", scope + ":other@1", scope + ":brief@1"}, dropped(gc()))
	b.st.Release(third)

	b.keep() // and is never released
	b.put("other", "three")
	b.pass(time.Hour)
	require.Empty(b, dropped(gc()))
	b.crash()
	require.Equal(b, []string{scope + ":other@2"}, dropped(gc()), "holds end with the handle")
}

func checkOutcome(b *bench) {
	batch := b.batch(b.fact("rule", "one"))
	_, err := b.st.Outcome(b.ctx, batch.ID)
	require.ErrorIs(b, err, store.ErrNotFound)
	refused := b.batch(b.fact("rule", "two"))
	refused.Expect = []store.Precondition{{Ref: store.Ref{Scope: scope, ID: "rule"}, LSN: 99}}
	_, err = b.st.Commit(b.ctx, refused)
	require.ErrorIs(b, err, store.ErrConflict)
	_, err = b.st.Outcome(b.ctx, refused.ID)
	require.ErrorIs(b, err, store.ErrNotFound, "of a refused batch nothing is applied")
	out := b.commit(batch)
	held := b.hold(b.fact("answer", "perhaps"))
	look := func() {
		got, err := b.st.Outcome(b.ctx, batch.ID)
		require.NoError(b, err)
		require.Equal(b, out, got)
		got, err = b.st.Outcome(b.ctx, held.ID)
		require.NoError(b, err)
		require.Equal(b, store.StatusHeld, got.Status)
	}
	look()
	b.crash()
	look()
	_, err = b.st.Maintain(b.ctx, store.Job{Kind: store.JobCheckpoint}, nil)
	require.NoError(b, err)
	look()
	_, err = b.st.Outcome(b.ctx, refused.ID)
	require.ErrorIs(b, err, store.ErrNotFound)
	refused.Expect = nil
	b.commit(refused) // the id was free
	spare := b.id()
	b.pass(8 * 24 * time.Hour)
	_, err = b.st.Outcome(b.ctx, spare)
	require.ErrorIs(b, err, store.ErrTxnExpired, "nobody remembers so far back")
}

func checkRefresh(b *bench) {
	before := b.st.Mark()
	at, err := b.st.Refresh(b.ctx, 0)
	require.NoError(b, err)
	require.Equal(b, before.LSN, at.LSN)
	var wg sync.WaitGroup
	for w := range 4 {
		batch := b.batch(b.fact(fmt.Sprintf("rule-%d", w), "one"))
		wg.Go(func() {
			var at store.Mark
			out, err := b.st.Commit(b.ctx, batch)
			if err == nil {
				at, err = b.st.Refresh(b.ctx, out.LSN)
			}
			if err != nil || at.LSN < out.LSN || b.st.Mark().LSN < out.LSN {
				b.Errorf("refreshed to %d after a commit of %d: %v", at.LSN, out.LSN, err)
			}
		})
	}
	wg.Wait()
	newest := b.st.Mark().LSN
	require.Equal(b, before.LSN+4, newest)
	_, err = b.st.Refresh(b.ctx, newest+1)
	require.ErrorIs(b, err, store.ErrInvalid)
	require.ErrorContains(b, err, fmt.Sprint(newest), "it names the newest")
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	_, err = b.st.Refresh(ended, 0)
	require.ErrorIs(b, err, context.Canceled)
}

// number sets the index of a leaf, whose trace is its own. A store that gave one when it was appended must have given that.
func (b *bench) number(leaf *manifest.Record) {
	found, err := b.st.Audit().ByTrace(b.ctx, leaf.Trace)
	require.NoError(b, err)
	require.Len(b, found, 1)
	require.Contains(b, []uint64{0, found[0].Index}, leaf.Index)
	leaf.Index = found[0].Index
}

func checkQuestions(b *bench) {
	leaf := &manifest.Record{Type: manifest.TypeAssemble, Trace: "asked", Time: b.time().UnixMicro(), Scope: scope, Question: "what refunds are paid?"}
	mute := &manifest.Record{Type: manifest.TypeAssemble, Trace: "mute", Time: b.time().UnixMicro(), Scope: scope}
	require.NoError(b, b.st.Append(b.ctx, []*manifest.Record{leaf, mute}, store.Synced))
	b.number(leaf)
	b.number(mute)
	look := func() {
		log := b.st.Audit()
		kept, err := log.Leaf(b.ctx, leaf.Index)
		require.NoError(b, err)
		require.True(b, kept.QuestionKept)
		require.Empty(b, kept.Question, "a leaf has no text")
		require.Len(b, kept.Query, 32)
		body, err := log.Body(b.ctx, leaf.Index)
		require.NoError(b, err)
		require.NotContains(b, string(body), "refunds")
		text, err := log.Question(b.ctx, kept)
		require.NoError(b, err)
		require.Equal(b, "what refunds are paid?", text)
		none, err := log.Leaf(b.ctx, mute.Index)
		require.NoError(b, err)
		_, err = log.Question(b.ctx, none)
		require.ErrorIs(b, err, manifest.ErrNoQuestion)
		forged := *kept
		forged.Query = manifest.Digest(make([]byte, 32))
		_, err = log.Question(b.ctx, &forged)
		require.Error(b, err, "another leaf's question")
	}
	look()
	b.crash()
	look()
	_, err := b.st.Maintain(b.ctx, store.Job{Kind: store.JobCheckpoint}, nil)
	require.NoError(b, err)
	look()
}

func checkVectors(b *bench) {
	b.put("rule", "one")
	other := b.batch(b.fact("other", "two"))
	other.Scope = "acme/other"
	b.commit(other)
	l, err := b.st.Resolve(b.ctx, store.Scopes{"acme/other"}, store.Ref{ID: "other"})
	require.NoError(b, err)
	nums := []uint64{b.find("rule").Pages[0].Num, l.Pages[0].Num, 9999}
	lsn, leaves := b.st.Mark().LSN, b.leaves(b.st.Audit())
	require.NoError(b, b.st.PutVectors(b.ctx, "m", nums, [][]float32{{1, 0}, {0, 1}, {1, 1}}))
	got, err := b.st.Vectors(b.ctx, chain, "m", nums)
	require.NoError(b, err)
	require.Equal(b, [][]float32{{1, 0}, nil, nil}, got)
	got, err = b.st.Vectors(b.ctx, chain, "another", nums)
	require.NoError(b, err)
	require.Equal(b, [][]float32{nil, nil, nil}, got)
	require.Equal(b, lsn, b.st.Mark().LSN)
	require.Equal(b, leaves, b.leaves(b.st.Audit()))
}

func checkChanges(b *bench) {
	out := b.put("rule", "one")
	num := b.find("rule").Pages[0].Num
	b.put("rule", "two")
	ch, err := b.st.Changes(b.ctx, out.LSN, 0)
	require.NoError(b, err)
	require.Equal(b, b.st.Mark().LSN, ch.LSN)
	require.True(b, ch.All || slices.Contains(ch.Ended, num))
	none, err := b.st.Changes(b.ctx, ch.LSN, time.Millisecond)
	require.NoError(b, err)
	require.Equal(b, store.Changes{LSN: ch.LSN}, none)

	b.commit(b.state(toldRows+"a", "one"))
	newest := b.commit(b.state(toldRows+"a", "two"))
	b.commit(b.state("other", "row"))
	told, err := b.st.Changes(b.ctx, ch.LSN, 0)
	require.NoError(b, err)
	if !told.AllTold {
		require.Equal(b, []store.StateRow{{Key: toldRows + "a", Value: []byte("two"), LSN: newest.LSN}}, told.Told)
	}
	ch.LSN = told.LSN

	woken := make(chan store.Changes, 1)
	go func() {
		ch, _ := b.st.Changes(b.ctx, ch.LSN, time.Minute)
		woken <- ch
	}()
	b.put("rule", "three")
	require.Greater(b, (<-woken).LSN, ch.LSN)
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	_, err = b.st.Changes(ended, b.st.Mark().LSN, time.Minute)
	require.ErrorIs(b, err, context.Canceled)
}

func checkCrash(b *bench) {
	batch := b.batch(b.fact("rule", "zebra"))
	batch.State = []store.StateRow{{Key: "k", Value: []byte("v")}}
	out := b.commit(batch)
	held := b.hold(b.fact("answer", "perhaps"))
	leaves, lsn := b.leaves(b.st.Audit()), b.st.Mark().LSN
	for range 3 {
		b.crash()
		require.Equal(b, lsn, b.st.Mark().LSN)
		require.GreaterOrEqual(b, b.leaves(b.st.Audit()), leaves, "a crash may leave a leaf of its own")
		require.Equal(b, "zebra", b.text("rule"))
		require.Equal(b, []string{"rule"}, b.hits(b.ask("zebra")))
		v, err := b.st.State(b.ctx, "k")
		require.NoError(b, err)
		require.Equal(b, "v", string(v.Value))
		_, err = b.st.Held(b.ctx, held.ID)
		require.NoError(b, err)
		require.Equal(b, out, b.commit(batch))
	}
	require.Equal(b, lsn+1, b.put("next", "page").LSN, "LSNs go on")
	rep, err := b.st.Maintain(b.ctx, store.Job{Kind: store.JobCheckpoint}, nil)
	require.NoError(b, err)
	require.Equal(b, lsn+1, rep.Applied)
	b.crash()
	require.Equal(b, "page", b.text("next"))
}

func checkClosed(b *bench) {
	b.put("rule", "one")
	l := b.find("rule")
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	_, err := b.st.Load(ended, chain, l.Pages, store.WantText)
	require.ErrorIs(b, err, context.Canceled)
	batch := b.batch(b.fact("rule", "two"))
	require.NoError(b, b.st.Close())
	calls := map[string]func() error{
		"Resolve":    func() error { _, err := b.st.Resolve(b.ctx, chain, store.Ref{ID: "rule"}); return err },
		"Load":       func() error { _, err := b.st.Load(b.ctx, chain, l.Pages, store.WantText); return err },
		"Candidates": func() error { _, err := b.st.Candidates(b.ctx, b.ask("one")); return err },
		"Scan":       func() error { _, err := b.st.Scan(b.ctx, store.ScanQuery{Scopes: chain}); return err },
		"Commit":     func() error { _, err := b.st.Commit(b.ctx, batch); return err },
		"State":      func() error { _, err := b.st.State(b.ctx, "k"); return err },
		"Outcome":    func() error { _, err := b.st.Outcome(b.ctx, batch.ID); return err },
		"Refresh":    func() error { _, err := b.st.Refresh(b.ctx, 0); return err },
		"Hold":       func() error { _, err := b.st.Hold(b.ctx, store.Moment{}); return err },
		"Changes":    func() error { _, err := b.st.Changes(b.ctx, 0, 0); return err },
		"Held":       func() error { _, err := b.st.Held(b.ctx, batch.ID); return err },
		"Append": func() error {
			return b.st.Append(b.ctx, []*manifest.Record{{Type: manifest.TypeGet, Trace: "t"}}, store.Written)
		},
		"Maintain": func() error { _, err := b.st.Maintain(b.ctx, store.Job{Kind: store.JobCheckpoint}, nil); return err },
		"Head":     func() error { _, err := b.st.Head(b.ctx); return err },
		"Stat":     func() error { _, err := b.st.Stat(b.ctx); return err },
		"Vectors":  func() error { _, err := b.st.Vectors(b.ctx, chain, "m", []uint64{1}); return err },
		"PutVectors": func() error {
			return b.st.PutVectors(b.ctx, "m", []uint64{1}, [][]float32{{1}})
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, store.ErrClosed) {
			b.Errorf("%s after Close: got %v, expected ErrClosed", name, err)
		}
	}
	require.NoError(b, b.st.Close(), "closed twice")
	b.st.Release(0)
	b.st = b.db.Open(b)
	require.Equal(b, "one", b.text("rule"))
}

func checkJournal(b *bench) {
	write := func(name string, from, to int, needs string) {
		batch := b.batch()
		for n := from; n <= to; n++ {
			batch.State = append(batch.State, store.StateRow{Key: fmt.Sprint(journalRows, name, "/", n), Value: fmt.Append(nil, b.time().UnixMicro())})
		}
		batch.State = append(batch.State, store.StateRow{Key: journalHead(name), Value: []byte(needs)})
		b.commit(batch)
	}
	gc := func(kind store.JobKind, keepVersions int) int {
		b.Helper()
		rep, err := b.st.Maintain(b.ctx, store.Job{Kind: kind, GC: &store.GCJob{KeepFor: time.Hour, KeepVersions: keepVersions, By: "operator"}}, nil)
		require.NoError(b, err)
		return rep.GC.Journal
	}
	rows := func() []string { return b.scan(store.ScanQuery{What: store.ScanState, Prefix: journalRows}) }
	write("a", 1, 12, "3")
	write("b", 1, 2, "0")
	b.pass(2 * time.Hour)
	write("a", 13, 15, "3")
	write("b", 3, 3, "0")
	require.Zero(b, gc(store.JobGC, 20), "as many as KeepVersions stay")
	before := rows()
	require.Equal(b, 11, gc(store.JobGCPlan, 0))
	require.Equal(b, before, rows(), "a plan drops nothing")
	require.Equal(b, 11, gc(store.JobGC, 0))
	var want []string
	for _, r := range before { // the one that the head names, the one that was replaced lately, and the newest
		for _, stays := range []string{"a/3=", "a/12=", "a/13=", "a/14=", "a/15=", "b/2=", "b/3="} {
			if strings.HasPrefix(r, journalRows+stays) {
				want = append(want, r)
			}
		}
	}
	require.Equal(b, want, rows())
	require.Zero(b, gc(store.JobGC, 0))
	b.crash()
	require.Equal(b, want, rows())
	write("a", 16, 16, "0")
	b.pass(2 * time.Hour)
	require.Equal(b, 3+1, gc(store.JobGC, 0), "3, 12, 13 and 14")
}
