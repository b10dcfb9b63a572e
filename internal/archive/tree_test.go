package archive

import (
	"encoding/json"
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// TestFrontierIsTlog: roots are those of tlog, and so are the hashes, those that are stored and those between.
func TestFrontierIsTlog(t *testing.T) {
	var stored, kept []manifest.Hash
	reader := tlog.HashReaderFunc(func(at []int64) ([]manifest.Hash, error) {
		out := make([]manifest.Hash, len(at))
		for k, i := range at {
			out[k] = stored[i]
		}
		return out, nil
	})
	f := Frontier{}
	for i := range uint64(300) {
		root := must(tlog.TreeHash(int64(i), reader))(t)
		require.Equal(t, root, f.Root())
		again := must(frontierAt(i, reader))(t)
		require.Equal(t, f.Size, again.Size)
		require.ElementsMatch(t, f.Nodes, again.Nodes)
		body := sampleBody(t, i)
		want := must(tlog.StoredHashes(int64(i), body, reader))(t)
		kept = f.addTo(kept, LeafHash(body))
		stored = append(stored, want...)
		require.EqualValues(t, len(kept), hashCount(i+1))
	}
	require.Len(t, kept, 300+300/16+1)
	all := make([]int64, len(stored))
	for i := range all {
		all[i] = int64(i)
	}
	got := must((&view{hashes: kept}).ReadHashes(all))(t)
	require.Equal(t, stored, got)
	require.ErrorIs(t, errOf((&view{hashes: kept}).ReadHashes([]int64{tlog.StoredHashIndex(2, 75)})), manifest.ErrNoLeaf)
}

func TestMark(t *testing.T) {
	f, _ := builtArchive(t, 24)
	l, _ := openLog(t, f, Options{})
	fill(t, l, 29)
	damaged := &codec.CorruptError{}
	for n := range uint64(30) {
		b := must(l.Mark(n))(t)
		require.NoError(t, l.CheckMark(b))
		m := must(ParseMark(b))(t)
		require.Equal(t, b, m.Encode())
		for i := n; i < 29; i++ { // the tree goes on from a mark alone
			m.Frontier.Add(LeafHash(sampleBody(t, i)))
		}
		require.Equal(t, sampleRoot(t, 29), m.Frontier.Root())
		for k := range b {
			c := append([]byte{}, b...)
			c[k] ^= 0x10
			require.Error(t, l.CheckMark(c), "mark %d with byte %d changed", n, k)
			require.Error(t, l.CheckMark(b[:k]))
		}
	}
	b := must(l.Mark(29))(t)
	short, _ := openLog(t, f, Options{ReadOnly: true})
	require.ErrorAs(t, short.CheckMark(b), &damaged)
	require.Equal(t, codec.UnitLeaf, damaged.Unit)
	require.EqualValues(t, 24, damaged.Num)
	other := newFS(t)
	wrong, _ := openLog(t, other, Options{})
	for i := range uint64(29) {
		require.NoError(t, wrong.Add(i, sampleBody(t, i+1)))
	}
	require.ErrorAs(t, wrong.CheckMark(b), &damaged)
	b[0] = 2
	require.ErrorIs(t, l.CheckMark(b), codec.ErrNewerFormat)
	require.ErrorIs(t, errOf(l.Mark(30)), manifest.ErrNoLeaf)
}

func FuzzParseMark(f *testing.F) {
	f.Add(Mark{Root: new(Frontier).Root()}.Encode())
	one := Frontier{}
	one.Add(LeafHash([]byte("x")))
	f.Add(Mark{Root: one.Root(), Frontier: one}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := ParseMark(b); err == nil {
			require.Equal(t, b, m.Encode())
		}
	})
}

func TestHeadLine(t *testing.T) {
	h := manifest.Head{DB: "01J9ZK4D7QABCDEFGHJKMNPQRS", Size: 42, Root: new(Frontier).Root(), Time: 1_790_000_000_123_456}
	require.Equal(t, "ctxpage-head/1 01J9ZK4D7QABCDEFGHJKMNPQRS 42 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU= 2026-09-21T14:13:20.123456Z", h.String())
	rapid.Check(t, func(t *rapid.T) {
		h := manifest.Head{
			DB: rapid.StringMatching(`[0-9A-Z]{0,26}`).Draw(t, "db"), Size: rapid.Uint64Range(0, 1<<62).Draw(t, "size"),
			Time: rapid.Int64Range(0, 4_000_000_000_000_000).Draw(t, "time"),
		}
		copy(h.Root[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "root"))
		back := must(manifest.ParseHead(h.String() + "\n"))(t)
		require.Equal(t, h, back)
	})
	for _, line := range []string{"", "ctxpage-head/1", "ctxpage-head/0 a 1 x", "head/1 a 1 x", "ctxpage-head/1 a -1 " + h.Root.String(), "ctxpage-head/1 a 1 xyz", h.String() + " more", "ctxpage-head/1 a 1 " + h.Root.String() + " yesterday", "2 a 1 x"} {
		require.ErrorContains(t, errOf(manifest.ParseHead(line)), "expected", line)
	}
	require.ErrorIs(t, errOf(manifest.ParseHead("ctxpage-head/2 whatever comes")), codec.ErrNewerFormat)
}

// TestProofs: every leaf of every size up to 200, every pair of sizes, and for
// each something wrong that must not pass.
func TestProofs(t *testing.T) {
	const n = 200
	f, _ := builtArchive(t, 150)
	l, _ := openLog(t, f, Options{})
	fill(t, l, n)
	heads := make([]manifest.Head, n+1)
	bodies := make([][]byte, n)
	for k := range heads {
		heads[k] = must(l.Head(uint64(k), 0))(t)
		if k < n {
			bodies[k] = sampleBody(t, uint64(k))
		}
	}
	for size := uint64(0); size <= n; size++ {
		for i := uint64(0); i < size; i++ {
			p, err := l.ProveInclusion(i, size)
			if err != nil || p.Verify(bodies[i], heads[size]) != nil {
				t.Fatalf("leaf %d of %d: %v, %v", i, size, err, p.Verify(bodies[i], heads[size]))
			}
			wrongInclusion(t, p, bodies, heads)
		}
		for old := uint64(0); old <= size; old++ {
			p, err := l.ProveConsistency(old, size)
			if err != nil || p.Verify(heads[old], heads[size]) != nil {
				t.Fatalf("from %d to %d: %v, %v", old, size, err, p.Verify(heads[old], heads[size]))
			}
			wrongConsistency(t, p, heads)
		}
	}
	require.ErrorIs(t, errOf(l.ProveInclusion(5, 5)), manifest.ErrNoLeaf)
	require.ErrorIs(t, errOf(l.ProveInclusion(0, n+1)), manifest.ErrNoLeaf)
	require.Error(t, errOf(l.ProveConsistency(6, 5)))
	require.ErrorIs(t, errOf(l.ProveConsistency(0, n+1)), manifest.ErrNoLeaf)
}

func mustFail(t *testing.T, err error, what string, a, b uint64) {
	if err == nil {
		t.Helper()
		t.Fatalf("a proof with %s passed (%d, %d)", what, a, b)
	}
}

func wrongInclusion(t *testing.T, p manifest.Inclusion, bodies [][]byte, heads []manifest.Head) {
	body, head := bodies[p.Index], heads[p.Size]
	mustFail(t, p.Verify(bodies[(p.Index+1)%uint64(len(bodies))], head), "another leaf", p.Index, p.Size)
	mustFail(t, p.Verify(body, heads[(p.Size+1)%uint64(len(heads))]), "another head", p.Index, p.Size)
	moved := p
	moved.Index = (p.Index + 1) % p.Size
	if moved.Index != p.Index {
		mustFail(t, moved.Verify(body, head), "another index", p.Index, p.Size)
	}
	if k := len(p.Path); k > 0 {
		bent := p
		bent.Path = append([]manifest.Hash{}, p.Path...)
		bent.Path[int(p.Index)%k][5] ^= 1
		mustFail(t, bent.Verify(body, head), "a changed path", p.Index, p.Size)
		bent.Path = p.Path[:k-1]
		mustFail(t, bent.Verify(body, head), "a short path", p.Index, p.Size)
	}
	beyond := p
	beyond.Index = p.Size
	mustFail(t, beyond.Verify(body, head), "an index beyond", p.Index, p.Size)
}

func wrongConsistency(t *testing.T, p manifest.Consistency, heads []manifest.Head) {
	old, head := heads[p.Old], heads[p.Size]
	bad := old
	bad.Root[0] ^= 1
	mustFail(t, p.Verify(bad, head), "another old head", p.Old, p.Size)
	forged := p
	forged.OldRoot = bad.Root
	mustFail(t, forged.Verify(bad, head), "a forged old root", p.Old, p.Size)
	if p.Old > 0 && p.Old < p.Size {
		forged = p
		forged.Root[1] ^= 1
		head.Root[1] ^= 1
		mustFail(t, forged.Verify(old, head), "a forged root", p.Old, p.Size)
	}
}

func TestProofJSON(t *testing.T) {
	f, head := builtArchive(t, 24)
	l, _ := openLog(t, f, Options{})
	p := must(l.ProveInclusion(5, 24))(t)
	b := must(json.Marshal(p))(t)
	var back manifest.Inclusion
	require.NoError(t, json.Unmarshal(b, &back))
	require.NoError(t, back.Verify(sampleBody(t, 5), head))
	c := must(l.ProveConsistency(7, 24))(t)
	b = must(json.Marshal(c))(t)
	var cback manifest.Consistency
	require.NoError(t, json.Unmarshal(b, &cback))
	old := must(l.Head(7, 0))(t)
	require.NoError(t, cback.Verify(old, head))
}
