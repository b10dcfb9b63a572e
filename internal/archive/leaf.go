package archive

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/oklog/ulid/v2"
)

// leafVersion is the first byte of every leaf. It changes only if a program of the old version
// would misread the leaf. A new field does not change it.
const leafVersion = 1

const (
	// MaxBody is the largest leaf in bytes.
	MaxBody = 4 << 20
	// MaxPages bounds the pages that one leaf names, excluded ones included, and the writes, stale
	// pages and conflicts that it lists.
	MaxPages = 1 << 16

	maxReasons = 255
)

// The bytes of a leaf: its version, then the fields of leafFields as codec.Record writes them.
//
//	older program, newer leaf    it skips the fields that it does not know
//	newer program, older leaf    fields that are missing are zero
//
// Equal Records have equal bytes: there are no maps and no fractional scores. Digests of rows have
// the highest tag and therefore end the leaf (digests.go).

// wire is a Record with what its bytes need beside it.
type wire struct {
	*manifest.Record // what is written, or filled in; never nil and never changed by writing
	flags            uint64
	reasons          []string // distinct reasons of pages and exclusions; rows name them by place + 1
	pages            int      // rows read so far, against MaxPages
	unknown          []byte   // fields of a later program
}

// Bits of the flags.
const (
	flagReadOnly = 1 << iota
	flagServeStale
	flagReview
	flagWrites   // Writes is not empty: the index marks such leaves without decoding them fully
	flagRows     // the leaf ends in digests of rows: the same for those
	flagQuestion // Query is the salted digest of a text that was kept beside the leaf
)

// Tags that readers of a part of a leaf know.
const (
	tagFlags = 4 // the index row is made from the fields up to it
	tagScope = 6
	tagPages = 10
	tagRows  = 100 // the highest tag of a leaf: fields that are added take a lower one
)

var writeFields = codec.Record[manifest.Write]{Name: "a write", Fields: []codec.Field[manifest.Write]{
	codec.Uint(1, "Num", func(w *manifest.Write) *uint64 { return &w.Num }),
	codec.Text(2, "Ref", func(w *manifest.Write) *string { return &w.Ref }),
	codec.Uint(3, "Version", func(w *manifest.Write) *uint32 { return &w.Version }),
	codec.Blob(4, "Digest", func(w *manifest.Write) *manifest.Digest { return &w.Digest }),
	codec.Flag(5, "Deleted", func(w *manifest.Write) *bool { return &w.Deleted }),
	codec.Flag(6, "Touch", func(w *manifest.Write) *bool { return &w.Touch }),
	codec.Flag(7, "Gone", func(w *manifest.Write) *bool { return &w.Gone }),
}}

var staleFields = codec.Record[manifest.Stale]{Name: "a stale page", Fields: []codec.Field[manifest.Stale]{
	codec.Uint(1, "Num", func(s *manifest.Stale) *uint64 { return &s.Num }),
	codec.Uint(2, "Seen", func(s *manifest.Stale) *uint32 { return &s.Seen }),
	codec.Uint(3, "Now", func(s *manifest.Stale) *uint32 { return &s.Now }),
	codec.Text(4, "Reason", func(s *manifest.Stale) *string { return &s.Reason }),
}}

var conflictFields = codec.Record[manifest.Conflict]{Name: "a conflict", Fields: []codec.Field[manifest.Conflict]{
	codec.Text(1, "Ref", func(c *manifest.Conflict) *string { return &c.Ref }),
	codec.Uint(2, "Expect", func(c *manifest.Conflict) *uint64 { return &c.Expect }),
	codec.Uint(3, "Found", func(c *manifest.Conflict) *uint64 { return &c.Found }),
}}

var prunedFields = codec.Record[manifest.Pruned]{Name: "a prune", Fields: []codec.Field[manifest.Pruned]{
	codec.Text(1, "Trace", func(p *manifest.Pruned) *string { return &p.Trace }),
	codec.Uint(2, "Leaf", func(p *manifest.Pruned) *uint64 { return &p.Leaf }),
	codec.Int(3, "At", func(p *manifest.Pruned) *int64 { return &p.At }),
	codec.Text(4, "By", func(p *manifest.Pruned) *string { return &p.By }),
	codec.Text(5, "Action", func(p *manifest.Pruned) *string { return &p.Action }),
}}

// leafFields are the fields of a leaf; FORMAT.md has the same table. A tag is never given twice.
var leafFields = codec.Record[wire]{
	Name: "a leaf", Unknown: func(w *wire) *[]byte { return &w.unknown },
	Fields: slices.Concat(callFields, eventFields, []codec.Field[wire]{{Tag: tagRows, Name: "Rows", Write: writeRows, Read: readRows}}),
}

// callFields are the fields of leaves of reads; every leaf has some.
var callFields = []codec.Field[wire]{
	codec.Uint(1, "Type", func(w *wire) *manifest.Type { return &w.Type }),
	ident(2, "Trace", func(w *wire) *string { return &w.Trace }),
	ident(3, "Parent", func(w *wire) *string { return &w.Parent }),
	codec.Uint(tagFlags, "Flags", func(w *wire) *uint64 { return &w.flags }),
	codec.Int(5, "Time", func(w *wire) *int64 { return &w.Time }),
	codec.Text(tagScope, "Scope", func(w *wire) *string { return &w.Scope }),
	codec.Text(7, "Actor", func(w *wire) *string { return &w.Actor }),
	codec.Uint(8, "LSN", func(w *wire) *uint64 { return &w.LSN }),
	bounded(codec.Texts(9, "Reasons", func(w *wire) *[]string { return &w.reasons })),
	{Tag: tagPages, Name: "Pages",
		Write: func(e *codec.Encoder, w *wire) { w.appendPages(e, w.Pages) },
		Read:  func(d *codec.Decoder, w *wire) { w.Pages = w.readPages(d) }},
	{Tag: 11, Name: "Excluded", Write: writeExcluded, Read: readExcluded},
	codec.Blob(12, "Query", func(w *wire) *manifest.Digest { return &w.Query }),
	codec.Text(13, "Session", func(w *wire) *string { return &w.Session }),
	codec.Int(14, "AsOf", func(w *wire) *int64 { return &w.AsOf }),
	codec.Uint(15, "Budget", func(w *wire) *int { return &w.Budget }),
	codec.Uint(16, "Reserve", func(w *wire) *int { return &w.Reserve }),
	codec.Uint(17, "Tokens", func(w *wire) *int { return &w.Tokens }),
	codec.Uint(18, "Tier", func(w *wire) *int { return &w.Tier }),
	codec.Text(19, "Overflow", func(w *wire) *string { return &w.Overflow }),
	codec.Text(20, "Preset", func(w *wire) *string { return &w.Preset }),
	codec.Text(21, "Counter", func(w *wire) *string { return &w.Counter }),
	codec.Uint(22, "Renderer", func(w *wire) *int { return &w.Renderer }),
	codec.Text(23, "Shape", func(w *wire) *string { return &w.Shape }),
	codec.Blob(24, "Rendered", func(w *wire) *manifest.Digest { return &w.Rendered }),
	codec.Text(25, "Embedder", func(w *wire) *string { return &w.Embedder }),
	codec.Text(26, "Filter", func(w *wire) *string { return &w.Filter }),
	codec.Text(27, "Note", func(w *wire) *string { return &w.Note }),
	codec.Text(28, "Match", func(w *wire) *string { return (*string)(&w.Match) }),
	codec.Uint(29, "Covered", func(w *wire) *manifest.Score { return &w.Covered }),
}

// eventFields are the fields of ends of transactions and of events of the database.
var eventFields = []codec.Field[wire]{
	ident(40, "Batch", func(w *wire) *string { return &w.Batch }),
	ident(41, "From", func(w *wire) *string { return &w.From }),
	codec.Text(42, "Status", func(w *wire) *string { return &w.Status }),
	codec.Text(43, "Reason", func(w *wire) *string { return &w.Reason }),
	codec.Float(44, "Confidence", func(w *wire) *float64 { return &w.Confidence }),
	codec.Float(45, "Gate", func(w *wire) *float64 { return &w.Gate }),
	codec.Text(46, "By", func(w *wire) *string { return &w.By }),
	codec.Text(47, "Evaluator", func(w *wire) *string { return &w.Evaluator }),
	bounded(codec.List(48, "Writes", &writeFields, func(w *wire) *[]manifest.Write { return &w.Writes })),
	bounded(codec.List(49, "Stale", &staleFields, func(w *wire) *[]manifest.Stale { return &w.Stale })),
	bounded(codec.List(50, "Conflicts", &conflictFields, func(w *wire) *[]manifest.Conflict { return &w.Conflicts })),
	codec.Text(51, "Action", func(w *wire) *string { return &w.Action }),
	codec.Uint(52, "Cut", func(w *wire) *uint64 { return &w.Cut }),
	codec.Uint(53, "Lost", func(w *wire) *uint64 { return &w.Lost }),
	codec.Uint(54, "Size", func(w *wire) *uint64 { return &w.Size }),
	codec.Blob(55, "Root", func(w *wire) *manifest.Digest { return &w.Root }),
	{Tag: 56, Name: "Covers", Write: writeCovers, Read: readCovers},
}

// readFields are leafFields for a read that has no field of an event. Asking each of those whether
// it is zero took a third of the time of making a leaf, and every read makes one.
var readFields = codec.Record[wire]{Name: "a read", Fields: callFields}

// getFields are readFields for most leaves: reads of one artefact, which say what was served and
// nothing else.
var getFields = codec.Record[wire]{Name: "a get", Fields: slices.DeleteFunc(slices.Clone(callFields), func(f codec.Field[wire]) bool {
	return f.Tag > tagPages && !slices.Contains([]string{"Session", "Tokens", "Counter"}, f.Name)
})}

// recordFields are the fields of a Record outside a leaf: the fields of the leaf, and what a reader knows
// beside it.
var recordFields = codec.Record[wire]{
	Name: "a record", Fields: append(slices.Clone(leafFields.Fields),
		codec.Uint(101, "Index", func(w *wire) *uint64 { return &w.Index }),
		codec.Text(102, "Question", func(w *wire) *string { return &w.Question }),
		codec.Field[wire]{Tag: 103, Name: "Pruned",
			Write: func(e *codec.Encoder, w *wire) {
				if w.Pruned != nil {
					prunedFields.Append(e, w.Pruned)
				}
			},
			Read: func(d *codec.Decoder, w *wire) { w.Pruned = new(manifest.Pruned); prunedFields.Read(d, w.Pruned) }}),
}

// AppendRecord appends a Record to a row or a message. Unlike the bytes of a leaf it may be
// incomplete, and has Index, Question and Pruned.
func AppendRecord(e *codec.Encoder, r *manifest.Record) {
	recordFields.Append(e, &wire{Record: r, flags: flagsOf(r), reasons: reasonsOf(r)})
}

// ReadRecord reads what AppendRecord wrote: all that the decoder has.
func ReadRecord(d *codec.Decoder, r *manifest.Record) {
	w := wire{Record: r}
	recordFields.Read(d, &w)
	w.takeFlags()
}

// bounded refuses a list of more than MaxPages items before memory is taken for them.
func bounded(f codec.Field[wire]) codec.Field[wire] {
	read := f.Read
	f.Read = func(d *codec.Decoder, w *wire) {
		ahead := *d
		if n := ahead.Uvarint(); n > MaxPages {
			d.FailAs(fmt.Errorf("%d items; the limit is %d", n, MaxPages))
			return
		}
		read(d, w)
	}
	return f
}

// Forms of an identifier.
const (
	identText = 0
	identULID = 1
)

// ident is an identifier: a byte that says which form it has, then sixteen bytes if it is a ULID as
// ulid.ULID prints it, which all but a caller's own are; otherwise text.
func ident(tag uint64, name string, at func(*wire) *string) codec.Field[wire] {
	return codec.Field[wire]{Tag: tag, Name: name,
		Write: func(e *codec.Encoder, w *wire) {
			s := *at(w)
			if s == "" {
				return
			}
			if id, err := ulid.ParseStrict(s); err == nil && prints(id, s) {
				e.U8(identULID)
				e.Raw(id[:])
				return
			}
			e.U8(identText)
			e.B = append(e.B, s...)
		},
		Read: func(d *codec.Decoder, w *wire) {
			switch d.U8() {
			case identULID:
				if b := d.Take(len(ulid.ULID{})); b != nil {
					*at(w) = ulid.ULID(b).String()
				}
			case identText:
				*at(w) = string(d.Rest())
			default:
				d.Fail()
			}
		}}
}

// prints reports whether an id prints as s.
func prints(id ulid.ULID, s string) bool {
	var b [ulid.EncodedSize]byte
	return id.MarshalTextTo(b[:]) == nil && string(b[:]) == s
}

// writeExcluded writes, for each reason for which pages were left out, its length, the place of the
// reason, how many pages there were, and rows of those that came nearest.
func writeExcluded(e *codec.Encoder, w *wire) {
	for i := range w.Excluded {
		x := &w.Excluded[i]
		from := e.Begin()
		e.Uvarint(w.reasonPlace(x.Reason))
		e.Uvarint(uint64(x.Count))
		w.appendPages(e, x.Nearest)
		e.End(from)
	}
}

// readExcluded reads what writeExcluded wrote. The rows count against MaxPages of the leaf.
func readExcluded(d *codec.Decoder, w *wire) {
	for len(d.B) > 0 && d.Err == nil {
		if len(w.Excluded) == MaxPages {
			d.FailAs(fmt.Errorf("more than %d items", MaxPages))
			return
		}
		item := d.Bytes()
		rest := d.B
		d.B = item
		x := manifest.Exclusion{Reason: w.reason(d.Uvarint(), d.FailAs)}
		n := d.Uvarint()
		if x.Count = int(n); n > math.MaxInt {
			d.Fail()
		}
		x.Nearest = w.readPages(d)
		d.B = rest
		w.Excluded = append(w.Excluded, x)
	}
}

// writeCovers writes the leaves that a prune covers: leaves since the end of the range before, and
// how many.
func writeCovers(e *codec.Encoder, w *wire) {
	at := uint64(0)
	for _, s := range w.Covers {
		e.Uvarint(s[0] - at)
		e.Uvarint(s[1] - s[0])
		at = s[1]
	}
}

// readCovers reads the ranges. Its limits keep every sum within 64 bits.
func readCovers(d *codec.Decoder, w *wire) {
	for at := uint64(0); len(d.B) > 0 && d.Err == nil; {
		gap, n := d.Uvarint(), d.Uvarint()
		if n == 0 || gap > maxLeaves || n > MaxCovers || at > maxLeaves {
			d.FailAs(errors.New("covered leaves that are no ranges"))
			return
		}
		w.Covers = append(w.Covers, manifest.Span{at + gap, at + gap + n})
		at += gap + n
	}
}

// Encode returns the bytes of a leaf. Equal Records have equal bytes; Index is not among them. It refuses an unknown Type, a negative count,
// a form or tag out of range, ranges that do not ascend, and a leaf over
// MaxBody or MaxPages.
func Encode(r *manifest.Record) ([]byte, error) {
	enc := encodings.Get().(*encoding)
	defer enc.release()
	out, err := enc.encode(r)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(out), nil // a leaf stays in memory until it is archived: no byte more than it has
}

// encode returns the bytes of a leaf, borrowed until the next call.
func (enc *encoding) encode(r *manifest.Record) ([]byte, error) {
	if !r.Type.Known() {
		return nil, fmt.Errorf("manifest: leaf without a known type (%d)", r.Type)
	}
	w := &enc.wire
	w.Record, w.flags, w.reasons = r, flagsOf(r), reasonsOf(r)
	if err := w.check(); err != nil {
		return nil, fmt.Errorf("manifest: encode a %s leaf: %w", r.Type, err)
	}
	list := &leafFields
	if r.Type.Reads() && onlyRead(r) {
		if list = &readFields; onlyGet(r) {
			list = &getFields
		}
	}
	enc.out.B = append(enc.out.B[:0], leafVersion)
	list.Append(&enc.out, w)
	if out := enc.out.B; len(out) <= MaxBody {
		return out, nil
	}
	return nil, fmt.Errorf("manifest: %s leaf of %d bytes; the limit is %d: split the call", r.Type, len(enc.out.B), MaxBody)
}

// onlyRead reports whether a Record has none of eventFields and no digests of rows.
func onlyRead(r *manifest.Record) bool {
	return r.Batch == "" && r.From == "" && r.Status == "" && r.Reason == "" && r.By == "" && r.Evaluator == "" &&
		r.Confidence == 0 && r.Gate == 0 && r.Action == "" && r.Cut == 0 && r.Lost == 0 && r.Size == 0 &&
		len(r.Writes)+len(r.Stale)+len(r.Conflicts)+len(r.Rows)+len(r.State)+len(r.Root)+len(r.Covers) == 0
}

// onlyGet reports whether a read has no other fields than getFields.
func onlyGet(r *manifest.Record) bool {
	return r.AsOf == 0 && r.Budget == 0 && r.Reserve == 0 && r.Tier == 0 && r.Renderer == 0 &&
		r.Overflow == "" && r.Preset == "" && r.Shape == "" && r.Embedder == "" && r.Filter == "" && r.Note == "" && r.Match == "" && r.Covered == 0 &&
		len(r.Excluded)+len(r.Query)+len(r.Rendered) == 0
}

// check refuses what could not be read back.
func (w *wire) check() error {
	if len(w.reasons) > maxReasons {
		return fmt.Errorf("%d different reasons in one leaf; a reason is one of a few short codes", len(w.reasons))
	}
	pages := len(w.Pages)
	err := checkPages(w.Pages)
	for i := 0; i < len(w.Excluded) && err == nil; i++ {
		x := &w.Excluded[i]
		if pages += len(x.Nearest); x.Count < 0 {
			return fmt.Errorf("count %d is negative", x.Count)
		}
		err = checkPages(x.Nearest)
	}
	if err != nil {
		return err
	}
	for _, n := range [...]int{w.Budget, w.Reserve, w.Tokens, w.Tier, w.Renderer} {
		if n < 0 {
			return fmt.Errorf("%d is negative", n)
		}
	}
	for _, f := range [...]float64{w.Confidence, w.Gate} {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%v is not a finite number", f)
		}
	}
	for _, n := range [...]int{pages, len(w.Excluded), len(w.Writes), len(w.Stale), len(w.Conflicts)} {
		if n > MaxPages {
			return fmt.Errorf("%d items; the limit is %d: split the call", n, MaxPages)
		}
	}
	if err := w.checkRows(); err != nil {
		return err
	}
	return checkCovers(w.Covers)
}

// checkCovers refuses ranges that do not ascend or are too many. They may touch.
func checkCovers(covers []manifest.Span) error {
	at, n := uint64(0), uint64(0)
	for _, s := range covers {
		if s[0] < at || s[1] <= s[0] {
			return fmt.Errorf("covered leaves [%d,%d) are none or not ascending", s[0], s[1])
		}
		at, n = s[1], n+s[1]-s[0]
	}
	if n > MaxCovers {
		return fmt.Errorf("%d covered leaves; the limit is %d", n, MaxCovers)
	}
	return nil
}

// encoding is the memory that a leaf is made in. Every read makes one.
type encoding struct {
	wire
	out  codec.Encoder
	slab []byte // what is left of it takes the next bodies
}

// slabBytes is the memory that is made for bodies at once: some twenty bodies of reads. A body stays in
// memory until it is archived, and the bodies of one slab are archived together, or nearly.
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

// release returns the memory to the pool, unless a large leaf made it large.
func (enc *encoding) release() {
	if cap(enc.out.B) > encodingMost {
		return
	}
	enc.wire = wire{} // and not the texts of the leaf
	encodings.Put(enc)
}

// Decode reads the bytes of leaf index. Fields that this program does not
// know are skipped. A newer leaf version is ErrNewerFormat; anything else that
// does not fit is a codec.CorruptError. Memory stays within a small multiple of
// len(body), which may not exceed MaxBody.
func Decode(index uint64, body []byte) (*manifest.Record, error) {
	w := wire{Record: new(manifest.Record)}
	if err := decode(&w, body, math.MaxUint64); err != nil {
		return nil, leafError(index, err)
	}
	w.Index = index
	w.takeFlags()
	return w.Record, nil
}

// takeFlags sets the fields that the flags stand for.
func (w *wire) takeFlags() {
	r := w.Record
	r.ReadOnly = w.flags&flagReadOnly != 0
	r.ServeStale = w.flags&flagServeStale != 0
	r.Review = w.flags&flagReview != 0
	r.QuestionKept = w.flags&flagQuestion != 0
}

// leafError says which leaf could not be read. A newer format is no damage.
func leafError(index uint64, err error) error {
	if errors.Is(err, codec.ErrNewerFormat) {
		return fmt.Errorf("leaf %d: %w", index, err)
	}
	return &codec.CorruptError{File: audit, Unit: codec.UnitLeaf, Num: index, Err: err, Hint: "run verify to see what else differs"}
}

// wires are idle wires: recovery peeks into every leaf of the log.
var wires = sync.Pool{New: func() any { return &wire{Record: new(manifest.Record)} }}

// peek calls fn with the fields of a leaf up to a tag; the rest is not read. w is
// valid until fn returns.
func peek(body []byte, last uint64, fn func(w *wire)) error {
	w := wires.Get().(*wire)
	defer wires.Put(w)
	*w.Record = manifest.Record{}
	*w = wire{Record: w.Record}
	err := decode(w, body, last)
	if err == nil {
		fn(w)
	}
	return err
}

// decode reads the fields up to a tag. It checks the size first, then the version.
func decode(w *wire, body []byte, last uint64) error {
	switch {
	case len(body) > MaxBody:
		return fmt.Errorf("leaf of %d bytes; the limit is %d", len(body), MaxBody)
	case len(body) == 0 || body[0] == 0:
		return errors.New("leaf without a version")
	case body[0] > leafVersion:
		return fmt.Errorf("leaf version %d, this program knows %d: %w", body[0], leafVersion, codec.ErrNewerFormat)
	}
	d := codec.Decoder{B: body[1:]}
	leafFields.ReadTo(&d, w, last)
	return d.Err
}

// flagsOf are the flags of a record, in the order of the bits.
func flagsOf(r *manifest.Record) (f uint64) {
	for i, on := range [...]bool{r.ReadOnly, r.ServeStale, r.Review, len(r.Writes) > 0, len(r.Rows)+len(r.State) > 0, r.QuestionKept} {
		if on {
			f |= 1 << i
		}
	}
	return f
}

// reasonsOf returns the distinct reasons, which are few, in order of first
// appearance. It stops when they are too many.
func reasonsOf(r *manifest.Record) (out []string) {
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
