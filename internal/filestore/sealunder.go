package filestore

import (
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// The rows of a backup that are no pages have no number of their own in a tree. Each is sealed
// under the key of a number that the caller chooses, and that once more under a key of the
// database, together with the number and with what stays once the key is destroyed: nobody without
// the keys of the database can make a row that looks erased.
//
//	number u64 · length of what stays u32 · what stays · nonce · the value under the key of the number
//
// A database does not write its own rows like this: only what is copied must become unreadable
// where nobody can reach it.

// firstTag is above the numbers of all pages. Numbers of tags have all bits below it: two of a million
// rows and of a thousand that were erased have one number with a probability of 10⁻¹⁰. A key that is
// destroyed leaves about 63 nodes in the ring, less the binary logarithm of how many there are.
const firstTag = 1 << 63

// tries is the number of numbers of a tag. A name that was erased and is used again gets the next one.
const tries = 16

// TagNumber returns the number for a tag: the first whose key was not destroyed. !ok: all were.
func (r *Ring) TagNumber(tag [8]byte) (num uint64, ok bool) {
	for i := range uint8(tries) {
		num = firstTag | xxhash.Sum64(append(tag[:], i))>>1
		if r.Has(num) {
			return num, true
		}
	}
	return 0, false
}

// SealUnder appends a value sealed under the key of a number, which must be there. Open returns it,
// or, once that key is destroyed, stays and ErrDestroyed.
func (r *Ring) SealUnder(b []byte, s Space, name []byte, num uint64, stays, value []byte) ([]byte, error) {
	a, ok := r.numberCipher(s, num)
	if !ok {
		return nil, fmt.Errorf("number %x: %w", num, ErrDestroyed)
	}
	in := make([]byte, 0, 8+4+len(stays)+nonceSize+len(value)+tagSize)
	in = binary.BigEndian.AppendUint64(in, num)
	in = binary.BigEndian.AppendUint32(in, uint32(len(stays)))
	in = append(in, stays...)
	at := len(in)
	in = in[:at+nonceSize]
	if _, err := io.ReadFull(r.rand, in[at:]); err != nil {
		return nil, fmt.Errorf("randomness: %w", err)
	}
	in = a.Seal(in, in[at:], value, bound(s, formNumber, name))
	out := append(b, formUnder)
	out = append(out, make([]byte, nonceSize)...)
	nonce := out[len(b)+1:]
	if _, err := io.ReadFull(r.rand, nonce); err != nil {
		return nil, fmt.Errorf("randomness: %w", err)
	}
	return r.aead(s, name).Seal(out, nonce, in, bound(s, formUnder, name)), nil
}

// Under returns the number under whose key a value is. !ok: it is under none of that kind, or does
// not open.
func (r *Ring) Under(s Space, name, sealed []byte) (num uint64, ok bool) {
	in, err := r.openOuter(s, name, sealed)
	if err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint64(in), true
}

// IsUnder reports whether a value has the form of SealUnder.
func IsUnder(sealed []byte) bool { return len(sealed) > 0 && sealed[0] == formUnder }

// openUnder opens both seals. If the key of the number was destroyed, it returns what was to stay,
// and ErrDestroyed.
func (r *Ring) openUnder(s Space, name, sealed []byte) ([]byte, error) {
	in, err := r.openOuter(s, name, sealed)
	if err != nil {
		return nil, err
	}
	num, n := binary.BigEndian.Uint64(in), uint64(binary.BigEndian.Uint32(in[8:]))
	if in = in[12:]; uint64(len(in)) < n+nonceSize+tagSize {
		return nil, ErrSealed
	}
	stays, nonce, rest := in[:n:n], in[n:n+nonceSize], in[n+nonceSize:]
	a, ok := r.numberCipher(s, num)
	if !ok {
		return stays, ErrDestroyed
	}
	value, err := a.Open(nil, nonce, rest, bound(s, formNumber, name))
	if err != nil {
		return nil, ErrSealed
	}
	return value, nil
}

// openOuter opens the outer seal of a value of SealUnder.
func (r *Ring) openOuter(s Space, name, sealed []byte) ([]byte, error) {
	if !IsUnder(sealed) || len(sealed) < Overhead {
		return nil, ErrSealed
	}
	in, err := r.aead(s, name).Open(nil, sealed[1:1+nonceSize], sealed[1+nonceSize:], bound(s, formUnder, name))
	if err != nil || len(in) < 12 {
		return nil, ErrSealed
	}
	return in, nil
}

// numberCipher is the cipher under the key of a number; !ok: that key was destroyed.
func (r *Ring) numberCipher(s Space, num uint64) (cipher.AEAD, bool) {
	key, ok := r.pages.key(num)
	if !ok {
		return nil, false
	}
	return newAEAD(expand(key[:], spaceNames[s]+" under")), true
}
