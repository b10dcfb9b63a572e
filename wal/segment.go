package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
)

// A segment is made whole before it has a name: its header is written to a temporary file and
// synced, the file is renamed, and the directory is synced. So a segment under its final name
// always has a valid header, and one without it is damage and not the work of a crash.
//
// Segments are chained. Each header names the first record and the salt of the segment before it
// (prevSalt), so a file that was restored from an older copy of the log does not fit between its
// neighbours.

// The segment header; FORMAT.md has the table.
const (
	segMagic         = "ctxpglog"
	segMagicOld      = "ctxpgwal" // before v0.1.0
	segVersion       = 1
	segVersionSealed = 2 // the bodies are sealed by the owner of the log: a program that cannot open them must not try

	shVersion  = 8
	shNotVers  = 12
	shGen      = 16
	shSalt     = 24
	shFirst    = 32
	shPrevSalt = 40
	shZero     = 48
	shSum      = 56
	shLength   = 64 // behind the sum: the one field that changes
	shLenSum   = 72
	segHead    = 80

	segSuffix = ".wal"
	tmpSuffix = ".tmp"
)

// segment is one file of the log. The fields up to length are its header.
type segment struct {
	gen, salt, first, prevSalt uint64
	sealed                     bool  // its version is segVersionSealed
	length                     int64 // the file is at least as long; 0: not known. See lengthField

	key uint64 // of the frames' checksums, see frameKey

	path string
	file File
	end  int64 // behind the last valid frame
}

// frameKey makes the checksums of a segment's frames its own. A frame of another segment, or of an
// earlier generation of this one, never passes, even if Options.Salt should return a salt twice.
func (s *segment) frameKey() uint64 { return xxhash.Sum64(s.header()[shGen:shPrevSalt]) }

// segName returns the name of a segment: its first record and its generation, so that a listing
// sorted by name is the log in order. A higher generation replaces a lower one with the same first
// record.
func segName(first, gen uint64) string {
	return fmt.Sprintf("%020d-%08d%s", first, gen, segSuffix)
}

// parseSegName reads the name of a segment; ok is false for any other name.
func parseSegName(name string) (first, gen uint64, ok bool) {
	base, isSeg := strings.CutSuffix(name, segSuffix)
	a, b, both := strings.Cut(base, "-")
	if !isSeg || !both {
		return 0, 0, false
	}
	first, err1 := strconv.ParseUint(a, 10, 64)
	gen, err2 := strconv.ParseUint(b, 10, 64)
	return first, gen, err1 == nil && err2 == nil && segName(first, gen) == name
}

// lengthField makes the field that says how long the file is at least. A sync has always covered
// that length when the field is written, and a shorter one is durable before the file is cut to it.
// So no crash leaves a file that is shorter, and one that is was cut. The field is not synced by
// itself: it costs a write for each step of preallocation, and the next sync makes it durable. It
// has a sum of its own, because a power cut may tear it; then the length is not known.
func lengthField(key uint64, n int64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(n))
	return binary.LittleEndian.AppendUint64(b, lengthSum(key, b))
}

// lengthSum binds the length to its segment.
func lengthSum(key uint64, length []byte) uint64 {
	return xxhash.Sum64(append(binary.LittleEndian.AppendUint64(nil, key), length...))
}

// readLength reads the field; 0: it is torn, or was not written yet.
func (s *segment) readLength() (int64, error) {
	b := make([]byte, segHead-shLength)
	if n, err := s.file.ReadAt(b, shLength); n < len(b) && err != nil && !isEOF(err) {
		return 0, err
	}
	if binary.LittleEndian.Uint64(b[shLenSum-shLength:]) != lengthSum(s.key, b[:shLenSum-shLength]) {
		return 0, nil
	}
	return int64(binary.LittleEndian.Uint64(b)), nil
}

// checkLength returns a codec.CorruptError if the file is shorter than its header says; next is the
// record that is missing from off on. Beside a live writer both change: the length is raised after
// the file grew, and lowered before it shrinks, so it is read on both sides of the size.
func (s *segment) checkLength(off int64, next uint64) error {
	before, err := s.readLength()
	if err != nil {
		return fmt.Errorf("wal: read %s: %w", s.path, err)
	}
	size, err := s.file.Size()
	if err != nil {
		return fmt.Errorf("wal: read %s: %w", s.path, err)
	}
	after, err := s.readLength()
	if err != nil {
		return fmt.Errorf("wal: read %s: %w", s.path, err)
	}
	if want := min(before, after); size < want {
		return s.corrupt(off, next, fmt.Errorf("the file has %d bytes and had at least %d: it was cut, which no crash does", size, want))
	}
	return nil
}

// header makes the first bytes of the file, without a length.
func (s *segment) header() []byte {
	b := make([]byte, segHead)
	copy(b, segMagic)
	version := uint32(segVersion)
	if s.sealed {
		version = segVersionSealed
	}
	binary.LittleEndian.PutUint32(b[shVersion:], version)
	binary.LittleEndian.PutUint32(b[shNotVers:], ^version)
	binary.LittleEndian.PutUint64(b[shGen:], s.gen)
	binary.LittleEndian.PutUint64(b[shSalt:], s.salt)
	binary.LittleEndian.PutUint64(b[shFirst:], s.first)
	binary.LittleEndian.PutUint64(b[shPrevSalt:], s.prevSalt)
	binary.LittleEndian.PutUint64(b[shSum:], xxhash.Sum64(b[:shSum]))
	return b
}

// readHeader fills in the header fields. A segment gets its final name only after its header was
// synced, so a bad header is never the work of a crash.
func (s *segment) readHeader() error {
	b := make([]byte, segHead)
	n, err := s.file.ReadAt(b, 0)
	if n < segHead && err != nil && !isEOF(err) {
		return err
	}
	if err := checkHeader(b[:n]); err != nil {
		if errors.Is(err, codec.ErrNewerFormat) || errors.Is(err, codec.ErrOldFormat) {
			return fmt.Errorf("%w; file %s", err, s.path)
		}
		return s.corrupt(0, 0, err)
	}
	if n < segHead {
		return s.corrupt(0, 0, errors.New("the file ends inside its header"))
	}
	first, gen, _ := parseSegName(filepath.Base(s.path))
	s.sealed = binary.LittleEndian.Uint32(b[shVersion:]) == segVersionSealed
	s.gen = binary.LittleEndian.Uint64(b[shGen:])
	s.salt = binary.LittleEndian.Uint64(b[shSalt:])
	s.first = binary.LittleEndian.Uint64(b[shFirst:])
	s.prevSalt = binary.LittleEndian.Uint64(b[shPrevSalt:])
	s.key = s.frameKey()
	if s.length, err = s.readLength(); err != nil {
		return err
	}
	if s.first != first || s.gen != gen {
		return s.corrupt(0, 0, fmt.Errorf("the header says first record %d, generation %d: the file was renamed or copied", s.first, s.gen))
	}
	return nil
}

// checkHeader reads the version before anything else. It is there twice, once inverted, so that a
// flipped bit in it is damage and not a newer format.
func checkHeader(b []byte) error {
	if len(b) >= shGen && string(b[:shVersion]) == segMagicOld {
		return codec.ErrOldFormat
	}
	if len(b) < shGen || string(b[:shVersion]) != segMagic {
		return errors.New("expected a segment header, found none")
	}
	version := binary.LittleEndian.Uint32(b[shVersion:])
	if version != ^binary.LittleEndian.Uint32(b[shNotVers:]) {
		return errors.New("the format version is unreadable")
	}
	if version > segVersionSealed {
		return fmt.Errorf("%w: the log has version %d, this program reads up to version %d", codec.ErrNewerFormat, version, segVersionSealed)
	}
	if len(b) < shLength || xxhash.Sum64(b[:shSum]) != binary.LittleEndian.Uint64(b[shSum:]) || !allZero(b[shZero:shSum]) {
		return errors.New("segment header: checksum does not match")
	}
	if version == 0 {
		return fmt.Errorf("format version %d never existed", version)
	}
	return nil
}

// corrupt is the error for damage in this segment.
func (s *segment) corrupt(off int64, seq uint64, err error) error {
	e := &codec.CorruptError{
		File: s.path, Offset: off, Err: err,
		Hint: "nothing was cut; restore the file from a backup, or salvage the records before it",
	}
	if seq != 0 {
		e.Unit, e.Num = codec.UnitRecord, seq
	}
	return e
}

// listing has the files of a log's directory. A generation is stale when a higher one has the same
// first record: a rewrite was interrupted after its new file had a name, and both read the same.
type listing struct {
	segs   []*segment // by first record, newest generation of each
	stale  []string   // paths: replaced generations and unfinished files
	maxGen uint64
	odd    []error // names that look like a segment's and are not; see list
}

// list reads the names in dir. A missing directory is an empty one. A name that could be a
// segment's and is not is damage.
func list(fsys FS, dir string) (listing, error) {
	ls, err := listAll(fsys, dir)
	if err == nil && len(ls.odd) > 0 {
		return listing{}, ls.odd[0]
	}
	return ls, err
}

// listAll is list for readers that go on past damage.
func listAll(fsys FS, dir string) (listing, error) {
	names, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return listing{}, fmt.Errorf("wal: list segments: %w", err)
	}
	var ls listing
	sort.Strings(names)
	for _, name := range names {
		path := filepath.Join(dir, name)
		switch {
		case strings.HasSuffix(name, segSuffix+tmpSuffix):
			ls.stale = append(ls.stale, path)
		case strings.HasSuffix(name, segSuffix):
			ls.add(path, name)
		}
	}
	return ls, nil
}

// add takes in a name. Of two generations with the same first record the higher one stays, the
// other is stale.
func (ls *listing) add(path, name string) {
	first, gen, ok := parseSegName(name)
	if !ok || first == 0 {
		ls.odd = append(ls.odd, &codec.CorruptError{File: path, Err: errors.New("not the name of a segment"),
			Hint: "move the file out of the log's directory, or give it its name back"})
		return
	}
	seg := &segment{path: path, first: first, gen: gen}
	ls.maxGen = max(ls.maxGen, gen)
	if n := len(ls.segs); n > 0 && ls.segs[n-1].first == first { // sorted: the newer generation comes later
		ls.stale = append(ls.stale, ls.segs[n-1].path)
		ls.segs[n-1] = seg
		return
	}
	ls.segs = append(ls.segs, seg)
}

// open opens the segments and reads their headers. All are opened before a record is read, so that no
// segment can be dropped under a reader.
func (ls *listing) open(fsys FS) error {
	for _, s := range ls.segs {
		f, err := fsys.OpenFile(s.path, os.O_RDONLY, 0)
		if err != nil {
			return fmt.Errorf("wal: open segment: %w", err)
		}
		s.file = f
		if err := s.readHeader(); err != nil {
			return err
		}
	}
	return nil
}

// close closes the files that open opened.
func (ls *listing) close() {
	for _, s := range ls.segs {
		if s.file != nil {
			s.file.Close()
			s.file = nil
		}
	}
}
