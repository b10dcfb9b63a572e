package wal

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Sync returns when record seq, and every record before it, is durable.
//
// One caller takes the lead, writes the records of all, syncs once, reports to OnDurable and wakes the
// others. Callers that arrive during the sync form the next round, and one of
// them leads it. The log has no goroutine of its own, so a lone writer pays a write and a sync and
// no goroutine switch. The lead is a token in a channel: an idle log has it, and a waiter of the
// next round takes it as soon as it is put back, which is after the sync. So OnDurable hears of one
// round while the disk works for the next.
//
// heard may be nil. A caller that may learn from OnDurable that the record is durable closes it, and Sync
// returns nil. The end of ctx ends the waiting, never a write that has started: after its error the
// record may still become durable. Errors: ctx's, ErrPoisoned, ErrClosed.
func (l *Log) Sync(ctx context.Context, seq uint64, heard <-chan struct{}) error {
	var joined *round
	for {
		l.mu.Lock()
		if err, done := l.answer(ctx, seq); done {
			l.mu.Unlock()
			return err
		}
		r, lead := l.next, l.lead
		switch { // a round that is running has its leader
		case seq <= l.covered:
			r, lead = l.before, nil
		case seq <= l.target:
			r, lead = l.cur, nil
		}
		if r != joined {
			r.members.Add(1)
			joined = r
		}
		select {
		case <-lead:
			l.mu.Unlock()
			l.round()
			continue
		default:
		}
		done := r.wait()
		l.mu.Unlock()
		select {
		case <-heard:
			return nil
		case <-done:
		case <-lead:
			l.round()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answer returns what a wait for a record would, if that is known without waiting. mu is held.
func (l *Log) answer(ctx context.Context, seq uint64) (error, bool) {
	switch {
	case seq <= l.durable:
		return nil, true
	case l.err != nil && seq > l.synced: // a synced record is about to be reported, whatever failed after it
		return l.err, true
	case seq > l.last:
		return fmt.Errorf("wal: sync: expected a record up to %d, got %d: it was never enqueued", l.last, seq), true
	}
	err := ctx.Err() // read once: if it ended between two reads, the result would be (nil, true), durable
	return err, err != nil
}

// round leads one round and puts the lead back.
//
//	gather    wait a moment for others (lead)
//	flush     fix what the round covers, write it (lead, wmu)
//	sync      the disk (lead alone: Write goes on into the same file)
//	endRound  outcome, hand over the lead, report, wake (report)
//	rotate    if the segment is full (lead, wmu); then the lead goes back only after it
func (l *Log) round() {
	if l.idle() {
		l.giveLead()
		return
	}
	l.gather()
	l.wmu.Lock()
	err := l.flush(true)
	a, size := l.act, l.act.alloc
	l.wmu.Unlock()
	if err != nil {
		l.giveLead()
		return // poisoned; all waiters were woken
	}
	err = a.syncTo(size, l.sync)
	if l.actEnd.Load() < l.opts.SegmentBytes {
		_ = l.endRound(err, l.passLead)
		return
	}
	defer l.giveLead()
	if l.endRound(err, nil) == nil {
		l.wmu.Lock()
		defer l.wmu.Unlock()
		_ = l.rotate() // without space the old segment keeps growing; any other error poisoned the log
	}
}

// idle reports whether there is nothing to sync: the caller's record was answered while it took the
// lead.
func (l *Log) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last == l.synced
}

// giveLead puts the token back. Only its holder calls it.
func (l *Log) giveLead() { l.lead <- struct{}{} }

// passLead returns the lead and lets a goroutine that waits for it begin before this one goes
// on. Otherwise that goroutine would be scheduled after all those that the report wakes, with the
// disk idle meanwhile: with two processors and eight writers for as long as half a sync.
func (l *Log) passLead() {
	l.giveLead()
	if len(l.lead) == 0 { // a waiter took it
		runtime.Gosched()
	}
}

// gather waits a moment for the goroutines that took part in the last round or waited behind it.
// They are likely to be on their way back, and one sync for all is cheaper than two for halves,
// which would also keep each other waiting. It yields and does not sleep: waking a processor takes
// longer than most of these waits. A lone writer never waits.
//
// Measured with eight writers on two processors and syncs of 135 µs: 40 µs is too short; from 70 to
// 150 µs the throughput is a fifth to a third higher; with 200 µs, or asleep on a timer, most of
// that is lost again.
func (l *Log) gather() {
	if l.expect <= 1 || l.opts.GroupWait < 0 {
		return
	}
	start := time.Now()
	for tries := 0; l.next.members.Load() < l.expect; tries++ {
		waited := time.Since(start)
		if waited >= l.opts.GroupWait || waited == 0 && tries >= gatherTries {
			return
		}
		runtime.Gosched()
	}
}

// gatherTries bounds gather where no clock does: the clock of a synctest bubble stands still while
// a goroutine runs. A running one has moved long before.
const gatherTries = 1 << 10

// syncHere ends the running round, with a sync if it covers anything. lead and wmu are held.
func (l *Log) syncHere() error {
	if l.target == l.synced {
		return l.endRound(nil, nil)
	}
	return l.endRound(l.act.syncTo(l.act.alloc, l.sync), nil)
}

// endRound ends the running round with the outcome of its sync. The lead is held. handOver, if not
// nil, returns the lead as soon as another round may begin. report is taken before the lead goes
// back, so the round after cannot report first. durable rises only after OnDurable has returned:
// whoever sees it may rely on what the owner did.
func (l *Log) endRound(err error, handOver func()) error {
	if handOver == nil {
		handOver = func() {}
	}
	r, target := l.cur, l.target // only the holder of the lead writes these two
	l.report.Lock()
	defer l.report.Unlock()
	if err = l.outcome(r, target, err); err != nil {
		handOver()
		return err
	}
	l.expect = r.members.Load() + l.next.members.Load()
	handOver()
	if target > l.durable && l.opts.OnDurable != nil {
		l.opts.OnDurable(target)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.durable = target
	r.wake()
	return nil
}

// outcome records how a round's sync ended.
func (l *Log) outcome(r *round, target uint64, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.synced = target
		return nil
	}
	err = l.poison(err)
	l.lost = false
	r.wake()
	return err
}

// quiesce waits until what is synced is reported; the lead is held.
func (l *Log) quiesce() {
	l.report.Lock()
	//lint:ignore SA2001 taking the lock is the waiting
	l.report.Unlock()
}

// poison makes err the answer to everything from now on. mu is held. The running round is left to
// its leader: its sync may still succeed. The first cause stays: later ones follow from it.
func (l *Log) poison(err error) error {
	if l.err == nil {
		l.err = fmt.Errorf("%w: %w", ErrPoisoned, err)
		l.lost = errors.Is(err, errNothingWritten)
	}
	l.next.wake()
	return l.err
}

// Rotate starts a new segment now, so that DropBefore can later remove the old one. Every record
// enqueued before is durable when it returns. A log whose active segment is empty is left as it is.
// The new segment may use what was preallocated in the old one, so Rotate works on a full disk.
// ErrFull: there is no space even so, and the old segment keeps growing. fs.ErrNotExist: somebody
// removed or renamed the active segment.
func (l *Log) Rotate() error {
	<-l.lead
	defer l.giveLead()
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return l.rotate()
}

// sealSpace bounds the bytes that a segment needs for its seal.
const sealSpace = 4 << 10

// rotate starts a new segment. lead and wmu are held. Recovery relies on the order: the new segment
// is durable (header, file and name) before the old one's last record and seal are; both are
// durable before the new one's first record.
//
//	step                     a crash after it leaves                   the next Open
//	old one shortened        the records as they were                  reads them; the header has the new length
//	new segment has a name   an empty segment behind an unsealed one   removes it, ends in the old one
//	last records, seal       a sealed segment and an empty one         writes the old one anew, without its seal
//	swap, first record       both in use                               reads on
//
// Nothing is buffered after the flush, so no write takes the space that shortening frees. ErrFull
// leaves the old segment in use: nothing was sealed.
func (l *Log) rotate() error {
	if err := l.flush(true); err != nil {
		return err
	}
	if l.act.end == segHead {
		return l.syncHere()
	}
	if err := l.present(); err != nil {
		return errors.Join(fmt.Errorf("wal: rotate: %w", err), l.syncHere())
	}
	if end := l.act.end + sealSpace; l.act.alloc > end {
		if err := l.act.shorten(end, l.sync); err != nil {
			return l.endRound(err, nil)
		}
	}
	next, err := l.create(&segment{gen: l.gen + 1, first: l.target + 1, prevSalt: l.act.salt, sealed: l.opts.Sealed}, needReserve)
	if noSpace(err) {
		if ferr := errors.Join(l.syncHere(), l.regrow()); ferr != nil {
			return ferr
		}
		return fmt.Errorf("%w: rotate: %w", ErrFull, err)
	}
	if err == nil {
		err = l.seal(next.first)
	}
	if err := l.endRound(err, nil); err != nil {
		if next != nil {
			next.file.Close()
		}
		return err
	}
	l.swap(next)
	return nil
}

// regrow preallocates again after a rotation that found no space. lead and wmu are held.
func (l *Log) regrow() error {
	err := l.act.ahead(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note()
	if err == nil || errors.Is(err, errNothingWritten) {
		return nil
	}
	return l.poison(err)
}

// needReserve refuses a new segment with less than half of the reserve behind its header: it could take
// no record. It gets more when the old segment is gone.
func needReserve(a *appender) error {
	if reserve, _ := a.spaceAt(a.end); a.alloc-a.end < reserve/2 {
		return fmt.Errorf("preallocate %s: %w", a.path, errNoSpace)
	}
	return nil
}

// seal ends the active segment and makes it durable. A seal has no number: it carries the number of the
// first record of its successor.
func (l *Log) seal(next uint64) error {
	b := appendFrame(nil, 0, flagSeal, next)
	finishFrame(b, l.act.key, l.synced)
	err := l.act.append(b)
	if err == nil {
		err = l.act.trim(0, l.sync)
	}
	return err
}

// swap makes the new segment the active one. lead and wmu are held.
func (l *Log) swap(next *appender) {
	old := l.act
	l.act = next
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep([]*segment{old.segment})
	l.gen, l.first = next.gen, next.first
	l.note()
	l.actEnd.Store(next.end)
	old.close() // synced, so an error could lose nothing
}

// present returns an error if the file that is being written no longer has its name: what is written
// to a removed file is lost with the process. wmu is held.
func (l *Log) present() error {
	if l.act == nil {
		return nil
	}
	_, err := l.fs.Stat(l.act.path)
	return err
}

// DropBefore removes whole segments, oldest first, whose records are all below seq, and returns how
// many it removed. It never removes the active segment. Each removal is durable before the next, so
// a crash leaves no hole. ErrPoisoned: a removal may not be durable. fs.ErrNotExist: somebody removed
// or renamed the active segment; nothing was removed.
func (l *Log) DropBefore(seq uint64) (int, error) {
	l.drop.Lock()
	defer l.drop.Unlock()
	l.wmu.Lock()
	err := l.present()
	l.wmu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("wal: drop: %w", err)
	}
	for n := 0; ; n++ {
		s, ok, err := l.oldest(seq)
		if err != nil || !ok {
			return n, err
		}
		if err := l.fs.Remove(s.path); err != nil {
			return n, fmt.Errorf("wal: drop: %w", err)
		}
		err = l.syncDir(l.dir) // before the next removal
		l.mu.Lock()
		l.sealed = l.sealed[1:]
		l.size -= s.size
		if err != nil {
			err = l.poison(err)
		}
		l.mu.Unlock()
		if err != nil {
			return n, err
		}
	}
}

// oldest returns the oldest segment if it is sealed and all its records are below seq.
func (l *Log) oldest(seq uint64) (span, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return span{}, false, l.err
	}
	if len(l.sealed) == 0 {
		return span{}, false, nil
	}
	next := l.first
	if len(l.sealed) > 1 {
		next = l.sealed[1].first
	}
	return l.sealed[0], next <= seq, nil
}

// Close makes everything enqueued durable, appends a final record flagged Close, makes that durable
// too, and closes. OnDurable hears of all but the final record. A poisoned log is closed without a
// final record, and Close returns the poison. The exception is a log that was poisoned because the
// disk was full before anything of the last group was written: that group is forgotten, and the log
// is closed cleanly in what was preallocated. A read-only log just closes. ErrClosed the second time.
func (l *Log) Close(kind Kind, body []byte) error {
	if err := l.checkRecord(kind, [][]byte{body}); err != nil {
		return err
	}
	<-l.lead
	defer l.giveLead()
	l.quiesce()
	l.wmu.Lock()
	defer l.wmu.Unlock()
	was, lost := l.shut()
	if l.act == nil || was == ErrClosed {
		return was
	}
	err := was
	if was == nil {
		if err = l.flush(true); err == nil {
			err = l.syncHere()
		}
	}
	if err == nil || lost {
		err = l.writeClose(kind, body, lost)
	}
	if cerr := l.act.close(); err == nil {
		err = cerr
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = ErrClosed
	l.next.wake()
	return err
}

// shut refuses new records from now on and returns the poison, if any.
func (l *Log) shut() (was error, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was = l.err
	if l.closing {
		was = ErrClosed
	}
	l.closing = true
	if was == errReadOnly {
		l.err, was = ErrClosed, nil
	}
	return was, l.lost
}

// writeClose writes the final record. Nothing that was enqueued is unwritten, or it is lost. A
// clean end saves the next Open a rewrite.
func (l *Log) writeClose(kind Kind, body []byte, lost bool) error {
	if lost { // the round before may not have been synced
		if err := l.sync(l.act.file); err != nil {
			return fmt.Errorf("wal: close: sync: %w", err)
		}
	}
	b := appendFrame(nil, kind, flagClose, l.written+1, body)
	finishFrame(b, l.act.key, l.written)
	err := l.act.append(b)
	if err == nil { // the reserve stays: the next Open may find the disk full
		reserve, _ := l.act.spaceAt(l.act.end)
		err = l.act.trim(reserve, l.sync)
	}
	if err != nil {
		return fmt.Errorf("wal: close: %w", err)
	}
	if !lost { // if lost, a caller may still wait for the forgotten record of this number
		l.mu.Lock()
		defer l.mu.Unlock()
		l.last, l.written, l.synced, l.durable = l.last+1, l.written+1, l.synced+1, l.durable+1
		l.actEnd.Store(l.act.end)
	}
	return nil
}

// Abandon closes the files without a final record, as if the process had been killed: for an owner
// that failed between Open and first use, and for one that must not write any more. Synced records
// stay. Waiters get ErrClosed.
func (l *Log) Abandon() error {
	<-l.lead
	defer l.giveLead()
	l.quiesce()
	l.wmu.Lock()
	defer l.wmu.Unlock()
	was, _ := l.shut()
	if l.act == nil || was == ErrClosed {
		return nil
	}
	err := l.act.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = ErrClosed
	l.next.wake()
	return err
}
