package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// Open, first half: from the rows to the catalogue. The second half is redo of the log (install.go).
//
//	names     scopes and groups, by number; numbers are dense, except for groups that gc forgot
//	heads     by artefact and version; only the fixed part is decoded (hot), the rest when a version is read
//	retire    supersessions, applied in the order of their LSNs after all heads are known
//	tail      pages above those in the index: analysed and added to its part in memory
//
// The rows belong to one LSN (Base.Applied): a checkpoint moves rows, counts and that LSN in one
// transaction. So a crash during a checkpoint leaves rows that load as they were before it, and the
// log has the rest.
//
// A file is not trusted. Numbers are bounded by what its size allows before a column is made for
// them (pageLimit, reserve). Each row has a checksum, and the number of rows is compared with the
// one that the last checkpoint wrote. A row that was edited with a correct checksum is found when
// it is read, or by a check.
//
// Damage of a head or a name ends the open: the catalogue would be wrong. Damage of a text costs
// that page only (unread).

// supersession is an artefact that replaces others. It is applied once all artefacts are known: the
// one it names may have a greater number.
type supersession struct {
	scope   uint32
	ids     []string
	by, lsn uint64
}

// Base describes rows: the LSN they are at, and what the last checkpoint counted in them.
type Base struct {
	Applied uint64 // LSN of the newest commit in the rows
	Rows    RowCounts
	High    string // the highest numbers that were ever in use; "": not known, those of the rows count
	Size    int64  // bytes of all rows; bounds the memory that a damaged number can reserve
}

// LoadRows builds catalogue and index from rows. An error of the lexical package means that only
// the index is damaged: the caller may drop its rows and call IndexAnew.
func (s *Engine) LoadRows(tx Reader, b Base) error {
	if err := s.loadMeta(tx, b); err != nil {
		return err
	}
	s.askedFrom = b.Rows.asked
	s.applied, s.cat.lsn = b.Applied, b.Applied // after the heads: loading them must not look like a change at this LSN
	for _, t := range []struct {
		table Table
		want  int
	}{{TableHeld, b.Rows.held}, {TableState, b.Rows.state}} {
		if err := s.countRows(tx, t.table, t.want); err != nil {
			return err
		}
	}
	if err := s.loadErases(tx); err != nil {
		return err
	}
	var err error
	if s.index, err = lexical.Open(SegRows{tx}); err == nil {
		return s.loadTail(tx)
	}
	return err
}

// IndexAnew reads every page into an empty index. It takes as long as analysing all texts.
func (s *Engine) IndexAnew(tx Reader) (err error) {
	s.unread = nil
	if s.index, err = lexical.Open(lexical.NoRows{}); err != nil {
		return err
	}
	return s.loadTail(tx)
}

// countRows compares the number of rows in a bucket with the count that was kept, and checks that
// keys rise. A damaged page of bbolt can hide rows or show some twice, and hidden rows have no
// checksum that could fail.
func (s *Engine) countRows(tx Reader, t Table, want int) error {
	n := 0
	var last []byte
	for k := range tx.From(t, nil) {
		if n > want {
			break
		}
		if n > 0 && bytes.Compare(last, k) >= 0 {
			return s.Corrupt("bucket "+t.String(), fmt.Errorf("row %x follows row %x", k, last))
		}
		n, last = n+1, append(last[:0], k...)
	}
	if n != want {
		return s.Corrupt("bucket "+t.String(), fmt.Errorf("has %d rows, expected %d", n, want))
	}
	return nil
}

// rowWalk walks the rows of a bucket that begin with a letter. Rows out of order are reported in
// err: a damaged page of bbolt may show rows of another place, with right checksums.
type rowWalk struct {
	tx   Reader
	n    int
	last []byte
	err  error
}

// rows yields the rows of a letter in the order of their keys. The caller looks at w.err after the
// last walk.
func (w *rowWalk) rows(letter byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for k, v := range w.tx.From(TableMeta, []byte{letter}) {
			if len(k) == 0 || k[0] != letter {
				return
			}
			if w.n > 0 && letter == w.last[0] && bytes.Compare(w.last, k) >= 0 {
				w.err = fmt.Errorf("row %x follows row %x", k, w.last)
				return
			}
			w.n, w.last = w.n+1, append(w.last[:0], k...)
			if !yield(k, v) {
				return
			}
		}
	}
}

// loadNames reads groups, then scopes. Both come before heads, which name them by number.
func (s *Engine) loadNames(w *rowWalk, high highest) error {
	for k, v := range w.rows('g') {
		v, err := codec.Unseal('m', k, v)
		if err != nil || len(v) < 4 || len(k) != 9 {
			return s.Corrupt("group row", errors.Join(err, codec.ErrMalformed))
		}
		if num, n := binary.BigEndian.Uint64(k[1:]), uint64(len(s.cat.groups)); num <= n || num > max(n+1, high.group) { // gc leaves gaps
			return s.Corrupt("group row", fmt.Errorf("number %d after %d", num, n))
		}
		s.cat.addGroup(binary.BigEndian.Uint64(k[1:]), binary.BigEndian.Uint32(v), string(v[4:]))
	}
	for k, v := range w.rows('s') {
		v, err := codec.Unseal('m', k, v)
		if err != nil || len(k) != 5 {
			return s.Corrupt("scope row", errors.Join(err, codec.ErrMalformed))
		}
		if num, n := uint64(binary.BigEndian.Uint32(k[1:])), uint64(len(s.cat.scopes.cols)); num <= n || num > max(n+1, high.scope) { // gc leaves gaps here too
			return s.Corrupt("scope row", fmt.Errorf("number %d after %d", num, n))
		}
		s.cat.addScope(binary.BigEndian.Uint32(k[1:]), string(v))
	}
	return nil
}

// loadHeads enters all heads into the catalogue, in the order of artefact and version.
func (s *Engine) loadHeads(w *rowWalk) error {
	var later []supersession
	var rows []store.PageRow
	for k, v := range w.rows('h') {
		row, err := codec.Unseal('m', k, v)
		if err != nil {
			return s.Corrupt(fmt.Sprintf("head row %x", k), err)
		}
		if rows, later, err = s.installRow(row, rows, later); err != nil {
			return s.Corrupt(fmt.Sprintf("head row %x", k), err)
		}
	}
	s.cat.retire(later)
	return nil
}

// retire applies supersessions in the order in which they happened: of two that replaced the same
// artefact, the later one answers for it; of two in one commit the one with the greater number,
// because no row keeps their order.
func (c *catalogue) retire(later []supersession) {
	sort.Slice(later, func(i, j int) bool {
		a, b := &later[i], &later[j]
		return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.by, b.by)) < 0
	})
	writtenSince := map[uint64][]uint64{} // artefacts put again since, with the LSNs from which they had been replaced
	for _, l := range later {
		for _, id := range l.ids {
			switch art := c.lookup(l.scope, id); {
			case art == 0 || art == l.by:
			case c.newestOf(c.art(art)).lsn > l.lsn:
				writtenSince[art] = append(writtenSince[art], l.lsn)
			default:
				c.supersede(art, l.by, l.lsn)
			}
		}
	}
	if len(writtenSince) == 0 {
		return
	}
	for _, p := range c.pages.all() {
		for _, lsn := range writtenSince[uint64(p.art)] {
			if r := *c.rareOf(p); c.numbers(p).lsn <= lsn && lsn < r.end { // as install had it
				r.end = lsn
				c.setRare(p, r)
			}
		}
	}
}

// loadMeta reads names and heads, and sees to it that these are all rows there are.
func (s *Engine) loadMeta(tx Reader, b Base) error {
	s.reserve(tx, b.Size)
	high, err := parseHighest(b.High)
	if err != nil {
		return s.Corrupt("system row", err)
	}
	w := &rowWalk{tx: tx}
	if err := s.loadNames(w, high); err != nil {
		return err
	}
	if err := s.pad(high); err != nil {
		return s.Corrupt("system row", err)
	}
	if err := s.loadHeads(w); err != nil {
		return err
	}
	if w.err == nil && w.n != b.Rows.meta {
		w.err = fmt.Errorf("has %d rows, expected %d", w.n, b.Rows.meta)
	}
	if w.err != nil {
		return s.Corrupt("bucket meta", w.err)
	}
	s.high = s.cat.highest()
	return nil
}

// reserve sizes the catalogue for what the file holds, so that loading does not grow it. The last
// keys tell how many rows there are (scopes come after heads). A damaged key claims at most what
// the file has space for.
func (s *Engine) reserve(tx Reader, size int64) {
	const fewest = 64 // bytes of a head row
	most := uint64(size / fewest)
	s.cat.reserve(min(lastArtefact(tx.Before(TableMeta, []byte{'s'})), most))
}

// lastArtefact returns the number of the artefact in a key; 0: there is none. It is a hint only.
func lastArtefact(key []byte) uint64 {
	k, _ := format.ReadHeadKey(key)
	return k.Art
}

// installRow enters a head row into the catalogue. Supersessions are added to later. rows is memory
// for reuse: a million heads are read at an open.
func (s *Engine) installRow(row []byte, rows []store.PageRow, later []supersession) ([]store.PageRow, []supersession, error) {
	d := codec.Decoder{B: row}
	t := format.DecodeHot(&d)
	rows = format.DecodeRows(&d, &t, rows)
	if d.Err != nil {
		return rows, later, d.Err
	}
	if err := s.validateHot(&t, rows); err != nil {
		return rows, later, err
	}
	if err := s.cat.facts.ofRow(&t, d); err != nil {
		return rows, later, err
	}
	s.cat.install(&t, rows)
	if t.Flags&format.FlagSupersedes == 0 && t.Kind != store.KindSummary {
		return rows, later, nil
	}
	var h store.Head
	if err := format.DecodeCold(&t, &d, &h); err != nil {
		return rows, later, err
	}
	s.cat.addSummary(&t, h.DerivedFrom)
	if t.Flags&format.FlagSupersedes == 0 {
		return rows, later, nil
	}
	return rows, append(later, supersession{t.Scope, h.Supersedes, t.Art, t.LSN}), nil
}

// validateHot keeps a damaged row that has a right checksum (a bug, or a forger) from reaching
// outside the tables.
func (s *Engine) validateHot(t *format.Hot, rows []store.PageRow) error {
	if s.cat.scopeName(t.Scope) == "" || t.Group > uint64(len(s.cat.groups)) ||
		t.Art == 0 || t.Art > min(mostNumber, uint64(s.cat.arts.len())+1) || !t.Provenance.Valid() || len(t.ID) == 0 || len(t.ID) > store.MaxID {
		return codec.ErrMalformed
	}
	for i := range rows {
		if rows[i].Num == 0 || rows[i].Num > mostNumber || s.pageLimit != 0 && rows[i].Num > s.pageLimit {
			return codec.ErrMalformed
		}
	}
	return nil
}

// loadTail analyses again the pages above those in the index's segments: the last checkpoints did
// not flush them. A page whose text cannot be read is lost alone. Readers of it get an error, and
// questions name it as damaged. Its header is indexed all the same, so that the counts of the index
// stay equal to the counts of the catalogue (I16).
func (s *Engine) loadTail(tx Reader) error {
	for num := s.index.Through() + 1; num <= uint64(s.cat.pages.len()); num++ {
		p := s.cat.page(num)
		if p.art == 0 || p.gone() {
			continue
		}
		// By the head it came with, as install did it: a later head with the same text may differ
		// in fields that are not indexed.
		n := s.cat.numbers(p)
		head, err := s.headIn(tx, format.HeadKey{Art: uint64(p.art), Version: n.version})
		if errors.Is(err, store.ErrGone) { // a scan has just found it: a branch of the tree leads astray
			err = s.Corrupt(fmt.Sprintf("head row of page %d", num), err)
		}
		if err != nil {
			return err
		}
		text, err := s.textIn(tx, num)
		if i := int(n.page) - 1; err == nil && i < len(head.Rows) {
			err = s.provedText(num, &head.Rows[i], text)
		}
		if err != nil && !errors.Is(err, store.ErrErased) {
			s.unread = append(s.unread, num)
		}
		s.index.Add(s.doc(num, p.scope, head, text, nil))
	}
	s.index.Loaded()
	return nil
}

// textIn reads a content row. A damaged page of the tree on the way to it is damage of this row
// alone.
func (s *Engine) textIn(tx Reader, num uint64) (text string, err error) {
	defer s.recoverRow(num, &err)
	key := format.TextRowKey(num)
	row, err := codec.Unseal('c', key, tx.Get(TableContent, key))
	if errors.Is(err, codec.ErrDestroyed) {
		return "", fmt.Errorf("%w: page %d: %w", store.ErrErased, num, err)
	}
	if err != nil {
		return "", s.Corrupt(fmt.Sprintf("content of page %d", num), err)
	}
	return string(row), nil
}

// recoverRow turns a panic of the rows below into damage of one page's text. bbolt panics on a
// damaged tree page.
func (s *Engine) recoverRow(num uint64, err *error) {
	if r := recover(); r != nil {
		*err = s.Corrupt(fmt.Sprintf("content of page %d", num), fmt.Errorf("%v", r))
	}
}

// headIn reads the head of a version from a snapshot and compares it with the audit. A version
// below the floor of its artefact has no row; the row of the floor answers for it as gone. Any
// other missing row is damage, because the catalogue knows the version.
func (s *Engine) headIn(tx Reader, k format.HeadKey) (*store.Head, error) {
	key := format.HeadRowKey(k)
	v := tx.Get(TableMeta, key)
	if v == nil { // every version that the catalogue knows has a row, or a floor that stands for it
		if row, err := floorOf(tx, k); row != nil && err == nil {
			h, err := format.DecodeHead(row, s.cat.scopeName)
			if err == nil {
				err = s.provedHead(format.HeadKey{Art: k.Art, Version: h.Version}, row, s.cat.names)
			}
			if err != nil {
				return nil, s.Corrupt(fmt.Sprintf("head row %x", key), err)
			}
			return format.BelowFloor(h, k.Version), nil
		}
		return nil, s.Corrupt(fmt.Sprintf("head row %x", key), errors.New("missing"))
	}
	row, err := codec.Unseal('m', key, v)
	if err != nil {
		return nil, s.Corrupt(fmt.Sprintf("head row %x", key), err)
	}
	h, err := format.DecodeHead(row, s.cat.scopeName)
	if err == nil {
		err = s.provedHead(k, row, s.cat.names)
	}
	if err != nil {
		return nil, s.Corrupt(fmt.Sprintf("head row %x", key), err)
	}
	return h, nil
}

// doc makes what the index takes in of a page. a is its analysis; nil: the index makes it when it is needed.
func (s *Engine) doc(num uint64, scope uint32, h *store.Head, text string, a *lexical.Analysis) lexical.Doc {
	d := lexical.Doc{Num: num, Scope: scope, Group: h.GroupNum, Turn: format.TurnOf(&h.Artefact), Bytes: len(text)}
	if a != nil {
		d.Analysis = *a
	} else {
		d.Analyse = func() lexical.Analysis { return format.LendAnalysis(s.opts.Analyzer, &h.Artefact, text) }
	}
	return d
}

// maxReaders is the most goroutines that read at an open: the host has work of its own.
const maxReaders = 4

// settleRows is how many artefacts get their newest versions in one step of an open.
const settleRows = 8 << 10

// runParallel runs functions on up to so many processors until one returns false. It reports whether all
// returned true.
func runParallel(workers int, all ...func() bool) bool {
	var wait sync.WaitGroup
	var next atomic.Int64
	var bad atomic.Bool
	for range min(runtime.GOMAXPROCS(0), workers, len(all)) {
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
	var read, after []func() bool
	newest := make([]newestCol, n[0])
	for i, b := range arts {
		read = append(read, func() bool { return c.readArts(&mu, b, newest, i*partRows, min((i+1)*partRows, n[0])) })
	}
	for from := 0; from < n[0]; from += settleRows {
		after = append(after, func() bool { return c.settle(&mu, newest[from:min(from+settleRows, n[0])], from) })
	}
	for i, b := range pages {
		read = append(read, func() bool { return c.readPages(&mu, b, i*partRows, min((i+1)*partRows, n[1])) })
	}
	for i, b := range table {
		read = append(read, func() bool { return codec.ReadSparse(b, c.table[i*partRows:min((i+1)*partRows, n[3])]) })
	}
	read = append(read, func() bool { return c.readScopes(of.one(partScopes)) })
	if !runParallel(maxReaders, read...) || !runParallel(maxReaders, after...) {
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
	buf codec.ColumnBuffer
	few [fewNumbers]uint64 // of the list that is read; on the stack it would be allocated for each
}

// length reads how many numbers follow. A block of numbers takes at least 9 bytes, and one of a few at least one.
func (d *imageDecoder) length() int {
	n := d.Uvarint()
	if n > uint64(len(d.B)/9+1)*codec.ColumnRows || n < fewNumbers && n > uint64(len(d.B)) {
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

// read reads n numbers in blocks and calls set with each block and the place of its first number. A few are one block.
func (d *imageDecoder) read(n int, set func(from int, v []uint64)) {
	if n < fewNumbers {
		last := uint64(0)
		for i := range n {
			last += uint64(d.Varint())
			d.few[i] = last
		}
		if d.Err == nil && n > 0 {
			set(0, d.few[:n])
		}
		return
	}
	rest, ok := d.buf.ReadColumn(d.B, n, set)
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
				if o.chunks == nil {
					o.chunks = make([]sortedRun, 0, (n+full-1)/full)
				}
				k := min(sortedChunk, n-from-i)
				o.chunks = append(o.chunks, newRun(k))
			}
			c := &o.chunks[len(o.chunks)-1]
			c.insert(len(c.rows), entry{key(d.c, d.c.page(x)), x})
		}
	})
	o.n = n
}

func pageAsOf(_ *catalogue, p *pageCol) int64    { return p.asOf }
func pageExpires(c *catalogue, p *pageCol) int64 { return c.expires(p) }

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
