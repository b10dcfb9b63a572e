package filestore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
)

// logged is a commit in the log.
type logged struct{ seq, lsn uint64 }

// around returns the LSNs of the commits before and after a hole; after 0: there is none. commits ascends
// in both numbers.
func (d *damaged) around(h wal.Hole) (before, after uint64) {
	i, _ := slices.BinarySearchFunc(d.commits, h.From, func(c logged, seq uint64) int { return cmp.Compare(c.seq, seq) })
	before = d.sys.Applied
	if i > 0 {
		before = max(before, d.commits[i-1].lsn)
	}
	if h.To != 0 && i < len(d.commits) {
		after = d.commits[i].lsn
	}
	return before, after
}

// noCommit reports whether the commits around a hole follow each other: LSNs count commits only, so every
// record between two neighbours was a read.
func (d *damaged) noCommit(h wal.Hole) bool {
	before, after := d.around(h)
	return (d.system || before != 0) && after != 0 && after <= before+1
}

// cutAt notes a hole that has commits. Rows of a later commit in the log are newer than they are.
func (d *damaged) cutAt(h wal.Hole) {
	d.cut = true
	if _, after := d.around(h); after != 0 {
		d.gapTo = max(d.gapTo, after-1)
		return
	}
	d.cutAll()
}

// cutAll notes that commits are lost and that nothing says which.
func (d *damaged) cutAll() { d.cut, d.gapTo = true, math.MaxUint64 }

// belongs compares a record with what the file has under the same numbers, because a log does not
// say whose it is. A single equal row is proof, since its salt is random. Different rows alone may
// be edits: a log is foreign only if nothing in it fits (gather).
func (d *damaged) belongs(r wal.Record) error {
	r, err := openRecord(d.ring, r)
	if errors.Is(err, store.ErrKey) {
		d.noKey = cmp.Or(d.noKey, err)
	}
	if err != nil {
		return nil // record reports it
	}
	if r.Kind == wal.KindAudit {
		index, _, question, err := format.DecodeLeaf(r.Body)
		if err == nil && question != nil {
			d.asked[index] = true
		}
		return nil
	}
	if r.Kind != wal.KindCommit {
		return nil
	}
	c, err := format.DecodeCommit(r.Body)
	if err != nil {
		return nil // record reports it
	}
	for _, n := range c.Scopes {
		if name := d.scopes[n.Num]; name != "" && name != n.Name {
			d.unlike++
		}
	}
	for _, h := range c.Heads {
		dec := codec.Decoder{B: h.Row}
		t := format.DecodeHot(&dec)
		k := format.HeadKey{Art: t.Art, Version: t.Version}
		is := func(row []byte) bool { return bytes.Equal(row, h.Row) }
		switch row := d.heads[k]; {
		case row == nil:
		case is(row) || slices.ContainsFunc(d.others[k], is):
			d.alike++ // a row has a random salt: no other database has the same
		case !format.GoneRow(row) && t.Flags&format.FlagGone == 0:
			d.unlike++
		}
	}
	return nil
}

// record takes the rows of a record of the log. A head of a commit that the file does not have goes in
// front of the rows of the file, any other behind them. State and held batches of the log replace older
// ones of the file.
func (d *damaged) record(r wal.Record) error {
	d.last = r.Seq
	if r.Kind != wal.KindCommit {
		return nil
	}
	r, err := openRecord(d.ring, r)
	var c *format.Commit
	if err == nil {
		c, err = format.DecodeCommit(r.Body)
	}
	if err != nil {
		d.cutAll()
		d.lose(fmt.Sprintf("record %d of the log", r.Seq), "%v", err)
		return nil
	}
	if from := max(d.sys.Applied, d.lsn) + 1; c.LSN > from && d.system {
		d.missed = true // the audit names them, if it is complete
		d.lose("log", "commits %d to %d", from, c.LSN-1)
	}
	d.lsn, d.commits = c.LSN, append(d.commits, logged{r.Seq, c.LSN})
	for _, n := range c.Scopes {
		d.scopes[n.Num] = n.Name
	}
	for _, h := range c.Heads {
		dec := codec.Decoder{B: h.Row}
		t := format.DecodeHot(&dec)
		d.keep(format.HeadKey{Art: t.Art, Version: t.Version}, h.Row, c.LSN > d.sys.Applied)
		for _, x := range h.Texts {
			d.logged[x.Num] = x.Text
		}
	}
	if c.LSN <= d.sys.Applied {
		return nil // the file has these rows, or newer ones
	}
	for _, s := range c.State {
		if leaf, ok := format.GoneQuestion(s.Key); ok {
			delete(d.asked, leaf)
			continue
		}
		if id, ok := format.GoneReview(s.Key); ok {
			delete(d.held, id)
			continue
		}
		d.state[s.Key] = s.Value
		delete(d.sealed, s.Key)
	}
	if len(c.Held) > 0 {
		d.held[c.HeldID] = c.Held
	}
	return nil
}
