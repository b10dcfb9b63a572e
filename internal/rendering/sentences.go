package rendering

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A text is read as paragraphs, and these as sentences:
//
//   - a heading, a table, a quoted line and a block of code say nothing by themselves. They are skipped.
//   - a list behind a line that ends with ":" belongs to that line. It is skipped. In a turn of the user so is all that
//     follows a colon: people paste there what others wrote.
//   - what stands below a heading that takes it back ("Rejected ideas") is skipped.
//   - inside quotes, brackets, code and what is struck out no sentence ends, so what is quoted counts only with the words
//     around it.
//   - a sentence beside a gap of an extract may be cut, or limited by what is not shown. It is skipped.
//   - programs put what others wrote into turns of the user behind a tag. Behind the first one nothing counts, nor behind
//     words that say that something else speaks now ("Bob wrote", "suppose the opposite").
//
// In doubt two sentences are read as one: then both are needed.

// sentence is one sentence of a text.
type sentence struct {
	forms []string // its normal form, and in a turn of the user those that say the same of the user
	text  string
	at    int  // place in the text; sentences that follow each other have places that do
	words int  // what it has of words
	back  bool // it refers to the sentence before it
	turns bool // it limits or takes back the sentence before it
}

var (
	listItem = regexp.MustCompile(`^\s*([-*+•‣]|\d{1,3}[.)])\s+`)
	heading  = regexp.MustCompile(`^\s{0,3}(#{1,6})\s+(.*)`)
	rule     = regexp.MustCompile(`^\s*([=-])+\s*$`)
	indented = regexp.MustCompile(`^( {4}|\t)\s*[^\s*+•‣-]`) // code; lists are indented, too
	tag      = regexp.MustCompile(`<[/!?]?[A-Za-z][\w:.-]*(\s[^<>]*)?/?>|<!--`)
	comment  = regexp.MustCompile(`(?s)<!--.*?(-->|$)`)
)

// reader cuts a text into sentences.
type reader struct {
	own     bool // a turn of the user
	out     []sentence
	at      int
	para    []string
	item    bool // para is an item of a list
	colon   bool // what follows belongs to a line that ended with ":"
	void    int  // level of the heading that takes back what follows; 0: none does
	skipped bool // the text has parts that say nothing by themselves
	cut     bool // the next sentence stands behind a gap
}

// sentences cuts a text; whole is false if it has parts that are no sentences.
func sentences(text string, own bool) (out []sentence, whole bool) {
	r := reader{own: own}
	text, cut := plain(text), false
	if at := tag.FindStringIndex(text); own && at != nil {
		text, cut = text[:at[0]], true
	}
	text = comment.ReplaceAllString(text, "\n\n"+gap+"\n\n")
	code := false
	for line := range strings.Lines(strings.ReplaceAll(text, gap, "\n"+gap+"\n")) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~"):
			code = !code
			r.skip()
		case code:
		case trimmed == gap:
			r.gap()
		case len(r.para) == 0 && indented.MatchString(line):
			r.skip()
		case trimmed == "":
			r.end()
		case strings.HasPrefix(trimmed, ">") || strings.HasPrefix(trimmed, "|"):
			r.skip()
		case rule.MatchString(line): // a line below a heading, or between parts
			r.para = nil
			r.skip()
		case heading.MatchString(line):
			m := heading.FindStringSubmatch(line)
			r.skip()
			r.colon = false
			if r.void == 0 || len(m[1]) <= r.void {
				if r.void = 0; takesBack(m[2]) {
					r.void = len(m[1])
				}
			}
		case listItem.MatchString(line):
			r.end()
			r.item, r.para = true, []string{listItem.ReplaceAllString(line, "")}
		default:
			r.para = append(r.para, trimmed)
		}
	}
	r.end()
	if cut {
		r.gap()
	}
	return r.out, !r.skipped
}

// gap is the mark that an extract puts for omitted text.
const gap = "[…]"

// gap ends the text before a part that is not shown, and takes what stands next to it.
func (r *reader) gap() {
	r.end()
	if n := len(r.out); n > 0 && r.out[n-1].at == r.at-1 {
		r.out = r.out[:n-1]
	}
	r.cut = true
	r.skip()
}

// skip ends the paragraph, and nothing that follows is next to it.
func (r *reader) skip() {
	r.end()
	r.at, r.skipped = r.at+1, true
}

// end ends a paragraph.
func (r *reader) end() {
	text, item := strings.TrimSpace(strings.Join(r.para, " ")), r.item
	r.para, r.item = nil, false
	if text == "" {
		return
	}
	if r.void > 0 || r.colon && (item || r.own) {
		r.at, r.skipped = r.at+1, true
	} else {
		for _, s := range split(text) {
			if r.own && r.colon { // as in "The mail says: Hello. All is free."
				r.at, r.skipped = r.at+1, true
				break
			}
			r.add(s)
			r.colon = r.own && (strings.Contains(s, ": ") || elsewhere(s))
		}
	}
	if strings.HasSuffix(text, ":") || !item && introduces(text, r.own) {
		r.colon = true
	} else if !item && !r.own {
		r.colon = false
	}
}

func (r *reader) add(text string) {
	tokens := tokensOf(text)
	if len(tokens) == 0 {
		return
	}
	if r.cut {
		r.cut = false
		r.at++
		return
	}
	s := sentence{text: text, at: r.at, words: countWords(tokens), back: refersBack(tokens), turns: turns(tokens)}
	r.at++
	for _, form := range formsOf(tokens, r.own) {
		s.forms = append(s.forms, strings.Join(form, " "))
	}
	r.out = append(r.out, s)
}

// plain is a text in one form of each character, with one kind of quotes and dashes. Compatible characters stay apart:
// 10² is not 102.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '“', '”', '„', '«', '»', '‟':
			return '"'
		case '’', '‘', '‛', 'ʼ':
			return '\''
		case '–', '—', '‒', '−', '‐', '‑':
			return '-'
		case '\r', '\v', '\f', '\u0085', '\u2028', '\u2029':
			return '\n'
		}
		return r
	}, norm.NFC.String(strings.ReplaceAll(text, "\r\n", "\n")))
}

// hidden reports whether a text has characters that are not seen, or that change how others are: a person and this
// package would read different texts.
func hidden(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && r != '\r' && r != '\t' && unicode.Is(unicode.C, r) || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
	})
}

// split cuts a paragraph behind its full stops, question and exclamation marks.
func split(text string) (out []string) {
	begin, depth, quoted, single, code, struck := 0, 0, false, 0, false, false
	cut := func(end int) {
		if s := strings.TrimSpace(text[begin:end]); s != "" {
			out = append(out, s)
		}
		begin = end
	}
	for i, r := range text {
		end := i + utf8.RuneLen(r)
		switch r {
		case '"':
			quoted = !quoted
		case '`':
			code = !code
		case '~':
			if strings.HasPrefix(text[end:], "~") {
				struck = !struck
			}
		case '\'':
			single = max(0, single+apostrophe(text[:i], text[end:]))
		case '(', '[', '{', '「', '『', '《', '〈', '‹':
			depth++
		case ')', ']', '}', '」', '』', '》', '〉', '›':
			depth = max(0, depth-1)
		case '。', '！', '？', '.', '!', '?', '…':
			if depth > 0 || quoted || code || struck || single > 0 {
				continue
			}
			if strings.ContainsRune("。！？", r) || endsSentence(text[begin:i], text[end:], r) {
				cut(end)
			}
		}
	}
	cut(len(text))
	return out
}

// apostrophe returns 1 for a mark that opens a quotation, of which the end follows, -1 for one that may close it, and 0
// inside a word.
func apostrophe(before, after string) int {
	left, _ := utf8.DecodeLastRuneInString(before)
	right, _ := utf8.DecodeRuneInString(after)
	switch {
	case wordy(left) && wordy(right):
		return 0
	case !wordy(right):
		return -1
	case closing().MatchString(after):
		return 1
	}
	return 0
}

// closing finds an apostrophe at the end of a word or a sentence. Its classes of letters take a third of a millisecond to compile, which
// programs that judge nothing need not spend.
var closing = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^\s]'([^\pL\pN]|$)`) })

// endsSentence reports whether a sentence ends between two parts of a text, behind a mark.
func endsSentence(before, after string, mark rune) bool {
	next, _ := utf8.DecodeRuneInString(after)
	if after == "" || !unicode.IsSpace(next) {
		return false
	}
	next, _ = utf8.DecodeRuneInString(strings.TrimLeftFunc(after, unicode.IsSpace))
	if unicode.IsLower(next) || strings.ContainsRune(",;:.!?-)]}", next) {
		return false
	}
	word := before[strings.LastIndexFunc(before, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`("'`, r) })+1:]
	r, n := utf8.DecodeRuneInString(word)
	initial := n == len(word) && unicode.IsLetter(r)
	return mark != '.' || !initial && !strings.Contains(word, ".") && !abbreviations[strings.ToLower(word)]
}

// set is the words of a text.
func set(words string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(words) {
		out[w] = true
	}
	return out
}

var abbreviations = set(`mr mrs ms dr prof sr jr st mt ft rev hon gov sen rep gen col maj capt lt sgt cpl pres supt inc ltd co
	corp bros dept univ assn ave blvd rd no nos nr vol vols fig figs eq ch sec art para pp vs etc approx est ca cf al resp
	incl excl jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri sat sun max min avg tel ext
	usw bzw str vgl ggf inkl`)

// turning begins sentences that limit or take back their predecessor; limiting does so in a short one ("Not on Mondays.").
var (
	turning = set(`but however except unless though although nope wrong false actually correction otherwise wait scratch is are was says said says
		aber jedoch außer mais sauf pero excepto`)
	limiting = set(`only not no never yet as just if maybe perhaps kidding right really correct true sure`)
	denying  = set(`wrong false untrue lie lies nonsense kidding joke joking incorrect sarcasm sarcastic bullshit fake mistaken wish doubt falsch faux falso`)
)

const shortWords = 4

// backwards are the words that stand for something said before; at the beginning of a sentence, more do.
var (
	backwards = set(`it they them he she him this these those such above below former latter here there so then also too
		otherwise instead both neither either same else likewise therefore hence thus previous following`)
	backAtFirst = set(`that its their his her and or`)
)

// turns reports whether a sentence limits, questions or takes back its predecessor.
func turns(tokens []string) bool {
	first, last, n := strings.ToLower(tokens[0]), tokens[len(tokens)-1], countWords(tokens)
	switch {
	case n == 0 || strings.HasPrefix(first, "/"): // a smiley, or a mark of irony
		return true
	case last == "?": // "Right?", "Is that true?", and not "Can you change it?"
		return n <= 2 || n <= shortWords && slices.ContainsFunc(tokens, func(t string) bool { return pointing[strings.ToLower(t)] })
	case turning[first]:
		return true
	case limiting[first]:
		return n <= shortWords && last != ":" || len(tokens) > 1 && tokens[1] == ","
	}
	return n <= 2*shortWords && slices.ContainsFunc(tokens, func(t string) bool { return denying[strings.ToLower(t)] })
}

var pointing = set(`that this so it right true correct`)

// others speak in what follows these words, or nobody does: what is only supposed.
var (
	reporting = set(`wrote writes said says claims claimed states stated reads printed prints reported reports replied answered quote quoted
		following next output shows showed returned returns posted`)
	supposing = set(`suppose supposing imagine pretend assume assuming hypothetically opposite fiction story roleplay role-play`)
)

// elsewhere reports whether the text after a sentence of the user quotes others, or only supposes something.
func elsewhere(text string) bool {
	words := labelWords(text)
	for i, w := range words {
		if supposing[w] || i == len(words)-1 && reporting[w] || i > 0 && w == "sentence" && reporting[words[i-1]] {
			return true
		}
	}
	return false
}

// introduces reports whether a paragraph without an end introduces what follows: words of others, or what is not so.
func introduces(text string, own bool) bool {
	if r, _ := utf8.DecodeLastRuneInString(text); strings.ContainsRune(".!?…。！？", r) {
		return false
	}
	return takesBack(text) || own && elsewhere(text)
}

// refersBack reports whether a sentence depends on its predecessor.
func refersBack(tokens []string) bool {
	if turns(tokens) || backAtFirst[strings.ToLower(tokens[0])] {
		return true
	}
	return slices.ContainsFunc(tokens, func(t string) bool { return backwards[strings.ToLower(t)] })
}

var takingBack = set(`not no never don't avoid forbidden wrong false incorrect myth myths rejected reject deprecated old obsolete
	outdated removed example examples draft drafts proposal proposals proposed idea ideas todo open question questions
	hypothetical untrue mistakes mistake scam scams attack attacks quote quotes quoted following
	falsch abgelehnt veraltet entwurf beispiel nicht nie niemals faux rejeté obsolète brouillon exemple jamais rechazado obsoleto borrador ejemplo nunca`)

// takesBack reports whether a heading says that what follows does not hold.
func takesBack(title string) bool {
	for _, w := range strings.FieldsFunc(strings.ToLower(title), func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' }) {
		if takingBack[w] {
			return true
		}
	}
	return strings.HasSuffix(strings.TrimSpace(title), "?")
}
