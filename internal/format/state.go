package format

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// TagState is the tag of the checksums of state rows.
const TagState = 'S'

const (
	StateHead = 8 + ProofSize // bytes of a body before the value
	NoLeaf    = 1<<64 - 1     // leaf of a head whose key was destroyed: it has no proof any more
)

// StateBody is a row without its checksum; nil: a row that is deleted. The value is copied: it is
// the caller's.
func StateBody(lsn uint64, p Proof, value []byte) []byte {
	if value == nil {
		return nil
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, StateHead+len(value)), lsn)
	return append(p.Append(b), value...)
}

// StateRow reads the body of a row. The value is a copy, and not nil where there is a row.
func StateRow(key string, body []byte) store.StateRow {
	if len(body) < StateHead {
		return store.StateRow{Key: key}
	}
	return store.StateRow{Key: key, Value: append([]byte{}, body[StateHead:]...), LSN: binary.BigEndian.Uint64(body)}
}

// StateProof is the place of a row in the audit.
func StateProof(body []byte) Proof {
	return readProof(body[8:])
}

// StateMAC is the second part of the entry of a row.
func StateMAC(salt []byte, lsn uint64, key, value []byte) (m [archive.StateSize - 8]byte) {
	d := store.SaltedMAC(salt, func(b []byte) []byte {
		e := codec.Encoder{B: b}
		e.Str("state")
		e.U64(lsn)
		e.Bytes(key)
		e.Raw(value)
		return e.B
	})
	return [len(m)]byte(d[:])
}

// StateEntered reports whether the entry of a leaf is that of a row: its second part, the MAC.
func StateEntered(entry [archive.StateSize]byte, key, body []byte) bool {
	p := StateProof(body)
	is := StateMAC(p.Salt[:], StateLSN(body), key, body[StateHead:])
	return is == [len(is)]byte(entry[8:])
}

// StateLSN is the LSN in the body of a row, 0 where it was deleted.
func StateLSN(body []byte) uint64 {
	if len(body) < StateHead {
		return 0
	}
	return binary.BigEndian.Uint64(body)
}

// UnsealState checks and reads a stored state row, without comparing it with the audit. The value
// is a copy.
func UnsealState(key, sealed []byte) (store.StateRow, error) {
	body, err := StateBodyOf(key, sealed)
	if err != nil {
		return store.StateRow{}, err
	}
	return StateRow(string(key), body), nil
}

// StateBodyOf returns the body of a stored row, which is borrowed if it can be.
func StateBodyOf(key, sealed []byte) ([]byte, error) {
	body, err := codec.Unseal(TagState, key, sealed)
	if err == nil && (len(body) < StateHead || StateLSN(body) == 0) {
		err = fmt.Errorf("%w: a state row without the LSN of its last change", codec.ErrMalformed)
	}
	return body, err
}

// KindOf is the registered kind of a state row, nil when there is none.
func KindOf(kinds []store.StateKind, key string) *store.StateKind {
	for i := range kinds {
		if strings.HasPrefix(key, kinds[i].Prefix) {
			return &kinds[i]
		}
	}
	return nil
}
