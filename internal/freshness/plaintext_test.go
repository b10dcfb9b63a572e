package freshness_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"

	"github.com/ctxpage/ctxpage/internal/freshness"
)

// Texts in Windows-1252 and UTF-16 are decoded, and a mark is no part of the text. Bytes in an encoding that cannot be told are no
// text.
func TestOf(t *testing.T) {
	encoded := func(e encoding.Encoding, s string) []byte {
		b := must(e.NewEncoder().Bytes([]byte(s)))(t)
		return b
	}
	const german, french, quoted = "Die Größe des Öltanks: 5 m², „sehr groß“.", "L’été, ça dépend — où êtes-vous né ?", "It’s a café"
	for _, text := range []string{"plain", "żółw 🎉", german} {
		for _, e := range []encoding.Encoding{unicode.UTF8BOM, unicode.UTF8, unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), unicode.UTF16(unicode.BigEndian, unicode.UseBOM)} {
			got, ok := freshness.PlainText("a.txt", encoded(e, text))
			require.True(t, ok, "%s in %v", text, e)
			require.Equal(t, text, got)
			require.True(t, freshness.BeginsAsText(encoded(e, text), true))
		}
	}
	for _, text := range []string{german, french, quoted, "Caf\u00e9"} {
		got, ok := freshness.PlainText("a.txt", encoded(charmap.Windows1252, text))
		require.True(t, ok, text)
		require.Equal(t, text, got)
	}
	for name, b := range map[string][]byte{
		"KOI8-R": encoded(charmap.KOI8R, "Привет, мир"), "Windows-1251": encoded(charmap.Windows1251, "// Привет, мир\nint main"), "GBK": encoded(simplifiedchinese.GBK, "你好，世界 hello"),
		"Shift JIS": encoded(japanese.ShiftJIS, "こんにちは、世界"), "ISO-8859-2": encoded(charmap.ISO8859_2, "Zażółć gęślą jaźń, proszę bardzo"), "NUL": []byte("a\x00b"), "PNG": []byte("\x89PNG\r\n\x1a\n"),
		"half of UTF-16": []byte("\xff\xfea"), "control": []byte("caf\xe9 and\x01more"),
	} {
		_, ok := freshness.PlainText("a.txt", b)
		require.False(t, ok, name)
	}
	require.True(t, freshness.BeginsAsText([]byte("caf\xc3"), false), "a character that is cut")
	require.False(t, freshness.BeginsAsText([]byte("\x89PNG\r\n\x1a\n"), true))
	require.False(t, freshness.BeginsAsText(nil, true))
}

// A notebook is its cells: text, code, and what the code printed, without images.
func TestNotebook(t *testing.T) {
	got, ok := freshness.PlainText("x/a.ipynb", []byte(`{"cells":[{"cell_type":"markdown","source":["# Arrays\n","How they broadcast."]},
{"cell_type":"code","source":"a + 1","outputs":[{"output_type":"stream","text":["one\n","two\n"]},{"data":{"image/png":"iVBORw0KGgo=","text/plain":["<Figure>"]}},{"ename":"ValueError","evalue":"no","traceback":["\u001b[31m"]}]},
{"cell_type":"code","source":[],"outputs":[]}],"metadata":{"language_info":{"name":"python"}},"nbformat":4}`))
	require.True(t, ok)
	require.Equal(t, "# Arrays\nHow they broadcast.\n\n```python\na + 1\n```\n\n```\none\ntwo\n```\n\n```\n<Figure>\n```\n\n```\nValueError: no\n```\n", got)
	for _, other := range []string{`{"a":1}`, `not JSON`} {
		got, ok = freshness.PlainText("a.ipynb", []byte(other))
		require.True(t, ok)
		require.Equal(t, other, got, "control: no notebook")
	}
}

// A page of HTML is what it says: entities are decoded, markup within a word does not cut it, scripts and styles are left out.
func TestWebPage(t *testing.T) {
	page := "<!DOCTYPE html><html><head><title>Caf&eacute; &amp; bar</title><style>p { color: red }</style><script>if (a < b) { alert('no') }</script></head>" +
		"<body><h1>Our <i>menu</i></h1><!-- not this --><p>A <b>quo</b>kka\n  costs 5&nbsp;&euro;.</p><ul><li>one<li>two</ul>" +
		"<table><tr><th>name</th><td>price</td></tr></table><pre>a = 1\n  b &lt; 2</pre>the end<br>1 < 2 &unknown; &#x1F389;"
	const want = "Café & bar\n\n# Our menu\n\nA quokka costs 5 €.\n\none\ntwo\n\nname price\n\na = 1\n  b < 2\n\nthe end\n1 < 2 &unknown; 🎉\n"
	for _, name := range []string{"a.html", "b.HTM", "c.xhtml"} {
		got, ok := freshness.PlainText(name, []byte(page))
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	got, _ := freshness.PlainText("a.md", []byte(page))
	require.Equal(t, page, got, "control: another file")
	got, ok := freshness.PlainText("empty.html", []byte("<br>"))
	require.True(t, ok)
	require.Equal(t, "\n", got)
}

// Each result is what the tokenizer of golang.org/x/net/html gave. The one difference is that here a script ends at its first end tag, also after a comment
// within it that begins another script.
func TestWebPageMarkup(t *testing.T) {
	for _, c := range []struct{ page, want string }{
		{"a < b, 3 <4 and <5", "a < b, 3 <4 and <5\n"},
		{"x</", "x</\n"},
		{"x<", "x<\n"},
		{"a<!-->b", "ab\n"},
		{"a<!--->b", "ab\n"},
		{"a<!-- > -- --!>b", "ab\n"},
		{"a<!-- --!-->b", "ab\n"},
		{"a<!-- never", "a\n"},
		{"<!DOCTYPE html>a<?xml version='1.0'?>b<![CDATA[c]]>d", "abd\n"},
		{"a</>b</3 x>c", "abc\n"},
		{"<a title='x > y' href=\"<p>\">link</a>", "link\n"},
		{"<a href=x/>b<br/>c", "b\nc\n"},
		{"<a = '>'>b", "'>b\n"},
		{"<a b='never", "\n"},
		{"<p", "\n"},
		{"<P CLASS=x>a</P\n>b", "a\n\nb\n"},
		{"<h2/>a<h3 id=x>b</h3>c", "a\n\n### b\nc\n"},
		{"<script>if (a</b>0) '</scripts>'</SCRIPT >b", "b\n"},
		{"<style>p{}</style", "\n"},
		{"<title>a <b>&amp;</b></title><textarea>&lt;p></textarea>", "a <b>&</b>\n<p>\n"},
		{"<xmp>&lt;<p></xmp>&lt;<noframes>a<p></noframes>", "&lt;<p><a<p>\n"},
		{"<plaintext>a</plaintext>&amp;", "a</plaintext>&amp;\n"},
		{"<noscript><p>a</noscript>b", "b\n"},
		{"<template>a<template>b</template>c</template>d</template>e", "de\n"},
		{"<pre>a\r\n  b\rc<br>d</pre>  e   f", "a\n  b\nc\nd\n\ne f\n"},
		{"a&nbspb&notit;&#0;&#x80;&;", "a b¬it;�€&;\n"},
		{"<td>a<td>b</td> c<b>d</b> e", "a b cd e\n"},
		{"<p/>a<table/>b", "a\n\nb\n"},
		{"<script><!--<script></script>a", "a\n"},
		{"<script src='a.js'/>a<title/>b", "a\nb\n"}, // as XHTML has it
	} {
		got, ok := freshness.PlainText("a.html", []byte(c.page))
		require.True(t, ok)
		require.Equal(t, c.want, got, "%q", c.page)
	}
}

// A file with the line ends of Windows says what it says with those of other systems; a lone return stays.
func TestLineEndsOfWindows(t *testing.T) {
	for _, b := range []string{"# Title\r\n\r\none\r\ntwo\rthree\r\n", "\xff\xfe#\x00 \x00T\x00i\x00t\x00l\x00e\x00\r\x00\n\x00\r\x00\n\x00o\x00n\x00e\x00\r\x00\n\x00t\x00w\x00o\x00\r\x00t\x00h\x00r\x00e\x00e\x00\r\x00\n\x00"} {
		got, ok := freshness.PlainText("a.md", []byte(b))
		require.True(t, ok)
		require.Equal(t, "# Title\n\none\ntwo\rthree\n", got)
	}
}
