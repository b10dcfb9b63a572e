package directive_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/directivetext"
)

func TestCanonicalStrings(t *testing.T) {
	tests := []struct{ in, want string }{
		{"a<b>&/c", `"a<b>&/c"`},
		{"\"\\\b\f\n\r\t", `"\"\\\b\f\n\r\t"`},
		{"\x00\x1f\x7f", `"\u0000\u001f\u007f"`},
		{"é\u2028", `"\u00e9\u2028"`},
		{"😀", `"\ud83d\ude00"`},
		{"\xff", `"\ufffd"`},
		{"", `""`},
	}
	for _, tc := range tests {
		require.Equal(t, tc.want, string(directivetext.AppendString(nil, tc.in)))
	}
}

func TestCanonicalStringsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.String().Draw(t, "s")
		var out string
		require.NoError(t, json.Unmarshal(directivetext.AppendString(nil, in), &out))
		require.Equal(t, in, out)
	})
}

func TestExportOrder(t *testing.T) {
	s := must(directive.NewState("", directive.Policy{Item: "\uff5a", Polarity: directive.Use}, directive.Policy{Item: "\U00010428", Polarity: directive.Use},
		directive.Policy{Item: "\ue000", Polarity: directive.Prohibit}, directive.Policy{Item: "b", Polarity: directive.Use}))(t)
	require.Equal(t, `{"policies":{"b":"use","z":"use","\ue000":"prohibit","\ud801\udc28":"use"},"premise":null,"version":2}`,
		string(directive.ExportJSON(s)), "by code point, not by UTF-16 unit")
}

func TestExportCheckpoint(t *testing.T) {
	s, _ := replay("use x instead of  Y ")
	require.Equal(t, `{"authoritative_state":{"policies":{},"premise":null,"version":2},"checkpoint_version":1,"pending":`+
		`{"kind":"replacement","prompt_to_user":"Did you mean to use \"x\" instead?","replacement":{"kind":"use_only","new_item":"x","old_item":null}}}`, bytesOf(s))
	s, _ = replay("prohibit y", "use x instead of  Y ")
	require.Contains(t, bytesOf(s), `"replacement":{"kind":"replace_use","new_item":"x","old_item":" Y "}`, "as typed")
}

func TestImportJSON(t *testing.T) {
	const ok = `{"premise":null,"policies":{},"version":2}`
	tests := []struct {
		name, text string
		want       string
	}{
		{"plain", ok, ""},
		{"blanks around", " \t\r\n" + ok + " ", ""},
		{"escapes", `{"\u0070remise":"\ud83d\ude00\/","policies":{"\u0042":"use"},"version":2}`, ""},
		{"empty", "", "invalid_json"},
		{"two values", ok + ok, "invalid_json"},
		{"byte order mark", "\ufeff" + ok, "invalid_json"},
		{"trailing comma", `{"premise":null,"policies":{},"version":2,}`, "invalid_json"},
		{"leading zero", `{"premise":null,"policies":{},"version":02}`, "invalid_json"},
		{"bare minus", `{"premise":null,"policies":{},"version":-}`, "invalid_json"},
		{"no fraction", `{"premise":null,"policies":{},"version":2.}`, "invalid_json"},
		{"no exponent", `{"premise":null,"policies":{},"version":2e}`, "invalid_json"},
		{"raw control character", "{\"premise\":\"a\tb\",\"policies\":{},\"version\":2}", "invalid_json"},
		{"bad escape", `{"premise":"\x","policies":{},"version":2}`, "invalid_json"},
		{"short escape", `{"premise":"\u00e","policies":{},"version":2}`, "invalid_json"},
		{"signed escape", `{"premise":"\u+0e9","policies":{},"version":2}`, "invalid_json"},
		{"surrogates in the wrong order", `{"premise":"\ude00\ud83d","policies":{},"version":2}`, "invalid_json"},
		{"broken UTF-8", "{\"premise\":\"\xff\",\"policies\":{},\"version\":2}", "invalid_json"},
		{"too deep", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "invalid_json"},
		{"unclosed", `{"premise":"`, "invalid_json"},
		{"single quotes", `{'premise':null}`, "invalid_json"},
		{"not an object", `["premise","policies","version"]`, "invalid_state"},
		{"null", "null", "invalid_state"},
		{"a key missing", `{"premise":null,"policies":{}}`, "invalid_state"},
		{"a key too many", `{"premise":null,"policies":{},"version":2,"x":0}`, "invalid_state"},
		{"version before types", `{"premise":5,"policies":[],"version":1}`, "unsupported_state_version"},
		{"version a string", `{"premise":null,"policies":{},"version":"2"}`, "unsupported_state_version"},
		{"version null", `{"premise":null,"policies":{},"version":null}`, "unsupported_state_version"},
		{"premise a number", `{"premise":5,"policies":{},"version":2}`, "invalid_state"},
		{"policies a list", `{"premise":null,"policies":[],"version":2}`, "invalid_state"},
		{"polarity in capitals", `{"premise":null,"policies":{"x":"Use"},"version":2}`, "invalid_state"},
		{"item without text", `{"premise":null,"policies":{" the ":"use"},"version":2}`, "invalid_state"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s, err := directive.ImportJSON([]byte(tc.text))
			require.Equal(t, tc.want, directive.ErrorCode(err))
			if tc.want != "" {
				require.Equal(t, directive.State{}, s)
				require.NotEmpty(t, directive.ErrorCode(err))
			}
		})
	}
	require.Empty(t, directive.ErrorCode(errors.New("another")))
}

func TestImportCheckpoint(t *testing.T) {
	checkpoint := func(pending string) string {
		return `{"authoritative_state":{"premise":null,"policies":{},"version":2},"checkpoint_version":1` + pending + `}`
	}
	pending := func(replacement string) string {
		return checkpoint(`,"pending":{"kind":"replacement","prompt_to_user":"?","replacement":` + replacement + `}`)
	}
	tests := []struct {
		name, text string
		want       string
	}{
		{"pending absent", checkpoint(""), ""},
		{"pending null", checkpoint(`,"pending":null`), ""},
		{"use only", pending(`{"kind":"use_only","new_item":" X","old_item":null}`), ""},
		{"replace", pending(`{"kind":"replace_use","new_item":"x","old_item":"y"}`), ""},
		{"empty prompt", checkpoint(`,"pending":{"kind":"replacement","prompt_to_user":"","replacement":{"kind":"use_only","new_item":"x","old_item":null}}`), ""},
		{"text", `x`, "invalid_json"},
		{"not an object", `[]`, "invalid_checkpoint"},
		{"no state", `{"checkpoint_version":1}`, "invalid_checkpoint"},
		{"key too many", checkpoint(`,"x":0`), "invalid_checkpoint"},
		{"version 2", `{"authoritative_state":1,"checkpoint_version":2}`, "unsupported_checkpoint_version"},
		{"state first", `{"authoritative_state":1,"checkpoint_version":1,"pending":5}`, "invalid_state"},
		{"state version", `{"authoritative_state":{"premise":null,"policies":{},"version":3},"checkpoint_version":1}`, "unsupported_state_version"},
		{"pending a list", checkpoint(`,"pending":[]`), "invalid_checkpoint"},
		{"pending of another kind", checkpoint(`,"pending":{"kind":"x","prompt_to_user":"","replacement":{"kind":"use_only","new_item":"x","old_item":null}}`), "invalid_checkpoint"},
		{"prompt null", checkpoint(`,"pending":{"kind":"replacement","prompt_to_user":null,"replacement":{"kind":"use_only","new_item":"x","old_item":null}}`), "invalid_checkpoint"},
		{"new item empty", pending(`{"kind":"use_only","new_item":"the the","old_item":null}`), "invalid_checkpoint"},
		{"use only with an old item", pending(`{"kind":"use_only","new_item":"x","old_item":"y"}`), "invalid_checkpoint"},
		{"old item missing", pending(`{"kind":"use_only","new_item":"x"}`), "invalid_checkpoint"},
		{"replace without an old item", pending(`{"kind":"replace_use","new_item":"x","old_item":null}`), "invalid_checkpoint"},
		{"old item empty", pending(`{"kind":"replace_use","new_item":"x","old_item":"a"}`), "invalid_checkpoint"},
		{"replacement of another kind", pending(`{"kind":"swap","new_item":"x","old_item":null}`), "invalid_checkpoint"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s, err := directive.ImportCheckpoint([]byte(tc.text))
			require.Equal(t, tc.want, directive.ErrorCode(err))
			if tc.want != "" {
				require.Equal(t, directive.Session{}, s)
			}
		})
	}
	s := must(directive.ImportCheckpoint([]byte(pending(`{"kind":"use_only","new_item":" X","old_item":null}`))))(t)
	require.Equal(t, directive.Pending{New: " X", Prompt: "?"}, *s.Pending)
}
