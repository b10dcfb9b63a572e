package ctxpage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

const refunds = "Refunds are made within 30 days of the purchase, to the card that was charged; vouchers are not refunded."

func putPages(t *testing.T, s *ctxpage.Scope, pages ...ctxpage.Artefact) {
	for _, a := range pages {
		if a.Kind == 0 {
			a.Kind = store.KindChunk
		}
		must(s.Put(t.Context(), a))(t)
	}
}

// Of two pages that say the same one is in, and the other is named as its duplicate; what differs in one word is no
// duplicate.
func TestDuplicatesTakeOnePlace(t *testing.T) {
	db := open(t, ctxpage.Options{})
	s := db.Scope("acme")
	putPages(t, s,
		ctxpage.Artefact{ID: "a.md", Text: refunds},
		ctxpage.Artefact{ID: "b.md", Text: "Policy 7\n\n" + strings.ToUpper(refunds)},
		ctxpage.Artefact{ID: "new.md", Text: strings.Replace(refunds, "30", "60", 1)},
		ctxpage.Artefact{ID: "short-1", Text: "Thanks for the refunds"}, ctxpage.Artefact{ID: "short-2", Text: "Thanks for the refunds"},
	)
	a := must(s.Assemble(t.Context(), ctxpage.Query{Text: "When are refunds made?", Budget: 4000}))(t)
	in := map[string]bool{}
	for _, b := range a.Blocks {
		in[b.Ref.ID] = true
	}
	require.True(t, in["new.md"] && in["short-1"] && in["short-2"])
	require.NotEqual(t, in["a.md"], in["b.md"], "one of the two")
	kept, left := "a.md", "b.md"
	if in["b.md"] {
		kept, left = left, kept
	}
	require.Len(t, a.Left, 1)
	require.Equal(t, left, a.Left[0].Ref.ID)
	require.Equal(t, kept, a.Left[0].DuplicateOf.ID)
	require.Contains(t, a.Left[0].Reason, "duplicate")

	why := must(db.Why(t.Context(), a.Trace, ctxpage.Ref{ID: left}))(t)
	require.False(t, why.In)
	require.Contains(t, why.Twin, kept)
	require.Contains(t, strings.Join(why.Steps, "\n"), "it says the same as acme:"+kept)
	require.True(t, must(db.Replay(t.Context(), a.Trace))(t).Same)
}

// A person's word stands before one that is only ranked higher, and all that is protected stays.
func TestDuplicatesOfWhatIsSure(t *testing.T) {
	db := open(t, ctxpage.Options{})
	s := db.Scope("acme")
	putPages(t, s,
		ctxpage.Artefact{ID: "pin-1", Text: refunds, Pinned: true}, ctxpage.Artefact{ID: "pin-2", Text: refunds + " ", Pinned: true},
		ctxpage.Artefact{ID: "page", Text: "Refunds: " + refunds},
	)
	a := must(s.Assemble(t.Context(), ctxpage.Query{Text: "refunds", Budget: 4000}))(t)
	require.Len(t, a.Blocks, 2)
	require.Len(t, a.Left, 1)
	require.Equal(t, "page", a.Left[0].Ref.ID)
}

// Who says it is part of what a message says.
func TestDuplicatesOfMessages(t *testing.T) {
	db := open(t, ctxpage.Options{})
	s := db.Scope("acme")
	say := func(id, name string) ctxpage.Artefact {
		return ctxpage.Artefact{ID: id, Kind: store.KindMessage, Role: "user", Name: name, Group: id, Text: refunds}
	}
	putPages(t, s, say("m1", "Ann"), say("m2", "Bob"), say("m3", "Ann"), ctxpage.Artefact{ID: "page", Text: refunds})
	a := must(s.Assemble(t.Context(), ctxpage.Query{Text: "refunds", Budget: 4000}))(t)
	require.Len(t, a.Blocks, 3)
	require.Len(t, a.Left, 1)
	require.Contains(t, []string{"m1", "m3"}, a.Left[0].Ref.ID)
}

// Turns of the asking session are compared with nothing, with and without a window: a context that lacks a result is
// refused by every provider, and one that lacks a question cannot answer it. The control is another session.
func TestTurnsAreNoDuplicates(t *testing.T) {
	for _, window := range []int{0, 2000} {
		db := open(t, ctxpage.Options{})
		s := db.Scope("acme")
		talk := func(name string) *ctxpage.Session {
			chat := s.Session(name)
			if window > 0 {
				require.NoError(t, chat.SetWindow(t.Context(), session.Config{Total: window}))
			}
			for i := range 3 {
				id := fmt.Sprint(name, i)
				must(chat.Append(t.Context(), ctxpage.Turn{Role: "user", Text: refunds},
					ctxpage.Turn{Role: "assistant", ToolCalls: []store.ToolCall{{ID: id, Name: "refunds"}}},
					ctxpage.Turn{Role: "tool", ToolCallID: id, Text: refunds}, ctxpage.Turn{Role: "assistant", Text: refunds}))(t)
			}
			return chat
		}
		talk("other")
		chat := talk("chat")
		putPages(t, s, ctxpage.Artefact{ID: "page", Text: refunds}, ctxpage.Artefact{ID: "copy", Text: refunds})
		a := must(s.Assemble(t.Context(), ctxpage.Query{Text: "refunds", Budget: 8000, Session: chat.ID()}))(t)
		in := map[string]int{}
		for _, b := range a.Blocks {
			in[strings.TrimRight(b.Ref.ID, "0123456789")]++
		}
		require.Equal(t, 12, in["block-chat-"], "window %d: %v", window, a.Left)
		require.Equal(t, 1, in["page"]+in["copy"], "the control")
		require.Equal(t, 1, in["block-other-"], "the control: of what the user of another session said, one is enough")
		for _, write := range []func([]render.Message) ([]byte, error){render.OpenAI, render.Anthropic, render.Gemini} {
			must(write(a.Messages()))(t)
		}
	}
}

// TestSearchNamesADuplicateOnce: two pages that say the same take one place of a search; the next match takes the other.
func TestSearchNamesADuplicateOnce(t *testing.T) {
	s := open(t, ctxpage.Options{}).Scope("acme")
	const text = "Refunds are made within thirty days of the purchase, in the way they were paid."
	put(t, s, ctxpage.Artefact{ID: "a", Text: text})
	put(t, s, ctxpage.Artefact{ID: "b", Text: text})
	put(t, s, ctxpage.Artefact{ID: "c", Text: "The office that makes refunds is closed on Sundays and on holidays."})
	found := must(s.Search(ctx, "refunds made", 2))(t)
	require.Len(t, found.Hits, 2)
	require.ElementsMatch(t, []string{"b", "c"}, []string{found.Hits[0].Ref.ID, found.Hits[1].Ref.ID})
	require.Len(t, found.Left, 1)
	require.Equal(t, "a", found.Left[0].Ref.ID)
	require.Equal(t, "b", found.Left[0].DuplicateOf.ID)
	require.Empty(t, must(s.Search(ctx, "office closed", 2))(t).Left, "the control: nothing says the same")
}

// TestSummariesStayInTheirConversation: what an agent or a tool said is visible in its conversation only, and so is what the
// database makes of it: the summary that an assembly asked for, and the shorter forms of a window.
func TestSummariesStayInTheirConversation(t *testing.T) {
	db := open(t, ctxpage.Options{Summarizer: &head{words: 12}, NoWatch: true})
	s := db.Scope("acme")
	chat := s.Session("chat")
	must(chat.Append(ctx, ctxpage.Turn{Role: "user", Text: "What is the giraffe code?"},
		ctxpage.Turn{Role: "assistant", Text: "I look.", ToolCalls: []store.ToolCall{{ID: "c1", Name: "run", Arguments: "{}"}}},
		ctxpage.Turn{Role: "tool", ToolCallID: "c1", Text: "The giraffe code is 7733. " + strings.Repeat("And so on with the log of it. ", 50)},
		ctxpage.Turn{Role: "assistant", Text: "The giraffe word is 5511. " + strings.Repeat("And so on with the story of it. ", 50)},
		ctxpage.Turn{Role: "user", Text: "giraffe?"}))(t)
	a := assemble(t, s, ctxpage.Query{Text: "giraffe code", Budget: 200, Session: "chat"})
	require.Equal(t, []manifest.Form{manifest.FormSummary, manifest.FormSummary}, []manifest.Form{a.Blocks[2].Form, a.Blocks[3].Form}, "the control")
	windowed := s.Session("windowed")
	require.NoError(t, windowed.SetWindow(ctx, session.Config{Total: 400}))
	must(windowed.Append(ctx, ctxpage.Turn{Role: "assistant", Text: "The giraffe street is 9911. " + strings.Repeat("And so on with the street of it. ", 25)}))(t)
	for i := range 12 {
		must(windowed.Append(ctx, ctxpage.Turn{Role: []string{"user", "assistant"}[i%2], Text: fmt.Sprintf("line %d %s", i, strings.Repeat("of words ", 20))}))(t)
	}
	made := 0
	for v, err := range s.Artefacts(ctx, "") {
		require.NoError(t, err)
		if v.Kind == store.KindSummary {
			made++
		}
	}
	require.GreaterOrEqual(t, made, 3, "the control: two summaries, and a form of the window")
	must(s.Session("other").Append(ctx, ctxpage.Turn{Role: "user", Text: "giraffe?"}))(t)

	for _, session := range []string{"", "other"} {
		for _, floor := range []store.Provenance{0, store.Scratch} {
			a := assemble(t, s, ctxpage.Query{Text: "giraffe code word street", Budget: 2000, Session: session, Floor: floor})
			require.NotRegexp(t, "7733|5511|9911", a.Text(), "session %q, floor %v", session, floor)
		}
	}
	found := must(s.Search(ctx, "giraffe code word street", 10, ctxpage.WithFloor(store.Scratch)))(t)
	require.NotEmpty(t, found.Hits, "the control: what users said")
	for _, h := range found.Hits {
		require.NotEqual(t, store.KindSummary, must(s.Recall(ctx, h.Ref))(t).Kind, "%v", h.Ref)
	}
	for session, said := range map[string]string{"chat": "(?s)7733.*5511", "windowed": "9911"} {
		a := assemble(t, s, ctxpage.Query{Text: "giraffe code word street", Budget: 2000, Session: session, Floor: store.Scratch})
		require.Regexp(t, said, a.Text(), "its own")
	}
	for _, id := range []string{"block-chat-3", "block-chat-4", "block-windowed-1"} {
		require.NoError(t, s.Delete(ctx, id))
	}
	for _, session := range []string{"", "other", "chat", "windowed"} {
		a := assemble(t, s, ctxpage.Query{Text: "giraffe code word street", Budget: 2000, Session: session, Floor: store.Scratch})
		require.NotRegexp(t, "7733|5511|9911", a.Text(), "deleted, session %q", session)
	}
}
