package loop

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Retryable reports whether a request that got this HTTP status is worth another try: the server was late, busy or down.
// This package does not import net/http, which programs that ask no server need not link.
func Retryable(status int) bool {
	switch status {
	case 408, 429, 500, 502, 503, 504:
		return true
	}
	return false
}

// httpTimes are the forms of a date in a header, the current one first.
var httpTimes = []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC}

// RetryAfter reads the value of a Retry-After header: seconds, or a date, which is compared with now. It returns false if
// the value is neither.
func RetryAfter(v string, now time.Time) (time.Duration, bool) {
	if s, err := strconv.ParseInt(v, 10, 64); err == nil && s >= 0 {
		return time.Duration(min(s, math.MaxInt64/int64(time.Second))) * time.Second, true
	}
	for _, form := range httpTimes {
		if t, err := time.Parse(form, v); err == nil {
			return max(t.Sub(now), 0), true
		}
	}
	return 0, false
}

// Backoff returns the wait before repetition n, counted from 1: base, doubled each time, at most limit.
func Backoff(base, limit time.Duration, n int) time.Duration {
	d := min(base, limit)
	for ; n > 1 && d < limit; n-- {
		d = min(2*d, limit)
	}
	return d
}

// Wait waits for d. It returns false at once if the context would end before: an answer now is worth more to the caller than
// a missed deadline. It returns false too if the context ends during the wait.
func Wait(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Call runs call and returns its result, or the error of the context if that ends first. So a source, a summarizer or an
// embedder that ignores its context cannot hold up a read. A late result is dropped; the goroutine ends when call does. A
// panic of call is returned as an error.
func Call[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	ch := make(chan answer, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				ch <- answer{err: fmt.Errorf("panicked: %v", r)}
			}
		}()
		v, err := call()
		ch <- answer{v, err}
	}()
	select {
	case a := <-ch:
		return a.v, a.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}
