package remote

import (
	"encoding/binary"
	"io"
	"math"
	"reflect"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// candidateFields are the fields of a candidate and of the structs in it. A search answers with
// hundreds; reflection took more time than the search.
var candidateFields = codec.Record[store.Candidate]{Name: "a candidate", Fields: []codec.Field[store.Candidate]{
	codec.Uint(1, "Key.Num", func(c *store.Candidate) *uint64 { return &c.Key.Num }),
	codec.Uint(2, "Key.Version", func(c *store.Candidate) *uint32 { return &c.Key.Version }),
	codec.Text(3, "Ref.Scope", func(c *store.Candidate) *string { return &c.Ref.Scope }),
	codec.Text(4, "Ref.ID", func(c *store.Candidate) *string { return &c.Ref.ID }),
	codec.Int(5, "Ref.Page", func(c *store.Candidate) *int { return &c.Ref.Page }),
	codec.Uint(6, "Ref.Version", func(c *store.Candidate) *uint32 { return &c.Ref.Version }),
	codec.Uint(7, "Kind", func(c *store.Candidate) *store.Kind { return &c.Kind }),
	codec.Uint(8, "Provenance", func(c *store.Candidate) *store.Provenance { return &c.Provenance }),
	codec.Int(9, "AsOf", func(c *store.Candidate) *int64 { return &c.AsOf }),
	codec.Int(10, "Tokens", func(c *store.Candidate) *int { return &c.Tokens }),
	codec.Int(11, "Pages", func(c *store.Candidate) *int { return &c.Pages }),
	codec.Flag(12, "Pinned", func(c *store.Candidate) *bool { return &c.Pinned }),
	codec.Flag(13, "Recent", func(c *store.Candidate) *bool { return &c.Recent }),
	codec.Uint(14, "Group", func(c *store.Candidate) *uint64 { return &c.Group }),
	codec.Text(15, "GroupName", func(c *store.Candidate) *string { return &c.GroupName }),
	codec.Int(16, "Seq", func(c *store.Candidate) *int64 { return &c.Seq }),
	codec.Uint(17, "Lexical.Num", func(c *store.Candidate) *uint64 { return &c.Lexical.Num }),
	codec.Float(18, "Lexical.Score", func(c *store.Candidate) *float64 { return &c.Lexical.Score }),
	codec.Float(19, "Lexical.Own", func(c *store.Candidate) *float64 { return &c.Lexical.Own }),
	codec.Float(20, "Lexical.Near", func(c *store.Candidate) *float64 { return &c.Lexical.Near }),
	codec.Float(21, "Lexical.Group", func(c *store.Candidate) *float64 { return &c.Lexical.Group }),
	codec.Float(22, "Lexical.Speaker", func(c *store.Candidate) *float64 { return &c.Lexical.Speaker }),
	codec.Float(23, "Lexical.Date", func(c *store.Candidate) *float64 { return &c.Lexical.Date }),
	codec.Float(24, "Lexical.First", func(c *store.Candidate) *float64 { return &c.Lexical.First }),
	codec.Float(25, "Lexical.Forms", func(c *store.Candidate) *float64 { return &c.Lexical.Forms }),
	codec.Float(26, "Lexical.Level", func(c *store.Candidate) *float64 { return &c.Lexical.Level }),
	codec.Uint(27, "Lexical.Via", func(c *store.Candidate) *uint64 { return &c.Lexical.Via }),
	codec.Flag(28, "Near", func(c *store.Candidate) *bool { return &c.Near }),
	codec.OptFloat(29, "Cosine", func(c *store.Candidate) **float64 { return &c.Cosine }),
	codec.Float(30, "Beside", func(c *store.Candidate) *float64 { return &c.Beside }),
	codec.Text(31, "Excluded", func(c *store.Candidate) *string { return &c.Excluded }),
	codec.Uint(32, "Lexical.Has", func(c *store.Candidate) *uint32 { return &c.Lexical.Has }),
}}

var candidateRecord = recordOf(candidateFields.Append, candidateFields.Read)

// putCandidates writes the elements of a list of candidates, as candidateFields does, without a call for each of the fields that are
// zero.
func putCandidates(e *writer, list []store.Candidate) {
	for i := range list {
		e.record.B = appendCandidate(e.record.B[:0], &list[i])
		e.bytes(e.record.B)
	}
}

func appendCandidate(b []byte, c *store.Candidate) []byte {
	b = appendNumber(b, 1, c.Key.Num)
	b = appendNumber(b, 2, uint64(c.Key.Version))
	b = appendText(b, 3, c.Ref.Scope)
	b = appendText(b, 4, c.Ref.ID)
	b = appendSigned(b, 5, int64(c.Ref.Page))
	b = appendNumber(b, 6, uint64(c.Ref.Version))
	b = appendNumber(b, 7, uint64(c.Kind))
	b = appendNumber(b, 8, uint64(c.Provenance))
	b = appendSigned(b, 9, c.AsOf)
	b = appendSigned(b, 10, int64(c.Tokens))
	b = appendSigned(b, 11, int64(c.Pages))
	b = appendFlag(b, 12, c.Pinned)
	b = appendFlag(b, 13, c.Recent)
	b = appendNumber(b, 14, c.Group)
	b = appendText(b, 15, c.GroupName)
	b = appendSigned(b, 16, c.Seq)
	h := &c.Lexical
	b = appendNumber(b, 17, h.Num)
	for i, x := range [...]float64{h.Score, h.Own, h.Near, h.Group, h.Speaker, h.Date, h.First, h.Forms, h.Level} {
		b = appendFloat(b, byte(18+i), x)
	}
	b = appendNumber(b, 27, h.Via)
	b = appendFlag(b, 28, c.Near)
	if c.Cosine != nil {
		b = binary.BigEndian.AppendUint64(append(b, 29, 8), math.Float64bits(*c.Cosine))
	}
	b = appendFloat(b, 30, c.Beside)
	b = appendText(b, 31, c.Excluded)
	return appendNumber(b, 32, uint64(h.Has))
}

// appendNumber and the functions below append a field, unless it is zero.
func appendNumber(b []byte, tag byte, n uint64) []byte {
	if n == 0 {
		return b
	}
	at := len(b) + 2
	b = binary.AppendUvarint(append(b, tag, 0), n)
	b[at-1] = byte(len(b) - at)
	return b
}

func appendSigned(b []byte, tag byte, n int64) []byte {
	return appendNumber(b, tag, uint64(n)<<1^uint64(n>>63)) // as AppendVarint does
}

func appendFlag(b []byte, tag byte, is bool) []byte {
	if is {
		b = append(b, tag, 1, 1)
	}
	return b
}

func appendFloat(b []byte, tag byte, x float64) []byte {
	if x != 0 {
		b = binary.BigEndian.AppendUint64(append(b, tag, 8), math.Float64bits(x))
	}
	return b
}

func appendText(b []byte, tag byte, s string) []byte {
	if s != "" {
		b = append(binary.AppendUvarint(append(b, tag), uint64(len(s))), s...)
	}
	return b
}

// getCandidates reads the elements of a list of candidates, those in the usual form directly: by the list of fields they took longer
// than the rest of an assembly's trip.
func getCandidates(d *reader, n int) ([]store.Candidate, error) {
	out := make([]store.Candidate, 0, min(n, atOnce))
	var last store.Candidate
	for range n {
		b := d.b[len(d.b)-d.in.Len():]
		const bin8 = 0xc4 // of msgpack
		out = append(out, store.Candidate{})
		c := &out[len(out)-1]
		if len(b) > 2 && b[0] == bin8 && int(b[1]) <= len(b)-2 && readCandidate(b[2:2+b[1]], c, &last) {
			_, _ = d.in.Seek(2+int64(b[1]), io.SeekCurrent) // it is there
		} else {
			*c = store.Candidate{}
			if err := getRecord(d, candidateRecord, reflect.ValueOf(c).Elem()); err != nil {
				return nil, err
			}
		}
		last = *c
	}
	return out, nil
}

// readCandidate reads a candidate whose fields are short and known; false: candidateFields must read it. Most have the scope and
// the group of the last one.
func readCandidate(b []byte, c, last *store.Candidate) bool {
	tag, ok := byte(0), true
	for ok && len(b) > 2 && b[0] > tag && b[1] < 0x80 && int(b[1]) <= len(b)-2 && b[1] > 0 {
		v := b[2 : 2+b[1]]
		tag, b = b[0], b[2+b[1]:]
		switch tag {
		case 1:
			ok = number(v, &c.Key.Num)
		case 2:
			ok = number(v, &c.Key.Version)
		case 3:
			c.Ref.Scope = again(v, last.Ref.Scope)
		case 4:
			c.Ref.ID = string(v)
		case 5:
			ok = signed(v, &c.Ref.Page)
		case 6:
			ok = number(v, &c.Ref.Version)
		case 7:
			ok = number(v, &c.Kind)
		case 8:
			ok = number(v, &c.Provenance)
		case 9:
			ok = signed(v, &c.AsOf)
		case 10:
			ok = signed(v, &c.Tokens)
		case 11:
			ok = signed(v, &c.Pages)
		case 14:
			ok = number(v, &c.Group)
		case 15:
			c.GroupName = again(v, last.GroupName)
		case 16:
			ok = signed(v, &c.Seq)
		case 17:
			ok = number(v, &c.Lexical.Num)
		case 18:
			ok = float(v, &c.Lexical.Score)
		case 19:
			ok = float(v, &c.Lexical.Own)
		case 20:
			ok = float(v, &c.Lexical.Near)
		case 21:
			ok = float(v, &c.Lexical.Group)
		case 26:
			ok = float(v, &c.Lexical.Level)
		case 30:
			ok = float(v, &c.Beside)
		case 32:
			ok = number(v, &c.Lexical.Has)
		default:
			return false
		}
	}
	return ok && len(b) == 0
}

// number, signed and float read the whole of a value.
func number[N ~uint8 | ~uint32 | ~uint64](v []byte, to *N) bool {
	x, n := binary.Uvarint(v)
	*to = N(x)
	return n == len(v) && uint64(*to) == x
}

func signed[N ~int | ~int64](v []byte, to *N) bool {
	x, n := binary.Varint(v)
	*to = N(x)
	return n == len(v) && int64(*to) == x
}

func float(v []byte, to *float64) bool {
	if len(v) != 8 {
		return false
	}
	*to = math.Float64frombits(binary.BigEndian.Uint64(v))
	return !math.IsNaN(*to) && !math.IsInf(*to, 0)
}

// again returns v as a string, and last if that is the same.
func again(v []byte, last string) string {
	if string(v) == last {
		return last
	}
	return string(v)
}
