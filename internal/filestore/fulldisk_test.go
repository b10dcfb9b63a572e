package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"

	"github.com/stretchr/testify/require"
)

// levels are sizes of a disk. The least is the least on which anything can be stored: of a smaller one the log, the first
// pages of the file and what puts leave to deletes are all.
var levels = []int64{1024, 1280, 1536, 1792, 2048, 2560, 2752, 3584, 4608, 7680} // KiB

// TestFullDiskLevels: at many sizes of disk a database fills it up alone. Whatever it acknowledged can be read, before
// and after an unclean and a clean end; deletes and gc go through, and then puts do again, on the same disk. In the control
// puts leave nothing on the disk, and what they should leave it for does not go through.
func TestFullDiskLevels(t *testing.T) {
	dir, resize := smallDisk(t)
	stored := func(size int64, greedy bool) (n int, err error) {
		resize(size << 10)
		l := &diskLevel{path: filepath.Join(dir, "agent.ctx"), greedy: greedy, stored: map[int]bool{}}
		defer func() {
			if l.db != nil {
				_ = l.db.Close()
			}
			names.Remove(l.path)
		}()
		err = l.run()
		return l.filled, err
	}
	for _, size := range levels {
		n, err := stored(size, false)
		require.NoError(t, err, "%d KiB", size)
		require.Positive(t, n)
	}
	require.ErrorIs(t, errOf(stored(levels[0], true)), store.ErrNoSpace, "the control")
}

// diskLevel is a database on a disk that it fills up.
type diskLevel struct {
	path   string
	greedy bool // puts leave nothing to others
	db     *DB
	stored map[int]bool
	filled int // how many were stored when it was full
}

func (l *diskLevel) open() (err error) {
	l.db, err = openOver(l.path, Options{}, filestore.Options{Segment: 64 << 20})
	if err == nil {
		inside(l.db).Options.Greedy = l.greedy
	}
	return err
}

func (l *diskLevel) text(n int) string {
	return fmt.Sprint(n, strings.Repeat(" words of a longer text", 150))
}

func (l *diskLevel) put(id string, n int) error {
	_, err := l.db.Scope("acme").Put(context.Background(), Artefact{ID: id, Text: l.text(n)})
	return err
}

// readable says what of that which is stored cannot be read.
func (l *diskLevel) readable() error {
	for _, n := range slices.Sorted(maps.Keys(l.stored)) {
		if n >= 200 { // reads are audited, and take space
			break
		}
		got, err := textOf(l.db.Scope("acme"), fmt.Sprint("page-", n))
		if err != nil || got != l.text(n) {
			return fmt.Errorf("page-%d: %d bytes: %w", n, len(got), err)
		}
	}
	return nil
}

func (l *diskLevel) run() error {
	if err := l.open(); err != nil {
		return err
	}
	var full error
	for n := 0; full == nil; n++ {
		if full = l.put(fmt.Sprint("page-", n), n); full == nil {
			l.stored[n] = true
		}
	}
	l.filled = len(l.stored)
	if !errors.Is(full, store.ErrNoSpace) || errors.Is(full, store.ErrOutcomeUnknown) {
		return fmt.Errorf("the last put: %w", full)
	}
	if err := l.readable(); err != nil {
		return err
	}
	_ = inside(l.db).Engine.Fail(errors.New("killed")) // the end is not a clean one
	if l.db.Close() == nil {
		return errors.New("a killed database says it ended well")
	}
	for _, end := range []string{"killed", "closed"} {
		err := l.open()
		if err == nil {
			err = l.readable()
		}
		if err == nil && end == "killed" {
			err = l.db.Close()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", end, err)
		}
	}
	if err := l.makeRoom(); err != nil {
		return err
	}
	return l.putAgain()
}

// makeRoom deletes every other page.
func (l *diskLevel) makeRoom() error {
	for n := 0; n < l.filled; n += 2 {
		if err := l.db.Scope("acme").Delete(ctx, fmt.Sprint("page-", n)); err != nil {
			return fmt.Errorf("delete %d of %d: %w", n, l.filled, err)
		}
		delete(l.stored, n)
	}
	rep, err := l.db.Admin().GC(ctx, GCOptions{KeepFor: -1})
	if err == nil && rep.Dropped.Versions == 0 {
		err = errors.New("nothing was dropped")
	}
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	return l.readable()
}

// putAgain puts an eighth of what there was. A quarter of that must go through: deletes and gc leave audit, which stays.
func (l *diskLevel) putAgain() error {
	want, again, err := max(1, l.filled/8), 0, error(nil)
	for ; again < want && err == nil; again++ {
		err = l.put(fmt.Sprint("again-", again), again)
	}
	if again < want/4 || again == 1 && err != nil {
		return fmt.Errorf("put %d of %d: %w", again, want, err)
	}
	problems, err := l.db.Admin().Check(context.Background(), nil)
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("check: %v", problems)
	}
	return errors.Join(err, l.db.Close())
}

// TestReadsFillTheDisk: reads go on when the disk is full, until what they leave in the audit has filled the reserve, too. The error of
// the read that fails then says that it is the disk, and when there is space again, reads are answered.
func TestReadsFillTheDisk(t *testing.T) {
	dir, resize := smallDisk(t)
	resize(levels[0] << 10)
	db := openTest(t, filepath.Join(dir, "agent.ctx"), Options{})
	s := db.Scope("acme")
	put := func(id string) error {
		_, err := s.Put(ctx, Artefact{ID: id, Text: strings.Repeat("words of a longer text ", 150)})
		return err
	}
	require.NoError(t, put("page"))
	var err error
	for n := 0; err == nil; n++ {
		err = put(fmt.Sprint("page-", n))
	}
	require.ErrorIs(t, err, store.ErrNoSpace)
	reads := 0
	for ; err == nil || reads == 0; reads++ {
		require.Less(t, reads, 100_000, "the disk is large")
		_, err = s.Get(ctx, "page")
	}
	require.Greater(t, reads, 100)
	require.ErrorIs(t, err, store.ErrNoSpace)
	resize(8 << 20)
	require.Eventually(t, func() bool { _, err := s.Get(ctx, "page"); return err == nil }, time.Minute, 50*time.Millisecond)
}

// TestDiskFilledByAnother: another program fills the disk while the database is written to. Whatever was acknowledged can
// be read and deleted, and as soon as the other has gone, puts go on without an open. The control never removes the file:
// then they do not.
func TestDiskFilledByAnother(t *testing.T) {
	dir, resize := smallDisk(t)
	resize(12 << 20)
	for _, removed := range []bool{true, false} {
		path, filler := filepath.Join(dir, fmt.Sprint("agent-", removed, ".ctx")), filepath.Join(dir, "filler")
		db := openTest(t, path, Options{}, filestore.Options{Segment: 64 << 20})
		s := db.Scope("acme")
		text := func(n int) string { return fmt.Sprint(n, strings.Repeat(" words of a longer text", 100)) }
		f := must(os.Create(filler))(t)
		stored := 0
		var full error
		for n, grows := 0, true; full == nil; n++ {
			if n > 20 && grows { // in the midst of the puts
				_, err := f.Write(make([]byte, 256<<10))
				grows = err == nil
			}
			if _, full = s.Put(ctx, Artefact{ID: fmt.Sprint("page-", n), Text: text(n)}); full == nil {
				stored++
			}
		}
		require.NoError(t, f.Close())
		require.ErrorIs(t, full, store.ErrNoSpace)
		require.NotErrorIs(t, full, store.ErrOutcomeUnknown)
		for n := range stored {
			require.Equal(t, text(n), must(textOf(s, fmt.Sprint("page-", n)))(t))
		}
		require.NoError(t, s.Delete(ctx, "page-0"))
		if removed {
			require.NoError(t, os.Remove(filler))
		}
		put := func() error { _, err := s.Put(ctx, Artefact{ID: "later", Text: text(7)}); return err }
		if !removed {
			require.ErrorIs(t, put(), store.ErrNoSpace, "the control")
			require.NoError(t, os.Remove(filler))
		}
		require.Eventually(t, func() bool { return put() == nil }, time.Minute, 50*time.Millisecond)
		require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
		require.NoError(t, db.Close())
		for _, name := range []string{"", "-wal", "-manifest", ".lock"} {
			require.NoError(t, os.RemoveAll(path+name))
		}
	}
}
