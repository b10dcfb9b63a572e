package wal

import (
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/system"
)

// appender writes to the end of the active segment, and keeps zeros written ahead of it.
//
// Why zeros: an fdatasync of a file that grew also commits its size to the file system's journal;
// over zeros that are there already it flushes data alone. Measured on ext4, 1 KiB records, one
// writer, append + fdatasync:
//
//	growing file                          205–230 µs
//	zeros in steps of 256 KiB             131 µs
//	zeros in steps of 1 MiB               140 µs
//	zeros in steps of 4 MiB               150 µs
//	fallocate in steps of 4 MiB           150 µs; its extents must still be converted
//
// On a full disk urgent records, a checkpoint (Shrink), a rotation and Close use the zeros.
//
// The file, from its beginning:
//
//	0 ...... end ............. alloc
//	 frames      zeros
//
// end only grows, by whole groups. Log.wmu guards all of it.
type appender struct {
	*segment       // end: where the next frame goes; length: guarded by Log.lead
	alloc    int64 // the file has zeros from end to here
	least    int64 // the reserve of a short segment
	step     int64 // the largest step of preallocation; half of it is the largest reserve
	full     bool  // the last attempt to preallocate found no space
	tail     tail  // a window over the zeros
}

var zeros [256 << 10]byte // never written to

// errNothingWritten: there was no space for a group, and none of it reached the file.
var errNothingWritten = errors.New("nothing of the group was written")

// append writes b at the end. errNothingWritten: no space, and the file is as it was.
func (a *appender) append(b []byte) error { return a.put(b, false) }

// put is append; with unsynced, b is not about to be synced. end grows only when all of b is there.
// A write that failed in the middle left bytes behind end that nobody reads as records: the log is
// poisoned, and the next Open cuts them.
func (a *appender) put(b []byte, unsynced bool) error {
	if err := a.ahead(int64(len(b))); err != nil {
		return err
	}
	if unsynced && a.tail.copyIn(a.file, b, a.end, a.alloc) {
		a.end += int64(len(b))
		return nil
	}
	if _, err := a.file.WriteAt(b, a.end); err != nil {
		return fmt.Errorf("write %s: %w", a.path, err)
	}
	a.end += int64(len(b))
	return nil
}

// ahead preallocates so that n bytes fit and the reserve remains behind them. If the disk is full
// and the n bytes fit in what is there, it only notes that (full). So a group that passes here is
// not ended by a full disk in the middle, where the file system writes in place.
func (a *appender) ahead(n int64) error {
	reserve, step := a.spaceAt(a.end + n)
	if need := a.end + n + reserve; need > a.alloc {
		target := (need + step - 1) / step * step
		err := a.extend(target)
		if err != nil && !noSpace(err) {
			return fmt.Errorf("preallocate %s: %w", a.path, err)
		}
		a.full = a.alloc < need
		if a.end+n > a.alloc {
			return fmt.Errorf("%w: %w", errNothingWritten, err)
		}
	}
	return nil
}

// spaceAt returns reserve and step of a segment whose records end at end. Both grow with it, so that a short log takes little
// space and a long one is seldom extended. What a checkpoint may need on a full disk grows with the log, too.
func (a *appender) spaceAt(end int64) (reserve, step int64) {
	reserve = a.least
	for reserve < end/2 {
		reserve *= 2
	}
	if reserve >= a.step/2 {
		return a.step / 2, a.step
	}
	return reserve, reserve / 4
}

// extend writes zeros up to target, and counts those that reached the file even if an error ends
// it.
func (a *appender) extend(target int64) error {
	for a.alloc < target {
		n, err := a.file.WriteAt(zeros[:min(int64(len(zeros)), target-a.alloc)], a.alloc)
		a.alloc += int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// errNoSpace is the error of the operating system for a full disk.
var errNoSpace = system.ErrNoSpace

// noSpace reports whether an error means a full disk, or a quota. A new segment that has its name
// already is not taken back for it (errNamed).
func noSpace(err error) bool {
	return system.NoSpace(err) && !errors.Is(err, errNamed)
}

// close ends the window and closes the file. No other goroutine may append meanwhile.
func (a *appender) close() error {
	a.tail.close(a.file)
	return a.file.Close()
}

// syncTo syncs the file and notes in its header that its first n bytes are on the disk.
func (a *appender) syncTo(n int64, sync func(File) error) error {
	err := sync(a.file)
	if err == nil && n > a.length {
		if err = a.note(n); noSpace(err) { // where a write takes new blocks; a smaller length is right, too
			err = nil
		}
	}
	return err
}

// note writes the length into the header; see lengthField.
func (a *appender) note(n int64) error {
	_, err := a.file.WriteAt(lengthField(a.key, n), shLength)
	if err == nil {
		a.length = n
	}
	return err
}

// trim syncs the file and returns preallocated space to the disk, except keep bytes.
func (a *appender) trim(keep int64, sync func(File) error) error {
	if a.alloc <= a.end+keep {
		return sync(a.file)
	}
	return a.shorten(a.end+keep, sync)
}

// shorten syncs the file and cuts it to n bytes. A length above n is lowered durably before, or a crash
// between the two would look like damage. One below n is raised only after the sync, as in syncTo: what
// was written behind it may not be on the disk before.
func (a *appender) shorten(n int64, sync func(File) error) (err error) {
	if n < a.length {
		err = a.note(n)
	}
	if err == nil {
		err = sync(a.file)
	}
	if err == nil {
		err = a.file.Truncate(n)
	}
	if err == nil && n > a.length {
		if err = a.note(n); noSpace(err) { // a smaller length is right, too
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("shorten %s: %w", a.path, err)
	}
	a.alloc = n
	return nil
}
