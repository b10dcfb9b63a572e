package filestore

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/ctxpage/ctxpage/internal/codec"
)

// Ring is the keys of a database. Its methods are safe for concurrent use if its randomness is. It
// is never changed: Without makes another one.
//
//	owner's key ── wraps ──▶ ring ─┬─ data key ──▶ keys of spaces and lanes, of words of the index
//	                               └─ nodes of a tree ──▶ keys of numbers
//
// The ring is a file of its own, because a key that is to be destroyed must not be in any backup:
// a backup shows only what the ring still opens.
type Ring struct {
	DB     string // id of the database
	data   [KeySize]byte
	pages  keys // by page number: texts and vectors; and by the numbers of tags (sealunder.go)
	rand   io.Reader
	shared *[spaces]laneKeys
	words  *sync.Pool // of hash.Hash
}

// The file of a ring:
//
//	0   8   "ctxpring"
//	8   4   version, 1, big endian; read before anything behind it
//	12  4   its bitwise complement; if it is not, the file is damaged, not newer
//	16  16  salt, new with each writing
//	32  12  nonce
//	44  n   sealed: id of the database, data key, nodes
//	    8   xxhash64 of all before: tells damage from a wrong key
const (
	ringMagic   = "ctxpring"
	ringOld     = "ctxpkeys" // before v0.1.0
	ringVersion = 1
	ringSalt    = 16
	ringNonce   = 32
	ringBody    = 44
	ringSum     = 8
)

// Errors of Unwrap.
var (
	ErrWrongKey  = errors.New("the key does not open it")
	ErrDamaged   = errors.New("it is damaged")
	ErrNewer     = errors.New("it is of a newer format")
	ErrOld       = errors.New("it was made before v0.1.0")
	ErrNoKeyring = errors.New("there is no keyring")
)

// CheckKey refuses what is no key of an owner.
func CheckKey(key []byte) error {
	if len(key) != KeySize {
		return fmt.Errorf("a key of %d bytes; expected %d", len(key), KeySize)
	}
	if bytes.Equal(key, make([]byte, KeySize)) {
		return errors.New("a key of zeros; expected random bytes")
	}
	return nil
}

// NewRing makes the keys of a new database. rand must be safe for concurrent use.
func NewRing(db string, rand io.Reader) (*Ring, error) {
	r := &Ring{DB: db}
	if _, err := io.ReadFull(rand, r.data[:]); err != nil {
		return nil, fmt.Errorf("randomness: %w", err)
	}
	var root node
	if _, err := io.ReadFull(rand, root.key[:]); err != nil {
		return nil, fmt.Errorf("randomness: %w", err)
	}
	r.pages = newKeys([]node{root})
	return r.ready(rand), nil
}

// ready sets the source of nonces and the caches of a ring. The caches hold keys that follow from the
// data key.
func (r *Ring) ready(rand io.Reader) *Ring {
	r.rand, r.shared = rand, new([spaces]laneKeys)
	key := r.derive("ctxpage words")
	r.words = &sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}
	return r
}

// WordSize is the length of what stands for a word.
const WordSize = 12

// Word appends what stands for a word of the index. It is the same each time, so that the word is
// found again: whoever has the files without the keys sees which words of a scope are the same, and
// how many pages have them, and not which they are.
func (r *Ring) Word(b []byte, scope uint32, word []byte) []byte {
	h, _ := r.words.Get().(hash.Hash)
	defer r.words.Put(h)
	h.Reset()
	var s [4]byte
	binary.BigEndian.PutUint32(s[:], scope)
	h.Write(s[:])
	h.Write(word)
	var sum [sha256.Size]byte
	return append(b, h.Sum(sum[:0])[:WordSize]...)
}

// Without returns the ring less the keys of some numbers, which must rise. Both rings open what has
// other keys.
func (r *Ring) Without(nums []uint64) *Ring {
	next := *r
	next.pages = r.pages.without(nums)
	return &next
}

// Has reports whether the key of a number is there.
func (r *Ring) Has(num uint64) bool { return r.pages.above(num) != nil }

// Numbered reports whether the values of a space are under the keys of numbers: those that
// their names begin with (Number).
func Numbered(s Space) bool { return s == SpaceContent || s == SpaceVector }

// Number returns the number of a name.
func Number(name []byte) uint64 {
	num, _ := codec.Ordered(name)
	return num
}

// IDSize is the length of ID.
const IDSize = 8

// ID tells rings apart. It is no secret.
func (r *Ring) ID() []byte { return r.derive("ctxpage ring")[:IDSize] }

// Wrap returns the file of the ring, wrapped by the key of its owner.
func (r *Ring) Wrap(key []byte) ([]byte, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	b := append(make([]byte, 0, 256), ringMagic...)
	version := uint32(ringVersion)
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint32(b, ^version)
	b = append(b, make([]byte, ringBody-len(b))...)
	if _, err := io.ReadFull(r.rand, b[ringSalt:]); err != nil {
		return nil, fmt.Errorf("randomness: %w", err)
	}
	b = wrapper(key, b).Seal(b, b[ringNonce:ringBody], r.encode(), b[:ringNonce])
	return binary.BigEndian.AppendUint64(b, xxhash.Sum64(b)), nil
}

// wrapper is the cipher of a ring: its key is of the owner's and the salt.
func wrapper(key, head []byte) interface {
	Seal(dst, nonce, plain, more []byte) []byte
	Open(dst, nonce, sealed, more []byte) ([]byte, error)
} {
	return newAEAD(expand(key, "ctxpage keyring 1 "+string(head[ringSalt:ringNonce])))
}

// Unwrap reads the file of a ring. It matches ErrOld, ErrNewer, ErrDamaged or ErrWrongKey where it cannot.
func Unwrap(key, b []byte, rand io.Reader) (*Ring, error) {
	if len(b) >= ringSalt && string(b[:8]) == ringOld {
		return nil, ErrOld
	}
	if len(b) < ringSalt || string(b[:8]) != ringMagic || binary.BigEndian.Uint32(b[8:]) != ^binary.BigEndian.Uint32(b[12:]) {
		return nil, ErrDamaged
	}
	if version := binary.BigEndian.Uint32(b[8:]); version != ringVersion {
		return nil, fmt.Errorf("%w: version %d, this program reads up to %d", ErrNewer, version, ringVersion)
	}
	n := len(b) - ringSum
	if n < ringBody+tagSize || binary.BigEndian.Uint64(b[n:]) != xxhash.Sum64(b[:n]) {
		return nil, ErrDamaged
	}
	if err := CheckKey(key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWrongKey, err)
	}
	body, err := wrapper(key, b).Open(nil, b[ringNonce:ringBody], b[ringBody:n], b[:ringNonce])
	if err != nil {
		return nil, ErrWrongKey
	}
	r := &Ring{}
	if !r.decode(body) {
		return nil, ErrDamaged
	}
	return r.ready(rand), nil
}

// encode: length of the id (u8), id, data key; the count of the nodes (u32), of each node level (u8),
// first number (u64), key.
func (r *Ring) encode() []byte {
	b := append([]byte{byte(len(r.DB))}, r.DB...)
	b = append(b, r.data[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.pages.nodes)))
	for _, n := range r.pages.nodes {
		b = append(b, n.level)
		b = binary.BigEndian.AppendUint64(b, n.first)
		b = append(b, n.key[:]...)
	}
	return b
}

// decode is the inverse of encode. It accepts nothing that encode does not make: every node lies
// behind the previous one, and no byte is left.
func (r *Ring) decode(b []byte) bool {
	if len(b) < 1 || len(b) < 1+int(b[0])+KeySize+4 {
		return false
	}
	n := int(b[0])
	r.DB = string(b[1 : 1+n])
	copy(r.data[:], b[1+n:])
	b = b[1+n+KeySize:]
	const size = 1 + 8 + KeySize
	count := uint64(binary.BigEndian.Uint32(b))
	if b = b[4:]; uint64(len(b)) != count*size {
		return false
	}
	nodes := make([]node, count)
	for i := range nodes {
		nodes[i] = node{level: b[0], first: binary.BigEndian.Uint64(b[1:]), key: [KeySize]byte(b[9:size])}
		if nodes[i].level > levels || i > 0 && nodes[i].first <= nodes[i-1].last() {
			return false
		}
		b = b[size:]
	}
	r.pages = newKeys(nodes)
	return true
}
