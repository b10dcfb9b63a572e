package dbctl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
)

// The test program stands in for dbctl where dbctl runs itself, and for an agent that is writing.
const (
	writerEnv = "DBCTL_TEST_WRITER"
	dieEnv    = "DBCTL_TEST_DIE"
	stubEnv   = "DBCTL_TEST_STUB"
)

func TestMain(m *testing.M) {
	dbtest.CollectLess()
	switch {
	case os.Getenv(writerEnv) != "":
		writeForever(os.Getenv(writerEnv))
	case os.Getenv(stubEnv) != "" && (len(os.Args) == 1 || os.Args[1] == stubEnv):
		stub(os.Getenv(stubEnv))
	case os.Getenv(childEnv) != "" && os.Getenv(dieEnv) != "":
		die(os.Getenv(dieEnv))
	case os.Getenv(childEnv) != "":
		os.Exit(Tool{}.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // of children: the race detector lets each wait a second
	os.Exit(dbtest.InMemory(m.Run))
}

// stub stands in for programs that dbctl runs: a summarizer, an evaluator, and the commands of clients, which write down in a file how
// they are called. A file named fail beside it makes them fail.
func stub(as string) {
	switch as {
	case "summarizer":
		in, _ := io.ReadAll(os.Stdin)
		fmt.Println(os.Getenv("CTXPAGE_MAX_TOKENS"), "of", string(in))
	case "evaluator":
		if in, _ := io.ReadAll(os.Stdin); !bytes.Contains(in, []byte(`"id":"answer"`)) {
			os.Exit(1)
		}
		fmt.Println(`{"confidence": 0.9, "note": "checked"}`)
	default:
		log, err := os.OpenFile(as, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(log, strings.Join(os.Args[2:], "|"))
		}
		if _, fails := os.Stat(filepath.Join(filepath.Dir(as), "fail")); err != nil || fails == nil && os.Args[4] != "remove" {
			os.Exit(1)
		}
	}
	os.Exit(0)
}

// writeForever is an agent: it writes and reads until its input ends.
func writeForever(path string) {
	ctx := context.Background()
	db, err := ctxpage.Open(path, ctxpage.Options{})
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(ended)
	}()
	s := db.Scope("acme/live")
	for i := 0; ; i++ {
		if _, err := s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("note-", i%50), Text: fmt.Sprint("note number ", i)}); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		if _, err := s.Search(ctx, "note", 3); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		if i%10 == 0 {
			if _, err := s.Session("chat").Append(ctx, ctxpage.Turn{Role: "user", Text: fmt.Sprint("how long is paper ", i, "?")}); err != nil {
				fmt.Println("failed", err)
				os.Exit(1)
			}
		}
		if i%20 == 0 {
			if _, err := db.Admin().Checkpoint(ctx); err != nil {
				fmt.Println("failed", err)
				os.Exit(1)
			}
		}
		if i == 30 {
			fmt.Println("ready")
		}
		select {
		case <-ended:
			_ = db.Close()
			os.Exit(0)
		default:
		}
	}
}

func signalSelf(sig syscall.Signal) {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Signal(sig)
	}
}

// die ends a check's child as damage might, or as a person might.
func die(how string) {
	switch how {
	case "fault":
		var p *int
		fmt.Println(*p)
	case "bus":
		signalSelf(syscall.SIGBUS)
	case "kill":
		signalSelf(syscall.SIGKILL)
	case "late":
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
	dbtest.UntilKilled()
}

type result struct {
	code     int
	out, err string
}

// dbctl runs the tool in this process.
func dbctl(stdin string, args ...string) result {
	var out, errw bytes.Buffer
	code := Tool{}.Run(args, strings.NewReader(stdin), &out, &errw)
	return result{code, out.String(), errw.String()}
}

// ok runs it and wants it to succeed.
func ok(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	r := dbctl(stdin, args...)
	require.Equal(t, exitOK, r.code, "dbctl %s\n%s%s", strings.Join(args, " "), r.out, r.err)
	return r.out
}

// asJSON runs it with --json and decodes what it prints, whatever the exit code.
func asJSON(t testing.TB, stdin string, args ...string) map[string]any {
	t.Helper()
	r := dbctl(stdin, append(args, "--json")...)
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.out), &v), "dbctl %s\n%s%s", strings.Join(args, " "), r.out, r.err)
	return v
}

// newDB makes a database with some artefacts.
func newDB(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "Refunds up to $400 need no approval.", "put", file, "acme/support", "refund-policy", "--verified", "--by", "ann")
	ok(t, "", "put", file, "acme/support", "note", "The customer is called Lee.", "--tag", "people", "--meta", "a=b")
	ok(t, "", "put", file, "acme", "house", "We answer within a day.")
	return file
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// symlink makes a symbolic link. It reports whether there is one: Windows asks for a privilege, and wine makes none.
func symlink(to, name string) bool {
	if os.Symlink(to, name) != nil {
		return false
	}
	_, err := os.Lstat(name)
	return err == nil
}

// interrupt ends a process as Ctrl-C does, and wants it to end well. On Windows nobody can press it for another process, which is
// killed.
func interrupt(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if runtime.GOOS == "windows" {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		return
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
}

// keys are the paths of all fields in a decoded JSON value.
func keys(v any) []string {
	set := map[string]bool{}
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				set[prefix+k] = true
				walk(prefix+k+".", x)
			}
		case []any:
			for _, x := range v {
				walk(prefix, x)
			}
		}
	}
	walk("", v)
	out := make([]string, 0, len(set))
	for k := range set {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }
