package wal

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// scanTries bounds how often Scan lists anew because a writer dropped or replaced a segment between the
// listing and the opening; each time takes a checkpoint or an Open in just that moment.
const scanTries = 100

// Scan reads the log in dir from record from on and hands each to fn, in order; fn's error ends it and is
// returned. It takes no lock and changes nothing, so it may run beside a live writer: it then sees a prefix
// of the log that ends at or after what was durable when it began. A torn end is not an error; Recovery
// tells of it. Records below from are checked where they share a segment with it. If the log begins after
// from, Scan begins there: look at Recovery.First. A missing directory is an empty log.
func Scan(ctx context.Context, dir string, fsys FS, from uint64, fn func(Record) error) (Recovery, error) {
	if fsys == nil {
		fsys = OS()
	}
	r := &reader{ctx: ctx, from: from, fn: fn}
	oldest := uint64(0)
	for {
		ls, err := openListing(fsys, dir, r.from)
		if err != nil {
			return r.rec, err
		}
		if len(ls.segs) == 0 {
			r.rec = Recovery{Fresh: true, First: 1}
			return r.rec, nil
		}
		if oldest == 0 {
			oldest = ls.first
		}
		more, err := r.scan(fsys, dir, ls)
		ls.close()
		r.rec.First, r.rec.Segments = oldest, ls.count
		if err != nil || !more {
			return r.rec, err
		}
		r.from = r.next
	}
}

// scan walks one listing. more: the log was rotated meanwhile and goes on in a segment not in it.
func (r *reader) scan(fsys FS, dir string, ls listing) (more bool, err error) {
	if len(ls.segs) > 0 && r.next != 0 && ls.segs[0].first > r.next {
		return false, fmt.Errorf("wal: scan: records from %d on were dropped while reading; start again", r.next)
	}
	tail, out, err := r.walk(ls.segs)
	if err != nil || !out.sealed || tail != len(ls.segs)-1 {
		return false, err
	}
	now, err := list(fsys, dir)
	if err != nil {
		return false, err
	}
	if n := len(now.segs); n == 0 || now.segs[n-1].first < r.next {
		return false, missingNext(ls.segs[tail], r.next)
	}
	return true, nil
}

func missingNext(seg *segment, next uint64) error {
	return seg.corrupt(seg.end, next, errors.New("it is sealed, but the segment after it is missing"))
}

// openListing lists and opens, anew if a file vanished in between.
func openListing(fsys FS, dir string, from uint64) (ls listing, err error) {
	for range scanTries {
		if ls, err = list(fsys, dir); err != nil {
			return ls, err
		}
		if err = ls.open(fsys, from); err == nil {
			return ls, nil
		}
		ls.close()
		if !errors.Is(err, os.ErrNotExist) {
			return ls, err
		}
	}
	return ls, err
}
