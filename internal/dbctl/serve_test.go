package dbctl

import (
	"bufio"
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

	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/serve"
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
