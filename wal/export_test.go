package wal

import "context"

// Resume is Scan of a log of one segment, taken up at record seq, which begins at offset off, as if the records before
// it had just been read.
func Resume(dir string, fsys FS, seq uint64, off int64, fn func(Record) error) (Recovery, error) {
	ls, err := openListing(fsys, dir, 0)
	if err != nil {
		return Recovery{}, err
	}
	defer ls.close()
	r := &reader{ctx: context.Background(), fn: fn, next: seq}
	ls.segs[0].end = off
	_, err = r.segment(ls.segs[0], true)
	r.rec.Last = r.next - 1
	return r.rec, err
}

// ReadFrames decodes the frames of data as the records of a segment with the given key and returns how
// many there are and how it ended; for the fuzzer.
func ReadFrames(f File, key uint64) (n int, err error) {
	w, err := newWindow(f)
	if err != nil {
		return 0, err
	}
	for off := int64(0); ; n++ {
		fr, err := readFrame(w, off, key)
		if err != nil {
			return n, err
		}
		off += fr.size
	}
}

// Frame encodes one frame.
func Frame(key uint64, kind Kind, flags byte, seq, durable uint64, body []byte) []byte {
	b := appendFrame(nil, kind, flags, seq, body)
	finishFrame(b, key, durable)
	return b
}

// Torn and Senseless are the two ways in which bytes are no frame.
var (
	Torn      = errTorn
	Senseless = errSenseless
)
