package manifest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/internal/corrupt"
	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fullRecord has something in every field.
func fullRecord() *Record {
	return &Record{
		Index: 9, Type: TypeAssemble, Trace: "01J9ZK4D7QABCDEFGHJKMNPQRS", Parent: "01J9ZK4D7QABCDEFGHJKMNPQRT",
		Time: 1_790_000_000_123_456, Scope: "acme/support/agent-7", Actor: "agent-7", LSN: 4711,
		ReadOnly: true, ServeStale: true, Review: true,
		Query: bytes.Repeat([]byte{0xa1}, 32), Session: "s-1", AsOf: 1_780_000_000_000_000,
		Budget: 4000, Reserve: 512, Tokens: 3990, Tier: 4, Overflow: "fill", Preset: "default", Counter: "o200k",
		Renderer: 1, Shape: "plain", Rendered: bytes.Repeat([]byte{0xb2}, 32),
		Pages: []Page{
			{Num: 1, Version: 1, Form: FormFull, Tokens: 100, Score: 65535, R: 1, P: 2, S: 3, LexOwn: 4, LexNear: 5, LexGroup: 6, Tag: TagRed, Reason: "pinned", Dirty: true, Refetched: true, Stale: true, Via: 7},
			{Num: 1 << 40, Version: math.MaxUint32, Form: FormRange, Ranges: [][2]uint32{{0, 5}, {5, 9}, {100, math.MaxUint32}}, Tag: TagYellow, Reason: "score"},
			{Num: 3, Version: 2, Form: FormStub, Tag: TagGreen},
		},
		Excluded: []Exclusion{
			{Reason: "budget", Count: 12, Nearest: []Page{{Num: 8, Version: 1, Score: 900, Reason: "score"}}},
			{Reason: "expired", Count: 1},
		},
		Batch: "01J9ZK4D7QABCDEFGHJKMNPQRV", From: "01J9ZK4D7QABCDEFGHJKMNPQRW", Status: "held", Reason: "stale context",
		Confidence: 0.88, Gate: 0.7, By: "checker", Evaluator: "grounded/1", Note: "seen twice",
		Writes: []Write{
			{Num: 5, Ref: "acme/support:answer@2", Version: 2, Digest: bytes.Repeat([]byte{0xc3}, 32)},
			{Num: 6, Ref: "acme/support:old@1", Version: 1, Deleted: true}, {Num: 7, Ref: "x:y@1", Version: 1, Touch: true},
		},
		Stale:     []Stale{{Num: 1, Seen: 1, Now: 2, Reason: "replaced"}, {Num: 3, Seen: 2}},
		Conflicts: []Conflict{{Ref: "acme:a", Expect: 4, Found: 6}},
		Action:    "override", Cut: 17, Lost: 300, Size: 99, Root: bytes.Repeat([]byte{0xd4}, 32),
	}
}

func TestCodecRoundTripFull(t *testing.T) {
	want := fullRecord()
	b, err := Encode(want)
	require.NoError(t, err)
	got, err := Decode(9, b)
	require.NoError(t, err)
	require.Equal(t, want, got)
	js, err := json.Marshal(want)
	require.NoError(t, err)
	back := &Record{}
	require.NoError(t, json.Unmarshal(js, back))
	require.Equal(t, want, back, "a leaf goes through JSON unchanged")
}

// TestCodecGolden pins the bytes: changed ones need a new leaf version, or to
// be a new element at the end.
func TestCodecGolden(t *testing.T) {
	for name, r := range map[string]*Record{"full": fullRecord(), "get": {Type: TypeGet, Trace: testTrace(1), Time: 5, Pages: []Page{{Num: 1, Version: 1, Tokens: 3}}},
		"vector": {Type: TypeAssemble, Trace: testTrace(2), Time: 6, Embedder: "nomic-embed-text", Pages: []Page{{Num: 1, Version: 1, Tokens: 3, Vector: 50000}, {Num: 2, Form: FormRange, Ranges: [][2]uint32{{0, 5}}, Vector: 7}}}} {
		b, err := Encode(r)
		require.NoError(t, err)
		file := "testdata/leaf-" + name + ".hex"
		text := ""
		for i := 0; i < len(b); i += 32 {
			text += fmt.Sprintf("%x\n", b[i:min(i+32, len(b))])
		}
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), text)
	}
}

// drawID is a ULID, something that looks like one, or any text.
func drawID() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[0-7][0-9A-HJKMNP-TV-Z]{25}`), rapid.StringMatching(`[0-9a-z]{26}`), drawString())
}

func drawString() *rapid.Generator[string] { return rapid.StringN(0, 20, 60) }

func drawDigest() *rapid.Generator[Digest] {
	return rapid.Custom(func(t *rapid.T) Digest {
		b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "digest")
		if len(b) == 0 {
			return nil
		}
		return b
	})
}

func drawPage() *rapid.Generator[Page] {
	return rapid.Custom(func(t *rapid.T) Page {
		score := func() Score { return Score(rapid.Uint16().Draw(t, "score")) }
		p := Page{
			Num: rapid.Uint64().Draw(t, "num"), Version: rapid.Uint32().Draw(t, "version"),
			Form: Form(rapid.IntRange(0, 3).Draw(t, "form")), Tag: Tag(rapid.IntRange(0, 4).Draw(t, "tag")),
			Tokens: rapid.IntRange(0, math.MaxInt).Draw(t, "tokens"),
			Score:  score(), R: score(), P: score(), S: score(), LexOwn: score(), LexNear: score(), LexGroup: score(), Vector: score(),
			LexSpeaker: score(), LexFirst: score(), LexDate: score(), LexForms: score(), LexLevel: score(),
			Reason: rapid.SampledFrom([]string{"", "score", "pinned", "budget"}).Draw(t, "reason"),
			Dirty:  rapid.Bool().Draw(t, "dirty"), Refetched: rapid.Bool().Draw(t, "refetched"), Stale: rapid.Bool().Draw(t, "stale"),
			Via: rapid.Uint64().Draw(t, "via"),
		}
		if p.Form == FormRange {
			at := uint32(0)
			for _, n := range rapid.SliceOfN(rapid.Uint32Range(1, 1000), 0, 6).Draw(t, "ranges") {
				p.Ranges = append(p.Ranges, [2]uint32{at, at + n})
				at += n + n%3
			}
		}
		return p
	})
}

func drawPages() *rapid.Generator[[]Page] {
	return rapid.Map(rapid.SliceOfN(drawPage(), 0, 5), nilIfEmpty[Page])
}

func nilIfEmpty[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

func drawRecord() *rapid.Generator[*Record] {
	return rapid.Custom(func(t *rapid.T) *Record {
		text := func(name string) string { return drawString().Draw(t, name) }
		num := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
		count := func(name string) int { return rapid.IntRange(0, math.MaxInt).Draw(t, name) }
		r := &Record{
			Type: Type(rapid.IntRange(1, len(typeNames)-1).Draw(t, "type")), Trace: drawID().Draw(t, "trace"), Parent: drawID().Draw(t, "parent"),
			Time: rapid.Int64().Draw(t, "time"), Scope: text("scope"), Actor: text("actor"), LSN: num("lsn"),
			ReadOnly: rapid.Bool().Draw(t, "ro"), ServeStale: rapid.Bool().Draw(t, "stale"), Review: rapid.Bool().Draw(t, "review"),
			Query: drawDigest().Draw(t, "query"), Session: text("session"), AsOf: rapid.Int64().Draw(t, "asof"),
			Budget: count("budget"), Reserve: count("reserve"), Tokens: count("tokens"), Tier: rapid.IntRange(0, 4).Draw(t, "tier"),
			Overflow: text("overflow"), Preset: text("preset"), Counter: text("counter"), Renderer: count("renderer"),
			Shape: text("shape"), Rendered: drawDigest().Draw(t, "rendered"), Pages: drawPages().Draw(t, "pages"),
			Batch: drawID().Draw(t, "batch"), From: drawID().Draw(t, "from"), Status: text("status"), Reason: text("reason"),
			Confidence: rapid.Float64Range(0, 1).Draw(t, "confidence"), Gate: rapid.Float64Range(0, 1).Draw(t, "gate"),
			By: text("by"), Evaluator: text("evaluator"), Note: text("note"), Embedder: text("embedder"), Filter: text("filter"), Action: text("action"),
			Cut: num("cut"), Lost: num("lost"), Size: num("size"), Root: drawDigest().Draw(t, "root"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "more") {
			r.Excluded = append(r.Excluded, Exclusion{Reason: text("xreason"), Count: count("xcount"), Nearest: drawPages().Draw(t, "nearest")})
			r.Writes = append(r.Writes, Write{Num: num("wnum"), Ref: text("wref"), Version: rapid.Uint32().Draw(t, "wver"), Digest: drawDigest().Draw(t, "wdig"), Deleted: rapid.Bool().Draw(t, "wdel"), Touch: rapid.Bool().Draw(t, "wtouch"), Gone: rapid.Bool().Draw(t, "wgone")})
			r.Stale = append(r.Stale, Stale{Num: num("snum"), Seen: rapid.Uint32().Draw(t, "seen"), Now: rapid.Uint32().Draw(t, "now"), Reason: text("sreason")})
			r.Conflicts = append(r.Conflicts, Conflict{Ref: text("cref"), Expect: num("expect"), Found: num("found")})
		}
		return r
	})
}

func TestCodecRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRecord().Draw(t, "record")
		b, err := Encode(want)
		require.NoError(t, err)
		again, err := Encode(want)
		require.NoError(t, err)
		require.Equal(t, b, again, "same record, same bytes")
		require.NoError(t, Scan(b))
		got, err := Decode(0, b)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// TestCodecDeterminism: the bytes do not depend on the schedule.
func TestCodecDeterminism(t *testing.T) {
	want, err := Encode(fullRecord())
	require.NoError(t, err)
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
		body, err := Encode(r)
		require.NoError(t, err)
		want, err := rowOf(body)
		require.NoError(t, err)
		require.Equal(t, want, r.row(len(body)))
	})
}

// assemblyOf50 is a leaf as an assembly of 50 pages from a database of a
// million writes it.
func assemblyOf50(lexical bool) *Record {
	r := &Record{
		Type: TypeAssemble, Trace: testTrace(1), Time: 1_790_000_000_000_000, Scope: "acme/support/agent-7", Actor: "agent-7",
		LSN: 1_200_000, Query: bytes.Repeat([]byte{1}, 32), Budget: 16000, Reserve: 2000, Tokens: 13800, Tier: 2,
		Overflow: "fill", Preset: "default", Counter: "estimate/1", Renderer: 1, Rendered: bytes.Repeat([]byte{2}, 32),
	}
	reasons := []string{"pinned", "core", "score", "recent"}
	for i := range uint64(50) {
		p := Page{Num: 900_000 + i*77, Version: 1 + uint32(i%3), Tokens: 200 + int(i), Score: Score(60000 - i*500), R: 30000, P: 45000, S: Score(65000 - i*700), Tag: TagYellow, Reason: reasons[i%4]}
		if lexical {
			p.LexOwn, p.LexNear, p.LexGroup = 60000, 3000, 9000
		}
		r.Pages = append(r.Pages, p)
	}
	for i, reason := range []string{"budget", "provenance floor", "expired"} {
		x := Exclusion{Reason: reason, Count: 300 + i}
		for k := range uint64(3) {
			x.Nearest = append(x.Nearest, Page{Num: 800_000 + k, Version: 1, Score: 20000})
		}
		r.Excluded = append(r.Excluded, x)
	}
	return r
}

func TestLeafStaysSmall(t *testing.T) {
	size := func(r *Record) int {
		b, err := Encode(r)
		require.NoError(t, err)
		return len(b)
	}
	get := size(&Record{Type: TypeGet, Trace: testTrace(1), Time: 1_790_000_000_000_000, Scope: "acme/support/agent-7", Actor: "agent-7", LSN: 1_200_000, Pages: []Page{{Num: 900_000, Version: 3, Tokens: 480}}})
	plain, lexical := size(assemblyOf50(false)), size(assemblyOf50(true))
	t.Logf("get %d bytes, assembly of 50 pages %d, with the lexical parts %d", get, plain, lexical)
	require.LessOrEqual(t, get, 100)
	require.LessOrEqual(t, plain, 1200)
	require.LessOrEqual(t, lexical, 1500)
}

func TestEncodeRefuses(t *testing.T) {
	many := &Record{Type: TypeExport, Pages: make([]Page, MaxPages+1)}
	reasons := &Record{Type: TypeSearch}
	for i := range 300 {
		reasons.Pages = append(reasons.Pages, Page{Reason: fmt.Sprint(i)})
	}
	page := func(p Page) *Record { return &Record{Type: TypeGet, Pages: []Page{p}} }
	for name, r := range map[string]*Record{
		"no type": {}, "unknown type": {Type: 200}, "negative budget": {Type: TypeGet, Budget: -1},
		"negative exclusion": {Type: TypeGet, Excluded: []Exclusion{{Count: -1}}},
		"nan":                {Type: TypeCommit, Confidence: math.NaN()}, "inf": {Type: TypeCommit, Gate: math.Inf(1)},
		"form": page(Page{Form: 4}), "tag": page(Page{Tag: 5}), "tokens": page(Page{Tokens: -1}),
		"ranges on a full page": page(Page{Ranges: [][2]uint32{{0, 1}}}),
		"empty range":           page(Page{Form: FormRange, Ranges: [][2]uint32{{1, 1}}}),
		"overlapping ranges":    page(Page{Form: FormRange, Ranges: [][2]uint32{{0, 5}, {4, 6}}}),
		"too many pages":        many, "too many writes": {Type: TypeCommit, Writes: make([]Write, MaxPages+1)}, "too many reasons": reasons,
		"too large": {Type: TypeCommit, Note: strings.Repeat("x", MaxBody)},
	} {
		_, err := Encode(r)
		require.ErrorContains(t, err, "manifest: ", name)
	}
}

// TestDecodeAcceptsGrowth: elements and row fields a later program adds are
// skipped; a later leaf version is told apart from damage.
func TestDecodeAcceptsGrowth(t *testing.T) {
	elements := func(values ...any) []byte {
		b, err := msgpack.Marshal(values)
		require.NoError(t, err)
		return b
	}
	long := make([]any, len(fields)+3)
	long[0], long[1], long[len(fields)] = 1, 2, "more"
	r, err := Decode(3, elements(long...))
	require.NoError(t, err)
	require.Equal(t, &Record{Index: 3, Type: TypeSearch}, r)

	r, err = Decode(0, elements(1, 77))
	require.NoError(t, err)
	require.False(t, r.Type.Known())
	require.Equal(t, "type-77", r.Type.String())

	w := wire{Record: new(Record)}
	row := appendRow(nil, &w, &Page{Num: 5, Version: 1, Via: 9, Form: FormRange, Ranges: [][2]uint32{{1, 2}}, Vector: 8, LexLevel: 7})
	row = append(row, 1, 2, 3)
	pages, err := w.readPages(append([]byte{byte(len(row))}, row...))
	require.NoError(t, err)
	require.Equal(t, []Page{{Num: 5, Version: 1, Via: 9, Form: FormRange, Ranges: [][2]uint32{{1, 2}}, Vector: 8, LexLevel: 7}}, pages)

	_, err = Decode(0, elements(2, 1))
	require.ErrorIs(t, err, ErrNewerFormat)
	damaged := &corrupt.Error{}
	require.NotErrorAs(t, err, &damaged)
	for name, b := range map[string][]byte{
		"nothing": {}, "no array": {0x01}, "no version": elements(), "a short id": elements(1, 1, []byte{1, 2}), "version 0": elements(0, 1), "a text as type": elements(1, "x"),
		"bytes behind": append(elements(1, 1), 0), "reason out of range": elements(1, 1, "t", "", 0, 0, "", "", 0, nil, []byte{4, 1, 1, 0, 9}),
		"half a score": elements(1, 1, "t", "", 0, 0, "", "", 0, nil, []byte{6, 1, 1, 0, 0, 0, 9}),
	} {
		_, err := Decode(7, b)
		require.ErrorAs(t, err, &damaged, name)
		require.Equal(t, corrupt.Leaf, damaged.Unit)
		require.EqualValues(t, 7, damaged.Num)
	}
}

func TestScan(t *testing.T) {
	nested := func(n int) []byte { return append(bytes.Repeat([]byte{0x91}, n), 0xc0) }
	ok := map[string][]byte{
		"nil": {0xc0}, "fixmap": {0x81, 0xa1, 'a', 1}, "float": {0xcb, 0, 0, 0, 0, 0, 0, 0, 0}, "ext8": {0xc7, 1, 5, 9},
		"fixext4": {0xd6, 1, 0, 0, 0, 0}, "deep": nested(maxDepth), "empty": {0x90}, "nested empties": {0x92, 0x90, 0x80}, "bin": {0xc4, 1, 7},
	}
	for name, b := range ok {
		require.NoError(t, Scan(b), name)
		for k := range b {
			require.Error(t, Scan(b[:k]), "%s cut to %d bytes", name, k)
		}
	}
	for name, b := range map[string][]byte{
		"five bytes that promise 4 G items": {0xdd, 0xff, 0xff, 0xff, 0xff}, "a map likewise": {0xdf, 0xff, 0xff, 0xff, 0xff},
		"4 GiB of bytes": {0xc6, 0xff, 0xff, 0xff, 0xff}, "too deep": nested(maxDepth + 1), "a million deep": nested(1_000_000),
		"two values": {1, 1}, "the code that is none": {0xc1},
		"items promised on every level": bytes.Repeat([]byte{0x9f}, 30),
	} {
		require.Error(t, Scan(b), name)
	}
	b := sampleBody(t, 3)
	require.Zero(t, testing.AllocsPerRun(20, func() { _ = Scan(b) }))
}

// TestDecodeMemory: bytes made to look like much must not take much.
func TestDecodeMemory(t *testing.T) {
	e := msgpack.NewEncoder(&bytes.Buffer{})
	wide := func(item []byte, place int) []byte {
		var buf bytes.Buffer
		e.Reset(&buf)
		require.NoError(t, e.EncodeArrayLen(place+1))
		require.NoError(t, e.EncodeUint(1))
		for range place - 1 {
			require.NoError(t, e.EncodeNil())
		}
		n := MaxPages
		require.NoError(t, e.EncodeArrayLen(n))
		return append(buf.Bytes(), bytes.Repeat(item, n)...)
	}
	large := make([]byte, MaxBody-20)
	for name, b := range map[string][]byte{
		"one text": append([]byte{0x93, 1, 1, 0xdb, 0, 0x3f, 0xff, 0xec}, large...), "page rows": append([]byte{0x9b, 1, 1, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc6, 0, 0x3f, 0xff, 0xec}, large...),
		"writes": wide([]byte{0x94, 0, 0xa0, 0, 0}, 34), "stale": wide([]byte{0x94, 0, 0, 0, 0xa0}, 35), "nil writes": wide([]byte{0xc0}, 34),
		"exclusions": wide([]byte{0x93, 0, 0, 0xc0}, 11), "reasons": wide([]byte{0xa0}, 9),
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
	full, err := Encode(fullRecord())
	require.NoError(f, err)
	f.Add(full)
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(1, b)
		if err != nil {
			return
		}
		_, err = json.Marshal(r)
		require.NoError(t, err)
		if !r.Type.Known() {
			return
		}
		again, err := Encode(r)
		if err != nil {
			return // the bytes say what Encode would refuse, such as an empty range
		}
		back, err := Decode(1, again)
		require.NoError(t, err)
		require.Equal(t, r, back)
	})
}

func FuzzScan(f *testing.F) {
	f.Add([]byte{0x81, 0xa1, 'a', 1})
	f.Add([]byte{0xdd, 0, 0, 0, 2, 0xc0, 0x93, 1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		if Scan(b) != nil {
			return
		}
		d := msgpack.NewDecoder(bytes.NewReader(b))
		require.NoError(t, d.Skip(), "what Scan passes can be walked")
		require.Error(t, d.Skip(), "and nothing is left")
	})
}

func TestNames(t *testing.T) {
	for ty := Type(1); int(ty) < len(typeNames); ty++ {
		back, err := ParseType(ty.String())
		require.NoError(t, err)
		require.Equal(t, ty, back)
		require.NotEmpty(t, typeNames[ty])
	}
	_, err := ParseType("type-77")
	require.Error(t, err)
	require.Error(t, new(Form).UnmarshalText([]byte("half")))
	require.Error(t, new(Tag).UnmarshalText([]byte("mauve")))
	require.True(t, TypeExport.Reads() && !TypeCommit.Reads())
	require.Equal(t, "form-9 tag-9", Form(9).String()+" "+Tag(9).String())
}

func TestQuantise(t *testing.T) {
	for f, want := range map[float64]Score{0: 0, 1: 65535, -3: 0, 7: 65535, 0.5: 32768, math.Inf(1): 65535, math.Inf(-1): 0} {
		require.Equal(t, want, Quantise(f), "%v", f)
	}
	require.Zero(t, Quantise(math.NaN()))
	for i := range 65536 {
		s := Score(i)
		b, err := s.MarshalJSON()
		if q := Quantise(s.Float()); err != nil || q != s {
			t.Fatalf("%d: %d, %v", s, q, err)
		}
		var back Score
		if err := back.UnmarshalJSON(b); err != nil || back != s {
			t.Fatalf("%d: %d, %v", s, back, err)
		}
	}
	require.Error(t, new(Score).UnmarshalJSON([]byte("1.5")))
}
