package filestore

import (
	"context"
	"errors"
	"iter"

	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/wal"
	"go.etcd.io/bbolt"
)

// boltRows shows the engine the buckets of a transaction of bbolt as tables.
type boltRows struct {
	tx      *bbolt.Tx
	buckets [engine.TableQuestion + 1]*bbolt.Bucket // nil: not there, or not looked up yet
}

var bucketNames = [...][]byte{
	engine.TableMeta: bucketMeta, engine.TableContent: bucketContent, engine.TableSeg: bucketSeg, engine.TableHeld: bucketHeld, engine.TableTxn: bucketTxn, engine.TableState: bucketState, engine.TableVec: bucketVec,
	engine.TableQuestion: bucketAsked,
}

// fill is how full pages of a bucket are made where keys only grow; 0: bbolt's half.
var fill = [engine.TableQuestion + 1]float64{engine.TableContent: .9, engine.TableSeg: .95, engine.TableQuestion: .9}

func newBoltRows(tx *bbolt.Tx) *boltRows { return &boltRows{tx: tx} }

func (r *boltRows) bucket(t engine.Table) *bbolt.Bucket {
	if r.buckets[t] == nil {
		b := r.tx.Bucket(bucketNames[t])
		if b != nil && fill[t] != 0 {
			b.FillPercent = fill[t]
		}
		r.buckets[t] = b
	}
	return r.buckets[t]
}

// Get: see Reader.
func (r *boltRows) Get(t engine.Table, key []byte) []byte {
	if b := r.bucket(t); b != nil {
		return b.Get(key)
	}
	return nil
}

// From: see Reader.
func (r *boltRows) From(t engine.Table, key []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		b := r.bucket(t)
		if b == nil {
			return
		}
		c := b.Cursor()
		for k, v := c.Seek(key); k != nil; k, v = c.Next() {
			if !yield(k, v) {
				return
			}
		}
	}
}

// Before: see Reader.
func (r *boltRows) Before(t engine.Table, key []byte) []byte {
	b := r.bucket(t)
	if b == nil {
		return nil
	}
	c := b.Cursor()
	if k, _ := c.Seek(key); k == nil {
		k, _ = c.Last()
		return k
	}
	k, _ := c.Prev()
	return k
}

// Last: see Reader.
func (r *boltRows) Last(t engine.Table) []byte {
	b := r.bucket(t)
	if b == nil {
		return nil
	}
	k, _ := b.Cursor().Last()
	return k
}

// Len: see Reader.
func (r *boltRows) Len(t engine.Table) int {
	if b := r.bucket(t); b != nil {
		return b.Stats().KeyN
	}
	return 0
}

// Put: see Writer.
func (r *boltRows) Put(t engine.Table, key, value []byte) error {
	b := r.bucket(t)
	if b == nil {
		var err error
		if b, err = r.tx.CreateBucketIfNotExists(bucketNames[t]); err != nil {
			return err
		}
		r.buckets[t] = b
	}
	return b.Put(key, value)
}

// Delete: see Writer.
func (r *boltRows) Delete(t engine.Table, key []byte) error {
	if b := r.bucket(t); b != nil {
		return b.Delete(key)
	}
	return nil
}

// View: see Rows.
func (s *Store) View(fn func(engine.Reader) error) error {
	return s.view(func(tx *bbolt.Tx) error { return fn(newBoltRows(tx)) })
}

// walLog is the log as the engine knows it.
type walLog struct{ *wal.Log }

func (l walLog) Append(kind engine.Kind, urgent bool, parts ...[]byte) (uint64, error) {
	enqueue := l.Enqueue
	if urgent {
		enqueue = l.EnqueueReserve
	}
	k := [...]wal.Kind{engine.KindCommit: wal.KindCommit, engine.KindLeaf: wal.KindAudit, engine.KindMark: wal.KindMark}[kind]
	seq, err := enqueue(k, parts...)
	return seq, engineError(err)
}

func (l walLog) Write() error                               { return engineError(l.Log.Write()) }
func (l walLog) Sync(ctx context.Context, seq uint64) error { return engineError(l.Log.Sync(ctx, seq)) }
func (l walLog) SyncOr(ctx context.Context, seq uint64, done <-chan struct{}) error {
	return engineError(l.Log.SyncOr(ctx, seq, done))
}

// engineError adds the name that the engine has for an error of the log.
func engineError(err error) error {
	for _, e := range [...]struct{ of, is error }{
		{wal.ErrFull, engine.ErrLogFull}, {wal.ErrPoisoned, engine.ErrLogBroken}, {wal.ErrTooLarge, engine.ErrLogTooLarge}, {wal.ErrClosed, engine.ErrLogClosed},
	} {
		if errors.Is(err, e.of) {
			return &namedError{e.is, err}
		}
	}
	return err
}

// namedError reads like its cause and matches its name.
type namedError struct{ name, cause error }

func (e *namedError) Error() string        { return e.cause.Error() }
func (e *namedError) Unwrap() error        { return e.cause }
func (e *namedError) Is(target error) bool { return target == e.name }

func (s *Store) setLog(log *wal.Log) { s.log, s.Engine.Log = log, walLog{log} }
