package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/store"
)

// turn is a transaction that holds the lock of the order, and what it will write.
type turn struct {
	conn  *pgxpool.Conn
	base  position // before it
	end   position // after its last item
	next  engine.Counters
	items []item
	inbox []int64 // rows of the inbox that are in items, or in the log already
	group *group  // nil: nobody waits for it yet
}

// item is a record to be written.
type item struct {
	kind  engine.Kind
	body  []byte
	end   position
	entry engine.Entry // of this host; empty: a leaf that another host left
	leaf  *leaf        // of this host
	from  *ticket      // of a leaf: whose it was
}

// ticket names a leaf that a host left.
type ticket struct {
	host [16]byte
	n    int64
}

func (t *turn) empty() bool { return len(t.items) == 0 && len(t.inbox) == 0 }

// add puts a record at the end and returns its number.
func (t *turn) add(it item) uint64 {
	it.end = t.end.next(it.kind, it.body)
	t.end = it.end
	t.items = append(t.items, it)
	return it.end.seq
}

// addLeaf numbers a leaf.
func (t *turn) addLeaf(own *leaf, from ticket, question, body []byte) {
	record := append(engine.AppendLeafHead(nil, t.next.Leaf, question), body...)
	it := item{kind: engine.KindLeaf, body: record, leaf: own, from: &from}
	if own != nil {
		own.of.Index = t.next.Leaf
		it.entry = engine.Entry{Leaf: own.of}
	}
	t.add(it)
	t.next.Leaf++
}

// rollback ends the transaction without a trace of it. A connection that does not answer is closed.
func (t *turn) rollback() {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	if _, err := t.conn.Exec(ctx, "ROLLBACK"); err != nil {
		t.drop()
		return
	}
	t.conn.Release()
}

// drop closes the connection: the server ends what it was doing.
func (t *turn) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = t.conn.Conn().Close(ctx)
	t.conn.Release()
}

const (
	followRows = 512 // records at once, at most
	beginRows  = 256 // records at once while the order is locked: a host that has more to read lets the others go on. 32 was tried: of
	// four hosts with 16 writers each, two of five turns were given back
	inboxRows = 512
)

const sqlSettings = `SELECT set_config('synchronous_commit', $1, true), set_config('lock_timeout', $2, true), set_config('statement_timeout', $3, true),
	set_config('idle_in_transaction_session_timeout', $4, true)`

const sqlRecords = `SELECT seq, kind, body, chain, host, ticket FROM ctxpage_records WHERE db = $1 AND seq >= $2 ORDER BY seq LIMIT $3`

const sqlInbox = `SELECT id, host, ticket, question, body,
	EXISTS (SELECT FROM ctxpage_records r WHERE r.db = i.db AND r.host = i.host AND r.ticket = i.ticket)
	FROM ctxpage_inbox i WHERE db = $1 ORDER BY id LIMIT $2`

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// begin is the first trip: it locks the order, and installs what others committed. A host that is far behind catches up
// before it locks. The tail is held.
func (l *serverLog) begin() (*turn, error) {
	for {
		t, behind, err := l.tryBegin()
		if err != nil || !behind {
			return t, err
		}
		if err := l.stream(context.Background()); err != nil {
			return nil, err
		}
	}
}

// errTurnEnded: the answer to the first trip is older than what this host installed while it waited for it. So others committed after
// the server had given the lock: it took it back, because the answer was long on its way. What the order of the server is, the next
// question tells; to take the old answer for the end of a log that has lost records ended a handle for good.
var errTurnEnded = errors.New("pgstore: the server ended the turn before its answer came")

// tryBegin is begin once. behind: there was more to install than a host may while it has the lock; t is over then.
func (l *serverLog) tryBegin() (t *turn, behind bool, err error) {
	if err := l.s.step("begin"); err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, false, err
	}
	t = &turn{conn: conn}
	defer func() {
		if err != nil {
			l.unplace(t)
			t.drop()
			t = nil
		}
	}()
	asked, from := time.Now(), l.pos.seq
	mine := l.written()
	var b pgx.Batch
	b.Queue("BEGIN")
	b.Queue(sqlSettings, l.s.opts.SynchronousCommit, milliseconds(lockTimeout), milliseconds(statementTimeout), milliseconds(idleTimeout))
	b.Queue("SELECT db FROM ctxpage_turn WHERE db = $1 FOR UPDATE", l.db)
	b.Queue(sqlRecords, l.db, from, beginRows)
	b.Queue(sqlInbox, l.db, inboxRows)
	res := conn.SendBatch(ctx, &b)
	defer func() {
		if cerr := res.Close(); err == nil && cerr != nil {
			err = cerr
		}
	}()
	locked := make(chan error, 1)
	go func() { locked <- l.awaitLock(res) }()
	if err := l.followUntil(ctx, locked); err != nil {
		return t, false, err
	}
	rows, err := res.Query()
	if err != nil {
		return t, false, err
	}
	n, err := l.take(rows, beginRows)
	if errors.Is(err, ErrForked) && l.pos.seq > from {
		err = errTurnEnded
	}
	if err != nil {
		return t, false, err
	}
	if n == beginRows {
		if err = errors.Join(res.Close(), l.s.step("behind")); err == nil {
			t.rollback()
		}
		return t, true, err
	}
	l.hear(asked)
	t.base, t.end, t.next = l.pos, l.pos, l.s.eng.Counters()
	if rows, err = res.Query(); err != nil {
		return t, false, err
	}
	return t, false, errors.Join(l.place(t, rows, mine), l.s.step("placed"))
}

// awaitLock reads the answers of the first trip, up to the answer of the lock.
func (l *serverLog) awaitLock(res pgx.BatchResults) error {
	for range 2 {
		if _, err := res.Exec(); err != nil {
			return err
		}
	}
	tag, err := res.Exec()
	if err == nil && tag.RowsAffected() != 1 {
		err = followError{fmt.Errorf("%w: database %q is no longer on the server", ErrForked, l.s.opts.Name)}
	}
	return err
}

// followUntil installs what the hosts that have the turn commit while this one waits for it, so that little is left to install when
// it has the lock and the others wait. It returns when the lock is there, or cannot be had.
func (l *serverLog) followUntil(ctx context.Context, locked <-chan error) error {
	l.waits.Store(true)
	defer l.waits.Store(false)
	tick := time.NewTicker(l.s.opts.Poll)
	defer tick.Stop()
	for {
		select {
		case err := <-locked:
			return errors.Join(err, l.s.step("locked"))
		case <-l.told:
		case <-tick.C:
		}
		asked, limit := time.Now(), l.rows
		n, err := l.part(ctx, limit)
		if err != nil {
			if of := <-locked; of != nil { // until then the connection is not ours
				return of
			}
			return err
		}
		if n < limit {
			l.hear(asked)
		}
	}
}

const sqlInsert = `INSERT INTO ctxpage_records (db, seq, kind, body, chain, host, ticket)
	SELECT $1, * FROM unnest($2::bigint[], $3::smallint[], $4::bytea[], $5::bytea[], $6::uuid[], $7::bigint[])`

// write is the second trip.
func (l *serverLog) write(t *turn) error {
	if err := l.s.step("write"); err != nil {
		return err
	}
	n := len(t.items)
	seqs, kinds, bodies, chains := make([]int64, n), make([]int16, n), make([][]byte, n), make([][]byte, n)
	hosts, tickets := make([]pgtype.UUID, n), make([]*int64, n)
	for i := range t.items {
		it := &t.items[i]
		seqs[i], kinds[i], bodies[i], chains[i] = int64(it.end.seq), int16(it.kind), it.body, it.end.chain[:]
		if it.from != nil {
			hosts[i], tickets[i] = pgtype.UUID{Bytes: it.from.host, Valid: true}, &it.from.n
		}
	}
	var b pgx.Batch
	if n > 0 {
		b.Queue(sqlInsert, l.db, seqs, kinds, bodies, chains, hosts, tickets)
	}
	if len(t.inbox) > 0 {
		b.Queue("DELETE FROM ctxpage_inbox WHERE db = $1 AND id = ANY($2)", l.db, t.inbox)
	}
	b.Queue("COMMIT")
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	res := t.conn.SendBatch(ctx, &b)
	var last string
	for range b.Len() {
		tag, err := res.Exec()
		if err != nil {
			return errors.Join(err, res.Close())
		}
		last = tag.String()
	}
	if err := res.Close(); err != nil {
		return err
	}
	if last != "COMMIT" {
		return fmt.Errorf("pgstore: the server answered %s to COMMIT", last)
	}
	return l.s.step("written")
}

// flush ends a turn: it makes the group durable, and has it installed. It queues behind those who wait for the tail, so that
// they are in the group.
func (l *serverLog) flush(t *turn) {
	if l.tail.Acquire(context.Background(), 1) != nil {
		return
	}
	defer l.unlock()
	l.placeNew(t)
	l.turn = nil
	err := l.write(t)
	if err == nil {
		t.conn.Release()
		l.install(t)
		return
	}
	if l.s.opts.credulous {
		t.drop()
		l.install(t)
		return
	}
	l.s.opts.Logger.Warn("pgstore: a commit got no answer; asking for its outcome", "database", l.s.opts.Name, "record", t.base.seq+1, "error", err)
	t.drop()
	l.resolve(t)
}

// resolve finds out what became of a group whose transaction ended without an answer. The tail is held until it is known: what
// comes after builds on it.
func (l *serverLog) resolve(t *turn) {
	for try := 0; ; try++ {
		known, err := l.outcome(t)
		switch {
		case known:
			return
		case err != nil && !passing(err):
			l.abandon(t, l.s.die(l.forked(err))) // what is built on a group that may be there, or not, is of no use
			return
		}
		if !l.pause(context.Background(), try) {
			l.abandon(t, store.ErrClosed)
			return
		}
	}
}

// outcome asks for the outcome of a group once.
func (l *serverLog) outcome(t *turn) (known bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	t.conn = conn
	f, err := l.relock(ctx, t)
	switch {
	case err != nil:
		t.drop()
		return false, err
	case f == fateNothing: // once more, as it is
		if err := l.write(t); err != nil {
			t.drop()
			return false, err
		}
		t.conn.Release()
		l.install(t)
		return true, nil
	}
	t.rollback()
	if f == fateThere {
		l.install(t)
		return true, nil
	}
	l.lose(t)
	l.ask()
	return true, nil
}

// fate is the outcome of a group whose transaction ended without an answer.
type fate uint8

const (
	fateNothing fate = iota // nothing of it happened, and nobody wrote since
	fateThere               // the log has it
	fateOther               // another host wrote instead
)

// relock waits until the old transaction of a turn has ended, and reads the records that tell the fate of its group. The chain of the
// group's last record stands for all of it. That of the first does not: two hosts that take the same leaf from the inbox begin their
// groups with the same record. A host that looked at the first alone acknowledged commits that were nowhere.
func (l *serverLog) relock(ctx context.Context, t *turn) (f fate, err error) {
	var b pgx.Batch
	b.Queue("BEGIN")
	b.Queue(sqlSettings, l.s.opts.SynchronousCommit, milliseconds(lockTimeout), milliseconds(statementTimeout), milliseconds(idleTimeout))
	b.Queue("SELECT db FROM ctxpage_turn WHERE db = $1 FOR UPDATE", l.db)
	b.Queue("SELECT seq, chain FROM ctxpage_records WHERE db = $1 AND seq = ANY($2)", l.db, []int64{int64(t.base.seq), int64(t.base.seq) + 1, int64(t.end.seq)})
	res := t.conn.SendBatch(ctx, &b)
	defer func() { err = errors.Join(err, res.Close()) }()
	for range 3 {
		if _, err := res.Exec(); err != nil {
			return 0, err
		}
	}
	rows, err := res.Query()
	if err != nil {
		return 0, err
	}
	chains := map[uint64][]byte{}
	for rows.Next() {
		var seq int64
		var c []byte
		if err := rows.Scan(&seq, &c); err != nil {
			return 0, err
		}
		chains[uint64(seq)] = c
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	return t.fate(chains)
}

// fate tells what became of the group from the chains of the records before it, of its first and of its last.
func (t *turn) fate(chains map[uint64][]byte) (fate, error) {
	switch {
	case t.base.seq > 0 && !bytes.Equal(chains[t.base.seq], t.base.chain[:]):
		return 0, followError{fmt.Errorf("%w: the server no longer has record %d, or has another one", ErrForked, t.base.seq)}
	case chains[t.base.seq+1] == nil:
		return fateNothing, nil
	case len(t.items) > 0 && bytes.Equal(chains[t.end.seq], t.end.chain[:]):
		return fateThere, nil
	}
	return fateOther, nil
}

// install hands a durable group to the engine, in its order.
func (l *serverLog) install(t *turn) {
	l.mu.Lock()
	for i := range t.items {
		l.grown.Add(int64(len(t.items[i].body)))
		if it := &t.items[i]; it.entry.Commit != nil {
			l.commits[it.end.seq] = it.end.chain
		}
	}
	l.mu.Unlock()
	var own []engine.Entry
	deliver := func() {
		if len(own) > 0 {
			l.s.eng.Durable(own)
			own = nil
		}
	}
	for i := range t.items {
		it := &t.items[i]
		if it.entry != (engine.Entry{}) {
			own = append(own, it.entry)
			continue
		}
		deliver()
		if err := l.s.eng.Follow(it.kind, it.end.seq, it.body); err != nil {
			_ = l.s.fatal(followError{err})
			break
		}
	}
	deliver()
	l.moved(t.end)
	for i := range t.items {
		if f := t.items[i].leaf; f != nil {
			l.settled(f)
		}
	}
	l.tidy()
	if t.group != nil {
		t.group.durable = true
	}
	l.settleGroup(t)
	l.s.notify()
}

// lose takes a group back of which nothing happened. Its leaves go into a later group.
func (l *serverLog) lose(t *turn) {
	var commits []engine.Entry
	for i := range t.items {
		if it := &t.items[i]; it.entry.Commit != nil {
			commits = append(commits, it.entry)
		}
	}
	l.unplace(t)
	l.s.eng.Lost(commits)
	l.settleGroup(t)
}

// abandon tells those who wait for a group that nobody will know here whether it is on the server.
func (l *serverLog) abandon(t *turn, why error) {
	if t.group != nil {
		t.group.err = fmt.Errorf("%w: %w; open the database again and repeat with the same id", store.ErrOutcomeUnknown, why)
	}
	l.settleGroup(t)
}

// settleGroup wakes those who wait for a group.
func (l *serverLog) settleGroup(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.group == nil {
		return
	}
	close(t.group.done)
	if l.group == t.group {
		l.group = nil
	}
}
