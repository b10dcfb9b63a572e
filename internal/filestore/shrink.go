package filestore

import (
	"context"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/store"
	"go.etcd.io/bbolt"
)

// shrink returns the free space of the file to the disk (compact.go), or reports how much that
// would be. Checkpoints come first, so that space freed lately counts, and the log is as short as
// it can be. Files of erases that were interrupted are purged before.
//
// Two numbers are reported: Log counts the bytes that cutting the log freed, Before minus After those
// that the new file frees. The file is written anew whole, so a compaction needs the space of a second one while
// it runs.
func (s *Store) shrink(ctx context.Context, dry bool, progress store.Progress) (rep store.JobReport, err error) {
	rep.Compact.DryRun = dry
	if !dry {
		if err := s.eng.Writable(); err != nil {
			return rep, err
		}
		if err := s.eraseMu.Take(ctx); err != nil {
			return rep, err
		}
		defer s.eraseMu.Unlock()
		if err := s.purgeWaiting(ctx, progress); err != nil {
			return rep, err
		}
	}
	if err := s.startJob(ctx); err != nil {
		return rep, err
	}
	defer s.ckptMu.Unlock()
	if dry {
		rep.Compact, err = s.shrinkPlan(ctx, progress)
		return rep, err
	}
	log := s.log.Size()
	if err := s.cutBefore(ctx, s.log.Last()); err != nil {
		return rep, fmt.Errorf("ctxpage: compact %s: %w", s.opts.Path, err)
	}
	rep.Compact.Log = max(0, log-s.log.Size())
	rep.Compact.Free = s.freePages()
	rep.Compact.Before, rep.Compact.After, err = s.compact(ctx, progress)
	return rep, noSpaceError(s.opts.Path, err, rep.Compact.Before)
}

// endAtPages takes what the file has behind its last page off its end: it grows by up to allocSize
// more than its pages need, and copies of it would take that as well. An error costs nothing but
// the space.
func (s *Store) endAtPages() {
	_ = s.view(func(tx *bbolt.Tx) error {
		if !system.ReplacesOpen {
			s.cutTo = tx.Size() // a mapped file cannot be cut: closeFiles does it
			return nil
		}
		if st, err := s.file.Load().Stat(); err == nil && st.Size() > tx.Size() {
			_ = s.file.Load().Truncate(tx.Size())
		}
		return nil
	})
}

// freePages are the bytes of pages that no row uses.
func (s *Store) freePages() int64 {
	db := s.bolt.Load()
	st := db.Stats()
	return int64(st.FreePageN+st.PendingPageN) * s.pageSize
}

// shrinkPlan reads every row of the file once. After is an estimate: the space of the rows at the fill
// of compact, plus the branch pages as they are.
func (s *Store) shrinkPlan(ctx context.Context, progress store.Progress) (rep store.CompactReport, err error) {
	rep.DryRun = true
	err = s.view(func(tx *bbolt.Tx) error {
		rep.Before = tx.Size()
		size, whole := int64(tx.DB().Info().PageSize), uint64(tx.Size())
		pages, used, seen := int64(4), int64(4), uint64(0) // two meta pages, the free list, the root of the buckets
		err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			st := b.Stats()
			pages += int64(st.BranchPageN + st.BranchOverflowN)
			used += int64(st.BranchPageN + st.BranchOverflowN + st.LeafPageN + st.LeafOverflowN)
			pages += packedPages(&st, size, compactFillOf(name))
			seen += uint64(st.LeafInuse)
			progress("compact", min(seen, whole), whole)
			return nil
		})
		rep.After, rep.Free = min(pages*size, rep.Before), max(0, rep.Before-used*size)
		return err
	})
	if st, serr := s.file.Load().Stat(); serr == nil && st.Size() > rep.Before { // the file grows ahead of its pages
		rep.Free += st.Size() - rep.Before
		rep.Before = st.Size()
	}
	return rep, err
}

// packedPages estimates how many leaf pages the rows of a bucket take after they are copied. Rows
// that fill pages of their own (LeafOverflowN) do so in the copy as well.
func packedPages(st *bbolt.BucketStats, size int64, fill float64) int64 {
	full := int64(float64(size) * fill)
	rows := max(0, int64(st.LeafInuse)-int64(st.LeafOverflowN)*size)
	return int64(st.LeafOverflowN) + (rows+full-1)/full
}
