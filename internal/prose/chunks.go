package prose

import (
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// Chunk is a page that Chunks made, and its tokens.
type Chunk struct {
	Text   string
	Tokens int
}

// Chunks cuts a text into pages of at most max tokens: at headings, paragraphs, lines, then words, then runes.
// Nothing is lost: the pieces joined are the text. Pieces are joined by the sum of their own counts, which keeps the
// work linear; a counter that counts a whole above the sum of its parts has its page broken once more. A page comes
// with its count, so that nothing is counted twice. Pieces are made one at a time: a text of nothing but separators has
// as many as bytes.
func Chunks(text string, max int, count func(string) int) []Chunk {
	n := count(text)
	if n <= max {
		return []Chunk{{text, n}}
	}
	c := cutter{text: text, max: max, count: count}
	c.pieces(text, 0, n)
	c.flush()
	return slices.Clip(c.pages)
}

// cutter joins the pieces of a text to pages.
type cutter struct {
	text            string
	max             int
	count           func(string) int
	pages           []Chunk
	start, end, sum int // of the page that grows
}

// pieces breaks a text of n tokens at the coarsest level at which every piece fits.
func (c *cutter) pieces(text string, level, n int) {
	if level >= len(cutLevels) || n <= c.max {
		c.add(text, n)
		return
	}
	for p := range cutLevels[level](text) {
		switch {
		case p == "":
		case len(p) == len(text):
			c.pieces(p, level+1, n)
		default:
			c.pieces(p, level+1, c.count(p))
		}
	}
}

func (c *cutter) add(piece string, n int) {
	if c.end > c.start && c.sum+n > c.max {
		c.flush()
	}
	c.end += len(piece)
	c.sum += n
}

func (c *cutter) flush() {
	if page := c.text[c.start:c.end]; page != "" {
		if n := c.count(page); n > c.max && len(page) > 16 && c.sum > 0 {
			half := runeBoundary(page, len(page)/2)
			c.pages = append(c.pages, Chunks(page[:half], c.max, c.count)...)
			c.pages = append(c.pages, Chunks(page[half:], c.max, c.count)...)
		} else {
			c.pages = append(c.pages, Chunk{page, n})
		}
	}
	c.start, c.sum = c.end, 0
}

// runeBoundary is the start of the first rune at or after i.
func runeBoundary(s string, i int) int {
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return i
}

// cutLevels are the ways to cut a text, coarsest first.
var cutLevels = [...]func(string) iter.Seq[string]{
	cutHeadings,
	func(s string) iter.Seq[string] { return strings.SplitAfterSeq(s, "\n\n") },
	func(s string) iter.Seq[string] { return strings.SplitAfterSeq(s, "\n") },
	func(s string) iter.Seq[string] { return strings.SplitAfterSeq(s, " ") },
	cutRunes,
}

// runesTogether is how many runes the smallest piece has.
const runesTogether = 16

func cutRunes(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for len(text) > 0 {
			n := 0
			for i := 0; i < runesTogether && n < len(text); i++ {
				_, w := utf8.DecodeRuneInString(text[n:])
				n += w
			}
			if !yield(text[:n]) {
				return
			}
			text = text[n:]
		}
	}
}

func cutHeadings(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start := 0
		for i := 0; i < len(text); {
			j := strings.IndexByte(text[i:], '\n')
			if j < 0 {
				break
			}
			i += j + 1
			if i < len(text) && isHeading(text[i:]) {
				if !yield(text[start:i]) {
					return
				}
				start = i
			}
		}
		yield(text[start:])
	}
}

func isHeading(line string) bool {
	n := 0
	for n < len(line) && n < 7 && line[n] == '#' {
		n++
	}
	return n > 0 && n < 7 && n < len(line) && line[n] == ' '
}
