package engine

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/numbers"
)

// maxReaders is the most goroutines that read at an open: the host has work of its own.
const maxReaders = 4

// runParallel runs functions on several processors until one returns false. It reports whether all
// returned true.
func runParallel(all ...func() bool) bool {
	var wait sync.WaitGroup
	var next atomic.Int64
	var bad atomic.Bool
	for range min(runtime.GOMAXPROCS(0), maxReaders, len(all)) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all) && !bad.Load(); i = int(next.Add(1)) - 1 {
				if !all[i]() {
					bad.Store(true)
				}
			}
		})
	}
	wait.Wait()
	return !bad.Load()
}

// readColumns builds a catalogue from a snapshot. Sizes come first, so that all columns are allocated once and their parts can be read on several processors.
// ok is false for a snapshot that does not decode; it is then ignored, because everything in it can
// be loaded from the rows.
//
// A snapshot is read only after its digest was compared with the audit, so the decoder guards
// against damage and other programs, not against forgers.
func readColumns(of *Columns) (c *catalogue, ok bool) {
	c = newCatalogue()
	d := &codec.Decoder{B: of.one(partSizes)}
	var n [4]int
	for i := range n {
		n[i] = int(d.Uvarint())
	}
	for _, at := range []*int{&c.used, &c.live, &c.livePages, &c.versions, &c.dropped} {
		*at = int(d.Uvarint())
	}
	arts, pages, table := of.of(partArts), of.of(partPages), of.of(partTable)
	parts := func(n int) int { return (n + partRows - 1) / partRows }
	if d.Done() != nil || max(n[0], n[1]) > mostNumber || len(arts) != parts(n[0]) || len(pages) != parts(n[1]) || len(table) != parts(n[3]) || n[3]&(n[3]-1) != 0 || n[3] == 0 {
		return nil, false
	}
	c.growArts(n[0])
	c.pages.grow(n[1])
	c.keys, c.table = make([]byte, n[2]), make([]uint32, n[3])
	var mu sync.Mutex
	var read []func() bool
	for i, b := range arts {
		read = append(read, func() bool { return c.readArts(&mu, b, i*partRows, min((i+1)*partRows, n[0])) })
	}
	for i, b := range pages {
		read = append(read, func() bool { return c.readPages(&mu, b, i*partRows, min((i+1)*partRows, n[1])) })
	}
	for i, b := range table {
		read = append(read, func() bool { return numbers.ReadSparse(b, c.table[i*partRows:min((i+1)*partRows, n[3])]) })
	}
	if !runParallel(read...) {
		return nil, false
	}
	return c, c.readLists(of.one(partLists))
}

// readLists reads everything that is no column. The columns must have been read: lists are sorted
// by times that are in the columns of their pages.
func (c *catalogue) readLists(b []byte) bool {
	d := &imageDecoder{Decoder: codec.Decoder{B: b}, c: c}
	c.facts.arena = d.Own()
	c.facts.at = d.nums()
	c.facts.table = d.small()
	c.grouped, c.current = d.nums(), d.nums()
	times := d.nums()
	for i := 0; i+4 <= len(times); i += 4 {
		t := times[i:]
		c.periods = append(c.periods, period{[2]int64{int64(t[0]), int64(t[1])}, [2]int64{int64(t[2]), int64(t[3])}})
	}
	for _, art := range d.small() {
		nums := d.small()
		if art == 0 || int(art) > c.arts.len() {
			return false
		}
		c.art(uint64(art)).mark(artMany, true)
		c.many[art] = nums
	}
	for i := range d.Count(1) {
		s := d.scope()
		if c.scopes = append(c.scopes, s); s != nil {
			c.byName[s.name] = uint32(i + 1)
		}
	}
	n := d.Count(1)
	c.groups = make([]groupCol, n)
	for i := range n {
		d.group(uint64(i + 1))
	}
	for range d.Count(1) {
		k := artKey{scope: uint32(d.Uvarint())}
		k.id = d.Str()
		c.sums[k] = d.nums()
	}
	return d.Done() == nil
}

// imageDecoder reads the lists of a snapshot.
type imageDecoder struct {
	codec.Decoder
	c   *catalogue
	buf numbers.Buffer
}

// length reads how many numbers follow. A block of numbers takes at least 9 bytes.
func (d *imageDecoder) length() int {
	n := d.Uvarint()
	if n > uint64(len(d.B)/9+1)*numbers.Rows {
		d.Fail()
		return 0
	}
	return int(n)
}

// nums reads a list; nil: it is empty.
func (d *imageDecoder) nums() (out []uint64) {
	n := d.length()
	if n == 0 {
		return nil
	}
	out = make([]uint64, n)
	d.read(n, func(from int, v []uint64) { copy(out[from:], v) })
	return out
}

// small reads a list of 32-bit numbers; nil: it is empty.
func (d *imageDecoder) small() (out []uint32) {
	n := d.length()
	if n == 0 {
		return nil
	}
	out = make([]uint32, n)
	d.read(n, func(from int, v []uint64) {
		for i, x := range v {
			out[from+i] = uint32(x)
		}
	})
	return out
}

// read reads n numbers in blocks and calls set with each block and the place of its first number.
func (d *imageDecoder) read(n int, set func(from int, v []uint64)) {
	rest, ok := d.buf.ReadAll(d.B, n, set)
	if !ok {
		d.Fail()
		return
	}
	d.B = rest
}

// sorted reads a list of pages into chunks as appends leave them.
func (d *imageDecoder) sorted(o *sortedList, key func(*catalogue, *pageCol) int64) {
	n := d.length()
	if n == 0 {
		return
	}
	const full = sortedChunk - 1
	d.read(n, func(from int, v []uint64) {
		for i, x := range v {
			if x == 0 || x > uint64(d.c.pages.len()) {
				d.Fail()
				return
			}
			if (from+i)%full == 0 {
				o.chunks = append(o.chunks, newRun(min(sortedChunk, n-from-i)))
			}
			c := &o.chunks[len(o.chunks)-1]
			c.keys, c.nums = append(c.keys, key(d.c, d.c.page(x))), append(c.nums, uint32(x))
		}
	})
	o.n = n
}

func pageAsOf(_ *catalogue, p *pageCol) int64    { return p.asOf }
func pageExpires(c *catalogue, p *pageCol) int64 { return c.expires(p) }

// scope reads a scope; nil: the number is not in use.
func (d *imageDecoder) scope() *scopeCol {
	s := &scopeCol{name: d.Str(), byID: &idList{}}
	if s.name == "" {
		return nil
	}
	for i := range s.classes {
		cl := &s.classes[i]
		cl.n, cl.retired, cl.turns, cl.swept = int(d.Uvarint()), int(d.Uvarint()), int(d.Uvarint()), d.Varint()
		d.sorted(&cl.recent, pageAsOf)
		d.sorted(&cl.expiry, pageExpires)
	}
	s.unconditional, s.arts, s.sourced = d.nums(), int(d.Uvarint()), d.Uvarint()
	s.byID.done, s.byID.arts = int(d.Uvarint()), d.small()
	for i := range s.uses {
		s.uses[i] = use{int(d.Uvarint()), d.Varint()}
	}
	return s
}

// group reads the group of a number into its column.
func (d *imageDecoder) group(num uint64) {
	g := &d.c.groups[num-1]
	g.scope, g.name = uint32(d.Uvarint()), d.Str()
	if d.U8() == 1 {
		d.c.named[artKey{g.scope, g.name}] = num
	}
	g.moved, g.members = d.Uvarint(), d.small()
	for i := range g.live {
		g.live[i], g.turns[i] = uint32(d.Uvarint()), uint32(d.Uvarint())
		var turns sortedList
		if d.sorted(&turns, pageAsOf); turns.n == 0 {
			continue
		}
		if g.recent == nil {
			g.recent = new([provenances]sortedList)
		}
		g.recent[i] = turns
	}
}
