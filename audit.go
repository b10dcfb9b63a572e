package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
)

// scanAgain is how often a reader of the audit begins anew because a checkpoint cut the log under it.
const scanAgain = 3

// OpenManifests opens the audit of the database at path for reading, beside a process that may have it open for
// writing: archive and log are read as files, without the database file and without the lock. It sees what was
// written when it looked; later leaves need another call. Close the log when done.
//
// Errors: ErrNotExist, ErrNewerFormat, ErrCorrupt. Damage of synced bytes that still leaves a readable prefix is in the
// report, not in the error.
func OpenManifests(ctx context.Context, path string) (*manifest.Log, manifest.Report, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, manifest.Report{}, fmt.Errorf("ctxpage: open manifests: %w", err)
	}
	if err := auditThere(path); err != nil {
		return nil, manifest.Report{}, err
	}
	l, rep, err := manifest.OpenReader(ctx, path+"-manifest", nil, func(add func(uint64, []byte) error) error {
		return scanLeaves(ctx, path+"-wal", add)
	})
	if err != nil {
		return nil, rep, logError(err)
	}
	return l, rep, nil
}

// auditThere tells a database from a path where none is. A database whose own file is gone still has its audit.
func auditThere(path string) error {
	for _, name := range []string{path, path + "-manifest", path + "-wal"} {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%w: %s", ErrNotExist, path)
}

// scanLeaves hands out the leaves that the log holds, in order. A log that was cut while it was read is read again:
// what went is in the archive by then, and leaves that were added already are compared.
func scanLeaves(ctx context.Context, dir string, add func(uint64, []byte) error) error {
	for try := 1; ; try++ {
		var failed error // of add: reading again would not help
		_, err := wal.Scan(ctx, dir, nil, 0, func(r wal.Record) error {
			index, leaf, err := leafOf(r)
			if err == nil && leaf != nil {
				err = add(index, leaf)
			}
			failed = err
			return err
		})
		var damaged *wal.CorruptError
		if err == nil || failed != nil || try == scanAgain || errors.As(err, &damaged) || ctx.Err() != nil {
			return err
		}
	}
}

// leafOf is the audit leaf in a record of the log; nil: it carries none.
func leafOf(r wal.Record) (uint64, []byte, error) {
	var d dec
	switch r.Kind {
	case wal.KindAudit:
		d.b = r.Body
		index := d.u64()
		return index, d.b, d.err
	case wal.KindCommit:
		d.b = r.Body
		if v := d.u8(); v != commitVersion {
			return 0, nil, fmt.Errorf("%w: commit record of version %d, expected %d", errRow, v, commitVersion)
		}
		index, leaf := d.u64(), d.bytes()
		return index, leaf, d.err
	}
	return 0, nil, nil
}
