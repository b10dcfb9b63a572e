package filestore

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLockOnFullDisk: a lock whose holder cannot be written down, for the disk is full, is held all the same.
// /dev/full refuses every write with ENOSPC.
func TestLockOnFullDisk(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there is no /dev/full:", err)
	}
	defer f.Close()
	_, err = f.WriteAt([]byte("x"), 0)
	require.True(t, noSpace(err), "the control: %v", err)
	require.NoError(t, (&processLock{f: f}).name([]byte("{}")))
	closed := must(os.CreateTemp(t.TempDir(), "lock"))(t)
	require.NoError(t, closed.Close())
	require.Error(t, (&processLock{f: closed}).name([]byte("{}")), "the control: another error is told")
}
