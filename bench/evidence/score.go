package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/token/bpe"
)

// score compares answers with the evidence of a data set, a line for each budget:
//
//	whole      the share of the gold turns of a question that are in its context whole
//	in part    the same, and a gold turn shown as an extract counts by the share of its tokens that is shown
//	extracts   extracts in a context, and their mean tokens
//	gold       gold turns that are shown as an extract, over all questions
//	shared     the share of these whose extract has all words that the turn shares with the question
//	rarest     the share of these whose extract has the three words of the turn that the fewest turns have; of equal words those
//	           that the turn says most often, then first
//	both       the share of these that have both
//
// Words are stems without stop words. Questions without evidence and adversarial ones count nowhere.

// conversation is one of a data set, as far as a score needs it.
type conversation struct {
	Turns     []turn `json:"turns"`
	Questions []struct {
		ID       json.RawMessage `json:"id"`
		Category string          `json:"category"`
		Text     string          `json:"text"`
		Evidence []string        `json:"evidence"`
	} `json:"questions"`
}

// asked is a question with the turns it is about.
type asked struct {
	text  string
	gold  []string
	turns map[string]*turn
	in    map[string]int // turns that have a word
}

// scores are the sums of one budget.
type scores struct {
	questions, extracts, size, gold, shared, rarest, both int
	whole, part                                           float64
}

func score(_ context.Context, file string, in io.Reader, out io.Writer) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var data []conversation
	if err := json.Unmarshal(raw, &data); err != nil {
		return fmt.Errorf("%s: expected a list of conversations: %w", file, err)
	}
	questions := map[string]*asked{}
	for i := range data {
		data[i].index(questions)
	}
	budgets := map[int]*scores{}
	if err := eachLine(in, func(a answer) error {
		q := questions[string(a.ID)]
		if q == nil {
			return nil
		}
		if budgets[a.Budget] == nil {
			budgets[a.Budget] = &scores{}
		}
		budgets[a.Budget].add(q, &a)
		return nil
	}); err != nil {
		return err
	}
	fmt.Fprintln(out, "budget   whole  in part  extracts  tokens  gold  shared  rarest    both")
	for _, b := range slices.Sorted(maps.Keys(budgets)) {
		s := budgets[b]
		n, gold := float64(s.questions), float64(max(s.gold, 1))
		fmt.Fprintf(out, "%6d  %6.4f   %6.4f  %8.1f  %6.0f  %4d  %6.2f  %6.2f  %6.2f\n", b, s.whole/n, s.part/n, float64(s.extracts)/n,
			float64(s.size)/float64(max(s.extracts, 1)), s.gold, float64(s.shared)/gold, float64(s.rarest)/gold, float64(s.both)/gold)
	}
	return nil
}

// index adds the questions of a conversation that have evidence.
func (c *conversation) index(questions map[string]*asked) {
	turns, in := map[string]*turn{}, map[string]int{}
	for i := range c.Turns {
		t := &c.Turns[i]
		turns[t.ID] = t
		words, _ := prose.Terms(t.Text)
		for _, w := range words {
			in[w]++
		}
	}
	for _, q := range c.Questions {
		if len(q.Evidence) > 0 && q.Category != "adversarial" {
			questions[string(q.ID)] = &asked{text: q.Text, gold: q.Evidence, turns: turns, in: in}
		}
	}
}

func (s *scores) add(q *asked, a *answer) {
	s.questions++
	shown := map[string]string{}
	for _, x := range a.Cut {
		text := strings.ReplaceAll(x.Text, "[…]", "")
		shown[x.Turn] += " " + text
		s.size += bpe.O200k().Count(text)
	}
	s.extracts += len(shown)
	for _, id := range q.gold {
		t, text := q.turns[id], shown[id]
		switch each := 1 / float64(len(q.gold)); {
		case slices.Contains(a.Chosen, id):
			s.whole, s.part = s.whole+each, s.part+each
		case t != nil && text != "":
			s.part += each * min(1, float64(bpe.O200k().Count(text))/float64(bpe.O200k().Count(t.Speaker+": "+t.Text)))
			s.holds(q, t, text)
		}
	}
}

// holds counts what an extract has of a gold turn.
func (s *scores) holds(q *asked, t *turn, text string) {
	words, _ := prose.Terms(text)
	shared, rarest := true, true
	of, _ := prose.Terms(t.Text)
	question, _ := prose.Terms(q.text)
	for _, w := range question {
		if slices.Contains(of, w) && !slices.Contains(words, w) {
			shared = false
		}
	}
	for _, w := range q.rarest(t, of) {
		rarest = rarest && slices.Contains(words, w)
	}
	s.gold++
	for n, yes := range map[*int]bool{&s.shared: shared, &s.rarest: rarest, &s.both: shared && rarest} {
		if yes {
			*n++
		}
	}
}

// rarest returns the three rarest words of a turn.
func (q *asked) rarest(t *turn, words []string) []string {
	count, first, n := map[string]int{}, map[string]int{}, 0
	for field := range strings.FieldsSeq(t.Text) {
		of, _ := prose.Terms(field)
		for _, w := range of {
			if n++; count[w] == 0 {
				first[w] = n
			}
			count[w]++
		}
	}
	words = slices.Clone(words)
	slices.SortFunc(words, func(x, y string) int {
		return cmp.Or(cmp.Compare(q.in[x], q.in[y]), cmp.Compare(count[y], count[x]), cmp.Compare(first[x], first[y]), cmp.Compare(x, y))
	})
	return words[:min(3, len(words))]
}
