package filestore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// What gc tests with crashes drop: versions enough for three commits.
const (
	gcArts     = 7
	gcVersions = 101
	gcDrops    = gcArts * (gcVersions - 1)
)

func gcID(art int) string            { return fmt.Sprintf("art-%d", art) }
func gcText(art, version int) string { return fmt.Sprintf("zebra %d version %d", art, version) }

// fillGC writes versions until there are enough.
func fillGC(ctx context.Context, db *DB) error {
	for v := 1; v <= gcVersions; v++ {
		err := db.Scope("acme").Update(ctx, func(tx *Txn) error {
			var errs []error
			for a := range gcArts {
				errs = append(errs, tx.Put(ctx, Artefact{ID: gcID(a), Text: gcText(a, v)}))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// verifyGC looks at what a crash in a gc left: what the audit says was dropped is gone, all else is there, whole commits
// of drops only, and none of those that were acknowledged is missing.
func verifyGC(db *DB, acked int) (gone int, err error) {
	dropped, commits := map[string]bool{}, 0
	err = store.EachRecord(ctx, db.Manifests(), 0, dbtest.SizeOf(db.Manifests()), false, func(r *manifest.Record) error {
		if r.Type != manifest.TypeGC {
			return nil
		}
		if commits++; len(r.Writes) != bounds.DropVersions && len(dropped)+len(r.Writes) != gcDrops {
			return fmt.Errorf("a commit dropped %d versions", len(r.Writes))
		}
		for _, w := range r.Writes {
			if dropped[w.Ref] {
				return fmt.Errorf("%s was dropped twice", w.Ref)
			}
			dropped[w.Ref] = true
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if commits < acked {
		return 0, fmt.Errorf("%d commits of drops, acknowledged %d", commits, acked)
	}
	s := db.Scope("acme")
	for a := range gcArts {
		for v := 1; v <= gcVersions; v++ {
			ref := Ref{Scope: "acme", ID: gcID(a), Version: uint32(v)}
			got, err := s.Recall(ctx, ref)
			switch {
			case dropped[ref.String()] && !errors.Is(err, store.ErrGone):
				return 0, fmt.Errorf("%s was dropped and is not gone: %w", ref, err)
			case dropped[ref.String()]:
			case err != nil:
				return 0, err
			case got.Text != gcText(a, v):
				return 0, fmt.Errorf("%s says %q", ref, got.Text)
			}
		}
	}
	hits, err := hitsOf(s.Search(ctx, "zebra", 100))
	if err != nil || len(hits) != gcArts {
		return 0, errors.Join(err, fmt.Errorf("a search found %d", len(hits)))
	}
	st, err := db.Stats(ctx)
	if err == nil && st.PageVersions != gcArts*gcVersions-len(dropped) {
		err = fmt.Errorf("%d page versions beside %d dropped", st.PageVersions, len(dropped))
	}
	problems, cerr := db.Admin().Check(ctx, nil)
	if err = errors.Join(err, cerr); err == nil && len(problems) > 0 {
		err = fmt.Errorf("check: %+v", problems)
	}
	return len(dropped), err
}

// gcCut is a gc that the power may be cut in.
type gcCut struct {
	opts GCOptions
	fill func(db *DB) error
	done func(db *DB, rep store.GCReport) error // after a run that was not cut
	// look looks at what the cut left and lets another run do the rest. It returns how much was gone.
	look func(db *DB, acked int, rep store.GCReport, done bool) (gone int, err error)
}

var gcCuts = map[string]gcCut{"versions": versionsCut, "names": namesCut, "scopes": scopesCut}

var versionsCut = gcCut{
	opts: GCOptions{KeepFor: -1},
	fill: func(db *DB) error { return fillGC(ctx, db) },
	look: func(db *DB, acked int, _ store.GCReport, _ bool) (gone int, err error) {
		if gone, err = verifyGC(db, acked); err != nil {
			return gone, err
		}
		rep, err := db.Admin().GC(ctx, GCOptions{KeepFor: -1})
		if err == nil && rep.Dropped.Versions != gcDrops-gone {
			err = fmt.Errorf("%d were gone, the next run dropped %d", gone, rep.Dropped.Versions)
		}
		if err == nil {
			_, err = verifyGC(db, 0)
		}
		return gone, err
	},
}

// run runs the gc, cuts the power somewhere in it, and looks. It returns how much was gone, and the first broken promise.
func (c gcCut) run(t *testing.T, seed uint64, noSync bool) (gone int, err error) {
	rng := rand.New(rand.NewPCG(seed, 5))
	r := newRig(t, Options{}, filestore.Options{NoSync: noSync, Rotate: 4096})
	setHook := r.lateHook()
	db, err := r.open()
	if err != nil {
		return 0, err
	}
	if err := c.fill(db); err != nil {
		return 0, err
	}
	if rng.IntN(2) == 0 {
		if _, err := db.Admin().Checkpoint(ctx); err != nil {
			return 0, err
		}
	}
	acked := 0
	steps := []string{"gc commit", "gc scopes", "archived", "before bbolt", "after bbolt", "after cut", ""}
	stop, skip, keep := steps[rng.IntN(len(steps))], rng.IntN(3), []int{0, 30, 100}[rng.IntN(3)]
	var im image
	taken := false
	setHook(func(step string) error {
		if taken {
			return nil
		}
		if step == "gc commit" {
			acked++
		}
		if step == stop {
			if skip--; skip < 0 {
				im, taken = r.cut(seed, keep), true
			}
		}
		return nil
	})
	if rng.IntN(2) == 0 {
		r.fs.Inject(dbtest.Fault{N: 1 + rng.IntN(40), Err: dbtest.ErrCrashed, Sticky: true, Short: rng.IntN(3000)})
	}
	rep, err := db.Admin().GC(ctx, c.opts)
	if err != nil && !taken && !errors.Is(err, dbtest.ErrCrashed) {
		return 0, err
	}
	done := err == nil && !taken
	if done && c.done != nil {
		if err := c.done(db, rep); errors.Is(err, dbtest.ErrCrashed) {
			done = false
		} else if err != nil {
			return 0, err
		}
	}
	if !taken {
		im = r.cut(seed, keep)
	}
	if err := r.restart(db, im); err != nil {
		return 0, err
	}
	r.files.Hook = nil
	if db, err = r.open(); err != nil {
		return 0, err
	}
	gone, err = c.look(db, acked, rep, done)
	return gone, errors.Join(err, db.Close())
}

var gcCutTimes = flag.Int("gc.cuts", dbtest.Times(2, 6, 96), "how often TestGCPowerCut cuts the power in each kind of gc")

// TestGCPowerCut: a power cut anywhere in a gc leaves whole commits of it, and the next run does the rest.
func TestGCPowerCut(t *testing.T) {
	t.Parallel()
	for name, c := range gcCuts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := map[int]int{}
			for seed := range uint64(*gcCutTimes) {
				gone, err := c.run(t, seed, false)
				require.NoError(t, err, "seed %d", seed)
				left[gone]++
			}
			require.Greater(t, len(left), 1, "the cuts all came at the same commit: %v", left)
		})
	}
}

// TestGCPowerCutControl: without syncs the same must fail.
func TestGCPowerCutControl(t *testing.T) {
	t.Parallel()
	for name, c := range gcCuts {
		failed, want := 0, 3
		if name == "versions" {
			want = 4
		}
		for seed := uint64(0); seed < 12 && failed < want; seed++ {
			if _, err := c.run(t, seed, true); err != nil {
				failed++
			}
		}
		require.GreaterOrEqual(t, failed, want, "runs that drop %s without syncs and lost something, of 12", name)
	}
}

// gcChild: path. It says when a commit of drops, and when a step of a checkpoint is done.
func init() { children["gc"] = gcChild }

func gcChild(args []string) error {
	db, err := openOver(args[0], Options{}, filestore.Options{Hook: func(step string) error {
		fmt.Println(step)
		return nil
	}})
	if err != nil {
		return err
	}
	_, err = db.Admin().GC(context.Background(), GCOptions{KeepFor: -1})
	if err == nil {
		fmt.Println("done")
		dbtest.UntilKilled()
	}
	return err
}

// TestGCKill kills a process in the middle of its gc, and looks at what is left.
func TestGCKill(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	full := dbtest.Path(t)
	db := openTest(t, full, Options{})
	require.NoError(t, fillGC(ctx, db))
	require.NoError(t, db.Close())
	left := map[int]int{}
	for n := range max(8, dbtest.Times(8, 8, 48)) {
		path := dbtest.CheckedPath[store.Problem](t, openChecked)
		require.NoError(t, dbtest.Copy(full, path))
		cmd := childCommand("gc", path)
		out := must(cmd.StdoutPipe())(t)
		require.NoError(t, cmd.Start())
		acked := 0
		lines := bufio.NewScanner(out)
		for answers := n % 8; lines.Scan() && answers > 0; { // three commits, then the steps of a checkpoint
			if strings.HasPrefix(lines.Text(), "opened") {
				continue
			}
			if answers--; lines.Text() == "gc commit" {
				acked++
			}
		}
		<-time.After(time.Duration(rng.IntN(1500)) * time.Microsecond)
		require.NoError(t, cmd.Process.Kill())
		for lines.Scan() {
			if lines.Text() == "gc commit" {
				acked++
			}
		}
		require.ErrorContains(t, cmd.Wait(), "killed")
		db := openTest(t, path, Options{})
		gone := must(verifyGC(db, acked))(t)
		left[gone]++
		must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t)
		gone = must(verifyGC(db, acked))(t)
		require.Equal(t, gcDrops, gone)
		require.NoError(t, db.Close())
	}
	require.Greater(t, len(left), 1, "the kills all came at the same commit: %v", left)
}

// TestVerifyGCControl: what the crash tests of gc look for is found when it is there.
func TestVerifyGCControl(t *testing.T) {
	db := openTest(t, dbtest.Path(t), Options{})
	require.NoError(t, fillGC(ctx, db))
	require.Zero(t, must(verifyGC(db, 0))(t))
	require.Error(t, errOf(verifyGC(db, 1)), "an acknowledged commit is missing")
	must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t)
	require.NoError(t, forge(db, 1, gcText(0, 1)))
	require.ErrorContains(t, errOf(verifyGC(db, 3)), "I16", "a content that no version has")
	require.NoError(t, db.Close())
}

// TestGCBeside runs gc, over and over, beside writers, readers, assemblies, drafts that are held and reviewed, and
// checkpoints: nobody meets an error but those that are told of gone versions, no draft loses what it was written from.
func TestGCBeside(t *testing.T) {
	t.Parallel()
	db := openTest(t, dbtest.CheckedMemoryPath[store.Problem](t, openChecked), Options{WorkingSet: 1 << 12})
	var ended, dropped, seen atomic.Int64
	const workers, steps = 8, 60
	var run sync.WaitGroup
	stop := make(chan struct{})
	failed := make(chan error, 2)
	beside := func(fn func() error) {
		run.Add(1)
		go func() {
			defer run.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := fn(); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	beside(func() error {
		rep, err := db.Admin().GC(ctx, GCOptions{KeepFor: -1, Expired: true})
		dropped.Add(int64(rep.Dropped.Versions))
		return err
	})
	beside(func() error { _, err := db.Admin().Checkpoint(ctx); return err })

	err := together(workers, func(w int) error {
		defer ended.Add(1)
		s := db.Scope("acme", WithActor(fmt.Sprint("agent-", w)))
		for n := range steps {
			id := gcID((w + n) % 5)
			if _, err := s.Put(ctx, Artefact{ID: id, Text: fmt.Sprintf("zebra %d of %d", n, w), TTL: time.Duration(n%2) * time.Hour}); err != nil {
				return err
			}
			switch n % 4 {
			case 0:
				if _, err := s.Get(ctx, id); err != nil {
					return err
				}
				hist, err := loop.Collect(s.Versions(ctx, id, AtMost(100, "", nil)))
				if err != nil {
					return err
				}
				old := hist[len(hist)-1]
				if _, err := s.Recall(ctx, old.Ref); errors.Is(err, store.ErrGone) {
					seen.Add(1)
				} else if err != nil {
					return err
				}
			case 1:
				if _, err := s.Assemble(ctx, Query{Text: "zebra", Budget: 2000}); err != nil {
					return err
				}
			default:
				if err := heldBeside(ctx, db, s, id, n%4 == 2); err != nil {
					return err
				}
			}
		}
		return nil
	})
	close(stop)
	run.Wait()
	require.NoError(t, err)
	require.Empty(t, failed)
	require.Positive(t, dropped.Load())
	require.Positive(t, seen.Load(), "nobody met a version that was gone")
	require.NoError(t, db.Close())
}

// heldBeside has a draft held, and sees to it that what it was written from is there until it is decided.
func heldBeside(ctx context.Context, db *DB, s *Scope, id string, approve bool) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	v, err := tx.Get(ctx, id)
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Put(ctx, Artefact{ID: "draft-" + tx.ID(), Text: "so " + tx.ID(), DerivedFrom: []Ref{v.Ref}}); err != nil {
		return err
	}
	var held *store.HeldError
	if err := tx.Commit(ctx, Verdict{}); !errors.As(err, &held) {
		return fmt.Errorf("expected it to be held: %w", err)
	}
	for range 3 {
		if _, err := s.Put(ctx, Artefact{ID: id, Text: "zebra after " + tx.ID()}); err != nil {
			return err
		}
		if _, err := s.Recall(ctx, v.Ref); err != nil {
			return fmt.Errorf("what a held draft was written from: %w", err)
		}
	}
	if approve {
		_, err = db.Review().Approve(ctx, held.Batch, Approval{By: "anna", Stale: true})
		if err == nil { // it is a parent now
			_, err = s.Recall(ctx, v.Ref)
		}
		return err
	}
	_, err = db.Review().Reject(ctx, held.Batch, "anna", "")
	return err
}

// What commits name between the plan and the drop keeps it, and the rest of its artefact for this time.
func TestGCSeesWhatIsNamedMeanwhile(t *testing.T) {
	db := openTest(t, dbtest.CheckedMemoryPath[store.Problem](t, openChecked), Options{})
	s := db.Scope("acme")
	for _, id := range []string{"a", "b"} {
		for _, text := range []string{"one", "two", "three"} {
			must(s.Put(ctx, Artefact{ID: id, Text: text}))(t)
		}
	}
	planned := false
	rep := must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, Progress: func(what string, done, total uint64) {
		if what == "versions" && done == total && !planned { // all is on the list
			planned = true
			must(s.Put(ctx, Artefact{ID: "sum", Kind: store.KindSummary, Text: "short", DerivedFrom: []Ref{{ID: "a", Version: 2}}}))(t)
		}
	}}))(t)
	require.True(t, planned)
	require.Equal(t, []Ref{{Scope: "acme", ID: "b", Version: 1}, {Scope: "acme", ID: "b", Version: 2}}, rep.Refs)
	require.Equal(t, []store.GCTally{{Reason: format.KeptParent, Versions: 2, Pages: 2, Bytes: 6, Nearest: rep.Kept[0].Nearest}}, rep.Kept)
	rep = must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t)
	require.Equal(t, []Ref{{Scope: "acme", ID: "a", Version: 1}}, rep.Refs)
}

// The index made anew after a gc is the one there was: of pages whose first version is gone, too.
func TestGCThenReindex(t *testing.T) {
	path := dbtest.CheckedMemoryPath[store.Problem](t, openChecked)
	db := openTest(t, path, Options{PageTokens: 16})
	s := db.Scope("acme")
	first := strings.Repeat("zebra ", 12) + "\n\n"
	for _, a := range []Artefact{
		{ID: "a", Name: "keeper", Text: first + strings.Repeat("apple ", 12)},
		{ID: "a", Name: "keeper", Text: first + strings.Repeat("violin ", 12)},
		{ID: "b", Text: "keeper of the zebra"},
	} {
		must(s.Put(ctx, a))(t)
	}
	rep := must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t)
	require.Equal(t, store.GCTally{Versions: 1, Pages: 1, Bytes: int64(len(strings.Repeat("apple ", 12)))}, rep.Dropped)
	search := func(db *DB) (out []Hit) {
		for _, q := range []string{"zebra", "keeper", "violin", "apple"} {
			hits := must(hitsOf(db.Scope("acme").Search(ctx, q, 10)))(t)
			out = append(out, hits...)
		}
		return out
	}
	want := search(db)
	require.NotEmpty(t, want)
	for _, h := range want {
		v, err := s.Recall(ctx, h.Ref)
		require.NoError(t, err, "a page names the version in which it appeared, whether that is gone or not")
		require.Len(t, v.Pages, 1)
		require.Equal(t, h.Ref, v.Pages[0].Ref)
	}
	require.Equal(t, Ref{Scope: "acme", ID: "a", Page: 1, Version: 1}, want[0].Ref)
	require.ErrorIs(t, errOf(s.Recall(ctx, Ref{Scope: "acme", ID: "a", Page: 2, Version: 1})), store.ErrGone)
	inside(db).Engine.MarkIndexDamaged() // as after damage: the next open makes it again
	require.NoError(t, db.Close())
	db = openTest(t, path, Options{PageTokens: 16})
	require.Equal(t, want, search(db))
	require.NoError(t, db.Close())
}

// Salvage takes what gc left: it finds the log to be that of the file, and brings nothing back that was dropped.
func TestGCThenSalvage(t *testing.T) {
	path := dbtest.Path(t)
	db := openTest(t, path, Options{})
	s := db.Scope("acme")
	for _, text := range []string{"one", "two"} {
		for _, id := range []string{"a", "b"} {
			must(s.Put(ctx, Artefact{ID: id, Text: text + " of " + id}))(t)
		}
	}
	must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t)
	require.NoError(t, db.Close())
	b := must(os.ReadFile(path))(t)
	require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(b, []byte("two of a"), []byte("too of a")), 0o600)) // every copy
	require.NoError(t, os.RemoveAll(path+"-wal"))
	to := dbtest.CheckedMemoryPath[store.Problem](t, openChecked)
	require.Equal(t, 1, must(Salvage(ctx, path, to, filestore.SalvageOptions{Older: true}))(t).Artefacts)
	saved := openTest(t, to, Options{})
	require.Equal(t, "two of b", must(textOf(saved.Scope("acme"), "b"))(t))
	require.ErrorIs(t, errOf(saved.Scope("acme").Get(ctx, "a")), store.ErrNotFound)
	require.NoError(t, saved.Close())
}

// The log of before a gc is that of the file after it.
func TestGCThenSalvageWithLog(t *testing.T) {
	path := dbtest.Path(t)
	db := openTest(t, path, Options{})
	s := db.Scope("acme")
	for _, text := range []string{"one", "two"} {
		must(s.Put(ctx, Artefact{ID: "a", Text: text}))(t)
	}
	must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t)
	require.NoError(t, db.Close())
	to := dbtest.CheckedMemoryPath[store.Problem](t, openChecked)
	rep := must(Salvage(ctx, path, to, filestore.SalvageOptions{}))(t)
	require.Equal(t, 1, rep.Artefacts)
	require.Empty(t, rep.Lost)
}

// What stays of an artefact after all, when one commit drops some of its versions, keeps the rest of them from the commits
// after it: the page that they share is known by the newest of them.
func TestGCPartsOfAnArtefact(t *testing.T) {
	step := func(string) error { return nil }
	db := openTest(t, dbtest.CheckedMemoryPath[store.Problem](t, openChecked), Options{PageTokens: 16}, filestore.Options{Hook: func(at string) error { return step(at) }})
	s := db.Scope("acme")
	part := func(word string) string { return strings.Repeat(word+" ", 8) + "\n\n" }
	n, shared := bounds.DropVersions+20, bounds.DropVersions-5 // versions; the first of ten that share a page
	text := func(v int) string {
		first := fmt.Sprint("apple", v)
		if v >= shared && v < shared+10 {
			first = "zebra"
		}
		return part(first) + part(fmt.Sprint("harbour", v))
	}
	for v := 1; v <= n; v++ {
		must(s.Put(ctx, Artefact{ID: "a", Text: text(v)}))(t)
	}
	run := func(used bool) store.GCReport { // some are in use while the first commit is made, and were not at the plan
		asked := 0
		var hold store.Ticket
		step = func(at string) (err error) {
			switch {
			case !used || at != "gc asks" && at != "gc asked":
			case asked == 0:
				hold, err = storeOf(db).Hold(ctx, store.Moment{})
				asked++
			case asked == 1:
				storeOf(db).Release(hold)
				asked++
			}
			return err
		}
		return must(storeOf(db).Maintain(ctx, store.Job{Kind: store.JobGC, GC: &store.GCJob{By: "ann"}}, nil))(t).GC
	}
	// All of a part are planned, then asked for again when it is committed.
	rep := run(true)
	require.Zero(t, rep.Dropped.Versions)
	require.Equal(t, n-1, rep.Kept[0].Versions)
	for v := 1; v <= n; v++ {
		require.Equal(t, text(v), must(s.Recall(ctx, Ref{Scope: "acme", ID: "a", Version: uint32(v)}))(t).Text)
	}
	require.Equal(t, n-1, run(false).Dropped.Versions, "nothing keeps them now")
}

// A commit of gc is as large as the page rows of its versions, not as what goes with them.
func TestGCLargeArtefact(t *testing.T) {
	db := openTest(t, dbtest.CheckedMemoryPath[store.Problem](t, openChecked), Options{PageTokens: 16})
	s := db.Scope("acme")
	parts := make([]string, bounds.DropPages/4)
	for i := range parts {
		parts[i] = strings.Repeat("zebra ", 9) + "\n\n"
	}
	for v := range 10 {
		parts[0] = fmt.Sprint("harbour ", v, "\n\n", parts[1])
		must(s.Put(ctx, Artefact{ID: "a", Text: strings.Join(parts, "")}))(t)
	}
	v := must(s.Get(ctx, "a"))(t)
	require.Greater(t, len(v.Pages), bounds.DropPages/4)
	inOne := (bounds.DropPages + len(v.Pages) - 1) / len(v.Pages)
	rep := must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t)
	require.Equal(t, 9, rep.Dropped.Versions)
	require.Less(t, rep.Dropped.Pages, 20, "of each a page or two")
	require.Len(t, must(db.Manifests().ByTrace(ctx, rep.Trace))(t), (9+inOne-1)/inOne)
}

// lateStore does something before the next Load.
type lateStore struct {
	store.Store
	before func()
}

func (l *lateStore) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	if f := l.before; f != nil {
		l.before = nil
		f()
	}
	return l.Store.Load(ctx, scopes, keys, want)
}

// Who asks for what is current gets it, also where the version that was so a moment ago is replaced and dropped since.
func TestGCWithinGet(t *testing.T) {
	st := must(filestore.Open(filestore.Options{Path: dbtest.CheckedMemoryPath[store.Problem](t, openChecked), State: StateKinds()}))(t)
	late := &lateStore{Store: st}
	db := must(Open("late", Options{Store: late, WorkingSet: -1}))(t)
	defer db.Close()
	s := db.Scope("acme")
	ref := must(s.Put(ctx, Artefact{ID: "a", Text: "one"}))(t)
	text := "one"
	replace := func() {
		text += ", and more"
		must(s.Put(ctx, Artefact{ID: "a", Text: text}))(t)
		require.Equal(t, 1, must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t).Dropped.Versions)
	}
	late.before = replace
	v := must(s.Get(ctx, "a"))(t)
	require.Equal(t, text, v.Text)

	ref.Version = v.Version
	late.before = replace
	require.ErrorIs(t, errOf(s.Recall(ctx, ref)), store.ErrGone, "of the very version that was asked for")
}

// An end of ctx leaves no commit of gc in the dark: what the reports say was dropped is what was.
func TestGCEndedBesideWriters(t *testing.T) {
	t.Parallel()
	db := openTest(t, dbtest.CheckedPath[store.Problem](t, openChecked), Options{})
	s := db.Scope("acme")
	const writers = 4
	for w := range writers {
		must(s.Put(ctx, Artefact{ID: gcID(w), Text: "first"}))(t)
		must(s.Put(ctx, Artefact{ID: gcID(w), Text: "second"}))(t)
	}
	stop, allowed := make(chan struct{}), make(chan struct{}, 16) // puts, so that each run has few versions to drop
	written := make(chan error, 1)
	go func() {
		written <- together(writers, func(w int) error {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return nil
				case <-allowed:
				}
				if _, err := s.Put(ctx, Artefact{ID: gcID(w), Text: gcText(w, n)}); err != nil {
					return err
				}
			}
		})
	}()
	dropped, ended, step := 0, 0, 100*time.Microsecond
	var unsure error
	for i := range 300 {
		if i%30 == 29 && dropped == 0 { // on a slow machine a run takes longer
			step *= 4
		}
		for range cap(allowed) {
			select {
			case allowed <- struct{}{}:
			default:
			}
		}
		run, cancel := context.WithTimeout(ctx, time.Duration(i%30)*step)
		rep, err := db.Admin().GC(run, GCOptions{KeepFor: -1, KeepRecords: 1 << 30})
		cancel()
		dropped += rep.Dropped.Versions
		if err != nil {
			ended++
		}
		if errors.Is(err, store.ErrOutcomeUnknown) {
			unsure = err
		}
	}
	close(stop)
	require.NoError(t, <-written)
	require.NoError(t, unsure)
	require.Positive(t, ended)
	gone := 0
	for w := range writers {
		for _, v := range must(loop.Collect(s.Versions(ctx, gcID(w), AtMost(1<<20, "", nil))))(t) {
			if v.Gone {
				gone++
			}
		}
	}
	require.Positive(t, gone)
	require.Equal(t, gone, dropped)
}
