package directive_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ctxpage/ctxpage/directive"
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
		require.Equal(t, tc.want, string(directive.AppendString(nil, tc.in)))
	}
}

func TestCanonicalStringsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.String().Draw(t, "s")
		var out string
		require.NoError(t, json.Unmarshal(directive.AppendString(nil, in), &out))
		require.Equal(t, in, out)
	})
}

func TestExportOrder(t *testing.T) {
	s, err := directive.NewState("", directive.Policy{Item: "\uff5a", Polarity: directive.Use}, directive.Policy{Item: "\U00010428", Polarity: directive.Use},
		directive.Policy{Item: "\ue000", Polarity: directive.Prohibit}, directive.Policy{Item: "b", Polarity: directive.Use})
	require.NoError(t, err)
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
		want       error
	}{
		{"plain", ok, nil},
		{"blanks around", " \t\r\n" + ok + " ", nil},
		{"escapes", `{"\u0070remise":"\ud83d\ude00\/","policies":{"\u0042":"use"},"version":2}`, nil},
		{"empty", "", directive.ErrJSON},
		{"two values", ok + ok, directive.ErrJSON},
		{"byte order mark", "\ufeff" + ok, directive.ErrJSON},
		{"trailing comma", `{"premise":null,"policies":{},"version":2,}`, directive.ErrJSON},
		{"leading zero", `{"premise":null,"policies":{},"version":02}`, directive.ErrJSON},
		{"bare minus", `{"premise":null,"policies":{},"version":-}`, directive.ErrJSON},
		{"no fraction", `{"premise":null,"policies":{},"version":2.}`, directive.ErrJSON},
		{"no exponent", `{"premise":null,"policies":{},"version":2e}`, directive.ErrJSON},
		{"raw control character", "{\"premise\":\"a\tb\",\"policies\":{},\"version\":2}", directive.ErrJSON},
		{"bad escape", `{"premise":"\x","policies":{},"version":2}`, directive.ErrJSON},
		{"short escape", `{"premise":"\u00e","policies":{},"version":2}`, directive.ErrJSON},
		{"signed escape", `{"premise":"\u+0e9","policies":{},"version":2}`, directive.ErrJSON},
		{"surrogates in the wrong order", `{"premise":"\ude00\ud83d","policies":{},"version":2}`, directive.ErrJSON},
		{"broken UTF-8", "{\"premise\":\"\xff\",\"policies\":{},\"version\":2}", directive.ErrJSON},
		{"too deep", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), directive.ErrJSON},
		{"unclosed", `{"premise":"`, directive.ErrJSON},
		{"single quotes", `{'premise':null}`, directive.ErrJSON},
		{"not an object", `["premise","policies","version"]`, directive.ErrState},
		{"null", "null", directive.ErrState},
		{"a key missing", `{"premise":null,"policies":{}}`, directive.ErrState},
		{"a key too many", `{"premise":null,"policies":{},"version":2,"x":0}`, directive.ErrState},
		{"version before types", `{"premise":5,"policies":[],"version":1}`, directive.ErrStateVersion},
		{"version a string", `{"premise":null,"policies":{},"version":"2"}`, directive.ErrStateVersion},
		{"version null", `{"premise":null,"policies":{},"version":null}`, directive.ErrStateVersion},
		{"premise a number", `{"premise":5,"policies":{},"version":2}`, directive.ErrState},
		{"policies a list", `{"premise":null,"policies":[],"version":2}`, directive.ErrState},
		{"polarity in capitals", `{"premise":null,"policies":{"x":"Use"},"version":2}`, directive.ErrState},
		{"item without text", `{"premise":null,"policies":{" the ":"use"},"version":2}`, directive.ErrState},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s, err := directive.ImportJSON([]byte(tc.text))
			require.ErrorIs(t, err, tc.want)
			if tc.want != nil {
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
		want       error
	}{
		{"pending absent", checkpoint(""), nil},
		{"pending null", checkpoint(`,"pending":null`), nil},
		{"use only", pending(`{"kind":"use_only","new_item":" X","old_item":null}`), nil},
		{"replace", pending(`{"kind":"replace_use","new_item":"x","old_item":"y"}`), nil},
		{"empty prompt", checkpoint(`,"pending":{"kind":"replacement","prompt_to_user":"","replacement":{"kind":"use_only","new_item":"x","old_item":null}}`), nil},
		{"text", `x`, directive.ErrJSON},
		{"not an object", `[]`, directive.ErrCheckpoint},
		{"no state", `{"checkpoint_version":1}`, directive.ErrCheckpoint},
		{"key too many", checkpoint(`,"x":0`), directive.ErrCheckpoint},
		{"version 2", `{"authoritative_state":1,"checkpoint_version":2}`, directive.ErrCheckpointVersion},
		{"state first", `{"authoritative_state":1,"checkpoint_version":1,"pending":5}`, directive.ErrState},
		{"state version", `{"authoritative_state":{"premise":null,"policies":{},"version":3},"checkpoint_version":1}`, directive.ErrStateVersion},
		{"pending a list", checkpoint(`,"pending":[]`), directive.ErrCheckpoint},
		{"pending of another kind", checkpoint(`,"pending":{"kind":"x","prompt_to_user":"","replacement":{"kind":"use_only","new_item":"x","old_item":null}}`), directive.ErrCheckpoint},
		{"prompt null", checkpoint(`,"pending":{"kind":"replacement","prompt_to_user":null,"replacement":{"kind":"use_only","new_item":"x","old_item":null}}`), directive.ErrCheckpoint},
		{"new item empty", pending(`{"kind":"use_only","new_item":"the the","old_item":null}`), directive.ErrCheckpoint},
		{"use only with an old item", pending(`{"kind":"use_only","new_item":"x","old_item":"y"}`), directive.ErrCheckpoint},
		{"old item missing", pending(`{"kind":"use_only","new_item":"x"}`), directive.ErrCheckpoint},
		{"replace without an old item", pending(`{"kind":"replace_use","new_item":"x","old_item":null}`), directive.ErrCheckpoint},
		{"old item empty", pending(`{"kind":"replace_use","new_item":"x","old_item":"a"}`), directive.ErrCheckpoint},
		{"replacement of another kind", pending(`{"kind":"swap","new_item":"x","old_item":null}`), directive.ErrCheckpoint},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s, err := directive.ImportCheckpoint([]byte(tc.text))
			require.ErrorIs(t, err, tc.want)
			if tc.want != nil {
				require.Equal(t, directive.Session{}, s)
			}
		})
	}
	s, err := directive.ImportCheckpoint([]byte(pending(`{"kind":"use_only","new_item":" X","old_item":null}`)))
	require.NoError(t, err)
	require.Equal(t, directive.Pending{Kind: directive.UseOnly, New: " X", Prompt: "?"}, *s.Pending)
}
