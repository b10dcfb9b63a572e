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

// dataBytes counts the bytes of the first size ones that are no holes of the file. A file system
// that knows of no holes says that all is data.
func dataBytes(r io.ReaderAt, size int64) (n int64) {
	f, ok := r.(*os.File)
	if !ok {
		return size
	}
	fd := int(f.Fd()) // its place in the file is nobody's: all reads are ReadAt
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
