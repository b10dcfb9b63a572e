package commands

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/session"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 11, 20, 13, 0, 5, 999, time.FixedZone("", 3600))

// outcome is what one run left behind; contract is "-" where no file exists.
type outcome struct {
	exit                int
	out, errs, contract string
}

// run executes the command over a history; before is the contract's content,
// "-" for no file.
func run(t *testing.T, history, before string, args ...string) outcome {
	t.Helper()
	dir := t.TempDir()
	h, c := filepath.Join(dir, "h.json"), filepath.Join(dir, "c.limn")
	require.NoError(t, os.WriteFile(h, []byte(history), 0o600))
	if before != "-" {
		require.NoError(t, os.WriteFile(c, []byte(before), 0o600))
	}
	var out, errs bytes.Buffer
	exit := RunPager(append([]string{"--history", h, "--contract", c}, args...), nil, &out, &errs, func() time.Time { return noon })
	got := outcome{exit, out.String(), errs.String(), "-"}
	if b, err := os.ReadFile(c); err == nil {
		got.contract = string(b)
	}
	return got
}

// one is a history of a single block with the given fields.
func one(fields string) string {
	return `{"intent_ir":["alpha"],"blocks":[{"id":"block-1","turn":1,"text":"alpha",` + fields + `}]}`
}

const stampLine = "set last-pager-pass to 2026-11-20T12:00:05+00:00\n"

func TestPassWritesContractRecordsSummary(t *testing.T) {
	got := run(t, `{"intent_ir":["alpha","Beta"],"current_turn":3,"blocks":[
		{"id":"block-1","turn":1,"text":"alpha","kind":"x"},{"id":"block-2","turn":3,"text":"BETA, alpha"},{"id":"block-3","turn":1.0,"text":""}]}`, "-")
	require.Equal(t, outcome{0,
		"alpha=0.7 beta=0.3  retain=1 page=1 evict=1\n",
		`{"block": "block-1", "kind": "x", "similarity": 0.5, "delta_t": 2, "R": 0.493, "action": "page"}` + "\n" +
			`{"block": "block-2", "kind": null, "similarity": 1.0, "delta_t": 0, "R": 1.0, "action": "retain"}` + "\n" +
			`{"block": "block-3", "kind": null, "similarity": 0.0, "delta_t": 2.0, "R": 0.143, "action": "evict"}` + "\n",
		"add \"block-1\" to paged-blocks\nadd \"block-2\" to retained-blocks\nadd \"block-3\" to evicted-blocks\n" + stampLine}, got)
}

// Each row is a trap of a naive port: the field of the record and how it must read.
func TestRecordsReadAsPythonPrintsThem(t *testing.T) {
	for _, c := range []struct{ name, history, want string }{
		{"integer turn", one(`"turn":1`), `"delta_t": 0,`},
		{"float turn", one(`"turn":1.0`), `"delta_t": 0.0,`},
		{"boolean turn", `{"intent_ir":[],"current_turn":true,"blocks":[{"id":"block-1","turn":false,"text":""}]}`, `"delta_t": 1,`},
		{"beyond int64", `{"intent_ir":[],"current_turn":100000000000000000000001,"blocks":[{"id":"block-1","turn":1,"text":""}]}`, `"delta_t": 100000000000000000000000,`},
		{"beyond float64", `{"intent_ir":[],"current_turn":1` + strings.Repeat("0", 400) + `,"blocks":[{"id":"block-1","turn":1,"text":""}]}`, `"R": 0.0003,`},
		{"exponent from 16", one(`"kind":1e16`), `"kind": 1e+16,`},
		{"no exponent below", one(`"kind":1e15`), `"kind": 1000000000000000.0,`},
		{"small exponent", one(`"kind":0.00001`), `"kind": 1e-05,`},
		{"negative zero", one(`"kind":-0.0`), `"kind": -0.0,`},
		{"negative integer zero", one(`"kind":-0`), `"kind": 0,`},
		{"not a number", one(`"kind":[NaN,-Infinity,1e400]`), `"kind": [NaN, -Infinity, Infinity],`},
		{"key order, last value", one(`"kind":{"b":1,"a":2,"b":3}`), `"kind": {"b": 3, "a": 2},`},
		{"no HTML escapes", one(`"kind":"</&>"`), `"kind": "</&>",`},
		{"ASCII only", one(`"kind":"é😀\u007f\ud800"`), `"kind": "\u00e9\ud83d\ude00\u007f\ud800",`},
		{"short escapes", one(`"kind":"\"\\\n\r\t\b\f\u0001"`), `"kind": "\"\\\n\r\t\b\f\u0001",`},
		{"ties to even", `{"intent_ir":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q","r","s","t","u","v","w","x","y","z","0","1","2","3","4","5"],"blocks":[{"id":"block-1","turn":1,"text":"a"}]}`, `"similarity": 0.0312,`},
		{"last duplicate key", `{"intent_ir":["x"],"intent_ir":["alpha"],"blocks":[{"id":"block-1","turn":1,"text":"alpha"}]}`, `"similarity": 1.0,`},
		{"infinite head", `{"intent_ir":["alpha"],"current_turn":Infinity,"blocks":[{"id":"block-1","turn":1,"text":"alpha"}]}`, `"delta_t": Infinity, "R": 0.7, "action": "retain"`},
		{"NaN pages", `{"intent_ir":["alpha"],"current_turn":NaN,"blocks":[{"id":"block-1","turn":1,"text":"alpha"}]}`, `"R": NaN, "action": "page"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, c.history, "-")
			require.Zero(t, got.exit, got.errs)
			require.Contains(t, got.errs, c.want)
		})
	}
}

func TestIntentForms(t *testing.T) {
	for _, c := range []struct{ intent, text, want string }{
		{`null`, "a", "0.0"}, {`0`, "a", "0.0"}, {`-0.0`, "a", "0.0"}, {`""`, "a", "0.0"}, {`{}`, "a", "0.0"}, {`false`, "a", "0.0"},
		{`"ab"`, "a c", "0.5"},                           // by character
		{`{"verb":"fix","slots":{}}`, "verb fix", "0.5"}, // by key
		{`["A","a"]`, "a", "1.0"},                        // case collapses
		{`["two words","a"]`, "two words a", "0.5"},      // never tokenised
		{`["\ud800","\ud801","a"]`, "a", "0.3333"},       // lone surrogates are two keywords
		{`["\u212a"]`, "k", "1.0"},                       // Kelvin sign
		{`["ΑΣ","ας"]`, "", "0.0"},
	} {
		got := run(t, fmt.Sprintf(`{"intent_ir":%s,"blocks":[{"id":"block-1","turn":1,"text":%q}]}`, c.intent, c.text), "-")
		require.Contains(t, got.errs, `"similarity": `+c.want+",", c.intent)
	}
}

func TestFailedPassLeavesTheContractAlone(t *testing.T) {
	good := `{"id":"block-1","turn":1,"text":"a"},`
	for _, c := range []struct{ name, blocks, field string }{
		{"no text", `{"id":"block-2","turn":1}`, `field "text"`},
		{"text is null", `{"id":"block-2","turn":1,"text":null}`, `field "text"`},
		{"no id", `{"turn":1,"text":"a"}`, `field "id"`},
		{"id is a number", `{"id":7,"turn":1,"text":"a"}`, `field "id"`},
		{"id fails the gate", `{"id":"msg-7","turn":1,"text":"a"}`, `"msg-7"`},
		{"id holds a surrogate", `{"id":"block-\ud800","turn":1,"text":"a"}`, `field "id"`},
		{"no turn", `{"id":"block-2","text":"a"}`, `field "turn"`},
		{"turn is a string", `{"id":"block-2","turn":"1","text":"a"}`, `field "turn"`},
		{"newer than the head", `{"id":"block-2","turn":99,"text":"a"}`, `field "turn"`},
		{"not an object", `7`, `block 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, `{"intent_ir":["a"],"current_turn":5,"blocks":[`+good+c.blocks+`]}`, "old\n")
			require.Equal(t, 1, got.exit)
			require.Equal(t, "old\n", got.contract)
			require.Contains(t, got.errs, c.field)
			require.NotContains(t, got.errs, `"similarity"`)
			require.Empty(t, got.out)
		})
	}
	require.Zero(t, run(t, `{"intent_ir":["a"],"current_turn":5,"blocks":[`+strings.TrimSuffix(good, ",")+`]}`, "old\n").exit, "control: the good block passes")
}

func TestRefusalIsTyped(t *testing.T) {
	_, err := decide([]byte(`{"intent_ir":[],"blocks":[{"id":"block-1","turn":1,"text":""},{"id":"nope","turn":1,"text":""}]}`), options{})
	var be *BlockError
	require.ErrorAs(t, err, &be)
	require.Equal(t, 1, be.Index)
	require.Equal(t, "id", be.Field)
	require.ErrorIs(t, err, ErrVocabulary)
}

func TestOnePlusLogarithmIsZero(t *testing.T) {
	_, err := decide([]byte(`{"intent_ir":[],"current_turn":0,"blocks":[{"id":"block-1","turn":0.6321205588285577,"text":""}]}`), options{})
	require.ErrorIs(t, err, errZeroDivision)
	_, err = decide([]byte(`{"intent_ir":[],"current_turn":0,"blocks":[{"id":"block-1","turn":0.6321205588285576,"text":""}]}`), options{})
	require.NoError(t, err, "control: its neighbour passes")
}

func TestBadDocuments(t *testing.T) {
	deep := func(n int) string { return one(`"kind":` + strings.Repeat("[", n) + strings.Repeat("]", n)) }
	for _, c := range []struct {
		history string
		exit    int
	}{
		{"", 1}, {"[1]", 1}, {"null", 1}, {`{"blocks":[]}`, 1}, {`{"intent_ir":[],"blocks":[]}`, 1}, {`{"intent_ir":[],"blocks":{}}`, 1},
		{"\uFEFF" + one(`"x":1`), 1}, {one(`"x":"\xff"`), 1}, {one(`"x":01`), 1}, {one(`"x":1.`), 1}, {one(`"x":+1`), 1}, {one(`"x":"` + "\t" + `"`), 1},
		{one(`"x":[1,]`), 1}, {one(`"x":1,`), 1}, {one(`"x":"\u12g4"`), 1}, {one(`"x":"\x"`), 1}, {one(`"x":1`) + "x", 1}, {one(`"x":'a'`), 1},
		{one(`"x":` + strings.Repeat("9", 4301)), 1}, {one(`"kind":` + strings.Repeat("9", 4300)), 0},
		{deep(990), 0}, {deep(991), 1},
		{strings.ReplaceAll(one(`"x":1`), ",", ",\r\n\t "), 0}, {one(`"x":[1E5,-0,"\/",{}]`), 0},
	} {
		require.Equal(t, c.exit, run(t, c.history, "-").exit, "%.80s", c.history)
	}
}

func TestContractIsExtended(t *testing.T) {
	h := one(`"x":1`)
	line := "add \"block-1\" to retained-blocks\n" + stampLine
	require.Equal(t, "-- old\n"+line, run(t, h, "-- old\n").contract)
	require.Equal(t, "-- old\n"+line, run(t, h, "-- old").contract, "a torn last line is ended")
	require.Equal(t, line, run(t, h, "").contract)
	var out, errs bytes.Buffer
	require.Equal(t, 1, RunPager([]string{"--history", "/nonexistent", "--contract", "x"}, nil, &out, &errs, time.Now))
}

func TestArguments(t *testing.T) {
	base := []string{"--history", "h", "--contract", "c"}
	for _, c := range []struct {
		args string
		want string // error text, or the alpha that was read
	}{
		{"--alpha 0.9", "0.9"}, {"--al=0.9", "0.9"}, {"--alpha 0.1 --alpha 0.9", "0.9"}, {"--alpha -0.5", "-0.5"}, {"--alpha=-inf", "-inf"},
		{"--alpha=1_0.5", "10.5"}, {"--alpha=٠.٥", "0.5"}, {"--alpha=+.5", "0.5"}, {"--alpha=1E-5", "1e-05"}, {"--alpha=Infinity", "inf"}, {"--alpha=-nan", "nan"}, {"--alpha=2", "2.0"},
		{"--alpha", "expected one argument"}, {"--alpha -inf", "expected one argument"}, {"--alpha -- 1", "expected one argument"},
		{"--alpha=abc", "invalid float"}, {"--alpha=", "invalid float"}, {"--alpha=0x1p-1", "invalid float"}, {"--alpha=0,5", "invalid float"}, {"--alpha=1__0", "invalid float"}, {"--alpha=_1", "invalid float"},
		{"--gamma 1", "unrecognized"}, {"extra", "unrecognized"}, {"--", "unrecognized"}, {"--h", "ambiguous"}, {"-h", "help"}, {"-hx", "explicit"}, {"--help=1", "explicit"}, {"--alpha x -h", "invalid float"}, {"--gamma -h", "help"},
	} {
		o, err := parseArgs(append(base[:4:4], strings.Fields(c.args)...))
		if err != nil {
			require.Contains(t, err.Error(), c.want, c.args)
			continue
		}
		require.Equal(t, c.want, floatText(o.alpha), c.args)
	}
	_, err := parseArgs(base[:2])
	require.ErrorContains(t, err, "--contract")
	o, err := parseArgs(append(base, "--alpha= 0.5 "))
	require.NoError(t, err)
	require.Equal(t, 0.5, o.alpha)
}

func TestHelpAndUsageExits(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, RunPager([]string{"--help"}, nil, &out, &errs, time.Now))
	require.Contains(t, out.String(), "--retain-cut")
	require.Empty(t, errs.String())
	require.Equal(t, 2, RunPager([]string{"--nope"}, nil, &out, &errs, time.Now))
	require.Contains(t, errs.String(), "usage:")
}

func TestMatrix(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, RunPager([]string{"--matrix"}, nil, &out, &errs, time.Now), errs.String())
	want := map[[2]float64][3]int{{.9, .1}: {3, 2, 7}, {.7, .3}: {3, 5, 4}, {.5, .5}: {3, 5, 4}, {.3, .7}: {3, 7, 2}}
	for _, w := range matrixPairs {
		p, err := matrixPass(w)
		require.NoError(t, err)
		require.Equal(t, want[w], p.count, "%v", w)
	}
	// Control: each invariant fails when its rule is broken.
	for _, bad := range []string{
		`{"block": "a", "kind": "active", "action": "page"}`,
		`{"block": "a", "kind": "noise", "action": "page"}`,
		`{"block": "a"}` + "\n" + `{"block": "a"}`,
	} {
		require.Error(t, checkMatrix([2]float64{.9, .1}, &pass{records: []byte(bad + "\n")}), bad)
	}
}

func FuzzDecide(f *testing.F) {
	f.Add([]byte(matrixHistory))
	f.Add([]byte(one(`"kind":[NaN,1e400,-0,"\ud83d\ude00",{"a":null}]`)))
	f.Add([]byte(`{"intent_ir":"x","current_turn":1e300,"blocks":[{"id":"block-","turn":true,"text":"\u0130"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := decide(raw, options{alpha: .7, beta: .3, retainCut: .55, evictCut: .2})
		if err != nil {
			return
		}
		// What is printed can be read back, one record a block.
		records, err := readRecords(p.records)
		require.NoError(t, err)
		require.Len(t, records, p.count[0]+p.count[1]+p.count[2])
	})
}

func TestExport(t *testing.T) {
	r := &session.StoredPass{At: noon, Verdicts: []session.Verdict{{ID: "block-1", Action: session.Page}, {ID: "m 3", Action: session.Evict}}}
	b, err := ExportPass(r, []byte("torn"))
	require.NoError(t, err)
	require.Equal(t, "\nadd \"block-1\" to paged-blocks\nadd \""+handoff.ContractName("m 3")+"\" to evicted-blocks\n"+stampLine, string(b))
	b, err = ExportPass(r, []byte("whole\n"))
	require.NoError(t, err)
	require.NotEqual(t, byte('\n'), b[0])
	r.Repeated = true
	b, err = ExportPass(r, nil)
	require.NoError(t, err)
	require.Nil(t, b)
}

func TestTokensAreASCIIRunsAfterPythonLower(t *testing.T) {
	for text, want := range map[string][]string{
		"Fix a_b, x9-Y!":  {"fix", "a_b", "x9", "y"},
		"naïve":           {"na", "ve"},
		"Привет мир":      {},
		"\u212A \u0130st": {"k", "i", "st"}, // Kelvin sign, dotted capital I
		"x x X":           {"x"},
		"":                {},
		"a\xed\xa0\x80b":  {"a", "b"}, // a lone surrogate separates
	} {
		got := slices.Collect(maps.Keys(tokens(text)))
		require.ElementsMatch(t, want, got, "%q", text)
	}
}

func TestGate(t *testing.T) {
	for id, ok := range map[string]bool{
		"block-1": true, "block-": true, "pager": true, "": true, `"`: true, "2026-01-02Tx;y": true, "٢٠٢٦-٠١-٠٢t": true,
		"block-1\x1cblock-2": true, "block-1\u2003note": true,
		"Block-1": false, "Note": false, "msg-7": false, "block-1 extra": false, "2026-01-02": false, "x2026-01-02t": false, "блок-1": false,
	} {
		_, err := statement(id, session.Retain)
		if ok {
			require.NoError(t, err, "%q", id)
		} else {
			require.ErrorIs(t, err, ErrVocabulary, "%q", id)
		}
	}
	require.Len(t, vocabulary, 35)
}
