package lexical

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
)

// The columns of the pages in segments, as an owner may keep them outside the
// rows, so that Open need not decode every page of every segment. An image is of
// one list of segments and one row of removed pages, whose digest it has: with
// other rows it is not used.
//
// Speakers without a turn are left out: their names may have been erased.

// Image is a copy of the columns of an index, for a fast OpenImage. Parts have up to ImageRows
// pages each.
type Image struct {
	Sums  []byte   // scopes, groups, speakers, and what rows it is of
	Parts [][]byte // rows of columns
}

// ImageRows is the highest number of pages in a part of an Image.
const ImageRows = 64 * codec.ColumnRows

// imageOf is the digest of the rows that say which pages segments have.
func imageOf(rows Rows) [sha256.Size]byte {
	h := sha256.New()
	for _, kind := range []byte{rowList, rowRemoved} {
		row := rows.Get([]byte{kind})
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(row))))
		h.Write(row)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Image copies the columns of the pages in segments. The owner holds its read lock, and rows are
// those that Open would read now. It costs a pass over the columns, and a copy of the small ones.
// The index itself is not changed. The pages of the tail are left out of the copy, because the rows
// do not have them.
func (x *Index) Image(rows Rows) Image {
	x.invertAll()
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.cols.filed(x.tail, x.manifest.through)
	of := imageOf(rows)
	speakers, kept := c.spoken()
	sums := slices.Clone(of[:])
	sums = binary.AppendUvarint(sums, c.base)
	sums = binary.AppendUvarint(sums, uint64(len(c.scope)))
	sums = binary.AppendUvarint(sums, uint64(len(c.scopes)-1))
	for i := range c.scopes[1:] {
		s := &c.scopes[i+1]
		for _, v := range []uint64{uint64(s.id), s.pages, s.length, s.turns, s.turnLength, s.groups, s.groupLength} {
			sums = binary.AppendUvarint(sums, v)
		}
	}
	sums = binary.AppendUvarint(sums, uint64(len(kept)))
	for _, k := range kept {
		at := c.speakerAt[k]
		sums = binary.AppendUvarint(sums, uint64(k.scope))
		sums = binary.AppendUvarint(sums, c.speakers[at].turns)
		sums = binary.AppendUvarint(sums, c.speakers[at].length)
		sums = append(binary.AppendUvarint(sums, uint64(len(k.name))), k.name...)
	}
	g := c.groups[1:]
	sums = binary.AppendUvarint(sums, uint64(len(g)))
	for _, of := range []func(*groupStats) uint64{
		func(s *groupStats) uint64 { return uint64(s.scope) }, func(s *groupStats) uint64 { return s.id },
		func(s *groupStats) uint64 { return s.pages }, func(s *groupStats) uint64 { return s.length }, func(s *groupStats) uint64 { return s.turns },
	} {
		sums = codec.AppendColumn(sums, len(g), func(i int) uint64 { return of(&g[i]) })
	}
	im := Image{Sums: sums}
	for from := 0; from < len(c.scope); from += ImageRows {
		im.Parts = append(im.Parts, c.part(from, min(from+ImageRows, len(c.scope)), speakers))
	}
	return im
}

// filed is a copy of the columns without the pages of the tail.
func (c *columns) filed(t tail, through uint64) *columns {
	f := *c
	n := 0
	if through >= c.base {
		n = int(min(uint64(len(c.scope)), through-c.base+1))
	}
	f.scope, f.scopes, f.groups, f.speakers = slices.Clone(c.scope), slices.Clone(c.scopes), slices.Clone(c.groups), slices.Clone(c.speakers)
	for i := range f.scopes {
		f.scopes[i].called = map[string][]uint32{} // not the original's, which remove would change
	}
	for _, p := range t {
		for i := range p.docs {
			if p.docs[i].num > through {
				f.remove(p.docs[i].num)
			}
		}
	}
	f.scope = f.scope[:n]
	return &f
}

// spoken numbers the speakers with a turn anew.
func (c *columns) spoken() (as []uint32, kept []speakerKey) {
	as = make([]uint32, len(c.speakers))
	kept = slices.SortedFunc(maps.Keys(c.speakerAt), func(a, b speakerKey) int { return int(c.speakerAt[a]) - int(c.speakerAt[b]) })
	kept = slices.DeleteFunc(kept, func(k speakerKey) bool { return c.speakers[c.speakerAt[k]].turns == 0 })
	for i, k := range kept {
		as[c.speakerAt[k]] = uint32(i + 1)
	}
	return as, kept
}

// part encodes the columns of the rows from..to, in blocks that hold one column of up to
// codec.ColumnRows rows. speakers renumbers them, since those without a turn are left out.
func (c *columns) part(from, to int, speakers []uint32) (b []byte) {
	for at := from; at < to; at += codec.ColumnRows {
		n := min(codec.ColumnRows, to-at)
		none := func(int) uint64 { return 0 }
		speakerOf, saidOf := none, none
		if c.said != nil {
			speakerOf = func(i int) uint64 { return uint64(speakers[c.speaker[at+i]]) }
			saidOf = func(i int) uint64 { return uint64(c.said[at+i]) }
		}
		for _, of := range []func(i int) uint64{
			func(i int) uint64 { return uint64(c.shape[at+i]) }, func(i int) uint64 { return uint64(c.groupOf(at + i)) },
			func(i int) uint64 { return uint64(c.scope[at+i]) }, speakerOf, saidOf,
		} {
			b = codec.AppendColumn(b, n, of)
		}
	}
	return b
}

// OpenImage does what Open does, with the columns of an image. It calls do once with functions that
// may run concurrently; do returns when all have, with the conjunction of their results. It returns
// false if the image is of other rows, or damaged; then use Open.
func OpenImage(rows Rows, im Image, do func(...func() bool) bool) (*Index, bool, error) {
	of := imageOf(rows)
	if !bytes.HasPrefix(im.Sums, of[:]) {
		return nil, false, nil
	}
	x, err := openList(rows)
	if err != nil {
		return nil, false, err
	}
	n, ok := x.cols.readSums(im.Sums[len(of):])
	if !ok || len(im.Parts) != (n+ImageRows-1)/ImageRows {
		return nil, false, nil
	}
	c := x.cols
	c.shape, c.scope = make([]shape, n), make([]uint32, n)
	if len(c.groups) > 1 {
		c.group = make([]uint32, n)
	}
	if slices.ContainsFunc(c.scopes, func(s scopeStats) bool { return s.turns > 0 }) {
		c.speaker, c.said = make([]uint32, n), make([]said, n)
	}
	var read []func() bool
	for i, p := range im.Parts {
		from := i * ImageRows
		read = append(read, func() bool { return c.readPart(p, from, min(from+ImageRows, n)) })
	}
	return x, do(read...), nil
}

// readSums reads all but the rows, and returns how many there are. An owner proves the bytes first.
// Lengths are bounded here as well: a number of rows or groups beyond maxSpan is refused before
// anything is made for them.
func (c *columns) readSums(b []byte) (n int, ok bool) {
	r := &reader{b: b}
	c.base = r.uvarint()
	rows := r.uvarint()
	for range r.count() {
		s := scopeStats{id: r.uint32(), pages: r.uvarint(), length: r.uvarint(), turns: r.uvarint(), turnLength: r.uvarint(), groups: r.uvarint(), groupLength: r.uvarint()}
		c.scopeAt[s.id] = uint32(len(c.scopes))
		c.scopes = append(c.scopes, s)
	}
	for range r.count() {
		scope, turns, length := r.uint32(), r.uvarint(), r.uvarint()
		name := r.bytes()
		if r.bad || int(scope) >= len(c.scopes) {
			return 0, false
		}
		at := c.speakerIndex(scope, string(name))
		c.speakers[at].turns, c.speakers[at].length = turns, length
		for _, w := range c.speakers[at].words {
			c.scopes[scope].called[w] = append(c.scopes[scope].called[w], at)
		}
	}
	groups := r.uvarint()
	if r.bad || rows > maxSpan || groups > maxSpan {
		return 0, false
	}
	c.groups = make([]groupStats, groups+1)
	c.groupAt = make(map[groupKey]uint32, groups)
	g, rest := c.groups[1:], r.b
	var buf codec.ColumnBuffer
	for _, set := range []func(s *groupStats, v uint64){
		func(s *groupStats, v uint64) { s.scope = uint32(v) }, func(s *groupStats, v uint64) { s.id = v },
		func(s *groupStats, v uint64) { s.pages = v }, func(s *groupStats, v uint64) { s.length = v }, func(s *groupStats, v uint64) { s.turns = v },
	} {
		if rest, ok = buf.ReadColumn(rest, len(g), func(from int, v []uint64) {
			for i, x := range v {
				set(&g[from+i], x)
			}
		}); !ok {
			return 0, false
		}
	}
	for i := range g {
		c.groupAt[groupKey{g[i].scope, g[i].id}] = uint32(i + 1)
	}
	return int(rows), len(rest) == 0
}

// readPart is the inverse of part. It writes to the rows from..to alone, so parts can be read at
// the same time.
func (c *columns) readPart(b []byte, from, to int) bool {
	var buf codec.ColumnBuffer
	for at := from; at < to; at += codec.ColumnRows {
		n := min(codec.ColumnRows, to-at)
		ok := readColumn(&b, c.shape, at, n, &buf) && readColumn(&b, c.group, at, n, &buf) && readColumn(&b, c.scope, at, n, &buf) &&
			readColumn(&b, c.speaker, at, n, &buf) && readColumn(&b, c.said, at, n, &buf)
		if !ok {
			return false
		}
	}
	return len(b) == 0
}

// readColumn reads one block of n rows into a column at a place and moves b behind it; false: it is
// damaged. Of a column that is nil only removed pages can have a value, and that is of no use.
func readColumn[T ~uint32 | ~uint16](b *[]byte, to []T, at, n int, buf *codec.ColumnBuffer) (ok bool) {
	*b, ok = buf.ReadColumn(*b, n, func(from int, v []uint64) {
		if to == nil {
			return
		}
		for i, x := range v {
			to[at+from+i] = T(x)
		}
	})
	return ok
}
