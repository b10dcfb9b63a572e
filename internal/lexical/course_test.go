package lexical

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
