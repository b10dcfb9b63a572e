package dbtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A time in which nobody worked is taken out of what something took, as far as it lies within; the control has none.
func TestStallsAreTakenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := WatchStalls(t)
		begun := time.Now()
		time.Sleep(time.Second)
		require.Equal(t, time.Second, s.Since(begun), "the control")
	})
	synctest.Test(t, func(t *testing.T) {
		s := &Stalls{since: time.Now()}
		time.Sleep(time.Second)
		begun := time.Now()
		time.Sleep(time.Second)
		require.Zero(t, s.Since(begun), "one that lasts")
		s.note(time.Now())
		time.Sleep(nap)
		s.note(time.Now())
		require.Equal(t, nap, s.Since(begun), "one that is over")
		require.Equal(t, 2*nap, s.Since(begun.Add(-time.Second)))
		time.Sleep(3 * time.Second)
		require.Equal(t, 2*nap, s.Since(begun))
	})
}
