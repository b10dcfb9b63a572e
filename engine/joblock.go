package engine

import (
	"context"
	"sync"
)

// JobLock lets one long job run at a time. A job that waits leaves when its context ends: those
// before it may take minutes, and a sync.Mutex would keep it until then. The zero value is not
// locked.
type JobLock struct {
	once sync.Once
	held chan struct{}
}

// place makes the channel at first use, so that the zero value works. A token in it is the lock.
func (l *JobLock) place() chan struct{} {
	l.once.Do(func() { l.held = make(chan struct{}, 1) })
	return l.held
}

// Lock waits for its turn, however long that is.
func (l *JobLock) Lock() { l.place() <- struct{}{} }

// Unlock lets the next one begin.
func (l *JobLock) Unlock() { <-l.place() }

// Take is Lock for a job that somebody waits for. It fails with the error of ctx, and then holds
// nothing. A lock that is free is taken whatever ctx says: the job itself notices.
func (l *JobLock) Take(ctx context.Context) error {
	select {
	case l.place() <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.place() <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
