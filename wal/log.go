package wal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is the kind of a record. The log knows the three kinds and attaches no meaning to them.
type Kind byte

// The known kinds.
const (
	KindCommit Kind = 'C' // a commit, or a batch that was held, approved or rejected
	KindAudit  Kind = 'A' // an audit leaf
	KindMark   Kind = 'M' // a mark, written after a sync
)

// Record is one record as replay and Scan pass it on.
type Record struct {
	Seq     uint64 // number in the log, gapless over all records, from 1
	Kind    Kind
	Durable uint64 // this record and all before it were durable when the record was written; < Seq
	Close   bool   // final record of a clean Close
	Body    []byte // valid during the callback only
	Sealed  bool   // the segment says that its bodies are sealed: see Options.Sealed
	Segment string // path of the file; Open may rename it (Recovery.Rewritten), offsets stay
	Offset  int64  // of the frame in it, bytes
}

// Options of a log, by value. The zero value is usable.
type Options struct {
	FS           FS               // nil: OS()
	SegmentBytes int64            // size from which the next segment is started; 0: 64 MiB
	LeastReserve int64            // bytes that a short segment keeps preallocated for urgent records; it doubles as the segment grows. 0: the most from the start. See Log.Reserve
	GroupWait    time.Duration    // longest a group waits for recently seen committers; 0: 100µs, < 0: never
	Salt         func() uint64    // salt of a new segment; nil: crypto/rand
	OnDurable    func(seq uint64) // called in order, one at a time, before a Sync that waits for seq returns; it must not call the log
	Sealed       bool             // bodies pass sealed in both directions: new segments say so, and an older program refuses them by their version
	MaxRecord    int              // longest body, bytes; 0: 64 MiB, the format ends at 1 GiB
	ReadOnly     bool             // replay only; nothing on disk changes
	MustExist    bool             // a log without a segment is fs.ErrNotExist; none is made
	Sync         func(File) error // what syncs a file, such as one that measures; nil: File.Sync
	NoSync       bool             // syncs nothing: the negative control of tests, nothing else
}

const (
	defaultSegmentBytes = 64 << 20
	defaultGroupWait    = 100 * time.Microsecond // more than half a sync costs
	defaultMaxRecord    = 64 << 20
	minStep, maxStep    = 4 << 10, 512 << 10 // of preallocation; see appender for the measurement
)

// withDefaults fills in what is zero, and refuses what the format cannot hold.
func (o Options) withDefaults() (Options, error) {
	if o.FS == nil {
		o.FS = OS()
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	if o.Sync == nil {
		o.Sync = File.Sync
	}
	if o.GroupWait == 0 {
		o.GroupWait = defaultGroupWait
	}
	if o.Salt == nil {
		o.Salt = randomSalt
	}
	if o.MaxRecord == 0 {
		o.MaxRecord = defaultMaxRecord
	}
	if o.SegmentBytes < 0 || o.MaxRecord < 0 || o.MaxRecord > maxBody {
		return o, fmt.Errorf("wal: options: expected SegmentBytes >= 0 and 0 <= MaxRecord <= %d, got %d and %d", maxBody, o.SegmentBytes, o.MaxRecord)
	}
	return o, nil
}

// Recovery reports the state in which Open or Scan found a log.
type Recovery struct {
	Clean     bool   // the last record carries Close and nothing follows it
	Fresh     bool   // no record was ever written
	First     uint64 // the oldest record; Last+1 if there is none
	Last      uint64 // the newest record; 0 in a fresh log
	Segments  int
	CutFile   string // the segment with a torn end; "": none has one
	CutAt     int64  // where the valid part ends, bytes
	CutBytes  int64  // bytes behind it, up to the last one that is not zero
	Rewritten bool   // the tail was copied into a new-generation segment
}

// Log is an open log. Its methods are safe for concurrent use.
//
// Four things are held, always in this order:
//
//	lead    the token of the goroutine that may sync, rotate and close
//	wmu     the end of the active segment; writes happen under it, syncs do not
//	report  the report of a synced round to OnDurable. It is taken under lead, which may then be given back: so
//	        reports come in order while the next round syncs, and at most one round is synced and not reported
//	mu      the fields below it; never held during I/O or a callback
//
// A fifth lock, drop, stands outside this order: DropBefore holds it while it removes files, and
// takes mu inside.
//
// Four numbers only rise, and say how far a record has come: durable ≤ synced ≤ written ≤ last.
//
// Why a round has two ends: synced says that the disk has its records, durable that OnDurable was
// told. The lead is given back between the two, so the disk works on the next round while the owner
// installs this one.
//
//	Enqueue  last      in buf: lost with the process
//	Write    written   with the operating system: lost with the machine
//	sync     synced    on the disk
//	report   durable   the owner has installed it; its waiters are woken
//
// A log goes through these states, to the right only. To go back, open it again:
//
//	open ──disk full──▶ full: only urgent records and Close pass; the next write that finds space ends it
//	  ├──a write or sync failed──▶ poisoned: err answers everything; what is synced is still reported
//	  └──Close, Abandon──▶ closing: no new record ──▶ closed
type Log struct {
	storage
	opts Options

	lead chan struct{} // holds the token while no caller leads
	wmu  sync.Mutex
	act  *appender // guarded by wmu; nil when read-only. Its file is synced by the leader without wmu.
	drop sync.Mutex

	report sync.Mutex

	mu      sync.Mutex
	buf     []byte // enqueued frames, without sums
	spare   []byte // the other buffer
	last    uint64 // enqueued
	written uint64 // handed to the operating system
	target  uint64 // covered by the running round
	synced  uint64 // synced; changed only with the lead held as well
	durable uint64 // synced and reported to OnDurable; changed only with report held as well
	before  *round // the predecessor of cur: reporting, or over
	covered uint64 // by before
	cur     *round // running, or the last one that ran
	next    *round // changed only with the lead held as well
	expect  int32  // how many members the next round may have; guarded by the lead
	closing bool   // Close has begun
	full    bool   // less than the reserve is preallocated, and there was no space for more
	unused  int64  // bytes that are preallocated and not written, as of the last write
	reserve int64  // how many there must be
	err     error  // poisoned, closed or read-only
	lost    bool   // poisoned for lack of space, and nothing of the group reached the file
	sealed  []span // segments before the active one
	size    int64  // of these
	first   uint64 // of the active one
	gen     uint64 // highest generation used

	actEnd atomic.Int64 // act.end for Size
}

// span is a segment that is no longer written.
type span struct {
	path  string
	first uint64
	size  int64
}

// round is one sync and the callers that wait for it.
//
//	next ──flush(begin)──▶ cur ──sync──▶ reported ──▶ over; flush of the round after makes it before
//	  members join          its records are fixed      wake
//
// A caller of a record joins the round that will cover it, once, whatever it waits for: members is
// what gather expects of the round after.
type round struct {
	members  atomic.Int32
	done     chan struct{} // made by the first waiter; guarded by Log.mu
	finished bool
}

// wait returns a channel that the end of the round closes. Log.mu is held. A round for which nobody
// waits never makes one.
func (r *round) wait() <-chan struct{} {
	if r.done == nil {
		r.done = make(chan struct{})
		if r.finished {
			close(r.done)
		}
	}
	return r.done
}

// wake ends the round for all that wait. Log.mu is held. A second call does nothing. The waiters
// ask again what became of their record (answer), so an end in error needs no word of its own.
func (r *round) wake() {
	if r.done != nil && !r.finished {
		close(r.done)
	}
	r.finished = true
}

// maxSpare bounds the buffer kept for reuse, bytes.
const maxSpare = 4 << 20

// Open opens the log in dir, creates the directory and the log if needed, and calls replay for every
// record, in order. If replay or a check fails, its error is returned and nothing was changed:
// codec.CorruptError for damage, codec.ErrNewerFormat for the log of a newer program. Only after that is a
// torn end cut and the tail made durable; see Recovery. The caller makes sure that one process at a
// time has a log open for writing. With ReadOnly nothing is changed at all, and a missing directory
// is an empty log, unless MustExist is set.
func Open(ctx context.Context, dir string, opts Options, replay func(Record) error) (*Log, Recovery, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, Recovery{}, err
	}
	l := newLog(dir, opts)
	ls, err := openListing(opts.FS, dir)
	if err != nil {
		return nil, Recovery{}, err
	}
	defer func() { ls.close() }()
	r := &reader{ctx: ctx, fn: replay}
	tail := 0
	if len(ls.segs) == 0 {
		if opts.MustExist {
			return nil, Recovery{}, noSegment(dir)
		}
		r.rec = Recovery{Fresh: true, First: 1}
	} else {
		var out outcome
		if tail, out, err = r.walk(ls.segs); err != nil {
			return nil, r.rec, err
		}
		if out.sealed && tail == len(ls.segs)-1 {
			return nil, r.rec, missingNext(ls.segs[tail], r.next)
		}
	}
	if err := l.start(ctx, &ls, tail, r); err != nil {
		return nil, r.rec, err
	}
	return l, r.rec, nil
}

// noSegment is the error for a log without a segment, where there must be one.
func noSegment(dir string) error {
	return fmt.Errorf("wal: the log has no segment: %s: %w", dir, fs.ErrNotExist)
}

// newLog makes a log that has read nothing. The lead is free.
func newLog(dir string, opts Options) *Log {
	step := min(max(opts.SegmentBytes/128, minStep), maxStep)
	l := &Log{
		storage: storage{fs: opts.FS, dir: dir, salt: opts.Salt, syncFile: opts.Sync, noSync: opts.NoSync, step: step, least: step / 2},
		opts:    opts,
		lead:    make(chan struct{}, 1),
		before:  &round{finished: true},
		cur:     &round{finished: true},
		next:    &round{},
	}
	if opts.LeastReserve > 0 {
		l.least = min(opts.LeastReserve, step/2)
	}
	l.lead <- struct{}{}
	return l
}

// start makes the log that was read ready for use. The numbers are all set to the last record that
// was read: repair makes it durable before start returns, so nothing that replay was shown can be
// lost any more.
func (l *Log) start(ctx context.Context, ls *listing, tail int, r *reader) (err error) {
	rec := &r.rec
	l.last, l.written, l.target, l.synced, l.durable = rec.Last, rec.Last, rec.Last, rec.Last, rec.Last
	l.gen = ls.maxGen + 1
	l.first = rec.First
	if l.opts.ReadOnly {
		l.err = errReadOnly
		l.keep(ls.segs)
		return nil
	}
	if len(ls.segs) == 0 {
		if err = l.makeDir(); err == nil {
			err = l.remove(ls.stale...)
		}
		if err == nil {
			l.act, err = l.create(&segment{gen: l.gen, first: 1, sealed: l.opts.Sealed}, nil)
		}
		rec.Segments = 1
	} else {
		l.act, err = l.repair(ctx, ls, tail, r)
		l.keep(ls.segs[:tail])
		rec.Segments = tail + 1
	}
	if err != nil {
		return fmt.Errorf("wal: open: %w", err)
	}
	l.first = l.act.first
	l.actEnd.Store(l.act.end)
	if l.act.alloc > segHead || len(ls.segs) > 0 { // otherwise the first write finds out whether there is space
		err := l.act.ahead(0)
		if err != nil && !errors.Is(err, errNothingWritten) {
			return fmt.Errorf("wal: open: %w", err)
		}
		l.note()
	}
	return nil
}

// keep counts segments that are no longer written.
func (l *Log) keep(segs []*segment) {
	for _, s := range segs {
		l.sealed = append(l.sealed, span{path: s.path, first: s.first, size: s.end})
		l.size += s.end
	}
}

// Enqueue appends a record to the group buffer and returns its number; its body is the parts,
// joined. Call order is log order. It does no I/O and keeps none of the parts: the frame is built in
// the buffer at once, and sums and the durable field are filled in when the group is written. urgent is
// for records that free space, such as deletes: on a full disk they may use what is preallocated.
// Errors: ErrFull, after which the log goes on; ErrPoisoned, ErrClosed. An error leaves no gap.
func (l *Log) Enqueue(kind Kind, urgent bool, body ...[]byte) (uint64, error) {
	if err := l.checkRecord(kind, body); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return 0, l.err
	case l.closing:
		return 0, ErrClosed
	case l.full && !(urgent && l.fits(body)):
		return 0, ErrFull
	}
	l.last++
	l.buf = appendFrame(l.buf, kind, 0, l.last, body...)
	return l.last, nil
}

// closeSpace is the space that urgent records leave for the final record, bytes: a mark of some 60 hashes.
const closeSpace = 2 << 10

// fits reports whether a record fits behind what is buffered into what is preallocated. mu is held.
func (l *Log) fits(body [][]byte) bool {
	n := int64(frameHead+frAlign+len(l.buf)) + min(closeSpace, l.step/8)
	for _, p := range body {
		n += int64(len(p))
	}
	return n <= l.unused
}

// Grow preallocates space for n bytes more than what is buffered. Without it a large group may find
// the disk full when it is written, which poisons the log. ErrFull: there is no space for them, and
// nothing happened. Grow(0) asks whether the log is still full.
func (l *Log) Grow(n int64) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	n += int64(len(l.buf))
	l.mu.Unlock()
	err := l.act.ahead(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.act.full
	l.note()
	switch {
	case errors.Is(err, errNothingWritten), err == nil && full:
		return ErrFull
	case err != nil:
		return l.poison(err)
	}
	return nil
}

// Reserve keeps the largest reserve from now on, whatever Options.LeastReserve says, for a caller that sees the disk fill up.
// A full disk is no error here: ErrFull is for the records that find no space.
func (l *Log) Reserve() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	l.mu.Unlock()
	l.least, l.act.least = l.step/2, l.step/2
	err := l.act.ahead(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note()
	if err != nil && !errors.Is(err, errNothingWritten) {
		return l.poison(err)
	}
	return nil
}

// Room returns how many preallocated bytes are behind all records, written or not, and how many there must be for the log
// not to be full.
func (l *Log) Room() (bytes, reserve int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unused - int64(len(l.buf)), l.reserve
}

// Shrink frees the preallocated space except keep bytes, for a caller that needs a little space to
// free more. The next write preallocates again.
func (l *Log) Shrink(keep int64) error {
	<-l.lead
	defer l.giveLead()
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	keep += int64(len(l.buf))
	l.mu.Unlock()
	err := l.act.trim(keep, l.sync)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note()
	if err != nil {
		return l.poison(err)
	}
	return nil
}

// note copies the appender's counts of space. wmu and mu are held.
func (l *Log) note() {
	l.unused = l.act.alloc - l.act.end
	l.reserve, _ = l.act.spaceAt(l.act.end)
	l.full = l.unused < l.reserve
}

// checkRecord refuses a record that could not be read back.
func (l *Log) checkRecord(kind Kind, body [][]byte) error {
	if !kind.known() {
		return fmt.Errorf("wal: enqueue: expected kind C, A or M, got %#x", byte(kind))
	}
	n := 0
	for _, p := range body {
		n += len(p)
	}
	if n > l.opts.MaxRecord {
		return fmt.Errorf("wal: enqueue: a record of %d bytes; the limit is %d", n, l.opts.MaxRecord)
	}
	return nil
}

// Write hands the buffered records to the operating system: they then survive a killed process, but
// not a power cut. It waits for other writes and for a rotation, not for a running sync. If the log
// is full (ErrFull), it tries again whether there is space.
func (l *Log) Write() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return l.flush(false)
}

// flush writes the group buffer. wmu is held. With begin, the round that will sync it becomes the
// running one in the step that fixes what it covers. The buffer is swapped under mu, and written
// without it: records that come meanwhile go into the other one. A group is written whole or
// poisons the log.
func (l *Log) flush(begin bool) error {
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	group, last, synced, full := l.buf, l.last, l.synced, l.full
	l.buf, l.spare = l.spare, nil
	if begin {
		l.before, l.covered = l.cur, l.target
		l.cur, l.next, l.target = l.next, &round{}, last
	}
	l.mu.Unlock()

	var err error
	if len(group) > 0 || full {
		finishGroup(group, l.act.key, synced)
		err = l.act.put(group, !begin)
		l.actEnd.Store(l.act.end)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if cap(group) <= maxSpare {
		l.spare = group[:0]
	}
	l.note()
	if err != nil {
		err = l.poison(err)
		if begin {
			l.cur.wake()
		}
		return err
	}
	l.written = last
	return nil
}

// First returns the oldest record; Last()+1 if there is none.
func (l *Log) First() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sealed) > 0 {
		return l.sealed[0].first
	}
	return l.first
}

// Last returns the newest record enqueued.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Size returns the bytes of all segments, without what is buffered or preallocated.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size + l.actEnd.Load()
}
