package filestore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// Encryption of what a database keeps in its files, and the keys for that. These four files open no file and read no clock:
//
//	sealring.go   the keys of a database, and the file in which they are wrapped by the key of its owner
//	sealtree.go   a key for each number, of which single ones can be destroyed
//	seal.go       values: sealed and opened, bound to their place
//	sealunder.go  values under the key of any number, and what stays once it is destroyed
//
// AES-256-GCM of the standard library does all of it. Tink was considered: its keysets rotate data
// keys, which nothing here needs (the owner's key wraps the ring, so a rotation rewrites the ring
// alone), it brings protobuf into every program that links the library, and a reader would have to
// audit its formats beside ours. What is here is one AEAD, HKDF and SHA-256.

// KeySize is the length of every key, the owner's too.
const KeySize = 32

// Overhead is the number of bytes that sealing adds to a value.
const Overhead = 1 + nonceSize + tagSize

const (
	nonceSize = 12
	tagSize   = 16
)

// Space is a set of names. A value that was sealed in one space does not open in another one, and a
// value of one name not under another.
type Space uint8

// The spaces.
const (
	SpaceSys Space = iota
	SpaceMeta
	SpaceContent
	SpaceIndex
	SpaceHeld
	SpaceOutcome
	SpaceState
	SpaceVector
	SpaceQuestion
	SpaceRecord // of the log
	SpaceLeaf   // of the audit
	spaces
)

var spaceNames = [spaces]string{"sys", "meta", "content", "index", "held", "outcome", "state", "vector", "question", "record", "leaf"}

// Forms of a sealed value: its first byte.
const (
	formShared = 1 // under a key of the database
	formNumber = 2 // under the key of its number, which can be destroyed
	formUnder  = 3 // under the key of a number that the value names, within a value under a key of the database (sealunder.go)
)

// Errors of Open.
var (
	// ErrSealed says that a value is not what was sealed at its place: it was changed, moved, or
	// sealed by another database.
	ErrSealed = errors.New("it does not open with the keys of this database: it was changed, moved here from elsewhere, or belongs to another database")
	// ErrDestroyed says that the key of a value was destroyed: what it held was erased.
	ErrDestroyed = errors.New("its key was destroyed when it was erased")
)

// lanes is the number of keys that share the values of a space. Nonces are random, and one key must not
// see more than 2^32; 256 keys are good for 2^40 values of a space.
const lanes = 256

type laneKeys [lanes]atomic.Pointer[cipher.AEAD]

// aead is the cipher of a name under the keys of the database.
func (r *Ring) aead(s Space, name []byte) cipher.AEAD {
	lane := byte(xxhash.Sum64(name))
	if a := r.shared[s][lane].Load(); a != nil {
		return *a
	}
	a := newAEAD(r.derive("ctxpage space " + spaceNames[s] + " " + string(lane)))
	r.shared[s][lane].Store(&a)
	return a
}

// derive returns the key of a purpose.
func (r *Ring) derive(purpose string) []byte { return expand(r.data[:], purpose) }

// expand derives a key for one purpose. The key that is given is uniformly random, so HKDF needs no
// extract step.
func expand(key []byte, purpose string) []byte {
	b, err := hkdf.Expand(sha256.New, key, purpose, KeySize)
	if err != nil { // of a length that HKDF does not have
		panic(err)
	}
	return b
}

// newAEAD is AES-256-GCM under a key of KeySize bytes.
func newAEAD(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil { // of a wrong length
		panic(err)
	}
	a, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return a
}

// Seal appends a sealed value to b. The name is bound to it and must be given to Open again. A
// value in a tree gets the key of its number, or, if that was destroyed, one of the database.
func (r *Ring) Seal(b []byte, s Space, name, value []byte) ([]byte, error) {
	form, a := byte(formShared), cipher.AEAD(nil)
	if Numbered(s) {
		if key, ok := r.pages.key(Number(name)); ok {
			form, a = formNumber, newAEAD(expand(key[:], spaceNames[s]))
		}
	}
	if a == nil {
		a = r.aead(s, name)
	}
	at := len(b)
	b = append(b, form)
	b = append(b, make([]byte, nonceSize)...)
	nonce := b[at+1:]
	if _, err := io.ReadFull(r.rand, nonce); err != nil {
		return nil, fmt.Errorf("randomness: %w", err)
	}
	return a.Seal(b, nonce, value, bound(s, form, name)), nil
}

// Open returns the value, in memory of its own. It matches ErrSealed or ErrDestroyed where it
// cannot. Beside ErrDestroyed it returns what SealUnder was told to keep; nil: nothing.
func (r *Ring) Open(s Space, name, sealed []byte) ([]byte, error) {
	if len(sealed) > 0 && sealed[0] == formUnder {
		return r.openUnder(s, name, sealed)
	}
	if len(sealed) < Overhead {
		return nil, ErrSealed
	}
	form, nonce, rest := sealed[0], sealed[1:1+nonceSize], sealed[1+nonceSize:]
	var a cipher.AEAD
	switch {
	case form == formShared:
		a = r.aead(s, name)
	case form == formNumber && Numbered(s):
		key, ok := r.pages.key(Number(name))
		if !ok {
			return nil, ErrDestroyed
		}
		a = newAEAD(expand(key[:], spaceNames[s]))
	default:
		return nil, ErrSealed
	}
	value, err := a.Open(make([]byte, 0, len(rest)), nonce, rest, bound(s, form, name))
	if err != nil {
		return nil, ErrSealed
	}
	return value, nil
}

// Destructible reports whether a value is under a key that can be destroyed.
func Destructible(sealed []byte) bool { return len(sealed) > 0 && sealed[0] == formNumber }

// bound returns the bytes that are authenticated beside a value. The keys differ by space as well; that the space
// is bound too costs nothing and needs no thought of what the keys share.
func bound(s Space, form byte, name []byte) []byte {
	return append(append(make([]byte, 0, 2+len(name)), byte(s), form), name...)
}
