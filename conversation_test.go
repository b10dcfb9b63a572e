package ctxpage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

var (
	talkOps  = flag.Int("talk.ops", dbtest.Size(80, 250), "how many operations TestConversationFollows does with each seed")
	talkSeed = flag.Uint64("talk.seed", 1, "its first seed")
)

// What a session keeps in memory follows what happens, whoever does it: the sum of the window and the list of what is in
// it are those of all turns, and all of it is what a process that begins now reads from the store.
func TestConversationFollows(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(*talkSeed+seed), func(t *testing.T) {
			t.Parallel()
			f := &talker{t: t, r: rand.New(rand.NewPCG(*talkSeed+seed, 7)), now: dbtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), did: map[string]int{}}
			db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{Clock: f.now.Now})
			f.db, f.s = db, db.Scope("acme/agent")
			f.chat, f.other = f.s.Session("chat"), f.s.Session("other")
			for range *talkOps {
				f.now.Add(time.Duration(f.r.IntN(100)) * time.Second)
				f.operate()
				f.compare()
			}
			t.Log(f.did)
			require.Empty(t, must(db.Admin().Check(context.Background(), nil))(t))
			require.NoError(t, db.Close())
		})
	}
}

type talker struct {
	t           *testing.T
	r           *rand.Rand
	now         *dbtest.Clock
	db          *DB
	s           *Scope
	chat, other *Session
	ids         []string // of turns and pages that were in the session once
	calls       int
	puts        int
	last        string         // operation
	did         map[string]int // operations that went well
}

// endingContext ends when it was asked so many times.
type endingContext struct {
	context.Context
	mu   sync.Mutex
	left int
	done chan struct{}
}

func endAfter(n int) *endingContext {
	return &endingContext{Context: context.Background(), left: n, done: make(chan struct{})}
}

func (c *endingContext) Done() <-chan struct{} {
	_ = c.Err()
	return c.done
}

func (c *endingContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		close(c.done)
	}
	if c.left <= 0 {
		return context.Canceled
	}
	return nil
}

func (f *talker) any() string {
	if len(f.ids) == 0 {
		return "nobody"
	}
	return f.ids[f.r.IntN(len(f.ids))]
}

func (f *talker) operate() {
	var ctx context.Context = context.Background()
	if f.r.IntN(8) == 0 {
		ctx = endAfter(1 + f.r.IntN(40))
	}
	ops := []struct {
		name   string
		weight int
		do     func(ctx context.Context) error
	}{
		{"append", 30, f.append},
		{"try", 2, func(ctx context.Context) error {
			_, err := f.chat.Try(ctx, f.turns()...)
			return err
		}},
		{"recall", 5, func(ctx context.Context) error {
			_, err := f.chat.Recall(ctx, f.any())
			return err
		}},
		{"pin", 5, func(ctx context.Context) error { return f.chat.Pin(ctx, f.any()) }},
		{"unpin", 5, func(ctx context.Context) error { return f.chat.Unpin(ctx, f.any()) }},
		{"pass", 5, f.pass},
		{"undo", 5, f.undo},
		{"window", 4, func(ctx context.Context) error {
			if f.r.IntN(4) == 0 {
				return f.chat.SetWindow(ctx, session.Config{})
			}
			return f.chat.SetWindow(ctx, session.Config{Total: 3000 + f.r.IntN(3000), UserCap: 600, KeepLast: f.r.IntN(4)})
		}},
		{"observe", 2, func(ctx context.Context) error { return f.chat.Observe(ctx, 1000, 1000+f.r.IntN(300)) }},
		{"watch", 8, f.watch},
		{"put", 15, f.put},
		{"delete", 3, func(ctx context.Context) error { return f.s.Delete(ctx, f.any()) }},
		{"gc", 1, func(ctx context.Context) error {
			_, err := f.db.Admin().GC(ctx, GCOptions{KeepFor: -1, Expired: f.r.IntN(2) == 0})
			return err
		}},
		{"handoff", 1, f.handoff},
		{"forget", 1, f.forget},
	}
	total := 0
	for _, op := range ops {
		total += op.weight
	}
	at := f.r.IntN(total)
	for _, op := range ops {
		if at -= op.weight; at < 0 {
			f.last = op.name
			err := op.do(ctx)
			if err == nil {
				f.did[op.name]++
				return
			}
			for _, want := range []error{
				session.ErrHeadroom, session.ErrUndo, session.ErrGeneration, store.ErrNotFound, store.ErrGone, context.Canceled, store.ErrInvalid, store.ErrExpired, store.ErrOutcomeUnknown,
			} {
				if errors.Is(err, want) {
					f.last += ": " + err.Error()
					f.did[op.name+" refused"]++
					return
				}
			}
			require.NoError(f.t, err, op.name)
		}
	}
}

func (f *talker) turns() (out []Turn) {
	for range 1 + f.r.IntN(2) {
		switch f.r.IntN(4) {
		case 0:
			out = append(out, Turn{Role: "user", Text: longProse(f.r, 5+f.r.IntN(60))})
		case 1:
			out = append(out, Turn{Role: "assistant", Text: longProse(f.r, 10+f.r.IntN(600))}) // also of several pages
		default:
			f.calls++
			id := fmt.Sprint("c", f.calls)
			out = append(out, Turn{Role: "assistant", ToolCalls: []store.ToolCall{{ID: id, Name: "grep"}, {ID: id + "b", Name: "grep"}}})
			for _, id := range []string{id, id + "b"} {
				out = append(out, Turn{Role: "tool", ToolCallID: id, Text: longProse(f.r, 20+f.r.IntN(200))})
			}
		}
	}
	return out
}

func (f *talker) append(ctx context.Context) error {
	turns := f.turns()
	if f.r.IntN(10) == 0 {
		turns = append(turns, Turn{Role: "nobody"}) // refused when the others are on their way
	}
	refs, err := f.chat.Append(ctx, turns...)
	for _, ref := range refs {
		f.ids = append(f.ids, ref.ID)
	}
	return err
}

func (f *talker) pass(ctx context.Context) error {
	q := session.PassQuery{Keywords: []string{fmt.Sprint("w", f.r.IntN(5000))}, DryRun: f.r.IntN(5) == 0}
	if f.r.IntN(2) == 0 {
		q.Params = session.CompatParams()
	}
	if f.r.IntN(3) == 0 {
		q.Head = int64(f.r.IntN(50))
	}
	_, err := f.chat.Pass(ctx, q)
	return err
}

func (f *talker) undo(ctx context.Context) error {
	n := uint64(0)
	if passes, err := f.chat.Passes(context.Background()); err == nil && len(passes) > 0 && f.r.IntN(2) == 0 {
		n = passes[f.r.IntN(len(passes))].Number
	}
	_, err := f.chat.Undo(ctx, n)
	return err
}

func (f *talker) watch(ctx context.Context) error {
	w, err := f.chat.Watch(ctx)
	if err != nil {
		return err
	}
	if f.r.IntN(2) == 0 {
		_, err := w.Step(ctx, f.now.Now())
		return err
	}
	plan, err := w.Plan(ctx, f.now.Now())
	if err != nil {
		return err
	}
	if len(plan.Items) > 1 && f.r.IntN(2) == 0 { // somebody made less of it, or more
		plan.Items = plan.Items[:1+f.r.IntN(len(plan.Items)-1)]
	}
	if len(plan.Items) > 0 && f.r.IntN(6) == 0 {
		plan.Items[len(plan.Items)-1].From = session.Stub // what is before it is carried out, then it fails
	}
	_, err = w.Apply(ctx, plan)
	return err
}

// put writes past the session.
func (f *talker) put(ctx context.Context) error {
	f.puts++
	a := Artefact{ID: fmt.Sprint("put-", f.puts), Kind: store.KindMessage, Role: "user", Group: "chat", Seq: int64(f.r.IntN(80)), Text: longProse(f.r, 5+f.r.IntN(60))}
	switch f.r.IntN(8) {
	case 0, 1:
		a.ID = f.any()
	case 2:
		a.ID, a.Group = f.any(), "other"
	case 3:
		a.Supersedes = []string{f.any()}
	case 4: // retired by what is in no session
		a.Supersedes, a.Group, a.Kind, a.Role = []string{f.any()}, "", store.KindFact, ""
	case 5:
		a.ExpiresAt = f.now.Now().Add(time.Minute)
	case 6:
		a.Kind, a.Role, a.Text = store.KindFact, "", longProse(f.r, 900)
	case 7:
		a.Role, a.ToolCallID = "tool", fmt.Sprint("c", 1+f.r.IntN(f.calls+1))
	}
	if a.ID == "nobody" {
		return store.ErrNotFound
	}
	_, err := f.s.Put(ctx, a)
	if f.ids = append(f.ids, a.ID); f.r.IntN(4) == 0 { // as a checkpoint must not matter
		_, cerr := f.db.Admin().Checkpoint(context.Background())
		err = errors.Join(err, cerr)
	}
	return err
}

func (f *talker) handoff(ctx context.Context) error {
	if _, err := f.other.Append(context.Background(), f.turns()...); err != nil {
		return err
	}
	p, err := f.chat.Handoff(ctx, "night")
	if err == nil {
		_, err = f.other.Receive(ctx, p)
	}
	if err != nil {
		return err
	}
	if p, err = f.other.Handoff(ctx, "day"); err != nil {
		return err
	}
	refs, err := f.chat.Receive(ctx, p)
	for _, ref := range refs {
		f.ids = append(f.ids, ref.ID)
	}
	return err
}

func (f *talker) forget(context.Context) error {
	conv, err := f.chat.conversation()
	if err != nil {
		return err
	}
	for i := range 3 * conversation.Kept {
		f.db.sessions.Of("acme/agent", fmt.Sprint("passing by ", f.did["forget"], i))
	}
	require.False(f.t, conv.Loaded())
	require.Zero(f.t, cap(conv.Numbers.Free)+cap(conv.Alone.Free), "memory that a session which is not used keeps")
	return nil
}

// compare holds the memory against itself and against the store.
func (f *talker) compare() {
	t, ctx := f.t, context.Background()
	conv := must(f.chat.conversation())(t)
	if f.r.IntN(3) == 0 {
		return // several operations together
	}
	must(f.db.store.Head(ctx))(t) // nothing is on its way
	require.NoError(t, conv.Exclusively(ctx, func() error {
		followed, sum := conv.MakeWindow().Sections, conv.Tokens()
		if conv.Win.At == conv.Rev {
			require.Equal(t, followed, conv.Win.Value.Sections, f.last)
		}
		anew := conversation.NewSessions(f.db.sessions.Host).Of(conv.Scope, conv.ID)
		anew.Reads = conv.Reads
		require.NoError(t, anew.Exclusively(ctx, func() error { return nil }))
		require.True(t, slices.Equal(anew.Keys, conv.Keys), f.last)
		require.Equal(t, anew.Tokens(), sum, f.last)
		for id := range conv.Rows {
			if anew.Rows[id] == nil && !conv.Unsaved[id] {
				require.Fail(t, "a row that is not stored and that no commit will bring", "%s, %s", id, f.last)
			}
		}
		require.Equal(t, anew.MakeWindow().Sections, followed, f.last)
		for i := range anew.Blocks {
			is, was := anew.Blocks[i], conv.Blocks[i]
			is.Row, was.Row = nil, nil
			require.Equal(t, is, was, f.last)
		}
		return nil
	}))
}

// headStore counts the heads that were read.
type headStore struct {
	store.Store
	heads int
}

func (s *headStore) Load(ctx context.Context, in store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	if want == store.WantHead {
		s.heads += len(keys)
	}
	return s.Store.Load(ctx, in, keys, want)
}

// A turn that this process appended need not be read back, unless another commit came after it: that may have put something
// else in its place.
func TestOwnTurnIsNotReadBack(t *testing.T) {
	mem := must(storetest.NewMemory(storetest.Config{State: StateKinds()}))(t)
	st := &headStore{Store: mem}
	db := must(Open("in memory", Options{Store: st}))(t)
	t.Cleanup(func() { _ = db.Close() })
	s := db.Scope("acme/agent")
	chat := s.Session("chat")
	conv := must(chat.conversation())(t)
	turns := func() (out []string) {
		require.NoError(t, conv.Exclusively(ctx, func() error {
			for i := range conv.Blocks {
				out = append(out, conv.Blocks[i].ID)
			}
			return nil
		}))
		return out
	}
	say := func(id string) {
		must(chat.Append(ctx, Turn{ID: id, Role: "user", Text: "I say " + id}))(t)
	}
	say("a")
	say("b")
	require.Equal(t, []string{"a", "b"}, turns())
	require.Zero(t, st.heads)

	say("c")
	must(s.Put(ctx, Artefact{ID: "note", Text: "of no conversation"}))(t)
	require.Equal(t, []string{"a", "b", "c"}, turns())
	require.Equal(t, 1, st.heads, "control: another commit came after it")

	say("d")
	require.NoError(t, s.Delete(ctx, "d"))
	must(s.Put(ctx, Artefact{ID: "e", Text: "in its place", Kind: store.KindMessage, Role: "user", Group: "chat", Seq: 4}))(t)
	require.Equal(t, []string{"a", "b", "c", "e"}, turns())
}

// A process that stops while it reads a session anew, because another process changed it, shows it as it is the next time. It
// had the turns twice once, and refused to append because of them.
func TestSessionReadAgainAfterItsContextEnded(t *testing.T) {
	mem := must(storetest.NewMemory(storetest.Config{State: StateKinds()}))(t)
	var chats []*Session
	for range 2 {
		db := must(Open("in memory", Options{Store: mem}))(t)
		t.Cleanup(func() { _ = db.Close() })
		chats = append(chats, db.Scope("acme/agent").Session("chat"))
	}
	for n := range 10 {
		must(chats[0].Append(ctx, Turn{ID: fmt.Sprint("turn-", n), Role: "user", Text: fmt.Sprint("I say ", n)}))(t)
	}
	must(chats[1].Inspect(ctx))(t)
	ended := 0
	for n := 1; ended == n-1; n++ {
		pin := chats[0].Pin
		if n%2 == 0 {
			pin = chats[0].Unpin
		}
		require.NoError(t, pin(ctx, "turn-3"))
		if _, err := chats[1].Inspect(endAfter(n)); err != nil {
			require.ErrorIs(t, err, context.Canceled)
			ended++
		}
		want := must(chats[0].Inspect(ctx))(t)
		require.Equal(t, want.Turns, must(chats[1].Inspect(ctx))(t).Turns, n)
	}
	require.Greater(t, ended, 3, "control")
}

// A commit whose context ended may happen all the same, and then the session knows of it: what is shown now is what a
// process that begins later reads.
func TestSessionUnknownOutcome(t *testing.T) {
	db, chat := openTalk(t)
	refs := must(chat.Append(ctx, Turn{Role: "user", Text: "Keep this in mind."}))(t)
	id := refs[0].ID
	unknown := 0
	for n := 1; ; n++ {
		err := chat.Pin(endAfter(n), id)
		before := must(chat.Inspect(ctx))(t)
		if errors.Is(err, store.ErrOutcomeUnknown) {
			unknown++
		}
		must(db.store.Head(ctx))(t)
		anew := conversation.NewSessions(db.sessions.Host).Of("acme/agent", "chat")
		require.NoError(t, anew.Exclusively(ctx, func() error { return nil }))
		require.Equal(t, anew.Blocks[0].Row.Pinned, before.Turns[0].Pinned, "%v", err)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.Canceled)
		if before.Turns[0].Pinned {
			require.NoError(t, chat.Unpin(ctx, id))
		}
	}
	if !remoteTests { // a client hears what became of a call that it gave up
		require.Positive(t, unknown)
	}
}

// Members are listed once after they changed, also by who has opened the database since and writes nothing.
func TestMembersAreListedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, talkOptions())
	chat := db.Scope("acme/agent").Session("chat")
	must(chat.Append(ctx, Turn{Role: "user", Text: "Hello."}))(t)
	members := func(known uint64) store.ScanPage {
		page := must(db.store.Scan(ctx, store.ScanQuery{What: store.ScanMembers, Scopes: store.Scopes{"acme/agent"}, Group: "chat", Known: known}))(t)
		return page
	}
	check := func(what string) {
		first := members(0)
		require.Len(t, first.Keys, 1, what)
		again := members(first.LSN)
		require.True(t, again.Same, what)
		require.Empty(t, again.Keys, what)
	}
	check("as it was written")
	require.NoError(t, dbtest.Copy(path, path+".killed"))
	require.NoError(t, db.Close())
	for what, opts := range map[string]Options{"read only": {ReadOnly: true}, "opened": {}} {
		db = openTest(t, path, opts)
		check(what)
		require.NoError(t, db.Close())
	}
	db = openTest(t, path+".killed", Options{})
	check("recovered from the log")
	known := db.store.Mark().LSN
	must(db.Scope("acme/agent").Put(ctx, Artefact{ID: "elsewhere", Text: "No turn."}))(t)
	require.True(t, members(known).Same, "another page")
	require.Empty(t, members(known).Keys, "another page")
	refs := must(db.Scope("acme/agent").Session("chat").Append(ctx, Turn{Role: "user", Text: "And?"}))(t)
	require.Len(t, members(known).Keys, 1, "the new one")
	require.NoError(t, db.Scope("acme/agent").Delete(ctx, refs[0].ID))
	require.False(t, members(known).Same, "one is gone")
	require.NoError(t, db.Close())
}

// A session that somebody works with is one for all, and so is a watched one, however many others were used since.
func TestSessionsHaveOneLock(t *testing.T) {
	db, chat := openTalk(t)
	held := db.sessions.Of("acme/agent", "held")
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 4000}))
	w := must(chat.Watch(ctx))(t)
	other := weak.Make(db.sessions.Of("acme/agent", "other"))
	for i := range 3 * conversation.Kept {
		db.sessions.Of("acme/agent", fmt.Sprint("session ", i))
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return other.Value() == nil // control: nobody holds this one
	}, time.Minute, 10*time.Millisecond)
	require.Same(t, held, db.sessions.Of("acme/agent", "held"))
	require.Same(t, w.in, must(chat.Watch(ctx))(t).in)
	runtime.KeepAlive(held)
}

// Many use more sessions than are kept, at the same time, and no turn is lost.
func TestSessionsBesideEachOther(t *testing.T) {
	db, _ := openTalk(t)
	const sessions, writers, rounds = 2 * conversation.Kept, 4, 2
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for n := range rounds * sessions {
				must(db.Scope("acme/agent").Session(fmt.Sprint("s", n%sessions)).Append(ctx, Turn{Role: "user", Text: "hello"}))(t)
				if n%50 == 0 {
					runtime.GC()
				}
			}
		})
	}
	wg.Wait()
	for i := range sessions {
		w := must(db.Scope("acme/agent").Session(fmt.Sprint("s", i)).Inspect(ctx))(t)
		require.Len(t, w.Turns, writers*rounds)
		require.Equal(t, int64(writers*rounds), w.Turns[len(w.Turns)-1].Seq)
	}
}

// longTalk is a session of ten thousand turns of some fifty words.
func longTalk(b *testing.B, path string) (*DB, *Session) {
	b.Helper()
	db := must(Open(path, Options{}))(b)
	chat := db.Scope("acme/agent").Session("chat")
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		turns := make([]Turn, 500)
		for i := range turns {
			turns[i] = Turn{Role: []string{"user", "assistant"}[i%2], Name: "Ann", Text: longProse(r, 50)}
		}
		must(chat.Append(context.Background(), turns...))(b)
	}
	return db, chat
}

func twelve(i int) session.PassQuery {
	q := session.PassQuery{}
	for k := range 12 {
		q.Keywords = append(q.Keywords, fmt.Sprint("w", (i*31+k*97)%5000))
	}
	return q
}

func BenchmarkSession(b *testing.B) {
	path := filepath.Join(b.TempDir(), "agent.ctx")
	db, chat := longTalk(b, path)
	b.Run("pass/turns=10k/words=12", func(b *testing.B) {
		faults := db.table.stats().Faults
		for i := 0; b.Loop(); i++ {
			require.Len(b, must(chat.Pass(ctx, twelve(i)))(b).Verdicts, 10_000)
		}
		require.Equal(b, faults, db.table.stats().Faults)
	})
	b.Run("assemble/turns=10k/budget=8k", func(b *testing.B) {
		for b.Loop() {
			must(db.Scope("acme/agent").Assemble(ctx, Query{Text: "w17 w100", Budget: 8000, Session: "chat"}))(b)
		}
	})
	require.NoError(b, db.Close())
	b.Run("open+pass/turns=10k", func(b *testing.B) {
		first := time.Duration(0)
		for i := 0; b.Loop(); i++ {
			db := must(Open(path, Options{}))(b)
			start := time.Now()
			must(db.Scope("acme/agent").Session("chat").Pass(ctx, twelve(i+1)))(b)
			first += time.Since(start)
			require.Zero(b, db.table.stats().Faults)
			require.NoError(b, db.Close())
		}
		b.ReportMetric(float64(first.Microseconds())/1e3/float64(b.N), "ms/first-pass")
	})
	db = must(Open(path, Options{}))(b)
	defer db.Close()
	chat = db.Scope("acme/agent").Session("chat")
	b.Run("append/turns=10k", func(b *testing.B) { // last: it makes the session longer
		for b.Loop() {
			must(chat.Append(ctx, Turn{Role: "assistant", Text: "short"}))(b)
		}
	})
}

// BenchmarkLongSession: what is done with a session must cost what its window costs, some ten thousand turns, and not what
// its history costs, ten times as many. Assembly and append are measured as the session grows; from 10,000 turns on the
// window is full, and their cost must stay where it is.
func BenchmarkLongSession(b *testing.B) {
	db := must(Open(dbtest.MemoryPath(b), Options{}))(b)
	defer db.Close()
	chat := db.Scope("acme/agent").Session("chat")
	require.NoError(b, chat.SetWindow(ctx, session.Config{Total: 725_000}))
	w := must(chat.Watch(ctx))(b)
	r := rand.New(rand.NewPCG(1, 2))
	run := func(name string, op func(i int) error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			runtime.GC()
			cpu := cpuTime(b)
			for i := 0; b.Loop(); i++ {
				require.NoError(b, op(i))
			}
			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
	assemble := func(int) error {
		_, err := db.Scope("acme/agent").Assemble(ctx, Query{Text: "w17 w100", Budget: 8000, Session: "chat"})
		return err
	}
	texts := make([]string, 64)
	for i := range texts {
		texts[i] = longProse(r, 25)
	}
	grown := 0
	for _, turns := range []int{1_000, 10_000, 100_000} {
		grown = growTalk(b, chat, w, r, grown, turns)
		st := must(w.Stats(ctx))(b)
		b.Logf("%d sections in the window of %d turns", st.Analysis.Items, turns)
		run(fmt.Sprintf("assemble/budget=8k/turns=%dk", turns/1000), assemble)
		run(fmt.Sprintf("append/turns=%dk", turns/1000), func(i int) error { // it makes the session a little longer
			_, err := chat.Append(ctx, Turn{Role: "assistant", Text: texts[i%len(texts)]})
			return err
		})
	}
	run("window", func(int) error {
		_, err := chat.Inspect(ctx)
		return err
	})
	run("stats", func(int) error {
		_, err := w.Stats(ctx)
		return err
	})
	run("recall+stats", func(i int) error { // a turn out of the window
		if _, err := chat.Recall(ctx, fmt.Sprint("block-chat-", 1+i%1000)); err != nil {
			return err
		}
		_, err := w.Stats(ctx)
		return err
	})
	run("pin+unpin", func(i int) error {
		id := fmt.Sprint("block-chat-", 100_000-i%1000)
		if err := chat.Pin(ctx, id); err != nil {
			return err
		}
		return chat.Unpin(ctx, id)
	})
}

// growTalk appends turns to a watched session until it has had so many from here, and gives how many those are.
func growTalk(b *testing.B, chat *Session, w *Watcher, r *rand.Rand, have, want int) int {
	b.Helper()
	for have < want {
		turns := make([]Turn, min(400, want-have))
		for i := range turns {
			turns[i] = Turn{Role: "assistant", Text: longProse(r, 25)}
			if i%100 == 0 { // what the user says is not compacted
				turns[i].Role = "user"
			}
		}
		must(chat.Append(ctx, turns...))(b)
		for conflict := true; conflict; { // the owner looks at the window as well, and may be first
			_, err := w.Step(ctx, time.Now())
			if conflict = errors.Is(err, store.ErrConflict); !conflict {
				require.NoError(b, err)
			}
		}
		have += len(turns)
	}
	return have
}

// BenchmarkAppendMany appends a transcript of 10,000 turns at once, of which each fourth answers a call.
func BenchmarkAppendMany(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 4))
	turns := make([]Turn, 10_000)
	for i := range turns {
		turns[i] = Turn{Role: []string{"user", "assistant", "tool", "assistant"}[i%4], Text: longProse(r, 25)}
		if call := fmt.Sprint("call-", i/4); i%4 == 1 {
			turns[i].ToolCalls = []store.ToolCall{{ID: call, Name: "look"}}
		} else if i%4 == 2 {
			turns[i].ToolCallID = call
		}
	}
	for _, window := range []int{0, 200_000, 1_000_000} {
		b.Run(fmt.Sprint("window=", window), func(b *testing.B) {
			for b.Loop() {
				db := must(Open(filepath.Join(b.TempDir(), "agent.ctx"), Options{}))(b)
				chat := db.Scope("acme/agent").Session("chat")
				if window > 0 {
					require.NoError(b, chat.SetWindow(ctx, session.Config{Total: window}))
				}
				cpu := cpuTime(b)
				must(chat.Append(ctx, turns...))(b)
				b.ReportMetric(float64(cpuTime(b)-cpu)/1e6, "cpu-ms")
				require.NoError(b, db.Close())
			}
		})
	}
}

// BenchmarkAppendBesidePut compares durable appends to a conversation whose window is full with durable puts of the same
// texts, by turns of ten in one database. An append also writes the row of its turn and makes room in the window.
func BenchmarkAppendBesidePut(b *testing.B) {
	db := must(Open(filepath.Join(b.TempDir(), "agent.ctx"), Options{}))(b)
	defer db.Close()
	chat := db.Scope("acme/agent").Session("chat")
	require.NoError(b, chat.SetWindow(ctx, session.Config{Total: 128_000}))
	w := must(chat.Watch(ctx))(b)
	r := rand.New(rand.NewPCG(1, 2))
	growTalk(b, chat, w, r, 0, 8_000)
	took := map[string]*struct {
		clock []time.Duration
		cpu   time.Duration
	}{"append": {}, "put": {}}
	turn := func(name string, op func(text string) error) {
		t := took[name]
		cpu := cpuTime(b)
		for range 10 {
			text := longProse(r, 25)
			begun := time.Now()
			require.NoError(b, op(text))
			t.clock = append(t.clock, time.Since(begun))
		}
		t.cpu += cpuTime(b) - cpu
	}
	n := 0
	for b.Loop() {
		turn("append", func(text string) error {
			_, err := chat.Append(ctx, Turn{Role: "assistant", Text: text})
			return err
		})
		turn("put", func(text string) error {
			n++
			_, err := db.Scope("acme/notes").Put(ctx, Artefact{ID: fmt.Sprint("note-", n), Text: text})
			return err
		})
	}
	for name, t := range took {
		slices.Sort(t.clock)
		b.ReportMetric(float64(t.clock[len(t.clock)/2].Nanoseconds())/1e3, name+"-p50-µs")
	}
	median := func(name string) float64 { return float64(took[name].clock[len(took[name].clock)/2]) }
	b.ReportMetric(median("append")/median("put"), "×put")
	b.ReportMetric(float64(took["append"].cpu)/float64(took["put"].cpu), "×put-cpu")
}

// cpuTime is what this process has used of the processors.
func cpuTime(*testing.B) time.Duration {
	return dbtest.CPUTime()
}

// From the commit that crosses the trigger to the commit of the pass, at ten thousand sections.
func BenchmarkWatchCrossing(b *testing.B) {
	db := must(Open(filepath.Join(b.TempDir(), "agent.ctx"), Options{}))(b)
	defer db.Close()
	chat := db.Scope("acme/agent").Session("chat")
	require.NoError(b, chat.SetWindow(ctx, session.Config{Total: 725_000}))
	w := must(chat.Watch(ctx))(b)
	r := rand.New(rand.NewPCG(1, 2))
	turns := make([]Turn, 400)
	for i := range turns {
		turns[i] = Turn{Role: "assistant", Text: longProse(r, 25)}
	}
	var took []time.Duration
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		for {
			must(chat.Append(ctx, turns...))(b)
			st := must(w.Stats(ctx))(b)
			if st.Actual > st.Limits.Trigger {
				break
			}
		}
		b.StartTimer()
		start := time.Now()
		events, err := w.Step(ctx, start)
		took = append(took, time.Since(start))
		require.NoError(b, err)
		require.Equal(b, session.EventApplied, events[len(events)-2].Kind)
		require.Greater(b, events[len(events)-2].Items, 100)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1e3, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "p99-ms")
	st := must(w.Stats(ctx))(b)
	b.Log("sections at the end", st.Analysis.Items)
}

// Who knows the members of a group as of an LSN and is told only what came after them knows the same as who is told all,
// whatever was put, put anew, moved, superseded or deleted in between.
func TestScanMembersSince(t *testing.T) {
	db := must(Open(dbtest.MemoryPath(t), Options{}))(t)
	defer db.Close()
	s := db.Scope("acme")
	rng := rand.New(rand.NewPCG(3, 4))
	var keys []store.PageKey
	known, short, seq := uint64(0), 0, int64(1000)
	for range 400 {
		err := s.Update(ctx, func(tx *Txn) error {
			for range 1 + rng.IntN(3) {
				seq++
				a := Artefact{ID: fmt.Sprint("a-", seq), Text: strings.Repeat("words of a page ", 1+rng.IntN(2)*rng.IntN(600)), Group: "g", Seq: seq}
				switch rng.IntN(12) {
				case 0:
					a.Seq -= int64(rng.IntN(5))
				case 1:
					a.ID = fmt.Sprint("a-", 1000+rng.Int64N(seq-999))
				case 2:
					a.Group = "other"
				case 3:
					a.Supersedes = []string{fmt.Sprint("a-", seq-rng.Int64N(3)-1)}
				case 4:
					if err := tx.Delete(ctx, fmt.Sprint("a-", seq-rng.Int64N(3)-1)); err == nil {
						continue
					}
				}
				if err := tx.Put(ctx, a); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			require.ErrorIs(t, err, store.ErrInvalid) // of an id that another of the transaction has, or one that is not there
			continue
		}
		q := store.ScanQuery{What: store.ScanMembers, Scopes: store.Scopes{"acme"}, Group: "g"}
		all := must(db.store.Scan(ctx, q))(t)
		q.Known = known
		since := must(db.store.Scan(ctx, q))(t)
		if known = since.LSN; since.Same {
			short++
			keys = append(keys, since.Keys...)
		} else {
			keys = since.Keys
		}
		require.Equal(t, all.Keys, keys)
	}
	require.Greater(t, short, 40)
	require.Less(t, short, 360)
}
