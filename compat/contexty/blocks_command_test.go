package contexty

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func runCompile(t *testing.T, request string, args ...string) (code int, ans map[string]any, errs string) {
	t.Helper()
	var out, errw bytes.Buffer
	code = Run(append([]string{"compile"}, args...), strings.NewReader(request), &out, &errw)
	require.NoError(t, json.Unmarshal(out.Bytes(), &ans), out.String())
	return code, ans, errw.String()
}

func compact(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestItems(t *testing.T) {
	code, ans, errs := runCompile(t, `{"budget":12,"items":[{"key":"a","class":"rag","tokens":10,"score":0.9},{"key":"b","tokens":5,"score":0.4}]}`)
	require.Equal(t, ExitOK, code)
	require.Empty(t, errs)
	require.JSONEq(t, `{"counter":{"name":"o200k_base","label":"exact"},"result":{"tier":"core","used":10,"limit":12,"demand":15,"review":false,
		"placed":[{"index":0,"key":"a","form":"full","tokens":10}],"left":[{"index":1,"key":"b","reason":"over budget"}]}}`, compact(ans))

	code, ans, _ = runCompile(t, `{"budget":100,"overflow":"ladder","counter":"o200k_base","items":[{"key":"s","class":"system","text":"hello world"},
		{"key":"n","place":"newest","tokens":83,"stub_tokens":2}]}`)
	require.Equal(t, ExitOK, code)
	require.Equal(t, "summarised", ans["result"].(map[string]any)["tier"])
	require.Equal(t, `{"label":"exact","name":"o200k_base"}`, compact(ans["counter"]))
}

func TestBlocks(t *testing.T) {
	code, ans, _ := runCompile(t, `{"budget":30,"blocks":[
		{"key":"sys","class":"system","messages":[{"id":"s","role":"system","text":"<rules>"}],"weights":[10]},
		{"key":"talk","class":"history","low":1,"messages":[{"id":"u1","role":"user","text":"a","metadata":{"n":1.0}},
			{"id":"u2","role":"user","content":[{"type":"text","text":"b"}],"metadata":{"n":1.0}}],"weights":[15,15]}]}`, "--json")
	require.Equal(t, ExitOK, code)
	require.Len(t, ans["messages"], 2)
	require.JSONEq(t, `{"budget":30,"reserve":0,"limit":30,"original":40,"used":25,"blocks":[
		{"key":"sys","action":"kept","original":10,"floor":10,"limit":15,"used":10,"kept":1,"mark":{"index":0}},
		{"key":"talk","action":"truncated","original":30,"floor":15,"limit":20,"used":15,"kept":1,
		 "evicted":[{"index":0,"id":"u1","tokens":15,"reason":"oldest turns over budget"}],"mark":{"index":1,"id":"u2"}}]}`, compact(ans["report"]))
}

func TestModelDefaults(t *testing.T) {
	for request, want := range map[string]string{
		`{"model":"gpt-4o","items":[]}`:                                   "111616 o200k_base",
		`{"model":"claude-opus-4-1","items":[]}`:                          "168000 o200k_base*135%",
		`{"model":"nobody-knows","items":[]}`:                             "6144 o200k_base*140%",
		`{"model":"gpt-4o","budget":500,"items":[]}`:                      "500 o200k_base",
		`{"budget":500,"items":[],"counter":"gemini"}`:                    "500 o200k_base*115%",
		`{"model":"gpt-4o","reserve":28000,"counter":"est/2","items":[]}`: "100000 est/2",
	} {
		code, ans, errs := runCompile(t, request)
		require.Equal(t, ExitOK, code, errs)
		require.Equal(t, want, compact(ans["result"].(map[string]any)["limit"])+" "+ans["counter"].(map[string]any)["name"].(string))
	}
}

func TestFailures(t *testing.T) {
	for request, want := range map[string]string{
		`{"budget":5,"reserve":2,"items":[{"key":"s","class":"system","tokens":9}]}`:                   `"budget"`,
		`{"budget":5,"blocks":[{"key":"s","class":"system","weights":[9],"messages":[{"role":"u"}]}]}`: `"block":"s","have":5,"kind":"budget"`,
		`{"budget":5,"blocks":[{"key":"s"},{"key":"s"}]}`:                                              `"block"`,
		``:                              `"request"`,
		`{`:                             `"request"`,
		`[]`:                            `"request"`,
		`{"budget":1}`:                  `either blocks or items`,
		`{"items":[],"blocks":[]}`:      `either blocks or items`,
		`{"items":[]} {}`:               `something follows`,
		`{"items":[],"bugdet":1}`:       `bugdet`,
		`{"items":[],"counter":"p50k"}`: `p50k`,
		`{"budget":9,"items":[],"overflow":"spill"}`:           `[fill ladder]`,
		`{"budget":9,"items":[{"class":"sytem"}]}`:             `sytem`,
		`{"budget":9,"blocks":[{"place":"top"}]}`:              `top`,
		`{"budget":9,"blocks":[{"strategy":"oldest"}]}`:        `oldest`,
		`{"items":[{"key":"a","tokens":5}]}`:                   `budget 0`,
		`{"budget":-5,"items":[]}`:                             `budget -5`,
		`{"budget":0,"blocks":[{"key":"s","class":"system"}]}`: `budget 0`,
		`{"items":[{"tokens":1e99}]}`:                          `"request"`,
	} {
		code, ans, errs := runCompile(t, request)
		require.Equal(t, ExitFailed, code, request)
		require.Contains(t, compact(ans["error"]), want, request)
		require.NotEmpty(t, errs)
	}
	_, ans, _ := runCompile(t, `{"budget":5,"items":[{"key":"s","class":"system","tokens":9}]}`)
	require.Equal(t, `[{"index":0,"key":"s","reason":"system does not fit"}]`, compact(ans["result"].(map[string]any)["left"]), "the report comes with the error")
}

// A flag names the counter of requests that name none.
func TestCounterFlag(t *testing.T) {
	for _, args := range [][]string{{"--counter", "claude"}, {"--counter=claude", "--json"}} {
		_, ans, errs := runCompile(t, `{"budget":500,"items":[{"key":"a","text":"hello world"}]}`, args...)
		require.Empty(t, errs)
		require.Equal(t, `{"label":"estimated","name":"o200k_base*135%"}`, compact(ans["counter"]))
		_, ans, _ = runCompile(t, `{"budget":500,"counter":"est/2","items":[]}`, args...)
		require.Equal(t, `{"label":"estimated","name":"est/2"}`, compact(ans["counter"]))
	}
	code, _, errs := runCompile(t, `{"budget":500,"items":[]}`, "--counter", "p50k")
	require.Equal(t, ExitFailed, code)
	require.Contains(t, errs, "p50k")
}

func TestUsage(t *testing.T) {
	var out, errw bytes.Buffer
	require.Equal(t, ExitOK, Run([]string{"compile", "--help"}, strings.NewReader(""), &out, &errw))
	require.Equal(t, Usage, out.String())
	out.Reset()
	require.Equal(t, ExitUsage, Run([]string{"--bogus"}, strings.NewReader(""), &out, &errw))
	require.Empty(t, out.String())
	require.Contains(t, errw.String(), "--bogus")
	require.Equal(t, ExitFailed, Run(nil, strings.NewReader(`{"items":[]}`), broken{}, &errw))
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// The names of the fields are a promise.
func TestFieldsArePinned(t *testing.T) {
	_, ans, _ := runCompile(t, `{"budget":9,"blocks":[{"key":"a","class":"history","messages":[{"role":"user"}],"weights":[10]}]}`)
	keys := func(v any) []string { return slices.Sorted(maps.Keys(v.(map[string]any))) }
	require.Equal(t, []string{"counter", "error", "report"}, keys(ans))
	require.Equal(t, []string{"block", "have", "kind", "message", "need", "shortfall"}, keys(ans["error"]))
	require.Equal(t, []string{"blocks", "budget", "limit", "original", "reserve", "used"}, keys(ans["report"]))
}

// Whatever comes in, the answer is one JSON object, and nothing exceeds its limit.
func FuzzRun(f *testing.F) {
	for _, s := range []string{
		`{"budget":12,"items":[{"key":"a","tokens":10,"score":0.9,"group":"g"},{"key":"b","class":"system","tokens":5}]}`,
		`{"budget":30,"blocks":[{"key":"k","class":"history","messages":[{"role":"assistant","tool_calls":[{"id":"c"}]},{"role":"tool","tool_call_id":"c","text":"x"}],"weights":[9,30]}]}`,
		`{"model":"gpt-4","blocks":[{"key":"r","messages":[{"role":"user","text":"日本語"}],"scores":[1e300],"max":-1,"min":9}]}`, `{`, ``,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, request string) {
		var out, errw bytes.Buffer
		code := Run(nil, strings.NewReader(request), &out, &errw)
		var ans answer
		if err := json.Unmarshal(out.Bytes(), &ans); err != nil || (code == ExitOK) != (ans.Error == nil) {
			t.Fatalf("%v: code %d: %s", err, code, out.String())
		}
		if r := ans.Report; code == ExitOK && r != nil && r.Used > r.Limit {
			t.Fatalf("used %d of %d", r.Used, r.Limit)
		}
		if r := ans.Result; code == ExitOK && r != nil && r.Used > r.Limit {
			t.Fatalf("used %d of %d", r.Used, r.Limit)
		}
	})
}
