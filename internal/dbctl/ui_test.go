package dbctl

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
)

// inspecting is a dbctl ui in a process of its own, and a browser that went through its door.
type inspecting struct {
	t       *testing.T
	cmd     *exec.Cmd
	origin  string
	metrics string
	client  *http.Client
}

func startUI(t *testing.T, args ...string) *inspecting {
	t.Helper()
	i := &inspecting{t: t, cmd: exec.Command(os.Args[0], append([]string{"ui", "--json"}, args...)...)}
	i.cmd.Env, i.cmd.Stderr = append(os.Environ(), childEnv+"=1"), os.Stderr
	out := must(i.cmd.StdoutPipe())(t)
	require.NoError(t, i.cmd.Start())
	line := must(bufio.NewReader(out).ReadBytes('\n'))(t)
	var said uiView
	require.NoError(t, json.Unmarshal(line, &said))
	jar := must(cookiejar.New(nil))(t)
	i.metrics = said.Metrics
	i.client, i.origin = &http.Client{Jar: jar}, said.URL[:strings.Index(said.URL, "/enter")]
	require.True(t, strings.HasPrefix(i.origin, "http://127.0.0.1:"))
	status, _ := i.get("/")
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = i.get(said.URL[len(i.origin):])
	require.Equal(t, http.StatusOK, status)
	return i
}

func (i *inspecting) get(path string) (int, string) {
	i.t.Helper()
	res := must(i.client.Get(i.origin + path))(i.t)
	body, err := io.ReadAll(res.Body)
	require.NoError(i.t, errors.Join(err, res.Body.Close()))
	return res.StatusCode, string(body)
}

// shows wants a context and what the banner says, follows the stream, and ends the process while it is open.
func (i *inspecting) shows(trace string) string {
	i.t.Helper()
	status, body := i.get("/context?trace=" + trace)
	require.Equal(i.t, http.StatusOK, status, body)
	require.Contains(i.t, body, "How long does a refund take?")
	require.Contains(i.t, body, "Refunds take 14 days.")
	res := must(i.client.Get(i.origin + "/events?after=0"))(i.t)
	defer res.Body.Close()
	interrupt(i.t, i.cmd) // an open stream does not keep it
	return body
}

// The inspector shows a database that no process, another process, or nobody without a key has open.
func TestUI(t *testing.T) {
	file, trace, _ := aChat(t)
	alone := startUI(t, file)
	_, health := alone.get("/health")
	require.Contains(t, health, "this inspector")
	require.NotContains(t, alone.shows(trace), "leaves no manifest")
	last := func() map[string]any {
		return asJSON(t, "", "manifest", "ls", file, "--limit", "1")["leaves"].([]any)[0].(map[string]any)
	}
	require.Equal(t, []any{"recall", "ui"}, []any{last()["type"], last()["actor"]})

	before := last()
	require.Contains(t, startUI(t, file, "--read-only").shows(trace), "leaves no manifest")
	require.Equal(t, before, last())

	db := must(ctxpage.Open(file, ctxpage.Options{}))(t)
	beside := startUI(t, file, "--write")
	must(db.Scope("acme/support").Put(context.Background(), ctxpage.Artefact{ID: "written-meanwhile", Text: "by the agent"}))(t)
	_, body := beside.get("/page?ref=acme/support:written-meanwhile")
	require.Contains(t, body, "by the agent")
	beside.shows(trace)
	require.NoError(t, db.Close())

	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte(hex.EncodeToString([]byte("a key of thirty-two random bytes"))), 0o600))
	sealed := filepath.Join(t.TempDir(), "sealed.ctx")
	ok(t, "", "init", sealed, "--key-file", key)
	ok(t, "Refunds take 14 days.", "put", sealed, "acme/support", "policy", "--key-file", key)
	sealedTrace := asJSON(t, "", "assemble", sealed, "acme/support", "How long does a refund take?", "--key-file", key)["trace"].(string)
	startUI(t, sealed, "--key-file", key).shows(sealedTrace)
	require.Equal(t, exitFailed, dbctl("", "ui", sealed).code)

	for _, args := range [][]string{{"--write", "--read-only"}, {"--port", "70000"}, {"--port", "-1"}} {
		require.Equal(t, exitUsage, dbctl("", append([]string{"ui", file}, args...)...).code, args)
	}
	require.Equal(t, exitFailed, dbctl("", "ui", filepath.Join(t.TempDir(), "none.ctx")).code, "nothing is created")
}
