package ctxpage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

var (
	talkOps  = flag.Int("talk.ops", 250, "how many operations TestConversationFollows does with each seed")
	talkSeed = flag.Uint64("talk.seed", 1, "its first seed")
)

// What a session keeps in memory follows what happens, whoever does it: the sum of the window and the list of what is in
// it are those of all turns, and all of it is what a process that begins now reads from the store.
func TestConversationFollows(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(*talkSeed+seed), func(t *testing.T) {
			t.Parallel()
			f := &talker{t: t, r: rand.New(rand.NewPCG(*talkSeed+seed, 7)), at: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), did: map[string]int{}}
			db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{noSync: true, Clock: func() time.Time { return f.at }})
			f.db, f.s = db, db.Scope("acme/agent")
			f.chat, f.other = f.s.Session("chat"), f.s.Session("other")
			for range *talkOps {
				f.at = f.at.Add(time.Duration(f.r.IntN(100)) * time.Second)
				f.operate()
				f.compare()
			}
			t.Log(f.did)
			problems, err := db.Admin().Check(context.Background(), nil)
			require.NoError(t, err)
			require.Empty(t, problems)
			require.NoError(t, db.Close())
		})
	}
}

type talker struct {
	t           *testing.T
	r           *rand.Rand
	at          time.Time
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
				ErrHeadroom, session.ErrUndo, session.ErrGeneration, ErrNotFound, ErrGone, context.Canceled, ErrInvalid, ErrExpired, ErrOutcomeUnknown,
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
			out = append(out, Turn{Role: "user", Text: prose(f.r, 5+f.r.IntN(60))})
		case 1:
			out = append(out, Turn{Role: "assistant", Text: prose(f.r, 10+f.r.IntN(600))}) // also of several pages
		default:
			f.calls++
			id := fmt.Sprint("c", f.calls)
			out = append(out, Turn{Role: "assistant", ToolCalls: []ToolCall{{ID: id, Name: "grep"}, {ID: id + "b", Name: "grep"}}})
			for _, id := range []string{id, id + "b"} {
				out = append(out, Turn{Role: "tool", ToolCallID: id, Text: prose(f.r, 20+f.r.IntN(200))})
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
		_, err := w.Step(ctx, f.at)
		return err
	}
	plan, err := w.Plan(ctx, f.at)
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
	a := Artefact{ID: fmt.Sprint("put-", f.puts), Kind: KindMessage, Role: "user", Group: "chat", Seq: int64(f.r.IntN(80)), Text: prose(f.r, 5+f.r.IntN(60))}
	switch f.r.IntN(8) {
	case 0, 1:
		a.ID = f.any()
	case 2:
		a.ID, a.Group = f.any(), "other"
	case 3:
		a.Supersedes = []string{f.any()}
	case 4: // retired by what is in no session
		a.Supersedes, a.Group, a.Kind, a.Role = []string{f.any()}, "", KindFact, ""
	case 5:
		a.ExpiresAt = f.at.Add(time.Minute)
	case 6:
		a.Kind, a.Role, a.Text = KindFact, "", prose(f.r, 900)
	case 7:
		a.Role, a.ToolCallID = "tool", fmt.Sprint("c", 1+f.r.IntN(f.calls+1))
	}
	if a.ID == "nobody" {
		return ErrNotFound
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
	conv, err := f.chat.conversation()
	require.NoError(t, err)
	if f.r.IntN(3) == 0 {
		return // several operations together
	}
	_, err = f.db.store.Head(ctx) // nothing is on its way
	require.NoError(t, err)
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
	ctx := context.Background()
	mem, err := storetest.NewMemory(storetest.Config{State: StateKinds()})
	require.NoError(t, err)
	st := &headStore{Store: mem}
	db, err := Open("in memory", Options{Store: st})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s := db.Scope("acme/agent")
	chat := s.Session("chat")
	conv, err := chat.conversation()
	require.NoError(t, err)
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
		_, err := chat.Append(ctx, Turn{ID: id, Role: "user", Text: "I say " + id})
		require.NoError(t, err)
	}
	say("a")
	say("b")
	require.Equal(t, []string{"a", "b"}, turns())
	require.Zero(t, st.heads)

	say("c")
	_, err = s.Put(ctx, Artefact{ID: "note", Text: "of no conversation"})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, turns())
	require.Equal(t, 1, st.heads, "control: another commit came after it")

	say("d")
	require.NoError(t, s.Delete(ctx, "d"))
	_, err = s.Put(ctx, Artefact{ID: "e", Text: "in its place", Kind: KindMessage, Role: "user", Group: "chat", Seq: 4})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c", "e"}, turns())
}

// A process that stops while it reads a session anew, because another process changed it, shows it as it is the next time. It
// had the turns twice once, and refused to append because of them.
func TestSessionReadAgainAfterItsContextEnded(t *testing.T) {
	ctx := context.Background()
	mem, err := storetest.NewMemory(storetest.Config{State: StateKinds()})
	require.NoError(t, err)
	var chats []*Session
	for range 2 {
		db, err := Open("in memory", Options{Store: mem})
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		chats = append(chats, db.Scope("acme/agent").Session("chat"))
	}
	for n := range 10 {
		_, err := chats[0].Append(ctx, Turn{ID: fmt.Sprint("turn-", n), Role: "user", Text: fmt.Sprint("I say ", n)})
		require.NoError(t, err)
	}
	_, err = chats[1].Inspect(ctx)
	require.NoError(t, err)
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
		want, err := chats[0].Inspect(ctx)
		require.NoError(t, err)
		got, err := chats[1].Inspect(ctx)
		require.NoError(t, err)
		require.Equal(t, want.Turns, got.Turns, n)
	}
	require.Greater(t, ended, 3, "control")
}

// A commit whose context ended may happen all the same, and then the session knows of it: what is shown now is what a
// process that begins later reads.
func TestSessionUnknownOutcome(t *testing.T) {
	ctx := context.Background()
	db, chat := openTalk(t)
	refs, err := chat.Append(ctx, Turn{Role: "user", Text: "Keep this in mind."})
	require.NoError(t, err)
	id := refs[0].ID
	unknown := 0
	for n := 1; ; n++ {
		err := chat.Pin(endAfter(n), id)
		before, werr := chat.Inspect(ctx)
		require.NoError(t, werr)
		if errors.Is(err, ErrOutcomeUnknown) {
			unknown++
		}
		_, herr := db.store.Head(ctx)
		require.NoError(t, herr)
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
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, talkOptions())
	chat := db.Scope("acme/agent").Session("chat")
	_, err := chat.Append(ctx, Turn{Role: "user", Text: "Hello."})
	require.NoError(t, err)
	members := func(known uint64) store.ScanPage {
		page, err := db.store.Scan(ctx, store.ScanQuery{What: store.ScanMembers, Scopes: store.Scopes{"acme/agent"}, Group: "chat", Known: known})
		require.NoError(t, err)
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
	_, err = db.Scope("acme/agent").Put(ctx, Artefact{ID: "elsewhere", Text: "No turn."})
	require.NoError(t, err)
	require.True(t, members(known).Same, "another page")
	require.Empty(t, members(known).Keys, "another page")
	refs, err := db.Scope("acme/agent").Session("chat").Append(ctx, Turn{Role: "user", Text: "And?"})
	require.NoError(t, err)
	require.Len(t, members(known).Keys, 1, "the new one")
	require.NoError(t, db.Scope("acme/agent").Delete(ctx, refs[0].ID))
	require.False(t, members(known).Same, "one is gone")
	require.NoError(t, db.Close())
}
