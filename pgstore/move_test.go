package pgstore

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// A tenant moves from a file to a server in parts, and what came between them is not lost. A scope that one host closes is
// closed on every host as soon as the answer is there: a host that has not heard of it judges at its turn.
func TestMoveTenantToServer(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	host := func(name string) *ctxpage.DB {
		db, err := ctxpage.Open("main", ctxpage.Options{NoWatch: true, Store: onHost(t, dsn, ownName(t), func(p *Options) { p.Host = name })})
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	one, two := host("one"), host("two")
	file, err := ctxpage.Open(filepath.Join(t.TempDir(), "old.ctx"), ctxpage.Options{Exclusive: true, NoWatch: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	write := func(db *ctxpage.DB, round int) error {
		for i := range 20 {
			if _, err := db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: fmt.Sprintf("a%d", i*(round%2+1)), Text: fmt.Sprintf("round %d of %d", round, i)}); err != nil {
				return err
			}
		}
		_, err := db.Scope("acme").Session("talk").Append(ctx, ctxpage.Turn{Role: "user", Text: fmt.Sprintf("round %d", round)})
		return err
	}
	part := func(opts ctxpage.ExportOptions) uint64 {
		var b bytes.Buffer
		opts.Scope = "acme"
		rep, err := file.Admin().Export(ctx, &b, opts)
		require.NoError(t, err)
		in, err := one.Admin().Import(ctx, bytes.NewReader(b.Bytes()), ctxpage.ImportOptions{By: "ann"})
		require.NoError(t, err)
		require.Zero(t, in.Versions.Other+in.State.Other, in.Others)
		return rep.LSN
	}
	missing := func() uint64 {
		var b bytes.Buffer
		_, err := file.Admin().Export(ctx, &b, ctxpage.ExportOptions{Scope: "acme"})
		require.NoError(t, err)
		in, err := one.Admin().Import(ctx, bytes.NewReader(b.Bytes()), ctxpage.ImportOptions{By: "ann", DryRun: true})
		require.NoError(t, err)
		return in.Versions.New + in.Versions.Other + in.State.New + in.State.Other
	}
	require.NoError(t, write(file, 0))
	at := part(ctxpage.ExportOptions{Versions: true})
	require.NoError(t, write(file, 1))
	require.NotZero(t, missing(), "control")
	require.NoError(t, file.Admin().Quotas().Set(ctx, "acme", store.Quota{Closed: "moved to " + ownName(t)}, "ann"))
	require.ErrorIs(t, write(file, 2), store.ErrQuota)
	part(ctxpage.ExportOptions{Since: at})
	require.Zero(t, missing())
	require.NoError(t, write(one, 3), "the conversation goes on there")

	for round := range 10 {
		require.NoError(t, one.Admin().Quotas().Set(ctx, "acme", store.Quota{Closed: "moved on"}, "ann"))
		_, err = two.Scope("acme/below").Put(ctx, ctxpage.Artefact{ID: "late", Text: fmt.Sprintf("late %d", round)})
		require.ErrorIs(t, err, store.ErrQuota)
		require.ErrorContains(t, err, "acme is closed for writes: moved on")
		require.NoError(t, one.Admin().Quotas().Set(ctx, "acme", store.Quota{}, "ann"))
		_, err = two.Scope("acme/below").Put(ctx, ctxpage.Artefact{ID: "open", Text: fmt.Sprintf("open %d", round)})
		require.NoError(t, err)
	}
}
