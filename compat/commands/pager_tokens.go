package commands

import "github.com/ctxpage/ctxpage/internal/prose"

// tokens returns the token set of the reference pager: after prose.Lower, the maximal runs of ASCII letters, digits and
// underscore. Letters of other scripts are separators there, so such texts never match; prose.TokenSet does better.
func tokens(text string) map[string]struct{} {
	text = prose.Lower(text)
	set := make(map[string]struct{})
	start := -1
	for i := 0; i <= len(text); i++ {
		if i < len(text) && asciiWord(text[i]) {
			if start < 0 {
				start = i
			}
		} else if start >= 0 {
			set[text[start:i]] = struct{}{}
			start = -1
		}
	}
	return set
}

func asciiWord(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_'
}

// similarity is the share of the keywords that occur among the tokens:
// |keywords ∩ tokens| / |keywords|, and 0 for no keywords.
func similarity(keywords, tokens map[string]struct{}) float64 {
	if len(keywords) == 0 {
		return 0
	}
	hits := 0
	for k := range keywords {
		if _, ok := tokens[k]; ok {
			hits++
		}
	}
	return float64(hits) / float64(len(keywords))
}
