package dbctl

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
)

// serveAt serves a file at a socket.
func serveAt(t *testing.T, file string) (name string) {
	t.Helper()
	st := must(filestore.Open(filestore.Options{Path: file, MustExist: true, State: ctxpage.StateKinds()}))(t)
	srv := must(remote.NewServer(context.Background(), st, remote.ServerOptions{Program: "test"}))(t)
	dir, err := os.MkdirTemp("", "s") // the path of a socket must be short
	require.NoError(t, err)
	l := must(remote.Listen(filepath.Join(dir, "s")))(t)
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
	socket := serveAt(t, file)
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
	socket := serveAt(t, file)
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

// The plain tool says how to get the build for a server. A URL in a question is a question.
func TestURLWithoutServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	const url = "postgres://ctx@db/agents"
	for _, line := range [][]string{
		{"search", url, "acme", "refund"}, {"manifest", "head", url}, {"directive", url, "acme"}, {"init", url}, {"check", url}, {"backup", url, file + "2"}, {"serve", url}, {"mcp", url, "--scope", "a"},
		{"restore", "postgresql://ctx@db/agents", file + "3"}, {"stop", url}, {"setup", "codex", url, "--scope", "a", "--dry-run"}, {"hook", url, "--scope", "a"}, {"key", "add", url},
	} {
		r := dbctl("{}", line...)
		require.Equal(t, exitUsage, r.code, "%v %s", line, r.out)
		require.Contains(t, r.err, serverBuild, "%v", line)
	}
	require.Contains(t, dbctl("", "stat", "mysql://ctx@db/agents").err, "scheme mysql")
	ok(t, "", "search", file, "acme", url)
}

// serverIn is a server whose databases are files of a directory.
func serverIn(dir string) Tool {
	var grammar struct {
		Tenant string `help:"Tenant." default:"main"`
		Files  struct {
			Ls listFiles `cmd:"" help:"List databases."`
		} `cmd:"" help:"Work on the server."`
	}
	return Tool{NoWatch: true, Server: &Server{
		Schemes: []string{"files"}, Grammar: &grammar, Label: func(url string) string { return "files " + grammar.Tenant },
		Again: func() []string { return []string{"--tenant=" + grammar.Tenant} }, Instead: map[string]string{"backup": "copy the directory"},
		Open: func(_ context.Context, _ string, o Opening) (store.Store, error) {
			return filestore.Open(filestore.Options{Path: filepath.Join(dir, grammar.Tenant), MustExist: !o.Create, State: ctxpage.StateKinds()})
		},
	}}
}

type listFiles struct{}

func (listFiles) Run(a *App) error {
	return a.Emit([]string{"main"}, func(w io.Writer) { io.WriteString(w, "main\n") })
}

// A build with a server takes its URLs where verbs take files, and has its flags and verbs.
func TestServerByScheme(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	run := func(code int, args ...string) (out, errs string) {
		t.Helper()
		var o, e bytes.Buffer
		require.Equal(t, code, serverIn(dir).Run(args, strings.NewReader(""), &o, &e), "%v: %s%s", args, &o, &e)
		return o.String(), e.String()
	}
	const url = "files://secret@here/x"
	_, errs := run(exitFailed, "put", url, "acme", "a", "words")
	require.Contains(t, errs, "no database")
	out, _ := run(exitOK, "init", url)
	require.NotContains(t, out, "secret")
	_, errs = run(exitFailed, "init", url)
	require.Contains(t, errs, "files main exists already")
	run(exitOK, "init", url, "--tenant", "other")
	run(exitOK, "--tenant=other", "put", url, "acme", "a", "refunds take 30 days")
	run(exitFailed, "get", url, "acme", "a")
	out, _ = run(exitOK, "search", url, "acme", "refunds", "--tenant", "other")
	require.Contains(t, out, "acme:a")
	for _, line := range [][]string{{"check", url}, {"manifest", "verify", url}, {"manifest", "tail", url}, {"stat", url}, {"directive", url, "acme"}, {"files", "ls"}, {"help", "files"}, {"stop", url}} {
		run(exitOK, line...)
	}
	_, errs = run(exitUsage, "backup", url, filepath.Join(dir, "copy"))
	require.Contains(t, errs, "copy the directory")
	out, _ = run(exitOK, "mcp", "config", "cursor", url, "--scope", "a", "--tenant", "other")
	require.Contains(t, out, `"`+url+`",`+"\n        \"--tenant=other\"")
}

// dbctl serve and dbctl stop find each other by the label of a URL.
func TestServeAtServer(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const url = "files://here/x"
	out := newPipe()
	done := make(chan int, 1)
	go func() {
		done <- serverIn(dir).Run([]string{"serve", url}, strings.NewReader(""), out, os.Stderr)
	}()
	out.line(t)
	var o bytes.Buffer
	require.Equal(t, exitOK, serverIn(dir).Run([]string{"stop", "--wait", "1m", "files://other@here/x"}, strings.NewReader(""), io.Discard, &o), &o)
	require.Equal(t, exitOK, <-done)
}
