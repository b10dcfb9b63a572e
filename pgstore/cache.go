package pgstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// cache is a copy of the database on the disk of a host: the rows of the engine in a bbolt file, as of a record of the
// log, and the archive of the audit. Everything in it can be read from the server again, so nothing of it is repaired: a cache
// that does not open, or is of another history, is thrown away.
//
// Tables on the server were rejected for the rows: a search reads dozens of them, each a round trip; and every host would
// write the segments of its own index.
type cache struct {
	dir  string
	temp bool // nothing of it is synced

	file sync.RWMutex // held for reading while bolt is in use; compact replaces it
	bolt *bbolt.DB

	mu  sync.RWMutex // guards sys
	sys sysRow
}

// sysRow says what the rows are of. It is written in the transaction that writes them.
type sysRow struct {
	Format  int
	DB      string // id
	Applied uint64 // LSN
	Seq     uint64 // record that carries it
	Chain   [sha256.Size]byte
	High    string
	Rows    engine.RowCounts
}

const cacheFormat = 1

var sysBucket, sysKey = []byte("sys"), []byte("sys")

// Files of a cache, also in an image.
const (
	rowsFile   = "rows.db"
	archiveDir = "audit"
)

// openCache opens the cache in dir, which may be empty.
func openCache(dir string, temp bool, id string) (c *cache, err error) {
	c = &cache{dir: dir, temp: temp}
	if c.bolt, err = openRows(filepath.Join(dir, rowsFile), temp); err != nil {
		return nil, fmt.Errorf("pgstore: cache %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.bolt.Close())
		}
	}()
	err = c.update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(sysBucket)
		if err != nil {
			return err
		}
		if v := b.Get(sysKey); v != nil {
			return c.decode(v, id)
		}
		c.sys = sysRow{Format: cacheFormat, DB: id}
		return c.put(tx, c.sys)
	})
	return c, err
}

// openRows opens a file of rows. bbolt trusts what it reads, so the file is looked at first, and a panic in what is left becomes an error.
func openRows(path string, noSync bool) (db *bbolt.DB, err error) {
	err = guarded(path, func() error {
		if err := filestore.CheckRows(path, false); err != nil {
			return damagedRows(path, err)
		}
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, NoSync: noSync, FreelistType: bbolt.FreelistMapType, InitialMmapSize: 1 << 26})
		return err
	})
	if err != nil {
		return nil, err
	}
	db.AllocSize = 1 << 20 // bbolt's 16 MiB would be most of a small image
	return db, nil
}

// guarded turns a panic over a damaged file, and a fault in the memory it is mapped to, into an error.
func guarded(path string, fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = damagedRows(path, fmt.Errorf("%v", r))
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return fn()
}

func damagedRows(path string, err error) error {
	return &store.CorruptError{File: path, Err: err, Hint: "open the database again: its rows are fetched from the server"}
}

var errForeignCache = errors.New("pgstore: the cache is of another database or format")

func (c *cache) decode(v []byte, id string) error {
	if err := msgpack.Unmarshal(v, &c.sys); err != nil {
		return errForeignCache
	}
	if c.sys.Format != cacheFormat || c.sys.DB != id {
		return errForeignCache
	}
	return nil
}

func (c *cache) put(tx *bbolt.Tx, row sysRow) error {
	v, err := msgpack.Marshal(&row)
	if err != nil {
		return err
	}
	return tx.Bucket(sysBucket).Put(sysKey, v)
}

func (c *cache) view(fn func(engine.Reader) error) error {
	c.file.RLock()
	defer c.file.RUnlock()
	err := guarded(c.bolt.Path(), func() error {
		return c.bolt.View(func(tx *bbolt.Tx) error { return fn(filestore.Rows(tx)) })
	})
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return store.ErrClosed
	}
	return err
}

func (c *cache) update(fn func(*bbolt.Tx) error) error {
	c.file.RLock()
	defer c.file.RUnlock()
	return guarded(c.bolt.Path(), func() error { return c.bolt.Update(fn) })
}

func (c *cache) now() sysRow {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.sys
}

func (c *cache) base() engine.Base {
	sys := c.now()
	size := int64(1 << 40) // the log on the server is not measured; its chain vouches for what it says
	return engine.Base{Applied: sys.Applied, Rows: sys.Rows, High: sys.High, Size: size}
}

// fs is the file system of the archive. What is temporary is not synced.
func (c *cache) fs() wal.FS {
	if c.temp {
		return unsynced{wal.OS()}
	}
	return wal.OS()
}

func (c *cache) audit(ctx context.Context, id string) (*archive.Log, error) {
	l, _, err := archive.Open(ctx, filepath.Join(c.dir, archiveDir), c.fs(), archive.Options{DB: id})
	return l, err
}

// compacted writes the rows to a new file at path, without the free pages of the old one. Nobody may checkpoint meanwhile.
func (c *cache) compacted(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	to, err := openRows(path, true)
	if err != nil {
		return err
	}
	c.file.RLock()
	err = guarded(c.bolt.Path(), func() error { return bbolt.Compact(to, c.bolt, compactBytes) })
	c.file.RUnlock()
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

// compactBytes limits the bytes that one transaction of compacted writes.
const compactBytes = 8 << 20

// compact replaces the file of the rows by one without free pages: what was erased is in none of its bytes. Readers wait for
// the exchange, not for the writing.
func (c *cache) compact() error {
	path := filepath.Join(c.dir, rowsFile)
	if err := c.compacted(path + newSuffix); err != nil {
		return err
	}
	c.file.Lock()
	defer c.file.Unlock()
	err := c.bolt.Close()
	if err == nil {
		err = os.Rename(path+newSuffix, path)
	}
	if err != nil {
		return err
	}
	c.bolt, err = openRows(path, c.temp)
	return err
}

// newSuffix ends the name of a file of rows that is being written.
const newSuffix = ".new"

const tempPrefix = "ctxpage-follower-"

// lockFile is locked while a process uses the cache.
const lockFile = "lock"

// lockCache takes the lock of a cache. store.ErrLocked: another process has it.
func lockCache(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("pgstore: cache: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, &store.LockedError{Path: dir}
	}
	return f, nil
}

// private reports whether a directory is one, not a link to one, and belongs to this user alone. What others can put into the temporary
// directory of the machine is neither read nor removed.
func private(dir string) bool {
	fi, err := os.Lstat(dir)
	return err == nil && fi.IsDir() && fi.Mode().Perm()&0o077 == 0 && ours(fi)
}

// ours reports whether a file belongs to this user.
func ours(fi os.FileInfo) bool {
	sys, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// removeAbandoned removes the temporary caches of processes that were killed: nobody has their lock. One that was just made may
// not be locked yet.
func removeAbandoned(in string) {
	files, _ := filepath.Glob(filepath.Join(in, tempPrefix+"*", lockFile))
	for _, path := range files {
		if fi, err := os.Stat(path); err != nil || time.Since(fi.ModTime()) < time.Minute || !private(filepath.Dir(path)) {
			continue
		}
		if f, err := lockCache(filepath.Dir(path)); err == nil {
			if dir := filepath.Dir(path); hasSpool(dir) { // leaves of another database; see adoptSpools
				_ = emptyDir(dir)
			} else {
				_ = os.RemoveAll(dir)
			}
			_ = f.Close()
		}
	}
}

// emptyDir removes what is in a cache's directory.
func emptyDir(dir string) error {
	return errors.Join(os.RemoveAll(filepath.Join(dir, rowsFile)), os.RemoveAll(filepath.Join(dir, archiveDir)))
}

// unsynced is a file system that leaves syncing to the operating system.
type unsynced struct{ wal.FS }

func (u unsynced) OpenFile(name string, flag int, perm fs.FileMode) (wal.File, error) {
	f, err := u.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func (unsynced) SyncDir(string) error { return nil }

type unsyncedFile struct{ wal.File }

func (unsyncedFile) Sync() error { return nil }

// When the background brings what is in memory into the cache.
const (
	checkpointBytes = 16 << 20
	checkpointAge   = 10 * time.Second
	archiveLeaves   = 16 << 10
)

func (s *Store) due() bool {
	if s.eng.Leaves.Size()-s.eng.Leaves.Archived() > archiveLeaves {
		return true
	}
	w := s.eng.Waiting()
	return w.Bytes > checkpointBytes || w.Rows > 0 && time.Since(w.Since) > checkpointAge
}

// checkpoint brings into the cache what only the log and the memory have. See engine/checkpoint.go for its steps.
func (s *Store) checkpoint(ctx context.Context) (rep store.JobReport, err error) {
	s.ckptMu.Lock()
	defer s.ckptMu.Unlock()
	return s.checkpointLocked(ctx)
}

func (s *Store) checkpointLocked(ctx context.Context) (rep store.JobReport, err error) {
	if err := s.whyDead(); err != nil {
		return rep, err
	}
	c := s.eng.Checkpoint()
	if err := s.eng.Leaves.Archive(ctx, s.eng.Leaves.Size()); err != nil {
		return rep, err
	}
	if c.Rows == 0 {
		c.Done(nil)
		rep.Applied = s.cache.now().Applied
		return rep, nil
	}
	if err := c.Steps(s.updateRows(ctx), func() error { return nil }); err != nil {
		return rep, fmt.Errorf("pgstore: checkpoint: %w", err)
	}
	next := s.cache.now()
	if c.LSN > next.Applied {
		chain, ok := s.log.chainAt(c.Seq)
		if !ok {
			return rep, fmt.Errorf("pgstore: checkpoint: the chain of record %d is not known", c.Seq)
		}
		next.Applied, next.Seq, next.Chain = c.LSN, c.Seq, chain
	}
	err = s.cache.update(func(tx *bbolt.Tx) (err error) {
		if next.High, err = c.Write(filestore.Rows(tx), &next.Rows, false); err != nil {
			return err
		}
		return s.cache.put(tx, next)
	})
	if err != nil {
		return rep, fmt.Errorf("pgstore: checkpoint: %w", err)
	}
	c.Done(func(ulid.ULID) {
		s.cache.mu.Lock()
		defer s.cache.mu.Unlock()
		s.cache.sys = next
	})
	rep.Applied, rep.Rows, rep.Bytes = next.Applied, c.Rows, int64(c.Bytes)
	return rep, nil
}

func (s *Store) updateRows(ctx context.Context) func(func(engine.Writer) error) error {
	return func(fn func(engine.Writer) error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return s.cache.update(func(tx *bbolt.Tx) error { return fn(filestore.Rows(tx)) })
	}
}
