package render

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// agent is a small simulation of 400 turns: a fixed head (system, facts), a
// history that grows to `high` bytes and is then cut to `low` with a summary
// put into the head, other chunks retrieved every turn, and the newest
// question last. Sizes in bytes; a token is about four.
type agent struct {
	rng        *rand.Rand
	facts      []Page
	summaries  []Page
	history    []Page
	n, cut     int
	chunksMany int
}

const (
	historyHigh, historyLow = 48_000, 24_000
	chunkBytes              = 900
)

func (a *agent) words(n int) string {
	b := make([]byte, 0, n+len("w4999 "))
	for len(b) < n {
		b = strconv.AppendInt(append(b, 'w'), int64(a.rng.IntN(5000)), 10)
		b = append(b, ' ')
	}
	return string(b[:n])
}

func newAgent(chunks int) *agent {
	a := &agent{rng: rand.New(rand.NewPCG(1, 2)), chunksMany: chunks}
	a.facts = append(a.facts, Page{Role: RoleSystem, Text: a.words(1500), Stable: true})
	for i := range 12 {
		a.facts = append(a.facts, Page{Ref: fmt.Sprintf("a:f%d#0@1", i), Kind: "fact", Provenance: "human-verified", Text: a.words(250), Stable: true})
	}
	return a
}

// pages lays out one call: by stability, or (the control) retrieval first.
func (a *agent) pages(question Page, retrievalFirst bool) []Page {
	var chunks []Page
	for i := range a.chunksMany {
		chunks = append(chunks, Page{Ref: fmt.Sprintf("a:c%d#%d@1", a.rng.IntN(1e6), i), Kind: "chunk", Provenance: "chunk", Text: a.words(chunkBytes)})
	}
	head := append(append([]Page(nil), a.facts...), a.summaries...)
	if retrievalFirst {
		return append(append(append(head, chunks...), a.history...), question)
	}
	return append(append(append(head, a.history...), chunks...), question)
}

// answer closes a turn: question, answer, sometimes a call, become history.
func (a *agent) answer(question Page) {
	question.Stable = true
	a.history = append(a.history, question)
	if a.n%3 == 0 {
		id := fmt.Sprintf("call_%d", a.n)
		a.history = append(a.history,
			Page{Role: RoleAssistant, ToolCalls: []ToolCall{{ID: id, Name: "lookup", Arguments: `{"q":"x"}`}}, Stable: true},
			Page{Role: RoleTool, ToolCallID: id, Text: a.words(700), Stable: true})
	}
	a.history = append(a.history, Page{Role: RoleAssistant, Text: a.words(600), Stable: true})
	if size(a.history) > historyHigh {
		for size(a.history) > historyLow || a.history[0].Role != RoleUser {
			a.history = a.history[1:]
		}
		a.cut++
		a.summaries = append(a.summaries, Page{Ref: fmt.Sprintf("a:s%d#0@1", a.n), Kind: "summary", Provenance: "validated", Form: "summary", Text: a.words(500), Stable: true})
		a.summaries = a.summaries[max(0, len(a.summaries)-4):]
	}
}

func size(pages []Page) (n int) {
	for i := range pages {
		n += len(pages[i].Text)
	}
	return n
}

// unchanged plays 400 turns and gives the share of all bytes sent that were an
// unchanged prefix of the call before.
func unchanged(t *testing.T, shape shape, chunks int, retrievalFirst bool) (share float64, cuts int) {
	a := newAgent(chunks)
	var last []byte
	same, sent := 0, 0
	for a.n = range 400 {
		question := Page{Role: RoleUser, Text: a.words(250)}
		b := must(renderAs(seed, a.pages(question, retrievalFirst), shape))(t)
		n := 0
		for n < len(b) && n < len(last) && b[n] == last[n] {
			n++
		}
		same, sent, last = same+n, sent+len(b), b
		a.answer(question)
	}
	return float64(same) / float64(sent), a.cut
}

func TestStablePrefix(t *testing.T) {
	for _, shape := range shapes {
		share, cuts := unchanged(t, shape, 5, false)
		t.Logf("%v: %.1f %% of the bytes of 400 calls are an unchanged prefix of the call before; history cut %d times", shape, 100*share, cuts)
		require.GreaterOrEqual(t, share, .80, shape)
		require.Greater(t, cuts, 5)
	}
}

// The control: the same pages with retrieval before the history lose it.
func TestRetrievalFirstLosesThePrefix(t *testing.T) {
	share, _ := unchanged(t, shapeOpenAI, 5, true)
	require.Less(t, share, .40)
}

// Blocks between two calls' marks: the provider looks back twenty from each.
func TestMarksReachTheLastCall(t *testing.T) {
	a := newAgent(3)
	written := map[int]bool{} // places earlier calls wrote a cache entry at, since the last cut
	cuts := 0
	for a.n = range 200 {
		question := Page{Role: RoleUser, Text: a.words(250)}
		msgs := Messages(seed, a.pages(question, false), false)
		marks := cacheMarks(msgs)
		require.LessOrEqual(t, len(marks), 4)
		if cuts != a.cut {
			written, cuts = map[int]bool{}, a.cut
		}
		last := 0
		for _, m := range marks {
			last = max(last, m)
		}
		found := len(written) == 0
		for back := range 21 {
			found = found || written[last-back]
		}
		require.True(t, found, "turn %d: no entry within twenty blocks of %d", a.n, last)
		for _, m := range marks {
			written[m] = true
		}
		a.answer(question)
	}
}
