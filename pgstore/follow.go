package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ctxpage/ctxpage/internal/engine"
)

// take installs records that follow what the engine has, of which limit were asked for. Rows that were installed since are passed over.
// The first of the others must be the record that the engine has last: if it is gone or another one, this is not the order it
// followed. It returns the number of rows.
func (l *serverLog) take(rows pgx.Rows, limit int) (n int, err error) {
	defer rows.Close()
	bytesRead, met := 0, false
	defer func() { l.adapt(n, bytesRead) }()
	for rows.Next() {
		var seq, kind int64
		var body, sum []byte
		var host *[16]byte
		var number *int64
		n++
		if err := rows.Scan(&seq, nil, nil, nil, nil, nil); err != nil {
			return n, err
		}
		if uint64(seq) < l.pos.seq { // most of them in a turn: they were installed while this host waited for it
			continue
		}
		if err := rows.Scan(&seq, &kind, &body, &sum, &host, &number); err != nil {
			return n, err
		}
		bytesRead += len(body)
		if !met {
			met = true
			is, err := l.continues(uint64(seq), sum)
			if err != nil {
				return n, err
			}
			if is {
				continue
			}
		}
		at := l.pos.next(engine.Kind(kind), body)
		if at.seq != uint64(seq) || !bytes.Equal(at.chain[:], sum) {
			return n, followError{chainError(uint64(seq), l.s.opts.Name)}
		}
		mine := host != nil && *host == l.host
		if err := l.deliver(engine.Kind(kind), at, body, mine, number); err != nil {
			return n, err
		}
	}
	if err := rows.Err(); err != nil {
		return n, err
	}
	if !met && n < limit && l.pos.seq > 0 {
		return n, followError{fmt.Errorf("%w: it ends before record %d, which this host has", ErrForked, l.pos.seq)}
	}
	return n, nil
}

// continues holds the first row against what the engine has. is: the row is that record itself.
func (l *serverLog) continues(seq uint64, sum []byte) (is bool, err error) {
	switch {
	case seq == l.pos.seq && bytes.Equal(sum, l.pos.chain[:]):
		return true, nil
	case seq == l.pos.seq:
		return false, followError{fmt.Errorf("%w: record %d has another hash", ErrForked, seq)}
	case l.pos.seq == 0 && seq == 1:
		return false, nil
	}
	return false, followError{fmt.Errorf("%w: it begins at record %d, this host has %d", ErrTooOld, seq, l.pos.seq)}
}

// deliver hands one record to the engine.
func (l *serverLog) deliver(kind engine.Kind, at position, body []byte, mine bool, number *int64) (err error) {
	if kind == engine.KindCommit { // before the engine has it: a checkpoint that takes it asks for its chain
		l.mu.Lock()
		l.commits[at.seq] = at.chain
		l.mu.Unlock()
	}
	is := false
	if mine && number != nil {
		is, err = l.arrived(*number, body)
	}
	if !is && err == nil {
		err = l.s.eng.Follow(kind, at.seq, body)
	}
	if err == nil {
		err = l.s.step("followed")
	}
	if err != nil {
		return followError{l.s.damage(at.seq, err)}
	}
	l.grown.Add(int64(len(body)))
	l.moved(at)
	return nil
}

// catchUp installs what others committed. During a turn of this host there is nothing, as long as the server agrees that the
// turn is open: it ends one whose host stood still, and then others commit. So whoever finds a turn waits for its end. COMMIT is
// sent by the holder of the tail, so it comes after the caller asked, and its success says that nobody else had the turn
// until then. A turn that was lost says nothing.
func (l *serverLog) catchUp(ctx context.Context) error {
	for {
		g, err := l.catchUpOutside(ctx)
		if g == nil || err != nil {
			return err
		}
		if err := l.wait(ctx, g); err != nil || g.durable {
			return err
		}
	}
}

// catchUpOutside asks the server for what others committed, unless a turn of this host is open; then it returns what the turn makes
// durable. A turn has a group whenever the tail is free: see Release.
func (l *serverLog) catchUpOutside(ctx context.Context) (*group, error) {
	if err := l.lock(ctx); err != nil {
		return nil, err
	}
	defer l.unlock()
	if l.turn != nil {
		return l.turn.group, nil
	}
	until := time.Now().Add(l.s.opts.Patience)
	for try := 0; ; try++ {
		err := l.stream(ctx)
		switch {
		case err == nil:
			return nil, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !passing(err):
			return nil, l.s.fatal(err)
		case time.Now().After(until) || !l.pause(ctx, try):
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

// adapt chooses how many records are read at once: few if they are long, so that memory stays bounded.
func (l *serverLog) adapt(n, bytes int) {
	switch {
	case bytes > partMost:
		l.rows = max(2, l.rows/2)
	case n >= l.rows && bytes < partMost/4:
		l.rows = min(followRows, 2*l.rows)
	}
}

// partMost is about how many bytes of records are read at once.
const partMost = 8 << 20

// stream installs what follows, some records at a time, until there is no more. The tail is held. What piles up in memory is
// brought into the cache on the way. If it took long, it asks again, so that readers may go on at once.
func (l *serverLog) stream(ctx context.Context) error {
	for {
		asked, limit := time.Now(), l.rows
		n, err := l.part(ctx, limit)
		if err != nil {
			return err
		}
		if n < limit {
			l.hear(asked)
			if time.Since(asked) < l.s.recent() {
				return nil
			}
		}
		if l.s.due() {
			if _, err := l.s.checkpoint(ctx); err != nil {
				return followError{err}
			}
		}
	}
}

// recent limits the age of an answer of the server with which a catch-up may end.
func (s *Store) recent() time.Duration {
	if s.opts.MaxLag > 0 {
		return min(time.Second, s.opts.MaxLag/4)
	}
	return time.Second
}

func (l *serverLog) part(ctx context.Context, limit int) (int, error) {
	if err := l.s.step("follow"); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	rows, err := l.pool.Query(ctx, sqlRecords, l.db, int64(l.pos.seq), limit)
	if err != nil {
		return 0, err
	}
	return l.take(rows, limit)
}

// hear notes that readers see everything that was answered before a time.
func (l *serverLog) hear(at time.Time) {
	for {
		was := l.heard.Load()
		if was >= at.UnixNano() {
			return
		}
		if l.heard.CompareAndSwap(was, at.UnixNano()) {
			l.silent.Store(nil)
			return
		}
	}
}

// look asks for the newest record and installs what is missing. It waits for the tail only if there is something.
func (l *serverLog) look(ctx context.Context) error {
	asked := time.Now()
	if err := l.s.step("look"); err != nil {
		return err
	}
	ask, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	newest, sum, err := l.newest(ask)
	if err != nil {
		return err
	}
	// What this host has may be more: a commit of its own since the question. Or it is as much and not the same: a server that lost
	// records and got as many others.
	if at := l.applied.Load(); newest == at.seq && (newest == 0 || bytes.Equal(sum, at.chain[:])) {
		l.hear(asked)
		return nil
	}
	return l.catchUp(ctx)
}

// newest returns the number and the chain of the newest record on the server; 0: there is none.
func (l *serverLog) newest(ctx context.Context) (seq uint64, sum []byte, err error) {
	var n int64
	err = l.pool.QueryRow(ctx, "SELECT seq, chain FROM ctxpage_records WHERE db = $1 ORDER BY seq DESC LIMIT 1", l.db).Scan(&n, &sum)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return uint64(n), sum, err
}

// forked adds to ErrForked what this host has and what the server has now.
func (l *serverLog) forked(err error) error {
	var known *ForkedError
	if !errors.Is(err, ErrForked) || errors.As(err, &known) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	newest, _, ask := l.newest(ctx)
	if ask != nil {
		return err
	}
	e := &ForkedError{Have: l.applied.Load().seq, Newest: newest, LSN: l.s.eng.Mark().LSN, Err: err}
	if l.s.opts.CacheDir != "" {
		e.Cache = l.s.opts.CacheDir
	}
	return e
}

// poll follows the other hosts until the store ends.
func (l *serverLog) poll(ctx context.Context) {
	tick := time.NewTicker(l.s.opts.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.s.told:
		}
		if l.s.whyDead() != nil {
			return
		}
		if l.waits.Load() { // who waits for the turn looks
			continue
		}
		if err := l.look(ctx); err != nil && ctx.Err() == nil {
			l.silent.Store(&err)
			l.s.opts.Logger.Debug("pgstore: follow", "database", l.s.opts.Name, "error", err)
			if errors.Is(err, ErrForked) || errors.Is(err, ErrTooOld) {
				return
			}
		}
	}
}

// takeTurns takes a turn for waiting leaves, when asked and at intervals.
func (l *serverLog) takeTurns(ctx context.Context) {
	tick := time.NewTicker(leafEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !l.pending() {
				continue
			}
		case <-l.kick:
		}
		if l.s.whyDead() != nil {
			return
		}
		if tail, err := l.Acquire(ctx); err == nil {
			tail.Release()
		}
	}
}

// leafEvery is the interval at which leaves of reads are numbered.
const leafEvery = 100 * time.Millisecond
