package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
)

// Options configure Open. The zero value is a writer of an archive that belongs
// to no particular database.
type Options struct {
	ReadOnly bool   // create, cut and write nothing; Add works in memory
	DB       string // database id, at most 255 bytes; an archive of another is refused. Empty: not compared
	// Seal, if given, seals the bodies of leaves in the files. The tree is over the plain bodies
	// all the same: heads and proofs do not tell a sealed archive from another one. An archive is
	// sealed as a whole or not at all.
	Seal        Sealer
	SegmentSize int64 // bytes after which a segment file is followed by the next; 0 means 64 MiB, the limit is 1 GiB
}

// Report describes the archive that Open found.
type Report struct {
	Archived uint64 // leaves in the archive
	Marked   uint64 // leaves its mark vouches for. More than Archived: synced leaves are missing; the log must have them or the archive is damaged
	Cut      int64  // bytes of an unfinished archiving that were cut off; they are still in the log
	Damage   error  // what is wrong with synced bytes; nil in health. A reader sees the prefix all the same
}

// Log is all audit leaves of a database: the archive and, in memory, the tail
// of leaves that are only in the log. It is safe for concurrent use.
//
// Locks, taken in this order:
//
//	archiving       one Archive, Prune, Close or start of Verify at a time; files are written under it
//	comparing       comparisons of recovery with the archive; files are read under it
//	traces.mu       the hashes of traces; the index is read under it
//	mu              the fields below it; no file is touched and nothing outside this package is called
//
// For its users these locks come last in the order of locks. Reading leaves takes mu only while a
// view is copied.
//
// A leaf goes through these places. It can be read in each, and its index never changes:
//
//	tail        AddNew, AddRun, Add: in memory and in the tree; the log has it
//	both        Archive has written it and not yet returned: the copy in memory still answers
//	archive     archivedUpTo has dropped it from the tail
//	stub        Prune has removed the body; hash and index stay
type Log struct {
	archiving sync.Mutex // one Archive, Prune or Close at a time; taken before mu

	mu     sync.RWMutex // guards the following
	now    view         // replaced or appended to; what a copy points at never changes
	tree   Frontier     // over now.size() leaves
	marked stamp        // what the archive's mark said at open: the tree must pass through it
	failed error        // the first failed write of the archive
	closed bool
	unlike map[uint64]error // in a reader: leaves whose bytes differ in log and archive
	grown  chan struct{}    // closed with the next leaf, or with the log; nil: no caller waits

	comparing sync.Mutex // taken before mu
	traces    traces
	ahead     []slot   // archived leaves that the next comparisons will ask for; guarded by comparing
	passed    Frontier // of the last mark that was right: most of the next one's is the same; guarded by comparing
}

// Open opens the archive in dir, and creates it unless read-only. A nil fs is the operating
// system's. If a crash interrupted the last call of Archive, the archive is cut back to its mark.
// The leaves that were cut are still in the log and come back through Add.
//
// Errors: ErrNewerFormat; an error of the system if bytes could not be read,
// which says nothing about the bytes; codec.CorruptError if the mark is missing or
// does not agree with the tree. Read-only, such damage is in Report.Damage
// instead, and the whole prefix can be read.
func Open(ctx context.Context, dir string, fs wal.FS, opts Options) (*Log, Report, error) {
	if fs == nil {
		fs = wal.OS()
	}
	if opts.SegmentSize == 0 {
		opts.SegmentSize = defaultSegment
	}
	if opts.SegmentSize < 0 || opts.SegmentSize > maxSegment || len(opts.DB) > 255 {
		return nil, Report{}, fmt.Errorf("manifest: segment size %d or database id of %d bytes out of range; at most %d and 255", opts.SegmentSize, len(opts.DB), maxSegment)
	}
	a := &archive{dir: dir, fs: fs, readOnly: opts.ReadOnly, segSize: opts.SegmentSize, seal: opts.Seal}
	l, rep, err := open(ctx, a, opts.DB)
	if opts.ReadOnly && !a.sameGeneration() && ctx.Err() == nil { // a prune changed files meanwhile
		a.close()
		return Open(ctx, dir, fs, opts)
	}
	if err != nil {
		a.close()
		return nil, Report{}, err
	}
	return l, rep, nil
}

// sameGeneration reports whether the mark is still of the generation that was opened.
func (a *archive) sameGeneration() bool {
	now, err := a.readMark()
	return err != nil || now.gen == a.mark.gen
}

// open opens an archive and puts a log over it. The tree continues from the stored hashes.
func open(ctx context.Context, a *archive, db string) (*Log, Report, error) {
	rep, err := a.open(ctx, db)
	if err != nil {
		return nil, rep, err
	}
	l := &Log{now: view{arch: a, segs: a.segs, archived: rep.Archived}, marked: a.mark}
	l.tree, err = frontierAt(rep.Archived, &l.now)
	return l, rep, err
}

// OpenReader opens the archive read-only beside a process that may be writing
// it, and takes the leaves behind it from tail, which calls add for every leaf
// in the log, in order. If a checkpoint moved leaves from the log into the
// archive between the two reads, both are read again. Archived leaves that are
// damaged, or differ from the log, are in Report.Damage and are no
// error; Verify names all.
//
// seal opens the bodies of a sealed archive; nil: it is not sealed.
func OpenReader(ctx context.Context, dir string, fs wal.FS, seal Sealer, tail func(add func(index uint64, body []byte) error) error) (*Log, Report, error) {
	for try := 0; ; try++ {
		l, rep, err := Open(ctx, dir, fs, Options{ReadOnly: true, Seal: seal})
		if err != nil {
			return nil, rep, err
		}
		err = tail(func(index uint64, body []byte) error {
			err := l.Add(index, body)
			var damaged *codec.CorruptError
			if !errors.As(err, &damaged) || index >= l.Archived() {
				return err
			}
			rep.damage(err)
			l.note(index, err)
			return nil
		})
		if err == nil {
			return l, rep, nil
		}
		l.Close()
		if !errors.Is(err, ErrGap) || try == 2 {
			return nil, rep, err
		}
	}
}

// view returns the log as it is now.
func (l *Log) view() (*view, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, ErrClosed
	}
	v := l.now
	return &v, nil
}

// snapshot is view with at least size leaves.
func (l *Log) snapshot(size uint64) (*view, error) {
	v, err := l.view()
	if err == nil && size > v.size() {
		err = fmt.Errorf("%w: %d leaves asked for, the log has %d", manifest.ErrNoLeaf, size, v.size())
	}
	return v, err
}

// Size returns the number of leaves.
func (l *Log) Size() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.now.size()
}

// Wait returns Size. If the log has no more than size leaves, Wait first waits for another one, at
// most for the time wait. Errors: ErrClosed, the error of ctx.
func (l *Log) Wait(ctx context.Context, size uint64, wait time.Duration) (uint64, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		now, grown, err := l.awaited(size)
		if err != nil || now > size {
			return now, err
		}
		select {
		case <-grown:
		case <-timer.C:
			return now, nil
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}

// awaited is the size, and what ends when it grows beyond one.
func (l *Log) awaited(size uint64) (now uint64, grown <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now = l.now.size(); now > size {
		return now, nil, nil
	}
	if l.closed {
		return now, nil, ErrClosed
	}
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return now, l.grown, nil
}

// wake ends all waits; the caller holds mu.
func (l *Log) wake() {
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// Archived returns the number of leaves in the archive.
func (l *Log) Archived() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.now.archived
}

// Marked returns how many leaves the mark vouched for when the archive was opened. Recovery has
// failed as long as Size is below it: new leaves in the place of lost ones would become a second
// history, and the next mark would hide it.
func (l *Log) Marked() uint64 { return l.marked.size }

// Add takes the leaf at index, which must be Size, and copies body. A leaf that
// the log already has is compared instead: recovery adds all leaves of the log,
// and where log and archive overlap their bytes must match. Errors: ErrGap,
// codec.CorruptError, ErrNewerFormat.
func (l *Log) Add(index uint64, body []byte) error {
	if index < l.Size() {
		return l.compare(index, body)
	}
	r, err := rowOf(body)
	if err != nil {
		return leafError(index, err)
	}
	leaf := Leaf{leaf: tailLeaf{row: r, body: bytes.Clone(body)}}
	return l.AddRun(index, []*Leaf{leaf.hashed()})
}

// Leaf is an encoded leaf, ready to be added. It shares no memory with the
// record it was made from.
type Leaf struct {
	leaf tailLeaf
	hash manifest.Hash // of the body, if has is set
	has  bool
	part bool // it has a parent
}

// NewLeaf encodes and hashes a leaf, before the caller waits for its place.
// Errors: as Encode.
func NewLeaf(r *manifest.Record) (Leaf, error) {
	l, err := EncodeLeaf(r)
	if err != nil {
		return l, err
	}
	return *l.hashed(), nil
}

// EncodeLeaf encodes a leaf and leaves its hash to AddRun. It is for leaves of reads: their caller
// waits until the leaf is with the operating system, and the hash was an eighth of that time.
// Errors: as Encode.
func EncodeLeaf(r *manifest.Record) (Leaf, error) {
	enc := encodings.Get().(*encoding)
	defer enc.release()
	out, err := enc.encode(r)
	if err != nil {
		return Leaf{}, err
	}
	body := enc.keep(out)
	return Leaf{leaf: tailLeaf{row: rowOfRecord(r, len(body)), body: body}, part: r.Parent != ""}, nil
}

// hashed is the leaf with its hash.
func (l *Leaf) hashed() *Leaf {
	if !l.has {
		l.hash, l.has = LeafHash(l.leaf.body), true
	}
	return l
}

// Body returns the encoded leaf. It must not be changed.
func (l *Leaf) Body() []byte { return l.leaf.body }

// Trace is the hash of the leaf's trace (HashTrace).
func (l *Leaf) Trace() uint32 { return l.leaf.row.trace }

// Parent is the hash of the trace of its parent, the low 24 bits; false: it has none.
func (l *Leaf) Parent() (uint32, bool) { return l.leaf.row.parent, l.part }

// AddNew is Add for a leaf that the log does not have yet.
func (l *Log) AddNew(index uint64, leaf Leaf) error { return l.AddRun(index, []*Leaf{&leaf}) }

// AddRun is AddNew for leaves that follow each other.
func (l *Log) AddRun(index uint64, leaves []*Leaf) error {
	for _, leaf := range leaves {
		leaf.hashed()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if size := l.now.size(); index != size {
		return fmt.Errorf("%w: leaf %d was given, the next is %d", ErrGap, index, size)
	}
	for _, leaf := range leaves {
		if err := l.push(leaf.leaf, leaf.hash); err != nil {
			return err
		}
	}
	return nil
}

// push appends; the caller holds mu. An archive that lost synced leaves gets
// them back this way, and then the tree must be the one that its mark vouched
// for.
func (l *Log) push(leaf tailLeaf, hash manifest.Hash) error {
	l.now.tail = append(l.now.tail, leaf)
	l.now.hashes = l.tree.addTo(l.now.hashes, hash)
	l.wake()
	if l.tree.Size == l.marked.size && l.tree.Root() != l.marked.root {
		return corruptAt(markName, headerSize, noLeaf, fmt.Errorf("the first %d leaves of the log are not those of the mark", l.tree.Size))
	}
	return nil
}

// compareLeaves is the number of archived leaves that a comparison reads at once.
// Recovery asks for one after the other, and two reads for each took half the
// time of opening a file whose log is still there.
const compareLeaves = 32

// compare refuses a leaf of the log that differs from the one that is there. Of a pruned leaf only
// the hash is left to compare with.
func (l *Log) compare(index uint64, body []byte) error {
	have, err := l.stored(index)
	if err != nil {
		return err
	}
	same := bytes.Equal(have.body, body)
	if have.row.pruned {
		v, err := l.view()
		if err != nil {
			return err
		}
		hash, err := v.hash(0, int64(index))
		if err != nil {
			return err
		}
		same = hash == LeafHash(body)
	}
	if !same {
		return &codec.CorruptError{File: audit, Unit: codec.UnitLeaf, Num: index, Err: errUnlike, Hint: hintRestore}
	}
	return nil
}

var errUnlike = errors.New("the log and the archive hold different bytes")

// note keeps a difference that Verify cannot see in the archive alone.
func (l *Log) note(index uint64, err error) {
	if !errors.Is(err, errUnlike) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unlike == nil {
		l.unlike = map[uint64]error{}
	}
	l.unlike[index] = err
}

// stored returns a leaf that the log has.
func (l *Log) stored(index uint64) (slot, error) {
	v, err := l.view()
	if err != nil {
		return slot{}, err
	}
	if index >= v.archived {
		body, err := v.body(index)
		return slot{body: body}, err
	}
	l.comparing.Lock()
	defer l.comparing.Unlock()
	if len(l.ahead) == 0 || index < l.ahead[0].index || index > l.ahead[len(l.ahead)-1].index {
		l.ahead = v.block(index, min(index+compareLeaves, v.archived))
	}
	s := l.ahead[index-l.ahead[0].index]
	if index == l.ahead[len(l.ahead)-1].index {
		l.ahead = nil
	}
	return s, s.err
}

// Archive copies the leaves [Archived, upTo) into the archive and syncs it. They must be durable in
// the log; when Archive returns nil the log may drop them. A crash or error at any point leaves an
// archive that opens as before the call or as after it. After a failed write or sync every further
// call returns ErrFailed until the log is opened again; reads and Add go on. If ctx ends, or the
// disk is full, the call ends between two writes without that consequence: what was written is cut
// off, and a later call writes it again.
func (l *Log) Archive(ctx context.Context, upTo uint64) error {
	l.archiving.Lock()
	defer l.archiving.Unlock()
	v, err := l.pending(upTo)
	if err != nil || upTo <= v.archived {
		return err
	}
	a := v.arch
	x, err := v.added(upTo)
	if err != nil {
		return err
	}
	segs, mark, err := a.write(ctx, x)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		a.uncut = true
		if !noSpace(err) && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
			l.failed = err
			err = fmt.Errorf("%w; close the database and open it again", err)
		}
		return err
	}
	a.segs, a.mark = segs, mark
	l.archivedUpTo(upTo, segs)
	return nil
}

// pending returns the view from which leaves up to upTo can be archived, or why
// they cannot. The caller holds archiving, so the border does not move.
func (l *Log) pending(upTo uint64) (*view, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	v := l.now
	switch {
	case l.closed:
		return nil, ErrClosed
	case v.arch.readOnly:
		return nil, errReadOnly
	case l.failed != nil:
		return nil, fmt.Errorf("%w: %w", ErrFailed, l.failed)
	case upTo > v.size():
		return nil, fmt.Errorf("%w: %d leaves to archive, the log has %d", manifest.ErrNoLeaf, upTo, v.size())
	case upTo > v.archived && upTo < v.arch.mark.size:
		return nil, corruptAt(markName, headerSize, int64(upTo), fmt.Errorf("the mark vouches for %d leaves, only %d are there", v.arch.mark.size, upTo))
	}
	return &v, nil
}

// added returns what the archive lacks up to upTo.
func (v *view) added(upTo uint64) (added, error) {
	root, err := v.root(upTo)
	n := upTo - v.archived
	return added{
		from:   v.archived,
		leaves: v.tail[:n],
		hashes: v.hashes[:hashCount(upTo)-hashCount(v.archived)],
		root:   root,
	}, err
}

// archivedUpTo drops the head of the tail; the caller holds mu. The rest is
// copied, so that the memory of the dropped leaves is freed.
func (l *Log) archivedUpTo(upTo uint64, segs []segment) {
	from := l.now.archived
	l.now = view{
		arch:     l.now.arch,
		segs:     segs,
		archived: upTo,
		tail:     slices.Clone(l.now.tail[upTo-from:]),
		hashes:   slices.Clone(l.now.hashes[hashCount(upTo)-hashCount(from):]),
	}
}

// Root returns the root over the first size leaves.
func (l *Log) Root(size uint64) (manifest.Hash, error) {
	v, err := l.snapshot(size)
	if err != nil {
		return manifest.Hash{}, err
	}
	return v.root(size)
}

// Head returns Root as a head that can be kept elsewhere; now is the caller's
// clock in unix µs. Ask only for sizes that are synced: a head that was given
// out must stay provable.
func (l *Log) Head(size uint64, now int64) (manifest.Head, error) {
	root, err := l.Root(size)
	if err != nil {
		return manifest.Head{}, err
	}
	return manifest.Head{DB: l.DB(), Size: size, Root: root, Time: now}, nil
}

// DB returns the id of the database that the archive was made for.
func (l *Log) DB() string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.marked.db
}

// Mark returns the body of a mark record over the first size leaves; see the
// type Mark.
func (l *Log) Mark(size uint64) ([]byte, error) {
	v, err := l.snapshot(size)
	if err != nil {
		return nil, err
	}
	f, err := frontierAt(size, v)
	if err != nil {
		return nil, err
	}
	return Mark{Root: f.Root(), Frontier: f}.Encode(), nil
}

// CheckMark compares a mark of the log with the leaves. codec.CorruptError: they
// give another root, or there are fewer than the mark vouches for.
func (l *Log) CheckMark(body []byte) error {
	m, err := ParseMark(body)
	if err != nil {
		return err
	}
	v, err := l.view()
	if err != nil {
		return err
	}
	n := m.Frontier.Size
	if n > v.size() {
		return &codec.CorruptError{File: audit, Unit: codec.UnitLeaf, Num: v.size(), Err: fmt.Errorf("a mark vouches for %d leaves, %d are there", n, v.size()), Hint: hintRestore}
	}
	l.comparing.Lock()
	defer l.comparing.Unlock()
	f, err := l.passed.at(n, v)
	switch {
	case err != nil:
		return err
	case f.Root() != m.Root:
		return &codec.CorruptError{File: audit, Err: fmt.Errorf("the first %d leaves do not give the root of the mark", n), Hint: hintRestore}
	}
	l.passed = f
	return nil
}

// Close closes the files. It does not archive the tail: those leaves are in the
// log.
func (l *Log) Close() error {
	l.archiving.Lock()
	defer l.archiving.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.wake()
	return l.now.arch.close()
}
