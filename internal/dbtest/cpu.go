package dbtest

import "time"

// CPUTime is the processor time of this process so far, which others on the machine do not lengthen as they do that of the clock.
func CPUTime() time.Duration {
	used, err := cpuTime()
	if err != nil {
		panic(err)
	}
	return used
}
