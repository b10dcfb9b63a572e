package directive

import (
	"strings"

	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// verb is the request of a parsed directive.
type verb uint8

const (
	clearPremise verb = 1 + iota
	resetPolicies
	clearState
	removeItem
	nearSet    // "set premise to x"
	nearChange // "change premise x"
	setPremise
	changePremise
	useItem
	prohibitItem
	replaceItem // a is the new item, b the old one
	incomplete  // a replacement with a side missing
)

// command is a parsed directive. Its operands are as typed; those that are shown
// so to the user are valid UTF-8.
type command struct {
	verb verb
	a, b string
}

const bareInsteadOf = "instead of"

// parse reads an input by the strict grammar: lower-case keywords with exactly
// one space between and after them, nothing trimmed. The order of the tests is
// the grammar; the first that fits wins.
func parse(in string) (command, bool) {
	switch in {
	case "clear premise":
		return command{verb: clearPremise}, true
	case "reset policies":
		return command{verb: resetPolicies}, true
	case "clear state":
		return command{verb: clearState}, true
	}
	c, ok := parseOperands(in)
	switch c.verb {
	case replaceItem, nearSet, nearChange:
		c.a, c.b = directivetext.Valid(c.a), directivetext.Valid(c.b)
	}
	return c, ok
}

func parseOperands(in string) (command, bool) {
	if t, ok := operand(in, "remove policy"); ok {
		return command{verb: removeItem, a: t}, true
	}
	if t, ok := strings.CutPrefix(in, "set premise to "); ok && !directivetext.Blank(t) {
		return command{verb: nearSet, a: t}, true
	}
	if t, ok := operand(in, "change premise to"); ok {
		return command{verb: changePremise, a: t}, true
	}
	if t, ok := strings.CutPrefix(in, "change premise "); ok && !directivetext.Blank(t) {
		return command{verb: nearChange, a: t}, true
	}
	if t, ok := operand(in, "set premise"); ok {
		return command{verb: setPremise, a: t}, true
	}
	if t, ok := operand(in, "use"); ok {
		return parseUse(t), true
	}
	if t, ok := operand(in, "prohibit"); ok {
		return command{verb: prohibitItem, a: t}, true
	}
	return command{}, false
}

// operand cuts keywords that stand alone or are followed by a space.
func operand(in, keywords string) (string, bool) {
	t, ok := strings.CutPrefix(in, keywords)
	if !ok || t == "" {
		return "", ok
	}
	return strings.CutPrefix(t, " ")
}

func parseUse(p string) command {
	if left, right, ok := strings.Cut(p, directivetext.InsteadOf); ok {
		if directivetext.Blank(left) || directivetext.Blank(right) {
			return command{verb: incomplete}
		}
		return command{verb: replaceItem, a: left, b: right}
	}
	if sideMissing(p) {
		return command{verb: incomplete}
	}
	return command{verb: useItem, a: p}
}

// sideMissing tells of "instead of" with nothing on one side. The two words alone
// are an item, as they are for the reference: a transcript means the same in both.
func sideMissing(p string) bool {
	return strings.HasPrefix(p, "instead of ") || strings.HasSuffix(p, " instead of")
}

// phrases are the keywords of the grammar; a longer one stands before its prefix.
var phrases = [...][]string{
	{"clear", "premise"}, {"reset", "policies"}, {"clear", "state"}, {"remove", "policy"},
	{"set", "premise", "to"}, {"set", "premise"},
	{"change", "premise", "to"}, {"change", "premise"}, {"use"}, {"prohibit"},
}

// strictly rewrites an input of the option AnyCase to the strict grammar: ends
// trimmed, keywords in lower case with one space between. Operands are kept.
func strictly(in string) string {
	in = directivetext.Trim(in)
	for _, words := range phrases {
		rest, ok := cutWords(in, words)
		if !ok {
			continue
		}
		head := strings.Join(words, " ")
		if rest == "" {
			return head
		}
		if head == "use" {
			rest = strictReplacement(rest)
		}
		return head + " " + rest
	}
	return in
}

// maxHint bounds the inputs that are looked at for a hint: nobody types a directive of a page.
const maxHint = 512

// hint returns the strict form of an input that is a directive but for case and blanks.
func hint(input string) string {
	if len(input) > maxHint || strings.ContainsAny(input, "\r\n") {
		return ""
	}
	strict := strictly(input)
	if strict == input {
		return ""
	}
	if c, ok := parse(strict); !ok || c.verb == incomplete || c.a == bareInsteadOf {
		return "" // a hint is not for what says nothing
	}
	return strict
}

// cutWords cuts words in any ASCII case, separated and followed by blanks or
// tabs, or by the end.
func cutWords(in string, words []string) (rest string, ok bool) {
	for i, w := range words {
		if len(in) < len(w) || !equalFoldASCII(in[:len(w)], w) {
			return "", false
		}
		in = in[len(w):]
		after := strings.TrimLeft(in, " \t")
		if after == in && (in != "" || i < len(words)-1) {
			return "", false
		}
		in = after
	}
	return in, true
}

// strictReplacement rewrites the first "instead of" of an operand.
func strictReplacement(p string) string {
	for i := 0; i < len(p); i++ {
		if i > 0 && p[i-1] != ' ' && p[i-1] != '\t' {
			continue
		}
		if rest, ok := cutWords(p[i:], []string{"instead", "of"}); ok {
			if i == 0 && rest == "" {
				return bareInsteadOf
			}
			return strings.TrimPrefix(strings.TrimRight(p[:i], " \t")+directivetext.InsteadOf+rest, " ")
		}
	}
	return p
}

// equalFoldASCII is strings.EqualFold without Unicode: U+212A is no "k".
func equalFoldASCII(s, lowerWord string) bool {
	for i := 0; i < len(lowerWord); i++ {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lowerWord[i] {
			return false
		}
	}
	return true
}

// compound splits an input of the option RefuseCompound into its directives, nil
// when it holds but one. Of a premise that begins with a directive only that
// directive is returned, and what follows it.
func compound(c command, input string) []string {
	if c.verb == 0 && !beginsExact(input) {
		return nil
	}
	folded := asciiLower(input)
	if at := premiseAt(folded); at > 0 && directivetext.CueAt(folded[at:]) {
		if parts := compound(useCommand, input[at:]); parts != nil {
			return parts
		}
		return []string{strictly(input[at:])}
	}
	var parts []string
	begin := 0
	for {
		joint, start, ok := directivetext.LineJoints.Next(folded, begin)
		if !ok {
			break
		}
		parts = append(parts, strictly(input[begin:joint]))
		begin = start
	}
	if parts == nil {
		return nil
	}
	return append(parts, strictly(input[begin:]))
}

// useCommand is any command whose operand is no premise.
var useCommand = command{verb: useItem}

// premiseAt returns where the premise in an input begins, 0 if it sets none.
func premiseAt(folded string) int {
	for _, head := range [...]string{"set premise to ", "set premise ", "change premise to ", "change premise "} {
		if rest, ok := strings.CutPrefix(folded, head); ok {
			return len(folded) - len(directivetext.TrimLeft(rest))
		}
	}
	return 0
}

// beginsExact tells of "clear state and …", which the grammar alone lets pass.
func beginsExact(input string) bool {
	for _, exact := range [...]string{"clear premise", "reset policies", "clear state"} {
		if rest, ok := strings.CutPrefix(input, exact); ok && directivetext.WordEnds(rest) {
			return true
		}
	}
	return false
}

// asciiLower keeps every byte offset, which strings.ToLower may not.
func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
