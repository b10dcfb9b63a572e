package pgstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// cutter is a proxy before a server. It can cut every connection at one message of the client: before it is passed on, or
// after, with the answers withheld.
type cutter struct {
	t      testing.TB
	listen net.Listener
	server string

	mu    sync.Mutex
	left  int // messages until the cut; below 0: none is due
	after bool
	conns map[net.Conn]bool
}

func newCutter(t testing.TB, server string) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{t: t, listen: l, server: server, left: -1, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { _ = l.Close(); c.cutAll() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go c.serve(conn)
		}
	}()
	return c
}

// arm cuts at the nth message from now, counted from 0.
func (c *cutter) arm(n int, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.after = n, after
}

// fired reports whether the cut that was armed last has happened.
func (c *cutter) fired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	fired := c.left < 0
	c.left = -1
	return fired
}

func (c *cutter) cutAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.Close()
	}
	clear(c.conns)
}

// due counts a message.
func (c *cutter) due() (cut, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left < 0 {
		return false, false
	}
	c.left--
	return c.left < 0, c.after
}

func (c *cutter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		return
	}
	defer server.Close()
	c.mu.Lock()
	c.conns[client] = true
	c.mu.Unlock()
	var head [4]byte
	if _, err := io.ReadFull(client, head[:]); err != nil { // the startup message has no type
		return
	}
	rest := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	if _, err := io.ReadFull(client, rest); err != nil {
		return
	}
	_, _ = server.Write(append(head[:], rest...))
	go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
	for {
		m, err := message(client)
		if err != nil {
			return
		}
		cut, after := c.due()
		if cut && !after {
			c.cutAll()
			return
		}
		if cut {
			_ = client.Close() // first, so that no answer gets through
			_, _ = server.Write(m)
			c.cutAll()
			return
		}
		if _, err := server.Write(m); err != nil {
			return
		}
	}
}

// message reads one message of the client: a type, a length that counts itself, the rest.
func message(r io.Reader) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	m := append(head[:], make([]byte, binary.BigEndian.Uint32(head[1:])-4)...)
	_, err := io.ReadFull(r, m[5:])
	return m, err
}

func (c *cutter) dsn() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", c.listen.Addr())
}

// quiet is a store that sends nothing but what its calls need.
func quiet(t testing.TB, dsn, name string, change func(*Options)) *Store {
	t.Helper()
	o := Options{Name: name, NoNotify: true, Poll: time.Hour, beat: time.Hour, MaxLag: -1}
	if change != nil {
		change(&o)
	}
	st, err := Open(t.Context(), dsn, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// fact is a batch that puts one page.
func fact(t testing.TB, st *Store, id, text string) store.Batch {
	t.Helper()
	b, err := factBatch(st, id, text)
	require.NoError(t, err)
	return b
}

func factBatch(st *Store, id, text string) (store.Batch, error) {
	at := time.Now()
	ulid, err := store.NewID(at, st.opts.Rand)
	p := store.Put{Artefact: store.Artefact{ID: id, Kind: store.KindFact, CurrentAsOf: at}, Counter: "words"}
	p.Artefact.KindDefaults()
	n := store.NewPage{Text: text, Tokens: len(text)/4 + 1, Hash: store.ContentHash(text)}
	n.Digest = store.SaltedDigest(n.Salt[:], text)
	p.Pages = append(p.Pages, n)
	return store.Batch{ID: ulid, Scope: "acme", Actor: "writer", Now: at, Puts: []store.Put{p}, Leaf: manifest.Record{Type: manifest.TypeCommit, By: "host"}}, err
}

// lostAnswers commits with a cut at each message, before and after it. It gives what is wrong: acknowledged commits that
// another host does not see, and commits that are there twice.
func lostAnswers(t *testing.T, change func(*Options)) (wrong []string, cuts int) {
	dsn := onServer(t)
	host := strings.TrimSuffix(strings.TrimPrefix(dsn, "postgres://postgres@"), "/postgres?sslmode=disable")
	proxy := newCutter(t, host)
	name := ownName(t)
	st := quiet(t, proxy.dsn(), name, change)
	witness := quiet(t, dsn, name, nil)
	for _, after := range []bool{false, true} {
		for n := 0; ; n++ {
			id := fmt.Sprintf("a-%v-%d", after, n)
			batch := fact(t, st, id, "words of "+id)
			proxy.arm(n, after)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			out, err := st.Commit(ctx, batch)
			cancel()
			fired := proxy.fired()
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: %v", id, err))
				return wrong, cuts
			}
			mark, err := witness.Refresh(t.Context(), 0)
			require.NoError(t, err)
			at, err := witness.Resolve(t.Context(), store.Scopes{"acme"}, store.Ref{ID: id})
			switch {
			case err != nil:
				wrong = append(wrong, fmt.Sprintf("%s was acknowledged as %d and is lost (the server has %d commits)", id, out.LSN, mark.LSN))
				return wrong, cuts
			case at.Version != 1 || at.LSN != out.LSN || mark.LSN != out.LSN:
				wrong = append(wrong, fmt.Sprintf("%s: version %d at %d, acknowledged as %d of %d", id, at.Version, at.LSN, out.LSN, mark.LSN))
			}
			if !fired {
				break
			}
			cuts++
		}
	}
	return wrong, cuts
}

// A connection that is cut at any message, before the server has it or after, loses no commit and makes none twice.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	wrong, cuts := lostAnswers(t, nil)
	require.Empty(t, wrong)
	require.Greater(t, cuts, 20)
	t.Logf("%d cuts", cuts)
}

// The control: a store that takes a lost answer for a commit loses some.
func TestLostAnswersControl(t *testing.T) {
	t.Parallel()
	wrong, _ := lostAnswers(t, func(o *Options) { o.credulous = true })
	require.NotEmpty(t, wrong, "the test of lost answers proves nothing")
	require.Contains(t, wrong[0], "is lost")
}

// The audit leaf of a read survives a cut at each message of the inbox and of the turn that numbers it, and is there once.
func TestLostLeaves(t *testing.T) {
	t.Parallel()
	dsn := onServer(t)
	host := strings.TrimSuffix(strings.TrimPrefix(dsn, "postgres://postgres@"), "/postgres?sslmode=disable")
	proxy := newCutter(t, host)
	st := quiet(t, proxy.dsn(), ownName(t), spoolless)
	witness := quiet(t, dsn, ownName(t), nil)
	cuts := 0
	for _, after := range []bool{false, true} {
		for n := 0; ; n++ {
			trace := fmt.Sprintf("read-%v-%d", after, n)
			proxy.arm(n, after)
			leaf := &manifest.Record{Type: manifest.TypeGet, Trace: trace, Scope: "acme", Time: time.Now().UnixMicro()}
			require.NoError(t, st.Append(t.Context(), []*manifest.Record{leaf}, store.Written))
			require.NoError(t, st.log.Sync(t.Context(), 0, nil))
			fired := proxy.fired()
			_, err := witness.Refresh(t.Context(), 0)
			require.NoError(t, err)
			found, err := witness.Audit().ByTrace(t.Context(), trace)
			require.NoError(t, err, trace)
			require.Len(t, found, 1, trace)
			if !fired {
				break
			}
			cuts++
		}
	}
	a, err := st.Head(t.Context())
	require.NoError(t, err)
	b, err := witness.Head(t.Context())
	require.NoError(t, err)
	require.Equal(t, a.Root, b.Root)
	t.Logf("%d cuts", cuts)
}

// The control: a store that takes a leaf for written without an answer answers a read whose leaf is nowhere.
func TestLostLeavesControl(t *testing.T) {
	t.Parallel()
	dsn := onServer(t)
	proxy := newCutter(t, shared.s.address())
	st := quiet(t, proxy.dsn(), ownName(t), func(o *Options) {
		spoolless(o)
		o.credulous, o.Patience = true, time.Second
	})
	proxy.arm(0, false)
	require.NoError(t, st.Append(t.Context(), read("read"), store.Written))
	require.True(t, proxy.fired())
	require.Error(t, st.log.Sync(t.Context(), 0, nil))
	_, err := onHost(t, dsn, ownName(t), nil).Audit().ByTrace(t.Context(), "read")
	require.ErrorIs(t, err, manifest.ErrNoLeaf, "the test of lost leaves proves nothing")
}
