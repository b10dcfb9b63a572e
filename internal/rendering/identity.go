package rendering

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/store"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// EscapeName writes as %XX what could end a name, hide in it, or pass for a separator of a path.
func EscapeName(n string) string {
	var b strings.Builder
	dots := strings.Trim(n, ".") == ""
	for i := 0; i < len(n); {
		r, size := utf8.DecodeRuneInString(n[i:])
		last := i+size == len(n)
		if r == utf8.RuneError && size == 1 || dots || breaksName(r) || r == ' ' && (i == 0 || last) {
			for _, c := range []byte(n[i : i+size]) {
				b.WriteByte('%')
				b.WriteByte("0123456789ABCDEF"[c>>4])
				b.WriteByte("0123456789ABCDEF"[c&15])
			}
		} else {
			b.WriteString(n[i : i+size])
		}
		i += size
	}
	return b.String()
}

// slashes look like the separator of a path, though no normal form makes one of them.
const slashes = `/\%` + "\u0337\u0338\u1735\u2041\u2044\u2215\u2216\u2571\u2572\u27cb\u27cd\u29f5\u29f8\u29f9\u2cc6\u2f03\u3033\u3035\u30ce\u31d2\u31d3\u4e3f\u4e36\U0001d23a\U0001f67c"

// breaksName reports whether a character of a name must not stand in a path.
func breaksName(r rune) bool {
	if strings.ContainsRune(slashes, r) || unseen(r) || unicode.Is(unicode.Z, r) && r != ' ' {
		return true
	}
	return r >= utf8.RuneSelf && strings.ContainsAny(norm.NFKC.String(string(r)), slashes+". ")
}

// unseen reports whether a character shows nothing by itself.
func unseen(r rune) bool {
	return unicode.In(r, unicode.C, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == '\u2800'
}

// FoldName maps all spellings of one name to the same text: NFKC, then case folding, without characters that show nothing,
// blanks as one space.
func FoldName(s string) string {
	if isFolded(s) {
		return s
	}
	if isPlain(s) {
		return strings.Join(strings.Fields(strings.ToLower(s)), " ")
	}
	return fold(s)
}

// isFolded reports whether FoldName would return the name unchanged, as most names: printable ASCII without capitals, its
// blanks single and inside. It spares each commit some copies of its names.
func isFolded(s string) bool {
	blank := true // before the name, and behind a blank
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c > '~' || 'A' <= c && c <= 'Z', c == ' ' && blank:
			return false
		default:
			blank = c == ' '
		}
	}
	return !blank || s == ""
}

// isPlain says that a name has printable ASCII only, as nearly all have: it is its own normal form, and all of it shows.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// fold is FoldName for any text.
func fold(s string) string {
	for range 3 { // folding can undo a normal form and the other way round
		was := s
		s = strings.Map(func(r rune) rune {
			if unseen(r) && !unicode.IsSpace(r) {
				return -1
			}
			return r
		}, norm.NFKC.String(s))
		s = norm.NFKC.String(cases.Fold().String(s))
		if s == was {
			break
		}
	}
	return strings.Join(strings.Fields(s), " ")
}

// IsWriter reports whether who judges is one of those who wrote, under whatever spelling. A letter of another script in place
// of one that looks the same makes no other name; of plain letters and digits only the same ones count.
func IsWriter(by string, writers ...string) bool {
	for _, w := range writers {
		if by == w || FoldName(by) == FoldName(w) || !isASCII(by+w) && skeleton(by) == skeleton(w) {
			return true
		}
	}
	return false
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// CheckName is store.CheckID for the name of a person or a program: it must show something.
func CheckName(field, s string) error {
	if err := store.CheckID(field, s); err != nil {
		return err
	}
	if FoldName(s) == "" {
		return store.Invalid(field, strconv.QuoteToASCII(s)+", which shows nothing", "a name")
	}
	return nil
}

// skeleton replaces letters of other scripts that pass for Latin ones by those. It decides nothing by itself: look-alikes
// are shown.
func skeleton(s string) string {
	s = norm.NFD.String(FoldName(s))
	var b strings.Builder
	for _, r := range s {
		switch l, ok := looks[r]; {
		case ok:
			b.WriteString(l)
		case unicode.Is(unicode.Mn, r):
		case unicode.Is(unicode.Pd, r):
			b.WriteByte('-')
		default:
			b.WriteRune(r)
		}
	}
	return strings.ReplaceAll(b.String(), "rn", "m")
}

// looks are the letters that pass for others, in lower case: of Cyrillic, Greek, Armenian, Cherokee and Latin extensions,
// and digits for letters.
var looks = func() map[rune]string {
	out := map[rune]string{}
	for _, l := range []struct{ from, to string }{
		{"аɑαꭺ", "a"}, {"вьЬβꮟƅ", "b"}, {"сϲᴄⅽꮯ", "c"}, {"ԁɗꮷ", "d"}, {"еҽєɛεꭼ", "e"}, {"ғſϝꞙ", "f"}, {"ɡցԍ", "g"}, {"һհнꮋ", "h"},
		{"іıɩιӏl1ⅼ", "i"}, {"јϳյ", "j"}, {"кκᴋĸ", "k"}, {"мᴍꮇ", "m"}, {"пηոռɴи", "n"}, {"оοσօ0ᴏ٥ဝ೦", "o"}, {"рρϱ", "p"}, {"ԛզ", "q"},
		{"гᴦꮁɾ", "r"}, {"ѕꜱꮪ", "s"}, {"тτᴛ", "t"}, {"υսʋᴜц", "u"}, {"ѵνᴠט", "v"}, {"ѡωшաᴡ", "w"}, {"хχ×", "x"}, {"уγүʏყ", "y"}, {"ᴢʐ", "z"},
		{"ـ‿", "_"}, {"−ー一", "-"}, {"․·", "."}, {"∕⁄", "/"}, {"：∶ː", ":"},
	} {
		for _, r := range l.from {
			out[r] = l.to
		}
	}
	return out
}()

// LookAlikes says which names of a batch are written differently and look the same.
func LookAlikes(names ...[2]string) (out []string) {
	for i, a := range names {
		for _, b := range names[:i] {
			if a[1] == "" || b[1] == "" || a[1] == b[1] || b[0] == "scope" && a[0] == "actor" {
				continue
			}
			if FoldName(a[1]) == FoldName(b[1]) || skeleton(a[1]) == skeleton(b[1]) {
				out = append(out, a[0]+" "+strconv.QuoteToASCII(a[1])+" looks like "+b[0]+" "+strconv.QuoteToASCII(b[1]))
			}
		}
	}
	return out
}
