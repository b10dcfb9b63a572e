package dbctl

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

type hookCmd struct {
	File    string `arg:"" help:"Database. It is created if missing."`
	Scope   string `help:"Scope of the conversations. Required."`
	Actor   string `help:"Who writes, for manifests. Default: the scope."`
	Session string `help:"Name of the conversation. Default: session_id of the event."`
	Subject string `help:"Whom the conversations are about, for exports and erases."`
	priorityFlags
	Window int `help:"Set the window of a conversation without one to this many tokens." placeholder:"TOKENS"`
	windowFlags
	MaxBytes int           `help:"Cut the input and the result of a tool after this many bytes." default:"32768"`
	Timeout  time.Duration `help:"Give up after this time, so that the host is not kept waiting." default:"5s"`
	Strict   bool          `help:"Exit with an error code if the event cannot be stored. Without it the exit code is 0 whatever happens."`
	DryRun   bool          `help:"Print the turns and write nothing."`
}

type hookView struct {
	Event   string     `json:"event"`
	Session string     `json:"session"`
	Refs    []string   `json:"refs"`
	DryRun  bool       `json:"dry_run"`
	Turns   []turnLine `json:"turns,omitempty"` // of a dry run
}

// Run never fails the host: unless --strict is given, an error is a line on standard error.
func (c *hookCmd) Run(a *app) error {
	err := c.run(a)
	if err == nil || c.Strict {
		return err
	}
	a.report(err)
	return nil
}

func (c *hookCmd) run(a *app) error {
	switch {
	case c.Scope == "":
		return usage("expected --scope: the scope of the conversations")
	case c.MaxBytes < 1 || c.MaxBytes > store.MaxToolBytes:
		return usage("--max-bytes %d: expected 1 to %d", c.MaxBytes, store.MaxToolBytes)
	case c.Window < 0 || c.Reserve != 0 && c.Window == 0:
		return usage("--window %d with --reserve %v: expected tokens above zero for both", c.Window, c.Reserve)
	case c.Timeout <= 0:
		return usage("--timeout %s: expected more than zero", c.Timeout)
	}
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	e, err := readHook(interruptible{ctx, a.in})
	if err != nil {
		return err
	}
	turns, err := e.turns(c.MaxBytes)
	if err != nil {
		return err
	}
	if err := c.rate(turns); err != nil {
		return err
	}
	for i := range turns {
		turns[i].Subject = c.Subject
	}
	v := hookView{Event: e.Event, Session: e.SessionID, Refs: []string{}, DryRun: c.DryRun}
	if c.Session != "" {
		v.Session = c.Session
	}
	switch {
	case c.DryRun:
		for i := range turns {
			t := &turns[i]
			v.Turns = append(v.Turns, turnLine{ID: t.ID, Role: t.Role, Name: t.Name, Text: t.Text, ToolCalls: t.ToolCalls, ToolCallID: t.ToolCallID, At: t.At, Subject: t.Subject})
		}
	case len(turns) > 0:
		if v.Refs, err = c.append(ctx, a, v.Session, turns); err != nil {
			return err
		}
	}
	if !a.JSON && !c.DryRun {
		return nil
	}
	return a.emit(v, v.print)
}

func (v *hookView) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s in session %s\n", v.Event, plural(len(v.Turns), "turn", "turns"), line(v.Session))
	for _, t := range v.Turns {
		fmt.Fprintf(w, "%s: %s\n", t.Role, cut(or(t.Text, callsOf(t.ToolCalls)), 100))
	}
}

func callsOf(calls []store.ToolCall) string {
	var all []string
	for _, c := range calls {
		all = append(all, c.Name+" "+c.Arguments)
	}
	return strings.Join(all, ", ")
}

// append opens the database as every process does, and appends. Opening is in real time and is not ended by ctx: an owner that
// does not answer is given up after two seconds.
func (c *hookCmd) append(ctx context.Context, a *app, session string, turns []ctxpage.Turn) (refs []string, err error) {
	db, err := a.database(c.File, ctxpage.Options{Counter: a.counter, Key: a.key, Keyring: a.Keyring, LockTimeout: min(a.Wait, c.Timeout), Clock: a.now, NoWatch: a.noWatch}, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var opts []ctxpage.ScopeOption
	if c.Actor != "" {
		opts = append(opts, ctxpage.WithActor(c.Actor))
	}
	s := db.Scope(c.Scope, opts...).Session(session)
	if err := c.limit(ctx, s); err != nil {
		return nil, err
	}
	if err := identify(ctx, s, turns); err != nil {
		return nil, err
	}
	got, err := s.Append(ctx, turns...)
	return view.Refs(got), err
}

// identify sets the id of a turn whose event has none, from its text and the turn before it: an event that the host reports twice adds
// nothing.
func identify(ctx context.Context, s *ctxpage.Session, turns []ctxpage.Turn) error {
	if len(turns) != 1 || turns[0].ID != "" {
		return nil
	}
	w, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	t, n := &turns[0], len(w.Turns)
	before := func(i int) string { // the id of a turn behind the i-th
		last := ""
		if i > 0 {
			last = w.Turns[i-1].ID
		}
		return "hook-" + t.Role + "-" + digest(s.ID(), last, t.Text)
	}
	t.ID = before(n)
	if n > 0 && w.Turns[n-1].ID == before(n-1) {
		t.ID = before(n - 1)
	}
	return nil
}

func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// limit sets the window of a conversation that has none. The process that owns the database keeps headroom in it; this one
// does so before it ends if no other has the database.
func (c *hookCmd) limit(ctx context.Context, s *ctxpage.Session) error {
	if c.Window == 0 {
		return nil
	}
	cfg, err := c.window(c.Window)
	if err != nil {
		return err
	}
	w, err := s.Inspect(ctx)
	if err != nil || w.Limits != nil {
		return err
	}
	return s.SetWindow(ctx, cfg)
}

// spares reports whether a command line that cannot be read must end well all the same: hosts take an exit code of 2 as an
// order to block what the user or the model was about to do.
func spares(args []string) bool {
	if len(args) == 0 || args[0] != "hook" {
		return false
	}
	for _, arg := range args {
		if arg == "--strict" || strings.HasPrefix(arg, "--strict=") {
			return false
		}
	}
	return true
}

// hookEvent is the input of a hook. Hosts send more fields, which differ by version.
type hookEvent struct {
	SessionID  string          `json:"session_id"`
	Transcript string          `json:"transcript_path"`
	Event      string          `json:"hook_event_name"`
	Agent      string          `json:"agent_id"`               // of a subagent, in whose conversation the event happened
	Prompt     string          `json:"prompt"`                 // UserPromptSubmit
	Tool       string          `json:"tool_name"`              // PostToolUse
	ToolUseID  string          `json:"tool_use_id"`            // of recent hosts
	Input      json.RawMessage `json:"tool_input"`             //
	Response   json.RawMessage `json:"tool_response"`          //
	Output     json.RawMessage `json:"tool_output"`            // as some hosts call the response
	Error      string          `json:"error"`                  // PostToolUseFailure
	Last       string          `json:"last_assistant_message"` // Stop, of recent hosts

	Conversation string `json:"conversation_id"` // Cursor's session_id
	Generation   string `json:"generation_id"`   // Cursor's turn_id
	Turn         string `json:"turn_id"`         // of Codex
	Answer       string `json:"prompt_response"` // AfterAgent of Gemini CLI
	Text         string `json:"text"`            // afterAgentResponse of Cursor
	Failure      string `json:"error_message"`   // postToolUseFailure of Cursor
}

// sameEvents are the names that Gemini CLI and Cursor have for events of Claude Code and Codex.
var sameEvents = map[string]string{
	"BeforeAgent": "UserPromptSubmit", "AfterTool": "PostToolUse", "AfterAgent": "Stop",
	"beforeSubmitPrompt": "UserPromptSubmit", "postToolUse": "PostToolUse", "postToolUseFailure": "PostToolUseFailure", "afterAgentResponse": "Stop",
}

// translate renames the fields of another host's event as Claude Code has them. Its transcript has a form of its own.
func (e *hookEvent) translate() {
	e.SessionID, e.Turn, e.Error = or(e.SessionID, e.Conversation), or(e.Turn, e.Generation), or(e.Error, e.Failure)
	if same := sameEvents[e.Event]; same != "" {
		e.Event, e.Transcript, e.Last = same, "", or(e.Last, or(e.Answer, e.Text))
	}
}

// Limits of what a hook reads.
const (
	maxHookInput  = 16 << 20
	maxTranscript = 8 << 20 // bytes at the end of the transcript
)

func readHook(in io.Reader) (*hookEvent, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxHookInput+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxHookInput {
		return nil, usage("the event on standard input has more than %d bytes", maxHookInput)
	}
	var e hookEvent
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, usage("expected the JSON of a hook's event on standard input: %v", err)
	}
	if err := view.CheckKnownFields(b, e); err != nil {
		return nil, usage("the event on standard input: %v", err)
	}
	e.translate()
	if e.SessionID == "" || e.Event == "" {
		return nil, usage("the event on standard input: expected session_id and hook_event_name")
	}
	return &e, nil
}

// turns returns the turns that an event adds to the conversation. It is empty for an event without words.
func (e *hookEvent) turns(maxBytes int) ([]ctxpage.Turn, error) {
	if e.Agent != "" { // it has the session's id, and yet a conversation of its own
		return nil, nil
	}
	switch e.Event {
	case "UserPromptSubmit":
		if text := public(e.Prompt); text != "" {
			t := ctxpage.Turn{Role: "user", Text: text}
			if e.Turn != "" {
				t.ID = "hook-prompt-" + digest(e.SessionID, e.Turn, text)
			}
			return []ctxpage.Turn{t}, nil
		}
		return nil, nil
	case "PostToolUse", "PostToolUseFailure":
		return e.toolTurns(maxBytes)
	case "Stop":
		return e.answers()
	}
	return nil, nil
}

// toolTurns are the call and its result. A tool without a name cannot be called.
func (e *hookEvent) toolTurns(maxBytes int) ([]ctxpage.Turn, error) {
	if e.Tool == "" {
		return nil, usage("the event %s: expected tool_name", e.Event)
	}
	input, err := publicJSON(e.Input)
	if err != nil {
		return nil, usage("the event %s: tool_input: %v", e.Event, err)
	}
	response := e.Response
	if len(response) == 0 {
		response = e.Output
	}
	result, err := publicJSON(response)
	if err != nil {
		return nil, usage("the event %s: tool_response: %v", e.Event, err)
	}
	var words string
	if json.Unmarshal([]byte(result), &words) == nil { // a plain text, not an object
		result = words
	}
	if e.Error != "" {
		result = "error: " + public(e.Error)
	}
	id := e.ToolUseID
	if id == "" {
		var b [16]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, err
		}
		id = "hook_" + hex.EncodeToString(b[:])
	}
	call := store.ToolCall{ID: id, Type: "function", Name: toolName(e.Tool), Arguments: arguments(input, maxBytes)}
	return []ctxpage.Turn{
		{ID: "hook-call-" + id, Role: "assistant", ToolCalls: []store.ToolCall{call}},
		{ID: "hook-result-" + id, Role: "tool", Name: call.Name, ToolCallID: id, Text: or(shortened(result, maxBytes), "(no output)")},
	}, nil
}

// toolName is a name that providers take: other characters become underscores.
func toolName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("_-.:", r):
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), 64)]
}

// arguments returns the arguments of a call as JSON. A cut would break JSON, so arguments that are too long become a text that says so.
func arguments(input string, maxBytes int) string {
	if len(input) <= maxBytes {
		return or(input, "{}")
	}
	b, _ := json.Marshal(map[string]string{"cut": shortened(input, maxBytes)}) // a text always has a form
	return string(b)
}

// shortened is a text of at most n bytes, and says what was left out.
func shortened(text string, n int) string {
	if len(text) <= n {
		return text
	}
	kept := text[:n]
	for !utf8.ValidString(kept) && len(kept) > 0 {
		kept = kept[:len(kept)-1]
	}
	return fmt.Sprintf("%s\n[%d more bytes were left out]", kept, len(text)-len(kept))
}

// The marks of what a user does not want to be kept: as they are, and as programs escape them in JSON within a text and in
// HTML.
var (
	privateBegins = []string{"<private>", `\u003cprivate\u003e`, "&lt;private&gt;"}
	privateEnds   = []string{"</private>", `\u003c/private\u003e`, "&lt;/private&gt;"}
)

// markAt is the length of the mark with which a text begins; 0: it begins with none.
func markAt(text string, marks []string) int {
	for _, m := range marks {
		if strings.HasPrefix(text, m) {
			return len(m)
		}
	}
	return 0
}

// public is a text without its private parts. A part that does not end reaches to the end of the text; parts may be nested.
func public(text string) string {
	text, _ = publicFrom(text, 0)
	return strings.TrimSpace(text)
}

// publicFrom is public for a text that begins within so many private parts; within says in how many it ends.
func publicFrom(text string, depth int) (kept string, within int) {
	lower := asciiLower(text)
	var b strings.Builder
	for at := 0; at < len(text); {
		if n := markAt(lower[at:], privateBegins); n > 0 {
			depth++
			at += n
		} else if n := markAt(lower[at:], privateEnds); n > 0 && depth > 0 {
			depth--
			at += n
		} else {
			if depth == 0 {
				b.WriteByte(text[at])
			}
			at++
		}
	}
	return b.String(), depth
}

// asciiLower keeps the length of a text, which strings.ToLower may not: places in one are places in the other.
func asciiLower(text string) string {
	b := []byte(text)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// publicJSON is a JSON value whose texts have no private parts. The marks may be escaped in the bytes, so it is decoded.
func publicJSON(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	v, _ = publicValue(v, 0)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// publicValue is a value that begins within so many private parts. A part may go on over the texts of a list, such as the
// lines of a patch; an object in it ends it if one of its texts does.
func publicValue(v any, depth int) (kept any, within int) {
	switch v := v.(type) {
	case string:
		text, within := publicFrom(v, depth)
		if len(text) < len(v) {
			text = strings.TrimSpace(text)
		}
		return text, within
	case []any:
		within := depth
		for i := range v {
			v[i], within = publicValue(v[i], within)
		}
		return v, within
	case map[string]any:
		return publicObject(v, depth)
	}
	if depth > 0 {
		return nil, depth
	}
	return v, 0
}

// publicObject is publicValue of an object. Its members have no order, so each begins where the object does.
func publicObject(v map[string]any, depth int) (kept any, within int) {
	out, most, least := map[string]any{}, depth, depth
	for k := range v {
		member, d := publicValue(v[k], depth)
		out[public(k)] = member
		most, least = max(most, d), min(least, d)
	}
	switch {
	case least < depth:
		return out, least
	case depth > 0:
		return nil, most
	}
	return out, most
}

// answers returns what the assistant said since the user's last prompt. The transcript may be incomplete when the hook runs, so the
// event's copy of the last answer counts, too. The same text after the same prompt is one turn.
func (e *hookEvent) answers() ([]ctxpage.Turn, error) {
	prompt, said, err := e.transcript()
	prompt = or(prompt, e.Turn)
	if e.Last != "" && (len(said) == 0 || strings.TrimSpace(said[len(said)-1]) != strings.TrimSpace(e.Last)) {
		said = append(said, e.Last)
	}
	if err != nil && len(said) == 0 {
		return nil, err
	}
	var turns []ctxpage.Turn
	seen := map[string]bool{}
	for _, text := range said {
		if text = public(text); text == "" || seen[text] {
			continue
		}
		seen[text] = true
		t := ctxpage.Turn{Role: "assistant", Text: text}
		if prompt != "" {
			t.ID = "hook-answer-" + digest(e.SessionID, prompt, text)
		}
		turns = append(turns, t)
	}
	return turns, nil
}

// transcript reads the end of the transcript: the id of the user's last prompt, and what the assistant said after it.
func (e *hookEvent) transcript() (prompt string, said []string, err error) {
	if e.Transcript == "" {
		return "", nil, nil
	}
	path := e.Transcript
	if home, err := os.UserHomeDir(); err == nil && strings.HasPrefix(path, "~/") {
		path = filepath.Join(home, path[2:])
	}
	f, err := os.Open(path)
	if err != nil {
		return "", nil, failed("the event's transcript: %v", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return "", nil, failed("the event's transcript %s: expected a file", path)
	}
	lines := bufio.NewReader(f)
	if st.Size() > maxTranscript {
		if _, err := f.Seek(-maxTranscript, io.SeekEnd); err != nil {
			return "", nil, failed("the event's transcript: %v", err)
		}
		_, _ = lines.ReadBytes('\n') // a part of a line
	}
	for {
		raw, err := lines.ReadBytes('\n')
		l, bad := foreign.ParseClaudeCode(raw)
		for _, m := range l.Messages {
			texts := m.Texts()
			switch {
			case bad != nil || l.Side: // a line that is being written, or a subagent's
			case m.Role == "user" && len(l.Messages) == 1 && len(texts) > 0:
				prompt, said = l.ID, nil
			case m.Role == "assistant":
				said = append(said, texts...)
			}
		}
		if errors.Is(err, io.EOF) {
			return prompt, said, nil
		}
		if err != nil {
			return "", nil, failed("the event's transcript: %v", err)
		}
	}
}
