package ctxpage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

var chatTurns = flag.Int("chat.turns", dbtest.Size(1200, 2400), "how many turns TestOrdinaryChat appends; 100,000 take minutes")

// chatting is a conversation as people have them: short turns, pasted logs, calls with results, system turns, pins.
type chatting struct {
	t       *testing.T
	r       *rand.Rand
	db      *DB
	chat    *Session
	path    string
	window  int
	usable  int
	turns   int
	seq     int64
	calls   int
	ids     []string
	pins    []string
	watched bool
	served  int
	spent   map[string]time.Duration
	did     map[string]int
}

const chatScope = "acme/agent"

func (k *chatting) open() {
	k.db = openTest(k.t, k.path, Options{})
	k.chat = k.db.Scope(chatScope).Session("chat")
	if k.watched {
		require.NoError(k.t, must(k.chat.Watch(k.t.Context()))(k.t).Start(k.t.Context()))
	}
}

func (k *chatting) timed(what string, fn func()) {
	start := time.Now()
	fn()
	k.spent[what] += time.Since(start)
	k.did[what]++
}

// pasted is a log of about so many tokens.
func (k *chatting) pasted(tokens int) string {
	var b strings.Builder
	for n := 0; n < tokens; n += 16 {
		fmt.Fprintf(&b, "2026-11-20T12:%02d:%02d INFO worker %d took job w%d\n", n/60%60, n%60, k.r.IntN(99), k.r.IntN(9999))
	}
	return b.String()
}

func (k *chatting) next() []Turn {
	switch n := k.r.IntN(100); {
	case n < 40:
		return []Turn{{Role: "user", Text: longProse(k.r, 3+k.r.IntN(25))}}
	case n < 70:
		return []Turn{{Role: "assistant", Text: longProse(k.r, 5+k.r.IntN(120))}}
	case n < 73:
		return []Turn{{Role: "user", Text: k.pasted(100 + k.r.IntN(k.usable/12))}}
	case n == 75 && k.r.IntN(10) == 0:
		return []Turn{{Role: "user", Text: longProse(k.r, k.usable/5+k.r.IntN(k.usable/20))}} // most of the window
	case n == 76 && k.r.IntN(10) == 0:
		return []Turn{{Role: "assistant", Text: longProse(k.r, k.usable/5)}}
	}
	turns := []Turn{{Role: "assistant", Text: "Let me look."}}
	for range 1 + k.r.IntN(3) {
		k.calls++
		id := fmt.Sprint("c", k.calls)
		turns[0].ToolCalls = append(turns[0].ToolCalls, store.ToolCall{ID: id, Name: "grep", Arguments: fmt.Sprintf(`{"n":%d}`, k.calls)})
		size := 10 + k.r.IntN(200)
		if k.r.IntN(100) == 0 {
			size = k.r.IntN(k.usable / 4) // may be larger than the window
		}
		turns = append(turns, Turn{Role: "tool", ToolCallID: id, Text: longProse(k.r, size)})
	}
	return turns
}

func (k *chatting) append(turns ...Turn) {
	if conv, err := k.chat.conversation(); err == nil && !conv.Loaded() {
		k.did["load"]++
	}
	k.timed("append", func() {
		refs, err := k.chat.Append(k.t.Context(), turns...)
		require.NoError(k.t, err, "turn %d", k.turns)
		for _, r := range refs {
			k.ids = append(k.ids, r.ID)
		}
	})
	k.turns += len(turns)
	k.seq += int64(len(turns))
}

// step is one exchange, and now and then what else is done with a session.
func (k *chatting) step() {
	ctx, t := k.t.Context(), k.t
	turns := k.next()
	if k.r.IntN(2) == 0 {
		k.append(turns...)
	} else {
		for _, turn := range turns {
			k.append(turn)
		}
	}
	last := turns[len(turns)-1]
	if k.r.IntN(20) == 0 && last.Role == "user" {
		k.newestIsWhole(k.ids[len(k.ids)-1])
	}
	switch k.r.IntN(150) {
	case 0:
		require.NoError(t, errOf(k.db.Scope(chatScope).Put(ctx, Artefact{ID: fmt.Sprint("system-", k.turns), Role: "system", Text: "Be brief. " + longProse(k.r, 30+k.r.IntN(60)), Group: "chat", Seq: k.seq + 1})))
		k.seq++
	case 1, 2:
		k.pin()
	case 3, 4:
		id := k.ids[k.r.IntN(len(k.ids))]
		v := must(k.chat.Recall(ctx, id))(t)
		require.NotEmpty(t, v.Text+v.Role)
	case 5:
		_, err := k.chat.Undo(ctx, 0)
		if !errors.Is(err, session.ErrUndo) && !errors.Is(err, session.ErrHeadroom) && !errors.Is(err, store.ErrNotFound) {
			require.NoError(t, err)
			k.did["undo"]++
		}
	case 6, 7, 8, 9, 10:
		k.assemble()
	}
}

func (k *chatting) pin() {
	id := k.ids[max(len(k.ids)-1-k.r.IntN(30), 0)]
	err := k.chat.Pin(k.t.Context(), id)
	k.did["pin"]++
	if errors.Is(err, session.ErrHeadroom) {
		k.did["pin refused"]++
		for _, id := range k.pins[:len(k.pins)/2] {
			require.NoError(k.t, k.chat.Unpin(k.t.Context(), id))
		}
		k.pins = k.pins[len(k.pins)/2:]
		return
	}
	require.NoError(k.t, err)
	if k.pins = append(k.pins, id); len(k.pins) > 12 {
		require.NoError(k.t, k.chat.Unpin(k.t.Context(), k.pins[0]))
		k.pins = k.pins[1:]
	}
}

func (k *chatting) newestIsWhole(id string) {
	w := must(k.chat.Inspect(k.t.Context()))(k.t)
	require.LessOrEqual(k.t, w.Tokens, w.Limits.Usable)
	i := slices.IndexFunc(w.Turns, func(t session.WindowTurn) bool { return t.ID == id })
	require.Equal(k.t, session.Raw, w.Turns[i].Level, "the newest turn goes in")
}

func (k *chatting) assemble() {
	k.timed("assemble", func() {
		a := must(k.db.Scope(chatScope).Assemble(k.t.Context(), Query{Text: longProse(k.r, 4), Session: "chat", Budget: 8000}))(k.t)
		require.LessOrEqual(k.t, a.Tokens, 8000)
		k.served += len(a.Blocks)
	})
}

func TestOrdinaryChat(t *testing.T) {
	t.Parallel()
	for _, window := range []int{128_000, 32_000} {
		for _, watched := range []bool{false, true} {
			t.Run(fmt.Sprintf("window=%d/watched=%t", window, watched), func(t *testing.T) {
				t.Parallel()
				ordinaryChat(t, window, watched)
			})
		}
	}
}

func ordinaryChat(t *testing.T, window int, watched bool) {
	k := &chatting{t: t, r: rand.New(rand.NewPCG(uint64(window), 7)), path: dbtest.MemoryPath(t), window: window, usable: window * 85 / 100,
		spent: map[string]time.Duration{}, did: map[string]int{}}
	k.open()
	require.NoError(t, k.chat.SetWindow(ctx, session.Config{Total: window}))
	k.watched = watched
	require.NoError(t, k.db.Close())
	k.open()
	for part := range 4 {
		before, did := k.spent["append"], k.did["append"]
		for k.turns < *chatTurns*(part+1)/4 {
			k.step()
		}
		t.Logf("%d turns: %v an append", k.turns, (k.spent["append"]-before)/time.Duration(k.did["append"]-did))
		require.NoError(t, k.db.Close())
		k.open()
	}
	w := must(k.chat.Inspect(ctx))(t)
	levels := map[string]int{}
	for _, turn := range w.Turns {
		levels[turn.Role+" "+turn.Level.String()]++
	}
	t.Log(k.did, k.spent, levels, w.Tokens, w.Stored)
	require.Greater(t, w.Stored, 2*w.Limits.Usable, "control: they had to make room")
	require.NoError(t, k.db.Close())
}

func levelOf(t *testing.T, chat *Session, id string) session.WindowTurn {
	t.Helper()
	w := must(chat.Inspect(context.Background()))(t)
	require.LessOrEqual(t, w.Tokens, w.Limits.Usable)
	i := slices.IndexFunc(w.Turns, func(t session.WindowTurn) bool { return t.ID == id })
	require.GreaterOrEqual(t, i, 0)
	return w.Turns[i]
}

// What leaves the window is counted in every context, and can be read.
func TestLeftTurnsAreCounted(t *testing.T) {
	db, chat := openTalk(t)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 8000}))
	r := rand.New(rand.NewPCG(2, 3))
	texts := map[string]string{}
	const turns = 600
	for i := range turns {
		turn := Turn{Role: []string{"user", "assistant"}[i%2], Text: longProse(r, 5+r.IntN(60))}
		refs := must(chat.Append(ctx, turn))(t)
		texts[refs[0].ID] = turn.Text
	}
	w := must(chat.Inspect(ctx))(t)
	levels, stubs := map[session.Level]int{}, 0
	for _, turn := range w.Turns {
		if levels[turn.Level]++; turn.Level == session.Stub {
			stubs += turn.Tokens
		}
		require.Equal(t, texts[turn.ID], must(chat.Recall(ctx, turn.ID))(t).Text)
	}
	require.Positive(t, levels[session.Summary]+levels[session.Stub], levels)
	require.Less(t, stubs, w.Limits.Usable/2, "stubs do not fill the window")
	a := must(db.Scope(chatScope).Assemble(ctx, Query{Text: "w17", Session: "chat", Budget: 8000}))(t)
	replayed(t, db, a)
	in, left, cold, back := map[string]bool{}, 0, 0, 0
	for _, b := range a.Blocks {
		if in[b.Ref.ID] = true; levelOf(t, chat, b.Ref.ID).Level == session.Cold {
			back++ // the question found it
		}
	}
	for _, l := range a.Left {
		if (l.Reason == "over budget" || l.Reason == "low score") && levelOf(t, chat, l.Ref.ID).Level == session.Cold {
			back++ // likewise, and found no room
		}
	}
	for _, x := range a.Manifest.Excluded {
		switch x.Reason {
		case "below the provenance floor": // what was derived of the turns
		case "over budget", "low score": // also stubs, when what they stand for is worth little
			left += x.Count
		default:
			cold += x.Count
		}
	}
	require.Equal(t, turns, len(in)+left+cold, "%v", a.Manifest.Excluded)
	require.Equal(t, levels[session.Cold], cold+back, "%v", a.Manifest.Excluded)
}

// A fact that the user told long before the window began enters the context when a question asks for it, beside the
// newest turns. Controls: a question with other words does not find it, and neither does one after a pass that evicted it.
func TestQuestionFindsWhatLeftTheWindow(t *testing.T) {
	db, chat := openTalk(t)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000}))
	fact := must(chat.Append(ctx, Turn{Role: "user", Text: "By the way, the code of my locker is crimson-4711. " + longProse(rand.New(rand.NewPCG(5, 6)), 40)}))(t)
	said := must(chat.Append(ctx, Turn{Role: "assistant", Text: "I put the spare key below the flowerpot. " + longProse(rand.New(rand.NewPCG(7, 8)), 40)}))(t)
	r := rand.New(rand.NewPCG(2, 3))
	newest := ""
	for i := range 200 {
		refs := must(chat.Append(ctx, Turn{Role: []string{"user", "assistant"}[i%2], Text: longProse(r, 40)}))(t)
		newest = refs[0].ID
	}
	require.Equal(t, session.Cold, levelOf(t, chat, fact[0].ID).Level)
	ask := func(text string) (ids []string) {
		a := must(db.Scope(chatScope).Assemble(ctx, Query{Text: text, Session: "chat"}))(t)
		replayed(t, db, a)
		require.LessOrEqual(t, a.Tokens, a.Limit)
		for _, b := range a.Blocks {
			ids = append(ids, b.Ref.ID)
		}
		require.Equal(t, newest, ids[len(ids)-1])
		require.Greater(t, len(ids), 15, "the newest turns stay")
		return ids
	}
	require.Contains(t, ask("What is the code of my locker?"), fact[0].ID)
	require.Contains(t, ask("Where is the spare key?"), said[0].ID)
	require.NotContains(t, ask("Which colour has the sky?"), fact[0].ID)

	must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"w17"}}))(t)
	require.Equal(t, "evict", levelOf(t, chat, said[0].ID).Verdict)
	require.NotContains(t, ask("Where is the spare key?"), said[0].ID)
}

// A fact in a window that is larger than the budget of the context enters it when a question asks for it, whether the window
// shows it whole or as a stub. Control: a question with other words does not find it.
func TestQuestionFindsWhatTheWindowHolds(t *testing.T) {
	for at, window := range map[session.Level]int{session.Raw: 128_000, session.Stub: 20_000} {
		db, chat := openTalk(t)
		require.NoError(t, chat.SetWindow(ctx, session.Config{Total: window}))
		r := rand.New(rand.NewPCG(2, 3))
		fact := must(chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, 60+80*int(at)) + " The code of your locker is crimson-4711."}))(t)
		newest := ""
		for i := 0; i < 200 && at == session.Raw || levelOf(t, chat, fact[0].ID).Level < at; i++ {
			require.Less(t, i, 2000)
			refs := must(chat.Append(ctx, Turn{Role: []string{"user", "assistant"}[i%2], Text: longProse(r, 60)}))(t)
			newest = refs[0].ID
		}
		require.Equal(t, at, levelOf(t, chat, fact[0].ID).Level)
		ask := func(text string, budget int) string {
			a := must(db.Scope(chatScope).Assemble(ctx, Query{Text: text, Session: "chat", Budget: budget}))(t)
			replayed(t, db, a)
			require.LessOrEqual(t, a.Tokens, a.Limit)
			require.Equal(t, newest, a.Blocks[len(a.Blocks)-1].Ref.ID)
			return a.Text()
		}
		for _, budget := range []int{5000, 10_000} {
			require.Contains(t, ask("What is the code of the locker?", budget), "crimson-4711", "%v, %d tokens", at, budget)
			require.NotContains(t, ask("Which colour has the sky?", budget), "crimson-4711")
		}
	}
}

// In a conversation whose window is larger than its contexts the requests begin alike, whatever is asked, and an old turn
// that a question found is quoted after the history instead of standing in it.
func TestRequestsBeginAlike(t *testing.T) {
	db, chat := openTalk(t)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 128_000}))
	r := rand.New(rand.NewPCG(2, 3))
	secret := func(n int) string { return fmt.Sprintf("The painting%d hangs in crimson-%d.", n, n) }
	for n := range 150 {
		must(chat.Append(ctx, Turn{Role: "user", Text: secret(n)}, Turn{Role: "assistant", Text: longProse(r, 30)}))(t)
	}
	last, same, sent, quoted := "", 0, 0, 0
	for n := range 150 {
		question := "About " + longProse(r, 12)
		if n%5 == 4 {
			question = fmt.Sprintf("Where does painting%d hang?", n)
		}
		must(chat.Append(ctx, Turn{Role: "user", Text: question}))(t)
		a := must(db.Scope(chatScope).Assemble(ctx, Query{Text: question, Session: "chat", Budget: 4000}))(t)
		require.LessOrEqual(t, a.Tokens, 4000)
		msgs := a.Messages()
		require.Equal(t, question, msgs[len(msgs)-1].Text())
		if n >= 60 {
			replayed(t, db, a)
			var request strings.Builder
			for _, m := range msgs {
				require.NotEqual(t, secret(n), m.Text(), "it would seem to be said just now")
				fmt.Fprintln(&request, m.Role, m.Text())
			}
			if n%5 == 4 {
				require.Contains(t, request.String(), secret(n))
				quoted++
			}
			k := 0
			for k < min(len(last), request.Len()) && last[k] == request.String()[k] {
				k++
			}
			same, sent, last = same+k, sent+request.Len(), request.String()
		}
		must(chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, 12), Trace: a.Trace}))(t)
	}
	require.Equal(t, 18, quoted)
	share := float64(same) / float64(sent)
	t.Logf("%.1f %% of the bytes of 90 requests are an unchanged prefix of the request before", 100*share)
	require.Greater(t, share, .25)
}

// What a question finds in other conversations stands behind the turns of the one that asks, and verified facts stand before
// them in the same order in every request. Both were in the order of their scores at the beginning, so that no two requests
// began alike.
func TestRequestsBeginAlikeBesideOthers(t *testing.T) {
	db, chat := openTalk(t)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 128_000}))
	r := rand.New(rand.NewPCG(2, 3))
	for n := range 20 {
		must(db.Scope(chatScope).Session("other").Append(ctx, Turn{Role: "user", Text: fmt.Sprintf("The painting%d hangs in crimson-%d.", n, n)}))(t)
	}
	for n := range 5 {
		must(db.Admin().PutVerified(ctx, chatScope, "ann", Artefact{ID: fmt.Sprint("fact-", n), Text: fmt.Sprintf("Painting%d is verified.", n)}))(t)
	}
	for range 20 {
		must(chat.Append(ctx, Turn{Role: "user", Text: longProse(r, 20)}, Turn{Role: "assistant", Text: longProse(r, 20)}))(t)
	}
	last, quoted := []string{}, 0
	for n := range 5 {
		question := fmt.Sprintf("Where does painting%d hang?", n)
		must(chat.Append(ctx, Turn{Role: "user", Text: question}))(t)
		a := must(db.Scope(chatScope).Assemble(ctx, Query{Text: question, Session: "chat", Budget: 8000}))(t)
		replayed(t, db, a)
		var all []string
		for _, ref := range a.Refs {
			all = append(all, ref.ID)
		}
		steady := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return strings.Contains(id, "other") })
		quoted += len(all) - len(steady)
		require.Equal(t, []string{"fact-0", "fact-1", "fact-2", "fact-3", "fact-4"}, steady[:5])
		require.Equal(t, last, all[:len(last)], "the turns of the request before stand at the beginning of this one")
		require.Greater(t, len(steady), 40)
		last = steady[:len(steady)-1]
	}
	require.Positive(t, quoted, "control")
}

// The newest turns take what the question leaves of the budget: a window that fits is there whole, and a question that finds
// nothing leaves a third empty at most.
func TestHistoryTakesWhatNothingFills(t *testing.T) {
	db, chat := openTalk(t)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 8000}))
	r := rand.New(rand.NewPCG(4, 5))
	for n := range 150 {
		must(chat.Append(ctx, Turn{Role: "user", Text: longProse(r, 20)}, Turn{Role: "assistant", Text: longProse(r, 20)}))(t)
		if n%10 != 9 {
			continue
		}
		whole := must(db.Scope(chatScope).Assemble(ctx, Query{Text: "zzyzx", Session: "chat", Budget: 100_000}))(t)
		require.NotEmpty(t, whole.Blocks)
		fits := must(db.Scope(chatScope).Assemble(ctx, Query{Text: "zzyzx", Session: "chat", Budget: whole.Tokens * 21 / 20}))(t)
		require.Len(t, fits.Blocks, len(whole.Blocks), "%d turns", 2*n+2)
		less := whole.Tokens * 9 / 10
		part := must(db.Scope(chatScope).Assemble(ctx, Query{Text: "zzyzx", Session: "chat", Budget: less}))(t)
		require.Less(t, len(part.Blocks), len(whole.Blocks), "control")
		require.Greater(t, part.Tokens, less*6/10, "%d turns", 2*n+2)
	}
}

// A turn that alone exceeds the window is refused by name, and nothing else is.
func TestTurnLargerThanTheWindow(t *testing.T) {
	_, chat := openTalk(t)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000}))
	r := rand.New(rand.NewPCG(2, 3))
	for i := range 40 {
		refs := must(chat.Append(ctx, Turn{Role: "user", Text: longProse(r, 20+20*i)}))(t) // up to nearly all of it
		require.Equal(t, session.Raw, levelOf(t, chat, refs[0].ID).Level)
	}
	before := must(chat.Inspect(ctx))(t)
	_, err := chat.Append(ctx, Turn{Role: "user", Text: "Look at this."}, Turn{ID: "log", Role: "user", Text: longProse(r, 2000)})
	var short *session.HeadroomError
	require.ErrorAs(t, err, &short)
	require.ErrorIs(t, err, session.ErrHeadroom)
	require.Equal(t, "log", short.Section)
	require.Equal(t, 3400, short.Usable)
	require.Equal(t, short.Tokens-3400, short.Shortfall)
	require.ErrorContains(t, err, fmt.Sprintf(`turn 2: session: no headroom: turn "log" alone takes %d tokens`, short.Tokens))
	require.Equal(t, before.Turns, must(chat.Inspect(ctx))(t).Turns)
	_, err = chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, 2000)}) // nobody waits for it: a stub stands for it
	require.NoError(t, err)
}

// Pins hold while the newest turn fits beside them. Where it does not, the oldest give way, say so, and come back.
func TestPinsGiveWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, talkOptions())
	chat := db.Scope(chatScope).Session("chat")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000}))
	r := rand.New(rand.NewPCG(2, 3))
	var pins []string
	add := func(role string, words int) string {
		refs := must(chat.Append(ctx, Turn{Role: role, Text: longProse(r, words)}))(t)
		for range 2 { // and as another process sees it
			require.Equal(t, session.Raw, levelOf(t, chat, refs[0].ID).Level)
			require.NoError(t, db.Close())
			db = openTest(t, path, talkOptions())
			chat = db.Scope(chatScope).Session("chat")
		}
		return refs[0].ID
	}
	for range 3 {
		pins = append(pins, add("assistant", 130))
		require.NoError(t, chat.Pin(ctx, pins[len(pins)-1]))
	}
	for range 30 {
		add("user", 30)
		for _, id := range pins {
			require.Equal(t, session.Raw, levelOf(t, chat, id).Level, "an ordinary turn fits beside them")
		}
	}
	add("user", 820)
	oldest := levelOf(t, chat, pins[0])
	require.True(t, oldest.Pinned)
	require.NotEqual(t, session.Raw, oldest.Level)
	require.Equal(t, "gave way to the newest turn", oldest.Why)
	require.Contains(t, must(chat.Inspect(ctx, pins[0]))(t).Turn[pins[0]], "pinned, but the window has no room")
	require.NoError(t, chat.Pin(ctx, pins[0]), "there is room for one more")
	require.ErrorIs(t, chat.Pin(ctx, pins[1]), session.ErrHeadroom, "a pin that cannot be kept is refused")

	require.ErrorIs(t, errOf(chat.Undo(ctx, 0)), session.ErrHeadroom)
	for range 8 {
		add("user", 30)
	}
	for _, id := range pins {
		require.Equal(t, session.Raw, levelOf(t, chat, id).Level, "the large turn was paged, and there is room")
	}
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	require.NoError(t, db.Close())
}

// A pass that made pins give way is undone with them.
func TestUndoOfYieldedPin(t *testing.T) {
	_, chat := openTalk(t)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000}))
	r := rand.New(rand.NewPCG(2, 3))
	refs := must(chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, 300)}))(t)
	id := refs[0].ID
	require.NoError(t, chat.Pin(ctx, id))
	must(chat.Append(ctx, Turn{Role: "user", Text: longProse(r, 950)}))(t)
	require.NotEqual(t, session.Raw, levelOf(t, chat, id).Level)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 12_000}))
	must(chat.Undo(ctx, 0))(t)
	require.Equal(t, session.Raw, levelOf(t, chat, id).Level)
	require.NoError(t, chat.Unpin(ctx, id))
	require.Equal(t, session.Raw, levelOf(t, chat, id).Level, "and its level is what it was")
}

// A result that comes late is in the window although its call had left it.
func TestResultOfACallThatLeft(t *testing.T) {
	db, chat := openTalk(t)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000}))
	r := rand.New(rand.NewPCG(2, 3))
	call := must(chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, 60), ToolCalls: []store.ToolCall{{ID: "slow", Name: "build"}}}))(t)
	for n := 0; levelOf(t, chat, call[0].ID).Level != session.Cold; n++ {
		require.Less(t, n, 2000, "it leaves some time")
		must(chat.Append(ctx, Turn{Role: "user", Text: longProse(r, 25)}))(t)
	}
	refs := must(chat.Append(ctx, Turn{Role: "tool", ToolCallID: "slow", Text: "The build passed."}))(t)
	require.Equal(t, session.Raw, levelOf(t, chat, refs[0].ID).Level)
	require.Equal(t, session.Raw, levelOf(t, chat, call[0].ID).Level)
	a := must(db.Scope(chatScope).Assemble(ctx, Query{Text: "build", Session: "chat", Budget: 8000}))(t)
	require.Contains(t, a.Text(), "The build passed.")
}

// The window of a session is often larger than the budget of one context. Its newest turns are in the context without a
// gap, a large older one does not take their place, and what the question found has room.
func TestContextSmallerThanTheWindow(t *testing.T) {
	ctx := t.Context()
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	s := db.Scope("acme/agent")
	must(s.Put(ctx, Artefact{ID: "policy", Kind: store.KindChunk, Text: "Vouchers come back as store credit within nine days."}))(t)
	chat := s.Session("chat")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 128_000}))
	for i := range 300 {
		text := fmt.Sprintf("Turn %d: we went over the rules of case %d once more, and nothing about it is open.", i, i%7)
		if i == 280 {
			text = strings.Repeat("12:00:00 INFO job done\n", 900)
		}
		must(chat.Append(ctx, Turn{Role: "user", Text: text}))(t)
	}
	for _, question := range []string{"How do vouchers become store credit?", "What is the weather?"} {
		a := must(s.Assemble(ctx, Query{Text: question, Budget: 8000, Session: "chat"}))(t)
		in := map[string]bool{}
		for _, b := range a.Blocks {
			in[b.Ref.ID] = true
		}
		require.LessOrEqual(t, a.Tokens, 8000)
		require.Equal(t, strings.Contains(question, "vouchers"), in["policy"])
		for i := 300; i > 250; i-- {
			require.Equal(t, i != 281, in[fmt.Sprintf("block-chat-%d", i)], "%d", i)
		}
		replayed(t, db, a)
	}
}
