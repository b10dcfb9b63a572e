package codec

import "time"

// Times are kept in microseconds; the zero time is 0.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if us := t.UnixMicro(); us != 0 {
		return us
	}
	return 1 // the epoch itself is a time like any other
}

// FromMicros is the inverse of Micros, in UTC; 0 is the zero time.
func FromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
