package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
)

// RestoreOptions configure Restore. The zero value is ready to use.
type RestoreOptions struct {
	// Replace overwrites a database that is at the path. It is refused while a process has that one open.
	Replace bool
	// Head, if given, is what the backup's audit is held against first: a head kept elsewhere, not younger than the
	// backup.
	Head *manifest.Head
	// By names who restores, in the manifest.
	By       string
	Progress func(what string, done, total uint64)
	// Clock as in Options.
	Clock func() time.Time
}

// Restore copies the database at backup to path and says so in its audit, as a leaf that names the size and root of
// what the backup vouched for: a head taken after the backup was made no longer verifies, and the leaf says why. The
// backup is opened and its audit verified before anything is written. It gives the head of the backup.
//
//	verify   the backup opens, and its audit hashes to its marks and to Head
//	copy     files beside the path, synced
//	record   the copy is opened, the leaf appended, the copy closed
//	swap     what is at the path is moved aside, the copy moved in, the old removed
//
// A crash before the swap leaves path as it was; a crash within it leaves the old files as path.replaced*, and path
// absent or refused as damaged: run Restore again.
func Restore(ctx context.Context, backup, path string, opts RestoreOptions) (manifest.Head, error) {
	if opts.Progress == nil {
		opts.Progress = func(string, uint64, uint64) {}
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return manifest.Head{}, fmt.Errorf("ctxpage: restore: %w", err)
	}
	if err := mayReplace(path, opts.Replace); err != nil {
		return manifest.Head{}, err
	}
	lock, err := lockProcess(path, Options{Clock: opts.Clock})
	if err != nil {
		return manifest.Head{}, err
	}
	copied := path + ".restoring"
	head, err := copyBackup(ctx, backup, copied, opts)
	if err == nil {
		err = recordRestore(ctx, copied, head, opts)
	}
	if err == nil {
		err = swapDatabase(path)
	}
	removeDatabase(copied)
	return head, errors.Join(err, lock.release())
}

func mayReplace(path string, replace bool) error {
	for _, suffix := range databaseFiles {
		if _, err := os.Lstat(path + suffix); err == nil && !replace {
			return fmt.Errorf("ctxpage: restore: %s exists; name a path that does not, or ask for it to be replaced", path+suffix)
		}
	}
	return nil
}

// copyBackup opens the backup for reading, verifies it and copies it.
func copyBackup(ctx context.Context, backup, to string, opts RestoreOptions) (head manifest.Head, err error) {
	db, err := Open(backup, Options{ReadOnly: true, Clock: opts.Clock})
	if err != nil {
		return head, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if head, err = db.Head(ctx); err != nil {
		return head, err
	}
	_, err = db.Manifests().Verify(ctx, opts.Head, func(done, total uint64) { opts.Progress("verify the audit", done, total) })
	if err != nil {
		return head, fmt.Errorf("ctxpage: restore: the audit of %s: %w", backup, err)
	}
	removeDatabase(to) // of a Restore that was killed
	_, err = db.Backup(ctx, to, opts.Progress)
	return head, err
}

var databaseFiles = [...]string{"", "-wal", "-manifest"}

// swapDatabase moves path.restoring into the place of path. The log goes last: without it the file is refused, so that
// a half done swap is never taken for a database.
func swapDatabase(path string) error {
	removeDatabase(path + ".replaced")
	for _, suffix := range []string{"-wal", "", "-manifest"} {
		if err := os.Rename(path+suffix, path+".replaced"+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("ctxpage: restore: move the old database aside: %w", err)
		}
	}
	for _, suffix := range []string{"-manifest", "", "-wal"} {
		if err := os.Rename(path+".restoring"+suffix, path+suffix); err != nil {
			return fmt.Errorf("ctxpage: restore: the old database is at %s.replaced: %w", path, err)
		}
	}
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return err
	}
	removeDatabase(path + ".replaced")
	return nil
}

func recordRestore(ctx context.Context, path string, head manifest.Head, opts RestoreOptions) (err error) {
	db, err := Open(path, Options{MustExist: true, Audit: AuditSync, Clock: opts.Clock})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.append(ctx, &manifest.Record{
		Type: manifest.TypeRestored, By: opts.By, Size: head.Size, Root: head.Root[:],
		Reason: "what was written after the backup is not here",
	})
}
