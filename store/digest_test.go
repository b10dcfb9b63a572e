package store_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// Every load of a page makes two digests: they use the memory of the last ones. The
// bound leaves room for the race detector, under which a pool forgets some of what it is given.
func TestDigestsAllocate(t *testing.T) {
	salt, text := make([]byte, store.DigestSaltSize), "a text"
	want := store.SaltedDigest(salt, text)
	require.Less(t, testing.AllocsPerRun(1000, func() {
		if store.SaltedDigest(salt, text) != want {
			t.Error("the digest of a text changed")
		}
	}), 2.)
}

// The digests in the audit are HMAC-SHA256 as the standard library has it: anybody can check one with another program.
func TestSaltedDigestIsHMAC(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 4096, 2 << 20, 10} { // a short text after a long one: memory is used again
		for _, saltSize := range []int{0, 1, store.DigestSaltSize, sha256.BlockSize} {
			salt, text := bytes.Repeat([]byte{7}, saltSize), bytes.Repeat([]byte("x"), n)
			h := hmac.New(sha256.New, salt)
			h.Write(text)
			require.Equal(t, [32]byte(h.Sum(nil)), store.SaltedDigest(salt, string(text)), "text of %d bytes, salt of %d", n, saltSize)
		}
	}
}
