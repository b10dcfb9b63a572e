package engine

import (
	"context"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
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
	d := delayFor(s.unflushed.Load(), b.Bytes())
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
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

// RowCounts is how many rows each table has. A damaged page of bbolt may hide rows, and no checksum
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

// Add adds by to the count of a table, if its rows are counted.
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
	floors  map[uint64]uint32 // by artefact: the version of a row in heads that stands for those before it (carry.go)
	texts   map[uint64]string
	state   map[string][]byte
	held    map[ulid.ULID][]byte
	result  map[ulid.ULID][]byte
	vecs    map[vecKey][]byte // derived: not in the log (vector.go)
	noVecs  map[vecKey]bool   // rows that go (gcvectors.go); a key is never in vecs, too
	gone    []dropped         // by gc (gc.go)
	forgot  []forgotten       // by gc (forget.go)
	noNames [][]byte          // keys of rows of scopes and groups that gc takes away (gcscopes.go)
	// asked are rows of questions by leaf, nil: erased. askedTo is behind the last of them.
	asked   map[uint64][]byte
	askedTo uint64
	high    highest
}

// newOverlay makes an empty overlay. freeze gives it the LSN, Seq and Leaves of the one before, so
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
