package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// checkErase erases what has two versions, is the parent of another artefact, and is held by a reader.
func checkErase(b *bench) {
	secret := b.fact("secret", "okapi one")
	secret.Artefact.Subject, secret.Artefact.Tags, secret.Artefact.Meta = "ann", []string{"private"}, map[string]string{"phone": "123"}
	b.commit(b.batch(secret))
	child := b.fact("child", "made of it")
	child.Artefact.DerivedFrom = []store.Ref{{Scope: scope, ID: "secret", Version: 1}}
	b.commit(b.batch(child))
	b.put("secret", "okapi two")
	b.put("other", "lemur")
	held := b.hold(b.fact("answer", "from it"))
	b.commit(b.state("row", "v"))
	b.commit(b.state("kept", "v"))
	asked := &manifest.Record{Type: manifest.TypeAssemble, Trace: "asked", Time: b.time().UnixMicro(), Scope: scope, Question: "who is ann?"}
	require.NoError(b, b.st.Append(b.ctx, []*manifest.Record{asked}, store.Synced))
	b.number(asked)
	num := b.find("secret").Pages[0].Num
	ticket := b.keep()
	defer b.st.Release(ticket)

	job := &store.EraseJob{
		Refs: []store.Ref{{Scope: scope, ID: "secret"}, {Scope: scope, ID: "never there"}}, Held: []ulid.ULID{held.ID}, Questions: []uint64{asked.Index},
		State: []store.StateRow{{Key: "row"}, {Key: "kept", Value: []byte("other"), LSN: b.row("kept").LSN}}, By: "operator", Reason: "asked by the person",
	}
	stale := *job
	stale.State = []store.StateRow{{Key: "row", LSN: 1}}
	_, err := b.st.Maintain(b.ctx, store.Job{Kind: store.JobErase, Erase: &stale}, nil)
	require.ErrorIs(b, err, store.ErrConflict)
	require.Equal(b, "okapi two", b.text("secret"))
	done, err := b.st.Maintain(b.ctx, store.Job{Kind: store.JobErase, Erase: job}, nil)
	require.NoError(b, err)
	rep := done.Erase
	require.Equal(b, []int{1, 2, 2, 1, 1, 2}, []int{rep.Artefacts, rep.Versions, rep.Pages, rep.Held, rep.Questions, rep.State})
	require.EqualValues(b, len("okapi one")+len("okapi two"), rep.Bytes)

	b.erased(job, &rep, num, asked)
	b.crash()
	b.erased(job, &rep, num, asked)
	done, err = b.st.Maintain(b.ctx, store.Job{Kind: store.JobErase, Erase: &store.EraseJob{Refs: job.Refs, By: "operator", Reason: "again"}}, nil)
	require.NoError(b, err)
	require.Zero(b, done.Erase.Artefacts, "it was erased before")
	b.put("secret", "okapi again")
	require.EqualValues(b, 4, b.find("secret").Version)
	require.Equal(b, []string{"secret"}, b.hits(b.ask("okapi")))
}

// checkEraseBound puts names again while an erase of many artefacts runs: one that is erased by then, one that is not, and one
// with the text that it has. A store that erases in one commit reports its progress when it has.
func checkEraseBound(b *bench) {
	const n = 300
	job := &store.EraseJob{By: "operator", Reason: "asked by the person", State: []store.StateRow{{Key: "row"}}}
	batch := b.batch()
	for i := range n {
		id := fmt.Sprint("k", i)
		batch.Puts = append(batch.Puts, b.fact(id, "okapi "+id))
		job.Refs = append(job.Refs, store.Ref{Scope: scope, ID: id})
	}
	b.commit(batch)
	b.commit(b.state("row", "before"))
	texts := map[string]string{"k0": "zebra", "k299": "lemur", "k298": "okapi k298"}
	again := func(what string, done, _ uint64) {
		if what != "erase" || done != 1 {
			return
		}
		for id, text := range texts {
			b.put(id, text)
		}
		b.commit(b.state("row", "after"))
	}
	_, err := b.st.Maintain(b.ctx, store.Job{Kind: store.JobErase, Erase: job}, again)
	require.NoError(b, err)
	look := func() {
		for id, text := range texts {
			require.Equal(b, text, b.text(id))
		}
		b.absent("k1")
		b.absent("k297")
		_, err := b.st.Resolve(b.ctx, chain, store.Ref{ID: "k299", Version: 1})
		require.ErrorIs(b, err, store.ErrErased)
		require.Equal(b, "after", string(b.row("row").Value))
	}
	look()
	b.crash()
	look()
	_, err = b.st.Commit(b.ctx, b.state(format.EraseRows+b.id().String(), "{}"))
	require.ErrorIs(b, err, store.ErrInvalid)
}

// erased looks at what an erase left.
func (b *bench) erased(job *store.EraseJob, rep *store.EraseReport, num uint64, asked *manifest.Record) {
	b.Helper()
	b.absent("secret")
	for v := uint32(1); v < 3; v++ {
		_, err := b.st.Resolve(b.ctx, chain, store.Ref{ID: "secret", Version: v})
		require.ErrorIs(b, err, store.ErrErased)
		require.ErrorContains(b, err, rep.Trace)
		require.ErrorContains(b, err, "by operator")
	}
	got, err := b.st.Load(b.ctx, chain, []store.PageKey{{Num: num, Version: 2}}, store.WantText)
	require.NoError(b, err)
	require.ErrorIs(b, got[0].Err, store.ErrErased)
	require.Empty(b, got[0].Text)
	page, err := b.st.Scan(b.ctx, store.ScanQuery{What: store.ScanHistory, Scopes: chain[:1], ID: "secret"})
	require.NoError(b, err)
	require.Len(b, page.Heads, 3)
	for _, h := range page.Heads {
		require.Equal(b, "operator", h.ErasedBy)
		require.Empty(b, h.Subject+h.Name+h.Artefact.Source+h.Group)
		require.Empty(b, h.Tags)
		require.Empty(b, h.Meta)
		require.False(b, slices.ContainsFunc(h.Rows, func(r store.PageRow) bool {
			return r.Bytes+r.Tokens != 0 || r.Hash != 0 || r.Salt != [store.DigestSaltSize]byte{} || r.Digest != [32]byte{}
		}))
	}
	require.Empty(b, b.hits(b.ask("okapi")))
	require.Equal(b, "lemur", b.text("other"))
	require.Equal(b, "made of it", b.text("child"))
	_, err = b.st.Held(b.ctx, job.Held[0])
	require.ErrorIs(b, err, store.ErrNotFound)
	require.Zero(b, b.row("row").LSN)
	require.Equal(b, "other", string(b.row("kept").Value))
	_, err = b.st.Audit().Question(b.ctx, asked)
	require.ErrorIs(b, err, manifest.ErrNoQuestion)
	leaf, err := b.st.Audit().Leaf(b.ctx, rep.Leaf)
	require.NoError(b, err)
	require.Equal(b, []string{"erase", "operator", "asked by the person", rep.Trace}, []string{leaf.Type.String(), leaf.By, leaf.Reason, leaf.Parent})
}

// checkGCScopes lets two scopes keep versions for different times, and drops a decided batch that still is young.
func checkGCScopes(b *bench) {
	for _, text := range []string{"zebra", "okapi"} {
		for _, at := range []string{"acme", scope, "other"} {
			batch := b.batch(b.fact("rule", text))
			batch.Scope = at
			b.commit(batch)
		}
		b.pass(time.Hour)
	}
	waits, decided := b.hold(b.fact("a", "held")), b.hold(b.fact("b", "held"))
	b.commit(b.review(store.ActReject, decided.ID))
	job := &store.GCJob{KeepRecords: 4, KeepNames: 100, By: "operator", Why: "policy", Scopes: map[string]store.GCKeep{"acme": {For: time.Minute}, scope: {For: 24 * time.Hour}}}
	for _, kind := range []store.JobKind{store.JobGCPlan, store.JobGC} {
		rep, err := b.st.Maintain(b.ctx, store.Job{Kind: kind, GC: job}, nil)
		require.NoError(b, err)
		require.Equal(b, []store.Ref{{Scope: "acme", ID: "rule", Version: 1}}, rep.GC.Refs)
		require.Zero(b, rep.GC.Reviews)
	}
	for at, want := range map[string]error{"acme": store.ErrGone, scope: nil, "other": nil} {
		_, err := b.st.Resolve(b.ctx, store.Scopes{at}, store.Ref{Scope: at, ID: "rule", Version: 1})
		require.ErrorIs(b, err, want, at)
	}
	reviews := &store.GCJob{By: "operator", Reviews: []ulid.ULID{waits.ID, decided.ID}}
	rep, err := b.st.Maintain(b.ctx, store.Job{Kind: store.JobGC, GC: reviews}, nil)
	require.NoError(b, err)
	require.Equal(b, 1, rep.GC.Reviews)
	_, err = b.st.Held(b.ctx, decided.ID)
	require.ErrorIs(b, err, store.ErrNotFound)
	_, err = b.st.Held(b.ctx, waits.ID)
	require.NoError(b, err)
}
