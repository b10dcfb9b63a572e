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
	st := must(Open(Options{Path: path}))(t)
	first := must(st.Info(context.Background()))(t)
	require.Len(t, first.ID, 26)
	require.Len(t, first.Secret, 32)
	require.NoError(t, st.Close())
	st = must(Open(Options{Path: path, ReadOnly: true}))(t)
	defer st.Close()
	require.Equal(t, first, must(st.Info(context.Background()))(t))
}
