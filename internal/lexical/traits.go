package lexical

import (
	"unicode"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// Traits has a bit for each thing that the author of a turn says about themselves, or about the answers they want. A question hardly ever has
// the words of a standing instruction that applies to it ("always add sources when I ask about a medicine"), so such a
// turn is found by being one.
type Traits uint8

// The traits of a turn.
const (
	FirstPerson Traits = 1 << iota // "I", "our"
	Instructs                      // "from now on use tabs", "… when I ask …"
	Prefers                        // "I'd rather have tea"

	allTraits = FirstPerson | Instructs | Prefers
)

// score returns the sum that the traits add to the score of a turn, before the division by unit.
func (t Traits) score() (sum float64) {
	if t&FirstPerson != 0 {
		sum = ofFirst
	}
	if t&Instructs != 0 {
		sum += ofInstruction
	}
	if t&Prefers != 0 {
		sum += ofPreference
	}
	return sum
}

// traitsWithin bytes of a text are read for its traits: people say such things early, and a page may have megabytes.
const traitsWithin = 4 << 10

// longestCue is the number of letters of the longest word that traits depend on.
const longestCue = 11

// TraitsOf returns the traits of a text. Only users have preferences and instruct others: an assistant's "always use
// tabs" is an answer.
func TraitsOf(text string, user bool) Traits {
	s := traitScanner{user: user}
	for i, r := range text {
		if i >= traitsWithin || s.found == allTraits || !user && s.found != 0 {
			return s.found
		}
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			s.letter(r)
		case 'A' <= r && r <= 'Z':
			s.letter(r + 'a' - 'A')
		case r == '\'' || r == '`' || r == '’' || r == '‘' || r == 'ʼ': // I'm is im
		case r >= utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			s.letter(unicode.ToLower(r))
		default:
			s.end()
			if r == '.' || r == '!' || r == '?' || r == '\n' {
				s.says(s.standing.End(), false)
			}
		}
	}
	s.end()
	s.says(s.standing.End(), false)
	return s.found
}

// traitScanner reads a text word by word.
type traitScanner struct {
	user  bool
	found Traits
	word  [longestCue + utf8.UTFMax]byte
	n     int // bytes of the word; more than longestCue: no cue

	standing directivetext.Standing
}

func (s *traitScanner) letter(r rune) {
	if s.n <= longestCue {
		s.n += utf8.EncodeRune(s.word[s.n:], r)
	}
}

// end takes the word that has ended, if there is one.
func (s *traitScanner) end() {
	if s.n == 0 {
		return
	}
	w := s.word[:s.n]
	if s.n > longestCue {
		w = nil
	}
	s.n = 0
	if s.found&FirstPerson == 0 && saysI(w) {
		s.found |= FirstPerson
	}
	if !s.user {
		return
	}
	s.says(s.standing.Word(w))
}

// says takes what the words so far say.
func (s *traitScanner) says(instructs, prefers bool) {
	if instructs {
		s.found |= Instructs
	}
	if prefers {
		s.found |= Prefers
	}
}

// saysI reports whether a word is of the first person.
func saysI(word []byte) bool {
	switch string(word) {
	case "i", "my", "me", "im", "ive", "we", "our", "id", "ill":
		return true
	}
	return false
}
