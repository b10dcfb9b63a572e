package filestore_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// smallDisk mounts one of its own; resize changes how many bytes it has.
func smallDisk(t *testing.T) (dir string, resize func(bytes int64)) {
	t.Helper()
	dir = t.TempDir()
	mount := func(flags uintptr, bytes int64) error {
		return syscall.Mount("tmpfs", dir, "tmpfs", flags, fmt.Sprint("size=", bytes))
	}
	if err := mount(0, 64<<20); err != nil {
		t.Skipf("no small disk to be had: mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir, func(bytes int64) { require.NoError(t, mount(syscall.MS_REMOUNT, bytes)) }
}
