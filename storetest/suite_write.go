package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

var writing = []clause{
	{"Commit", "a commit that was answered is seen by every read, whole, under its LSN", checkCommit},
	{"SameID", "the same batch under the same id has the outcome it had, and is applied once", checkSameID},
	{"IDBound", "an id stands for its batch: another batch under it is refused and writes nothing", checkIDBound},
	{"IDExpired", "an id older than outcomes are kept is refused", checkIDExpired},
	{"Conflict", "a batch that expects another LSN is refused whole, and its id stays free", checkConflict},
	{"LostUpdate", "of writers who read the same version, one commits and the others conflict", checkLostUpdate},
	{"Repeat", "a put that says what stands makes no version and is named in Repeats", checkRepeat},
	{"SourceHost", "a version keeps the host that read its file, and the put of another host repeats nothing", checkSourceHost},
	{"Delete", "a deleted artefact is not found, keeps its history, and goes on counting when it is put again", checkDelete},
	{"State", "state rows travel with their batch: all or nothing, and nil deletes; a batch to hold has none", checkState},
	{"ExpectState", "a state row tells the LSN of its last change, and a batch that expects another one is refused whole", checkExpectState},
	{"LostState", "of writers who read the same state row, one commits and the others conflict", checkLostState},
	{"Carry", "versions that another database had keep their numbers, times, writers and digests, and continue what is here or conflict", checkCarry},
	{"CarryGone", "what was dropped or erased in another database stays so, and its numbers are taken", checkCarryGone},
	{"CarryHold", "a batch that was held in another database waits here, or is decided, as it was there", checkCarryHold},
	{"Ownership", "no memory is shared: changing what was given, or what came back, changes nothing stored", checkOwnership},
}

func checkCommit(b *bench) {
	before := b.st.Mark().LSN
	p := b.fact("rule", "the first page", "the second page")
	p.Artefact.Tags, p.Artefact.Meta = []string{"law"}, map[string]string{"by": "me"}
	out := b.commit(b.batch(p))
	require.Equal(b, store.StatusApplied, out.Status)
	require.Equal(b, before+1, out.LSN)
	require.Equal(b, out.LSN, b.st.Mark().LSN)
	require.Equal(b, []store.Ref{{Scope: scope, ID: "rule", Version: 1}}, out.Refs)

	l := b.find("rule")
	require.Equal(b, scope, l.Scope)
	require.True(b, l.Current)
	require.Equal(b, out.LSN, l.LSN)
	require.Len(b, l.Pages, 2)
	got, err := b.st.Load(b.ctx, chain, l.Pages, store.WantText)
	require.NoError(b, err)
	for i, want := range []string{"the first page", "the second page"} {
		require.NoError(b, got[i].Err)
		require.Equal(b, want, got[i].Text)
		require.Equal(b, i+1, got[i].Page)
		require.Equal(b, l.Pages[i], got[i].Key)
	}
	h := got[0].Head
	require.Equal(b, []string{"law"}, h.Tags)
	require.Equal(b, map[string]string{"by": "me"}, h.Meta)
	require.Equal(b, "writer", h.Actor)
	require.True(b, h.PutAt.Equal(b.time()))
	head, err := b.st.Load(b.ctx, chain, l.Pages[:1], store.WantHead)
	require.NoError(b, err)
	require.Empty(b, head[0].Text)
}

func checkSameID(b *bench) {
	batch := b.batch(b.fact("rule", "one"))
	first := b.commit(batch)
	b.put("rule", "two")
	require.Equal(b, first, b.commit(batch))
	require.Equal(b, "two", b.text("rule"), "it was applied again")
	b.crash()
	require.Equal(b, first, b.commit(batch))

	again := b.batch(b.fact("race", "one"))
	lsns := make([]uint64, 8)
	var wg sync.WaitGroup
	for i := range lsns {
		wg.Go(func() {
			out, err := b.st.Commit(b.ctx, again)
			if err == nil {
				lsns[i] = out.LSN
			}
		})
	}
	wg.Wait()
	for _, lsn := range lsns {
		require.Equal(b, b.st.Mark().LSN, lsn)
	}
}

func checkIDBound(b *bench) {
	batch := b.batch(b.fact("rule", "one"))
	first := b.commit(batch)
	other := b.batch(b.fact("rule", "two"))
	other.ID = batch.ID
	_, err := b.st.Commit(b.ctx, other)
	require.ErrorIs(b, err, store.ErrInvalid)
	require.Equal(b, "one", b.text("rule"))
	require.Equal(b, first.LSN, b.st.Mark().LSN)
}

func checkIDExpired(b *bench) {
	batch := b.batch(b.fact("rule", "one"))
	b.pass(8 * 24 * time.Hour)
	batch.Now = b.time()
	_, err := b.st.Commit(b.ctx, batch)
	require.ErrorIs(b, err, store.ErrTxnExpired)
	ahead := b.batch(b.fact("rule", "one"))
	ahead.Now = b.time().Add(-24 * time.Hour)
	_, err = b.st.Commit(b.ctx, ahead)
	require.ErrorIs(b, err, store.ErrInvalid)
	b.absent("rule")
}

func checkConflict(b *bench) {
	first := b.put("rule", "one")
	second := b.put("rule", "two")
	batch := b.batch(b.fact("rule", "three"), b.fact("other", "beside it"))
	ref := store.Ref{Scope: scope, ID: "rule"}
	batch.Expect = []store.Precondition{{Ref: ref, LSN: first.LSN}}
	_, err := b.st.Commit(b.ctx, batch)
	var conflict *store.ConflictError
	require.ErrorAs(b, err, &conflict)
	require.ErrorIs(b, err, store.ErrConflict)
	require.Equal(b, store.ConflictError{Ref: ref, Have: first.LSN, Now: second.LSN}, *conflict)
	require.Equal(b, "two", b.text("rule"))
	b.absent("other")
	require.Equal(b, second.LSN, b.st.Mark().LSN)

	batch.Expect[0].LSN = second.LSN
	b.commit(batch)
	require.Equal(b, "three", b.text("rule"))
	absent := b.batch(b.fact("other", "new"))
	absent.Expect = []store.Precondition{{Ref: store.Ref{Scope: scope, ID: "other"}}}
	_, err = b.st.Commit(b.ctx, absent)
	require.ErrorIs(b, err, store.ErrConflict, "0 means absent")
}

func checkLostUpdate(b *bench) {
	const writers, rounds = 6, 10
	b.put("counter", "0")
	for round := 1; round <= rounds; round++ {
		was := b.find("counter")
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for w := range writers { // all read the same version before the first of them writes
			batch := b.batch(b.fact("counter", fmt.Sprintf("%d by %d", round, w)))
			batch.Expect = []store.Precondition{{Ref: store.Ref{Scope: scope, ID: "counter"}, LSN: was.LSN}}
			wg.Go(func() { _, errs[w] = b.st.Commit(b.ctx, batch) })
		}
		wg.Wait()
		winner := slices.Index(errs, nil)
		require.GreaterOrEqual(b, winner, 0, "nobody got through: %v", errs)
		for w, err := range errs {
			if w != winner {
				require.ErrorIs(b, err, store.ErrConflict, "an update was lost")
			}
		}
		require.Equal(b, fmt.Sprintf("%d by %d", round, winner), b.text("counter"))
		require.Equal(b, was.Version+1, b.find("counter").Version)
	}
}

func checkSourceHost(b *bench) {
	from := func(stamp, host string) store.Put {
		p := b.fact("rule", "the text of a file")
		p.Artefact.Source = "file:/rules/one.md"
		p.Source = store.Validator{Stamp: format.StampOf(stamp, host), Hash: store.ContentHash("the text of a file"), At: b.time()}
		return p
	}
	for n, c := range []struct {
		stamp, host string
		repeats     bool
	}{{"1/2/3/4", "", false}, {"1/2/3/5", "", true}, {"1/2/3/5", "a", false}, {"1/2/3/6", "a", true}, {"1/2/3/6", "b", false}} {
		out := b.commit(b.batch(from(c.stamp, c.host)))
		require.Equal(b, c.repeats, len(out.Repeats) == 1, n)
		h := b.load(b.find("rule")).Head
		require.Equal(b, c.host, format.SourceHost(h), n)
	}
	b.crash()
	require.Equal(b, "b", format.SourceHost(b.load(b.find("rule")).Head))
	web := b.fact("web", "words")
	web.Artefact.Source, web.Source = "http://rules/one", store.Validator{Stamp: format.StampOf("etag x", "a"), Hash: 1}
	b.commit(b.batch(web))
	require.Empty(b, format.SourceHost(b.load(b.find("web")).Head), "a file alone has a host")
}

func checkRepeat(b *bench) {
	b.put("rule", "one")
	was := b.find("rule")
	out := b.put("rule", "one")
	require.Equal(b, []store.Ref{{Scope: scope, ID: "rule", Version: 1}}, out.Repeats)
	require.Equal(b, was, b.find("rule"))
	p := b.fact("rule", "one")
	p.Artefact.Tags = []string{"law"}
	require.Empty(b, b.commit(b.batch(p)).Repeats)
	is := b.find("rule")
	require.Equal(b, uint32(2), is.Version)
	require.Equal(b, was.Pages[0].Num, is.Pages[0].Num, "a page that says the same goes on under its number")
}

func checkDelete(b *bench) {
	up := b.batch(b.fact("rule", "of the parent"))
	up.Scope = "acme"
	b.commit(up)
	b.put("rule", "of the child")
	require.Equal(b, "of the child", b.text("rule"))
	del := b.batch()
	del.Deletes = []string{"rule", "never there"}
	out := b.commit(del)
	require.Equal(b, []store.Ref{{Scope: scope, ID: "rule", Version: 2}}, out.Refs)
	require.Equal(b, "of the parent", b.text("rule"), "an ancestor's stands")
	_, err := b.st.Resolve(b.ctx, chain, store.Ref{Scope: scope, ID: "rule"})
	require.ErrorIs(b, err, store.ErrNotFound)
	old, err := b.st.Resolve(b.ctx, chain, store.Ref{Scope: scope, ID: "rule", Version: 1})
	require.NoError(b, err)
	require.False(b, old.Current)
	require.Equal(b, "of the child", b.load(old).Text)
	b.put("rule", "again")
	require.Equal(b, uint32(3), b.find("rule").Version)
}

func checkState(b *bench) {
	set := func(key, value string) store.Batch {
		batch := b.batch()
		if batch.State = []store.StateRow{{Key: key}}; value != "" {
			batch.State[0].Value = []byte(value)
		}
		return batch
	}
	row := func(key string) string {
		v, err := b.st.State(b.ctx, key)
		require.NoError(b, err)
		return string(v.Value)
	}
	b.commit(set("k", "one"))
	require.Equal(b, "one", row("k"))
	refused := set("k", "two")
	refused.Expect = []store.Precondition{{Ref: store.Ref{Scope: scope, ID: "none"}, LSN: 7}}
	_, err := b.st.Commit(b.ctx, refused)
	require.ErrorIs(b, err, store.ErrConflict)
	require.Equal(b, "one", row("k"))
	held := set("k", "held")
	held.Action, held.Reason = store.ActHold, "look at it"
	_, err = b.st.Commit(b.ctx, held)
	require.ErrorIs(b, err, store.ErrInvalid, "a held batch has no rows of state: no reviewer would see what they do")
	require.Equal(b, "one", row("k"))
	b.crash()
	require.Equal(b, "one", row("k"))
	b.commit(set("k", ""))
	v, err := b.st.State(b.ctx, "k")
	require.NoError(b, err)
	require.Equal(b, store.StateRow{Key: "k"}, v)
}

// state makes a batch that sets a state row, "" deletes it, expecting LSNs.
func (b *bench) state(key, value string, expect ...store.StatePre) store.Batch {
	batch := b.batch()
	if batch.State = []store.StateRow{{Key: key}}; value != "" {
		batch.State[0].Value = []byte(value)
	}
	batch.ExpectState = expect
	return batch
}

func (b *bench) row(key string) store.StateRow {
	b.Helper()
	row, err := b.st.State(b.ctx, key)
	require.NoError(b, err)
	return row
}

func checkExpectState(b *bench) {
	require.Zero(b, b.row("k").LSN, "0 means absent")
	first := b.commit(b.state("k", "one", store.StatePre{Key: "k"}))
	require.Equal(b, store.StateRow{Key: "k", Value: []byte("one"), LSN: first.LSN}, b.row("k"))
	second := b.commit(b.state("k", "one"))
	require.Equal(b, second.LSN, b.row("k").LSN, "the same value again is a change")
	other := b.commit(b.state("other", "row"))
	require.Equal(b, second.LSN, b.row("k").LSN)

	refused := b.state("k", "lost", store.StatePre{Key: "k", LSN: first.LSN})
	refused.Puts = []store.Put{b.fact("beside", "it")}
	_, err := b.st.Commit(b.ctx, refused)
	var conflict *store.ConflictError
	require.ErrorAs(b, err, &conflict)
	require.ErrorIs(b, err, store.ErrConflict)
	require.Equal(b, store.ConflictError{Key: "k", Have: first.LSN, Now: second.LSN}, *conflict)
	require.Equal(b, "one", string(b.row("k").Value))
	b.absent("beside")
	_, err = b.st.Commit(b.ctx, b.state("new", "row", store.StatePre{Key: "k"}))
	require.ErrorIs(b, err, store.ErrConflict, "a row that is there is not absent")
	_, err = b.st.Commit(b.ctx, b.state("new", "row", store.StatePre{Key: "none", LSN: first.LSN}))
	require.ErrorIs(b, err, store.ErrConflict, "a row that is absent has no LSN")

	b.crash()
	require.Equal(b, store.StateRow{Key: "k", Value: []byte("one"), LSN: second.LSN}, b.row("k"), "the LSN survives")
	_, err = b.st.Maintain(b.ctx, store.Job{Kind: store.JobCheckpoint}, nil)
	require.NoError(b, err)
	page, err := b.st.Scan(b.ctx, store.ScanQuery{What: store.ScanState, Prefix: "other"})
	require.NoError(b, err)
	require.Equal(b, []store.StateRow{{Key: "other", Value: []byte("row"), LSN: other.LSN}}, page.State)
	third := b.commit(b.state("k", "", store.StatePre{Key: "k", LSN: second.LSN}, store.StatePre{Key: "other", LSN: other.LSN}))
	require.Zero(b, b.row("k").LSN, "deleted is absent")
	require.Greater(b, b.commit(b.state("k", "anew", store.StatePre{Key: "k"})).LSN, third.LSN)
}

func checkLostState(b *bench) {
	const writers, rounds = 6, 10
	b.commit(b.state("counter", "0"))
	for round := 1; round <= rounds; round++ {
		was := b.row("counter")
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for w := range writers { // all read the same row before the first of them writes
			batch := b.state("counter", fmt.Sprintf("%d by %d", round, w), store.StatePre{Key: "counter", LSN: was.LSN})
			wg.Go(func() { _, errs[w] = b.st.Commit(b.ctx, batch) })
		}
		wg.Wait()
		winner := slices.Index(errs, nil)
		require.GreaterOrEqual(b, winner, 0, "nobody got through: %v", errs)
		for w, err := range errs {
			if w != winner {
				require.ErrorIs(b, err, store.ErrConflict, "an update was lost")
			}
		}
		require.Equal(b, fmt.Sprintf("%d by %d", round, winner), string(b.row("counter").Value))
		if round == rounds/2 {
			_, err := b.st.Maintain(b.ctx, store.Job{Kind: store.JobCheckpoint}, nil)
			require.NoError(b, err)
		}
	}
}

func checkOwnership(b *bench) {
	p := b.fact("rule", "one")
	p.Artefact.Tags = []string{"law"}
	value := []byte("row")
	batch := b.batch(p)
	batch.State = []store.StateRow{{Key: "k", Value: value}}
	b.commit(batch)
	p.Artefact.Tags[0], value[0] = "XXX", 'X'
	require.NotPanics(b, func() { b.load(b.find("rule")).Head.Tags[0] = "YYY" })
	got, err := b.st.State(b.ctx, "k")
	require.NoError(b, err)
	got.Value[0] = 'Y'
	require.Equal(b, []string{"law"}, b.load(b.find("rule")).Head.Tags)
	got, err = b.st.State(b.ctx, "k")
	require.NoError(b, err)
	require.Equal(b, "row", string(got.Value))
}
