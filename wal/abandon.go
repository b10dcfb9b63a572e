package wal

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
