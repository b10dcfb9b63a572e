package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/numbers"
	"github.com/ctxpage/ctxpage/lexical"
)

// A snapshot of the columns: catalogue, facts and the columns of the index as of one LSN, in the
// form memory has them. An open that reads it neither decodes a row for each page nor compares all
// rows with the audit. It is derived and can go at any time.
//
// Why it may stand for the inventory (inventory.go), which promises that no edit of the file hides
// a page:
//
//	written    only from a catalogue that was compared: by an inventory without a doubt, or because it was itself read from
//	           a snapshot that was proved; and from commits since, which redo and the sequencer prove. Columns refuses otherwise
//	named      its digest is in a leaf of the audit (manifest.TypeColumns), as those of rows are. The store compares digest,
//	           database and LSN before a byte of it is decoded
//	edited     a snapshot that was edited has another digest; a leaf that was edited changes the root of every later head
//	old        an old snapshot that was put back names an LSN other than that of the rows
//	rows       a row that is edited or removed under a good snapshot hides nothing: the columns decide what is left out, and
//	           the row is compared with its own leaf when it is read; a missing one is damage
//	state      the snapshot has the place in the audit of every state row, so a row that is put back, edited or removed is
//	           found when its key is asked for (statePlaces)
//
// An attacker who can write the files can append a leaf that names a forged snapshot, just as he
// can append a forged commit. No older head reveals it, but the audit has the leaf with its time. A
// check compares the columns with the rows and the rows with the audit in any case (I16, I17).
// Rejected: a key kept in the file. An attacker who can edit the file can read it.
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
	partLists       // scopes, groups, lists, facts
	partState       // places of state rows
	partWords       // lexical.Image.Sums
	partWordRows
)

// partRows is the most rows of a part.
const partRows = 64 * numbers.Rows

// Columns returns a snapshot of the columns. It returns nil, and the store must keep no snapshot,
// unless memory is at the LSN of the rows and every row in it is proved by the audit. It makes the
// inventory if no earlier call has. It blocks installs for about 0.1 µs per page version.
func (s *Engine) Columns(ctx context.Context, applied uint64) (*Columns, error) {
	doubts, err := s.doubts(ctx)
	known := s.inventory.found.Load()
	if err != nil || known == nil || len(doubts)+len(known.state)+len(known.tags) > 0 {
		return nil, err
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	if s.cat.lsn != applied || len(s.unread) > 0 || s.IndexDamaged() || s.Failure() != nil {
		return nil, nil
	}
	out := &Columns{LSN: applied}
	err = s.rows.View(func(tx Reader) error {
		places, ok := s.placesNow(tx, known)
		if !ok {
			out = nil
			return nil
		}
		s.cat.image(out)
		out.add(partState, places.append(nil))
		im := s.index.Image(SegRows{tx})
		out.add(partWords, im.Sums)
		for _, p := range im.Parts {
			out.add(partWordRows, p)
		}
		return nil
	})
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

// image appends the parts of the catalogue: sizes, artefacts with their ids, pages, the table of
// ids, and the lists. Facts are renumbered on the way (used), and ids are written one after the
// other, so the arena of the reader has no gap where gc forgot one. The caller holds mu.
func (c *catalogue) image(out *Columns) {
	ids := 0
	for _, a := range c.arts.all() {
		ids += a.idLen()
	}
	facts, as := c.facts.used(&c.pages)
	e := &codec.Encoder{}
	for _, n := range []int{c.arts.len(), c.pages.len(), ids, len(c.table), c.used, c.live, c.livePages, c.versions, c.dropped, c.unproved} {
		e.Uvarint(uint64(n))
	}
	out.add(partSizes, e.B)
	at := 0
	for from := 0; from < c.arts.len(); from += partRows {
		to := min(from+partRows, c.arts.len())
		b := binary.AppendUvarint(nil, uint64(at))
		b = appendRows(b, c, &c.arts, from, to, artColumns)
		b, n := c.appendIDs(b, from, to)
		out.add(partArts, b)
		at += n
	}
	cols := slices.Clone(pageColumns)
	for i := range cols {
		if get := cols[i].get; i == len(cols)-2 { // facts
			cols[i].get = func(c *catalogue, num uint64, p *pageCol) uint64 { return uint64(as[get(c, num, p)]) }
		}
	}
	for from := 0; from < c.pages.len(); from += partRows {
		out.add(partPages, appendRows(nil, c, &c.pages, from, min(from+partRows, c.pages.len()), cols))
	}
	for from := 0; from < len(c.table); from += partRows {
		out.add(partTable, numbers.AppendSparse(nil, c.table[from:min(from+partRows, len(c.table))]))
	}
	out.add(partLists, c.lists(facts))
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
	e.Count(len(c.scopes))
	for _, s := range c.scopes {
		e.scope(s)
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

// numbers writes a count and that many numbers in blocks.
func (e *imageEncoder) numbers(n int, at func(i int) uint64) {
	e.Count(n)
	e.B = numbers.AppendAll(e.B, n, at)
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
		all = append(all, o.chunks[i].nums...)
	}
	e.small(all)
}

// scope writes a scope with its classes; a name of "" stands for a number that is not in use.
func (e *imageEncoder) scope(s *scopeCol) {
	if s == nil {
		e.Str("")
		return
	}
	e.Str(s.name)
	for i := range s.classes {
		cl := &s.classes[i]
		e.Count(cl.n)
		e.Count(cl.retired)
		e.Count(cl.turns)
		e.Varint(cl.swept)
		e.sorted(&cl.recent)
		e.sorted(&cl.expiry)
	}
	e.nums(s.unconditional)
	e.Count(s.arts)
	e.Uvarint(s.sourced)
	arts := s.byID.all()
	e.Count(s.byID.done)
	e.small(arts)
	for _, u := range s.uses {
		e.Count(u.pages)
		e.Varint(u.bytes)
	}
}

// group writes a group. named says whether its name leads to it; false for a number that is not in
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

// LoadColumns does what LoadRows does, from a snapshot whose digest the caller has compared with
// the audit. It returns false, and has changed nothing, if the snapshot is of other rows or of
// another version of the program; then call LoadRows.
func (s *Engine) LoadColumns(tx Reader, b Base, of *Columns) (bool, error) {
	c, places, ok := readColumns(of)
	if !ok || of.LSN != b.Applied {
		return false, nil
	}
	high, err := parseHighest(b.High)
	if err != nil || c.arts.len() < int(high.art) || c.pages.len() < int(high.num) || len(c.groups) < int(high.group) || len(c.scopes) < int(high.scope) {
		return false, nil // the open without it says what is wrong
	}
	if !s.opts.ReadOnly && !c.everKept() { // of an older program; the next close writes one with them
		return false, nil
	}
	for _, t := range []struct {
		table Table
		want  int
	}{{TableHeld, b.Rows.held}, {TableState, b.Rows.state}} {
		if err := s.countRows(tx, t.table, t.want); err != nil {
			return false, err
		}
	}
	s.cat, s.high, s.askedFrom = c, c.highest(), b.Rows.asked
	s.applied, c.lsn = b.Applied, b.Applied
	if !s.opts.Trust {
		s.inventory.found.Store(&found{lsn: b.Applied, places: places})
	}
	im := lexical.Image{Sums: of.one(partWords), Parts: of.of(partWordRows)}
	if s.index, ok, err = lexical.OpenImage(SegRows{tx}, im, runParallel); err == nil && !ok {
		s.index, err = lexical.Open(SegRows{tx})
	}
	if err != nil {
		return true, err
	}
	return true, s.loadTail(tx)
}

// runParallel runs functions on several processors until one returns false. It reports whether all
// returned true.
func runParallel(all ...func() bool) bool {
	var wait sync.WaitGroup
	var next atomic.Int64
	var bad atomic.Bool
	for range min(runtime.GOMAXPROCS(0), inventoryReaders, len(all)) {
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

// readColumns builds a catalogue from a snapshot, with the places of its state rows. Sizes come
// first, so that all columns are allocated once and their parts can be read on several processors.
// ok is false for a snapshot that does not decode; it is then ignored, because everything in it can
// be loaded from the rows.
//
// A snapshot is read only after its digest was compared with the audit, so the decoder guards
// against damage and other programs, not against forgers.
func readColumns(of *Columns) (c *catalogue, places *statePlaces, ok bool) {
	c = newCatalogue()
	d := &codec.Decoder{B: of.one(partSizes)}
	var n [4]int
	for i := range n {
		n[i] = int(d.Uvarint())
	}
	for _, at := range []*int{&c.used, &c.live, &c.livePages, &c.versions, &c.dropped, &c.unproved} {
		*at = int(d.Uvarint())
	}
	arts, pages, table := of.of(partArts), of.of(partPages), of.of(partTable)
	parts := func(n int) int { return (n + partRows - 1) / partRows }
	if d.Done() != nil || max(n[0], n[1]) > mostNumber || len(arts) != parts(n[0]) || len(pages) != parts(n[1]) || len(table) != parts(n[3]) || n[3]&(n[3]-1) != 0 || n[3] == 0 {
		return nil, nil, false
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
	read = append(read, func() bool {
		places = readPlaces(of.one(partState))
		return places != nil
	})
	if !runParallel(read...) {
		return nil, nil, false
	}
	return c, places, c.readLists(of.one(partLists))
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

// statePlaces are the places in the audit of all state rows of a snapshot, by tag.
//
// The three lists are parallel and sorted by tag. They do not change after they were read or taken;
// rows that commits delete later are noted in gone. A row that a commit writes later has a greater
// LSN and is not compared with the snapshot.
type statePlaces struct {
	tags   []stateTag
	leaves []uint64
	places []uint32
	gone   sync.Map // tags of the rows that commits deleted since
}

// append writes the lists behind b.
func (p *statePlaces) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(p.tags)))
	b = numbers.AppendAll(b, len(p.tags), func(i int) uint64 { return binary.BigEndian.Uint64(p.tags[i][:]) })
	b = numbers.AppendAll(b, len(p.tags), func(i int) uint64 { return p.leaves[i] })
	return numbers.AppendAll(b, len(p.tags), func(i int) uint64 { return uint64(p.places[i]) })
}

// readPlaces returns nil for a damaged part.
func readPlaces(b []byte) *statePlaces {
	d := &imageDecoder{Decoder: codec.Decoder{B: b}}
	n := d.length()
	if d.Err != nil {
		return nil
	}
	p := &statePlaces{tags: make([]stateTag, n), leaves: make([]uint64, n), places: make([]uint32, n)}
	d.read(n, func(from int, v []uint64) {
		for i, x := range v {
			binary.BigEndian.PutUint64(p.tags[from+i][:], x)
		}
	})
	d.read(n, func(from int, v []uint64) { copy(p.leaves[from:], v) })
	d.read(n, func(from int, v []uint64) {
		for i, x := range v {
			p.places[from+i] = uint32(x)
		}
	})
	if d.Done() != nil {
		return nil
	}
	return p
}

// find returns the place of a row; false: there was no row of that key.
func (p *statePlaces) find(tag stateTag) (i int, there bool) {
	return slices.BinarySearchFunc(p.tags, tag, func(a, b stateTag) int { return slices.Compare(a[:], b[:]) })
}

// same reports whether a row that is not newer than the snapshot is the one it had.
func (p *statePlaces) same(tag stateTag, proof format.Proof) bool {
	i, there := p.find(tag)
	return there && p.leaves[i] == proof.Leaf && p.places[i] == proof.Place
}

// missing reports whether a row of the snapshot should be there that is not.
func (p *statePlaces) missing(tag stateTag) bool {
	if p == nil {
		return false
	}
	_, there := p.find(tag)
	_, gone := p.gone.Load(tag)
	return there && !gone
}

// delete notes that a commit deleted a row.
func (p *statePlaces) delete(tag stateTag) { p.gone.Store(tag, true) }

// placesNow takes the places of the state rows of the file. false: they differ from the ones that
// were proved.
func (s *Engine) placesNow(tx Reader, known *found) (*statePlaces, bool) {
	type place struct {
		tag   stateTag
		proof format.Proof
	}
	var all []place
	for k, v := range tx.From(TableState, nil) {
		body, err := format.StateBodyOf(k, v)
		if err != nil {
			return nil, false
		}
		at := place{s.stateTag(k), format.StateProof(body)}
		if known.places != nil && format.StateLSN(body) <= known.lsn && !known.places.same(at.tag, at.proof) {
			return nil, false
		}
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b place) int { return slices.Compare(a.tag[:], b.tag[:]) })
	p := &statePlaces{}
	for _, at := range all {
		p.tags, p.leaves, p.places = append(p.tags, at.tag), append(p.leaves, at.proof.Leaf), append(p.places, at.proof.Place)
	}
	if known.places != nil {
		for _, tag := range known.places.tags {
			if _, there := p.find(tag); !there && known.places.missing(tag) {
				return nil, false
			}
		}
	}
	return p, true
}
