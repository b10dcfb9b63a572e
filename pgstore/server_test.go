package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// long has the tests run in their long form, as `make nightly` does.
var long = os.Getenv("CTXPAGE_LONG") != ""

// server is a PostgreSQL server that the tests start from the installed programs, in a temporary directory.
type server struct {
	bin, dir string
	port     int
	args     []string // more of its command line
	cmd      *exec.Cmd
	as       *syscall.Credential // postgres does not run as root
}

// programs finds the directory of initdb and postgres.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", errors.New("no PostgreSQL server is installed (initdb is neither in PATH nor in /usr/lib/postgresql/*/bin)")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

// credential is whom the server runs as.
func credential() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("a PostgreSQL server does not run as root, and there is no user postgres or nobody")
}

// newServer makes a cluster and starts it.
func newServer() (s *server, err error) {
	s = &server{}
	if s.bin, err = programs(); err != nil {
		return nil, err
	}
	if s.as, err = credential(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "pgstore-test-"); err != nil {
		return nil, err
	}
	if s.as != nil {
		if err := os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return nil, err
		}
	}
	init := s.command("initdb", "-D", s.data(), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "--locale=C")
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	if s.port, err = findPort(); err != nil {
		return nil, err
	}
	return s, s.start()
}

// findPort finds a free port for a server. It is below those that the system chooses for others (32768 and above on Linux), or one of them
// could get it while the server starts, or while a test has it stopped.
func findPort() (port int, err error) {
	for range 100 {
		port = 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no port is free")
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	return cmd
}

func (s *server) start() error {
	var out bytes.Buffer
	s.cmd = s.command("postgres", append([]string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-k", s.dir, "-c", "listen_addresses=127.0.0.1",
		"-c", "max_connections=400", "-c", "shared_buffers=64MB", "-c", "log_min_messages=fatal"}, s.args...)...)
	s.cmd.Stderr = &out
	if err := s.cmd.Start(); err != nil {
		return err
	}
	// A server that starts after a power cut first syncs its files, and the processes of a test ask it to answer all the time. On a
	// busy machine 10 s were not enough.
	for begun := time.Now(); time.Since(begun) < 2*time.Minute; time.Sleep(25 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		conn, err := pgx.Connect(ctx, s.dsn("postgres"))
		cancel()
		if err == nil {
			return conn.Close(context.Background())
		}
	}
	_ = s.stop(syscall.SIGQUIT) // out is ours then
	return fmt.Errorf("the server does not start: %s", out.String())
}

// stop ends the server: SIGQUIT is pg_ctl stop -m immediate, SIGINT is -m fast.
func (s *server) stop(sig syscall.Signal) error {
	if err := s.cmd.Process.Signal(sig); err != nil {
		return err
	}
	_ = s.cmd.Wait()
	return nil
}

func (s *server) dsn(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}

var shared sharedServer

type sharedServer struct {
	once sync.Once
	s    *server
	err  error
}

// exec runs a statement beside the stores.
func (s *sharedServer) exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	conn, err := pgx.Connect(ctx, s.s.dsn("postgres"))
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer conn.Close(context.Background())
	return conn.Exec(ctx, sql, args...)
}

// onServer returns the data source name of a server for all tests that do not stop it, with the schema made.
func onServer(t testing.TB) string {
	t.Helper()
	shared.once.Do(func() {
		if shared.s, shared.err = newServer(); shared.err == nil {
			_, shared.err = Migrate(context.Background(), shared.s.dsn("postgres"), false)
		}
	})
	if shared.err != nil {
		t.Skip("skipped: ", shared.err)
	}
	return shared.s.dsn("postgres")
}

// names numbers the databases of a test that runs more than once in a process (go test -count).
var names struct {
	sync.Mutex
	of   map[testing.TB]string
	last int
}

// ownName names the database of a test: the same for all hosts of the test, and a new one each time it runs.
func ownName(t testing.TB) string {
	names.Lock()
	defer names.Unlock()
	if name, is := names.of[t]; is {
		return name
	}
	if names.of == nil {
		names.of = map[testing.TB]string{}
	}
	names.last++
	name := fmt.Sprintf("%s %d", t.Name(), names.last)
	names.of[t] = name
	t.Cleanup(func() {
		names.Lock()
		defer names.Unlock()
		delete(names.of, t)
	})
	return name
}

// ownServer returns a server that a test may stop.
func ownServer(t testing.TB) *server {
	t.Helper()
	s, err := newServer()
	if err != nil {
		t.Skip("skipped: ", err)
	}
	t.Cleanup(func() {
		_ = s.stop(syscall.SIGQUIT)
		_ = os.RemoveAll(s.dir)
	})
	_, err = Migrate(t.Context(), s.dsn("postgres"), false)
	require.NoError(t, err)
	return s
}

func TestMain(m *testing.M) {
	if env := os.Getenv(jobEnv); env != "" {
		work(env) // and never returns
	}
	if env := os.Getenv(copyEnv); env != "" {
		copyAndStop(env) // likewise
	}
	if env := os.Getenv(newcomerEnv); env != "" {
		arrive(env) // likewise
	}
	code := m.Run()
	if shared.s != nil && shared.s.cmd != nil {
		_ = shared.s.stop(syscall.SIGQUIT)
		_ = os.RemoveAll(shared.s.dir)
	}
	os.Exit(code)
}

// kill ends a store as a killed process ends: nothing is sent, connections break.
func (s *Store) kill() {
	s.eng.Shut()
	s.mu.Lock()
	s.closing = true
	if s.cause == nil {
		s.cause = errors.New("pgstore: killed by a test")
		close(s.dead)
	}
	s.mu.Unlock()
	s.end()
	s.tasks.Wait()
	_ = s.release()
}
