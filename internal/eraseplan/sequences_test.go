package eraseplan_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
)

var (
	firstSequence = flag.Uint64("sequence.first", 1, "seed of the first sequence of TestSequences")
	sequences     = flag.Uint64("sequences", 0, "how many TestSequences makes; 0: some seconds of them, or 10,000 with CTXPAGE_LONG=1")
)

// sequenceSteps is how many calls a sequence has.
const sequenceSteps = 30

// run makes one sequence. An error is a difference between the database and its model.
func run(dir string, seed uint64, key []byte, d defect, done map[string]int) (err error) {
	path, beside := filepath.Join(dir, "db", "agent.ctx"), filepath.Join(dir, "beside")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.Mkdir(beside, 0o700)); err != nil {
		return err
	}
	defer func() {
		if err == nil || d != nil {
			err = errors.Join(err, os.RemoveAll(filepath.Dir(path)), os.RemoveAll(beside))
		}
	}()
	w := &walk{
		state: newState(), dice: dice{rand.New(rand.NewPCG(seed, 17))}, seed: seed, key: key, dir: beside, path: path,
		now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), defect: d, done: done,
		random: &filestore.LockedReader{R: rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})},
	}
	if err := w.open(); err != nil {
		return err
	}
	for n := range sequenceSteps {
		if err := w.step(); err != nil {
			return errors.Join(fmt.Errorf("seed %d step %d: %w", seed, n, err), w.db.Close())
		}
	}
	for _, last := range []func() error{func() error { return w.check(w.db, filepath.Dir(w.path)) }, w.reopen, func() error { return w.check(w.db, filepath.Dir(w.path)) }} {
		if err := last(); err != nil {
			return errors.Join(fmt.Errorf("seed %d at the end of %v: %w", seed, w.steps, err), w.db.Close())
		}
	}
	problems, err := w.db.Admin().Check(ctx, nil)
	if len(problems) > 0 {
		err = fmt.Errorf("seed %d: the check finds %+v", seed, problems)
	}
	if err = errors.Join(err, w.db.Close()); err == nil && key != nil {
		err = w.rows()
	}
	return err
}

// rows looks in the rows that the keyring opens for words that none may have.
func (w *walk) rows() error {
	kept := w.kept()
	return eachOpened(w.path, w.path+".keys", func(bucket string, words []string) error {
		for _, word := range words {
			if w.never[word] && !kept[word] {
				return fmt.Errorf("seed %d: a row of %s has %s", w.seed, bucket, word)
			}
		}
		return nil
	})
}

// sealedEvery is the key of a sequence: one of three databases is encrypted.
func sealedEvery(seed uint64) []byte {
	if seed%3 == 0 {
		return keyOf(seals)
	}
	return nil
}

// TestSequences makes random sequences of puts, deletes, turns, notes, drafts that are held and reviewed, assemblies, gc,
// retention with its prune, checkpoints, compactions, backups, restores with receipts, reopens and erases, and compares each
// with a model after every erase and at its end.
func TestSequences(t *testing.T) {
	n := *sequences
	if n == 0 && dbtest.Long {
		n = 10_000
	}
	if n == 0 {
		n = 3
	}
	r := &sequencer{t: t, until: time.Now().Add(time.Duration(dbtest.Size(500, 2000)) * time.Millisecond), end: *firstSequence + n, atLeast: *sequences == 0 && !dbtest.Long, done: map[string]int{}}
	r.next.Store(*firstSequence)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		dir := t.TempDir()
		workers.Go(func() { r.work(dir) })
	}
	workers.Wait()
	t.Logf("%d sequences from seed %d on: %v", r.ran.Load(), *firstSequence, r.done)
	require.NoError(t, r.err)
	require.NotZero(t, r.done["erase"])
}

// sequencer makes sequences on all cores, each in a database of its own.
type sequencer struct {
	t         *testing.T
	until     time.Time
	end       uint64 // the seed behind the last
	atLeast   bool   // more of them until the time is over
	next, ran atomic.Uint64
	mu        sync.Mutex // guards the rest
	done      map[string]int
	err       error
}

func (r *sequencer) work(dir string) {
	for {
		seed := r.next.Add(1) - 1
		if seed >= r.end && (!r.atLeast || time.Now().After(r.until)) {
			return
		}
		done := map[string]int{}
		err := run(dir, seed, sealedEvery(seed), nil, done)
		r.ran.Add(1)
		r.mu.Lock()
		for step, n := range done {
			r.done[step] += n
		}
		failed := r.err != nil
		if err != nil && !failed {
			r.err = err
			dbtest.Keep(r.t, filepath.Join(dir, "db", "agent.ctx"))
		}
		r.mu.Unlock()
		if err != nil || failed {
			return
		}
	}
}

// TestSequencesControl: an erase that leaves out one kind of what it should take is told.
func TestSequencesControl(t *testing.T) {
	if dbtest.Race {
		t.Skip("a control of what one goroutine finds: it runs without the race detector, which makes it ten times slower")
	}
	for what, d := range map[string]defect{
		"artefacts": func(j *store.EraseJob) { j.Refs = j.Refs[:max(1, len(j.Refs)-1)] },
		"batches":   func(j *store.EraseJob) { j.Held = nil },
		"questions": func(j *store.EraseJob) { j.Questions = nil },
		"state":     func(j *store.EraseJob) { j.State = nil },
		"notes": func(j *store.EraseJob) {
			j.State = slices.DeleteFunc(slices.Clone(j.State), func(r store.StateRow) bool { return len(r.Key) > 12 && r.Key[:12] == "session/note" })
		},
		"bodies": func(j *store.EraseJob) { j.Leaves = nil },
		"names":  func(j *store.EraseJob) { j.Names = false },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			for seed := uint64(1); seed <= 60; seed++ {
				err := run(dir, seed, nil, d, map[string]int{})
				if err != nil {
					t.Logf("told: %v", err)
					return
				}
			}
			t.Fatal("nobody noticed")
		})
	}
}

// TestSessionErasedAfterBackup is a sequence that failed: a restore with a receipt did not find the turns of a session that was
// erased after the backup, because all rows that named the session had lost their keys.
func TestSessionErasedAfterBackup(t *testing.T) {
	require.NoError(t, run(t.TempDir(), 20484, keyOf(seals), nil, map[string]int{}))
}

// TestSubjectErasedAfterBackup are others: no row of the backup had the subject any more, so the receipt of an erase by subject
// was not found to stand for anything. The restored copy still listed the artefact (93), or a held batch that was all that the
// erase had taken; or it still had a draft whose row gc had dropped before the erase, so that it kept its key (7578).
func TestSubjectErasedAfterBackup(t *testing.T) {
	for _, seed := range []uint64{93, 4065, 4941, 6657, 7578} {
		require.NoError(t, run(t.TempDir(), seed, keyOf(seals), nil, map[string]int{}))
	}
}
