package remote_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asked are the calls that were sent through its connections. Releases are told by the way, and are left out.
type asked struct {
	mu    sync.Mutex
	calls []string
}

// callIn is the call that one write begins; "": none.
func callIn(p []byte) string {
	if p = bytes.TrimPrefix(p, []byte(remote.Greeting)); len(p) > 5+9 && p[0] == 'c' {
		head := p[5 : 5+binary.BigEndian.Uint32(p[1:])]
		return string(head[9+int(head[8]):])
	}
	return ""
}

type overheard struct {
	net.Conn
	by *asked
}

func (o overheard) Write(p []byte) (int, error) {
	if name := callIn(p); name != "" && name != "Renew" && name != "Status" {
		o.by.mu.Lock()
		o.by.calls = append(o.by.calls, name)
		o.by.mu.Unlock()
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
		conn, err := remote.Connect(ctx, path)
		return overheard{conn, log}, err
	}))
	db := must(ctxpage.Open("trips", ctxpage.Options{Store: c, FileRoots: files, NoWatch: true}))(t) // the process with the store watches
	t.Cleanup(func() { _ = db.Close() })
	return db, log
}

// A step of an agent is few calls, and they say what the store says without them.
func TestTripsOfAStep(t *testing.T) {
	t.Parallel()
	path, dir := socket(t), t.TempDir()
	mem := newMemory(t)
	serve(t, mem, path, remote.ServerOptions{})
	file := filepath.Join(dir, "zoo.txt")
	require.NoError(t, os.WriteFile(file, []byte("The zebra sleeps at noon."), 0o600))
	db, log := remoteDB(t, path, remote.ClientOptions{}, dir)
	here := must(ctxpage.Open("trips", ctxpage.Options{Store: mem, NoWatch: true}))(t)
	s, own := db.Scope("acme/support"), here.Scope("acme/support")
	for n := range 40 {
		calls := log.during(func() {
			must(s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprintf("zebra %d has stripes", n)}))(t)
		})
		require.Equal(t, []string{"Commit"}, calls)
	}
	assemble := func(s *ctxpage.Scope, text string) (a *ctxpage.Assembly) {
		a = must(s.Assemble(ctx, ctxpage.Query{Text: text, Budget: 3000}))(t)
		return a
	}
	require.Equal(t, []string{"Prepare", "Changes", "Load", "Append"}, log.during(func() { assemble(s, "zebra stripes") }), "after commits")
	var now, before *ctxpage.Assembly
	require.Equal(t, []string{"Prepare", "Append"}, log.during(func() { now = assemble(s, "zebra stripes") }), "its pages are in memory")
	before = assemble(own, "zebra stripes")
	require.Len(t, now.Blocks, len(before.Blocks))
	for i := range now.Blocks {
		require.Equal(t, before.Blocks[i].Ref, now.Blocks[i].Ref)
		require.InDelta(t, before.Blocks[i].Score, now.Blocks[i].Score, 1e-3)
	}
	text := now.Text()
	for n := range 30 { // the memory of one is used for the next
		q := ctxpage.Query{Text: fmt.Sprint("zebra ", n*7%40), Budget: 200 + 100*n, TopK: 3 + n}
		a, b := must(s.Assemble(ctx, q))(t), must(own.Assemble(ctx, q))(t)
		require.Equal(t, b.Refs, a.Refs)
		require.Len(t, a.Left, len(b.Left))
		for i := range b.Left {
			require.Equal(t, b.Left[i].Ref, a.Left[i].Ref)
		}
		require.Equal(t, b.Text(), a.Text())
	}
	require.Equal(t, text, now.Text())

	// What changes between the plan and its use is seen: a file that is fetched again while files are looked at.
	must(s.Put(ctx, ctxpage.Artefact{ID: "zoo", Source: "file:" + file}))(t)
	assemble(s, "zebra")
	require.NoError(t, os.WriteFile(file, []byte("The okapi wakes at midnight, and eats."), 0o600))
	calls := log.during(func() { now = assemble(s, "okapi midnight") })
	require.True(t, bytes.Contains([]byte(now.Text()), []byte("okapi wakes")), "%v %s", calls, now.Text())
	require.Contains(t, calls, "Candidates", "the planned answer is not used")
	// And what another client commits.
	must(own.Put(ctx, ctxpage.Artefact{ID: "new", Text: "A quagga was seen."}))(t)
	require.Contains(t, assemble(s, "quagga").Text(), "quagga was seen")
}

// Server and client use the memory of one context for the next. Contexts that are made at once do not share it.
func TestContextsAtOnce(t *testing.T) {
	t.Parallel()
	path := dbtest.Path(t)
	open := func() *ctxpage.Scope {
		db := must(ctxpage.Open(path, ctxpage.Options{NoWatch: true}))(t)
		t.Cleanup(func() { _ = db.Close() })
		return db.Scope("acme")
	}
	own := open()
	for n := range 60 {
		must(own.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprintf("zebra %d has %d stripes", n, n%7)}))(t)
	}
	var clients sync.WaitGroup
	for k := range 4 {
		s := open()
		clients.Go(func() {
			for n := range 25 {
				q := ctxpage.Query{Text: fmt.Sprintf("zebra %d with %d stripes", (13*k+n)%60, n%7), Budget: 300 + 50*n, TopK: 5 + 7*k}
				a, err := s.Assemble(ctx, q)
				if !assert.NoError(t, err) {
					return
				}
				b, err := own.Assemble(ctx, q)
				assert.NoError(t, err)
				assert.Equal(t, b.Refs, a.Refs)
				assert.Equal(t, b.Text(), a.Text())
			}
		})
	}
	clients.Wait()
}
