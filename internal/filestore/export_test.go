package filestore

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/wal"
)

// What the tests outside the package may look into.

// Inside are the parts of an open store.
type Inside struct {
	Bolt    *bbolt.DB
	Log     *wal.Log
	Engine  *engine.Engine
	Options *Options         // in force
	Seq     uint64           // record of the log that carries the applied LSN
	Rows    engine.RowCounts // of the file
	Failure error
}

// Peek returns the parts of an open store.
func (s *Store) Peek() Inside {
	return Inside{s.bolt.Load(), s.log, s.eng, &s.opts, s.sys.Seq, s.sys.Rows, s.eng.Failure()}
}

// PeekAge sets the age at which an unflushed row starts a checkpoint, and returns the previous one, for
// tests that need rows which only the log has. No store may be open.
func PeekAge(age time.Duration) (was time.Duration) {
	was, checkpointAge = checkpointAge, age
	return was
}

// KeepColumns writes a snapshot of the columns as the background work does, without waiting for its time. It
// reports whether there is one of the rows afterwards.
func KeepColumns(s *Store) bool {
	s.worker.mu.Lock()
	defer s.worker.mu.Unlock()
	s.columns.next = time.Time{}
	s.refreshColumns()
	return !s.columnsOld()
}

// Meta is a meta page of bbolt.
type Meta struct {
	PageSize             int64
	Root, Freelist, High uint64
	Txid                 uint64
}

// Names are names and sizes of files and rows.
type Names struct {
	Files                         []string // suffixes of the files of a database
	Restoring, Replaced, Swap     string   // suffixes while a backup is put in place
	MetaHead, MetaSize, LockBytes int64
	Sys, SysKey, Content, Vectors []byte                    // buckets, and the key of the system row
	Meta, Seg, Held, State, Txn   []byte                    // buckets
	FirstPages                    func(pageSize int) []byte // of a file that bbolt just made
	PageSize                      int                       // of a new file
	Sector                        int
	Swapping                      func(path string) bool
	NoSpace                       func(error) bool
	Remove                        func(path string)
	Leaf                          func(wal.Record) (index uint64, leaf []byte, err error) // of a record; nil: it has none
	// Recount gives a system row that counts n rows more of a table.
	Recount func(v []byte, t engine.Table, n int) ([]byte, error)
	// Resum writes the sums of the rows as they are now, as an attacker who edited them would.
	Resum  func(path string) error
	Asked  []byte // bucket of questions
	Newest func(f io.ReaderAt, size int64) (Meta, error)
	// Walk checks the structure of a whole file of bbolt. bad is called with each problem; row, if
	// not nil, is given every row with the name of its bucket and where its value stands in the
	// file.
	Walk func(f io.ReaderAt, size int64, row func(bucket string, k, v []byte, at int64), bad func(format string, args ...any))
}

// PeekNames returns them.
func PeekNames() Names {
	return Names{
		Files: databaseFiles[:], Restoring: restoringSuffix, Replaced: replacedSuffix, Swap: swapSuffix,
		MetaHead: boltPageHead, MetaSize: boltMetaSize, LockBytes: maxLockFile,
		Sys: bucketSys, SysKey: sysKey, Content: bucketContent, Vectors: bucketVec,
		Meta: bucketMeta, Seg: bucketSeg, Held: bucketHeld, State: bucketState, Txn: bucketTxn,
		FirstPages: firstPages, PageSize: boltPage, Sector: sectorBytes, Swapping: swapping, NoSpace: noSpace, Remove: removeDatabase, Leaf: leafOf, Recount: recount, Resum: resum,
		Asked: bucketAsked,
		Newest: func(f io.ReaderAt, size int64) (Meta, error) {
			m, err := newestMeta(f, size)
			return Meta{m.pageSize, m.root, m.freelist, m.high, m.txid}, err
		},
		Walk: walkBolt,
	}
}

// recount makes the system row count n rows more of a table.
func recount(v []byte, t engine.Table, n int) ([]byte, error) {
	var s Store
	if err := s.decodeSys(v); err != nil {
		return nil, err
	}
	s.sys.Rows.Add(t, n)
	return encodeSys(nil, s.sys)
}

// resum opens a plain file and runs resumIn.
func resum(path string) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	return errors.Join(db.Update(resumIn), db.Close())
}

// resumIn writes the sums of the rows as they are now.
func resumIn(tx *bbolt.Tx) error {
	var s Store
	b := tx.Bucket(bucketSys)
	if err := s.decodeSys(b.Get(sysKey)); err != nil {
		return err
	}
	s.sys.Rows.Sum, s.sys.Rows.AskedSum = engine.SumRows(s.rows(tx))
	return s.putSys(tx)
}

// Peek returns options that call hook at each step of a restore.
func (o RestoreOptions) Peek(hook func(step string) error, fs wal.FS) RestoreOptions {
	o.hook, o.fs = hook, fs
	return o
}

// Peek returns options with which Salvage believes the rows.
func (o SalvageOptions) Peek() SalvageOptions { o.trust = true; return o }

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

var ctx = context.Background()
