package filestore

import (
	"encoding/binary"
	"io"
	"os"
	"slices"
)

// After a boot nothing of the file is in the page cache. An open that walks the rows through
// bbolt's mapping then faults one page of 4 KiB after the other, each a request to the disk that
// nothing else overlaps. So the pages that every open walks are read first, in the order of the
// file and in large requests:
//
//	cached    is the file in the page cache? A sample tells; then nothing is read
//	leaves    page numbers of a bucket's leaves, from its branches alone, which are one page in a hundred
//	runs      pages near each other become one read; what lies between costs less than another request
//
// It is only a hint: nothing that it reads is kept or trusted. The first error ends it silently,
// because the open that follows finds the same damage and can report it.
//
// Measured at 100,000 pages of 130 bytes with the page cache dropped: an open takes .77 s without
// it and .19 with (medians of six by turns; .1 when all is in the cache). Rejected: fadvise
// WILLNEED for the whole file, which the kernel serves in part (1.1 times), and to read the whole
// file, most of which is text that no open needs.

const (
	warmSample = 32        // places of the file that are asked for
	warmFrom   = 4 << 20   // bytes; a smaller file is read fast enough by faults
	warmGap    = 256 << 10 // bytes between two pages that are read as one run
	warmRead   = 1 << 20   // bytes of one read
	warmDepth  = 16        // levels of a tree; two pages a level are a file of 256 MiB
)

// warmed are the buckets that every open walks whole, and the rows of the index that make its
// columns.
var warmed = []string{string(bucketMeta), string(bucketHeld), string(bucketState), string(bucketSeg)}

// warm brings what an open reads into the page cache, if it is not there.
func warm(f *os.File, size int64) {
	if size >= warmFrom && !inPageCache(f, size) {
		readRows(f, size)
	}
}

// readRows reads the pages of the buckets that every open walks.
func readRows(f *os.File, size int64) {
	m, err := newestMeta(f, size)
	if err != nil {
		return
	}
	w := &warming{f: f, m: m}
	roots := w.buckets()
	for _, name := range warmed {
		if root := roots[name]; root != 0 {
			w.leaves(root)
		}
	}
	w.read()
}

// warming collects the pages to read.
type warming struct {
	f   io.ReaderAt
	m   boltMeta
	ids []uint64
}

// boltElement is an entry of a page, as bbolt's format has it.
type boltElement struct {
	flags      uint32
	child      uint64 // of a branch
	key, value []byte // of a leaf
}

// elements reads the entries of a page; leaf says of which kind they are. nil: it cannot be read.
func (w *warming) elements(id uint64) (all []boltElement, leaf bool) {
	const element = 16
	head, err := w.m.page(w.f, id, boltLeaf|boltBranch)
	if err != nil {
		return nil, false
	}
	overflow := int64(binary.NativeEndian.Uint32(head[12:]))
	if overflow > warmRead/w.m.pageSize { // a row of this size is none of those that branches or buckets have
		return nil, true
	}
	b := make([]byte, (1+overflow)*w.m.pageSize)
	if _, err := w.f.ReadAt(b, int64(id)*w.m.pageSize); err != nil {
		return nil, false
	}
	u32 := binary.NativeEndian.Uint32
	leaf = binary.NativeEndian.Uint16(b[8:]) == boltLeaf
	count := int(binary.NativeEndian.Uint16(b[10:]))
	if boltPageHead+count*element > len(b) {
		return nil, leaf
	}
	for i := range count {
		at := boltPageHead + i*element
		e := b[at:]
		if !leaf {
			all = append(all, boltElement{child: binary.NativeEndian.Uint64(e[8:])})
			continue
		}
		key := uint64(at) + uint64(u32(e[4:]))
		value := key + uint64(u32(e[8:]))
		end := value + uint64(u32(e[12:]))
		if end > uint64(len(b)) {
			return nil, leaf
		}
		all = append(all, boltElement{flags: u32(e), key: b[key:value], value: b[value:end]})
	}
	return all, leaf
}

// buckets returns the root pages of the buckets; a small bucket has none of its own.
func (w *warming) buckets() map[string]uint64 {
	roots := map[string]uint64{}
	all, leaf := w.elements(w.m.root)
	if !leaf { // as many buckets as fill a page: not a file of ours
		return nil
	}
	for i := range all {
		if e := &all[i]; e.flags&1 != 0 && len(e.value) >= 8 {
			roots[string(e.key)] = binary.NativeEndian.Uint64(e.value)
		}
	}
	return roots
}

// leaves adds the leaves below a page. All leaves of a tree are at one depth, so the first way down
// says how many levels of branches there are, and no leaf is read to learn that it is one.
func (w *warming) leaves(root uint64) {
	depth := 0
	for id := root; ; depth++ {
		all, leaf := w.elements(id)
		if leaf || len(all) == 0 {
			break
		}
		if depth == warmDepth { // a circle
			return
		}
		id = all[0].child
	}
	level := []uint64{root}
	for range depth {
		var below []uint64
		for _, id := range level {
			all, leaf := w.elements(id)
			if leaf || uint64(len(below)+len(all)) > w.m.high { // no level has more pages than the file
				return
			}
			for i := range all {
				below = append(below, all[i].child)
			}
		}
		level = below
	}
	w.ids = append(w.ids, level...)
}

// read reads the pages in the order of the file. It discards the bytes: the page cache has them
// now.
func (w *warming) read() {
	slices.Sort(w.ids)
	buf, gap := make([]byte, warmRead), uint64(warmGap/w.m.pageSize)
	for i := 0; i < len(w.ids); {
		first, last := w.ids[i], w.ids[i]
		for i < len(w.ids) && w.ids[i] <= last+gap {
			last = w.ids[i]
			i++
		}
		for at, end := int64(first)*w.m.pageSize, int64(last+1)*w.m.pageSize; at < end; at += warmRead {
			if _, err := w.f.ReadAt(buf[:min(warmRead, end-at)], at); err != nil {
				return
			}
		}
	}
}
