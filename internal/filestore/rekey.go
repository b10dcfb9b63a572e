package filestore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
)

// A database is encrypted, or not, as a whole. To change that the files are written anew, and
// swapped like the files of a restore:
//
//	cut      everything is brought into rows and archive: the log has nothing that they have not
//	copy     rows, archive and keyring are written beside the path, sealed or plain; the log is a new one without records
//	check    the copy is opened, a leaf tells what was done, and the whole copy is checked
//	swap     restore.go: a crash before its mark leaves the database as it was, one after it is finished by the next open
//
// Commits keep their LSNs, leaves their places, so every head verifies afterwards. The index is
// left out and made anew when the copy is opened: its words are masked in an encrypted file.

// RekeyOptions configure AddKey and RemoveKey.
type RekeyOptions struct {
	By       string // the operator, for the manifest
	DryRun   bool   // opens the database and computes the space that it would take; writes nothing
	Progress store.Progress

	hook func(step string) error // tests copy the files at a step, or end there
}

// Rekeyed says what AddKey or RemoveKey did.
type Rekeyed struct {
	Path   string `json:"path"`
	Before int64  `json:"before"` // bytes of all files
	After  int64  `json:"after"`  // 0 of a dry run
	Free   int64  `json:"free"`   // bytes on the disk when it began; -1: not known
	// Backups are those that the audit names. They stay as they are: plain, or encrypted.
	Backups []string `json:"backups"`
	DryRun  bool     `json:"dry_run,omitempty"`
}

// AddKey encrypts a plain database with opts.Key. No other process may have it open. While AddKey
// runs, it needs disk space for a second copy. The plain files are removed, not overwritten.
//
// Errors: ErrKey if the database is encrypted already, or if the keyring beside it is of another
// database or key; ErrNoSpace; the errors of Open. After an error the database is as it was.
func AddKey(ctx context.Context, opts Options, o RekeyOptions) (*Rekeyed, error) {
	if err := CheckKey(opts.Key); err != nil {
		return nil, store.Invalid("key", err.Error(), fmt.Sprintf("%d random bytes (dbctl key new)", KeySize))
	}
	from := opts
	from.Key = nil
	return rekey(ctx, from, opts.Key, o)
}

// RemoveKey makes an encrypted database, which opts.Key opens, a plain one. The keyring stays
// beside it: it opens the backups that were made before. Otherwise as AddKey.
func RemoveKey(ctx context.Context, opts Options, o RekeyOptions) (*Rekeyed, error) {
	if opts.Key == nil {
		return nil, store.Invalid("key", "none", "the key of the database")
	}
	return rekey(ctx, opts, nil, o)
}

// rekey writes the database that from opens anew, with another key or none.
func rekey(ctx context.Context, from Options, key []byte, o RekeyOptions) (rep *Rekeyed, err error) {
	if o.Progress == nil {
		o.Progress = func(string, uint64, uint64) {}
	}
	if o.hook == nil {
		o.hook = func(string) error { return nil }
	}
	from = from.withDefaults()
	if from.Path, err = filepath.Abs(from.Path); err != nil {
		return nil, fmt.Errorf("ctxpage: key: %w", err)
	}
	from.MustExist, from.Columns = true, -1
	if o.DryRun {
		from.ReadOnly = true
		st, err := Open(from)
		if err != nil {
			return nil, err
		}
		rep, err = st.rekeyPlan(ctx)
		return rep, errors.Join(err, st.Close())
	}
	lock, err := TakeLock(from)
	if err != nil {
		return nil, err
	}
	from.Lock = lock
	rep, err = rekeyLocked(ctx, from, key, o)
	return rep, errors.Join(err, lock.Release())
}

// rekeyLocked is rekey for a caller that has the process lock. It goes through the steps at the
// head of this file; until the mark of the swap stands, an error removes the copy and leaves the
// database as it was.
func rekeyLocked(ctx context.Context, from Options, key []byte, o RekeyOptions) (rep *Rekeyed, err error) {
	st, err := Open(from) // finishes a swap that was interrupted
	if err != nil {
		return nil, err
	}
	copied := from.Path + restoringSuffix
	rep, err = st.rekeyPlan(ctx)
	if err == nil {
		err = st.rekeyed(ctx, copied, key, o)
	}
	if err = errors.Join(err, st.Close()); err == nil {
		to := from
		to.Path, to.Key, to.Lock, to.ring = copied, key, nil, nil
		err = checkRekeyed(ctx, to, o)
	}
	if err == nil {
		rep.After = bytesAt(copied)
		err = swapDatabase(from.FS, from.Path, o.hook)
	}
	if err != nil && !swapping(from.Path) {
		removeCopy(copied)
		if noSpace(err) {
			err = &namedError{store.ErrNoSpace, fmt.Errorf("ctxpage: %s was not changed; the copy needs about %d bytes, %d were free: %w", from.Path, rep.Before, rep.Free, err)}
		}
	}
	if err != nil {
		return nil, err
	}
	return rep, nil
}

// rekeyPlan says how much there is to write.
func (s *Store) rekeyPlan(ctx context.Context) (*Rekeyed, error) {
	rep := &Rekeyed{Path: s.opts.Path, Before: bytesAt(s.opts.Path), Free: freeBytes(filepath.Dir(s.opts.Path)), Backups: []string{}, DryRun: s.opts.ReadOnly}
	failed := map[string]bool{}
	var names [][2]string
	err := s.eng.Leaves.Each(ctx, 0, s.eng.Leaves.Size(), false, func(r *manifest.Record) error {
		if r.Type == manifest.TypeBackup {
			failed[r.Parent] = true
			names = append(names, [2]string{r.Trace, r.Note})
		}
		return nil
	})
	for _, n := range names {
		if !failed[n[0]] && n[1] != "" {
			rep.Backups = append(rep.Backups, n[1])
		}
	}
	return rep, LogError(err)
}

// bytesAt returns the bytes that the files of a database take.
func bytesAt(path string) int64 { return copySpaceFor(path, path).needed }

// rekeyed writes the copy. Nobody else has this store, so after the cut no record comes that rows
// and archive do not have: the log of the copy is empty.
func (s *Store) rekeyed(ctx context.Context, to string, key []byte, o RekeyOptions) error {
	if err := s.startJob(ctx); err != nil {
		return err
	}
	defer s.ckptMu.Unlock()
	ctx = inJob(ctx)
	if err := s.cutBefore(ctx, s.log.Last()); err != nil {
		return err
	}
	removeCopy(to) // left by one that was killed
	ring, err := s.ringFor(key)
	if err != nil {
		return err
	}
	if ring != nil {
		if err := writeRing(s.opts.FS, to+keysSuffix, ring, key); err != nil {
			return fmt.Errorf("ctxpage: make the keyring: %w", err)
		}
	}
	if err := cmp.Or(o.hook("rekey keyring"), s.eng.Leaves.Reseal(ctx, to+"-manifest", s.opts.FS, sealerOf(ring))); err != nil {
		return LogError(err)
	}
	log, _, err := wal.Open(ctx, to+"-wal", wal.Options{FS: s.opts.FS, Sealed: ring != nil}, func(wal.Record) error { return errors.New("a record in a new log") })
	if err == nil {
		err = log.Abandon()
	}
	if err != nil {
		return LogError(err)
	}
	if err := cmp.Or(o.hook("rekey log"), s.copyRekeyed(ctx, to, ring, o.Progress)); err != nil {
		return fmt.Errorf("ctxpage: write %s: %w", to, err)
	}
	return cmp.Or(o.hook("rekey rows"), s.opts.FS.SyncDir(filepath.Dir(to)))
}

// ringFor is the keyring of the copy; nil: it is plain. A keyring that is beside the database opens
// its encrypted backups, so it is reused.
func (s *Store) ringFor(key []byte) (*Ring, error) {
	if key == nil {
		return nil, nil
	}
	ring, err := ringAt(s.opts.Path+keysSuffix, key, rand.Reader)
	switch {
	case errors.Is(err, ErrNoKeyring):
		return NewRing(s.sys.ID, rand.Reader)
	case err != nil:
		return nil, err
	case ring.DB != s.sys.ID:
		return nil, fmt.Errorf("%w: %s is the keyring of database %s, this is %s; move it away", store.ErrKey, s.opts.Path+keysSuffix, ring.DB, s.sys.ID)
	}
	return ring, nil
}

// copyRekeyed writes the rows, and a system row that says that no record of the log was applied.
func (s *Store) copyRekeyed(ctx context.Context, path string, ring *Ring, progress store.Progress) error {
	was, row := s.ring.Load(), s.sys
	row.Seq, row.PrevSeq, row.Leaves = 0, 0, s.eng.Leaves.Archived()
	return s.view(func(tx *bbolt.Tx) error {
		_, err := writeRows(ctx, path, s.pageSize, tx,
			func(bucket string, k, v []byte) ([]byte, error) { return resealTo(was, ring, bucket, k, v) },
			func(tx *bbolt.Tx) error { return putSys(tx, ring, row) },
			func(_ string, done, total uint64) { progress("write rows", done, total) })
		return err
	})
}

// resealTo is the value of a row under another keyring. Rows of the index and the system row are
// left out. A value whose key an erase destroyed, in a copy from before it, has no plain form: the
// erase must be done in the copy first.
func resealTo(was, next *Ring, bucket string, k, v []byte) ([]byte, error) {
	if bucket == string(bucketSeg) || bucket == string(bucketSys) {
		return nil, nil
	}
	for t, name := range bucketNames {
		if string(name) != bucket {
			continue
		}
		if was != nil {
			plain, err := was.Open(spaceOf[t], k, v)
			if errors.Is(err, ErrDestroyed) {
				return nil, fmt.Errorf("row %x: %w", k, codec.ErrDestroyed)
			}
			if err != nil {
				return nil, &store.CorruptError{File: bucket, Err: fmt.Errorf("row %x: %w", k, err), Hint: store.HintSalvage}
			}
			v = plain
		}
		if next == nil {
			return v, nil
		}
		return next.Seal(nil, spaceOf[t], k, v)
	}
	return nil, fmt.Errorf("ctxpage: bucket %q is not known", bucket)
}

// checkRekeyed opens the copy, adds the leaf about the change, and checks all of it. The original
// is still in its place, so any problem here costs nothing but the copy.
func checkRekeyed(ctx context.Context, to Options, o RekeyOptions) (err error) {
	st, err := Open(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	head, err := st.Head(ctx)
	if err != nil {
		return err
	}
	what := "the files were written anew, encrypted: nothing of the content changed"
	if to.Key == nil {
		what = "the files were written anew, in plain text: nothing of the content changed"
	}
	err = st.note(ctx, store.Synced, &manifest.Record{Type: manifest.TypeRestored, By: o.By, Size: head.Size, Root: head.Root[:], Reason: what})
	if err != nil {
		return err
	}
	rep, err := st.Maintain(ctx, store.Job{Kind: store.JobCheck}, o.Progress)
	if err == nil && len(rep.Problems) > 0 {
		p := rep.Problems[0]
		err = &store.CorruptError{File: st.opts.Path, Err: fmt.Errorf("%d problems, the first: %s %s: %s", len(rep.Problems), p.Invariant, p.Where, p.What), Hint: "the database is as it was; run dbctl check on it"}
	}
	return err
}
