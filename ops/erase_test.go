package ops_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

func TestRequestCheck(t *testing.T) {
	by := func(r ops.Request) *ops.Request {
		r.By, r.Reason = "desk", "request 4711"
		return &r
	}
	for _, good := range []ops.Request{
		{Subject: "ann"}, {Scope: "acme/ann"}, {Session: store.Ref{Scope: "acme", ID: "talk"}}, {Refs: []store.Ref{{Scope: "acme", ID: "a"}}},
		{Subject: "ann", Cascade: ops.Erase}, {Subject: "ann", Cascade: ops.Rederive},
	} {
		require.NoError(t, by(good).Check(), good)
	}
	for _, bad := range []ops.Request{
		{}, {Subject: "ann", Session: store.Ref{Scope: "acme", ID: "talk"}}, {Scope: "acme", Session: store.Ref{Scope: "acme", ID: "talk"}}, {Subject: "ann", Cascade: "some"}, {Session: store.Ref{Scope: "acme"}}, {Session: store.Ref{ID: "talk"}},
		{Refs: []store.Ref{{ID: "a"}}}, {Refs: []store.Ref{{Scope: "acme", ID: "a", Version: 1}}}, {Refs: []store.Ref{{Scope: "acme", ID: "a", Page: 1}}},
		{Scope: "acme//ann"},
	} {
		require.ErrorIs(t, by(bad).Check(), store.ErrInvalid, bad)
	}
	for _, nobody := range []ops.Request{{Subject: "ann", By: "desk"}, {Subject: "ann", Reason: "4711"}} {
		require.ErrorIs(t, nobody.Check(), store.ErrInvalid)
	}
}

func TestReportEmpty(t *testing.T) {
	require.True(t, (&ops.Report{}).Empty())
	require.True(t, (&ops.Report{Contexts: []ops.Context{{}}}).Empty(), "a context by itself is nothing that goes")
	for _, r := range []ops.Report{{Erased: []ops.Item{{}}}, {Held: []ops.HeldItem{{}}}, {Questions: 1}, {Rows: 1}, {Bodies: 1}} {
		require.False(t, r.Empty())
	}
}

// TestReceipt: a receipt holds as it was made, and with no part of it changed.
func TestReceipt(t *testing.T) {
	ctx := context.Background()
	st := must(storetest.NewMemory(storetest.Config{Now: func() time.Time { return time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC) }}))(t)
	info := must(st.Info(ctx))(t)
	id := must(store.NewID(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), zeros{}))(t)
	must(st.Commit(ctx, store.Batch{ID: id, Scope: "acme", Actor: "a", Now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), State: []store.StateRow{{Key: "row", Value: []byte("v")}}}))(t)
	before := must(st.Head(ctx))(t)
	rep := must(st.Maintain(ctx, store.Job{Kind: store.JobErase, Erase: &store.EraseJob{
		State: []store.StateRow{{Key: "row"}}, By: "desk", Reason: "4711", Asked: []string{format.AskedOf(info.Secret, "subject", "ann")}, Cascade: "keep",
	}}, nil))(t)
	head := must(st.Head(ctx))(t)

	require.Error(t, errOf(ops.NewReceipt(ctx, st.Audit(), rep.Erase, before)), "a head from before does not have the leaf")
	r := must(ops.NewReceipt(ctx, st.Audit(), rep.Erase, head))(t)
	text := must(json.Marshal(r))(t)
	require.NotContains(t, string(text), "ann", "it names nothing")
	read := func() *ops.Receipt {
		var r ops.Receipt
		require.NoError(t, json.Unmarshal(text, &r))
		return &r
	}
	require.NoError(t, read().Verify(nil), "control")
	require.NoError(t, read().Verify(&head))
	other := head
	other.Root[0]++
	for name, change := range map[string]func(*ops.Receipt) *manifest.Head{
		"format":    func(r *ops.Receipt) *manifest.Head { r.Format = "other/1"; return nil },
		"db":        func(r *ops.Receipt) *manifest.Head { r.DB = "other"; return nil },
		"head":      func(r *ops.Receipt) *manifest.Head { r.Head = "no head"; return nil },
		"kept head": func(*ops.Receipt) *manifest.Head { return &other },
		"body":      func(r *ops.Receipt) *manifest.Head { r.Body[len(r.Body)-1]++; return nil },
		"place":     func(r *ops.Receipt) *manifest.Head { r.Proof.Index++; return nil },
		"reason":    func(r *ops.Receipt) *manifest.Head { r.Done.Reason = "another"; return nil },
		"by":        func(r *ops.Receipt) *manifest.Head { r.Done.By = "another"; return nil },
		"counts":    func(r *ops.Receipt) *manifest.Head { r.Done.State++; return nil },
		"trace":     func(r *ops.Receipt) *manifest.Head { r.Done.Trace = "x"; return nil },
		"lsn":       func(r *ops.Receipt) *manifest.Head { r.Done.LSN++; return nil },
		"leaf":      func(r *ops.Receipt) *manifest.Head { r.Done.Leaf++; return nil },
		"asked": func(r *ops.Receipt) *manifest.Head {
			r.Done.Asked = []string{format.AskedOf(info.Secret, "subject", "bob")}
			return nil
		},
		"time":    func(r *ops.Receipt) *manifest.Head { r.Done.At = r.Done.At.Add(time.Hour); return nil },
		"cascade": func(r *ops.Receipt) *manifest.Head { r.Done.Cascade = "erase"; return nil },
	} {
		r := read()
		require.ErrorIs(t, r.Verify(change(r)), ops.ErrReceipt, name)
	}
}

// zeros is randomness for one id.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// bodiesOf is what the quotas and the space of scopes say of the bodies of a scope, which must be the same.
func bodiesOf(t *testing.T, db *ctxpage.DB, scope string) int64 {
	t.Helper()
	all := must(db.Admin().Quotas().All(t.Context()))(t)
	spaces := must(db.Admin().Quotas().Spaces(t.Context()))(t)
	sum := int64(0)
	for _, s := range spaces {
		if store.Below(s.Name, scope) {
			sum += s.Bodies
		}
	}
	for _, u := range all {
		if u.Scope == scope {
			require.Equal(t, sum, u.Used.Bodies)
		}
	}
	return sum
}

// TestBodies: when the bodies of manifests are over their quota, reads and deletes go on and are recorded, writes wait until
// old bodies are pruned.
func TestBodies(t *testing.T) {
	path := t.TempDir() + "/agent.ctx"
	now := dbtest.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	reopen := func() *ctxpage.DB {
		return must(ctxpage.Open(path, ctxpage.Options{Exclusive: true, AuditSync: true, Clock: now.Now}))(t)
	}
	db := reopen()
	s := db.Scope("acme/a", ctxpage.WithActor("agent"))
	ask := func(scope string) {
		must(db.Scope(scope).Assemble(t.Context(), ctxpage.Query{Text: "kettle", Budget: 2000}))(t)
	}
	require.NoError(t, db.Admin().Quotas().Set(t.Context(), "acme", store.Quota{Bodies: 4000}, "ann"))
	for i := range 5 {
		require.NoError(t, put(t, db, "acme/a", fmt.Sprint("k", i), "a kettle "+strings.Repeat("word ", i)))
	}
	ask("other")
	require.Less(t, bodiesOf(t, db, "acme"), int64(4000))
	require.Positive(t, bodiesOf(t, db, "other"), "a scope that was only read")
	n := 0
	for ; bodiesOf(t, db, "acme") < 4000; n++ {
		ask("acme/b") // nothing was ever written there
	}
	require.Greater(t, n, 3)

	err := put(t, db, "acme/a", "late", "a kettle")
	var over *store.QuotaError
	require.ErrorAs(t, err, &over)
	require.Equal(t, []any{"acme", "bodies", int64(4000)}, []any{over.Scope, over.What, over.Limit})
	require.GreaterOrEqual(t, over.Used, int64(4000))
	require.ErrorContains(t, err, "dbctl retention set FILE acme --prune AGE")
	tx := must(s.Begin(t.Context()))(t)
	require.NoError(t, tx.Put(t.Context(), ctxpage.Artefact{ID: "held", Text: "held"}))
	require.ErrorIs(t, tx.Commit(t.Context(), ctxpage.Verdict{Confidence: 0.1, By: "judge"}), store.ErrQuota)
	before := must(db.Head(t.Context()))(t)
	ask("acme/a")
	after := must(db.Head(t.Context()))(t)
	require.Greater(t, after.Size, before.Size, "the read is recorded")
	require.NoError(t, s.Delete(t.Context(), "k0"))
	require.NoError(t, put(t, db, "else", "x", "another scope"))
	was := bodiesOf(t, db, "acme")
	require.NoError(t, db.Close())

	now.Add(48 * time.Hour)
	db = reopen()
	require.Equal(t, was, bodiesOf(t, db, "acme"), "counted anew after a reopen")
	require.ErrorIs(t, put(t, db, "acme/a", "late", "a kettle"), store.ErrQuota)
	require.NoError(t, db.Admin().Retention().Set(t.Context(), "acme", ops.Policy{Prune: ops.Age(24 * time.Hour)}, "ann"))
	must(db.Admin().Retention().Run(t.Context(), ops.RunOptions{By: "ann"}))(t)
	require.Less(t, bodiesOf(t, db, "acme"), int64(4000))
	require.NoError(t, put(t, db, "acme/a", "late", "a kettle"), "a prune made room")
	require.NoError(t, db.Admin().Quotas().Set(t.Context(), "acme", store.Quota{Bodies: 1}, "ann"))
	require.ErrorIs(t, put(t, db, "acme/a", "later", "a kettle"), store.ErrQuota)
	require.NoError(t, db.Admin().Quotas().Set(t.Context(), "acme", store.Quota{}, "ann"))
	require.NoError(t, put(t, db, "acme/a", "later", "a kettle"), "control: without the quota")
	problems := must(db.Admin().Check(t.Context(), nil))(t)
	require.Empty(t, problems)
	require.NoError(t, db.Close())
}
