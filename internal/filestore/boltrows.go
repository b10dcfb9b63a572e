package filestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"go.etcd.io/bbolt"
)

// The engine's tables in a transaction of bbolt.
//
// Ownership: keys and values from a Reader are bbolt's memory and end with the transaction; clone a
// value that is kept. bbolt keeps the values that a Writer is given, without a copy, until the
// transaction ends, so they must not change before (see sealBuffer in package engine).

// boltRows shows the engine the buckets of a transaction of bbolt as tables.
type boltRows struct {
	tx      *bbolt.Tx
	buckets [engine.TableQuestion + 1]*bbolt.Bucket // nil: not there, or not looked up yet
	cursors [engine.TableQuestion + 1]*bbolt.Cursor // of tables with manyReads or manyDeletes; nil: there was none of either yet
	growth  *[engine.TableQuestion + 1]growth       // nil: the transaction only reads
	ring    *Ring                                   // opens and seals the values; nil: they are plain
}

// manyReads names the tables of which one transaction reads dozens of rows: a search reads the rows of
// its words in each segment, an assembly the texts of its pages. Get keeps a cursor for them,
// because Bucket.Get allocates a cursor and its stack for each row. The other tables use
// Bucket.Get: a cursor that finds no row steps on to the next leaf, so damage there would reach a
// reader of another row.
var manyReads = [engine.TableQuestion + 1]bool{engine.TableContent: true, engine.TableSeg: true}

// manyDeletes names the tables of which one transaction deletes thousands of rows: a step of the
// index deletes the rows of merged segments, a checkpoint the oldest outcomes. Delete keeps a cursor for them.
var manyDeletes = [engine.TableQuestion + 1]bool{engine.TableContent: true, engine.TableSeg: true, engine.TableTxn: true}

// bucketNames are the buckets by table.
var bucketNames = [...][]byte{
	engine.TableMeta: bucketMeta, engine.TableContent: bucketContent, engine.TableSeg: bucketSeg, engine.TableHeld: bucketHeld, engine.TableTxn: bucketTxn, engine.TableState: bucketState, engine.TableVec: bucketVec,
	engine.TableQuestion: bucketAsked,
}

// fill is the share of a page that rows fill in a bucket whose keys only grow; 0: bbolt's half, or what
// growth decides. A text never changes and no key comes between two others, so its pages need no
// room.
var fill = [engine.TableQuestion + 1]float64{engine.TableContent: 1, engine.TableSeg: 1, engine.TableQuestion: 1}

// merged is the fill that bbolt is told for pages of texts; it makes them full. It merges a page that lost rows with its
// neighbour when the page is less than half as full as it was told: by half of 1, gc of every second artefact freed two fifths
// of the pages, and a full disk took no puts.
const merged = 1.8

// growth records where the keys of one transaction lie in a table whose keys may grow. Heads of new
// artefacts and outcomes of new batches come behind all others: half-full pages would stay half
// full for good, and meta is the largest bucket. New versions of artefacts come between others and
// need the space: each would split a full page.
//
// State rows of a conversation come behind its earlier rows, but between the rows of other
// conversations. A checkpoint puts them in order, so a run of new keys with none of the table
// between them fills its pages as if it stood at the end. A key that begins a run counts as one
// between others.
type growth struct {
	known          bool
	last           []byte // the greatest key before the transaction; of state the last new one
	next           []byte // of state: the key of the table that follows last; nil: none does
	behind, within int
}

// grownFill is the fill of pages while at most one key in grownShare comes between others. A
// row that comes between others later splits its page, whether a tenth of it was free or not, so
// room is not kept for it.
const (
	grownFill  = .98
	grownShare = 8
)

// grow counts a key that is about to be put.
func (r *boltRows) grow(t engine.Table, b *bbolt.Bucket, key []byte) {
	g := &r.growth[t]
	switch t {
	case engine.TableState:
		r.growState(b, g, key)
		return
	case engine.TableMeta:
		if key[0] != metaHead {
			return
		}
	case engine.TableTxn:
	default:
		return
	}
	if !g.known {
		last := r.Last(t)
		if t == engine.TableMeta { // scopes come after heads
			last = r.Before(t, []byte{metaHead + 1})
		}
		g.known, g.last = true, bytes.Clone(last)
	}
	if bytes.Compare(key, g.last) > 0 {
		g.behind++
	} else {
		g.within++
	}
	g.fill(b)
}

// growState counts a state row. A row that replaces another takes its place and does not count.
func (r *boltRows) growState(b *bbolt.Bucket, g *growth, key []byte) {
	if g.known && bytes.Compare(key, g.last) > 0 && (g.next == nil || bytes.Compare(key, g.next) < 0) {
		g.behind++
	} else {
		k, _ := b.Cursor().Seek(key)
		if bytes.Equal(k, key) && k != nil {
			return
		}
		g.known, g.next = true, bytes.Clone(k)
		g.within++
	}
	g.last = append(g.last[:0], key...)
	g.fill(b)
}

// fill sets how full bbolt makes pages, from the counts.
func (g *growth) fill(b *bbolt.Bucket) {
	if b.FillPercent = bbolt.DefaultFillPercent; grownShare*g.within <= g.behind {
		b.FillPercent = grownFill
	}
}

// metaHead begins the keys of heads.
const metaHead = 'h'

// newBoltRows shows a transaction as rows of plain values, whether they are sealed in the file or
// not.
func newBoltRows(tx *bbolt.Tx, ring *Ring) engine.Writer {
	r := rowsOf(tx)
	if ring == nil {
		return r
	}
	r.ring = ring
	return sealedRows{r}
}

// rowsOf shows plain rows.
func rowsOf(tx *bbolt.Tx) *boltRows {
	r := &boltRows{tx: tx}
	if tx.Writable() {
		r.growth = new([engine.TableQuestion + 1]growth)
	}
	return r
}

// sealedRows are rows whose values are sealed, each bound to its bucket and key. The words of the
// index are masked in its keys.
type sealedRows struct{ *boltRows }

// Word implements lexical.Masked.
func (r sealedRows) Word(b []byte, scope uint32, word []byte) []byte {
	return r.ring.Word(b, scope, word)
}

// Masks implements lexical.Masked.
func (sealedRows) Masks() bool { return true }

// spaceOf is the name under which the values of a table are sealed.
var spaceOf = [...]Space{
	engine.TableMeta: SpaceMeta, engine.TableContent: SpaceContent, engine.TableSeg: SpaceIndex, engine.TableHeld: SpaceHeld, engine.TableTxn: SpaceOutcome,
	engine.TableState: SpaceState, engine.TableVec: SpaceVector, engine.TableQuestion: SpaceQuestion,
}

// keepsSum names the tables of which a row whose key was destroyed becomes a codec.DestroyedRow.
var keepsSum = [engine.TableQuestion + 1]bool{engine.TableHeld: true, engine.TableState: true, engine.TableQuestion: true}

// opened is the value of a row. A row that cannot be decrypted becomes one without a valid
// checksum, so that it is treated like any other damaged row.
func (r *boltRows) opened(t engine.Table, key, v []byte) []byte {
	if v == nil {
		return nil
	}
	var err error
	if r.ring != nil {
		v, err = r.ring.Open(spaceOf[t], key, v)
	}
	switch {
	case err == nil && keepsSum[t] && codec.IsDestroyed(v): // only a ring says so
		return codec.Unopened
	case err == nil:
		return v
	case errors.Is(err, ErrDestroyed):
		return destroyedRow(t, v)
	}
	return codec.Unopened
}

// destroyedRow returns the remainder of a row whose key was destroyed: see under.go.
func destroyedRow(t engine.Table, stays []byte) []byte {
	switch {
	case stays == nil:
		return codec.Destroyed
	case t == engine.TableMeta:
		return stays
	case keepsSum[t] && len(stays) == 8:
		return codec.DestroyedRow(binary.BigEndian.Uint64(stays))
	}
	return codec.Unopened
}

// bucket returns the bucket of a table; nil: the file has none yet. It is looked up once in a
// transaction.
func (r *boltRows) bucket(t engine.Table) *bbolt.Bucket {
	if r.buckets[t] == nil {
		b := r.tx.Bucket(bucketNames[t])
		switch {
		case b == nil:
		case t == engine.TableContent:
			b.FillPercent = merged
		case fill[t] != 0:
			b.FillPercent = fill[t]
		}
		r.buckets[t] = b
	}
	return r.buckets[t]
}

// Get: see Reader.
func (r *boltRows) Get(t engine.Table, key []byte) []byte {
	b := r.bucket(t)
	if b == nil {
		return nil
	}
	if !manyReads[t] {
		return r.opened(t, key, b.Get(key))
	}
	if v, ok := r.row(t, b, key); ok {
		return r.opened(t, key, v)
	}
	return nil
}

// Next: see Reader.
func (r *boltRows) Next(t engine.Table, key []byte) (k, v []byte) {
	b := r.bucket(t)
	if b == nil {
		return nil, nil
	}
	if k, v = r.cursor(t, b).Seek(key); k == nil {
		return nil, nil
	}
	return k, r.opened(t, k, v)
}

// cursor is a cursor of a table that is used again.
func (r *boltRows) cursor(t engine.Table, b *bbolt.Bucket) *bbolt.Cursor {
	if r.cursors[t] == nil {
		r.cursors[t] = b.Cursor()
	}
	return r.cursors[t]
}

// row moves the cursor of a table to a row, if it is there. Each use seeks from the root, so puts
// between two uses do not matter.
func (r *boltRows) row(t engine.Table, b *bbolt.Bucket, key []byte) (v []byte, ok bool) {
	k, v := r.cursor(t, b).Seek(key)
	return v, bytes.Equal(k, key)
}

// From: see Reader.
func (r *boltRows) From(t engine.Table, key []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		b := r.bucket(t)
		if b == nil {
			return
		}
		c := b.Cursor()
		for k, v := c.Seek(key); k != nil; k, v = c.Next() {
			if !yield(k, r.opened(t, k, v)) {
				return
			}
		}
	}
}

// Before: see Reader.
func (r *boltRows) Before(t engine.Table, key []byte) []byte {
	b := r.bucket(t)
	if b == nil {
		return nil
	}
	c := b.Cursor()
	if k, _ := c.Seek(key); k == nil {
		k, _ = c.Last()
		return k
	}
	k, _ := c.Prev()
	return k
}

// Last: see Reader.
func (r *boltRows) Last(t engine.Table) []byte {
	b := r.bucket(t)
	if b == nil {
		return nil
	}
	k, _ := b.Cursor().Last()
	return k
}

// Len: see Reader. It walks the pages of the table, so it costs what the table has: for checks
// only.
func (r *boltRows) Len(t engine.Table) int {
	if b := r.bucket(t); b != nil {
		return b.Stats().KeyN
	}
	return 0
}

// Put: see Writer. The key decides how full the pages become (grow) before the row is there.
func (r *boltRows) Put(t engine.Table, key, value []byte) error {
	b := r.bucket(t)
	if b == nil {
		var err error
		if b, err = r.tx.CreateBucketIfNotExists(bucketNames[t]); err != nil {
			return err
		}
		r.buckets[t] = b
	}
	r.grow(t, b, key)
	if r.ring != nil {
		var err error
		if value, err = r.ring.Seal(make([]byte, 0, len(value)+Overhead), spaceOf[t], key, value); err != nil {
			return err
		}
	}
	return b.Put(key, value)
}

// Delete: see Writer.
func (r *boltRows) Delete(t engine.Table, key []byte) error {
	b := r.bucket(t)
	switch {
	case b == nil:
		return nil
	case !manyDeletes[t]:
		return b.Delete(key)
	}
	if _, ok := r.row(t, b, key); !ok { // it leaves the cursor at the row
		return nil
	}
	return r.cursors[t].Delete()
}

// Rows shows the engine the rows that a transaction of bbolt has, in buckets by the names of the
// tables. A read-only transaction takes no Put and no Delete. Other stores keep a cache of their
// rows with it.
func Rows(tx *bbolt.Tx) engine.Writer { return newBoltRows(tx, nil) }
