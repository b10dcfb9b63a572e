package wal

import (
	"context"
	"errors"
	"fmt"
)

// Hole is a part of a log that cannot be read.
type Hole struct {
	From, To uint64 // the first and last missing record; To 0: the last is not known; From 0: nor the first, nor whether any is missing
	Torn     bool   // no record follows: a crash leaves such an end, and then nothing in it was acknowledged
	Err      error
}

// ScanIntact calls fn for every whole record of the log in dir, in order. It is for salvage: where
// records cannot be read, it goes on with the next whole one and reports the hole. first is the number
// of the first record, according to the names of the segments; earlier records were dropped or are
// lost. A log that Open reads completely has no hole except a torn end. A log without a segment is one
// hole, of fs.ErrNotExist. A file that could be a segment and has another name is a hole with From 0.
// ScanIntact changes nothing. The log must not be written during the scan. An error of fn ends it and
// is returned; a nil fsys is OS().
func ScanIntact(ctx context.Context, dir string, fsys FS, fn func(Record) error) (first uint64, holes []Hole, err error) {
	if fsys == nil {
		fsys = OS()
	}
	ls, err := listAll(fsys, dir)
	if err != nil {
		return 0, nil, err
	}
	for _, err := range ls.odd {
		holes = append(holes, Hole{Err: err})
	}
	if len(ls.segs) == 0 {
		return 0, append(holes, Hole{From: 1, Err: noSegment(dir)}), nil
	}
	first = ls.segs[0].first
	next, tail := uint64(0), intactTail(fsys, ls.segs)
	for i, seg := range ls.segs[:tail+1] {
		one := listing{segs: []*segment{seg}}
		if err := one.open(fsys); err != nil {
			one.close()
			to := uint64(0)
			if i+1 < len(ls.segs) {
				to = ls.segs[i+1].first - 1
			}
			holes, next = append(holes, Hole{From: max(next, seg.first), To: to, Err: err}), to+1
			continue
		}
		if next != 0 && seg.first > next {
			holes = append(holes, Hole{From: next, To: seg.first - 1, Err: errors.New("no segment has them")})
		}
		s := intact{ctx: ctx, seg: seg, fn: fn, next: max(next, seg.first), last: i == tail, alone: i == len(ls.segs)-1}
		if i < tail {
			s.until = ls.segs[i+1].first
		}
		err := s.scan()
		one.close()
		holes, next = append(holes, s.holes...), s.next
		if err != nil {
			return first, holes, err
		}
	}
	return first, holes, nil
}

// intactTail is findTail where a segment may be damaged: one that cannot be read or was cut counts
// as not empty.
func intactTail(fsys FS, segs []*segment) int {
	for i := len(segs) - 1; i > 0; i-- {
		one := listing{segs: segs[i : i+1]}
		empty, err := false, one.open(fsys)
		if err == nil {
			empty, err = segs[i].empty()
		}
		if err == nil {
			err = segs[i].checkLength(segHead, segs[i].first)
		}
		one.close()
		if err != nil || !empty {
			return i
		}
	}
	return 0
}

// intact reads one segment.
//
//	frame ──▶ frame ──▶ bad ──eighth byte by eighth byte──▶ frame (a hole of known records) ──▶ …
//	                     └──nothing but zeros, or the end──▶ a hole up to the next segment, or a torn end
type intact struct {
	ctx   context.Context
	seg   *segment
	fn    func(Record) error
	next  uint64 // records below it were given to fn, or are lost
	last  bool   // the log ends in it and needs no seal: only empty segments follow
	alone bool   // no segment follows at all: a seal would promise one
	until uint64 // the first record of the next segment; 0: it is not known where this one ends
	close bool   // the record before next carries Close
	holes []Hole
}

// scan walks the segment. Behind damage it tries each eighth byte, where a frame can begin; a frame
// is taken only if both of its sums are right. Behind damage this stays linear: where the content
// ends is asked once for each hole, and a place at which no frame begins costs its head alone.
func (s *intact) scan() error {
	w, err := newWindow(s.seg.file)
	if err != nil {
		return err
	}
	defer w.release()
	hole, end := int64(0), int64(0) // where reading failed (0: nowhere), and behind which offset there are only zeros
	for off := int64(segHead); ; {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		f, err := s.frame(w, off)
		switch {
		case err == nil && f.seq >= s.next:
			if f.seq > s.next {
				torn := s.last && f.flags == flagSeal && f.durable < s.next // a crash within a rotation
				s.holes = append(s.holes, Hole{From: s.next, To: f.seq - 1, Torn: torn, Err: s.seg.corrupt(max(hole, segHead), s.next, errTorn)})
			}
			hole, s.next = 0, f.seq
			if f.flags == flagSeal {
				if s.seg.end = off + f.size; s.alone {
					s.holes = append(s.holes, Hole{From: s.next, Err: missingNext(s.seg, s.next)})
				}
				return nil
			}
			rec := Record{Seq: f.seq, Kind: f.kind, Durable: f.durable, Close: f.flags == flagClose, Body: f.body, Sealed: s.seg.sealed, Segment: s.seg.path, Offset: off}
			if err := s.fn(rec); err != nil {
				return err
			}
			s.next++
			s.close = rec.Close
			off += f.size
		case err == nil || errors.Is(err, errTorn) || errors.Is(err, errSenseless):
			if hole == 0 {
				hole = off
				if end, err = w.contentEnd(off); err != nil {
					return err
				}
			}
			if off += frAlign; off >= end {
				s.end(hole, end)
				return nil
			}
		default:
			s.rest(Hole{Err: fmt.Errorf("wal: read %s at %d: %w", s.seg.path, off, err)})
			return nil
		}
	}
}

// frame reads what begins at off. It is cheap where no frame begins: it is called at every eighth
// byte behind damage.
func (s *intact) frame(w *window, off int64) (frame, error) {
	head, err := w.at(off, frameHead)
	if err != nil {
		return frame{}, err
	}
	if !headOK(head, s.seg.key) {
		return frame{}, errTorn
	}
	var f frame
	err = f.read(w, off, s.seg.key)
	return f, err
}

// end judges an end that no frame follows: zeros where the log ends are its end, anything else is a
// hole. So is the end of a file that was cut.
func (s *intact) end(hole, end int64) {
	if s.last && s.close && end == hole {
		return
	}
	if err := s.seg.checkLength(hole, s.next); err != nil {
		s.rest(Hole{Err: err})
	} else if !s.last || end > hole {
		s.rest(Hole{Torn: s.last, Err: s.seg.corrupt(hole, s.next, errTorn)})
	}
}

// rest adds the hole from here to the end of the segment. The next segment says which record that
// is. A segment that lost only its seal lost no record.
func (s *intact) rest(h Hole) {
	switch {
	case s.until == 0:
		h.From = s.next
	case s.next < s.until:
		h.From, h.To, s.next = s.next, s.until-1, s.until
	}
	s.holes = append(s.holes, h)
}
