package archive

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"golang.org/x/mod/sumdb/tlog"
)

// The archive directory. FORMAT.md has the byte tables; all numbers are little
// endian.
//
//	leaves-N  the bytes of leaves N and following, framed   ← truth
//	index     one row of fixed width per leaf
//	hashes    the hashes of each fourth level of the tree
//	mark      up to which leaf all of it was synced, and the root there
//
// leaves, index and hashes are only ever appended to; mark is replaced by a rename, after the
// others are synced. A prune writes an index and segments of a new generation, and the mark says
// that they count (prune.go). Bytes behind the mark are left over from an archiving that did not
// finish. They are written again from the log.
const (
	indexName  = "index"
	hashesName = "hashes"
	markName   = "mark"
	markTemp   = "mark.tmp"
	leavesName = "leaves-"

	archiveMagic    = "CTXA"
	archiveMagicOld = "CTXM" // before v0.1.0
	archiveVersion  = 1
	// sealedFlag is set in the version of every file of an archive whose bodies
	// are sealed.
	sealedFlag = 1 << 15

	headerSize = 24
	rowSize    = 24
	frameSize  = 12 // before the body
	maxMark    = 1 << 10

	// maxLeaves keeps every offset within an int64.
	maxLeaves = 1 << 48
)

// The kinds of files, in the header.
const (
	kindLeaves = 'L'
	kindIndex  = 'I'
	kindHashes = 'H'
	kindMark   = 'M'
)

const hintRestore = "restore a backup; dbctl manifest verify says what else differs"

// noLeaf is the leaf number of damage that concerns no single leaf.
const noLeaf = -1

// corruptAt returns the error for damage in a file of the archive; leaf may be
// noLeaf.
func corruptAt(file string, off, leaf int64, err error) *codec.CorruptError {
	e := &codec.CorruptError{File: file, Offset: off, Err: err, Hint: hintRestore}
	if leaf != noLeaf {
		e.Unit, e.Num = codec.UnitLeaf, uint64(leaf)
	}
	return e
}

// audit is the File of damage in bytes that did not come from the archive.
const audit = "the audit"

// segmentName returns the name of a segment that a prune of the given
// generation wrote; 0: none did.
func segmentName(first uint64, gen uint32) string {
	if gen == 0 {
		return fmt.Sprintf("%s%020d", leavesName, first)
	}
	return fmt.Sprintf("%s%020d-%08d", leavesName, first, gen)
}

// indexFile returns the name of the index of a generation.
func indexFile(gen uint32) string {
	if gen == 0 {
		return indexName
	}
	return fmt.Sprintf("%s-%08d", indexName, gen)
}

// parseSegmentName is the inverse of segmentName; ok is false for other files.
func parseSegmentName(name string) (first uint64, gen uint32, ok bool) {
	digits, found := strings.CutPrefix(name, leavesName)
	if !found || len(digits) < 20 {
		return 0, 0, false
	}
	gen, ok = parseGeneration(digits[20:])
	first, err := strconv.ParseUint(digits[:20], 10, 63)
	return first, gen, ok && err == nil
}

// parseIndexFile is the inverse of indexFile.
func parseIndexFile(name string) (gen uint32, ok bool) {
	rest, found := strings.CutPrefix(name, indexName)
	if !found {
		return 0, false
	}
	return parseGeneration(rest)
}

// parseGeneration reads the end of a name of segment or index: nothing for generation 0, or a
// hyphen and eight digits.
func parseGeneration(s string) (gen uint32, ok bool) {
	if s == "" {
		return 0, true
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "-"), 10, 32)
	return uint32(n), err == nil && n > 0 && len(s) == 9 && s[0] == '-'
}

// header returns the first bytes of every file of the archive; first is the first leaf of a segment
// and 0 elsewhere. If bodies are sealed, every file says so in its version.
func (a *archive) header(kind byte, first uint64) []byte {
	version := uint16(archiveVersion)
	if a.seal != nil {
		version |= sealedFlag
	}
	b := make([]byte, 0, headerSize)
	b = append(b, archiveMagic...)
	b = binary.LittleEndian.AppendUint16(b, version)
	b = append(b, kind, 0)
	b = binary.LittleEndian.AppendUint64(b, first)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

// Sealer seals the bodies of leaves and opens them, each bound to the index of its leaf. It is
// called concurrently.
type Sealer interface {
	Seal(index uint64, body []byte) ([]byte, error)
	Open(index uint64, sealed []byte) ([]byte, error)
}

// sealOverhead is by how many bytes a sealed body may be longer.
const sealOverhead = 1 << 10

// formWriter makes the forms of leaves in memory of its own.
type formWriter struct {
	dense codec.DenseWriter
	buf   []byte
}

// brief is the brief form of a body whose row is r; false: it has none.
func (w *formWriter) brief(i uint64, body []byte, r row) (b []byte, ok bool) {
	if r.typ != manifest.TypeCommit || !r.writes || !r.rows {
		return nil, false
	}
	if w.buf == nil {
		w.buf = make([]byte, 0, 4*codec.BriefMost)
	}
	w.buf, ok = codec.BriefForm(w.buf[:0], i, body)
	return w.buf, ok
}

// stored is a leaf as the files have it, borrowed from body or w, and its row but for the place.
func (a *archive) stored(i uint64, body []byte, r row, w *formWriter) ([]byte, row, error) {
	r.dense, r.brief = false, false
	if a.seal != nil {
		b, err := a.seal.Seal(i, body)
		if err != nil {
			return nil, r, fmt.Errorf("manifest: seal leaf %d: %w", i, err)
		}
		body = b
	} else if !r.pruned {
		if b, brief := w.brief(i, body, r); brief {
			body, r.brief = b, true
		} else if b, shorter := denseBody(&w.dense, body, r); shorter {
			body, r.dense = b, true
		}
	}
	r.size = uint32(len(body))
	return body, r, nil
}

// errTornHeader: the file ends within its header, as after a crash while it was
// made.
var errTornHeader = errors.New("the file ends within its header")

// checkHeader reads the version before anything else: a newer file is not a
// damaged one.
func (a *archive) checkHeader(name string, b []byte, kind byte, first uint64) error {
	switch {
	case len(b) < headerSize:
		return corruptAt(name, int64(len(b)), noLeaf, errTornHeader)
	case string(b[:4]) == archiveMagicOld:
		return fmt.Errorf("%s: %w", name, codec.ErrOldFormat)
	case string(b[:4]) != archiveMagic:
		return corruptAt(name, 0, noLeaf, fmt.Errorf("begins with %q, expected %s", b[:4], archiveMagic))
	}
	// The header has the same form in every version, so its sum tells a newer
	// file from a damaged version number.
	sound := binary.LittleEndian.Uint64(b[16:]) == xxhash.Sum64(b[:16])
	v := binary.LittleEndian.Uint16(b[4:])
	isSealed := v&sealedFlag != 0
	switch v &^= sealedFlag; {
	case v > archiveVersion && sound:
		return fmt.Errorf("%s has version %d, this program knows %d: %w", name, v, archiveVersion, codec.ErrNewerFormat)
	case isSealed && sound && a.seal == nil:
		return fmt.Errorf("%s: %w", name, ErrSealed)
	case !isSealed && sound && a.seal != nil:
		return corruptAt(name, 4, noLeaf, errors.New("it is not encrypted although the database is: it was replaced"))
	}
	if string(b[:headerSize]) != string(a.header(kind, first)) {
		return corruptAt(name, 4, noLeaf, errors.New("the header belongs to another file"))
	}
	return nil
}

// row is one entry of the index. It has what a search needs to leave bodies
// unread: type, flags and hashes of the traces.
type row struct {
	pruned bool // the frame has a stub
	dense  bool // the frame has the body in its dense form (codec.DenseWriter)
	brief  bool // likewise, in its brief form (codec.BriefForm)
	typ    manifest.Type
	writes bool   // the leaf has Writes
	rows   bool   // the leaf ends in Rows
	size   uint32 // of what the frame has
	off    uint32 // of the frame in its segment
	trace  uint32 // HashTrace
	parent uint32 // hashParent
}

// The states of a row: its frame has the body, a stub (prune.go), or the body in its dense or its brief form.
const (
	rowWhole  = 1
	rowPruned = 2
	rowDense  = 3
	rowBrief  = 4

	rowWrites = 1 << 4 // added to the state: the leaf has writes
	rowRows   = 1 << 5 // it ends in digests of rows
)

// HashTrace is the hash by which the index finds the leaves of a trace. Several traces may share
// it.
func HashTrace(s string) uint32 { return uint32(xxhash.Sum64String(s)) }

// hashParent is HashTrace of a parent, as far as the index has it.
func hashParent(s string) uint32 { return HashTrace(s) & low24 }

// low24 are the bits of a number that an index row has in three bytes.
const low24 = 1<<24 - 1

// rowOf makes the row of a leaf. The archive fills in its place.
func rowOf(body []byte) (row, error) {
	r := row{size: uint32(len(body))}
	err := peek(body, tagFlags, func(w *wire) {
		r.typ, r.writes, r.rows, r.trace, r.parent = w.Type, w.flags&flagWrites != 0, w.flags&flagRows != 0, HashTrace(w.Trace), hashParent(w.Parent)
	})
	return r, err
}

// rowOfRecord is rowOf for a record whose encoding has size bytes.
func rowOfRecord(r *manifest.Record, size int) row {
	return row{typ: r.Type, writes: len(r.Writes) > 0, rows: len(r.Rows)+len(r.State) > 0, size: uint32(size), trace: HashTrace(r.Trace), parent: hashParent(r.Parent)}
}

// append appends the 24 bytes of the index row of leaf i.
func (r row) append(b []byte, i uint64) []byte {
	start := len(b)
	state := byte(rowWhole)
	switch {
	case r.pruned:
		state = rowPruned
	case r.dense:
		state = rowDense
	case r.brief:
		state = rowBrief
	}
	if r.writes {
		state |= rowWrites
	}
	if r.rows {
		state |= rowRows
	}
	for _, v := range [...]uint32{uint32(state) | uint32(r.typ)<<8 | r.size<<16, r.size>>16 | r.parent<<8, r.off, r.trace} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return binary.LittleEndian.AppendUint64(b, sum(i, b[start:]))
}

// parseRow checks that b is the row of leaf i.
func parseRow(b []byte, i uint64) (row, error) {
	if binary.LittleEndian.Uint64(b[rowSize-8:]) != sum(i, b[:rowSize-8]) {
		return row{}, corruptAt(indexName, rowOffset(i), int64(i), errors.New("wrong checksum of an index row"))
	}
	state := b[0] &^ (rowWrites | rowRows)
	if state < rowWhole || state > rowBrief {
		return row{}, fmt.Errorf("leaf %d is in state %d: %w", i, b[0], codec.ErrNewerFormat)
	}
	u := binary.LittleEndian.Uint32
	r := row{
		pruned: state == rowPruned, dense: state == rowDense, brief: state == rowBrief, typ: manifest.Type(b[1]), writes: b[0]&rowWrites != 0, rows: b[0]&rowRows != 0,
		size: u(b[2:]) & low24, off: u(b[8:]), trace: u(b[12:]), parent: u(b[4:]) >> 8,
	}
	if r.size > MaxBody+sealOverhead || r.off < headerSize {
		return row{}, corruptAt(indexName, rowOffset(i), int64(i), fmt.Errorf("a leaf of %d bytes at %d", r.size, r.off))
	}
	return r, nil
}

// end returns where the next frame of the segment begins.
func (r row) end() int64 { return int64(r.off) + frameSize + int64(r.size) }

func rowOffset(i uint64) int64 { return headerSize + int64(i)*rowSize }

func hashOffset(i int64) int64 { return headerSize + i*tlog.HashSize }

// sum returns the checksum of bytes that belong to leaf i. Moved to another
// index they have another one.
func sum(i uint64, b []byte) uint64 {
	if len(b) == rowSize-8 { // a row: hashed in one call, which halves the time of a search of the index
		var whole [rowSize]byte
		binary.LittleEndian.PutUint64(whole[:], i)
		copy(whole[8:], b)
		return xxhash.Sum64(whole[:])
	}
	var d xxhash.Digest
	d.Reset()
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], i)
	d.Write(n[:])
	d.Write(b)
	return d.Sum64()
}

// appendFrame appends length, checksum and body of leaf i, as a segment has them. body is in the
// form that is stored: plain, dense or sealed.
func appendFrame(b []byte, i uint64, body []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = binary.LittleEndian.AppendUint64(b, sum(i, body))
	return append(b, body...)
}

// checkFrame returns the body in the frame that the row of leaf i points at.
func (a *archive) checkFrame(name string, frame []byte, i uint64, r row) ([]byte, error) {
	body := frame[frameSize:]
	if n := binary.LittleEndian.Uint32(frame); n != r.size {
		return nil, corruptAt(name, int64(r.off), int64(i), fmt.Errorf("a frame of %d bytes where the index says %d", n, r.size))
	}
	if binary.LittleEndian.Uint64(frame[4:]) != sum(i, body) {
		return nil, corruptAt(name, int64(r.off), int64(i), errors.New("wrong checksum of a leaf"))
	}
	plain, err := body, error(nil)
	switch {
	case a.seal != nil:
		plain, err = a.seal.Open(i, body)
	case r.dense:
		plain, err = codec.FromDense(body)
	case r.brief:
		plain, err = codec.FromBrief(i, body)
	}
	if err != nil {
		return nil, corruptAt(name, int64(r.off), int64(i), err)
	}
	return plain, nil
}

// stamp is the content of the mark file: the archive has size leaves with this root, and they belong to
// database db. gen counts the prunes; the files of the highest generation up to it count.
type stamp struct {
	db   string
	size uint64
	root manifest.Hash
	gen  uint32
}

// encode makes the mark file.
func (s stamp) encode(a *archive) []byte {
	b := a.header(kindMark, 0)
	b = binary.LittleEndian.AppendUint64(b, s.size)
	b = append(b, s.root[:]...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s.db)))
	b = append(b, s.db...)
	b = binary.LittleEndian.AppendUint32(b, s.gen)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

// parseStamp reads the mark file. Header and checksum are compared before any number is believed.
func (a *archive) parseStamp(b []byte) (s stamp, err error) {
	if err := a.checkHeader(markName, b, kindMark, 0); err != nil {
		return s, err
	}
	const fixed = headerSize + 8 + tlog.HashSize + 2
	n := len(b) - 8
	db := 0
	if n >= fixed {
		db = int(binary.LittleEndian.Uint16(b[fixed-2:]))
	}
	const tail = 4 // the generation
	if n < fixed || n != fixed+db+tail {
		return s, corruptAt(markName, int64(len(b)), noLeaf, fmt.Errorf("a mark of %d bytes", len(b)))
	}
	if binary.LittleEndian.Uint64(b[n:]) != xxhash.Sum64(b[:n]) {
		return s, corruptAt(markName, int64(n), noLeaf, errors.New("wrong checksum of the mark"))
	}
	s.size = binary.LittleEndian.Uint64(b[headerSize:])
	s.root = manifest.Hash(b[headerSize+8 : headerSize+8+tlog.HashSize])
	s.db = string(b[fixed : fixed+db])
	s.gen = binary.LittleEndian.Uint32(b[n-tail:])
	if s.size > maxLeaves {
		return s, corruptAt(markName, headerSize, noLeaf, fmt.Errorf("a mark over %d leaves", s.size))
	}
	return s, nil
}

// readUpTo reads n bytes at off, or fewer at the end of the file.
func readUpTo(f wal.File, off int64, n int) ([]byte, error) {
	b := make([]byte, n)
	k, err := f.ReadAt(b, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:k], err
}

// InMemory makes a log without files: its leaves live as long as it does. It is the audit of a
// store that keeps nothing.
func InMemory(db string) *Log {
	a := &archive{fs: noFiles{}, readOnly: true, mark: stamp{db: db, root: new(Frontier).Root()}}
	return &Log{now: view{arch: a}, marked: a.mark}
}

// noFiles is a file system in which nothing is. A log that is only in memory reads no more of it,
// and writes nothing.
type noFiles struct{ wal.FS }

func (noFiles) ReadDir(string) ([]string, error)                    { return nil, fs.ErrNotExist }
func (noFiles) Stat(string) (fs.FileInfo, error)                    { return nil, fs.ErrNotExist }
func (noFiles) OpenFile(string, int, fs.FileMode) (wal.File, error) { return nil, fs.ErrNotExist }

// Bodies calls fn for the leaves [from, to) that still have their bodies, in order, with the scope
// of each and the size of its body in bytes. It reads no further into a body than its scope.
func (l *Log) Bodies(ctx context.Context, from, to uint64, fn func(scope string, size int)) error {
	v, err := l.view()
	if err != nil {
		return err
	}
	return v.each(ctx, from, min(to, v.size()), false, func(s slot) error {
		if s.err != nil || s.row.pruned {
			return s.err
		}
		if err := peek(s.body, tagScope, func(w *wire) { fn(w.Scope, len(s.body)) }); err != nil {
			return leafError(s.index, err)
		}
		return nil
	})
}
