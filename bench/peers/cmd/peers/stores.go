package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/bbolt"
)

// bolt is a bbolt file with one bucket. batch uses DB.Batch, which shares a commit among concurrent writers, with a
// delay of 1 ms instead of 10: the best of the delays for 64 writers.
type bolt struct {
	unsearchable
	batch bool
	db    *bbolt.DB
}

var bucket = []byte("pages")

func (b *bolt) name() string {
	if b.batch {
		return "bbolt Batch"
	}
	return "bbolt Update"
}

func (b *bolt) open(dir string) (err error) {
	b.db, err = bbolt.Open(filepath.Join(dir, "bolt"), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, Timeout: time.Second})
	if err != nil {
		return err
	}
	b.db.MaxBatchDelay = time.Millisecond
	return b.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
}

func (b *bolt) close() error { return b.db.Close() }

func (b *bolt) put(_ context.Context, id, text string) error {
	update := b.db.Update
	if b.batch {
		update = b.db.Batch
	}
	return update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put([]byte(id), []byte(text)) })
}

func (b *bolt) fill(_ context.Context, ids, texts []string) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		for i, id := range ids {
			if err := tx.Bucket(bucket).Put([]byte(id), []byte(texts[i])); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bolt) get(_ context.Context, id string) (text string, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		text = string(tx.Bucket(bucket).Get([]byte(id)))
		return nil
	})
	return text, err
}

func (b *bolt) settle(context.Context) error { return nil }

// lsm is pebble with its default options. It has no index and keeps no audit.
type lsm struct {
	unsearchable
	db *pebble.DB
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	pebble.DefaultLogger.Fatalf(format, args...)
}

func (l *lsm) name() string { return "pebble" }

func (l *lsm) open(dir string) (err error) {
	l.db, err = pebble.Open(filepath.Join(dir, "pebble"), &pebble.Options{Logger: silent{}})
	return err
}

func (l *lsm) close() error { return l.db.Close() }

func (l *lsm) put(_ context.Context, id, text string) error {
	return l.db.Set([]byte(id), []byte(text), pebble.Sync)
}

func (l *lsm) fill(_ context.Context, ids, texts []string) error {
	b := l.db.NewBatch()
	defer b.Close()
	for i, id := range ids {
		if err := b.Set([]byte(id), []byte(texts[i]), nil); err != nil {
			return err
		}
	}
	return b.Commit(pebble.Sync)
}

func (l *lsm) get(_ context.Context, id string) (string, error) {
	v, c, err := l.db.Get([]byte(id))
	if err != nil {
		return "", err
	}
	text := string(v)
	return text, c.Close()
}

func (l *lsm) settle(ctx context.Context) error {
	if err := l.db.Flush(); err != nil {
		return err
	}
	return l.db.Compact(ctx, []byte{0}, []byte{0xff}, true)
}

var errUnsupported = errors.New("the system does not offer this")

// unsearchable is the part of a system that has no index.
type unsearchable struct{}

func (unsearchable) search(context.Context, string, int) ([]string, error) {
	return nil, errUnsupported
}
