package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/rules"
	"github.com/oklog/ulid/v2"
)

// A checkpoint writes an overlay into the rows in one transaction, so a crash leaves the file at
// the LSN before it or at the one after it.
//
// The order of the writes matters:
//
//   - Names come first, because heads name them by number.
//   - Rows that gc forgets are deleted before heads are counted.
//   - Each table is written in the order of its keys: bbolt then fills its pages from left to right
//     and rewrites each page once.
//   - Counts and the sum of the small tables (RowCounts) move with the rows they count, and the
//     caller writes them in the same transaction.
//
// A head, a text or a name is written once. An outcome, a held batch, a state row or a question may
// replace a row, so those are looked up before they are counted.

// applyOverlay writes the rows of an overlay, and counts those that are new. An error leaves the
// transaction to its caller, who rolls it back; the overlay is not changed, so the next checkpoint
// writes the same rows.
func applyOverlay(tx Writer, o *overlay, n *RowCounts) error {
	var seals sealBuffer
	for _, n := range o.scopes {
		if err := putRow(tx, TableMeta, 'm', format.ScopeRowKey(n.Num), []byte(n.Name)); err != nil {
			return err
		}
	}
	for _, g := range o.groups {
		v := append(binary.BigEndian.AppendUint32(nil, g.Scope), g.Name...)
		if err := putRow(tx, TableMeta, 'm', format.GroupRowKey(g.Num), v); err != nil {
			return err
		}
	}
	if err := applyGoneNames(tx, o, n); err != nil {
		return err
	}
	rows, err := applyForgotten(tx, o, n)
	if err != nil {
		return err
	}
	heads := make([]format.HeadKey, 0, len(rows))
	for k := range rows {
		heads = append(heads, k)
	}
	slices.SortFunc(heads, func(a, b format.HeadKey) int {
		return cmp.Or(cmp.Compare(a.Art, b.Art), cmp.Compare(a.Version, b.Version))
	})
	n.meta -= replacedRows(tx, o, rows)
	var key []byte // the rows keep no key
	for _, k := range heads {
		key = format.AppendHeadKey(key[:0], k)
		if err := tx.Put(TableMeta, key, sealed(&seals, 'm', key, rows[k])); err != nil {
			return err
		}
	}
	for _, num := range slices.Sorted(maps.Keys(o.texts)) {
		key = binary.BigEndian.AppendUint64(key[:0], num)
		if err := tx.Put(TableContent, key, sealed(&seals, 'c', key, o.texts[num])); err != nil {
			return err
		}
	}
	n.meta += len(o.scopes) + len(o.groups) + len(rows) // all new: numbers are never used twice
	n.content += len(o.texts)
	if err := applyNoVectors(tx, o); err != nil {
		return err
	}
	if err := applyVectors(tx, o); err != nil {
		return err
	}
	if err := applyGone(tx, o, n); err != nil {
		return err
	}
	return applySmall(tx, &seals, o, n)
}

// applySmall writes the tables whose rows can be replaced: state, held batches, outcomes,
// questions. A row is looked up before it is replaced, for two reasons: the count goes up only for
// a new row, and the checksum of the old one leaves the sum.
func applySmall(tx Writer, seals *sealBuffer, o *overlay, n *RowCounts) error {
	if err := applyState(tx, seals, o, n); err != nil {
		return err
	}
	if err := applyBatches(tx, seals, TableHeld, 'd', o.held, n, &n.held); err != nil {
		return err
	}
	if err := applyBatches(tx, seals, TableTxn, 't', o.result, n, &n.txn); err != nil {
		return err
	}
	if err := applyQuestions(tx, seals, o, n); err != nil {
		return err
	}
	return forgetOutcomes(tx, o, n)
}

// applyState writes and deletes state rows.
func applyState(tx Writer, seals *sealBuffer, o *overlay, n *RowCounts) error {
	for _, k := range slices.Sorted(maps.Keys(o.state)) {
		before := tx.Get(TableState, []byte(k))
		was := before != nil
		n.Sum -= rowSum(before)
		if o.state[k] == nil {
			if err := tx.Delete(TableState, []byte(k)); err != nil {
				return err
			}
			if was {
				n.state--
			}
			continue
		}
		if !was {
			n.state++
		}
		row := sealed(seals, format.TagState, []byte(k), o.state[k])
		n.Sum += rowSum(row)
		if err := tx.Put(TableState, []byte(k), row); err != nil {
			return err
		}
	}
	return nil
}

// applyBatches writes and deletes the rows of a table whose keys are batch ids, and keeps their
// count.
func applyBatches(tx Writer, seals *sealBuffer, t Table, tag byte, rows map[ulid.ULID][]byte, n *RowCounts, count *int) error {
	ids := make([]ulid.ULID, 0, len(rows))
	for id := range rows {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, ulid.ULID.Compare)
	if t == TableTxn {
		ids = worthWriting(ids, rows)
	}
	last := bytes.Clone(tx.Last(t)) // nearly all ids are greater, so their rows are not looked up
	for _, id := range ids {
		var before []byte
		if bytes.Compare(id[:], last) <= 0 {
			before = tx.Get(t, id[:])
		}
		was := before != nil
		n.Sum -= rowSum(before)
		if len(rows[id]) == 0 { // gc dropped it
			if err := tx.Delete(t, id[:]); err != nil {
				return err
			}
			if was {
				*count--
			}
			continue
		}
		if !was {
			*count++
		}
		row := sealed(seals, tag, id[:], rows[id])
		n.Sum += rowSum(row)
		if err := tx.Put(t, id[:], row); err != nil {
			return err
		}
	}
	return nil
}

// forgetOutcomes drops the outcomes of ids that are refused by now anyway (OutcomeDays), and the
// oldest beyond outcomesKept. The clock is the newest id in the overlay, so that the result depends
// on the commits only, not on when a checkpoint ran.
func forgetOutcomes(tx Writer, o *overlay, n *RowCounts) error {
	var newest uint64
	for id := range o.result {
		newest = max(newest, id.Time())
	}
	if newest < outcomeAge {
		return nil
	}
	var limit ulid.ULID
	if err := limit.SetTime(newest - outcomeAge); err != nil {
		return err
	}
	if err := dropOutcomes(tx, n, func(id ulid.ULID, _ int) bool { return id.Compare(limit) < 0 }); err != nil {
		return err
	}
	return dropOutcomes(tx, n, func(_ ulid.ULID, dropped int) bool { return n.txn-dropped > outcomesKept }) // see usedBefore
}

// outcomeAge is the age of an outcome in milliseconds at which it is dropped.
const outcomeAge = uint64((rules.OutcomeDays + 24*time.Hour) / time.Millisecond)

// worthWriting returns the ids of outcomes that are worth writing. forgetOutcomes would at once
// drop the earlier ones, together with their rows; deleting thousands of rows that were just put
// took a thirtieth of a put.
func worthWriting(ids []ulid.ULID, rows map[ulid.ULID][]byte) []ulid.ULID {
	if len(ids) <= outcomesKept || ids[len(ids)-1].Time() < outcomeAge {
		return ids
	}
	from := len(ids)
	for kept := 0; from > 0 && kept < outcomesKept; {
		if from--; len(rows[ids[from]]) > 0 {
			kept++
		}
	}
	return ids[from:]
}

// dropOutcomes deletes outcomes, oldest first, as long as drops returns true for the next one;
// dropped is how many went before it. Rows are deleted after the walk, which would not survive a
// change of the table, and the newest first: bbolt moves the rows behind a deleted one in their
// page.
func dropOutcomes(tx Writer, n *RowCounts, drops func(id ulid.ULID, dropped int) bool) error {
	var drop []ulid.ULID
	for k, v := range tx.From(TableTxn, nil) {
		if !drops(ulid.ULID(k), len(drop)) {
			break
		}
		drop = append(drop, ulid.ULID(k))
		n.Sum -= rowSum(v)
	}
	for _, id := range slices.Backward(drop) {
		if err := tx.Delete(TableTxn, id[:]); err != nil {
			return err
		}
		n.txn--
	}
	return nil
}

// rowSum returns what a row adds to RowCounts.Sum: its checksum; 0 without a row.
func rowSum(row []byte) uint64 {
	if len(row) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(row[len(row)-8:])
}

// SumRows computes RowCounts.Sum and RowCounts.AskedSum from the rows.
func SumRows(tx Reader) (sum, asked uint64) {
	for _, t := range []Table{TableHeld, TableTxn, TableState} {
		for _, v := range tx.From(t, nil) {
			sum += rowSum(v)
		}
	}
	for _, v := range tx.From(TableQuestion, nil) {
		asked += rowSum(v)
	}
	return sum, asked
}

// sealBuffer holds the sealed rows of one transaction until it ends, because bbolt does not copy
// values. Rows share chunks, so a checkpoint of many small rows makes few objects. The zero value
// is ready.
type sealBuffer struct{ chunk []byte }

// sealed is codec.Seal for many rows. The result must not be changed.
func sealed[V string | []byte](s *sealBuffer, tag byte, key []byte, value V) []byte {
	const chunkSize = 64 << 10
	size := len(value) + 8
	if cap(s.chunk)-len(s.chunk) < size {
		s.chunk = make([]byte, 0, max(size, chunkSize))
	}
	at := len(s.chunk)
	s.chunk = append(s.chunk, value...)
	s.chunk = binary.BigEndian.AppendUint64(s.chunk, codec.Sum(tag, key, s.chunk[at:]))
	return s.chunk[at:len(s.chunk):len(s.chunk)]
}

// putRow seals a value and writes it.
func putRow(tx Writer, t Table, tag byte, key, value []byte) error {
	return tx.Put(t, key, codec.Seal(tag, key, value))
}
