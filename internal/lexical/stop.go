package lexical

import "slices"

// StopWords returns the terms of a query that has nothing but stop words, each once, ascending; nil: it has others.
// Search finds by them only what the index keeps of stop words: names, and texts of nothing but stop words.
// ScoreStopWords finds them in any text.
func (a *Analyzer) StopWords(query string) (terms []string) {
	s := a.borrow()
	defer a.release(s)
	if s.text(query); s.length > 0 {
		return nil
	}
	s.whole(query)
	for _, t := range s.terms {
		terms = append(terms, t.Term)
	}
	slices.Sort(terms)
	return terms
}

// ScoreStopWords scores texts that are in no index by the terms that StopWords returned, as Search would if these were
// all pages and stop words were words like others. A text without any of them scores 0.
func (a *Analyzer) ScoreStopWords(terms, texts []string) []float64 {
	docs, st := make([]Doc, len(texts)), Stats{Pages: uint64(len(texts)), DF: make([]uint64, len(terms))}
	for i, text := range texts {
		docs[i].Analysis = a.count(terms, text)
		st.Length += uint64(docs[i].Analysis.Length)
		for _, t := range docs[i].Analysis.Terms {
			at, _ := slices.BinarySearch(terms, t.Term)
			st.DF[at]++
		}
	}
	scores := make([]float64, len(texts))
	for i := range docs {
		scores[i] = ScoreDoc(st, docs[i], Query{Terms: terms}).Own
	}
	return scores
}

// count analyses a text with its stop words and keeps the given terms only. Length is of the whole text.
func (a *Analyzer) count(terms []string, text string) (out Analysis) {
	s := a.borrow()
	defer a.release(s)
	s.whole(text)
	out.Length = s.length
	for _, t := range s.terms {
		if _, found := slices.BinarySearch(terms, t.Term); found {
			out.Terms = append(out.Terms, t)
		}
	}
	return out
}

// isStopWord reports whether a word is too common in English to say what a text
// is about. Single letters are left alone: they name things (plan b, vitamin c).
// Contractions appear as the scanner leaves them.
func isStopWord(word string) bool {
	switch word {
	case
		// articles, demonstratives
		"a", "an", "the", "this", "that", "these", "those",
		// pronouns
		"i", "me", "my", "mine", "myself", "we", "us", "our", "ours", "you", "your", "yours",
		"he", "him", "his", "she", "her", "hers", "it", "its", "they", "them", "their", "theirs",
		// to be, to have, to do, modals
		"am", "is", "are", "was", "were", "be", "been", "being",
		"have", "has", "had", "having", "do", "does", "did", "doing",
		"can", "could", "will", "would", "shall", "should", "may", "might", "must",
		// contractions
		"dont", "doesnt", "didnt", "isnt", "arent", "wasnt", "werent", "wont", "wouldnt",
		"cant", "couldnt", "shouldnt", "havent", "hasnt", "hadnt", "im", "ive", "id",
		// conjunctions, prepositions
		"and", "or", "but", "if", "then", "than", "so", "because", "as", "while", "of", "at", "by",
		"for", "with", "about", "into", "to", "from", "in", "on", "off", "out", "up", "over",
		// questions
		"what", "which", "who", "whom", "whose", "when", "where", "why", "how",
		// small adverbs
		"not", "no", "nor", "too", "very", "just", "also", "there", "here", "such", "some", "any", "both", "each":
		return true
	}
	return false
}
