package dbtest

import (
	"sync/atomic"
	"time"
)

// Clock is a clock that a test sets. Its methods are safe for concurrent use, because an open database reads its clock in
// the background too. The zero Clock shows 1970.
type Clock struct {
	ns atomic.Int64
}

// NewClock returns a clock that shows t.
func NewClock(t time.Time) *Clock {
	c := &Clock{}
	c.Set(t)
	return c
}

// Now returns the time that the clock shows, in UTC.
func (c *Clock) Now() time.Time { return time.Unix(0, c.ns.Load()).UTC() }

// Set makes the clock show t.
func (c *Clock) Set(t time.Time) { c.ns.Store(t.UnixNano()) }

// Add moves the clock by d and returns the new time.
func (c *Clock) Add(d time.Duration) time.Time { return time.Unix(0, c.ns.Add(int64(d))).UTC() }
