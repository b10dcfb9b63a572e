package pgstore

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tool is dbctl as this module builds it, on one database of the server.
type tool struct {
	t         *testing.T
	bin, path string
	dsn, name string
	home      string
	ran       map[string]bool // verbs
}

func newTool(t *testing.T) *tool {
	t.Helper()
	d := &tool{t: t, bin: t.TempDir(), dsn: onServer(t), name: ownName(t), ran: map[string]bool{}}
	d.path, d.home = filepath.Join(d.bin, "dbctl"), t.TempDir()
	cmd := exec.Command("go", "build", "-o", d.path, "./cmd/dbctl")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return d
}

// command prepares a line, in which @ stands for the URL and _ for a space within a word.
func (d *tool) command(line string) *exec.Cmd {
	var args []string
	for arg := range strings.FieldsSeq(line) {
		args = append(args, strings.ReplaceAll(strings.ReplaceAll(arg, "@", d.dsn), "_", " "))
	}
	cmd := exec.CommandContext(d.t.Context(), d.path, args...)
	cmd.Dir = d.home
	cmd.Env = append(os.Environ(), "CTXPAGE_DATABASE="+d.name, "HOME="+d.home, "XDG_CACHE_HOME="+d.home, "XDG_CONFIG_HOME="+d.home, "CTXPAGE_KEY_FILE=")
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			d.ran[arg] = true
			break
		}
	}
	return cmd
}

func (d *tool) run(in, line string) (code int, out, errs string) {
	d.t.Helper()
	cmd := d.command(line)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &o, &e
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

func (d *tool) ok(line string) string {
	d.t.Helper()
	return d.fed("", line)
}

func (d *tool) fed(in, line string) string {
	d.t.Helper()
	code, out, errs := d.run(in, line)
	require.Zero(d.t, code, "%s: %s%s", line, out, errs)
	return out
}

// field returns a member of what a line prints as JSON.
func (d *tool) field(line, name string) string {
	d.t.Helper()
	var v map[string]any
	require.NoError(d.t, json.Unmarshal([]byte(d.ok(line+" --json")), &v))
	return v[name].(string)
}

// Every verb of dbctl takes a postgres:// URL where it takes a file. Verbs that cannot work on a server say what to use instead.
func TestVerbsOnAServer(t *testing.T) {
	t.Parallel()
	d := newTool(t)
	code, _, errs := d.run("", "put @ acme a words")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no database")
	made := d.ok("init @")
	require.Contains(t, made, d.name)
	require.NotContains(t, made, "retention preset", "a server cannot prune")
	code, _, errs = d.run("", "init @")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "exists already")
	require.NoError(t, os.MkdirAll(filepath.Join(d.home, "docs"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(d.home, "docs", "a.md"), []byte("# Parcels\n\nParcels are blue.\n"), 0o600))

	d.ok("put @ acme a Refunds_are_paid_within_30_days.")
	d.ok("put @ acme b Refunds_above_400_need_an_approval.")
	require.Contains(t, d.ok("get @ acme a"), "30 days")
	require.Contains(t, d.ok("--json search @ acme refunds"), "acme:a", "flags may come first")
	require.Contains(t, d.ok("history @ acme a"), "1")
	require.Contains(t, d.ok("ls @ acme"), "b")
	require.Contains(t, d.ok("import @ acme docs"), "wrote 1 of 1")
	trace := d.field("assemble @ acme refunds --budget 500", "trace")
	dropped := d.field("assemble @ acme refunds --budget 500", "trace")
	code, out, errs := d.run("A draft.", "commit @ acme --trace "+trace+" --json")
	require.Equal(t, 4, code, "held: %s%s", out, errs)
	batch := regexp.MustCompile(`"batch": "([^"]+)"`).FindStringSubmatch(out)
	require.NotEmpty(t, batch, out)
	d.ok("review show @ " + batch[1])
	d.ok("review approve @ " + batch[1] + " --by ann")
	d.fed("set premise Be_brief.\n", "directive @ acme")
	d.fed(`{"hook_event_name":"UserPromptSubmit","session_id":"h","prompt":"hello there"}`, "hook @ --scope acme")
	model := httptest.NewServer(http.HandlerFunc(vectors))
	defer model.Close()
	for _, line := range []string{
		"rollback @ acme --trace " + dropped, "why @ " + trace + " a", "replay @ " + trace, "diff @ " + trace + " " + dropped, "stat @", "health @ acme", "check @", "manifest ls @", "manifest show @ 0", "manifest head @",
		"manifest verify @", "manifest prove @ 0", "manifest tail @", "review ls @", "refresh @ acme", "gc @ --dry-run", "gc @", "session append @ acme s hello", "session ls @ acme", "session show @ acme s",
		"watch @ acme s --total 8000 --once", "handoff @ acme s --to other", "export @", "promote @ acme a --to validated --by ann", "retention preset @ year", "retention show @", "retention run @", "quota set @ acme --pages 1000",
		"quota show @", "rm @ acme b", "embed @ --model " + model.URL + "/v1#m", "erase run @ acme:a --by ann --reason privacy", "erase ls @", "setup cursor @ --scope acme", "mcp config codex @ --scope acme", "stop @",
		"postgres migrate @", "postgres ls @", "postgres image @", "postgres finish-erase @",
	} {
		d.ok(line)
	}
	require.Contains(t, d.ok("mcp config codex @ --scope acme"), "--database="+d.name)
	for _, line := range []string{"backup @ copy.ctx", "compact @", "salvage @ copy.ctx", "restore @ copy.ctx", "key add @"} {
		code, out, errs := d.run("", line)
		require.Equal(t, 2, code, line)
		require.Empty(t, out, line)
		require.Contains(t, errs, "the server's own", line)
	}
	d.pipes()
	d.follows(trace)
	d.shows(trace)
	d.servesJSON()
	d.servesMCP()
	elsewhere := []string{"budget", "completion", "demo", "help", "version"} // they take no database
	for line := range strings.Lines(d.ok("completion --words")) {
		if verb := strings.TrimSpace(line); !slices.Contains(elsewhere, verb) {
			require.True(t, d.ran[verb], "%s was not run on a server", verb)
		}
	}
}

// vectors answers as a server of embeddings: all texts mean the same.
func vectors(w http.ResponseWriter, r *http.Request) {
	type vector struct {
		Index  int       `json:"index"`
		Vector []float32 `json:"embedding"`
	}
	var in struct{ Input []string }
	var out struct {
		Data []vector `json:"data"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for i := range in.Input {
		out.Data = append(out.Data, vector{i, []float32{1, 0}})
	}
	_ = json.NewEncoder(w).Encode(out)
}

// pipes ends a reader before the output ends, which is no error.
func (d *tool) pipes() {
	d.ok("put @ acme long " + strings.Repeat("Refunds.", 10_000))
	var said bytes.Buffer
	piped := exec.CommandContext(d.t.Context(), "sh", "-c", `"$0" get "$1" acme long | head -c 1`, d.path, d.dsn)
	piped.Env, piped.Stderr = append(os.Environ(), "CTXPAGE_DATABASE="+d.name), &said
	require.NoError(d.t, piped.Run())
	require.Empty(d.t, said.String())
}

// started starts a line that serves, and returns the first line that it prints.
func (d *tool) started(line string) (cmd *exec.Cmd, said string) {
	cmd = d.command(line)
	out, err := cmd.StdoutPipe()
	require.NoError(d.t, err)
	require.NoError(d.t, cmd.Start())
	said, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(d.t, err)
	return cmd, strings.TrimSpace(said)
}

// follows serves the store to other processes of the host, with one follower for all.
func (d *tool) follows(trace string) {
	socket := filepath.Join(d.bin, "s")
	srv, line := d.started("postgres follow @ --socket " + socket)
	require.Contains(d.t, line, "serving at "+socket)
	for _, line := range []string{"why # " + trace + " b", "check # --online", "manifest verify #", "session ls # acme"} {
		d.ok(strings.ReplaceAll(line, "#", "unix:"+socket))
	}
	require.NoError(d.t, srv.Process.Signal(os.Interrupt))
	require.NoError(d.t, srv.Wait())
}

// servesJSON serves the database to programs in any language, and ends it by dbctl stop.
func (d *tool) servesJSON() {
	srv, socket := d.started("serve @")
	cmd := exec.CommandContext(d.t.Context(), "curl", "-s", "--unix-socket", socket, "-H", "Ctxpage-Scope: acme", "-d", `{"query":"parcels"}`, "http://localhost/v1/search")
	if out, err := cmd.CombinedOutput(); err == nil { // without curl the answer to stop must do
		require.Contains(d.t, string(out), "Parcels are blue")
	}
	d.ok("stop @ --wait 1m")
	require.NoError(d.t, srv.Wait())
}

// shows opens the inspector, and a context in it.
func (d *tool) shows(trace string) {
	srv, link := d.started("ui @")
	jar, err := cookiejar.New(nil)
	require.NoError(d.t, err)
	browser := &http.Client{Jar: jar}
	for _, at := range []string{link, link[:strings.Index(link, "/enter")] + "/context?trace=" + trace} {
		res, err := browser.Get(at)
		require.NoError(d.t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(d.t, errors.Join(err, res.Body.Close()))
		require.Equal(d.t, http.StatusOK, res.StatusCode, string(body))
	}
	require.NoError(d.t, srv.Process.Signal(os.Interrupt))
	require.NoError(d.t, srv.Wait())
}

// servesMCP serves a scope to a model.
func (d *tool) servesMCP() {
	out := d.fed(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search","arguments":{"query":"parcels"}}}
`, "mcp @ --scope acme")
	require.Contains(d.t, out, "Parcels are blue")
}
