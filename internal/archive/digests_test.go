package archive

import (
	"bytes"
	"context"
	"testing"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/stretchr/testify/require"
)

// RowDigest, StateEntry and EachState agree with the decoded leaf on every digest, of leaves that are archived and of
// leaves that are not.
func TestRowDigests(t *testing.T) {
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
	entries := map[uint64][]byte{}
	require.NoError(t, l.EachState(context.Background(), leaves, func(i uint64, state []byte) { entries[i] = bytes.Clone(state) }))
	require.ErrorIs(t, l.EachState(context.Background(), leaves+1, nil), manifest.ErrNoLeaf)
	with := 0
	for i := range uint64(leaves) {
		want := 0
		if i%3 == 2 {
			want = int(i % 5)
		}
		states := 0
		if i%3 == 2 {
			states = int(i % 4)
		}
		require.Len(t, entries[i], states*StateSize)
		for k := range states {
			d := must(l.StateEntry(i, k))(t)
			require.Equal(t, bytes.Repeat([]byte{byte(i), byte(k), 7}, StateSize/3), d[:])
			require.Equal(t, d[:], entries[i][k*StateSize:(k+1)*StateSize])
		}
		require.ErrorIs(t, errOf(l.StateEntry(i, states)), manifest.ErrNoLeaf)
		leaf := must(l.Leaf(i))(t)
		require.Len(t, leaf.Rows, want)
		require.Len(t, leaf.State, states)
		for k := range want {
			d := must(l.RowDigest(i, k))(t)
			require.Equal(t, []byte(leaf.Rows[k]), d[:])
			with++
		}
		require.ErrorIs(t, errOf(l.RowDigest(i, want)), manifest.ErrNoLeaf)
	}
	require.Greater(t, with, 1000)
}
