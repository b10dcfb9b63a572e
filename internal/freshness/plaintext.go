package freshness

// The bytes of a file as text: UTF-8 and UTF-16 with or without a byte order mark, Windows-1252, the cells of notebooks, and
// what a page of HTML says. Nothing else may decide what a file says: an import and a later refetch must get the same text.

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	utf16 "golang.org/x/text/encoding/unicode"
)

// PlainText returns the text of a file's bytes. It reports false for bytes that are no text.
func PlainText(path string, b []byte) (string, bool) {
	text, ok := decode(b)
	text = strings.ReplaceAll(text, "\r\n", "\n") // as editors on Windows end lines: paragraphs are found, and a line costs as much as elsewhere
	if ok && Notebook(path) {
		if cells, is := notebook(text); is {
			return cells, true
		}
	}
	if ok && webPage(path) {
		return webText(text), true
	}
	return text, ok
}

// NoText reports whether the text of a file of some bytes has no words: such a file is not taken.
func NoText(text string, bytes int) bool {
	return text == "" || strings.TrimSpace(text) == "" && len(text) < bytes
}

// BeginsAsText reports whether a file that begins with b looks like text. whole reports whether b is the whole file.
func BeginsAsText(b []byte, whole bool) bool {
	for range utf8.UTFMax - 1 { // a character may be cut
		if r, size := utf8.DecodeLastRune(b); !whole && r == utf8.RuneError && size == 1 {
			b = b[:len(b)-1]
		}
	}
	if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		b = b[:min(len(b), 2+(len(b)-2)&^63)]
	}
	_, ok := decode(b)
	return ok && len(b) > 0
}

func decode(b []byte) (string, bool) {
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xfe")), bytes.HasPrefix(b, []byte("\xfe\xff")):
		text, err := utf16.UTF16(utf16.LittleEndian, utf16.ExpectBOM).NewDecoder().Bytes(b)
		return string(text), err == nil && len(b)%2 == 0 && !bytes.ContainsAny(text, "\x00\ufffd")
	case bytes.IndexByte(b, 0) >= 0:
		return "", false
	case utf8.Valid(b):
		return string(bytes.TrimPrefix(b, []byte("\ufeff"))), true
	case !western(b):
		return "", false
	}
	text, err := charmap.Windows1252.NewDecoder().Bytes(b)
	return string(text), err == nil
}

// western reports whether bytes look like Windows-1252, of which Latin-1 is a part. Any bytes can be decoded as that, so this asks
// for what is common to the languages that use it: mostly ASCII letters, few other letters in a row, and within words only letters.
// Cyrillic, Greek and East Asian encodings fail it, and most texts in encodings of central Europe.
func western(b []byte) bool {
	letters, high, run := 0, 0, 0
	ascii := func(i int) bool { return i >= 0 && i < len(b) && unicode.IsLetter(rune(b[i])) && b[i] < 0x80 }
	for i, c := range b {
		if c < 0x80 {
			if run = 0; ascii(i) {
				letters++
			} else if c < ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\f' {
				return false
			}
			continue
		}
		r := charmap.Windows1252.DecodeByte(c)
		if high++; r == utf8.RuneError || unicode.IsControl(r) {
			return false
		}
		if run++; run > 3 || !unicode.IsLetter(r) && !strings.ContainsRune("’‘·\u00ad", r) && ascii(i-1) && ascii(i+1) {
			return false
		}
	}
	return high <= letters
}

// Notebook reports whether a file is a Jupyter notebook by its name.
func Notebook(path string) bool { return strings.EqualFold(filepath.Ext(path), ".ipynb") }

// lines is a text that is stored as one string or as a list of lines.
type lines string

func (l *lines) UnmarshalJSON(b []byte) error {
	var list []string
	if json.Unmarshal(b, &list) == nil {
		*l = lines(strings.Join(list, ""))
		return nil
	}
	return json.Unmarshal(b, (*string)(l))
}

// notebook returns what the cells of a notebook say: text as it is, code in fences with its text outputs. Images, widgets and markup
// of outputs are left out.
func notebook(text string) (string, bool) {
	var v struct {
		Cells []struct {
			Type    string `json:"cell_type"`
			Source  lines  `json:"source"`
			Outputs []struct {
				Text lines `json:"text"`
				Data struct {
					Plain lines `json:"text/plain"`
				} `json:"data"`
				Error string `json:"ename"`
				Value string `json:"evalue"`
			} `json:"outputs"`
		} `json:"cells"`
		Meta struct {
			Language struct {
				Name string `json:"name"`
			} `json:"language_info"`
		} `json:"metadata"`
	}
	if json.Unmarshal([]byte(text), &v) != nil || v.Cells == nil {
		return "", false
	}
	var out []string
	say := func(before, said, after string) {
		if said = strings.TrimRight(said, "\n"); strings.TrimSpace(said) != "" {
			out = append(out, before+said+after)
		}
	}
	for _, c := range v.Cells {
		if c.Type != "code" {
			say("", string(c.Source), "")
			continue
		}
		say("```"+v.Meta.Language.Name+"\n", string(c.Source), "\n```")
		for _, o := range c.Outputs {
			said := string(o.Text + o.Data.Plain)
			if o.Error != "" {
				said = o.Error + ": " + o.Value
			}
			say("```\n", said, "\n```")
		}
	}
	return strings.Join(out, "\n\n") + "\n", true
}
