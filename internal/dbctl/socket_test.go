package dbctl

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
)

// atSocket serves a file at a socket, as dbctl-pg serves a database on PostgreSQL.
func atSocket(t *testing.T, file string) (name string) {
	t.Helper()
	st, err := filestore.Open(filestore.Options{Path: file, MustExist: true, State: ctxpage.StateKinds()})
	require.NoError(t, err)
	srv, err := remote.NewServer(context.Background(), st, remote.ServerOptions{Program: "test"})
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "s") // the path of a socket must be short
	require.NoError(t, err)
	l, err := remote.Listen(filepath.Join(dir, "s"))
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Drain()
		_ = l.Close()
		_ = srv.Close()
		<-done
		_ = st.Close()
		_ = os.RemoveAll(dir)
	})
	return socketScheme + filepath.Join(dir, "s")
}

// The manifest verbs say of a socket what they say of the file.
func TestManifestVerbsAtASocket(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "refunds take 30 days")
	ok(t, "", "search", file, "acme", "refunds")
	head := strings.TrimSpace(ok(t, "", "manifest", "head", file))
	verbs := [][]string{{"ls", "@"}, {"ls", "@", "--type", "search"}, {"tail", "@"}, {"show", "@", "0"}, {"verify", "@", "--head", head}, {"prove", "@", "0", "--head", head}, {"prove", "@", "--from", head, "--head", head}}
	run := func(of string, verb []string) string {
		args := []string{"manifest"}
		for _, a := range verb {
			args = append(args, strings.Replace(a, "@", of, 1))
		}
		return ok(t, "", append(args, "--json")...)
	}
	var want []string
	for _, verb := range verbs {
		want = append(want, run(file, verb))
	}
	socket := atSocket(t, file)
	for i, verb := range verbs {
		got := run(socket, verb)
		if verb[0] == "verify" { // how much of it is in an archive is the server's affair
			var a, b verifyView
			require.NoError(t, json.Unmarshal([]byte(want[i]), &a))
			require.NoError(t, json.Unmarshal([]byte(got), &b))
			require.True(t, b.OK)
			require.Equal(t, a.Root, b.Root)
			continue
		}
		require.Equal(t, want[i], got, "%v", verb)
	}
	var h headView
	require.NoError(t, json.Unmarshal([]byte(run(socket, []string{"head", "@"})), &h))
	require.EqualValues(t, 2, h.Size)
	ok(t, "", "search", socket, "acme", "refunds")
	require.Contains(t, ok(t, "", "manifest", "tail", socket, "-n", "1"), "search")
	missing := dbctl("", "manifest", "ls", socketScheme+filepath.Join(t.TempDir(), "none"))
	require.NotZero(t, missing.code)
	require.Contains(t, ok(t, "", "check", socket, "--online"), "no damage")
	require.Equal(t, exitUsage, dbctl("", "check", socket).code)
}

// Leaves that come while a socket is followed are shown, each once.
func TestFollowAtASocket(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	ok(t, "", "put", file, "acme", "a", "one")
	socket := atSocket(t, file)
	ctx, end := context.WithCancel(t.Context())
	out := newPipe()
	a := &app{ctx: ctx, out: out, err: os.Stderr, now: time.Now}
	done := make(chan error, 1)
	go func() { done <- (&manifestTailCmd{File: socket, Lines: 1, Follow: true}).Run(a) }()
	require.Contains(t, out.line(t), "commit")
	ok(t, "", "put", socket, "acme", "b", "two")
	require.Contains(t, out.line(t), "commit")
	end()
	require.NoError(t, <-done)
}

// pipe gives what is printed line by line.
type pipe chan string

func newPipe() pipe { return make(pipe, 16) }

func (p pipe) Write(b []byte) (int, error) {
	p <- string(b)
	return len(b), nil
}

func (p pipe) line(t *testing.T) string {
	t.Helper()
	select {
	case s := <-p:
		return s
	case <-time.After(time.Minute):
		t.Fatal("nothing was printed")
		return ""
	}
}

// dbctl has no driver for a server. It starts the program that has one, with the same arguments, for its own verbs and for those that
// only the other has, and ends as it does; without that program it says how to get it. A URL in a question is a question.
func TestServerURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	const url = "postgres://ctx@db/agents"
	lines := [][]string{
		{"search", url, "acme", "refund"}, {"search", "--database", "support", url, "acme", "refund"}, {"manifest", "head", url}, {"directive", url, "acme"},
		{"init", url}, {"check", "--online", url}, {"backup", url, file + "2"}, {"serve", url, "--socket", "s"},
		{"copy", file, "postgresql://ctx@db/agents"}, {"migrate", url}, {"verify", url, "--head", "x"},
	}
	for _, line := range lines {
		r := dbctl("", line...)
		require.Equal(t, exitUsage, r.code, "%v", line)
		require.Contains(t, r.err, "go install "+serverProgram, "%v", line)
	}
	bin := t.TempDir()
	script := "#!/bin/sh\nfor a in \"$@\"; do echo \"$a\"; done\necho said >&2\n[ -z \"$DBCTL\" ] && exit 1\ncat\nexit 4\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "dbctl-pg"), []byte(script), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, line := range lines {
		r := dbctl("of its input", line...)
		require.Equal(t, result{4, strings.Join(line, "\n") + "\nof its input", "said\n"}, r, "%v", line)
	}
	ok(t, "", "search", file, "acme", url)
	require.Contains(t, dbctl("", "search", file, "acme", url, "--bogus").err, "--bogus")
	t.Setenv(startedEnv, "1") // dbctl-pg started it
	require.Contains(t, dbctl("", "search", url, "acme", "refund").err, serverProgram)
}
