package store

import (
	"fmt"
	"io"
	"time"

	"github.com/oklog/ulid/v2"
)

// ReservedPrefix begins the ids of pages that the database writes itself. Callers cannot put, delete or supersede them.
const ReservedPrefix = "ctxpage:"

// CheckClock refuses a time that cannot be stored or shown: rows hold the zero time for "never",
// and dates in JSON and in head lines have four digits. Code that takes a time from Options.Clock
// to store it calls CheckClock, or NewID, which does.
func CheckClock(now time.Time) error {
	if y, utc := now.Year(), now.UTC().Year(); now.IsZero() || min(y, utc) < 1 || max(y, utc) > 9999 {
		return Invalid("Options.Clock", fmt.Sprintf("a time in the year %d", y), "a time from the year 1, which is not the zero time, to the year 9999")
	}
	return nil
}

// NewID makes an id that sorts by time. The caller passes the randomness, so that a test can repeat
// it. It fails if now is out of range (CheckClock) or rand fails.
func NewID(now time.Time, rand io.Reader) (ulid.ULID, error) {
	if err := CheckClock(now); err != nil {
		return ulid.ULID{}, err
	}
	ms := now.UnixMilli()
	if ms < 0 {
		ms = 0
	}
	id, err := ulid.New(uint64(ms), rand)
	if err != nil {
		return id, fmt.Errorf("ctxpage: id: %w", err)
	}
	return id, nil
}
