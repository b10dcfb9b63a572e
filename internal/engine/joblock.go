package engine

import (
	"context"
	"sync"
)

// JobLock lets one long job run at a time. A waiting job can give up when its context ends, which a
// sync.Mutex does not allow: the jobs before it may take minutes. The zero value is not locked.
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

// Take waits like Lock, but gives up with the error of ctx when ctx ends. A free lock is taken even
// if ctx has ended: the job itself will notice.
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
