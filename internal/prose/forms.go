package prose

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Traits describe the text of a section. Inspect finds them once, when the text is at hand; planning reads no text.
type Traits uint16

// The traits.
const (
	TraitLog    Traits = 1 << iota // mostly log lines
	TraitDiff                      // a patch
	TraitBinary                    // base64 or an image
	TraitError                     // holds a line that reports a failure
	TraitAck                       // nothing but an acknowledgement
)

var (
	logLine   = Expression(`^(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d|(?i:\[?(?:trace|debug|info|notice|warn|warning|error|fatal)\]?[ :]))`)
	errorLine = Expression(`(?i)^\W*(?:\S+ )?(?:error|fatal|panic|exception|traceback|fail(?:ed|ure)?)\b|\w(?:Error|Exception):|(?i:\bexit (?:code|status) [1-9])`)
	diffLine  = Expression(`(?m)^(?:diff --git |@@ -\d+(?:,\d+)? \+\d+|--- a/)`)
	ack       = Expression(`^(?i:(?:ok(?:ay)?|yes|sure|thanks?|thank you|great|got it|done|understood|perfect|nice|cool|alright|sounds good|will do|you're welcome)[\s.,!]*)+$`)
)

// Inspect finds the traits of a text.
func Inspect(text string) Traits {
	var t Traits
	bare := strings.TrimSpace(text)
	lines, logs := 0, 0
	for l := range strings.SplitSeq(bare, "\n") {
		lines++
		if isLog(l) {
			logs++
		}
		if t&TraitError == 0 && failed(l) {
			t |= TraitError
		}
	}
	if lines >= 3 && logs*10 >= lines*6 {
		t |= TraitLog
	}
	if isDiff(text) {
		t |= TraitDiff
	}
	if isEncoded(text) {
		t |= TraitBinary
	}
	if isAck(bare) {
		t |= TraitAck
	}
	return t
}

// Every text that comes in is inspected, and hardly any has a trait: before each
// Expression stands what a match cannot be without and a look can tell.

func isLog(line string) bool { return startsAs(line, logStarts) && logLine().MatchString(line) }

func failed(line string) bool { return namesFailure(line) && errorLine().MatchString(line) }

func isDiff(text string) bool {
	return (strings.Contains(text, "@@ -") || strings.Contains(text, "--- a/") || strings.Contains(text, "diff --git ")) && diffLine().MatchString(text)
}

func isEncoded(text string) bool {
	return longRun(text) || strings.Contains(text, "data:image/")
}

func isAck(text string) bool { return startsAs(text, ackStarts) && ack().MatchString(text) }

// How the words of logLine and ack begin.
const (
	logStarts = "tr de in no wa er fa"
	ackStarts = "ok ye su th gr go do un pe ni co al so wi yo"
)

// startsAs reports whether a text may begin with a word of which these are the
// first two letters, in either case, or with a digit or a bracket. Letters that
// are not ASCII and fold to one that is are let through.
func startsAs(text, starts string) bool {
	if len(text) < 2 {
		return false
	}
	a, b := text[0], text[1]
	switch {
	case a == '[' || '0' <= a && a <= '9' || a >= utf8.RuneSelf || b >= utf8.RuneSelf:
		return true
	case a|0x20 < 'a' || a|0x20 > 'z' || b|0x20 < 'a' || b|0x20 > 'z':
		return false
	}
	for i := 0; i < len(starts); i += 3 {
		if starts[i] == a|0x20 && starts[i+1] == b|0x20 {
			return true
		}
	}
	return false
}

// failures begin the words without which errorLine matches nothing, as far as
// no other letter folds to one of theirs.
var failures = [...]string{"error", "exception", "exit ", "fatal", "fail", "panic", "traceb"}

func namesFailure(line string) bool {
	for i := 0; i+4 <= len(line); i++ {
		switch line[i] | 0x20 {
		case 'e', 'f', 'p', 't':
			for _, w := range failures {
				if hasFold(line[i:], w) {
					return true
				}
			}
		}
	}
	return false
}

// hasFold reports whether s begins with an ASCII word in lower case, in either.
func hasFold(s, word string) bool {
	if len(s) < len(word) {
		return false
	}
	for i := range len(word) {
		if s[i] != word[i] && (s[i]|0x20 != word[i] || word[i] == ' ') {
			return false
		}
	}
	return true
}

// longRun reports whether 256 characters of base64 stand in a row. It looks at the
// last of them first, and so at few.
func longRun(text string) bool {
	const run = 256
	for end := run; end <= len(text); {
		at := end - 1
		for at >= end-run && base64Char(text[at]) {
			at--
		}
		if at < end-run {
			return true
		}
		end = at + 1 + run
	}
	return false
}

func base64Char(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '/'
}

// Trim drops lines that carry little: lines that repeat their predecessor, runs of blank lines, and log lines that
// report no failure. A note in their place says what was dropped. A text that would not get shorter is returned
// unchanged.
func Trim(text string) string {
	if !strings.Contains(text, "\n") && !isLog(text) {
		return text // of one line nothing else is dropped
	}
	var out []string
	dropped := 0
	say := func() {
		if dropped > 0 {
			out = append(out, fmt.Sprintf("[%d lines dropped]", dropped))
		}
		dropped = 0
	}
	last := "\x00"
	for _, l := range strings.Split(text, "\n") {
		bare := strings.TrimSpace(l)
		if bare == "" && last == "" {
			continue
		}
		if bare == last || isLog(l) && !failed(l) {
			dropped++
			continue
		}
		say()
		out = append(out, l)
		last = bare
	}
	say()
	if short := strings.Join(out, "\n"); len(short) < len(text) {
		return short
	}
	return text
}

// Extract is the summary of a text when the host makes none: its first line, the lines that report failures, then the
// rest in order, in whole lines, until limit tokens are used. A line costs what count returns for it alone, plus the
// mark of a gap beside it, which is never too little. A first line that does not fit is cut.
func Extract(text string, limit int, count func(string) int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	keep := make([]bool, len(lines))
	left, gap := limit, count("\n"+gapMark+"\n")
	take := func(i int) {
		if cost := count(lines[i]) + gap; !keep[i] && cost <= left {
			keep[i] = true
			left -= cost
		}
	}
	if take(0); !keep[0] {
		return cut(lines[0], limit, count)
	}
	for i, l := range lines {
		if failed(l) {
			take(i)
		}
	}
	for i := range lines {
		take(i)
	}
	return joinKept(lines, keep)
}

const gapMark = "[...]"

// joinKept joins the kept lines and marks the gaps between them.
func joinKept(lines []string, keep []bool) string {
	var out []string
	for i, l := range lines {
		switch {
		case keep[i]:
			out = append(out, l)
		case len(out) > 0 && out[len(out)-1] != gapMark:
			out = append(out, gapMark)
		}
	}
	return strings.Join(out, "\n")
}

// cut shortens a line to at most limit tokens, at a character.
func cut(line string, limit int, count func(string) int) string {
	runes := []rune(line)
	lo, hi := 0, len(runes)
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if count(string(runes[:mid])) <= limit {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return string(runes[:lo])
}

// Title is the first line with content of a text, at most 80 characters.
func Title(text string) string {
	for l := range strings.SplitSeq(text, "\n") {
		if strings.IndexFunc(l, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) >= 0 {
			return titleOf(l)
		}
	}
	return ""
}

// titleOf looks at the two ends of a line alone: most lines are longer than a title.
func titleOf(l string) string {
	if !utf8.ValidString(l) {
		l = OneLine(l)
	}
	l = strings.TrimFunc(l, func(r rune) bool { return unicode.IsSpace(Unbroken(r)) })
	n, cut := 0, 0
	for i := range l {
		if n == 79 {
			cut = i
		}
		if n++; n > 80 {
			return OneLine(l[:cut]) + "…"
		}
	}
	return OneLine(l)
}

// StubText is the text of a paged block in the window: how to get it back, what it was, how large it is.
func StubText(ref, digest string, tokens int, text string) string {
	return "[paged " + ref + " digest " + digest + " " + strconv.Itoa(tokens) + " tokens] " + Title(text)
}
