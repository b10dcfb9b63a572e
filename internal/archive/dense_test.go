package archive

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/stretchr/testify/require"
)

// turnLeaf is the leaf of a commit of so many pages, as a host makes them.
func turnLeaf(r *rand.ChaCha8, i, pages int) *manifest.Record {
	random := func(n int) manifest.Digest { b := make([]byte, n); r.Read(b); return b }
	id := fmt.Sprintf("01J%023d", i)
	leaf := &manifest.Record{
		Type: manifest.TypeCommit, Trace: id, Time: 1_790_000_000_000_000 + int64(i)*1000, Scope: "acme/bench", Actor: "acme/bench", LSN: uint64(i + 1), Session: "chat-3",
		Batch: id, Status: "applied", Reason: "vouched by the host", Action: "append", State: []manifest.Digest{random(StateSize), random(StateSize)},
	}
	for k := range pages {
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: uint64(i*pages + k + 1), Ref: fmt.Sprintf("acme/bench:block-chat-3-%d#1@1", i*pages+k), Version: 1, Digest: random(32)})
		leaf.Rows = append(leaf.Rows, random(32))
	}
	return leaf
}

// Leaves take at most three quarters of their bytes; every digest is read where it was, the
// bodies are those that were added, and damage anywhere in a leaf is found. The control is the size of the bodies.
func TestDenseLeaves(t *testing.T) {
	for _, pages := range []int{1, 500} {
		f := newFS(t)
		l, _ := openLog(t, f, Options{})
		r := rand.NewChaCha8([32]byte{1})
		var bodies [][]byte
		var leaves []*manifest.Record
		for i := range 4 {
			leaf := turnLeaf(r, i, pages)
			b := must(Encode(leaf))(t)
			require.NoError(t, l.Add(uint64(i), b))
			bodies, leaves = append(bodies, b), append(leaves, leaf)
		}
		require.NoError(t, l.Archive(ctx, 4))
		plain := 0
		for i, b := range bodies {
			plain += len(b) + frameSize
			got := must(l.Body(uint64(i)))(t)
			require.Equal(t, b, got)
			for _, k := range []int{0, pages / 2, pages - 1} {
				d := must(l.RowDigest(uint64(i), k))(t)
				require.Equal(t, leaves[i].Rows[k], manifest.Digest(d[:]))
			}
			for k := range leaves[i].State {
				d := must(l.StateEntry(uint64(i), k))(t)
				require.Equal(t, leaves[i].State[k], manifest.Digest(d[:]))
			}
		}
		must(l.Verify(ctx, nil, nil))(t)
		seg := files(t, f)[segmentName(0, 0)]
		require.NoError(t, l.Close())

		index := files(t, f)[indexName]
		first := must(parseRow(index[rowOffset(0):rowOffset(1)], 0))(t)
		dense := len(seg) - int(first.off) // without the header of the file
		t.Logf("%d pages: %d bytes a leaf for %d", pages, dense/4, plain/4)
		require.LessOrEqual(t, float64(dense), .75*float64(plain))
		at := must(parseRow(index[rowOffset(2):rowOffset(3)], 2))(t)
		require.True(t, at.dense)
		for _, off := range []int64{0, int64(at.size) / 3, int64(at.size) - 1} {
			damagedAt(t, f, seg, at, off, 2)
		}
		f.WriteFile(filepath.Join(testDir, segmentName(0, 0)), seg)
	}
}

// A dense form that its sums cover and that is malformed is damage, not a panic and not another body.
func TestDenseForged(t *testing.T) {
	a := &archive{}
	body := []byte{200, 3, 2, 1, 0}
	_, err := a.checkFrame("leaves", appendFrame(nil, 7, body), 7, row{dense: true, size: uint32(len(body))})
	damaged := &codec.CorruptError{}
	require.ErrorAs(t, err, &damaged)
	require.ErrorIs(t, err, codec.ErrMalformed)
	got := must(a.checkFrame("leaves", appendFrame(nil, 7, body), 7, row{size: uint32(len(body))}))(t)
	require.Equal(t, body, got, "the control: as it is")
}

// A commit of one page is stored in its brief form, whatever of its fields differ, and another one is not. Bodies, digests and
// entries are those that were added; damage anywhere is found.
func TestBriefLeaves(t *testing.T) {
	f := newFS(t)
	l, _ := openLog(t, f, Options{})
	r := rand.NewChaCha8([32]byte{1})
	change := []struct {
		brief bool
		fn    func(*manifest.Record)
	}{
		{true, func(l *manifest.Record) { l.State = l.State[:1] }},
		{true, func(l *manifest.Record) { l.State = nil }},
		{true, func(l *manifest.Record) {
			l.State, l.Session, l.Action, l.Writes[0].Ref = nil, "", "", "acme/bench:note-1#1@1"
		}},
		{true, func(l *manifest.Record) { l.State, l.Actor = l.State[:1], "agent" }},
		{true, func(l *manifest.Record) {
			l.State, l.Writes[0].Version, l.Writes[0].Ref = l.State[:1], 12, "acme/bench:block-chat-3-01#1@12"
		}},
		{false, func(*manifest.Record) {}}, // two state rows
		{false, func(l *manifest.Record) { l.State, l.Parent = nil, l.Trace }},
		{false, func(l *manifest.Record) { l.State, l.Batch = nil, testTrace(5) }},
		{false, func(l *manifest.Record) { l.State, l.Reason = nil, "another" }},
		{false, func(l *manifest.Record) { l.State, l.Writes[0].Touch = nil, true }},
		{false, func(l *manifest.Record) { l.State, l.Writes[0].Ref = nil, "acme/bench:x#2@1" }},
		{false, func(l *manifest.Record) { l.State, l.Trace, l.Batch = nil, "mine", "mine" }},
		{false, func(l *manifest.Record) { l.State, l.Scope, l.Actor = nil, "other", "other" }},
		{false, func(l *manifest.Record) { l.State, l.Session = nil, string(make([]byte, 200)) }},
	}
	var bodies [][]byte
	var leaves []*manifest.Record
	for i, c := range change {
		leaf := turnLeaf(r, i, 1)
		c.fn(leaf)
		b := must(Encode(leaf))(t)
		require.NoError(t, l.Add(uint64(i), b))
		bodies, leaves = append(bodies, b), append(leaves, leaf)
	}
	require.NoError(t, l.Archive(ctx, uint64(len(bodies))))
	same := func(l *Log) {
		for i, b := range bodies {
			require.Equal(t, b, must(l.Body(uint64(i)))(t))
			d := must(l.RowDigest(uint64(i), 0))(t)
			require.Equal(t, leaves[i].Rows[0], manifest.Digest(d[:]))
			require.Error(t, errOf(l.RowDigest(uint64(i), 1)))
			for k := range leaves[i].State {
				d := must(l.StateEntry(uint64(i), k))(t)
				require.Equal(t, leaves[i].State[k], manifest.Digest(d[:]))
			}
			require.Error(t, errOf(l.StateEntry(uint64(i), len(leaves[i].State))))
		}
		must(l.Verify(ctx, nil, nil))(t)
	}
	same(l)
	require.NoError(t, l.Close())
	all := files(t, f)
	index, seg := all[indexName], all[segmentName(0, 0)]
	for i, c := range change {
		at := must(parseRow(index[rowOffset(uint64(i)):rowOffset(uint64(i)+1)], uint64(i)))(t)
		require.Equal(t, c.brief, at.brief, "%d", i)
		if c.brief {
			require.Less(t, int(at.size), 155)
		}
		for off := int64(0); i == 0 && off < int64(at.size); off++ {
			damagedAt(t, f, seg, at, off, 0)
		}
	}
	f.WriteFile(filepath.Join(testDir, segmentName(0, 0)), seg)
	l, _ = openLog(t, f, Options{})
	same(l)
	require.NoError(t, l.Close())
}

// damagedAt flips a bit of what the first segment has of a leaf, whose row is at: it is found there, and leaf 1 is whole.
func damagedAt(t *testing.T, f *dbtest.FS, seg []byte, at row, off int64, leaf uint64) {
	t.Helper()
	hit := slices.Clone(seg)
	hit[int64(at.off)+frameSize+off] ^= 4
	f.WriteFile(filepath.Join(testDir, segmentName(0, 0)), hit)
	l, _ := openLog(t, f, Options{})
	damaged := &codec.CorruptError{}
	require.ErrorAs(t, errOf(l.Body(leaf)), &damaged)
	require.NoError(t, errOf(l.Body(1)), "the others are whole")
	require.NoError(t, l.Close())
}
