package filestore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/ctxpage/ctxpage/engine"
)

// pageRows shows the rows of bbolt's file without bbolt, whose lock another process has. It reads
// pages with ReadAt and trusts nothing: an entry outside its page, or a page in the wrong place, ends
// the reading (err). bbolt never writes into a page of its newest state, so what was read is that
// state if no transaction was committed meanwhile; the caller looks.
//
// A Reader has no errors. After the first one the rows have an end, and the caller asks for err.
type pageRows struct {
	f     io.ReaderAt
	m     boltMeta
	roots map[string]*boltNode // of the buckets
	nodes map[uint64]*boltNode // pages that were read
	err   error
}

// maxNodes bounds the pages that are kept, so that a large file is not in memory as a whole.
const maxNodes = 1 << 10

// maxDepth is more levels than a tree can have, whose pages have two entries or more.
const maxDepth = 64

// boltNode is a page of a tree.
type boltNode struct {
	leaf bool
	all  []boltElement
}

// newPageRows reads where the buckets begin.
func newPageRows(f io.ReaderAt, size int64) (*pageRows, error) {
	m, err := newestMeta(f, size)
	if err != nil {
		return nil, err
	}
	if m.high > uint64(size/m.pageSize) {
		return nil, fmt.Errorf("expected %d pages of %d bytes, the file has %d bytes", m.high, m.pageSize, size)
	}
	r := &pageRows{f: f, m: m, roots: map[string]*boltNode{}, nodes: map[uint64]*boltNode{}}
	top := r.node(m.root)
	for c := r.from(top, nil); c.valid(); c.next() {
		e := c.element()
		if e.flags&1 == 0 || len(e.value) < 16 {
			continue
		}
		root := binary.NativeEndian.Uint64(e.value)
		if root != 0 {
			r.roots[string(e.key)] = r.node(root)
		} else if r.roots[string(e.key)], err = parseNode(e.value[16:]); err != nil { // a small bucket is within the page
			r.fail(err)
		}
	}
	return r, r.err
}

// fail notes the first error.
func (r *pageRows) fail(err error) { r.err = cmp.Or(r.err, err) }

// node reads a page of a tree; nil: it could not be read.
func (r *pageRows) node(id uint64) *boltNode {
	if n := r.nodes[id]; n != nil || r.err != nil {
		return n
	}
	head, err := r.m.page(r.f, id, boltLeaf|boltBranch)
	if err != nil {
		r.fail(err)
		return nil
	}
	b := make([]byte, (1+int64(binary.NativeEndian.Uint32(head[12:])))*r.m.pageSize)
	if _, err := r.f.ReadAt(b, int64(id)*r.m.pageSize); err != nil {
		r.fail(err)
		return nil
	}
	n, err := parseNode(b)
	if err != nil {
		r.fail(fmt.Errorf("page %d: %w", id, err))
		return nil
	}
	if len(r.nodes) >= maxNodes {
		clear(r.nodes)
	}
	r.nodes[id] = n
	return n
}

// parseNode takes a page apart. No entry reaches beyond it.
func parseNode(b []byte) (*boltNode, error) {
	const element = 16
	if len(b) < boltPageHead {
		return nil, errors.New("a page without a head")
	}
	u32 := binary.NativeEndian.Uint32
	n := &boltNode{leaf: binary.NativeEndian.Uint16(b[8:]) == boltLeaf}
	count := int(binary.NativeEndian.Uint16(b[10:]))
	if boltPageHead+count*element > len(b) || !n.leaf && count == 0 {
		return nil, fmt.Errorf("%d entries do not fit", count)
	}
	n.all = make([]boltElement, count)
	for i := range count {
		at := boltPageHead + i*element
		e, one := b[at:], &n.all[i]
		pos, ksize, vsize := uint64(u32(e)), uint64(u32(e[4:])), uint64(0)
		if n.leaf {
			one.flags, pos, ksize, vsize = u32(e), uint64(u32(e[4:])), uint64(u32(e[8:])), uint64(u32(e[12:]))
		} else {
			one.child = binary.NativeEndian.Uint64(e[8:])
		}
		key := uint64(at) + pos
		value := key + ksize
		if value+vsize > uint64(len(b)) {
			return nil, fmt.Errorf("entry %d reaches beyond the page", i)
		}
		one.key, one.value = b[key:value:value], b[value:value+vsize:value+vsize]
	}
	return n, nil
}

// pageCursor is a place in a tree: the nodes from the root down to a leaf, and the entry in each.
type pageCursor struct {
	r    *pageRows
	path []pagePlace // empty: beyond the last row, or before the first
}

type pagePlace struct {
	n *boltNode
	i int
}

// from returns a cursor at the first row from a key on.
func (r *pageRows) from(root *boltNode, key []byte) *pageCursor {
	c := &pageCursor{r: r}
	for n := root; n != nil; {
		i, found := slices.BinarySearchFunc(n.all, key, func(e boltElement, key []byte) int { return bytes.Compare(e.key, key) })
		if !n.leaf && !found {
			i = max(i-1, 0)
		}
		n = c.enter(n, i)
	}
	c.settle()
	return c
}

// enter goes to an entry of a node, and gives the node below it; nil: it is a leaf.
func (c *pageCursor) enter(n *boltNode, i int) *boltNode {
	c.path = append(c.path, pagePlace{n, i})
	if n.leaf || c.r.err != nil {
		return nil
	}
	if len(c.path) > maxDepth {
		c.r.fail(errors.New("a tree leads in a circle"))
		return nil
	}
	return c.r.node(n.all[i].child)
}

// settle moves on from behind the last entry of a leaf to the first of the next one.
func (c *pageCursor) settle() {
	for c.r.err == nil && len(c.path) > 0 {
		last := &c.path[len(c.path)-1]
		switch {
		case last.i >= len(last.n.all):
			if c.path = c.path[:len(c.path)-1]; len(c.path) > 0 {
				c.path[len(c.path)-1].i++
			}
		case last.n.leaf:
			return
		default:
			if below := c.r.node(last.n.all[last.i].child); below != nil {
				if len(c.path) > maxDepth {
					c.r.fail(errors.New("a tree leads in a circle"))
				}
				c.path = append(c.path, pagePlace{below, 0})
			}
		}
	}
	if c.r.err != nil {
		c.path = nil
	}
}

// before moves to the row before the place of a cursor that from made, or to the last row of all.
func (c *pageCursor) before(root *boltNode) {
	for len(c.path) > 0 {
		last := &c.path[len(c.path)-1]
		if last.i--; last.i >= 0 {
			break
		}
		c.path = c.path[:len(c.path)-1]
		root = nil
	}
	var n *boltNode
	switch {
	case len(c.path) > 0:
		if last := c.path[len(c.path)-1]; !last.n.leaf {
			n = c.r.node(last.n.all[last.i].child)
		}
	case root != nil && len(root.all) > 0:
		n = root
	}
	for n != nil {
		n = c.enter(n, len(n.all)-1)
	}
	if c.r.err != nil || !c.valid() {
		c.path = nil
	}
}

func (c *pageCursor) valid() bool {
	if len(c.path) == 0 {
		return false
	}
	last := c.path[len(c.path)-1]
	return last.n.leaf && last.i >= 0 && last.i < len(last.n.all)
}

func (c *pageCursor) element() *boltElement {
	last := c.path[len(c.path)-1]
	return &last.n.all[last.i]
}

func (c *pageCursor) next() {
	c.path[len(c.path)-1].i++
	c.settle()
}

// in is the row of a key in a bucket; nil: there is none.
func (r *pageRows) in(bucket, key []byte) []byte {
	if c := r.from(r.roots[string(bucket)], key); c.valid() && bytes.Equal(c.element().key, key) {
		return c.element().value
	}
	return nil
}

// Get: see Reader.
func (r *pageRows) Get(t engine.Table, key []byte) []byte { return r.in(bucketNames[t], key) }

// From: see Reader.
func (r *pageRows) From(t engine.Table, key []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for c := r.from(r.roots[t.String()], key); c.valid(); c.next() {
			if e := c.element(); !yield(e.key, e.value) {
				return
			}
		}
	}
}

// Next: see Reader.
func (r *pageRows) Next(t engine.Table, key []byte) (k, v []byte) {
	if c := r.from(r.roots[t.String()], key); c.valid() {
		return c.element().key, c.element().value
	}
	return nil, nil
}

// Before: see Reader.
func (r *pageRows) Before(t engine.Table, key []byte) []byte {
	root := r.roots[t.String()]
	c := r.from(root, key)
	if c.before(root); c.valid() {
		return c.element().key
	}
	return nil
}

// Last: see Reader.
func (r *pageRows) Last(t engine.Table) []byte {
	c, root := &pageCursor{r: r}, r.roots[t.String()]
	if c.before(root); c.valid() {
		return c.element().key
	}
	return nil
}

// Len: see Reader.
func (r *pageRows) Len(t engine.Table) (n int) {
	for range r.From(t, nil) {
		n++
	}
	return n
}
