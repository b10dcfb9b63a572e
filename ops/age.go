package ops

import (
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// Age is the greatest age of something, with the precision of a time.Duration. Its text form is "30d", "2w", "36h" or
// "forever". The zero value means not set.
type Age time.Duration

// Forever means that there is no limit.
const Forever Age = -1

// Day is 24 hours.
const Day = Age(24 * time.Hour)

// set reports whether a value was given.
func (a Age) set() bool { return a != 0 }

// String is the text of an age, "" for one that is not set.
func (a Age) String() string {
	switch {
	case a == 0:
		return ""
	case a < 0:
		return "forever"
	case a%Day == 0:
		return strconv.FormatInt(int64(a/Day), 10) + "d"
	}
	return time.Duration(a).String()
}

// MarshalText is String.
func (a Age) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is ParseAge.
func (a *Age) UnmarshalText(b []byte) (err error) {
	*a, err = ParseAge(string(b))
	return err
}

// ParseAge parses what String writes, and weeks. An age of zero or below is an error: to remove something at once,
// delete or erase it.
func ParseAge(s string) (Age, error) {
	bad := store.Invalid("age", strconv.Quote(s), "forever, or a duration above zero such as 36h, 30d or 8w")
	switch s {
	case "":
		return 0, nil
	case "forever":
		return Forever, nil
	}
	for unit, each := range map[string]Age{"d": Day, "w": 7 * Day} {
		if digits, ok := strings.CutSuffix(s, unit); ok {
			n, err := strconv.ParseInt(digits, 10, 32)
			if err != nil || n <= 0 || n > int64(maxAge/each) {
				return 0, bad
			}
			return Age(n) * each, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, bad
	}
	return Age(d), nil
}

// maxAge is about what a duration can hold: 292 years.
const maxAge = Age(1<<63 - 1)
