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

// around returns the LSNs of the commits before and after a hole; after 0: there is none.
//
// w.commits ascends in both numbers, because ScanIntact reads the segments in the order of the log.
func (w *wreck) around(h wal.Hole) (before, after uint64) {
	i, _ := slices.BinarySearchFunc(w.commits, h.From, func(c logged, seq uint64) int { return cmp.Compare(c.seq, seq) })
	before = w.applied
	if i > 0 {
		before = max(before, w.commits[i-1].lsn)
	}
	if h.To != 0 && i < len(w.commits) {
		after = w.commits[i].lsn
	}
	return before, after
}

// noCommit reports whether the commits around a hole follow each other, so that the hole has none.
//
// LSNs count commits only. So two that are neighbours prove that every record between them was a
// read, even where none of those records can be read.
func (w *wreck) noCommit(h wal.Hole) bool {
	before, after := w.around(h)
	return (w.system || before != 0) && after != 0 && after <= before+1
}

// cutAt notes a hole that has commits. Rows of a later commit in the log are newer than they are.
func (w *wreck) cutAt(h wal.Hole) {
	w.cut = true
	if _, after := w.around(h); after != 0 {
		w.gapTo = max(w.gapTo, after-1)
		return
	}
	w.cutAll()
}

// cutAll notes that commits are lost and that nothing says which.
func (w *wreck) cutAll() { w.cut, w.gapTo = true, math.MaxUint64 }

// belongs compares a record with what the file has under the same numbers, because a log does not
// say whose it is. A single equal row is proof, since its salt is random. Different rows alone may
// be edits: a log is foreign only if nothing in it fits (gather).
func (w *wreck) belongs(r wal.Record) error {
	r, err := openRecord(w.ring, r)
	if errors.Is(err, store.ErrKey) {
		w.noKey = cmp.Or(w.noKey, err)
	}
	if err != nil {
		return nil // record reports it
	}
	if r.Kind == wal.KindAudit {
		index, _, question, err := format.DecodeLeaf(r.Body)
		if err == nil && question != nil {
			w.asked[index] = true
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
		if name := w.scopes[n.Num]; name != "" && name != n.Name {
			w.unlike++
		}
	}
	for _, h := range c.Heads {
		d := codec.Decoder{B: h.Row}
		t := format.DecodeHot(&d)
		k := format.HeadKey{Art: t.Art, Version: t.Version}
		is := func(row []byte) bool { return bytes.Equal(row, h.Row) }
		switch row := w.heads[k]; {
		case row == nil:
		case is(row) || slices.ContainsFunc(w.others[k], is):
			w.alike++ // a row has a random salt: no other database has the same
		case !format.GoneRow(row) && t.Flags&format.FlagGone == 0:
			w.unlike++
		}
	}
	return nil
}

// record takes the rows of a record of the log.
//
// A head of a commit that the file does not have yet goes in front of what the file has; one that
// the file has goes behind it, as another candidate. State and held batches of the log replace
// those of the file, because the log is newer there.
func (w *wreck) record(r wal.Record) error {
	w.last = r.Seq
	if r.Kind != wal.KindCommit {
		return nil
	}
	r, err := openRecord(w.ring, r)
	var c *format.Commit
	if err == nil {
		c, err = format.DecodeCommit(r.Body)
	}
	if err != nil {
		w.cutAll()
		w.lose(fmt.Sprintf("record %d of the log", r.Seq), "%v", err)
		return nil
	}
	if from := max(w.applied, w.lsn) + 1; c.LSN > from && w.system {
		w.missed = true // the audit names them, if it is complete
		w.lose("log", "commits %d to %d", from, c.LSN-1)
	}
	w.lsn, w.commits = c.LSN, append(w.commits, logged{r.Seq, c.LSN})
	for _, n := range c.Scopes {
		w.scopes[n.Num] = n.Name
	}
	for _, h := range c.Heads {
		d := codec.Decoder{B: h.Row}
		t := format.DecodeHot(&d)
		w.keep(format.HeadKey{Art: t.Art, Version: t.Version}, h.Row, c.LSN > w.applied)
		for _, x := range h.Texts {
			w.logged[x.Num] = x.Text
		}
	}
	if c.LSN <= w.applied {
		return nil // the file has these rows, or newer ones
	}
	for _, s := range c.State {
		if leaf, ok := format.GoneQuestion(s.Key); ok {
			delete(w.asked, leaf)
			continue
		}
		if id, ok := format.GoneReview(s.Key); ok {
			delete(w.held, id)
			continue
		}
		w.state[s.Key] = s.Value
		delete(w.sealed, s.Key)
	}
	if len(c.Held) > 0 {
		w.held[c.HeldID] = c.Held
	}
	return nil
}
