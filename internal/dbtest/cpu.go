package dbtest

import (
	"syscall"
	"time"
)

// CPUTime is the processor time of this process so far, which others on the machine do not lengthen as they do that of the clock.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
