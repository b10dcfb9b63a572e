package storetest

import (
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// embed stores a vector by the model m for the first page of an artefact.
func (b *bench) embed(id string, v ...float32) {
	b.Helper()
	require.NoError(b, b.st.PutVectors(b.ctx, "m", []uint64{b.find(id).Pages[0].Num}, [][]float32{v}))
}

// nearest are the ids of the candidates that a question by vector found, in the order they were written, and the candidates.
func (b *bench) nearest(q store.CandidateQuery, k int, v ...float32) (ids []string, all map[string]store.Candidate) {
	b.Helper()
	q.Near = &store.Near{Model: "m", Vector: v, K: k}
	out, err := b.st.Candidates(b.ctx, q)
	require.NoError(b, err)
	ids, all = []string{}, map[string]store.Candidate{}
	for _, c := range out.Hits {
		all[c.Ref.ID] = c
		if c.Near {
			ids = append(ids, c.Ref.ID)
		}
	}
	return ids, all
}

func checkNear(b *bench) {
	b.put("peanuts", "Allergic to peanuts")
	b.put("milk", "No milk please")
	b.put("train", "The train leaves at nine")
	b.put("blank", "Nothing of it")
	other := b.batch(b.fact("elsewhere", "of another tenant"))
	other.Scope = "acme/other"
	b.commit(other)
	b.embed("peanuts", 1, .1, 0)
	b.embed("milk", .7, .7, 0)
	b.embed("train", 0, .1, 1)
	b.embed("blank", 0, 0, 0)
	l, err := b.st.Resolve(b.ctx, store.Scopes{"acme/other"}, store.Ref{ID: "elsewhere"})
	require.NoError(b, err)
	require.NoError(b, b.st.PutVectors(b.ctx, "m", []uint64{l.Pages[0].Num}, [][]float32{{1, 0, 0}}))

	ids, all := b.nearest(b.ask("food"), 2, 1, 0, 0)
	require.Equal(b, []string{"peanuts", "milk"}, ids, "no word of the question stands in them")
	require.InDelta(b, .995, *all["peanuts"].Cosine, .002)
	require.InDelta(b, .707, *all["milk"].Cosine, .004)
	ids, all = b.nearest(b.ask("train"), 1, 1, 0, 0)
	require.Equal(b, []string{"peanuts"}, ids)
	require.InDelta(b, 0, *all["train"].Cosine, .01, "what words found has a cosine too")
	require.False(b, all["train"].Near)
	require.Positive(b, all["train"].Lexical.Score)
	ids, _ = b.nearest(b.ask(), 9, 1, 0, 0)
	require.Equal(b, []string{"peanuts", "milk"}, ids, "a vector that points elsewhere is not near, and one of zeros points nowhere")
	ids, _ = b.nearest(b.ask(), 9, 1, 0)
	require.Empty(b, ids, "vectors of another length")

	b.embed("milk", 0, 0, -1)
	ids, _ = b.nearest(b.ask(), 1, .6, .8, 0)
	require.Equal(b, []string{"peanuts"}, ids, "a new vector takes the place of the old one")
	b.embed("milk", 1, 1)
	ids, _ = b.nearest(b.ask(), 9, 1, 1)
	require.Equal(b, []string{"milk"}, ids, "also one of another length")
	ids, _ = b.nearest(b.ask(), 9, 1, 0, 0)
	require.Equal(b, []string{"peanuts"}, ids)
}

// checkBeside: turns lend their cosines to those beside them, of one group alone.
func checkBeside(b *bench) {
	batch := b.batch()
	for i, id := range []string{"t0", "t1", "t2", "t3", "alone"} {
		p := b.fact(id, "turn "+id)
		if p.Artefact.Seq = int64(i); id != "alone" {
			p.Artefact.Group = "talk"
		}
		batch.Puts = append(batch.Puts, p)
	}
	b.commit(batch)
	b.embed("t0", 1, 0)
	b.embed("t1", 0, 1)
	b.embed("t2", 0, 1)
	b.embed("alone", 0, 1)
	_, all := b.nearest(b.ask("turn"), 9, 1, 0)
	require.InDelta(b, format.LendNext, all["t1"].Beside, .01)
	require.InDelta(b, format.LendAfter, all["t2"].Beside, .01)
	require.Zero(b, all["t0"].Beside)
	require.Zero(b, all["t3"].Beside, "three places away")
	require.Nil(b, all["t3"].Cosine)
	require.Zero(b, all["alone"].Beside)
}

// What a rule excludes is not found by its vector either, and takes no place of what is found.
func checkNearRules(b *bench) {
	expires := b.fact("expires", "for a while")
	expires.Artefact.ExpiresAt = b.time().Add(time.Minute)
	scratch := b.fact("scratch", "a note")
	scratch.Artefact.Provenance = store.Scratch
	tagged := b.fact("tagged", "with a tag")
	tagged.Artefact.Tags = []string{"red"}
	b.commit(b.batch(expires, scratch, tagged, b.fact("first", "one"), b.fact("gone", "two")))
	past := b.st.Mark().LSN
	b.embed("expires", 1, 0)
	b.embed("scratch", 1, .01)
	b.embed("gone", 1, .02)
	b.embed("first", 1, .1)
	b.embed("tagged", 1, 1)
	ask := b.ask()
	ask.Floor = store.Tool
	ids, _ := b.nearest(ask, 2, 1, 0)
	require.Equal(b, []string{"expires", "gone"}, ids)

	b.pass(2 * time.Minute)
	del := b.batch()
	del.Deletes = []string{"gone"}
	b.commit(del)
	ask = b.ask()
	ask.Floor = store.Tool
	ids, _ = b.nearest(ask, 1, 1, 0)
	require.Equal(b, []string{"first"}, ids, "expired, below the floor, deleted")
	ids, _ = b.nearest(b.ask(), 1, 1, 0)
	require.Equal(b, []string{"scratch"}, ids, "without a floor")
	ask.Filter = &store.Filter{TagsAny: []string{"red"}}
	ids, _ = b.nearest(ask, 1, 1, 0)
	require.Equal(b, []string{"tagged"}, ids)
	ask.Filter, ask.Kinds = nil, []store.Kind{store.KindChunk}
	ids, _ = b.nearest(ask, 9, 1, 0)
	require.Empty(b, ids)
	ask.Kinds, ask.Mask = nil, []store.Ref{{Scope: scope, ID: "first"}}
	ids, _ = b.nearest(ask, 1, 1, 0)
	require.Equal(b, []string{"tagged"}, ids, "a transaction replaces the other")
	then := b.ask()
	then.AsOf, then.Floor = past, store.Tool
	ids, _ = b.nearest(then, 1, 1, 0)
	require.Equal(b, []string{"gone"}, ids, "as of then it was there")

	by := b.fact("second", "instead")
	by.Artefact.Supersedes = []string{"first"}
	b.commit(b.batch(by))
	ask = b.ask()
	ask.Floor = store.Tool
	ids, _ = b.nearest(ask, 9, 1, 0)
	require.Equal(b, []string{"tagged"}, ids, "what is superseded is not found by its vector")
	b.put("tagged", "another text")
	ids, _ = b.nearest(ask, 9, 1, 0)
	require.Empty(b, ids, "the new version has no vector yet")
}

func checkUnembedded(b *bench) {
	scan := func(cursor string, limit int) store.ScanPage {
		b.Helper()
		page, err := b.st.Scan(b.ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: chain, Model: "m", Cursor: cursor, Limit: limit})
		require.NoError(b, err)
		return page
	}
	require.Zero(b, scan("", 9).Count)
	for _, id := range []string{"a", "b", "c"} {
		b.put(id, "text of "+id)
	}
	system, scratch := b.fact("rules", "be kind"), b.fact("note", "perhaps")
	system.Artefact.Kind, scratch.Artefact.Provenance = store.KindSystem, store.Scratch
	other := b.batch(b.fact("elsewhere", "of another tenant"))
	other.Scope = "acme/other"
	b.commit(b.batch(system, scratch))
	b.commit(other)
	first := scan("", 2)
	require.Equal(b, 3, first.Count, "neither system pages, nor notes, nor another scope's")
	require.Len(b, first.Keys, 2)
	rest := scan(first.Next, 2)
	require.Equal(b, 3, rest.Count)
	require.Len(b, rest.Keys, 1)
	require.Empty(b, rest.Next)
	b.embed("b", 1, 2)
	left := scan("", 9)
	require.Equal(b, 2, left.Count)
	require.Equal(b, []store.PageKey{first.Keys[0], rest.Keys[0]}, left.Keys)
	b.put("b", "another text")
	b.commit(func() store.Batch { d := b.batch(); d.Deletes = []string{"a"}; return d }())
	require.Equal(b, 2, scan("", 9).Count, "a new version has no vector yet, and what is deleted needs none")
	page, err := b.st.Scan(b.ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: chain, Model: "another", Limit: 9})
	require.NoError(b, err)
	require.Equal(b, 2, page.Count)
	_, err = b.st.Scan(b.ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: chain, Model: "m", Cursor: "x", Limit: 9})
	require.ErrorIs(b, err, store.ErrInvalid)
}
