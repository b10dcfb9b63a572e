package filestore

import (
	"io"
	"os"
	"syscall"
)

// Values of whence for lseek.
const (
	seekData = 3
	seekHole = 4
)

// dataBytes counts how many of the first size bytes of a file are data and not holes. A file system
// without holes reports everything as data.
func dataBytes(r io.ReaderAt, size int64) (n int64) {
	f, ok := r.(*os.File)
	if !ok {
		return size
	}
	fd := int(f.Fd()) // seeking disturbs no reader: all reads are ReadAt
	for at := int64(0); at < size; {
		data, err := syscall.Seek(fd, at, seekData)
		if err == syscall.ENXIO || err == nil && data >= size {
			return n
		}
		hole, herr := syscall.Seek(fd, data, seekHole)
		if err != nil || herr != nil {
			return size
		}
		n += min(hole, size) - data
		at = hole
	}
	return n
}
