package erasing_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
)

var (
	firstSequence = flag.Uint64("sequence.first", 1, "seed of the first sequence of TestSequences")
	sequences     = flag.Uint64("sequences", 0, "how many TestSequences makes; 0: some seconds of them, or 10,000 with CTXPAGE_LONG=1")
)

// sequenceSteps is how many calls a sequence has.
const sequenceSteps = 30

// run makes one sequence. An error is a difference between the database and its model.
func run(dir string, seed uint64, d defect, done map[string]int) (err error) {
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
		state: newState(), dice: dice{rand.New(rand.NewPCG(seed, 17))}, seed: seed, dir: beside, path: path,
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
	problems, err := w.db.Check(ctx, nil)
	if len(problems) > 0 {
		err = fmt.Errorf("seed %d: the check finds %+v", seed, problems)
	}
	return errors.Join(err, w.db.Close())
}

// TestSequences makes random sequences of puts, deletes, turns, notes, drafts that are held and reviewed, assemblies, gc,
// retention with its prune, checkpoints, compactions, backups, restores with receipts, reopens and erases, and compares each
// with a model after every erase and at its end.
func TestSequences(t *testing.T) {
	dir := t.TempDir()
	until, n := time.Now().Add(2*time.Second), *sequences
	if n == 0 && dbtest.Long {
		n = 10_000
	}
	done, seed := map[string]int{}, *firstSequence
	for ; n > 0 && seed < *firstSequence+n || n == 0 && (seed < *firstSequence+3 || time.Now().Before(until)); seed++ {
		if err := run(dir, seed, nil, done); err != nil {
			dbtest.Keep(t, filepath.Join(dir, "db", "agent.ctx"))
			require.NoError(t, err)
		}
	}
	t.Logf("seeds %d to %d: %v", *firstSequence, seed-1, done)
	require.NotZero(t, done["erase"])
}

// TestSequencesControl: an erase that leaves out one kind of what it should take is told.
func TestSequencesControl(t *testing.T) {
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
				err := run(dir, seed, d, map[string]int{})
				if err != nil {
					t.Logf("told: %v", err)
					return
				}
			}
			t.Fatal("nobody noticed")
		})
	}
}
