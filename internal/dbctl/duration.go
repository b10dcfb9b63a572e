package dbctl

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
)

// daysAndWeeks are units of retention that time.ParseDuration lacks. They come first: 1w2d12h.
var daysAndWeeks = regexp.MustCompile(`^([-+]?)(?:(\d+(?:\.\d+)?)w)?(?:(\d+(?:\.\d+)?)d)?(.*)$`)

// parseDuration reads a duration like 90m, 12h, 7d or 2w; a day is 24 hours.
func parseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("got %q, expected a duration like 90m, 12h, 7d or 2w", s)
	m := daysAndWeeks.FindStringSubmatch(s)
	if m == nil || s == "" {
		return 0, bad
	}
	if m[2] == "" && m[3] == "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, bad
		}
		return d, nil
	}
	var days float64
	for i, each := range map[int]float64{2: 7, 3: 1} {
		if m[i] == "" {
			continue
		}
		n, err := strconv.ParseFloat(m[i], 64)
		if err != nil {
			return 0, bad
		}
		days += n * each
	}
	var rest time.Duration
	if m[4] != "" {
		var err error
		if rest, err = time.ParseDuration(m[4]); err != nil || rest < 0 || m[4][0] == '+' {
			return 0, bad
		}
	}
	whole := days*float64(24*time.Hour) + float64(rest)
	if whole >= math.MaxInt64 {
		return 0, fmt.Errorf("got %q, expected a duration of less than 292 years", s)
	}
	d := time.Duration(math.Round(days*float64(24*time.Hour))) + rest
	if m[1] == "-" {
		d = -d
	}
	return d, nil
}

// durations lets every flag that takes a duration take days and weeks.
var durations = kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	t, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	s, isString := t.Value.(string)
	if !isString {
		return errors.New("expected a duration like 7d")
	}
	d, err := parseDuration(s)
	if err == nil {
		target.SetInt(int64(d))
	}
	return err
}))
