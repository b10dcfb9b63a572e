package lexical

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// An identifier is indexed as a whole and by its parts, in pages and in questions alike: whoever
// asks for one of the parts finds it, and a page that has the identifier itself comes first, because
// it matches by the whole, which is rare, too.
//
//	getUserById    getuserbyid      get user
//	get_user_by_id get_user_by_id   get user
//	HTML5Document  html5document    html5 html document
//	log4j2         log4j2           log4j
//	OAuth2Token    oauth2token      oauth2 oauth auth2 auth token
//	sha256sum      sha256sum        sha256

// mostParts bounds the parts of an identifier, and longMixed its length if it has digits: what is
// longer is a key or encoded bytes.
const (
	mostParts = 12
	longMixed = 40
)

// capital reports whether the letter at a place of the word was a capital.
func (s *scanner) capital(i int) bool { return i < 64 && s.upper>>i&1 == 1 }

// hump reports whether a part of an identifier begins at a capital: after a letter that is none, or
// before two that are none, as in XMLHttp. One is a plural: APIs.
func (s *scanner) hump(word []byte, i int) bool {
	if !s.capital(i) {
		return false
	}
	before := i - 1
	for before > 0 && !utf8.RuneStart(word[before]) {
		before--
	}
	if !s.capital(before) {
		return true
	}
	for range 2 {
		_, size := utf8.DecodeRune(word[i:])
		if i += size; i >= len(word) || s.capital(i) || !lowerCase(word[i]) {
			return false
		}
	}
	return true
}

// lowerCase reports whether a letter begins with a byte, if it is no capital.
func lowerCase(c byte) bool { return 'a' <= c && c <= 'z' || c >= utf8.RuneSelf }

// parts takes the parts of a word that is an identifier: see above.
func (s *scanner) parts(word []byte) {
	if len(word) > longMixed && bytes.ContainsAny(word, "0123456789") {
		return
	}
	var begin [mostParts]int
	n := 1
	for i := 1; i < len(word); i++ {
		if s.hump(word, i) {
			if n == mostParts {
				return
			}
			begin[n] = i
			n++
		}
	}
	for i, from := range begin[:n] {
		to := len(word)
		if i+1 < n {
			to = begin[i+1]
		}
		part := word[from:to]
		if n > 1 && len(part) > 1 {
			s.take(part)
			s.unnumbered(part)
		}
		if len(part) == 1 && i+1 < n { // OAuth, iPhone, XRay
			if to = len(word); i+2 < n {
				to = begin[i+2]
			}
			if part = word[from:to]; len(part) < len(word) {
				s.take(part)
				s.unnumbered(part)
			}
		}
	}
	if n == 1 {
		s.unnumbered(word)
	} else if name := unnumbered(word); name != nil {
		s.take(name)
	}
}

// unnumbered takes what a word with a number is named without it, and what it is named with the number alone.
func (s *scanner) unnumbered(word []byte) {
	if name := unnumbered(word); name != nil {
		s.take(name)
	}
	if name := numbered(word); name != nil {
		s.take(name)
	}
}

// numbered returns the beginning of a word up to its number, as sha256 of sha256sum, and nil of others: two letters or more,
// one number, two letters or more.
func numbered(word []byte) []byte {
	from := bytes.IndexFunc(word, func(r rune) bool { return '0' <= r && r <= '9' })
	if from < 2 {
		return nil
	}
	to := from
	for to < len(word) && isDigit(word[to]) {
		to++
	}
	rest := bytes.TrimRight(word[to:], "0123456789")
	if len(rest) < 2 || slices.ContainsFunc(rest, isDigit) {
		return nil
	}
	return word[:to]
}

// unnumbered returns a name without the number at its end, as log4j of log4j2, and nil of others: a
// name begins with two letters, and if it has digits itself, a number of one or two is taken off.
func unnumbered(word []byte) []byte {
	name := bytes.TrimRight(word, "0123456789")
	switch digits := len(word) - len(name); {
	case digits == 0, len(name) < 2, isDigit(name[0]), isDigit(name[1]):
		return nil
	case digits > 2 && bytes.ContainsAny(name, "0123456789"):
		return nil
	}
	return name
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
