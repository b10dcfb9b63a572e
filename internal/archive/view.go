package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/ctxpage/ctxpage/manifest"
	"golang.org/x/mod/sumdb/tlog"
)

// Readers of the audit take a copy of the view under Log.mu and then read without a lock, for as
// long as they like. That is safe because archiving and appending never change what a copy points
// at: leaves are appended behind the length of its slices, and files only grow behind archived. A
// prune replaces archive and segments by others, and the old files stay open for the views that
// have them.
//
// Reads of an archived leaf go through the index row and then the frame, each with its own
// checksum. Listings read leaves in blocks, because a system call for each leaf took most of the
// time.

// view is the log at one moment. The data it points at never changes, so it is read without a lock.
// Files that a later archiving appends to are read only below archived.
type view struct {
	arch     *archive
	segs     []segment
	archived uint64
	tail     []tailLeaf      // leaves [archived, size)
	hashes   []manifest.Hash // stored hashes from hashCount(archived) on
}

// tailLeaf is a leaf that is not archived yet.
type tailLeaf struct {
	row  row
	body []byte
}

// size is the number of leaves.
func (v *view) size() uint64 { return v.archived + uint64(len(v.tail)) }

// ReadHashes makes a view a tlog.HashReader.
func (v *view) ReadHashes(at []int64) (out []manifest.Hash, err error) {
	out = make([]manifest.Hash, len(at))
	for k, i := range at {
		level, n := tlog.SplitStoredHashIndex(i)
		if out[k], err = v.hash(level, n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// hash returns hash n of a level of the tree.
func (v *view) hash(level int, n int64) (h manifest.Hash, err error) {
	if level > 0 && level < keptLevels && uint64(n+1)<<level <= v.archived {
		return v.hashOfLeaves(level, n)
	}
	if level%keptLevels > 0 {
		left, err := v.hash(level-1, 2*n)
		if err != nil {
			return h, err
		}
		right, err := v.hash(level-1, 2*n+1)
		return tlog.NodeHash(left, right), err
	}
	i, base := hashPlace(level, n), int64(hashCount(v.archived))
	switch {
	case i < base:
		if _, err := v.arch.hashes.ReadAt(h[:], hashOffset(i)); err != nil {
			return h, readError(hashesName, hashOffset(i), -1, err)
		}
	case i-base < int64(len(v.hashes)):
		h = v.hashes[i-base]
	default:
		return h, fmt.Errorf("%w: no hash %d of level %d over %d leaves", manifest.ErrNoLeaf, n, level, v.size())
	}
	return h, nil
}

// hashOfLeaves is hash below the first level that is stored: the hashes of its archived leaves lie side by side, and
// an open asks for many.
func (v *view) hashOfLeaves(level int, n int64) (h manifest.Hash, err error) {
	b, at := make([]byte, tlog.HashSize<<level), hashOffset(hashPlace(0, n<<level))
	if _, err := v.arch.hashes.ReadAt(b, at); err != nil {
		return h, readError(hashesName, at, -1, err)
	}
	var f Frontier
	for ; len(b) > 0; b = b[tlog.HashSize:] {
		f.Add(manifest.Hash(b[:tlog.HashSize]))
	}
	return f.Nodes[0], nil
}

// readError tells a file that ends too early, which is damage, from one that
// could not be read, and from one that was closed while a view of it is in use.
func readError(name string, off, leaf int64, err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return corruptAt(name, off, leaf, io.ErrUnexpectedEOF)
	case errors.Is(err, os.ErrClosed):
		return fmt.Errorf("%w: read %s: %w", ErrClosed, name, err)
	}
	return fmt.Errorf("manifest: read %s at byte %d: %w", name, off, err)
}

// root is the root of the tree over the first size leaves. It reads one stored hash for each full
// subtree, at most 64.
func (v *view) root(size uint64) (manifest.Hash, error) {
	f, err := frontierAt(size, v)
	if err != nil {
		return manifest.Hash{}, err
	}
	return f.Root(), nil
}

// body returns the bytes of leaf i. They are shared with the log and must not
// be changed.
func (v *view) body(i uint64) ([]byte, error) {
	if i >= v.size() {
		return nil, fmt.Errorf("%w: %d of %d", manifest.ErrNoLeaf, i, v.size())
	}
	if i >= v.archived {
		return v.tail[i-v.archived].body, nil
	}
	r, body, err := v.archivedBody(i)
	if err == nil && r.pruned {
		err = v.prunedError(i, body)
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

// leaf decodes leaf i. Of a leaf whose body was pruned it returns the fields of the stub.
func (v *view) leaf(i uint64) (*manifest.Record, error) {
	if i >= v.archived {
		body, err := v.body(i)
		if err != nil {
			return nil, err
		}
		return Decode(i, body)
	}
	r, body, err := v.archivedBody(i)
	if err != nil {
		return nil, err
	}
	return v.record(slot{index: i, row: r, body: body})
}

// record decodes what a slot has: a leaf, or what is left of one.
func (v *view) record(s slot) (*manifest.Record, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.row.pruned {
		return v.stub(s.index, s.body)
	}
	return Decode(s.index, s.body)
}

// row reads the index row of an archived leaf.
func (v *view) row(i uint64) (row, error) {
	b := make([]byte, rowSize)
	if _, err := v.arch.index.ReadAt(b, rowOffset(i)); err != nil {
		return row{}, readError(indexName, rowOffset(i), int64(i), err)
	}
	return parseRow(b, i)
}

// archivedBody reads an archived leaf through its index row. What it returns of a pruned leaf is
// the stub.
func (v *view) archivedBody(i uint64) (row, []byte, error) {
	r, err := v.row(i)
	if err != nil {
		return row{}, nil, err
	}
	body, err := v.frame(i, r)
	return r, body, err
}

// segment returns the file of leaf i.
func (v *view) segment(i uint64) (segment, error) {
	k := sort.Search(len(v.segs), func(k int) bool { return v.segs[k].first > i }) - 1
	if k < 0 {
		return segment{}, corruptAt(segmentName(0, 0), 0, int64(i), errors.New("the file is missing"))
	}
	if v.segs[k].file == nil {
		return segment{}, corruptAt(v.segs[k].name(), 0, int64(i), errors.New("the header is damaged"))
	}
	return v.segs[k], nil
}

// frame reads the frame that a row of the index points at, and returns the body in it, opened and
// plain.
func (v *view) frame(i uint64, r row) ([]byte, error) {
	s, err := v.segment(i)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, frameSize+int(r.size))
	if _, err := s.file.ReadAt(frame, int64(r.off)); err != nil {
		return nil, readError(s.name(), int64(r.off), int64(i), err)
	}
	return v.arch.checkFrame(s.name(), frame, i, r)
}

// Many leaves are read in blocks: one read for the rows, one for bodies
// that are side by side.
const (
	blockLeaves = 256
	blockBytes  = 1 << 20
)

// slot is a leaf of a block, or why it could not be read.
type slot struct {
	index uint64
	row   row
	body  []byte
	err   error
}

// block reads leaves [from, to), to ≤ size. Errors are in the slots.
func (v *view) block(from, to uint64) []slot {
	out := make([]slot, to-from)
	for k := range out {
		i := from + uint64(k)
		out[k].index = i
		if i >= v.archived {
			t := v.tail[i-v.archived]
			out[k].row, out[k].body = t.row, t.body
		}
	}
	if from < v.archived {
		held := out[:min(to, v.archived)-from]
		v.blockRows(held)
		v.blockBodies(held)
	}
	return out
}

// blockRows reads the index rows of the slots in one read. A row that is damaged is an error of its
// own slot.
func (v *view) blockRows(slots []slot) {
	first := slots[0].index
	b, err := readUpTo(v.arch.index, rowOffset(first), len(slots)*rowSize)
	for k := range slots {
		s := &slots[k]
		switch {
		case err != nil:
			s.err = readError(indexName, rowOffset(s.index), int64(s.index), err)
		case len(b) < (k+1)*rowSize:
			s.err = readError(indexName, rowOffset(s.index), int64(s.index), io.EOF)
		default:
			s.row, s.err = parseRow(b[k*rowSize:(k+1)*rowSize], s.index)
		}
	}
}

// blockBodies reads the bodies of the slots, one read for each run of neighbours.
func (v *view) blockBodies(slots []slot) {
	for len(slots) > 0 {
		n := v.run(slots)
		v.readRun(slots[:n])
		slots = slots[n:]
	}
}

// run returns the number of leading slots that lie side by side in one segment and are worth one read.
func (v *view) run(slots []slot) int {
	first, err := v.segment(slots[0].index)
	if slots[0].err != nil || err != nil {
		return 1
	}
	n := 1
	for ; n < len(slots) && slots[n].err == nil; n++ {
		prev, next := slots[n-1].row, slots[n].row
		s, err := v.segment(slots[n].index)
		if err != nil || s.first != first.first || int64(next.off) != prev.end() || next.end()-int64(slots[0].row.off) > blockBytes {
			break
		}
	}
	return n
}

// readRun reads a run in one go; what that cannot give is asked for leaf by
// leaf, for the sake of the error.
func (v *view) readRun(run []slot) {
	if run[0].err != nil {
		return
	}
	s, err := v.segment(run[0].index)
	start, end := int64(run[0].row.off), run[len(run)-1].row.end()
	var b []byte
	if err == nil {
		b, err = readUpTo(s.file, start, int(end-start))
	}
	for k := range run {
		x := &run[k]
		at, to := int64(x.row.off)-start, x.row.end()-start
		if err == nil && to <= int64(len(b)) {
			x.body, x.err = v.arch.checkFrame(s.name(), b[at:to:to], x.index, x.row)
		} else {
			x.body, x.err = v.frame(x.index, x.row)
		}
	}
}

// each calls fn for the leaves [from, to) forwards or backwards.
func (v *view) each(ctx context.Context, from, to uint64, reverse bool, fn func(slot) error) error {
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(to-from, blockLeaves)
		var slots []slot
		if reverse {
			slots = v.block(to-n, to)
			to -= n
		} else {
			slots = v.block(from, from+n)
			from += n
		}
		for k := range slots {
			if reverse {
				k = len(slots) - 1 - k
			}
			if err := fn(slots[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

var _ tlog.HashReader = (*view)(nil)

// rowBlock is the number of index rows that a search reads at a time.
const rowBlock = 2048

// find collects, newest first, the leaves whose row match says yes to, until
// take has had enough.
func (v *view) find(ctx context.Context, match func(row) bool, take func(i uint64) (more bool, err error)) error {
	for k := len(v.tail) - 1; k >= 0; k-- {
		if match(v.tail[k].row) {
			if more, err := take(v.archived + uint64(k)); err != nil || !more {
				return err
			}
		}
	}
	buf := make([]byte, rowBlock*rowSize)
	for to := v.archived; to > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		from := to - min(to, rowBlock)
		b := buf[:(to-from)*rowSize]
		if _, err := v.arch.index.ReadAt(b, rowOffset(from)); err != nil {
			return readError(indexName, rowOffset(from), int64(from), err)
		}
		for i := to; i > from; i-- {
			k := (i - 1 - from) * rowSize
			r, err := parseRow(b[k:k+rowSize], i-1)
			if err != nil {
				return err
			}
			if !match(r) {
				continue
			}
			if more, err := take(i - 1); err != nil || !more {
				return err
			}
		}
		to = from
	}
	return nil
}
