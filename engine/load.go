package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// Open, first half: from the rows to the catalogue. The second half is redo of the log (follow.go).
//
//	names     scopes and groups, by number; numbers are dense, but for those that gc left out
//	heads     by artefact and version; only the fixed part is decoded (hot), the rest when somebody reads the version
//	retire    supersessions, applied in the order of their LSNs after all heads are known
//	tail      pages above what the index has: analysed and added to its part in memory
//
// A file is not trusted: numbers are bounded by what its size allows before a column is made for them (pageLimit,
// reserve), each row has a checksum, and their count is compared with what the last checkpoint wrote. Whether a row was
// edited by somebody who can make checksums is found when it is read, or by the first question (inventory.go).

// supersession waits until all artefacts are known.
type supersession struct {
	scope   uint32
	ids     []string
	by, lsn uint64
}

// Base is what rows are of.
type Base struct {
	Applied uint64 // LSN
	Rows    RowCounts
	Summed  bool   // Rows.Sum holds; files of older programs have none
	AskedOK bool   // likewise Rows.AskedSum
	High    string // highest numbers that were in use; "": those of the rows
	Size    int64  // of all rows, bytes: it bounds what damaged numbers may claim
}

// LoadRows builds catalogue and index from rows.
func (s *Engine) LoadRows(tx Reader, b Base) error {
	if err := s.loadMeta(tx, b); err != nil {
		return err
	}
	s.askedFrom = b.Rows.Asked
	s.applied, s.cat.lsn = b.Applied, b.Applied // not before: what stands in the rows has not changed since
	for _, t := range []struct {
		table Table
		want  int
	}{{TableHeld, b.Rows.held}, {TableState, b.Rows.state}} {
		if err := s.countRows(tx, t.table, t.want); err != nil {
			return err
		}
	}
	var err error
	if s.index, err = lexical.Open(SegRows{tx}); err == nil {
		return s.loadTail(tx)
	}
	return err
}

// IndexAnew reads every page into an empty index.
func (s *Engine) IndexAnew(tx Reader) (err error) {
	s.unread = nil
	if s.index, err = lexical.Open(noRows{}); err != nil {
		return err
	}
	return s.loadTail(tx)
}

// noRows is an empty store of segments.
type noRows struct{}

func (noRows) Get([]byte) []byte { return nil }

func (noRows) Scan(_, _ []byte, _ func(_, _ []byte) bool) {}

// countRows compares the rows of a bucket with the count that was kept.
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

// rowWalk goes through the rows of a bucket that begin with a letter. Rows out of order are reported by err: a damaged
// page of bbolt may show rows of another place, all of them with right checksums.
type rowWalk struct {
	tx   Reader
	n    int
	last []byte
	err  error
}

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
		if num := binary.BigEndian.Uint32(k[1:]); int(num) != len(s.cat.scopes)+1 {
			return s.Corrupt("scope row", fmt.Errorf("number %d after %d", num, len(s.cat.scopes)))
		}
		s.cat.addScope(binary.BigEndian.Uint32(k[1:]), string(v))
	}
	return nil
}

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

// retire applies supersessions in the order in which they happened: of two that replaced the same artefact, the later
// one answers for it; of two in one commit the one with the greater number, because no row keeps their order.
func (c *catalogue) retire(later []supersession) {
	slices.SortFunc(later, func(a, b supersession) int { return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.by, b.by)) })
	writtenSince := map[uint64][]uint64{} // artefacts put again since, with the LSNs from which they had been replaced
	for _, l := range later {
		for _, id := range l.ids {
			switch art := c.lookup(l.scope, id); {
			case art == 0 || art == l.by:
			case c.art(art).lsn > l.lsn:
				writtenSince[art] = append(writtenSince[art], l.lsn)
			default:
				c.supersede(art, l.by, l.lsn)
			}
		}
	}
	for i := 0; i < len(c.pages) && len(writtenSince) > 0; i++ {
		p := &c.pages[i]
		for _, lsn := range writtenSince[p.art] {
			if p.lsn <= lsn && lsn < p.end { // as install had it
				p.end = lsn
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

// reserve sizes the catalogue for what the file holds. The last keys tell (scopes come after
// heads); a damaged one is held to what the file has space for.
func (s *Engine) reserve(tx Reader, size int64) {
	most := uint64(size / pageRowBytes)
	s.cat.reserve(min(lastNumber(tx.Before(TableMeta, []byte{'s'}), 'h'), most), min(lastText(tx), most))
}

// lastText is the number of the last text; 0 where it cannot be read: a damaged page on the way to it costs the texts
// below it, not the database.
func lastText(tx Reader) (num uint64) {
	defer func() { _ = recover() }()
	return lastNumber(tx.Last(TableContent), 0)
}

// lastNumber is the number at the beginning of a key, after its letter if it has one; 0 where there is none: it only
// saves growing.
func lastNumber(key []byte, letter byte) uint64 {
	if letter != 0 {
		if len(key) == 0 || key[0] != letter {
			return 0
		}
		key = key[1:]
	}
	if len(key) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

// installRow enters a head row into the catalogue. Supersessions are put off; rows is memory to use again.
func (s *Engine) installRow(row []byte, rows []store.PageRow, later []supersession) ([]store.PageRow, []supersession, error) {
	d := codec.Decoder{B: row}
	t := DecodeHot(&d)
	rows = DecodeRows(&d, rows)
	if d.Err != nil {
		return rows, later, d.Err
	}
	if err := s.validateHot(&t, rows); err != nil {
		return rows, later, err
	}
	var err error
	if t.facts, err = s.cat.facts.ofRow(row[0], d); err != nil {
		return rows, later, err
	}
	s.cat.install(&t, rows)
	if row[0] == rowVersionOld {
		s.cat.unproved++
	}
	if t.Flags&flagSupersedes == 0 && t.kind != store.KindSummary {
		return rows, later, nil
	}
	var h store.Head
	if err := decodeCold(row[0], &d, &h); err != nil {
		return rows, later, err
	}
	s.cat.addSummary(&t, h.DerivedFrom)
	if t.Flags&flagSupersedes == 0 {
		return rows, later, nil
	}
	return rows, append(later, supersession{t.Scope, h.Supersedes, t.Art, t.lsn}), nil
}

// validateHot keeps a damaged row that has a right checksum (a bug, or a forger) from reaching outside the tables.
func (s *Engine) validateHot(t *hot, rows []store.PageRow) error {
	if t.Scope == 0 || int(t.Scope) > len(s.cat.scopes) || t.group > uint64(len(s.cat.groups)) ||
		t.Art == 0 || t.Art > min(1<<32-1, uint64(len(s.cat.arts))+1) || !t.provenance.Valid() || len(t.id) == 0 || len(t.id) > store.MaxID {
		return codec.ErrMalformed
	}
	for i := range rows {
		if rows[i].Num == 0 || s.pageLimit != 0 && rows[i].Num > s.pageLimit {
			return codec.ErrMalformed
		}
	}
	return nil
}

// loadTail analyses again the pages above the segments: those the last checkpoints did not flush.
func (s *Engine) loadTail(tx Reader) error {
	for num := s.index.Through() + 1; num <= uint64(len(s.cat.pages)); num++ {
		p := s.cat.page(num)
		if p.art == 0 || p.gone() {
			continue
		}
		// By the head it came with, as install did it: a later one of the same text may differ in what is not indexed.
		head, err := s.headIn(tx, HeadKey{p.art, p.version})
		if errors.Is(err, store.ErrGone) { // a scan has just found it: a branch of the tree leads astray
			err = s.Corrupt(fmt.Sprintf("head row of page %d", num), err)
		}
		if err != nil {
			return err
		}
		text, err := s.textIn(tx, num)
		if i := int(p.page) - 1; err == nil && i < len(head.Rows) {
			err = s.provedText(num, &head.Rows[i], text)
		}
		if err != nil {
			// Only this page is lost: whoever reads it is told, and a question is told that it cannot be asked of it.
			// Its header is indexed, so that the counts of the index stay those of the pages.
			s.unread = append(s.unread, num)
		}
		s.index.Add(s.doc(num, p.scope, head, text, nil))
	}
	return nil
}

// textIn reads a content row. A damaged page of the tree on the way to it is damage of this row alone.
func (s *Engine) textIn(tx Reader, num uint64) (text string, err error) {
	defer s.recoverRow(num, &err)
	key := textRowKey(num)
	row, err := codec.Unseal('c', key, tx.Get(TableContent, key))
	if err != nil {
		return "", s.Corrupt(fmt.Sprintf("content of page %d", num), err)
	}
	return string(row), nil
}

// recoverRow turns a panic of the rows below into damage of one page's text.
func (s *Engine) recoverRow(num uint64, err *error) {
	if r := recover(); r != nil {
		*err = s.Corrupt(fmt.Sprintf("content of page %d", num), fmt.Errorf("%v", r))
	}
}

func (s *Engine) headIn(tx Reader, k HeadKey) (*store.Head, error) {
	key := headRowKey(k)
	v := tx.Get(TableMeta, key)
	if v == nil { // what the catalogue knows of has a row, also where gc dropped the version, or one that stands for it
		if row, err := floorOf(tx, k); row != nil && err == nil {
			h, err := DecodeHead(row, s.cat.scopeName)
			if err == nil {
				err = s.provedHead(HeadKey{k.Art, h.Version}, row, s.cat.names)
			}
			if err != nil {
				return nil, s.Corrupt(fmt.Sprintf("head row %x", key), err)
			}
			return h.Below(k.Version), nil
		}
		return nil, s.Corrupt(fmt.Sprintf("head row %x", key), errors.New("missing"))
	}
	row, err := codec.Unseal('m', key, v)
	if err != nil {
		return nil, s.Corrupt(fmt.Sprintf("head row %x", key), err)
	}
	h, err := DecodeHead(row, s.cat.scopeName)
	if err == nil {
		err = s.provedHead(k, row, s.cat.names)
	}
	if err != nil {
		return nil, s.Corrupt(fmt.Sprintf("head row %x", key), err)
	}
	return h, nil
}

func (s *Engine) doc(num uint64, scope uint32, h *store.Head, text string, a *lexical.Analysis) lexical.Doc {
	if a == nil {
		an := store.Analyse(s.opts.Analyzer, &h.Artefact, text)
		a = &an
	}
	return lexical.Doc{Num: num, Scope: scope, Group: h.GroupNum, Analysis: *a, Turn: store.TurnOf(&h.Artefact)}
}
