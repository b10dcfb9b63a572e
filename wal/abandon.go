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

// Present returns an error if the file that is being written no longer has its name: what is
// written to a removed file is lost with the process.
func (l *Log) Present() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if l.act == nil {
		return nil
	}
	_, err := l.fs.Stat(l.act.path)
	return err
}
