package dbctl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/serve"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// serving is a dbctl serve in a process of its own.
type serving struct {
	servingView
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan error
}

func startServe(t *testing.T, args ...string) *serving {
	t.Helper()
	s := &serving{cmd: exec.Command(os.Args[0], append([]string{"serve", "--json"}, args...)...), done: make(chan error, 1)}
	s.cmd.Env = append(os.Environ(), childEnv+"=1")
	s.in = must(s.cmd.StdinPipe())(t)
	out := must(s.cmd.StdoutPipe())(t)
	s.cmd.Stderr = os.Stderr
	require.NoError(t, s.cmd.Start())
	line := must(bufio.NewReader(out).ReadString('\n'))(t)
	require.NoError(t, json.Unmarshal([]byte(line), &s.servingView))
	go func() { s.done <- s.cmd.Wait() }()
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	return s
}

// ends wants it to end by itself, and well.
func (s *serving) ends(t *testing.T, why string) {
	t.Helper()
	select {
	case err := <-s.done:
		require.NoError(t, err, why)
		require.NoFileExists(t, s.Socket)
	case <-time.After(time.Minute):
		require.Fail(t, "still there: "+why)
	}
}

// post makes a call at a unix socket, or at a URL.
func (s *serving) post(t *testing.T, call, body string, headers ...string) string {
	t.Helper()
	return must(s.call(t, call, body, headers...))(t)
}

// call is post where there may be no server any more.
func (s *serving) call(t *testing.T, call, body string, headers ...string) (string, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	url := s.URL
	if s.Socket != "" {
		url = "http://x"
		client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return remote.Connect(ctx, s.Socket)
		}
	}
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/"+call, strings.NewReader(body)))(t)
	req.Header.Set("Ctxpage-Scope", "acme")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

const asHost = "Ctxpage-Role: host"

func TestServeOwnsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	s := startServe(t, file, "--stdin")
	require.Contains(t, s.post(t, "put", `{"writes":[{"id":"a","text":"of serve"}]}`, asHost), "committed")
	require.Contains(t, ok(t, "", "get", file, "acme", "a"), "of serve", "a verb asks it")
	ok(t, "", "put", file, "acme", "b", "of a verb")
	require.Contains(t, s.post(t, "get", `{"id":"b"}`), "of a verb")
	r := dbctl("", "serve", file)
	require.Equal(t, exitBusy, r.code, r.err)
	require.Contains(t, r.err, strconv.Itoa(s.PID))
	require.NoError(t, s.in.Close())
	s.ends(t, "standard input ended")
	ok(t, "", "check", file)
}

// Beside an agent it is a client, and takes over when the agent ends.
func TestServeBesideAnAgent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	ok(t, "", "init", file)
	t.Run("agent", func(sub *testing.T) {
		liveWriter(sub, file)
		for idle := 300 * time.Millisecond; ; idle *= 4 { // on a busy machine one may end before it was asked
			s := startServe(t, file, "--idle", idle.String())
			said, err := s.call(t, "get", `{"id":"note-1"}`, "Ctxpage-Scope: acme/live")
			s.ends(t, "idle")
			if err != nil && idle < 10*time.Second {
				continue
			}
			require.NoError(t, err)
			require.Contains(t, said, "note number")
			break
		}
	})
	var s *serving
	t.Run("agent that ends first", func(sub *testing.T) {
		liveWriter(sub, file)
		s = startServe(t, file)
	})
	require.Contains(t, s.post(t, "put", `{"writes":[{"id":"a","text":"after the agent"}]}`, asHost), "committed")
	require.Contains(t, s.post(t, "stop", "", "Ctxpage-Role: operator"), "{}")
	s.ends(t, "told to")
	require.Contains(t, ok(t, "", "get", file, "acme", "a"), "after the agent")
}

func TestServeEndsWithItsParent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), childEnv+"=1", dieEnv+"=late")
	must(parent.StdinPipe())(t)
	require.NoError(t, parent.Start())
	s := startServe(t, file, "--parent", fmt.Sprint(parent.Process.Pid))
	require.Contains(t, s.post(t, "list", "{}"), "items")
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	s.ends(t, "its parent ended")
}

func TestServeOverTCP(t *testing.T) {
	dir := t.TempDir()
	file, tokens := filepath.Join(dir, "agent.ctx"), filepath.Join(dir, "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("# of the bots\nagent agent-token-0123456\n\nhost host-token-01234567\n"), 0o600))
	s := startServe(t, file, "--http", "127.0.0.1:0", "--token-file", tokens, "--stdin")
	require.Contains(t, s.post(t, "list", "{}"), "unauthorized")
	require.Contains(t, s.post(t, "put", `{"writes":[{"id":"a","text":"x"}]}`, asHost, "Authorization: Bearer host-token-01234567"), "committed")
	require.Contains(t, s.post(t, "put", `{"writes":[{"id":"b","text":"x"}]}`, "Authorization: Bearer agent-token-0123456"), `"held"`)
	require.Contains(t, s.post(t, "review/list", "{}", "Ctxpage-Role: operator", "Authorization: Bearer host-token-01234567"), `"role"`)
	require.NoFileExists(t, file+".http.lock", "clients that find an announcement use the tokens of FILE.http.tokens")
	require.NoError(t, s.in.Close())
	s.ends(t, "standard input ended")

	for says, lines := range map[string]string{"expected a role and a token": "agent short\n", "agent, host or operator": "king token-0123456789012\n", "at least one line": "\n", "twice": "agent token-0123456789012\nhost token-0123456789012\n"} {
		require.NoError(t, os.WriteFile(tokens, []byte(lines), 0o600))
		r := dbctl("", "serve", file, "--http", "127.0.0.1:0", "--token-file", tokens)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, says)
	}
	if system.Modes {
		require.NoError(t, os.Chmod(tokens, 0o644))
		require.Contains(t, dbctl("", "serve", file, "--http", "127.0.0.1:0", "--token-file", tokens).err, "only you can read")
		require.NoError(t, os.Chmod(tokens, 0o600))
	}
	require.NoError(t, os.WriteFile(tokens, []byte("host host-token-01234567\n"), 0o600))
	require.Contains(t, dbctl("", "serve", file, "--http", "0.0.0.0:0", "--token-file", tokens).err, "loopback")
}

// A server makes FILE.http.tokens, and FILE.http.lock names its address: a client needs nothing else. Other servers of the file have the
// same tokens, and announce nothing while the first one serves.
func TestServeOverTCPIsFound(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "agent.ctx"), filepath.Join(t.TempDir(), "link")
	s := startServe(t, file, "--http", "127.0.0.1:0", "--stdin")
	found := func() (url, token string) {
		var lock struct{ Socket string }
		text := must(os.ReadFile(file + ".http.lock"))(t)
		if len(text) > 0 {
			require.NoError(t, json.Unmarshal(text, &lock))
		}
		text = must(os.ReadFile(file + ".http.tokens"))(t)
		words := strings.Fields(string(text))
		require.Len(t, words, 2)
		require.Equal(t, "operator", words[0])
		return lock.Socket, words[1]
	}
	url, token := found()
	require.Equal(t, s.URL, url)
	if st, err := os.Stat(file + ".http.tokens"); system.Modes {
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), st.Mode())
	}
	require.Contains(t, s.post(t, "list", "{}"), "unauthorized")
	require.Contains(t, s.post(t, "stats", "{}", "Ctxpage-Scope: acme", "Ctxpage-Role: operator", "Authorization: Bearer "+token), `"artefacts"`)

	if !symlink(dir, link) {
		link = dir + string(filepath.Separator) + "."
	}
	second := startServe(t, link+string(filepath.Separator)+"agent.ctx", "--http", "127.0.0.1:0", "--stdin")
	require.NotEqual(t, s.URL, second.URL)
	require.Contains(t, second.post(t, "stats", "{}", "Ctxpage-Scope: acme", "Ctxpage-Role: operator", "Authorization: Bearer "+token), `"artefacts"`, "under another path, too")
	require.NoError(t, second.in.Close())
	second.ends(t, "standard input ended")
	url, _ = found()
	require.Equal(t, s.URL, url, "the second took nothing back")
	require.NoError(t, s.in.Close())
	s.ends(t, "standard input ended")
	url, _ = found()
	require.Empty(t, url, "it took the announcement back")

	third := startServe(t, file, "--http", "127.0.0.1:0", "--stdin")
	url, again := found()
	require.Equal(t, [2]string{third.URL, token}, [2]string{url, again}, "the tokens stay")
	require.NoError(t, third.in.Close())
	third.ends(t, "standard input ended")
	if system.Modes {
		require.NoError(t, os.Chmod(file+".http.tokens", 0o644))
		require.Contains(t, dbctl("", "serve", file, "--http", "127.0.0.1:0").err, "only you can read")
	}
}

// Processes that make one file of tokens at once all have the tokens of the first.
func TestTokensAreMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	made := make([]map[string]serve.Role, 32)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			tokens := must(readTokens(path, true))(t)
			made[i] = tokens
		})
	}
	all.Wait()
	for _, tokens := range made {
		require.Equal(t, made[0], tokens)
		require.Len(t, tokens, 1)
	}
	left := must(os.ReadDir(filepath.Dir(path)))(t)
	require.Len(t, left, 1, "no file is left over")
}

// Stop ends what only serves a database, at whichever socket it does, and nothing else.
func TestStop(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.ctx")
	require.Equal(t, exitFailed, dbctl("", "stop", file).code, "there is no database")
	require.NoFileExists(t, file+".lock")
	s := startServe(t, file)
	r := dbctl("", "stop", file, "--wait", "0s")
	require.Contains(t, []int{exitOK, exitFailed}, r.code, "it may end at once")
	s.ends(t, "stop")
	require.Contains(t, ok(t, "", "stop", file), "no process has")

	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("host host-token-01234567\n"), 0o600))
	s = startServe(t, file, "--http", "127.0.0.1:0", "--token-file", tokens)
	v := asJSON(t, "", "stop", file, "--wait", "20s")
	require.EqualValues(t, s.PID, v["pid"], "its owner's socket takes the order, too")
	s.ends(t, "stop at the files' socket")

	live := filepath.Join(t.TempDir(), "live.ctx")
	p := liveWriter(t, live)
	r = dbctl("", "stop", live)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, fmt.Sprintf("pid %d", p.Pid))
	require.Contains(t, r.err, "beside its own work")
	ok(t, "", "ls", live)
	s = startServe(t, live)
	v = asJSON(t, "", "stop", live, "--wait", "20s")
	require.EqualValues(t, s.PID, v["pid"], "beside an agent the server ends, and the agent goes on")
	s.ends(t, "stop beside an agent")
	ok(t, "", "ls", live)
}

// serveAt serves a file at a socket.
func serveAt(t *testing.T, file string) (name string) {
	t.Helper()
	st := must(filestore.Open(filestore.Options{Path: file, MustExist: true, State: ctxpage.StateKinds()}))(t)
	srv := must(remote.NewServer(context.Background(), st, remote.ServerOptions{Program: "test"}))(t)
	dir := must(os.MkdirTemp("", "s"))(t) // the path of a socket must be short
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
	alone := dbctl("", "check", socket)
	require.Equal(t, exitUsage, alone.code)
	require.Contains(t, alone.err, "with --online")
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

// scrape gets a URL with a bearer token.
func scrape(t *testing.T, url, token string, how ...func(*http.Request)) (status int, body string) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for _, f := range how {
		f(req)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res := must(client.Do(req))(t)
	defer res.Body.Close()
	b := must(io.ReadAll(res.Body))(t)
	if res.StatusCode == http.StatusOK {
		require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", res.Header.Get("Content-Type"))
	}
	return res.StatusCode, string(b)
}

// waitFor scrapes until the observer, which runs beside the calls, has counted something.
func waitFor(t *testing.T, url, token, line string) string {
	t.Helper()
	for {
		status, text := scrape(t, url, token)
		require.Equal(t, http.StatusOK, status, text)
		if strings.Contains(text, line+"\n") {
			return text
		}
		require.NoError(t, t.Context().Err())
	}
}

// TestMetricsOfUI: the inspector serves metrics beside its pages, whose link works once, and its own door does not open them.
func TestMetricsOfUI(t *testing.T) {
	file := newDB(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600))
	i := startUI(t, file, "--metrics", "127.0.0.1:0", "--metrics-token", token)
	status, text := scrape(t, i.metrics, "0123456789abcdef")
	require.Equal(t, http.StatusOK, status, text)
	require.Regexp(t, `ctxpage_artefacts [1-9]`, text)
	status, _ = scrape(t, i.metrics, "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = i.get("/metrics")
	require.Equal(t, http.StatusNotFound, status)
	interrupt(t, i.cmd)
}

// TestMetrics: dbctl serve counts what callers do, at an address of its own, for who has the token of the file.
func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.ctx")
	s := startServe(t, file, "--metrics", "127.0.0.1:0", "--stdin")
	secret, err := os.ReadFile(file + ".metrics-token")
	require.NoError(t, err, "it is made")
	st := must(os.Stat(file + ".metrics-token"))(t)
	require.True(t, !system.Modes || st.Mode().Perm() == 0o600, st.Mode())
	token := strings.TrimSpace(string(secret))
	require.Contains(t, waitFor(t, s.Metrics, token, `ctxpage_calls_under_way{door="socket"} 0`), `ctxpage_calls_under_way{door="stream"} 0`)
	s.post(t, "put", `{"writes":[{"id":"secret-id","text":"Refunds take 14 days."}]}`, "Ctxpage-Scope: acme/secret", "Ctxpage-Role: host")
	s.post(t, "assemble", `{"query":"refunds","budget":1000}`, "Ctxpage-Scope: acme/secret")

	text := waitFor(t, s.Metrics, token, `ctxpage_operation_duration_seconds_count{operation="assemble"} 1`)
	require.Contains(t, text, `ctxpage_operation_duration_seconds_count{operation="commit"} 1`)
	require.Contains(t, text, "ctxpage_pages 1\n")
	require.Regexp(t, `ctxpage_disk_bytes\{part="audit"\} [0-9]`, text)
	require.NotContains(t, text, "secret")
	for _, bad := range []string{"", "wrong", token + "0", strings.Repeat("x", 10_000)} {
		status, text := scrape(t, s.Metrics, bad)
		require.Equal(t, http.StatusUnauthorized, status)
		require.NotContains(t, text, "ctxpage_pages")
	}
	status, _ := scrape(t, s.Metrics, token, func(r *http.Request) { r.Method = http.MethodPost })
	require.Equal(t, http.StatusMethodNotAllowed, status)
	status, _ = scrape(t, strings.TrimSuffix(s.Metrics, "/metrics")+"/v1/status", token)
	require.Equal(t, http.StatusNotFound, status, "the token reads nothing else")
	require.NoError(t, s.in.Close())
	s.ends(t, "its input ended")

	s = startServe(t, file, "--metrics", "127.0.0.1:0", "--metrics-scopes", "5", "--stdin")
	s.post(t, "assemble", `{"query":"refunds","budget":1000}`, "Ctxpage-Scope: acme/secret")
	text = waitFor(t, s.Metrics, token, `ctxpage_operation_duration_seconds_count{operation="assemble"} 1`) // the token is kept
	require.Regexp(t, `ctxpage_scope_operations_total\{scope="[0-9a-f]{16}"\} 1`, text)
	require.NotContains(t, text, "secret")
	require.NoError(t, s.in.Close())
	s.ends(t, "its input ended")
}

// TestMetricsFlags: what cannot be served is refused.
func TestMetricsFlags(t *testing.T) {
	dir := t.TempDir()
	file, short, open := newDB(t), filepath.Join(dir, "short"), filepath.Join(dir, "open")
	require.NoError(t, os.WriteFile(short, []byte("short\n"), 0o600))
	require.NoError(t, os.WriteFile(open, []byte(strings.Repeat("x", 32)), 0o644))
	for _, c := range []struct{ want, args string }{
		{"give its address", "--metrics-scopes 3"}, {"give its address", "--metrics-token " + short}, {"expected 0 to 1000", "--metrics 127.0.0.1:0 --metrics-scopes 1001"},
		{"expected a loopback address", "--metrics 0.0.0.0:0"}, {"at least 16 bytes", "--metrics 127.0.0.1:0 --metrics-token " + short},
		{"chmod 600", "--metrics 127.0.0.1:0 --metrics-token " + open},
	} {
		if c.want == "chmod 600" && !system.Modes {
			continue
		}
		for _, verb := range []string{"serve", "ui"} {
			r := dbctl("", append([]string{verb, file}, strings.Fields(c.args)...)...)
			require.Equal(t, exitUsage, r.code, "%s %s: %s%s", verb, c.args, r.out, r.err)
			require.Contains(t, r.err, c.want)
		}
	}
}
