package pgstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

func read(trace string) []*manifest.Record {
	return []*manifest.Record{{Type: manifest.TypeGet, Trace: trace, Scope: "acme", Time: 1}}
}

// heldTurn locks the turn of all databases of a server, as a host that has it does, until the server stops or the test ends.
func heldTurn(t *testing.T, srv *server) {
	t.Helper()
	conn := connectTo(t, srv)
	_, err := conn.Exec(t.Context(), "BEGIN; SELECT FROM ctxpage_turn FOR UPDATE")
	require.NoError(t, err)
}

// spoolless is a host whose disk does not take leaves: reads wait for the inbox.
func spoolless(o *Options) {
	o.hook = func(step string) error {
		if step == "spool" {
			return errors.New("the disk is full")
		}
		return nil
	}
}

// survivor appends a leaf while another host has the turn, cuts the power of the server, ends the host, and says whether a new host
// finds the leaf. lost: the disk of the machine is lost, too.
func survivor(t *testing.T, srv *server, name string, d store.Durability, lost bool) bool {
	st := quiet(t, srv.dsn("postgres"), name, nil)
	mustPut(t, st, "first", "words")
	heldTurn(t, srv)
	begun := time.Now()
	require.NoError(t, st.Append(t.Context(), read("read"), d))
	require.Less(t, time.Since(begun), lockTimeout, "it waited for the turn")
	time.Sleep(5 * inboxEvery)
	require.NoError(t, srv.stop(syscall.SIGQUIT))
	st.kill() // or it would write the leaf once more
	if lost {
		require.NoError(t, os.RemoveAll(st.dir))
	}
	require.NoError(t, srv.start())
	_, err := onHost(t, srv.dsn("postgres"), name, nil).Audit().ByTrace(t.Context(), "read")
	if err != nil {
		require.ErrorIs(t, err, manifest.ErrNoLeaf)
	}
	return err == nil
}

// A reader who waits for the disk does not wait for the turn, and its leaf is there after a power cut of the server and the end of its
// host. The leaf of a reader who does not wait is there if the disk of the machine is. The control: without that disk it is not.
func TestSyncedLeaf(t *testing.T) {
	t.Parallel()
	srv := ownServer(t)
	require.NoError(t, srv.stop(syscall.SIGINT))
	srv.args = []string{"-c", "wal_writer_delay=10s"} // what nobody waits for is not on the disk
	require.NoError(t, srv.start())
	lost := false
	for n := 0; n < 5 && !lost; n++ { // the server may write what nobody waits for in the moment before the cut
		lost = !survivor(t, srv, fmt.Sprint("lost ", n), store.Written, true)
	}
	require.True(t, lost, "the power cut takes nothing, so the test proves nothing")
	require.True(t, survivor(t, srv, "written", store.Written, false))
	require.True(t, survivor(t, srv, "synced", store.Synced, true))
}

// A process that is killed before the server has its leaves: the next one on the machine sends them, once, with a cache that is kept and
// with a temporary one, also those that the server did get. Leaves of other databases stay. The control: without the files they are lost.
func TestSpool(t *testing.T) {
	t.Parallel()
	dsn := onServer(t)
	for _, c := range []struct {
		name       string
		kept, lost bool
		inbox      bool // the server has the leaf, too
	}{{name: "kept", kept: true}, {name: "temporary"}, {name: "inbox", kept: true, inbox: true}, {name: "control", lost: true}} {
		t.Run(c.name, func(t *testing.T) {
			name, dir := ownName(t), ""
			if c.kept {
				dir = t.TempDir()
			}
			st := quiet(t, dsn, name, func(o *Options) {
				o.CacheDir = dir
				o.hook = func(step string) error {
					if step == "inbox" && !c.inbox || step == "begin" {
						return errors.New("the server is away")
					}
					return nil
				}
			})
			for n := range 3 {
				require.NoError(t, st.Append(t.Context(), read(fmt.Sprint("read ", n)), store.Written))
			}
			time.Sleep(5 * inboxEvery)
			st.kill()
			require.True(t, hasSpool(st.dir))
			other := onHost(t, dsn, name+" other", nil)
			require.True(t, hasSpool(st.dir), "a host of another database takes them")
			require.NoError(t, other.Close())
			if c.lost {
				require.NoError(t, os.RemoveAll(st.dir))
			}
			next := onHost(t, dsn, name, func(o *Options) { o.CacheDir = dir })
			head, err := next.Head(t.Context())
			require.NoError(t, err)
			if c.lost {
				require.Zero(t, head.Size, "they are not only there, so the test proves nothing")
				return
			}
			require.EqualValues(t, 3, head.Size)
			require.False(t, hasSpool(st.dir))
			require.Equal(t, c.kept, isDir(st.dir), "a temporary directory goes, a kept one stays")
		})
	}
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// The spool of a killed process may be older than an erase: its leaves come without their questions. And a directory that others can
// write to is not looked into: they could put leaves there. The controls: without an erase the question comes with its leaf, and from a
// directory of this user alone.
func TestSpoolTrusted(t *testing.T) {
	t.Parallel()
	dsn := onServer(t)
	for _, c := range []struct {
		name          string
		erased, other bool
		owner         bool // the file is of another user, in a directory of this one
		claimed       bool // another database says that it has the id
	}{{name: "control"}, {name: "erased", erased: true}, {name: "others", other: true}, {name: "owner", owner: true}, {name: "claimed", claimed: true}} {
		t.Run(c.name, func(t *testing.T) {
			if c.owner && os.Geteuid() != 0 {
				t.Skip("only root can give a file to another user")
			}
			name := ownName(t)
			st := quiet(t, dsn, name, func(o *Options) {
				o.hook = func(step string) error {
					if step == "inbox" || step == "begin" {
						return errors.New("the server is away")
					}
					return nil
				}
			})
			leaf := read("asked")
			leaf[0].Question = "where does the okapi live?"
			require.NoError(t, st.Append(t.Context(), leaf, store.Written))
			st.kill()
			if c.erased {
				lock, err := lockCache(st.dir) // or the second host would send what is there
				require.NoError(t, err)
				second := onHost(t, dsn, name, nil)
				_, err = second.pool.Exec(t.Context(), "DELETE FROM ctxpage_hosts WHERE host = $1", st.log.uuid()) // or the erase would wait for the killed one
				require.NoError(t, err)
				mustPut(t, second, "secret", "the okapi lives in Ituri")
				_, err = second.Maintain(t.Context(), store.Job{Kind: store.JobErase, Erase: &store.EraseJob{
					Refs: []store.Ref{{Scope: "acme", ID: "secret"}}, By: "operator", Reason: "asked by the person"}}, nil)
				require.NoError(t, err)
				require.NoError(t, errors.Join(second.Close(), lock.Close()))
			}
			if c.other {
				require.NoError(t, os.Chmod(st.dir, 0o777))
				t.Cleanup(func() { _ = os.RemoveAll(st.dir) })
			}
			if c.owner {
				files, err := filepath.Glob(filepath.Join(st.dir, spoolPrefix+"*"))
				require.NoError(t, err)
				require.Len(t, files, 1)
				require.NoError(t, os.Chown(files[0], 12345, -1))
				t.Cleanup(func() { _ = os.RemoveAll(st.dir) })
			}
			if c.claimed {
				name += " of another tenant"
				_, err := shared.exec(t.Context(), "INSERT INTO ctxpage_db (name, id, secret, created) VALUES ($1, $2, 'another', now())", name, st.db.id)
				require.NoError(t, err)
				_, err = shared.exec(t.Context(), "INSERT INTO ctxpage_turn SELECT db FROM ctxpage_db WHERE name = $1", name)
				require.NoError(t, err)
				t.Cleanup(func() { _ = os.RemoveAll(st.dir) })
			}
			next := onHost(t, dsn, name, func(o *Options) { o.CacheDir = t.TempDir() })
			found, err := next.Audit().ByTrace(t.Context(), "asked")
			if c.other || c.owner || c.claimed {
				require.ErrorIs(t, err, manifest.ErrNoLeaf)
				require.True(t, hasSpool(st.dir))
				return
			}
			require.NoError(t, err)
			text, err := next.Audit().Question(t.Context(), found[0])
			if c.erased {
				require.ErrorIs(t, err, manifest.ErrNoQuestion)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "where does the okapi live?", text)
		})
	}
}

// A row of the inbox that is no leaf is removed, and one of a newer release stays there: in the log it would end all hosts for good. The
// control: the leaf behind them is numbered.
func TestInboxRowsAreLeaves(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	a, b := quiet(t, dsn, ownName(t), nil), quiet(t, dsn, ownName(t), nil)
	b.kill()
	sound, err := archive.Encode(read("sound")[0])
	require.NoError(t, err)
	for i, body := range [][]byte{{}, {0}, make([]byte, 100), {1, 2, 200}, []byte("newer"), sound} {
		_, err := shared.exec(ctx, "INSERT INTO ctxpage_inbox (db, host, ticket, body) VALUES ($1, $2, $3, $4)", a.db.num, b.log.uuid(), i, body)
		require.NoError(t, err)
	}
	mustPut(t, a, "page", "words")
	second := onHost(t, dsn, ownName(t), nil)
	mustFind(t, second, "page")
	found, err := second.Audit().ByTrace(ctx, "sound")
	require.NoError(t, err)
	require.Len(t, found, 1)
	var left []byte
	require.NoError(t, second.pool.QueryRow(ctx, "SELECT string_agg(body, ',') FROM ctxpage_inbox WHERE db = $1", a.db.num).Scan(&left))
	require.Equal(t, "newer", string(left))
}

// The files of a spool have only what the server may not have: they are emptied when a turn has the leaves, and in an erase. Reads wait
// when the server takes none for long.
func TestSpoolBounded(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	st := quiet(t, onServer(t), ownName(t), func(o *Options) {
		o.Patience, o.MaxLag = time.Second, -1
		o.hook = func(step string) error {
			if away.Load() && (step == "inbox" || step == "begin") {
				return errors.New("the server is away")
			}
			return nil
		}
	})
	away.Store(true)
	require.NoError(t, st.Append(t.Context(), read("read"), store.Written))
	require.True(t, hasSpool(st.dir))
	many := make([]*manifest.Record, spoolMost)
	for i := range many {
		many[i] = read("many")[0]
	}
	require.ErrorIs(t, st.Append(t.Context(), many, store.Written), store.ErrOutcomeUnknown)
	away.Store(false)
	require.Eventually(t, func() bool { return st.log.emptySpool(t.Context()) == nil }, time.Minute, 10*time.Millisecond)
	require.False(t, hasSpool(st.dir))
	require.NoError(t, st.Append(t.Context(), read("later"), store.Written))
	require.Eventually(t, func() bool { return !hasSpool(st.dir) }, time.Minute, 10*time.Millisecond, "an idle host keeps leaves on its disk")
	require.EqualValues(t, spoolMost+2, st.eng.Leaves.Size())
}

// What stands behind the last whole frame of a spool was never answered.
func TestSpoolTorn(t *testing.T) {
	t.Parallel()
	sp := newSpool("", "an id", [16]byte{7})
	whole := appendFrame(sp.head(5), 1, []byte("question"), []byte("body"))
	b := appendFrame(slices.Clone(whole), 2, nil, []byte("second"))
	got, ok := readSpool(b)
	require.True(t, ok)
	require.Equal(t, spooled{"an id", [16]byte{7}, 5, []int64{1, 2}, [][]byte{[]byte("question"), nil}, [][]byte{[]byte("body"), []byte("second")}}, got)
	for n := range b {
		got, ok := readSpool(b[:n])
		require.Equal(t, n >= len(sp.head(5)), ok)
		require.Len(t, got.tickets, map[bool]int{true: 1}[n >= len(whole)])
	}
	for n := len(whole); n < len(b); n++ {
		bad := slices.Clone(b)
		bad[n] ^= 1
		got, _ := readSpool(bad)
		require.Len(t, got.tickets, 1)
	}
}

// Readers whose leaves share a write that fails are not answered before a turn has their leaves: not the one who wrote, and not those
// for whom somebody else wrote.
func TestSharedWriteFails(t *testing.T) {
	t.Parallel()
	var down, noTurn atomic.Bool // a turn would take the leaves one by one, before all have come
	st := quiet(t, onServer(t), ownName(t), func(o *Options) {
		o.hook = func(step string) error {
			if step == "spool" || down.Load() && step == "inbox" || noTurn.Load() && step == "begin" {
				return errors.New("the server is away")
			}
			return nil
		}
	})
	for _, d := range []store.Durability{store.Written, store.Synced} { // written: without a spool
		l, answers := st.log, make(chan error, 3)
		noTurn.Store(true)
		require.Eventually(t, func() bool { // a turn that had begun before has ended
			if !l.tail.TryAcquire(1) {
				return false
			}
			defer l.tail.Release(1)
			return l.turn == nil
		}, time.Minute, time.Millisecond)
		l.writing <- struct{}{}
		for _, trace := range []string{"one", "two", "three"} {
			go func() { answers <- st.Append(context.Background(), read(trace), d) }()
		}
		require.Eventually(t, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.leaves) == 3
		}, time.Minute, time.Millisecond)
		down.Store(true)
		<-l.writing
		select {
		case err := <-answers:
			t.Fatalf("a reader was answered, with %v, and its leaf is nowhere", err)
		case <-time.After(200 * time.Millisecond):
		}
		down.Store(false)
		noTurn.Store(false)
		for range 3 {
			require.NoError(t, <-answers)
		}
		found, err := st.Audit().ByTrace(t.Context(), "three")
		require.NoError(t, err)
		require.Len(t, found, int(d)+1)
	}
}
