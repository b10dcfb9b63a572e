package ops_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

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
