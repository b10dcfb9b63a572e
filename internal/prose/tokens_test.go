package prose

import (
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/kljensen/snowball/english"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// plainSet is TokenSet as its rule reads, without memory or short ways.
func plainSet(texts ...string) (set []uint64) {
	for _, t := range texts {
		for _, w := range words(t) {
			if strings.Trim(w, "abcdefghijklmnopqrstuvwxyz") == "" {
				w = english.Stem(w, true)
			}
			set = append(set, xxhash.Sum64String(w)>>40)
		}
	}
	slices.Sort(set)
	return slices.Compact(set)
}

// TestTokenSetIsPlain: sets are stored, so remembered stems and the short way for ASCII must change no bit of them.
func TestTokenSetIsPlain(t *testing.T) {
	long := strings.Repeat("running", 40)
	for _, text := range []string{
		"", " ", "The runners' RUNNING_shoes don't fit: having 3 sizes, v2 and x86_64.", "and", "a_b _ __ 9", long + " " + long[:64] + " " + long[:65],
		"Ünïted straße İstanbul ΣΑΣ 東京に行く ＡＢＣ running", "caf\u00e9 cafe\u0301", "bad \xff bytes runs", "end runs", "\u1fba\u0345",
	} {
		require.Equal(t, plainSet(text, "Ann"), TokenSet(text, "Ann"), "%q", text)
	}
	require.Equal(t, TokenSet("\u1fb2"), TokenSet("\u1fba\u0345"), "one word in small letters and in capitals")
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z_0-9' .\n-]{0,200}`)), 0, 4).Draw(t, "texts")
		require.Equal(t, plainSet(texts...), TokenSet(texts...))
	})
}
