package rendering

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokensOf is a sentence as words and marks. What a writer may change and say the same is made one:
//
//   - the case of the first word, unless it is an abbreviation
//   - "the", which is left out, and "an", which becomes "a"
//   - short forms: "don't" is "do not", "I'm" is "I am"
//   - numbers to twelve in words, and commas between thousands where they cannot be decimal ones
//   - full stops and exclamation marks at the end, the marks of bold and of code
//
// All else stays, in its order: other words, each number, sign and unit, commas, brackets, quotes and question marks.
func tokensOf(text string) (out []string) {
	text = strings.TrimRight(strings.TrimSpace(text), ".!。！ \t")
	for _, mark := range []string{"**", "`"} {
		if strings.Count(text, mark)%2 == 0 {
			text = unmarked(text, mark)
		}
	}
	fields := strings.Fields(text)
	speaksEnglish := slices.ContainsFunc(fields, func(w string) bool { return english[strings.ToLower(w)] })
	for _, w := range fields {
		lead, core, trail := edges(w)
		out = append(append(append(out, lead...), wordForms(core, speaksEnglish)...), trail...)
	}
	out = slices.DeleteFunc(out, func(t string) bool { return strings.EqualFold(t, "the") })
	if len(out) > 0 {
		out[0] = initial(out[0])
	}
	return out
}

// unmarked is a text without the marks around words; a mark within a word stays.
func unmarked(text, mark string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, mark)
		if i < 0 {
			return b.String() + text
		}
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(mark):])
		b.WriteString(text[:i])
		if wordy(before) == wordy(after) {
			b.WriteString(mark)
		}
		text = text[i+len(mark):]
	}
}

func wordy(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

// edges are the marks before and behind a word.
func edges(w string) (lead []string, core string, trail []string) {
	for {
		r, n := utf8.DecodeRuneInString(w)
		if n == 0 || !strings.ContainsRune(`"([{`, r) {
			break
		}
		lead, w = append(lead, w[:n]), w[n:]
	}
	for {
		r, n := utf8.DecodeLastRuneInString(w)
		if n == 0 || !strings.ContainsRune(`")]},;:?!.？`, r) {
			break
		}
		trail, w = append(trail, w[len(w)-n:]), w[:len(w)-n]
	}
	slices.Reverse(trail)
	return lead, w, trail
}

var (
	thousands   = regexp.MustCompile(`^([^\d]?)([1-9]\d{0,2}(?:,\d{3})+)(\D*|\.\d+)$`)
	english     = set(`the and are were with from after than that this which must does`) // in no language with decimal commas
	numberWords = map[string]string{
		"zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
		"ten": "10", "eleven": "11", "twelve": "12",
	}
	shortForms = map[string][]string{"won't": {"will", "not"}, "can't": {"can", "not"}, "cannot": {"can", "not"}, "shan't": {"shall", "not"}}
	endings    = []struct{ end, word string }{{"n't", "not"}, {"'m", "am"}, {"'re", "are"}, {"'ve", "have"}, {"'ll", "will"}}
)

// wordForms are the words that a word is made of. In other languages than English 1,250 may be a number between one and two.
func wordForms(w string, speaksEnglish bool) []string {
	lower := strings.ToLower(w)
	switch {
	case w == "":
		return nil
	case lower == "an":
		return []string{"a"}
	case numberWords[lower] != "":
		return []string{numberWords[lower]}
	case shortForms[lower] != nil:
		return slices.Clone(shortForms[lower])
	case thousands.MatchString(w) && (speaksEnglish || strings.Count(w, ",") > 1 || strings.Contains(w, ".")):
		return []string{strings.ReplaceAll(w, ",", "")}
	}
	for _, e := range endings {
		if len(w) > len(e.end) && strings.HasSuffix(lower, e.end) {
			return []string{w[:len(w)-len(e.end)], e.word}
		}
	}
	return []string{w}
}

// initial is the first word of a sentence: in lower case, unless it is written in capitals, as abbreviations are.
func initial(w string) string {
	if r, n := utf8.DecodeRuneInString(w); strings.IndexFunc(w[n:], unicode.IsUpper) < 0 && w != "I" {
		return string(unicode.ToLower(r)) + w[n:]
	}
	return w
}

// countWords counts words; scripts without spaces have one for two characters.
func countWords(tokens []string) (n int) {
	for _, t := range tokens {
		dense := 0
		for _, r := range t {
			if unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) {
				dense++
			}
		}
		if dense > 0 {
			n += dense / 2
		} else if strings.ContainsFunc(t, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

// formsOf are the forms of a sentence: its own, and for the words of the user also those without an introduction
// ("Remember that …") and those that say the same of the user ("I prefer tabs" is "the user prefers tabs").
func formsOf(tokens []string, own bool) [][]string {
	forms := [][]string{tokens}
	if !own {
		return forms
	}
	for _, lead := range leads {
		if rest, ok := cutLead(tokens, lead); ok {
			forms = append(forms, rest)
			break
		}
	}
	for _, f := range slices.Clone(forms) {
		forms = append(forms, ofTheUser(f)...)
	}
	return forms
}

var leads = [][]string{
	{"please", "remember", "that"}, {"please", "remember", ":"}, {"remember", "that"}, {"remember", ":"}, {"please", "note", "that"},
	{"note", "that"}, {"keep", "in", "mind", "that"}, {"for", "record", ","}, {"fyi", ","}, {"FYI", ","}, {"please", "remember"}, {"remember"}, {"please"},
}

func cutLead(tokens, lead []string) ([]string, bool) {
	if len(tokens) <= len(lead) || !slices.Equal(tokens[:len(lead)], lead) {
		return nil, false
	}
	rest := slices.Clone(tokens[len(lead):])
	rest[0] = initial(rest[0])
	return rest, true
}

var (
	others  = set(`you your yours yourself we us our ours ourselves myself`)
	adverbs = set(`always never usually often really only just also still currently generally normally sometimes rarely`)
	fixed   = set(`was had did will would can could may might must shall should not`)
	ofUser  = map[string]string{"I": "user", "i": "user", "me": "user", "my": "user's", "My": "user's", "mine": "user's"}
	verbs   = map[string]string{"am": "is", "have": "has", "do": "does"}
)

// ofTheUser are the forms in which somebody else says of the user what the user said of themselves: with the verbs as they
// are, for the past, and with those of the third person.
func ofTheUser(tokens []string) (out [][]string) {
	if slices.ContainsFunc(tokens, func(t string) bool { return others[strings.ToLower(t)] }) ||
		!slices.ContainsFunc(tokens, func(t string) bool { return ofUser[t] != "" }) {
		return nil
	}
	as, third := slices.Clone(tokens), slices.Clone(tokens)
	verb := false // the next word that is no adverb says what the user does
	for i, t := range tokens {
		if u := ofUser[t]; u != "" {
			as[i], third[i] = u, u
			verb = u == "user" && t != "me"
		} else if verb && !adverbs[t] {
			verb = false
			switch {
			case verbs[t] != "":
				as[i], third[i] = verbs[t], verbs[t]
			case !fixed[t] && strings.IndexFunc(t, func(r rune) bool { return !unicode.IsLower(r) }) < 0:
				third[i] = thirdPerson(t)
			}
		}
	}
	return [][]string{as, third}
}

func thirdPerson(v string) string {
	n := len(v)
	switch {
	case strings.HasSuffix(v, "s"), strings.HasSuffix(v, "x"), strings.HasSuffix(v, "z"), strings.HasSuffix(v, "ch"), strings.HasSuffix(v, "sh"), strings.HasSuffix(v, "o"):
		return v + "es"
	case n > 1 && v[n-1] == 'y' && !strings.ContainsRune("aeiou", rune(v[n-2])):
		return v[:n-1] + "ies"
	}
	return v + "s"
}
