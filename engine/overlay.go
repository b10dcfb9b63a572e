package engine

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"
)

// The overlay: what is durable in the log and not yet in the rows. It is rebuilt from the log after a crash, so it needs no
// file of its own.
//
//	filled    by the installer and by redo                               under cat.mu
//	frozen    it takes no more rows; readers still look into it          Freeze, under cat.mu
//	written   into the rows, in one transaction of theirs                no lock: nobody changes a frozen one
//	released  readers find the same rows in the file                     Thaw, under cat.mu
//
// At most two exist. A checkpoint that failed leaves the frozen one, which the next checkpoint writes first. It is not merged
// with the newer one: a checkpoint reads it without a lock.

const throttleBytes = 128 << 20 // unflushed bytes from which commits are slowed down, gradually

const throttleDelay = 20 * time.Millisecond // of a small commit at twice that

const throttleUnit = 16 << 10 // bytes a commit may write for one such delay

const throttleMost = time.Second // of any commit

// throttle slows a commit down while the file falls behind the log: by what is unflushed above a limit and by what the
// commit adds to it, so that all writers feel it a little and none meets a wall. A prototype that stopped them at a
// limit stalled for .3 s while its p99 showed 3.5 ms. No lock is held; an end of ctx means that nothing happened.
func (s *Engine) throttle(ctx context.Context, b *store.Batch) error {
	d := throttled(s.unflushed.Load(), b.Bytes())
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

// throttled is how long a commit of so many bytes waits.
func throttled(unflushed, bytes int64) time.Duration {
	excess := float64(unflushed-throttleBytes) / throttleBytes
	if excess <= 0 {
		return 0
	}
	units := max(1, float64(bytes)/throttleUnit)
	return time.Duration(min(float64(throttleMost), excess*units*float64(throttleDelay)))
}

// countUnflushed lets throttle know what is not in bbolt yet. The caller holds cat.mu.
func (s *Engine) countUnflushed() {
	n := s.overlay.Bytes
	if s.frozen != nil {
		n += s.frozen.Bytes
	}
	s.unflushed.Store(int64(n))
}

// AskedTo is behind the last leaf whose question the overlay has; 0: it has none. No later overlay has one before it.
func (o *Overlay) AskedTo() uint64 { return o.askedTo }

// Freeze makes the overlay the old one. It is not changed any more, so it may be read without a lock. retry: it is that of
// a checkpoint that failed, and newer commits are in another one.
func (s *Engine) Freeze() (o *Overlay, retry bool) {
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	if retry = s.frozen != nil; !retry { // a checkpoint that failed left one behind: it is tried again first
		s.frozen, s.overlay = s.overlay, newOverlay()
		s.overlay.LSN, s.overlay.Seq, s.overlay.Leaves, s.overlay.high = s.frozen.LSN, s.frozen.Seq, s.frozen.Leaves, s.frozen.high
	}
	return s.frozen, retry
}

// RowCounts is how many rows each bucket has: a damaged page of bbolt may hide rows, and what is hidden has no checksum
// to fail. meta, held and state are counted at every open, the others by a check; a missing content is noticed when its
// page is read.
type RowCounts struct {
	meta, content, held, txn, state, question int
	Asked                                     uint64 // leaf before which TableQuestion has every row that was not erased
	// Sum adds up the checksums of the rows of held, txn and state, modulo 2^64: rows of another moment under the same keys
	// differ in it, and nothing else tells of them. The store keeps it in another row.
	Sum uint64
	// AskedSum is the same of TableQuestion, which older programs left out. The store keeps it in a third row.
	AskedSum uint64
}

// of is the count of a table; nil: its rows are not counted.
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

// Of is how many rows a table has; 0 also of one whose rows are not counted.
func (n RowCounts) Of(t Table) int {
	if c := n.of(t); c != nil {
		return *c
	}
	return 0
}

// Add counts by rows more of a table whose rows are counted.
func (n *RowCounts) Add(t Table, by int) {
	if c := n.of(t); c != nil {
		*c += by
	}
}

// EncodeMsgpack writes an array.
func (n RowCounts) EncodeMsgpack(e *msgpack.Encoder) error {
	return e.Encode([]any{n.meta, n.content, n.held, n.txn, n.state, n.question, n.Asked})
}

// DecodeMsgpack reads the array of this program or a shorter one of an older.
func (n *RowCounts) DecodeMsgpack(d *msgpack.Decoder) error {
	have, err := d.DecodeArrayLen()
	if err != nil {
		return err
	}
	*n = RowCounts{}
	fields := [...]any{&n.meta, &n.content, &n.held, &n.txn, &n.state, &n.question, &n.Asked}
	if have < 5 || have > len(fields) {
		return codec.ErrMalformed
	}
	return d.DecodeMulti(fields[:have]...)
}

// Overlay holds what is durable in the log and not yet in bbolt, and vectors, which can be made again.
type Overlay struct {
	LSN    uint64
	Seq    uint64
	Leaves uint64 // of the audit, up to Seq
	Bytes  int
	since  time.Time
	scopes []newScope
	groups []newGroup
	heads  map[HeadKey][]byte
	texts  map[uint64]string
	state  map[string][]byte
	held   map[ulid.ULID][]byte
	result map[ulid.ULID][]byte
	vecs   map[vecKey][]byte // derived: not in the log (vector.go)
	gone   []dropped         // by gc (gc.go)
	forgot []forgotten       // by gc (forget.go)
	// asked are rows of questions by leaf, nil: erased. askedTo is behind the last of them.
	asked   map[uint64][]byte
	askedTo uint64
	high    highest
}

type HeadKey struct {
	Art     uint64
	Version uint32
}

func newOverlay() *Overlay {
	return &Overlay{
		heads: map[HeadKey][]byte{}, texts: map[uint64]string{}, state: map[string][]byte{},
		held: map[ulid.ULID][]byte{}, result: map[ulid.ULID][]byte{}, vecs: map[vecKey][]byte{}, asked: map[uint64][]byte{},
	}
}

func (o *Overlay) Rows() int {
	return len(o.heads) + len(o.texts) + len(o.state) + len(o.held) + len(o.result) + len(o.vecs) + len(o.forgot) + len(o.asked)
}

// Keys of the bucket meta.
func scopeRowKey(num uint32) []byte { return binary.BigEndian.AppendUint32([]byte{'s'}, num) }

func groupRowKey(num uint64) []byte { return binary.BigEndian.AppendUint64([]byte{'g'}, num) }

func headRowKey(k HeadKey) []byte {
	b := append(make([]byte, 0, 13), 'h')
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, k.Art), k.Version)
}

func textRowKey(num uint64) []byte { return binary.BigEndian.AppendUint64(nil, num) }
