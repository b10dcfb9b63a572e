package archive

import (
	"bytes"
	"context"
	"testing"

	"github.com/ctxpage/ctxpage/internal/corrupt"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/stretchr/testify/require"
)

// A scan says of every leaf, archived or not, what RowDigest says of each of its digests, in any order; and a damaged leaf
// is told.
func TestScanRows(t *testing.T) {
	l, _ := openLog(t, newFS(t), Options{SegmentSize: 64 << 10})
	const leaves = 2000
	for i := range uint64(leaves) {
		r := sampleRecord(i)
		if r.Type == manifest.TypeCommit {
			for k := range i % 4 {
				r.State = append(r.State, bytes.Repeat([]byte{byte(i), byte(k), 7}, StateSize/3))
			}
			for k := range i % 5 {
				r.Rows = append(r.Rows, bytes.Repeat([]byte{byte(i), byte(k)}, rowDigest/2))
			}
		}
		leaf, err := NewLeaf(r) // by the record, as a writer does
		require.NoError(t, err)
		require.NoError(t, l.AddNew(i, leaf))
		if i == leaves*3/4 {
			require.NoError(t, l.Archive(context.Background(), i))
		}
	}
	s, err := l.ScanRows()
	require.NoError(t, err)
	require.EqualValues(t, leaves, s.Size())
	with := 0
	for n := range uint64(leaves) {
		i := n
		if n%7 == 0 {
			i = n * 1237 % leaves
		}
		got, err := s.Digests(i)
		require.NoError(t, err)
		want := 0
		if i%3 == 2 {
			want = int(i % 5)
		}
		require.Len(t, got.Rows, want*rowDigest)
		states := 0
		if i%3 == 2 {
			states = int(i % 4)
		}
		require.Len(t, got.State, states*StateSize)
		for k := range states {
			d, err := l.StateEntry(i, k)
			require.NoError(t, err)
			require.Equal(t, bytes.Repeat([]byte{byte(i), byte(k), 7}, StateSize/3), d[:])
			require.Equal(t, d[:], got.State[k*StateSize:(k+1)*StateSize])
		}
		_, err = l.StateEntry(i, states)
		require.ErrorIs(t, err, manifest.ErrNoLeaf)
		leaf, err := l.Leaf(i)
		require.NoError(t, err)
		require.Len(t, leaf.Rows, want)
		require.Len(t, leaf.State, states)
		for k := range want {
			d, err := l.RowDigest(i, k)
			require.NoError(t, err)
			require.Equal(t, d[:], got.Rows[k*rowDigest:(k+1)*rowDigest])
			with++
		}
		_, err = l.RowDigest(i, want)
		require.ErrorIs(t, err, manifest.ErrNoLeaf)
	}
	require.Greater(t, with, 1000)
	_, err = s.Digests(leaves)
	require.ErrorIs(t, err, manifest.ErrNoLeaf)
	_, err = digestsAt([]byte{1, 2, 3, 0, 0, 1, 0}, 1)
	var damaged *corrupt.Error
	require.ErrorAs(t, err, &damaged)
}
