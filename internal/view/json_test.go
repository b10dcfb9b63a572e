package view

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A text passes exactly if the decoder changes nothing: U+FFFD is in it only where it was sent.
func FuzzUnicode(f *testing.F) {
	for _, s := range []string{`"a"`, "\"\xff\"", `"\ud800"`, `"\ud83d\ude00"`, `"\\ud800"`, `"\\\ud800"`, `"\udc00\ud800"`, `"\ud800\ud83d\ude00"`, `"\n\u00e9\uD83D\uDE00"`, "\"\ufffd\"", `"\ufffd"`, `\`, `"\u`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := CheckUnicode(b) // must not panic, whatever it is given
		var s string
		if json.Unmarshal(b, &s) != nil {
			return
		}
		sent := strings.Count(string(b), "\ufffd") + strings.Count(strings.ToLower(strings.ReplaceAll(string(b), `\\`, "")), `\ufffd`)
		if strings.Contains(string(b), "\xef\xbf\xbd") || sent > 0 {
			return // the control character itself, or something near it
		}
		require.Equal(t, strings.Contains(s, "\ufffd"), err != nil, "%q", b)
	})
}
