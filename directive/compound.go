package directive

import (
	"strings"

	"github.com/ctxpage/ctxpage/internal/directivetext"
)

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
