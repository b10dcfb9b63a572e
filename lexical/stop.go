package lexical

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
