package wal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// reader walks the records of a listing in order and judges what it cannot read. It changes
// nothing; repair acts on its result.
//
// The judgement on an unreadable record rests on one rule: a crash can only tear what was not yet
// synced. So a bad record is cut if it can be the first that was never durable, and is damage if
// anything says that it was durable once (witness).
//
//	at each frame         whole ──▶ hand it on
//	   │ senseless        written here on purpose, and not of this place ──▶ corrupt
//	   │ torn, only zeros behind, in the tail ──▶ ended
//	   │ torn, a witness says it was durable ──▶ look again (a live writer) ──▶ whole, or corrupt
//	   └ torn, no witness ──▶ cut here
type reader struct {
	ctx context.Context
	fn  func(Record) error

	next      uint64 // the expected record
	lastClose bool   // the record before next carries Close
	lastAt    int64  // its offset
	rec       Recovery
}

// outcome of one segment.
type outcome struct {
	sealed bool
	cut    bool
}

// walk reads all segments. tail is the index of the segment in which the log ends: the last one
// that has anything behind its header. Later ones are empty, because a crash came between their
// creation and their first record.
func (r *reader) walk(segs []*segment) (tail int, out outcome, err error) {
	if tail, err = findTail(segs); err != nil {
		return 0, out, err
	}
	r.next = segs[0].first
	r.rec.First = segs[0].first
	r.rec.Segments = len(segs)
	for i := 0; i <= tail; i++ {
		if i > 0 {
			if err := follows(segs[i], segs[i-1], r.next); err != nil {
				return tail, out, err
			}
		}
		if out, err = r.segment(segs[i], i == tail); err != nil {
			return tail, out, err
		}
	}
	for _, empty := range segs[tail+1:] {
		if err := empty.checkLength(segHead, empty.first); err != nil {
			return tail, out, err
		}
	}
	r.rec.Last = r.next - 1
	r.rec.Fresh = r.next == 1 && !out.cut
	r.rec.Clean = r.lastClose && !out.cut && !out.sealed && tail == len(segs)-1
	return tail, out, nil
}

// findTail returns the last segment that has anything: empty ones behind it are left over from a
// rotation.
func findTail(segs []*segment) (int, error) {
	for i := len(segs) - 1; i > 0; i-- {
		if empty, err := segs[i].empty(); err != nil || !empty {
			return i, err
		}
	}
	return 0, nil
}

// empty reports whether nothing is behind the header of an open segment.
func (s *segment) empty() (bool, error) {
	w, err := newWindow(s.file)
	if err != nil {
		return false, fmt.Errorf("wal: read segment: %w", err)
	}
	defer w.release()
	end, err := w.contentEnd(segHead)
	if err != nil {
		return false, fmt.Errorf("wal: read segment: %w", err)
	}
	return end == segHead, nil
}

// follows checks that seg continues the log after prev, whose successor must begin with record
// next.
func follows(seg, prev *segment, next uint64) error {
	if seg.first != next {
		return seg.corrupt(0, next, fmt.Errorf("expected a segment that begins with record %d, found one that begins with %d: a segment is missing or foreign", next, seg.first))
	}
	if seg.prevSalt != prev.salt {
		return seg.corrupt(0, next, fmt.Errorf("it was not written after %s: a segment was exchanged", prev.path))
	}
	return nil
}

// segment passes on the records of seg. In any segment but the tail every record must be there, and
// the seal.
func (r *reader) segment(seg *segment, isTail bool) (out outcome, err error) {
	w, err := newWindow(seg.file)
	if err != nil {
		return out, fmt.Errorf("wal: read segment: %w", err)
	}
	defer w.release()
	seg.end = segHead
	var f frame
	for !out.sealed {
		if err := r.frame(&f, w, seg); err != nil {
			end, err := r.judge(w, seg, isTail, err)
			if err != nil || end != retry {
				return outcome{cut: end == torn}, err
			}
			continue
		}
		if out.sealed = f.flags == flagSeal; !out.sealed {
			if err := r.hand(seg, &f); err != nil {
				return out, err
			}
		}
		seg.end += f.size
	}
	end, err := w.contentEnd(seg.end)
	if err == nil && end > seg.end {
		err = seg.corrupt(seg.end, r.next, errors.New("the segment is sealed, but more bytes follow the seal"))
	}
	return out, err
}

// frame reads the frame at seg.end, which must be record r.next or a seal, into f.
func (r *reader) frame(f *frame, w *window, seg *segment) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	err := f.read(w, seg.end, seg.key)
	if err == nil && f.seq != r.next {
		err = fmt.Errorf("%w it is record %d: a record is missing, repeated or exchanged", errSenseless, f.seq)
	}
	return err
}

// hand passes a record to the callback and goes on to the next.
func (r *reader) hand(seg *segment, f *frame) error {
	if r.fn != nil {
		rec := Record{Seq: f.seq, Kind: f.kind, Durable: f.durable, Close: f.flags == flagClose,
			Body: f.body, Sealed: seg.sealed, Segment: seg.path, Offset: seg.end}
		if err := r.fn(rec); err != nil {
			return err
		}
	}
	r.next++
	r.lastClose, r.lastAt = f.flags == flagClose, seg.end
	return nil
}

// ending says why reading a segment stopped.
type ending int

const (
	ended ending = iota // zeros only behind the last record
	torn                // a torn or unsynced record: the log is cut here
	retry               // it can be read now: a live writer was at work
)

// judge says why seg cannot be read at seg.end. A bad record is cut only if nothing says that it
// was durable once; see witness.
func (r *reader) judge(w *window, seg *segment, isTail bool, cause error) (ending, error) {
	switch {
	case errors.Is(cause, errSenseless):
		return 0, seg.corrupt(seg.end, r.next, cause)
	case !errors.Is(cause, errTorn):
		return 0, fmt.Errorf("wal: read %s at %d: %w", seg.path, seg.end, cause)
	}
	end, err := w.contentEnd(seg.end)
	if err != nil {
		return 0, fmt.Errorf("wal: read %s: %w", seg.path, err)
	}
	if isTail && !(r.lastClose && end == seg.end) { // a file that was closed cleanly has all its records
		if err := seg.checkLength(seg.end, r.next); err != nil {
			return 0, err
		}
	}
	if isTail && end == seg.end {
		return ended, nil
	}
	witness, err := r.witness(w, seg, isTail, end)
	if err != nil {
		return 0, fmt.Errorf("wal: read %s: %w", seg.path, err)
	}
	if witness != nil {
		return retry, r.reread(w, seg, fmt.Errorf("%w; %w", cause, witness))
	}
	r.rec.CutFile, r.rec.CutAt, r.rec.CutBytes = seg.path, seg.end, end-seg.end
	return torn, nil
}

// witness looks for proof that record r.next, unreadable at seg.end, was durable: a later segment
// that has records, or a later whole record whose Durable covers it. Without proof, a crash before
// the sync explains everything. Behind end there are only zeros. It costs a pass over the bytes up
// to end, so it is asked only where a frame is bad.
func (r *reader) witness(w *window, seg *segment, isTail bool, end int64) (proof, err error) {
	if !isTail {
		return errors.New("a later segment holds records, so this one was complete"), nil
	}
	for off := seg.end + frAlign; off < end && off+frameHead <= w.size; off += frAlign {
		head, err := w.at(off, frameHead)
		if errors.Is(err, errTorn) {
			return nil, nil // a live writer gave preallocated space back
		}
		if err != nil {
			return nil, err
		}
		if !headOK(head, seg.key) {
			continue
		}
		// A body may hold a copy of a piece of log; what was copied is older than this record and
		// claims less.
		var f frame
		if err = f.read(w, off, seg.key); err == nil && f.durable >= r.next {
			return fmt.Errorf("record %d behind it says that record %d was durable", f.seq, f.durable), nil
		}
		if err != nil && !errors.Is(err, errTorn) && !errors.Is(err, errSenseless) {
			return nil, err
		}
	}
	return nil, nil
}

// reread reads the record once more. Beside a live writer it may have been half written at the
// first look, and its witness not yet at the second. With a witness it must be whole by now.
func (r *reader) reread(w *window, seg *segment, cause error) error {
	w.refresh()
	size, err := seg.file.Size()
	if err != nil {
		return fmt.Errorf("wal: read %s: %w", seg.path, err)
	}
	w.size = size
	if err := r.frame(&frame{}, w, seg); err != nil {
		if errors.Is(err, errTorn) || errors.Is(err, errSenseless) {
			return seg.corrupt(seg.end, r.next, cause)
		}
		return fmt.Errorf("wal: read %s: %w", seg.path, err)
	}
	return nil
}

// scanTries bounds how often Scan lists again because a writer dropped or replaced a segment
// between listing and opening. Each time takes a checkpoint or an Open at just that moment.
const scanTries = 100

// Scan calls fn for each record of the log in dir, in order; an error of fn ends it and is returned.
// It takes no lock and changes nothing, so it may run beside a live writer. It then sees a prefix of
// the log that ends at or after what was durable when it began. A torn end is not an error; Recovery
// reports it. A missing directory is an empty log. A nil fn only checks; a nil fsys is OS().
func Scan(ctx context.Context, dir string, fsys FS, fn func(Record) error) (Recovery, error) {
	if fsys == nil {
		fsys = OS()
	}
	ls, err := openListing(fsys, dir)
	if err != nil {
		return Recovery{}, err
	}
	defer func() { ls.close() }()
	if len(ls.segs) == 0 {
		return Recovery{Fresh: true, First: 1}, nil
	}
	r := &reader{ctx: ctx, fn: fn}
	tail, out, err := r.walk(ls.segs)
	if err == nil && out.sealed && tail == len(ls.segs)-1 {
		err = rotated(fsys, dir, ls.segs[tail], r.next)
	}
	return r.rec, err
}

// rotated checks that a segment that was sealed since it was listed has, or had, a successor. A
// successor that was dropped again is no loss: a later segment is there then.
func rotated(fsys FS, dir string, seg *segment, next uint64) error {
	now, err := list(fsys, dir)
	if err != nil {
		return err
	}
	if n := len(now.segs); n == 0 || now.segs[n-1].first < next {
		return missingNext(seg, next)
	}
	return nil
}

// missingNext is the error for a segment whose seal promises a successor that is not there.
func missingNext(seg *segment, next uint64) error {
	return seg.corrupt(seg.end, next, errors.New("it is sealed, but the segment after it is missing"))
}

// openListing lists and opens, again if a file vanished in between.
func openListing(fsys FS, dir string) (ls listing, err error) {
	for range scanTries {
		if ls, err = list(fsys, dir); err != nil {
			return ls, err
		}
		if err = ls.open(fsys); err == nil {
			return ls, nil
		}
		ls.close()
		if !errors.Is(err, os.ErrNotExist) {
			return ls, err
		}
	}
	return ls, err
}

var (
	// ErrPoisoned: a write or sync failed, so the outcome of everything that is not yet durable is
	// unknown. It wraps the cause. Close the log and open it again; nothing else helps, because a
	// sync is never retried.
	ErrPoisoned = errors.New("wal: log is poisoned by a failed write or sync; close and reopen it")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("wal: log is closed")
	// ErrFull: the disk is full. Nothing was enqueued and the log is not poisoned; Close has the space
	// that it needs, and urgent records may have it.
	ErrFull = errors.New("wal: disk is full; free some space")
)

// errReadOnly answers every change of a log that was opened read-only.
var errReadOnly = errors.New("wal: log is open read-only")
