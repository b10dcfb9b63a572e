package bpe

import (
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"io"
	"strings"
)

// vocabulary is the rank of each token. Each byte is a token.
type vocabulary map[string]uint32

// The vocabularies are packed: gzip of the number of tokens, the length of each (both uvarint), and the tokens, in the order of their
// ranks. TestVocabulariesAreThePublished makes the files and compares them with the published ones.
var (
	//go:embed o200k_base.gz
	packedO200k string
	//go:embed cl100k_base.gz
	packedCL100k string
)

// load unpacks a vocabulary. The files are part of the program and gzip has a sum, so no error can occur. Without a vocabulary each byte
// counts as a token, and no token is shorter.
func load(packed string) vocabulary {
	unzip, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		return nil
	}
	b, err := io.ReadAll(unzip)
	if err != nil {
		return nil
	}
	n, used := binary.Uvarint(b)
	lengths, v := b[used:], make(vocabulary, n)
	ends, end := make([]int, n), 0
	for i := range ends {
		length, used := binary.Uvarint(lengths)
		end += int(length)
		ends[i], lengths = end, lengths[used:]
	}
	text, begin := string(lengths), 0
	for rank, end := range ends {
		v[text[begin:end]] = uint32(rank)
		begin = end
	}
	return v
}

// merger counts the tokens of one piece after the other.
type merger struct {
	parts []part
	queue []uint64 // the rank of a pair above the place where it begins: a binary heap, the least first
}

// part stands at the place of its first byte in the piece.
type part struct {
	prev, next int32  // where its neighbours begin
	rank       uint32 // of it and its next together, noRank where that is no token
}

const noRank = 1<<32 - 1

// count merges the pair of the least rank, of several the leftmost, until no pair is a token: n log n steps for n
// bytes, since texts are not always of those who pay for the count.
func (m *merger) count(v vocabulary, piece string) int {
	if _, ok := v[piece]; ok {
		return 1
	}
	m.parts, m.queue = m.parts[:0], m.queue[:0]
	for i := range int32(len(piece)) + 1 {
		m.parts = append(m.parts, part{prev: i - 1, next: i + 1})
	}
	for i := range int32(len(piece)) {
		m.rank(v, piece, i)
	}
	left := len(piece)
	for len(m.queue) > 0 {
		least := m.pop()
		i := int32(uint32(least))
		if m.parts[i].rank != uint32(least>>32) {
			continue // the pair is another one by now, or merged
		}
		taken := m.parts[i].next
		after := m.parts[taken].next
		m.parts[i].next, m.parts[after].prev = after, i
		m.parts[taken].rank = noRank
		left--
		m.rank(v, piece, i)
		if before := m.parts[i].prev; before >= 0 {
			m.rank(v, piece, before)
		}
	}
	return left
}

// rank looks up the part at i and the next together.
func (m *merger) rank(v vocabulary, piece string, i int32) {
	p := &m.parts[i]
	p.rank = noRank
	if int(p.next) == len(piece) {
		return
	}
	if r, ok := v[piece[i:m.parts[p.next].next]]; ok {
		p.rank = r
		m.push(uint64(r)<<32 | uint64(i))
	}
}

func (m *merger) push(e uint64) {
	m.queue = append(m.queue, e)
	q := m.queue
	for i := len(q) - 1; i > 0 && q[(i-1)/2] > q[i]; i = (i - 1) / 2 {
		q[(i-1)/2], q[i] = q[i], q[(i-1)/2]
	}
}

func (m *merger) pop() uint64 {
	q := m.queue
	least, last := q[0], len(q)-1
	q[0] = q[last]
	m.queue = q[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < last && q[c+1] < q[c] {
			c++
		}
		if c >= last || q[i] <= q[c] {
			return least
		}
		q[i], q[c] = q[c], q[i]
		i = c
	}
}
