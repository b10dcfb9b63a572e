package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/internal/system"
)

// A compaction writes the rows to a new file, without freed pages and without the old bytes that
// bbolt leaves between rows.
//
//	copy     the rows, in the order of their keys, to path.compact, which no reader opens
//	name     the system row, twice: bbolt falls back to the older of two meta pages, and either must lead to all rows
//	rename   path.compact takes the place of path, and the directory is synced
//	change   new readers get the new file; readers of the old one end first
//
// Checkpoints wait meanwhile, so nothing else writes the file. At each step a crash leaves one whole file
// at the path:
//
//	copy, name   path: the old file. path.compact: a part, removed by the next open for writing
//	rename       path: the old or the new file; the directory was not synced yet. Both have the same rows
//	synced       path: the new file
//
// A failure after the rename ends the store (Fail): nobody knows to which of the two files the name
// leads after a crash, so nothing more may be written to either.

const compactSuffix = ".compact"

// compactBytes of rows are written in one transaction, which keeps them in memory.
const compactBytes = 4 << 20

// compact returns the sizes of the file before and after, in bytes. The caller holds ckptMu, so the
// rows that are copied are the newest of the file. On an error the old file is in use, except after
// the rename (putInPlace).
func (s *Store) compact(ctx context.Context, report func(string, uint64, uint64)) (before, after int64, err error) {
	if err := s.sameFile(); err != nil {
		return 0, 0, err
	}
	if st, err := s.file.Load().Stat(); err == nil {
		before = st.Size()
	}
	db, file, err := s.compacted(ctx, report)
	if err != nil {
		os.Remove(s.opts.Path + compactSuffix)
		return before, 0, fmt.Errorf("ctxpage: compact %s: %w", s.opts.Path, err)
	}
	// Closing an unlinked file for the last time frees its space, which takes 1 ms for each MB or
	// two. bbolt would do that under locks that new readers wait for. So we keep the file open here
	// until bbolt has closed it.
	var was *os.File
	st, err := file.Stat()
	if err == nil && system.ReplacesOpen {
		if was, err = system.OpenFile(s.opts.Path, os.O_RDONLY, 0); err == nil {
			defer was.Close()
		}
	}
	if err == nil {
		err = s.putInPlace(db, file)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("ctxpage: compact %s: %w", s.opts.Path, err), db.Close())
		os.Remove(s.opts.Path + compactSuffix) // behind the rename there is none
		return before, 0, err
	}
	return before, st.Size(), s.eng.At("compact changed")
}

// compacted makes the new file, whole and synced. Its writes are not synced one by one: until
// syncNew has returned the file is nobody's, and a crash throws it away. After that it gets the
// options of a file in use.
func (s *Store) compacted(ctx context.Context, report func(string, uint64, uint64)) (db *bbolt.DB, file *os.File, err error) {
	path := s.opts.Path + compactSuffix
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	open := func(name string, flag int, perm os.FileMode) (_ *os.File, err error) {
		file, err = system.OpenFile(name, flag|os.O_EXCL|os.O_CREATE, perm)
		return file, err
	}
	opts := s.boltOptions(open)
	opts.NoSync, opts.NoGrowSync, opts.PageSize = true, true, int(s.pageSize)
	if db, err = bbolt.Open(path, 0o600, opts); err != nil {
		return nil, nil, err
	}
	err = s.view(func(from *bbolt.Tx) error { return copyRows(ctx, from, db, s.resealed, report) })
	if err == nil {
		err = s.eng.At("compact copied")
	}
	for range 2 {
		if err == nil {
			err = db.Update(s.putSys)
		}
	}
	if err == nil {
		err = s.opts.syncNew(db)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	db.NoSync, db.NoGrowSync, db.AllocSize = s.opts.NoSync, false, allocSize
	return db, file, nil
}

// copyRows writes every row of every bucket, rising, so that pages are full. change, if given,
// decides what becomes of a value: nil, and the row is left out.
//
// One transaction of the new file has about compactBytes of rows, so memory does not grow with the
// database. The old file is read in one transaction of the caller, so what is copied is one
// snapshot.
func copyRows(ctx context.Context, from *bbolt.Tx, to *bbolt.DB, change func(bucket string, k, v []byte) ([]byte, error), report func(string, uint64, uint64)) (err error) {
	tx, err := to.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of one that was committed: nothing
	size, done := 0, uint64(0)
	total := uint64(from.Size())
	err = from.ForEach(func(name []byte, b *bbolt.Bucket) error {
		into, err := tx.CreateBucket(name)
		if err != nil {
			return err
		}
		into.FillPercent = compactFillOf(name)
		return b.ForEach(func(k, v []byte) error {
			if size > compactBytes {
				if err := errors.Join(ctx.Err(), tx.Commit()); err != nil {
					return err
				}
				if tx, err = to.Begin(true); err != nil {
					return err
				}
				into, size = tx.Bucket(name), 0
				into.FillPercent = compactFillOf(name)
				report("compact", min(done, total), total)
			}
			if change != nil {
				var err error
				if v, err = change(string(name), k, v); v == nil || err != nil {
					return err
				}
			}
			size += len(k) + len(v)
			done += uint64(len(k) + len(v))
			return into.Put(k, v)
		})
	})
	if err == nil {
		err = tx.Commit()
	}
	return err
}

// writeRows writes the rows of a transaction to a new file and syncs it; see copyRows for change and
// report. sys, if not nil, writes the system row. It is called twice: either of bbolt's two meta pages
// must lead to all rows.
func writeRows(ctx context.Context, path string, pageSize int64, from *bbolt.Tx, change func(bucket string, k, v []byte) ([]byte, error), sys func(*bbolt.Tx) error, report func(string, uint64, uint64)) (size int64, err error) {
	open := func(name string, flag int, perm os.FileMode) (*os.File, error) {
		return system.OpenFile(name, flag|os.O_EXCL, perm)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoSync: true, NoGrowSync: true, OpenFile: open, PageSize: int(pageSize)})
	if err != nil {
		return 0, fmt.Errorf("ctxpage: write %s: %w", path, err)
	}
	db.AllocSize = allocSize
	err = copyRows(ctx, from, db, change, report)
	for range 2 {
		if err == nil && sys != nil {
			err = db.Update(sys)
		}
	}
	if err == nil {
		err = db.View(func(tx *bbolt.Tx) error { size = tx.Size(); return nil })
	}
	if err == nil {
		err = db.Sync()
	}
	return size, withErrno(errors.Join(err, db.Close()))
}

// compactFillOf returns the fill of the copied pages of a bucket. A bucket whose keys only grow needs no
// room; the others get as much as a checkpoint leaves (grownFill).
func compactFillOf(bucket []byte) float64 {
	for t, name := range bucketNames {
		if bytes.Equal(name, bucket) && fill[t] != 0 {
			return fill[t]
		}
	}
	return grownFill
}

// putInPlace renames the new file over the old one, and lets readers use it. Closing the old
// file waits for its readers, while new transactions get the new one already: a read that found the
// old file closed begins again (within).
func (s *Store) putInPlace(db *bbolt.DB, file *os.File) error {
	if err := s.eng.At("compact synced"); err != nil {
		return err
	}
	if !system.ReplacesOpen {
		return s.replaceClosed(db)
	}
	if err := os.Rename(s.opts.Path+compactSuffix, s.opts.Path); err != nil {
		return err
	}
	if err := s.eng.At("compact renamed"); err != nil {
		return s.eng.Fail(err)
	}
	if err := s.opts.FS.SyncDir(filepath.Dir(s.opts.Path)); err != nil {
		return s.eng.Fail(err) // which of the two files the name leads to after a crash is not known
	}
	old := s.bolt.Swap(db)
	s.file.Store(file)
	return old.Close()
}

// replaceClosed is putInPlace where no open file can be replaced. Both files are closed for the rename, so it waits for
// all readers of the old one, and new ones wait for it.
func (s *Store) replaceClosed(db *bbolt.DB) error {
	if err := db.Close(); err != nil {
		return err
	}
	s.replacing.Lock()
	defer s.replacing.Unlock()
	if err := s.bolt.Load().Close(); err != nil {
		return s.eng.Fail(err)
	}
	err := os.Rename(s.opts.Path+compactSuffix, s.opts.Path)
	now, oerr := bbolt.Open(s.opts.Path, 0o600, s.boltOptions(s.openFile))
	if oerr != nil {
		return s.eng.Fail(errors.Join(err, oerr))
	}
	s.use(now)
	if err != nil {
		return err // the old file is open again
	}
	if err := s.eng.At("compact renamed"); err != nil {
		return s.eng.Fail(err)
	}
	return nil
}
