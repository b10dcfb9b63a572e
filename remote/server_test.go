package remote_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/remote"
	"github.com/ctxpage/ctxpage/store"
)

// A client of another protocol is told so by type; the status and the order to stop work all the same.
func TestSkew(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	path := socket(t)
	stopped := make(chan struct{})
	serve(t, mem, path, remote.ServerOptions{Program: "owner", Stop: func() { close(stopped) }})
	newer := remote.Speaks(remote.ClientOptions{}, remote.MaxProtocol+1, remote.MaxProtocol+3)
	_, err := remote.Dial(ctx, path, newer)
	var skew *remote.SkewError
	require.ErrorAs(t, err, &skew)
	require.Equal(t, remote.MaxProtocol, skew.Max)
	require.Equal(t, remote.MaxProtocol+1, skew.ClientMin)
	require.Equal(t, os.Getpid(), skew.PID)
	require.ErrorContains(t, err, "(owner, since ")
	both, err := remote.Dial(ctx, path, remote.Speaks(remote.ClientOptions{}, remote.MaxProtocol, remote.MaxProtocol+3))
	require.NoError(t, err, "ranges that overlap")
	defer both.Close()

	is, err := remote.GetStatus(ctx, path, newer)
	require.NoError(t, err)
	info, err := mem.Info(ctx)
	require.NoError(t, err)
	require.Equal(t, info.ID, is.Database)
	require.Equal(t, "owner", is.Program)
	require.Equal(t, 1, is.Clients)
	_, err = remote.Stop(ctx, path, newer)
	require.NoError(t, err)
	<-stopped
}

// A leaf has its pages in the audit whichever protocol a client and a server have in common, also where an older server
// takes the place of a newer one.
func TestLeavesOfEveryProtocol(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	path := socket(t)
	end := serve(t, mem, path, remote.ServerOptions{})
	clients := map[string]*remote.Client{"newest": dial(t, path, remote.ClientOptions{}), "tables": dial(t, path, remote.Speaks(remote.ClientOptions{}, 1, 4)), "http": dial(t, path, remote.Speaks(remote.ClientOptions{}, 1, 3)), "older": dial(t, path, remote.Speaks(remote.ClientOptions{}, 1, 2))}
	leave := func(trace string, c *remote.Client) {
		leaf := &manifest.Record{Type: manifest.TypeAssemble, Trace: trace, Scope: "acme", Actor: "acme", Pages: []manifest.Page{{Num: 7, Version: 1, Tokens: 5, Form: manifest.FormRange, Ranges: [][2]uint32{{1, 2}}}, {Num: 9, Version: 1}}}
		leaf.Excluded = []manifest.Exclusion{{Reason: "budget", Count: 2, Nearest: []manifest.Page{{Num: 11, Version: 1, Score: 9}}}}
		want, left := slices.Clone(leaf.Pages), slices.Clone(leaf.Excluded[0].Nearest)
		require.NoError(t, c.Append(ctx, []*manifest.Record{leaf}, store.Synced))
		require.Equal(t, want, leaf.Pages)
		kept, err := mem.Audit().ByTrace(ctx, trace)
		require.NoError(t, err)
		require.Len(t, kept, 1)
		require.Equal(t, want, kept[0].Pages)
		require.Equal(t, left, kept[0].Excluded[0].Nearest)
	}
	for name, c := range clients {
		leave(name, c)
	}
	end()
	end = serve(t, mem, path, remote.ServerSpeaks(remote.ServerOptions{}, 1, 4))
	leave("replaced", clients["newest"])
	leave("and after", clients["newest"])
	end()
	serve(t, mem, path, remote.ServerSpeaks(remote.ServerOptions{}, 1, 2))
	leave("replaced again", clients["newest"])
	leave("and after that", clients["newest"])
}

// A request that stops in the middle is cut off, whatever it asks for; nothing waits for it, and the server can end.
func TestRequestsThatStop(t *testing.T) {
	t.Parallel()
	const short = 300 * time.Millisecond
	path := socket(t)
	end := serve(t, newMemory(t), path, remote.Patient(remote.ServerOptions{}, short))
	c := dial(t, path, remote.ClientOptions{})
	c2 := remote.HTTPClient(path)
	res, err := c2.Post("http://x/hello", "application/json", strings.NewReader(`{"min":1,"max":3,"pid":1,"program":"x"}`))
	require.NoError(t, err)
	var session struct{ Session string }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&session))
	require.NoError(t, res.Body.Close())
	const rest = "Host: x\r\nContent-Length: 100\r\n\r\n"
	begun := time.Now()
	var all sync.WaitGroup
	for _, said := range []string{
		"POST /hello HTTP/1.1\r\n" + rest + "{", "POST /backup HTTP/1.1\r\n" + rest + "{", "POST /stop HTTP/1.1\r\n" + rest, "POST /nothing HTTP/1.1\r\n" + rest + "{",
		"POST /v1/Stat HTTP/1.1\r\nCtxpage-Call: 1\r\nCtxpage-Session: " + session.Session + "\r\n" + rest + "r\x00\x00",
	} {
		all.Go(func() {
			conn, err := net.Dial("unix", path)
			if !assert.NoError(t, err) {
				return
			}
			defer conn.Close()
			_, err = io.WriteString(conn, said)
			assert.NoError(t, err)
			assert.NoError(t, conn.SetReadDeadline(begun.Add(time.Minute)))
			got, err := io.ReadAll(conn)
			assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, said)
			assert.NotContains(t, string(got), "200 OK", said)
			assert.GreaterOrEqual(t, time.Since(begun), short, said)
		})
	}
	for n := 0; time.Since(begun) < short; n++ {
		_, err := c.Commit(ctx, fact(t, fmt.Sprint("fact-", n), "zebra"))
		require.NoError(t, err, "others are served meanwhile")
	}
	all.Wait()
	for range 3 { // the connections of others are not cut when they are quiet for longer
		time.Sleep(short)
		_, err := c.Stat(ctx)
		require.NoError(t, err)
	}
	stops, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer stops.Close()
	_, err = io.WriteString(stops, "POST /hello HTTP/1.1\r\n"+rest+"{")
	require.NoError(t, err)
	end()
}

// Under a server of a later release a client is told so, and the status, a backup and the order to stop work.
func TestServerOfALaterProtocol(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st, err := filestore.Open(filestore.Options{Path: filepath.Join(dir, "agent.ctx")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	_, err = st.Commit(ctx, fact(t, "fact", "zebra"))
	require.NoError(t, err)
	path := socket(t)
	stopped := make(chan struct{})
	later := remote.ServerSpeaks(remote.ServerOptions{Program: "owner", Stop: func() { close(stopped) }}, remote.MaxProtocol+1, remote.MaxProtocol+2)
	end := serve(t, st, path, later)
	_, err = remote.Dial(ctx, path, remote.ClientOptions{})
	var skew *remote.SkewError
	require.ErrorAs(t, err, &skew)
	require.Equal(t, remote.MaxProtocol+1, skew.Min)
	require.Equal(t, path, skew.Path)

	is, err := remote.GetStatus(ctx, path, remote.ClientOptions{})
	require.NoError(t, err)
	require.Equal(t, remote.MaxProtocol+2, is.Max)
	out := filepath.Join(dir, "saved.ctx")
	bytes, head, err := remote.Backup(ctx, path, out, remote.ClientOptions{})
	require.NoError(t, err)
	require.NotZero(t, bytes)
	now, err := st.Head(ctx)
	require.NoError(t, err)
	require.Equal(t, strings.Fields(now.String())[:4], strings.Fields(head)[:4], "they differ in the time")
	saved, err := filestore.Open(filestore.Options{Path: out, MustExist: true})
	require.NoError(t, err)
	_, err = saved.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: "fact"})
	require.NoError(t, err)
	require.NoError(t, saved.Close())
	_, _, err = remote.Backup(ctx, path, out, remote.ClientOptions{})
	require.ErrorContains(t, err, "exist", "it writes over nothing")
	_, err = remote.Stop(ctx, path, remote.ClientOptions{})
	require.NoError(t, err)
	<-stopped
	end()
	_, _, err = remote.Backup(ctx, path, filepath.Join(dir, "never.ctx"), remote.ClientOptions{})
	var gone *remote.UnavailableError
	require.ErrorAs(t, err, &gone)
}

// The lines for curl of PROTOCOL.md do at the socket of a store what it says, each request among them.
func TestProtocolPageOfTheStore(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../PROTOCOL.md")
	require.NoError(t, err)
	_, of, ok := strings.Cut(string(page), "\n# The store\n")
	require.True(t, ok)
	script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(of)
	require.NotNil(t, script)
	for _, path := range []string{"/status", "/hello", "/bye", "/stop", "/backup", "/v1/"} {
		require.Contains(t, script[1], "http://ctxpage"+path)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not here")
	}
	dir, err := os.MkdirTemp("", "p")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	st, err := filestore.Open(filestore.Options{Path: filepath.Join(dir, "agent.ctx")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	stopped := make(chan struct{})
	serve(t, st, filepath.Join(dir, "agent.ctx.sock"), remote.ServerOptions{Program: "owner", Stop: func() { close(stopped) }})
	checked := 0
	var told strings.Builder
	var expected []string
	for line := range strings.Lines(script[1]) {
		line, want, _ := strings.Cut(line, "# ")
		fmt.Fprintf(&told, "%s\necho; echo ----\n", strings.TrimSpace(line))
		expected = append(expected, strings.TrimSpace(want))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", told.String())
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	answers := strings.Split(string(out), "\n----\n")
	require.GreaterOrEqual(t, len(answers), len(expected), "%s", out)
	for i, want := range expected {
		require.Contains(t, answers[i], want)
		if want != "" {
			checked++
		}
	}
	require.GreaterOrEqual(t, checked, 5)
	<-stopped
	size, err := os.ReadFile(filepath.Join(dir, "size.bin"))
	require.NoError(t, err)
	require.Equal(t, "r", string(size[:1]), "a frame")
	require.FileExists(t, filepath.Join(dir, "saved.ctx"))
}

// A server that would ignore a filter is not asked with one: every page would seem to pass.
func TestFilterNeedsProtocol(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, newMemory(t), path, remote.ServerOptions{Program: "owner"})
	older := dial(t, path, remote.Speaks(remote.ClientOptions{}, 1, 1))
	f := &store.Filter{TagsAny: []string{"x"}}
	var skew *remote.SkewError
	_, err := older.Candidates(ctx, store.CandidateQuery{Filter: f})
	require.ErrorAs(t, err, &skew)
	require.Equal(t, 2, skew.ClientMin)
	require.Equal(t, 1, skew.Max)
	require.ErrorContains(t, err, "a filter needs protocol 2")
	_, err = older.Scan(ctx, store.ScanQuery{Filter: f})
	require.ErrorAs(t, err, &skew)
	for _, none := range []*store.Filter{nil, {}} {
		_, err = older.Candidates(ctx, store.CandidateQuery{Filter: none})
		require.False(t, errors.As(err, &skew), "the control: no filter, and any protocol does: %v", err)
	}
	_, err = dial(t, path, remote.ClientOptions{}).Candidates(ctx, store.CandidateQuery{Filter: f})
	require.False(t, errors.As(err, &skew), "%v", err)
}

// A server that would leave names where they are is not asked to take them, and so with the other fields it does not know.
func TestJobsNeedProtocol(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, newMemory(t), path, remote.ServerOptions{Program: "owner"})
	erase := store.EraseJob{Refs: []store.Ref{{Scope: "acme", ID: "x"}}, By: "kim", Reason: "asked"}
	names, leaves := erase, erase
	names.Names, leaves.Leaves = true, []manifest.Span{{0, 1}}
	for needs, jobs := range map[bool][]store.Job{
		true:  {{Kind: store.JobErase, Erase: &names}, {Kind: store.JobErase, Erase: &leaves}, {Kind: store.JobGC, GC: &store.GCJob{Models: []string{}}}},
		false: {{Kind: store.JobErase, Erase: &erase}, {Kind: store.JobGC, GC: &store.GCJob{}}},
	} {
		for _, job := range jobs {
			var skew *remote.SkewError
			_, err := dial(t, path, remote.Speaks(remote.ClientOptions{}, 1, 1)).Maintain(ctx, job, nil)
			require.Equal(t, needs, errors.As(err, &skew), "%+v: %v", job, err)
		}
	}
}

// A server beside other work of its program is not stopped from outside.
func TestStopRefused(t *testing.T) {
	t.Parallel()
	path := socket(t)
	end := serve(t, newMemory(t), path, remote.ServerOptions{})
	_, err := remote.Stop(ctx, path, remote.ClientOptions{})
	require.ErrorContains(t, err, "end it there")
	end()
	var nobody *remote.UnavailableError
	_, err = remote.GetStatus(ctx, path, remote.ClientOptions{})
	require.ErrorAs(t, err, &nobody)
	require.NotErrorIs(t, err, store.ErrLocked, "nobody has it")
}

// Processes of another user are not served, and not spoken to.
func TestForeignUser(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, newMemory(t), path, remote.ServerOptions{})
	_, err := remote.Dial(ctx, path, remote.SeesUser(remote.ClientOptions{}, os.Geteuid()+1))
	require.ErrorIs(t, err, remote.ErrForeign)
	c, err := remote.Dial(ctx, path, remote.SeesUser(remote.ClientOptions{}, os.Geteuid()))
	require.NoError(t, err)
	require.NoError(t, c.Close())

	other := socket(t)
	srv, err := remote.NewServer(ctx, newMemory(t), remote.ServerOptions{})
	require.NoError(t, err)
	l, err := remote.ListenSeeing(other, os.Geteuid()+1)
	require.NoError(t, err)
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	_, err = remote.Dial(ctx, other, remote.ClientOptions{})
	var nobody *remote.UnavailableError
	require.ErrorAs(t, err, &nobody)
}

// The socket is this user's alone; a stale one is replaced, and nothing else is.
func TestListen(t *testing.T) {
	t.Parallel()
	path := socket(t)
	l, err := remote.Listen(path)
	require.NoError(t, err)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	l.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false) // as after a kill
	require.NoError(t, l.Close())
	l, err = remote.Listen(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	other, err := remote.Listen(path) // of a database that was put in the place of the first
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = os.Stat(path)
	require.NoError(t, err, "the socket of another server stays")
	require.NoError(t, other.Close())
	_, err = os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("a file"), 0o600))
	_, err = remote.Listen(path)
	require.ErrorIs(t, err, store.ErrInvalid)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "a file", string(b))
	_, err = remote.Listen("/" + strings.Repeat("x", 103))
	require.ErrorIs(t, err, store.ErrInvalid)
}

// A database with a long path is served at a short name in a directory of the user's own.
func TestSocketPath(t *testing.T) {
	dir := filepath.Dir(socket(t))
	real, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	short := filepath.Join(dir, "agent.ctx")
	got, err := remote.SocketPath(short)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(real, "agent.ctx.sock"), got)

	deep := filepath.Join(dir, strings.Repeat("d", 60), strings.Repeat("e", 60))
	require.NoError(t, os.MkdirAll(deep, 0o700))
	long := filepath.Join(deep, "agent.ctx")
	_, err = remote.SocketPath(long)
	require.ErrorIs(t, err, os.ErrNotExist, "the lock file gives the name")
	require.NoError(t, os.WriteFile(long+".lock", nil, 0o600))
	require.NoError(t, os.Chmod(dir, 0o700))
	t.Setenv("XDG_RUNTIME_DIR", dir)
	got, err = remote.SocketPath(long)
	require.NoError(t, err)
	require.Equal(t, dir, filepath.Dir(got))
	require.LessOrEqual(t, len(got), 103)
	require.NoError(t, os.Symlink(deep, filepath.Join(dir, "link")))
	same, err := remote.SocketPath(filepath.Join(dir, "link", "agent.ctx"))
	require.NoError(t, err)
	require.Equal(t, got, same, "a link leads to the file's own socket")

	serve(t, newMemory(t), got, remote.ServerOptions{})
	dial(t, got, remote.ClientOptions{})
	own := fmt.Sprintf("/tmp/ctxpage-%d", os.Geteuid())
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, unfit := range []string{dir, filepath.Join(dir, "missing"), ""} {
		t.Setenv("XDG_RUNTIME_DIR", unfit)
		got, err = remote.SocketPath(long)
		require.NoError(t, err)
		require.Equal(t, own, filepath.Dir(got), "others can look into the directory, or there is none")
	}
}

// Results of any length pass: a page of the largest text, and more leaves than fit into one answer.
func TestLongResults(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	path := socket(t)
	serve(t, mem, path, remote.ServerOptions{})
	c := dial(t, path, remote.ClientOptions{})
	text := strings.Repeat("zebra ", store.MaxText/6)
	var keys []store.PageKey
	for i := range 2 {
		id := fmt.Sprint("long ", i)
		_, err := c.Commit(ctx, fact(t, id, text))
		require.NoError(t, err)
		l, err := c.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: id})
		require.NoError(t, err)
		keys = append(keys, l.Pages...)
	}
	got, err := c.Load(ctx, nil, keys, store.WantText)
	require.NoError(t, err)
	require.True(t, got[0].Text == text && got[1].Text == text)
	require.Greater(t, len(got[0].Text)+len(got[1].Text), remote.MaxFrame)

	note := strings.Repeat("n", 100_000)
	for i := range 100 {
		require.NoError(t, c.Append(ctx, []*manifest.Record{{Type: manifest.TypeGet, Trace: fmt.Sprint(i), Time: 1, Note: note}}, store.Written))
	}
	for _, reverse := range []bool{false, true} {
		want, err := mem.Audit().Records(ctx, 3, 101, reverse, 90)
		require.NoError(t, err)
		leaves, err := c.Audit().Records(ctx, 3, 101, reverse, 90)
		require.NoError(t, err)
		require.Equal(t, want, leaves)
		require.Len(t, leaves, 90)
	}
}

// Requests that are none are refused in JSON, and nothing is done.
func TestRefusals(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	path := socket(t)
	serve(t, mem, path, remote.ServerOptions{MaxClients: 1})
	h := remote.HTTPClient(path)
	post := func(to, session, call string, body []byte) (int, string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, "http://ctxpage"+to, bytes.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Ctxpage-Session", session)
		req.Header.Set("Ctxpage-Call", call)
		res, err := h.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		var got map[string]any
		require.NoError(t, json.NewDecoder(res.Body).Decode(&got))
		code, _ := got["code"].(string)
		if s, ok := got["session"].(string); ok {
			code = s
		}
		return res.StatusCode, code
	}
	status, session := post("/hello", "", "", []byte(`{"min":1,"max":1}`))
	require.Equal(t, http.StatusOK, status)
	for _, c := range []struct {
		to, session, call string
		body              []byte
		status            int
		code              string
	}{
		{"/hello", "", "", []byte(`{"min":1,"max":1}`), 503, "full"},
		{"/hello", "", "", []byte(`hello`), 400, "body"},
		{"/hello", "", "", []byte(`{"min":1,"Max":1}`), 400, "body"},
		{"/hello", "", "", []byte(`{"min":1,"max":1,"max":1}`), 400, "body"},
		{"/backup", "", "", []byte(`{"Path":"/nowhere/x"}`), 400, "body"},
		{"/hello", "", "", []byte(`{"min":9,"added":{"later":1},"max":9}`), 409, "skew"},
		{"/hello", "", "", []byte(`{"min":9,"max":9}`), 409, "skew"},
		{"/v1/Commit", "nobody", "1", nil, 410, "session"},
		{"/v1/Nothing", session, "1", nil, 404, "method"},
		{"/v1/Commit", session, "1", []byte("x"), 400, "body"},
		{"/v1/Commit", session, "1", remote.Framed([]byte("no msgpack")), 400, "body"},
		{"/v1/Commit", session, "", remote.Framed(nil), 400, "body"},
		{"/v1/Stat", session, "2", []byte{'r', 255, 255, 255, 255}, 400, "body"},
		{"/v1/Stat", session, "2", append(remote.Framed([]byte{0x80}), 'x'), 400, "body"},
	} {
		status, code := post(c.to, c.session, c.call, c.body)
		require.Equal(t, c.status, status, "%+v", c)
		require.Equal(t, c.code, code, "%+v", c)
	}
	require.Zero(t, mem.Mark().LSN)
	require.Zero(t, dbtest.SizeOf(mem.Audit()))
}

// A hundred clients write at once: each commit is there, once.
func TestManyClients(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	path := socket(t)
	serve(t, mem, path, remote.ServerOptions{Lease: time.Hour})
	var wg sync.WaitGroup
	clients := make([]*remote.Client, 100)
	for i := range clients {
		batch := fact(t, fmt.Sprint("of ", i), "zebra")
		wg.Go(func() {
			c, err := remote.Dial(ctx, path, remote.Goodbye(remote.ClientOptions{Answer: time.Minute}, time.Minute)) // the machine may be busy with others
			if err == nil {
				_, err = c.Commit(ctx, batch)
			}
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			clients[i] = c
		})
	}
	wg.Wait()
	for _, c := range clients {
		require.NotNil(t, c)
		require.NoError(t, c.Close())
	}
	require.EqualValues(t, 100, mem.Mark().LSN)
	is, err := remote.GetStatus(ctx, path, remote.ClientOptions{Answer: time.Minute})
	require.NoError(t, err)
	require.Zero(t, is.Clients, "each said goodbye")
}

// A client may be closed in the moment in which a call opens its stream: under the race detector, the two do not meet.
func TestCloseWhileStreamsOpen(t *testing.T) {
	path := socket(t)
	serve(t, newMemory(t), path, remote.ServerOptions{})
	for i := range 400 {
		c, err := remote.Dial(ctx, path, remote.ClientOptions{})
		require.NoError(t, err)
		for range 4 {
			go func() { _, _ = c.Stat(ctx) }()
		}
		time.Sleep(time.Duration(i%40) * 20 * time.Microsecond)
		require.NoError(t, c.Close())
	}
}
