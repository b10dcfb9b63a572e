package wal

// ReadFrames decodes the frames of data as the records of a segment with the given key and returns how
// many there are and how it ended; for the fuzzer.
func ReadFrames(f File, key uint64) (n int, err error) {
	w, err := newWindow(f)
	if err != nil {
		return 0, err
	}
	for off := int64(0); ; n++ {
		var fr frame
		err := fr.read(w, off, key)
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

// Durable returns the newest record that is durable and that OnDurable has returned for.
func (l *Log) Durable() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

// Torn and Senseless are the two ways in which bytes are no frame.
var (
	Torn      = errTorn
	Senseless = errSenseless
)

// Window reports whether groups that are not about to be synced go through a window of memory.
func (l *Log) Window() bool {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return l.act.tail.mem != nil && !l.act.tail.no
}

// CopyOrFault is the copy into the window.
var CopyOrFault = copyOrFault
