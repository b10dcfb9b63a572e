package ctxpage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

// openWatched opens a database on the bubble's clock.
func openWatched(t *testing.T, dir string, opts Options) *DB {
	t.Helper()
	opts.Exclusive = true // a bubble waits forever for what comes by a socket
	return openTest(t, filepath.Join(dir, "agent.ctx"), opts)
}

// longProse is so many words that no trimming takes away.
func longProse(r *rand.Rand, words int) string {
	var b strings.Builder
	for i := range words {
		fmt.Fprintf(&b, "w%d ", r.IntN(5000))
		if i%9 == 8 {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

var (
	watchOps  = flag.Int("watch.ops", dbtest.Size(240, 300), "how many operations TestWatchRandom does; 10,000 take minutes")
	watchSeed = flag.Uint64("watch.seed", 6, "its seed")
)

// The invariant of the window, over random appends, recalls and pins, in virtual time: after every commit no more than
// the usable part is in the window, or the commit was refused because protected content alone is too much; and it is
// the background that does the work. With leaps, turns may be larger than the band and than the window, passes are run
// and undone, and the window is set anew; then commits must often make room themselves, or refuse.
func TestWatchRandom(t *testing.T) {
	t.Parallel()
	for _, leaps := range []bool{false, true} {
		t.Run(fmt.Sprintf("leaps=%t", leaps), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { watchRandom(t, dir, leaps) })
		})
	}
}

// randomTalk is a session under random operations.
type randomTalk struct {
	t         *testing.T
	r         *rand.Rand
	chat      *Session
	leaps     bool
	ids, pins []string
	calls     int
	refused   int
	burst     bool // the last word on the window was an observation that it is too full
}

func watchRandom(t *testing.T, dir string, leaps bool) {
	ctx := t.Context()
	db := openWatched(t, dir, Options{})
	defer func() { require.NoError(t, db.Close()) }()
	k := &randomTalk{t: t, r: rand.New(rand.NewPCG(*watchSeed, 12)), chat: db.Scope("acme/agent").Session("chat"), leaps: leaps}
	chat := k.chat
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 24_000, UserCap: 4000}))
	w := must(chat.Watch(ctx))(t)
	require.NoError(t, w.Start(ctx))
	for i := range *watchOps {
		k.operate(ctx)
		win := must(chat.Inspect(ctx))(t)
		if win.Tokens > win.Limits.Usable { // the truth about tokens is kept where it bursts the window
			require.True(t, k.burst, "operation %d: %d tokens of %d", i, win.Tokens, win.Limits.Usable)
			st := must(w.Stats(ctx))(t)
			require.Greater(t, st.Analysis.Protected, win.Limits.Usable, "operation %d: what is protected would fit", i)
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	w.Stop()
	passes := must(chat.Passes(ctx))(t)
	byKind := map[string]int{}
	for _, p := range passes {
		byKind[p.Kind]++
	}
	t.Log(byKind, "refused", k.refused)
	win := must(chat.Inspect(ctx))(t)
	require.Greater(t, win.Stored, win.Limits.Usable, "the same turns without a watcher would have burst the window")
	require.NotZero(t, byKind[session.PassWatcher])
	if leaps {
		require.NotZero(t, byKind[session.PassBackstop])
		require.NotZero(t, k.refused)
	} else {
		require.GreaterOrEqual(t, byKind[session.PassWatcher]*100, 95*(byKind[session.PassWatcher]+byKind[session.PassBackstop]))
	}
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
}

func (k *randomTalk) operate(ctx context.Context) {
	switch op := k.r.IntN(20); {
	case k.leaps && k.r.IntN(12) == 0:
		k.upset(ctx)
	case op < 14 || len(k.ids) == 0:
		refs, err := k.chat.Append(ctx, k.turns()...)
		if k.done(err) {
			for _, ref := range refs {
				k.ids = append(k.ids, ref.ID)
			}
		}
	case op < 17:
		must(k.chat.Recall(ctx, k.any()))(k.t)
	case op < 18 && len(k.pins) < 4:
		if id := k.any(); k.done(k.chat.Pin(ctx, id)) {
			k.pins = append(k.pins, id)
		}
	case len(k.pins) > 0:
		if k.done(k.chat.Unpin(ctx, k.pins[0])) {
			k.pins = k.pins[1:]
		}
	}
}

func (k *randomTalk) any() string { return k.ids[k.r.IntN(len(k.ids))] }

// done reports whether it went well; a refusal must be for what no pass may touch.
func (k *randomTalk) done(err error) bool {
	var short *session.HeadroomError
	if errors.As(err, &short) {
		k.refused++
		require.Greater(k.t, short.Protected, short.Usable, "refused although what is protected would fit")
		require.Positive(k.t, short.Shortfall)
		return false
	}
	require.NoError(k.t, err)
	k.burst = false
	return true
}

func (k *randomTalk) turns() []Turn {
	scale := 1
	if k.leaps && k.r.IntN(4) == 0 {
		scale = 2 << k.r.IntN(6)
	}
	switch k.r.IntN(4) {
	case 0:
		if scale > 1 && k.r.IntN(4) == 0 {
			scale = 400
		}
		return []Turn{{Role: "user", Text: longProse(k.r, scale*(5+k.r.IntN(20)))}}
	case 1:
		return []Turn{{Role: "assistant", Text: longProse(k.r, scale*(10+k.r.IntN(60)))}}
	}
	k.calls++
	id := fmt.Sprint("c", k.calls)
	return []Turn{
		{Role: "assistant", ToolCalls: []store.ToolCall{{ID: id, Name: "grep", Arguments: fmt.Sprintf(`{"n":%d}`, k.calls)}}},
		{Role: "tool", ToolCallID: id, Text: longProse(k.r, scale*(20+k.r.IntN(120)))},
	}
}

// upset does what changes much of a window at once.
func (k *randomTalk) upset(ctx context.Context) {
	switch k.r.IntN(4) {
	case 0:
		q := session.PassQuery{Keywords: []string{fmt.Sprint("w", k.r.IntN(5000)), fmt.Sprint("w", k.r.IntN(5000))}}
		if k.r.IntN(2) == 0 {
			q.Params = session.CompatParams()
		}
		_, err := k.chat.Pass(ctx, q)
		k.done(err)
	case 1:
		if _, err := k.chat.Undo(ctx, 0); !errors.Is(err, session.ErrUndo) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, session.ErrHeadroom) && !errors.Is(err, store.ErrGone) {
			require.NoError(k.t, err)
		}
	case 2:
		k.done(k.chat.SetWindow(ctx, session.Config{Total: 20_000 + k.r.IntN(8000), UserCap: 4000}))
	case 3:
		estimated := 1000 + k.r.IntN(1000)
		if !k.done(k.chat.Observe(ctx, estimated, estimated+k.r.IntN(estimated/4))) {
			k.burst = true
		}
	}
}

// A constant load below the trigger never leads to a pass.
func TestWatchConstantLoad(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db := openWatched(t, dir, Options{})
		defer func() { require.NoError(t, db.Close()) }()
		chat := db.Scope("acme/agent").Session("chat")
		require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000}))
		r := rand.New(rand.NewPCG(1, 1))
		for range 20 {
			must(chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, 40)}))(t)
		}
		w := must(chat.Watch(ctx))(t)
		require.NoError(t, w.Start(ctx))
		require.ErrorIs(t, w.Start(ctx), store.ErrInvalid)
		time.Sleep(1000 * conversation.LookAgain)
		for range 1000 {
			must(w.Step(ctx, time.Now()))(t)
		}
		st := must(w.Stats(ctx))(t)
		require.Zero(t, st.Counters.Passes)
		require.True(t, st.Running)

		// A context that ends ends the work, and it can be taken up again.
		w.Stop()
		brief, cancel := context.WithCancel(ctx)
		require.NoError(t, w.Start(brief))
		cancel()
		synctest.Wait()
		st = must(w.Stats(ctx))(t)
		require.False(t, st.Running)
		require.NoError(t, w.Start(ctx))
		require.ErrorIs(t, w.Start(ctx), store.ErrInvalid)
	})
}

// shorter is a summariser that can be told to fail.
type shorter struct {
	mu    sync.Mutex
	calls int
	fail  error
}

func (s *shorter) Name() string { return "shorter" }

func (s *shorter) Summarize(_ context.Context, text string, tokens int) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return fmt.Sprintf("In %d bytes it was said that nothing happened.", len(text)), s.fail
}

// watched is a session above its trigger, with a dozen long tool results, and the clock it runs on.
func watched(t *testing.T, path string, opts Options, cfg session.Config, through ...func(store.Store) store.Store) (*DB, *Session, *Watcher) {
	t.Helper()
	at := talkOptions()
	opts.Clock = at.Clock
	opts.Exclusive = true
	db := openTest(t, path, opts)
	for _, wrap := range through { // before anybody else reads the field
		db.sessions.Store = wrap(db.sessions.Store)
	}
	chat := db.Scope("acme/agent").Session("chat")
	require.NoError(t, chat.SetWindow(ctx, cfg))
	r := rand.New(rand.NewPCG(3, 3))
	for i := range 14 {
		id := fmt.Sprint("c", i)
		require.NoError(t, errOf(chat.Append(ctx,
			Turn{Role: "user", Text: fmt.Sprint("Look at file ", i)},
			Turn{Role: "assistant", Text: "Yes.", ToolCalls: []store.ToolCall{{ID: id, Name: "read", Arguments: fmt.Sprintf(`{"file":%d}`, i)}}},
			Turn{Role: "tool", ToolCallID: id, Text: strings.Repeat("2026-11-20T10:00:00Z going on\n", 10) + longProse(r, 60)})))
	}
	return db, chat, must(chat.Watch(ctx))(t)
}

var busy = session.Config{Total: 5870, KeepLast: 3}

func TestWatchSummarisesAndUndoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	by := &shorter{}
	db, chat, w := watched(t, path, Options{Summarizer: by}, busy)
	now := db.opts.Clock()
	q := Query{Text: "file", Budget: 16_000, Session: "chat"}
	before := must(db.Scope("acme/agent").Assemble(ctx, q))(t)

	plan := must(w.Plan(ctx, now))(t)
	require.NotEmpty(t, plan.Items)
	require.Equal(t, before.Text(), must(db.Scope("acme/agent").Assemble(ctx, q))(t).Text(), "a plan changes nothing")

	require.Equal(t, len(plan.Items), must(w.Apply(ctx, plan))(t).Items)
	require.ErrorIs(t, errOf(w.Apply(ctx, plan)), session.ErrGeneration)
	win := must(chat.Inspect(ctx))(t)
	require.LessOrEqual(t, win.Tokens, win.Limits.Target)
	trimmed := 0
	for _, turn := range win.Turns {
		if turn.Level == session.Trimmed {
			trimmed++
		}
		if turn.Role == "user" {
			require.Equal(t, session.Raw, turn.Level)
		}
	}
	require.NotZero(t, trimmed)
	after := must(db.Scope("acme/agent").Assemble(ctx, q))(t)
	require.NotEqual(t, before.Text(), after.Text())
	require.Contains(t, after.Text(), "lines dropped")
	replayed(t, db, after)

	// Further passes go on to summaries; what was made once is not asked for again.
	must(chat.Undo(ctx, 0))(t)
	undone := must(db.Scope("acme/agent").Assemble(ctx, q))(t)
	require.Equal(t, before.Text(), undone.Text(), "the same bytes in the same order")
	for range 2 {
		plan = must(w.Plan(ctx, now))(t)
		for i := range plan.Items {
			plan.Items[i].To = session.Summary
		}
		must(w.Apply(ctx, plan))(t)
		calls := by.calls
		require.NotZero(t, calls)
		summed := must(db.Scope("acme/agent").Assemble(ctx, q))(t)
		require.Contains(t, summed.Text(), "nothing happened")
		replayed(t, db, summed)
		must(chat.Undo(ctx, 0))(t)
		require.Equal(t, calls, by.calls)
	}
	must(w.Apply(ctx, mustPlan(t, w, now)))(t)
	win = must(chat.Inspect(ctx))(t)
	made := by.calls
	require.NoError(t, db.Close())

	db = openTest(t, path, Options{Exclusive: true, Clock: func() time.Time { return now }})
	defer func() { require.NoError(t, db.Close()) }()
	chat = db.Scope("acme/agent").Session("chat")
	require.Equal(t, win.Turns, must(chat.Inspect(ctx))(t).Turns, "a restart keeps all of it")
	require.Equal(t, made, by.calls)
	replayed(t, db, after)
	require.Empty(t, must(hitsOf(db.Scope("acme/agent").Search(ctx, "nothing happened", 10)))(t), "a form is no memory")
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
}

func mustPlan(t *testing.T, w *Watcher, now time.Time) session.Plan {
	t.Helper()
	return must(w.Plan(context.Background(), now))(t)
}

func TestWatchFailingSummarizer(t *testing.T) {
	by := &shorter{fail: errors.New("no model")}
	db, chat, w := watched(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{Summarizer: by}, busy)
	defer func() { require.NoError(t, db.Close()) }()
	plan := mustPlan(t, w, db.opts.Clock())
	for i := range plan.Items {
		plan.Items[i].To = session.Summary
	}
	must(w.Apply(ctx, plan))(t)
	require.NotZero(t, by.calls)
	win := must(chat.Inspect(ctx))(t)
	require.Less(t, win.Tokens, win.Stored)
	require.Equal(t, "Yes.", must(chat.Recall(ctx, plan.Items[0].ID))(t).Text)
}

// Steps act by mode.
func TestWatchModes(t *testing.T) {
	for _, mode := range []session.Mode{session.ModeApply, session.ModeDeferred, session.ModeRecommend} {
		cfg := busy
		cfg.Mode = mode
		db, chat, w := watched(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{}, cfg)
		events := must(w.Step(ctx, db.opts.Clock()))(t)
		var kinds []session.EventKind
		for _, e := range events {
			kinds = append(kinds, e.Kind)
		}
		passes := must(chat.Passes(ctx))(t)
		if mode == session.ModeApply {
			require.Equal(t, []session.EventKind{session.EventWarn, session.EventPlanned, session.EventApplied, session.EventHeadroomOK}, kinds)
			require.Len(t, passes, 1)
			require.Equal(t, session.PassWatcher, passes[0].Kind)
			must(chat.Undo(ctx, passes[0].Number))(t)
			require.Equal(t, session.EventUndone, (<-drained(w, 4)).Kind)
			for _, e := range must(w.Step(ctx, db.opts.Clock()))(t) {
				require.NotEqual(t, session.EventApplied, e.Kind, "what was undone is not done again at once")
			}
		} else {
			require.Equal(t, []session.EventKind{session.EventWarn, session.EventPlanned}, kinds)
			require.Empty(t, passes)
		}
		require.NoError(t, db.Close())
	}
}

// What a plan made by hand could do that its undo could not take back is refused, and the session is as it was.
func TestApplyPlanMadeByHand(t *testing.T) {
	db, chat, w := watched(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{}, busy)
	defer func() { require.NoError(t, db.Close()) }()
	before := must(chat.Inspect(ctx))(t)
	planned := must(w.Plan(ctx, db.opts.Clock()))(t)
	twice, beyond := planned, planned
	again := planned.Items[0]
	again.From, again.To = again.To, session.Cold
	twice.Items = append(slices.Clone(planned.Items), again)
	beyond.Items = slices.Clone(planned.Items)
	beyond.Items[0].To = 200
	for name, p := range map[string]session.Plan{"twice": twice, "beyond": beyond} {
		now := must(w.Plan(ctx, db.opts.Clock()))(t) // a refused plan has the session read again, which is another generation
		p.Generation = now.Generation
		require.ErrorIs(t, errOf(w.Apply(ctx, p)), session.ErrPlan, name)
		require.Equal(t, before.Turns, must(chat.Inspect(ctx))(t).Turns, name)
	}
	planned = must(w.Plan(ctx, db.opts.Clock()))(t)
	info := must(w.Apply(ctx, planned))(t)
	must(chat.Undo(ctx, info.Number))(t)
}

// Wherever a context ends, the watcher goes by the window that is stored, and an undo that is refused has undone nothing.
func TestWatchWhenContextsEnd(t *testing.T) {
	db, chat, w := watched(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{}, busy)
	defer func() { require.NoError(t, db.Close()) }()
	set, refused := 0, 0
	for n := range 60 {
		cfg := busy
		cfg.Total += 100 * (1 + n%2)
		err := chat.SetWindow(endAfter(n), cfg)
		_, headErr := db.store.Head(ctx) // nothing is on its way
		require.NoError(t, headErr)
		stored := must(chat.Inspect(ctx))(t)
		kept := must(w.Stats(ctx))(t)
		require.Equal(t, stored.Limits.Total, kept.Limits.Total, "%d: %v", n, err)
		if err == nil {
			set++
		} else {
			refused++
		}
	}
	require.Greater(t, min(set, refused), 3)
	undone, refused := 0, 0
	for n := range 60 {
		p := must(chat.Pass(ctx, session.PassQuery{Keywords: []string{fmt.Sprint("word", n)}}))(t)
		_, err := chat.Undo(endAfter(n), p.Number)
		if errors.Is(err, store.ErrOutcomeUnknown) {
			continue
		}
		passes := must(chat.Passes(ctx))(t)
		require.Equal(t, err == nil, passes[len(passes)-1].Undone, "%d: %v", n, err)
		if err == nil {
			undone++
		} else {
			refused++
		}
	}
	require.Greater(t, min(undone, refused), 3)
}

// A watcher has no limits when its window was taken away, and none starts when the database is closed.
func TestWatchWithoutWindowOrDatabase(t *testing.T) {
	db, chat, w := watched(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{}, busy)
	st := must(w.Stats(ctx))(t)
	require.Equal(t, busy.Total, st.Limits.Total)
	require.NoError(t, chat.SetWindow(ctx, session.Config{}))
	st = must(w.Stats(ctx))(t)
	require.Zero(t, st.Limits)

	require.NoError(t, db.Close())
	require.ErrorIs(t, w.Start(ctx), store.ErrClosed)
}

// drained takes n events away.
func drained(w *Watcher, n int) <-chan session.Event {
	for range n {
		<-w.Events()
	}
	return w.Events()
}

// One append of more turns than the window has room for: some that are on their way in make room for the next, by forms
// of texts that are not stored yet.
func TestAppendOfMoreThanTheWindow(t *testing.T) {
	db, chat := openTalk(t)
	r := rand.New(rand.NewPCG(9, 10))
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 3000, KeepLast: 2}))
	must(chat.Append(ctx, Turn{ID: "t3", Role: "assistant", Text: "an early one"}))(t)
	require.NoError(t, db.Scope("acme/agent").Delete(ctx, "t3")) // its second version comes
	var turns []Turn
	for i := range 30 {
		turns = append(turns, Turn{ID: fmt.Sprint("t", i), Role: "assistant", Text: longProse(r, 40+20*(i%10))})
	}
	require.Len(t, must(chat.Append(ctx, turns...))(t), 30)
	w := must(chat.Inspect(ctx))(t)
	require.LessOrEqual(t, w.Tokens, w.Limits.Usable)
	require.Greater(t, w.Stored, w.Limits.Usable, "control: they had to make room")
	levels := map[session.Level]int{}
	for i, turn := range w.Turns {
		levels[turn.Level]++
		require.Equal(t, turns[i].Text, must(chat.Recall(ctx, turn.ID))(t).Text)
	}
	require.Positive(t, levels[session.Summary], levels)
	a := must(db.Scope("acme/agent").Assemble(ctx, Query{Text: "anything", Session: chat.ID(), Budget: 6000}))(t)
	replayed(t, db, a)
	forms := 0
	for _, b := range a.Blocks {
		if b.Form.String() == "summary" {
			forms++
		}
	}
	require.Equal(t, levels[session.Summary]+levels[session.Trimmed], forms, "what was made is served")
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
}

func TestBackstop(t *testing.T) {
	db, chat := openTalk(t)
	r := rand.New(rand.NewPCG(9, 9))
	require.ErrorIs(t, chat.SetWindow(ctx, session.Config{Total: -5}), store.ErrInvalid)
	require.ErrorIs(t, errOf(chat.Watch(ctx)), store.ErrInvalid)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 2000, KeepLast: 2}))
	for range 30 { // nobody watches: each commit sees to itself
		must(chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, 60)}))(t)
		w := must(chat.Inspect(ctx))(t)
		require.LessOrEqual(t, w.Tokens, w.Limits.Usable)
	}
	passes := must(chat.Passes(ctx))(t)
	require.NotEmpty(t, passes)
	require.Equal(t, session.PassBackstop, passes[0].Kind)

	// One large result is stored cold or as a stub and costs the others no more than that.
	refs := must(chat.Append(ctx, Turn{Role: "assistant", ToolCalls: []store.ToolCall{{ID: "c1", Name: "cat"}}}, Turn{Role: "tool", ToolCallID: "c1", Text: longProse(r, 3000)}))(t)
	w := must(chat.Inspect(ctx))(t)
	last := w.Turns[len(w.Turns)-1]
	require.Equal(t, refs[1].ID, last.ID)
	require.Equal(t, session.Stub, last.Level)
	require.Greater(t, must(chat.Recall(ctx, refs[1].ID))(t).Tokens, w.Limits.Usable)

	// A trial says so and leaves no trace.
	require.Positive(t, must(chat.Try(ctx, Turn{Role: "assistant", Text: longProse(r, 300)}))(t).Items)
	require.ErrorIs(t, errOf(chat.Try(ctx, Turn{Role: "user", Text: longProse(r, 2000)})), session.ErrHeadroom)
	require.Equal(t, w, must(chat.Inspect(ctx))(t))

	// What is protected cannot be pushed out, and nothing of the refused commit stays.
	_, err := chat.Append(ctx, Turn{Role: "user", Text: "small"}, Turn{Role: "user", Text: longProse(r, 2000)})
	var short *session.HeadroomError
	require.ErrorAs(t, err, &short)
	require.ErrorIs(t, err, session.ErrHeadroom)
	require.Positive(t, short.Shortfall)
	same := must(chat.Inspect(ctx))(t)
	require.Equal(t, w.Turns, same.Turns)
	require.ErrorIs(t, chat.Pin(ctx, refs[1].ID), session.ErrHeadroom)

	// The truth about tokens is kept even where it bursts the window, and the next commit sees to it.
	require.NoError(t, chat.Observe(ctx, 1000, 1300))
	same = must(chat.Inspect(ctx))(t)
	require.LessOrEqual(t, same.Tokens, same.Limits.Usable)
	must(db.Scope("acme/agent").Assemble(ctx, Query{Text: "anything", Budget: 4000, Session: "chat"}))(t)
}

// A power cut at any byte of a pass leaves the window before it, or after it, never between.
func TestPassCrash(t *testing.T) {
	t.Parallel()
	path, crashed := filepath.Join(t.TempDir(), "agent.ctx"), filepath.Join(t.TempDir(), "agent.ctx")
	// In a bubble no time passes, so no checkpoint runs between a pass and the cut.
	synctest.Test(t, func(t *testing.T) { crashPasses(t, path, crashed) })
}

func crashPasses(t *testing.T, path, crashed string) {
	ctx := t.Context()
	db, chat, w := watched(t, path, Options{}, busy)
	for _, pass := range []func() error{
		func() error {
			_, err := w.Apply(ctx, mustPlan(t, w, db.opts.Clock()))
			return err
		},
		func() error {
			_, err := chat.Pass(ctx, session.PassQuery{Keywords: []string{"file"}})
			return err
		},
		func() error {
			_, err := chat.Undo(ctx, 0)
			return err
		},
	} {
		before, start := windowOf(t, chat), logSize(t, path)
		require.NoError(t, pass())
		after, end := windowOf(t, chat), logSize(t, path)
		require.NotEqual(t, before, after)
		seen := map[bool]int{}
		for k := range 14 {
			cut := start + k*(end-start)/12
			copyCut(t, path, crashed, cut)
			opts := talkOptions()
			opts.Exclusive = true
			db := openTest(t, crashed, opts)
			seen[assertEither(t, before, after, windowOf(t, db.Scope("acme/agent").Session("chat")))]++
			require.NoError(t, db.Close())
		}
		require.NotZero(t, seen[false])
		require.NotZero(t, seen[true], "the whole record is the pass")
	}
	require.NoError(t, db.Close())
}

func windowOf(t *testing.T, chat *Session) []session.WindowTurn {
	t.Helper()
	return must(chat.Inspect(context.Background()))(t).Turns
}

func assertEither(t *testing.T, before, after, got []session.WindowTurn) bool {
	t.Helper()
	if fmt.Sprint(got) == fmt.Sprint(after) {
		return true
	}
	require.Equal(t, before, got)
	return false
}

// logFile is the last segment of the log.
func logFile(t *testing.T, path string) string {
	t.Helper()
	files := must(filepath.Glob(path + "-wal/*.wal"))(t)
	require.NotEmpty(t, files)
	return files[len(files)-1]
}

// logSize is where the log's zeros begin.
func logSize(t *testing.T, path string) int {
	t.Helper()
	return len(strings.TrimRight(string(must(os.ReadFile(logFile(t, path)))(t)), "\x00"))
}

// copyCut copies a database as it is on disk, its log zeroed from a byte on.
func copyCut(t *testing.T, from, to string, cut int) {
	t.Helper()
	require.NoError(t, os.RemoveAll(to+"-wal"))
	require.NoError(t, os.RemoveAll(to+"-manifest"))
	require.NoError(t, dbtest.Copy(from, to))
	log := logFile(t, to)
	b := must(os.ReadFile(log))(t)
	clear(b[min(cut, len(b)):])
	require.NoError(t, os.WriteFile(log, b, 0o600))
}

// busybody is a summariser during whose work another turn always comes in.
type busybody struct {
	shorter
	chat *Session
}

func (b *busybody) Summarize(ctx context.Context, text string, tokens int) (string, error) {
	if _, err := b.chat.Append(ctx, Turn{Role: "user", Text: "And then?"}); err != nil {
		return "", err
	}
	return b.shorter.Summarize(ctx, text, tokens)
}

// A session that is written to without a pause is compacted by its watcher all the same, not by the commits.
func TestWatchUnderConstantWrites(t *testing.T) {
	by := &busybody{}
	opts := talkOptions()
	opts.Summarizer = by
	opts.Exclusive = true
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), opts)
	defer func() { require.NoError(t, db.Close()) }()
	chat := db.Scope("acme/agent").Session("chat")
	by.chat = chat
	require.NoError(t, chat.SetWindow(ctx, busy))
	w := must(chat.Watch(ctx))(t)
	r := rand.New(rand.NewPCG(3, 3))
	var st session.WatchStats
	for st.Actual <= st.Limits.Trigger {
		must(chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, 200)}))(t)
		st = must(w.Stats(ctx))(t)
	}
	events := must(w.Step(ctx, db.opts.Clock()))(t)
	require.NotZero(t, by.calls)
	require.Equal(t, session.EventApplied, events[len(events)-2].Kind)
	st = must(w.Stats(ctx))(t)
	require.EqualValues(t, 1, st.Counters.Passes)
	require.LessOrEqual(t, st.Actual, st.Limits.Target)
}

// firstFails is a store that fails the first commit under a context that names it.
type firstFails struct {
	store.Store
	once sync.Once
}

func (s *firstFails) Commit(ctx context.Context, b store.Batch) (out store.Outcome, err error) {
	if ctx.Value(s) != nil {
		if s.once.Do(func() { err = errors.New("the disk is on fire") }); err != nil {
			return out, err
		}
	}
	return s.Store.Commit(ctx, b)
}

// A pass that fails is not one that finds nothing to compact: who asks why the window is full is told the error.
func TestWatchSaysWhyAPassFailed(t *testing.T) {
	st := &firstFails{}
	db, _, w := watched(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{}, busy, func(inner store.Store) store.Store {
		st.Store = inner
		return st
	})
	events := w.Events()
	require.ErrorContains(t, errOf(w.Step(context.WithValue(ctx, st, true), db.opts.Clock())), "on fire")
	for e := range events {
		if e.Kind == session.EventBlocked {
			require.Equal(t, "the pass failed: the disk is on fire", e.Reason)
			break
		}
	}
	must(w.Step(ctx, db.opts.Clock().Add(time.Minute)))(t)
	stats := must(w.Stats(ctx))(t)
	require.EqualValues(t, 1, stats.Counters.Passes)
	require.NoError(t, db.Close())
}

// overtaken is a store that lets somebody else make room between a look in the background and the pass that it decides on.
type overtaken struct {
	store.Store
	once sync.Once
	room func()
}

func (s *overtaken) State(ctx context.Context, key string) (store.StateRow, error) {
	row, err := s.Store.State(ctx, key)
	if strings.HasPrefix(key, conversation.WatchRowKey) && ctx.Value(s) == nil { // the last row of a look in the background
		s.once.Do(s.room)
	}
	return row, err
}

// A look that somebody else's pass overtakes finds nothing to compact. That is no reason to back off: until the back-off ended,
// commits would have to make room, as when Close looks again after a pass whose outcome it does not know.
func TestWatchIsOvertaken(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{Exclusive: true})
	chat := db.Scope("acme/agent").Session("chat")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000, KeepLast: 2}))
	r := rand.New(rand.NewPCG(1, 2))
	appendUntil := func(enough func(*session.Inspection) bool) {
		for !enough(must(chat.Inspect(ctx))(t)) {
			must(chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, 30)}))(t)
		}
	}
	full := func(w *session.Inspection) bool { return w.Tokens > w.Limits.Trigger }
	appendUntil(full)
	looked := make(chan struct{})
	var w *Watcher
	st := &overtaken{Store: db.sessions.Store, room: func() {
		must(w.Apply(ctx, mustPlan(t, w, db.opts.Clock())))(t)
		close(looked)
	}}
	db.sessions.Store = st
	foreground := context.WithValue(ctx, st, true)
	w = must(chat.Watch(foreground))(t)
	require.NoError(t, w.Start(foreground))
	<-looked
	w.Stop() // waits for the look
	stats := must(w.Stats(ctx))(t)
	require.LessOrEqual(t, stats.Actual, stats.Limits.Target)
	require.Zero(t, stats.Counters.Blocked)
	require.NotEqual(t, "blocked", stats.Phase)

	appendUntil(full) // control: the next pass is due at once
	must(w.Step(ctx, db.opts.Clock()))(t)
	require.Equal(t, 1, must(w.Stats(ctx))(t).Counters.Passes)
	require.NoError(t, db.Close())
}

// openBackground opens a database whose owner watches.
func openBackground(t *testing.T, path string, opts Options) *DB {
	t.Helper()
	return must(Open(path, opts))(t)
}

// kindsOf counts the passes of a session by kind.
func kindsOf(t *testing.T, chat *Session) map[string]int {
	t.Helper()
	passes := must(chat.Passes(context.Background()))(t)
	out := map[string]int{}
	for _, p := range passes {
		out[p.Kind]++
	}
	return out
}

// Whoever appends, the owner makes room ahead of need, and a session that is at rest costs nothing.
//
// It has no goroutine for that between two told rows. The control is a store that cannot call when one was written.
func TestOwnerWatchesAllSessions(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db := openBackground(t, filepath.Join(dir, "agent.ctx"), Options{Exclusive: true})
		defer func() { require.NoError(t, db.Close()) }()
		r := rand.New(rand.NewPCG(1, 2))
		var chats []*Session
		for i := range 40 {
			chats = append(chats, db.Scope("acme/agent").Session(fmt.Sprint("chat ", i)))
			require.NoError(t, chats[i].SetWindow(ctx, session.Config{Total: 4000, Reserve: 300_000, KeepLast: 2}))
		}
		following := func() bool {
			synctest.Wait()
			stacks := make([]byte, 1<<20)
			return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*keeper).run(")
		}
		require.False(t, following(), "at rest")
		control := must(Open("in memory", Options{Store: must(storetest.NewMemory(storetest.Config{State: StateKinds()}))(t)}))(t)
		require.True(t, following(), "the control")
		require.NoError(t, control.Close())
		goroutines := runtime.NumGoroutine()
		for range 60 {
			for _, chat := range chats[:4] {
				must(chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, 30)}))(t)
			}
			synctest.Wait()
		}
		for _, chat := range chats[:4] {
			kinds := kindsOf(t, chat)
			require.NotZero(t, kinds[session.PassWatcher])
			require.Zero(t, kinds[session.PassBackstop], "commits need not make room themselves")
			w := must(chat.Inspect(ctx))(t)
			require.LessOrEqual(t, w.Tokens, w.Limits.Usable)
			require.Equal(t, 2800, w.Limits.Usable, "a reserve set alone")
		}
		require.Less(t, runtime.NumGoroutine()-goroutines, len(chats)/2, "no goroutine for a session")
		require.False(t, following(), "at rest again")
	})
}

// A process that does not own the files appends; the owner makes room, releases the turns that it loaded for that, and
// the process follows what happened.
func TestOwnerWatchesForClients(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	host := openBackground(t, path, Options{})
	defer func() { require.NoError(t, host.Close()) }()
	client := openBackground(t, path, Options{})
	defer func() { require.NoError(t, client.Close()) }()
	require.True(t, host.owns())
	require.False(t, client.owns())
	chat := client.Scope("acme/agent").Session("chat")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000, KeepLast: 2}))
	w := must(chat.Watch(ctx))(t)
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[session.EventKind]int{}
	for range 10 {
		fill(t, chat, r, 30)
		for e := range w.Events() { // the owner works while we wait
			seen[e.Kind]++
			if e.Kind == session.EventHeadroomOK {
				break
			}
		}
	}
	kinds := kindsOf(t, chat)
	require.Equal(t, map[string]int{session.PassWatcher: 10}, kinds)
	require.Equal(t, map[session.EventKind]int{session.EventWarn: 10, session.EventPlanned: 10, session.EventApplied: 10, session.EventHeadroomOK: 10}, seen)
	st := must(w.Stats(ctx))(t)
	require.Equal(t, 10, st.Counters.Passes)
	require.Zero(t, st.Dropped)
	require.False(t, st.Running, "not in this process")
	require.Eventually(t, func() bool { return !host.sessions.Of("acme/agent", "chat").Loaded() }, time.Minute, time.Millisecond, "released after the look")

	// What was undone is not done again at once.
	fill(t, chat, r, 30)
	for e := range w.Events() {
		if e.Kind == session.EventHeadroomOK {
			break
		}
	}
	must(chat.Undo(ctx, 0))(t)
	require.Equal(t, session.EventUndone, (<-w.Events()).Kind)
	must(chat.Append(ctx, Turn{Role: "user", Text: "And?"}))(t)
	require.Equal(t, session.EventWarn, (<-w.Events()).Kind)
	require.Equal(t, 11, kindsOf(t, chat)[session.PassWatcher])

	// The client that takes the place of the owner goes on.
	require.NoError(t, host.Close())
	later := client.Scope("acme/agent").Session("later")
	require.NoError(t, later.SetWindow(ctx, session.Config{Total: 4000, KeepLast: 2}))
	require.Eventually(t, client.owns, time.Minute, time.Millisecond) // its own server may have answered a moment before
	w = must(later.Watch(ctx))(t)
	fill(t, later, r, 30)
	for e := range w.Events() {
		if e.Kind == session.EventHeadroomOK {
			break
		}
	}
	require.Equal(t, map[string]int{session.PassWatcher: 1}, kindsOf(t, later))
}

// fill appends to a session at rest until a turn takes its window above the trigger, whatever the owner does then.
func fill(t *testing.T, chat *Session, r *rand.Rand, words int) {
	t.Helper()
	for {
		before := must(chat.Inspect(ctx))(t)
		must(chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, words)}))(t)
		after := must(chat.Inspect(ctx))(t)
		if before.Tokens+after.Stored-before.Stored > before.Limits.Trigger {
			return
		}
	}
}

// hung is a summarizer that does not answer.
type hung struct{ shorter }

func (h *hung) Summarize(ctx context.Context, _ string, _ int) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// A process that starts a watcher is asked, so its summarizer writes the summaries. When it does nothing, or ends, the owner
// does the work.
func TestOwnerAsksTheHolder(t *testing.T) {
	path, other := filepath.Join(t.TempDir(), "agent.ctx"), filepath.Join(t.TempDir(), "other.ctx")
	host := openBackground(t, path, Options{SummarizeTimeout: time.Hour})
	defer func() { require.NoError(t, host.Close()) }()
	by := &shorter{}
	client := openBackground(t, path, Options{Summarizer: by})
	defer func() { _ = client.Close() }()
	hasty := openBackground(t, other, Options{SummarizeTimeout: 50 * time.Millisecond})
	defer func() { require.NoError(t, hasty.Close()) }()
	idle := openBackground(t, other, Options{Summarizer: &hung{}})
	defer func() { _ = idle.Close() }()
	r := rand.New(rand.NewPCG(1, 2))
	pass := func(by *DB, chat *Session) (events []session.Event) {
		t.Helper()
		w := must(chat.Watch(ctx))(t)
		if by != nil {
			require.NoError(t, must(by.Scope("acme/agent").Session(chat.ID()).Watch(ctx))(t).Start(ctx))
			require.NotEmpty(t, must(w.Stats(ctx))(t).Holder)
		}
		passes := kindsOf(t, chat)[session.PassWatcher]
		fill(t, chat, r, 300) // long enough for a summary
		for e := range w.Events() {
			// An event of the pass before may come late.
			if events = append(events, e); e.Kind == session.EventHeadroomOK && kindsOf(t, chat)[session.PassWatcher] > passes {
				return events
			}
		}
		return nil
	}
	chat := func(of *DB) *Session {
		c := of.Scope("acme/agent").Session("chat")
		require.NoError(t, c.SetWindow(ctx, session.Config{Total: 60_000, KeepLast: 2}))
		return c
	}
	one := chat(host)
	pass(client, one)
	require.NotZero(t, by.calls)
	_ = pass(idle, chat(hasty)) // ends only because the owner takes over
	w := must(one.Watch(ctx))(t)
	require.NoError(t, client.Close())
	require.Empty(t, must(w.Stats(ctx))(t).Holder, "a process that ends lets go")
	calls := by.calls
	pass(nil, one)
	require.Equal(t, calls, by.calls)
	require.Equal(t, map[string]int{session.PassWatcher: 2}, kindsOf(t, one))
}

// forgetful is a store that tells nobody of commits, and in the end that there were too many to tell.
type forgetful struct{ store.Store }

func (s forgetful) Changes(ctx context.Context, after uint64, wait time.Duration) (store.Changes, error) {
	if wait > 0 {
		<-ctx.Done()
		return store.Changes{}, ctx.Err()
	}
	return store.Changes{LSN: s.Mark().LSN, AllTold: true}, nil
}

func (forgetful) Close() error { return nil } // another opens it

// Close reads what it watches itself if too many commits came to be told one by one, though the work in the background has ended.
func TestCloseLooksAtAllThatWasNotTold(t *testing.T) {
	st := forgetful{must(storetest.NewMemory(storetest.Config{State: StateKinds()}))(t)}
	db := must(Open("in memory", Options{Store: st}))(t)
	chat := db.Scope("acme/agent").Session("chat")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000, KeepLast: 2}))
	prose := strings.Repeat("Look at the next file, and say what is wrong in it. ", 12)
	for w := must(chat.Inspect(ctx))(t); w.Tokens <= w.Limits.Trigger; w = must(chat.Inspect(ctx))(t) {
		must(chat.Append(ctx, Turn{Role: "assistant", Text: prose}))(t)
	}
	require.Empty(t, must(chat.Passes(ctx))(t))
	require.NoError(t, db.Close())

	db = must(Open("in memory", Options{Store: st, NoWatch: true}))(t)
	passes := must(db.Scope("acme/agent").Session("chat").Passes(ctx))(t)
	require.Len(t, passes, 1)
	require.Equal(t, session.PassWatcher, passes[0].Kind)
	require.NoError(t, db.Close())
}

// A process that lives for one append makes the pass that is due before it ends.
func TestCloseMakesThePassThatIsDue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 60 {
		db := openBackground(t, path, Options{})
		chat := db.Scope("acme/agent").Session("chat")
		if n == 0 {
			require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000, KeepLast: 2}))
		}
		must(chat.Append(ctx, Turn{Role: "assistant", Text: longProse(r, 30)}))(t)
		require.NoError(t, db.Close())
	}
	db := openBackground(t, path, Options{NoWatch: true})
	defer func() { require.NoError(t, db.Close()) }()
	kinds := kindsOf(t, db.Scope("acme/agent").Session("chat"))
	require.NotZero(t, kinds[session.PassWatcher])
	require.Zero(t, kinds[session.PassBackstop])
}
