//go:build !linux

package bench

import (
	"os"
	"time"
)

func datasync(f *os.File) error { return f.Sync() }

func exactCPU() time.Duration { return cpuTime() }
