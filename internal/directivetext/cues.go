package directivetext

import "strings"

// InsteadOf divides the two items of a replacement.
const InsteadOf = " instead of "

// cues are the words by which a directive begins.
var cues = [...]string{
	"set premise", "change premise", "use", "prohibit", "remove policy",
	"clear premise", "reset policies", "clear state",
}

// CueAt reports whether a cue stands at the start of s as whole words.
func CueAt(s string) bool {
	for _, cue := range cues {
		if rest, ok := strings.CutPrefix(s, cue); ok && WordEnds(rest) {
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

// joints are the signs and words that may stand between two directives.
type joints struct {
	marks string   // single ASCII characters
	words []string // whole words
}

var (
	// The preprocessor splits at proseJoints, an input at LineJoints.
	proseJoints = joints{";,", []string{"and", "then"}}
	LineJoints  = joints{";,\n\r", []string{"and", "then"}}
)

// next finds the first joint in s[from:] behind which, after optional white
// space, another directive begins. Words are compared as they are.
func (j joints) Next(s string, from int) (joint, start int, ok bool) {
	for i := from; i < len(s); i++ {
		n := j.at(s, i)
		if n == 0 {
			continue
		}
		if rest := TrimLeft(s[i+n:]); CueAt(rest) {
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
		if rest, ok := strings.CutPrefix(s[i:], word); ok && WordEnds(rest) && wordStarts(s[:i]) {
			return len(word)
		}
	}
	return 0
}

// manyDirectives is the preprocessor's test; text is in lower case.
func manyDirectives(text string) bool {
	_, _, ok := proseJoints.Next(text, 0)
	return ok
}
