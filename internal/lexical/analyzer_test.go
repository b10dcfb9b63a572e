package lexical

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTerms(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"The cats are running":            "cat run",
		"What's Caroline's plan?":         "carolin plan",
		"Deborah`s mother’s house":        "deborah hous mother",
		"I don't, we're, you'll, o'brien": "obrien",
		"refund limit: $400 (policy-v2)":  "400 limit polici refund v2",
		"snake_case camelCase x86 3.14":   "14 3 camel camelcas case snake snake_case x86",
		"Straße ÉCOLE":                    "ecol strass straße école",
		"ﬁle １２":                          "12 file",
		"cafe\u0301 café":                 "cafe café",
		"猫":                               "猫",
		"東京tower":                         "tower 京 東 東京",
		"コーヒー":                            "コ コー ヒ ヒー ー ーヒ",
		"서울 시":                            "서 서울 시 울",
		"ไทย":                             "ท ทย ย ไ ไท",
		"plan b":                          "b plan",
		"a\x80b \xff\xfe":                 "b",
		"' '' `x` 'y'":                    "x y",
		"the and of":                      "and of the",
		strings.Repeat("x", 100):          strings.Repeat("x", maxTerm),
		strings.Repeat("é", 40):           strings.Repeat("e", maxTerm/2) + " " + strings.Repeat("é", maxTerm/2),

		// identifiers
		"getUserById":                "get getuserbyid user",
		"get_user_by_id":             "get get_user_by_id user",
		"__init__ _x_ a__b":          "a_b b init x",
		"XMLHttpRequest":             "http request xml xmlhttprequest",
		"parseHTML5Document":         "document html html5 pars parsehtml5document",
		"APIs NASA IDs macOS OAuth2": "api auth auth2 id mac maco nasa oauth oauth2 os",
		"log4j2 log4j sha256 v2":     "log4j log4j2 sha sha256 v2",
		"iPhone eBay 10GB 550e8400":  "10 10gb 550e8400 bay ebay gb iphon phone",

		// accents, marks, elision, emoji
		"l’utilisateur d'angelo l'x": "angelo dangelo lutilisateur lx utilisateur",
		"тёмную темную й":            "й темную тёмную",
		"مُحَمَّد القهوة ٤٢":         "42 القهوة قهوه محمد مُحَمَّد",
		"naïve Müller Đà":            "da muller müller naiv naïve đà",
		"🎉 great🎉 ❤️ ☕ → │ 👍🏽":       "great ☕ ❤ 🎉 👍",

		// stop words
		"IT is the US office":     "it offic us",
		"The Who is a band":       "band who",
		"the who":                 "the who",
		"it depends, IT":          "depend it",
		"a\u200bb e\u202elephant": "ab eleph",
	} {
		got := NewAnalyzer().Terms(text)
		assert.Equal(t, strings.Fields(want), append([]string{}, got...), "%q", text)
	}
}

func TestAnalyzeCounts(t *testing.T) {
	a := NewAnalyzer().Analyze("8 May 2023 Caroline", "Caroline painted; she paints, painting May flowers")
	want := []TermCount{{Term: "8", N: 1}, {Term: "2023", N: 1}, {Term: "carolin", N: 2}, {Term: "paint", N: 3}, {Term: "flower", N: 1}}
	for i := range want {
		want[i].hash = hash(want[i].Term)
	}
	require.Equal(t, want, withoutIDs(a).Terms)
	require.Equal(t, 8, a.Length)
}

func TestPartsDoNotJoin(t *testing.T) {
	a := NewAnalyzer()
	require.Equal(t, a.Analyze("foo bar"), a.Analyze("foo", "bar"))
	require.NotEqual(t, a.Analyze("foobar"), a.Analyze("foo", "bar"))
	require.NotEqual(t, a.Analyze("東京"), a.Analyze("東", "京"))
}

// TestCacheIsInvisible fills the cache beyond its bound from many goroutines.
func TestCacheIsInvisible(t *testing.T) {
	shared := NewAnalyzer()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			alone := &Analyzer{stems: new(stemCache)}
			for range 200 {
				text := randomText(r)
				clear(alone.stems[:]) // nobody has filled its table
				if want, got := withoutIDs(alone.Analyze(text)), withoutIDs(shared.Analyze(text)); !slices.Equal(want.Terms, got.Terms) {
					t.Errorf("%q: got %v, want %v", text, got.Terms, want.Terms)
				}
			}
		})
	}
	wg.Wait()
}

// withoutIDs is an analysis without the ids of stems, which each cache gives anew.
func withoutIDs(a Analysis) Analysis {
	for i := range a.Terms {
		a.Terms[i].stem = 0
	}
	return a
}

// TestCacheKeeps: every place holds a word with its stem, and a word that was just asked for is still there.
func TestCacheKeeps(t *testing.T) {
	a := NewAnalyzer()
	r := rand.New(rand.NewPCG(1, 1))
	for range 4000 {
		a.Analyze(randomText(r))
	}
	n, ids := 0, map[uint32]bool{}
	for i := range stems {
		if s := stems[i].Load(); s != nil {
			n++
			want := newStemmed(wordOf(s))
			require.False(t, ids[s.id] || ids[want.id], "an id is given once")
			ids[s.id], ids[want.id] = true, true
			if want.id = s.id; *s != *want {
				require.Equal(t, want, s)
			}
		}
	}
	require.Greater(t, n, maxStems*9/10, "240,000 words were seen")
	require.Same(t, stemOf("houses"), stemOf("houses"))
}

// wordOf is the word that was stemmed.
func wordOf(s *stemmed) string {
	if s.key&longWord != 0 {
		return s.text[:s.key&^(longWord|stopWord)]
	}
	var word []byte
	for key := s.key &^ stopWord; key > 0; key >>= letterBits {
		word = append(word, byte(key&(1<<letterBits-1))+'a'-1)
	}
	slices.Reverse(word)
	return string(word)
}

// Without ids nothing is remembered, and ids do not begin again.
func TestStemsWithoutIDs(t *testing.T) {
	last := stemIDs.Swap(math.MaxUint32 - 1)
	defer stemIDs.Store(last)
	require.Equal(t, uint32(math.MaxUint32), newStemmed("one").id)
	require.Zero(t, newStemmed("two").id)
	require.Zero(t, newStemmed("three").id)
}

func stemOf(word string) *stemmed {
	var w waiting
	w.add([]byte(word))
	return w.stems(&stems, new([lookups]*stemmed))[0]
}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range 60 {
		for range 1 + r.IntN(8) {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
		b.WriteByte(' ')
	}
	return b.String()
}

func FuzzAnalyze(f *testing.F) {
	for _, s := range []string{"The cat's whiskers", "don''t", "東京タワー 'x", "a`b`s", "e\u0301\u0301", strings.Repeat("é'", 50), "\xff'\x80"} {
		f.Add(s)
	}
	a := NewAnalyzer()
	f.Fuzz(func(t *testing.T, text string) {
		got := a.Analyze(text)
		require.Equal(t, withoutIDs(NewAnalyzer().Analyze(text)), withoutIDs(got))
		n, seen := 0, map[string]bool{}
		for _, c := range got.Terms {
			require.False(t, seen[c.Term], c.Term)
			require.LessOrEqual(t, len(c.Term), maxTerm)
			require.True(t, utf8.ValidString(c.Term))
			require.Positive(t, c.N)
			n, seen[c.Term] = n+int(c.N), true
		}
		require.Equal(t, got.Length, n)
		terms := a.Terms(text)
		require.Len(t, terms, len(got.Terms))
	})
}

// A byte above 127 is found wherever it is.
func TestIsASCII(t *testing.T) {
	for n := range 40 {
		plain := strings.Repeat("a", n)
		require.True(t, isASCII(plain))
		for at := range n {
			require.False(t, isASCII(plain[:at]+"\x80"+plain[at+1:]), "%d of %d", at, n)
		}
	}
}

// anyPage is a corpus of pages that stand alone.
type anyPage struct{}

func (anyPage) Resolve(num uint64) (uint64, bool) { return num, true }
func (anyPage) Touch(uint64)                      {}
func (anyPage) Alone(uint64) bool                 { return true }
func (anyPage) Group(uint64) (uint64, int)        { return 0, 0 }
func (anyPage) At(uint64, int) (uint64, bool)     { return 0, false }
func (anyPage) Shown(uint64) bool                 { return true }

// ranked indexes texts and returns those that a question finds, best first, by their places from 0.
func ranked(t *testing.T, question string, texts ...string) (found []int) {
	t.Helper()
	a, x := NewAnalyzer(), memStore{}.open(t)
	for i, text := range texts {
		x.Add(Doc{Num: uint64(i + 1), Scope: 1, Analysis: a.Analyze(text)})
	}
	hits, err := x.Search(NoRows{}, anyPage{}, Query{Scopes: []uint32{1}, Terms: a.Terms(question), K: 100})
	require.NoError(t, err)
	for _, h := range hits {
		found = append(found, int(h.Num)-1)
	}
	return found
}

// Identifiers are found by each other's spelling and by their parts, and the identifier itself comes first.
func TestIdentifiersAreFound(t *testing.T) {
	texts := []string{
		"We renamed get_user_by_id to fetch_account.",
		"getUserProfileFromCache calls XMLHttpRequest",
		"fetchAccount is called by the login page, fetch account details here",
		"log4j2 replaces the old logger, see parseHTML5Document",
		"the user fetched an account",
		"OAuth2TokenProvider checks by sha256sum, utf8mb4 and toXRay",
	}
	for question, want := range map[string]struct {
		first int
		also  []int
	}{
		"fetchAccount":            {2, []int{0, 4}},
		"fetch_account":           {0, []int{2, 4}},
		"getUserById":             {0, []int{1, 4}},
		"user profile":            {1, []int{0, 4}},
		"http":                    {1, nil},
		"xmlhttprequest":          {1, nil},
		"log4j":                   {3, nil},
		"html5":                   {3, nil},
		"parse html document":     {3, nil},
		"getUserProfileFromCache": {1, []int{0, 4}},
		"oauth":                   {5, nil},
		"OAuth2":                  {5, nil},
		"token_provider":          {5, nil},
		"sha256":                  {5, nil},
		"utf8":                    {5, nil},
		"x-ray":                   {5, nil},
	} {
		found := ranked(t, question, texts...)
		require.NotEmpty(t, found, question)
		require.Equal(t, want.first, found[0], "%s: %v", question, found)
		require.ElementsMatch(t, want.also, found[1:], question)
	}
	require.Empty(t, ranked(t, "port", texts...), "no part begins there")
}

// A word is found without its accents and marks, and the page that has it as it was asked for comes first.
func TestFoldedFormsAreFound(t *testing.T) {
	for question, text := range map[string]string{
		"cafe": "le café préféré", "prefere": "le café préféré", "Orleans": "à Orléans", "Muller": "Herr Müller", "strasse": "Hauptstraße, Straße", "STRASSE": "die Straße",
		"темную": "тёмную ночь", "احمد": "أحمد هنا", "محمد": "مُحَمَّد هنا", "42": "٤٢ صفحة", "٤٢": "42 pages", "قهوة": "القهوة ساخنة", "والقهوة": "قهوة ساخنة",
		"utilisateur": "de l’utilisateur", "amour": "l'amour", "arte": "dell'arte", "naive": "naïve", "🎉": "done 🎉", "👍": "👍🏽 ok", "λογος": "λόγος", "Łódź": "lodz", "lodz": "Łódź",
		"東京": "東京タワー", "d'angelo": "Angelo",
		"istanbul": "İstanbul’da", "Ankara": "Ankara'nın", "iPhone": "iPhone'un",
	} {
		require.Equal(t, []int{0}, ranked(t, question, text, "another page"), "%s in %s", question, text)
	}
	for _, pair := range [][2]string{{"café", "cafe"}, {"Müller", "Muller"}, {"Straße", "strasse"}, {"тёмную", "темную"}, {"القهوة", "قهوة"}, {"naïve", "naive"}} {
		require.Equal(t, []int{0, 1}, ranked(t, pair[0], "so "+pair[0]+" it says", "so "+pair[1]+" it says"), "%s", pair[0])
		require.Equal(t, []int{1, 0}, ranked(t, pair[1], "so "+pair[0]+" it says", "so "+pair[1]+" it says"), "%s", pair[1])
	}
	for question, text := range map[string]string{"и": "й", "की": "का", "obrien": "brien"} {
		require.Empty(t, ranked(t, question, text), "%s is not %s", question, text)
	}
}

// A name made of stop words is found by its capitals, a page of nothing but stop words by each of them.
func TestStopWordsThatAreNames(t *testing.T) {
	texts := []string{"IT department handles this. US office only.", "The Who is a band.", "To be or not to be", "it tells us who did not do it"}
	for question, want := range map[string][]int{"IT": {0}, "it": {0}, "US": {0}, "the who": {1}, "The Who": {1}, "not": {2}, "to be or not to be": {2}} {
		require.Equal(t, want, ranked(t, question, texts...), question)
	}
}

// Plain prose and encoded bytes get no more terms than they have words.
func TestMoreTermsOnlyForIdentifiers(t *testing.T) {
	a := NewAnalyzer()
	for text, want := range map[string]int{
		"The customer reported that invoices were charged twice. McDonald's didn't.": 6,
		"aGVsbG8gd29ybGQhIGhlbGxvIHdvcmxkISBoZWxsbyB3b3JsZCEgaGVsbG8":                1,
		"550e8400-e29b-41d4-a716-446655440000":                                       5,
	} {
		require.Equal(t, want, a.Analyze(text).Length, "%s: %v", text, a.Analyze(text).Terms)
	}
}

// TestCovered: the share of the terms that texts have, in this or in an irregular form, is the same as by an analysis of the whole
// texts, though most words are not looked up.
func TestCovered(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 7))
	pieces := strings.Fields("the of and a is dying lying skies ties y yes ying early only went gone go ran running runs cat Cats IT it The US don't o'brien d'oh snake_case getUserById sha256sum École café 東京 12 x1 zebra quickly international standardization " + strings.Repeat("lamp house ", 3))
	draw := func(most int) string {
		text := ""
		for range rng.IntN(most + 1) {
			text += pieces[rng.IntN(len(pieces))] + []string{" ", " ", ", ", "\n", "-"}[rng.IntN(5)]
		}
		return text
	}
	a, some := NewAnalyzer(), 0
	for range 30_000 {
		terms, texts := a.Terms(draw(6)), []string{draw(9), draw(3), draw(30)}
		within := 20 + rng.IntN(400)
		searched, known := terms, func(string) uint32 { return 0 }
		if rng.IntN(2) == 0 { // as the index says, of a search that left out a term because no page has it
			searched = slices.DeleteFunc(slices.Clone(terms), func(t string) bool { return t == "lamp" && !strings.Contains(strings.Join(texts, " "), t) })
			left := within
			known = func(text string) (bits uint32) {
				if left -= len(text); left < 0 {
					return 0
				}
				for _, c := range a.Analyze(text).Terms {
					if at, ok := slices.BinarySearch(searched, c.Term); ok {
						bits |= bitOf(at)
					}
				}
				return bits
			}
		}
		has, left := map[string]bool{}, within
		for _, text := range texts {
			text = text[:min(len(text), left)]
			left -= len(text)
			for _, c := range a.Analyze(text).Terms {
				has[c.Term] = true
			}
		}
		found := 0
		for _, term := range terms {
			if has[term] || slices.ContainsFunc(formsOf(term), func(f string) bool { return has[f] }) {
				found++
			}
		}
		want := 0.
		if len(terms) > 0 {
			want = float64(found) / float64(len(terms))
		}
		got := a.Covered(terms, searched, func(yield func(string, uint32) bool) {
			for _, text := range texts {
				if !yield(text, known(text)) {
					return
				}
			}
		}, within)
		require.Equal(t, want, got, "%q in %q", terms, texts)
		if found > 0 && found < len(terms) {
			some++
		}
	}
	require.Greater(t, some, 1000)
	for _, word := range pieces {
		if isPlain([]byte(word)) {
			require.Equal(t, word[0], Stem([]byte(word))[0], word)
		}
	}
	for _, line := range strings.Fields(irregular) {
		require.Equal(t, line[0], Stem([]byte(line))[0], line)
	}
}
