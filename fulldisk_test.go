package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFullDiskLevels: at many sizes of disk a database fills it up alone. Whatever it acknowledged can be read, before
// and after an unclean and a clean end; deletes and gc go through, and then puts do again, on the same disk.
func TestFullDiskLevels(t *testing.T) {
	ctx := context.Background()
	dir, resize := smallDisk(t)
	step := int64(1536 << 10)
	for size := int64(1536 << 10); size <= 8<<20; size += step {
		t.Run(fmt.Sprint(size>>10, " KiB"), func(t *testing.T) {
			resize(size)
			path := filepath.Join(dir, fmt.Sprint("agent-", size, ".ctx"))
			t.Cleanup(func() {
				for _, name := range []string{"", "-wal", "-manifest", ".lock"} {
					require.NoError(t, os.RemoveAll(path+name))
				}
			})
			db := openTest(t, path, Options{segment: 64 << 20})
			t.Cleanup(func() { _ = db.Close() })
			text := func(n int) string { return fmt.Sprint(n, strings.Repeat(" words of a longer text", 150)) }
			stored := map[int]bool{}
			var full error
			for n := 0; full == nil; n++ {
				if _, full = db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint("page-", n), Text: text(n)}); full == nil {
					stored[n] = true
				}
			}
			require.ErrorIs(t, full, ErrNoSpace)
			require.NotErrorIs(t, full, ErrOutcomeUnknown)
			readable := func() {
				for n := range 200 {
					if !stored[n] {
						continue
					}
					got, err := textOf(db.Scope("acme"), fmt.Sprint("page-", n))
					require.NoError(t, err)
					require.Equal(t, text(n), got)
				}
			}
			n := len(stored)
			readable()
			_ = db.inside().Engine.Fail(errors.New("killed")) // the end is not a clean one
			require.Error(t, db.Close())
			for _, end := range []string{"killed", "closed"} {
				db = openTest(t, path, Options{segment: 64 << 20})
				readable()
				if end == "closed" {
					break
				}
				require.NoError(t, db.Close())
			}
			for i := range n {
				if i%2 == 0 && stored[i] {
					require.NoError(t, db.Scope("acme").Delete(ctx, fmt.Sprint("page-", i)), "delete %d of %d", i, n)
					delete(stored, i)
				}
			}
			rep, err := db.GC(ctx, GCOptions{KeepFor: -1})
			require.NoError(t, err)
			require.Positive(t, rep.Dropped.Versions)
			readable()
			again := 0
			for i := range max(1, n/8) {
				if _, err := db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint("again-", i), Text: text(i)}); err != nil {
					t.Logf("put %d of %d again: %v", i, n/8, err)
					break
				}
				again++
			}
			t.Logf("%d stored, %d again", n, again)
			if size >= 3<<20 { // of a smaller disk the log's reserve and the audit are most
				require.Positive(t, again, "writes resume")
			}
			problems, err := db.Check(ctx, nil)
			require.NoError(t, err)
			require.Empty(t, problems)
			require.NoError(t, db.Close())
			for _, name := range []string{"", "-wal", "-manifest", ".lock"} {
				require.NoError(t, os.RemoveAll(path+name))
			}
		})
	}
}

// TestDiskFilledByAnother: another program fills the disk while the database is written to. Whatever was acknowledged can
// be read and deleted, and as soon as the other has gone, puts go on without an open. The control never removes the file:
// then they do not.
func TestDiskFilledByAnother(t *testing.T) {
	ctx := context.Background()
	dir, resize := smallDisk(t)
	resize(12 << 20)
	for _, removed := range []bool{true, false} {
		path, filler := filepath.Join(dir, fmt.Sprint("agent-", removed, ".ctx")), filepath.Join(dir, "filler")
		db := openTest(t, path, Options{segment: 64 << 20})
		s := db.Scope("acme")
		text := func(n int) string { return fmt.Sprint(n, strings.Repeat(" words of a longer text", 100)) }
		f, err := os.Create(filler)
		require.NoError(t, err)
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
		require.ErrorIs(t, full, ErrNoSpace)
		require.NotErrorIs(t, full, ErrOutcomeUnknown)
		for n := range stored {
			got, err := textOf(s, fmt.Sprint("page-", n))
			require.NoError(t, err)
			require.Equal(t, text(n), got)
		}
		require.NoError(t, s.Delete(ctx, "page-0"))
		if removed {
			require.NoError(t, os.Remove(filler))
		}
		put := func() error { _, err := s.Put(ctx, Artefact{ID: "later", Text: text(7)}); return err }
		if !removed {
			require.ErrorIs(t, put(), ErrNoSpace, "the control")
			require.NoError(t, os.Remove(filler))
		}
		require.Eventually(t, func() bool { return put() == nil }, 5*time.Second, 50*time.Millisecond)
		problems, err := db.Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.NoError(t, db.Close())
		for _, name := range []string{"", "-wal", "-manifest", ".lock"} {
			require.NoError(t, os.RemoveAll(path+name))
		}
	}
}
