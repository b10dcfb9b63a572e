package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// The outcome of a batch is found by its id. A caller that lost the answer asks again with the id
// and never applies the batch twice.
//
// 	in flight     the sequencer has the commit: wait for it
// 	overlay       installed, not yet in the rows
// 	rows          the newest outcomesKept, at most OutcomeDays old
// 	audit         every id ever used, without its outcome: enough to refuse it (usedBefore)
//
// The places are asked in this order, because a batch moves down the list and never up: a caller
// that looked in the other order could miss it between two places.
//
// Trust: an outcome row has no digest of its own. It is compared with its leaf (confirmedBy) before it
// is used, so an edited row is damage and not an answer.

// outcomeRow is an outcome as it is stored. Bound is the digest of the batch's content
// (Batch.Bound). An id is no secret, so a caller that repeats it must also repeat the batch, in the
// same scope, to learn how it ended.
//
// The row is written in the record of its commit (format.Commit.Result) and in no other way, except
// by an erase that takes names (EraseOutcomes).
type outcomeRow struct {
	store.Outcome
	Bound   []byte
	Unknown []byte // fields of a later release
}

// answer returns the outcome to a batch if it is the batch that the outcome was made for. Another
// scope and another content get the same error, which tells nothing about the batch that has the
// id.
func (s *Engine) answer(row []byte, b *store.Batch) (*store.Outcome, error) {
	r, leaf, err := s.outcomeOf(row, b.ID)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(r.Bound, b.Bound) && (leaf == nil || leaf.Scope == b.Scope || leaf.From != "") {
		return &r.Outcome, nil
	}
	return nil, store.Invalid("batch id", b.ID.String(), "an id of your own: a new one, or that of the same batch in the same scope")
}

// outcomeOf reads the outcome of an id together with the leaf that proves it; the leaf is nil if
// rows are trusted (tests).
func (s *Engine) outcomeOf(row []byte, id ulid.ULID) (r outcomeRow, leaf *manifest.Record, err error) {
	if r, err = decodeOutcome(row); err != nil {
		return r, nil, s.Corrupt("outcome of "+id.String(), err)
	}
	if s.opts.Trust {
		return r, nil, nil
	}
	leaf, err = s.Leaves.Leaf(r.Leaf)
	if err != nil && !errors.Is(err, manifest.ErrNoLeaf) {
		return r, nil, AuditError(err)
	}
	if err == nil && leaf.Pruned != nil && len(r.Bound) > 0 { // a stub does not name its scope; the digest binds that
		leaf.Scope, leaf.From = "", cmp.Or(leaf.From, leaf.Trace)
	}
	if err != nil || !confirmedBy(&r.Outcome, leaf, id.String()) {
		return r, nil, s.Corrupt("outcome of "+id.String(), errOutcome)
	}
	return r, leaf, nil
}

var errOutcome = errors.New("it is not how the batch ended: its audit leaf says something else")

// confirmedBy reports whether a leaf says what an outcome says. An outcome has no digest of its own,
// because everything a caller acts upon is in its leaf: status, LSN, and what was written.
func confirmedBy(out *store.Outcome, leaf *manifest.Record, id string) bool {
	if leaf.Batch != id || leaf.LSN != out.LSN || leaf.Status != out.Status.String() {
		return false
	}
	for _, list := range [][]store.Ref{out.Refs, out.Repeats} {
		for _, ref := range list {
			named := func(w manifest.Write) bool {
				is, err := store.ParseRef(w.Ref)
				return err == nil && is.Scope == ref.Scope && is.ID == ref.ID && is.Version == ref.Version
			}
			if !slices.ContainsFunc(leaf.Writes, named) {
				return false
			}
		}
	}
	return true
}

// outcome looks up the id of a batch; nil: it is new, or spent. spent: the audit has the id and no
// row has its outcome. That holds for an old id, and for one that is in flight or was until a
// moment ago; only the owner of the log's tail can tell the two apart.
func (s *Engine) outcome(ctx context.Context, b *store.Batch) (out *store.Outcome, spent bool, err error) {
	row, spent, err := s.outcomeRow(ctx, b.ID)
	if row == nil || err != nil {
		return nil, spent, err
	}
	out, err = s.answer(row, b)
	return out, false, err
}

// outcomeRow is the row of an id, in the overlay or in the log; see outcome.
func (s *Engine) outcomeRow(ctx context.Context, id ulid.ULID) (row []byte, spent bool, err error) {
	if row = s.overlayOutcome(id); row != nil {
		return row, false, nil
	}
	row, err = s.log.Outcome(ctx, id)
	if errors.Is(err, ErrTooOld) {
		spent, err = s.usedBefore(id)
	}
	return row, spent, err
}

// Outcome: see store.Store. A batch is found in one place at least: in flight until it is in the
// overlay, there until it is in the rows, so the places are looked at in that order.
func (s *Engine) Outcome(ctx context.Context, id ulid.ULID) (store.Outcome, error) {
	if err := s.Readable(ctx); err != nil {
		return store.Outcome{}, err
	}
	s.seq.flight.Lock()
	c := s.seq.ids[id]
	s.seq.flight.Unlock()
	if c != nil {
		if err := s.wait(ctx, c); err != nil {
			return store.Outcome{}, err
		}
	}
	row, spent, err := s.outcomeRow(ctx, id)
	if err != nil {
		return store.Outcome{}, err
	}
	if row != nil {
		r, _, err := s.outcomeOf(row, id)
		return r.Outcome, err
	}
	if err := s.Failure(); err != nil { // it may be in the log without having become visible
		return store.Outcome{}, err
	}
	if age := s.opts.Now().Sub(ulid.Time(id.Time())); spent || age > format.OutcomeDays {
		return store.Outcome{}, fmt.Errorf("%w: outcomes are kept for %s, and the newest %d; the manifest has it under that trace, if it was used", store.ErrTxnExpired, format.OutcomeDays, outcomesKept)
	}
	return store.Outcome{}, fmt.Errorf("%w: no batch %s was applied, held or decided", store.ErrNotFound, id)
}

// overlayOutcome is the row of the outcome of an id that is not in the rows yet; nil: it is in
// them, or there is none.
func (s *Engine) overlayOutcome(id ulid.ULID) []byte {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	row := s.overlay.result[id]
	if row == nil && s.frozen != nil {
		row = s.frozen.result[id]
	}
	return row
}

// OutcomeIn returns the outcome row of a batch id from rows; nil: there is none. A Log that has
// rows implements Log.Outcome with it.
func OutcomeIn(tx Reader, id ulid.ULID) ([]byte, error) {
	v := tx.Get(TableTxn, id[:])
	if v == nil {
		for k := range tx.From(TableTxn, nil) {
			if bytes.Compare(id[:], k) < 0 {
				return nil, ErrTooOld
			}
			break
		}
		return nil, nil
	}
	row, err := codec.Unseal('t', id[:], v)
	return slices.Clone(row), err
}

// NewestOutcome returns the greatest id that has an outcome in the file.
func NewestOutcome(tx Reader) (id ulid.ULID) {
	copy(id[:], tx.Last(TableTxn))
	return id
}

// The row of an outcome is a record of fields (codec.Record). A transaction of 500 puts has 500
// references, which differ in a few letters of their ids, so a list of references stores of each
// only the difference from the one before. An outcome is encoded under the sequencer's lock, where all other writers
// wait, so nothing here reflects.

// outcomeVersion is the first byte of the row.
const outcomeVersion = 1

var outcomeFields = codec.Record[outcomeRow]{
	Name: "an outcome", Unknown: func(r *outcomeRow) *[]byte { return &r.Unknown },
	Fields: []codec.Field[outcomeRow]{
		codec.Uint(1, "Status", func(r *outcomeRow) *store.Status { return &r.Status }),
		codec.Uint(2, "LSN", func(r *outcomeRow) *uint64 { return &r.LSN }),
		codec.Uint(3, "Leaf", func(r *outcomeRow) *uint64 { return &r.Leaf }),
		refsField(4, "Refs", func(r *outcomeRow) *[]store.Ref { return &r.Refs }),
		codec.Text(5, "Reason", func(r *outcomeRow) *string { return &r.Reason }),
		refsField(6, "Stale", func(r *outcomeRow) *[]store.Ref { return &r.Stale }),
		refsField(7, "Repeats", func(r *outcomeRow) *[]store.Ref { return &r.Repeats }),
		codec.Blob(8, "Bound", func(r *outcomeRow) *[]byte { return &r.Bound }),
	},
}

// encode is the row; its unknown fields stay in it.
func (r *outcomeRow) encode() []byte {
	return outcomeFields.Row(outcomeVersion, r, 64+8*len(r.Refs))
}

// decodeOutcome reads the row of an outcome.
func decodeOutcome(row []byte) (r outcomeRow, err error) {
	err = outcomeFields.ReadRow(row, outcomeVersion, &r)
	return r, err
}

// These bits say which parts of a reference differ from the reference before it in the list. The
// first one is compared with a reference of no scope, no id, page 0 and version 1.
const (
	refScope   = 1 << iota // another scope
	refPage                // another page than 0
	refVersion             // another version than 1

	refBits = 1<<iota - 1
)

// refsField is a list of references as a field of the record.
func refsField(tag uint64, name string, at func(*outcomeRow) *[]store.Ref) codec.Field[outcomeRow] {
	return codec.Field[outcomeRow]{
		Tag: tag, Name: name,
		Write: func(e *codec.Encoder, r *outcomeRow) { writeRefs(e, *at(r)) },
		Read:  func(d *codec.Decoder, r *outcomeRow) { *at(r) = readRefs(d) },
	}
}

// writeRefs writes a list of references:
//
//	count                             varint
//	bits                              one byte, for each reference, and then for each:
//	scope                             if refScope: length and text; otherwise that of the reference before
//	shared, rest                      how many bytes of the id are those of the id before; length and text of the rest
//	page                              if refPage: signed varint
//	version                           if refVersion: varint
//
// An empty list is not written at all.
func writeRefs(e *codec.Encoder, refs []store.Ref) {
	if len(refs) == 0 {
		return
	}
	e.Count(len(refs))
	var last store.Ref
	for i := range refs {
		r, bits := &refs[i], uint8(0)
		if r.Scope != last.Scope {
			bits |= refScope
		}
		if r.Page != 0 {
			bits |= refPage
		}
		if r.Version != 1 {
			bits |= refVersion
		}
		e.U8(bits)
		if bits&refScope != 0 {
			e.Str(r.Scope)
		}
		same := 0
		for same < len(last.ID) && same < len(r.ID) && last.ID[same] == r.ID[same] {
			same++
		}
		e.Count(same)
		e.Str(r.ID[same:])
		if bits&refPage != 0 {
			e.Varint(int64(r.Page))
		}
		if bits&refVersion != 0 {
			e.Uvarint(uint64(r.Version))
		}
		last = *r
	}
}

// readRefs is the reverse of writeRefs. It fails on bits of a later release rather than guess what
// they mean (codec.ErrNewer).
func readRefs(d *codec.Decoder) []store.Ref {
	const least = 3 // bytes of a reference
	refs := make([]store.Ref, d.Count(least))
	last := store.Ref{}
	for i := range refs {
		bits := d.U8()
		if bits > refBits {
			d.FailAs(fmt.Errorf("%w: a reference with bits %#x", codec.ErrNewer, bits))
		}
		r := store.Ref{Scope: last.Scope, Version: 1}
		if bits&refScope != 0 {
			r.Scope = d.Str()
		}
		same := d.Uvarint()
		if same > uint64(len(last.ID)) {
			d.Fail()
		}
		rest := d.Bytes()
		if d.Err != nil {
			return nil
		}
		r.ID = last.ID[:same] + string(rest)
		if bits&refPage != 0 {
			r.Page = int(d.Varint())
		}
		if bits&refVersion != 0 {
			v := d.Uvarint()
			if r.Version = uint32(v); uint64(r.Version) != v {
				d.Fail()
			}
		}
		refs[i], last = r, r
	}
	return refs
}

// I19. An outcome has no digest: all of it that matters is in its leaf (confirmedBy). If an outcome is
// removed from the file, its batch can be applied a second time, but only if its id is ahead of the
// clock: for every other id the audit is asked (usedBefore).
//
// Which outcomes may be missing follows from the audit alone. A checkpoint drops the outcomes with
// the smallest ids, those beyond the newest outcomesKept and those older by OutcomeDays and a day
// than the newest. So an outcome is due if fewer than outcomesKept batches with greater ids were
// ever committed, and none of them is that much younger.

// outcomeWalk is what a check knows of outcomes.
type outcomeWalk struct {
	rows map[ulid.ULID]store.Outcome // of the file
	seen map[ulid.ULID]bool          // of rows: their leaf was found
	told []ulid.ULID                 // batches that the audit names; the newest of them, at least
}

// row takes an outcome of the file, which decodes.
func (w *outcomeWalk) row(id, row []byte) {
	r, err := decodeOutcome(row)
	if len(id) != len(ulid.ULID{}) || err != nil {
		return
	}
	if w.rows == nil {
		w.rows, w.seen = map[ulid.ULID]store.Outcome{}, map[ulid.ULID]bool{}
	}
	w.rows[ulid.ULID(id)] = r.Outcome
}

// newest drops batches that are too old to be due, and says from which time on an outcome is.
func (w *outcomeWalk) newest() (from uint64) {
	slices.SortFunc(w.told, func(a, b ulid.ULID) int { return b.Compare(a) })
	w.told = slices.Compact(w.told)
	w.told = w.told[:min(len(w.told), outcomesKept)]
	if len(w.told) == 0 {
		return 0
	}
	return w.told[0].Time() - min(w.told[0].Time(), outcomeAge)
}

// outcomeStatuses are the statuses of leaves whose batch has an outcome.
var outcomeStatuses = []string{store.StatusApplied.String(), store.StatusHeld.String(), store.StatusRejected.String()}

// outcome takes a leaf of the audit, in any order.
func (c *invariantWalk) outcome(r *manifest.Record) {
	if r.Batch == "" || r.LSN == 0 || r.LSN > c.base.Applied || !slices.Contains(outcomeStatuses, r.Status) {
		return
	}
	id, err := ulid.ParseStrict(r.Batch)
	if err != nil {
		return
	}
	w := &c.outcomes
	if w.told = append(w.told, id); len(w.told) > 4*outcomesKept {
		w.newest()
	}
	out, ok := w.rows[id]
	if !ok || out.Leaf != r.Index {
		return
	}
	w.seen[id] = true
	if !confirmedBy(&out, r, r.Batch) {
		c.bad("I19", "outcome of "+r.Batch, "%v", errOutcome)
	}
}

// outcomesDue ends the walk of I19.
func (c *invariantWalk) outcomesDue() {
	w := &c.outcomes
	for _, id := range slices.SortedFunc(maps.Keys(w.rows), ulid.ULID.Compare) {
		if !w.seen[id] {
			c.bad("I19", "outcome of "+id.String(), "no audit leaf tells it")
		}
	}
	from := w.newest()
	for _, id := range w.told {
		if _, ok := w.rows[id]; !ok && id.Time() > from {
			c.bad("I19", "outcome of "+id.String(), "it is missing, and the audit says that the batch was committed, held or decided")
		}
	}
}
