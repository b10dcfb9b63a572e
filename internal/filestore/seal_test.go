package filestore

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/codec"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, KeySize) }

func name(n uint64) []byte { return codec.AppendOrdered(nil, n) }

// A value opens at its place and nowhere else, and not after any bit of it was turned.
func TestSealedToItsPlace(t *testing.T) {
	t.Parallel()
	r := must(NewRing("db", rand.Reader))(t)
	other := must(NewRing("db", rand.Reader))(t)
	for s := range spaces {
		v := must(r.Seal([]byte("in front"), s, name(7), []byte("the needle")))(t)
		require.NotContains(t, string(v), "needle")
		v = v[len("in front"):]
		require.Len(t, v, len("the needle")+Overhead)
		got := must(r.Open(s, name(7), v))(t)
		require.Equal(t, "the needle", string(got))

		require.ErrorIs(t, errOf(r.Open(s, name(8), v)), ErrSealed, "moved to another name")
		require.ErrorIs(t, errOf(r.Open((s+1)%spaces, name(7), v)), ErrSealed, "moved to another space")
		require.ErrorIs(t, errOf(other.Open(s, name(7), v)), ErrSealed, "of another database")
		for i := range 8 * len(v) {
			v[i/8] ^= 1 << (i % 8)
			require.ErrorIs(t, errOf(r.Open(s, name(7), v)), ErrSealed, "bit %d", i)
			v[i/8] ^= 1 << (i % 8)
		}
		for n := range len(v) {
			require.ErrorIs(t, errOf(r.Open(s, name(7), v[:n])), ErrSealed)
		}
	}
}

// A value opens under its own name alone, also where the key of another name is the same: names of one lane, names that begin
// with one number, and names of one lane that are under one number.
func TestSealedToItsName(t *testing.T) {
	t.Parallel()
	mine, other := name(7), name(8)
	for n := uint64(8); byte(xxhash.Sum64(other)) != byte(xxhash.Sum64(mine)); n++ {
		other = name(n)
	}
	r := must(NewRing("db", rand.Reader))(t)
	stays := func(r *Ring, s Space, mine, other, v []byte) {
		t.Helper()
		got := must(r.Open(s, mine, v))(t)
		require.Equal(t, "the needle", string(got))
		require.ErrorIs(t, errOf(r.Open(s, other, v)), ErrSealed, "space %d", s)
	}
	for s := range spaces {
		shared := r
		if Numbered(s) {
			long, longer := append(name(7), 'a'), append(name(7), 'b')
			v := must(r.Seal(nil, s, long, []byte("the needle")))(t)
			require.True(t, Destructible(v))
			stays(r, s, long, longer, v)
			shared = r.Without([]uint64{Number(mine), Number(other)})
		}
		v := must(shared.Seal(nil, s, mine, []byte("the needle")))(t)
		require.False(t, Destructible(v))
		stays(shared, s, mine, other, v)
	}
	num, ok := r.TagNumber([8]byte{1})
	require.True(t, ok)
	v := must(r.SealUnder(nil, SpaceState, mine, num, nil, []byte("the needle")))(t)
	stays(r, SpaceState, mine, other, v)
}

// Two values are never sealed alike, even if they are.
func TestSealsDiffer(t *testing.T) {
	t.Parallel()
	r := must(NewRing("db", rand.Reader))(t)
	a := must(r.Seal(nil, SpaceContent, name(1), []byte("same")))(t)
	b := must(r.Seal(nil, SpaceContent, name(1), []byte("same")))(t)
	require.NotEqual(t, a, b)
}

// What is destroyed does not open, all else does; what is sealed after under the same number opens.
func TestDestroy(t *testing.T) {
	t.Parallel()
	r := must(NewRing("db", rand.Reader))(t)
	nums := []uint64{0, 1, 2, 3, 4, 5, 255, 256, 257, 1 << 20, 1<<63 - 1, 1 << 63, ^uint64(0) - 1, ^uint64(0)}
	sealed := map[uint64][]byte{}
	for _, n := range nums {
		sealed[n] = must(r.Seal(nil, SpaceContent, name(n), []byte("text")))(t)
		require.True(t, Destructible(sealed[n]))
	}
	drop := []uint64{0, 3, 4, 256, 1 << 63, ^uint64(0)}
	less := r.Without(drop[:3]).Without(drop[3:])
	again := unwrapped(t, less)
	for _, ring := range []*Ring{less, again} {
		for _, n := range nums {
			got, err := ring.Open(SpaceContent, name(n), sealed[n])
			if bytes.Contains(bytes.Join([][]byte{name(0), name(3), name(4), name(256), name(1 << 63), name(^uint64(0))}, []byte("|")), name(n)) {
				require.ErrorIs(t, err, ErrDestroyed, "number %d", n)
				require.False(t, ring.Has(n))
				v := must(ring.Seal(nil, SpaceContent, name(n), []byte("new")))(t)
				require.False(t, Destructible(v))
				got = must(ring.Open(SpaceContent, name(n), v))(t)
				require.Equal(t, "new", string(got))
				continue
			}
			require.NoError(t, err, "number %d", n)
			require.Equal(t, "text", string(got))
			require.True(t, ring.Has(n))
		}
	}
	for _, n := range nums { // negative control: the ring before opens all
		must(r.Open(SpaceContent, name(n), sealed[n]))(t)
	}
	require.LessOrEqual(t, len(less.pages.nodes), len(drop)*levels)
}

// Neighbours that are destroyed cost little.
func TestDestroyNeighbours(t *testing.T) {
	t.Parallel()
	r := must(NewRing("db", rand.Reader))(t)
	nums := make([]uint64, 1000)
	for i := range nums {
		nums[i] = 5000 + uint64(i)
	}
	require.Less(t, len(r.Without(nums).pages.nodes), 2*levels)
}

func unwrapped(t *testing.T, r *Ring) *Ring {
	t.Helper()
	b := must(r.Wrap(key(1)))(t)
	again := must(Unwrap(key(1), b, rand.Reader))(t)
	require.Equal(t, r.DB, again.DB)
	return again
}

// A ring comes back from its file with the right key; a wrong key, damage and a newer format are told apart.
func TestWrap(t *testing.T) {
	t.Parallel()
	r := must(NewRing("db", rand.Reader))(t)
	v := must(r.Seal(nil, SpaceState, []byte("row"), []byte("value")))(t)
	got := must(unwrapped(t, r).Open(SpaceState, []byte("row"), v))(t)
	require.Equal(t, "value", string(got))
	require.Equal(t, r.Word(nil, 1, []byte("word")), unwrapped(t, r).Word(nil, 1, []byte("word")))
	require.NotEqual(t, r.Word(nil, 1, []byte("word")), r.Word(nil, 2, []byte("word")), "in another scope it is another word")

	b := must(r.Wrap(key(1)))(t)
	require.ErrorIs(t, errOf(Unwrap(key(2), b, rand.Reader)), ErrWrongKey)
	require.ErrorIs(t, errOf(Unwrap(key(1)[:16], b, rand.Reader)), ErrWrongKey)
	for i := range len(b) {
		b[i] ^= 4
		require.ErrorIs(t, errOf(Unwrap(key(1), b, rand.Reader)), ErrDamaged, "byte %d", i)
		b[i] ^= 4
	}
	for n := range len(b) {
		require.Error(t, errOf(Unwrap(key(1), b[:n], rand.Reader)))
	}
	newer := bytes.Clone(b)
	binary.BigEndian.PutUint32(newer[8:], ringVersion+1)
	binary.BigEndian.PutUint32(newer[12:], ^uint32(ringVersion+1))
	require.ErrorIs(t, errOf(Unwrap(key(1), newer, rand.Reader)), ErrNewer)
	copy(newer, ringOld)
	require.ErrorIs(t, errOf(Unwrap(key(1), newer, rand.Reader)), ErrOld)
	require.Error(t, CheckKey(make([]byte, KeySize)))
}

func FuzzUnwrap(f *testing.F) {
	r := must(NewRing("db", rand.Reader))(f)
	f.Add(r.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Ring
		if r.decode(b) {
			require.Equal(t, b, r.encode())
		}
	})
}

// A value under the key of a number opens until that key is destroyed; then what was to stay is there and nothing else, also
// for a ring that was wrapped since. A tag gets the next number once its own is destroyed.
func TestSealUnder(t *testing.T) {
	t.Parallel()
	r := must(NewRing("db", rand.Reader))(t)
	tag := [8]byte{1, 2, 3}
	num, ok := r.TagNumber(tag)
	require.True(t, ok)
	v := must(r.SealUnder([]byte("in front"), SpaceState, name(7), num, []byte("stays"), []byte("the needle")))(t)
	v = v[len("in front"):]
	require.NotContains(t, string(v), "stays")
	got := must(r.Open(SpaceState, name(7), v))(t)
	require.Equal(t, "the needle", string(got))
	is, ok := r.Under(SpaceState, name(7), v)
	require.True(t, ok)
	require.Equal(t, num, is)
	require.ErrorIs(t, errOf(r.Open(SpaceState, name(8), v)), ErrSealed, "moved to another name")
	require.ErrorIs(t, errOf(r.Open(SpaceHeld, name(7), v)), ErrSealed, "moved to another space")

	b := must(r.Without([]uint64{num}).Wrap(key(3)))(t)
	less := must(Unwrap(key(3), b, rand.Reader))(t)
	got, err := less.Open(SpaceState, name(7), v)
	require.ErrorIs(t, err, ErrDestroyed)
	require.Equal(t, "stays", string(got))
	require.ErrorIs(t, errOf(less.SealUnder(nil, SpaceState, name(7), num, nil, []byte("x"))), ErrDestroyed)
	next, ok := less.TagNumber(tag)
	require.True(t, ok)
	require.NotEqual(t, num, next)
	for i := range 8 * len(v) {
		v[i/8] ^= 1 << (i % 8)
		require.ErrorIs(t, errOf(r.Open(SpaceState, name(7), v)), ErrSealed, "bit %d", i)
		require.ErrorIs(t, errOf(less.Open(SpaceState, name(7), v)), ErrSealed, "nobody makes a row look erased: bit %d", i)
		v[i/8] ^= 1 << (i % 8)
	}
}

// Two tags whose numbers are the same in 40 bits have numbers of their own: to destroy the key of one leaves the other.
func TestTagsApart(t *testing.T) {
	t.Parallel()
	tag := func(n uint64) (b [8]byte) { binary.BigEndian.PutUint64(b[:], n); return b }
	a, b := tag(252488), tag(1004160)
	r := must(NewRing("db", rand.Reader))(t)
	under := func(tag [8]byte) (num uint64, v []byte) {
		num, ok := r.TagNumber(tag)
		require.True(t, ok)
		v = must(r.SealUnder(nil, SpaceState, tag[:], num, nil, []byte("value")))(t)
		return num, v
	}
	num, va := under(a)
	_, vb := under(b)
	less := unwrapped(t, r.Without([]uint64{num}))
	require.ErrorIs(t, errOf(less.Open(SpaceState, a[:], va)), ErrDestroyed)
	must(less.Open(SpaceState, b[:], vb))(t)
}
