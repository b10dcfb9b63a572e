package pgstore

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// standby makes a copy of a running server that follows it, and starts it.
func (s *server) standby(t *testing.T) *server {
	t.Helper()
	return s.standbyOn(t, freePort(t))
}

func (s *server) standbyOn(t *testing.T, port int) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgstore-standby-")
	require.NoError(t, err)
	if s.as != nil {
		require.NoError(t, os.Chown(dir, int(s.as.Uid), int(s.as.Gid)))
	}
	b := &server{bin: s.bin, dir: dir, as: s.as, port: port}
	b.args = []string{"-c", "wal_retrieve_retry_interval=100ms"} // a promotion waits for it; by default 5 s
	out, err := b.command("pg_basebackup", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", "postgres", "-D", b.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, b.start())
	t.Cleanup(func() {
		_ = b.stop(syscall.SIGQUIT)
		_ = os.RemoveAll(dir)
	})
	return b
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := findPort()
	require.NoError(t, err)
	return port
}

// A standby that is promoted behind the primary: a host that has the lost commits says that the log is another one, a head that
// was kept elsewhere shows the loss, and what is there is a prefix. With all commits replayed nothing is lost, and the head verifies.
func TestStandbyPromoted(t *testing.T) {
	ctx := t.Context()
	a := ownServer(t)
	b := a.standby(t)
	onA, onB := connectTo(t, a), connectTo(t, b)
	st := onHost(t, a.dsn("postgres"), "main", nil)
	mustPut(t, st, "both", "words")
	kept, err := st.Head(ctx)
	require.NoError(t, err)
	var lsn string
	require.NoError(t, onA.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&lsn))
	require.Eventually(t, func() bool {
		var there bool
		return onB.QueryRow(ctx, "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", lsn).Scan(&there) == nil && there
	}, time.Minute, 20*time.Millisecond)
	_, err = onB.Exec(ctx, "SELECT pg_wal_replay_pause()") // what comes now never arrives
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var state string
		return onB.QueryRow(ctx, "SELECT pg_get_wal_replay_pause_state()").Scan(&state) == nil && state == "paused"
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, onB.Close(ctx))
	require.NoError(t, b.stop(syscall.SIGQUIT)) // it no longer receives
	cache := t.TempDir()
	kept2 := mustKeep(t, a, cache)
	require.NoError(t, st.Close())
	require.NoError(t, a.stop(syscall.SIGQUIT))
	require.NoError(t, b.start())
	onB = connectTo(t, b)
	_, err = onB.Exec(ctx, "SELECT pg_promote(true, 60)")
	require.NoError(t, err)

	_, err = Open(ctx, b.dsn("postgres"), Options{Name: "main", CacheDir: cache})
	require.ErrorIs(t, err, ErrForked, "the cache that was kept remembers the loss")
	now := onHost(t, b.dsn("postgres"), "main", nil)
	mustFind(t, now, "both")
	_, err = now.Resolve(ctx, acme, store.Ref{ID: "lost"})
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = now.Audit().Verify(ctx, &kept, nil)
	require.NoError(t, err, "what the standby had is whole")
	_, err = now.Audit().Verify(ctx, &kept2, nil)
	require.ErrorIs(t, err, manifest.ErrHead, "the head that was kept shows the loss")
	mustPut(t, now, "after", "words")
	_, err = now.Audit().Verify(ctx, &kept, nil)
	require.NoError(t, err)
}

// mustKeep commits what the standby will not have, from a host with a kept cache, and gives the head to keep.
func mustKeep(t *testing.T, srv *server, cache string) manifest.Head {
	t.Helper()
	st := onHost(t, srv.dsn("postgres"), "main", func(o *Options) { o.CacheDir = cache })
	mustPut(t, st, "lost", "words")
	head, err := st.Head(t.Context())
	require.NoError(t, err)
	require.NoError(t, st.Close())
	return head
}

func connectTo(t *testing.T, s *server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Behind a pgbouncer that pools transactions, hosts commit, see each other by polls, and read their own audit.
func TestPooler(t *testing.T) {
	t.Parallel()
	bouncer, err := exec.LookPath("pgbouncer")
	if err != nil {
		if bouncer = "/usr/sbin/pgbouncer"; !isFile(bouncer) {
			t.Skip("skipped: pgbouncer is not installed")
		}
	}
	onServer(t)
	dir, err := os.MkdirTemp("", "pgstore-pooler-")
	require.NoError(t, err)
	port := freePort(t)
	config := filepath.Join(dir, "pgbouncer.ini")
	users := filepath.Join(dir, "users.txt")
	require.NoError(t, os.WriteFile(users, []byte("\"postgres\" \"\"\n"), 0o644))
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `[databases]
postgres = host=127.0.0.1 port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = 4
`, shared.s.port, port, users), 0o644))
	cmd := exec.Command(bouncer, "-q", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: shared.s.as}
	if shared.s.as != nil {
		require.NoError(t, os.Chmod(dir, 0o755))
		if u, err := user.LookupId(strconv.Itoa(int(shared.s.as.Uid))); err == nil {
			cmd.Env = append(os.Environ(), "USER="+u.Username)
		}
	}
	var said strings.Builder
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	dsn := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable&default_query_exec_mode=exec", port)
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err == nil
	}, time.Minute, 50*time.Millisecond, said.String())
	name := ownName(t)
	// More stores than the pool has connections: what one leaves in a session, another would meet.
	var hosts []*Store
	for range 3 {
		hosts = append(hosts, onHost(t, dsn, name, func(o *Options) { o.NoNotify = true }))
	}
	for n := range 30 {
		mustPut(t, hosts[n%3], fmt.Sprint("page ", n), "words")
	}
	last := hosts[2].Mark().LSN
	require.Eventually(t, func() bool { return hosts[0].Mark().LSN >= last }, time.Minute, 5*time.Millisecond, "polls find the commits of others")
	refresh(t, hosts...)
	for _, st := range hosts {
		leaf := &manifest.Record{Type: manifest.TypeGet, Trace: "read " + st.opts.Host, Scope: "acme", Time: 1}
		require.NoError(t, st.Append(t.Context(), []*manifest.Record{leaf}, store.Written))
		mustFind(t, st, "page 29")
		_, err := st.Audit().Verify(t.Context(), nil, nil)
		require.NoError(t, err)
	}
	written, err := hosts[1].WriteImage(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, written)
	require.EqualValues(t, 30, onHost(t, dsn, name, func(o *Options) { o.NoNotify = true }).Mark().LSN)
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}
