package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// play ingests turns and asks the questions, each as lines.
func play(t *testing.T, turns, questions []string) []answer {
	t.Helper()
	contents = true
	defer func() { contents = false }()
	return charged(t, turns, questions)
}

// charged is play with the charge that is set.
func charged(t *testing.T, turns, questions []string) []answer {
	t.Helper()
	dir, ctx := t.TempDir(), context.Background()
	require.NoError(t, ingest(ctx, dir, strings.NewReader(strings.Join(turns, "\n")), nil))
	var out bytes.Buffer
	require.NoError(t, query(ctx, dir, strings.NewReader(strings.Join(questions, "\n")), &out))
	var answers []answer
	for line := range strings.Lines(out.String()) {
		var a answer
		require.NoError(t, json.Unmarshal([]byte(line), &a))
		answers = append(answers, a)
	}
	require.Len(t, answers, len(questions))
	return answers
}

func line(t *testing.T, fields map[string]any) string {
	b, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(b)
}

func ask(budget int) string {
	return fmt.Sprintf(`{"question_id":"q","budget":%d,"text":"When did Ana see the heron?","now":"2024-02-03 10:00"}`, budget)
}

const heron = `{"id":"D1:1","session":1,"time":"2024-02-01 09:00","speaker":"Ana","text":"I saw the heron on Monday.","tokens":13}`

func TestBudgets(t *testing.T) {
	for i, a := range play(t, []string{heron}, []string{ask(-1), ask(0), ask(1), ask(12), ask(13), ask(1 << 40)}) {
		want := []string{}
		if i >= 4 {
			want = []string{"D1:1"}
		}
		require.Equal(t, want, a.Chosen, "question %d", i)
		require.LessOrEqual(t, a.Tokens, max(a.Budget, 0))
	}
}

func TestNothingIngested(t *testing.T) {
	require.Empty(t, play(t, nil, []string{ask(512)})[0].Chosen)
	var out bytes.Buffer
	require.NoError(t, query(context.Background(), t.TempDir(), strings.NewReader(ask(512)), &out))
	require.JSONEq(t, `{"question_id":"q","budget":512,"chosen":[],"tokens":14,"match":"none","covered":0}`, out.String())
}

func TestTimesMayBeMissing(t *testing.T) {
	a := play(t, []string{`{"id":"a","speaker":"Ana","text":"the heron"}`, heron, `{"id":"b","time":null,"speaker":"Ana","text":"a heron"}`},
		[]string{`{"question_id":7,"budget":512,"text":"heron"}`, `{"question_id":null,"budget":512,"text":""}`})
	require.ElementsMatch(t, []string{"a", "b", "D1:1"}, a[0].Chosen)
	require.JSONEq(t, `7`, string(a[0].ID))
	err := ingest(context.Background(), t.TempDir(), strings.NewReader(`{"id":"a","time":"at noon","text":"x"}`), nil)
	require.ErrorContains(t, err, "at noon")
}

// What the database does not take as an id comes back all the same.
func TestIDs(t *testing.T) {
	ids := []string{"D1:1", "", "a b", "日本", "#1@2", "source/x", "..", "a\nb", "\x00", "ctxpage:directives", strings.Repeat("x", 3000), "hash/0"}
	var turns []string
	for i, id := range ids {
		turns = append(turns, line(t, map[string]any{"id": id, "session": id, "time": "2024-02-01 09:00", "speaker": id[:min(5, len(id))], "text": fmt.Sprint("heron ", i)}))
	}
	turns = append(turns, `{"id":"s1","source":"x","version":1,"text":"old heron"}`, `{"id":"s2","source":"x","version":2,"text":"new heron"}`,
		`{"id":"D1:1","session":1,"text":"the last of two"}`)
	require.ElementsMatch(t, append(ids, "s2"), play(t, turns, []string{ask(8192)})[0].Chosen)
}

// A turn of several pages is chosen once, and only where all of it has room.
func TestLongTurn(t *testing.T) {
	long := line(t, map[string]any{"id": "long", "time": "2024-02-01 09:00", "speaker": "Ana", "text": strings.Repeat("the heron and the heron ", 20_000)})
	a := play(t, []string{heron, long}, []string{ask(50_000), ask(500_000)})
	require.Equal(t, []string{"D1:1"}, a[0].Chosen)
	require.LessOrEqual(t, a[0].Tokens, 50_000)
	require.ElementsMatch(t, []string{"D1:1", "long"}, a[1].Chosen)
	require.Greater(t, a[1].Tokens, 100_000)

	huge := line(t, map[string]any{"id": "huge", "time": "2024-02-01 09:00", "text": strings.Repeat("heron ", 3_000_000)})
	require.Equal(t, []string{"D1:1"}, play(t, []string{heron, huge}, []string{ask(512)})[0].Chosen)
}

// The line's own price counts, also where it is above the formula.
func TestPriceOfTheLine(t *testing.T) {
	dear := strings.Replace(heron, `"tokens":13`, `"tokens":600`, 1)
	second := strings.Replace(heron, "D1:1", "D1:2", 1)
	a := play(t, []string{dear, second}, []string{ask(512), ask(613)})
	require.Equal(t, []string{"D1:2"}, a[0].Chosen)
	require.Equal(t, 13, a[0].Tokens)
	require.Len(t, a[1].Chosen, 2)
	require.Equal(t, 613, a[1].Tokens)
}

// A rendered context costs what a model reads: the turns and what stands around them.
func TestRenderedIsCharged(t *testing.T) {
	var turns []string
	for i := range 40 {
		turns = append(turns, fmt.Sprintf(`{"id":"D1:%d","session":1,"time":"2024-02-01 09:00","speaker":"Ana","text":"I saw heron number %d on Monday, at the pond behind the old mill.","tokens":1}`, i, i))
	}
	a := charged(t, turns, []string{ask(300)})[0]
	require.LessOrEqual(t, a.Tokens, 300)
	require.Greater(t, a.Tokens, 270)
	require.Greater(t, len(a.Chosen), 8)
	require.Less(t, len(a.Chosen), 15, "of about 21 tokens each, without what stands around them")
}

func TestHostileQuestions(t *testing.T) {
	var questions []string
	for _, text := range []string{"", " ", "?", "\x00", "a OR b AND NOT *", strings.Repeat("heron ", 30_000), strings.Repeat("日", 30_000)} {
		questions = append(questions, line(t, map[string]any{"question_id": "q", "budget": 512, "text": text, "now": ""}))
	}
	for _, a := range play(t, []string{heron, "", "  "}, questions) {
		require.Equal(t, []string{"D1:1"}, a.Chosen)
	}
}
