package filestore

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"go.etcd.io/bbolt"
)

// recordBackup writes the leaf of a backup that begins, so that an erase can name it. The copy has
// the leaf as well, so a head that is taken after the backup is one of the copy, too. The leaf is written even if ctx ends
// meanwhile: otherwise nobody knows whether it was, and an erase would name a backup that does not exist.
func (s *Store) recordBackup(ctx context.Context, to string) (failed func(), err error) {
	leaf := &manifest.Record{Type: manifest.TypeBackup, Note: filepath.Base(to), LSN: s.eng.Mark().LSN}
	ctx = context.WithoutCancel(ctx)
	if err := errors.Join(s.note(ctx, store.Synced, leaf), s.syncLog(ctx)); err != nil {
		return nil, err
	}
	return func() {
		err := s.note(ctx, store.Written, &manifest.Record{Type: manifest.TypeBackup, Parent: leaf.Trace, Reason: "failed"})
		if err != nil {
			s.opts.Logger.Warn("a backup failed, and the audit does not say so", "path", to, "error", err)
		}
	}, nil
}

// backup copies the database to another path; the copy is a database. Checkpoints wait, so bbolt,
// archive and the front of the log do not change. Commits go on, the log only grows, and the copy
// ends with a whole prefix of the commits.
func (s *Store) backup(ctx context.Context, to string, progress store.Progress) (rep store.JobReport, err error) {
	if err := s.startJob(ctx); err != nil {
		return rep, err
	}
	defer s.ckptMu.Unlock()
	if err := mayReplace("backup", to, false); err != nil { // a failure below removes the files at the path
		return rep, err
	}
	failed := func() {}
	if !s.opts.ReadOnly {
		if rep, err = s.checkpointLocked(ctx); err != nil {
			return rep, err
		}
		if s.ring.Load() != nil { // the log of a backup is under keys that no erase destroys: it gets as little of it as can be
			if err := s.cutBefore(ctx, s.log.Last()); err != nil {
				return rep, err
			}
		}
		if failed, err = s.recordBackup(ctx, to); err != nil {
			return rep, err
		}
	}
	space := copySpaceFor(s.opts.Path, to)
	defer func() {
		if err != nil {
			removeDatabase(to)
			failed()
			err = space.explain("backup", err)
		}
	}()
	n, err := copyDir(ctx, s.opts.FS, s.opts.Path+"-manifest", to+"-manifest", func(done, total uint64) { progress("copy manifest", done, total) })
	rep.Bytes += n
	if err != nil {
		return rep, err
	}
	n, err = s.copyLog(ctx, to+"-wal", progress)
	rep.Bytes += n
	if err != nil {
		return rep, err
	}
	if s.ring.Load() != nil {
		n, err = s.copySealed(ctx, to, progress)
	} else {
		n, err = s.copyBolt(to, progress)
	}
	rep.Bytes += n
	if err != nil {
		return rep, err
	}
	return rep, s.opts.FS.SyncDir(filepath.Dir(to))
}

// copyLog copies the log while it grows. A segment that is sealed between the listing and its copy
// promises a successor that the copy does not have; then the log is copied again.
func (s *Store) copyLog(ctx context.Context, to string, progress func(string, uint64, uint64)) (n int64, err error) {
	for range 3 {
		if n, err = copyDir(ctx, s.opts.FS, s.opts.Path+"-wal", to, func(done, total uint64) { progress("copy log", done, total) }); err != nil {
			return n, err
		}
		if _, err = wal.Scan(ctx, to, wal.OS(), nil); err == nil {
			return n, nil
		}
		if rerr := os.RemoveAll(to); rerr != nil {
			return n, rerr
		}
	}
	return n, LogError(err)
}

// copyBolt copies the pages of the file as one snapshot.
func (s *Store) copyBolt(path string, progress func(string, uint64, uint64)) (n int64, err error) {
	return newFile(s.opts.FS, path, func(to *fileWriter) (n int64, err error) {
		err = s.view(func(tx *bbolt.Tx) (err error) {
			n, err = tx.WriteTo(to)
			progress("copy pages", uint64(n), uint64(tx.Size()))
			return cmp.Or(to.err, err)
		})
		return n, err
	})
}

// copySealed copies the rows of an encrypted file, without the index and without what bbolt freed:
// the keys of erased rows are destroyed by number, and bytes between the rows have no known number.
func (s *Store) copySealed(ctx context.Context, path string, progress func(string, uint64, uint64)) (n int64, err error) {
	err = s.view(func(from *bbolt.Tx) error {
		n, err = writeRows(ctx, path, s.pageSize, from, s.forBackup(), nil, func(_ string, done, total uint64) { progress("copy pages", done, total) })
		progress("copy pages", uint64(from.Size()), uint64(from.Size()))
		return err
	})
	return n, err
}
