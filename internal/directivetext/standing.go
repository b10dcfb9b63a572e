package directivetext

import (
	"strings"
	"unicode"
)

// Standing reads a text word by word and finds what its author wants of all later answers: a standing instruction ("from
// now on use tabs", "… when I ask about medicines") or a preference ("I'd rather have tea"). The zero value is ready.
type Standing struct {
	asks   uint8 // words of "when I ask" so far
	wants  wish
	orders order
}

// Word takes the next word, in lower case and without apostrophes; nil is a word that is no cue. It reports what this word
// completes.
func (s *Standing) Word(w []byte) (instructs, prefers bool) {
	asked, ordered := s.whenAsked(w), s.orders.next(w)
	return asked || ordered, s.wants.next(w)
}

// End ends a sentence. It reports whether the last word completed an instruction.
func (s *Standing) End() (instructs bool) {
	instructs = s.orders == orderVerb
	*s = Standing{}
	return instructs
}

// StandingIn returns the first sentence of a message that has a standing instruction or a preference; "": none has.
func StandingIn(message string) string {
	for sentence := range strings.FieldsFuncSeq(message, func(r rune) bool { return r == '.' || r == '!' || r == '?' || r == '\n' }) {
		var s Standing
		plain := strings.NewReplacer("'", "", "`", "", "’", "", "‘", "", "ʼ", "").Replace(strings.ToLower(sentence))
		found := false
		for w := range strings.FieldsFuncSeq(plain, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			instructs, prefers := s.Word([]byte(w))
			found = found || instructs || prefers
		}
		if s.End() || found {
			return Trim(sentence)
		}
	}
	return ""
}

// whenAsked reports whether the word ends "when I ask" or "whenever I ask".
func (s *Standing) whenAsked(w []byte) bool {
	switch string(w) {
	case "when", "whenever":
		s.asks = 1
		return false
	case "i":
		if s.asks == 1 {
			s.asks = 2
			return false
		}
	case "ask":
		if s.asks == 2 {
			return true
		}
	}
	s.asks = 0
	return false
}

// order is how much of a standing instruction a sentence has:
//
//	[please|also] (always | never | from now on | going forward | in [the] future) [please] verb, and no "up" behind it
type order uint8

const (
	orderStart  order = iota
	orderOpened       // please, also
	orderFrom
	orderFromNow
	orderGoing
	orderIn
	orderInThe
	orderCue    // the words that make it stand
	orderPlease // and please behind them
	orderVerb
	orderNone // not in this sentence
)

// next takes the next word of a sentence. The instruction is complete with the word behind the verb.
func (o *order) next(w []byte) bool {
	was := *o
	*o = orderNone
	switch was {
	case orderStart, orderOpened:
		*o = was.begin(w)
	case orderCue, orderPlease:
		if was == orderCue && string(w) == "please" {
			*o = orderPlease
		} else if isOrder(w) {
			*o = orderVerb
		}
	case orderVerb:
		return string(w) != "up"
	case orderFrom:
		o.then(w, "now", orderFromNow)
	case orderFromNow:
		o.then(w, "on", orderCue)
	case orderGoing:
		o.then(w, "forward", orderCue)
	case orderIn:
		o.then(w, "the", orderInThe)
		o.then(w, "future", orderCue)
	case orderInThe:
		o.then(w, "future", orderCue)
	}
	return false
}

// then moves on if the word is the one expected.
func (o *order) then(w []byte, want string, to order) {
	if string(w) == want {
		*o = to
	}
}

// begin is the state behind the first word of a sentence, or behind the first after "please" or "also".
func (o order) begin(w []byte) order {
	switch string(w) {
	case "always", "never":
		return orderCue
	case "from":
		return orderFrom
	case "going":
		return orderGoing
	case "in":
		return orderIn
	case "please", "also":
		if o == orderStart {
			return orderOpened
		}
	}
	return orderNone
}

// isOrder reports whether a word is a verb by which people tell an assistant how to answer.
func isOrder(w []byte) bool {
	switch string(w) {
	case "include", "use", "format", "provide", "give", "show", "mention", "explain", "add", "avoid", "report", "highlight",
		"maintain", "tailor", "combine", "confirm", "prioritize", "specify", "write", "answer", "respond", "reply", "keep",
		"start", "end", "begin", "ask", "call", "refer", "cite", "list", "put", "make", "suggest", "recommend", "check", "verify",
		"remind", "assume", "convert", "translate", "speak", "address", "summarize", "limit", "omit", "skip", "leave", "round",
		"state", "offer", "note", "label", "quote", "link", "tell", "describe", "present", "return", "output", "follow", "apply",
		"consider", "treat":
		return true
	}
	return false
}

// wish is how much of a preference the last words have:
//
//	(i | we) [would] [adverb] prefer, (id | wed | and | also | but) [adverb] prefer, (my | our) preference
type wish uint8

const (
	wishNone wish = iota
	wishSubject
	wishWould // or a subject that needs none
	wishAdverb
	wishMine
)

// next takes the next word; true: the preference is complete.
func (s *wish) next(w []byte) bool {
	was := *s
	*s = wishNone
	switch string(w) {
	case "i", "we":
		*s = wishSubject
	case "id", "wed", "and", "but":
		*s = wishWould
	case "also": // both
		if *s = wishWould; was == wishSubject || was == wishWould {
			*s = wishAdverb
		}
	case "would":
		if was == wishSubject {
			*s = wishWould
		}
	case "really", "generally", "usually", "always", "much", "strongly":
		if was == wishSubject || was == wishWould {
			*s = wishAdverb
		}
	case "my", "our":
		*s = wishMine
	case "preference", "preferences":
		return was == wishMine
	case "prefer", "prefers", "preferred", "rather":
		return was != wishNone && was != wishMine
	}
	return false
}

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
