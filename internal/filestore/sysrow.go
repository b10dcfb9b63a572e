package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"
	"go.etcd.io/bbolt"
)

// The system row says of which moment the file is. A checkpoint writes it in the transaction that
// writes the rows, so the file is at one LSN or the next, never between.
//
//	Applied   every commit up to this LSN is in the rows
//	Seq       the record of the log that carries it: redo starts behind it
//	PrevSeq   the same of the checkpoint before: the log is kept down to it, because bbolt falls back in silence to its older
//	          meta page when the newest is damaged, and then the file is one checkpoint older
//	Rows      how many rows each table has, and the sum of the small ones: a hidden row has no checksum that could fail
//
// A second row has what is read without the keys of the database (origin.go).

var sysKey = []byte("sys")

// sysRow is the one row of the bucket sys.
type sysRow struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack struct{} `msgpack:",as_array"`
	Format   int
	ID       string
	Secret   []byte // key of fences, of tags of state rows and of keyed digests
	Created  int64
	Applied  uint64 // LSN
	Seq      uint64 // record of the log that carries Applied
	PrevSeq  uint64 // Seq of the checkpoint before: the log is kept down to it
	Analyzer string
	High     string // highest numbers of artefacts, pages and groups, separated by spaces; "": those in the rows
	Rows     engine.RowCounts
	Leaves   uint64 // leaves of the audit up to Seq
}

// sysMagic begins the system row.
const sysMagic = "ctxd"

// loadSys reads the system row. A file without one is new, another program's file, or a database
// that lost it; log and archive beside it tell which.
func (s *Store) loadSys(ctx context.Context) error {
	found, foreign := false, false
	err := s.view(func(tx *bbolt.Tx) error {
		k, _ := tx.Cursor().First()
		foreign = k != nil // a database gets its buckets and its system row in one transaction
		b := tx.Bucket(bucketSys)
		if b == nil {
			return nil
		}
		v := b.Get(sysKey)
		if v == nil {
			return nil
		}
		found = true
		return s.decodeSys(v)
	})
	if err != nil || found {
		return err
	}
	left, err := s.leftBehind()
	if err != nil {
		return err
	}
	if left { // a file whose creation was killed has neither log nor archive
		return &store.CorruptError{File: s.opts.Path, Err: errors.New("the system row is missing"), Hint: store.HintSalvage}
	}
	if foreign {
		return notDatabase(s.opts.Path)
	}
	if s.opts.ReadOnly || s.opts.MustExist {
		return notMade(s.opts.Path)
	}
	return s.create(ctx)
}

// oldFormat is the error for a file that no release made.
func oldFormat(path string) error {
	return fmt.Errorf("%w: %s; no release reads it: export it with the program that made it (dbctl export), and import that into a new database", store.ErrOldFormat, path)
}

// notMade is the error for a file whose creation was killed before anything was in it.
func notMade(path string) error {
	return fmt.Errorf("%w: %s is empty; expected the file of a database; open it for writing, without MustExist, to make one", store.ErrNotExist, path)
}

// decodeSys reads the system row, in the order of who may be believed: the format first, then
// whether the keys fit, then the checksum, then the content.
func (s *Store) decodeSys(v []byte) error {
	// The format comes before checksum and row, so that a newer file is never taken for a damaged
	// one. It is there twice, once inverted, so that a damaged file is never taken for a newer one.
	// Before v0.1.0 there was no magic before it.
	twice := func(v []byte) bool {
		return len(v) >= 8 && binary.BigEndian.Uint32(v) == ^binary.BigEndian.Uint32(v[4:])
	}
	if twice(v) {
		return oldFormat(s.opts.Path)
	}
	v, ok := bytes.CutPrefix(v, []byte(sysMagic))
	if !ok || !twice(v) {
		return &store.CorruptError{File: s.opts.Path, Err: codec.ErrMalformed, Hint: store.HintSalvage}
	}
	f := binary.BigEndian.Uint32(v)
	sealed := f&sealedBit != 0
	f &^= sealedBit
	if f > FormatVersion {
		return fmt.Errorf("%w: %s has format %d, this program reads up to %d; use a newer release", store.ErrNewerFormat, s.opts.Path, f, FormatVersion)
	}
	if err := s.keysFor(sealed); err != nil {
		return err
	}
	v = v[8:]
	var err error
	if sealed {
		ring := s.ring.Load()
		if len(v) < IDSize || !bytes.Equal(v[:IDSize], ring.ID()) {
			return fmt.Errorf("%w: %s is not the keyring of %s; put its own keyring there", store.ErrKey, s.opts.keysPath(), s.opts.Path)
		}
		if v, err = ring.Open(SpaceSys, sysKey, v[IDSize:]); err != nil {
			return &store.CorruptError{File: s.opts.Path, Err: fmt.Errorf("system row: %w", err), Hint: store.HintSalvage}
		}
	}
	row, err := codec.Unseal('y', sysKey, v)
	if err == nil {
		err = codec.Unpack(row, &s.sys)
	}
	if err == nil && (uint32(s.sys.Format) != f || f != FormatVersion) {
		err = codec.ErrMalformed
	}
	if err != nil {
		return &store.CorruptError{File: s.opts.Path, Err: err, Hint: store.HintSalvage}
	}
	return s.keysFit()
}

// encodeSys makes the row:
//
//	magic              "ctxd"
//	format, ^format    4 bytes each, big-endian; a bit of the format says that the file is encrypted
//	id of the keyring  if encrypted
//	row                msgpack array with a checksum; sealed if encrypted
func encodeSys(ring *Ring, row sysRow) ([]byte, error) {
	b, err := msgpack.Marshal(&row)
	if err != nil {
		return nil, err
	}
	f := uint32(row.Format)
	b = codec.Seal('y', sysKey, b)
	if ring != nil {
		f |= sealedBit
	}
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte(sysMagic), f), ^f)
	if ring != nil {
		return ring.Seal(append(head, ring.ID()...), SpaceSys, sysKey, b)
	}
	return append(head, b...), nil
}

// create makes the log, and then the system row. So a file that has its row had a log, and a log
// that is missing was lost, even if no checkpoint says how far it went. A crash between the two
// leaves a log without records and an unfinished file, which the next open makes anew.
//
//	keyring ─▶ log (empty) ─▶ buckets and system row, in one transaction ─▶ directory synced
//	crash:     no row: the open after it makes all of this anew, with the keyring that is there
func (s *Store) create(ctx context.Context) error {
	id, err := store.NewID(s.opts.Now(), s.opts.Rand)
	if err != nil {
		return err
	}
	s.sys = sysRow{Format: FormatVersion, ID: id.String(), Secret: make([]byte, 32), Created: codec.Micros(s.opts.Now()), Analyzer: lexical.AnalyzerVersion}
	if _, err := io.ReadFull(s.opts.Rand, s.sys.Secret); err != nil {
		return fmt.Errorf("ctxpage: randomness: %w", err)
	}
	if is := s.opts.Identity; is.ID != "" {
		if _, err := ulid.ParseStrict(is.ID); err != nil || len(is.Secret) < 16 {
			return store.Invalid("identity", strconv.Quote(is.ID), "the id of a database, and its secret")
		}
		s.sys.ID, s.sys.Secret = is.ID, is.Secret
	}
	if err := s.makeRing(); err != nil {
		return err
	}
	if err := os.Chmod(s.opts.Path, 0o600); err != nil { // another program may have made the empty file
		return fmt.Errorf("ctxpage: create: %w", err)
	}
	log, made, err := s.openLog(ctx, false, s.redo)
	if err != nil {
		return err
	}
	s.made = made
	s.log = log
	err = s.update(func(tx *bbolt.Tx) error {
		for _, name := range allBuckets {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return s.putSys(tx)
	})
	if err != nil {
		return fmt.Errorf("ctxpage: create %s: %w", s.opts.Path, err)
	}
	return nil // the file had its name before the log's directory was made, which synced both
}

// putSys writes the system row that the store has in memory.
func (s *Store) putSys(tx *bbolt.Tx) error {
	return putSys(tx, s.ring.Load(), s.sys)
}

// putSys writes a system row.
func putSys(tx *bbolt.Tx, ring *Ring, row sysRow) error {
	b, err := encodeSys(ring, row)
	if err != nil {
		return err
	}
	return tx.Bucket(bucketSys).Put(sysKey, b)
}
