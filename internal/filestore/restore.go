package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
)

// RestoreOptions configure Restore. The zero value is ready to use.
type RestoreOptions struct {
	// Replace overwrites the database at path. Restore returns ErrLocked while a process has that
	// database open.
	Replace bool
	// Head, if not nil, is a head kept elsewhere, not newer than the backup. The backup's audit is
	// compared with it first.
	Head *manifest.Head
	// By is the name of the operator, for the manifest.
	By string
	// Key opens an encrypted backup. The keyring is the one beside path; if there is none, the one at
	// Keyring; if that is "", the one beside the backup.
	Key      []byte
	Keyring  string
	Progress func(what string, done, total uint64)
	// Clock as in Options.
	Clock func() time.Time
	// Prepare, if not nil, changes the copy before the copy is moved to path, for example to repeat
	// erases that came after the backup. An error from it ends the restore, and path stays as it
	// was.
	Prepare func(ctx context.Context, st store.Store) error

	keyring string
	hook    func(step string) error // tests copy the files at a step, or end there
	fs      wal.FS                  // for what it writes; nil: the operating system's
}

// Restore copies the database at backup to path and returns the head of the backup. It adds a leaf
// to the audit that names the size and root of what the backup vouched for: a head taken after the
// backup was made no longer verifies, and the leaf says why. The backup is checked and its audit
// verified before anything is written.
//
//	verify   the backup opens, its audit hashes to its marks and to Head, and a check finds nothing
//	copy     files beside the path, synced
//	record   the copy is opened, the leaf appended, Prepare called, the copy closed
//	swap     what is at the path is moved aside, the copy moved in, the old removed
//
// A crash before the swap leaves path as it was, and path.restoring*, which the next Restore
// removes. A crash within the swap leaves path.swap: the next open for writing, or Restore,
// finishes the swap first; readers are refused until then.
//
// The disk must have space for the copy beside what is at the path. Otherwise the error says how
// much the copy needs, how much was free, and that path was not changed.
func Restore(ctx context.Context, backup, path string, opts RestoreOptions) (manifest.Head, error) {
	if opts.Progress == nil {
		opts.Progress = func(string, uint64, uint64) {}
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if err := store.CheckClock(opts.Clock()); err != nil {
		return manifest.Head{}, err
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return manifest.Head{}, fmt.Errorf("ctxpage: restore: %w", err)
	}
	if opts.fs == nil {
		opts.fs = wal.OS()
	}
	if opts.hook == nil {
		opts.hook = func(string) error { return nil }
	}
	if err := mayReplace("restore", path, opts.Replace); err != nil {
		return manifest.Head{}, err
	}
	lock, err := lockProcess(path, lockHolder{}, 0, opts.Clock)
	if err != nil {
		return manifest.Head{}, err
	}
	head, err := restoreLocked(ctx, backup, path, opts)
	return head, errors.Join(err, lock.release())
}

// restoreLocked is Restore for a caller that has the lock of path. asItWas decides whether the
// error of a full disk may say that path was not changed: it may, as long as the copy was not moved
// in and no mark of a swap is there.
func restoreLocked(ctx context.Context, backup, path string, opts RestoreOptions) (manifest.Head, error) {
	if err := finishSwap(path, opts.hook); err != nil { // left by a Restore that was killed
		return manifest.Head{}, err
	}
	copied := path + restoringSuffix
	if opts.keyring = path + keysSuffix; opts.Key != nil {
		_, err := os.Lstat(opts.keyring)
		switch beside := errors.Is(err, os.ErrNotExist); {
		case beside && opts.Keyring != "":
			opts.keyring = opts.Keyring
		case beside:
			opts.keyring = backup + keysSuffix
		case opts.Keyring != "" && opts.Keyring != opts.keyring: // it could bring keys back that an erase destroyed
			return manifest.Head{}, store.Invalid("keyring", opts.Keyring, "none: "+opts.keyring+" is there")
		}
	}
	space := copySpaceFor(backup, copied)
	head, err := copyBackup(ctx, backup, copied, opts)
	if err == nil {
		err = space.explain("restore", recordRestore(ctx, copied, head, opts))
	}
	asItWas := true
	if err == nil {
		err = swapDatabase(opts.fs, path, opts.hook)
		_, gone := os.Lstat(copied) // moved in
		asItWas = gone == nil && !swapping(path)
	}
	if err == nil || !swapping(path) {
		removeCopy(copied)
	}
	if noSpace(err) && asItWas {
		err = &namedError{store.ErrNoSpace, fmt.Errorf("ctxpage: restore: %s was not changed; free space on the disk, and restore again: %w", path, err)}
	}
	return head, err
}

// copySpace is about how many bytes a copy of a database takes, and how many its disk had at the
// start.
type copySpace struct {
	dir          string
	needed, free int64 // bytes; free -1: not known
}

// copySpaceFor measures the files at from and the free space where to is. The sum is an estimate:
// the copy of a file with holes, or of one that grew ahead, takes less.
func copySpaceFor(from, to string) copySpace {
	r := copySpace{dir: filepath.Dir(to), free: freeBytes(filepath.Dir(to))}
	for _, suffix := range databaseFiles {
		_ = filepath.WalkDir(from+suffix, func(_ string, e fs.DirEntry, err error) error { // the copy itself reports what cannot be read
			if err == nil && e.Type().IsRegular() {
				if st, err := e.Info(); err == nil {
					r.needed += st.Size()
				}
			}
			return nil
		})
	}
	return r
}

// explain adds to the error of a full disk how much the copy needs.
func (r copySpace) explain(job string, err error) error {
	if !noSpace(err) {
		return err
	}
	free := "the free space is not known"
	if r.free >= 0 {
		free = fmt.Sprintf("%d were free at the start", r.free)
	}
	return &namedError{store.ErrNoSpace, fmt.Errorf("ctxpage: %s: the disk of %s is full: the copy needs about %d bytes, %s; the partial copy was removed: %w", job, r.dir, r.needed, free, err)}
}

// mayReplace refuses to make a database where something is, unless it may be replaced, and where
// there is no directory: to make one for a mistyped path would hide that the database is not where
// it is looked for.
func mayReplace(job, path string, replace bool) error {
	if err := directoryThere(job, path); err != nil {
		return err
	}
	for _, suffix := range append(databaseFiles[:], swapSuffix) {
		if _, err := os.Lstat(path + suffix); err == nil && !replace {
			return fmt.Errorf("ctxpage: %s: %s already exists; name a new path", job, path+suffix)
		}
	}
	return nil
}

// directoryThere refuses to make a database in a directory that does not exist.
func directoryThere(job, path string) error {
	dir := filepath.Dir(path)
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("ctxpage: %s: cannot create %s: there is no directory %s; make it first: %w", job, path, dir, err)
	case err != nil:
		return fmt.Errorf("ctxpage: %s: %w", job, err)
	case !st.IsDir():
		return fmt.Errorf("ctxpage: %s: cannot create %s: %s is not a directory", job, path, dir)
	}
	return nil
}

// copyBackup opens the backup for reading, verifies it and copies it.
func copyBackup(ctx context.Context, backup, to string, opts RestoreOptions) (head manifest.Head, err error) {
	st, err := Open(Options{Path: backup, ReadOnly: true, Now: opts.Clock, FS: opts.fs, Key: opts.Key, Keyring: opts.keyring})
	if err != nil {
		return head, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if head, err = st.Head(ctx); err != nil {
		return head, err
	}
	_, err = st.eng.Leaves.Verify(ctx, opts.Head, func(done, total uint64) { opts.Progress("verify the audit", done, total) })
	if err != nil {
		return head, fmt.Errorf("ctxpage: restore: the audit of %s: %w", backup, err)
	}
	rep, err := st.check(ctx, opts.Progress)
	if err != nil {
		return head, err
	}
	if n := len(rep.Problems); n > 0 {
		return head, &store.CorruptError{File: backup, Err: fmt.Errorf("%d problems, the first: %v", n, rep.Problems[0]), Hint: "nothing was restored; restore another backup, or " + store.HintSalvage}
	}
	removeCopy(to) // left by a Restore that was killed
	if _, err = st.Maintain(ctx, store.Job{Kind: store.JobBackup, Path: to}, opts.Progress); err == nil && st.ring.Load() != nil {
		_, err = copyFile(opts.fs, opts.keyring, to+keysSuffix)
	}
	return head, err
}

// databaseFiles are the suffixes of the parts that make a database, in the order in which a swap
// moves them.
var databaseFiles = [...]string{"", "-wal", "-manifest"}

// swapDatabase puts path.restoring, which is complete and durable, in the place of path. Once the
// mark of the swap is durable there is no way back: the next open of path for writing finishes the
// swap.
//
// Each part is moved with two renames, so that at any moment it is at its place, aside, or not yet
// moved, and the names alone tell which. The mark is needed because three parts cannot be renamed
// in one step: without it, a crash between two renames would leave a file of one database beside
// the log of another.
//
// The names at each step, for the file, the log and the archive in turn, and what a crash leads to:
//
//	step      path   .restoring   .replaced   .swap
//	copied    old    new          –           –       the old database; the next Restore removes the copy
//	marked    old    new          –           mark    from here the next open for writing finishes the swap
//	aside     –      new          old         mark
//	moved     new    –            old         mark
//	removed   new    –            –           mark    only the mark is left to remove
//	done      new    –            –           –       the new database
func swapDatabase(fsys wal.FS, path string, at func(step string) error) error {
	removeDatabase(path + replacedSuffix) // of a swap that was finished and not tidied up
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return fmt.Errorf("ctxpage: restore: %w", err)
	}
	if err := at("before the mark"); err != nil {
		return err
	}
	_, err := newFile(fsys, path+swapSuffix, func(*fileWriter) (int64, error) { return 0, nil })
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		// Remove the mark durably: if it came back after a power cut, the rest of the copy would be
		// taken for all of it.
		return errors.Join(fmt.Errorf("ctxpage: restore: %w", err), os.RemoveAll(path+swapSuffix), syncDirectory(filepath.Dir(path)))
	}
	return finishSwap(path, at)
}

// Suffixes of the names of a restore.
const (
	restoringSuffix = ".restoring" // the copy, until it is moved
	replacedSuffix  = ".replaced"  // what was at the path, until the swap is over
	swapSuffix      = ".swap"      // the mark
)

// swapping reports whether a restore of path was killed after its mark was made.
func swapping(path string) bool {
	_, err := os.Lstat(path + swapSuffix)
	return err == nil
}

// finishSwap moves the parts of the copy that have not been moved yet, in any state that a crash
// may leave, and then removes the mark. The caller has the lock of path. Each step asks the names
// what is left to do, so running it twice is harmless. The mark goes after the old files, since
// without it nobody would look for them.
func finishSwap(path string, at func(step string) error) error {
	if !swapping(path) {
		return nil
	}
	for _, suffix := range databaseFiles {
		if err := at("marked, before path" + suffix); err != nil {
			return err
		}
		if _, err := os.Lstat(path + restoringSuffix + suffix); errors.Is(err, os.ErrNotExist) {
			continue // moved
		}
		if err := os.Rename(path+suffix, path+replacedSuffix+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return swapError(path, err)
		}
		if err := at("path" + suffix + " is aside"); err != nil {
			return err
		}
		if err := os.Rename(path+restoringSuffix+suffix, path+suffix); err != nil {
			return swapError(path, err)
		}
	}
	for _, suffix := range databaseFiles { // if parts of the copy were removed, the files that were moved aside must stay
		if _, err := os.Lstat(path + suffix); err != nil {
			return swapError(path, fmt.Errorf("%w: the database at the path is incomplete; the one that was there before is at %s: move it back and remove %s", err, path+replacedSuffix, path+swapSuffix))
		}
	}
	if err := os.Remove(path + columnsSuffix); err != nil && !errors.Is(err, os.ErrNotExist) { // of the old one
		return swapError(path, err)
	}
	if err := os.Rename(path+restoringSuffix+keysSuffix, path+keysSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return swapError(path, err)
	}
	if err := at("all moved"); err != nil {
		return err
	}
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return swapError(path, err)
	}
	removeDatabase(path + replacedSuffix) // before the mark: where the copy is encrypted, no crash may leave the plain files
	if err := os.Remove(path + swapSuffix); err != nil {
		return swapError(path, err)
	}
	if err := at("mark removed"); err != nil {
		return err
	}
	removeDatabase(path + restoringSuffix) // only its lock file is left
	return syncDirectory(filepath.Dir(path))
}

// removeCopy removes the files that a restore made beside its path, with the copy of the keyring.
func removeCopy(path string) {
	removeDatabase(path)
	os.Remove(path + keysSuffix)
}

// halfRestored is the error for readers, which must not finish a swap.
func halfRestored(path string) error {
	return fmt.Errorf("ctxpage: a restore of %s is running or was interrupted; if none is running, open the database once for writing or run the restore again: either finishes it", path)
}

// swapError is the error of a swap that began and did not end: it says what finishes it.
func swapError(path string, err error) error {
	return fmt.Errorf("ctxpage: restore: replacing %s by %s did not finish; opening the database for writing finishes it: %w", path, path+restoringSuffix, err)
}

// recordRestore opens the copy, writes the leaf that says what the backup vouched for, and lets
// Prepare change it. The copy still stands beside the path, so any failure leaves the database as
// it was. The leaf makes the restore visible in the audit forever: a head that was taken after the
// backup no longer verifies, and this is why.
func recordRestore(ctx context.Context, path string, head manifest.Head, opts RestoreOptions) (err error) {
	st, err := Open(Options{Path: path, MustExist: true, Now: opts.Clock, FS: opts.fs, Columns: -1, Key: opts.Key})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	err = st.note(ctx, store.Synced, &manifest.Record{
		Type: manifest.TypeRestored, By: opts.By, Size: head.Size, Root: head.Root[:],
		Reason: "data written after the backup is not here",
	})
	if err != nil || opts.Prepare == nil {
		return err
	}
	return opts.Prepare(ctx, st)
}
