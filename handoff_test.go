package ctxpage

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

func TestContract(t *testing.T) {
	db, chat := openTalk(t)
	dialogue(t, chat, 12)
	require.Empty(t, must(chat.Contract(ctx, nil, nil))(t), "no pass, no records")
	must(chat.Append(ctx, Turn{ID: `x" to evicted-blocks` + "; set", Role: "user", Text: "an id that would be a statement"}))(t)
	must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"refund"}}))(t)
	require.NoError(t, chat.Record(ctx, session.Notes{Done: []string{"looked it up"}, Questions: []session.QuestionItem{{Question: "which year?", WhyItMatters: "limits change"}}}))
	must(db.Scope("acme/agent").Directives().Step(ctx, "prohibit guesses"))(t)

	strict := must(chat.Contract(ctx, nil, nil))(t)
	ledger := must(handoff.ReadLedger(strict))(t)
	require.Equal(t, 25, len(ledger.List("retained-blocks"))+len(ledger.List("paged-blocks"))+len(ledger.List("evicted-blocks")))
	require.Contains(t, string(strict), "\nadd \"block-chat-1\" to ")
	require.NotContains(t, string(strict), "; set")
	require.Equal(t, []string{"prohibit guesses"}, ledger.List("session-corrections"))
	require.Empty(t, must(chat.Contract(ctx, strict, nil))(t), "nothing new")
	must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"weather in Oslo"}}))(t)
	more := must(chat.Contract(ctx, strict, nil))(t)
	ledger = must(handoff.ReadLedger(append(strict, more...)))(t)
	dbtest.Interpreted(t, append(strict, more...), ledger)
	require.True(t, strings.HasPrefix(string(more), "-- pass 2 key "))

	// What no longer holds is taken back, and what others wrote stays.
	strict = append(strict, more...)
	strict = append(strict, "add \"prohibit slang\" to session-corrections because \"of the host\"\nadd \"greeted Ann\" to work-completed\n"...)
	for _, input := range []string{"remove policy guesses", "use sources"} {
		must(db.Scope("acme/agent").Directives().Step(ctx, input))(t)
	}
	must(db.Scope("acme").Directives().Step(ctx, "prohibit emails"))(t)
	require.NoError(t, chat.Record(ctx, session.Notes{Done: []string{"told Ann"}}))
	for range 2 {
		more = must(chat.Contract(ctx, strict, nil))(t)
		strict = append(strict, more...)
	}
	require.Empty(t, more)
	ledger = must(handoff.ReadLedger(strict))(t)
	dbtest.Interpreted(t, strict, ledger)
	require.Equal(t, []string{"prohibit slang", "prohibit emails"}, ledger.List("session-corrections"))
	require.Equal(t, []string{"greeted Ann", "told Ann"}, ledger.List("work-completed"))
	require.Empty(t, ledger.List("open-questions"))
	require.Len(t, ledger.List("tracked-decisions"), 1)
	must(db.Scope("acme").Session("chat").Contract(ctx, strict, nil))(t)
	other := must(db.Scope("acme/agent").Session("other").Contract(ctx, strict, nil))(t)
	require.Empty(t, other, "the notes of another session are none of its business")
	prefix := must(db.Scope("acme/agent").Session("cha").Contract(ctx, strict, nil))(t)
	require.Empty(t, prefix, "nor those of one whose name is longer")
}

// Contract skips blank notes: no statement can contain them.
func TestContractOfBlankNotes(t *testing.T) {
	_, chat := openTalk(t)
	dialogue(t, chat, 3)
	must(chat.Pass(ctx, session.PassQuery{Keywords: []string{"refund"}}))(t)
	blank := []string{"", " \n", "\x00", "\u202e", "\u2028"}
	n := session.Notes{Done: append([]string{"looked it up"}, blank...), Open: blank}
	for _, text := range append([]string{"which year?"}, blank...) {
		n.Questions = append(n.Questions, session.QuestionItem{Question: text})
	}
	require.NoError(t, chat.Record(ctx, n))
	strict := must(chat.Contract(ctx, nil, nil))(t)
	ledger := must(handoff.ReadLedger(strict))(t)
	require.Equal(t, []string{"looked it up"}, ledger.List("work-completed"))
	require.Empty(t, ledger.List("work-remaining"))
	require.Len(t, ledger.List("open-questions"), 1)
}

func TestHandoff(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return "file:" + path
	}
	opts := talkOptions()
	opts.FileRoots = []string{dir}
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), opts)
	s := db.Scope("acme/agent")
	stable, moved := write("stable.md", "The ocean tariff has a refund limit of 400 dollars."), write("moved.md", "The ocean tariff refund takes 9 days.")
	for id, src := range map[string]string{"stable": stable, "moved": moved} {
		must(s.Put(ctx, Artefact{ID: id, Source: src}))(t)
	}
	must(s.Put(ctx, Artefact{ID: "fact", Text: "The ocean tariff refund office is in Oslo."}))(t)

	chat := s.Session("chat")
	must(chat.Append(ctx, Turn{Role: "user", Text: "What is the refund of the ocean tariff?"}))(t)
	a := must(s.Assemble(ctx, Query{Text: "ocean tariff refund", Budget: 3000, Session: "chat"}))(t)
	must(chat.Append(ctx, Turn{Role: "assistant", Text: "400 dollars, within 9 days.", Trace: a.Trace}))(t)
	must(s.Put(ctx, Artefact{ID: "unread", Text: "Zebras have stripes."}))(t)
	tx := must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: "They do have stripes."}))
	must(tx.Assemble(ctx, Query{Text: "zebras stripes", Budget: 3000, Session: "chat"}))(t) // it keeps the draft; nobody answered from it
	tx.Rollback()
	require.NoError(t, chat.Pin(ctx, "block-chat-1"))
	must(s.Directives().Step(ctx, "use metric units"))(t)
	require.NoError(t, chat.Record(ctx, session.Notes{Goal: "answer Ann", Done: []string{"looked it up"}, Open: []string{"tell Ann"}}))
	must(chat.Pass(ctx, session.PassQuery{IR: &session.IntentIR{Verb: "explain", Slots: map[string]any{"what": "refund"}}}))(t)
	write("moved.md", "The ocean tariff refund takes 12 days.")

	p := must(chat.Handoff(ctx, "night shift"))(t)
	require.Equal(t, p, must(chat.Handoff(ctx, "night shift"))(t))
	states := map[string]string{}
	for _, src := range p.VerifiedSources {
		states[src.Source] = src.State
	}
	require.Equal(t, map[string]string{
		stable: "verified", moved: "referenced", "acme/agent:fact": "verified", "acme/agent:unread": "referenced",
	}, states)
	require.Equal(t, "explain", p.ActiveIntent.PrimaryIntent)
	require.Equal(t, []session.BasisItem{{Text: "use metric units", Basis: "directive of the user in acme/agent"}}, p.LockedDecisions)
	require.Len(t, p.DoNotClaim, 2)
	refs := handoff.References(p)
	require.Len(t, refs, 2)
	require.Equal(t, "pinned", refs[0].Form)
	raw := must(p.JSON())(t)
	parsed := must(session.ReadPacket(raw))(t)
	require.Equal(t, p, parsed)

	other := openTest(t, filepath.Join(t.TempDir(), "other.ctx"), talkOptions())
	night := other.Scope("night").Session("shift")
	require.Len(t, must(night.Receive(ctx, parsed))(t), 3)
	require.ErrorIs(t, errOf(night.Receive(ctx, parsed)), store.ErrInvalid)
	w := must(night.Inspect(ctx))(t)
	require.True(t, w.Turns[0].Pinned && w.Turns[1].Pinned)
	require.False(t, w.Turns[2].Pinned)
	next := must(other.Scope("night").Assemble(ctx, Query{Text: "refund", Budget: 4000, Session: "shift"}))(t)
	require.Contains(t, next.Text(), "unverified")
	require.NotContains(t, next.Text(), `role="user"`, "what was handed over is data")
	require.Empty(t, must(hitsOf(other.Scope("night").Search(ctx, "refund ocean", 10)))(t), "and no memory")
	packet := must(night.Handoff(ctx, ""))(t)
	for _, src := range packet.VerifiedSources {
		require.NotEqual(t, "verified", src.State)
	}
}

// TestHandoffTitles: a packet has the titles of the turns that it names one by one.
func TestHandoffTitles(t *testing.T) {
	_, chat := openTalk(t)
	texts := map[string]string{}
	for i := range 120 {
		id := fmt.Sprint("turn-", i)
		texts[id] = fmt.Sprintf("Question %d %s\nand more of it", i, strings.Repeat("on the refund limit ", i%7))
		if i%3 == 0 {
			texts[id] = fmt.Sprintf("%d: how is the weather in Oslo %s?", i, strings.Repeat("and Rome ", i%40))
		}
		texts[id] += "\n" + strings.Repeat("It has more to say, so a stub is shorter. ", 12)
		must(chat.Append(ctx, Turn{ID: id, Role: "user", Text: texts[id]}))(t)
	}
	require.NoError(t, errOf(chat.Pass(ctx, session.PassQuery{Keywords: []string{"weather", "Oslo"}, Params: session.Params{Alpha: .6, Beta: .4, RetainCut: .65, EvictCut: .3}})))
	require.NoError(t, chat.Pin(ctx, "turn-7"))
	p := must(chat.Handoff(ctx, "night shift"))(t)

	forms := map[string]int{}
	for _, r := range handoff.References(p) {
		ref := must(store.ParseRef(r.Ref))(t)
		title, _, _ := strings.Cut(texts[ref.ID], "\n")
		require.Contains(t, r.Text, "): "+strings.TrimSpace(title[:min(len(title), 79)]))
		forms[r.Form]++
	}
	require.Equal(t, 1, forms["pinned"])
	require.Greater(t, len(forms), 1, "the control: turns of several forms")
	require.Less(t, len(handoff.References(p)), 120, "the control: others are in ranges")
}

// TestHandoffOfExpired: what has expired is neither quoted nor counted in a packet, and a fact that has is not verified.
func TestHandoffOfExpired(t *testing.T) {
	now := talkOptions().Clock()
	opts := Options{Clock: func() time.Time { return now }}
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), opts)
	defer db.Close()
	s := db.Scope("acme/agent")
	must(s.Put(ctx, Artefact{ID: "fare", Text: "The door code opens the back door.", TTL: time.Hour}))(t)
	chat := s.Session("chat")
	must(chat.Append(ctx, Turn{Role: "user", Text: "The door code is 4711.", ExpiresAt: now.Add(time.Hour)}, Turn{Role: "user", Text: "What does the door code open?"}))(t)
	a := must(s.Assemble(ctx, Query{Text: "door code", Budget: 3000, Session: "chat"}))(t)
	tx := must(s.Resume(ctx, a.Trace))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "It opens the back door."}))
	require.NoError(t, tx.Commit(ctx, Verdict{Confidence: 1, By: "checker"}))

	packed := func(turns int, state string) {
		p := must(chat.Handoff(ctx, "night shift"))(t)
		require.Len(t, handoff.References(p), turns)
		require.Equal(t, turns == 2, strings.Contains(string(must(p.JSON())(t)), "4711"))
		require.Equal(t, state, p.VerifiedSources[0].State)
	}
	packed(2, "verified")
	now = now.Add(time.Hour)
	packed(1, "unavailable")
}

// A session of any length is handed over in a packet that can be read, and one that receives it still has its contexts.
func TestHandoffOfALongSession(t *testing.T) {
	t.Parallel()
	for name, exchanges := range map[string]int{"60 turns": 30, "600 turns": 300} {
		for form, prepare := range map[string]func(chat *Session) error{
			"whole": func(*Session) error { return nil },
			"evicted": func(chat *Session) error {
				_, err := chat.Pass(ctx, session.PassQuery{Keywords: []string{"weather"}, Params: session.Params{Alpha: .6, Beta: .4, RetainCut: .9, EvictCut: .8}})
				return err
			},
			"pinned": func(chat *Session) error {
				for i := range 40 {
					if err := chat.Pin(ctx, fmt.Sprintf("block-chat-%d", i+1)); err != nil {
						return err
					}
				}
				return nil
			},
		} {
			t.Run(name+" "+form, func(t *testing.T) {
				_, chat := openTalk(t)
				var turns []Turn
				for i := range exchanges {
					turns = append(turns, Turn{Role: "user", Text: fmt.Sprintf("Question %d about the refund limit.", i)}, Turn{Role: "assistant", Text: fmt.Sprintf("Answer %d: it is 400 dollars.", i)})
				}
				must(chat.Append(ctx, turns...))(t)
				must(chat.s.Directives().Step(ctx, "prohibit guesses"))(t)
				require.NoError(t, chat.Record(ctx, session.Notes{Goal: "answer Ann", Done: strings.Split(strings.Repeat("looked up one more tariff\n", 300), "\n")}))
				require.NoError(t, prepare(chat))
				p := must(chat.Handoff(ctx, "night shift"))(t)
				require.Less(t, len(must(p.JSON())(t)), session.MaxHandoff)

				other := openTest(t, filepath.Join(t.TempDir(), "other.ctx"), talkOptions())
				defer other.Close()
				night := other.Scope("night").Session("shift")
				got := must(night.Receive(ctx, p))(t)
				w := must(night.Inspect(ctx))(t)
				require.Equal(t, session.Stub, w.Turns[0].Level, "the packet")
				require.True(t, w.Turns[1].Pinned, "its brief")
				require.Equal(t, form == "pinned", slices.ContainsFunc(w.Turns[2:], func(t session.WindowTurn) bool { return t.Pinned }))
				for turn := range 3 {
					a := must(other.Scope("night").Assemble(ctx, Query{Text: "What is the refund limit?", Budget: 4000, Session: "shift"}))(t)
					require.False(t, a.Review)
					require.LessOrEqual(t, a.Tier, triage.TierSummarised)
					require.Contains(t, a.Text(), "answer Ann")
					require.Contains(t, a.Text(), "prohibit guesses")
					must(night.Append(ctx, Turn{Role: "user", Text: fmt.Sprintf("And %d?", turn)}))(t)
				}
				whole := must(night.Recall(ctx, got[0].ID))(t)
				require.Equal(t, must(handoff.Pages(p, "shift"))(t)[0].Text, whole.Text)
				require.Empty(t, must(other.Admin().Check(ctx, nil))(t))
			})
		}
	}
}

// A packet that another program wrote may pin more than a context holds.
func TestReceiveOfManyPins(t *testing.T) {
	t.Parallel()
	p := handoff.Handoff(handoff.Input{Goal: "answer Ann"})
	for i := range 300 {
		p.Context = append(p.Context, session.ContextItem{Context: fmt.Sprintf("pinned acme:block-%d@1 (100 tokens, digest 0123456789ab): a first line", i), WhyItMatters: "pinned"})
	}
	db, chat := openTalk(t)
	require.Len(t, must(chat.Receive(ctx, p))(t), 302)
	w := must(chat.Inspect(ctx))(t)
	require.True(t, w.Turns[301].Pinned, "the newest")
	require.False(t, w.Turns[2].Pinned)
	a := must(db.Scope("acme/agent").Assemble(ctx, Query{Text: "refund", Budget: 4000, Session: "chat"}))(t)
	require.False(t, a.Review)
	require.Contains(t, a.Text(), "answer Ann")
}

// A packet that another program wrote may name more turns than a session should get pages for.
func TestReceiveIsBounded(t *testing.T) {
	t.Parallel()
	_, chat := openTalk(t)
	name := func(p *session.Packet, form string, from, to int) {
		for i := range to - from {
			p.Context = append(p.Context, session.ContextItem{Context: fmt.Sprintf("%s acme:block-%d@1 (100 tokens, digest 0123456789ab): a first line", form, from+i), WhyItMatters: form})
		}
	}
	p := handoff.Handoff(handoff.Input{Goal: "answer Ann"})
	name(&p, "retained", 0, 300)
	name(&p, "paged", 300, session.MaxReferences+1)
	_, err := chat.Receive(ctx, p)
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorIs(t, err, session.ErrPacket)
	require.ErrorContains(t, err, "names 513 turns one by one, expected at most 512")
	require.Empty(t, must(chat.Inspect(ctx))(t).Turns)

	p.Context = p.Context[:session.MaxReferences]
	name(&p, "evicted", 5000, 9000) // named in the packet, no pages
	p.Context = append(p.Context, p.Context[0])
	require.Len(t, must(chat.Receive(ctx, p))(t), session.MaxReferences+2, "the turns, the packet and its brief")
}

// TestHandoffVerifiesByTheOwner: a page of the session's scope does not change what the source of an ancestor's page
// verifies against.
func TestHandoffVerifiesByTheOwner(t *testing.T) {
	db, _ := openInternal(t)
	ctx := t.Context()
	parent, child := db.Scope("acme"), db.Scope("acme/bob")
	put := func(s *Scope, a Artefact) {
		t.Helper()
		must(s.Put(ctx, a))(t)
	}
	put(parent, Artefact{ID: "policy", Text: "zebra: the limit is 200"})
	put(parent, Artefact{ID: "copy", Source: "page:policy"})
	c := child.Session("chat")
	must(c.Append(ctx, Turn{Role: "user", Text: "what is the zebra limit?"}))(t)
	must(child.Assemble(ctx, Query{Text: "zebra limit", Budget: 2000, Session: "chat"}))(t)
	source := func() []session.PacketSource {
		return must(c.Handoff(ctx, "next"))(t).VerifiedSources
	}
	before := source()
	require.Contains(t, sourceNames(before), "page:acme:policy")
	put(child, Artefact{ID: "policy", Text: "zebra: bob says it is 900"})
	require.Equal(t, before, source(), "what bob calls policy is another page")
	put(parent, Artefact{ID: "policy", Text: "zebra: the limit is 300"})
	require.NotEqual(t, before, source(), "the negative control")
}

func sourceNames(sources []session.PacketSource) (out []string) {
	for _, s := range sources {
		out = append(out, s.Source)
	}
	return out
}

// TestMessagesNameNoLSN: how much others commit is not told by an error.
func TestMessagesNameNoLSN(t *testing.T) {
	db, _ := openInternal(t)
	ctx := t.Context()
	s := db.Scope("acme")
	for _, other := range []*Scope{s, db.Scope("other")} {
		for range 40 {
			must(other.Put(ctx, Artefact{ID: "x", Text: "text " + db.opts.Clock().String()}))(t)
		}
	}
	_, err := s.Assemble(ctx, Query{Text: "x", Budget: 100, AsOf: 12_345})
	require.ErrorIs(t, err, store.ErrInvalid)
	require.NotContains(t, err.Error(), "80")
	tx := must(s.Begin(ctx))(t)
	defer tx.Rollback()
	must(tx.Get(ctx, "x"))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "x", Text: "mine"}))
	must(s.Put(ctx, Artefact{ID: "x", Text: "theirs"}))(t)
	err = tx.Commit(ctx, Verdict{Confidence: 1, By: "judge"})
	require.ErrorIs(t, err, store.ErrConflict)
	require.NotRegexp(t, `\d`, err.Error())
	require.NotContains(t, err.Error(), "lsn")
	require.ErrorContains(t, err, "changed since it was read")
}
