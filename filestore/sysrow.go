package filestore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
	"go.etcd.io/bbolt"
)

// The system row says of which moment the file is. A checkpoint writes it in the transaction that writes the rows, so the
// file is at one LSN or the next, never between.
//
//	Applied   every commit up to this LSN is in the rows
//	Seq       the record of the log that carries it: redo starts behind it
//	PrevSeq   the same of the checkpoint before: the log is kept down to it, because bbolt falls back to its older meta
//	          page in silence when the newest is damaged, and then the file is a checkpoint older
//	Rows      how many rows each table has, and the sum of the small ones: what a damaged page hides has no checksum to fail
//
// origin.go has a second row for what older programs do not know. It counts only while both rows name the same Applied and
// Seq: where they differ, an older program has written the system row since.

var sysKey = []byte("sys")

// sysRow is the one row of the bucket sys.
type sysRow struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack struct{} `msgpack:",as_array"`
	Format   int
	ID       string
	Secret   []byte // keys the fence and the digests of questions
	Created  int64
	Applied  uint64 // LSN
	Seq      uint64 // record of the log that carries Applied
	PrevSeq  uint64 // the same of the checkpoint before: the log is kept down to it
	Analyzer string
	High     string // highest numbers of artefacts, pages and groups, by spaces; "": those there are
	Rows     engine.RowCounts

	// In a row of their own, which older programs do not read.
	Origin string `msgpack:"-"` // of the file it was written for (origin.go); "": by an older program, and Leaves and Rows.Sum do not hold
	Leaves uint64 `msgpack:"-"` // of the audit, up to Seq

	AskedOK bool `msgpack:"-"` // Rows.AskedSum holds; it is in a row of its own, which older programs do not write
}

func (s *Store) loadSys(ctx context.Context) error {
	found, foreign := false, false
	err := s.view(func(tx *bbolt.Tx) error {
		k, _ := tx.Cursor().First()
		foreign = k != nil // a database is made in one transaction
		b := tx.Bucket(bucketSys)
		if b == nil {
			return nil
		}
		v := b.Get(sysKey)
		if v == nil {
			return nil
		}
		found = true
		if err := s.decodeSys(v); err != nil {
			return err
		}
		return cmp.Or(s.decodeOrigin(b.Get(originKey)), s.decodeAsked(b.Get(askedKey)))
	})
	if err != nil || found {
		return err
	}
	left, err := s.leftBehind()
	if err != nil {
		return err
	}
	if left { // a file that was never finished has neither log nor archive
		return &store.CorruptError{File: s.opts.Path, Err: errors.New("the system row is missing"), Hint: store.HintSalvage}
	}
	if foreign {
		return notDatabase(s.opts.Path)
	}
	if s.opts.ReadOnly {
		return notMade(s.opts.Path)
	}
	return s.create(ctx)
}

// notMade is for a file whose maker was killed before there was anything in it.
func notMade(path string) error {
	return fmt.Errorf("%w: %s is empty; open it once for writing", store.ErrNotExist, path)
}

func (s *Store) decodeSys(v []byte) error {
	// The format stands before the checksum and the rest, so that a newer file is never taken for a damaged one; and
	// twice, once inverted, so that a damaged one is never taken for newer.
	if len(v) < 8 || binary.BigEndian.Uint32(v) != ^binary.BigEndian.Uint32(v[4:]) {
		return &store.CorruptError{File: s.opts.Path, Err: codec.ErrMalformed, Hint: store.HintSalvage}
	}
	if f := binary.BigEndian.Uint32(v); f > FormatVersion {
		return fmt.Errorf("%w: %s has format %d, this program reads up to %d; use a newer release", store.ErrNewerFormat, s.opts.Path, f, FormatVersion)
	}
	row, err := codec.Unseal('y', sysKey, v[8:])
	if err == nil {
		err = codec.Unpack(row, &s.sys)
	}
	if err == nil && uint32(s.sys.Format) != binary.BigEndian.Uint32(v) {
		err = codec.ErrMalformed
	}
	if err != nil {
		return &store.CorruptError{File: s.opts.Path, Err: err, Hint: store.HintSalvage}
	}
	return nil
}

func encodeSys(row sysRow) ([]byte, error) {
	b, err := msgpack.Marshal(&row)
	if err != nil {
		return nil, err
	}
	f := uint32(row.Format)
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, f), ^f)
	return append(head, codec.Seal('y', sysKey, b)...), nil
}

// create makes the system row, and the log before it: so a file that has its row had a log, and one that is missing was
// lost, also where no checkpoint says how far it went.
func (s *Store) create(ctx context.Context) error {
	id, err := store.NewID(s.opts.Now(), s.opts.Rand)
	if err != nil {
		return err
	}
	s.sys = sysRow{Format: FormatVersion, ID: id.String(), Secret: make([]byte, 32), Created: codec.Micros(s.opts.Now()), Analyzer: lexical.AnalyzerVersion, Origin: originOf(s.file.Load()), AskedOK: true}
	if _, err := io.ReadFull(s.opts.Rand, s.sys.Secret); err != nil {
		return fmt.Errorf("ctxpage: randomness: %w", err)
	}
	if err := os.Chmod(s.opts.Path, 0o600); err != nil { // somebody else may have made the empty file
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
	return s.opts.FS.SyncDir(filepath.Dir(s.opts.Path))
}

func (s *Store) putSys(tx *bbolt.Tx) error {
	return putSys(tx, s.sys)
}
