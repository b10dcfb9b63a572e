package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fullRecord has something in every field.
func fullRecord() *manifest.Record {
	return &manifest.Record{
		Index: 9, Type: manifest.TypeAssemble, Trace: "01J9ZK4D7QABCDEFGHJKMNPQRS", Parent: "01J9ZK4D7QABCDEFGHJKMNPQRT",
		Time: 1_790_000_000_123_456, Scope: "acme/support/agent-7", Actor: "agent-7", LSN: 4711,
		ReadOnly: true, ServeStale: true, Review: true,
		Query: bytes.Repeat([]byte{0xa1}, 32), Session: "s-1", AsOf: 1_780_000_000_000_000,
		Budget: 4000, Reserve: 512, Tokens: 3990, Tier: 4, Overflow: "fill", Preset: "default", Counter: "o200k",
		Renderer: 1, Shape: "plain", Rendered: bytes.Repeat([]byte{0xb2}, 32),
		Pages: []manifest.Page{
			{Num: 1, Version: 1, Form: manifest.FormFull, Tokens: 100, Score: 65535, R: 1, P: 2, S: 3, LexOwn: 4, LexNear: 5, LexGroup: 6, Tag: manifest.TagRed, Reason: "pinned", Dirty: true, Refetched: true, Stale: true, Via: 7},
			{Num: 1 << 40, Version: math.MaxUint32, Form: manifest.FormRange, Ranges: [][2]uint32{{0, 5}, {5, 9}, {100, math.MaxUint32}}, Tag: manifest.TagYellow, Reason: "score"},
			{Num: 3, Version: 2, Form: manifest.FormStub, Tag: manifest.TagGreen},
		},
		Excluded: []manifest.Exclusion{
			{Reason: "budget", Count: 12, Nearest: []manifest.Page{{Num: 8, Version: 1, Score: 900, Reason: "score"}}},
			{Reason: "expired", Count: 1},
		},
		Batch: "01J9ZK4D7QABCDEFGHJKMNPQRV", From: "01J9ZK4D7QABCDEFGHJKMNPQRW", Status: "held", Reason: "stale context",
		Confidence: 0.88, Gate: 0.7, By: "checker", Evaluator: "grounded/1", Note: "seen twice",
		Writes: []manifest.Write{
			{Num: 5, Ref: "acme/support:answer@2", Version: 2, Digest: bytes.Repeat([]byte{0xc3}, 32)},
			{Num: 6, Ref: "acme/support:old@1", Version: 1, Deleted: true}, {Num: 7, Ref: "x:y@1", Version: 1, Touch: true},
		},
		Stale:     []manifest.Stale{{Num: 1, Seen: 1, Now: 2, Reason: "replaced"}, {Num: 3, Seen: 2}},
		Conflicts: []manifest.Conflict{{Ref: "acme:a", Expect: 4, Found: 6}},
		Action:    "override", Cut: 17, Lost: 300, Size: 99, Root: bytes.Repeat([]byte{0xd4}, 32),
	}
}

func TestCodecRoundTripFull(t *testing.T) {
	want := fullRecord()
	b := must(Encode(want))(t)
	got := must(Decode(9, b))(t)
	require.Equal(t, want, got)
	js := must(json.Marshal(want))(t)
	back := &manifest.Record{}
	require.NoError(t, json.Unmarshal(js, back))
	require.Equal(t, want, back, "a leaf goes through JSON unchanged")
}

// TestCodecGolden pins the bytes: changed ones need a new leaf version, or to
// be a new field.
func TestCodecGolden(t *testing.T) {
	for name, r := range map[string]*manifest.Record{"full": fullRecord(), "get": {Type: manifest.TypeGet, Trace: testTrace(1), Time: 5, Pages: []manifest.Page{{Num: 1, Version: 1, Tokens: 3}}},
		"vector": {Type: manifest.TypeAssemble, Trace: testTrace(2), Time: 6, Embedder: "nomic-embed-text", Pages: []manifest.Page{{Num: 1, Version: 1, Tokens: 3, Vector: 50000}, {Num: 2, Form: manifest.FormRange, Ranges: [][2]uint32{{0, 5}}, Vector: 7}}}} {
		b := must(Encode(r))(t)
		file := "testdata/leaf-" + name + ".hex"
		text := ""
		for i := 0; i < len(b); i += 32 {
			text += fmt.Sprintf("%x\n", b[i:min(i+32, len(b))])
		}
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
		want := must(os.ReadFile(file))(t)
		require.Equal(t, string(want), text)
	}
}

// drawID is a ULID, something that looks like one, or any text.
func drawID() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[0-7][0-9A-HJKMNP-TV-Z]{25}`), rapid.StringMatching(`[0-9a-z]{26}`), drawString())
}

func drawString() *rapid.Generator[string] { return rapid.StringN(0, 20, 60) }

func drawDigest() *rapid.Generator[manifest.Digest] {
	return rapid.Custom(func(t *rapid.T) manifest.Digest {
		b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "digest")
		if len(b) == 0 {
			return nil
		}
		return b
	})
}

func drawPage() *rapid.Generator[manifest.Page] {
	return rapid.Custom(func(t *rapid.T) manifest.Page {
		score := func() manifest.Score { return manifest.Score(rapid.Uint16().Draw(t, "score")) }
		p := manifest.Page{
			Num: rapid.Uint64().Draw(t, "num"), Version: rapid.Uint32().Draw(t, "version"),
			Form: manifest.Form(rapid.IntRange(0, 3).Draw(t, "form")), Tag: manifest.Tag(rapid.IntRange(0, 4).Draw(t, "tag")),
			Tokens: rapid.IntRange(0, math.MaxInt).Draw(t, "tokens"),
			Score:  score(), R: score(), P: score(), S: score(), LexOwn: score(), LexNear: score(), LexGroup: score(), Vector: score(),
			LexSpeaker: score(), LexFirst: score(), LexDate: score(), LexForms: score(), LexLevel: score(),
			Reason: rapid.SampledFrom([]string{"", "score", "pinned", "budget"}).Draw(t, "reason"),
			Dirty:  rapid.Bool().Draw(t, "dirty"), Refetched: rapid.Bool().Draw(t, "refetched"), Stale: rapid.Bool().Draw(t, "stale"),
			Via: rapid.Uint64().Draw(t, "via"),
		}
		if p.Form == manifest.FormRange {
			at := uint32(0)
			for _, n := range rapid.SliceOfN(rapid.Uint32Range(1, 1000), 0, 6).Draw(t, "ranges") {
				p.Ranges = append(p.Ranges, [2]uint32{at, at + n})
				at += n + n%3
			}
		}
		return p
	})
}

func drawPages() *rapid.Generator[[]manifest.Page] {
	return rapid.Map(rapid.SliceOfN(drawPage(), 0, 5), nilIfEmpty[manifest.Page])
}

func nilIfEmpty[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

func drawRecord() *rapid.Generator[*manifest.Record] {
	return rapid.Custom(func(t *rapid.T) *manifest.Record {
		text := func(name string) string { return drawString().Draw(t, name) }
		num := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
		count := func(name string) int { return rapid.IntRange(0, math.MaxInt).Draw(t, name) }
		r := &manifest.Record{
			Type: manifest.Type(rapid.IntRange(1, int(manifest.TypeColumns)).Draw(t, "type")), Trace: drawID().Draw(t, "trace"), Parent: drawID().Draw(t, "parent"),
			Time: rapid.Int64().Draw(t, "time"), Scope: text("scope"), Actor: text("actor"), LSN: num("lsn"),
			ReadOnly: rapid.Bool().Draw(t, "ro"), ServeStale: rapid.Bool().Draw(t, "stale"), Review: rapid.Bool().Draw(t, "review"),
			Query: drawDigest().Draw(t, "query"), Session: text("session"), AsOf: rapid.Int64().Draw(t, "asof"),
			Budget: count("budget"), Reserve: count("reserve"), Tokens: count("tokens"), Tier: rapid.IntRange(0, 4).Draw(t, "tier"),
			Overflow: text("overflow"), Preset: text("preset"), Counter: text("counter"), Renderer: count("renderer"),
			Shape: text("shape"), Rendered: drawDigest().Draw(t, "rendered"), Pages: drawPages().Draw(t, "pages"),
			Batch: drawID().Draw(t, "batch"), From: drawID().Draw(t, "from"), Status: text("status"), Reason: text("reason"),
			Confidence: rapid.Float64Range(0, 1).Draw(t, "confidence"), Gate: rapid.Float64Range(0, 1).Draw(t, "gate"),
			By: text("by"), Evaluator: text("evaluator"), Note: text("note"), Embedder: text("embedder"), Filter: text("filter"), Match: manifest.Match(text("match")), Covered: manifest.Quantise(rapid.Float64Range(0, 1).Draw(t, "covered")), Action: text("action"),
			Cut: num("cut"), Lost: num("lost"), Size: num("size"), Root: drawDigest().Draw(t, "root"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "more") {
			r.Excluded = append(r.Excluded, manifest.Exclusion{Reason: text("xreason"), Count: count("xcount"), Nearest: drawPages().Draw(t, "nearest")})
			r.Writes = append(r.Writes, manifest.Write{Num: num("wnum"), Ref: text("wref"), Version: rapid.Uint32().Draw(t, "wver"), Digest: drawDigest().Draw(t, "wdig"), Deleted: rapid.Bool().Draw(t, "wdel"), Touch: rapid.Bool().Draw(t, "wtouch"), Gone: rapid.Bool().Draw(t, "wgone")})
			r.Stale = append(r.Stale, manifest.Stale{Num: num("snum"), Seen: rapid.Uint32().Draw(t, "seen"), Now: rapid.Uint32().Draw(t, "now"), Reason: text("sreason")})
			r.Conflicts = append(r.Conflicts, manifest.Conflict{Ref: text("cref"), Expect: num("expect"), Found: num("found")})
		}
		return r
	})
}

func TestCodecRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRecord().Draw(t, "record")
		b := must(Encode(want))(t)
		again := must(Encode(want))(t)
		require.Equal(t, b, again, "same record, same bytes")
		got := must(Decode(0, b))(t)
		require.Equal(t, want, got)
	})
}

// TestCodecDeterminism: the bytes do not depend on the schedule.
func TestCodecDeterminism(t *testing.T) {
	want := must(Encode(fullRecord()))(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2, 8} {
		runtime.GOMAXPROCS(procs)
		got := make(chan []byte, 32)
		for range cap(got) {
			go func() { b, _ := Encode(fullRecord()); got <- b }()
		}
		for range cap(got) {
			require.Equal(t, want, <-got)
		}
	}
}

// TestRowOfRecord: a record and its bytes give one row.
func TestRowOfRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord().Draw(t, "record")
		body := must(Encode(r))(t)
		want := must(rowOf(body))(t)
		require.Equal(t, want, rowOfRecord(r, len(body)))
	})
}

// assemblyOf50 is a leaf as an assembly of 50 pages from a database of a
// million writes it.
func assemblyOf50(lexical bool) *manifest.Record {
	r := &manifest.Record{
		Type: manifest.TypeAssemble, Trace: testTrace(1), Time: 1_790_000_000_000_000, Scope: "acme/support/agent-7", Actor: "agent-7",
		LSN: 1_200_000, Query: bytes.Repeat([]byte{1}, 32), Budget: 16000, Reserve: 2000, Tokens: 13800, Tier: 2,
		Overflow: "fill", Preset: "default", Counter: "estimate/1", Renderer: 1, Rendered: bytes.Repeat([]byte{2}, 32),
	}
	reasons := []string{"pinned", "core", "score", "recent"}
	for i := range uint64(50) {
		p := manifest.Page{Num: 900_000 + i*77, Version: 1 + uint32(i%3), Tokens: 200 + int(i), Score: manifest.Score(60000 - i*500), R: 30000, P: 45000, S: manifest.Score(65000 - i*700), Tag: manifest.TagYellow, Reason: reasons[i%4]}
		if lexical {
			p.LexOwn, p.LexNear, p.LexGroup = 60000, 3000, 9000
		}
		r.Pages = append(r.Pages, p)
	}
	for i, reason := range []string{"budget", "provenance floor", "expired"} {
		x := manifest.Exclusion{Reason: reason, Count: 300 + i}
		for k := range uint64(3) {
			x.Nearest = append(x.Nearest, manifest.Page{Num: 800_000 + k, Version: 1, Score: 20000})
		}
		r.Excluded = append(r.Excluded, x)
	}
	return r
}

func TestLeafStaysSmall(t *testing.T) {
	size := func(r *manifest.Record) int {
		b := must(Encode(r))(t)
		return len(b)
	}
	get := size(&manifest.Record{Type: manifest.TypeGet, Trace: testTrace(1), Time: 1_790_000_000_000_000, Scope: "acme/support/agent-7", Actor: "agent-7", LSN: 1_200_000, Pages: []manifest.Page{{Num: 900_000, Version: 3, Tokens: 480}}})
	plain, lexical := size(assemblyOf50(false)), size(assemblyOf50(true))
	t.Logf("get %d bytes, assembly of 50 pages %d, with the lexical parts %d", get, plain, lexical)
	require.LessOrEqual(t, get, 100)
	require.LessOrEqual(t, plain, 1200)
	require.LessOrEqual(t, lexical, 1500)
}

func TestEncodeRefuses(t *testing.T) {
	many := &manifest.Record{Type: manifest.TypeExport, Pages: make([]manifest.Page, MaxPages+1)}
	reasons := &manifest.Record{Type: manifest.TypeSearch}
	for i := range 300 {
		reasons.Pages = append(reasons.Pages, manifest.Page{Reason: fmt.Sprint(i)})
	}
	page := func(p manifest.Page) *manifest.Record {
		return &manifest.Record{Type: manifest.TypeGet, Pages: []manifest.Page{p}}
	}
	for name, r := range map[string]*manifest.Record{
		"no type": {}, "unknown type": {Type: 200}, "negative budget": {Type: manifest.TypeGet, Budget: -1},
		"negative exclusion": {Type: manifest.TypeGet, Excluded: []manifest.Exclusion{{Count: -1}}},
		"nan":                {Type: manifest.TypeCommit, Confidence: math.NaN()}, "inf": {Type: manifest.TypeCommit, Gate: math.Inf(1)},
		"form": page(manifest.Page{Form: 4}), "tag": page(manifest.Page{Tag: 5}), "tokens": page(manifest.Page{Tokens: -1}),
		"ranges on a full page": page(manifest.Page{Ranges: [][2]uint32{{0, 1}}}),
		"empty range":           page(manifest.Page{Form: manifest.FormRange, Ranges: [][2]uint32{{1, 1}}}),
		"overlapping ranges":    page(manifest.Page{Form: manifest.FormRange, Ranges: [][2]uint32{{0, 5}, {4, 6}}}),
		"too many pages":        many, "too many writes": {Type: manifest.TypeCommit, Writes: make([]manifest.Write, MaxPages+1)}, "too many reasons": reasons,
		"too large": {Type: manifest.TypeCommit, Note: strings.Repeat("x", MaxBody)},
	} {
		require.ErrorContains(t, errOf(Encode(r)), "manifest: ", name)
	}
}

// leafOf is the bytes of a leaf with the given fields, each a tag and a value.
func leafOf(fields ...any) []byte {
	e := codec.Encoder{B: []byte{leafVersion}}
	for i := 0; i < len(fields); i += 2 {
		e.Uvarint(uint64(fields[i].(int)))
		e.Str(fields[i+1].(string))
	}
	return e.B
}

// TestDecodeAcceptsGrowth: fields of a leaf and of a page row that a later program adds are
// skipped; a later leaf version is told apart from damage.
func TestDecodeAcceptsGrowth(t *testing.T) {
	r := must(Decode(3, leafOf(1, "\x02", 39, "more", 99, "still more")))(t)
	require.Equal(t, &manifest.Record{Index: 3, Type: manifest.TypeSearch}, r)

	r = must(Decode(0, leafOf(1, "\x4d")))(t)
	require.False(t, r.Type.Known())
	require.Equal(t, "type-77", r.Type.String())

	w := wire{Record: new(manifest.Record)}
	want := manifest.Page{Num: 5, Version: 1, Via: 9, Form: manifest.FormRange, Ranges: [][2]uint32{{1, 2}}, Vector: 8, LexLevel: 7}
	row := append(appendRow(nil, &w, &want), 1, 2, 3)
	pages := w.readPages(&codec.Decoder{B: append([]byte{byte(len(row))}, row...)})
	require.Equal(t, []manifest.Page{want}, pages)

	_, err := Decode(0, append([]byte{2}, leafOf(1, "\x01")[1:]...))
	require.ErrorIs(t, err, codec.ErrNewerFormat)
	damaged := &codec.CorruptError{}
	require.NotErrorAs(t, err, &damaged)
	for name, b := range map[string][]byte{
		"nothing": {}, "a short id": leafOf(1, "\x01", 2, "\x01\x02"), "an id of another form": leafOf(1, "\x01", 2, "\x02x"), "version 0": {0, 1, 1, 1}, "a type of two bytes": leafOf(1, "\xff\x02"),
		"bytes behind": append(leafOf(1, "\x01"), 0), "tags that fall": leafOf(2, "\x00t", 1, "\x01"), "reason out of range": leafOf(1, "\x01", 10, "\x04\x01\x01\x00\x09"),
		"half a score": leafOf(1, "\x01", 10, "\x06\x01\x01\x00\x00\x00\x09"), "not a number": leafOf(1, "\x06", 44, "\x7f\xf8\x00\x00\x00\x00\x00\x01"),
		"digests of no length": leafOf(1, "\x06", tagRows, "\x00\x00\x00\x00\x00\x00\x00\x01"), "covered leaves that overflow": leafOf(1, "\x16", 56, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01"),
	} {
		require.ErrorAs(t, errOf(Decode(7, b)), &damaged, name)
		require.Equal(t, codec.UnitLeaf, damaged.Unit)
		require.EqualValues(t, 7, damaged.Num)
	}
}

// TestRecordComplete: a record outside a leaf keeps every field, and a leaf every field but those
// that a reader knows beside it. The control is each list without each of its fields.
func TestRecordComplete(t *testing.T) {
	var want manifest.Record
	dbtest.Fill(&want)
	want.Rows, want.State = []manifest.Digest{bytes.Repeat([]byte{1}, rowDigest)}, []manifest.Digest{bytes.Repeat([]byte{2}, StateSize)}
	read := func(fields *codec.Record[wire]) manifest.Record {
		var e codec.Encoder
		fields.Append(&e, &wire{Record: &want, flags: flagsOf(&want), reasons: reasonsOf(&want)})
		got := wire{Record: new(manifest.Record)}
		d := codec.Decoder{B: e.B}
		fields.Read(&d, &got)
		got.takeFlags()
		return *got.Record
	}
	require.Equal(t, want, read(&recordFields))
	for _, f := range recordFields.Fields {
		require.NotEqual(t, want, read(codec.But(&recordFields, f.Name)), f.Name)
	}
	leaf := want
	leaf.Index, leaf.Question, leaf.Pruned = 0, "", nil
	require.Equal(t, leaf, read(&leafFields))
}

// A read is written without the fields that it cannot have, to the same bytes.
func TestReadFieldsAreThoseOfALeaf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord().Draw(t, "record")
		if !onlyRead(r) {
			r.Batch, r.From, r.Status, r.Reason, r.By, r.Evaluator, r.Confidence, r.Gate, r.Action = "", "", "", "", "", "", 0, 0, ""
			r.Cut, r.Lost, r.Size, r.Writes, r.Stale, r.Conflicts, r.Root = 0, 0, 0, nil, nil, nil, nil
		}
		require.True(t, onlyRead(r))
		var e, f codec.Encoder
		leafFields.Append(&e, &wire{Record: r, reasons: reasonsOf(r)})
		readFields.Append(&f, &wire{Record: r, reasons: reasonsOf(r)})
		require.Equal(t, e.B, f.B)
		r.AsOf, r.Budget, r.Reserve, r.Tier, r.Renderer, r.Overflow, r.Preset, r.Shape, r.Embedder, r.Filter, r.Note, r.Match, r.Covered = 0, 0, 0, 0, 0, "", "", "", "", "", "", "", 0
		r.Excluded, r.Query, r.Rendered = nil, nil, nil
		require.True(t, onlyGet(r))
		e.B, f.B = nil, nil
		leafFields.Append(&e, &wire{Record: r, reasons: reasonsOf(r)})
		getFields.Append(&f, &wire{Record: r, reasons: reasonsOf(r)})
		require.Equal(t, e.B, f.B)
		dbtest.Fill(r)
		require.False(t, onlyRead(r) || onlyGet(r), "control")
	})
}

// TestDecodeMemory: bytes made to look like much must not take much.
func TestDecodeMemory(t *testing.T) {
	large := strings.Repeat("\x00", MaxBody-40)
	many := func(n uint64) string { return string(binary.AppendUvarint(nil, n)) + large }
	for name, b := range map[string][]byte{
		"one text": leafOf(1, "\x01", 6, large), "page rows": leafOf(1, "\x01", 10, large), "exclusions": leafOf(1, "\x01", 11, large),
		"reasons": leafOf(1, "\x01", 9, many(MaxBody-50)), "reasons at the limit": leafOf(1, "\x01", 9, many(MaxPages)),
		"writes": leafOf(1, "\x06", 48, many(MaxBody-50)), "writes at the limit": leafOf(1, "\x06", 48, many(MaxPages)),
		"stale": leafOf(1, "\x06", 49, many(MaxBody-50)), "conflicts": leafOf(1, "\x06", 50, many(MaxBody-50)),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = Decode(0, b)
		runtime.ReadMemStats(&after)
		grown := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%s: %d MiB allocated in all", name, grown)
		require.Less(t, grown, uint64(64), name)
	}
}

func FuzzDecode(f *testing.F) {
	for i := range uint64(4) {
		f.Add(sampleBody(f, i))
	}
	full := must(Encode(fullRecord()))(f)
	f.Add(full)
	f.Add(leafOf(1, "\x06", 48, "\xff\xff\x03"))
	f.Add(leafOf(1, "\x02", 48, "\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(1, b)
		if err != nil {
			return
		}
		must(json.Marshal(r))(t)
		if !r.Type.Known() {
			return
		}
		again, err := Encode(r)
		if err != nil {
			return // the bytes say what Encode would refuse, such as an empty range
		}
		back := must(Decode(1, again))(t)
		require.Equal(t, r, back)
	})
}

// RowDigest, StateEntry and EachState agree with the decoded leaf on every digest, of leaves that are archived and of
// leaves that are not.
func TestRowDigests(t *testing.T) {
	l, _ := openLog(t, newFS(t), Options{SegmentSize: 64 << 10})
	const leaves = 2000
	for i := range uint64(leaves) {
		r := sampleRecord(i)
		if r.Type == manifest.TypeCommit {
			for k := range i % 4 {
				r.State = append(r.State, bytes.Repeat([]byte{byte(i), byte(k), 7}, StateSize/3))
			}
			for k := range i % 5 {
				r.Rows = append(r.Rows, bytes.Repeat([]byte{byte(i), byte(k)}, rowDigest/2))
			}
		}
		leaf := must(NewLeaf(r))(t) // by the record, as a writer does
		require.NoError(t, l.AddNew(i, leaf))
		if i == leaves*3/4 {
			require.NoError(t, l.Archive(context.Background(), i))
		}
	}
	entries := map[uint64][]byte{}
	require.NoError(t, l.EachState(context.Background(), leaves, func(i uint64, state []byte) { entries[i] = bytes.Clone(state) }))
	require.ErrorIs(t, l.EachState(context.Background(), leaves+1, nil), manifest.ErrNoLeaf)
	with := 0
	for i := range uint64(leaves) {
		want := 0
		if i%3 == 2 {
			want = int(i % 5)
		}
		states := 0
		if i%3 == 2 {
			states = int(i % 4)
		}
		require.Len(t, entries[i], states*StateSize)
		for k := range states {
			d := must(l.StateEntry(i, k))(t)
			require.Equal(t, bytes.Repeat([]byte{byte(i), byte(k), 7}, StateSize/3), d[:])
			require.Equal(t, d[:], entries[i][k*StateSize:(k+1)*StateSize])
		}
		require.ErrorIs(t, errOf(l.StateEntry(i, states)), manifest.ErrNoLeaf)
		leaf := must(l.Leaf(i))(t)
		require.Len(t, leaf.Rows, want)
		require.Len(t, leaf.State, states)
		for k := range want {
			d := must(l.RowDigest(i, k))(t)
			require.Equal(t, []byte(leaf.Rows[k]), d[:])
			with++
		}
		require.ErrorIs(t, errOf(l.RowDigest(i, want)), manifest.ErrNoLeaf)
	}
	require.Greater(t, with, 1000)
}
