package filestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/wal"
)

// Import makes a database at path of what another store exported: the archive of the audit in
// c.Audit, which has c.Leaves leaves, and the rows that from has in buckets by the names of the
// tables. The copy has the id and the secret of the original, so it must not be used beside it.
// Nothing may stand at path; on an error nothing does.
//
//	archive   the directory of the audit is copied
//	log       an empty log is made: every record is in rows and archive
//	rows      table by table, without syncs
//	sys       the system row of this format, in place of the other store's
//	sync      the file, then the directory
//
// A process that is killed in between leaves a part of this at path, and the next Import refuses
// path until it is removed.
func Import(ctx context.Context, path string, c Copy, from *bbolt.Tx, progress func(what string, done, total uint64)) (err error) {
	if path, err = filepath.Abs(path); err != nil {
		return fmt.Errorf("ctxpage: import: %w", err)
	}
	if err := mayReplace("import", path, false); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			removeDatabase(path)
		}
	}()
	fsys := wal.OS()
	if _, err := copyDir(ctx, fsys, c.Audit, path+"-manifest", func(done, total uint64) { progress("copy manifest", done, total) }); err != nil {
		return err
	}
	log, _, err := wal.Open(ctx, path+"-wal", wal.Options{FS: fsys}, func(wal.Record) error { return errors.New("a record in a new log") })
	if err != nil {
		return LogError(err)
	}
	if err := log.Abandon(); err != nil {
		return LogError(err)
	}
	row := sysRow{
		Format: FormatVersion, ID: c.Info.ID, Secret: c.Info.Secret, Created: codec.Micros(c.Created), Applied: c.Base.Applied, Analyzer: lexical.AnalyzerVersion,
		High: c.Base.High, Rows: c.Base.Rows, Leaves: c.Leaves,
	}
	if _, err := writeRows(ctx, path, boltPage, from, nil, func(tx *bbolt.Tx) error { return importSys(tx, row) }, progress); err != nil {
		return fmt.Errorf("ctxpage: import: %w", err)
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// importSys replaces the system row of the other store, and makes the buckets that
// it had no rows for.
func importSys(tx *bbolt.Tx, row sysRow) error {
	if tx.Bucket(bucketSys) != nil {
		if err := tx.DeleteBucket(bucketSys); err != nil {
			return err
		}
	}
	for _, name := range allBuckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return putSys(tx, nil, row)
}
