package filestore

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"go.etcd.io/bbolt"
)

// Encryption of the files. These are sealed, each under its own name:
//
//	rows of bbolt     each value, under its key (boltrows.go); words in keys of the index are masked; the system row
//	records           commits and leaves, under kind and number; marks are plain: counts and hashes
//	archive           bodies of leaves, under their index (package manifest); the tree is over the plain bodies
//	keyring           path.keys: the keys, wrapped by Options.Key. Never part of a backup
//
// Everything above this package works on plain values, so it does the same with a key and without.
//
// The keyring is made before the database, or before the encrypted copy of a plain one (rekey.go),
// and changes in two cases only: Rotate wraps it anew, and an erase destroys the keys of what it took
// (destroy). Each writes a new file and renames it over the old one, which is then overwritten.
//
// Rejected: encrypting whole pages below bbolt, which maps the file; and a stream cipher over the
// log, because rewriting a torn end would use the key stream twice.

const (
	keysSuffix = ".keys"
	keysTemp   = ".keys.tmp"
	keysOld    = ".keys.old" // see oldFile
	sealedBit  = 1 << 16     // in the format of a sealed file
	maxRing    = 1 << 30
)

// keysPath returns the path of the keyring.
func (o *Options) keysPath() string { return cmp.Or(o.Keyring, o.Path+keysSuffix) }

// readRing reads the keyring, if there is a key. Nothing else was opened yet, so a wrong key
// changes nothing. No keyring is no error here: the file is plain, or is made now, or keysFor
// refuses it.
func (o *Options) readRing() (err error) {
	if o.Keyring != "" && !o.ReadOnly {
		return store.Invalid("keyring", o.Keyring, "none for writing: an erase changes the keyring, so a writer has its own beside the file; copy it to "+o.Path+keysSuffix+", or open read-only")
	}
	if o.Key == nil || o.ring != nil {
		return nil
	}
	if o.ring, err = ringAt(o.keysPath(), o.Key, rand.Reader); errors.Is(err, ErrNoKeyring) {
		return nil
	}
	return err
}

// ringAt reads a keyring. It matches ErrNoKeyring if there is none.
func ringAt(path string, key []byte, rand io.Reader) (*Ring, error) {
	if err := CheckKey(key); err != nil {
		return nil, store.Invalid("key", err.Error(), fmt.Sprintf("%d random bytes (dbctl key new)", KeySize))
	}
	f, err := system.OpenFile(path, os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoKeyring
	}
	if err != nil {
		return nil, fmt.Errorf("ctxpage: open the keyring: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRing))
	if err != nil {
		return nil, fmt.Errorf("ctxpage: read the keyring: %w", err)
	}
	ring, err := Unwrap(key, b, rand)
	switch {
	case errors.Is(err, ErrOld):
		return nil, oldFormat(path)
	case errors.Is(err, ErrNewer):
		return nil, fmt.Errorf("%w: %s: %w; use a newer release", store.ErrNewerFormat, path, err)
	case errors.Is(err, ErrWrongKey):
		return nil, fmt.Errorf("%w: %s is wrapped by another key; give the key with which the database was made, or to which it was rotated last", store.ErrKey, path)
	case err != nil:
		return nil, &store.CorruptError{File: path, Err: err, Hint: "put a copy of the keyring in its place; without it nothing of the database can be read"}
	}
	return ring, nil
}

// needKey is the error for an encrypted database that was opened without a key.
func needKey(path string) error {
	return fmt.Errorf("%w: %s is encrypted; give its key (Options.Key, dbctl --key-file)", store.ErrKey, path)
}

// noRing is the error for an encrypted database whose keyring is not beside it.
func noRing(path string) error {
	return fmt.Errorf("%w: %s is encrypted and has no keyring %s beside it; put the keyring there: it is never part of a backup, and without it nothing can be read", store.ErrKey, path, path+keysSuffix)
}

// notSealed is the error for a plain database that was opened with a key.
func notSealed(path string) error {
	return fmt.Errorf("%w: %s is not encrypted; open it without a key, or encrypt it first (dbctl key add)", store.ErrKey, path)
}

// keysFor decides at the format of the file whether the keys fit.
func (s *Store) keysFor(sealed bool) error {
	switch {
	case sealed && s.opts.Key == nil:
		return needKey(s.opts.Path)
	case sealed && s.ring.Load() == nil:
		return noRing(s.opts.Path)
	case !sealed && s.opts.Key != nil:
		return notSealed(s.opts.Path)
	}
	return nil
}

// keysFit compares the keyring with the database.
func (s *Store) keysFit() error {
	if ring := s.ring.Load(); ring != nil && ring.DB != s.sys.ID {
		return fmt.Errorf("%w: %s is the keyring of database %s, this is %s; put its own keyring there", store.ErrKey, s.opts.keysPath(), ring.DB, s.sys.ID)
	}
	return nil
}

// makeRing makes the keyring of a new database, and before anything is sealed with it. An existing
// keyring was left by a creation that was killed, or has the keys of backups. It is used, and the
// database takes its name.
func (s *Store) makeRing() error {
	if s.opts.Key == nil {
		return nil
	}
	if ring := s.ring.Load(); ring != nil {
		if s.opts.Identity.ID != "" && s.opts.Identity.ID != ring.DB {
			return fmt.Errorf("%w: %s is the keyring of database %s; move it away to make another database here", store.ErrKey, s.opts.keysPath(), ring.DB)
		}
		s.sys.ID = ring.DB
		return nil
	}
	if err := CheckKey(s.opts.Key); err != nil {
		return store.Invalid("key", err.Error(), fmt.Sprintf("%d random bytes (dbctl key new)", KeySize))
	}
	ring, err := NewRing(s.sys.ID, rand.Reader)
	if err == nil {
		err = writeRing(s.opts.FS, s.opts.keysPath(), ring, s.opts.Key)
	}
	if err != nil {
		return fmt.Errorf("ctxpage: make the keyring: %w", err)
	}
	s.ring.Store(ring)
	return nil
}

// writeRing puts a keyring in the place of another, durably, and overwrites the old file: a key
// that was destroyed must not be found on blocks that the file system gave back. Where it copies on
// write, or a disk moves blocks, that is a wish.
//
//	temp written, synced ─▶ renamed ─▶ directory synced ─▶ old file overwritten
//	crash: the old one      either      the new one          the new one; bytes of the old may be left
//
// Either keyring opens the database at each step: an erase destroys keys only of rows that the
// file no longer has (destroy.go).
func writeRing(fsys wal.FS, path string, ring *Ring, key []byte) error {
	b, err := ring.Wrap(key)
	if err != nil {
		return err
	}
	temp := path[:len(path)-len(filepath.Ext(path))] + keysTemp
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	_, err = newFile(fsys, temp, func(to *fileWriter) (int64, error) {
		n, err := to.Write(b)
		return int64(n), err
	})
	if err != nil {
		os.Remove(temp)
		return err
	}
	wipe := oldFile(path)
	if err := fsys.Rename(temp, path); err != nil {
		wipe(false)
		os.Remove(temp)
		return err
	}
	err = fsys.SyncDir(filepath.Dir(path))
	wipe(err == nil)
	return err
}

// oldFile keeps hold of the file at a path, over which another will be renamed. wipe ends that, and overwrites the file if it is no
// longer there. A hard link is a copy that the user made, and is left alone.
//
// Where no file can be renamed over an open one, the old file gets a second name meanwhile. A crash leaves it, and
// the next keyring that is written removes it.
func oldFile(path string) (wipe func(replaced bool)) {
	name := path
	if !system.ReplacesOpen {
		name = path[:len(path)-len(filepath.Ext(path))] + keysOld
		zero(name, 1)
		os.Remove(name)
		if os.Link(path, name) != nil {
			return func(bool) {}
		}
		return func(replaced bool) {
			if replaced {
				zero(name, 1)
			}
			os.Remove(name)
		}
	}
	old, _ := system.OpenFile(path, os.O_WRONLY, 0)
	return func(replaced bool) {
		if replaced && old != nil {
			zeroFile(old, 0) // its name is gone already
		}
		_ = old.Close()
	}
}

// zero overwrites the file of a name, if it has so many names.
func zero(name string, names uint64) {
	if f, err := system.OpenFile(name, os.O_WRONLY, 0); err == nil {
		zeroFile(f, names)
		_ = f.Close()
	}
}

func zeroFile(f *os.File, names uint64) {
	st, err := f.Stat()
	if err != nil || system.Links(f.Name(), st) != names {
		return
	}
	_, _ = f.WriteAt(make([]byte, st.Size()), 0)
	_ = f.Sync()
}

// Rotate wraps the keyring of a database by another key. The data stays as it is, so it takes no
// time; whoever has the old key and a copy of the old keyring can still read. The database must not
// be open. Errors: ErrKey for the wrong old key or none, ErrLocked while a process has the database
// open. A crash leaves the keyring under one of the two keys.
func Rotate(opts Options, key []byte) error {
	lock, err := TakeLock(opts)
	if err != nil {
		return err
	}
	opts = opts.withDefaults()
	err = func() error {
		if opts.Path, err = filepath.Abs(opts.Path); err != nil {
			return fmt.Errorf("ctxpage: rotate: %w", err)
		}
		ring, err := ringAt(opts.keysPath(), opts.Key, rand.Reader)
		if errors.Is(err, ErrNoKeyring) {
			return fmt.Errorf("%w: %s has no keyring %s: it is not encrypted, or the keyring was lost", store.ErrKey, opts.Path, opts.keysPath())
		}
		if err != nil {
			return err
		}
		if err := CheckKey(key); err != nil {
			return store.Invalid("new key", err.Error(), fmt.Sprintf("%d random bytes (dbctl key new)", KeySize))
		}
		if err := writeRing(opts.FS, opts.keysPath(), ring, key); err != nil {
			return fmt.Errorf("ctxpage: rotate: %w", err)
		}
		return nil
	}()
	return errors.Join(err, lock.Release())
}

// rows shows the engine the rows of a transaction.
func (s *Store) rows(tx *bbolt.Tx) engine.Writer { return newBoltRows(tx, s.ring.Load()) }

// sealRecord returns the parts of a record as the log has them. Several parts are joined first: the
// seal covers the record as a whole.
func sealRecord(ring *Ring, kind wal.Kind, seq uint64, parts [][]byte) ([][]byte, error) {
	if ring == nil || kind == wal.KindMark {
		return parts, nil
	}
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	body := parts[0]
	if len(parts) > 1 {
		body = make([]byte, 0, n)
		for _, p := range parts {
			body = append(body, p...)
		}
	}
	b, err := ring.Seal(make([]byte, 0, n+Overhead), SpaceRecord, recordName(kind, seq), body)
	return [][]byte{b}, err
}

// recordName binds the sealed body of a record to its place: a record that is moved to another
// place of the log, or given another kind, does not open.
func recordName(kind wal.Kind, seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(kind)}, seq)
}

// openRecord returns a record of the log with its plain body.
func openRecord(ring *Ring, r wal.Record) (wal.Record, error) {
	bad := func(err error) error {
		return &store.CorruptError{File: r.Segment, Offset: r.Offset, Err: fmt.Errorf("record %d: %w", r.Seq, err), Hint: store.HintSalvage}
	}
	switch {
	case ring == nil && r.Sealed:
		return r, fmt.Errorf("%w: %s is encrypted; give the key of the database (Options.Key, dbctl --key-file)", store.ErrKey, r.Segment)
	case ring == nil || r.Kind == wal.KindMark:
		return r, nil
	case !r.Sealed:
		return r, bad(errors.New("it is not encrypted although the database is: the log was replaced"))
	}
	body, err := ring.Open(SpaceRecord, recordName(r.Kind, r.Seq), r.Body)
	if err != nil {
		return r, bad(err)
	}
	r.Body = body
	return r, nil
}

// leafSeal seals the bodies of leaves for package manifest.
type leafSeal struct{ ring *Ring }

// Seal encrypts the body of a leaf, bound to its index.
func (l leafSeal) Seal(index uint64, body []byte) ([]byte, error) {
	return l.ring.Seal(make([]byte, 0, len(body)+Overhead), SpaceLeaf, binary.BigEndian.AppendUint64(nil, index), body)
}

// Open decrypts it. A body that was moved to another index does not open.
func (l leafSeal) Open(index uint64, sealed []byte) ([]byte, error) {
	return l.ring.Open(SpaceLeaf, binary.BigEndian.AppendUint64(nil, index), sealed)
}

// sealerOf returns the sealer of the archive; nil: no seal.
func sealerOf(ring *Ring) archive.Sealer {
	if ring == nil {
		return nil
	}
	return leafSeal{ring}
}

// unsealRow is for readers of the file without an engine: the value of a row, which they check as
// ever.
func unsealRow(ring *Ring, t engine.Table, key, v []byte) []byte {
	return (&boltRows{ring: ring}).opened(t, key, v)
}
