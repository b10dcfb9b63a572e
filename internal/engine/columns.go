package engine

import (
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/numbers"
)

// A snapshot of the columns: catalogue, facts and the columns of the index as of one LSN, in the
// form memory has them. An open that reads it does not decode a row for each page. It is derived and
// can go at any time.
//
//	named    its digest is in a leaf of the audit (manifest.TypeColumns), as those of rows are. The store compares digest,
//	         database and LSN before a byte of it is decoded
//	edited   a snapshot that was edited has another digest; a leaf that was edited changes the root of every later head
//	old      an old snapshot that was put back names an LSN other than that of the rows
//	rows     the columns decide what a question leaves out. A page that it loads is compared with its own leaf (rowproof.go)
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
	partLists       // scopes, groups, lists, facts
	partWords       // lexical.Image.Sums
	partWordRows
)

// partRows is the most rows of a part.
const partRows = 64 * numbers.Rows

// Columns returns a snapshot of the columns. It returns nil, and the store must keep no snapshot,
// unless memory is at the LSN of the rows. It blocks installs for about 0.1 µs per page version.
func (s *Engine) Columns(applied uint64) (*Columns, error) {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	if s.cat.lsn != applied || len(s.unread) > 0 || s.IndexDamaged() || s.Failure() != nil {
		return nil, nil
	}
	out := &Columns{LSN: applied}
	err := s.rows.View(func(tx Reader) error {
		s.cat.image(out)
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

// LoadColumns does what LoadRows does, from a snapshot whose digest the caller has compared with
// the audit. It returns false, and has changed nothing, if the snapshot is of other rows or of
// another version of the program; then call LoadRows.
func (s *Engine) LoadColumns(tx Reader, b Base, of *Columns) (bool, error) {
	c, ok := readColumns(of)
	if !ok || of.LSN != b.Applied {
		return false, nil
	}
	high, err := parseHighest(b.High)
	if err != nil || c.arts.len() < int(high.art) || c.pages.len() < int(high.num) || len(c.groups) < int(high.group) || len(c.scopes) < int(high.scope) {
		return false, nil // the open without it says what is wrong
	}
	for _, t := range []struct {
		table Table
		want  int
	}{{TableHeld, b.Rows.held}, {TableState, b.Rows.state}} {
		if err := s.countRows(tx, t.table, t.want); err != nil {
			return false, err
		}
	}
	if err := s.loadErases(tx); err != nil {
		return false, err
	}
	s.cat, s.high, s.askedFrom = c, c.highest(), b.Rows.asked
	s.applied, c.lsn = b.Applied, b.Applied
	im := lexical.Image{Sums: of.one(partWords), Parts: of.of(partWordRows)}
	if s.index, ok, err = lexical.OpenImage(SegRows{tx}, im, runParallel); err == nil && !ok {
		s.index, err = lexical.Open(SegRows{tx})
	}
	if err != nil {
		return true, err
	}
	return true, s.loadTail(tx)
}
