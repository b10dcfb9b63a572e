package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Names, ids and arguments stand outside the escaped text and have each a
// provider's own alphabet; the codings here are reversible, so a pack still
// parses back, but for what is too long for a provider.

// idMark opens a call id that Anthropic's alphabet could not hold; hex follows.
const idMark = "id_"

// callID writes a call id: for Anthropic in letters, digits, _ and -, for the
// others escaped like a header value.
func callID(id string, p shape) string {
	switch p {
	case shapeAnthropic:
	case shapeOpenAI:
		return shortened(id, openAICallID, escapeAttr)
	default:
		return escapeAttr(id)
	}
	legal := id != "" && !strings.HasPrefix(id, idMark)
	for i := 0; i < len(id) && legal; i++ {
		legal = isLetter(id[i]) || isDecimal(id[i]) || id[i] == '_' || id[i] == '-'
	}
	if legal {
		return id
	}
	return idMark + hex.EncodeToString([]byte(id))
}

// The bytes of a speaker's name and of a call id that OpenAI accepts. Ids of its
// own Responses API and of other providers are longer than it takes back.
const (
	openAIName   = 64
	openAICallID = 40
)

// shortened encodes a name or call id for OpenAI: of one above the limit the
// beginning, with a digest that keeps those apart that begin alike.
func shortened(s string, limit int, encode func(string) string) string {
	whole := encode(s)
	if len(whole) <= limit {
		return whole
	}
	begin := ""
	for i := range s { // the escape of a character is not cut
		next := encode(s[:i])
		if len(next) > limit-17 { // "_" and 16 digits follow
			break
		}
		begin = next
	}
	sum := sha256.Sum256([]byte(whole))
	return begin + "_" + hex.EncodeToString(sum[:8])
}

func escapeAttr(s string) string { return string(appendAttr(nil, s)) }

// encodeName writes a participant's name for OpenAI, which refuses white space
// and <|\/>: those, %, and what does not show become %XX.
func encodeName(name string) string { return shortened(name, openAIName, escapeName) }

func escapeName(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		bad := r == utf8.RuneError && size == 1 || unicode.IsSpace(r) || strings.ContainsRune(`<|\/>%[`, r) ||
			r < ' ' || r >= 0x7f && hidden(r)
		for _, c := range []byte(name[i : i+size]) {
			if bad {
				fmt.Fprintf(&b, "%%%02X", c)
			} else {
				b.WriteByte(c)
			}
		}
		i += size
	}
	return b.String()
}

// unparsedKey holds arguments that could not be sent as they are.
const unparsedKey = `_unparsed`

// callArguments returns arguments as a JSON object, which Anthropic and Gemini
// demand and servers that speak OpenAI's protocol often expect. An object of
// visible text is passed on byte for byte; none at all becomes "{ }"; anything
// else (a model's broken JSON, a hidden character) becomes
// {"_unparsed":"…escaped…"}, and so does what would read back as one of these.
func callArguments(args string) string {
	if args == "" {
		return "{ }"
	}
	if args != "{ }" && isObject(args) && clean(args, &textTable) && cleanStrings(args) {
		if _, ok := unwrapArguments(args); !ok {
			return args
		}
	}
	b := appendJSON([]byte(`{"`+unparsedKey+`":`), Escape(args))
	return string(append(b, '}'))
}

func unwrapArguments(s string) (string, bool) {
	if !strings.HasPrefix(s, `{"`+unparsedKey+`"`) {
		return "", false
	}
	var m map[string]json.RawMessage
	var inner string
	err := json.Unmarshal([]byte(s), &m)
	if err != nil || len(m) != 1 || json.Unmarshal(m[unparsedKey], &inner) != nil {
		return "", false
	}
	return inner, true
}

// isObject asks for a JSON object with nothing around it; white space there
// would not survive a decoder.
func isObject(s string) bool {
	return s[0] == '{' && s[len(s)-1] == '}' && json.Valid([]byte(s))
}

// cleanStrings reports whether a valid JSON text hides nothing behind \u escapes:
// the provider decodes them before the model reads. Short escapes are fine.
func cleanStrings(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		if i++; s[i] != 'u' {
			continue
		}
		r, size := unquoteRune(s[i-1:])
		if r == utf8.RuneError || utf16.IsSurrogate(r) || r < ' ' || r >= 0x7f && hidden(r) {
			return false
		}
		i += size - 2
	}
	return true
}

// unquoteRune decodes the \uXXXX, or pair of those, that s starts with; half a
// pair returns that half or utf8.RuneError.
func unquoteRune(s string) (r rune, size int) {
	v, _ := strconv.ParseUint(s[2:6], 16, 32)
	if !utf16.IsSurrogate(rune(v)) || len(s) < 12 || s[6:8] != `\u` {
		return rune(v), 6
	}
	low, _ := strconv.ParseUint(s[8:12], 16, 32)
	return utf16.DecodeRune(rune(v), rune(low)), 12
}

// jsonTable marks what a JSON string must escape.
var jsonTable = func() *table {
	var t table
	for i := range ' ' {
		t.marks[i] = 1
	}
	t.marks['"'], t.marks['\\'] = 1, 1
	return &t
}()

// appendJSON writes s, which is valid UTF-8, as a JSON string.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := jsonTable.next(s, 0); i < len(s); i = jsonTable.next(s, start) {
		b = append(b, s[start:i]...)
		start = i + 1
		switch c := s[i]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = fmt.Appendf(b, `\u%04x`, c)
		}
	}
	return append(append(b, s[start:]...), '"')
}
