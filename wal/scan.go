package wal

import (
	"context"
	"errors"
	"os"
)

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
