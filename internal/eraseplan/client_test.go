package eraseplan_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// client is a process that does not own the files: it erases with Names over the socket and writes the receipt.
func client(args []string) error {
	db, err := ctxpage.Open(args[0], ctxpage.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	g := garden{scope: args[1], names: true}
	rep, err := db.Admin().Erase(ctx, g.request())
	if err != nil {
		return err
	}
	head, err := db.Head(ctx)
	if err != nil {
		return err
	}
	r, err := ops.NewReceipt(ctx, db.Manifests(), *rep.Done, head)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// TestClientErasesNames: a process that does not own the files erases names over the socket. The owner's files have none of
// them, its receipt holds, and a restore of an older backup takes the names out again.
func TestClientErasesNames(t *testing.T) {
	t.Parallel()
	g := &garden{needles: &needles{}, names: true}
	path, backup := dbtest.MemoryPath(t), filepath.Join(t.TempDir(), "old.ctx")
	db := must(ctxpage.Open(path, ctxpage.Options{Embedder: g}))(t)
	require.NoError(t, g.plant(db))
	head := must(db.Head(ctx))(t)
	must(db.Admin().Backup(ctx, backup, nil))(t)
	n := must(hits(filepath.Dir(path)))(t)
	require.NotZero(t, n, "control")

	cmd := exec.Command(os.Args[0], path, g.scope)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"=client"), os.Stderr
	out := must(cmd.Output())(t)
	require.NoError(t, none(filepath.Dir(path)))
	require.NoError(t, g.whole(db, []manifest.Head{head}))
	var r ops.Receipt
	require.NoError(t, json.Unmarshal(out, &r))
	now := must(db.Head(ctx))(t)
	require.NoError(t, r.Verify(nil))
	must(db.Manifests().Verify(ctx, &head, nil))(t)
	require.GreaterOrEqual(t, now.Size, r.Done.Leaf)
	require.NotZero(t, r.Done.Bodies)
	require.NotContains(t, string(out), "zq7x", "a receipt names nothing")
	require.NoError(t, db.Close())

	for _, receipts := range [][]*ops.Receipt{nil, {&r}} {
		restored := filepath.Join(filepath.Dir(dbtest.MemoryPath(t)), "agent.ctx")
		must(filestore.Restore(ctx, backup, restored, filestore.RestoreOptions{Prepare: func(ctx context.Context, st store.Store) error {
			_, err := eraseplan.Repeat(ctx, st, receipts, false, nil)
			return err
		}}))(t)
		if receipts == nil {
			require.Error(t, none(filepath.Dir(restored)), "control: without the receipt it brings them back")
			continue
		}
		must(g.clean(restored, []manifest.Head{head}))(t)
	}
}
