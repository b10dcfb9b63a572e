package engine

import "iter"

// chunked is a column of rows in memory: an array that grows in chunks of chunkRows and never
// moves. A slice that grows by append has up to a quarter more room than rows, and copying a
// million rows makes a commit wait; here at most one chunk is not full, and nothing is copied. To
// reach a row takes one more read, of a table of pointers that stays in the processor's cache.
//
// Rows are counted from 0. Pointers to rows stay valid.
type chunked[T any] struct {
	chunks []*[chunkRows]T
	n      int
}

// chunkRows is a power of two, and as many as a block of a snapshot has (numbers.Rows), so that a
// block is in one chunk.
const chunkRows = 1024

func (c *chunked[T]) len() int { return c.n }

// at returns row i, which must exist.
func (c *chunked[T]) at(i uint64) *T { return &c.chunks[i/chunkRows][i%chunkRows] }

// grow adds empty rows until there are n.
func (c *chunked[T]) grow(n int) {
	for len(c.chunks)*chunkRows < n {
		c.chunks = append(c.chunks, new([chunkRows]T))
	}
	c.n = max(c.n, n)
}

// block returns the rows from..to of one chunk.
func (c *chunked[T]) block(from, to int) []T {
	return c.chunks[from/chunkRows][from%chunkRows : (to-1)%chunkRows+1]
}

// all yields the rows in order, by number: that of the first is 1.
func (c *chunked[T]) all() iter.Seq2[uint64, *T] {
	return func(yield func(uint64, *T) bool) {
		for at := 0; at < c.n; at += chunkRows {
			some := c.block(at, min(at+chunkRows, c.n))
			for i := range some {
				if !yield(uint64(at+i)+1, &some[i]) {
					return
				}
			}
		}
	}
}
