package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// Commit is the body of a C record: what a redo needs, and the audit leaf in the same frame, so
// that a crash cannot separate them. Built, and the heads and analyses below, are not written.
type Commit struct {
	LSN    uint64
	Leaf   uint64 // index of the leaf
	Batch  ulid.ULID
	At     int64
	Scopes []NewScope
	Groups []NewGroup
	Heads  []HeadRecord
	State  []store.StateRow
	Salts  []byte // of the digests of State, in the leaf
	Held   []byte // encoded HeldBatch to store, nil: none
	HeldID ulid.ULID
	Result []byte         // encoded Outcome
	Body   []byte         // the leaf
	Built  *lexical.Built // the texts, for the index; nil: each has its analysis
}

// NewScope is a scope that the commit wrote to first.
type NewScope struct {
	Num  uint32
	Name string
}

// NewGroup is a group that the commit named first.
type NewGroup struct {
	Num   uint64
	Scope uint32
	Name  string
}

// HeadRecord is a head row with the texts of the pages that are new in it.
type HeadRecord struct {
	Row   []byte
	Texts []PageText
	Head  *store.Head // decoded, or what the row was made of
}

// PageText is the text of a new page.
type PageText struct {
	Num      uint64
	Text     string
	Analysis *lexical.Analysis // nil when it came from the log: then it is made again
}

// commitVersion is the first byte of a C record.
const commitVersion = 1

// CheckCommitVersion refuses a C record by its first byte.
func CheckCommitVersion(v uint8) error {
	switch {
	case v > commitVersion:
		return fmt.Errorf("%w: commit record of version %d, this program reads up to %d", codec.ErrNewer, v, commitVersion)
	case v < commitVersion:
		return fmt.Errorf("%w: commit record of version %d, expected %d", codec.ErrMalformed, v, commitVersion)
	}
	return nil
}

// Encode appends the record to b.
func (c *Commit) Encode(b []byte) []byte {
	e := codec.Encoder{B: b}
	e.U8(commitVersion)
	e.U64(c.Leaf)
	e.Bytes(c.Body)
	e.U64(c.LSN)
	e.Raw(c.Batch[:])
	e.U64(uint64(c.At))
	e.Count(len(c.Scopes))
	for _, s := range c.Scopes {
		e.U32(s.Num)
		e.Str(s.Name)
	}
	e.Count(len(c.Groups))
	for _, g := range c.Groups {
		e.U64(g.Num)
		e.U32(g.Scope)
		e.Str(g.Name)
	}
	e.Count(len(c.Heads))
	for i := range c.Heads {
		h := &c.Heads[i]
		e.Bytes(h.Row)
		size := 0
		for _, t := range h.Texts {
			size += len(t.Text) + 16
		}
		e.B = slices.Grow(e.B, size)
		e.Count(len(h.Texts))
		for _, t := range h.Texts {
			e.U64(t.Num)
			e.Str(t.Text)
		}
	}
	size := 0 // a pass over a session may bring thousands of rows
	for _, s := range c.State {
		size += len(s.Key) + len(s.Value) + 16 + store.DigestSaltSize
	}
	e.B = slices.Grow(e.B, size)
	e.Count(len(c.State))
	for i, s := range c.State {
		e.Str(s.Key)
		if s.Value == nil {
			e.U8(0)
			continue
		}
		e.U8(1)
		e.Raw(c.Salt(i))
		e.Bytes(s.Value)
	}
	e.Raw(c.HeldID[:])
	e.Bytes(c.Held)
	e.Bytes(c.Result)
	return e.B
}

// CommitStart reads the beginning of a C record: its leaf and its LSN. The body is borrowed.
func CommitStart(b []byte) (leaf uint64, body []byte, lsn uint64, err error) {
	d := codec.Decoder{B: b}
	if err := CheckCommitVersion(d.U8()); err != nil {
		return 0, nil, 0, err
	}
	leaf, body, lsn = d.U64(), d.Bytes(), d.U64()
	return leaf, body, lsn, d.Err
}

// DecodeCommit reads a C record. Slices are copied: the log's buffer is borrowed.
func DecodeCommit(b []byte) (*Commit, error) {
	d := codec.Decoder{B: b}
	if err := CheckCommitVersion(d.U8()); err != nil {
		return nil, err
	}
	c := &Commit{Leaf: d.U64(), Body: d.Own(), LSN: d.U64()}
	copy(c.Batch[:], d.Take(16))
	c.At = int64(d.U64())
	for range d.Count(5) {
		c.Scopes = append(c.Scopes, NewScope{d.U32(), d.Str()})
	}
	for range d.Count(13) {
		c.Groups = append(c.Groups, NewGroup{d.U64(), d.U32(), d.Str()})
	}
	for range d.Count(2) {
		h := HeadRecord{Row: d.Own()}
		for range d.Count(9) {
			h.Texts = append(h.Texts, PageText{Num: d.U64(), Text: d.Str()})
		}
		c.Heads = append(c.Heads, h)
	}
	rows := d.Count(2)
	if rows > 0 {
		c.Salts = make([]byte, rows*store.DigestSaltSize)
	}
	for i := range rows {
		s := store.StateRow{Key: d.Str()}
		switch d.U8() {
		case 0:
		case 1:
			copy(c.Salt(i), d.Take(store.DigestSaltSize))
			s.Value = d.Own()
		default:
			d.Fail()
		}
		c.State = append(c.State, s)
	}
	copy(c.HeldID[:], d.Take(16))
	c.Held, c.Result = d.Own(), d.Own()
	return c, d.Done()
}

// Salt is the salt of state row i.
func (c *Commit) Salt(i int) []byte {
	return c.Salts[i*store.DigestSaltSize : (i+1)*store.DigestSaltSize]
}

// StateProof is the place of state row i in the audit.
func (c *Commit) StateProof(i int) (p Proof) {
	copy(p.Salt[:], c.Salt(i))
	p.Leaf, p.Place = c.Leaf, uint32(i)
	return p
}

// Frees reports whether a record only removes data: deletes and what gc drops must succeed on a full
// disk.
func (c *Commit) Frees() bool {
	keeps := func(h HeadRecord) bool { return !h.Head.Deleted && !h.Head.Gone && !h.Head.Forgotten && !h.Head.Floor }
	sets := func(r store.StateRow) bool { return r.Value != nil }
	return len(c.Heads)+len(c.State) > 0 && len(c.Held) == 0 && !slices.ContainsFunc(c.Heads, keeps) && !slices.ContainsFunc(c.State, sets)
}

// TextBytes is the length of the new texts of a commit.
func (c *Commit) TextBytes() (n int) {
	for i := range c.Heads {
		for _, t := range c.Heads[i].Texts {
			n += len(t.Text)
		}
	}
	return n
}

// OutcomeRow is an outcome as the record of its commit and the rows have it. Bound is the digest of the batch's content
// (Batch.Bound): an id is no secret, so a caller that repeats it must also repeat the batch to learn how it ended.
type OutcomeRow struct {
	store.Outcome
	Bound   []byte
	Unknown []byte // fields of a later release
}

// outcomeVersion is the first byte of the row.
const outcomeVersion = 1

var outcomeRowFields = codec.Record[OutcomeRow]{
	Name: "the row of an outcome", Unknown: func(r *OutcomeRow) *[]byte { return &r.Unknown },
	Fields: []codec.Field[OutcomeRow]{
		codec.Inner(1, "Outcome", &outcomeFields, func(r *OutcomeRow) *store.Outcome { return &r.Outcome }),
		codec.Blob(2, "Bound", func(r *OutcomeRow) *[]byte { return &r.Bound }),
	},
}

// Encode makes the row; its unknown fields stay in it.
func (r *OutcomeRow) Encode() []byte {
	return codec.Row(&outcomeRowFields, outcomeVersion, r, 64+32*len(r.Refs))
}

// DecodeOutcome reads the row of an outcome.
func DecodeOutcome(row []byte) (r OutcomeRow, err error) {
	err = codec.ReadRow(&outcomeRowFields, row, outcomeVersion, &r)
	return r, err
}

// The row of a held batch: version · fields · proof.

// heldVersion is the version of the row. A higher one is refused.
const heldVersion = 1

// EncodeHeld makes the row of a held batch, without its proof.
func EncodeHeld(h *store.HeldBatch) []byte {
	e := codec.Encoder{B: []byte{heldVersion}}
	heldFields.Append(&e, h)
	return e.B
}

// DecodeHeld decodes the row of a held batch without comparing it with the audit.
func DecodeHeld(row []byte) (h store.HeldBatch, err error) {
	return readHeld(row, &heldFields)
}

// HeldState reads what a list needs to know of a held batch that it may not show, the scope and
// whether it is decided: reading the drafts takes much longer.
func HeldState(row []byte) (h store.HeldBatch, err error) {
	return readHeld(row, heldStateFields)
}

var heldStateFields = func() *codec.Record[store.HeldBatch] {
	r := codec.Only(&heldFields, "Decided", "LSN", "Outcome")
	r.Fields[0] = codec.Inner(1, "Batch", codec.Only(&batchFields, "Scope"), func(h *store.HeldBatch) *store.Batch { return &h.Batch })
	return r
}()

// readHeld reads version and fields of the row of a held batch, or the few that fields
// lists.
func readHeld(row []byte, fields *codec.Record[store.HeldBatch]) (h store.HeldBatch, err error) {
	rest, _, err := CutProof(row)
	if err != nil {
		return h, err
	}
	d := codec.Decoder{B: rest}
	switch v := d.U8(); {
	case v == 0:
		return h, codec.ErrMalformed
	case v > heldVersion:
		return h, fmt.Errorf("%w: held batch of version %d, this program reads up to %d", codec.ErrNewer, v, heldVersion)
	}
	fields.Read(&d, &h)
	return h, d.Err
}

// HeldDigest covers the row of a held batch and its id.
func HeldDigest(salt, id, row []byte) [32]byte {
	return store.SaltedMAC(salt, func(b []byte) []byte {
		e := codec.Encoder{B: b}
		e.Str("held")
		e.Bytes(id)
		e.Raw(row)
		return e.B
	})
}

// ReviewGonePrefix begins the keys of state rows, always without a value, that delete a held batch.
const ReviewGonePrefix = "\x00held/"

// GoneReview is the batch that a state row deletes.
func GoneReview(key string) (id ulid.ULID, ok bool) {
	rest, ok := strings.CutPrefix(key, ReviewGonePrefix)
	if !ok || len(rest) != len(id) {
		return id, false
	}
	return ulid.ULID([]byte(rest)), true
}

// questionBit is set in the leaf index of a record that carries a question.
const questionBit = 1 << 63

// QuestionGonePrefix begins the keys of state rows, always without a value, that erase a question.
const QuestionGonePrefix = "\x00question/"

// QuestionKey is the key of the question of a leaf.
func QuestionKey(leaf uint64) []byte { return binary.BigEndian.AppendUint64(nil, leaf) }

// QuestionDigest is the digest of a question in its leaf.
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

// StateEntered reports whether the entry of a leaf belongs to a row: its second part, the MAC.
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
