package pgstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/semaphore"

	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/store"
)

// serverLog is the log on the server as the engine knows it: one order that several hosts extend in turns.
//
//	trip 1   begin, lock the row of the turn, read what others committed and the inbox        begin
//	         judge and number each commit of this host that waits, on top of the ones before  Acquire, Commit, Release
//	trip 2   insert the group, commit                                                         flush
//	         install, answer, notify the other hosts
//
// The tail queues its callers in the order they came. The goroutine that ends a turn queues there too, when the first commit
// is in it: so all who waited by then get into the group, and nobody has to decide how long a group may wait for more.
//
// If trip 2 fails, nobody knows whether it happened. The next turn tells (resolve), because it gets the lock only when the old
// transaction has ended: the last record of the group is there, and with it all of them; or nothing follows what the group was
// built on, and the group is written again; or another host was faster, and the engine judges the commits again (see fate).
//
//	tail   pos, turn, and whatever the Follower is told
//	mu     leaves and group; below tail
type serverLog struct {
	s    *Store
	pool *pgxpool.Pool
	db   int
	host [16]byte

	tail *semaphore.Weighted
	pos  position // of the newest record that the engine has
	turn *turn    // open on the server; nil: none
	rows int      // how many records are read at once

	mu      sync.Mutex
	group   *group  // of what is in flight; nil: nothing is
	leaves  []*leaf // left, and not durable yet, in the order of their tickets
	ticket  int64
	spool   *spool           // leaves of reads, on the disk of this machine
	shared  *share           // the next write to the inbox; nil: nobody waits for it
	commits map[uint64]chain // of the records that have commits and are not in the rows yet

	waits atomic.Bool   // this host waits for the turn, and follows meanwhile
	told  chan struct{} // another host says that it committed; for who waits for the turn

	writing chan struct{}            // one writer to the inbox at a time
	kick    chan struct{}            // asks the worker for a turn
	grown   atomic.Int64             // bytes of records since the newest image
	applied atomic.Pointer[position] // pos, for those who must not wait for the tail
	heard   atomic.Int64             // unix ns of this machine's clock: all that was answered before it is applied
	silent  atomic.Pointer[error]
	down    atomic.Int64 // unix ns: since then a call that was patient got no answer; 0: it answers
}

// chain is the hash of a record and all before it.
type chain = [sha256.Size]byte

// position is a place in the order.
type position struct {
	seq   uint64
	chain chain
}

// next is the place of a record behind this one.
func (p position) next(kind engine.Kind, body []byte) position {
	var head [9]byte
	binary.BigEndian.PutUint64(head[:], p.seq+1)
	head[8] = byte(kind)
	h := sha256.New()
	h.Write(p.chain[:])
	h.Write(head[:])
	h.Write(body)
	n := position{seq: p.seq + 1}
	h.Sum(n.chain[:0])
	return n
}

// group collects commits that become durable together. done is closed when they are, when they are lost, or when nobody can know, as err reports.
type group struct {
	done    chan struct{}
	err     error // set before done is closed
	durable bool  // likewise; false also of what is lost
}

// maxRecord is the longest record, bytes.
const maxRecord = 64 << 20

// uuid is the host as an argument of a statement. Its type says what it is: in the exec mode that poolers need, pgx asks no
// server for the types of the arguments, and cannot encode a bare array of bytes.
func (l *serverLog) uuid() pgtype.UUID { return pgtype.UUID{Bytes: l.host, Valid: true} }

func newLog(s *Store, pool *pgxpool.Pool, db int, host [16]byte) *serverLog {
	l := &serverLog{s: s, spool: newSpool(s.dir, s.db.spool(), host), pool: pool, db: db, host: host, tail: semaphore.NewWeighted(1), kick: make(chan struct{}, 1), writing: make(chan struct{}, 1), told: make(chan struct{}, 1), rows: beginRows, commits: map[uint64]chain{}}
	l.moved(position{})
	return l
}

// moved notes how far the engine has come. The tail is held, or nobody else has the log yet.
func (l *serverLog) moved(to position) {
	l.pos = to
	l.applied.Store(&to)
}

// lock takes the tail, for at most Options.Patience.
func (l *serverLog) lock(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.s.opts.Patience, ErrUnavailable)
	defer cancel()
	if err := l.tail.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (l *serverLog) unlock() { l.tail.Release(1) }

// Acquire: see engine.Log.
func (l *serverLog) Acquire(ctx context.Context) (engine.Tail, error) {
	if err := l.lock(ctx); err != nil {
		return nil, err
	}
	if l.turn != nil {
		return l, nil
	}
	if err := l.open(ctx); err != nil {
		l.unlock()
		return nil, err
	}
	return l, nil
}

// open begins a turn, and tries again while the server does not answer. The tail is held.
func (l *serverLog) open(ctx context.Context) error {
	until := time.Now().Add(l.s.opts.Patience)
	for try := 0; ; try++ {
		t, err := l.begin()
		if err == nil {
			l.down.Store(0)
			l.turn = t
			return nil
		}
		if !passing(err) {
			return l.s.fatal(err)
		}
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == readOnly { // the other connections lead there, too
			l.pool.Reset()
		}
		l.s.opts.Logger.Warn("pgstore: the server did not give the turn", "database", l.s.opts.Name, "try", try+1, "error", err)
		if l.down.Load() != 0 || time.Now().After(until) || !l.pause(ctx, try) {
			l.down.CompareAndSwap(0, time.Now().UnixNano())
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

// pause waits before another try: 10 ms, doubled each time up to 1 s, less a random half of it. False: the wait was ended.
func (l *serverLog) pause(ctx context.Context, try int) bool {
	d := min(10*time.Millisecond<<min(try, 7), time.Second)
	var b [1]byte
	_, _ = l.s.opts.Rand.Read(b[:]) // without it the wait is the whole one
	t := time.NewTimer(d - d/2*time.Duration(b[0])/256)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-l.s.ended:
	}
	return false
}

// Next: see engine.Tail.
func (l *serverLog) Next() engine.Counters { return l.turn.next }

// Commit: see engine.Tail.
func (l *serverLog) Commit(c *engine.Commit) error {
	body := c.Append(nil)
	if len(body) > maxRecord {
		return engine.ErrLogTooLarge
	}
	c.Seq = l.turn.add(item{kind: engine.KindCommit, body: body, entry: engine.Entry{Commit: c}})
	l.turn.next = c.After
	return nil
}

// Release: see engine.Tail. A turn with nothing in it ends here, or the other hosts would wait for nothing.
func (l *serverLog) Release() {
	defer l.unlock()
	t := l.turn
	if t == nil {
		return
	}
	if t.empty() {
		l.turn = nil
		t.rollback()
		return
	}
	if t.group == nil {
		t.group = &group{done: make(chan struct{})}
		l.mu.Lock()
		l.group = t.group
		l.mu.Unlock()
		if !l.s.start(func() { l.flush(t) }) { // closing: the transaction ends with its connection, and nothing happened
			l.turn = nil
			t.rollback()
			l.lose(t)
		}
	}
}

// Follow: see engine.Log.
func (l *serverLog) Follow(ctx context.Context, wait time.Duration) error {
	until := time.Now().Add(wait)
	for {
		before := l.applied.Load().seq
		if err := l.catchUp(ctx); err != nil {
			return err
		}
		if l.applied.Load().seq != before || !time.Now().Before(until) {
			return nil
		}
		t := time.NewTimer(min(l.s.opts.Poll, time.Until(until)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// Sync: see engine.Log. Record 0 stands for all commits and leaves that are in flight; leaves have their numbers then.
func (l *serverLog) Sync(ctx context.Context, seq uint64, heard <-chan struct{}) error {
	if ticket, is := ticketOf(seq); is {
		return l.syncLeaves(ctx, ticket)
	}
	var waits []<-chan struct{}
	l.mu.Lock()
	if seq == 0 {
		for _, f := range l.leaves {
			waits = append(waits, f.done)
		}
	}
	if len(waits) > 0 {
		l.ask()
	}
	g := l.group
	if g != nil {
		waits = append(waits, g.done)
	}
	l.mu.Unlock()
	if err := l.await(ctx, waits, heard); err != nil || g == nil {
		return err
	}
	select {
	case <-g.done:
		return g.err
	default: // heard of it
		return nil
	}
}

// await waits for all that is to happen, or until heard is closed.
func (l *serverLog) await(ctx context.Context, waits []<-chan struct{}, heard <-chan struct{}) error {
	t := time.NewTimer(l.s.opts.Patience)
	defer t.Stop()
	for _, done := range waits {
		select {
		case <-done:
		case <-heard:
			return nil
		case <-l.s.dead:
			return l.s.whyDead()
		case <-t.C:
			return fmt.Errorf("%w: %w; ask for the outcome of its id, or repeat with the same id", store.ErrOutcomeUnknown, ErrUnavailable)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Outcome: see engine.Log. What other hosts committed is in the overlay when the tail is held; see engine.Engine.
func (l *serverLog) Outcome(_ context.Context, id ulid.ULID) (row []byte, err error) {
	err = l.View(func(tx engine.Reader) error { row, err = engine.OutcomeIn(tx, id); return err })
	return row, err
}

// View: see engine.Rows.
func (l *serverLog) View(fn func(engine.Reader) error) error { return l.s.cache.view(fn) }

// Snapshot: see engine.Log.
func (l *serverLog) Snapshot(_ context.Context, fn func(engine.Reader, engine.Base) error) error {
	return l.s.cache.view(func(tx engine.Reader) error { return fn(tx, l.s.cache.base()) })
}

// chainAt is the chain of a record with a commit that is not in the rows yet, and forgets those before it.
func (l *serverLog) chainAt(seq uint64) (c chain, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok = l.commits[seq]
	for s := range l.commits {
		if s < seq {
			delete(l.commits, s)
		}
	}
	return c, ok
}
