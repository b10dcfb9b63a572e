package token

import (
	"sync/atomic"
	"unicode/utf8"
)

// memo remembers small results by key. One word holds a whole key and its result, so no lock is needed and a result never
// belongs to another key. A new key replaces an older one.
type memo [1 << indexBits]atomic.Uint64

const (
	indexBits  = 14
	codeBits   = 6                        // of each byte after the first
	longKey    = 10                       // bytes
	keyBits    = 8 + (longKey-1)*codeBits // the first byte has 8, of which the highest is set: no key is 0
	tagBits    = keyBits - indexBits      // what the place of an entry does not tell of its key
	resultBits = 4                        // of results from 1 to 15
	spreadKeys = 0x9e3779b97f4a7c15       // odd, so keys stay different
)

// place returns the entry of a key, and the rest of the key.
func (m *memo) place(key uint64) (entry *atomic.Uint64, tag uint64) {
	key = key * spreadKeys & (1<<keyBits - 1)
	return &m[key>>tagBits], key & (1<<tagBits - 1)
}

// get returns the result of a key; 0 if it is not known.
func (m *memo) get(key uint64) int {
	entry, tag := m.place(key)
	if e := entry.Load(); e>>resultBits == tag {
		return int(e & (1<<resultBits - 1))
	}
	return 0
}

func (m *memo) put(key uint64, result int) {
	entry, tag := m.place(key)
	entry.Store(tag<<resultBits | uint64(result))
}

// codes numbers small letters from 1, then capitals, then digits. Other bytes get a class above those.
var codes = func() (of [256]uint8) {
	for b := range of {
		switch {
		case b >= utf8.RuneSelf, b == '\'':
			of[b] = otherByte
		case b == '\r', b == '\n':
			of[b] = asciiLine
		case b == ' ', b == '\t', b == '\v', b == '\f':
			of[b] = asciiSpace
		default:
			of[b] = asciiSign
		}
	}
	for i, b := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") {
		of[b] = uint8(i + 1)
	}
	return of
}()

const (
	smalls     = 26
	letters    = 52
	asciiSign  = 1 << 6
	asciiSpace = asciiSign + 1
	asciiLine  = asciiSign + 2
	otherByte  = asciiSign + 3 // the byte may continue a word: an apostrophe, or a byte outside ASCII
)

// nextKey returns the key of a string with one more letter or digit.
func nextKey(key uint64, b byte) uint64 { return key<<codeBits | uint64(codes[b]) }

// startKey returns the key of the characters that longest reads, if they are ASCII and not repeated; else 0.
func startKey(p string) uint64 {
	if repeats(p, 1, 3) {
		return 0
	}
	key := uint64(1)
	for i := range min(len(p), few) {
		if p[i] >= utf8.RuneSelf {
			return 0
		}
		key = key<<7 | uint64(p[i])
	}
	return key
}
