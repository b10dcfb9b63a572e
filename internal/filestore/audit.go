package filestore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
)

// The audit, read beside a process that has the database open: archive and log as files, without
// the lock and without the database file. A checkpoint of that process may move leaves from the log
// to the archive between the two reads, and cut the log. The archive grows before the log is cut,
// so a reader that misses a segment starts over, a few times, and finds the leaves in the archive.

// scanTries bounds how often a reader of the audit starts over because a checkpoint cut its log.
const scanTries = 3

// OpenManifests opens the audit of the database at path for reading, beside a process that may have
// it open for writing: archive and log are read as files, without the database file and without the
// lock. The reader has the leaves that were written before the call returned; for later ones call
// again. Close the reader when done.
//
// key and keyring open an encrypted database; a nil key: it is not encrypted.
//
// Errors: ErrNotExist, ErrNewerFormat, ErrCorrupt, and ErrKey if the key does not fit. Damage of synced bytes that still leaves a
// readable prefix is in the report, not in the error.
func OpenManifests(ctx context.Context, path string, key []byte, keyring string) (*archive.Reader, archive.Report, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, archive.Report{}, fmt.Errorf("ctxpage: open manifests: %w", err)
	}
	if err := cmp.Or(auditThere(path), auditLost(path)); err != nil {
		return nil, archive.Report{}, err
	}
	ring, err := readerRing(path, key, keyring)
	if err != nil {
		return nil, archive.Report{}, err
	}
	named := leavesNamed(path, key, ring) // before the audit is read: a process may be writing
	l, rep, err := archive.OpenReader(ctx, path+"-manifest", nil, sealerOf(ring), func(add func(uint64, []byte) error) error {
		return scanLeaves(ctx, path+"-wal", ring, add)
	})
	if err != nil {
		return nil, rep, LogError(err)
	}
	if have := l.Size(); have < named {
		err := &store.CorruptError{File: path + "-manifest", Err: fmt.Errorf("%w: archive and log have %d leaves, but the file has commits up to leaf %d", store.ErrMisfit, have, named),
			Hint: "the audit or the log was removed or replaced: put it back, or restore a backup"}
		if have == 0 {
			return nil, rep, errors.Join(err, l.Close())
		}
		rep.Damage = cmp.Or(rep.Damage, error(err))
	}
	return l.Owner(func(ctx context.Context, leaf *manifest.Record) (string, error) {
		return questionIn(ctx, path, ring, leaf)
	}), rep, nil
}

// leavesNamed returns how many leaves of the audit the database file at a path knows of, as of its last checkpoint; 0: it cannot
// be told. The file is read as it is, beside whoever writes it: a page that changes meanwhile fails the checksum of its row.
func leavesNamed(path string, key []byte, ring *Ring) (n uint64) {
	f, err := system.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return 0
	}
	m, err := newestMeta(f, st.Size())
	if err != nil {
		return 0
	}
	m.high = min(m.high, uint64(st.Size()/m.pageSize))
	s := Store{opts: Options{Path: path, Key: key}}
	s.ring.Store(ring)
	w := &boltWalk{f: f, m: m, used: map[uint64]bool{}, bad: func(string, ...any) {}, only: bucketSys, row: func(_ string, k, v []byte, _ int64) {
		if bytes.Equal(k, sysKey) && s.decodeSys(v) == nil {
			n = s.sys.Leaves
		}
	}}
	w.tree(m.root, nil)
	return n
}

// readerRing is the keyring for a reader of files; nil: no key was given.
func readerRing(path string, key []byte, keyring string) (*Ring, error) {
	if key == nil {
		return nil, nil
	}
	keyring = cmp.Or(keyring, path+keysSuffix)
	ring, err := ringAt(keyring, key, rand.Reader)
	if errors.Is(err, ErrNoKeyring) {
		return nil, fmt.Errorf("%w: there is no keyring %s: %s is not encrypted, or its keyring is elsewhere: put it there", store.ErrKey, keyring, path)
	}
	return ring, err
}

// auditThere returns an error if there is no database at a path. A database whose own file is gone
// still has its audit.
func auditThere(path string) error {
	if swapping(path) {
		return halfRestored(path)
	}
	if err := cmp.Or(directoryProblem(path+"-wal"), directoryProblem(path+"-manifest")); err != nil {
		return err
	}
	for _, name := range []string{path, path + "-manifest", path + "-wal"} {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%w: %s", store.ErrNotExist, path)
}

// auditLost tells an audit without a leaf from a lost audit.
func auditLost(path string) error {
	for _, name := range []string{path + "-manifest", path + "-wal"} {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := refuseForeign(path); err != nil {
		return err
	}
	return &store.CorruptError{
		File: path + "-manifest", Err: errors.New("neither it nor the log exists, so the audit is lost"),
		Hint: "put " + filepath.Base(path) + "-manifest and " + filepath.Base(path) + "-wal in their place, or restore a backup",
	}
}

// scanLeaves calls add for the leaves in the log, in order. A log that was cut while it was read is
// read again: what was cut is in the archive by then, and leaves that were added before are
// compared.
func scanLeaves(ctx context.Context, dir string, ring *Ring, add func(uint64, []byte) error) error {
	for try := 1; ; try++ {
		var failed error // an error of add: reading again would not help
		_, err := wal.Scan(ctx, dir, nil, func(r wal.Record) error {
			r, err := openRecord(ring, r)
			if err != nil {
				failed = err
				return err
			}
			index, leaf, err := leafOf(r)
			if err == nil && leaf != nil {
				err = add(index, leaf)
			}
			failed = err
			return err
		})
		var damaged *store.CorruptError
		if err == nil || failed != nil || try == scanTries || errors.As(err, &damaged) || ctx.Err() != nil {
			return err
		}
	}
}

// leafOf returns the audit leaf in a record of the log; nil: it has none. It reads no more of the
// record than it must: a commit may have megabytes behind its leaf.
func leafOf(r wal.Record) (uint64, []byte, error) {
	var d codec.Decoder
	switch r.Kind {
	case wal.KindAudit:
		index, leaf, _, err := format.DecodeLeaf(r.Body)
		return index, leaf, err
	case wal.KindCommit:
		d.B = r.Body
		if err := format.CheckCommitVersion(d.U8()); err != nil {
			return 0, nil, err
		}
		index, leaf := d.U64(), d.Bytes()
		return index, leaf, d.Err
	}
	return 0, nil, nil
}

// FollowManifests calls fn for the audit leaves from an index on, in order, and goes on as another
// process writes more, until ctx ends or fn fails. It looks for new leaves at the interval every
// (0: 250 ms). Like OpenManifests it takes no lock.
func FollowManifests(ctx context.Context, path string, key []byte, keyring string, from uint64, every time.Duration, fn func(*manifest.Record) error) error {
	if every <= 0 {
		every = 250 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		l, _, err := OpenManifests(ctx, path, key, keyring)
		if err != nil {
			return err
		}
		err = l.Each(ctx, from, math.MaxUint64, false, func(leaf *manifest.Record) error {
			from = leaf.Index + 1
			return fn(leaf)
		})
		if err := errors.Join(err, l.Close()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
