package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/cespare/xxhash/v2"

	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
)

// A process that is about to take over the files of another reads them ahead, while the owner still
// serves. To build the catalogue is most of an open, and on a busy machine it takes ten times as long
// as on an idle one, while everybody waits.
//
//	ReadAhead   no lock: rows through pageRows, then the log as it is by now; nothing is changed
//	Open        with Options.Ahead: the lock, the files and all their checks as always; only the rows are not loaded again
//
// What was read ahead is used if it is what the open would have loaded:
//
//	file   the same inode, and no transaction of bbolt since: bbolt writes no page of its newest state
//	log    every record that was read ahead is there with the same sum; the open reads the log from its beginning, as always,
//	       and gives the audit its leaves; the
//	       engine has the rest of it
//
// Anything else means that it is dropped, and the rows are loaded. The audit is not kept: the open
// reads the archive, and gives it all leaves of the log again.

// Ahead is a database as another process had it a moment ago. It is used by one Open.
type Ahead struct {
	st   *Store // nil: it was used
	file os.FileInfo
	txid uint64 // of bbolt
	sys  sysRow
	log  map[uint64]uint64 // sums of the records, by number
	last uint64
	used atomic.Bool
}

// errAhead means that what was read ahead cannot be used. It is not reported.
var errAhead = errors.New("the files have changed since they were read ahead")

// ReadAhead reads a database that another process has open. It takes no lock and changes nothing.
// An error means that there is nothing to be won: Open reports what is wrong. An encrypted database
// is not read ahead: its keys change with an erase.
func ReadAhead(ctx context.Context, opts Options) (a *Ahead, err error) {
	for range 2 { // a checkpoint that was under way spoils the first
		if a, err = readAhead(ctx, opts); !errors.Is(err, errAhead) {
			break
		}
	}
	return a, err
}

func readAhead(ctx context.Context, opts Options) (a *Ahead, err error) {
	opts = opts.withDefaults()
	if opts.ReadOnly || opts.Key != nil {
		return nil, errAhead
	}
	if opts.Path, err = filepath.Abs(opts.Path); err != nil {
		return nil, fmt.Errorf("ctxpage: read ahead: %w", err)
	}
	if err := fileProblem(opts.Path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(opts.Path, os.O_RDONLY|oNoFollow|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: read ahead: %w", err)
	}
	defer f.Close()
	a = &Ahead{st: newStore(opts), log: map[uint64]uint64{}}
	if a.file, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("ctxpage: read ahead: %w", err)
	}
	rows, err := newPageRows(f, a.file.Size())
	if err != nil {
		return nil, err
	}
	a.txid = rows.m.txid
	a.st.file.Store(f)
	a.st.ahead = rows
	err = a.read(ctx)
	a.st.file.Store(nil)
	a.st.ahead = nil
	if err == nil {
		err = opts.FS.SyncDir(filepath.Dir(opts.Path)) // the open need not: the socket of each owner changes the directory
	}
	if spoiled := a.still(f); spoiled != nil { // whatever else is wrong
		err = spoiled
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// read builds the engine: rows, then log. The audit is open for as long.
func (a *Ahead) read(ctx context.Context) (err error) {
	s, rows := a.st, a.st.ahead
	if err := s.limitPages(ctx); err != nil {
		return err
	}
	if err := s.decodeRows(func(key []byte) []byte { return rows.in(bucketSys, key) }); err != nil {
		return err
	}
	a.sys = s.sys
	s.identify()
	if err := s.line.Snapshot(ctx, s.eng.LoadRows); err != nil {
		return err
	}
	if rows.err != nil || s.eng.Unread() > 0 {
		return errors.Join(errAhead, rows.err)
	}
	s.eng.Leaves, _, err = manifest.Open(ctx, s.opts.Path+"-manifest", s.opts.FS, manifest.Options{ReadOnly: true, DB: s.sys.ID})
	if err != nil {
		return LogError(err)
	}
	defer func() { // the open has one of its own
		err = errors.Join(err, rows.err, s.eng.Leaves.Close())
		s.eng.Leaves = nil
	}()
	rec, err := wal.Scan(ctx, s.opts.Path+"-wal", s.opts.FS, 0, func(r wal.Record) error {
		a.log[r.Seq] = xxhash.Sum64(r.Body)
		return s.redo(r)
	})
	a.last = rec.Last
	return err
}

// still reports whether the file is as it was.
func (a *Ahead) still(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("ctxpage: read ahead: %w", err)
	}
	m, err := newestMeta(f, st.Size())
	if err != nil || m.txid != a.txid || !os.SameFile(st, a.file) {
		return errors.Join(errAhead, err)
	}
	return nil
}

// begin gives the store that was read ahead to an open, once. nil: there is none.
func (a *Ahead) begin(opts Options) *Store {
	if a == nil || a.used.Swap(true) || opts.Key != nil || opts.ReadOnly {
		return nil
	}
	s := a.st
	s.opts, s.sys, a.st = opts, sysRow{}, nil
	s.early = a
	return s
}

// loaded is the step of the open that loads the rows, where they were read ahead.
func (a *Ahead) loaded(s *Store) error {
	if s.copied || s.sys.ID != a.sys.ID || s.sys.Applied != a.sys.Applied || s.sys.Seq != a.sys.Seq {
		return errAhead
	}
	return a.still(s.file.Load())
}

// has reports whether a record of the log was read ahead. Another record with its number is an error.
func (a *Ahead) has(r wal.Record) (bool, error) {
	if a == nil || r.Seq > a.last {
		return false, nil
	}
	if sum, ok := a.log[r.Seq]; !ok || sum != xxhash.Sum64(r.Body) {
		return false, errAhead
	}
	return true, nil
}

// ended compares the end of the log: records that were read ahead and are gone are in the catalogue.
func (a *Ahead) ended(rec wal.Recovery) error {
	if a != nil && rec.Last < a.last {
		return errAhead
	}
	return nil
}

var _ engine.Reader = (*pageRows)(nil)
