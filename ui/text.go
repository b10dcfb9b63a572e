package ui

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/view"
)

// What is shown was written by others. It enters a page through name, for one line, or text, for a part of a long one. Both escape
// markup, and write characters by number that steer, hide or turn round text.

// Bytes of a page that one value may take. Escapes count.
const (
	nameBytes  = 400
	partBytes  = 48 << 10 // a part of a long text
	blockBytes = 3 << 10  // the beginning of a block in a list
)

// name is a value in one line.
func name(v any) template.HTML {
	s, ok := v.(string)
	if !ok {
		s = fmt.Sprint(v)
	}
	var b strings.Builder
	b.WriteString("<bdi>")
	if n := escape(&b, s, nameBytes, false); n < len(s) {
		b.WriteString("…")
	}
	b.WriteString("</bdi>")
	return template.HTML(b.String())
}

// part is a piece of a text that fits into a page.
type part struct {
	HTML             template.HTML
	From, To, Length int // bytes of the text
	Prev             int // where the piece before it begins
}

// More reports whether there is text behind the part.
func (p part) More() bool { return p.To < p.Length }

// partOf returns the piece of a text that begins at a byte and takes at most limit bytes of a page.
func partOf(s string, at, limit int) part {
	at = min(max(at, 0), len(s))
	for at < len(s) && !utf8.RuneStart(s[at]) {
		at++
	}
	var b strings.Builder
	p := part{From: at, Length: len(s), Prev: max(0, at-limit)}
	p.To = at + escape(&b, s[at:], limit, true)
	p.HTML = template.HTML(b.String())
	return p
}

// escape appends text as HTML until it took limit bytes, and returns how many bytes of the text that is. Lines stay lines in a text of many.
func escape(b *strings.Builder, s string, limit int, lines bool) int {
	start := b.Len()
	for i := 0; i < len(s); {
		if b.Len()-start >= limit {
			return i
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(b, `<b class="c">%02X</b>`, s[i])
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '&':
			b.WriteString("&amp;")
		case r == '"':
			b.WriteString("&#34;")
		case r == '\'':
			b.WriteString("&#39;")
		case lines && (r == '\n' || r == '\t'):
			b.WriteByte(byte(r))
		case lines && r == '\r' && strings.HasPrefix(s[i:], "\r\n"): // the line end of other systems
		case view.Steers(r) || view.Hidden(r) && (!lines || !view.Shapes(r)):
			fmt.Fprintf(b, `<b class="c">U+%04X</b>`, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return len(s)
}

// plain is a value in one line for places that hold no markup, such as titles and labels.
func plain(s string) string {
	if len(s) > nameBytes {
		s = strings.ToValidUTF8(s[:nameBytes], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if view.Steers(r) || view.Hidden(r) {
			return '�'
		}
		return r
	}, s)
}

// when is a time as the pages have it.
func when(v any) string {
	var t time.Time
	switch v := v.(type) {
	case time.Time:
		t = v
	case int64:
		t = time.UnixMicro(v)
	}
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// number is an integer with separators.
func number(v any) string {
	s := fmt.Sprint(v)
	if len(s) <= 4 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		if i > 0 && (len(s)-i)%3 == 0 && s[i-1] != '-' {
			b.WriteString("\u2009") // thin space
		}
		b.WriteRune(r)
	}
	return b.String()
}

// size is a number of bytes.
func size(v any) string {
	n, _ := strconv.ParseFloat(fmt.Sprint(v), 64)
	unit := 0
	for ; n >= 1000 && unit < 4; unit++ {
		n /= 1000
	}
	return strconv.FormatFloat(n, 'f', min(unit, 1), 64) + " " + [...]string{"B", "kB", "MB", "GB", "TB"}[unit]
}

// percent is a share of a whole.
func percent(n, of int) string {
	if of <= 0 {
		return "0 %"
	}
	return strconv.FormatFloat(100*float64(n)/float64(of), 'f', 1, 64) + " %"
}

// score is a number of 0 to 1.
func score(f float64) string { return strconv.FormatFloat(f, 'f', 3, 64) }

// clip is plain for a place that has room for some letters.
func clip(s string) string {
	r := []rune(plain(s))
	if len(r) > 32 {
		return string(r[:31]) + "…"
	}
	return string(r)
}

// diffLine is a line of two texts. Op is + for a line of the second text only, - for one of the first only, and a space for both; … stands
// for lines that are left out.
type diffLine struct {
	Op   string
	HTML template.HTML
}

// Word says the same for people who do not see the mark.
func (l diffLine) Word() string {
	return map[string]string{"+": "added", "-": "removed", " ": "same", "…": "left out"}[l.Op]
}

// Limits of a comparison: lines that are compared one by one, and bytes of the page that it takes.
const (
	diffLines = 1500
	diffBytes = 60 << 10
	diffNear  = 3 // lines shown before and after a change
)

// diffTexts compares two texts line by line: the fewest lines that differ, by the longest common subsequence of what is between the common
// beginning and end. Where that is too long, all of it counts as changed.
func diffTexts(a, b string) []diffLine {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	start := 0
	for start < len(x) && start < len(y) && x[start] == y[start] {
		start++
	}
	end := 0
	for end < len(x)-start && end < len(y)-start && x[len(x)-1-end] == y[len(y)-1-end] {
		end++
	}
	mx, my := x[start:len(x)-end], y[start:len(y)-end]
	var ops []diffOp
	for _, s := range x[:start] {
		ops = append(ops, diffOp{" ", s})
	}
	ops = append(ops, middle(mx, my)...)
	for _, s := range x[len(x)-end:] {
		ops = append(ops, diffOp{" ", s})
	}
	return nearChanges(ops)
}

type diffOp struct{ op, line string }

func middle(x, y []string) (out []diffOp) {
	if len(x) > diffLines || len(y) > diffLines {
		for _, s := range x {
			out = append(out, diffOp{"-", s})
		}
		for _, s := range y {
			out = append(out, diffOp{"+", s})
		}
		return out
	}
	// common[i*w+j] is the length of the longest common subsequence of x[i:] and y[j:].
	w := len(y) + 1
	common := make([]uint16, (len(x)+1)*w)
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				common[i*w+j] = common[(i+1)*w+j+1] + 1
			} else {
				common[i*w+j] = max(common[(i+1)*w+j], common[i*w+j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(x) || j < len(y); {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			out = append(out, diffOp{" ", x[i]})
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && common[(i+1)*w+j] >= common[i*w+j+1]:
			out = append(out, diffOp{"-", x[i]})
			i++
		default:
			out = append(out, diffOp{"+", y[j]})
			j++
		}
	}
	return out
}

// nearChanges leaves out the lines that are far from a change, and ends where the page is full.
func nearChanges(ops []diffOp) (out []diffLine) {
	near := make([]bool, len(ops))
	for i, o := range ops {
		if o.op != " " {
			for j := max(0, i-diffNear); j <= min(len(ops)-1, i+diffNear); j++ {
				near[j] = true
			}
		}
	}
	left := diffBytes
	gap := diffLine{Op: "…"}
	for i, o := range ops {
		if !near[i] {
			if len(out) == 0 || out[len(out)-1].Op != gap.Op {
				out = append(out, gap)
			}
			continue
		}
		if left <= 0 {
			return append(out, gap)
		}
		p := partOf(o.line, 0, min(left, 4<<10))
		left -= len(p.HTML) + 40
		if p.More() {
			p.HTML += "…"
		}
		out = append(out, diffLine{o.op, p.HTML})
	}
	return out
}
