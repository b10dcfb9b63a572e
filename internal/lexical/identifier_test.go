package lexical

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// anyPage is a corpus of pages that stand alone.
type anyPage struct{}

func (anyPage) Resolve(num uint64) (uint64, bool) { return num, true }
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
