package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// questionBit is set in the leaf index of a record that carries a question.
const questionBit = 1 << 63

// QuestionGonePrefix begins the keys of state rows, always without a value, that erase a question.
const QuestionGonePrefix = "\x00question/"

// QuestionKey is the key of the question of a leaf.
func QuestionKey(leaf uint64) []byte { return binary.BigEndian.AppendUint64(nil, leaf) }

// QuestionDigest is what a leaf has of the text of a question.
func QuestionDigest(salt []byte, text string) [32]byte {
	return store.SaltedMAC(salt, func(b []byte) []byte {
		e := codec.Encoder{B: b}
		e.Str("question")
		e.Str(text)
		return e.B
	})
}

// AppendAuditBody appends the beginning of the body of an A record: the index of the leaf, and the
// row of its question if it has one. The leaf follows.
func AppendAuditBody(b []byte, index uint64, question []byte) []byte {
	if question == nil {
		return binary.BigEndian.AppendUint64(b, index)
	}
	e := codec.Encoder{B: b}
	e.U64(index | questionBit)
	e.Bytes(question)
	return e.B
}

// DecodeLeaf reads the body of an A record; question is nil where it has none. All of it is
// borrowed.
func DecodeLeaf(b []byte) (index uint64, leaf, question []byte, err error) {
	d := codec.Decoder{B: b}
	if index = d.U64(); index&questionBit != 0 {
		index &^= questionBit
		question = d.Bytes()
	}
	return index, d.B, question, d.Err
}

// ErasedQuestion reports whether a C record erases the question of a leaf.
func ErasedQuestion(body []byte, leaf uint64) (bool, error) {
	key := QuestionGonePrefix + string(QuestionKey(leaf))
	if !bytes.Contains(body, []byte(key)) { // decoding every commit of a log takes long
		return false, nil
	}
	c, err := DecodeCommit(body)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(c.State, func(r store.StateRow) bool { return r.Key == key }), nil
}

// GoneQuestion is the leaf whose question a state row erases.
func GoneQuestion(key string) (leaf uint64, ok bool) {
	id, ok := strings.CutPrefix(key, QuestionGonePrefix)
	if !ok || len(id) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64([]byte(id)), true
}

var errQuestion = errors.New("it is not the text that was asked: the audit has another digest of it")

// QuestionOf is the text in a row, if it has the digest that its leaf says.
func QuestionOf(r *manifest.Record, row []byte) (string, error) {
	if len(row) < store.DigestSaltSize {
		return "", codec.ErrMalformed
	}
	salt, text := row[:store.DigestSaltSize], string(row[store.DigestSaltSize:])
	if d := QuestionDigest(salt, text); !r.QuestionKept || !bytes.Equal(d[:], r.Query) {
		return "", errQuestion
	}
	return text, nil
}
