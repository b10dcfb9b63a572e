package lexical

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kljensen/snowball/english"
	"github.com/stretchr/testify/require"
)

func TestWordsAsTyped(t *testing.T) {
	a := NewAnalyzer()
	for query, want := range map[string][]string{
		"Could you tell me the Refnud limit?":    {"", "refnud", "limit"},
		"fetchAccount or file_name HTTP2":        {"", "", "", ""},
		"data base-files. café REFUND":           {"data", "base", "", "files", "", "", "refund"},
		"":                                       nil,
		"  ?? ":                                  nil,
		"wordsthatareverymuchlongerthanwordsare": {""},
	} {
		require.Equal(t, want, a.Words(query), query)
	}
}

// vocabularies is an index of two scopes; the pages named in hidden may not be seen.
func vocabularies(t *testing.T) (*Index, *world) {
	a, c := NewAnalyzer(), newWorld()
	x, err := Open(NoRows{})
	require.NoError(t, err)
	for i, text := range []string{
		"a refund of orders within thirty days", "the file name of a database", "refunds need a receipt", "underlying trees and a hidden marmalade",
		"strangers keep porcupines", "receipts address the receiver",
	} {
		d := Doc{Num: uint64(i + 1), Scope: 1, Analysis: a.Analyze(text)}
		if i == 4 {
			d.Scope = 2
		}
		c.add(d)
		x.Add(d)
	}
	return x, c
}

func TestUnknownWordsAreReadAsKnownOnes(t *testing.T) {
	a := NewAnalyzer()
	x, c := vocabularies(t)
	ask := func(query string) (typed Typed, nums []uint64) {
		typed.Words = a.Words(query)
		hits, err := x.Search(NoRows{}, c, Query{Scopes: []uint32{1}, Terms: a.Terms(query), K: 10, Typed: &typed})
		require.NoError(t, err)
		for _, h := range hits {
			nums = append(nums, h.Num)
		}
		return typed, nums
	}
	for query, want := range map[string]Reading{
		"refnud":         {"refnud", "refund"}, // exchanged
		"refud":          {"refud", "refund"},  // left out
		"refunnd":        {"refunnd", "refund"},
		"rewund":         {"rewund", "refund"},
		"datbases":       {"datbases", "databases"}, // found by its stem
		"filename":       {"filename", "file name"},
		"data base":      {"data base", "database"},
		"under lying":    {"under lying", "underlying"},
		"recieptt":       {},                     // two edits
		"reciept":        {"reciept", "receipt"}, // a common slip, and so a common word
		"efund":          {},                     // the first letter is right
		"ref":            {},                     // too short
		"refund5":        {},                     // a number
		"orders":         {},                     // known
		"porcupine":      {},                     // of another scope
		"porcupinne":     {},                     //
		"underlyingtree": {"underlyingtree", "underlying tree"},
	} {
		typed, nums := ask(query)
		if want == (Reading{}) {
			require.Empty(t, typed.Read, query)
			require.Nil(t, typed.Terms, query)
			continue
		}
		require.Equal(t, []Reading{want}, typed.Read, query)
		require.NotEmpty(t, nums, query)
	}
	typed, _ := ask("marmalde")
	require.Equal(t, []Reading{{"marmalde", "marmalade"}}, typed.Read, "control")
	c.hidden[4] = true
	typed, nums := ask("marmalde")
	require.Empty(t, typed.Read, "only a page that the question may not see has it")
	require.Empty(t, nums)

	_, first := ask("refund orders")
	_, second := ask("refnud odrers")
	require.Equal(t, first, second)
}

// TestReadingsDoNotDependOnSegments reads the same words from memory and from rows.
func TestReadingsDoNotDependOnSegments(t *testing.T) {
	a, store, c := NewAnalyzer(), memStore{}, newWorld()
	layered, plain := store.open(t), memStore{}.open(t)
	for i, text := range []string{"refund of orders", "refuse and orders", "a refit of the harbour", "harbours and refunds", "the harbor master"} {
		d := Doc{Num: uint64(i + 1), Scope: 1, Analysis: a.Analyze(text)}
		c.add(d)
		plain.Add(d)
		layered.Add(d)
		store.checkpoint(t, layered, i%2 == 0)
	}
	for _, query := range []string{"refnud", "refut", "harbuor", "harbourmaster", "refitx orderss"} {
		var got [2]Typed
		terms := a.Terms(query)
		for i, x := range []*Index{plain, layered} {
			got[i].Words = a.Words(query)
			store.search(t, x, c, Query{Scopes: []uint32{1}, Terms: terms, K: 10, Typed: &got[i]})
		}
		require.NotEmpty(t, got[0].Read, query)
		require.Equal(t, got[0], got[1], query)
	}
}

func TestEdits(t *testing.T) {
	words := map[string]int{}
	for _, g := range edits("abbc") {
		words[g.word]++
		require.Equal(t, byte('a'), g.word[0])
		require.NotEqual(t, "abbc", g.word)
	}
	for _, w := range []string{"abc", "abb", "abcb", "abbcd", "axbbc", "axbc", "abbx"} {
		require.Positive(t, words[w], w)
	}
	require.Zero(t, words["acbb"], "two edits")
}

// TestStemOnce: a word that is its own stem is seen by its end, whatever stands before it.
func TestStemOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var ends []string
	for a := range letters {
		ends = append(ends, letters[a:a+1])
		for b := range letters {
			ends = append(ends, letters[a:a+1]+letters[b:b+1])
		}
	}
	for range 300 {
		stem := make([]byte, r.IntN(10))
		for i := range stem {
			stem[i] = "aeioutrnslybcdz"[r.IntN(15)]
		}
		before := []string{"", "", "gener", "commun", "arsen"}[r.IntN(5)] + string(stem)
		for _, end := range append(ends, suffixes...) {
			word := before + end
			require.Equal(t, english.Stem(word, true), stemOnce(word), word)
		}
	}
}

// suffixes that a stemmer changes.
var suffixes = strings.Fields(`eed eedly ed edly ing ingly sses ied ies us ss tional enci anci abli entli izer ization ational ation ator
	alism aliti alli fulness ousli ousness iveness iviti biliti bli ogi fulli lessli li alize icate iciti ical ful ness ative al ance ence
	er ic able ible ant ement ment ent ism ate iti ous ive ize sion tion ll`)

func TestCourse(t *testing.T) {
	for question, want := range map[string]bool{
		"In what order did I visit the cities?":            true,
		"List the order in which we talked about them":     true,
		"Name, in order, the books that I read":            true,
		"Walk me through the order in\nwhich I moved":      true,
		"Can you give me a SUMMARY of my year?":            true,
		"Please summarise what we said about taxes.":       true,
		"Make a timeline of the repairs":                   true,
		"List them chronologically":                        true,
		"What did I do in order to save money?":            false,
		"What is the state of the order that I placed?":    false,
		"Which did I order?":                               false,
		"Is everything in order? I packed in order that …": true, // the first half could ask for an order
		"When did Ann sell her shop?":                      false,
		"order":                                            false,
		"":                                                 false,
	} {
		require.Equal(t, want, Course(question), question)
	}
}

// TestSpread: a question for an order finds the turns of two passages before more turns of the first, and the
// parts of a score stay its sum.
func TestSpread(t *testing.T) {
	var said []string
	for range 9 {
		said = append(said, "Ann: The garden plan")
	}
	for range 9 {
		said = append(said, "Bob: Fine")
	}
	x, w := turnsOf(t, append(said, "Ann: The garden again")...)
	q := Query{Scopes: []uint32{1}, Terms: NewAnalyzer().Terms("garden plan"), K: 30, Weights: DefaultWeights()}
	place := func(num uint64) int {
		for i, h := range (memStore{}).search(t, x, w, q) {
			require.InDelta(t, h.Score, h.Own+h.Near+h.Group+h.Speaker+h.Date+h.First+h.Forms, 1e-9)
			if h.Num == num {
				return i
			}
		}
		return -1
	}
	before := place(19)
	q.Weights.Spread = true
	require.Less(t, place(19), before)
}

// TestFrames: what is said around a question changes no term of it; the same words inside it are asked for.
func TestFrames(t *testing.T) {
	an := NewAnalyzer()
	for _, question := range []string{"copy a file to another host", "the way that Go finds a package", "what Ann wants to find out", "refund limit"} {
		want := an.Terms(question)
		require.NotEmpty(t, want)
		for _, frame := range []string{
			"How do I %?", "How can I %?", "I want to %", "Is there a way to %?", "Please tell me how to %.", "What is the best way to %?",
			"Could you help me to % please?", "I’d like to know how to %", "Do you know something that can %? Thank you in advance!",
			"I'm looking for something to %", "Can you show me what I need to %\n", "PLEASE: %, thanks", "  where do I find %",
			"I would like to know whether %",
		} {
			require.Equal(t, want, an.Terms(strings.Replace(frame, "%", question, 1)), frame)
		}
	}
	require.Equal(t, []string{"ann", "know", "pleas", "tell", "way"}, an.Terms("Ann: tell me the way, please know"), "control: in the middle they are words")
	require.Equal(t, an.Terms("help"), an.Terms("I want help"))
	for _, all := range []string{"please", "Thank you", "I need to know", "want"} {
		require.NotEmpty(t, an.Terms(all), "there is nothing else: %s", all)
	}
	require.Equal(t, []string{"how", "to"}, an.Terms("how to"))
	for _, odd := range []string{"", "’", "please\xff", "\xe2please", strings.Repeat("please ", 1000), strings.Repeat("’", 100)} {
		_ = stripPhrases(odd)
	}
}

// TestPhrases: every phrase fits what is looked at, and is taken off.
func TestPhrases(t *testing.T) {
	for _, p := range opens {
		require.LessOrEqual(t, len(p), longestPhrase, p)
		require.Equal(t, " peanuts", stripPhrases(strings.Join(p, " ")+" peanuts"))
	}
	for _, p := range closes {
		require.LessOrEqual(t, len(p), longestPhrase, p)
		require.Equal(t, "peanuts, ", stripPhrases("peanuts, "+strings.Join(p, " ")))
	}
}
