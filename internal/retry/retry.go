// Package retry holds the rules by which a request over HTTP is tried again, for the source and the embedding client
// alike: which answers are worth another try, how long to wait, and when waiting is pointless.
package retry

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Status reports whether the same request may be answered better a moment later.
func Status(code int) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// After reads a Retry-After header: seconds, or a date, which is compared with now. False when there is none, or one
// that is neither.
func After(h http.Header, now time.Time) (time.Duration, bool) {
	v := h.Get("Retry-After")
	if s, err := strconv.ParseInt(v, 10, 64); err == nil && s >= 0 {
		return time.Duration(min(s, math.MaxInt64/int64(time.Second))) * time.Second, true
	}
	t, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	return max(t.Sub(now), 0), true
}

// Backoff is the wait before try number n (from 1 for the first repetition): base, doubled each time, at most limit.
func Backoff(base, limit time.Duration, n int) time.Duration {
	d := min(base, limit)
	for ; n > 1 && d < limit; n-- {
		d = min(2*d, limit)
	}
	return d
}

// Wait waits. It returns false at once when the context would end before the wait does: an answer now is worth more to
// the caller than a deadline missed; and false when the context ends meanwhile.
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
