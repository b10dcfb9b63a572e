package filestore

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A database keeps its id and its secret: fences and digests of what was shown before are made from them.
func TestInfoStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	st, err := Open(Options{Path: path})
	require.NoError(t, err)
	first, err := st.Info(context.Background())
	require.NoError(t, err)
	require.Len(t, first.ID, 26)
	require.Len(t, first.Secret, 32)
	require.NoError(t, st.Close())
	st, err = Open(Options{Path: path, ReadOnly: true})
	require.NoError(t, err)
	defer st.Close()
	again, err := st.Info(context.Background())
	require.NoError(t, err)
	require.Equal(t, first, again)
}
