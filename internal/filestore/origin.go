package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
)

// A file that was copied while it was written may have pages of several checkpoints, and its log
// and archive may be of other moments than the file. Every page of it can be sound by itself. So
// the system row names the file that it was written for (its inode and, where known, its birth
// time). A file that is another one is a copy, and is checked as a whole before it is used:
//
//	opened for writing   once; then stamp makes it a file of its own
//	opened for reading   at every open
//	moved                a move within a file system keeps inode and birth time: no copy
//
// The check is the price of a copy only. A file at its own place was written by this program
// through checkpoints, which leave it at one LSN.

// hintMisfit is the hint for a copy whose parts do not fit together.
const hintMisfit = "this is a copy, made while the database was written or damaged since: copy with Backup (dbctl backup) instead; or " + store.HintSalvage

// originRow is beside the system row and is of the same moment. It is plain also in an encrypted file.
type originRow struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack struct{} `msgpack:",as_array"`
	Origin   string   // the file that it was written for; "": not known
	Leaves   uint64   // leaves of the audit up to the Seq of the system row
}

var originKey = []byte("origin")

// encodeOrigin makes the row.
func encodeOrigin(o originRow) ([]byte, error) {
	b, err := msgpack.Marshal(&o)
	if err != nil {
		return nil, err
	}
	return codec.Seal('y', originKey, b), nil
}

// readOrigin reads the row.
func readOrigin(v []byte) (o originRow, err error) {
	row, err := codec.Unseal('y', originKey, v)
	if err == nil {
		err = codec.Unpack(row, &o)
	}
	return o, err
}

// decodeOrigin reads the row, after the system row.
func (s *Store) decodeOrigin(v []byte) (err error) {
	if s.sys.originRow, err = readOrigin(v); err != nil {
		return &store.CorruptError{File: s.opts.Path, Err: err, Hint: store.HintSalvage}
	}
	return nil
}

// inspectCopy finds out whether the file is a copy, and if so checks its pages: bbolt follows them
// as they are, and pages that lead to each other would never end. Nothing has been written yet.
func (s *Store) inspectCopy() error {
	f, err := os.OpenFile(s.opts.Path, os.O_RDONLY|oNoFollow, 0)
	if err != nil {
		return fmt.Errorf("ctxpage: open: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("ctxpage: open: %w", err)
	}
	s.asked = true
	if !s.opts.Blind {
		s.copied, s.nameless = s.isCopy(f, st.Size())
	}
	if !s.copied {
		return nil
	}
	var first error
	walkBolt(f, st.Size(), nil, func(format string, args ...any) {
		if first == nil {
			first = fmt.Errorf(format, args...)
		}
	})
	if first == nil {
		return nil
	}
	return &store.CorruptError{File: s.opts.Path, Err: fmt.Errorf("%w: %w", store.ErrMisfit, first), Hint: hintMisfit}
}

// isCopy reports whether the file was written as another one. It asks the row that the tree
// leads to. If the tree leads to no system row, it asks whatever is left of one on any page.
// nameless: nothing is left, so it is not known.
func (s *Store) isCopy(f *os.File, size int64) (is, nameless bool) {
	here, found := originOf(f), false
	nameless = true
	ask := func(v []byte) {
		if o, err := readOrigin(v); err == nil {
			nameless = false
			is = here != "" && o.Origin != "" && o.Origin != here
		}
	}
	systemRows(f, size, func(k, v []byte) {
		if bytes.Equal(k, originKey) {
			ask(v)
		}
		found = found || bytes.Equal(k, sysKey)
	})
	if !found {
		strayOrigins(f, size, ask)
	}
	return is, nameless && !found
}

// systemRows shows fn the rows of the bucket of the system row, as far as the tree leads to them.
func systemRows(f io.ReaderAt, size int64, fn func(k, v []byte)) {
	m, err := newestMeta(f, size)
	if err != nil {
		return
	}
	m.high = min(m.high, uint64(size/m.pageSize))
	w := &boltWalk{f: f, m: m, used: map[uint64]bool{}, bad: func(string, ...any) {}, only: bucketSys,
		row: func(_ string, k, v []byte, _ int64) { fn(k, v) }}
	w.tree(m.root, nil)
}

// strayOrigins gives row what may be an origin row anywhere in the file, also on pages that are not
// in use. It reads the file in windows that overlap by the longest row, so one that crosses a
// window is found. What it finds may be of an older moment; it is asked only whether the file is a
// copy.
func strayOrigins(f io.ReaderAt, size int64, row func(v []byte)) {
	const window, longest = 1 << 20, 1 << 10
	b := make([]byte, window+longest)
	for at := int64(0); at < size; at += window {
		n, err := f.ReadAt(b, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return
		}
		for rest := b[:n]; ; {
			i := bytes.Index(rest, originKey)
			if i < 0 {
				break
			}
			rest = rest[i+len(originKey):]
			r := bytes.NewReader(rest)
			if _, err := msgpack.NewDecoder(r).DecodeRaw(); err == nil && r.Len() >= 8 {
				row(rest[:len(rest)-r.Len()+8])
			}
		}
	}
}

// checkCopy walks all invariants of a copy before it is used. It costs a read of all rows: once for
// a writer, at every open for a reader.
func (s *Store) checkCopy(ctx context.Context) error {
	if !s.copied {
		return nil
	}
	st, err := s.file.Load().Stat()
	if err != nil {
		return fmt.Errorf("ctxpage: open: %w", err)
	}
	problems, err := s.eng.Check(ctx, s.base(st.Size()), func(string, uint64, uint64) {})
	if err != nil || len(problems) == 0 {
		return err
	}
	return &store.CorruptError{File: s.opts.Path, Hint: hintMisfit,
		Err: fmt.Errorf("%w: %d problems, the first: %v", store.ErrMisfit, len(problems), problems[0])}
}

// misfit adds the likely cause to damage that was found while a copy was opened.
func (s *Store) misfit(err error) error {
	var ce *store.CorruptError
	if !errors.As(err, &ce) || errors.Is(err, store.ErrMisfit) {
		return err
	}
	if !s.asked { // the damage came before inspectCopy
		_ = s.inspectCopy()
	}
	if !s.copied && !s.nameless {
		return err
	}
	return &store.CorruptError{File: ce.File, Offset: ce.Offset, Unit: ce.Unit, Num: ce.Num, Err: fmt.Errorf("%w: %w", store.ErrMisfit, ce.Err),
		Hint: "if the database was written while this copy was made, copy with Backup (dbctl backup) instead; else " + ce.Hint}
}

// stamp makes the file one of its own. A copy on a full disk may go on without its stamp: it is
// taken for a copy once more, which costs a check.
func (s *Store) stamp() error {
	origin := originOf(s.file.Load())
	if s.opts.ReadOnly || s.sys.Origin == origin {
		return nil
	}
	s.sys.Origin = origin
	err := s.update(s.putSys)
	if noSpace(err) && s.log.Shrink(checkpointKeep) == nil {
		err = s.update(s.putSys)
	}
	if noSpace(err) {
		return nil // the next checkpoint writes it
	}
	if err != nil {
		return fmt.Errorf("ctxpage: write the system row of %s: %w", s.opts.Path, err)
	}
	return nil
}

// plainOrigin returns what every system knows: the inode.
func plainOrigin(f *os.File) string {
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return strconv.FormatUint(uint64(sys.Ino), 10)
}
