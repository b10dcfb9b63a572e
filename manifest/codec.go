package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/internal/corrupt"
	"github.com/vmihailenco/msgpack/v5"
)

// leafVersion is the first element of every leaf. It changes only if a program
// of the old version would misread the leaf. A new field at the end does not
// change it.
const leafVersion = 1

const (
	// MaxBody is the largest leaf in bytes.
	MaxBody = 4 << 20
	// MaxPages is how many pages one leaf may name, excluded ones included, and
	// how many writes, stale pages or conflicts it may list.
	MaxPages = 1 << 16

	maxReasons = 255
)

// The bytes of a leaf: a msgpack array of elements, in the order of the table
// fields. The form may grow at the end and nowhere else.
//
//	older program, newer leaf    it skips the elements that it does not know
//	newer program, older leaf    elements that are missing are empty
//	a leaf with digests of rows  ends in them (digests.go), so it cannot have a later element
//
// Equal Records have equal bytes: there are no maps and no fractional scores.

// wire is a Record with what its bytes need beside it.
type wire struct {
	*Record // what is written, or filled in; never nil and never changed by writing
	version uint64
	flags   uint64
	reasons []string                   // distinct reasons of pages and exclusions; rows name them by place + 1
	pages   int                        // rows read so far, against MaxPages
	buf     struct{ rows, row []byte } // what rows are made in on their way into the leaf
}

// Bits of the flags element.
const (
	flagReadOnly = 1 << iota
	flagServeStale
	flagReview
	flagWrites   // Writes is not empty: the index marks such leaves without decoding them fully
	flagRows     // the leaf ends in digests of rows: the same for those
	flagQuestion // Query is the salted digest of a text that was kept beside the leaf
)

// field is one element of a leaf: whether it is empty, and how it is written
// and read.
type field struct {
	empty func(*wire) bool
	enc   func([]byte, *wire) ([]byte, error) // appends
	dec   func(*msgpack.Decoder, *wire) error
}

// fields is the leaf, element by element; FORMAT.md has the same table. Empty
// elements at the end are left off. New elements go to the end only.
var fields = [...]field{
	0:  unsigned(func(w *wire) *uint64 { return &w.version }),
	1:  small(func(w *wire) *Type { return &w.Type }, math.MaxUint8),
	2:  ident(func(w *wire) *string { return &w.Trace }),
	3:  ident(func(w *wire) *string { return &w.Parent }),
	4:  unsigned(func(w *wire) *uint64 { return &w.flags }),
	5:  signed(func(w *wire) *int64 { return &w.Time }),
	6:  text(func(w *wire) *string { return &w.Scope }),
	7:  text(func(w *wire) *string { return &w.Actor }),
	8:  unsigned(func(w *wire) *uint64 { return &w.LSN }),
	9:  list(func(w *wire) *[]string { return &w.reasons }, encString, decString),
	10: {emptyPages, encPages, decPages},
	11: list(func(w *wire) *[]Exclusion { return &w.Excluded }, encExclusion, decExclusion),
	12: digest(func(w *wire) *Digest { return &w.Query }),
	13: text(func(w *wire) *string { return &w.Session }),
	14: signed(func(w *wire) *int64 { return &w.AsOf }),
	15: count(func(w *wire) *int { return &w.Budget }),
	16: count(func(w *wire) *int { return &w.Reserve }),
	17: count(func(w *wire) *int { return &w.Tokens }),
	18: count(func(w *wire) *int { return &w.Tier }),
	19: text(func(w *wire) *string { return &w.Overflow }),
	20: text(func(w *wire) *string { return &w.Preset }),
	21: text(func(w *wire) *string { return &w.Counter }),
	22: count(func(w *wire) *int { return &w.Renderer }),
	23: text(func(w *wire) *string { return &w.Shape }),
	24: digest(func(w *wire) *Digest { return &w.Rendered }),
	25: ident(func(w *wire) *string { return &w.Batch }),
	26: ident(func(w *wire) *string { return &w.From }),
	27: text(func(w *wire) *string { return &w.Status }),
	28: text(func(w *wire) *string { return &w.Reason }),
	29: float(func(w *wire) *float64 { return &w.Confidence }),
	30: float(func(w *wire) *float64 { return &w.Gate }),
	31: text(func(w *wire) *string { return &w.By }),
	32: text(func(w *wire) *string { return &w.Evaluator }),
	33: text(func(w *wire) *string { return &w.Note }),
	34: list(func(w *wire) *[]Write { return &w.Writes }, encWrite, decWrite),
	35: list(func(w *wire) *[]Stale { return &w.Stale }, encStale, decStale),
	36: list(func(w *wire) *[]Conflict { return &w.Conflicts }, encConflict, decConflict),
	37: text(func(w *wire) *string { return &w.Action }),
	38: unsigned(func(w *wire) *uint64 { return &w.Cut }),
	39: unsigned(func(w *wire) *uint64 { return &w.Lost }),
	40: unsigned(func(w *wire) *uint64 { return &w.Size }),
	41: digest(func(w *wire) *Digest { return &w.Root }),
	42: text(func(w *wire) *string { return &w.Embedder }),
	43: {emptyRows, encRows, decRows},                    // the end of every leaf that has it: see leafEnd
	44: text(func(w *wire) *string { return &w.Filter }), // of reads, which have no rows
	45: {emptyCovers, encCovers, decCovers},              // of prunes, likewise
	46: {emptyPruned, encPruned, decPruned},              // never in a file: what a program tells another of a stub
}

// peekFields is how many elements the index row is made from.
const peekFields = 5

// Encode returns the bytes of a leaf. The same Record always gives the same
// bytes; Index is not among them. It refuses an unknown Type, a negative count,
// a form or tag out of range, ranges that do not ascend, and a leaf over
// MaxBody or MaxPages.
func Encode(r *Record) ([]byte, error) {
	enc := encodings.Get().(*encoding)
	defer enc.release()
	out, err := enc.encode(r)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(out), nil // a leaf stays in memory until it is archived: no byte more than it has
}

// encode returns the bytes of a leaf, borrowed until the next call.
func (enc *encoding) encode(r *Record) ([]byte, error) {
	if !r.Type.Known() {
		return nil, fmt.Errorf("manifest: leaf without a known type (%d)", r.Type)
	}
	w := &enc.wire
	w.Record, w.version, w.flags, w.reasons = r, leafVersion, flagsOf(r), reasonsOf(r)
	if len(w.reasons) > maxReasons {
		return nil, fmt.Errorf("manifest: %d different reasons in one leaf; a reason is one of a few short codes", len(w.reasons))
	}
	out, err := w.append(enc.out[:0])
	if err != nil {
		return nil, err
	}
	enc.out = out
	if len(out) > MaxBody {
		return nil, fmt.Errorf("manifest: %s leaf of %d bytes; the limit is %d: split the call", r.Type, len(out), MaxBody)
	}
	return out, nil
}

// append appends the elements, those of most reads without the table.
func (w *wire) append(out []byte) ([]byte, error) {
	if w.served() {
		return w.appendServed(out)
	}
	return w.appendFields(out)
}

// appendFields appends the elements by the table, without the empty ones at the end.
func (w *wire) appendFields(out []byte) ([]byte, error) {
	n := len(fields)
	for fields[n-1].empty(w) {
		n--
	}
	out = appendArrayLen(out, n)
	for i := range fields[:n] {
		var err error
		if out, err = fields[i].enc(out, w); err != nil {
			return nil, fmt.Errorf("manifest: encode element %d of a %s leaf: %w", i, w.Type, err)
		}
	}
	return out, nil
}

// encoding is the memory that a leaf is made in. Every read makes one.
type encoding struct {
	wire
	out  []byte
	slab []byte // what is left of it takes the next bodies
}

// slabBytes is how much memory is made for bodies at once: some twenty of those of a read. A body
// stays in memory until it is archived, and those of one slab are archived together, or nearly.
const slabBytes = 4 << 10

// keep copies a body to memory that stays as it is.
func (enc *encoding) keep(body []byte) []byte {
	if len(body) > slabBytes/4 {
		return bytes.Clone(body)
	}
	if cap(enc.slab)-len(enc.slab) < len(body) {
		enc.slab = make([]byte, 0, slabBytes)
	}
	at := len(enc.slab)
	enc.slab = append(enc.slab, body...)
	return enc.slab[at:len(enc.slab):len(enc.slab)]
}

var encodings = sync.Pool{New: func() any { return new(encoding) }}

const encodingMost = 64 << 10 // bytes of what is kept of a large leaf

// release gives the memory to the next leaf, unless a large leaf made it large.
func (enc *encoding) release() {
	if cap(enc.out) > encodingMost || cap(enc.buf.rows)+cap(enc.buf.row) > encodingMost {
		return
	}
	enc.wire = wire{buf: enc.buf} // and not the texts of the leaf
	encodings.Put(enc)
}

// Decode reads the bytes of leaf index. Elements that this program does not
// know are skipped. A newer leaf version is ErrNewerFormat; anything else that
// does not fit is a corrupt.Error. Memory stays within a small multiple of
// len(body), which may not exceed MaxBody.
func Decode(index uint64, body []byte) (*Record, error) {
	w := wire{Record: new(Record)}
	if err := decode(&w, body, len(fields)); err != nil {
		return nil, leafError(index, err)
	}
	r := w.Record
	r.Index = index
	r.ReadOnly = w.flags&flagReadOnly != 0
	r.ServeStale = w.flags&flagServeStale != 0
	r.Review = w.flags&flagReview != 0
	r.QuestionKept = w.flags&flagQuestion != 0
	return r, nil
}

// leafError says which leaf could not be read. A newer format is no damage.
func leafError(index uint64, err error) error {
	if errors.Is(err, ErrNewerFormat) {
		return fmt.Errorf("leaf %d: %w", index, err)
	}
	return &corrupt.Error{File: audit, Unit: corrupt.Leaf, Num: index, Err: err, Hint: "run verify to see what else differs"}
}

// wires are idle wires: recovery peeks into every leaf of the log.
var wires = sync.Pool{New: func() any { return &wire{Record: new(Record)} }}

// peek calls fn with the first elements of a leaf; the rest is not read. w is
// valid until fn returns.
func peek(body []byte, elements int, fn func(w *wire)) error {
	w := wires.Get().(*wire)
	defer wires.Put(w)
	*w.Record = Record{}
	*w = wire{Record: w.Record}
	err := decode(w, body, elements)
	if err == nil {
		fn(w)
	}
	return err
}

// decode reads up to limit elements. It checks size, lengths and depth first,
// then the version, then the elements.
func decode(w *wire, body []byte, limit int) error {
	if len(body) > MaxBody {
		return fmt.Errorf("leaf of %d bytes; the limit is %d", len(body), MaxBody)
	}
	if err := Scan(body); err != nil {
		return err
	}
	d := msgpack.GetDecoder()
	defer msgpack.PutDecoder(d)
	d.Reset(bytes.NewReader(body))
	n, err := d.DecodeArrayLen()
	if err != nil {
		return err
	}
	for i := 0; i < min(n, limit); i++ {
		if err := fields[i].dec(d, w); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
		if i == 0 && w.version > leafVersion {
			return fmt.Errorf("leaf version %d, this program knows %d: %w", w.version, leafVersion, ErrNewerFormat)
		}
	}
	if w.version == 0 {
		return errors.New("leaf without a version")
	}
	return nil
}

// flagsOf are the flags of a record, in the order of the bits.
func flagsOf(r *Record) (f uint64) {
	for i, on := range [...]bool{r.ReadOnly, r.ServeStale, r.Review, len(r.Writes) > 0, len(r.Rows)+len(r.State) > 0, r.QuestionKept} {
		if on {
			f |= 1 << i
		}
	}
	return f
}

// reasonsOf returns the distinct reasons, which are few, in order of first
// appearance. It stops when they are too many.
func reasonsOf(r *Record) (out []string) {
	note := func(s string) {
		if s != "" && len(out) <= maxReasons && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for i := range r.Pages {
		note(r.Pages[i].Reason)
	}
	for i := range r.Excluded {
		note(r.Excluded[i].Reason)
		for j := range r.Excluded[i].Nearest {
			note(r.Excluded[i].Nearest[j].Reason)
		}
	}
	return out
}
