package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

var acme = store.Scopes{"acme"}

// onHost opens a database as one of several hosts.
func onHost(t testing.TB, dsn, name string, change func(*Options)) *Store {
	t.Helper()
	o := Options{Name: name, beat: 300 * time.Millisecond}
	if change != nil {
		change(&o)
	}
	st, err := Open(t.Context(), dsn, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func mustPut(t testing.TB, st *Store, id, text string) store.Outcome {
	t.Helper()
	out, err := st.Commit(t.Context(), fact(t, st, id, text))
	require.NoError(t, err)
	return out
}

func mustFind(t testing.TB, st *Store, id string) store.Located {
	t.Helper()
	at, err := st.Resolve(t.Context(), acme, store.Ref{ID: id})
	require.NoError(t, err)
	return at
}

func refresh(t testing.TB, stores ...*Store) {
	t.Helper()
	for _, st := range stores {
		_, err := st.Refresh(t.Context(), 0)
		require.NoError(t, err)
	}
}

// Hosts that commit at once are one order: preconditions are judged at its head, every acknowledged commit is in it once, and
// all hosts end with the same audit.
func TestHostsAtOnce(t *testing.T) {
	t.Parallel()
	dsn := onServer(t)
	hosts := []*Store{onHost(t, dsn, ownName(t), nil), onHost(t, dsn, ownName(t), nil), onHost(t, dsn, ownName(t), nil)}
	mustPut(t, hosts[0], "counter", "0")
	var mu sync.Mutex
	won := map[uint64]int{} // by the LSN that was expected
	var all sync.WaitGroup
	for h, st := range hosts {
		for w := range 3 {
			all.Go(func() {
				for n := range 15 {
					_, err := st.Commit(t.Context(), fact(t, st, fmt.Sprintf("a-%d-%d-%d", h, w, n), "words"))
					if err != nil {
						t.Error(err)
						return
					}
					at, err := st.Resolve(t.Context(), acme, store.Ref{ID: "counter"})
					if err != nil {
						t.Error(err)
						return
					}
					b := fact(t, st, "counter", fmt.Sprint(h, w, n))
					b.Expect = []store.Precondition{{Ref: store.Ref{Scope: "acme", ID: "counter"}, LSN: at.LSN}}
					switch _, err = st.Commit(t.Context(), b); {
					case err == nil:
						mu.Lock()
						won[at.LSN]++
						mu.Unlock()
					case !errors.Is(err, store.ErrConflict):
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	refresh(t, hosts...)
	for lsn, n := range won {
		require.Equal(t, 1, n, "two commits replaced the version of %d", lsn)
	}
	require.EqualValues(t, 1+len(won), mustFind(t, hosts[1], "counter").Version)
	for _, st := range hosts {
		for h := range 3 {
			for w := range 3 {
				for n := range 15 {
					mustFind(t, st, fmt.Sprintf("a-%d-%d-%d", h, w, n))
				}
			}
		}
		rep, err := st.Maintain(t.Context(), store.Job{Kind: store.JobCheck}, nil)
		require.NoError(t, err)
		require.Empty(t, rep.Problems)
	}
	// The leaves of refused commits are numbered by a later turn: until then the hosts may look at different moments.
	heads := make([]manifest.Head, len(hosts))
	require.Eventually(t, func() bool {
		refresh(t, hosts...)
		for i, st := range hosts {
			var err error
			heads[i], err = st.Head(t.Context())
			require.NoError(t, err)
		}
		return heads[0].Size == heads[1].Size && heads[1].Size == heads[2].Size
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, heads[2].Root, heads[0].Root)
	require.Equal(t, heads[2].Root, heads[1].Root)
}

// The pipeline on a server does what it does on a file, and another host explains what this one served.
func TestPipeline(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	db, err := ctxpage.Open("one", ctxpage.Options{Store: onHost(t, dsn, ownName(t), nil)})
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Scope("acme/support").Put(ctx, ctxpage.Artefact{ID: "refund-policy", Text: "Refunds up to $400 are paid within 30 days."})
	require.NoError(t, err)
	agent := db.Scope("acme/support", ctxpage.Gated())
	a, err := agent.Assemble(ctx, ctxpage.Query{Text: "what refunds are paid?", Budget: 2000})
	require.NoError(t, err)
	tx, err := agent.Resume(ctx, a.Trace)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "answer", Text: "Up to $400."}))
	require.ErrorIs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.2, By: "checker"}), store.ErrHeld)

	other := onHost(t, dsn, ownName(t), nil)
	refresh(t, other)
	db2, err := ctxpage.Open("two", ctxpage.Options{Store: other})
	require.NoError(t, err)
	defer db2.Close()
	why, err := db2.Why(ctx, a.Trace, ctxpage.Ref{Scope: "acme/support", ID: "refund-policy"})
	require.NoError(t, err)
	require.True(t, why.In)
	replay, err := db2.Replay(ctx, a.Trace)
	require.NoError(t, err)
	require.Empty(t, replay.Missing)
	require.Contains(t, replay.Text, "$400")

	// What the first host's model saw changes on the second: the commit is stale there and then.
	tx, err = agent.Resume(ctx, a.Trace)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "late", Text: "Up to $400, still."}))
	_, err = db2.Scope("acme/support").Put(ctx, ctxpage.Artefact{ID: "refund-policy", Text: "Refunds up to $200 are paid."})
	require.NoError(t, err)
	require.ErrorIs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.99, By: "checker"}), store.ErrHeld)
	_, err = db2.Manifests().Verify(ctx, nil, nil)
	require.NoError(t, err)
}

// A host that starts after records left the server begins with the image, and is the same as the others. A host that stood
// still meanwhile is told so.
func TestImage(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	a := onHost(t, dsn, ownName(t), nil)
	asleep := quiet(t, dsn, ownName(t), func(o *Options) { o.beat = time.Hour / 2 })
	for i := range 40 {
		mustPut(t, a, fmt.Sprint("page ", i%30), fmt.Sprint("words of ", i))
	}
	_, err := a.pool.Exec(ctx, "UPDATE ctxpage_hosts SET seen = now() - interval '1 day' WHERE host = $1", asleep.log.host)
	require.NoError(t, err)
	written, err := a.writeImage(ctx, nil)
	require.NoError(t, err)
	require.True(t, written)
	require.NoError(t, a.register(ctx))
	require.NoError(t, a.trim(ctx, 0))
	mustPut(t, a, "late", "behind the image")
	var records int
	require.NoError(t, a.pool.QueryRow(ctx, "SELECT count(*) FROM ctxpage_records WHERE db = $1", a.db.num).Scan(&records))
	require.LessOrEqual(t, records, 3)

	b := onHost(t, dsn, ownName(t), nil)
	require.Equal(t, a.eng.Position(), b.eng.Position())
	require.Equal(t, a.eng.Counters(), b.eng.Counters())
	got, err := b.Load(ctx, acme, mustFind(t, b, "page 7").Pages, store.WantText)
	require.NoError(t, err)
	require.Equal(t, "words of 37", got[0].Text)
	rep, err := b.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil)
	require.NoError(t, err)
	require.Empty(t, rep.Problems)
	_, err = b.Audit().Verify(ctx, nil, nil)
	require.NoError(t, err)

	_, err = asleep.Refresh(ctx, 0)
	require.ErrorIs(t, err, ErrTooOld)
	_, err = asleep.Resolve(ctx, acme, store.Ref{ID: "late"})
	require.ErrorIs(t, err, ErrTooOld)
	_, err = asleep.Commit(ctx, fact(t, asleep, "x", "y"))
	require.Error(t, err)
}

// A cache that is kept makes an open short; one that remembers records which the server lost is not thrown away.
func TestKeptCache(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	dir := t.TempDir()
	kept := func(o *Options) { o.CacheDir = dir }
	a := onHost(t, dsn, ownName(t), kept)
	for i := range 10 {
		mustPut(t, a, fmt.Sprint("page ", i), "words")
	}
	_, err := Open(ctx, dsn, Options{Name: ownName(t), CacheDir: dir})
	require.ErrorIs(t, err, store.ErrLocked)
	head, err := a.Head(ctx)
	require.NoError(t, err)
	require.NoError(t, a.Close())

	b := onHost(t, dsn, ownName(t), kept)
	require.EqualValues(t, 10, b.cache.now().Applied, "it begins with what was kept")
	mustFind(t, b, "page 9")
	require.NoError(t, b.Close())

	// A failover to a standby that was behind: the newest commits are gone.
	_, err = shared.exec(ctx, "DELETE FROM ctxpage_records r USING ctxpage_db d WHERE r.db = d.db AND d.name = $1 AND seq > 5", ownName(t))
	require.NoError(t, err)
	_, err = Open(ctx, dsn, Options{Name: ownName(t), CacheDir: dir})
	says(t, err, 10, 5, 10)
	require.NoError(t, emptyDir(dir))
	c := onHost(t, dsn, ownName(t), kept)
	require.EqualValues(t, 5, c.Mark().LSN)
	_, err = c.Audit().Verify(ctx, &head, nil)
	require.Error(t, err, "a head that was kept elsewhere shows that commits are missing")
	require.NoFileExists(t, filepath.Join(dir, rowsFile+newSuffix))
}

// A server that lost commits this host has, and went on without them, is another order. Nobody builds on it.
func TestForked(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	for _, goesOn := range []bool{false, true} {
		t.Run(fmt.Sprint("goes on ", goesOn), func(t *testing.T) {
			a := onHost(t, dsn, ownName(t), func(o *Options) { o.Poll = time.Hour })
			for i := range 5 {
				mustPut(t, a, fmt.Sprint("page ", i), "words")
			}
			_, err := a.pool.Exec(ctx, "DELETE FROM ctxpage_records WHERE db = $1 AND seq > 3", a.db.num)
			require.NoError(t, err)
			if goesOn {
				b := onHost(t, dsn, ownName(t), nil)
				for i := range 5 {
					mustPut(t, b, fmt.Sprint("other ", i), "words")
				}
			}
			_, err = a.Commit(ctx, fact(t, a, "x", "built on what is lost"))
			require.ErrorIs(t, err, ErrForked)
			_, err = a.Resolve(ctx, acme, store.Ref{ID: "page 4"})
			require.ErrorIs(t, err, ErrForked)
			require.NoError(t, a.Close())
			again := onHost(t, dsn, ownName(t), nil)
			mustFind(t, again, "page 2")
			_, err = again.Resolve(ctx, acme, store.Ref{ID: "page 4"})
			require.ErrorIs(t, err, store.ErrNotFound)
		})
	}
}

// A record that somebody changed is damage, and named.
func TestChangedRecord(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	a := onHost(t, dsn, ownName(t), nil)
	for i := range 5 {
		mustPut(t, a, fmt.Sprint("page ", i), "words")
	}
	_, err := a.pool.Exec(ctx, "UPDATE ctxpage_records SET body = set_byte(body, 20, 255 - get_byte(body, 20)) WHERE db = $1 AND seq = 3", a.db.num)
	require.NoError(t, err)
	_, err = Open(ctx, dsn, Options{Name: ownName(t)})
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.ErrorContains(t, err, "record 3")
}

// holds reports whether any table of the server, or any file of a cache, has a text.
func holds(t testing.TB, st *Store, text string) (where []string) {
	t.Helper()
	for _, q := range []string{
		"SELECT count(*) FROM ctxpage_records WHERE db = $1 AND position($2::bytea IN body) > 0",
		"SELECT count(*) FROM ctxpage_inbox WHERE db = $1 AND position($2::bytea IN body) + position($2::bytea IN coalesce(question, '')) > 0",
		"SELECT count(*) FROM ctxpage_image_parts WHERE db = $1 AND position($2::bytea IN body) > 0",
	} {
		var n int
		require.NoError(t, st.pool.QueryRow(t.Context(), q, st.db.num, []byte(text)).Scan(&n))
		if n > 0 {
			where = append(where, q)
		}
	}
	files, err := dbtest.Files(st.dir)
	require.NoError(t, err)
	for path, b := range files {
		if bytes.Contains(b, []byte(text)) {
			where = append(where, path)
		}
	}
	return where
}

// An erase takes the content out of the server's tables and out of the caches of all hosts that follow.
func TestEraseWithFollowers(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	hosts := []*Store{onHost(t, dsn, ownName(t), nil), onHost(t, dsn, ownName(t), nil), onHost(t, dsn, ownName(t), nil)}
	const secret = "the okapi lives in Ituri"
	mustPut(t, hosts[0], "stays", "the lemur lives elsewhere")
	mustPut(t, hosts[0], "secret", secret)
	for _, st := range hosts {
		refresh(t, st)
		_, err := st.checkpoint(ctx)
		require.NoError(t, err)
	}
	_, err := hosts[0].writeImage(ctx, nil)
	require.NoError(t, err)
	require.Len(t, holds(t, hosts[1], secret), 3, "the control: the log, the image and the cache have it")

	rep, err := hosts[1].Maintain(ctx, store.Job{Kind: store.JobErase, Erase: &store.EraseJob{
		Refs: []store.Ref{{Scope: "acme", ID: "secret"}}, By: "operator", Reason: "asked by the person",
	}}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, rep.Erase.Versions)
	refresh(t, hosts...)
	for _, st := range hosts {
		require.Empty(t, holds(t, st, secret))
		_, err = st.Resolve(ctx, acme, store.Ref{ID: "secret"})
		require.ErrorIs(t, err, store.ErrNotFound)
		mustFind(t, st, "stays")
	}
	late := onHost(t, dsn, ownName(t), nil)
	mustFind(t, late, "stays")
	require.Empty(t, holds(t, late, secret))
	rest, err := late.FinishErase(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, rest, "the run is done")
}

// An erase of a host that was killed is finished by another one, which takes nothing that was put since the first commit: under a
// name that was erased by then, under one that was not, and the same text once more. Also if that host ran the same erase to its
// end before the puts. The control: what nobody put again is erased.
func TestFinishEraseTakesNothingLater(t *testing.T) {
	t.Parallel()
	for _, repeated := range []bool{false, true} {
		t.Run(fmt.Sprint("repeated=", repeated), func(t *testing.T) {
			t.Parallel()
			ctx, dsn, name := t.Context(), onServer(t), ownName(t)
			killed, st := onHost(t, dsn, name, nil), onHost(t, dsn, name, nil)
			job := &store.EraseJob{By: "operator", Reason: "asked by the person"}
			for i := range 300 { // more than one commit takes
				id := fmt.Sprint("k", i)
				mustPut(t, killed, id, "okapi "+id)
				job.Refs = append(job.Refs, store.Ref{Scope: "acme", ID: id})
			}
			over := make(chan struct{})
			go func() {
				defer close(over)
				_, _ = killed.Maintain(ctx, store.Job{Kind: store.JobErase, Erase: job}, func(string, uint64, uint64) { runtime.Goexit() })
			}()
			<-over
			refresh(t, st)
			mustFind(t, st, "k299")
			_, err := st.Resolve(ctx, acme, store.Ref{ID: "k0"})
			require.ErrorIs(t, err, store.ErrNotFound)
			if repeated {
				_, err := st.Maintain(ctx, store.Job{Kind: store.JobErase, Erase: job}, nil)
				require.NoError(t, err)
			}
			texts := map[string]string{"k0": "lemur", "k299": "zebra", "k298": "okapi k298"}
			for id, text := range texts {
				mustPut(t, st, id, text)
			}
			rest, err := st.FinishErase(ctx, nil)
			require.NoError(t, err)
			require.Equal(t, repeated, len(rest) == 0, "an erase closes the run that was left open")
			for id := range texts {
				mustFind(t, st, id)
			}
			for _, id := range []string{"k1", "k297"} {
				_, err := st.Resolve(ctx, acme, store.Ref{ID: id})
				require.ErrorIs(t, err, store.ErrNotFound)
			}
			require.Empty(t, holds(t, st, "okapi k150"))
			rest, err = st.FinishErase(ctx, nil)
			require.NoError(t, err)
			require.Empty(t, rest)
		})
	}
}

// A server that is stopped as by a power cut, while hosts commit: what was acknowledged is there after it, once. Reads go on for
// MaxLag, then they say that they may be old; and resume.
func TestServerStops(t *testing.T) {
	t.Parallel()
	srv := ownServer(t)
	ctx, dsn := t.Context(), srv.dsn("postgres")
	patient := 5 * time.Minute // a server may take long to start on a busy machine
	a := onHost(t, dsn, "main", func(o *Options) { o.Patience, o.MaxLag = patient, 300*time.Millisecond })
	b := onHost(t, dsn, "main", func(o *Options) { o.Patience = patient })
	var mu sync.Mutex
	var done []string
	var all sync.WaitGroup
	stop := make(chan struct{})
	for w := range 6 {
		st := []*Store{a, b}[w%2]
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("a-%d-%d", w, n)
				if _, err := st.Commit(ctx, fact(t, st, id, "words")); err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				mu.Lock()
				done = append(done, id)
				mu.Unlock()
			}
		})
	}
	more := func() { // the writers are at work
		t.Helper()
		mu.Lock()
		had := len(done)
		mu.Unlock()
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(done) >= had+50
		}, time.Minute, 5*time.Millisecond)
	}
	for round := range 2 {
		more()
		require.NoError(t, srv.stop(syscall.SIGQUIT))
		if round == 0 {
			require.Eventually(t, func() bool {
				_, err := a.Resolve(ctx, acme, store.Ref{ID: "a-0-0"})
				return errors.Is(err, ErrBehind)
			}, time.Minute, 10*time.Millisecond)
		}
		require.NoError(t, srv.start())
	}
	more()
	close(stop)
	all.Wait()
	refresh(t, a, b)
	fresh := onHost(t, dsn, "main", nil)
	for _, id := range done {
		require.EqualValues(t, 1, mustFind(t, fresh, id).Version, id)
		_, err := a.Resolve(ctx, acme, store.Ref{ID: id})
		for errors.Is(err, ErrBehind) { // on a busy machine the last answer may be older than MaxLag
			refresh(t, a)
			_, err = a.Resolve(ctx, acme, store.Ref{ID: id})
		}
		require.NoError(t, err, id)
	}
	require.EqualValues(t, len(done), fresh.Mark().LSN, "nothing is there twice, and nothing that was not acknowledged")
	require.Equal(t, a.eng.Position(), b.eng.Position())
	require.Equal(t, a.eng.Position(), fresh.eng.Position())
	t.Logf("%d commits over two stops of the server", len(done))
}

// A host that stands still while it has the turn does not stop the others: the server ends its transaction. When it goes on, its
// commit is judged again and made once.
func TestHolderStandsStill(t *testing.T) {
	t.Parallel()
	dsn := onServer(t)
	var once sync.Once
	asleep, wake := make(chan struct{}), make(chan struct{})
	a := onHost(t, dsn, ownName(t), func(o *Options) {
		o.hook = func(step string) error {
			if step == "write" {
				once.Do(func() { close(asleep); <-wake })
			}
			return nil
		}
	})
	b := onHost(t, dsn, ownName(t), nil)
	answered := make(chan store.Outcome)
	go func() {
		out, err := a.Commit(t.Context(), fact(t, a, "of the sleeper", "words"))
		if err != nil {
			t.Error(err)
		}
		answered <- out
	}()
	<-asleep
	out := mustPut(t, b, "of the other", "words") // or the sleeper would sleep forever
	close(wake)
	require.EqualValues(t, 1, out.LSN)
	require.EqualValues(t, 2, (<-answered).LSN)
	refresh(t, b)
	require.EqualValues(t, 1, mustFind(t, b, "of the sleeper").Version)
}

// The controls of the two tests before: a store that takes a commit without an answer for done tells its caller of a commit that is
// not there, when the server stops in the middle of it, and when the server ends a turn that stood still.
func TestServerStopsControl(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, srv *server){
		"stopped":      func(t *testing.T, srv *server) { require.NoError(t, srv.stop(syscall.SIGQUIT)) },
		"stands still": func(*testing.T, *server) { time.Sleep(idleTimeout + time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := ownServer(t)
			var once sync.Once
			st := quiet(t, srv.dsn("postgres"), "main", func(o *Options) {
				o.credulous = true
				o.hook = func(step string) error {
					if step == "write" {
						once.Do(func() { meanwhile(t, srv) })
					}
					return nil
				}
			})
			mustPut(t, st, "acknowledged", "words")
			if name == "stopped" {
				require.NoError(t, srv.start())
			}
			_, err := onHost(t, srv.dsn("postgres"), "main", nil).Resolve(t.Context(), acme, store.Ref{ID: "acknowledged"})
			require.ErrorIs(t, err, store.ErrNotFound, "the tests of a server that stops prove nothing")
		})
	}
}

// The schema is made by Migrate alone; several at once make it once, and a dry run makes nothing.
func TestMigrate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := onServer(t)
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	own := pgx.Identifier{ownName(t)}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+own.Sanitize())
	require.NoError(t, err)
	fresh := shared.s.dsn(url.PathEscape(own[0]))
	_, err = Open(ctx, fresh, Options{})
	var schema *SchemaError
	require.ErrorAs(t, err, &schema)
	require.ErrorIs(t, err, ErrSchema)
	require.ErrorContains(t, err, "dbctl postgres migrate")
	steps, err := Migrate(ctx, fresh, true)
	require.NoError(t, err)
	require.Len(t, steps, schemaVersion)
	_, err = Open(ctx, fresh, Options{})
	require.ErrorIs(t, err, ErrSchema, "a dry run made nothing")
	var all sync.WaitGroup
	var total [3]int
	for i := range total {
		all.Go(func() {
			steps, err := Migrate(ctx, fresh, false)
			if err != nil {
				t.Error(err)
			}
			total[i] = len(steps)
		})
	}
	all.Wait()
	require.Equal(t, schemaVersion, total[0]+total[1]+total[2])
	_, err = Open(ctx, fresh, Options{MustExist: true})
	require.ErrorIs(t, err, store.ErrNotExist)
	st := onHost(t, fresh, "main", nil)
	_, err = st.pool.Exec(ctx, "INSERT INTO ctxpage_version (version_id, is_applied) VALUES (99, true)")
	require.NoError(t, err)
	_, err = Open(ctx, fresh, Options{})
	require.ErrorContains(t, err, "newer release")
	_, err = st.pool.Exec(ctx, "ALTER TABLE ctxpage_version RENAME TO ctxpage_schema") // as it was called before v0.1.0
	require.NoError(t, err)
	_, err = Open(ctx, fresh, Options{})
	require.ErrorIs(t, err, store.ErrOldFormat)
	_, err = Migrate(ctx, fresh, false)
	require.ErrorIs(t, err, store.ErrOldFormat)
}

// A host that stood still believes that its turn is open, while the server has ended it and another host has committed. A
// refresh must not take the turn for a proof that nothing happened.
func TestRefreshDoesNotTrustATurn(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	a, b := onHost(t, dsn, ownName(t), nil), onHost(t, dsn, ownName(t), nil)
	l := a.log
	require.NoError(t, l.lock(ctx))
	require.NoError(t, l.open(ctx))
	turn := l.turn
	turn.group = &group{done: make(chan struct{})}
	l.unlock()
	out := mustPut(t, b, "of the other", "words") // it waits until the server ends the turn
	lost := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() { // the host notices
		err := l.lock(ctx)
		if err == nil {
			l.turn = nil
			turn.drop()
			l.lose(turn)
			l.unlock()
		}
		lost <- err
	})
	m, err := a.Refresh(ctx, 0)
	require.NoError(t, <-lost)
	require.NoError(t, err)
	require.Equal(t, out.LSN, m.LSN)
}

// A host that waits for the turn installs what the others commit meanwhile, and its reads stay fresh. With the lock in hand there is
// little left to do.
func TestFollowsWhileItWaits(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	a := quiet(t, dsn, ownName(t), func(o *Options) { o.Poll = 5 * time.Millisecond })
	b := quiet(t, dsn, ownName(t), nil)
	l := a.log
	require.NoError(t, l.lock(ctx))
	defer l.unlock()
	locked, done := make(chan error, 1), make(chan error, 1)
	go func() { done <- l.followUntil(ctx, locked) }()
	for n := range 5 {
		out := mustPut(t, b, fmt.Sprint("page ", n), "words")
		before := l.heard.Load()
		require.Eventually(t, func() bool { return a.Mark().LSN == out.LSN && l.heard.Load() > before }, time.Minute, time.Millisecond)
	}
	locked <- nil
	require.NoError(t, <-done)
	refused := errors.New("refused")
	locked <- refused
	require.ErrorIs(t, l.followUntil(ctx, locked), refused)
}

// A host that some hundred records of others are ahead of keeps the turn it waited for; further behind, it gives the turn back and
// catches up first.
func TestTurnsKept(t *testing.T) {
	t.Parallel()
	dsn := onServer(t)
	var begun atomic.Int64
	a := quiet(t, dsn, ownName(t), func(o *Options) {
		o.hook = func(step string) error {
			if step == "begin" {
				begun.Add(1)
			}
			return nil
		}
	})
	b := quiet(t, dsn, ownName(t), nil)
	for _, c := range []struct {
		records int
		turns   int64
	}{{beginRows / 2, 1}, {beginRows + 10, 2}} {
		for n := range c.records {
			mustPut(t, b, fmt.Sprint("page ", n), fmt.Sprint("words ", c.records))
		}
		begun.Store(0)
		mustPut(t, a, "own", fmt.Sprint("words ", c.records))
		require.Equal(t, c.turns, begun.Load())
	}
}
