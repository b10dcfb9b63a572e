package format

import (
	"fmt"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// Commit is the body of a C record: what a redo needs, and the audit leaf in the same frame, so
// that a crash cannot part them. Built, and the heads and analyses below, are what its maker had in
// hand; they are not written.
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
	e.I64(c.At)
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
	c.At = d.I64()
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

// TextBytes is how long the new texts of a commit are.
func (c *Commit) TextBytes() (n int) {
	for i := range c.Heads {
		for _, t := range c.Heads[i].Texts {
			n += len(t.Text)
		}
	}
	return n
}
