//go:build !linux

package filestore_test

import "testing"

// smallDisk skips the test.
func smallDisk(t *testing.T) (string, func(int64)) {
	t.Skip("no small disk to be had: only Linux mounts a tmpfs")
	return "", nil
}
