package store

import (
	"crypto/sha256"
	"hash"
	"sync"
)

// macs are HMAC-SHA256 states that nobody uses. A fault makes two digests; hmac.New makes four
// objects for each.
var macs = sync.Pool{New: func() any { return &mac{h: sha256.New()} }}

type mac struct {
	h   hash.Hash
	buf []byte
	pad [sha256.BlockSize]byte // here, as sum is, because what goes through hash.Hash would be allocated for each digest
	sum [sha256.Size]byte
}

// SaltedMAC returns the HMAC-SHA256 under a salt of what write appends.
func SaltedMAC(salt []byte, write func(b []byte) []byte) (d [32]byte) {
	m := macs.Get().(*mac)
	defer macs.Put(m)
	pad := &m.pad
	clear(pad[copy(pad[:], salt):]) // a salt is shorter than a block
	for i := range pad {
		pad[i] ^= 0x36
	}
	m.buf = write(append(m.buf[:0], pad[:]...))
	m.h.Reset()
	m.h.Write(m.buf)
	for i := range pad {
		pad[i] ^= 0x36 ^ 0x5c
	}
	inner := m.h.Sum(m.buf[:0])
	m.h.Reset()
	m.h.Write(pad[:])
	m.h.Write(inner)
	m.h.Sum(m.sum[:0])
	if m.buf = inner[:0]; cap(m.buf) > 1<<20 {
		m.buf = nil
	}
	return m.sum
}
