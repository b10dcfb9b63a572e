package wal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/wal"
)

// A log that was opened after a clean Close and then torn is not clean; nor is it when whoever found that out was killed
// before he wrote anything.
func TestUncleanStaysUnclean(t *testing.T) {
	s := makeSample(t, 4<<10, true)
	s.fs.WriteFile(s.path, append(append([]byte{}, s.data...), "torn"...))
	for range 3 {
		l, rec, _, err := open(wal.Options{FS: s.fs, Salt: salts(), GroupWait: -1})
		require.NoError(t, err)
		require.False(t, rec.Clean)
		require.NoError(t, l.Abandon())
	}
	l, _, _, err := open(wal.Options{FS: s.fs, Salt: salts(), GroupWait: -1})
	require.NoError(t, err)
	require.NoError(t, l.Close(wal.KindMark, nil))
	l, rec, _, err := open(wal.Options{FS: s.fs, Salt: salts(), GroupWait: -1})
	require.NoError(t, err)
	require.True(t, rec.Clean)
	require.NoError(t, l.Close(wal.KindMark, nil))
}
