package session

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// Traits are what a section's text looks like. Inspect finds them once, when
// the text is at hand; planning reads no text.
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
	logLine   = regexp.MustCompile(`^(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d|(?i:\[?(?:trace|debug|info|notice|warn|warning|error|fatal)\]?[ :]))`)
	errorLine = regexp.MustCompile(`(?i)^\W*(?:\S+ )?(?:error|fatal|panic|exception|traceback|fail(?:ed|ure)?)\b|\w(?:Error|Exception):|(?i:\bexit (?:code|status) [1-9])`)
	diffLine  = regexp.MustCompile(`(?m)^(?:diff --git |@@ -\d+(?:,\d+)? \+\d+|--- a/)`)
	encoded   = regexp.MustCompile(`[A-Za-z0-9+/]{256,}={0,2}|data:image/`)
	ack       = regexp.MustCompile(`^(?i:(?:ok(?:ay)?|yes|sure|thanks?|thank you|great|got it|done|understood|perfect|nice|cool|alright|sounds good|will do|you're welcome)[\s.,!]*)+$`)
)

// Inspect finds the traits of a text.
func Inspect(text string) Traits {
	var t Traits
	lines := strings.Split(strings.TrimSpace(text), "\n")
	logs := 0
	for _, l := range lines {
		if logLine.MatchString(l) {
			logs++
		}
		if errorLine.MatchString(l) {
			t |= TraitError
		}
	}
	if len(lines) >= 3 && logs*10 >= len(lines)*6 {
		t |= TraitLog
	}
	if diffLine.MatchString(text) {
		t |= TraitDiff
	}
	if encoded.MatchString(text) {
		t |= TraitBinary
	}
	if ack.MatchString(strings.TrimSpace(text)) {
		t |= TraitAck
	}
	return t
}

// Trim drops what a reader does not miss: lines that repeat the one before,
// runs of blank lines, and log lines that report no failure. What was dropped
// is said in its place. A text that would not get shorter comes back as it is.
func Trim(text string) string {
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
		if bare == last || logLine.MatchString(l) && !errorLine.MatchString(l) {
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

// Extract is the summary of a text where the host makes none: its first line,
// the lines that report failures, then the rest in order, whole lines, until
// limit tokens are used up. A line is charged with what count says of it alone
// and of the mark of a gap beside it, which is never too little. The first line
// is cut if it does not fit.
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
		if errorLine.MatchString(l) {
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

// Title is the first line of a text that says something, at most 80 characters.
func Title(text string) string {
	for l := range strings.SplitSeq(text, "\n") {
		l = strings.TrimSpace(oneLine(l))
		if strings.IndexFunc(l, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) < 0 {
			continue
		}
		if r := []rune(l); len(r) > 80 {
			return string(r[:79]) + "…"
		}
		return l
	}
	return ""
}

// StubText is what stands in the window for a paged block: how to get it back,
// what it was, how large.
func StubText(ref, digest string, tokens int, text string) string {
	return fmt.Sprintf("[paged %s digest %s %d tokens] %s", ref, digest, tokens, Title(text))
}
