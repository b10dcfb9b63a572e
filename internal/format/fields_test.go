package format

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
)

// unstored are the fields that rows do not have, with the reason.
var unstored = []string{
	"NewPage.Analysis",            // made again from the text
	"Batch.Bound",                 // in the outcome
	"Batch.Carry",                 // becomes heads; a held batch has none
	"Batch.Hold",                  // becomes fields of the held batch
	"StateRow.LSN",                // that of the commit, when there is one
	"Head.Superseded",             // in listings only
	"Record.Rows", "Record.State", // of a fixed size; see package archive
}

// unknownField is one that no list has.
var unknownField = []byte{0xff, 0x7f, 2, 'h', 'i'}

func filledWith[T any](leave ...string) (v T) {
	dbtest.Fill(&v, slices.Concat(leave, unstored, []string{"Artefact.Unknown", "Head.Unknown", "Put.Unknown", "Batch.Unknown", "HeldBatch.Unknown"})...)
	return v
}

// keeps reports whether a row that fields make of v gives v again.
func keeps[T any](fields *codec.Record[T], v T) bool {
	var e codec.Encoder
	fields.Append(&e, &v)
	var got T
	d := codec.Decoder{B: e.B}
	fields.Read(&d, &got)
	return d.Err == nil && reflect.DeepEqual(v, got)
}

func checkFields[T any](t *testing.T, fields *codec.Record[T]) {
	t.Helper()
	v := filledWith[T]()
	require.True(t, keeps(fields, v), "a field of %s is not in its list", fields.Name)
	tags := map[uint64]bool{}
	for i, f := range fields.Fields {
		require.False(t, keeps(codec.But(fields, f.Name), v), "control: %s without %s", fields.Name, f.Name)
		require.False(t, tags[f.Tag] || i > 0 && fields.Fields[i-1].Tag > f.Tag, "tags of %s", fields.Name)
		tags[f.Tag] = true
		_, there := reflect.TypeFor[T]().FieldByName(f.Name)
		require.True(t, there, "%s of %s", f.Name, fields.Name)
	}
	if fields.Unknown != nil {
		*fields.Unknown(&v) = unknownField
		require.True(t, keeps(fields, v), "what is unknown of %s is lost", fields.Name)
	}
}

// Every exported field of what is stored is in the list of its row. Whoever adds one to a struct and not to the list
// fails here; the control is each list without each of its fields.
func TestFieldsComplete(t *testing.T) {
	checkFields(t, &refFields)
	checkFields(t, &partFields)
	checkFields(t, &toolCallFields)
	checkFields(t, &validatorFields)
	checkFields(t, &ArtefactFields)
	checkFields(t, &pageFields)
	checkFields(t, &PutFields)
	checkFields(t, &expectFields)
	checkFields(t, &expectStateFields)
	checkFields(t, &seenFields)
	checkFields(t, &stateFields)
	checkFields(t, &batchFields)
	checkFields(t, &outcomeFields)
	checkFields(t, &heldFields)
}

func headRow(h *store.Head) []byte {
	return (&Proof{}).AppendHead(EncodeHead(nil, h, 1, EncodeCold(h)))
}

// A head row has all of a head, in its fixed part, its page rows or its fields, and keeps what is unknown of it.
func TestHeadRowComplete(t *testing.T) {
	h := filledWith[store.Head]("Artefact.Text", "Artefact.TTL")
	h.Artefact.Unknown, h.Unknown = unknownField, []byte{0xfe, 0x7f, 1, 'x'}
	got := must(DecodeHead(headRow(&h), func(n uint32) string { require.Equal(t, uint32(1), n); return h.Scope }))(t)
	require.Equal(t, &h, got)

	for path, value := range leaves(reflect.ValueOf(&h).Elem(), "Head") { // control: a row is not the same whatever is in it
		if path == "Head.Scope" || path == "Head.Superseded" || path == "Head.Artefact.Text" || path == "Head.Artefact.TTL" {
			continue // kept as a number, and not kept
		}
		was := reflect.New(value.Type()).Elem()
		was.Set(value)
		row := headRow(&h)
		value.SetZero()
		require.NotEqual(t, row, headRow(&h), "%s is in no row", path)
		value.Set(was)
	}
}

// leaves returns the fields of a struct that are no structs, by their path, those of embedded and nested ones too.
func leaves(v reflect.Value, path string) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for i := range v.NumField() {
		f, name := v.Field(i), path+"."+v.Type().Field(i).Name
		switch {
		case f.Kind() == reflect.Struct && f.Type().Name() != "Time":
			for k, x := range leaves(f, name) {
				out[k] = x
			}
		case f.Kind() == reflect.Slice && f.Len() > 0 && f.Index(0).Kind() == reflect.Struct:
			out[name] = f
			for k, x := range leaves(f.Index(0), name+"[0]") {
				out[k] = x
			}
		default:
			out[name] = f
		}
	}
	return out
}

// A put that differs in one field of its artefact, whichever, is no repetition. A control: one that differs in none is.
func TestSameHeadSeesEveryField(t *testing.T) {
	old := filledWith[store.Head]("Artefact.Text", "Artefact.TTL")
	h := filledWith[store.Head]("Artefact.Text", "Artefact.TTL")
	h.Artefact.Unknown = unknownField
	require.False(t, SameHead(&old, &h, true), "Unknown")
	h.Artefact.Unknown = nil
	seen := 0
	for path, value := range leaves(reflect.ValueOf(&h.Artefact).Elem(), "Artefact") {
		if path == "Artefact.Text" || path == "Artefact.TTL" || path == "Artefact.Unknown" {
			continue
		}
		require.True(t, SameHead(&old, &h, true), "control")
		was := reflect.New(value.Type()).Elem()
		was.Set(value)
		value.SetZero()
		require.False(t, SameHead(&old, &h, true), "%s is not compared", path)
		require.Equal(t, path == "Artefact.CurrentAsOf", SameHead(&old, &h, false), path)
		value.Set(was)
		seen++
	}
	require.Greater(t, seen, 25)
	h.Counter = "other"
	require.True(t, SameHead(&old, &h, true), "another counter counted the same text")
	for _, other := range []func(){func() { h.PartBytes[0]++ }, func() { h.Source.Hash++ }} {
		h = filledWith[store.Head]("Artefact.Text", "Artefact.TTL")
		other()
		require.False(t, SameHead(&old, &h, true))
	}
	h = filledWith[store.Head]("Artefact.Text", "Artefact.TTL")
	h.Actor, h.LSN, h.Version, h.Source.Stamp, h.PutAt = "other", 99, 99, "other", h.PutAt.AddDate(1, 0, 0)
	require.True(t, SameHead(&old, &h, true), "who, when and the stamp of a source make no version")
	old.Artefact.Unknown, old.Unknown = unknownField, unknownField
	require.True(t, SameHead(&old, &h, true), "a put that does not know of a field changes nothing by its silence")
}

// The state of a held batch is read without its drafts, and is that of the whole row.
func TestHeldStateIsTheRows(t *testing.T) {
	h := filledWith[store.HeldBatch]()
	h.Unknown, h.Batch.Unknown = unknownField, unknownField
	p := Proof{}
	row := p.Append(EncodeHeld(&h))
	whole := must(DecodeHeld(row))(t)
	require.Equal(t, h, whole)
	part := must(HeldState(row))(t)
	require.Equal(t, []any{h.Batch.Scope, h.Decided, h.LSN, h.Outcome.LSN}, []any{part.Batch.Scope, part.Decided, part.LSN, part.Outcome.LSN})
	require.Empty(t, part.Batch.Puts)
}

// A row with a version, a flag or a field of an inner struct that only a later release knows is refused, and is not taken
// for damage.
func TestRowsOfALaterRelease(t *testing.T) {
	h := filledWith[store.Head]("Artefact.Text", "Artefact.TTL")
	good := headRow(&h)
	refused := func(change func(row []byte) []byte) {
		require.ErrorIs(t, errOf(DecodeHead(change(slices.Clone(good)), func(uint32) string { return "s" })), codec.ErrNewer)
	}
	refused(func(row []byte) []byte { row[0] = RowVersion + 1; return row })
	refused(func(row []byte) []byte { row[4] |= flagsKnown + 1; return row })
	refused(func([]byte) []byte {
		part := partFields
		part.Fields = append(slices.Clone(part.Fields), codec.Text(9, "Lang", func(*store.Part) *string { lang := "de"; return &lang }))
		a := codec.But(headArtefact, append([]string{"Parts"}, inHot...)...)
		a.Fields = slices.Insert(slices.Clone(a.Fields), 0, codec.List(5, "Parts", &part, func(a *store.Artefact) *[]store.Part { return &a.Parts }))
		e := codec.Encoder{}
		headFieldsOf(a).Append(&e, &h)
		return (&Proof{}).AppendHead(EncodeHead(nil, &h, 1, e.B))
	})
	row := (&Proof{}).Append([]byte{heldVersion + 1, 1, 1, 1})
	require.ErrorIs(t, errOf(DecodeHeld(row)), codec.ErrNewer)
	require.ErrorIs(t, errOf(DecodeCommit([]byte{commitVersion + 1})), codec.ErrNewer)
	require.ErrorIs(t, errOf(DecodeCommit([]byte{commitVersion - 1})), codec.ErrMalformed)
}

// FORMAT.md has the tags of every list.
func TestFormatHasTheTags(t *testing.T) {
	b := must(os.ReadFile("../../FORMAT.md"))(t)
	documented(t, string(b), "head", headFieldsOf(headArtefact))
	documented(t, string(b), "artefact", &ArtefactFields)
	documented(t, string(b), "part", &partFields)
	documented(t, string(b), "tool call", &toolCallFields)
	documented(t, string(b), "reference", &refFields)
	documented(t, string(b), "source", &validatorFields)
	documented(t, string(b), "held batch", &heldFields)
	documented(t, string(b), "batch", &batchFields)
	documented(t, string(b), "put", &PutFields)
	documented(t, string(b), "page of a put", &pageFields)
	documented(t, string(b), "precondition", &expectFields)
	documented(t, string(b), "precondition on state", &expectStateFields)
	documented(t, string(b), "page seen", &seenFields)
	documented(t, string(b), "state row of a batch", &stateFields)
	documented(t, string(b), "outcome", &outcomeFields)
	documented(t, string(b), "row of an outcome", &outcomeRowFields)
}

func documented[T any](t *testing.T, format, name string, fields *codec.Record[T]) {
	t.Helper()
	list := make([]string, len(fields.Fields))
	for i, f := range fields.Fields {
		list[i] = fmt.Sprintf("%d `%s`", f.Tag, f.Name)
	}
	require.Contains(t, format, "| "+name+" | "+strings.Join(list, ", ")+" |")
}

// ordinary gives heads as corpora have them: a note, a chunk of a file, a turn with a tool call.
func ordinary(i int) *store.Head {
	at := time.UnixMicro(1_780_000_000_000_000 + int64(i)).UTC()
	h := &store.Head{
		Artefact: store.Artefact{ID: fmt.Sprintf("note-%05d", i), Kind: store.KindFact, Provenance: store.Validated, Priority: store.PriorityHigh, CurrentAsOf: at},
		Scope:    "acme/support", Art: uint64(i), Version: 1, LSN: uint64(i), PutAt: at, Actor: "agent", Counter: "approx",
		Rows: []store.PageRow{{Num: uint64(i), Version: 1, LSN: uint64(i), Tokens: 100, Bytes: 500, Hash: 7}},
	}
	switch i % 3 {
	case 1:
		h.Artefact.Source, h.Group, h.Tags = fmt.Sprintf("file:docs/handbook-%05d.md", i), fmt.Sprintf("docs/handbook-%05d.md", i), []string{"handbook"}
		h.Source = store.Validator{Stamp: "52113/1780000000123456789/1780000000123456789/4242", Hash: 1<<63 + 5, At: at}
	case 2:
		h.Role, h.Group, h.Seq = "assistant", "conversation-12", int64(i)
		h.ToolCalls = []store.ToolCall{{ID: fmt.Sprintf("call-%d", i), Type: "function", Name: "search", Arguments: `{"query":"refunds"}`}}
	}
	return h
}

// An artefact with any field beside a text and a kind is more than a note, also with a field that is added later.
func TestPlainNoteSeesEveryField(t *testing.T) {
	require.True(t, PlainNote(&store.Artefact{ID: "a", Kind: store.KindFact, Text: "t", Priority: 2}), "control")
	all := filledWith[store.Artefact]()
	for i := range reflect.TypeFor[store.Artefact]().NumField() {
		name := reflect.TypeFor[store.Artefact]().Field(i).Name
		one := store.Artefact{}
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(&all).Elem().Field(i))
		plain := slices.Contains([]string{"ID", "Kind", "Provenance", "Text", "Name", "ToolCallID", "TTL", "CurrentAsOf", "Priority", "Relevance", "Seq", "Unknown"}, name)
		require.Equal(t, plain, PlainNote(&one), name)
	}
}

// outcomeRows have every field set in one of them at least.
func outcomeRows(t *testing.T) []OutcomeRow {
	refs := []store.Ref{{Scope: "acme/über", ID: "a", Page: 1, Version: 1}, {ID: "b", Page: 70_000, Version: math.MaxUint32}, {Page: -1}, {Scope: "s", ID: "page-12", Version: 1}, {Scope: "s", ID: "page-1", Version: 1}}
	rows := []OutcomeRow{
		{},
		{Outcome: store.Outcome{Status: store.StatusHeld, LSN: 1 << 40, Leaf: 3, Refs: refs[:1]}, Bound: []byte("0123456789abcdef")},
		{Outcome: store.Outcome{Status: store.StatusRejected, LSN: math.MaxUint64, Reason: "stale context", Refs: refs, Stale: refs[1:]}},
		{Outcome: store.Outcome{Status: 200, Leaf: math.MaxUint64, Refs: make([]store.Ref, 20), Stale: refs, Repeats: refs}, Bound: make([]byte, 300)},
		{Outcome: store.Outcome{LSN: 7}, Unknown: []byte{99, 2, 'h', 'i'}},
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[OutcomeRow]()) {
		set := func(r OutcomeRow) bool { return !reflect.ValueOf(r).FieldByIndex(f.Index).IsZero() }
		require.True(t, slices.ContainsFunc(rows, set), "no row here has field %s", f.Name)
	}
	return rows
}

// A row decodes to what was encoded, also the fields of a later release. A field that is added to an outcome fails this until a row has it.
func TestOutcomeRow(t *testing.T) {
	for i, want := range outcomeRows(t) {
		row := want.Encode()
		got := must(DecodeOutcome(row))(t)
		require.Equal(t, want, got, "row %d", i)
		require.Equal(t, row, got.Encode())
	}
}

// A row cut anywhere is refused or is one of fewer fields; a newer version is told from damage.
func TestOutcomeRowMalformed(t *testing.T) {
	for _, r := range outcomeRows(t) {
		row := r.Encode()
		for n := range row {
			if got, err := DecodeOutcome(row[:n]); err == nil {
				require.Equal(t, row[:n], got.Encode())
			}
		}
		row[0]++
		require.ErrorIs(t, errOf(DecodeOutcome(row)), codec.ErrNewer)
	}
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call whose value does not matter.
func errOf[T any](_ T, err error) error { return err }
