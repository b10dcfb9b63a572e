package codec

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// The dense form of the body of an audit leaf. Half of the leaf of a commit is
// what every such leaf has, or what it has itself said before: the scope as the actor, the trace as
// the batch, the reference of the page before. So a body is stored as what is new in it and copies
// of what was. The tree, proofs and heads are over the body as it was; only the file has the dense
// form.
//
//	uvarint bytes of the front of the body · uvarint bytes of its form · that · the last bytes of the body as they are
//
// The last bytes are the digests of rows and their numbers: they are random, and each can be
// read at its distance from the end without anything before it. A leaf is dense on its own, because
// a prune replaces leaves one by one, and because a leaf is read alone. The form of the front is
//
//	0 to 127     so many bytes and one more follow as they are
//	128 to 255   copy so many bytes less 124 from as far back as a uvarint says, at least 1; words lies before the body

// words are parts that most leaves have. They are part of the format and never change.
const words = "\x2a\x04held\x2b\x19confidence below the gate\x2c\x08?\xe6ffffff\x2d\x08?\xec\xcc\xcc\xcc\xcc\xcc\xcd\x2e\x07checker\x2a\x08rejected\x2b\x0brolled back\x2a\x08conflict\x05stale" +
	"\x12\x01\x01\x13\x04fill\x14\x07default\x15\x05est/1\x16\x01\x01\x17\x04text\x18 \x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0f" +
	"\x01\x01\x03\x02\x11\x01\x04\x01 \x05\x08\x0c \x01\x01\x02\x02\x11\x01\x05\x08\x01\x01\x01\x02\x11\x01\x05\x08\x07agent\x08\x02\x0a\x06\x05\x11\x01\x15\x05est/1" +
	"\x01\x01\x07\x02\x11\x01\x04\x01\x10\x05\x08\x01\x01\x06\x02\x11\x01\x04\x01\x18\x05\x08\x28\x11\x01\x2a\x07applied\x2b\x13vouched by the host" +
	"\x30D\x01B\x01\x01\x02#1@1\x03\x01\x01\x04 3\x06append\x64h"

const (
	least  = 4           // bytes that a copy is of, at least
	most   = least + 127 // and at most
	run    = 128         // bytes as they are after one head, at most
	isCopy = 0x80        // set in the head of a copy
	places = 1 << 11     // of the table of what was seen
)

// denseMost is the length of the longest body.
const denseMost = 4 << 20

// wordsSeen has the places of words: each body begins with a copy of it.
var wordsSeen = func() (seen [places]uint32) {
	for i := 0; i+least <= len(words); i++ {
		seen[placeOf([]byte(words[i:]))] = uint32(i + 1)
	}
	return seen
}()

// placeOf is the place of four bytes.
func placeOf(b []byte) uint32 {
	return binary.LittleEndian.Uint32(b) * 2654435761 >> (32 - 11)
}

// DenseWriter makes dense forms in memory of its own.
type DenseWriter struct {
	seen [places]uint32 // by placeOf: place in text, from 1
	text []byte         // words and the front of the body
	out  []byte
}

// Form is the dense form of a body, borrowed until the next call. The last bytes of the body stay
// as they are. Tried: to note the places that a body takes and to give those back, instead of a
// copy of all of wordsSeen: noting took longer.
func (d *DenseWriter) Form(body []byte, last int) []byte {
	front := body[:len(body)-last]
	d.seen = wordsSeen
	d.text = append(append(d.text[:0], words...), front...)
	const heads = 2 * binary.MaxVarintLen32
	d.out = append(d.out[:0], make([]byte, heads)...)
	d.front()
	var head [heads]byte
	n := binary.PutUvarint(head[:], uint64(len(front)))
	n += binary.PutUvarint(head[n:], uint64(len(d.out)-heads))
	copy(d.out[heads-n:], head[:n])
	d.out = append(d.out, body[len(front):]...)
	return d.out[heads-n:]
}

// front appends the dense form of what follows words in text. Where nothing was found for long it
// looks at fewer places: digests are random.
func (d *DenseWriter) front() {
	text, from, missed := d.text, len(words), 0
	for at := from; at+least <= len(text); {
		place := &d.seen[placeOf(text[at:])]
		back := int(*place) - 1
		*place = uint32(at + 1)
		if back < 0 || binary.LittleEndian.Uint32(text[back:]) != binary.LittleEndian.Uint32(text[at:]) {
			missed++
			at += 1 + missed>>5
			continue
		}
		missed = 0
		for at > from && back > 0 && text[at-1] == text[back-1] {
			at, back = at-1, back-1
		}
		n := least + commonBytes(text[back+least:], text[at+least:])
		d.asItIs(text[from:at])
		d.copies(n, at-back)
		at += n
		from = at
	}
	d.asItIs(text[from:])
}

// commonBytes counts the bytes that a and b begin with; b is the shorter one.
func commonBytes(a, b []byte) (n int) {
	for ; n+8 <= len(b); n += 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
	}
	for n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (d *DenseWriter) asItIs(b []byte) {
	for len(b) > 0 {
		n := min(len(b), run)
		d.out = append(append(d.out, byte(n-1)), b[:n]...)
		b = b[n:]
	}
}

// copies appends a copy of n bytes. A remainder too short for a copy of its own is left to the one
// before it.
func (d *DenseWriter) copies(n, back int) {
	for n > 0 {
		k := min(n, most)
		if left := n - k; left > 0 && left < least {
			k -= least
		}
		d.out = binary.AppendUvarint(append(d.out, byte(isCopy|(k-least))), uint64(back))
		n -= k
	}
}

var errDense = fmt.Errorf("%w: the dense form of a leaf", ErrMalformed)

// FromDense returns the body of a dense form. Lengths are compared before anything is made.
func FromDense(b []byte) ([]byte, error) {
	front, n := binary.Uvarint(b)
	if n <= 0 || front > denseMost {
		return nil, errDense
	}
	size, k := binary.Uvarint(b[n:])
	if k <= 0 || size > uint64(len(b)-n-k) {
		return nil, errDense
	}
	dense, rest := b[n+k:n+k+int(size)], b[n+k+int(size):]
	if front > size*most || front+uint64(len(rest)) > denseMost {
		return nil, errDense
	}
	before := len(words)
	whole := before + int(front)
	out := append(make([]byte, 0, whole+len(rest)), words...)
	for len(dense) > 0 {
		head := dense[0]
		dense = dense[1:]
		if head < isCopy {
			k := int(head) + 1
			if k > len(dense) || len(out)+k > whole {
				return nil, errDense
			}
			out, dense = append(out, dense[:k]...), dense[k:]
			continue
		}
		back, k := binary.Uvarint(dense)
		n := int(head&^isCopy) + least
		if k <= 0 || back == 0 || back > uint64(len(out)) || len(out)+n > whole {
			return nil, errDense
		}
		dense = dense[k:]
		for from := len(out) - int(back); n > 0; { // what is copied may reach into what it makes
			step := min(n, len(out)-from)
			out = append(out, out[from:from+step]...)
			n -= step
		}
	}
	if len(out) != whole {
		return nil, errDense
	}
	return append(out, rest...)[before:], nil
}
