package dbtest

import (
	"syscall"
	"time"
)

func cpuTime() (time.Duration, error) {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0, err
	}
	var u syscall.Rusage
	err = syscall.GetProcessTimes(self, &u.CreationTime, &u.ExitTime, &u.KernelTime, &u.UserTime)
	ticks := func(f syscall.Filetime) int64 { return int64(f.HighDateTime)<<32 | int64(f.LowDateTime) } // of 100 ns
	return 100 * time.Duration(ticks(u.KernelTime)+ticks(u.UserTime)), err
}
