package foreign_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// TestNoWordsAreLost: a provider's format refuses an item of another type, and a transcript refuses words under a type that it
// does not know, with line and type. Lines that are no turns are counted.
func TestNoWordsAreLost(t *testing.T) {
	claude := strings.SplitAfter(samples[foreign.ClaudeCode], "\n")[1]
	for name, file := range map[string]string{
		"Claude Code": claude, "Codex": samples[foreign.Codex], "Gemini CLI": `{"id":"1","type":"user","content":"list the files"}`,
		"LangChain": `[{"type":"human","data":{"content":"which tea?"}}]`, "a made-up type": `{"type":"zebra"}`,
	} {
		for _, f := range []foreign.Format{foreign.OpenAIChat, foreign.Responses, foreign.Anthropic} {
			_, err := read(t, f, file)
			var at *portable.LineError
			require.ErrorAs(t, err, &at, "%s as %s", name, f)
			require.Equal(t, []any{1, "type"}, []any{at.Line, at.Field})
			require.ErrorContains(t, err, "dbctl import reads transcripts")
		}
		require.ErrorContains(t, errOf(foreign.ParseMessage([]byte(strings.Trim(strings.SplitN(file, "\n", 2)[0], "[]")), 7)), "line 7, field type", name)
	}
	_, err := read(t, foreign.OpenAIChat, `{"messages":[{"role":"user","text":"Fix it"},{"role":"model","parts":[{"text":"done"}]}]}`)
	require.ErrorContains(t, err, "words under text")
	got, err := read(t, foreign.OpenAIChat, `{"messages":[{"role":"user","content":"","name":"ann"},{"role":"user","content":"hi"}]}`)
	require.NoError(t, err, "control: a message without words")
	require.Len(t, got, 1)

	none := func(store.Artefact, int) error { return nil }
	later := claude + `{"type":"progress","sessionId":"s1","data":{"text":"a hook runs"}}` + "\n"
	unknown := later + `{"type":"zebra","sessionId":"s1","content":"words of a new kind"}` + "\n"
	_, err = foreign.Read(t.Context(), strings.NewReader(unknown), foreign.Options{Format: foreign.ClaudeCode}, none)
	require.ErrorContains(t, err, `line 3, field type: type: got "zebra", with words`)
	left := must(foreign.Read(t.Context(), strings.NewReader(unknown), foreign.Options{Format: foreign.ClaudeCode, SkipUnknown: true}, none))(t)
	require.Equal(t, map[string]int{"progress": 1}, left.Types)
	require.Equal(t, map[string]int{"zebra": 1}, left.Unknown)
	left, err = foreign.Read(t.Context(), strings.NewReader(later+`{"type":"zebra","sessionId":"s1","n":3}`), foreign.Options{Format: foreign.ClaudeCode}, none)
	require.NoError(t, err, "control: an unknown type without words")
	require.Equal(t, map[string]int{"progress": 1, "zebra": 1}, left.Types)
}

// TestOneMessageOnSeveralLines: blocks of one message id are one turn. An id that comes again later is another turn, and a line that
// only repeats one is counted.
func TestOneMessageOnSeveralLines(t *testing.T) {
	text := `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Part one."}]}`
	call := `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}]}`
	result := `{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"file"}]}`
	more := `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Part two."}]}`
	file := strings.Join([]string{text, call, call, result, more, more, text}, "\n")
	f, _, err := foreign.Detect(t.Context(), strings.NewReader(file))
	require.NoError(t, err)
	require.Equal(t, foreign.Anthropic, f)
	var got []store.Artefact
	left := must(foreign.Read(t.Context(), strings.NewReader(file), foreign.Options{Format: f}, func(a store.Artefact, _ int) error {
		got = append(got, a)
		return nil
	}))(t)
	require.Equal(t, 2, left.Repeated, "a call and a text twice")
	require.Len(t, got, 3)
	require.Equal(t, "anthropic:chat/msg_1|assistant|Part one.", shown(&got[0]))
	require.Equal(t, "t1", got[0].ToolCalls[0].ID)
	require.Equal(t, "anthropic:chat/msg_1/2|assistant|Part two.Part one.", shown(&got[2]))
	require.Equal(t, []int64{1, 2, 3}, []int64{got[0].Seq, got[1].Seq, got[2].Seq})

	left = must(foreign.Read(t.Context(), strings.NewReader(strings.Join([]string{
		`{"sessionId":"g","projectHash":"h"}`, `{"id":"1","timestamp":"2026-01-02T03:04:05Z","type":"gemini","content":"I"}`, `{"id":"1","timestamp":"2026-01-02T03:04:05Z","type":"gemini","content":"I look."}`,
	}, "\n")), foreign.Options{Format: foreign.Gemini}, func(a store.Artefact, _ int) error {
		require.Equal(t, "gemini:g/1|assistant|I look.", shown(&a), "a later record of Gemini CLI replaces the one before")
		return nil
	}))(t)
	require.Equal(t, 1, left.Repeated)
}

// TestLargeBlocks: a block of any size that an artefact can have is kept as it came; a larger one is refused with the limit.
func TestLargeBlocks(t *testing.T) {
	message := func(n int) string {
		return `{"role":"user","content":[{"type":"text","text":"pic?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + base64.StdEncoding.EncodeToString(make([]byte, n)) + `"}}]}`
	}
	got := must(read(t, foreign.OpenAIChat, message(600_000)))(t)
	require.Equal(t, message(600_000)[strings.Index(message(600_000), `{"type":"image_url"`):len(message(600_000))-2], got[0].Parts[1].Detail)
	require.ErrorContains(t, errOf(read(t, foreign.OpenAIChat, message(13<<20))), "expected at most 16777216")
}

// TestSessionsOfImports: imported conversations are listed and named in the report, and are not mixed into a session that has turns
// from elsewhere.
func TestSessionsOfImports(t *testing.T) {
	ctx, s := t.Context(), scopeOf(t)
	rep := must(foreign.Import(ctx, s, strings.NewReader(samples[foreign.ClaudeCode]), foreign.Options{}))(t)
	want := []string{"claude-code/s1", "claude-code/s1/a1"}
	require.Equal(t, want, rep.Sessions)
	require.Equal(t, 2, rep.SessionCount)
	list := must(loop.Collect(s.Sessions(ctx)))(t)
	require.Equal(t, want, list)
	turns := must(loop.Collect(s.Session("claude-code/s1").Turns(ctx, 0)))(t)
	require.Len(t, turns, 3)
	a := must(s.Assemble(ctx, ctxpage.Query{Text: "where is the manual?", Session: "claude-code/s1", Budget: 4000}))(t)
	require.Contains(t, a.Text(), "Looking.")

	must(s.Session("openai/talk").Append(ctx, ctxpage.Turn{Role: "user", Text: "list the files"}))(t)
	chat := `[{"role":"user","content":"list the files"},{"role":"assistant","content":"none"}]`
	rep = must(foreign.Import(ctx, s, strings.NewReader(chat), foreign.Options{Format: foreign.OpenAIChat, Name: "talk"}))(t)
	require.Equal(t, []int{2, 0}, []int{rep.Live, rep.New})
	rep = must(foreign.Import(ctx, s, strings.NewReader(chat), foreign.Options{Format: foreign.OpenAIChat, Session: "other"}))(t)
	require.Equal(t, []int{0, 2}, []int{rep.Live, rep.New}, "control: a session of its own")
	rep = must(foreign.Import(ctx, s, strings.NewReader(chat[:len(chat)-1]+`,{"role":"user","content":"and now?"}]`), foreign.Options{Format: foreign.OpenAIChat, Session: "other"}))(t)
	require.Equal(t, []int{0, 1, 2}, []int{rep.Live, rep.New, rep.Same}, "a file that grew")
}

// TestTrust: whoever vouches for a file raises its facts and the user's words, and nothing else.
func TestTrust(t *testing.T) {
	ctx, s := t.Context(), scopeOf(t)
	opts := foreign.Options{Trust: store.Validated}
	require.ErrorContains(t, errOf(foreign.Import(ctx, s, strings.NewReader(samples[foreign.ClaudeCode]), opts)), "who vouches")
	must(foreign.Import(ctx, s, strings.NewReader(samples[foreign.Mem0]), foreign.Options{}))(t)
	opts.By, opts.Why = "ann", "my own notes"
	rep := must(foreign.Import(ctx, s, strings.NewReader(samples[foreign.Mem0]), opts))(t)
	require.Equal(t, []int{0, 2}, []int{rep.New, rep.Changed}, "imported as scratch before")
	must(foreign.Import(ctx, s, strings.NewReader(samples[foreign.ClaudeCode]), opts))(t)
	for id, want := range map[string]store.Provenance{
		"mem0:a1": store.Validated, "claude-code:s1/u1": store.Validated, "claude-code:s1/msg_1": store.Scratch, "claude-code:s1/result-t1": store.Scratch,
	} {
		v := must(s.Get(ctx, id))(t)
		require.Equal(t, want, v.Provenance, id)
	}
	rep = must(foreign.Import(ctx, s, strings.NewReader(strings.ReplaceAll(samples[foreign.Mem0], "likes", "loves")), opts))(t)
	require.Equal(t, []int{2, 0}, []int{rep.Changed, rep.Kept}, "the file may change what it was trusted with")
	opts.Trust = store.HumanVerified
	require.ErrorIs(t, errOf(foreign.Import(ctx, s, strings.NewReader(samples[foreign.Mem0]), opts)), store.ErrInvalid)
}

// TestRelationsAndGraphs: mem0's relations, and the answer of read_graph, are facts.
func TestRelationsAndGraphs(t *testing.T) {
	got := must(read(t, foreign.Mem0, `{"results":[{"id":"m1","memory":"Likes quokkas"}],"relations":[{"source":"ann","relationship":"lives_in","target":"zebraville"}]}`))(t)
	require.Equal(t, "mem0:ann-lives_in-zebraville||ann lives_in zebraville", shown(&got[1]))
	graph := `{"entities":[{"name":"Ann","entityType":"person","observations":["likes tea"]}],"relations":[{"from":"Ann","to":"Acme","relationType":"works_at"}]}`
	f, _, err := foreign.Detect(t.Context(), strings.NewReader(graph))
	require.NoError(t, err)
	require.Equal(t, foreign.MCPMemory, f)
	got = must(read(t, f, graph))(t)
	require.Len(t, got, 2)
	require.ErrorContains(t, errOf(read(t, f, `{"entities":[],"entities":[]}`)), "twice")
}

// TestClaudeArchiveWords: attachments beside an image, the program's text for blocks that it does not show, and spoken words are
// stored.
func TestClaudeArchiveWords(t *testing.T) {
	got := must(read(t, foreign.Claude, `[{"uuid":"c","name":"t","chat_messages":[
 {"uuid":"m1","sender":"human","text":"read both","content":[{"type":"text","text":"read both"},{"type":"image","source":{"type":"base64","data":"AAAA"}}],"attachments":[{"file_name":"n.txt","extracted_content":"zebra words"}]},
 {"uuid":"m2","sender":"assistant","text":"fallback words","content":[{"type":"newer_block","payload":1}]},
 {"uuid":"m3","sender":"human","text":"spoken quokka","content":[{"type":"voice_note","title":"Q","text":"spoken quokka"}]}]}]`))(t)
	require.Contains(t, shown(&got[0]), "zebra words")
	require.Contains(t, shown(&got[1]), "fallback words")
	require.Equal(t, "claude:c/m3|user|spoken quokka|", shown(&got[2]))
}

// TestRewinds: what Gemini CLI took back is no turn, a record of an earlier message changes it in its place, and the head of the file
// names the session.
func TestRewinds(t *testing.T) {
	message := func(id, kind, text string) string {
		return `{"id":"` + id + `","timestamp":"2026-01-02T03:04:05Z","type":"` + kind + `","content":"` + text + `"}`
	}
	file := strings.Join([]string{
		`{"sessionId":"g","projectHash":"h","messages":[]}`, message("1", "user", "first"), message("2", "gemini", "one"), message("3", "user", "a wrong way"), message("2", "gemini", "one, again"),
		message("4", "gemini", "lost"), `{"$set":{"summary":"a talk of two"}}`, `{"$rewindTo":"3"}`, message("5", "user", "second"),
	}, "\n") + "\n"
	f, _, err := foreign.Detect(t.Context(), strings.NewReader(file))
	require.NoError(t, err)
	require.Equal(t, foreign.Gemini, f)
	got, left := all(t, f, file)
	require.Equal(t, []string{"gemini:g/1|user|first", "gemini:g/2|assistant|one, again", "gemini:g/5|user|second"}, got)
	require.Equal(t, map[string]int{"header": 1, "rewound": 2}, left.Types)
	require.Equal(t, 1, left.Repeated)
	got, _ = all(t, f, file+`{"$rewindTo":"nobody"}`+"\n"+message("6", "user", "anew"))
	require.Equal(t, []string{"gemini:g/6|user|anew"}, got, "an id that is not there takes all back")

	s := scopeOf(t)
	must(foreign.Import(t.Context(), s, strings.NewReader(file), foreign.Options{}))(t)
	turns := must(loop.Collect(s.Session("gemini/g").Turns(t.Context(), 0)))(t)
	require.Len(t, turns, 3)
	require.Equal(t, int64(3), turns[2].Seq, "no gap")
}

// TestChatLog: the log of VS Code is read as the session that it describes at its end.
func TestChatLog(t *testing.T) {
	head := `{"kind":0,"v":{"version":3,"sessionId":"v","responderUsername":"GitHub Copilot","requests":[]}}`
	lines := []string{
		head,
		`{"kind":2,"k":["requests"],"v":[{"requestId":"q1","timestamp":1767323045000,"message":{"text":"explain this"},"response":[]}]}`,
		`{"kind":2,"k":["requests",0,"response"],"v":[{"value":"It so"}]}`,
		`{"kind":2,"k":["requests",0,"response"],"v":[{"value":"It sorts names."},{"kind":"thinking","value":"hm"}],"i":0}`,
		`{"kind":1,"k":["requests",0,"response",0,"value"],"v":"It sorts all names."}`,
		`{"kind":2,"k":["requests"],"v":[{"requestId":"q2","message":{"text":"wrong"}}]}`,
		`{"kind":2,"k":["requests"],"v":[{"requestId":"q3","message":{"text":"and then?"},"response":[]}],"i":1}`,
		`{"kind":1,"k":["customTitle"],"v":"a title"}`, `{"kind":3,"k":["customTitle"]}`, `{"kind":1,"k":["nowhere",7,"x"],"v":1}`,
	}
	file := strings.Join(lines, "\n") + "\n"
	f, why, err := foreign.Detect(t.Context(), strings.NewReader(file))
	require.NoError(t, err)
	require.Equal(t, foreign.Copilot, f)
	require.Contains(t, why, "a log of changes")
	got, _ := all(t, f, file)
	require.Equal(t, []string{"copilot:v/q1|user|explain this", "copilot:v/q1/response|assistant|It sorts all names.|", "copilot:v/q3|user|and then?"}, got)
	empty, _ := all(t, f, head)
	require.Empty(t, empty)
	for _, bad := range []string{`{"kind":2,"k":"requests","v":[]}`, `{"kind":9,"k":[],"v":1}`, `{"kind":0,"v":7}`} {
		require.ErrorContains(t, errOf(read(t, f, head+"\n"+bad)), "line 2", bad)
	}
}

func all(t *testing.T, f foreign.Format, file string) (out []string, left foreign.Left) {
	t.Helper()
	left = must(foreign.Read(t.Context(), strings.NewReader(file), foreign.Options{Format: f}, func(a store.Artefact, _ int) error {
		out = append(out, shown(&a))
		return nil
	}))(t)
	return out, left
}

// TestUndated: a time that cannot be read refuses nothing: its item has none and is counted. A time of expiry does.
func TestUndated(t *testing.T) {
	for f, file := range map[foreign.Format]string{
		foreign.ClaudeCode: strings.Replace(samples[foreign.ClaudeCode], `"timestamp":"2026-01-02T03:04:05Z"`, `"timestamp":"+863-01-02"`, 1),
		foreign.ChatGPT:    strings.Replace(samples[foreign.ChatGPT], `1700000001.25`, `"soon"`, 1),
		foreign.Claude:     strings.Replace(samples[foreign.Claude], `2025-01-02T03:04:05Z`, `863…`, 1),
		foreign.Mem0:       `{"results":[{"id":"m1","memory":"likes tea","updated_at":"yesterday"}]}`,
	} {
		require.NotEqual(t, samples[f], file, f)
		want, _ := all(t, f, samples[f])
		got, left := all(t, f, file)
		if f != foreign.Mem0 {
			require.Equal(t, want, got, f)
		}
		require.Equal(t, 1, left.Undated, f)
	}
	require.ErrorContains(t, errOf(read(t, foreign.Mem0, `{"results":[{"id":"m1","memory":"likes tea","expiration_date":"soon"}]}`)), "expiration_date")
}

// TestOpenMemory: an export of OpenMemory is read as mem0's memories, with their times, and is not taken for another format.
func TestOpenMemory(t *testing.T) {
	memory := func(id, state string) string {
		return `{"id":"` + id + `","user_id":"u1","content":"likes tea","metadata":{"a":"b"},"state":"` + state + `","created_at":"2025-01-02T03:04:05+00:00","updated_at":null`
	}
	for _, file := range []string{
		`{"user":{"id":"u1","name":"ann"},"apps":[],"categories":[],"memories":[` + memory("m1", "active") + `,"category_ids":[]},` + memory("m2", "deleted") + `,"category_ids":[]}],"status_history":[]}`,
		memory("m1", "active") + `,"app":"x","categories":["food"]}` + "\n" + memory("m2", "archived") + `,"app":"x","categories":[]}`,
	} {
		f, why, err := foreign.Detect(t.Context(), strings.NewReader(file))
		require.NoError(t, err)
		require.Equal(t, foreign.Mem0, f)
		require.Contains(t, why, "OpenMemory")
		got := must(read(t, f, file))(t)
		require.Len(t, got, 1)
		require.Equal(t, "mem0:m1||likes tea", shown(&got[0]))
		require.Equal(t, "2025-01-02 03:04:05 +0000 UTC", got[0].CurrentAsOf.String())
		_, left := all(t, f, file)
		require.Len(t, left.Types, 1)
		require.Zero(t, left.Empty)
	}
	f, _, err := foreign.Detect(t.Context(), strings.NewReader(samples[foreign.PAM]))
	require.NoError(t, err)
	require.Equal(t, foreign.PAM, f, "control")
}

// The hash of a text that the specification publishes, and what must not change it.
func TestPAMContentHash(t *testing.T) {
	const want = "sha256:e1bae3ec291c99eced01fc91b4152a0cef541fccf2034fc11b3f90f4e4d79b6e"
	require.Equal(t, want, foreign.ContentHash("User is a cloud infrastructure engineer"))
	require.Equal(t, want, foreign.ContentHash("  user is a\n\tCLOUD infrastructure  engineer "))
	require.Equal(t, foreign.ContentHash("caf\u00e9"), foreign.ContentHash("cafe\u0301"))
	require.NotEqual(t, want, foreign.ContentHash("User is a cloud engineer"), "control")
}

// imported are the artefacts of a scope, without what says when they were written.
func imported(t *testing.T, s *ctxpage.Scope) (out []string) {
	t.Helper()
	for v, err := range s.Artefacts(t.Context(), "") {
		require.NoError(t, err)
		full := must(s.Get(t.Context(), v.ID))(t)
		out = append(out, fmt.Sprint(full.ID, full.Kind, full.Text, full.Tags, full.Meta, full.CurrentAsOf.UTC(), full.ExpiresAt.UTC(), full.Provenance))
	}
	return out
}

// A file of PAM goes in, out, and in again: the same artefacts with the same ids, and nothing new where they are already.
func TestPAMRoundTrip(t *testing.T) {
	ctx := context.Background()
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "a.ctx"), ctxpage.Options{Exclusive: true}))(t)
	defer db.Close()
	file := fmt.Sprintf(`{"schema":"portable-ai-memory","schema_version":"1.0","owner":{"id":"ann"},"memories":[
{"id":"m1","type":"skill","custom_type":null,"status":"active","content":"Ann <writes> Go & \"SQL\"","content_hash":%q,"tags":["go","db"],"confidence":{"initial":0.9,"current":0.85},"temporal":{"created_at":"2024-06-01T10:00:00Z","updated_at":"2026-02-15T20:00:00Z","valid_until":null},"provenance":{"platform":"claude","conversation_ref":"c1"},"metadata":{"language":"en"}},
{"id":"m2","type":"preference","content":"Likes tea","content_hash":%q,"temporal":{"created_at":"2024-06-01T10:00:00Z","valid_until":"2031-01-01T00:00:00Z"},"provenance":{"platform":"chatgpt"}}]}`,
		foreign.ContentHash("Ann <writes> Go & \"SQL\""), foreign.ContentHash("Likes tea"))
	a := db.Scope("acme/a")
	rep := must(foreign.Import(ctx, a, strings.NewReader(file), foreign.Options{Format: foreign.PAM}))(t)
	require.Equal(t, 2, rep.New)
	var out bytes.Buffer
	opts := foreign.PAMOptions{Scope: "acme/a", Owner: "ann", At: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	did := must(foreign.ExportPAM(ctx, db, &out, opts))(t)
	require.Equal(t, 2, did.Memories)
	var was, is struct {
		Schema   string           `json:"schema"`
		Owner    map[string]any   `json:"owner"`
		Memories []map[string]any `json:"memories"`
	}
	require.NoError(t, json.Unmarshal([]byte(file), &was))
	require.NoError(t, json.Unmarshal(out.Bytes(), &is))
	delete(was.Memories[0], "custom_type") // null says nothing
	byID := map[string]map[string]any{}
	for _, m := range is.Memories {
		byID[m["id"].(string)] = m
	}
	was.Memories[1]["tags"] = []any{}
	for _, m := range was.Memories {
		require.Equal(t, m, byID[m["id"].(string)])
	}
	require.Equal(t, was.Owner, is.Owner)

	found, _, err := foreign.Detect(ctx, bytes.NewReader(out.Bytes()))
	require.NoError(t, err)
	require.Equal(t, foreign.PAM, found)
	again := must(foreign.Import(ctx, a, bytes.NewReader(out.Bytes()), foreign.Options{}))(t)
	require.Equal(t, 0, again.New+again.Kept+again.Changed, "%+v", again)
	b := db.Scope("acme/b")
	must(foreign.Import(ctx, b, bytes.NewReader(out.Bytes()), foreign.Options{}))(t)
	var second bytes.Buffer
	opts.Scope = "acme/b"
	must(foreign.ExportPAM(ctx, db, &second, opts))(t)
	require.Equal(t, out.String(), second.String(), "out, in, out: the same bytes")
	require.Len(t, imported(t, b), 2)
}

// What a database has of its own goes out with what the format has a place for; what is no memory is counted.
func TestPAMOut(t *testing.T) {
	ctx := context.Background()
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "a.ctx"), ctxpage.Options{Exclusive: true}))(t)
	defer db.Close()
	s := db.Scope("acme/desk")
	for _, x := range []ctxpage.Artefact{
		{ID: "tea", Text: "Ann likes tea", Subject: "ann", Tags: []string{"drinks"}, Meta: map[string]string{"k": "v"}},
		{ID: "bob", Text: "Bob likes coffee", Subject: "bob"},
		{ID: "old", Text: "gone"},
		{ID: "doc", Kind: store.KindChunk, Text: strings.Repeat("A long paragraph of text.\n\n", 300)},
	} {
		must(s.Put(ctx, x))(t)
	}
	require.NoError(t, s.Delete(ctx, "old"))
	must(s.Session("talk").Append(ctx, ctxpage.Turn{Role: "user", Text: "hello"}))(t)
	must(db.Scope("acme/desk/sub").Put(ctx, ctxpage.Artefact{ID: "below", Text: "below"}))(t)
	must(db.Scope("acme/desktop").Put(ctx, ctxpage.Artefact{ID: "other", Text: "of another scope"}))(t)
	export := func(o foreign.PAMOptions) (string, *foreign.PAMReport) {
		var b bytes.Buffer
		rep := must(foreign.ExportPAM(ctx, db, &b, o))(t)
		require.True(t, json.Valid(b.Bytes()))
		return b.String(), rep
	}
	text, rep := export(foreign.PAMOptions{Scope: "acme/desk"})
	require.Equal(t, 4, rep.Memories)
	require.Equal(t, map[string]int{"message": 1}, rep.Left)
	require.NotContains(t, text, "gone")
	require.NotContains(t, text, "another scope")
	require.Contains(t, text, `"type":"custom"`)
	require.Contains(t, text, `"ctxpage.subject":"ann"`)
	text, rep = export(foreign.PAMOptions{Subject: "ann"})
	require.Equal(t, 1, rep.Memories)
	require.NotContains(t, text, "Bob")
	require.Contains(t, text, `"owner":{"id":"ann"}`)
	require.ErrorIs(t, errOf(foreign.ExportPAM(ctx, db, io.Discard, foreign.PAMOptions{Subject: "nobody"})), store.ErrNotFound)
	text, rep = export(foreign.PAMOptions{})
	require.Equal(t, 5, rep.Memories)
	to := db.Scope("else")
	in := must(foreign.Import(ctx, to, strings.NewReader(text), foreign.Options{}))(t)
	require.Equal(t, 5, in.New)
	for _, line := range imported(t, to) {
		require.Contains(t, line, "scratch", "whatever it was")
	}
}
