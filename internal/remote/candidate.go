package remote

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"reflect"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// A list of candidates is one byte string. A search answers with hundreds, and most have the scope, the kind and so on of the one
// before; a record for each took longer to write and to read than the rest of an assembly's calls.
//
//	bytes of all texts · the texts · number of rows · rows
//
// A row is four bytes, little-endian, with a bit for each field that differs from the row before (in the first: from zero), lowest
// first in the order of rowWriter.row; then those fields:
//
//	number     its distance from that of the row before
//	Lexical    its Num as its distance from Key.Num
//	fraction   eight bytes, big-endian; a Cosine that is there always has its bit, and a byte of 1 before it; a byte of 0 stands for nil
//	text       its length; all texts come before the rows
//	flag       nothing
//
// Lengths are uvarints and distances varints. PROTOCOL.md has the order of the fields.

var candidatesType = reflect.TypeFor[[]store.Candidate]()

// rowWriter writes rows.
type rowWriter struct {
	mask        uint32
	rows, texts []byte
}

// putCandidates writes a list.
func putCandidates(e *writer, list []store.Candidate) {
	w := rowWriter{rows: e.record.B[:0], texts: e.texts[:0]}
	last := &store.Candidate{}
	for i := range list {
		c := &list[i]
		at := len(w.rows)
		w.rows, w.mask = append(w.rows, 0, 0, 0, 0), 0
		w.row(c, last)
		binary.LittleEndian.PutUint32(w.rows[at:], w.mask)
		last = c
	}
	e.record.B, e.texts = w.rows, w.texts
	var head [2][binary.MaxVarintLen64]byte
	texts, count := head[0][:binary.PutUvarint(head[0][:], uint64(len(w.texts)))], head[1][:binary.PutUvarint(head[1][:], uint64(len(list)))]
	e.bytes(texts, w.texts, count, w.rows)
}

// row writes the fields in which c differs from last.
func (w *rowWriter) row(c, last *store.Candidate) {
	putNumber(w, 0, c.Key.Num, last.Key.Num)
	putNumber(w, 1, c.Key.Version, last.Key.Version)
	w.text(2, c.Ref.Scope, last.Ref.Scope)
	w.text(3, c.Ref.ID, last.Ref.ID)
	putNumber(w, 4, c.Ref.Page, last.Ref.Page)
	putNumber(w, 5, c.Ref.Version, last.Ref.Version)
	putNumber(w, 6, c.Kind, last.Kind)
	putNumber(w, 7, c.Provenance, last.Provenance)
	putNumber(w, 8, c.AsOf, last.AsOf)
	putNumber(w, 9, c.Tokens, last.Tokens)
	putNumber(w, 10, c.Pages, last.Pages)
	w.flag(11, c.Pinned, last.Pinned)
	w.flag(12, c.Recent, last.Recent)
	putNumber(w, 13, c.Group, last.Group)
	w.text(14, c.GroupName, last.GroupName)
	putNumber(w, 15, c.Seq, last.Seq)
	h, was := &c.Lexical, &last.Lexical
	putNumber(w, 16, h.Num-c.Key.Num, was.Num-last.Key.Num)
	w.float(17, h.Score, was.Score)
	w.float(18, h.Own, was.Own)
	w.float(19, h.Near, was.Near)
	w.float(20, h.Group, was.Group)
	w.float(21, h.Speaker, was.Speaker)
	w.float(22, h.Date, was.Date)
	w.float(23, h.First, was.First)
	w.float(24, h.Forms, was.Forms)
	w.float(25, h.Level, was.Level)
	putNumber(w, 26, h.Via, was.Via)
	w.flag(27, c.Near, last.Near)
	w.cosine(28, c.Cosine, last.Cosine)
	w.float(29, c.Beside, last.Beside)
	w.text(30, c.Excluded, last.Excluded)
	putNumber(w, 31, h.Has, was.Has)
}

type numeric interface {
	~int | ~int64 | ~uint8 | ~uint32 | ~uint64
}

func putNumber[N numeric](w *rowWriter, bit int, v, last N) {
	if v != last {
		w.distance(bit, int64(v)-int64(last))
	}
}

func (w *rowWriter) distance(bit int, d int64) {
	w.mask |= 1 << bit
	w.rows = binary.AppendVarint(w.rows, d)
}

func (w *rowWriter) flag(bit int, v, last bool) {
	if v != last {
		w.mask |= 1 << bit
	}
}

func (w *rowWriter) float(bit int, v, last float64) {
	if v != last {
		w.mask |= 1 << bit
		w.rows = binary.BigEndian.AppendUint64(w.rows, math.Float64bits(v))
	}
}

func (w *rowWriter) cosine(bit int, v, last *float64) {
	switch {
	case v != nil:
		w.mask |= 1 << bit
		w.rows = binary.BigEndian.AppendUint64(append(w.rows, 1), math.Float64bits(*v))
	case last != nil:
		w.mask |= 1 << bit
		w.rows = append(w.rows, 0)
	}
}

func (w *rowWriter) text(bit int, v, last string) {
	if v != last {
		w.mask |= 1 << bit
		w.rows = binary.AppendUvarint(w.rows, uint64(len(v)))
		w.texts = append(w.texts, v...)
	}
}

// rowReader reads rows. It counts what it has read: to cut it off would be a write barrier for each field.
type rowReader struct {
	b     []byte
	texts string
	at    int // in b
	text  int // in texts
	bad   bool
}

// errRows means that a list of candidates is not what putCandidates writes.
var errRows = errors.New("a list of candidates is malformed")

// getCandidates reads a list. All texts are one string in memory.
func getCandidates(d *reader) ([]store.Candidate, error) {
	b, err := d.borrow()
	if err != nil {
		return nil, err
	}
	head := codec.Decoder{B: b}
	r := rowReader{texts: head.Str()}
	n := head.Count(4)
	r.b = head.B
	out := d.candidates(n)
	for i := range n {
		if i > 0 {
			out = append(out, out[i-1])
		}
		if r.row(&out[i]); r.bad {
			break
		}
	}
	if head.Err != nil || r.bad || r.at < len(r.b) || r.text < len(r.texts) {
		return nil, errRows
	}
	return out, nil
}

// candidates is memory for a list of n, of which the first is zero. What was announced is not taken for granted.
func (r *reader) candidates(n int) []store.Candidate {
	room := r.room
	r.room = nil
	if most := min(n, atOnce); cap(room) < most || most == 0 {
		return make([]store.Candidate, min(n, 1), most)
	}
	room = room[:1]
	clear(room)
	return room
}

// row reads a row. c has the fields of the previous row.
func (r *rowReader) row(c *store.Candidate) {
	mask, lexical := uint32(0), c.Lexical.Num-c.Key.Num
	if b := r.take(4); b != nil {
		mask = binary.LittleEndian.Uint32(b)
	}
	h := &c.Lexical
	scores := [...]*float64{&h.Score, &h.Own, &h.Near, &h.Group, &h.Speaker, &h.Date, &h.First, &h.Forms, &h.Level}
	for ; mask != 0 && !r.bad; mask &= mask - 1 {
		switch bit := bits.TrailingZeros32(mask); {
		case bit < 16:
			r.field(c, bit)
		case bit == 16:
			getNumber(r, &lexical)
		case bit < 26:
			r.float(scores[bit-17])
		case bit == 26:
			getNumber(r, &h.Via)
		case bit == 27:
			c.Near = !c.Near
		case bit == 28:
			r.cosine(&c.Cosine)
		case bit == 29:
			r.float(&c.Beside)
		case bit == 30:
			r.string(&c.Excluded)
		default:
			getNumber(r, &h.Has)
		}
	}
	h.Num = c.Key.Num + lexical
}

// field reads one of the first fields.
func (r *rowReader) field(c *store.Candidate, bit int) {
	switch bit {
	case 0:
		getNumber(r, &c.Key.Num)
	case 1:
		getNumber(r, &c.Key.Version)
	case 2:
		r.string(&c.Ref.Scope)
	case 3:
		r.string(&c.Ref.ID)
	case 4:
		getNumber(r, &c.Ref.Page)
	case 5:
		getNumber(r, &c.Ref.Version)
	case 6:
		getNumber(r, &c.Kind)
	case 7:
		getNumber(r, &c.Provenance)
	case 8:
		getNumber(r, &c.AsOf)
	case 9:
		getNumber(r, &c.Tokens)
	case 10:
		getNumber(r, &c.Pages)
	case 11:
		c.Pinned = !c.Pinned
	case 12:
		c.Recent = !c.Recent
	case 13:
		getNumber(r, &c.Group)
	case 14:
		r.string(&c.GroupName)
	case 15:
		getNumber(r, &c.Seq)
	}
}

// take returns the next bytes; nil: there are fewer.
func (r *rowReader) take(n int) []byte {
	if r.at+n > len(r.b) {
		r.bad = true
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

// getNumber adds a distance, unless the sum does not fit.
func getNumber[N numeric](r *rowReader, to *N) {
	d, n := binary.Varint(r.b[r.at:])
	v := int64(*to) + d
	if n <= 0 || int64(N(v)) != v {
		r.bad = true
		return
	}
	*to = N(v)
	r.at += n
}

// float reads a number that can be compared.
func (r *rowReader) float(to *float64) {
	if b := r.take(8); b != nil {
		*to = math.Float64frombits(binary.BigEndian.Uint64(b))
		r.bad = math.IsNaN(*to) || math.IsInf(*to, 0)
	}
}

func (r *rowReader) cosine(to **float64) {
	b := r.take(1)
	switch {
	case b == nil:
	case b[0] == 0:
		*to = nil
	case b[0] == 1:
		*to = new(float64)
		r.float(*to)
	default:
		r.bad = true
	}
}

func (r *rowReader) string(to *string) {
	n, k := binary.Uvarint(r.b[r.at:])
	if k <= 0 || n > uint64(len(r.texts)-r.text) {
		r.bad = true
		return
	}
	*to = r.texts[r.text : r.text+int(n)]
	r.text += int(n)
	r.at += k
}
