package dbtest

import (
	"runtime"
	"testing"
)

// NeedsPosix skips a test on Windows, which lacks what the test is about.
func NeedsPosix(t testing.TB, what string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has none of this: " + what)
	}
}
