package remote_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/remote"
)

// asked are the calls that were sent through its connections. Releases are told by the way, and are left out.
type asked struct {
	mu    sync.Mutex
	calls []string
}

var callLine = regexp.MustCompile(`POST /v1/(\S+) HTTP`)

// callsIn are the calls that one write begins: of HTTP, or on a stream, where a call is one write.
func callsIn(p []byte) (names []string) {
	if len(p) > 5+9 && p[0] == 'c' {
		head := p[5 : 5+binary.BigEndian.Uint32(p[1:])]
		return []string{string(head[9+int(head[8]):])}
	}
	for _, m := range callLine.FindAllSubmatch(p[:min(len(p), 256)], -1) {
		names = append(names, string(m[1]))
	}
	return names
}

type overheard struct {
	net.Conn
	by *asked
}

func (o overheard) Write(p []byte) (int, error) {
	for _, name := range callsIn(p) {
		if name != "Renew" {
			o.by.mu.Lock()
			o.by.calls = append(o.by.calls, name)
			o.by.mu.Unlock()
		}
	}
	return o.Conn.Write(p)
}

// during are the calls that something takes.
func (a *asked) during(do func()) []string {
	a.mu.Lock()
	a.calls = nil
	a.mu.Unlock()
	do()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

func remoteDB(t *testing.T, path string, opts remote.ClientOptions, files ...string) (*ctxpage.DB, *asked) {
	t.Helper()
	log := &asked{}
	c := dial(t, path, remote.Through(opts, func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		return overheard{conn, log}, err
	}))
	db, err := ctxpage.Open("trips", ctxpage.Options{Store: c, FileRoots: files, NoWatch: true}) // the process with the store watches
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db, log
}

// A step of an agent is few calls, and they say what many calls say: a client of protocol 1 is the control.
func TestTripsOfAStep(t *testing.T) {
	t.Parallel()
	path, dir := socket(t), t.TempDir()
	serve(t, newMemory(t), path, remote.ServerOptions{})
	file := filepath.Join(dir, "zoo.txt")
	require.NoError(t, os.WriteFile(file, []byte("The zebra sleeps at noon."), 0o600))
	db, log := remoteDB(t, path, remote.ClientOptions{}, dir)
	older, older1 := remoteDB(t, path, remote.Speaks(remote.ClientOptions{}, 1, 1), dir)
	s, old := db.Scope("acme/support"), older.Scope("acme/support")
	for n := range 40 {
		calls := log.during(func() {
			_, err := s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprintf("zebra %d has stripes", n)})
			require.NoError(t, err)
		})
		require.Equal(t, []string{"Commit"}, calls)
	}
	assemble := func(s *ctxpage.Scope, text string) (a *ctxpage.Assembly) {
		a, err := s.Assemble(ctx, ctxpage.Query{Text: text, Budget: 3000})
		require.NoError(t, err)
		return a
	}
	require.Equal(t, []string{"Prepare", "Changes", "Load", "Append"}, log.during(func() { assemble(s, "zebra stripes") }), "after commits")
	var now, before *ctxpage.Assembly
	require.Equal(t, []string{"Prepare", "Append"}, log.during(func() { now = assemble(s, "zebra stripes") }), "its pages are in memory")
	calls := older1.during(func() { assemble(old, "zebra stripes"); before = assemble(old, "zebra stripes") })
	require.Contains(t, calls, "Hold")
	require.NotContains(t, calls, "Prepare")
	require.Len(t, now.Blocks, len(before.Blocks))
	for i := range now.Blocks {
		require.Equal(t, before.Blocks[i].Ref, now.Blocks[i].Ref)
		require.InDelta(t, before.Blocks[i].Score, now.Blocks[i].Score, 1e-3)
	}

	// What changes between the plan and its use is seen: a file that is fetched again while files are looked at.
	_, err := s.Put(ctx, ctxpage.Artefact{ID: "zoo", Source: "file:" + file})
	require.NoError(t, err)
	assemble(s, "zebra")
	require.NoError(t, os.WriteFile(file, []byte("The okapi wakes at midnight, and eats."), 0o600))
	calls = log.during(func() { now = assemble(s, "okapi midnight") })
	require.True(t, bytes.Contains([]byte(now.Text()), []byte("okapi wakes")), "%v %s", calls, now.Text())
	require.Contains(t, calls, "Candidates", "the planned answer is not used")
	// And what another client commits.
	_, err = old.Put(ctx, ctxpage.Artefact{ID: "new", Text: "A quagga was seen."})
	require.NoError(t, err)
	require.Contains(t, assemble(s, "quagga").Text(), "quagga was seen")
}
