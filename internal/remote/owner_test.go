package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

var ctx = context.Background()

func open(t testing.TB, path string, opts Options) store.Store {
	t.Helper()
	opts.Files.Path = path
	if opts.Answer == 0 {
		opts.Answer = time.Minute // the machine may be busy with others
	}
	st := must(Open(opts))(t)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func owns(st store.Store) bool {
	_, ok := Files(st)
	return ok
}

// takesOver waits until a store owns the files. Its own server may answer its calls a moment before that.
func takesOver(t testing.TB, st store.Store) {
	t.Helper()
	require.Eventually(t, func() bool { return owns(st) }, time.Minute, time.Millisecond)
}

// fact is a batch that puts one page.
func fact(id, text string) store.Batch {
	p := store.Put{Artefact: store.Artefact{ID: id, Kind: store.KindFact, CurrentAsOf: time.Now()}, Counter: "words"}
	p.Artefact.KindDefaults()
	n := store.NewPage{Text: text, Tokens: 1, Hash: store.ContentHash(text)}
	n.Digest = store.SaltedDigest(n.Salt[:], text)
	p.Pages = []store.NewPage{n}
	return store.Batch{ID: ulid.Make(), Scope: "acme", Actor: "writer", Now: time.Now(), Puts: []store.Put{p}, Leaf: manifest.Record{Type: manifest.TypeCommit, By: "host"}}
}

func putTitle(t testing.TB, st store.Store, id string) store.Outcome {
	t.Helper()
	return must(st.Commit(ctx, fact(id, "zebra")))(t)
}

func has(t testing.TB, st store.Store, id string) {
	t.Helper()
	require.NoError(t, errOf(st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: id})), id)
}

// The second opener asks the first; when that closes it owns the files; and so on, while each sees what all wrote.
func TestOwnershipGoesOn(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	var all []store.Store
	for range 5 {
		all = append(all, open(t, path, Options{}))
	}
	for i, st := range all {
		require.True(t, owns(st) == (i == 0), "%d", i)
		putTitle(t, st, fmt.Sprint(i))
	}
	for i := range all {
		begun := time.Now()
		require.NoError(t, all[i].Close())
		if i+1 < len(all) {
			putTitle(t, all[i+1], fmt.Sprint("after-", i))
			t.Logf("handed over within %v", time.Since(begun))
			for _, st := range all[i+1:] {
				has(t, st, "0")
				has(t, st, fmt.Sprint("after-", i))
			}
			var hosts []store.Store
			require.Eventually(t, func() bool {
				hosts = slices.DeleteFunc(slices.Clone(all[i+1:]), func(st store.Store) bool { return !owns(st) })
				return len(hosts) > 0
			}, time.Minute, time.Millisecond)
			require.Len(t, hosts, 1)
		}
	}
	require.ErrorIs(t, errOf(os.Stat(path+".sock")), os.ErrNotExist)
	require.NoError(t, errOf(os.Stat(path+".lock")), "the lock file stays")
}

// The files of an owner are removed, and another process makes a database at the path. When the first
// owner ends, it leaves the files and the socket of the other one alone.
func TestOwnerOfRemovedFiles(t *testing.T) {
	dbtest.NeedsPosix(t, "removing a folder whose files are open")
	t.Parallel()
	path := dbtest.MemoryPath(t)
	first := open(t, path, Options{})
	putTitle(t, first, "old")
	names := must(filepath.Glob(path + "*"))(t)
	for _, name := range names {
		require.NoError(t, os.RemoveAll(name))
	}
	second := open(t, path, Options{})
	require.True(t, owns(second))
	putTitle(t, second, "new")
	_, err := second.Maintain(ctx, store.Job{Kind: store.JobCheckpoint}, nil) // also archives the audit
	require.NoError(t, err)

	_, err = first.Maintain(ctx, store.Job{Kind: store.JobCheckpoint}, nil)
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.ErrorContains(t, err, "replaced or removed")
	require.Error(t, first.Close())
	third := open(t, path, Options{})
	require.False(t, owns(third), "the socket of the second owner is still there")
	has(t, third, "new")
	require.NoError(t, third.Close())
	require.NoError(t, second.Close())

	again := open(t, path, Options{})
	has(t, again, "new")
	must(again.Audit().Verify(ctx, nil, nil))(t)
	require.NoError(t, again.Close())
}

// A client that does nothing takes over all the same, and a hold that it has goes on.
func TestIdleClientTakesOver(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	first, second := open(t, path, Options{}), open(t, path, Options{})
	putTitle(t, first, "a")
	ticket := must(second.Hold(ctx, store.Moment{LSN: 1, Time: time.Now()}))(t)
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { return owns(second) }, time.Minute, time.Millisecond)
	has(t, second, "a")
	second.Release(ticket)
	require.NoError(t, second.Close())
	require.NoError(t, second.Close(), "closed twice")
}

// handOverTime is what a clean end may take until the next owner answers, and slack is how often that, at most, on a machine
// that is busy with other tests. What the machine itself held up is not counted.
const (
	handOverTime  = 100 * time.Millisecond
	handOverSlack = 15 // below a lease and a silent server, which a hand-over must not wait for
	handOverSyncs = 20 // more than an end and a beginning make; each may take as long as one of the control
)

// syncTime is the control: how long a sync of a small file takes beside a database.
func syncTime(t *testing.T, path string) time.Duration {
	t.Helper()
	f := must(os.OpenFile(filepath.Join(filepath.Dir(path), "control"), os.O_CREATE|os.O_WRONLY, 0o600))(t)
	defer f.Close()
	begun := time.Now()
	must(f.Write(make([]byte, 4096)))(t)
	require.NoError(t, f.Sync())
	return time.Since(begun)
}

// requireQuick judges the median of some hand-overs.
func requireQuick(t *testing.T, took, syncs []time.Duration) {
	t.Helper()
	slices.Sort(took)
	slices.Sort(syncs)
	half, sync := took[len(took)/2], syncs[len(syncs)/2]
	t.Logf("median %s, longest %s; a sync takes %s", half, took[len(took)-1], sync)
	require.LessOrEqual(t, half, handOverSlack*handOverTime+handOverSyncs*sync)
}

// An owner that closes hands over at once: the median time from its Close to an answered commit of the next owner.
func TestHandOverIsQuick(t *testing.T) {
	path := dbtest.Path(t)
	st := open(t, path, Options{})
	putTitle(t, st, "first")
	stalls := dbtest.WatchStalls(t)
	var took, syncs []time.Duration
	for i := range 30 {
		next := open(t, path, Options{})
		has(t, next, "first")
		require.False(t, owns(next), "the control: it was a client")
		begun := time.Now()
		require.NoError(t, st.Close())
		putTitle(t, next, fmt.Sprint("page-", i))
		took, syncs = append(took, stalls.Since(begun)), append(syncs, syncTime(t, path))
		takesOver(t, next)
		st = next
	}
	requireQuick(t, took, syncs)
}

// What a writer sees of an owner that closes with a log to be put into the file: the longest of its commits. A checkpoint
// before the owner stops answering was tried: the commits then waited for the disk of two checkpoints, and no less.
func TestHandOverBesideWriters(t *testing.T) {
	path := dbtest.Path(t)
	st := open(t, path, Options{})
	putTitle(t, st, "first")
	stalls := dbtest.WatchStalls(t)
	var took, syncs []time.Duration
	for i := range 12 {
		next := open(t, path, Options{})
		for n := range 60 {
			putTitle(t, next, fmt.Sprint("filler-", i, "-", n))
		}
		closed := make(chan error, 1)
		longest := time.Duration(0)
		for n, more := 0, true; more || !owns(next); n++ {
			if n == 3 {
				go func(st store.Store) { closed <- st.Close() }(st)
			}
			begun := time.Now()
			putTitle(t, next, fmt.Sprint("beside-", i, "-", n))
			longest = max(longest, stalls.Since(begun))
			select {
			case err := <-closed:
				require.NoError(t, err)
				more = false
			default:
			}
		}
		took, syncs = append(took, longest), append(syncs, syncTime(t, path))
		st = next
	}
	requireQuick(t, took, syncs)
}

// Exclusive keeps the files to one process, and says who has them; nothing is served then.
func TestExclusive(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	st := open(t, path, Options{Exclusive: true})
	for _, opts := range []Options{{}, {Exclusive: true}, {Files: filestore.Options{ReadOnly: true}}} {
		opts.Files.Path = path
		_, err := Open(opts)
		var locked *store.LockedError
		require.ErrorAs(t, err, &locked)
		require.Equal(t, os.Getpid(), locked.PID)
		require.Empty(t, locked.Socket)
	}
	require.ErrorIs(t, errOf(os.Stat(path+".sock")), os.ErrNotExist)
	require.NoError(t, st.Close())

	shared := open(t, path, Options{})
	require.ErrorIs(t, errOf(Open(Options{Exclusive: true, Files: filestore.Options{Path: path}})), store.ErrLocked)
	require.NoError(t, shared.Close())
}

// A process that has taken the lock and not yet said where it serves is waited for: on a busy machine that may take a
// while. The control: one that has the files to itself is named at once.
func TestOpenBesideOpening(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	made := must(Open(Options{Exclusive: true, Files: filestore.Options{Path: path}}))(t)
	var locked *store.LockedError
	require.ErrorAs(t, errOf(Open(Options{Files: filestore.Options{Path: path}})), &locked)
	require.False(t, locked.Opening)
	require.NoError(t, made.Close())

	lock := must(filestore.TakeLock(filestore.Options{Path: path}))(t)
	released := make(chan error, 1)
	time.AfterFunc(400*time.Millisecond, func() { released <- lock.Release() })
	st := must(Open(Options{Answer: time.Minute, Files: filestore.Options{Path: path}}))(t)
	require.NoError(t, st.Close())
	require.NoError(t, <-released)

	lock = must(filestore.TakeLock(filestore.Options{Path: path}))(t)
	require.ErrorAs(t, errOf(Open(Options{Answer: 200 * time.Millisecond, Files: filestore.Options{Path: path}})), &locked)
	require.True(t, locked.Opening, "not for ever")
	require.NoError(t, lock.Release())
}

// A reader beside an owner goes through its door, writes nothing, and goes on alone when the owner ends.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	first := open(t, path, Options{})
	putTitle(t, first, "a")
	reader := open(t, path, Options{Files: filestore.Options{ReadOnly: true}})
	require.False(t, owns(reader))
	has(t, reader, "a")
	putTitle(t, first, "b")
	has(t, reader, "b")
	require.ErrorIs(t, errOf(reader.Commit(ctx, fact("c", "zebra"))), store.ErrReadOnly)
	leaves := must(first.Audit().Size(ctx))(t)
	require.NoError(t, reader.Append(ctx, []*manifest.Record{{Type: manifest.TypeAssemble, Trace: ulid.Make().String()}}, store.Synced))
	after := must(first.Audit().Size(ctx))(t)
	require.Equal(t, leaves, after)
	for _, kind := range []store.JobKind{store.JobGC, store.JobCheckpoint} {
		require.ErrorIs(t, errOf(reader.Maintain(ctx, store.Job{Kind: kind}, nil)), store.ErrReadOnly)
	}
	rep := must(reader.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil))(t)
	require.Empty(t, rep.Problems)
	require.NoError(t, first.Close())
	has(t, reader, "b")
}

// Of a reader and a writer that lose their owner the writer takes its place.
func TestWriterBeforeReader(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	first := open(t, path, Options{})
	putTitle(t, first, "a")
	reader := open(t, path, Options{Files: filestore.Options{ReadOnly: true}})
	writer := open(t, path, Options{})
	require.NoError(t, first.Close())
	has(t, reader, "a")
	putTitle(t, writer, "b")
	takesOver(t, writer)
	require.False(t, owns(reader))
	has(t, reader, "b")
}

// A reader leaves the place of each owner to writers, also that of an owner which ends soon after the one before: else it has
// the files before a writer tries, and keeps writers out for as long as it reads.
func TestReaderWaitsForEachOwner(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	first := open(t, path, Options{})
	putTitle(t, first, "a")
	reader := open(t, path, Options{Files: filestore.Options{ReadOnly: true}})
	guest := reader.(sealed).guest
	guest.taking.Lock()
	ago := time.Now().Add(-2 * readerWaits)
	guest.late.Store(&ago) // the first has ended long ago
	require.NoError(t, first.Close())
	second := open(t, path, Options{})
	guest.taking.Unlock()
	has(t, reader, "a")
	require.False(t, owns(reader))
	guest.taking.Lock() // no attempt is under way that began before
	ends := time.Now()  // the reader may see it before Close returns
	guest.taking.Unlock()
	require.NoError(t, second.Close())
	has(t, reader, "a")
	takesOver(t, reader)
	require.Greater(t, time.Since(ends), readerWaits)
}

// A new owner does not drop what a client of the owner before still holds: gc waits until that client had time to come.
func TestGCWaitsForHolds(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	first := open(t, path, Options{})
	putTitle(t, first, "a")
	holder, next := open(t, path, Options{}), open(t, path, Options{settle: 5 * time.Second})
	was, err := holder.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: "a"})
	require.NoError(t, err)
	must(holder.Hold(ctx, store.Moment{LSN: holder.Mark().LSN, Time: time.Now()}))(t)
	must(first.Commit(ctx, fact("a", "okapi")))(t)
	holder.(*guest).taking.Lock() // it does not come yet
	require.NoError(t, first.Close())
	putTitle(t, next, "b")
	takesOver(t, next)
	dropped := make(chan error, 1)
	go func() {
		_, err := next.Maintain(ctx, store.Job{Kind: store.JobGC, GC: &store.GCJob{By: "ann", KeepRecords: 4, KeepNames: 4}}, nil)
		dropped <- err
	}()
	select {
	case err = <-dropped: // it did not wait
		dropped <- err
	case <-time.After(50 * time.Millisecond):
	}
	holder.(*guest).taking.Unlock()
	require.NoError(t, <-dropped)
	loaded := must(holder.Load(ctx, store.Scopes{"acme"}, was.Pages, store.WantText))(t)
	require.NoError(t, loaded[0].Err)
	require.Equal(t, "zebra", loaded[0].Text)
}

func TestNetworkFileSystem(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	nfs := func(string) string { return "NFS, a network file system" }
	_, err := Open(Options{Files: filestore.Options{Path: path}, network: nfs})
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "NFS")
	require.ErrorContains(t, err, "Exclusive")
	require.ErrorIs(t, errOf(os.Stat(path)), os.ErrNotExist, "nothing was made")
	require.NoError(t, open(t, path, Options{Exclusive: true, network: nfs}).Close())
}

// A path that is too long for a socket has one of a short name, which the lock file tells.
func TestLongPath(t *testing.T) {
	dbtest.NeedsPosix(t, "a limit of the path of a socket")
	t.Parallel()
	dir := filepath.Join(filepath.Dir(dbtest.MemoryPath(t)), string(make30('a')), string(make30('b')), string(make30('c')))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, "agent.ctx")
	first, second := open(t, path, Options{}), open(t, path, Options{})
	require.False(t, owns(second))
	where := second.(*guest).where()
	require.LessOrEqual(t, len(where), 103)
	require.NotEqual(t, dir, filepath.Dir(where))
	b := must(os.ReadFile(path + ".lock"))(t)
	require.Contains(t, string(b), where)
	require.NoError(t, first.Close())
	putTitle(t, second, "a")
	require.NoError(t, second.Close())
	require.ErrorIs(t, errOf(os.Stat(where)), os.ErrNotExist)
}

func make30(c byte) []byte {
	b := make([]byte, 40)
	for i := range b {
		b[i] = c
	}
	return b
}

// A hundred openers at once: one owns the files, all are served.
func TestHundredOpeners(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	all := make([]store.Store, 100)
	took := make([]time.Duration, len(all))
	var wg sync.WaitGroup
	begun := time.Now()
	for i := range all {
		wg.Go(func() {
			st, err := Open(Options{Files: filestore.Options{Path: path}, Answer: time.Minute})
			if err == nil {
				_, err = st.Commit(ctx, fact(fmt.Sprint(i), "zebra"))
				all[i] = st
			}
			if took[i] = time.Since(begun); err != nil {
				t.Errorf("opener %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	hosts, longest := 0, time.Duration(0)
	for i, st := range all {
		require.NotNil(t, st)
		if owns(st) {
			hosts++
		}
		longest = max(longest, took[i])
	}
	require.Equal(t, 1, hosts)
	for i := range all {
		has(t, all[len(all)-1], fmt.Sprint(i))
	}
	t.Logf("the last was served after %v", longest)
	for _, st := range all {
		require.NoError(t, st.Close())
	}
}

// A call under way when the owner ends is made once: a commit by its id, a leaf by its trace.
func TestCallsAcrossHandOver(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	first := open(t, path, Options{})
	others := []store.Store{open(t, path, Options{}), open(t, path, Options{}), open(t, path, Options{})}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	traces, ids := map[string]bool{}, map[string]bool{}
	for n, st := range others {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id, leaf := fmt.Sprintf("%d-%d", n, i), &manifest.Record{Type: manifest.TypeAssemble, Trace: ulid.Make().String(), Scope: "acme"}
				_, err := st.Commit(ctx, fact(id, "zebra"))
				err = errors.Join(err, st.Append(ctx, []*manifest.Record{leaf}, store.Written))
				if err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				mu.Lock()
				traces[leaf.Trace], ids[id] = true, true
				mu.Unlock()
			}
		})
	}
	for range 6 {
		time.Sleep(30 * time.Millisecond)
		require.NoError(t, first.Close())
		first = open(t, path, Options{})
		for i, st := range others {
			if owns(st) && i < len(others)-1 { // it hands over to the rest; its writer would fail
				break
			}
		}
	}
	close(stop)
	wg.Wait()
	st := others[0]
	for id := range ids {
		l := must(st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: id}))(t)
		require.EqualValues(t, 1, l.Version)
	}
	for trace := range traces {
		leaves := must(st.Audit().ByTrace(ctx, trace))(t)
		require.Len(t, leaves, 1)
	}
	t.Logf("%d commits, %d leaves", len(ids), len(traces))
}

// An owner tells its status to whoever asks, without a session. Package remote tests what works under a skew.
func TestStatus(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	st := open(t, path, Options{})
	is := must(GetStatus(ctx, path+".sock", ClientOptions{}))(t)
	require.Equal(t, os.Getpid(), is.PID)
	require.Empty(t, is.State)
	require.NoError(t, st.Close())
}

// However often the owner changes, the next one reads a short log: who had to redo what the owner before left makes a
// checkpoint and begins a new segment. The control: owners that must go before they have done so keep all in one segment.
func TestLogOfManyOwnersIsShort(t *testing.T) {
	t.Parallel()
	const rounds, puts = 12, 100 // below handOverBytes: all of it is left to the next owner
	text := strings.Repeat("zebra ", 500)
	for name, rests := range map[string]bool{"rests": true, "control": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				path := dbtest.MemoryPath(t)
				for n := range rounds {
					files := filestore.Options{Path: path}
					lock := must(filestore.TakeLock(files))(t)
					files.Lock = lock
					st := must(filestore.Open(files))(t)
					if n > 0 && rests {
						time.Sleep(time.Second) // of the bubble: less than makes one due by its age
						synctest.Wait()
						s := must(st.Stat(ctx))(t)
						require.Equal(t, s.LSN, s.Applied, "it writes what it had to redo into the file")
					}
					for i := range puts {
						must(st.Commit(ctx, fact(fmt.Sprintf("page-%d-%d", n, i), text)))(t)
					}
					lock.Wanted()
					require.NoError(t, st.Close())
					require.NoError(t, lock.Release())
				}
				var log int64
				parts := must(os.ReadDir(path + "-wal"))(t)
				for _, p := range parts {
					fi := must(p.Info())(t)
					log += fi.Size()
				}
				const written = rounds * puts * 3000
				if rests {
					require.Less(t, log, int64(written/2))
				} else {
					require.Greater(t, log, int64(written))
				}
			})
		})
	}
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
