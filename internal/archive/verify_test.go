package archive

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// forge makes an archive of other leaves the way this package would.
func forge(t testing.TB, bodies [][]byte) *dbtest.FS {
	t.Helper()
	f := newFS(t)
	l, _, err := Open(ctx, testDir, f, Options{DB: "db1", SegmentSize: 1500})
	require.NoError(t, err)
	for i, b := range bodies {
		require.NoError(t, l.Add(uint64(i), b))
	}
	require.NoError(t, l.Archive(ctx, uint64(len(bodies))))
	require.NoError(t, l.Close())
	return f
}

// verifyFiles opens what is there as dbctl would and verifies it.
func verifyFiles(t testing.TB, f wal.FS, head *manifest.Head) (manifest.Verification, error) {
	t.Helper()
	l, _, err := Open(ctx, testDir, f, Options{ReadOnly: true, DB: "db1"})
	if err != nil {
		return manifest.Verification{First: -1}, err
	}
	defer l.Close()
	return l.Verify(ctx, head, nil)
}

// mutateLeaves edits, deletes, moves, repeats or cuts off leaves.
func mutateLeaves(t testing.TB, rng *rand.Rand, bodies [][]byte) (string, [][]byte) {
	out := slices.Clone(bodies)
	i := rng.IntN(len(out))
	switch rng.IntN(5) {
	case 0:
		r := must(Decode(0, out[i]))(t)
		r.Actor += "x"
		out[i] = must(Encode(r))(t)
		return "edit", out
	case 1:
		return "delete", slices.Delete(out, i, i+1)
	case 2:
		j := (i + 1 + rng.IntN(len(out)-1)) % len(out)
		out[i], out[j] = out[j], out[i]
		return "reorder", out
	case 3:
		return "duplicate", slices.Insert(out, rng.IntN(len(out)), out[i])
	default:
		return "truncate", out[:i]
	}
}

// mutateBytes edits, takes out, moves, repeats or cuts off bytes of one file.
func mutateBytes(rng *rand.Rand, b []byte) (string, []byte) {
	out := slices.Clone(b)
	at := rng.IntN(len(out))
	unit := []int{1, rowSize, rng.IntN(100) + 1}[rng.IntN(3)]
	end := min(at+unit, len(out))
	switch rng.IntN(5) {
	case 0:
		out[at] ^= byte(1 + rng.IntN(255))
		return "edit", out
	case 1:
		return "delete", slices.Delete(out, at, end)
	case 2: // swap two pieces of the same length
		other := rng.IntN(len(out) - (end - at) + 1)
		piece := slices.Clone(out[at:end])
		copy(out[at:end], slices.Clone(out[other:other+len(piece)]))
		copy(out[other:], piece)
		return "reorder", out
	case 3:
		return "duplicate", slices.Insert(out, at, out[at:end]...)
	default:
		return "truncate", out[:at]
	}
}

// TestTamper: ten thousand mutations, by somebody who changes bytes of the
// files, by one who mends all checksums afterwards, and by one who computes the
// whole tree and the mark anew. All are found; the third only because a head
// was kept elsewhere, which the controls show.
func TestTamper(t *testing.T) {
	const n, total = 16, 10_000
	f, head := builtArchive(t, n)
	clean := files(t, f)
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = sampleBody(t, uint64(i))
	}
	names := []string{}
	for name := range clean {
		names = append(names, name)
	}
	slices.Sort(names)
	require.NoError(t, errOf(verifyFiles(t, f, &head)), "control: untouched it passes")

	rng := rand.New(rand.NewPCG(7, 7))
	found, unseen := map[string]int{}, 0
	for tried := 0; tried < total; {
		switch who := rng.IntN(4); {
		case who < 2:
			name := names[rng.IntN(len(names))]
			kind, b := mutateBytes(rng, clean[name])
			if slices.Equal(b, clean[name]) || name != markName && len(b) > len(clean[name]) && slices.Equal(b[:len(clean[name])], clean[name]) {
				continue // nothing changed below the mark
			}
			f.WriteFile(filepath.Join(testDir, name), b)
			require.Error(t, errOf(verifyFiles(t, f, &head)), "%s of %s went unseen", kind, name)
			f.WriteFile(filepath.Join(testDir, name), clean[name])
			found["bytes: "+kind]++
		default:
			kind, forged := mutateLeaves(t, rng, bodies)
			if len(forged) == 0 || len(forged) >= n && slices.EqualFunc(forged[:n], bodies, slices.Equal) {
				continue // nothing changed, or a leaf was only added
			}
			g := forge(t, forged)
			if who == 2 {
				g.WriteFile(filepath.Join(testDir, hashesName), clean[hashesName])
				g.WriteFile(filepath.Join(testDir, markName), clean[markName])
				require.Error(t, errOf(verifyFiles(t, g, nil)), "%s with mended checksums went unseen without a head", kind)
				found["checksums mended: "+kind]++
			} else {
				v, err := verifyFiles(t, g, nil)
				require.NoError(t, err, "control: without a head a log forged as a whole looks genuine")
				require.Equal(t, NoHead, v.Note)
				unseen++
				found["all computed anew: "+kind]++
			}
			require.Error(t, errOf(verifyFiles(t, g, &head)), "%s went unseen with a head", kind)
		}
		tried++
	}
	require.Len(t, found, 15)
	require.Positive(t, unseen)
	t.Logf("%d mutations, all found; %d of them only against the head: %v", total, unseen, found)
}

// TestVerifySaysWhere: the first leaf that differs is named.
func TestVerifySaysWhere(t *testing.T) {
	f, head := builtArchive(t, 24)
	clean := files(t, f)
	l, _ := openLog(t, f, Options{ReadOnly: true})
	for i := range uint64(24) {
		v := must(l.view())(t)
		r := must(v.row(i))(t)
		seg := must(v.segment(i))(t)
		for name, at := range map[string]int64{seg.name(): int64(r.off) + frameSize, indexName: rowOffset(i) + 5, hashesName: hashOffset(int64(hashCount(i)))} {
			b := slices.Clone(clean[name])
			b[at] ^= 0x40
			f.WriteFile(filepath.Join(testDir, name), b)
			out, err := verifyFiles(t, f, &head)
			require.Error(t, err)
			require.EqualValues(t, i, out.First, "%s: %v", name, err)
			f.WriteFile(filepath.Join(testDir, name), clean[name])
		}
	}
}

// TestVerifyNamesAll: each damaged leaf is named, and nothing else, also where the log holds the leaves of the archive once
// more and says otherwise; what is not listed is counted.
func TestVerifyNamesAll(t *testing.T) {
	const n = 60
	f, _ := builtArchive(t, n)
	l, _ := openLog(t, f, Options{ReadOnly: true})
	v := must(l.view())(t)
	damage := func(name string, at int64) {
		b := files(t, f)[name]
		b[at] ^= 0x40
		f.WriteFile(filepath.Join(testDir, name), b)
	}
	verify := func() ([]int64, manifest.Verification) {
		l, rep, err := OpenReader(ctx, testDir, f, nil, func(add func(uint64, []byte) error) error {
			for i := range uint64(n) {
				body := sampleBody(t, i)
				if i == 50 {
					body = sampleBody(t, i+1)
				}
				if err := add(i, body); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(t, err)
		require.Error(t, rep.Damage)
		defer l.Close()
		got, err := l.Verify(ctx, nil, nil)
		require.Error(t, err)
		var leaves []int64
		for _, p := range got.Problems {
			var c *codec.CorruptError
			require.ErrorAs(t, p, &c)
			require.Equal(t, codec.UnitLeaf, c.Unit)
			leaves = append(leaves, int64(c.Num))
		}
		return leaves, got
	}
	leaves, got := verify()
	require.Equal(t, []int64{50}, leaves)
	require.ErrorIs(t, got.Problems[0], errUnlike)
	inner := func(i uint64) bool { // not the last of its segment, which says how many leaves are held
		a := must(v.segment(i))(t)
		b := must(v.segment(i + 1))(t)
		return a.first == b.first
	}
	want := []int64{50}
	for i := uint64(1); i < 49; i += 7 {
		if !inner(i) {
			continue
		}
		want = append(want, int64(i))
		r := must(v.row(i))(t)
		seg := must(v.segment(i))(t)
		if i%2 == 0 {
			damage(indexName, rowOffset(i)+5)
		} else {
			damage(seg.name(), int64(r.off)+frameSize)
		}
	}
	slices.Sort(want)
	leaves, got = verify()
	require.Greater(t, len(want), 4)
	require.Equal(t, want, leaves)
	require.Equal(t, want[0], got.First)
	found := len(want)
	for i := uint64(2); i < 49; i++ {
		if i%7 != 1 && inner(i) {
			damage(indexName, rowOffset(i)+5)
			found++
		}
	}
	_, got = verify()
	require.Equal(t, []int{maxProblems, found}, []int{len(got.Problems), got.Found})
}

// TestVerifyHead: which heads a log agrees with.
func TestVerifyHead(t *testing.T) {
	f, head := builtArchive(t, 24)
	l, _ := openLog(t, f, Options{})
	fill(t, l, 30)
	old := must(l.Head(10, 0))(t)
	none := must(l.Head(0, 0))(t)
	tail := must(l.Head(30, 0))(t)
	seen := uint64(0)
	for _, h := range []manifest.Head{head, old, none, tail} {
		v := must(l.Verify(ctx, &h, func(done, total uint64) { seen = done }))(t)
		require.Equal(t, tail.Root, v.Root)
		require.Empty(t, v.Note)
		require.EqualValues(t, 30, seen)
	}
	other, longer, wrong := head, head, old
	other.DB, longer.Size = "db2", 31
	wrong.Root[3] ^= 1
	for _, h := range []manifest.Head{other, longer, wrong} {
		require.ErrorIs(t, errOf(l.Verify(ctx, &h, nil)), manifest.ErrHead)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, errOf(l.Verify(canceled, nil, nil)), context.Canceled)
}

// TestRollbackOfTheWhole: an older copy of all files is genuine in itself; only
// a head kept elsewhere finds it.
func TestRollbackOfTheWhole(t *testing.T) {
	older, _ := builtArchive(t, 18)
	_, head := builtArchive(t, 24)
	v := must(verifyFiles(t, older, nil))(t)
	require.Equal(t, NoHead, v.Note)
	v, err := verifyFiles(t, older, &head)
	require.ErrorIs(t, err, manifest.ErrHead)
	require.EqualValues(t, 18, v.First)
}

// TestReadClosed: who began to read before the log was closed hears that it was.
func TestReadClosed(t *testing.T) {
	f, _ := builtArchive(t, 40)
	l, _ := openLog(t, f, Options{ReadOnly: true})
	v := must(l.view())(t)
	must(v.root(40))(t)
	require.NoError(t, l.Close())
	require.ErrorIs(t, errOf(v.root(40)), ErrClosed)
	require.ErrorIs(t, errOf(v.leaf(3)), ErrClosed)
}

// TestVerifyClosed: a log that is closed while it is verified is not called damaged.
func TestVerifyClosed(t *testing.T) {
	f, _ := builtArchive(t, 3*blockLeaves)
	l, _ := openLog(t, f, Options{ReadOnly: true})
	v, err := l.Verify(ctx, nil, func(done, _ uint64) {
		if done == blockLeaves {
			require.NoError(t, l.Close())
		}
	})
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, v.Found)
}

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
