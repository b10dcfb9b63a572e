package archive

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"maps"
	"math"
	"slices"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
)

// A prune removes the bodies of leaves and keeps their hashes, so the tree, every head and every
// proof stay as they were. A stub replaces the body: the trace of the prune, then the fields of the
// leaf that name no person and no content (StubOf). A leaf of type prune, under the tree like any
// other, names the leaves it covers and has a digest of their stubs. So Verify finds a stub that
// was edited or that no prune leaf vouches for, and an attacker cannot hide a leaf by making a stub
// of it.
//
//	plan      Log.PlanPrune makes the prune leaf from the bodies                            nothing changed
//	vouch     the caller writes that leaf into the log and syncs it                         the bodies are still there
//	copy      segments with covered leaves, and the index, as files of the next generation  leftovers; open removes them
//	mark      names the generation, and replaces the old mark by a rename                   all of it counts, or nothing
//	remove    the files of the generation before                                            leftovers; open removes them
//
// A stub depends only on the body and the trace of the prune leaf. So an interrupted prune can be
// finished from its prune leaf alone.

// The actions of a prune leaf.
const (
	ActionPrune = "prune" // by age
	ActionErase = "erase" // by name, with what was erased
)

// MaxCovers bounds the leaves that one prune leaf covers.
const MaxCovers = 1 << 20

// StubOf returns the stub of a leaf: its type, time and LSN, the ids that the program made, the
// status of the batch, and the numbers and salted digests that rows are compared with. The stub of
// an erase keeps its operator and reason.
func StubOf(r *manifest.Record) *manifest.Record {
	s := &manifest.Record{
		Type: r.Type, Trace: ownID(r.Trace), Parent: ownID(r.Parent), Time: r.Time, LSN: r.LSN, ReadOnly: r.ReadOnly, ServeStale: r.ServeStale, Review: r.Review,
		Batch: ownID(r.Batch), From: ownID(r.From), Status: r.Status, Rows: r.Rows, State: r.State,
	}
	if r.Type == manifest.TypeErase {
		s.Action, s.By, s.Reason, s.Note, s.Query = r.Action, r.By, r.Reason, r.Note, r.Query
	}
	for _, w := range r.Writes {
		w.Ref = ""
		s.Writes = append(s.Writes, w)
	}
	return s
}

// ownID keeps an id that the program made. A caller's own may be a name.
func ownID(s string) string {
	if id, err := ulid.ParseStrict(s); err != nil || !prints(id, s) {
		return ""
	}
	return s
}

// stubHead is the trace of the prune leaf, before the record of a stub.
const stubHead = 16

// stubBytes makes the stub of a leaf: the trace of the prune, then the encoded record of StubOf.
func stubBytes(i uint64, body []byte, by ulid.ULID) ([]byte, error) {
	r, err := Decode(i, body)
	if err != nil {
		return nil, err
	}
	if !Prunable(r.Type) {
		return nil, fmt.Errorf("manifest: leaf %d is of type %s, which is never pruned", i, r.Type)
	}
	s, err := Encode(StubOf(r))
	return append(by.Bytes(), s...), err
}

// openStub parts a stub into the trace of its prune leaf and its record.
func openStub(i uint64, stub []byte) (trace string, body []byte, err error) {
	if len(stub) < stubHead {
		return "", nil, leafError(i, fmt.Errorf("a stub of %d bytes", len(stub)))
	}
	return ulid.ULID(stub[:stubHead]).String(), stub[stubHead:], nil
}

// stubRow makes the row of a stub.
func stubRow(stub []byte) (row, error) {
	r, err := rowOf(stub[stubHead:])
	r.pruned, r.size = true, uint32(len(stub))
	return r, err
}

// stub decodes what is left of leaf i.
func (v *view) stub(i uint64, stub []byte) (*manifest.Record, error) {
	trace, body, err := openStub(i, stub)
	if err != nil {
		return nil, err
	}
	r, err := Decode(i, body)
	if err == nil {
		r.Pruned, err = v.pruner(trace)
	}
	return r, err
}

// pruner returns what the prune leaf of a trace says.
func (v *view) pruner(trace string) (*manifest.Pruned, error) {
	if p, ok := v.arch.pruners.Load(trace); ok {
		return p.(*manifest.Pruned), nil
	}
	out := &manifest.Pruned{Trace: trace, Action: "pruned"}
	h := HashTrace(trace)
	err := v.find(context.Background(), func(r row) bool { return r.typ == manifest.TypePrune && r.trace == h && !r.pruned }, func(i uint64) (bool, error) {
		r, err := v.leaf(i)
		if err != nil || r.Trace != trace {
			return err == nil, err
		}
		if out.Leaf, out.At, out.By = r.Index, r.Time, r.By; r.Action == ActionErase {
			out.Action = "erased"
		}
		v.arch.pruners.Store(trace, out)
		return false, nil
	})
	return out, err
}

// prunedError says when and by whom the body of a leaf was removed.
func (v *view) prunedError(i uint64, stub []byte) error {
	r, err := v.stub(i, stub)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: leaf %d was %s", manifest.ErrPruned, i, r.Pruned)
}

// vouching is the digest of the stubs of one prune, in the order of the log.
type vouching struct {
	sum hash.Hash
	n   uint64
}

// add takes in the next stub: its index, its length, the hash of the leaf and its bytes.
func (c *vouching) add(i uint64, leaf manifest.Hash, stub []byte) {
	if c.sum == nil {
		c.sum = sha256.New()
	}
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], i)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(stub)))
	c.sum.Write(b[:])
	c.sum.Write(leaf[:])
	c.sum.Write(stub)
	c.n++
}

// EachOf calls fn for the leaves of ranges, until it fails.
func EachOf(spans []manifest.Span, fn func(i uint64) error) error {
	for _, s := range spans {
		for i := s[0]; i < s[1]; i++ {
			if err := fn(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// Parts splits ranges into parts of at most MaxCovers leaves, one for each prune leaf.
func Parts(spans []manifest.Span) (parts [][]manifest.Span) {
	var part []manifest.Span
	remaining := uint64(MaxCovers)
	for _, s := range spans {
		for s[0] < s[1] {
			end := min(s[1], s[0]+remaining)
			part, remaining = append(part, manifest.Span{s[0], end}), remaining-(end-s[0])
			if s[0] = end; remaining == 0 {
				parts, part, remaining = append(parts, part), nil, MaxCovers
			}
		}
	}
	if len(part) > 0 {
		parts = append(parts, part)
	}
	return parts
}

// PlanPrune makes the prune leaf for at most MaxCovers archived leaves; leaves that are
// stubs already, or not Prunable, are passed over. r has its Trace (a ULID), Time, By and Action.
// The caller writes the leaf into the log, syncs it, and calls Prune. A Size of 0: there is nothing
// to prune.
func (l *Log) PlanPrune(ctx context.Context, r manifest.Record, leaves []manifest.Span) (*manifest.Record, error) {
	by, err := ulid.ParseStrict(r.Trace)
	if err != nil || r.By == "" {
		return nil, fmt.Errorf("manifest: a prune by %q under trace %q; expected a name and a ULID", r.By, r.Trace)
	}
	v, err := l.view()
	if err != nil {
		return nil, err
	}
	var c vouching
	var whole []uint64
	err = EachOf(leaves, func(i uint64) error {
		if i >= v.archived || c.n == MaxCovers {
			return fmt.Errorf("manifest: prune leaf %d: expected at most %d archived leaves; the archive has %d", i, MaxCovers, v.archived)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		row, body, err := v.archivedBody(i)
		if err != nil || row.pruned {
			return err
		}
		if !Prunable(row.typ) {
			return nil
		}
		stub, err := stubBytes(i, body, by)
		if err == nil {
			c.add(i, LeafHash(body), stub)
			whole = append(whole, i)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.Type, r.Size, r.Covers = manifest.TypePrune, c.n, SpansOf(whole)
	if c.n > 0 {
		r.Root = c.sum.Sum(nil)
	}
	return &r, nil
}

// Prune carries out a prune leaf, which must be durable in the log. Covered leaves that are stubs
// already are left alone, so a prune that a crash interrupted is called again. When it returns nil
// no file of the archive has a body of a covered leaf. Readers that began before go on with the old
// files, whose space is free once they end.
//
// Errors: codec.CorruptError if the prune leaf does not vouch for the stubs of what it covers; nothing
// is changed then. Otherwise as Archive.
func (l *Log) Prune(ctx context.Context, p *manifest.Record) error {
	l.archiving.Lock()
	defer l.archiving.Unlock()
	v, err := l.pending(0)
	if err != nil {
		return err
	}
	w, err := newPruner(v, p)
	if err != nil {
		return err
	}
	todo, err := w.vouched(ctx)
	if err == nil && !todo && v.arch.uncut { // the old files of an earlier call
		_, err = v.arch.cut(v.archived)
	}
	if err == nil && todo {
		err = v.arch.awake()
	}
	if err != nil || !todo {
		return err
	}
	next, err := w.run(ctx)
	if err != nil {
		if errors.Is(err, errRenamed) { // which of the two marks the disk has is not known
			l.mu.Lock()
			l.failed = err
			l.mu.Unlock()
		}
		return err
	}
	l.comparing.Lock()
	l.ahead = nil
	l.comparing.Unlock()
	l.mu.Lock()
	l.now.arch, l.now.segs = next, next.segs
	l.mu.Unlock()
	// The old files are not closed here: views may still read them. The runtime closes a file when
	// the last reference to it is gone.
	_, err = next.cut(v.archived)
	return err
}

// pruner is one Prune.
type pruner struct {
	v    *view
	p    *manifest.Record
	by   ulid.ULID
	rows []byte   // of the new index
	made []string // files
	next *archive
}

// newPruner prepares a Prune. It refuses a leaf that is no prune, or that covers leaves which are
// not archived.
func newPruner(v *view, p *manifest.Record) (*pruner, error) {
	by, err := ulid.ParseStrict(p.Trace)
	if n := len(p.Covers); err != nil || p.Type != manifest.TypePrune || n > 0 && p.Covers[n-1][1] > v.archived {
		return nil, fmt.Errorf("manifest: leaf %d of type %s is no prune of the %d archived leaves", p.Index, p.Type, v.archived)
	}
	a := v.arch
	return &pruner{v: v, p: p, by: by, next: &archive{dir: a.dir, fs: a.fs, segSize: a.segSize, seal: a.seal, hashes: a.hashes, mark: a.mark, uncut: true}}, nil
}

// vouched compares what the prune leaf vouches for with the bodies, before anything is written.
// todo: there are some.
func (w *pruner) vouched(ctx context.Context) (todo bool, err error) {
	var c vouching
	err = EachOf(w.p.Covers, func(i uint64) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, b, err := w.v.archivedBody(i)
		if err != nil {
			return err
		}
		leaf, err := w.v.hash(0, int64(i))
		if err != nil {
			return err
		}
		if !r.pruned {
			todo = true
			if LeafHash(b) != leaf {
				return corruptAt(leavesName, int64(r.off), int64(i), errors.New("the leaf does not give the stored hash"))
			}
			if b, err = stubBytes(i, b, w.by); err != nil {
				return err
			}
		}
		c.add(i, leaf, b)
		return nil
	})
	if err == nil && todo && (c.n != w.p.Size || !slices.Equal(c.sum.Sum(nil), w.p.Root)) {
		err = corruptAt(leavesName, 0, int64(w.p.Index), errors.New("the prune leaf does not vouch for the stubs of the leaves that it covers"))
	}
	return todo, err
}

// run writes the files of the next generation, and the mark that names it.
func (w *pruner) run(ctx context.Context) (*archive, error) {
	a, next := w.v.arch, w.next
	if a.uncut {
		if _, err := a.cut(w.v.archived); err != nil {
			return nil, err
		}
	}
	next.mark.gen++
	err := w.files(ctx)
	if err == nil {
		err = a.fs.SyncDir(a.dir)
	}
	if err == nil {
		if err = next.writeMark(next.mark); errors.Is(err, errRenamed) {
			return nil, err
		}
	}
	if err != nil {
		for _, name := range w.made {
			_ = a.fs.Remove(a.path(name)) // else the next open does
		}
		return nil, fmt.Errorf("manifest: prune: %w", err)
	}
	return next, nil
}

// files writes the segments that have covered leaves, takes over the others, and writes the index
// of all.
func (w *pruner) files(ctx context.Context) error {
	for k, s := range w.v.segs {
		to := w.v.archived
		if k+1 < len(w.v.segs) {
			to = w.v.segs[k+1].first
		}
		write := w.keep
		if slices.ContainsFunc(w.p.Covers, func(c manifest.Span) bool { return c[0] < to && c[1] > s.first }) {
			write = w.rewrite
		}
		if err := write(ctx, s, to); err != nil {
			return err
		}
	}
	f, err := w.make(indexFile(w.next.mark.gen), kindIndex, 0)
	if err != nil {
		return err
	}
	w.next.index = f
	return writeSync(f, w.rows, headerSize)
}

// make makes a file of the next generation, and notes its name so that a failed prune can remove
// it.
func (w *pruner) make(name string, kind byte, first uint64) (wal.File, error) {
	w.made = append(w.made, name)
	return w.next.make(name, kind, first)
}

// keep takes a segment over as it is, with its rows.
func (w *pruner) keep(ctx context.Context, s segment, to uint64) error {
	for i := s.first; i < to; {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows, err := w.v.rowsFrom(i)
		if err != nil {
			return err
		}
		for _, r := range rows[:min(uint64(len(rows)), to-i)] {
			w.rows = r.append(w.rows, i)
			i++
		}
	}
	w.next.segs = append(w.next.segs, s)
	return nil
}

// rewrite writes a segment anew, with stubs in the place of covered leaves.
func (w *pruner) rewrite(ctx context.Context, s segment, to uint64) error {
	out := segment{first: s.first, gen: w.next.mark.gen, end: headerSize}
	var err error
	if out.file, err = w.make(out.name(), kindLeaves, s.first); err != nil {
		return err
	}
	var buf []byte
	var form formWriter
	err = w.v.each(ctx, s.first, to, false, func(x slot) error {
		r, body, err := w.left(x)
		if err == nil {
			body, r, err = w.next.stored(x.index, body, r, &form)
		}
		if err != nil {
			return err
		}
		if out.end+frameSize+int64(len(body)) > math.MaxUint32 {
			return fmt.Errorf("segment %s is too large for its stubs", out.name())
		}
		r.off = uint32(out.end)
		w.rows = r.append(w.rows, x.index)
		buf = appendFrame(buf, x.index, body)
		if out.end = r.end(); len(buf) >= writeChunk {
			_, err = out.file.WriteAt(buf, out.end-int64(len(buf)))
			buf = buf[:0]
		}
		return err
	})
	if err == nil {
		err = writeSync(out.file, buf, out.end-int64(len(buf)))
	}
	w.next.segs = append(w.next.segs, out)
	return err
}

// left returns what stands in the place of a leaf from now on.
func (w *pruner) left(x slot) (row, []byte, error) {
	if x.err != nil || x.row.pruned || !Covered(w.p.Covers, x.index) {
		return x.row, x.body, x.err
	}
	body, err := stubBytes(x.index, x.body, w.by)
	if err != nil {
		return row{}, nil, err
	}
	r, err := stubRow(body)
	return r, body, err
}

// stubCheck collects, during a Verify, what stubs say of themselves and what prune leaves vouch
// for.
type stubCheck struct {
	groups map[string]*stubGroup       // by the trace of the prune leaf
	prunes map[string]*manifest.Record // likewise; few, because each covers many leaves
}

// stubGroup is the stubs that name one prune leaf.
type stubGroup struct {
	vouching
	leaves []manifest.Span
}

// stub notes a stub under the prune leaf that it names.
func (k *stubCheck) stub(c *verifier, s slot, hash manifest.Hash) {
	trace, _, err := openStub(s.index, s.body)
	if err != nil {
		c.problem(int64(s.index), err)
		return
	}
	if k.groups == nil {
		k.groups = map[string]*stubGroup{}
	}
	g := k.groups[trace]
	if g == nil {
		g = &stubGroup{}
		k.groups[trace] = g
	}
	g.add(s.index, hash, s.body)
	if n := len(g.leaves); n > 0 && g.leaves[n-1][1] == s.index {
		g.leaves[n-1][1]++
	} else {
		g.leaves = append(g.leaves, manifest.Span{s.index, s.index + 1})
	}
}

// leaf notes a prune leaf. It comes after the leaves that it covers.
func (k *stubCheck) leaf(c *verifier, s slot) {
	if s.row.typ != manifest.TypePrune {
		return
	}
	r, err := Decode(s.index, s.body)
	if err != nil {
		c.problem(int64(s.index), err)
		return
	}
	if k.prunes == nil {
		k.prunes = map[string]*manifest.Record{}
	}
	if k.prunes[r.Trace] == nil { // a second one under the same trace vouches for nothing
		k.prunes[r.Trace] = r
	}
}

var (
	errNotVouched = errors.New("a stub that no prune leaf vouches for: its body was removed outside ctxpage")
	errStubEdited = errors.New("the stubs of a prune are not those that its leaf vouches for")
)

// end compares the two.
func (k *stubCheck) end(c *verifier) {
	for _, trace := range slices.Sorted(maps.Keys(k.groups)) {
		g, p := k.groups[trace], k.prunes[trace]
		alien := false
		_ = EachOf(g.leaves, func(i uint64) error {
			if p == nil || i >= p.Index || !Covered(p.Covers, i) {
				alien = true
				c.problem(int64(i), corruptAt(leavesName, 0, int64(i), errNotVouched))
			}
			return nil
		})
		if first := g.leaves[0][0]; !alien && (g.n != p.Size || !slices.Equal(g.sum.Sum(nil), p.Root)) {
			c.problem(int64(first), corruptAt(leavesName, 0, int64(first), errStubEdited))
		}
	}
}
