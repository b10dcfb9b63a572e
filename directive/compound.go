package directive

import "strings"

// cues are the words by which a directive begins.
var cues = [...]string{
	"set premise", "change premise", "use", "prohibit", "remove policy",
	"clear premise", "reset policies", "clear state",
}

// cueAt reports whether a cue stands at the start of s as whole words.
func cueAt(s string) bool {
	for _, cue := range cues {
		if rest, ok := strings.CutPrefix(s, cue); ok && wordEnds(rest) {
			return true
		}
	}
	return false
}

// hasCue reports whether a cue stands anywhere in s as whole words.
func hasCue(s string) bool {
	for _, cue := range cues {
		if findWord(s, cue, 0) >= 0 {
			return true
		}
	}
	return false
}

// joints are what may stand between two directives.
type joints struct {
	marks string   // single ASCII characters
	words []string // whole words
}

var (
	// proseJoints are those of the preprocessor; lineJoints those of an input.
	proseJoints = joints{";,", []string{"and", "then"}}
	lineJoints  = joints{";,\n\r", []string{"and", "then"}}
)

// next finds the first joint in s[from:] behind which, after optional white
// space, another directive begins. Words are compared as they are.
func (j joints) next(s string, from int) (joint, start int, ok bool) {
	for i := from; i < len(s); i++ {
		n := j.at(s, i)
		if n == 0 {
			continue
		}
		if rest := trimLeft(s[i+n:]); cueAt(rest) {
			return i, len(s) - len(rest), true
		}
	}
	return 0, 0, false
}

// at returns the length of the joint at s[i:], 0 when there is none.
func (j joints) at(s string, i int) int {
	if strings.IndexByte(j.marks, s[i]) >= 0 {
		return 1
	}
	for _, word := range j.words {
		if s[i] != word[0] { // asked at each byte of the text
			continue
		}
		if rest, ok := strings.CutPrefix(s[i:], word); ok && wordEnds(rest) && wordStarts(s[:i]) {
			return len(word)
		}
	}
	return 0
}

// manyDirectives is the preprocessor's test; text is in lower case.
func manyDirectives(text string) bool {
	_, _, ok := proseJoints.next(text, 0)
	return ok
}

// compound splits an input of the option RefuseCompound into its directives, nil
// when it holds but one. Of a premise that begins with a directive only that
// directive is returned, and what follows it.
func compound(c command, input string) []string {
	if c.verb == 0 && !beginsExact(input) {
		return nil
	}
	folded := asciiLower(input)
	if at := premiseAt(folded); at > 0 && cueAt(folded[at:]) {
		if parts := compound(useCommand, input[at:]); parts != nil {
			return parts
		}
		return []string{strictly(input[at:])}
	}
	var parts []string
	begin := 0
	for {
		joint, start, ok := lineJoints.next(folded, begin)
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
			return len(folded) - len(trimLeft(rest))
		}
	}
	return 0
}

// beginsExact tells of "clear state and …", which the grammar alone lets pass.
func beginsExact(input string) bool {
	for _, exact := range [...]string{"clear premise", "reset policies", "clear state"} {
		if rest, ok := strings.CutPrefix(input, exact); ok && wordEnds(rest) {
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
