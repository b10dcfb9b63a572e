package format

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// The date in a header is that of its time, though the one that was asked for before is remembered.
func TestDateInHeader(t *testing.T) {
	for _, start := range []time.Time{{}, time.Unix(0, 0), time.Unix(-1, 0), time.Date(2026, 11, 26, 23, 59, 59, 999, time.FixedZone("", 3600)), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)} {
		for _, later := range []time.Duration{0, time.Second, -time.Second, 24*time.Hour - 1, -24 * time.Hour, 400 * 24 * time.Hour} {
			at := start.Add(later)
			require.Equal(t, at.UTC().Format("2 January 2006 ")+"Ann", IndexHeader(&store.Artefact{CurrentAsOf: at, Name: "Ann"}), at)
		}
	}
}
