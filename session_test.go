package ctxpage

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/stretchr/testify/require"
)

// talkOptions make tests quick: nothing of them is about a power cut.
func talkOptions() Options {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return Options{Clock: func() time.Time { return at }}
}

func openTalk(t *testing.T) (*DB, *Session) {
	t.Helper()
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), talkOptions())
	t.Cleanup(func() {
		require.Empty(t, must(db.Admin().Check(context.Background(), nil))(t))
		require.NoError(t, db.Close())
	})
	return db, db.Scope("acme/agent").Session("chat")
}

func TestSessionAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, talkOptions())
	s := db.Scope("acme/agent")
	chat := s.Session("chat")
	refs := must(chat.Append(ctx,
		Turn{Role: "user", Name: "Ann", Text: "What is the refund limit of the ocean tariff?"},
		Turn{Role: "assistant", Text: "Let me look.", ToolCalls: []store.ToolCall{{ID: "c1", Name: "lookup", Arguments: `{"q":"ocean"}`}, {ID: "c2", Name: "date"}}},
		Turn{Role: "tool", ToolCallID: "c1", Text: "ocean tariff: 400 dollars"},
		Turn{Role: "tool", ToolCallID: "c2", Text: "2026-11-20"},
		Turn{ID: "answer", Role: "assistant", Text: "The limit is 400 dollars."},
	))(t)
	require.Len(t, refs, 5)
	require.Equal(t, "block-chat-1", refs[0].ID)
	again := must(chat.Append(ctx, Turn{ID: "answer", Role: "assistant", Text: "The limit is 400 dollars."}))(t)
	require.Equal(t, refs[4], again[0])

	for _, bad := range []Turn{
		{ID: "answer", Role: "assistant", Text: "The limit is 500 dollars."},
		{Role: "tool", ToolCallID: "c1", Text: "answered already"},
		{Role: "tool", ToolCallID: "c9", Text: "never asked"},
		{Role: "tool", Text: "no call"},
		{Role: "system", Text: "obey"},
		{Role: "user", Text: "x", ToolCalls: []store.ToolCall{{ID: "c3"}}},
		{Role: "user", Text: "x", Trace: "nonsense"},
	} {
		require.ErrorIs(t, errOf(chat.Append(ctx, Turn{Role: "user", Text: "never stored"}, bad)), store.ErrInvalid, "%+v", bad)
	}
	w := must(chat.Inspect(ctx))(t)
	require.Len(t, w.Turns, 5)
	require.Equal(t, w.Stored, w.Tokens)

	hits := must(hitsOf(s.Search(ctx, "ocean tariff limit", 10)))(t)
	require.Len(t, hits, 1, "what assistant and tools said is no memory")
	require.Equal(t, "block-chat-1", hits[0].Ref.ID)
	require.NoError(t, s.Session("other").SetWindow(ctx, session.Config{Total: 128_000}))
	require.Len(t, must(s.Assemble(ctx, Query{Text: "ocean tariff limit", Budget: 2000, Session: "other"}))(t).Blocks, 1)
	require.NoError(t, db.Close())

	db = openTest(t, path, talkOptions())
	chat = db.Scope("acme/agent").Session("chat")
	require.Equal(t, w.Turns, must(chat.Inspect(ctx))(t).Turns)
	turns := must(loop.Collect(chat.Turns(ctx, 2, AtMost(2, "", nil))))(t)
	require.Len(t, turns, 2)
	require.Equal(t, "Let me look.", turns[0].Text)
	require.Equal(t, "lookup", turns[0].ToolCalls[0].Name)
	names := must(loop.Collect(db.Scope("acme/agent").Sessions(ctx)))(t)
	require.Equal(t, []string{"chat", "other"}, names)
	names = must(loop.Collect(db.Scope("acme").Sessions(ctx)))(t)
	require.Empty(t, names)
	require.Zero(t, db.table.stats().Faults-2, "only what was read was paged in")
}

// Turns that were put past the session are turns all the same; an edited one is measured anew.
func TestSessionPlainPuts(t *testing.T) {
	db, chat := openTalk(t)
	s := db.Scope("acme/agent")
	for i := range 5 {
		must(s.Put(ctx, Artefact{ID: fmt.Sprint("m-", i), Role: "user", Text: fmt.Sprint("message ", i), Group: "chat", Seq: int64(i)}))(t)
	}
	must(chat.Append(ctx, Turn{Role: "user", Text: "appended"}))(t)
	must(s.Put(ctx, Artefact{ID: "m-2", Role: "user", Text: "message two, which is much longer now", Group: "chat", Seq: 2}))(t)
	require.NoError(t, s.Delete(ctx, "m-3"))
	w := must(chat.Inspect(ctx))(t)
	require.Len(t, w.Turns, 5)
	require.Equal(t, int64(5), w.Turns[4].Seq)
	require.Greater(t, w.Turns[2].Tokens, w.Turns[1].Tokens)
	require.Equal(t, session.Raw, w.Turns[2].Level)
}

// dialogue appends so many exchanges about two subjects and gives the ids of the turns.
func dialogue(t *testing.T, chat *Session, exchanges int) (ids []string) {
	t.Helper()
	for i := range exchanges {
		subject := []string{"refund limit of the ocean tariff", "weather in Oslo"}[i%2]
		refs := must(chat.Append(context.Background(),
			Turn{Role: "user", Name: "Ann", Text: fmt.Sprintf("Question %d about the %s, please.\n%s", i, subject, filler(-i))},
			Turn{Role: "assistant", Text: fmt.Sprintf("Answer %d on the %s.\n%s", i, subject, filler(i))}))(t)
		ids = append(ids, refs[0].ID, refs[1].ID)
	}
	return ids
}

// filler is some sixty tokens that no other turn has.
func filler(i int) string {
	s := ""
	for k := range 12 {
		s += fmt.Sprintf("It was noted under number %d.%d in the book.\n", i, k)
	}
	return s
}

func TestSessionPass(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, talkOptions())
	chat := db.Scope("acme/agent").Session("chat")
	ids := dialogue(t, chat, 40)
	in := must(chat.Inspect(ctx))(t)
	require.Nil(t, in.Force)

	loads := db.table.stats().Faults
	q := session.PassQuery{Keywords: []string{"refund limit"}}
	p := must(chat.Pass(ctx, q))(t)
	require.Equal(t, loads, db.table.stats().Faults, "a pass pages nothing in")
	require.Equal(t, uint64(1), p.Number)
	require.Len(t, p.Verdicts, 80)
	require.NotZero(t, p.Count[session.Evict])
	again := must(chat.Pass(ctx, q))(t)
	require.True(t, again.Repeated)
	require.Equal(t, p.Verdicts, again.Verdicts)
	w := must(chat.Inspect(ctx))(t)
	require.Equal(t, uint64(1), w.Pass)
	require.Less(t, w.Tokens, w.Stored)

	evicted := ids[3]
	require.Equal(t, session.Evict, p.Verdicts[3].Action)
	require.Equal(t, session.Cold, w.Turns[3].Level)
	require.Equal(t, "evicted by pass 1", w.Turns[3].Why)
	in = must(chat.Inspect(ctx, evicted))(t)
	require.Contains(t, in.Turn[evicted], p.Explain(p.Verdicts[3]))
	require.Contains(t, must(chat.Recall(ctx, evicted))(t).Text, "Answer 1 on the weather")
	require.ErrorIs(t, errOf(chat.Recall(ctx, "nobody")), store.ErrNotFound)

	require.NoError(t, chat.Pin(ctx, evicted))
	pinned := must(chat.Inspect(ctx))(t)
	require.Equal(t, session.Raw, pinned.Turns[3].Level)
	second := must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"weather Oslo"}, Params: session.CompatParams()}))(t)
	require.False(t, second.Repeated)
	require.NoError(t, db.Close())

	db = openTest(t, path, talkOptions())
	chat = db.Scope("acme/agent").Session("chat")
	in = must(chat.Inspect(ctx))(t)
	require.Equal(t, second, in.Force)
	again = must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"weather Oslo"}, Params: session.CompatParams()}))(t)
	require.True(t, again.Repeated)

	require.ErrorIs(t, errOf(chat.Undo(ctx, 1)), session.ErrUndo)
	require.Equal(t, uint64(2), must(chat.Undo(ctx, 0))(t).Number)
	got := must(chat.Inspect(ctx))(t)
	require.Equal(t, pinned.Turns, got.Turns)
	require.NoError(t, chat.Unpin(ctx, evicted))
	require.ErrorIs(t, errOf(chat.Undo(ctx, 2)), session.ErrUndo)
	must(chat.Undo(ctx, 0))(t)
	got = must(chat.Inspect(ctx))(t)
	require.Equal(t, got.Stored, got.Tokens, "as before the first pass")
	require.ErrorIs(t, errOf(chat.Undo(ctx, 0)), store.ErrNotFound)
	passes := must(chat.Passes(ctx))(t)
	require.Len(t, passes, 2)
	require.True(t, passes[0].Undone && passes[1].Undone)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	require.NoError(t, db.Close())
}

// A turn that a pass pages is a stub also where the guess of its summary is shorter than the stub: nobody made one.
func TestPassPagesTurnsOfMiddleLength(t *testing.T) {
	_, chat := openTalk(t)
	dialogue(t, chat, 2)
	must(chat.Append(ctx, Turn{ID: "short", Role: "user", Text: "yes"},
		Turn{ID: "middle", Role: "user", Text: strings.Repeat("talk about the weather of tomorrow ", 16)}))(t)
	dialogue(t, chat, 20)
	p := must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"refund limit"}}))(t)
	w := must(chat.Inspect(ctx))(t)
	at := func(id string) int {
		return slices.IndexFunc(w.Turns, func(t session.WindowTurn) bool { return t.ID == id })
	}
	require.Equal(t, session.Page, p.Verdicts[at("middle")].Action)
	turn := w.Turns[at("middle")]
	require.LessOrEqual(t, turn.Stored/4, turn.Tokens, "control: the guess of its summary, a quarter, is not above the stub")
	require.Equal(t, session.Stub, turn.Level)
	require.Less(t, 2*turn.Tokens, turn.Stored)
	require.Equal(t, session.Page, p.Verdicts[at("short")].Action)
	require.Equal(t, session.Raw, w.Turns[at("short")].Level, "a stub of it would be longer")
}

// TestStubOfADamagedTurn: a stub has the first words of its turn. Where these cannot be read it is left out, and the manifest says
// why.
func TestStubOfADamagedTurn(t *testing.T) {
	opts := talkOptions()
	opts.WorkingSet = -1 // every text is read from the file
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), opts)
	chat := db.Scope("acme/agent").Session("chat")
	must(chat.Append(ctx, Turn{ID: "middle", Role: "user", Text: "Oslo tomorrow?\n" + strings.Repeat("talk about the weather ", 20)}))(t)
	dialogue(t, chat, 20)
	must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"refund limit"}}))(t)
	must(db.Admin().Checkpoint(ctx))(t)

	q := Query{Text: "refund limit", Budget: 12000, Session: "chat"}
	a := must(chat.s.Assemble(ctx, q))(t)
	replayed(t, db, a)
	at := slices.IndexFunc(a.Blocks, func(b Block) bool { return b.Ref.ID == "middle" })
	require.GreaterOrEqual(t, at, 0, "the control: it is a stub")
	require.Equal(t, manifest.FormStub, a.Blocks[at].Form)
	require.True(t, strings.HasSuffix(a.Blocks[at].Text, "] Oslo tomorrow?"), a.Blocks[at].Text)

	damage(db, "Oslo tomorrow?")
	a = must(chat.s.Assemble(ctx, q))(t)
	require.False(t, slices.ContainsFunc(a.Blocks, func(b Block) bool { return b.Ref.ID == "middle" }))
	require.True(t, slices.ContainsFunc(a.Left, func(l LeftOut) bool { return l.Ref.ID == "middle" && l.Reason == triage.Damaged }), a.Left)
}

// A result stays with its call, whatever the verdicts say.
func TestSessionUnits(t *testing.T) {
	_, chat := openTalk(t)
	must(chat.Append(ctx,
		Turn{Role: "assistant", Text: "Looking for the refund limit, the refund limit is what I look for now.", ToolCalls: []store.ToolCall{{ID: "c1", Name: "grep"}}},
		Turn{Role: "tool", ToolCallID: "c1", Text: filler(1)}))(t)
	dialogue(t, chat, 20)
	p := must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"refund limit"}}))(t)
	require.Equal(t, session.Retain, p.Verdicts[0].Action)
	require.Equal(t, session.Evict, p.Verdicts[1].Action)
	require.Equal(t, session.Stub, must(chat.Inspect(ctx))(t).Turns[1].Level)
}

// replayed holds an assembly to its replay.
func replayed(t *testing.T, db *DB, a *Assembly) {
	t.Helper()
	require.Equal(t, a.Text(), must(db.Replay(context.Background(), a.Trace))(t).Text)
}

func TestAssembleSession(t *testing.T) {
	db, chat := openTalk(t)
	s := db.Scope("acme/agent")
	must(s.Put(ctx, Artefact{ID: "tariff", Text: "The ocean tariff has a refund limit of 400 dollars."}))(t)
	must(s.Directives().Step(ctx, "use metric units"))(t)
	ids := dialogue(t, chat, 20)
	must(chat.Append(ctx, Turn{Role: "user", Text: "And what is the refund limit now?"}))(t)

	q := Query{Text: "refund limit", Budget: 12000, Session: "chat"}
	before := must(s.Assemble(ctx, q))(t)
	replayed(t, db, before)
	last := before.Blocks[len(before.Blocks)-1]
	require.Equal(t, "And what is the refund limit now?", last.Text, "the newest turn ends the context")

	must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"refund limit"}}))(t)
	w := must(chat.Inspect(ctx))(t)
	a := must(s.Assemble(ctx, q))(t)
	replayed(t, db, a)
	form := map[string]Block{}
	for _, b := range a.Blocks {
		form[b.Ref.ID] = b
	}
	require.Contains(t, form, "tariff")
	require.Contains(t, form, directivelog.PageID)
	seen, evicted, stubs := int64(0), 0, 0
	for _, turn := range w.Turns {
		b, in := form[turn.ID]
		switch turn.Level {
		case session.Cold:
			require.False(t, in, turn.ID)
			evicted++
		case session.Stub:
			require.True(t, in, turn.ID)
			require.Equal(t, "stub", b.Form.String())
			require.Contains(t, b.Text, turn.ID)
			stubs++
		default:
			require.True(t, in, turn.ID)
			require.Equal(t, "full", b.Form.String())
		}
	}
	for _, b := range a.Blocks {
		if b.Kind == store.KindMessage {
			turn := w.Turns[slices.IndexFunc(w.Turns, func(x session.WindowTurn) bool { return x.ID == b.Ref.ID })]
			require.Greater(t, turn.Seq, seen, "in order")
			seen = turn.Seq
		}
	}
	require.NotZero(t, evicted)
	require.NotZero(t, stubs)
	count := 0
	for _, e := range a.Manifest.Excluded {
		if e.Reason == "evicted by pass 1" {
			count = e.Count
			require.NotEmpty(t, e.Nearest)
		}
	}
	require.Equal(t, evicted, count)
	require.False(t, must(db.Why(ctx, a.Trace, Ref{ID: ids[3]}))(t).In)

	require.NotEmpty(t, must(render.OpenAI(a.Messages()))(t))

	must(chat.Undo(ctx, 0))(t)
	require.Equal(t, before.Text(), must(s.Assemble(ctx, q))(t).Text(), "undone: the same bytes")
	replayed(t, db, a)
}

// Many sessions do not stay in memory; a forgotten one is read again.
func TestSessionsForgotten(t *testing.T) {
	db, chat := openTalk(t)
	dialogue(t, chat, 3)
	must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"refund"}}))(t)
	before := must(chat.Inspect(ctx))(t)
	for i := range 3 * conversation.Kept {
		must(db.Scope("acme/agent").Session(fmt.Sprint("other-", i)).Append(ctx, Turn{Role: "user", Text: "hello"}))(t)
	}
	require.Nil(t, db.sessions.Of("acme/agent", "chat").Blocks)
	require.Equal(t, before.Turns, must(chat.Inspect(ctx))(t).Turns)
}

// What an agent said outside any conversation is nobody's turn, however long it is.
func TestMessageWithoutSession(t *testing.T) {
	db, _ := openTalk(t)
	s := db.Scope("acme/agent")
	r := rand.New(rand.NewPCG(4, 4))
	long := longProse(r, 4000) + "zebra"
	for id, text := range map[string]string{"short": "a zebra", "long": long} {
		must(s.Put(ctx, Artefact{ID: id, Role: "assistant", Kind: store.KindMessage, Text: text}))(t)
		require.Equal(t, id == "long", len(must(s.Get(ctx, id))(t).Pages) > 1)
	}
	require.NoError(t, s.Session("chat").SetWindow(ctx, session.Config{Total: 128_000}))
	for _, q := range []Query{{}, {Session: "chat"}} {
		q.Text, q.Budget, q.Floor = "zebra", 32_000, store.Scratch
		a := must(s.Assemble(ctx, q))(t)
		seen := map[string]bool{}
		for _, b := range a.Blocks {
			seen[b.Ref.ID] = true
		}
		require.Equal(t, map[string]bool{"short": true, "long": true}, seen)
		for _, e := range a.Manifest.Excluded {
			require.NotEqual(t, triage.OtherSession, e.Reason)
		}
	}
}

// That a turn was read is known after a restart, too: the next commit of the session stores it.
func TestRecallIsRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, talkOptions())
	chat := db.Scope("acme/agent").Session("chat")
	refs := must(chat.Append(ctx, Turn{Role: "user", Text: "one"}, Turn{Role: "assistant", Text: "two"}))(t)
	must(chat.Recall(ctx, refs[1].ID))(t)
	lastRead := func() (out []int64) {
		conv := must(chat.conversation())(t)
		require.NoError(t, conv.Exclusively(ctx, func() error {
			for _, sec := range conv.Window().Sections {
				out = append(out, sec.Signals.LastRead)
			}
			return nil
		}))
		return out
	}
	require.Equal(t, []int64{0, 2}, lastRead())
	must(chat.Try(ctx, Turn{Role: "user", Text: "three"}))(t)
	require.Equal(t, []int64{0, 2}, lastRead(), "a trial keeps it")
	must(chat.Append(ctx, Turn{Role: "user", Text: "three"}))(t)
	require.NoError(t, db.Close())

	db = openTest(t, path, talkOptions())
	defer func() { require.NoError(t, db.Close()) }()
	chat = db.Scope("acme/agent").Session("chat")
	require.Equal(t, []int64{0, 2, 0}, lastRead())
}

// A turn whose row waits to be stored, because a plain put made it, is pinned like any other.
func TestPinOfPlainPut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, talkOptions())
	s := db.Scope("acme/agent")
	must(s.Put(ctx, Artefact{ID: "note", Group: "chat", Seq: 1, Text: "a plain page"}))(t)
	require.NoError(t, s.Session("chat").Pin(ctx, "note"))
	require.NoError(t, db.Close())

	db = openTest(t, path, talkOptions())
	defer func() { require.NoError(t, db.Close()) }()
	w := must(db.Scope("acme/agent").Session("chat").Inspect(ctx))(t)
	require.Len(t, w.Turns, 1)
	require.True(t, w.Turns[0].Pinned)
}

// A turn that came in with one that was refused, or that a counter panicked at, leaves no row behind that passes for
// stored: a page of its words, put under its id and pinned, can be read again.
func TestPinAfterRefusedAppend(t *testing.T) {
	first := Turn{ID: "x", Role: "user", Text: "keep this"}
	t.Run("refused", func(t *testing.T) {
		pinAfter(t, talkOptions(), func(ctx context.Context, chat *Session) {
			require.ErrorIs(t, errOf(chat.Append(ctx, first, Turn{ID: "y", Role: "nobody"})), store.ErrInvalid)
		})
	})
	t.Run("panicked", func(t *testing.T) {
		opts := talkOptions()
		opts.Counter = panicking{token.Default()}
		pinAfter(t, opts, func(ctx context.Context, chat *Session) {
			require.Panics(t, func() { _, _ = chat.Append(ctx, first, Turn{ID: "y", Role: "user", Text: "panic"}) })
		})
	})
}

// panicking is a counter with a fault.
type panicking struct{ token.Counter }

func (c panicking) Count(text string) int {
	if text == "panic" {
		panic(text)
	}
	return c.Counter.Count(text)
}

func pinAfter(t *testing.T, opts Options, failed func(context.Context, *Session)) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, opts)
	s := db.Scope("acme/agent")
	failed(ctx, s.Session("chat"))
	must(s.Put(ctx, Artefact{ID: "x", Kind: store.KindMessage, Role: "user", Group: "chat", Seq: 1, Text: "keep this"}))(t)
	require.NoError(t, s.Session("chat").Pin(ctx, "x"))
	require.NoError(t, db.Close())

	db = openTest(t, path, opts)
	defer func() { require.NoError(t, db.Close()) }()
	w := must(db.Scope("acme/agent").Session("chat").Inspect(ctx))(t)
	require.Len(t, w.Turns, 1)
	require.True(t, w.Turns[0].Pinned)
}

// TestTurnsThatCannotBeShown: a turn that no provider takes would spoil every context of its session.
func TestTurnsThatCannotBeShown(t *testing.T) {
	_, chat := openTalk(t)
	call := func(ids ...string) Turn {
		turn := Turn{Role: "assistant"}
		for _, id := range ids {
			turn.ToolCalls = append(turn.ToolCalls, store.ToolCall{ID: id, Name: "look"})
		}
		return turn
	}
	image := Turn{Role: "user", Parts: []store.Part{{Type: "image_url", URL: "https://example.org/a.png"}}}
	for _, bad := range []Turn{{Role: "user"}, {Role: "assistant"}, call(""), call("a", ""), call("a", "a"), image} {
		require.ErrorIs(t, errOf(chat.Append(ctx, bad)), store.ErrInvalid, "%+v", bad)
	}
	image.Parts = append(image.Parts, store.Part{Type: "text", Text: "What is that?"})
	must(chat.Append(ctx, image, call("a", "b"), Turn{Role: "tool", ToolCallID: "a"}, Turn{Role: "tool", ToolCallID: "b"}))(t)
	require.Len(t, must(chat.Inspect(ctx))(t).Turns, 4)
}

// TestCallsThatNoProviderTakes: they are refused before they stand in a session for good. What one provider takes is kept.
func TestCallsThatNoProviderTakes(t *testing.T) {
	db, _ := openTalk(t)
	call := func(id, name, typ string) Turn {
		return Turn{Role: "assistant", ToolCalls: []store.ToolCall{{ID: id, Name: name, Type: typ, Arguments: "{}"}}}
	}
	long := strings.Repeat("f", 100)
	for says, bad := range map[string]Turn{
		"of 1 to 128 bytes (Anthropic)": call("a", "", ""), "letters, digits and _- (OpenAI)": call("a", "look up", ""), "of 1 to 64 bytes (Gemini)": call("a", long+long, ""),
		"starts with a letter or _ (Gemini)": call("a", "1.b", ""), "type function": call("a", "look", "custom"),
		"at most 512": call(strings.Repeat("i", 513), "look", ""), "no control characters": call("a\n", "look", ""),
	} {
		chat := db.Scope("acme").Session("bad")
		_, err := chat.Append(ctx, Turn{Role: "user", Text: "never stored"}, bad)
		var e *store.InvalidError
		require.ErrorAs(t, err, &e, says)
		require.Equal(t, "tool_calls", e.Field)
		require.Contains(t, e.Expected, says)
		require.ErrorIs(t, errOf(chat.Try(ctx, bad)), store.ErrInvalid)
	}
	require.Empty(t, must(loop.Collect(db.Scope("acme").Sessions(ctx)))(t))

	writers := []func([]render.Message) ([]byte, error){render.OpenAI, render.Anthropic, render.Gemini}
	for i, good := range []Turn{call("a", "a.b", ""), call("a", long, ""), call("a", "1f", "function")} {
		chat := db.Scope("acme").Session(fmt.Sprint("good-", i))
		must(chat.Append(ctx, Turn{Role: "user", Text: "Look."}, good, Turn{Role: "tool", ToolCallID: good.ToolCalls[0].ID, Text: "seen"}))(t)
		a := must(db.Scope("acme").Assemble(ctx, Query{Text: "look", Budget: 2000, Session: chat.ID()}))(t)
		taken := 0
		for _, write := range writers {
			if _, err := write(a.Messages()); err == nil {
				taken++
			} else {
				require.ErrorIs(t, err, render.ErrSequence)
			}
		}
		require.Positive(t, taken, "case %d: no provider takes it", i)
		require.Less(t, taken, len(writers), "case %d: the control: one refuses it", i)
	}
}

// A context that begins with the assistant holds the turn that two providers need before it, whatever the budget.
func TestOpeningIsPaidFor(t *testing.T) {
	db, chat := openTalk(t)
	count := db.opts.Counter.Count
	for i := range 12 {
		must(chat.Append(ctx, Turn{Role: "assistant", Text: fmt.Sprint("I looked at file ", i, " and found a thing or two.")}))(t)
	}
	tight := 0
	for budget := 150; budget < 500; budget++ {
		a := must(db.Scope("acme/agent").Assemble(ctx, Query{Text: "file", Budget: budget, Session: "chat"}))(t)
		_, opening := render.Frame(rendering.Pages(nil, a.shown, "chat"), false)
		require.NotEmpty(t, opening)
		require.LessOrEqual(t, count(a.Text())+count(opening), budget)
		if count(a.Text())+2*count(opening) > budget {
			tight++
		}
	}
	require.NotZero(t, tight, "the budget was never felt")
}

// A turn that is tried and fits costs no second reading of the session, and leaves nothing in memory: the same words put
// under its id by others get a row of their own, which is stored.
func TestTryLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, talkOptions())
	s := db.Scope("acme/agent")
	chat := s.Session("chat")
	must(chat.Append(ctx, Turn{Role: "user", Text: "Hello."}))(t)
	conv := must(chat.conversation())(t)
	rows := len(conv.Rows)
	must(chat.Try(ctx, Turn{ID: "tried", Role: "user", Text: "And?"}, Turn{Role: "assistant", Text: "Nothing."}))(t)
	require.True(t, conv.Loaded())
	require.Len(t, conv.Rows, rows)
	must(s.Put(ctx, Artefact{ID: "tried", Kind: store.KindMessage, Role: "user", Text: "And?", Group: "chat", Seq: 2}))(t)
	must(chat.Append(ctx, Turn{Role: "assistant", Text: "So."}))(t) // stores the row that was made of it
	require.NotNil(t, must(db.store.State(ctx, conv.TurnKey(conversation.TurnRowKey, "tried")))(t))
	require.Error(t, errOf(chat.Try(ctx, Turn{Role: "user"})))
	require.NoError(t, db.Close())
}

// A refused append costs no second reading of the session, unless something was compacted before it was refused, and
// leaves nothing in memory.
func TestRefusedAppendLeavesNothing(t *testing.T) {
	_, chat := openTalk(t)
	for range 3 {
		must(chat.Append(ctx, Turn{Role: "user", Text: "Hello."}, Turn{Role: "assistant", Text: strings.Repeat("Many words. ", 80)}))(t)
	}
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 2000, KeepLast: 1}))
	conv := must(chat.conversation())(t)
	rows, tokens, turn := len(conv.Rows), conv.Tokens(), conv.Turn()
	refused := func(kept bool, want error, turns ...Turn) {
		for _, call := range []func() error{
			func() error { _, err := chat.Append(ctx, turns...); return err }, func() error { _, err := chat.Try(ctx, turns...); return err },
		} {
			require.ErrorIs(t, call(), want)
			require.Equal(t, kept, conv.Loaded())
			must(chat.Inspect(ctx))(t)
			require.Equal(t, []any{rows, tokens, turn, 6}, []any{len(conv.Rows), conv.Tokens(), conv.Turn(), len(conv.Blocks)})
		}
	}
	large := Turn{Role: "user", Text: strings.Repeat("More words than there is room for. ", 300)}
	refused(true, store.ErrInvalid, Turn{Role: "user", Text: "One."}, Turn{Role: "nobody"})
	refused(true, session.ErrHeadroom, large)
	refused(true, session.ErrHeadroom, Turn{Role: "user", Text: "One."}, large)
	refused(false, session.ErrHeadroom, Turn{Role: "user", Text: strings.Repeat("One more. ", 400)}, large) // the first makes the others pay
	must(chat.Append(ctx, Turn{Role: "user", Text: strings.Repeat("One more. ", 400)}))(t)
	require.NotEqual(t, rows, len(conv.Rows))
}

// An append that has to make room leaves what was counted and listed of the session in force: it looks at the window, not
// at every turn there ever was.
func TestAdmissionFollowsTheWindow(t *testing.T) {
	_, chat := openTalk(t)
	for range 20 {
		must(chat.Append(ctx, Turn{Role: "user", Text: "Hello."}, Turn{Role: "assistant", Text: strings.Repeat("Many words. ", 80)}))(t)
	}
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 2000, UserCap: 100}))
	conv := must(chat.conversation())(t)
	must(chat.Inspect(ctx))(t)
	require.NoError(t, conv.Exclusively(ctx, func() error { conv.Window(); conv.Tokens(); return nil }))
	for range 10 {
		require.NoError(t, errOf(chat.Append(ctx, Turn{Role: "assistant", Text: "Look.", ToolCalls: []store.ToolCall{{ID: "c", Name: "grep"}}}, Turn{Role: "tool", ToolCallID: "c", Text: strings.Repeat("A line. ", 150)})))
		require.Equal(t, []uint64{conv.Rev, conv.Rev}, []uint64{conv.Sum.At, conv.Inside.At})
	}
	require.Greater(t, len(must(chat.Passes(ctx))(t)), 3)
}

// A turn without an id takes a name that nothing else has: an earlier turn, one on its way, or an artefact of the host
// would be rewritten.
func TestTurnsTakeFreeNames(t *testing.T) {
	db, chat := openTalk(t)
	s := db.Scope("acme/agent")
	must(s.Put(ctx, Artefact{ID: "block-chat-5", Text: "a fact of the host"}))(t)
	say := func(id, text string) Turn { return Turn{ID: id, Role: "user", Text: text} }
	must(chat.Append(ctx, say("block-chat-2", "first")))(t)
	must(chat.Append(ctx, say("", "second")))(t)
	must(chat.Append(ctx, say("block-chat-4", "third"), say("", "fourth"), say("", "fifth")))(t)
	var got []string
	for _, v := range must(loop.Collect(chat.Turns(ctx, 0)))(t) {
		got = append(got, v.Ref.String()+" "+v.Text)
	}
	require.Equal(t, []string{
		"acme/agent:block-chat-2@1 first", "acme/agent:block-chat-2-2@1 second", "acme/agent:block-chat-4@1 third", "acme/agent:block-chat-4-2@1 fourth",
		"acme/agent:block-chat-5-2@1 fifth",
	}, got)
	require.Equal(t, "a fact of the host", must(s.Get(ctx, "block-chat-5"))(t).Text)
}

// Behind a page of the highest number there is no next one: it would stand before all others, and the one after it would
// have its name.
func TestAppendBehindTheHighestNumber(t *testing.T) {
	db, chat := openTalk(t)
	put := func(id string, seq int64) {
		must(db.Scope("acme/agent").Put(ctx, Artefact{ID: id, Role: "user", Text: id, Group: chat.ID(), Seq: seq}))(t)
	}
	put("high", math.MaxInt64-1)
	require.NoError(t, errOf(chat.Append(ctx, Turn{Role: "user", Text: "last"})))
	for range 2 {
		require.ErrorIs(t, errOf(chat.Append(ctx, Turn{Role: "user", Text: "more"})), store.ErrInvalid)
	}
	require.Len(t, must(chat.Inspect(ctx))(t).Turns, 2)
}

// What was undone takes no place among the passes whose verdicts are kept: however often a host tries one and takes it back,
// the next can be taken back as well.
func TestUndoAfterManyUndone(t *testing.T) {
	db, chat := openTalk(t)
	require.NoError(t, errOf(chat.Append(ctx, Turn{Role: "user", Text: "first"}, Turn{Role: "assistant", Text: "second"})))
	pass := func(word string) {
		must(chat.Pass(ctx, session.PassQuery{Keywords: []string{word}}))(t)
	}
	pass("first")
	for i := range conversation.KeptVerdicts + 1 {
		pass(fmt.Sprint("word", i))
		require.NoError(t, errOf(chat.Undo(ctx, 0)), i)
	}
	rows := 0
	require.NoError(t, format.Walk(ctx, db.store, conversation.PassRowKey, func(r store.StateRow) error {
		p := must(conversation.DecodePass(r.Value))(t)
		if p.Verdicts != nil {
			rows++
		}
		return nil
	}))
	require.Equal(t, 1, rows)
	for i := range conversation.KeptVerdicts {
		pass(fmt.Sprint("word", i))
	}
	for range conversation.KeptVerdicts - 1 {
		must(chat.Undo(ctx, 0))(t)
	}
	require.ErrorIs(t, errOf(chat.Undo(ctx, 0)), store.ErrGone, "the control: those of the first are not kept any more")
}

// A second trace in one append is refused: the transaction has room for one, and of the other nobody would know that it was
// answered.
func TestAppendOfTwoTraces(t *testing.T) {
	db, chat := openTalk(t)
	var traces []string
	for range 2 {
		a := must(db.Scope("acme/agent").Assemble(ctx, Query{Text: "words", Budget: 1000}))(t)
		traces = append(traces, a.Trace)
	}
	turn := func(trace string) Turn { return Turn{Role: "assistant", Text: "words", Trace: trace} }
	require.ErrorIs(t, errOf(chat.Append(ctx, turn(traces[0]), turn(traces[1]))), store.ErrInvalid)
	must(chat.Append(ctx, turn(traces[0]), turn(""), turn(traces[0])))(t)
	must(chat.Append(ctx, turn(traces[1])))(t)
	for _, trace := range traces {
		require.Len(t, must(db.Manifests().ByTrace(ctx, trace))(t), 2, "the assembly, and what was answered to it")
	}
}

// A call and its results are in a context together or not at all, whichever of them expired, was deleted, or was not found:
// no provider takes one alone, and the session could not be rendered any more.
func TestUnpairedTurnsAreLeftOut(t *testing.T) {
	begin := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	soon := begin.Add(time.Minute)
	for _, c := range []struct {
		name    string
		call    time.Time // expiries
		result  time.Time
		deleted string
		later   int // turns
		want    int // left out as unpaired
	}{
		{name: "whole"}, {name: "call expired", call: soon, want: 6}, {name: "result expired", result: soon, want: 6}, {name: "call deleted", deleted: "call", want: 6},
		{name: "result deleted", deleted: "result-5", want: 6}, {name: "found in part", later: 60},
	} {
		for _, managed := range []bool{false, true} {
			now := dbtest.NewClock(begin)
			db := openTest(t, dbtest.MemoryPath(t), Options{Clock: now.Now})
			s := db.Scope("acme")
			chat := s.Session("chat")
			call := Turn{ID: "call", Role: "assistant", Text: "look", ExpiresAt: c.call}
			turns := []Turn{{Role: "user", Text: "x"}, {}}
			for i := range 6 {
				call.ToolCalls = append(call.ToolCalls, store.ToolCall{ID: fmt.Sprint("c", i), Name: "grep"})
				turns = append(turns, Turn{ID: fmt.Sprint("result-", i), Role: "tool", ToolCallID: fmt.Sprint("c", i), Text: []string{"nothing", "zebra"}[i/5]})
			}
			turns[1], turns[7].ExpiresAt = call, c.result
			turns = append(turns, Turn{Role: "assistant", Text: "so"}, Turn{Role: "user", Text: "and?"})
			for i := range c.later {
				turns = append(turns, Turn{Role: []string{"user", "assistant"}[i%2], Text: fmt.Sprint("another word ", i)})
			}
			must(chat.Append(ctx, turns...))(t)
			if managed {
				require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 8000}))
			}
			if c.deleted != "" {
				require.NoError(t, s.Delete(ctx, c.deleted))
			}
			now.Add(time.Hour)
			a := must(s.Assemble(ctx, Query{Text: "zebra", Session: "chat", Budget: 4000, TopK: 12}))(t)
			for _, write := range []func([]render.Message) ([]byte, error){render.OpenAI, render.Anthropic, render.Gemini} {
				require.NoError(t, errOf(write(a.Messages())), "%s, managed %v", c.name, managed)
			}
			left := 0
			for _, l := range a.Left {
				if l.Reason == reasonUnpaired {
					left++
				}
			}
			require.Equal(t, c.want, left, "%s, managed %v", c.name, managed)
			require.Equal(t, c.want == 0, strings.Contains(a.Text(), "zebra"), "%s, managed %v", c.name, managed)
			require.NoError(t, db.Close())
		}
	}
}

// A question that is larger than the budget of a context is cut short, with a window and without one, and so is the result
// of a call. A context without them would have the model answer nothing.
func TestNewestTurnIsCutShort(t *testing.T) {
	var long strings.Builder
	for i := range 80 {
		fmt.Fprintf(&long, "Line %d of the report says rain over Oslo. ", i)
	}
	for _, total := range []int{0, 8000} {
		db, chat := openTalk(t)
		if total > 0 {
			require.NoError(t, chat.SetWindow(ctx, session.Config{Total: total}))
		}
		must(chat.Append(ctx, Turn{Role: "user", Text: "hello"}, Turn{Role: "assistant", ToolCalls: []store.ToolCall{{ID: "c", Name: "rain"}}},
			Turn{Role: "tool", ToolCallID: "c", Text: long.String()}))(t)
		for _, role := range []string{"tool", "user"} {
			if role == "user" {
				must(chat.Append(ctx, Turn{Role: "user", Text: long.String()}))(t)
			}
			a := must(db.Scope("acme/agent").Assemble(ctx, Query{Text: "what about line 33", Session: chat.ID(), Budget: 512}))(t)
			require.LessOrEqual(t, a.Tokens, 512)
			require.Contains(t, a.Text(), "Line 33 of the report", "%s, window %d", role, total)
			require.True(t, a.Review)
			must(render.OpenAI(a.Messages()))(t)
			require.Equal(t, a.Text(), must(db.Replay(ctx, a.Trace))(t).Text)
		}
	}
}

// A user may go on talking while a tool runs. Results that come late stand behind their call, and a call of which a result
// is missing when something else was said is left out. Without that no provider takes the conversation any more.
func TestLateResults(t *testing.T) {
	call := Turn{Role: "assistant", Text: "look", ToolCalls: []store.ToolCall{{ID: "c1", Name: "grep"}, {ID: "c2", Name: "grep"}}}
	result := func(id string) Turn { return Turn{Role: "tool", ToolCallID: id, Text: "result of " + id} }
	user := Turn{Role: "user", Text: "and the other thing?"}
	for name, c := range map[string]struct {
		turns []Turn
		shows bool
	}{
		"both late":           {[]Turn{call, user, result("c1"), result("c2")}, true},
		"one late":            {[]Turn{call, result("c1"), user, result("c2"), user}, true},
		"one late, one never": {[]Turn{call, user, result("c1")}, false},
		"long ago":            {append(append([]Turn{call}, slices.Repeat([]Turn{user}, 30)...), result("c2"), result("c1")), true},
	} {
		for _, managed := range []bool{false, true} {
			db, chat := openTalk(t)
			if managed {
				require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 8000}))
			}
			must(chat.Append(ctx, append([]Turn{user}, c.turns...)...))(t)
			for _, budget := range []int{4000, 1200} {
				a := must(db.Scope("acme/agent").Assemble(ctx, Query{Text: "thing", Session: chat.ID(), Budget: budget}))(t)
				for _, write := range []func([]render.Message) ([]byte, error){render.OpenAI, render.Anthropic, render.Gemini} {
					require.NoError(t, errOf(write(a.Messages())), "%s, managed %v", name, managed)
				}
				require.True(t, budget < 4000 || c.shows == strings.Contains(a.Text(), "result of c1"), "%s:\n%s", name, a.Text())
				require.Equal(t, a.Text(), must(db.Replay(ctx, a.Trace))(t).Text)
			}
		}
	}
}

// A plain put of any role can be rendered with the turns of its session. What no provider takes for a role is data.
func TestRolesThatCanBeRendered(t *testing.T) {
	db, chat := openTalk(t)
	s := db.Scope("acme/agent")
	for i, role := range []string{"system", "developer", "boss", "user", "assistant"} {
		a := Artefact{ID: role, Role: role, Group: chat.ID(), Seq: int64(i + 1), Text: "words of the " + role}
		if role == "boss" {
			a.ToolCalls = []store.ToolCall{{ID: "c1", Name: "obey"}}
		}
		must(s.Put(ctx, a))(t)
	}
	a := must(s.Assemble(ctx, Query{Text: "words", Session: chat.ID(), Budget: 4000}))(t)
	for _, write := range []func([]render.Message) ([]byte, error){render.OpenAI, render.Anthropic, render.Gemini} {
		request := must(write(a.Messages()))(t)
		require.Contains(t, string(request), "words of the developer")
		require.Contains(t, string(request), "words of the boss")
		require.NotContains(t, string(request), "obey")
	}
	require.Equal(t, "developer", must(chat.Inspect(ctx))(t).Turns[1].Role, "it is stored as it was put")
	require.Equal(t, "system", must(chat.conversation())(t).Window().Sections[1].Role, "and as protected as system")
}

// putting puts a page when a token counter is asked for the first time: in the midst of an append.
type putting struct {
	token.Counter
	put func()
}

func (c *putting) Count(text string) int {
	if put := c.put; put != nil {
		c.put = nil
		put()
	}
	return c.Counter.Count(text)
}

// A page that somebody puts under the id of a turn that is on its way in stands as it was put: an id of the database's own
// is made anew, one of the host's is refused.
func TestAppendBesideAPut(t *testing.T) {
	for name, turn := range map[string]Turn{"block-chat-1": {Role: "user", Text: "hello"}, "mine": {ID: "mine", Role: "user", Text: "hello"}} {
		c := &putting{Counter: token.Default()}
		db := openTest(t, dbtest.MemoryPath(t), Options{Counter: c})
		s := db.Scope("acme/agent")
		c.put = func() {
			must(s.Put(ctx, Artefact{ID: name, Text: "of the host"}))(t)
		}
		refs, err := s.Session("chat").Append(ctx, turn)
		if turn.ID == "" {
			require.NoError(t, err)
			require.Equal(t, "block-chat-1-2", refs[0].ID)
		} else {
			require.ErrorIs(t, err, store.ErrInvalid)
			require.ErrorContains(t, err, "an id that no other artefact of the scope has")
		}
		v := must(s.Get(ctx, name))(t)
		require.Equal(t, "of the host", v.Text)
		require.EqualValues(t, 1, v.Version)
		require.NoError(t, db.Close())
	}
}

// TestPassOfNoSession: a pass over a session that nobody has begun, a misspelt one say, is refused and begins none.
func TestPassOfNoSession(t *testing.T) {
	_, chat := openTalk(t)
	for _, dry := range []bool{true, false} {
		require.ErrorIs(t, errOf(chat.Pass(ctx, session.PassQuery{Keywords: []string{"refund"}, DryRun: dry})), store.ErrNotFound)
	}
	must(chat.Append(ctx, Turn{Role: "user", Text: "a refund"}))(t)
	require.EqualValues(t, 1, must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"refund"}}))(t).Number)
}
