package static

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Tokenizers as tokenizer.json describes them, as far as static models have them: WordPiece over words that are cut as BERT
// cuts them. Other kinds (BPE, Unigram) are refused by name, since half a tokenizer would make vectors that mean nothing.

type tokenizer struct {
	vocabulary map[string]int
	prefix     string // of what continues a word
	longest    int    // bytes of the longest token
	maxWord    int    // characters of a word; a longer one is unknown
	unknown    int
	lower      bool
	accents    bool // are stripped
	clean      bool
	cjk        bool // such a character is a word
}

type tokenizerFile struct {
	Normalizer json.RawMessage `json:"normalizer"`
	Pre        json.RawMessage `json:"pre_tokenizer"`
	Model      struct {
		Type    string         `json:"type"`
		Unknown string         `json:"unk_token"`
		Prefix  *string        `json:"continuing_subword_prefix"`
		MaxWord int            `json:"max_input_chars_per_word"`
		Vocab   map[string]int `json:"vocab"`
	} `json:"model"`
}

// newTokenizer reads tokenizer.json. unknown is the token of what the vocabulary does not have, -1: there is none.
func newTokenizer(body []byte) (t tokenizer, unknown int, err error) {
	var f tokenizerFile
	var kind struct {
		Model struct {
			Type string `json:"type"`
		} `json:"model"`
	}
	if err := json.Unmarshal(body, &kind); err != nil {
		return t, 0, fmt.Errorf("expected a JSON object: %w", err)
	}
	if kind.Model.Type != "WordPiece" {
		return t, 0, fmt.Errorf("a vocabulary of type %q, expected WordPiece", kind.Model.Type)
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return t, 0, fmt.Errorf("vocabulary: %w", err)
	}
	t = tokenizer{vocabulary: f.Model.Vocab, prefix: "##", maxWord: f.Model.MaxWord, unknown: -1}
	if f.Model.Prefix != nil {
		t.prefix = *f.Model.Prefix
	}
	if t.maxWord <= 0 {
		t.maxWord = 100
	}
	for token, id := range t.vocabulary {
		if id < 0 || id >= 1<<24 {
			return t, 0, fmt.Errorf("token %q has the number %d", token, id)
		}
		t.longest = max(t.longest, len(token))
	}
	if len(t.vocabulary) == 0 {
		return t, 0, fmt.Errorf("the vocabulary is empty")
	}
	if id, ok := t.vocabulary[f.Model.Unknown]; ok {
		t.unknown = id
	}
	if err := t.normalizer(f.Normalizer); err != nil {
		return t, 0, err
	}
	return t, t.unknown, preTokenizer(f.Pre)
}

// normalizer takes what the file says of spelling: BERT's normalizer, or its parts one by one.
func (t *tokenizer) normalizer(raw json.RawMessage) error {
	var n struct {
		Type    string            `json:"type"`
		Clean   *bool             `json:"clean_text"`
		CJK     *bool             `json:"handle_chinese_chars"`
		Accents *bool             `json:"strip_accents"`
		Lower   *bool             `json:"lowercase"`
		Parts   []json.RawMessage `json:"normalizers"`
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return fmt.Errorf("normalizer: %w", err)
	}
	is := func(b *bool, def bool) bool { return b == nil && def || b != nil && *b }
	switch n.Type {
	case "BertNormalizer":
		t.lower, t.clean, t.cjk = is(n.Lower, true), is(n.Clean, true), is(n.CJK, true)
		t.accents = is(n.Accents, t.lower)
	case "Lowercase":
		t.lower = true
	case "StripAccents":
		t.accents = true
	case "NFD", "NFC", "NFKD", "NFKC": // what is found of a word is the same but for rare characters
	case "Sequence":
		for _, p := range n.Parts {
			if err := t.normalizer(p); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("normalizer of type %q, expected BertNormalizer, Lowercase or StripAccents", n.Type)
	}
	return nil
}

// preTokenizer checks that words are cut as BERT cuts them: at spaces and around punctuation.
func preTokenizer(raw json.RawMessage) error {
	var p struct {
		Type string `json:"type"`
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	if p.Type != "BertPreTokenizer" {
		return fmt.Errorf("pre_tokenizer of type %q, expected BertPreTokenizer", p.Type)
	}
	return nil
}

// size is one more than the highest token.
func (t *tokenizer) size() (n int) {
	for _, id := range t.vocabulary {
		n = max(n, id+1)
	}
	return n
}

// each calls fn with the tokens of a text, in order, until it returns false. A word that the vocabulary cannot spell is one
// unknown token.
func (t *tokenizer) each(text string, fn func(token int) bool) {
	var word strings.Builder
	more := true
	flush := func() {
		if word.Len() > 0 && more {
			more = t.pieces(word.String(), fn)
		}
		word.Reset()
	}
	if t.accents {
		text = norm.NFD.String(text)
	}
	for _, r := range text {
		switch {
		case !more:
			return
		case t.accents && unicode.Is(unicode.Mn, r), t.clean && (r == 0 || r == utf8.RuneError || isControl(r)):
		case unicode.IsSpace(r):
			flush()
		case isPunctuation(r), t.cjk && isIdeograph(r):
			flush()
			word.WriteRune(r)
			flush()
		default:
			if t.lower {
				r = unicode.ToLower(r)
			}
			word.WriteRune(r)
		}
	}
	flush()
}

// pieces spells a word: the longest token it begins with, then the longest that what is left begins with, and so on.
func (t *tokenizer) pieces(word string, fn func(token int) bool) bool {
	var found [64]int
	ids := found[:0]
	for at := 0; at < len(word); {
		prefix := ""
		if at > 0 {
			prefix = t.prefix
		}
		end, id := min(len(word), at+t.longest), -1
		for ; end > at; end-- {
			if end < len(word) && !utf8.RuneStart(word[end]) {
				continue
			}
			if n, ok := t.vocabulary[prefix+word[at:end]]; ok {
				id = n
				break
			}
		}
		if id < 0 || at == 0 && utf8.RuneCountInString(word) > t.maxWord {
			return t.unknown < 0 || fn(t.unknown)
		}
		ids, at = append(ids, id), end
	}
	for _, id := range ids {
		if !fn(id) {
			return false
		}
	}
	return true
}

func isControl(r rune) bool {
	return r != '\t' && r != '\n' && r != '\r' && (unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r))
}

// isPunctuation counts all of ASCII that is neither letter, digit nor space, as BERT does.
func isPunctuation(r rune) bool {
	return r >= 33 && r <= 47 || r >= 58 && r <= 64 || r >= 91 && r <= 96 || r >= 123 && r <= 126 || unicode.IsPunct(r)
}

func isIdeograph(r rune) bool {
	return r >= 0x4E00 && r <= 0x9FFF || r >= 0x3400 && r <= 0x4DBF || r >= 0x20000 && r <= 0x2CEAF || r >= 0xF900 && r <= 0xFAFF || r >= 0x2F800 && r <= 0x2FA1F
}
