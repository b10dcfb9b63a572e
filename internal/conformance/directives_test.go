package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ask sends requests to a fresh adapter and returns the replies.
func ask(t *testing.T, requests ...string) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, directives(strings.NewReader(strings.Join(requests, "\n")), &out))
	var replies []map[string]any
	for line := range strings.Lines(out.String()) {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		replies = append(replies, r)
	}
	require.Len(t, replies, len(requests))
	return replies
}

func TestDirectivesProtocol(t *testing.T) {
	const state = `{"premise":null,"policies":{"vim":"use"},"version":2}`
	vim := map[string]any{"premise": nil, "policies": map[string]any{"vim": "use"}, "version": 2.0}
	r := ask(t,
		`{"op":"new","state":`+state+`}`,
		`{"op":"step","input":"prohibit The Vim"}`,
		`{"op":"state"}`,
		`{"op":"import","payload":"{}"}`,
		`{"op":"export"}`,
		`{"op":"transcript","fresh":true,"messages":[{"role":"user","content":"use x"},{"role":"user","content":5},{"role":"user","content":"use"}]}`,
		`{"op":"transcript","messages":[{"role":"user","content":"use emacs"}]}`,
		`{"op":"preview","input":"clear state"}`,
		`{"op":"diff","before":`+state+`,"after":{"premise":"p","policies":{},"version":2}}`,
		`{"op":"export_checkpoint"}`,
		`{"op":"import_checkpoint","payload":"[]"}`,
		`{"op":"preprocess","input":"Use Vim."}`,
		`{"op":"validate","raw":{"classification":"directive","output":"use vim"},"source_input":null}`,
		`{"op":"validate","raw":"use vim","source_input":"please use vim"}`,
		`{"op":"cli","args":["x"],"stdin":""}`,
		`{"op":"nonsense"}`,
	)
	require.Equal(t, true, r[0]["ok"])
	require.Equal(t, vim, r[1]["state"])
	require.Equal(t, "clarify", r[1]["decision"].(map[string]any)["kind"])
	require.Equal(t, []any{"vim"}, r[2]["use"])
	require.Equal(t, "invalid_state", r[3]["error"].(map[string]any)["code"])
	require.Equal(t, `{"policies":{"vim":"use"},"premise":null,"version":2}`, r[4]["payload"])
	require.Equal(t, "confirm", r[5]["result"].(map[string]any)["kind"])
	require.Equal(t, "state", r[6]["result"].(map[string]any)["kind"])
	require.Equal(t, true, r[7]["would_mutate"])
	require.Equal(t, true, r[8]["diff"].(map[string]any)["changed"])
	require.Contains(t, r[9]["payload"], `"emacs":"use"`, "the live session took the second transcript only")
	require.Equal(t, "invalid_checkpoint", r[10]["error"].(map[string]any)["code"])
	require.Equal(t, "use vim", r[11]["directive"])
	require.Equal(t, "use vim", r[12]["parsed"])
	require.Nil(t, r[13]["parsed"])
	require.Equal(t, 1.0, r[14]["exit"])
	require.Equal(t, false, r[15]["ok"])
}

// An initial state is a list to a host, so its later items count; what is no
// state at all is refused with the codes of an import.
func TestDirectivesInitialState(t *testing.T) {
	r := ask(t, `{"op":"new","state":{"premise":" a","policies":{"x":"use","the x":"prohibit"},"version":2}}`, `{"op":"export"}`)
	require.Equal(t, `{"policies":{"x":"prohibit"},"premise":"a","version":2}`, r[1]["payload"])
	for _, bad := range []string{
		`5`, `{}`, `{"premise":"","policies":{},"version":2}`, `{"premise":null,"policies":[],"version":2}`,
		`{"premise":null,"policies":{"x":{}},"version":2}`, `{"premise":null,"policies":{"x":1},"version":2}`,
		`{"premise":null,"policies":{"x":"use","the":"use"},"version":2}`, `{"premise":1,"policies":{},"version":2}`,
	} {
		r := ask(t, `{"op":"new","state":`+bad+`}`)
		require.Equal(t, "invalid_state", r[0]["error"].(map[string]any)["code"], bad)
	}
	r = ask(t, `{"op":"new","state":{"premise":null,"policies":{},"version":3}}`)
	require.Equal(t, "unsupported_state_version", r[0]["error"].(map[string]any)["code"])
}

// The keys of a message are exact: one written otherwise says nothing.
func TestDirectivesTranscriptKeys(t *testing.T) {
	r := ask(t, `{"op":"transcript","fresh":true,"messages":[{"ROLE":"user","content":"use x"},{"role":"user","Content":"use y"},{"role":"user","content":"use z","Role":"system","x":[1]}]}`)
	require.Equal(t, map[string]any{"z": "use"}, r[0]["result"].(map[string]any)["state"].(map[string]any)["policies"])
}
