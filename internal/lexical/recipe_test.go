package lexical

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asks reports whether turns are scored as such.
func (n *naive) asks() bool { return n.q.Weights.Turns && n.stats.Turns > 0 }

// ask finds who is named, by looking at the name of every speaker.
func (n *naive) ask() {
	n.asking = asking{dates: n.q.Dates}
	if n.stats.Turns == 0 {
		return
	}
	an := NewAnalyzer()
	asked := map[string][]string{} // name → its words that are asked for
	turns := map[string]int{}
	for _, d := range n.docs {
		if d.Turn != nil && d.Turn.Speaker != "" {
			turns[d.Turn.Speaker]++
			var words []string
			for _, t := range an.Terms(d.Turn.Speaker) {
				if slices.Contains(n.q.Terms, t) {
					words = append(words, t)
				}
			}
			asked[d.Turn.Speaker] = words
		}
	}
	var names []string
	total := 0
	n.stats.Named = nil
	for name, words := range asked {
		less := len(words) == 0
		for _, other := range asked {
			rest := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(other, w) })
			less = less || len(rest) == 0 && len(other) > len(words)
		}
		if !less {
			n.stats.Named = append(n.stats.Named, name)
			names, total = append(names, words...), total+turns[name]
		}
	}
	slices.Sort(n.stats.Named)
	if total == 0 {
		return
	}
	n.asking.spoken = spokenBase + float64(spokenRare*ln(float64(n.stats.Turns)/float64(total)))
	for _, t := range n.q.Terms {
		n.asking.name = append(n.asking.name, slices.Contains(names, t))
	}
	if !slices.Contains(n.asking.name, false) {
		n.asking.name = nil
	}
	n.stats.Spoken, n.stats.Names = n.asking.spoken, n.asking.name
}

// word is what c occurrences of a word score in a document.
func (n *naive) word(d Doc, weight float64, c uint32) float64 {
	if d.Turn != nil {
		return float64(weight * ofTurns.saturation(uint64(c), uint64(d.Analysis.Length), average(n.stats.TurnLength, n.stats.Turns)))
	}
	return float64(weight * ofPages.saturation(uint64(c), uint64(d.Analysis.Length), average(n.stats.Length-n.stats.TurnLength, n.stats.Pages-n.stats.Turns)))
}

func (n *naive) speaks(d Doc) bool {
	return d.Turn != nil && slices.Contains(n.stats.Named, d.Turn.Speaker)
}

func (n *naive) bonus(d Doc) float64 {
	if d.Turn == nil || n.speaks(d) {
		return n.asking.spoken
	}
	return 0
}

// forms takes of the forms of each word the one that scores most.
func (n *naive) forms(d Doc) (sum float64) {
	if d.Turn == nil {
		return 0
	}
	for t, term := range n.q.Terms {
		best := 0.0
		for _, f := range formsOf(term) {
			df := uint64(0)
			for _, o := range n.docs {
				if tf(o, f) > 0 {
					df++
				}
			}
			if n.asking.isName(t) || slices.Contains(n.q.Terms, f) || tf(d, f) == 0 || df > max(n.stats.Pages/commonShare, n.common) {
				continue
			}
			if v := n.word(d, rarity(df, n.stats.Pages), tf(d, f)); v > best {
				sum += v - best
				best = v
			}
		}
	}
	return sum
}

// lent walks the words, and for each the neighbours.
func (n *naive) lent(live uint64) (sum float64) {
	g, pos := n.Group(live)
	if g == 0 {
		return 0
	}
	for _, t := range n.plan.order[:n.plan.strong] {
		if n.asking.isName(t) {
			continue
		}
		c := func(num uint64) float64 {
			k := min(tf(n.world.docs[num], n.q.Terms[t]), lendMost)
			if k == 0 {
				return 0
			}
			return n.word(n.world.docs[num], n.plan.weight[t], k)
		}
		best := 0.0
		for d := -3; d <= 3; d++ {
			if j, ok := n.At(g, pos+d); ok && d != 0 && n.Shown(j) {
				best = max(best, float64([]float64{0, .6, .5, .35}[max(d, -d)]*c(j)))
			}
		}
		sum += max(0, best-c(live))
	}
	return sum
}

// turnHits scores by the comment in recipe.go.
func (n *naive) turnHits() []Hit {
	var first, fill []Hit
	for _, d := range n.docs {
		live, ok := n.Resolve(d.Num)
		if !ok {
			continue
		}
		h := Hit{Num: live, Own: n.own[d.Num], Forms: n.forms(d), Speaker: n.bonus(d), Group: float64(n.q.Weights.Group * n.groupOf(d))}
		if live == d.Num {
			h.Near = n.near(live)
		} else {
			h.Via = d.Num
		}
		h.Score = h.Own + h.Near + h.Group + h.Forms + h.Speaker
		switch date := ofDate * n.date(d); {
		case h.Own > 0 || h.Near > 0 || h.Forms > 0:
			first = append(first, h)
		case d.Turn != nil && h.Via == 0 && (n.groupOf(d) > 0 && n.placed(d) || n.speaks(d) || date > 0):
			h.Score = h.Group + h.Speaker + date
			fill = append(fill, h)
		}
	}
	k := max(n.q.K, n.depth)
	first = n.best(first, k)
	if n.q.Weights.Fill || n.asking.spoken > 0 && n.asking.name == nil {
		fill = slices.DeleteFunc(fill, func(h Hit) bool {
			return slices.ContainsFunc(first, func(o Hit) bool { return o.Num == h.Num })
		})
		first = append(first, n.best(fill, k-len(first))...)
	}
	for i := range first {
		n.second(&first[i])
	}
	if n.q.Weights.Spread {
		n.spread(first)
	}
	return n.best(first, n.q.K)
}

// spread counts for each turn the better ones around it.
func (n *naive) spread(hits []Hit) {
	turn := func(h Hit) bool {
		if h.Via != 0 {
			return n.world.docs[h.Via].Turn != nil
		}
		return n.world.docs[h.Num].Turn != nil
	}
	scored := slices.Clone(hits)
	for i, h := range scored {
		g, pos := n.Group(h.Num)
		better := 0
		for _, o := range scored {
			og, at := n.Group(o.Num)
			if turn(h) && turn(o) && g != 0 && og == g && max(at-pos, pos-at) <= 8 && worse(&h, &o) {
				better++
			}
		}
		if better > 0 {
			hits[i].divide(1 + float64(.1*float64(min(better, 8))))
		}
	}
}

// placed says that a group has no more gaps before a page than the index has pages of it: the owner's groups have none.
func (n *naive) placed(d Doc) bool {
	pages := 0
	for _, o := range n.docs {
		if o.Scope == d.Scope && o.Group == d.Group {
			pages++
		}
	}
	return slices.Index(n.order[d.Group], d.Num) < pages
}

func (n *naive) groupOf(d Doc) float64 {
	if d.Group == 0 || n.q.Weights.Group == 0 || !n.lentTo(d) { // then groups are not asked
		return 0
	}
	return n.groups[groupKey{d.Scope, d.Group}]
}

func (n *naive) date(d Doc) float64 {
	if d.Turn == nil || d.Turn.Month == 0 || n.q.Dates.Months>>((d.Turn.Month-1)%12)&1 == 0 {
		return 0
	}
	if len(n.q.Dates.Years) > 0 && !slices.Contains(n.q.Dates.Years, 1900+int((d.Turn.Month-1)/12)) {
		return .3
	}
	return 1
}

func (n *naive) second(h *Hit) {
	num := h.Num
	if h.Via != 0 {
		num = h.Via
	}
	d := n.world.docs[num]
	if d.Turn == nil {
		h.Speaker, h.Level = 0, n.asking.spoken/unit
		if n.q.Dates.Months != 0 {
			h.Level = (n.asking.spoken + ofDate) / unit
		}
		h.Score = h.Own + h.Near + h.Group + h.Level
		return
	}
	h.Near = 0
	if h.Via == 0 {
		h.Near = n.lent(h.Num) / unit
	}
	h.Group = ofGroup * n.groupOf(d) / unit
	h.Speaker, h.Date, h.First, h.Forms = n.bonus(d)/unit, float64(ofDate*n.date(d))/unit, 0, float64(ofForms*h.Forms)/unit
	for trait, v := range map[Traits]float64{FirstPerson: 1, Instructs: 4, Prefers: 2} { // sums of small integers are exact
		if d.Analysis.Traits&trait != 0 {
			h.First += v
		}
	}
	h.First /= unit
	h.divide(n.longer(d))
}

// longer looks at all turns of a speaker for their mean length.
func (n *naive) longer(d Doc) float64 {
	if d.Turn == nil {
		return 1
	}
	turns, length := 0., 0.
	for _, o := range n.docs {
		if o.Turn != nil && o.Scope == d.Scope && o.Turn.Speaker == d.Turn.Speaker {
			turns, length = turns+1, length+float64(o.Analysis.Length)
		}
	}
	if d.Turn.Speaker == "" {
		turns, length = 1, float64(d.Analysis.Length)
	}
	return longer(float64(d.Analysis.Length), length/turns)
}

// TestLongTurns: long answers of an assistant leave room for short turns with the same words, one long turn of somebody brief
// does not lose by its length, and chats of short turns are scored as if there were no such rule.
func TestLongTurns(t *testing.T) {
	x, w := memStore{}.open(t), newWorld()
	num := uint64(0)
	say := func(speaker string, length int, word string, times int) uint64 {
		num++
		d := Doc{Num: num, Scope: 1, Analysis: words("filler", length-times, word, times), Turn: &Turn{Speaker: speaker}}
		w.add(d)
		x.Add(d)
		return num
	}
	var long, short []uint64
	for range 20 {
		short = append(short, say("User", 30, "zebra", 1))
		long = append(long, say("Assistant", 900, "zebra", 9))
		say("Ann", 8, "other", 1)
	}
	one := say("Ann", 60, "zebra", 2)
	hits := memStore{}.search(t, x, w, Query{Scopes: []uint32{1}, Terms: []string{"zebra"}, K: 50, Weights: DefaultWeights()})
	at := map[uint64]int{}
	by := map[uint64]Hit{}
	for i, h := range hits {
		at[h.Num], by[h.Num] = i, h
		require.InDelta(t, h.Score, h.Own+h.Near+h.Group+h.Speaker+h.Date+h.First+h.Forms, 1e-12, "the parts are the score")
	}
	require.Len(t, hits, 41)
	for i := range long {
		require.Less(t, at[short[i]], at[long[i]], "the long answers come behind")
	}
	require.Less(t, at[one], 20, "the long turn of somebody brief stands with the short ones")
	require.Equal(t, 1., longer(30, 30))
	require.Equal(t, 1., longer(60, 10))
	require.InDelta(t, 2, longer(128, 128), 1e-12)
}

func TestDatesOf(t *testing.T) {
	for question, want := range map[string]Dates{
		"What did she do in May?":                   {Months: 1 << 4},
		"What may she do?":                          {},
		"May I ask?":                                {},
		"Who came on May 5?":                        {Months: 1 << 4},
		"the 5th of may":                            {Months: 1 << 4},
		"5 May 2023":                                {Months: 1 << 4, Years: []int{2023}},
		"did they march?":                           {},
		"since March":                               {Months: 1 << 2},
		"Between june and August, 2022 or 2021?":    {Months: 1<<5 | 1<<7, Years: []int{2021, 2022}},
		"Sept 3rd":                                  {Months: 1 << 8},
		"the 12345 steps of october":                {Months: 1 << 9},
		"Did the sun or the dec of the ship shine?": {},
	} {
		require.Equal(t, want, DatesOf(question), question)
	}
}

func TestMonthOf(t *testing.T) {
	zone := time.FixedZone("", 3600)
	require.Equal(t, Month(12*123+5), MonthOf(time.Date(2023, 6, 1, 0, 30, 0, 0, zone)), "in UTC")
	require.Zero(t, MonthOf(time.Time{}.Add(-time.Hour)))
	require.Equal(t, Month(1), MonthOf(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)))
	require.Less(t, MonthOf(time.Date(2240, 12, 31, 0, 0, 0, 0, time.UTC)), Month(1<<monthBits))
	require.Zero(t, MonthOf(time.Date(1899, 12, 31, 0, 0, 0, 0, time.UTC)))
	require.Zero(t, MonthOf(time.Date(2241, 1, 1, 0, 0, 0, 0, time.UTC)))
}

func TestFirstPerson(t *testing.T) {
	for text, want := range map[string]bool{
		"I went": true, "so do i": true, "I'm in": true, "i’ve been": true, "Our house": true, "that is mine": false, "id": true,
		"it is": false, "": false, "She told me.": true, "wed": false, "éi": false, strings.Repeat("word ", 1000) + "me": false,
	} {
		require.Equal(t, want, TraitsOf(text, true)&FirstPerson != 0, text)
		require.Equal(t, want, TraitsOf(text, false) == FirstPerson, text)
	}
}

func TestFormsOf(t *testing.T) {
	require.Equal(t, []string{"bought"}, formsOf("buy"))
	require.Equal(t, []string{"buy"}, formsOf("bought"))
	require.Equal(t, []string{"child"}, formsOf("children"))
	require.Equal(t, []string{"gone", "went"}, formsOf("go"))
	require.Nil(t, formsOf("walk"))
	for stem, others := range forms() {
		require.False(t, isStopWord(stem), stem)
		require.NotContains(t, others, stem)
		for _, o := range others {
			require.Contains(t, formsOf(o), stem)
		}
	}
}

// turnsOf makes an index of turns of one conversation, said in the order in which they are given: "Ann: words".
func turnsOf(t *testing.T, said ...string) (*Index, *world) {
	x, w, an := memStore{}.open(t), newWorld(), NewAnalyzer()
	for i, s := range said {
		speaker, text, _ := strings.Cut(s, ": ")
		d := Doc{Num: uint64(i + 1), Scope: 1, Group: 1, Analysis: an.Analyze(text), Turn: &Turn{Speaker: speaker}}
		d.Analysis.Traits = TraitsOf(text, true)
		w.add(d)
		x.Add(d)
	}
	return x, w
}

func askTurns(t *testing.T, x *Index, w *world, question string) []Hit {
	q := Query{Scopes: []uint32{1}, Terms: NewAnalyzer().Terms(question), Dates: DatesOf(question), K: 9, Weights: DefaultWeights()}
	return memStore{}.search(t, x, w, q)
}

// A name in a question says who speaks, and not which word is looked for.
func TestWhoIsNamedSpeaks(t *testing.T) {
	x, w := turnsOf(t, "Bob: Hey Caroline! The pottery was great", "Caroline: The pottery was great", "Bob: Caroline Caroline")
	hits := askTurns(t, x, w, "What pottery did Caroline like?")
	require.Equal(t, uint64(2), hits[0].Num)
	require.Positive(t, hits[0].Speaker)
	require.Zero(t, hits[1].Speaker)
	require.Equal(t, uint64(1), hits[1].Num)

	hits = askTurns(t, x, w, "Caroline")
	require.Len(t, hits, 3, "asked for alone it is a word, too")
}

// Of two namesakes the one is meant of whose name more is there.
func TestNamesakes(t *testing.T) {
	said := []string{"Anna Smith: tea", "Anna Jones: tea", "user-1: tea"}
	x, w := turnsOf(t, said...)
	named := func(question string) (nums []uint64) {
		for _, h := range askTurns(t, x, w, question) {
			if h.Speaker > 0 {
				nums = append(nums, h.Num)
			}
		}
		slices.Sort(nums)
		return nums
	}
	require.Equal(t, []uint64{1, 2}, named("does Anna drink tea?"))
	require.Equal(t, []uint64{2}, named("does Anna Jones drink tea?"))
	require.Equal(t, []uint64{3}, named("which user drinks tea?"))
	for i := range namesakes {
		said = append(said, "user-"+strings.Repeat("x", i+1)+": tea")
	}
	x, w = turnsOf(t, said...)
	require.Empty(t, named("which user drinks tea?"), "a word that many share names nobody")
	x.Remove(2)
	require.Equal(t, []uint64{1}, named("does Anna Jones drink tea?"), "who was removed is not known any more")
}

// Who speaks must not put turns before other pages of a scope, nor behind them.
func TestPagesBesideTurns(t *testing.T) {
	x, w := turnsOf(t, "Ann: green tea and cake", "Bob: green tea and cake")
	page := Doc{Num: 3, Scope: 1, Analysis: NewAnalyzer().Analyze("green tea and cake")}
	w.add(page)
	x.Add(page)
	hits := askTurns(t, x, w, "What cake did Ann have with green tea?")
	require.Len(t, hits, 3)
	require.Equal(t, hits[0].Speaker+hits[1].Speaker, hits[0].Level+hits[1].Level)
	require.Equal(t, uint64(2), hits[2].Num, "somebody else comes after both")
}

func TestIrregularForms(t *testing.T) {
	x, w := turnsOf(t, "Ann: Yesterday Bob bought shoes", "Bob: Fine", "Ann: Rain")
	hits := askTurns(t, x, w, "Which did he buy?")
	require.NotEmpty(t, hits)
	require.Equal(t, uint64(1), hits[0].Num)
	require.Positive(t, hits[0].Forms)
	require.Empty(t, askTurns(t, x, w, "Which did he sell?"))
}

// TestTraits: a standing instruction and a preference are read from a user's turn, at the start of a sentence or anywhere
// as their words ask for it, and never from an assistant's.
func TestTraits(t *testing.T) {
	for text, want := range map[string]Traits{
		"Always format dates as ISO when I ask about releases.": FirstPerson | Instructs,
		"Thanks! From now on please use tabs":                   Instructs,
		"please never mention prices":                           Instructs,
		"Also, in the future cite":                              Instructs,
		"Going forward: keep answers short":                     Instructs,
		"Show the sources whenever I ask about laws.":           FirstPerson | Instructs,
		"People always use tabs":                                0,
		"Always end up late":                                    0,
		"Always tired":                                          0,
		"In the garden, use water":                              0,
		"When they ask I answer":                                FirstPerson,
		"I'd rather have tea":                                   FirstPerson | Prefers,
		"We would usually prefer the train":                     FirstPerson | Prefers,
		"Tea is fine, but prefer coffee":                        Prefers,
		"My preferences: none":                                  FirstPerson | Prefers,
		"They prefer tea and rather like it.":                   Prefers, // "and rather"
		"They prefer tea. I do not":                             FirstPerson,
		"I prefer tea; always\nNever put sugar":                 allTraits,
		strings.Repeat("word ", 1000) + ". Always use tabs":     0,
		"Always " + strings.Repeat("x", 5000):                   0,
		"ALWAYS USE TABS":                                       Instructs,
		"Älways use tabs":                                       0,
	} {
		require.Equal(t, want, TraitsOf(text, true), text)
		require.Equal(t, want&FirstPerson, TraitsOf(text, false), text)
	}
}

// TestStandingInstructions: an instruction is found by a question that has none of its words, before an answer with some.
func TestStandingInstructions(t *testing.T) {
	said := []string{"User: I am here", "User: Always add the dose when I ask about medicines.", "User: I am right", "User: I'd rather have tea", "Assistant: Ibuprofen helps"}
	for range 4 {
		said = append(said, "User: I am fine", "Assistant: Good to hear")
	}
	x, w := turnsOf(t, said...)
	q := Query{Scopes: []uint32{1}, Terms: NewAnalyzer().Terms("Which headache tablets?"), K: 9, Weights: DefaultWeights()}
	q.Weights.Fill = true
	q.Terms = append(q.Terms, NewAnalyzer().Terms("ibuprofen")...)
	var found []uint64
	for _, h := range (memStore{}).search(t, x, w, q)[:3] {
		found = append(found, h.Num)
	}
	require.Contains(t, found, uint64(2))
	require.Contains(t, found, uint64(4))
}
