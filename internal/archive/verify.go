package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"golang.org/x/mod/sumdb/tlog"
)

// maxProblems bounds the problems that are kept: a wrong leaf makes every hash
// above it wrong as well.
const maxProblems = 20

// NoHead is the Note of a verification without a head.
const NoHead = "not compared with a head kept elsewhere: a log that was rolled back to an earlier copy, or rewritten as a whole, would look the same"

// Verify reads all bytes again. It hashes every leaf, builds the tree anew and
// compares it with the stored hashes, the mark and, if against is given, with
// that head. progress, if given, is called now and then with no lock held. The
// error is nil if nothing was found, otherwise the first problem: a
// codec.CorruptError or, if the log is intact in itself but is not the log of the
// head, ErrHead. ErrClosed: the log was closed meanwhile.
func (l *Log) Verify(ctx context.Context, against *manifest.Head, progress func(done, total uint64)) (manifest.Verification, error) {
	c, err := l.newVerifier(against)
	if err != nil {
		return manifest.Verification{}, err
	}
	if err := c.leaves(ctx, progress); err != nil {
		return c.out, err
	}
	c.out.Root = c.tree.Root()
	if against == nil {
		c.out.Note = NoHead
	}
	if c.out.Found > 0 {
		if _, err := l.view(); err != nil { // closed during the walk: failed reads say nothing
			return manifest.Verification{}, err
		}
		return c.out, fmt.Errorf("manifest: verify found %d problems, the first: %w", c.out.Found, c.out.Problems[0])
	}
	return c.out, nil
}

// verifier is one Verify. It trusts nothing but the bytes of leaves, and builds
// a second tree from them. Index rows, stored hashes, mark and head are
// compared with that tree, each on its own, so that a problem names the file it
// is in.
type verifier struct {
	v     *view
	out   manifest.Verification
	tree  Frontier
	want  []wantRoot
	stubs stubCheck
	loose bool                 // bytes behind the archived leaves are no problem
	segs  map[uint64]*segState // by first leaf

	unlike map[uint64]error // of the log
}

// segState is the place of the walk in a segment, and the length of its file when the walk began.
type segState struct{ end, size int64 }

// newVerifier looks at everything that an archiving would change, so it holds
// archiving. The walk over the leaves does not need that.
func (l *Log) newVerifier(against *manifest.Head) (*verifier, error) {
	l.archiving.Lock()
	defer l.archiving.Unlock()
	v, err := l.view()
	if err != nil {
		return nil, err
	}
	l.mu.RLock()
	loose := l.failed != nil || v.arch.readOnly || v.arch.uncut
	unlike := maps.Clone(l.unlike)
	l.mu.RUnlock()
	c := &verifier{v: v, loose: loose, segs: map[uint64]*segState{}, unlike: unlike}
	c.out = manifest.Verification{Size: v.size(), Archived: v.archived, Against: against, First: -1}
	c.wantRoots(l.DB(), against)
	c.lengths()
	return c, nil
}

// wantRoot is a root that the tree must have over size leaves.
type wantRoot struct {
	size uint64
	root manifest.Hash
	err  error // the problem if it has another
}

// problem counts a problem and keeps the first maxProblems. First is the lowest damaged
// leaf.
func (c *verifier) problem(leaf int64, err error) {
	if leaf >= 0 && (c.out.First < 0 || leaf < c.out.First) {
		c.out.First = leaf
	}
	if c.out.Found++; c.out.Found <= maxProblems {
		c.out.Problems = append(c.out.Problems, err)
	}
}

// wantRoots collects the head and the mark, as it is on the disk now. Beside a
// writer the mark may have moved on; the leaves behind c.v are then for the
// next Verify.
func (c *verifier) wantRoots(db string, against *manifest.Head) {
	c.mark()
	if against == nil {
		return
	}
	if against.DB != db {
		c.problem(-1, fmt.Errorf("%w: it is of database %q, this is %q", manifest.ErrHead, against.DB, db))
	}
	if against.Size > c.v.size() {
		c.problem(int64(c.v.size()), fmt.Errorf("%w: it vouches for %d leaves, the log has %d", manifest.ErrHead, against.Size, c.v.size()))
		return
	}
	c.want = append(c.want, wantRoot{against.Size, against.Root, fmt.Errorf("%w: the first %d leaves give another root", manifest.ErrHead, against.Size)})
}

// mark compares the mark on the disk with the number of leaves, and wants its root.
func (c *verifier) mark() {
	a := c.v.arch
	something, err := a.holdsSomething()
	if a.readOnly && c.v.archived == 0 && err == nil && !something {
		return // nothing was ever archived
	}
	s, err := a.readMark()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.problem(-1, corruptAt(markName, 0, noLeaf, errors.New("the mark is missing; no crash removes it")))
		return
	case err != nil:
		c.problem(-1, fmt.Errorf("manifest: the mark: %w", err))
		return
	case s.size != c.v.archived && !(a.readOnly && s.size > c.v.archived && a.mark.size == c.v.archived):
		c.problem(int64(min(s.size, c.v.archived)), corruptAt(markName, headerSize, noLeaf, fmt.Errorf("a mark over %d leaves, %d are held", s.size, c.v.archived)))
	}
	if s.size <= c.v.size() {
		c.want = append(c.want, wantRoot{s.size, s.root, corruptAt(markName, headerSize+8, noLeaf, fmt.Errorf("the first %d leaves do not give the root of the mark", s.size))})
	}
}

// lengths checks headers and ends of the files. A writer has cut what was
// behind its leaves; a reader may see an archiving in progress.
func (c *verifier) lengths() {
	if c.v.archived == 0 {
		return
	}
	a := c.v.arch
	c.file(indexFile(a.mark.gen), a.index, kindIndex, 0, rowOffset(c.v.archived))
	c.file(hashesName, a.hashes, kindHashes, 0, hashOffset(int64(hashCount(c.v.archived))))
	for _, s := range c.v.segs {
		size := c.file(s.name(), s.file, kindLeaves, s.first, -1)
		c.segs[s.first] = &segState{end: headerSize, size: size}
	}
}

// file checks one header and, unless end is negative, the length, which it
// returns.
func (c *verifier) file(name string, f wal.File, kind byte, first uint64, end int64) int64 {
	if f == nil {
		c.problem(-1, corruptAt(name, 0, noLeaf, errors.New("the header is damaged")))
		return 0
	}
	b, err := readUpTo(f, 0, headerSize)
	if err == nil {
		err = c.v.arch.checkHeader(name, b, kind, first)
	}
	if err != nil {
		c.problem(-1, err)
	}
	size, err := f.Size()
	if err != nil {
		c.problem(-1, readError(name, 0, -1, err))
	} else if end >= 0 && (size < end || size > end && !c.loose) {
		c.problem(-1, corruptAt(name, min(size, end), noLeaf, fmt.Errorf("%d bytes, expected %d", size, end)))
	}
	return size
}

// leaves walks all leaves. It returns only the error of ctx.
func (c *verifier) leaves(ctx context.Context, progress func(done, total uint64)) error {
	c.roots()
	total := c.v.size()
	for from := uint64(0); from < total; from += blockLeaves {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := min(from+blockLeaves, total)
		stored := c.storedHashes(from, to)
		for _, s := range c.v.block(from, to) {
			n := len(stored)
			stored = stored[min(n, c.leaf(s, stored)):]
			c.roots()
		}
		if progress != nil {
			progress(to, total)
		}
	}
	c.segmentEnds()
	c.stubs.end(c)
	return nil
}

// storedHashes reads the hashes that leaves [from, to) fixed; fewer if the file
// ends.
func (c *verifier) storedHashes(from, to uint64) []manifest.Hash {
	first, end, base := hashCount(from), hashCount(to), hashCount(c.v.archived)
	var out []manifest.Hash
	if first < base {
		n := int(min(end, base) - first)
		b, err := readUpTo(c.v.arch.hashes, hashOffset(int64(first)), n*tlog.HashSize)
		if err != nil || len(b) < n*tlog.HashSize {
			c.problem(int64(from), readError(hashesName, hashOffset(int64(first)), int64(from), errors.Join(err, errShortFile)))
		}
		for ; len(b) >= tlog.HashSize; b = b[tlog.HashSize:] {
			out = append(out, manifest.Hash(b[:tlog.HashSize]))
		}
		if first += uint64(n); len(out) < n {
			return out
		}
	}
	if end > base { // those of the tail are in memory
		out = append(out, c.v.hashes[first-base:end-base]...)
	}
	return out
}

// leaf checks one leaf against its row, its place and the stored hashes, and
// returns how many of these it used. A leaf that cannot be read enters the new
// tree by its stored hash, so that later problems are still found one by one.
func (c *verifier) leaf(s slot, stored []manifest.Hash) int {
	i := int64(s.index)
	hash := manifest.Hash{}
	if s.err != nil {
		c.problem(i, s.err)
		c.pass(s)
		if len(stored) > 0 {
			hash = stored[0]
		}
	} else if s.row.pruned {
		if len(stored) > 0 {
			hash = stored[0]
		}
		c.place(s)
		c.stubs.stub(c, s, hash)
	} else {
		hash = LeafHash(s.body)
		c.place(s)
		c.stubs.leaf(c, s)
		if err := c.unlike[s.index]; err != nil {
			c.problem(i, err)
		}
	}
	fixed := c.tree.Add(hash)
	for k, h := range fixed {
		if k >= len(stored) || h != stored[k] {
			off := hashOffset(int64(hashCount(s.index)) + int64(k))
			c.problem(i, corruptAt(hashesName, off, i, errors.New("the leaf does not give the stored hash")))
			break
		}
	}
	return len(fixed)
}

var errShortFile = errors.New("a length points past the end")

// rowIn makes the row of what a slot has.
func rowIn(s slot) (row, error) {
	switch {
	case !s.row.pruned:
		return rowOf(s.body)
	case len(s.body) < stubHead:
		return row{}, errShortFile
	}
	return stubRow(s.body)
}

// place checks that the row is true to its leaf and that frames are side by
// side.
func (c *verifier) place(s slot) {
	i := int64(s.index)
	want, err := rowIn(s)
	want.off = s.row.off
	if s.index < c.v.archived && (c.v.arch.seal != nil || s.row.dense || s.row.brief) { // the row has the size of what is stored
		want.size, want.dense, want.brief = s.row.size, s.row.dense, s.row.brief
	}
	if err != nil && !errors.Is(err, codec.ErrNewerFormat) {
		c.problem(i, leafError(s.index, err))
	} else if err == nil && want != s.row {
		c.problem(i, corruptAt(indexName, rowOffset(s.index), i, errors.New("the row does not match its leaf")))
	}
	if s.index >= c.v.archived {
		return
	}
	seg, err := c.v.segment(s.index)
	if err != nil {
		return // the slot has this error
	}
	state := c.segs[seg.first]
	if state.end != unknown && int64(s.row.off) != state.end {
		c.problem(i, corruptAt(seg.name(), state.end, i, errors.New("the leaf does not follow the one before it")))
	}
	state.end = s.row.end()
}

// unknown is the end of a leaf whose row cannot be read.
const unknown = -1

// pass skips a leaf that cannot be read, so that the next one is not reported
// as well.
func (c *verifier) pass(s slot) {
	seg, err := c.v.segment(s.index)
	if s.index >= c.v.archived || err != nil {
		return
	}
	state := c.segs[seg.first]
	if state.end = unknown; s.row.off != 0 {
		state.end = s.row.end()
	}
}

// roots compares the new tree with the roots wanted at its size.
func (c *verifier) roots() {
	for _, w := range c.want {
		if w.size == c.tree.Size && c.tree.Root() != w.root {
			c.problem(-1, w.err)
		}
	}
}

// segmentEnds checks that nothing is behind the last leaf of a segment.
func (c *verifier) segmentEnds() {
	for k, s := range c.v.segs {
		if s.file == nil || c.loose && k == len(c.v.segs)-1 {
			continue
		}
		if x := c.segs[s.first]; x.end != unknown && x.size != x.end {
			c.problem(-1, corruptAt(s.name(), x.end, noLeaf, fmt.Errorf("%d bytes, expected %d", x.size, x.end)))
		}
	}
}

// Prunable reports whether leaves of a type may lose their bodies. The other types record the
// history of the database and of its audit.
func Prunable(t manifest.Type) bool {
	switch t {
	case manifest.TypePrune, manifest.TypeBackup, manifest.TypeRecovered, manifest.TypeRestored, manifest.TypeColumns:
		return false
	}
	return t.Known()
}

// SpansOf makes ranges of leaves, which it sorts.
func SpansOf(leaves []uint64) (out []manifest.Span) {
	slices.Sort(leaves)
	for _, i := range leaves {
		if n := len(out); n > 0 && i <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], i+1)
		} else {
			out = append(out, manifest.Span{i, i + 1})
		}
	}
	return out
}

// CountOf returns how many leaves are in ranges.
func CountOf(spans []manifest.Span) (n uint64) {
	for _, s := range spans {
		n += s[1] - s[0]
	}
	return n
}

// Covered reports whether a leaf is in one of ascending ranges.
func Covered(spans []manifest.Span, i uint64) bool {
	_, found := slices.BinarySearchFunc(spans, i, func(s manifest.Span, i uint64) int {
		switch {
		case s[1] <= i:
			return -1
		case s[0] > i:
			return 1
		}
		return 0
	})
	return found
}

var (
	// ErrSealed: the archive is encrypted, and no keys were given.
	ErrSealed = errors.New("manifest: the archive is encrypted, and no key was given")

	// ErrGap: a leaf was added that is not the next one and not one the log has.
	ErrGap = errors.New("manifest: leaves are missing between the archive and the log")

	// ErrFailed: an earlier write or sync of the archive failed. The leaves are still in the log; close
	// and open again.
	ErrFailed = errors.New("manifest: archiving failed earlier; close the database and open it again")

	// ErrClosed: the log was closed.
	ErrClosed = codec.ErrClosed

	errReadOnly = errors.New("manifest: opened read-only")
)
