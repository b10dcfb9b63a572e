package dbtest

import (
	"fmt"
	"os"
	"testing"
)

// NoLeaks runs the tests of a package and ends the process; TestMain calls it last. Tests that leave a goroutine fail: find is
// goleak.Find. This package does not import it, or every module of the repository that uses this one would need it.
func NoLeaks(m *testing.M, find func() error) {
	code := m.Run()
	if err := Leaks(find); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Leaks says which goroutines are left. Those that end have a minute for it: one look of goleak lasts half a second, which is not
// enough on a busy machine.
func Leaks(find func() error) (err error) {
	for range 120 {
		if err = find(); err == nil {
			break
		}
	}
	return err
}
