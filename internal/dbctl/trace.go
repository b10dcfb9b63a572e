package dbctl

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// tracesNamed limits the candidates that are named for an ambiguous prefix.
const tracesNamed = 8

// fullTrace completes the beginning of a trace, if one trace alone begins so. What is no beginning of a trace is given
// back as it is: who asks for it says that there is none.
func fullTrace(ctx context.Context, l store.Audit, prefix string) (string, error) {
	prefix = strings.TrimSuffix(prefix, "…") // as a table shortens it
	upper := strings.ToUpper(prefix)
	if prefix == "" || len(upper) >= ulid.EncodedSize || strings.Trim(upper, ulid.Encoding) != "" {
		return prefix, nil
	}
	var found []string
	seen := map[string]bool{}
	err := store.EachRecord(ctx, l, 0, math.MaxUint64, true, func(r *manifest.Record) error {
		if strings.HasPrefix(r.Trace, upper) && !seen[r.Trace] {
			seen[r.Trace] = true
			if len(found) < tracesNamed {
				found = append(found, fmt.Sprintf("%s (%s in %s, %s)", r.Trace, r.Type, or(r.Scope, "-"), when(time.UnixMicro(r.Time))))
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case len(seen) == 0:
		return prefix, nil
	case len(seen) > 1:
		more := ""
		if n := len(seen) - len(found); n > 0 {
			more = fmt.Sprintf("\n  and %d more", n)
		}
		return "", usage("trace %q begins %d traces, expected more of it:\n  %s%s", prefix, len(seen), strings.Join(found, "\n  "), more)
	}
	for t := range seen {
		upper = t
	}
	return upper, nil
}
