package lexical

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Turn is what the index keeps of a message beside its words.
type Turn struct {
	Speaker string // its speaker; "": not known
	Month   Month  // when
}

// Month is a month of a year, 0 for none: 12 × year + month − 1, which fits 15 bits.
type Month uint16

// MonthOf returns the month of a time, in UTC; 0 before year 1 and after 2729.
func MonthOf(t time.Time) Month {
	year, month, _ := t.UTC().Date()
	if year < 1 || year > 2729 {
		return 0
	}
	return Month(12*year + int(month) - 1)
}

func (m Month) year() int  { return int(m) / 12 }
func (m Month) month() int { return int(m) % 12 }

// Dates are the months and the years that a question names. Days are not read: a turn is dated by
// its month, which is what people name.
type Dates struct {
	Months uint16 // a bit for each, January the lowest
	Years  []int  // ascending
}

// match is 1 if the month matches, less if only the month of the year does, and otherwise 0.
func (d *Dates) match(m Month) float64 {
	switch {
	case m == 0 || d.Months>>m.month()&1 == 0:
		return 0
	case len(d.Years) > 0 && !slices.Contains(d.Years, m.year()):
		return otherYear
	}
	return 1
}

var months = map[string]int{
	"january": 0, "february": 1, "march": 2, "april": 3, "may": 4, "june": 5, "july": 6, "august": 7, "september": 8,
	"october": 9, "november": 10, "december": 11,
	"jan": 0, "feb": 1, "mar": 2, "apr": 3, "jun": 5, "jul": 6, "aug": 7, "sep": 8, "sept": 8, "oct": 9, "nov": 10, "dec": 11,
}

// DatesOf returns the months and years that a question names. A word that usually means something
// else, such as may or march, counts as a month only beside words that suggest a date: "in May",
// "May 2023", "May 5".
func DatesOf(question string) Dates {
	var d Dates
	words := strings.FieldsFunc(question, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for i, w := range words {
		if y := number(w); len(w) == 4 && y > 0 && y <= 2729 && !slices.Contains(d.Years, y) {
			d.Years = append(d.Years, y)
		}
		m, ok := months[strings.ToLower(w)]
		if ok && (len(w) > 5 || m != 2 && m != 4 && len(w) > 3 || besideDate(words, i)) {
			d.Months |= 1 << m
		}
	}
	slices.Sort(d.Years)
	return d
}

// besideDate reports whether the word before or behind makes a word a month.
func besideDate(words []string, i int) bool {
	if i+1 < len(words) && number(words[i+1]) > 0 {
		return true
	}
	if i == 0 {
		return false
	}
	capital, _ := utf8.DecodeRuneInString(words[i])
	switch strings.ToLower(words[i-1]) {
	case "in", "of", "on", "during", "since", "by":
		return true
	case "last", "next", "this", "early", "late", "mid", "until", "till", "before", "after", "around":
		return unicode.IsUpper(capital)
	}
	return unicode.IsUpper(capital) && number(words[i-1]) > 0
}

// number reads up to four digits, with or without an ending like that of 5th; 0 where there are
// none.
func number(w string) (n int) {
	digits := 0
	for digits < len(w) && '0' <= w[digits] && w[digits] <= '9' {
		n = 10*n + int(w[digits]-'0')
		if digits++; digits > 4 {
			return 0
		}
	}
	switch w[digits:] {
	case "", "st", "nd", "rd", "th":
		return n
	}
	return 0
}

// firstWithin bytes of a text are looked at for a word of the first person: a first-person text
// shows it early, and a page may have megabytes.
const firstWithin = 4 << 10

// FirstPerson reports whether the author of a text speaks about themselves. Apostrophes are
// dropped: I'm is im.
func FirstPerson(text string) bool {
	var word []byte
	for i, r := range text {
		if i >= firstWithin {
			return false
		}
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			word = utf8.AppendRune(word, unicode.ToLower(r))
		case r == '\'' || r == '`' || r == '’' || r == '‘' || r == 'ʼ':
		case saysI(word):
			return true
		default:
			word = word[:0]
		}
	}
	return saysI(word)
}

// saysI reports whether a word is of the first person.
func saysI(word []byte) bool {
	switch string(word) {
	case "i", "my", "me", "im", "ive", "we", "our", "id", "ill":
		return true
	}
	return false
}
