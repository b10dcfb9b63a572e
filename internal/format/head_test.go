package format

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func anyTime(t *rapid.T, name string) time.Time {
	return codec.FromMicros(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1_700_000_000_000_000, 1_900_000_000_000_000), rapid.Int64()).Draw(t, name))
}

func anyHead(t *rapid.T) *store.Head {
	h := &store.Head{
		Artefact: store.Artefact{
			ID: rapid.StringN(1, 30, -1).Draw(t, "id"), Kind: store.KindFact, Provenance: store.Validated, Priority: store.PriorityHigh,
			CurrentAsOf: anyTime(t, "as of"), ExpiresAt: anyTime(t, "expires"), Seq: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, "seq"),
			Role: rapid.SampledFrom([]string{"", "user"}).Draw(t, "role"),
		},
		Scope: "acme/support", Art: rapid.Uint64().Draw(t, "art"), Version: rapid.OneOf(rapid.Just(uint32(1)), rapid.Uint32()).Draw(t, "version"), LSN: rapid.Uint64().Draw(t, "lsn"),
		PutAt: anyTime(t, "put at"), GroupNum: rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64()).Draw(t, "group"),
		Actor:   rapid.SampledFrom([]string{"", "acme/support", "agent"}).Draw(t, "actor"),
		Counter: rapid.SampledFrom([]string{"", "est/2", "o200k_base", "bpe"}).Draw(t, "counter"),
	}
	if rapid.Bool().Draw(t, "now") {
		h.CurrentAsOf, h.ExpiresAt = h.PutAt, time.Time{}
	}
	for range rapid.IntRange(0, 3).Draw(t, "pages") {
		r := store.PageRow{
			Num: rapid.Uint64().Draw(t, "num"), Version: rapid.SampledFrom([]uint32{h.Version, 1, math.MaxUint32}).Draw(t, "page version"),
			LSN: rapid.SampledFrom([]uint64{h.LSN, 0, math.MaxUint64}).Draw(t, "page lsn"), Tokens: rapid.Uint32().Draw(t, "tokens"), Bytes: rapid.Uint32().Draw(t, "bytes"),
		}
		if rapid.Bool().Draw(t, "whole") {
			r.Hash, r.Salt, r.Digest = rapid.Uint64().Draw(t, "hash"), [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "salt")), [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
		}
		h.Rows = append(h.Rows, r)
	}
	return h
}

// A row gives back its head and its proof, whatever the numbers. A row cut anywhere, is
// refused or has another proof, and never a panic.
func TestHeadRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := anyHead(t)
		p := Proof{Leaf: rapid.OneOf(rapid.Uint64(), rapid.Just(h.LSN-1)).Draw(t, "leaf"), Place: rapid.Uint32().Draw(t, "place")}
		if rapid.Bool().Draw(t, "own salt") {
			p.Salt = [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "proof salt"))
		} else if len(h.Rows) > 0 {
			p.Salt = h.Rows[0].Salt
		}
		head := EncodeHead(nil, h, 7, EncodeCold(h))
		row := p.AppendHead(slices.Clone(head))
		got := must(DecodeHead(row, func(uint32) string { return h.Scope }))(t)
		if h.Rows == nil {
			got.Rows = nil
		}
		require.Equal(t, h, got)
		cut, is, err := CutHeadProof(row)
		require.NoError(t, err)
		require.Equal(t, head, cut)
		require.Equal(t, p, is)
		short := row[:rapid.IntRange(0, len(row)-1).Draw(t, "cut")]
		_, err = DecodeHead(short, func(uint32) string { return h.Scope })
		_, is, cutErr := CutHeadProof(short)
		require.False(t, err == nil && cutErr == nil && is == p && len(h.Rows) > 0 && h.Rows[0].Digest != [32]byte{}, "a row that was cut is not the whole one")
	})
}

// A row of the usual kind says neither who wrote it nor what counted it, and its proof takes three bytes.
func TestHeadRowImplies(t *testing.T) {
	h := ordinary(0)
	p := Proof{Salt: h.Rows[0].Salt, Leaf: h.LSN + 1}
	base := len(p.AppendHead(EncodeHead(nil, h, 1, EncodeCold(h))))
	h.Actor, h.Counter = h.Scope, "est/2"
	require.Empty(t, EncodeCold(h))
	row := p.AppendHead(EncodeHead(nil, h, 1, nil))
	require.Less(t, len(row), base)
	rest, _, err := CutHeadProof(row)
	require.NoError(t, err)
	require.Equal(t, 3, len(row)-len(rest))

	usual := func(change func(h *store.Head)) int { // the bytes of a row of the usual kind
		is := *h
		is.Art, is.Version, is.GroupNum, is.Group, is.Seq, is.PutAt, is.ExpiresAt = 9, 1, 0, "", 0, is.CurrentAsOf, time.Time{}
		is.Rows = []store.PageRow{is.Rows[0]}
		is.Rows[0].Num, is.Rows[0].Version, is.Rows[0].LSN = 9, 1, is.LSN
		change(&is)
		b := EncodeHead(nil, &is, 1, nil)
		back := must(DecodeHead(p.AppendHead(slices.Clone(b)), func(uint32) string { return h.Scope }))(t)
		back.Group, back.Counter = is.Group, is.Counter
		require.Equal(t, &is, back)
		return len(b)
	}
	least := usual(func(*store.Head) {})
	for _, of := range []struct {
		more   int
		change func(h *store.Head)
	}{
		{4, func(h *store.Head) { h.Version = 2 }}, // and its page is of an earlier one: count, bits, version
		{2, func(h *store.Head) { h.GroupNum = 1 }},
		{2, func(h *store.Head) { h.Seq = 1 }},
		{2, func(h *store.Head) { h.CurrentAsOf = h.CurrentAsOf.Add(time.Microsecond) }},
		{0, func(h *store.Head) { h.Rows[0].Num = 8 }},
		{1, func(h *store.Head) { h.Rows[0].Num = 9 + 64 }},
		{2 + 1, func(h *store.Head) { h.Rows[0].LSN-- }},
	} {
		require.Equal(t, least+of.more, usual(of.change))
	}
	row[5] |= impliedCounter // no row has more than one
	require.ErrorIs(t, errOf(DecodeHead(row, func(uint32) string { return h.Scope })), codec.ErrNewer)
}

func FuzzHeadRow(f *testing.F) {
	f.Add(headRow(ordinary(1)))
	f.Add(headRow(ordinary(2)))
	f.Fuzz(func(t *testing.T, row []byte) {
		h, err := DecodeHead(row, func(uint32) string { return "s" })
		if err != nil || len(row) == 0 || row[0] != RowVersion {
			return
		}
		_, p, err := CutHeadProof(row)
		if err != nil {
			return
		}
		again := p.AppendHead(EncodeHead(nil, h, 1, EncodeCold(h)))
		back := must(DecodeHead(again, func(uint32) string { return "s" }))(t)
		require.Equal(t, h, back)
	})
}

// The date in a header is that of its time, though the one that was asked for before is remembered.
func TestDateInHeader(t *testing.T) {
	for _, start := range []time.Time{{}, time.Unix(0, 0), time.Unix(-1, 0), time.Date(2026, 11, 26, 23, 59, 59, 999, time.FixedZone("", 3600)), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)} {
		for _, later := range []time.Duration{0, time.Second, -time.Second, 24*time.Hour - 1, -24 * time.Hour, 400 * 24 * time.Hour} {
			at := start.Add(later)
			require.Equal(t, at.UTC().Format("2 January 2006 ")+"Ann", IndexHeader(&store.Artefact{CurrentAsOf: at, Name: "Ann"}), at)
		}
	}
}

// Each of these versions shares a page with the next. The time of it grows as they do: in a square this takes minutes.
func TestGCShareMany(t *testing.T) {
	vs := make([]*Version, 200_000)
	for i := range vs {
		vs[i] = &Version{Head: &store.Head{Rows: []store.PageRow{{Num: uint64(i | 1)}, {Num: uint64((i+1)&^1 + 2)}}}}
	}
	last := len(vs) - 1
	vs[last/2].Kept = KeptHeld
	keepShared(vs)
	kept := func(v *Version) bool { return v.Kept != "" }
	require.Equal(t, last/2, slices.IndexFunc(vs, kept))
	require.False(t, slices.ContainsFunc(vs[last/2:], func(v *Version) bool { return v.Kept == "" }))
}

// A state row is read as it was written; a damaged or short one is refused.
func TestStateRow(t *testing.T) {
	t.Parallel()
	key := []byte("k")
	sealed := codec.Seal(TagState, key, StateBody(7, Proof{}, []byte("value")))
	now := must(UnsealState(key, sealed))(t)
	require.Equal(t, store.StateRow{Key: "k", Value: []byte("value"), LSN: 7}, now)
	sealed[3] ^= 1
	require.ErrorIs(t, errOf(UnsealState(key, sealed)), codec.ErrMalformed)
	require.ErrorIs(t, errOf(UnsealState(key, codec.Seal(TagState, key, []byte("short")))), codec.ErrMalformed)
	empty := must(UnsealState(key, codec.Seal(TagState, key, StateBody(7, Proof{}, []byte{}))))(t)
	require.NotNil(t, empty.Value, "an empty row is a row")
}
