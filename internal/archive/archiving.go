package archive

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"golang.org/x/mod/sumdb/tlog"
)

// Archiving: leaves move from the tail in memory into the files. The second column says what a
// crash after the step leaves:
//
//	bodies    frames into the last segment and new ones, synced      bytes behind the mark; the next open cuts them off
//	rows      into index, synced                                     the same
//	hashes    into hashes, synced                                    the same
//	names     the directory is synced, if segments were made         the same
//	mark      written as mark.tmp, synced, renamed                   the old mark or the new one; both are true
//	name      the directory is synced                                the new mark stays
//
// So an archive opens as before an archiving or after it, and the leaves of an
// unfinished one are still in the log.

// added has the leaves that one archiving appends.
type added struct {
	from   uint64
	leaves []tailLeaf
	hashes []manifest.Hash
	root   manifest.Hash // over from + len(leaves)
}

// write appends leaves and returns the new segments and mark, which the caller
// installs. Bodies, rows and hashes are synced before the mark is replaced.
// After an error nothing is installed, and the next try writes over what this
// one left.
func (a *archive) write(ctx context.Context, x added) ([]segment, stamp, error) {
	if a.uncut {
		if _, err := a.cut(x.from); err != nil {
			return nil, stamp{}, err
		}
	}
	w := bodyWriter{a: a, segs: slices.Clone(a.segs)}
	err := w.bodies(ctx, x)
	if err == nil {
		err = writeSync(a.index, w.rows, rowOffset(x.from))
	}
	if err == nil {
		err = writeSync(a.hashes, hashBytes(x.hashes), hashOffset(int64(hashCount(x.from))))
	}
	if err == nil && w.made > 0 {
		err = a.fs.SyncDir(a.dir)
	}
	s := stamp{db: a.mark.db, gen: a.mark.gen, size: x.from + uint64(len(x.leaves)), root: x.root}
	if err == nil {
		err = a.writeMark(s)
	}
	if err != nil {
		w.abandon()
		if noSpace(err) { // give back the space
			_, cerr := a.cut(x.from)
			err = errors.Join(err, cerr)
		}
		return nil, stamp{}, err
	}
	return w.segs, s, nil
}

// noSpace reports whether the disk was full and nothing that the mark covers is
// in doubt.
func noSpace(err error) bool {
	return system.NoSpace(err) && !errors.Is(err, errRenamed)
}

// writeSync writes bytes at an offset and makes them durable.
func writeSync(f wal.File, b []byte, off int64) error {
	if _, err := f.WriteAt(b, off); err != nil {
		return fmt.Errorf("manifest: write the archive: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("manifest: sync the archive: %w", err)
	}
	return nil
}

// hashBytes are hashes one after the other, as the file has them.
func hashBytes(hashes []manifest.Hash) []byte {
	b := make([]byte, 0, len(hashes)*tlog.HashSize)
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	return b
}

// bodyWriter writes frames into segments and collects the rows.
type bodyWriter struct {
	a    *archive
	segs []segment
	made int // how many of segs are new
	rows []byte
	form formWriter
	buf  []byte // frames of the last segment that are not written yet; they end at its end
}

// bodies writes the frames of leaves, in segments of a bounded size, and collects their rows. The
// end of ctx is noticed between two writes.
func (w *bodyWriter) bodies(ctx context.Context, x added) error {
	for k, leaf := range x.leaves {
		i := x.from + uint64(k)
		body, r, err := w.a.stored(i, leaf.body, leaf.row, &w.form)
		if err != nil {
			return err
		}
		if err := w.segmentFor(i, frameSize+int64(len(body))); err != nil {
			return err
		}
		last := &w.segs[len(w.segs)-1]
		r.off = uint32(last.end)
		w.rows = r.append(w.rows, i)
		w.buf = appendFrame(w.buf, i, body)
		last.end = r.end()
		if len(w.buf) >= writeChunk {
			if err := errors.Join(ctx.Err(), w.flush()); err != nil {
				return err
			}
		}
	}
	return w.sync()
}

// segmentFor begins a new segment for leaf i, if the frame does not fit into
// the last one.
func (w *bodyWriter) segmentFor(i uint64, frame int64) error {
	if k := len(w.segs); k > 0 && w.segs[k-1].end+frame <= w.a.segSize {
		return nil
	}
	if err := w.sync(); err != nil {
		return err
	}
	f, err := w.a.make(segmentName(i, 0), kindLeaves, i)
	if err != nil {
		return err
	}
	w.made++
	w.segs = append(w.segs, segment{first: i, file: f, end: headerSize})
	return nil
}

// flush writes the frames that are buffered.
func (w *bodyWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	last := w.segs[len(w.segs)-1]
	if _, err := last.file.WriteAt(w.buf, last.end-int64(len(w.buf))); err != nil {
		return fmt.Errorf("manifest: write the archive: %w", err)
	}
	w.buf = w.buf[:0]
	return nil
}

// sync writes and syncs the last segment.
func (w *bodyWriter) sync() error {
	if len(w.segs) == 0 {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.segs[len(w.segs)-1].file.Sync(); err != nil {
		return fmt.Errorf("manifest: sync the archive: %w", err)
	}
	return nil
}

// abandon closes the segments that this writer made. Their files are
// overwritten or removed later.
func (w *bodyWriter) abandon() {
	for _, s := range w.segs[len(w.segs)-w.made:] {
		s.file.Close()
	}
}

// unreadable reports whether an error says nothing of the bytes themselves: they need another program, or a key, or another
// try.
func unreadable(err error) bool {
	return errors.Is(err, codec.ErrNewerFormat) || errors.Is(err, codec.ErrOldFormat) || errors.Is(err, ErrSealed) || codec.Unread(err)
}

// denseBody is the dense form of a body whose row is r, borrowed from w; false: it is no shorter. A
// sealed archive has none: the length of a sealed leaf must not tell how much of it repeats.
func denseBody(w *codec.DenseWriter, body []byte, r row) ([]byte, bool) {
	last := 0
	if r.rows {
		t, err := tallyOf(body)
		if last = t.bytes(); err != nil || last > len(body) {
			return nil, false
		}
	}
	form := w.Form(body, last)
	return form, len(form) < len(body)
}

// leavesAhead is how many leaves are read at a time, and readersAhead how many readers do it.
const (
	leavesAhead  = 128
	readersAhead = 4
)

type records interface {
	Records(ctx context.Context, from, to uint64, reverse bool, limit int) ([]*manifest.Record, error)
}

// EachAhead calls fn for the first size leaves, in order, until fn, a leaf or ctx fails. Most of the time goes into decoding
// them, so parts of them are read side by side: one for each reader is in memory, and the one that fn is shown. No reader is left when it returns.
func EachAhead(ctx context.Context, a records, size uint64, fn func(*manifest.Record) error) error {
	type part struct {
		records []*manifest.Record
		err     error
	}
	readers := min(runtime.GOMAXPROCS(0), readersAhead)
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	var ahead []chan part // in the order of their leaves
	for from := uint64(0); from < size || len(ahead) > 0; {
		for ; from < size && len(ahead) < readers; from += leavesAhead {
			at, to, next := from, min(from+leavesAhead, size), make(chan part, 1)
			ahead = append(ahead, next)
			reading.Go(func() {
				var p part
				for more := true; more && at < to; {
					var some []*manifest.Record
					some, p.err = a.Records(ctx, at, to, false, int(to-at))
					p.records, at = append(p.records, some...), at+uint64(len(some))
					more = p.err == nil && len(some) > 0
				}
				next <- p
			})
		}
		p := <-ahead[0]
		ahead = ahead[1:]
		for _, r := range p.records {
			if err := fn(r); err != nil {
				return err
			}
		}
		if p.err != nil {
			return p.err
		}
	}
	return nil
}
