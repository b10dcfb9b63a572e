package remote_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
)

var kills = flag.Int("kills", dbtest.Size(5, 20), "how often TestOwnerKilled and TestOwnersKilled kill the owner")

// The variables that make this program an owner.
const (
	ownedFile   = "CTXPAGE_TEST_OWNED"
	ownedSocket = "CTXPAGE_TEST_SOCKET"
)

// serveOwned opens the file, serves it, says so, and waits to be killed.
func serveOwned(path string) {
	st, err := filestore.Open(filestore.Options{Path: path, LockWait: 5 * time.Second})
	exitOn(err)
	srv, err := remote.NewServer(context.Background(), st, remote.ServerOptions{})
	exitOn(err)
	l, err := remote.Listen(os.Getenv(ownedSocket))
	exitOn(err)
	fmt.Println("ready")
	exitOn(srv.Serve(l))
}

func exitOn(err error) {
	if err != nil {
		fmt.Println("owner:", err)
		os.Exit(1)
	}
}

// startOwner starts a process that owns a file, and returns when it serves.
func startOwner(t *testing.T, path, socket string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownedFile+"="+path, ownedSocket+"="+socket)
	out := must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line := must(bufio.NewReader(out).ReadString('\n'))(t)
	require.Equal(t, "ready", strings.TrimSpace(line))
	return cmd
}

// writer commits until it is told to stop. Acked are the outcomes it was told; an unknown one is asked for by its id, or
// repeated.
type writer struct {
	acked map[ulid.ULID]store.Outcome
	all   map[ulid.ULID]string // ids of all batches, and their artefacts
	fresh bool                 // the control: what is not answered is written again under a new id
	count *atomic.Int64        // of acknowledged commits, of all writers
}

// dial connects. The owner must live: a client that has no session yet does not wait for the next one.
func (w *writer) dial(t *testing.T, path string) *remote.Client {
	opts := remote.ClientOptions{RetryFor: time.Minute, Answer: time.Minute}
	if w.fresh {
		opts.RetryFor = 1
	}
	return dial(t, path, opts)
}

func (w *writer) run(t *testing.T, who int, c *remote.Client, stop <-chan struct{}) {
	defer c.Close()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		batch := fact(t, fmt.Sprintf("of-%d-%d", who, n), "zebra")
		w.all[batch.ID] = batch.Puts[0].Artefact.ID
		out, err := c.Commit(ctx, batch)
		for err != nil && w.fresh {
			time.Sleep(time.Millisecond)
			batch.ID = ulid.Make()
			out, err = c.Commit(ctx, batch)
		}
		if err != nil {
			t.Errorf("writer %d, commit %d: %v", who, n, err)
			return
		}
		w.acked[batch.ID] = out
		w.count.Add(1)
	}
}

// The owner is killed again and again while four clients write, and another process takes its file: no acknowledged commit
// is lost, and none is applied twice.
func TestOwnerKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes")
	}
	st, writers := killOwners(t, *kills, false)
	lsns, count := map[uint64]bool{}, 0
	for _, w := range writers {
		count += len(w.acked)
		for id, out := range w.acked {
			got, err := st.Outcome(ctx, id)
			require.NoError(t, err, "an acknowledged commit is lost")
			require.Equal(t, out, got)
			require.False(t, lsns[out.LSN], "two commits have one LSN")
			lsns[out.LSN] = true
			l := must(st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: w.all[id]}))(t)
			require.EqualValues(t, 1, l.Version, "applied once")
		}
	}
	require.Greater(t, count, *kills, "commits between the kills")
	require.EqualValues(t, count, st.Mark().LSN, "each commit was acknowledged, once: no LSN is over")
	rep := must(st.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil))(t)
	require.Empty(t, rep.Problems)
	t.Logf("%d kills, %d commits acknowledged", *kills, count)
}

// The control: callers who write what was not answered again, under a new id, write some of it twice.
func TestOwnerKilledControl(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes")
	}
	for range 10 {
		st, writers := killOwners(t, 20, true)
		count := 0
		for _, w := range writers {
			count += len(w.acked)
		}
		if st.Mark().LSN > uint64(count) {
			return
		}
	}
	t.Fatal("nothing was written twice: the test of kills proves nothing")
}

// killOwners kills the owner of a file again and again while four clients write, and gives the file and what they know.
func killOwners(t *testing.T, kills int, fresh bool) (store.Store, []*writer) {
	t.Helper()
	path, socket := dbtest.MemoryPath(t), socket(t)
	cmd := startOwner(t, path, socket)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	writers := make([]*writer, 4)
	var count atomic.Int64
	for i := range writers {
		writers[i] = &writer{map[ulid.ULID]store.Outcome{}, map[ulid.ULID]string{}, fresh, &count}
		c := writers[i].dial(t, socket)
		wg.Go(func() { writers[i].run(t, i, c, stop) })
	}
	for range kills {
		// On a busy machine an owner lives longer: until it has answered some commits.
		want := count.Load() + 4
		require.Eventually(t, func() bool { return count.Load() >= want }, time.Minute, time.Millisecond, "no commit is answered")
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		cmd = startOwner(t, path, socket)
	}
	time.Sleep(20 * time.Millisecond)
	close(stop)
	wg.Wait()
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()

	st := must(filestore.Open(filestore.Options{Path: path}))(t)
	t.Cleanup(func() { _ = st.Close() })
	return st, writers
}
