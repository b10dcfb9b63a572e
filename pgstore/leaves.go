package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// Audit leaves of reads must not queue for the turn: a search would take as long as a commit. So a leaf is left here and written to
// the spool (a killed process does not lose it); in the background it goes to the inbox, and a later turn, of this host or of any other,
// numbers it.
//
//	new       left; a turn of this host may take it as it is
//	writing   on its way to the inbox
//	written   in the inbox. A server that crashed may have lost it there; the next turn of this host sees that and takes it
//	unsure    the inbox may have it. Likewise
//	placed    in the turn that is open
//
// A reader who waits for the disk (store.Synced) waits for neither the turn nor the number: the server keeps a row of the inbox as
// it keeps a commit, so one insert that waits for the disk is enough. Readers who wait share it, as all writers to the inbox do.
// Before, such a reader asked for a turn: two trips, behind whichever host had it.
//
// Whose it was (host, ticket) stays with the record. So a leaf that got into the log and into the inbox is told from a new one,
// and a host finds its own among those that another host moved.

// leaf is a leaf of this host that is not durable yet. Its state is guarded by serverLog.mu.
type leaf struct {
	of     *engine.Leaf
	ticket int64
	last   int64 // ticket of the last leaf that was left with it
	state  leafState
	// inboxed: the server said that the inbox has it. synced: that it has it on its disk.
	inboxed, synced bool
	// wanted: somebody waits until it is on the disk.
	wanted bool
	in     *spoolFile    // nil: it is not in the spool
	done   chan struct{} // closed when it is durable and installed
}

type leafState uint8

const (
	leafNew leafState = iota
	leafWriting
	leafWritten
	leafUnsure
	leafPlaced
)

// ticketBit tells the ticket of a leaf from the number of a record, in what the engine takes for a record.
const ticketBit = 1 << 63

func ticketOf(seq uint64) (n int64, is bool) { return int64(seq &^ ticketBit), seq&ticketBit != 0 }

// Leave: see engine.Log.
func (l *serverLog) Leave(_ context.Context, leaves []*engine.Leaf) (seq uint64, err error) {
	if err := l.s.whyDead(); err != nil {
		return 0, err
	}
	for _, f := range leaves {
		if len(f.Body())+len(f.Question()) > maxRecord {
			return 0, engine.ErrLogTooLarge
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.ticket + int64(len(leaves))
	for _, f := range leaves {
		l.ticket++
		f.Seq = uint64(l.ticket) | ticketBit
		l.leaves = append(l.leaves, &leaf{of: f, ticket: l.ticket, last: last, done: make(chan struct{})})
		seq = f.Seq
	}
	return seq, nil
}

// ask has the worker take a turn for leaves.
func (l *serverLog) ask() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// settled takes a leaf that is durable out of those that are not.
func (l *serverLog) settled(f *leaf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, is := l.find(f.ticket)
	if !is {
		return
	}
	l.leaves = slices.Delete(l.leaves, i, i+1)
	if f.in != nil {
		f.in.left--
		f.in = nil
	}
	close(f.done)
}

// find is the place of a ticket in leaves. mu is held.
func (l *serverLog) find(ticket int64) (int, bool) {
	return slices.BinarySearchFunc(l.leaves, ticket, func(f *leaf, n int64) int { return cmp.Compare(f.ticket, n) })
}

// pending reports whether leaves of this host wait for a turn.
func (l *serverLog) pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.leaves) > 0
}

// sqlLeave is a transaction of its own. Whether its commit waits for the disk is said to the server in the one statement, by the
// condition, where BEGIN, SET LOCAL and COMMIT would be three more.
const sqlLeave = `INSERT INTO ctxpage_inbox (db, host, ticket, question, body) SELECT $1, $2, * FROM unnest($3::bigint[], $4::bytea[], $5::bytea[])
	WHERE set_config('synchronous_commit', $6, true) = $6`

// Write puts what was left into the spool, or, if that is not possible, into the inbox. See engine.Log.
func (l *serverLog) Write() error {
	err := l.spoolNew()
	if err == nil {
		return nil
	}
	if !errors.Is(err, errSpoolFull) {
		l.s.opts.Logger.Warn("pgstore: an audit leaf waits for the server: the local file for it cannot be written", "dir", l.spool.dir, "error", err)
	}
	rest, err := l.fill()
	if err != nil {
		return err
	}
	return l.viaTurn(rest)
}

// syncLeaves makes durable what was left together, up to a ticket: by the inbox, or by the turn that has it already.
func (l *serverLog) syncLeaves(ctx context.Context, ticket int64) error {
	if len(l.wanting(ticket)) > 0 {
		if _, err := l.fill(); err != nil {
			return err
		}
	}
	waits := l.wanting(ticket)
	if len(waits) > 0 {
		l.ask()
	}
	return l.await(ctx, waits, nil)
}

// wanting marks what was left together as wanted on the disk, and says when each leaf that is not there yet will be.
func (l *serverLog) wanting(ticket int64) (waits []<-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.leaves {
		if f.last == ticket && !f.synced {
			f.wanted = true
			waits = append(waits, f.done)
		}
	}
	return waits
}

// share is one write to the inbox, and what it became.
type share struct {
	done chan struct{}
	rest []*leaf // set before done is closed, as is err
	err  error
}

// fill writes the new leaves to the inbox, and returns those that only a turn can write. Callers that come while another one writes
// share the next write; if one of them waits for the disk, all do. Whose leaf was written by another caller returns at once: with a
// mutex, where it queued for its turn to find that out, it waited for writes that came later, and eight readers took ten times as long.
func (l *serverLog) fill() (rest []*leaf, err error) {
	l.mu.Lock()
	if l.shared == nil {
		l.shared = &share{done: make(chan struct{})}
	}
	s := l.shared
	l.mu.Unlock()
	select {
	case <-s.done:
		return s.rest, s.err
	case l.writing <- struct{}{}:
	}
	defer func() { <-l.writing }()
	select {
	case <-s.done:
	default:
		s.rest, s.err = l.fillShared()
		close(s.done)
	}
	return s.rest, s.err
}

// fillShared writes for all who share the next write. Only one caller at a time may.
func (l *serverLog) fillShared() (rest []*leaf, err error) {
	out, rest, sync := l.unwritten()
	if len(out) == 0 {
		return rest, nil
	}
	err = l.insert(out, sync)
	l.mu.Lock()
	for _, f := range out {
		f.inboxed, f.synced = err == nil, err == nil && sync
		switch {
		case f.state != leafWriting: // a turn found it in the inbox meanwhile
		case err == nil:
			f.state = leafWritten
		default:
			f.state = leafUnsure
		}
	}
	l.mu.Unlock()
	if err == nil {
		return rest, nil
	}
	l.s.opts.Logger.Warn("pgstore: audit leaves were not written; it tries again", "database", l.s.opts.Name, "error", err)
	if !passing(err) {
		return nil, fmt.Errorf("%w: write an audit leaf: %w", store.ErrOutcomeUnknown, err)
	}
	return append(rest, out...), nil
}

// unwritten marks the new leaves as being written, reports whether somebody waits until they are on the disk, and returns the leaves that
// the inbox may not have, which only a turn can write.
func (l *serverLog) unwritten() (out, rest []*leaf, sync bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared = nil // who comes now is not in it
	for _, f := range l.leaves {
		switch {
		case f.state == leafNew:
			f.state = leafWriting
			out = append(out, f)
			sync = sync || f.wanted
		case (f.state == leafPlaced || f.state == leafUnsure) && !f.inboxed:
			rest = append(rest, f)
		}
	}
	return out, rest, sync
}

// viaTurn waits until a turn made leaves durable that the inbox may not have.
func (l *serverLog) viaTurn(leaves []*leaf) error {
	if len(leaves) == 0 {
		return nil
	}
	t := time.NewTimer(l.s.opts.Patience)
	defer t.Stop()
	l.ask()
	for _, f := range leaves {
		select {
		case <-f.done:
		case <-l.s.dead:
			return l.s.whyDead()
		case <-t.C:
			return fmt.Errorf("%w: %w: an audit leaf was not written", store.ErrOutcomeUnknown, ErrUnavailable)
		}
	}
	return nil
}

// insert writes leaves to the inbox. Without sync a later commit makes them durable, because the server has one log.
func (l *serverLog) insert(leaves []*leaf, sync bool) error {
	if err := l.s.step("inbox"); err != nil {
		return err
	}
	n := len(leaves)
	tickets, questions, bodies := make([]int64, n), make([][]byte, n), make([][]byte, n)
	for i, f := range leaves {
		tickets[i], questions[i], bodies[i] = f.ticket, f.of.Question(), f.of.Body()
	}
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	setting := "off"
	if sync {
		setting = l.s.opts.SynchronousCommit
	}
	_, err := l.pool.Exec(ctx, sqlLeave, l.db, l.uuid(), tickets, questions, bodies, setting)
	if l.s.opts.credulous {
		return nil
	}
	return err
}

// written are the leaves that the inbox must have by now, or may have: if a turn finds them neither there nor in the log, it
// takes them itself. It is asked before the turn reads the inbox.
func (l *serverLog) written() map[int64]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[int64]bool{}
	for _, f := range l.leaves {
		if f.state == leafWritten || f.state == leafUnsure {
			out[f.ticket] = true
		}
	}
	return out
}

// sqlResend adds leaves of a process that ended, unless the server has them.
const sqlResend = `INSERT INTO ctxpage_inbox (db, host, ticket, question, body)
	SELECT $1, $2, l.* FROM unnest($3::bigint[], $4::bytea[], $5::bytea[]) AS l (ticket, question, body)
	WHERE NOT EXISTS (SELECT FROM ctxpage_records r WHERE r.db = $1 AND r.host = $2 AND r.ticket = l.ticket)
	ON CONFLICT DO NOTHING`

// resend puts leaves of a process that ended into the inbox.
func (l *serverLog) resend(ctx context.Context, s spooled) error {
	if len(s.tickets) == 0 {
		return nil
	}
	_, err := l.pool.Exec(ctx, sqlResend, l.db, pgtype.UUID{Bytes: s.host, Valid: true}, s.tickets, s.questions, s.bodies)
	return err
}

// fillInbox sends what is in the spool to the inbox, so that little is lost if this machine is.
func (l *serverLog) fillInbox(ctx context.Context) {
	tick := time.NewTicker(inboxEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		n := len(l.leaves)
		some := n > 0 && l.leaves[n-1].state == leafNew
		l.mu.Unlock()
		if some && l.s.whyDead() == nil {
			_, _ = l.fill() // what fails goes with the next turn
		}
	}
}

// inboxEvery is the interval at which leaves of reads are sent to the inbox.
const inboxEvery = 20 * time.Millisecond

// own is the leaf of a ticket of this host that is not durable yet; nil: there is none.
func (l *serverLog) own(n int64) *leaf {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i, is := l.find(n); is {
		return l.leaves[i]
	}
	return nil
}

// place takes the inbox into a turn, then the leaves of this host that are not there.
func (l *serverLog) place(t *turn, inbox pgx.Rows, written map[int64]bool) error {
	defer inbox.Close()
	n := 0
	for inbox.Next() {
		n++
		var id int64
		var from ticket
		var question, body []byte
		var known bool
		if err := inbox.Scan(&id, &from.host, &from.n, &question, &body, &known); err != nil {
			return err
		}
		var own *leaf
		if from.host == l.host {
			own = l.own(from.n)
			known = known || own == nil
			delete(written, from.n)
		}
		if !known && own == nil {
			leaf, later := l.isLeaf(t.next.Leaf, from, body)
			if later {
				continue
			}
			known = !leaf
		}
		t.inbox = append(t.inbox, id)
		if !known {
			t.addLeaf(own, from, question, body)
			l.mark(own)
		}
	}
	if err := inbox.Err(); err != nil {
		return err
	}
	if n < inboxRows && !l.s.opts.credulous { // else what is missing may be in the rest of it
		for _, f := range l.claim(func(f *leaf) bool { return written[f.ticket] }) {
			t.addLeaf(f, ticket{l.host, f.ticket}, f.of.Question(), f.of.Body())
		}
	}
	l.placeNew(t)
	return nil
}

// isLeaf reports whether a row of the inbox is an audit leaf. One that is not would end every host that follows, for good: the log is never
// changed. later: it is of a newer release, and stays for a host that can read it.
func (l *serverLog) isLeaf(index uint64, from ticket, body []byte) (is, later bool) {
	_, err := archive.Decode(index, body)
	if later = errors.Is(err, store.ErrNewerFormat); err != nil && !later {
		l.s.opts.Logger.Error("pgstore: a row of the inbox is no audit leaf; it is removed", "database", l.s.opts.Name, "host", fmt.Sprintf("%x", from.host), "ticket", from.n, "error", err)
	}
	return err == nil, later
}

// placeNew takes leaves of this host into its turn that were not written to the inbox.
func (l *serverLog) placeNew(t *turn) {
	for _, f := range l.claim(func(f *leaf) bool { return f.state == leafNew }) {
		t.addLeaf(f, ticket{l.host, f.ticket}, f.of.Question(), f.of.Body())
	}
}

// mark notes that the turn has a leaf.
func (l *serverLog) mark(f *leaf) {
	if f == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.state = leafPlaced
}

// unplace takes the leaves of a turn that is given up out of it: a later turn looks for them in the inbox and in the log, and takes
// those that are in neither.
func (l *serverLog) unplace(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range t.items {
		if f := t.items[i].leaf; f != nil && f.state == leafPlaced {
			f.state = leafUnsure
		}
	}
}

// claim marks the leaves that which selects, and returns them.
func (l *serverLog) claim(which func(*leaf) bool) (out []*leaf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.leaves {
		if f.state != leafPlaced && f.state != leafWriting && which(f) {
			f.state = leafPlaced
			out = append(out, f)
		}
	}
	return out
}

// arrived installs a leaf of this host that another host moved into the log.
func (l *serverLog) arrived(n int64, body []byte) (is bool, err error) {
	f := l.own(n)
	if f == nil {
		return false, nil
	}
	index, _, _, err := format.DecodeLeaf(body)
	if err != nil {
		return true, err
	}
	f.of.Index = index
	l.s.eng.Durable([]engine.Entry{{Leaf: f.of}})
	l.settled(f)
	return true, nil
}
