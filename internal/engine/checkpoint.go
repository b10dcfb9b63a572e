package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"
)

// The overlay holds the commits that are durable in the log and not yet in the rows. After a crash
// it is rebuilt from the log, so it needs no file of its own.
//
//	filled    by the installer and by redo                               under cat.mu
//	frozen    it takes no more rows; readers still look into it          freeze, under cat.mu
//	written   into the rows, in one transaction of theirs                no lock: a frozen overlay does not change
//	released  readers find the same rows in the file                     Checkpoint.Done, under cat.mu
//
// At most two exist. A checkpoint that failed leaves the frozen one, which the next checkpoint
// writes first. It is not merged with the newer one, because a checkpoint reads it without a lock.
//
// An entry can also delete a row: nil or an empty value in state, held and asked, and the lists
// gone and forgot. So a lookup ends at the first entry it finds, and never goes on to an older row
// (overlayRow).
//
// The overlay has no limit of its own. Writers are slowed down as it grows (throttle), and the
// store starts a checkpoint when it has many bytes or an old row.

const throttleBytes = 128 << 20 // unflushed bytes above which commits are slowed down, gradually

const throttleDelay = 20 * time.Millisecond // the delay of a small commit at twice throttleBytes

const throttleUnit = 16 << 10 // bytes that a commit may write for one throttleDelay

const throttleMost = time.Second // the longest delay of a commit

// throttle slows a commit down while the file falls behind the log, by the unflushed bytes above a
// limit and by what the commit adds. So all writers feel it a little and none meets a wall.
// Rejected: to stop writers at a limit. A prototype that did stalled for 0.3 s, while its p99
// showed 3.5 ms. No lock is held. An end of ctx means that nothing happened.
func (s *Engine) throttle(ctx context.Context, b *store.Batch) error {
	behind := s.unflushed.Load()
	if behind <= throttleBytes {
		return nil
	}
	t := time.NewTimer(delayFor(behind, format.BatchBytes(b)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.stop:
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// delayFor returns how long a commit of that many bytes waits.
func delayFor(unflushed, bytes int64) time.Duration {
	excess := float64(unflushed-throttleBytes) / throttleBytes
	if excess <= 0 {
		return 0
	}
	units := max(1, float64(bytes)/throttleUnit)
	return time.Duration(min(float64(throttleMost), excess*units*float64(throttleDelay)))
}

// countUnflushed updates the bytes that throttle reads. The caller holds cat.mu.
func (s *Engine) countUnflushed() {
	n := s.overlay.Bytes
	if s.frozen != nil {
		n += s.frozen.Bytes
	}
	s.unflushed.Store(int64(n))
}

// freeze freezes the overlay and starts a new one. The frozen one does not change any more, so it
// may be read without a lock. retry says that it is the overlay of a checkpoint that failed, and
// that newer commits are in another one.
func (s *Engine) freeze() (o *overlay, retry bool) {
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	if retry = s.frozen != nil; !retry { // otherwise a failed checkpoint left one, which must be written first
		s.frozen, s.overlay = s.overlay, newOverlay()
		s.overlay.LSN, s.overlay.Seq, s.overlay.Leaves, s.overlay.high = s.frozen.LSN, s.frozen.Seq, s.frozen.Leaves, s.frozen.high
	}
	return s.frozen, retry
}

// RowCounts has the number of rows of each table. A damaged page of bbolt may hide rows, and no checksum
// fails for a row that is hidden. meta, held and state are counted at every open, the others by a
// check; a missing content row is noticed when its page is read.
type RowCounts struct {
	meta, content, held, txn, state, question int
	asked                                     uint64 // TableQuestion has every row of leaves before this one, unless erased
	// Sum is the sum of the checksums of held, txn and state rows, modulo 2^64. A row that was
	// replaced by an older row of the same key changes it.
	Sum uint64
	// AskedSum is the same sum over TableQuestion.
	AskedSum uint64
}

// of returns the count of a table; nil: its rows are not counted.
func (n *RowCounts) of(t Table) *int {
	switch t {
	case TableMeta:
		return &n.meta
	case TableContent:
		return &n.content
	case TableHeld:
		return &n.held
	case TableTxn:
		return &n.txn
	case TableState:
		return &n.state
	case TableQuestion:
		return &n.question
	}
	return nil
}

// Add adds by to the count of a table, if its rows are counted. The tests of filestore forge counts with it.
func (n *RowCounts) Add(t Table, by int) {
	if c := n.of(t); c != nil {
		*c += by
	}
}

// EncodeMsgpack writes an array.
func (n RowCounts) EncodeMsgpack(e *msgpack.Encoder) error {
	return e.Encode([]any{n.meta, n.content, n.held, n.txn, n.state, n.question, n.asked, n.Sum, n.AskedSum})
}

// DecodeMsgpack reads the array.
func (n *RowCounts) DecodeMsgpack(d *msgpack.Decoder) error {
	have, err := d.DecodeArrayLen()
	if err != nil {
		return err
	}
	*n = RowCounts{}
	fields := [...]any{&n.meta, &n.content, &n.held, &n.txn, &n.state, &n.question, &n.asked, &n.Sum, &n.AskedSum}
	if have != len(fields) {
		return codec.ErrMalformed
	}
	return d.DecodeMulti(fields[:]...)
}

// overlay holds the rows of commits that are durable in the log and not yet in the store's tables.
// It also holds vectors, which are not in the log because they can be computed again. All maps are
// by the keys of the rows.
//
// Guarded by catalogue.mu while it grows; read without a lock once it is frozen. LSN, Seq and
// Leaves say what it ends with: the newest commit, the record of the log it came in, and the number
// of leaves of the audit up to there. A checkpoint writes these three with the rows. Bytes
// estimates the memory and decides when a checkpoint is due.
type overlay struct {
	LSN     uint64
	Seq     uint64
	Leaves  uint64 // of the audit, up to Seq
	Bytes   int
	since   time.Time
	scopes  []format.NewScope
	groups  []format.NewGroup
	heads   map[format.HeadKey][]byte
	floors  map[uint64]uint32 // by artefact: the version of a row in heads that stands for those before it (imported.go)
	texts   map[uint64]string
	state   map[string][]byte
	held    map[ulid.ULID][]byte
	result  map[ulid.ULID][]byte
	vecs    map[vecKey][]byte // derived: not in the log (vector.go)
	noVecs  map[vecKey]bool   // rows that go (vector.go); a key is never in vecs, too
	gone    []dropped         // by gc (gc.go)
	forgot  []forgotten       // by gc (forget.go)
	noNames [][]byte          // keys of rows of scopes and groups that gc takes away (drop.go)
	// asked are rows of questions by leaf, nil: erased. askedTo is behind the last.
	asked   map[uint64][]byte
	askedTo uint64
	high    highest
}

// newOverlay makes an empty overlay. freeze sets the LSN, Seq and Leaves of its predecessor, so
// that it always says how far it reaches.
func newOverlay() *overlay {
	return &overlay{
		heads: map[format.HeadKey][]byte{}, floors: map[uint64]uint32{}, texts: map[uint64]string{}, state: map[string][]byte{},
		held: map[ulid.ULID][]byte{}, result: map[ulid.ULID][]byte{}, vecs: map[vecKey][]byte{}, noVecs: map[vecKey]bool{}, asked: map[uint64][]byte{},
	}
}

// Rows counts the entries, including those that delete a row. 0 means that a checkpoint has nothing
// to write.
func (o *overlay) Rows() int {
	return len(o.heads) + len(o.texts) + len(o.state) + len(o.held) + len(o.result) + len(o.vecs) + len(o.noVecs) + len(o.forgot) + len(o.noNames) + len(o.asked)
}

// A checkpoint writes into the rows what only the log has. The store that owns the rows drives it;
// the part in memory is here:
//
//	Checkpoint  the overlay is frozen, new commits fill a new one               cat.mu, briefly
//	Steps       segments of the index, while many are due                       no lock; cat.mu briefly at the end of each
//	Write       index and frozen overlay into the rows, in one transaction       no lock: a frozen overlay does not change
//	Done        the frozen overlay goes, the index takes its new segments       cat.mu, briefly
//
// Readers look at the overlay, the frozen one, then the rows. So between Write and Done they find a
// row twice, and never not at all.
//
// A crash during Write leaves the rows as they were. A crash after it leaves rows that the log
// repeats; redo skips commits up to the LSN of the rows. A step that is durable before a crash is
// not undone either: install adds only pages above those the index has (Through).

// Waiting counts the rows that are neither in the store's tables nor in a checkpoint under way.
type Waiting struct {
	Rows, Bytes int
	Since       time.Time // when the oldest row came; valid if Rows is not 0
	Vectors     int       // rows that are not in the log either, also those of a checkpoint under way
}

// Waiting returns how much a checkpoint would have to write.
func (s *Engine) Waiting() Waiting {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	w := Waiting{s.overlay.Rows(), s.overlay.Bytes, s.overlay.since, len(s.overlay.vecs)}
	if s.frozen != nil {
		w.Vectors += len(s.frozen.vecs)
	}
	return w
}

// Checkpoint is one checkpoint: the frozen rows, and the commit they end with. It is not safe for
// concurrent use, and an engine has one at a time: the store holds a lock from Engine.Checkpoint to
// Done.
//
// LSN is the LSN of the newest commit in the rows, Seq its record in the log, and Leaves the number of
// audit leaves up to there. If no commit came since the previous checkpoint, they are the same as
// in that one. The store writes them with the rows.
type Checkpoint struct {
	LSN, Seq, Leaves uint64
	Rows, Bytes      int  // what Write writes; Bytes is an estimate. 0 rows: there is nothing to write
	Retry            bool // it has the rows of a checkpoint that failed: newer commits wait for the next one

	eng    *Engine
	rows   *overlay
	swap   lexical.Swap
	newest ulid.ULID // the greatest batch id with an outcome in the rows
	wrote  bool
}

// Checkpoint begins a checkpoint: it freezes the overlay, and new commits fill a new one. If the
// previous checkpoint failed, its rows must be written first, so this one has the same rows
// (Retry). It may run beside commits and reads, but not beside another checkpoint.
//
//	Checkpoint ──▶ Steps ──▶ Write ──the store commits──▶ Done
//	               │           └─ failed: no Done; the overlay stays frozen, and Retry has it again
//	               └─ failed: the steps that were committed stay; the next checkpoint goes on behind them
func (s *Engine) Checkpoint() *Checkpoint {
	o, retry := s.freeze()
	return &Checkpoint{LSN: o.LSN, Seq: o.Seq, Leaves: o.Leaves, Rows: o.Rows(), Bytes: o.Bytes, Retry: retry, eng: s, rows: o}
}

// Write writes the index and the frozen overlay into rows, and brings n up to date: the counts of
// rows, and up to which leaf the questions are complete. It returns the highest numbers in use, for
// Base.High. If it or its transaction fails, the checkpoint has failed. Without rows it leaves the
// index as it is, unless an erase is purging it: a snapshot of the columns is of its list of segments.
func (c *Checkpoint) Write(tx Writer, n *RowCounts, purging bool) (high string, err error) {
	c.wrote = true
	if c.Rows == 0 && !purging {
		c.newest = NewestOutcome(tx)
		return c.eng.high.String(), nil
	}
	c.eng.high.add(c.rows.high)
	n.asked = max(n.asked, c.rows.askedTo)
	if c.swap, err = c.eng.index.Checkpoint(SegRows{Reader: tx}, false); errors.Is(err, lexical.ErrCorrupt) {
		return "", c.eng.badIndex(err)
	}
	if err == nil {
		err = applyOverlay(tx, c.rows, n)
	}
	c.newest = NewestOutcome(tx)
	return c.eng.high.String(), err
}

// Steps writes much of the index into rows before Write, in one bounded transaction after another,
// because a transaction keeps every row that it writes in memory. update runs one: it commits if fn
// returns nil, and returns fn's error. after is called after each.
func (c *Checkpoint) Steps(update func(fn func(Writer) error) error, after func() error) error {
	done := errors.New("nothing is left to do")
	for {
		var swap lexical.Swap
		err := update(func(tx Writer) (err error) {
			var more bool
			swap, more, err = c.eng.index.Step(SegRows{Reader: tx})
			switch {
			case errors.Is(err, lexical.ErrCorrupt):
				return c.eng.badIndex(err)
			case err == nil && !more:
				return done // and nothing is written
			}
			return err
		})
		switch {
		case err == done:
			return nil
		case err != nil:
			return err
		}
		c.eng.cat.mu.Lock()
		c.eng.index.Apply(swap)
		c.eng.cat.mu.Unlock()
		if err := after(); err != nil {
			return err
		}
	}
}

// Done ends a checkpoint once the transaction of Write is committed. From then on readers use the
// written rows. with runs under the readers' lock, so readers see its effect at the same moment; it
// gets the greatest batch id that has an outcome in the rows. If there was nothing to write and
// Write did not run, with is not called. Do not call Done after a failure: the rows stay frozen for
// the next checkpoint.
func (c *Checkpoint) Done(with func(newest ulid.ULID)) {
	s := c.eng
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	if c.wrote {
		with(c.newest)
		s.index.Apply(c.swap)
		s.releases.Add(1) // a batch that read rows before prepares again
	}
	s.frozen = nil
	s.countUnflushed()
}

// FlushTail writes the part of the index that a checkpoint leaves in memory, so that the next open
// need not analyse those pages again. Call it after a checkpoint; update is as in Checkpoint.Steps.
func (s *Engine) FlushTail(update func(fn func(Writer) error) error) error {
	var swap lexical.Swap
	err := update(func(tx Writer) (err error) {
		if swap, err = s.index.Rest(SegRows{Reader: tx}); errors.Is(err, lexical.ErrCorrupt) {
			return s.badIndex(err)
		}
		return err
	})
	if err == nil {
		s.cat.mu.Lock()
		defer s.cat.mu.Unlock()
		s.index.Apply(swap)
	}
	return err
}

// Count fills in the counts of the catalogue. with runs under its lock.
func (s *Engine) Count(st *store.StoreStats, with func()) {
	c := s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	st.LSN, st.Artefacts, st.Pages, st.PageVersions = c.lsn, c.live, c.livePages, c.versions
	st.Scopes, st.Overlay, st.Checkpoints = len(c.byName), s.overlay.Rows(), s.releases.Load()
	with()
}

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
		if err := tx.Put(TableMeta, key, codec.Seal('m', key, rows[k])); err != nil {
			return err
		}
	}
	for _, num := range slices.Sorted(maps.Keys(o.texts)) {
		key = codec.AppendOrdered(key[:0], num)
		if err := tx.Put(TableContent, key, codec.Seal('c', key, o.texts[num])); err != nil {
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
	return applySmall(tx, o, n)
}

// applySmall writes the tables whose rows can be replaced: state, held batches, outcomes, questions.
func applySmall(tx Writer, o *overlay, n *RowCounts) error {
	ids := func(rows map[ulid.ULID][]byte) []ulid.ULID {
		return slices.SortedFunc(maps.Keys(rows), ulid.ULID.Compare)
	}
	id := func(id ulid.ULID) []byte { return id[:] }
	if err := replaceRows(tx, TableState, format.TagState, o.state, slices.Sorted(maps.Keys(o.state)), func(k string) []byte { return []byte(k) }, &n.state, &n.Sum); err != nil {
		return err
	}
	if err := replaceRows(tx, TableHeld, 'd', o.held, ids(o.held), id, &n.held, &n.Sum); err != nil {
		return err
	}
	if err := replaceRows(tx, TableTxn, 't', o.result, worthWriting(ids(o.result), o.result), id, &n.txn, &n.Sum); err != nil {
		return err
	}
	if err := replaceRows(tx, TableQuestion, 'q', o.asked, slices.Sorted(maps.Keys(o.asked)), format.QuestionKey, &n.question, &n.AskedSum); err != nil {
		return err
	}
	return forgetOutcomes(tx, o, n)
}

// replaceRows writes rows in the order of their keys; an empty value deletes its row. A row is looked up before it is replaced:
// the count goes up only for a new row, and the checksum of the old one leaves the sum.
func replaceRows[K comparable](tx Writer, t Table, tag byte, rows map[K][]byte, order []K, keyOf func(K) []byte, count *int, sum *uint64) error {
	if len(order) == 0 { // the table may be absent
		return nil
	}
	last := bytes.Clone(tx.Last(t)) // nearly all ids of batches are greater, so their rows are not looked up
	for _, k := range order {
		key := keyOf(k)
		var before []byte
		if bytes.Compare(key, last) <= 0 {
			before = tx.Get(t, key)
		}
		if *sum -= rowSum(before); before != nil {
			*count--
		}
		if len(rows[k]) == 0 {
			if err := tx.Delete(t, key); err != nil {
				return err
			}
			continue
		}
		row := codec.Seal(tag, key, rows[k])
		*sum += rowSum(row)
		*count++
		if err := tx.Put(t, key, row); err != nil {
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
const outcomeAge = uint64((format.OutcomeDays + 24*time.Hour) / time.Millisecond)

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
// dropped counts the rows that went before it. Rows are deleted after the walk, which would not survive a
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

// putRow seals a value and writes it.
func putRow(tx Writer, t Table, tag byte, key, value []byte) error {
	return tx.Put(t, key, codec.Seal(tag, key, value))
}
