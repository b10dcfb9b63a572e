package view

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type inner struct {
	Text string `json:"text"`
}

type outer struct {
	ID     string            `json:"id,omitempty"`
	Writes []inner           `json:"writes"`
	One    *inner            `json:"one"`
	Meta   map[string]string `json:"meta"`
	By     map[string]inner  `json:"by"`
	Any    any               `json:"any"`
	Raw    json.RawMessage   `json:"raw"`
	At     time.Time         `json:"at"`
	Hidden string            `json:"-"`
	Bare   int
	Embedded
}

type Embedded struct {
	Deep string `json:"deep"`
}

func TestFields(t *testing.T) {
	for _, c := range []struct{ in, strict, open string }{
		{`{"id":"a","writes":[{"text":"x"},{}],"one":{"text":""},"meta":{"A":"1","a":"2"},"by":{"x":{"text":""}},"any":{"Z":1},"raw":[{"q":{}}],"at":"2026-01-01T00:00:00Z","Bare":1,"deep":""}`, "", ""},
		{`[]`, "", ""},
		{`null`, "", ""},
		{`{"id":`, "", ""}, // the decoder's
		{`{"ID":"a"}`, `the object: got the field "ID", expected "id"`, `the object: got the field "ID", expected "id"`},
		{`{"bare":1}`, `the object: got the field "bare", expected "Bare"`, `the object: got the field "bare", expected "Bare"`},
		{`{"Deep":""}`, `the object: got the field "Deep", expected "deep"`, `the object: got the field "Deep", expected "deep"`},
		{`{"Hidden":""}`, `the object: got the field "Hidden", expected one of Bare, any, at, by, deep, id, meta, one, raw, writes`, ""},
		{`{"writes":[{},{"Text":"x"}]}`, `writes[1]: got the field "Text", expected "text"`, ""},
		{`{"one":{"txt":"x"}}`, `one: got the field "txt", expected one of text`, ""},
		{`{"one":{"teXt":"x"}}`, `one: got the field "teXt", expected "text"`, `one: got the field "teXt", expected "text"`},
		{`{"by":{"x":{"TEXT":""}}}`, `by.x: got the field "TEXT", expected "text"`, ""},
		{`{"id":"a","id":"b"}`, `the object: got the field "id" twice, expected it once`, `the object: got the field "id" twice, expected it once`},
		{`{"id":"a","i\u0064":"b"}`, `the object: got the field "id" twice, expected it once`, `the object: got the field "id" twice, expected it once`},
		{`{"meta":{"a":"1","a":"2"}}`, `meta: got the field "a" twice, expected it once`, ""},
		{`{"any":{"x":[{"a":1,"a":1}]}}`, `any.x[0]: got the field "a" twice, expected it once`, ""},
		{`{"raw":{"a":1,"a":1}}`, `raw: got the field "a" twice, expected it once`, ""},
		{`{"more":{"a":1,"a":1},"id":""}`, `the object: got the field "more", expected one of Bare, any, at, by, deep, id, meta, one, raw, writes`, ""},
	} {
		for _, k := range []struct {
			want string
			err  error
		}{{c.strict, CheckFields([]byte(c.in), outer{})}, {c.open, CheckKnownFields([]byte(c.in), &outer{})}} {
			if k.want == "" {
				require.NoError(t, k.err, c.in)
			} else {
				require.EqualError(t, k.err, k.want, c.in)
			}
		}
	}
	require.NoError(t, CheckFields([]byte(`{"x":{"A":1,"a":2}}`), nil))
	require.EqualError(t, CheckFields([]byte(`[{"x":{"A":1,"A":2}}]`), nil), `[0].x: got the field "A" twice, expected it once`)
	require.EqualError(t, CheckFields([]byte(`{"x":1}`), struct{}{}), `the object: got the field "x", expected no field`)
}

// What passes decodes in one way: without a field in another case, and without one that counts twice.
func FuzzFields(f *testing.F) {
	for _, s := range []string{`{"id":"a","ID":"b"}`, `{"writes":[{"text":1}]}`, `{"one":{"text":"\ud800"}}`, `{"any":{"a":{"a":[]}}}`, `{`, `[[[`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if CheckFields(b, outer{}) != nil {
			return
		}
		require.NoError(t, CheckKnownFields(b, outer{}), "%q", b)
		require.NoError(t, CheckFields(b, nil), "%q", b)
	})
}

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

func TestFillLists(t *testing.T) {
	type part struct {
		Names []string `json:"names"`
		More  []string `json:"more,omitempty"`
	}
	v := struct {
		Parts []part    `json:"parts"`
		One   *part     `json:"one"`
		None  *part     `json:"none"`
		Bytes []byte    `json:"bytes"`
		At    time.Time `json:"at"`
		part
	}{Parts: make([]part, 1), One: &part{}}
	FillLists(&v)
	b, err := json.Marshal(v)
	require.NoError(t, err)
	require.JSONEq(t, `{"parts":[{"names":[]}],"one":{"names":[]},"none":null,"bytes":null,"at":"0001-01-01T00:00:00Z","names":null}`, string(b), "fields of an unexported struct cannot be set")
}
