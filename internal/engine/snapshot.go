package engine

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// A snapshot of the columns: catalogue, facts and the columns of the index as of one LSN, in the
// form memory has them. An open that reads it does not decode a row for each page. It is derived and
// can go at any time.
//
//	named    its digest is in a leaf of the audit (manifest.TypeColumns), like the digests of rows. The store compares digest,
//	         database and LSN before a byte of it is decoded
//	edited   a snapshot that was edited has another digest; a leaf that was edited changes the root of every later head
//	old      an old snapshot that was put back names another LSN than the rows
//	rows     the columns decide what a question leaves out. A page that it loads is compared with its own leaf (audit.go)
//
// Nothing compares all rows with the audit while the database is open: a row that was edited to hide
// its page is found by a check, which compares the columns with the rows and the rows with the audit
// (I16, I17). Rejected: to do so at the first question. It took up to 1 µs a page, and an attacker
// who can write the files can append a forged commit just as well.
//
// Erased content must not come back through a snapshot. So facts, ids and names are renumbered when
// it is written, and it holds only those that a column still names.

// Columns is a snapshot of the columns in parts, which can be read in any order.
type Columns struct {
	LSN   uint64
	Parts []ColumnPart
}

// ColumnPart is a part of a snapshot. Parts of one kind follow each other.
type ColumnPart struct {
	Kind uint8
	Body []byte
}

// Kinds of parts. A program ignores a snapshot with a kind that it does not know.
const (
	partSizes uint8 = iota + 1
	partArts        // columns of partRows artefacts, then their ids (appendIDs)
	partPages       // columns of partRows page versions
	partTable       // partRows places of the table of ids
	_
	partWords // lexical.Image.Sums
	partWordRows
	partLists  // groups, lists, facts
	partScopes // scopes with their lists
)

// partRows is the most rows of a part.
const partRows = 64 * codec.ColumnRows

// Columns returns a snapshot of the columns. It returns nil, and the store must keep no snapshot,
// unless memory is at the LSN of the rows and stays there. Commits and reads go on: an install waits
// for one part at most, and then the snapshot is given up. No checkpoint may run meanwhile. The snapshot is made by as many
// goroutines as workers says, or fewer; its bytes do not depend on that.
func (s *Engine) Columns(applied uint64, workers int) (*Columns, error) {
	held := func(do func()) bool { // between two parts a waiting install goes first
		s.cat.mu.RLock()
		defer s.cat.mu.RUnlock()
		if s.cat.lsn != applied || len(s.unread) > 0 || s.IndexDamaged() || s.Failure() != nil {
			return false
		}
		do()
		return true
	}
	var im lexical.Image
	var err error
	out := &Columns{LSN: applied}
	if !s.cat.image(out, workers, held, func() {
		err = s.rows.View(func(tx Reader) error {
			im = s.index.Image(SegRows{tx})
			return nil
		})
	}) {
		return nil, nil
	}
	out.add(partWords, im.Sums)
	for _, p := range im.Parts {
		out.add(partWordRows, p)
	}
	return out, err
}

func (o *Columns) add(kind uint8, body []byte) { o.Parts = append(o.Parts, ColumnPart{kind, body}) }

// of returns the bodies of a kind.
func (o *Columns) of(kind uint8) (bodies [][]byte) {
	for _, p := range o.Parts {
		if p.Kind == kind {
			bodies = append(bodies, p.Body)
		}
	}
	return bodies
}

// one returns the body of a kind that has one part; nil: there is not one.
func (o *Columns) one(kind uint8) []byte {
	if all := o.of(kind); len(all) == 1 {
		return all[0]
	}
	return nil
}

// LoadColumns does what LoadRows does, from a snapshot whose digest the caller has compared with
// the audit. used is false, and nothing has changed, if the snapshot is of other rows or of
// another version of the program; then call LoadRows. whole is false if the index was read from its
// rows, because they are not those of the snapshot.
func (s *Engine) LoadColumns(tx Reader, b Base, of *Columns) (used, whole bool, err error) {
	c, ok := readColumns(of)
	if !ok || of.LSN != b.Applied {
		return false, false, nil
	}
	high, err := parseHighest(b.High)
	if err != nil || c.arts.len() < int(high.art) || c.pages.len() < int(high.num) || len(c.groups) < int(high.group) || len(c.scopes.cols) < int(high.scope) {
		return false, false, nil // the open without it says what is wrong
	}
	for _, t := range []struct {
		table Table
		want  int
	}{{TableHeld, b.Rows.held}, {TableState, b.Rows.state}} {
		if err := s.countRows(tx, t.table, t.want); err != nil {
			return false, false, err
		}
	}
	if err := s.loadErases(tx); err != nil {
		return false, false, err
	}
	s.cat, s.high, s.askedFrom = c, c.highest(), b.Rows.asked
	s.applied, c.lsn = b.Applied, b.Applied
	c.scopes.bad = s.badScope
	im := lexical.Image{Sums: of.one(partWords), Parts: of.of(partWordRows)}
	if s.index, whole, err = lexical.OpenImage(SegRows{tx}, im, func(all ...func() bool) bool { return runParallel(maxReaders, all...) }); err == nil && !whole {
		s.index, err = lexical.Open(SegRows{tx})
	}
	if err != nil {
		return true, false, err
	}
	return true, whole, s.loadTail(tx)
}

// badScope ends the engine: a scope of the snapshot does not decode, although its digest was right. Every read of it fails from
// the leaf on. Fail would take a lock that comes before the catalogue's.
func (s *Engine) badScope() {
	var err error = &store.CorruptError{Err: errors.New("the snapshot of the columns has a scope that does not decode"), Hint: "remove the file that ends in .columns, and open again"}
	s.failed.CompareAndSwap(nil, &err)
}

// image appends the parts of the catalogue: sizes, artefacts with their ids, pages, the table of
// ids, and the lists. Facts are renumbered on the way (used), and ids are written one after the
// other, so the arena of the reader has no gap where gc forgot one. held calls do with mu held for reading;
// it returns false if the catalogue has changed, and then image does. Only commits change columns. The lists also change
// when one is swept, so mu is held once for all of them; then is called meanwhile.
func (c *catalogue) image(out *Columns, workers int, held func(do func()) bool, then func()) bool {
	var n [3]int
	if !held(func() { n = [3]int{c.arts.len(), c.pages.len(), len(c.table)} }) {
		return false
	}
	w := &imageWork{held: held, workers: workers}
	var kept *facts
	var cols []column[pageCol]
	w.add(func() { kept, cols = c.renumbered() })
	lengths := make([]int, n[0]/partRows+1)
	arts := w.parts(n[0], func(i, from, to int) (b []byte) {
		b, lengths[i] = c.appendArts(from, to)
		return b
	})
	if !w.run() {
		return false
	}
	pages := w.parts(n[1], func(_, from, to int) []byte { return appendRows(nil, c, &c.pages, from, to, cols) })
	if !w.run() {
		return false
	}
	ids := 0
	for i := range arts {
		arts[i] = beginArts(arts[i], ids)
		ids += lengths[i]
	}
	return held(func() {
		w.held = func(do func()) bool { do(); return true } // it is
		lists := [2][]byte{}
		w.add(func() { lists[0] = c.lists(kept) })
		w.add(func() { lists[1] = c.appendScopes() })
		w.add(then)
		table := w.parts(n[2], func(_, from, to int) []byte { return codec.AppendSparse(nil, c.table[from:to]) })
		w.run()
		e := &codec.Encoder{}
		for _, n := range []int{n[0], n[1], ids, n[2], c.used, c.live, c.livePages, c.versions, c.dropped} {
			e.Uvarint(uint64(n))
		}
		out.add(partSizes, e.B)
		for i, bodies := range [][][]byte{arts, pages, table} {
			for _, b := range bodies {
				out.add([]uint8{partArts, partPages, partTable}[i], b)
			}
		}
		out.add(partLists, lists[0])
		out.add(partScopes, lists[1])
	})
}

// imageWork has the parts of a snapshot that several goroutines make.
type imageWork struct {
	held    func(do func()) bool
	workers int
	jobs    []func() bool
}

func (w *imageWork) add(do func()) { w.jobs = append(w.jobs, func() bool { return w.held(do) }) }

// parts adds the making of the parts of some rows. They are there after run.
func (w *imageWork) parts(rows int, do func(i, from, to int) []byte) [][]byte {
	out := make([][]byte, (rows+partRows-1)/partRows)
	for i := range out {
		w.add(func() { out[i] = do(i, i*partRows, min((i+1)*partRows, rows)) })
	}
	return out
}

// run does what was added; false: the catalogue has changed.
func (w *imageWork) run() bool {
	jobs := w.jobs
	w.jobs = nil
	return runParallel(w.workers, jobs...)
}

// renumbered returns the facts that pages have, and the columns of pages with their new numbers.
func (c *catalogue) renumbered() (kept *facts, cols []column[pageCol]) {
	kept, as := c.facts.used(&c.pages)
	cols = slices.Clone(pageColumns)
	of := &cols[len(cols)-2]
	get := of.get
	of.get = func(c *catalogue, num uint64, p *pageCol) uint64 { return uint64(as[get(c, num, p)]) }
	return kept, cols
}

// appendArts makes a part of the artefacts, and returns the length of their ids. Where the first id lies is not known yet: see beginArts.
func (c *catalogue) appendArts(from, to int) (b []byte, n int) {
	b = make([]byte, binary.MaxVarintLen64, binary.MaxVarintLen64+30*(to-from))
	return c.appendIDs(appendRows(b, c, &c.arts, from, to, artColumns), from, to)
}

// beginArts writes at the beginning of a part of the artefacts where its first id lies.
func beginArts(b []byte, at int) []byte {
	var place [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(place[:], uint64(at))
	b = b[len(place)-n:]
	copy(b, place[:n])
	return b
}

// used returns the combinations that pages have, and their numbers by those in f.
func (f *facts) used(pages *chunked[pageCol]) (kept *facts, as []uint32) {
	kept, as = &facts{}, make([]uint32, len(f.at)+1)
	for _, p := range pages.all() {
		if n := p.facts; n != 0 && as[n] == 0 {
			as[n] = kept.number(f.get(n))
		}
	}
	return kept, as
}

// lists is everything that is no column.
func (c *catalogue) lists(f *facts) []byte {
	e := &imageEncoder{}
	e.Bytes(f.arena)
	e.numbers(len(f.at), func(i int) uint64 { return f.at[i] })
	e.numbers(len(f.table), func(i int) uint64 { return uint64(f.table[i]) })
	e.numbers(len(c.grouped), func(i int) uint64 { return c.grouped[i] })
	e.numbers(len(c.current), func(i int) uint64 { return c.current[i] })
	e.numbers(4*len(c.periods), func(i int) uint64 {
		p := &c.periods[i/4]
		return uint64([4]int64{p.asOf[0], p.asOf[1], p.put[0], p.put[1]}[i%4])
	})
	many := slices.Sorted(maps.Keys(c.many))
	e.numbers(len(many), func(i int) uint64 { return uint64(many[i]) })
	for _, art := range many {
		e.small(c.many[art])
	}
	e.Count(len(c.groups))
	for i := range c.groups {
		e.group(&c.groups[i], c.named[artKey{c.groups[i].scope, c.groups[i].name}] == uint64(i+1))
	}
	sums := slices.SortedFunc(maps.Keys(c.sums), func(a, b artKey) int { return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.id, b.id)) })
	sums = slices.DeleteFunc(sums, func(k artKey) bool { return c.lookup(k.scope, k.id) == 0 }) // gc forgot it
	e.Count(len(sums))
	for _, k := range sums {
		e.Uvarint(uint64(k.scope))
		e.Str(k.id)
		e.nums(c.sums[k])
	}
	return e.B
}

// imageEncoder writes the lists of a snapshot.
type imageEncoder struct{ codec.Encoder }

// fewNumbers is the length from which a list is written in blocks. A block has up to 17 bytes beside its numbers, and
// there are many short lists: those of small scopes.
const fewNumbers = 32

// numbers writes a count and that many numbers: in blocks, or if they are few as differences.
func (e *imageEncoder) numbers(n int, at func(i int) uint64) {
	e.Count(n)
	if n >= fewNumbers {
		e.B = codec.AppendColumn(e.B, n, at)
		return
	}
	last := uint64(0)
	for i := range n {
		e.Varint(int64(at(i) - last))
		last = at(i)
	}
}

// nums writes a list of page numbers.
func (e *imageEncoder) nums(v []uint64) { e.numbers(len(v), func(i int) uint64 { return v[i] }) }
func (e *imageEncoder) small(v []uint32) {
	e.numbers(len(v), func(i int) uint64 { return uint64(v[i]) })
}

// sorted writes the pages of a list in its order. Their keys are in their columns.
func (e *imageEncoder) sorted(o *sortedList) {
	all := make([]uint32, 0, o.n)
	for i := range o.chunks {
		for j := range o.chunks[i].rows {
			all = append(all, uint32(o.chunks[i].at(j).num))
		}
	}
	e.small(all)
}

// group writes a group. named reports whether its name leads to it; false for a number that is not in
// use.
func (e *imageEncoder) group(g *groupCol, named bool) {
	e.Uvarint(uint64(g.scope))
	e.Str(g.name)
	e.U8(map[bool]uint8{true: 1}[named])
	e.Uvarint(g.moved)
	e.small(g.members)
	for i := range g.live {
		e.Count(int(g.live[i]))
		e.Count(int(g.turns[i]))
		e.sorted(&g.turnsOf()[i])
	}
}

// appendRows appends the columns of the rows from..to, block by block, so that the rows of a block
// stay in the cache. from is the first row of a block.
func appendRows[T any](b []byte, c *catalogue, rows *chunked[T], from, to int, cols []column[T]) []byte {
	var buf codec.ColumnBuffer
	for ; from < to; from += codec.ColumnRows {
		for _, col := range cols {
			b = buf.AppendColumn(b, min(codec.ColumnRows, to-from), func(_ int, v []uint64) {
				for at := 0; at < len(v); at += chunkRows {
					some := rows.block(from+at, from+min(at+chunkRows, len(v)))
					for i := range some {
						v[at+i] = col.get(c, uint64(from+at+i)+1, &some[i])
					}
				}
			})
		}
	}
	return b
}

// rowReader reads a part of the artefacts or the pages. Parts are read at the same time, so what
// few rows have waits here until the part is read (merge).
type rowReader struct {
	c       *catalogue
	rare    []rareCol               // by pageCol.rare-1 of the rows of this part
	wide    map[uint32]*pageNumbers // by the same pageCol.rare
	newest  []newestCol             // of the artefacts of this part
	first   int                     // the place of the first of them
	arts    []uint64
	retired []succession // of arts
	since   int          // how many of them have got theirs
}

// readRows is the reverse of appendRows. It fills rows that were allocated before and returns what
// follows them; false: the bytes are not of that many rows.
func readRows[T any](r *rowReader, b []byte, rows *chunked[T], from, to int, cols []column[T]) (rest []byte, ok bool) {
	var buf codec.ColumnBuffer
	for ; from < to; from += codec.ColumnRows {
		for _, col := range cols {
			if b, ok = buf.ReadColumn(b, min(codec.ColumnRows, to-from), func(_ int, v []uint64) {
				for at := 0; at < len(v); at += chunkRows {
					some := rows.block(from+at, from+min(at+chunkRows, len(v)))
					col.set(r, uint64(from+at)+1, some, v[at:at+len(some)])
				}
			}); !ok {
				return nil, false
			}
		}
	}
	return b, true
}

func setEnd(r *rareCol, v uint64)     { r.end = v }
func setExpires(r *rareCol, v uint64) { r.expires = int64(v) }
func setNext(r *rareCol, v uint64)    { r.next = uint32(v) }

// setRare sets a field of a page's rareCol, which it makes for a value that is not 0.
func (r *rowReader) setRare(p *pageCol, v uint64, set func(*rareCol, uint64)) {
	if v == 0 {
		return
	}
	r.hasRare(p)
	set(&r.rare[p.rare-1], v)
}

func (r *rowReader) hasRare(p *pageCol) {
	if p.rare == 0 {
		r.rare = append(r.rare, rareCol{})
		p.rare = uint32(len(r.rare))
	}
}

func (r *rowReader) setBy(num uint64, _ *artCol, v uint64) {
	if v != 0 {
		r.arts, r.retired = append(r.arts, num), append(r.retired, succession{by: uint32(v)})
	}
}

// setSince comes after setBy for each block of rows.
func (r *rowReader) setSince(num uint64, _ *artCol, v uint64) {
	if r.since < len(r.arts) && r.arts[r.since] == num {
		r.retired[r.since].since = v
		r.since++
	}
}

// mergePages enters into the catalogue what pages from..to have beside their columns. The caller holds a lock.
func (r *rowReader) mergePages(from, to int) {
	base := r.c.rare.len()
	r.c.rare.grow(base + len(r.rare))
	for i := range r.rare {
		*r.c.rare.at(uint64(base + i)) = r.rare[i]
	}
	for at, n := range r.wide {
		r.c.wide[uint32(base)+at] = *n
	}
	for i := from; i < to && len(r.rare) > 0; i++ {
		if p := r.c.pages.at(uint64(i)); p.rare != 0 {
			p.rare += uint32(base)
		}
	}
}

// settle notes the newest versions of artefacts, once all of them and all pages are read.
func (c *catalogue) settle(mu *sync.Mutex, newest []newestCol, from int) bool {
	var own []*artCol
	for i := range newest {
		a := c.arts.at(uint64(from + i))
		if int(a.first) > c.pages.len() {
			return false
		}
		if !c.implies(a, &newest[i]) {
			own = append(own, a)
			newest[len(own)-1] = newest[i]
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i, a := range own {
		c.addNewest(a, &newest[i])
	}
	return true
}

// mergeArts is the same for artefacts.
func (r *rowReader) mergeArts() {
	for i, num := range r.arts {
		r.c.setSuccession(num, r.retired[i])
	}
}

// readArts reads the columns of some artefacts, and their ids into the arena. Parts are read at the
// same time, so each begins with the place of its first id.
func (c *catalogue) readArts(mu *sync.Mutex, b []byte, newest []newestCol, from, to int) bool {
	d := &codec.Decoder{B: b}
	at := d.Uvarint()
	r := &rowReader{c: c, newest: newest[from:to], first: from}
	rest, ok := readRows(r, d.B, &c.arts, from, to, artColumns)
	if !ok || !c.readIDs(rest, at, from, to) {
		return false
	}
	mu.Lock()
	defer mu.Unlock()
	r.mergeArts()
	return r.since == len(r.arts)
}

// appendIDs appends the ids of some artefacts: for each how many bytes it shares with the id before
// it, which are many in most databases, then the other bytes of all. n is the length of the ids.
func (c *catalogue) appendIDs(b []byte, from, to int) (out []byte, n int) {
	var rest, last []byte
	b = codec.AppendColumn(b, to-from, func(i int) uint64 {
		id := c.idOf(c.arts.at(uint64(from + i)))
		if len(id) == 0 {
			return 0
		}
		k := 0
		for k < min(len(id), len(last)) && id[k] == last[k] {
			k++
		}
		rest, last = append(rest, id[k:]...), id
		n += len(id)
		return uint64(k)
	})
	return append(b, rest...), n
}

// readIDs is the reverse of appendIDs. The ids go into the arena, the first at a place.
func (c *catalogue) readIDs(b []byte, at uint64, from, to int) bool {
	shared := make([]uint64, to-from)
	var buf codec.ColumnBuffer
	rest, ok := buf.ReadColumn(b, len(shared), func(from int, v []uint64) { copy(shared[from:], v) })
	if !ok || at > uint64(len(c.keys)) {
		return false
	}
	keys, last := c.keys[at:], []byte(nil)
	for i, k := range shared {
		a := c.arts.at(uint64(from + i))
		n := uint64(a.idLen())
		if n == 0 {
			continue
		}
		if n > uint64(len(keys)) || k > min(n, uint64(len(last))) || n-k > uint64(len(rest)) {
			return false
		}
		copy(keys, last[:k])
		copy(keys[k:n], rest[:n-k])
		a.setIDAt(at)
		last, keys, rest, at = keys[:n], keys[n:], rest[n-k:], at+n
	}
	return len(rest) == 0
}

// readPages reads the columns of some pages.
func (c *catalogue) readPages(mu *sync.Mutex, b []byte, from, to int) bool {
	r := &rowReader{c: c}
	rest, ok := readRows(r, b, &c.pages, from, to, pageColumns)
	mu.Lock()
	defer mu.Unlock()
	r.mergePages(from, to)
	return ok && len(rest) == 0
}
