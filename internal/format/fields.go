// Package format writes and reads the rows and records of a store byte for byte, as FORMAT.md
// describes them, and has the rules that every store applies alike: how a batch is admitted and
// reviewed, what a deletion is, which versions gc drops. It is plain functions over plain data.
// Package engine decides what happens to an index, a catalogue or a log; filestore reads damaged
// files.
//
//	head.go      head rows: a fixed part, which an open reads a million times, page rows, tagged fields; the end of a row, its
//	             place in the audit, and comparing rows with an audit
//	fields.go    the tagged fields of rows that can grow; what the index keeps of a page
//	commit.go    the records of commits and leaves; outcomes, held batches, questions, state rows
//	rules.go     how a batch is admitted, bound to its id and reviewed; what a put repeats; what keeps a page from candidates
//	check.go     arguments that every store refuses
//	gc.go        what gc drops, what an erase leaves, which names keep a version
//
// Decoded values borrow from the row where that is said; a damaged row costs no memory
// (internal/codec).
package format

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// The fields of rows that can grow (codec.Record). Whoever adds a field to one of these structs adds it here, under a tag
// that was never used, and to FORMAT.md; a test fails until it is done. Everything else walks these lists: writing and
// reading heads and held batches, telling a put that repeats what is there (Repeats), carrying what a later release wrote
// through gc and review.
//
// Rules for tags: a tag is never given a second meaning, and never removed. A field that is zero is
// not written, so a new field costs old rows nothing. A reader keeps fields that it does not know
// (Unknown) and writes them back unchanged.
//
// Structs that callers build and compare (Ref, Part, ToolCall, Validator) have no place for unknown
// fields. A row with unknown fields in such a struct is refused.

var refFields = codec.Record[store.Ref]{Name: "a reference", Fields: []codec.Field[store.Ref]{
	codec.Text(1, "Scope", func(r *store.Ref) *string { return &r.Scope }),
	codec.Text(2, "ID", func(r *store.Ref) *string { return &r.ID }),
	codec.Int(3, "Page", func(r *store.Ref) *int { return &r.Page }),
	codec.Uint(4, "Version", func(r *store.Ref) *uint32 { return &r.Version }),
}}

var partFields = codec.Record[store.Part]{Name: "a part", Fields: []codec.Field[store.Part]{
	codec.Text(1, "Type", func(p *store.Part) *string { return &p.Type }),
	codec.Text(2, "Text", func(p *store.Part) *string { return &p.Text }),
	codec.Text(3, "URL", func(p *store.Part) *string { return &p.URL }),
	codec.Text(4, "Detail", func(p *store.Part) *string { return &p.Detail }),
}}

var toolCallFields = codec.Record[store.ToolCall]{Name: "a tool call", Fields: []codec.Field[store.ToolCall]{
	codec.Text(1, "ID", func(c *store.ToolCall) *string { return &c.ID }),
	codec.Text(2, "Type", func(c *store.ToolCall) *string { return &c.Type }),
	codec.Text(3, "Name", func(c *store.ToolCall) *string { return &c.Name }),
	codec.Text(4, "Arguments", func(c *store.ToolCall) *string { return &c.Arguments }),
}}

var validatorFields = codec.Record[store.Validator]{Name: "a source", Fields: []codec.Field[store.Validator]{
	codec.Text(1, "Stamp", func(v *store.Validator) *string { return &v.Stamp }),
	codec.Fixed64(2, "Hash", func(v *store.Validator) *uint64 { return &v.Hash }),
	codec.Moment(3, "At", func(v *store.Validator) *time.Time { return &v.At }),
}}

var ArtefactFields = codec.Record[store.Artefact]{
	Name: "an artefact", Unknown: func(a *store.Artefact) *[]byte { return &a.Unknown },
	Fields: []codec.Field[store.Artefact]{
		codec.Text(1, "ID", func(a *store.Artefact) *string { return &a.ID }),
		codec.Uint(2, "Kind", func(a *store.Artefact) *store.Kind { return &a.Kind }),
		codec.Uint(3, "Provenance", func(a *store.Artefact) *store.Provenance { return &a.Provenance }),
		codec.Text(4, "Text", func(a *store.Artefact) *string { return &a.Text }), // empty here: the text is in the pages
		codec.List(5, "Parts", &partFields, func(a *store.Artefact) *[]store.Part { return &a.Parts }),
		codec.Text(6, "Role", func(a *store.Artefact) *string { return &a.Role }),
		codec.Text(7, "Name", func(a *store.Artefact) *string { return &a.Name }),
		codec.List(8, "ToolCalls", &toolCallFields, func(a *store.Artefact) *[]store.ToolCall { return &a.ToolCalls }),
		codec.Text(9, "ToolCallID", func(a *store.Artefact) *string { return &a.ToolCallID }),
		codec.Text(10, "Source", func(a *store.Artefact) *string { return &a.Source }),
		codec.Moment(11, "ExpiresAt", func(a *store.Artefact) *time.Time { return &a.ExpiresAt }),
		codec.Int(12, "TTL", func(a *store.Artefact) *time.Duration { return &a.TTL }), // zero here: ExpiresAt has it
		codec.Moment(13, "CurrentAsOf", func(a *store.Artefact) *time.Time { return &a.CurrentAsOf }),
		codec.Uint(14, "Priority", func(a *store.Artefact) *store.Priority { return &a.Priority }),
		codec.OptFloat(15, "Relevance", func(a *store.Artefact) **float64 { return &a.Relevance }),
		codec.Text(16, "Group", func(a *store.Artefact) *string { return &a.Group }),
		codec.Int(17, "Seq", func(a *store.Artefact) *int64 { return &a.Seq }),
		codec.Text(18, "Subject", func(a *store.Artefact) *string { return &a.Subject }),
		codec.List(19, "DerivedFrom", &refFields, func(a *store.Artefact) *[]store.Ref { return &a.DerivedFrom }),
		codec.Texts(20, "Supersedes", func(a *store.Artefact) *[]string { return &a.Supersedes }),
		codec.Flag(21, "Pinned", func(a *store.Artefact) *bool { return &a.Pinned }),
		codec.Texts(22, "Tags", func(a *store.Artefact) *[]string { return &a.Tags }),
		codec.Pairs(23, "Meta", func(a *store.Artefact) *map[string]string { return &a.Meta }),
	},
}

// A head has the text of its artefact in its pages and the TTL in ExpiresAt; its row has inHot in
// the fixed part.
var (
	notInHead = []string{"Text", "TTL"}
	inHot     = []string{"ID", "Kind", "Provenance", "Priority", "ExpiresAt", "CurrentAsOf", "Seq", "Pinned"}

	headArtefact = codec.But(&ArtefactFields, notInHead...)
	coldFields   = headFieldsOf(codec.But(headArtefact, inHot...))
)

// sameFields are those that a put must change to make a new version: not who wrote it, what a source
// is recognised by, or what a session or a counter measured. CurrentAsOf counts only where the caller gave it. What is unknown is
// compared apart (sameHead).
var (
	notSaid = []string{"Source", "Actor", "GoneBy", "ErasedBy", "Turn", "Trace", "Counter"}

	sameFields     = codec.But(headFieldsOf(codec.But(headArtefact, "CurrentAsOf").Known()), notSaid...).Known()
	sameFieldsAsOf = codec.But(headFieldsOf(headArtefact.Known()), notSaid...).Known()
)

// headFieldsOf lists the fields of a head whose artefact has the given ones. There are several such
// lists, because a row leaves out what its fixed part has.
func headFieldsOf(artefact *codec.Record[store.Artefact]) *codec.Record[store.Head] {
	return &codec.Record[store.Head]{
		Name: "a head", Unknown: func(h *store.Head) *[]byte { return &h.Unknown },
		Fields: []codec.Field[store.Head]{
			codec.Inner(1, "Artefact", artefact, func(h *store.Head) *store.Artefact { return &h.Artefact }),
			codec.Inner(2, "Source", &validatorFields, func(h *store.Head) *store.Validator { return &h.Source }),
			codec.Text(3, "Actor", func(h *store.Head) *string { return &h.Actor }),
			codec.Text(4, "GoneBy", func(h *store.Head) *string { return &h.GoneBy }),
			codec.Ints(5, "PartBytes", func(h *store.Head) *[]int { return &h.PartBytes }),
			codec.Text(6, "Counter", func(h *store.Head) *string { return &h.Counter }),
			codec.Text(7, "ErasedBy", func(h *store.Head) *string { return &h.ErasedBy }),
			codec.Blob(8, "Turn", func(h *store.Head) *[]byte { return &h.Turn }),
			codec.Text(9, "Trace", func(h *store.Head) *string { return &h.Trace }),
		},
	}
}

var pageFields = codec.Record[store.NewPage]{Name: "a page", Fields: []codec.Field[store.NewPage]{
	codec.Text(1, "Text", func(p *store.NewPage) *string { return &p.Text }),
	codec.Int(2, "Tokens", func(p *store.NewPage) *int { return &p.Tokens }),
	codec.Fixed64(3, "Hash", func(p *store.NewPage) *uint64 { return &p.Hash }),
	codec.Array(4, "Salt", func(p *store.NewPage) []byte { return p.Salt[:] }),
	codec.Array(5, "Digest", func(p *store.NewPage) []byte { return p.Digest[:] }),
}}

// PutFields are the fields of a put, also for rows of the pipeline that hold some.
var PutFields = codec.Record[store.Put]{
	Name: "a put", Unknown: func(p *store.Put) *[]byte { return &p.Unknown },
	Fields: []codec.Field[store.Put]{
		codec.Inner(1, "Artefact", &ArtefactFields, func(p *store.Put) *store.Artefact { return &p.Artefact }),
		codec.Inner(2, "Source", &validatorFields, func(p *store.Put) *store.Validator { return &p.Source }),
		codec.List(3, "Pages", &pageFields, func(p *store.Put) *[]store.NewPage { return &p.Pages }),
		codec.Flag(4, "AsOfGiven", func(p *store.Put) *bool { return &p.AsOfGiven }),
		codec.Ints(5, "PartBytes", func(p *store.Put) *[]int { return &p.PartBytes }),
		codec.Text(6, "Counter", func(p *store.Put) *string { return &p.Counter }),
		codec.Blob(7, "Turn", func(p *store.Put) *[]byte { return &p.Turn }),
	},
}

var expectFields = codec.Record[store.Precondition]{Name: "a precondition", Fields: []codec.Field[store.Precondition]{
	codec.Inner(1, "Ref", &refFields, func(p *store.Precondition) *store.Ref { return &p.Ref }),
	codec.Uint(2, "LSN", func(p *store.Precondition) *uint64 { return &p.LSN }),
}}

var expectStateFields = codec.Record[store.StatePre]{Name: "a precondition on state", Fields: []codec.Field[store.StatePre]{
	codec.Text(1, "Key", func(p *store.StatePre) *string { return &p.Key }),
	codec.Uint(2, "LSN", func(p *store.StatePre) *uint64 { return &p.LSN }),
}}

var seenFields = codec.Record[store.Seen]{Name: "a page seen", Fields: []codec.Field[store.Seen]{
	codec.Text(1, "Scope", func(s *store.Seen) *string { return &s.Scope }),
	codec.Text(2, "ID", func(s *store.Seen) *string { return &s.ID }),
	codec.Int(3, "Page", func(s *store.Seen) *int { return &s.Page }),
	codec.Uint(4, "Num", func(s *store.Seen) *uint64 { return &s.Num }),
}}

var stateFields = codec.Record[store.StateRow]{Name: "a state row", Fields: []codec.Field[store.StateRow]{
	codec.Text(1, "Key", func(r *store.StateRow) *string { return &r.Key }),
	{Tag: 2, Name: "Value", // nil deletes the row, an empty one does not
		Write: func(e *codec.Encoder, r *store.StateRow) {
			if r.Value != nil {
				e.Bytes(r.Value)
			}
		},
		Read: func(d *codec.Decoder, r *store.StateRow) { r.Value = d.Own() }},
}}

var batchFields = codec.Record[store.Batch]{
	Name: "a batch", Unknown: func(b *store.Batch) *[]byte { return &b.Unknown },
	Fields: []codec.Field[store.Batch]{
		codec.Array(1, "ID", func(b *store.Batch) []byte { return b.ID[:] }),
		codec.Text(2, "Trace", func(b *store.Batch) *string { return &b.Trace }),
		codec.Array(3, "From", func(b *store.Batch) []byte { return b.From[:] }),
		codec.Text(4, "Scope", func(b *store.Batch) *string { return &b.Scope }),
		codec.Text(5, "Actor", func(b *store.Batch) *string { return &b.Actor }),
		codec.Uint(6, "Action", func(b *store.Batch) *store.Action { return &b.Action }),
		codec.Text(7, "Reason", func(b *store.Batch) *string { return &b.Reason }),
		codec.List(8, "Expect", &expectFields, func(b *store.Batch) *[]store.Precondition { return &b.Expect }),
		codec.List(9, "Context", &seenFields, func(b *store.Batch) *[]store.Seen { return &b.Context }),
		codec.Uint(10, "OnStale", func(b *store.Batch) *store.OnStale { return &b.OnStale }),
		codec.Moment(11, "Now", func(b *store.Batch) *time.Time { return &b.Now }),
		codec.List(12, "Puts", &PutFields, func(b *store.Batch) *[]store.Put { return &b.Puts }),
		codec.Texts(13, "Deletes", func(b *store.Batch) *[]string { return &b.Deletes }),
		codec.List(14, "State", &stateFields, func(b *store.Batch) *[]store.StateRow { return &b.State }),
		codec.Flag(15, "Raise", func(b *store.Batch) *bool { return &b.Raise }),
		codec.Flag(16, "Force", func(b *store.Batch) *bool { return &b.Force }),
		{Tag: 17, Name: "Leaf",
			Write: func(e *codec.Encoder, b *store.Batch) { archive.AppendRecord(e, &b.Leaf) },
			Read:  func(d *codec.Decoder, b *store.Batch) { archive.ReadRecord(d, &b.Leaf) }},
		codec.List(18, "ExpectState", &expectStateFields, func(b *store.Batch) *[]store.StatePre { return &b.ExpectState }),
	},
}

// mostRef is the length of a scope and an id. With archive.MaxPages, the most that a batch writes, it bounds what a damaged list
// allocates.
const mostRef = store.MaxScope + 1 + store.MaxID

// packedRefs is a list of references, each of which begins with how much of its scope and id it shares with its predecessor. An outcome names
// every artefact of its batch, mostly of one scope: as records they took 30 bytes each.
func packedRefs(tag uint64, name string, at func(*store.Outcome) *[]store.Ref) codec.Field[store.Outcome] {
	return codec.Field[store.Outcome]{Tag: tag, Name: name,
		Write: func(e *codec.Encoder, o *store.Outcome) {
			list := *at(o)
			if len(list) == 0 {
				return
			}
			e.Count(len(list))
			last := ""
			for _, r := range list {
				id := r.Scope + "\x00" + r.ID
				common := 0
				for common < min(len(id), len(last)) && id[common] == last[common] {
					common++
				}
				e.Count(common)
				e.Str(id[common:])
				e.Varint(int64(r.Page))
				e.Uvarint(uint64(r.Version))
				last = id
			}
		},
		Read: func(d *codec.Decoder, o *store.Outcome) {
			n := d.Count(4)
			if n > archive.MaxPages {
				d.Fail()
				return
			}
			list, last := make([]store.Ref, n), ""
			for i := range list {
				common, rest := d.Uvarint(), d.Str()
				page, version := d.Varint(), d.Uvarint()
				if d.Err != nil || common > uint64(len(last)) || int(common)+len(rest) > mostRef || int64(int(page)) != page || version > math.MaxUint32 {
					d.Fail()
					return
				}
				last = last[:common] + rest
				scope, id, ok := strings.Cut(last, "\x00")
				if !ok {
					d.Fail()
					return
				}
				list[i] = store.Ref{Scope: scope, ID: id, Page: int(page), Version: uint32(version)}
			}
			*at(o) = list
		}}
}

// outcomeFields are the fields of an outcome, in a row of its own and inside a held batch.
var outcomeFields = codec.Record[store.Outcome]{Name: "an outcome", Fields: []codec.Field[store.Outcome]{
	codec.Uint(1, "Status", func(o *store.Outcome) *store.Status { return &o.Status }),
	codec.Uint(2, "LSN", func(o *store.Outcome) *uint64 { return &o.LSN }),
	codec.Uint(3, "Leaf", func(o *store.Outcome) *uint64 { return &o.Leaf }),
	packedRefs(4, "Refs", func(o *store.Outcome) *[]store.Ref { return &o.Refs }),
	codec.Text(5, "Reason", func(o *store.Outcome) *string { return &o.Reason }),
	packedRefs(6, "Stale", func(o *store.Outcome) *[]store.Ref { return &o.Stale }),
	packedRefs(7, "Repeats", func(o *store.Outcome) *[]store.Ref { return &o.Repeats }),
}}

// heldFields are the fields of a held batch: the whole batch as it was judged, and the decision.
var heldFields = codec.Record[store.HeldBatch]{
	Name: "a held batch", Unknown: func(h *store.HeldBatch) *[]byte { return &h.Unknown },
	Fields: []codec.Field[store.HeldBatch]{
		codec.Inner(1, "Batch", &batchFields, func(h *store.HeldBatch) *store.Batch { return &h.Batch }),
		codec.Text(2, "Reason", func(h *store.HeldBatch) *string { return &h.Reason }),
		codec.List(3, "Stale", &refFields, func(h *store.HeldBatch) *[]store.Ref { return &h.Stale }),
		codec.Moment(4, "At", func(h *store.HeldBatch) *time.Time { return &h.At }),
		codec.Uint(5, "LSN", func(h *store.HeldBatch) *uint64 { return &h.LSN }),
		codec.Text(6, "Decided", func(h *store.HeldBatch) *string { return &h.Decided }),
		codec.Text(7, "By", func(h *store.HeldBatch) *string { return &h.By }),
		codec.Text(8, "Note", func(h *store.HeldBatch) *string { return &h.Note }),
		codec.Inner(9, "Outcome", &outcomeFields, func(h *store.HeldBatch) *store.Outcome { return &h.Outcome }),
	},
}

// Analyse returns the analysis of a page that the index keeps. Of a message only the text is
// analysed: its speaker and time are kept beside it (TurnOf). The header of any other page is
// indexed with the text, because people search for a date, an author or a source as for any other
// word. The header has the month by name, as people write it. It does not have the kind, which is
// the same word on most pages.
func Analyse(an *lexical.Analyzer, a *store.Artefact, text string) lexical.Analysis {
	return analyse(a, text, an.Analyze)
}

// LendAnalysis returns the same, for use by an index alone: see lexical.Analyzer.Lend.
func LendAnalysis(an *lexical.Analyzer, a *store.Artefact, text string) lexical.Analysis {
	return analyse(a, text, an.Lend)
}

func analyse(a *store.Artefact, text string, with func(parts ...string) lexical.Analysis) lexical.Analysis {
	if a.Kind != store.KindMessage {
		return with(IndexHeader(a), text)
	}
	text = spoken(a, text)
	out := with(text)
	out.Traits = lexical.TraitsOf(text, a.Role != "assistant" && a.Role != "tool")
	return out
}

// TurnOf returns what the index keeps of a message in addition to its words: speaker, time and the
// like. It is nil for pages of other kinds.
func TurnOf(a *store.Artefact) *lexical.Turn {
	if a.Kind != store.KindMessage {
		return nil
	}
	return &lexical.Turn{Speaker: a.Name, Month: lexical.MonthOf(a.CurrentAsOf)}
}

// spoken returns a message without the name of its speaker, where that stands before it as in a
// transcript.
func spoken(a *store.Artefact, text string) string {
	if rest, ok := strings.CutPrefix(text, a.Name); ok && a.Name != "" && strings.HasPrefix(rest, ":") {
		return rest[1:]
	}
	return text
}

// IndexHeader returns the words by which a page is found in addition to its text. A page whose
// header changed gets a new number.
func IndexHeader(a *store.Artefact) string {
	header := dateOf(a.CurrentAsOf) + a.Name
	if a.Source != "" {
		header += " " + a.ID
	}
	return header
}

// day is a date and how it is written.
type day struct {
	number int64 // since 1970
	text   string
}

// lastDay is the one that was asked for last: most pages are of the same.
var lastDay atomic.Pointer[day]

// dateOf is the date of a time, and a space.
func dateOf(t time.Time) string {
	t = t.UTC()
	number := t.Unix() / (24 * 60 * 60)
	if t.Unix() < 0 { // a part of a day before 1970 would count as one of 1970
		return t.Format(dateForm)
	}
	if d := lastDay.Load(); d != nil && d.number == number {
		return d.text
	}
	d := &day{number, t.Format(dateForm)}
	lastDay.Store(d)
	return d.text
}

const dateForm = "2 January 2006 "

// FoundAlike reports whether the index keeps the same entries for a text under either head.
func FoundAlike(a, b *store.Artefact) bool {
	return IndexHeader(a) == IndexHeader(b) && (a.Kind == store.KindMessage) == (b.Kind == store.KindMessage)
}

// Finite reports whether a vector has neither infinities nor NaN.
func Finite(v []float32) bool {
	return !slices.ContainsFunc(v, func(f float32) bool { return f-f != 0 })
}
