package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// sayings are few, so that turns repeat each other, and of all sizes: empty, one line, one page, several pages, more
// than any budget of the test.
var sayings = func() []string {
	out := []string{"disk check: /var is at 81 % of its budget", "go on", "The disk of worker 17 failed the check twice and was replaced.", " \n", "[…]"}
	for _, lines := range []int{12, 60, 900} {
		var b strings.Builder
		for i := range lines {
			fmt.Fprintf(&b, "Line %d: worker %d checks the disk of gateway %d.\n", i, i%7, i/3)
		}
		out = append(out, b.String())
	}
	return out
}()

// converser is a random conversation and what the test knows of it.
type converser struct {
	rt   *rapid.T
	db   *DB
	s    *Scope
	chat *Session
	now  *dbtest.Clock
	open []string // ids of calls that wait for a result
	ids  []string // of turns
	last string   // id of the newest user turn
	lsns []uint64
}

func (k *converser) any(name string, from ...string) string {
	return rapid.SampledFrom(from).Draw(k.rt, name)
}
func (k *converser) one(name string, of int) bool {
	return rapid.IntRange(0, of-1).Draw(k.rt, name) == 0
}

// say appends a turn. Refusals of the input are not what is tested here.
func (k *converser) say(turns ...Turn) bool {
	if k.one("expires", 20) {
		turns[0].ExpiresAt = k.now.Now().Add(time.Hour)
	}
	refs, err := k.chat.Append(ctx, turns...)
	if errors.Is(err, store.ErrInvalid) || errors.Is(err, session.ErrHeadroom) {
		return false
	}
	require.NoError(k.rt, err)
	for i, r := range refs {
		if k.ids = append(k.ids, r.ID); turns[i].Role == "user" {
			k.last = r.ID
		}
	}
	return true
}

var ctx = context.Background()

// call appends one turn with several calls, whose ids may have been used before.
func (k *converser) call() {
	t := Turn{Role: "assistant", Text: k.any("words", "", "look", sayings[0])}
	for i := range rapid.IntRange(1, 3).Draw(k.rt, "calls") {
		id := k.any("call", fmt.Sprint("call_", i), fmt.Sprint("call_", i), fmt.Sprint("toolu_", len(k.ids), i), fmt.Sprint("a call.", i), strings.Repeat("x", 63)+fmt.Sprint(i))
		t.ToolCalls = append(t.ToolCalls, store.ToolCall{ID: id, Name: k.any("tool", "grep", "ls"), Arguments: k.any("arguments", "", "{}", `{"n":1}`, "no json")})
	}
	if k.say(t) {
		for _, c := range t.ToolCalls {
			k.open = append(k.open, c.ID)
		}
	}
}

// answer appends results of open calls in any order. Some calls are never answered.
func (k *converser) answer() {
	for _, i := range rapid.Permutation(slices.Collect(iterN(len(k.open)))).Draw(k.rt, "order") {
		if k.one("skip", 4) {
			continue
		}
		k.say(Turn{Role: "tool", ToolCallID: k.open[i], Text: k.any("result", append(sayings, "")...)})
		k.open[i] = ""
	}
	k.open = slices.DeleteFunc(k.open, func(id string) bool { return id == "" })
}

func iterN(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

func (k *converser) step(i int) {
	switch rapid.IntRange(0, 15).Draw(k.rt, "step") {
	case 0, 1, 2:
		k.say(Turn{Role: "user", Text: k.any("user", sayings...)})
	case 3, 4:
		k.say(Turn{Role: "assistant", Text: k.any("assistant", sayings...)})
	case 5, 6, 7:
		k.call()
	case 8, 9, 10:
		k.answer()
	case 11:
		a := Artefact{ID: fmt.Sprint("fact-", i), Text: k.any("fact", sayings...), Pinned: k.one("pinned", 8), Tags: []string{k.any("tag", "a", "b")}}
		must(k.s.Put(ctx, a))(k.rt)
	case 12:
		cfg := session.Config{Total: rapid.SampledFrom([]int{600, 2000, 8000, 64000}).Draw(k.rt, "window")}
		if err := k.chat.SetWindow(ctx, cfg); !errors.Is(err, session.ErrHeadroom) {
			require.NoError(k.rt, err)
		}
	case 13:
		if len(k.ids) > 0 {
			must(k.chat.Pass(ctx, session.PassQuery{Keywords: []string{k.any("keyword", "disk", "worker", "nothing")}}))(k.rt)
		}
	case 14:
		if len(k.ids) > 0 {
			id := k.any("turn", k.ids...)
			switch {
			case k.one("delete", 3):
				if err := k.s.Delete(ctx, id); !errors.Is(err, store.ErrNotFound) {
					require.NoError(k.rt, err)
				}
			default:
				if err := k.chat.Pin(ctx, id); !errors.Is(err, store.ErrNotFound) && !errors.Is(err, session.ErrHeadroom) {
					require.NoError(k.rt, err)
				}
			}
		}
	case 15:
		k.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(k.rt, "minutes")) * time.Minute)
	}
}

// ask assembles any context and holds it to what every context promises.
func (k *converser) ask() {
	q := Query{
		Text: k.any("question", "what did the disk check say?", "which worker was replaced", "zebra", ""), Session: k.chat.ID(), Check: CheckNever,
		Budget: rapid.SampledFrom([]int{0, 150, 400, 1000, 4000, 60000}).Draw(k.rt, "budget"), TopK: rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(k.rt, "top"),
		Ladder: rapid.SampledFrom([]bool{false, false, true}).Draw(k.rt, "ladder"),
	}
	w := must(k.chat.Inspect(ctx))(k.rt)
	if q.Budget == 0 && w.Limits == nil {
		q.Budget = 2000
	}
	if q.Budget > 400 && k.one("reserve", 4) {
		q.Reserve = q.Budget / 3
	}
	if k.one("filter", 5) {
		q.Filter = Filter{TagsAny: []string{k.any("tag", "a", "b")}}
	}
	if k.one("kinds", 6) {
		q.Kinds = []store.Kind{store.KindFact, store.KindMessage}
	}
	if len(k.lsns) > 0 && k.one("as of", 6) {
		q.AsOf = rapid.SampledFrom(k.lsns).Draw(k.rt, "lsn")
	}
	a := must(k.s.Assemble(ctx, q))(k.rt)
	k.lsns = append(k.lsns, a.LSN)
	require.LessOrEqual(k.rt, a.Tokens, a.Limit)
	acceptedEverywhere(k.rt, a.Messages())
	in := map[string]bool{}
	for _, b := range a.Blocks {
		in[b.Ref.ID] = true
	}
	expired := map[string]bool{}
	for _, l := range a.Left {
		expired[l.Ref.ID] = l.Reason == triage.Expired
		require.False(k.rt, slices.Contains(k.ids, l.Ref.ID) && l.Reason == triage.Duplicate, "%s: %s", l.Ref, l.Reason)
	}
	if q.AsOf == 0 && q.Budget >= 400 && k.last != "" && !q.Ladder && k.newestIsThere(&w.Window) {
		require.True(k.rt, in[k.last], "the newest user turn %s: %v", k.last, a.Left)
	}
	if q.AsOf == 0 && q.Budget >= 60000 && q.Reserve == 0 && w.Limits != nil {
		for _, t := range w.Turns {
			require.True(k.rt, in[t.ID] || expired[t.ID] || t.Role != "user" || t.Level != session.Raw, "user turn %s of the window: %v", t.ID, a.Left)
		}
	}
	require.Equal(k.rt, a.Text(), must(k.db.Replay(ctx, a.Trace))(k.rt).Text)
}

// newestIsThere reports whether the newest user turn was neither deleted, nor has expired, nor left the window.
func (k *converser) newestIsThere(w *session.Window) bool {
	i := slices.IndexFunc(w.Turns, func(t session.WindowTurn) bool { return t.ID == k.last })
	v, err := k.s.Get(ctx, k.last)
	return i >= 0 && w.Turns[i].Level == session.Raw && err == nil && v.Role == "user" && (v.ExpiresAt.IsZero() || v.ExpiresAt.After(k.now.Now()))
}

// acceptedEverywhere holds messages to the rules of all providers. No call id stands twice: Anthropic refuses that, and so do
// some servers that speak the protocol of another one.
func acceptedEverywhere(t require.TestingT, msgs []render.Message) {
	for _, provider := range []func([]render.Message) ([]byte, error){render.OpenAI, render.Anthropic, render.Gemini} {
		require.NoError(t, errOf(provider(msgs)), outline(msgs))
	}
	ids := map[string]bool{}
	for _, m := range msgs {
		for _, c := range m.ToolCalls {
			require.False(t, ids[c.ID], "call id %s twice", c.ID)
			ids[c.ID] = true
		}
	}
}

// Whatever was said, whatever is asked, and however little room there is: every provider accepts the context, every user
// turn of the window is in it, and it is rendered again to the same bytes.
func TestEveryContextIsAccepted(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(dbtest.MemoryPath(t))
	rapid.Check(t, func(rt *rapid.T) {
		sub := must(os.MkdirTemp(dir, ""))(rt)
		defer os.RemoveAll(sub)
		now := dbtest.NewClock(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
		db := must(Open(sub+"/agent.ctx", Options{PageTokens: 64, Clock: now.Now}))(rt)
		defer func() { require.NoError(rt, db.Close()) }()
		s := db.Scope("acme")
		k := &converser{rt: rt, db: db, s: s, chat: s.Session("chat"), now: now}
		for !k.say(Turn{Role: "user", Text: sayings[0]}) {
		}
		for i := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			if k.step(i); k.one("ask", 5) {
				k.ask()
			}
		}
		k.ask()
	})
}

// outline names the messages of a context without their words.
func outline(msgs []render.Message) string {
	var b strings.Builder
	for _, m := range msgs {
		fmt.Fprintf(&b, "%s %s", m.Role, m.ToolCallID)
		for _, c := range m.ToolCalls {
			fmt.Fprintf(&b, "calls %s ", c.ID)
		}
		b.WriteString("; ")
	}
	return b.String()
}

// Some servers number the calls of each answer from 0. Each call has an id of its own in all contexts, and its result the same.
func TestRepeatedCallIDs(t *testing.T) {
	db, chat := openTalk(t)
	s := db.Scope("acme/agent")
	seen := map[string]string{} // the result of each id
	for round := range 12 {
		call := Turn{ID: fmt.Sprint("call-", round), Role: "assistant", ToolCalls: []store.ToolCall{{ID: "call_0", Name: "ls"}, {ID: "call_1", Name: "ls"}}}
		result := Turn{ID: fmt.Sprint("result-", round), Role: "tool", ToolCallID: "call_0", Text: fmt.Sprint("first of ", round)}
		turns := []Turn{{Role: "user", Text: "q"}, call, {Role: "tool", ToolCallID: "call_1", Text: fmt.Sprint("second of ", round)}, result, {Role: "user", Text: "go on"}}
		if round%2 == 0 {
			must(chat.Append(ctx, turns...))(t)
		} else {
			for _, turn := range turns {
				must(chat.Append(ctx, turn))(t)
			}
		}
		require.NoError(t, errOf(chat.Append(ctx, call, result)), "what comes again under its id is known")
		call.ToolCalls[0].Name = "rm"
		require.ErrorIs(t, errOf(chat.Append(ctx, call)), store.ErrInvalid, "control: it says something else")
		require.ErrorIs(t, errOf(chat.Append(ctx, Turn{Role: "tool", ToolCallID: "call_0", Text: "twice"})), store.ErrInvalid, "control: it is answered")
		if round == 6 {
			require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000}))
		}
		for _, budget := range []int{600, 20_000} {
			a := must(s.Assemble(ctx, Query{Text: "go on", Budget: budget, Session: chat.ID()}))(t)
			acceptedEverywhere(t, a.Messages())
			replayed(t, db, a)
			for _, m := range a.Messages() {
				if m.Role == "tool" && !strings.Contains(m.Text(), "[paged") {
					require.Equal(t, m.Text(), cmp.Or(seen[m.ToolCallID], m.Text()))
					seen[m.ToolCallID] = m.Text()
				}
			}
		}
	}
	require.Equal(t, "first of 0", seen["call_0"])
	require.Len(t, seen, 24)
}

// Turns that were put past the session may share ids of calls, also with those of a parent scope.
func TestCallIDsOfPutTurns(t *testing.T) {
	db, _ := openTalk(t)
	for i, scope := range []string{"acme", "acme/agent", "acme/agent"} {
		for j, a := range []Artefact{
			{Role: "user", Text: "what is in the list?"}, {Role: "assistant", ToolCalls: []store.ToolCall{{ID: "x", Name: "ls"}}}, {Role: "tool", ToolCallID: "x", Text: fmt.Sprint("list ", i)},
		} {
			a.ID, a.Group, a.Seq, a.Provenance = fmt.Sprint("turn-", i, j), "put", int64(10*i+j+1), store.Chunk
			must(db.Scope(scope).Put(ctx, a))(t)
		}
	}
	a := must(db.Scope("acme/agent").Assemble(ctx, Query{Text: "list", Budget: 4000, Session: "put"}))(t)
	require.Contains(t, a.Text(), "list 2")
	acceptedEverywhere(t, a.Messages())
	replayed(t, db, a)
}

// One large result of a tool takes a part of a context: its call, the lines that match, and a mark that it was cut. Facts,
// the question and the other turns have the rest.
func TestLargeToolResult(t *testing.T) {
	var log strings.Builder
	for i := range 8_000 {
		fmt.Fprintf(&log, "2026-11-01T08:%02d worker=%d msg=\"failed to connect to 10.0.%d.%d\"\n", i%60, i%40, i%97, i%251)
		if i == 4_500 {
			log.WriteString("worker=17 zebra crossing: the gateway 4711 refused it\n")
		}
	}
	for _, window := range []int{0, 32_000} {
		for _, newest := range []bool{false, true} {
			db := openTest(t, dbtest.MemoryPath(t), Options{})
			s := db.Scope("acme/agent")
			chat := s.Session("chat")
			for i := range 8 {
				require.NoError(t, errOf(s.Put(ctx, Artefact{ID: fmt.Sprint("runbook-", i), Text: fmt.Sprintf("Runbook %d: when a worker has failed to connect, restart gateway %d.", i, i)})))
			}
			if window > 0 {
				require.NoError(t, chat.SetWindow(ctx, session.Config{Total: window}))
			}
			turns := []Turn{
				{Role: "user", Text: "which worker failed to connect, and what of the zebra crossing?"}, {Role: "assistant", ToolCalls: []store.ToolCall{{ID: "k", Name: "bash"}}},
				{Role: "tool", ToolCallID: "k", Name: "bash", Text: log.String()},
				{Role: "assistant", Text: "The log shows failures."}, {Role: "user", Text: "so which worker failed to connect, and what of the zebra crossing?"},
			}
			if newest {
				turns = turns[:3]
			}
			must(chat.Append(ctx, turns...))(t)
			for _, budget := range []int{1500, 4000, 8000} {
				a := must(s.Assemble(ctx, Query{Text: "which worker failed to connect, and what of the zebra crossing?", Budget: budget, Session: chat.ID()}))(t)
				acceptedEverywhere(t, a.Messages())
				replayed(t, db, a)
				name := fmt.Sprintf("window %d, newest %v, budget %d: %d blocks, %d tokens", window, newest, budget, len(a.Blocks), a.Tokens)
				facts, words := 0, a.Text()
				for _, b := range a.Blocks {
					if strings.HasPrefix(b.Ref.ID, "runbook-") {
						facts++
					}
				}
				require.GreaterOrEqual(t, facts, 4, name)
				require.Contains(t, words, "what of the zebra crossing?", name)
				if window == 0 { // a window holds a stub of it
					require.Contains(t, words, "the gateway 4711 refused it", name)
					require.Contains(t, words, "[cut: parts of acme/agent:block-chat-3, which has", name)
				}
			}
			require.NoError(t, db.Close())
		}
	}
}

// A pinned page that cannot fit takes nothing from the others.
func TestPinnedPageThatCannotFit(t *testing.T) {
	db, _ := openTalk(t)
	s := db.Scope("acme/agent")
	must(s.Put(ctx, Artefact{ID: "core", Text: strings.Repeat("core memory block ", 4000), Pinned: true}))(t)
	must(s.Put(ctx, Artefact{ID: "kettle", Text: "The kettle is in the kitchen."}))(t)
	a := must(s.Assemble(ctx, Query{Text: "where is the kettle?", Budget: 4000}))(t)
	require.True(t, a.Review)
	require.Contains(t, a.Text(), "The kettle is in the kitchen.")
	require.Greater(t, len(a.Blocks), 3, "and what of the pinned pages fits")
	for _, l := range a.Left {
		require.Equal(t, "core", l.Ref.ID)
		require.NotContains(t, l.Reason, "tier")
	}
}

// The search uses the beginning and the end of a long question, and the manifest says so.
func TestLongQuestion(t *testing.T) {
	db, chat := openTalk(t)
	s := db.Scope("acme/agent")
	for _, word := range []string{"kettle", "lantern", "marble"} {
		must(s.Put(ctx, Artefact{ID: word, Text: "The " + word + " is in the attic."}))(t)
	}
	question := "where is the kettle? " + strings.Repeat("ä lot of log ", 4000) + "marble " + strings.Repeat("ä lot of log ", 4000) + " and where is the lantern?"
	must(chat.Append(ctx, Turn{Role: "user", Text: question}))(t)
	a := must(s.Assemble(ctx, Query{Text: question, Budget: 4000, Session: chat.ID()}))(t)
	require.Contains(t, a.Text(), "The kettle is in the attic.")
	require.Contains(t, a.Text(), "The lantern is in the attic.")
	require.Contains(t, a.Text(), "where is the kettle?", "the turn itself is shown in pieces")
	require.Contains(t, a.Manifest.Note, fmt.Sprintf("the question has %d bytes", len(question)))
	require.Len(t, must(s.Search(ctx, question, 3))(t).Hits, 3)
	require.Empty(t, must(s.Assemble(ctx, Query{Text: question[:1000], Budget: 4000}))(t).Manifest.Note, "the control")
}

// The tokens of the blocks are those of the context.
func TestBlockTokensAddUp(t *testing.T) {
	db, chat := openTalk(t)
	s := db.Scope("acme/agent")
	for i := range 58 {
		must(s.Put(ctx, Artefact{ID: fmt.Sprint("fact-", i), Text: fmt.Sprintf("Shelf %d has <b>%d</b> jars of jam.", i, i)}))(t)
	}
	must(chat.Append(ctx, Turn{Role: "user", Text: "How much jam is on the shelf?"}))(t)
	for _, q := range []Query{{Budget: 4000}, {Budget: 700}, {Budget: 2000, Session: chat.ID()}, {Budget: 900, ContentsOnly: true}} {
		q.Text = "jars of jam on a shelf"
		a := must(s.Assemble(ctx, q))(t)
		sum := 0
		for i, b := range a.Blocks {
			sum += b.Tokens
			require.Positive(t, b.Tokens)
			require.Equal(t, b.Tokens, a.Manifest.Pages[i].Tokens)
		}
		require.Equal(t, a.Tokens, sum)
	}
}

// TestAppendBatch: an append that is repeated under its batch adds nothing and has the same answer, also by another process, after a
// reopen and after its turns are gone; another append under the batch is refused.
func TestAppendBatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, talkOptions())
	chat := db.Scope("acme/agent").Session("chat")
	batch := must(db.newID())(t).String()
	turns := []Turn{{Role: "user", Text: "what of refunds?", Batch: batch}, {ID: "answer", Role: "assistant", Text: "Up to $400.", Batch: batch}}
	refs := must(chat.Append(ctx, turns...))(t)
	require.Len(t, refs, 2)
	require.Equal(t, refs, must(chat.Append(ctx, turns...))(t))
	require.Len(t, must(loop.Collect(chat.Turns(ctx, 0)))(t), 2)
	must(chat.Append(ctx, Turn{Role: "user", Text: "thanks"}))(t)
	require.Equal(t, refs, must(chat.Append(ctx, turns...))(t))

	other := []Turn{turns[0], turns[1]}
	other[0].Text = "what of returns?"
	for name, wrong := range map[string][]Turn{"another text": other, "one turn": turns[:1], "three turns": {turns[0], turns[1], {Role: "user", Text: "x", Batch: batch}}} {
		require.ErrorIs(t, errOf(chat.Append(ctx, wrong...)), store.ErrInvalid, name)
	}
	require.ErrorIs(t, errOf(db.Scope("acme/other").Session("chat").Append(ctx, turns...)), store.ErrInvalid, "another scope")
	require.ErrorIs(t, errOf(chat.Append(ctx, turns[0], Turn{Role: "user", Text: "of no batch"})), store.ErrInvalid, "two batches")
	require.Len(t, must(loop.Collect(chat.Turns(ctx, 0)))(t), 3)

	require.NoError(t, db.Close())
	db = openTest(t, path, talkOptions())
	chat = db.Scope("acme/agent").Session("chat")
	require.Equal(t, refs, must(chat.Append(ctx, turns...))(t))
	must(chat.Truncate(ctx, 0, ""))(t)
	require.Equal(t, refs, must(chat.Append(ctx, turns...))(t), "it is not appended again")
	require.Empty(t, must(loop.Collect(chat.Turns(ctx, 0)))(t))
	must(chat.Append(ctx, Turn{Role: "user", Text: "what of refunds?"}))(t)
	require.Len(t, must(loop.Collect(chat.Turns(ctx, 0)))(t), 1, "control: without the batch it is")
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	require.NoError(t, db.Close())
}

// TestTruncate: the newest turns go in one transaction, if they are still the newest; what stays is as it was.
func TestTruncate(t *testing.T) {
	db, chat := openTalk(t)
	for i := range 6 {
		must(chat.Append(ctx, Turn{Role: "user", Text: fmt.Sprint("turn ", i+1)}))(t)
	}
	texts := func() (out []string) {
		for _, v := range must(loop.Collect(chat.Turns(ctx, 0)))(t) {
			out = append(out, v.Text)
		}
		return out
	}
	require.ErrorIs(t, errOf(chat.Truncate(ctx, 4, "block-chat-5")), store.ErrConflict, "it is not the newest")
	require.Len(t, texts(), 6)
	batch := WithID(must(db.newID())(t).String())
	refs := must(chat.Truncate(ctx, 5, "block-chat-6", batch))(t)
	require.Len(t, refs, 1)
	require.Equal(t, refs, must(chat.Truncate(ctx, 5, "block-chat-6", batch))(t), "repeated under its batch")
	require.ErrorIs(t, errOf(chat.Truncate(ctx, 5, "block-chat-6")), store.ErrConflict, "control: without the batch")
	require.Equal(t, []string{"turn 1", "turn 2", "turn 3", "turn 4", "turn 5"}, texts())
	must(chat.Truncate(ctx, 2, ""))(t)
	require.Equal(t, []string{"turn 1", "turn 2"}, texts())
	require.Empty(t, must(chat.Truncate(ctx, 2, ""))(t), "nothing is behind it")
	must(chat.Append(ctx, Turn{Role: "user", Text: "anew"}))(t)
	require.Equal(t, []string{"turn 1", "turn 2", "anew"}, texts())
	require.Equal(t, 3, len(must(chat.Inspect(ctx))(t).Turns))
	require.ErrorIs(t, errOf(chat.Truncate(ctx, -1, "")), store.ErrInvalid)
	old := must(db.Scope("acme/agent").Recall(ctx, Ref{Scope: "acme/agent", ID: "block-chat-6", Version: 1}))(t)
	require.Equal(t, "turn 6", old.Text, "its version stays")

	// Eight callers that take the newest turn take each turn once.
	for i := range 40 {
		must(chat.Append(ctx, Turn{Role: "user", Text: fmt.Sprint("number ", i)}))(t)
	}
	var mu sync.Mutex
	taken := map[string]int{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			mine := db.Scope("acme/agent").Session("chat")
			for {
				w, err := mine.Inspect(ctx)
				if err != nil || len(w.Turns) == 0 {
					return
				}
				last := w.Turns[len(w.Turns)-1]
				if _, err := mine.Truncate(ctx, last.Seq-1, last.ID); err == nil {
					mu.Lock()
					taken[last.ID]++
					mu.Unlock()
				} else if !errors.Is(err, store.ErrConflict) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, taken, 43)
	for id, n := range taken {
		require.Equal(t, 1, n, id)
	}
	require.Empty(t, texts())
}
