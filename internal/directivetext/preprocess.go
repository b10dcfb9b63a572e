package directivetext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Class is the preprocessor's verdict on a whole message.
type Class uint8

// The classes.
const (
	Unknown     Class = iota // it may have to do with a directive: leave it alone
	NoDirective              // it has nothing to do with one
	IsDirective              // it is Exactly one
)

// String returns the wire word.
func (c Class) String() string {
	switch c {
	case NoDirective:
		return "no_directive"
	case IsDirective:
		return "directive"
	}
	return "unknown"
}

// Finding is the result of Preprocess.
type Finding struct {
	Class     Class
	Directive string // canonical and in lower case; "" unless Class is IsDirective
	Rule      string // the id of the rule that decided
}

// Preprocess reads a whole message as one canonical directive, or abstains. It
// forgives case, blanks, closing dots and one pair of brackets, nothing else:
// whatever reports, asks, lists, explains or joins directives is left alone.
func Preprocess(message string) Finding {
	m := squeeze(lower(message))
	for _, r := range rejections {
		if r.applies(message, m) {
			return Finding{Unknown, "", r.id}
		}
	}
	c := candidate(message, `"'`+"`([", `"'`+"`)]")
	switch {
	case malformedReplacement(c):
		return Finding{Unknown, "", "reject.malformed_replacement_syntax"}
	case manyDirectives(c):
		return Finding{Unknown, "", "reject.multi_candidate_directive"}
	case canonical(c):
		return Finding{IsDirective, c, "canonical.full_match"}
	case hasCue(c):
		return Finding{Unknown, "", "reject.directive_adjacent_unsafe"}
	}
	return Finding{NoDirective, "", "reject.confident_non_directive"}
}

// rejections are tried in this order on the raw message and its folded form.
var rejections = [...]struct {
	id      string
	applies func(raw, m string) bool
}{
	{"reject.list_or_enumeration", func(raw, _ string) bool { return listMarker(raw) }},
	{"reject.question_form", func(raw, m string) bool { return strings.Contains(raw, "?") && hasCue(m) }},
	{"reject.meta_or_reporting", func(_, m string) bool { return metaPrefix(m, saying{"i he she they", "said"}) }},
	{"reject.multi_segment_or_mixed_prose", func(_, m string) bool { return mixedProse(m) }},
	{"reject.multi_instruction", among(
		"clear premise then clear state", "prohibit peanuts and use almonds",
		"set premise concise; reset policies", "use docker, actually prohibit docker")},
	{"reject.quoted_reported_bracket", func(raw, _ string) bool { return bracketNote(lower(raw)) }},
	{"reject.quoted_exact", func(raw, _ string) bool { return wrapped(Trim(raw), `"'`+"`", `"'`+"`") }},
	{"reject.quoted_reported", among(
		`"set premise concise replies" is invalid syntax, right?`, `for example, you could "remove policy docker".`,
		`he said "use docker".`, `the doc literally says: "clear premise".`)},
	{"reject.near_miss_alias", among(
		"allow docker", "set policy peanuts prohibit", "stop using peanuts", "use instead of docker",
		"use podman instead of", "use podman not docker", "wipe policies")},
	{"reject.admin_near_miss_alias", among("reset policy", "remove policies docker")},
}

func among(texts ...string) func(raw, m string) bool {
	return func(_, m string) bool {
		for _, t := range texts {
			if m == t {
				return true
			}
		}
		return false
	}
}

// listMarker tells of "1. x", "1) x", "- x" and "* x", in any script's digits.
func listMarker(raw string) bool {
	s := TrimLeft(raw)
	rest := strings.TrimLeftFunc(s, unicode.IsDigit)
	marks := ".)"
	if rest == s {
		marks = "-*"
	}
	if rest == "" || strings.IndexByte(marks, rest[0]) < 0 {
		return false
	}
	item := TrimLeft(rest[1:])
	return item != "" && item != rest[1:]
}

// saying lists who reports and by which verb.
type saying struct{ who, verbs string }

// metaPrefix tells of a message that talks about a directive: "example: …",
// "he said …". Words are compared with the folded message.
func metaPrefix(m string, s saying) bool {
	if strings.HasPrefix(m, "example:") {
		return true
	}
	for _, phrase := range [...]string{"for example", "the command is"} {
		if rest, ok := strings.CutPrefix(m, phrase); ok && WordEnds(rest) {
			return true
		}
	}
	for _, who := range strings.Fields(s.who) {
		for _, verb := range strings.Fields(s.verbs) {
			if rest, ok := strings.CutPrefix(m, who+" "+verb); ok && WordEnds(rest) {
				return true
			}
		}
	}
	return false
}

// mixedProse tells of a directive that goes on with a reason or another deed.
func mixedProse(m string) bool {
	for _, cue := range cues {
		if cue == "change premise" {
			cue = "change premise to"
		}
		rest, ok := strings.CutPrefix(m, cue)
		if !ok || !WordEnds(rest) {
			continue
		}
		for _, word := range [...]string{"because", "then continue", "and"} {
			if findWord(rest, word, 0) >= 0 {
				return true
			}
		}
	}
	return false
}

func bracketNote(m string) bool {
	if !strings.Contains(m, "[") || !strings.Contains(m, "]") {
		return false
	}
	for _, note := range [...]string{"in my notes", "notes:", "i wrote down"} {
		if strings.Contains(m, note) {
			return true
		}
	}
	return false
}

// wrapped reports whether s stands within a pair of the given marks.
func wrapped(s, openers, closers string) bool {
	if len(s) < 2 {
		return false
	}
	i := strings.IndexByte(openers, s[0])
	return i >= 0 && closers[i] == s[len(s)-1]
}

// candidate is the message without closing dots and exclamation marks, without
// one pair of wrappers, squeezed and in lower case.
func candidate(message, openers, closers string) string {
	s := Trim(strings.TrimRight(Trim(message), ".!"))
	if wrapped(s, openers, closers) {
		if inner := Trim(s[1 : len(s)-1]); inner != "" {
			s = inner
		}
	}
	return squeeze(lower(s))
}

// malformedReplacement tells of "use x instead y" and of "in stead of".
func malformedReplacement(c string) bool {
	if strings.Contains(c, " in stead of ") {
		return true
	}
	use := findWord(c, "use", 0)
	return use >= 0 && findWord(c, "instead", use+len("use")) >= 0 && !strings.Contains(c, InsteadOf)
}

// canonical reports whether a text is, as it stands, one directive with an operand
// that begins and ends with a visible rune and holds no line feed.
func canonical(t string) bool {
	switch t {
	case "clear premise", "reset policies", "clear state":
		return true
	}
	for _, prefix := range [...]string{"change premise to ", "prohibit ", "remove policy "} {
		if operand, ok := strings.CutPrefix(t, prefix); ok && solid(operand) {
			return true
		}
	}
	if value, ok := strings.CutPrefix(t, "set premise "); ok && solid(value) {
		rest, to := strings.CutPrefix(value, "to")
		return !to || !WordEnds(rest)
	}
	p, ok := strings.CutPrefix(t, "use ")
	return ok && (canonicalReplacement(p) || solid(p) && !mentionsInsteadOf(p))
}

func solid(s string) bool { return edged(s) && !strings.Contains(s, "\n") }

// edged reports whether s begins and ends with a visible rune.
func edged(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && !isSpace(first) && !isSpace(last)
}

// canonicalReplacement tries every "instead of" as the dividing one.
func canonicalReplacement(p string) bool {
	if strings.Contains(p, "\n") {
		return false
	}
	for i := 0; ; i++ {
		at := strings.Index(p[i:], InsteadOf)
		if at < 0 {
			return false
		}
		i += at
		if edged(p[:i]) && edged(p[i+len(InsteadOf):]) {
			return true
		}
	}
}

// mentionsInsteadOf tells of white space, "instead of" and white space or the end.
func mentionsInsteadOf(p string) bool {
	for i := 0; ; i++ {
		at := strings.Index(p[i:], "instead of")
		if at < 0 {
			return false
		}
		i += at
		before, _ := utf8.DecodeLastRuneInString(p[:i])
		after, n := utf8.DecodeRuneInString(p[i+len("instead of"):])
		if i > 0 && isSpace(before) && (n == 0 || isSpace(after)) {
			return true
		}
	}
}

// Verdict is the result of validating a preprocessor's output.
type Verdict struct {
	Class     Class
	Directive string // its case is kept; "" unless Class is IsDirective
}

// Validate checks the output of a preprocessor, such as a model: one canonical directive, the word <NO_DIRECTIVE>, or a
// JSON object with Exactly the keys classification and output. Everything else is Unknown.
func Validate(output string) Verdict {
	s := Trim(output)
	switch {
	case s == "":
		return Verdict{}
	case strings.ToUpper(s) == "<NO_DIRECTIVE>":
		return Verdict{Class: NoDirective}
	case s[0] == '{':
		return validateObject(s)
	}
	return validateText(s)
}

func validateText(s string) Verdict {
	if manyDirectives(squeeze(lower(s))) || !canonical(s) {
		return Verdict{}
	}
	return Verdict{IsDirective, s}
}

func validateObject(s string) Verdict {
	classification, output, ok := structured(s)
	switch {
	case ok && classification == "directive" && output.Kind == JSONString:
		return validateText(Trim(output.Text))
	case ok && classification == "no_directive" && output.Kind == JSONNull:
		return Verdict{Class: NoDirective}
	}
	return Verdict{}
}

// structured reads {"classification":…,"output":…}.
func structured(s string) (classification string, output Value, ok bool) {
	v, err := ParseJSON([]byte(s))
	if err != nil {
		return "", Value{}, false
	}
	fields, ok := v.Exactly(0, "classification", "output")
	if !ok || fields[0].Kind != JSONString {
		return "", Value{}, false
	}
	return fields[0].Text, fields[1], true
}

// ValidateAgainst is [Validate], and a directive survives only if the message it
// was made from says it, word for word and nothing besides: the message is that
// directive in other case or spacing, with closing dots or in brackets, or it is
// the structured object itself.
func ValidateAgainst(output, message string) Verdict {
	v := Validate(output)
	if v.Class == IsDirective && !Grounded(v.Directive, message) {
		return Verdict{}
	}
	return v
}

func Grounded(directive, message string) bool {
	if s := Trim(message); s != "" && s[0] == '{' {
		classification, output, ok := structured(s)
		if ok && classification == "directive" && output.Kind == JSONString &&
			lower(Trim(output.Text)) == lower(Trim(directive)) {
			return true
		}
	}
	c := candidate(message, "([", ")]")
	return !unsafeSource(message, c) && canonical(c) && squeeze(lower(directive)) == c
}

// unsafeSource tells of a message that is more, or less, than one directive.
func unsafeSource(raw, c string) bool {
	if strings.ContainsAny(raw, "\n\r") || strings.Contains(raw, "```") || strings.Contains(raw, "~~~") {
		return true
	}
	m := squeeze(lower(raw))
	if hasCue(m) && (strings.ContainsAny(raw, "`?") || !canonical(c)) {
		return true
	}
	if metaPrefix(m, saying{"i he she they doc docs documentation", "say says said"}) {
		return true
	}
	return mixedProse(m) || manyDirectives(m) || sentenceThenDirective(m) || strings.Contains(raw, `"`) && reports(lower(raw))
}

// sentenceThenDirective tells of "I see. use docker".
func sentenceThenDirective(m string) bool {
	if end := strings.IndexAny(m, "!?"); end >= 0 {
		// the full stop must come before any "!" or "?", the cue may come after
		return stopThenCue(m, end)
	}
	return stopThenCue(m, len(m))
}

func stopThenCue(m string, end int) bool {
	for i := 0; i < end; i++ {
		if m[i] == '.' && CueAt(TrimLeft(m[i+1:])) {
			return true
		}
	}
	return false
}

func reports(m string) bool {
	for _, word := range [...]string{"say", "says", "said", "doc", "docs", "documentation"} {
		if findWord(m, word, 0) >= 0 {
			return true
		}
	}
	return false
}
