package storetest

import (
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// carried is a version of a fact as another database had it, a page for each text; salt tells its pages from others.
func (b *bench) carried(id string, version uint32, salt byte, texts ...string) store.Carried {
	put := b.fact(id, texts...)
	h := store.Head{
		Artefact: put.Artefact, Scope: scope, Version: version, PutAt: b.time().AddDate(-1, 0, int(version)), Actor: "writer elsewhere",
		Counter: "words", Art: 99, LSN: 99, GroupNum: 99,
	}
	for _, p := range put.Pages {
		p.Salt[2] = salt
		p.Digest = store.SaltedDigest(p.Salt[:], p.Text)
		h.Rows = append(h.Rows, store.PageRow{Num: 77, Version: version, LSN: 99, Tokens: uint32(p.Tokens), Bytes: uint32(len(p.Text)), Hash: p.Hash, Salt: p.Salt, Digest: p.Digest})
	}
	return store.Carried{Head: h, Texts: texts}
}

func (b *bench) carry(versions ...store.Carried) store.Batch {
	batch := b.batch()
	batch.Scope, batch.Carry = store.OperatorScope, versions
	return batch
}

// checkCarry writes what another database had: numbers, times, writers, salts and what is gone are kept.
func checkCarry(b *bench) {
	one := b.carried("rule", 1, 1, "okapi one")
	b.commit(b.carry(one, b.carried("other", 1, 9, "lemur")))
	l := b.find("rule")
	got := b.load(l)
	require.Equal(b, "okapi one", got.Text)
	require.Equal(b, []any{uint32(1), "writer elsewhere", b.st.Mark().LSN}, []any{got.Head.Version, got.Head.Actor, got.Head.LSN})
	require.True(b, one.Head.PutAt.Equal(got.Head.PutAt))
	require.Equal(b, one.Head.Rows[0].Salt, got.Head.Rows[0].Salt)
	require.Equal(b, one.Head.Rows[0].Digest, got.Head.Rows[0].Digest)

	two := b.carried("rule", 2, 2, "okapi one", "okapi two")
	two.Head.Rows[0] = one.Head.Rows[0] // the page goes on
	two.Texts[0] = ""
	b.commit(b.carry(two))
	require.Equal(b, l.Pages[0].Num, b.find("rule").Pages[0].Num)
	require.Equal(b, []string{"rule"}, b.hits(b.ask("okapi"))[:1])

	lsn := b.st.Mark().LSN
	for name, bad := range map[string]store.Carried{"again": two, "a gap": b.carried("rule", 4, 4, "x"), "not from 1": b.carried("new", 2, 4, "x")} {
		_, err := b.st.Commit(b.ctx, b.carry(bad))
		require.ErrorIs(b, err, store.ErrConflict, name)
	}
	wrong := b.carried("rule", 3, 3, "okapi three")
	wrong.Texts[0] = "okapi tree"
	gone := b.carried("lost", 1, 1, "x")
	gone.Head.Gone, gone.Texts = true, nil
	beside := b.carry(one)
	beside.Puts = append(beside.Puts, b.fact("more", "x"))
	hold := b.carry(b.carried("kept", 1, 1, "x"))
	hold.Action = store.ActHold
	for name, bad := range map[string]store.Batch{"another text": b.carry(wrong), "gone alone": b.carry(gone), "beside a put": beside, "held": hold} {
		_, err := b.st.Commit(b.ctx, bad)
		require.ErrorIs(b, err, store.ErrInvalid, name)
	}
	b.absent("lost")
	require.Equal(b, lsn, b.st.Mark().LSN, "a refused batch is no commit")
	require.EqualValues(b, 2, b.find("rule").Version)

	end := b.carried("rule", 3, 3)
	end.Head.Deleted = true
	b.commit(b.carry(end))
	b.absent("rule")
	b.crash()
	b.absent("rule")
	require.Equal(b, []string{"rule@3", "rule@2", "rule@1"}, b.scan(store.ScanQuery{What: store.ScanHistory, Scopes: chain[:1], ID: "rule"}))
	b.put("rule", "okapi again")
	require.EqualValues(b, 4, b.find("rule").Version)
}

// checkCarryGone carries versions without content: below a floor, dropped, erased.
func checkCarryGone(b *bench) {
	floor := b.carried("rule", 3, 3, "okapi three")
	floor.Head.Gone, floor.Head.Floor, floor.Head.GoneBy, floor.Texts = true, true, "run", nil
	dropped := b.carried("rule", 4, 4, "okapi four")
	dropped.Head.Gone, dropped.Head.GoneBy, dropped.Texts = true, "run", nil
	live := b.carried("rule", 5, 5, "okapi four")
	live.Head.Rows = dropped.Head.Rows
	erased := b.carried("person", 1, 1)
	erased.Head.Gone, erased.Head.GoneBy, erased.Head.ErasedBy = true, "run", "operator"
	end := b.carried("person", 2, 2)
	end.Head.Deleted, end.Head.GoneBy, end.Head.ErasedBy = true, "run", "operator"
	b.commit(b.carry(floor, dropped, live, erased, end))
	look := func() {
		b.Helper()
		require.EqualValues(b, 5, b.find("rule").Version)
		require.Equal(b, "okapi four", b.text("rule"))
		require.Equal(b, []string{"rule"}, b.hits(b.ask("okapi")))
		for v := uint32(1); v < 5; v++ {
			_, err := b.st.Resolve(b.ctx, chain, store.Ref{ID: "rule", Version: v})
			require.True(b, errors.Is(err, store.ErrGone) && !errors.Is(err, store.ErrErased), "version %d: %v", v, err)
		}
		_, err := b.st.Resolve(b.ctx, chain, store.Ref{ID: "person", Version: 1})
		require.ErrorIs(b, err, store.ErrErased)
		b.absent("person")
	}
	look()
	b.crash()
	look()
	b.put("rule", "okapi six")
	require.EqualValues(b, 6, b.find("rule").Version)
	b.put("person", "okapi again")
	require.EqualValues(b, 3, b.find("person").Version)
}

// checkCarryHold stores held batches of another database, one that waits and one that was decided.
func checkCarryHold(b *bench) {
	waits := b.batch(b.fact("answer", "okapi"))
	waits.Action, waits.Reason, waits.Now = store.ActHold, "confidence 0.4", b.time().Add(-time.Hour)
	waits.Expect = []store.Precondition{{Ref: store.Ref{Scope: scope, ID: "answer"}, LSN: store.LsnElsewhere}}
	waits.Hold = &store.CarriedHold{Stale: []store.Ref{{Scope: scope, ID: "rule", Page: 1, Version: 1}}}
	decided := b.batch(b.fact("other", "lemur"))
	decided.Action, decided.Reason = store.ActHold, "no verdict"
	decided.Hold = &store.CarriedHold{Decided: "rejected", By: "ann", Note: "no"}
	b.commit(waits)
	b.commit(decided)
	look := func() {
		b.Helper()
		got, err := b.st.Held(b.ctx, waits.ID)
		require.NoError(b, err)
		require.Equal(b, []any{"confidence 0.4", "", 1}, []any{got.Reason, got.Decided, len(got.Stale)})
		require.True(b, waits.Now.Equal(got.At))
		got, err = b.st.Held(b.ctx, decided.ID)
		require.NoError(b, err)
		require.Equal(b, []string{"rejected", "ann", "no"}, []string{got.Decided, got.By, got.Note})
		st, err := b.st.Stat(b.ctx)
		require.NoError(b, err)
		require.Equal(b, 1, st.Held)
	}
	look()
	b.crash()
	look()
	_, err := b.st.Commit(b.ctx, store.Batch{ID: b.id(), From: waits.ID, Scope: scope, Actor: "ann", Now: b.time(), Action: store.ActApprove})
	require.ErrorIs(b, err, store.ErrConflict, "it conflicts, as it did where it was held")
	bare := b.batch(b.fact("more", "x"))
	bare.Hold = &store.CarriedHold{}
	_, err = b.st.Commit(b.ctx, bare)
	require.ErrorIs(b, err, store.ErrInvalid)
}
