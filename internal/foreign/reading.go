package foreign

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/store"
)

// reading is a file on its way through. A turn waits until the next one begins, because later lines may be blocks of the same
// message.
type reading struct {
	opts    Options
	dialect *dialect // nil: no transcript
	fn      func(a store.Artefact, line int) error
	left    Left

	session    string            // of the lines that follow, as the file names it; "": it has not named one
	containers int               // conversations without a name so far
	seq        map[string]int64  // turns so far, by session
	named      map[string]string // ids of conversations and memories, by name
	ids        map[uint64]int64  // digests of ids that had a turn: how many it had, or its place
	waiting    []unnamedCall
	// unnamedCalls counts calls without an id.
	unnamedCalls int
	pending      *turn

	lines, values int // lines and values at the top level that were read
	replay
}

func newReading(opts Options) *reading {
	if opts.Name == "" {
		opts.Name = "chat"
	}
	return &reading{opts: opts, dialect: dialectOf(opts.Format), seq: map[string]int64{}, named: map[string]string{}, ids: map[uint64]int64{}, replay: replay{at: map[string]int{}}}
}

// clone returns a reading that goes on from here and leaves x as it is, but for the session of a log that was begun (replay.logged).
func (x *reading) clone() *reading {
	y := *x
	y.seq, y.ids, y.at, y.held, y.left = maps.Clone(x.seq), maps.Clone(x.ids), maps.Clone(x.at), slices.Clone(x.held), Left{}
	if x.pending != nil {
		p := *x.pending
		p.ToolCalls = slices.Clip(p.ToolCalls)
		y.pending = &p
	}
	return &y
}

// read reads what a reader has. The last turn waits; end hands it on.
func (x *reading) read(ctx context.Context, r io.Reader) error {
	s := newScanner(ctx, r, lists[x.opts.Format]...)
	s.line, s.values = x.lines+1, x.values
	if x.opts.Format == ChatGPT || x.opts.Format == Claude || x.dialect != nil {
		s.limit = MaxChat
	}
	if x.opts.Progress != nil {
		s.told = func(n int64) { x.opts.Progress("bytes read", uint64(n), x.opts.size) }
	}
	err := s.each(func(e element) error {
		if e.rest {
			return x.container(e)
		}
		if err := check(e); err != nil {
			return err
		}
		return x.element(e)
	})
	x.lines, x.values = s.line-1, s.values
	return err
}

func (x *reading) end() error {
	if err := x.endLog(); err != nil {
		return err
	}
	if err := x.flush(); err != nil {
		return err
	}
	for i := range x.held {
		if err := x.put(element{line: x.held[i].line}, x.held[i].item); err != nil {
			return err
		}
	}
	return nil
}

type turn struct {
	Message
	session string // as the key of its id names it
	group   string
	line    int
}

func (x *reading) container(e element) error {
	switch x.opts.Format {
	case PAM:
		return pamVersion(e)
	case OpenAIChat, Responses, Anthropic:
		session, group := x.unnamed(e.container)
		return x.instructions(e, object(e.raw), session, group)
	}
	return nil
}

// instructions keeps what an object says to the model beside its list of messages: scratch, of the conversation.
func (x *reading) instructions(e element, v fields, session, group string) error {
	raw := first(v, "system", "instructions", "systemInstruction.parts", "system_instruction.parts", "systemInstruction", "session.instructions")
	said := words(raw)
	if strings.TrimSpace(said) == "" || len(raw) > 0 && raw[0] == '{' {
		return nil
	}
	if err := x.flush(); err != nil {
		return err
	}
	a := store.Artefact{Kind: store.KindScratch, Name: system, Text: said, Group: group}
	return x.put(e, item(x.opts.Format, session+"/"+system, a, nil))
}

func (x *reading) element(e element) error {
	e.undated = &x.left.Undated
	if x.dialect != nil {
		var v fields
		if err := decode(e, &v); err != nil {
			return err
		}
		return x.transcript(e, v)
	}
	if x.opts.Format == OpenAIChat || x.opts.Format == Responses || x.opts.Format == Anthropic {
		return x.chat(e)
	}
	all, err := x.items(e)
	if errors.Is(err, errCounted) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(all) == 0 {
		x.left.Empty++
	}
	for i := range all {
		if err := x.put(e, all[i]); err != nil {
			return err
		}
	}
	return nil
}

func (x *reading) put(e element, a store.Artefact) error {
	if err := a.Check(); err != nil {
		var bad *store.InvalidError
		field := ""
		if errors.As(err, &bad) {
			field = bad.Field
		}
		return e.wrong(field, err)
	}
	return x.fn(a, e.line)
}

var errCounted = errors.New("left out")

func (x *reading) items(e element) ([]store.Artefact, error) {
	one := func(a store.Artefact, err error) ([]store.Artefact, error) {
		if err != nil {
			return nil, err
		}
		return []store.Artefact{a}, nil
	}
	switch x.opts.Format {
	case Mem0:
		all, state, err := mem0(e)
		if state != "" {
			count(&x.left.Types, state)
			return nil, errCounted
		}
		return all, err
	case MCPMemory:
		return mcpMemory(e)
	case ChatGPT:
		return chatGPT(e, x.opts.Branches)
	case Claude:
		return claude(e)
	case LangGraph:
		return one(langGraph(e))
	case PAM:
		return one(pam(e))
	}
	return one(mapped(e, x.opts.Map))
}

// unnamed names a conversation that has no name in the file; n is its number, from 0.
func (x *reading) unnamed(n int) (session, group string) {
	session, group = x.opts.Name, x.opts.Session
	if group != "" {
		session = group
	} else {
		group = conversation(x.opts.Format, session)
	}
	if n > 0 {
		session, group = fmt.Sprintf("%s-%d", session, n+1), fmt.Sprintf("%s-%d", group, n+1)
	}
	return session, label(group)
}

// chat reads a message of a provider. A file is one conversation, unless each of its lines is a list of messages.
func (x *reading) chat(e element) error {
	n := 0
	if e.key != "" && e.container > 0 {
		n = e.container
	}
	turns, err := messages(e)
	if err != nil {
		return err
	}
	session, group := x.unnamed(n)
	for _, m := range turns {
		if err := x.say(turn{m, session, group, e.line}); err != nil {
			return err
		}
	}
	return nil
}

// transcript reads a line, or an object with a list of lines, which is a conversation of its own.
func (x *reading) transcript(e element, v fields) error {
	if x.dialect.event != nil && e.path == "" {
		if is, err := x.dialect.event(x, e, v); is || err != nil {
			return err
		}
	}
	for _, key := range x.dialect.lists {
		lines := list(v[key])
		if lines == nil {
			continue
		}
		was := x.session
		x.session = x.apart(x.dialect.named(v), name(v, "id"))
		for i, raw := range lines {
			line := element{raw: raw, line: e.line, path: strings.TrimPrefix(fmt.Sprintf("%s.%s.%d", e.path, key, i), "."), undated: e.undated}
			inner := object(raw)
			if inner == nil {
				return line.wrong("", store.Invalid("message", cut(string(raw), 40), "an object"))
			}
			if err := x.transcript(line, inner); err != nil {
				return err
			}
		}
		if err := x.flush(); err != nil {
			return err
		}
		session, group := x.unnamed(x.containers)
		if x.session != "" {
			session, group = x.session, label(conversation(x.opts.Format, x.session))
		}
		err := cmp.Or(x.facts(e, v), x.instructions(e, v, session, group))
		if x.session == "" {
			x.containers++
		}
		if len(lines) > 0 { // otherwise it is the head of the lines that follow
			x.session = was
		}
		return err
	}
	return x.line(e, v)
}

// apart adds the id to the name of a conversation if another conversation has that name.
func (x *reading) apart(session, id string) string {
	if was, ok := x.named[session]; session != "" && ok && id != "" && was != id {
		return session + "-" + id
	}
	x.named[session] = id
	return session
}

// facts reads the memories of an object that has a conversation, too.
func (x *reading) facts(e element, v fields) error {
	for _, key := range x.dialect.facts {
		for _, raw := range list(v[key]) {
			b := object(raw)
			label, said := name(b, "label"), text(b["value"])
			if strings.TrimSpace(said) == "" {
				continue
			}
			a := store.Artefact{Kind: store.KindFact, Text: label + ": " + said}
			if err := x.put(e, item(x.opts.Format, x.apart("block/"+x.session+"/"+label, name(b, "id")), a, nil)); err != nil {
				return err
			}
		}
	}
	return nil
}

// named returns the name of the conversation in a line, or in an object around lines.
func (d *dialect) named(v fields) string {
	if d.session == nil {
		return ""
	}
	return d.session(name(v, d.kind...), v)
}

// kindField names the field of a line that says what it is.
func (d *dialect) kindField(v fields) string {
	for _, key := range d.kind {
		if filled(first(v, key)) {
			return key
		}
	}
	return d.kind[len(d.kind)-1]
}

func (x *reading) line(e element, v fields) error {
	if s := x.dialect.named(v); s != "" && e.path == "" {
		x.session = s
	}
	out, kind, unknown, err := x.dialect.read(e, v)
	switch {
	case err != nil:
		return err
	case kind != "" && unknown && (hasWords(e.raw) || says(v)):
		if !x.opts.SkipUnknown {
			return e.wrong(x.dialect.kindField(v), store.Invalid("type", fmt.Sprintf("%q, with words", short(kind)), "a type that the format "+string(x.opts.Format)+" knows; SkipUnknown (--skip-unknown) leaves such lines out and counts them"))
		}
		count(&x.left.Unknown, kind)
	case kind != "":
		count(&x.left.Types, kind)
	}
	session, group := x.unnamed(x.containers)
	if x.session != "" {
		session = x.session
		if parent := name(v, "parent_tool_use_id"); string(v["isSidechain"]) == "true" || parent != "" { // a subagent's conversation
			session += "/" + cmp.Or(name(v, "agentId"), parent, "sidechain")
		}
		group = label(conversation(x.opts.Format, session))
	}
	for _, m := range out {
		if err := x.say(turn{m, session, group, e.line}); err != nil {
			return err
		}
	}
	return nil
}

func count(m *map[string]int, kind string) {
	if *m == nil {
		*m = map[string]int{}
	}
	(*m)[short(kind)]++
}

// say takes a turn. Lines of the assistant that follow each other with one id are one message.
func (x *reading) say(t turn) error {
	p := x.pending
	if p == nil || t.ID == "" || t.ID != p.ID || t.session != p.session || t.Role != p.Role || t.Role != assistant {
		err := x.flush()
		x.pending = &t
		return err
	}
	if x.dialect != nil && x.dialect.replaces {
		p.Message, x.left.Repeated = t.Message, x.left.Repeated+1
	} else if !p.join(&t.Message) {
		x.left.Repeated++
	}
	return nil
}

func (x *reading) flush() error {
	t := x.pending
	if x.pending = nil; t == nil {
		return nil
	}
	x.pair(t)
	key, seq := x.place(t)
	if seq == 0 {
		x.left.Repeated++
		return nil
	}
	a, ok := t.artefact()
	if !ok {
		x.left.Empty++
		return nil
	}
	a.Group, a.Seq = t.group, seq
	if a = item(x.opts.Format, key, a, nil); x.dialect != nil && x.dialect.holds {
		x.hold(heldItem{item: a, key: key, id: t.ID, session: t.session, line: t.line})
		return nil
	}
	return x.put(element{line: t.line}, a)
}

// unnamedCall is a call without an id that waits for its result.
type unnamedCall struct{ session, name, id string }

// pair sets ids of calls that have none, and of their results, which have the name of the function and come in the order of
// the calls.
func (x *reading) pair(t *turn) {
	if x.dialect != nil && x.dialect.silent {
		t.keepCalls()
	}
	for i := range t.ToolCalls {
		if c := &t.ToolCalls[i]; c.ID == "" {
			x.unnamedCalls++
			c.ID = fmt.Sprintf("call-%d", x.unnamedCalls)
			x.waiting = append(x.waiting, unnamedCall{t.session, c.Name, c.ID})
		}
	}
	if t.ToolCallID != "" || t.Role != tool && t.Role != "function" {
		return
	}
	for i, c := range x.waiting {
		if c.session == t.session && (c.name == t.Name || t.Name == "") {
			t.ToolCallID = c.id
			x.waiting = slices.Delete(x.waiting, i, i+1)
			return
		}
	}
}

// keepCalls makes calls without an id blocks: no context would show a call that has no result, and what was said with it.
func (t *turn) keepCalls() {
	unnamed := func(c store.ToolCall) bool { return c.ID == "" }
	if !slices.ContainsFunc(t.ToolCalls, unnamed) {
		return
	}
	if len(t.Parts) == 0 && t.Text != "" {
		t.Parts, t.Text = []store.Part{{Type: "text", Text: t.Text}}, ""
	}
	for _, c := range t.ToolCalls {
		if unnamed(c) {
			raw, _ := json.Marshal(map[string]string{"type": "tool_use", "name": c.Name, "input": c.Arguments}) // texts
			t.Parts = append(t.Parts, keptPart("tool_use", raw))
		}
	}
	t.ToolCalls = slices.DeleteFunc(t.ToolCalls, unnamed)
}

// place returns the key of a turn and its number in the session. A later turn with the same id is another one, whose key has a
// count, unless the dialect says that it replaces the first. The number is 0 for a turn that is there already.
func (x *reading) place(t *turn) (key string, seq int64) {
	next := func() int64 { x.seq[t.session]++; return x.seq[t.session] }
	if t.ID == "" {
		seq = next()
		return fmt.Sprintf("%s/%d", t.session, seq), seq
	}
	key = t.session + "/" + t.ID
	if x.dialect != nil && x.dialect.replaces {
		was := x.ids[idDigest(key)]
		if was == 0 {
			was = next()
			x.ids[idDigest(key)] = was
		}
		return key, was
	}
	said, _ := json.Marshal(t.Message) // plain data
	sum := sha256.Sum256(append([]byte(key+"\x00"), said...))
	whole := binary.LittleEndian.Uint64(sum[:])
	if x.ids[whole] > 0 {
		return "", 0
	}
	x.ids[whole] = 1
	x.ids[idDigest(key)]++
	if n := x.ids[idDigest(key)]; n > 1 {
		key = fmt.Sprintf("%s/%d", key, n)
	}
	return key, next()
}

// Follower imports a file that grows. It belongs to one goroutine.
type Follower struct {
	Scope   *ctxpage.Scope
	Options Options // Progress is not used

	reading *reading // where the last import ended; nil: begin at the beginning
	offset  int64
	tail    []byte // the bytes before offset
	why     string
}

// tailBytes is the size of the end of what was read that must be unchanged for reading to continue behind it.
const tailBytes = 4096

// Next imports what came since the last call, and at first the whole file; a last line that is still being written waits. If
// what was read before is not there any more, or if the file is a log that may change what it said (of Gemini CLI and Copilot
// Chat), the whole file is imported again, which writes only what is new.
func (f *Follower) Next(ctx context.Context, file *os.File) (*Report, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: import: %w", err)
	}
	if !f.unchanged(file, size) {
		f.reading, f.offset = nil, 0
	}
	rep, err := f.upTo(ctx, file, size)
	var bad *portable.LineError
	if err == nil || !errors.As(err, &bad) {
		return rep, err
	}
	whole, werr := wholeLines(file, f.offset, size)
	if werr != nil || whole == 0 {
		return rep, err
	}
	return f.upTo(ctx, file, whole)
}

// unchanged reports whether what was read before is still in the file.
func (f *Follower) unchanged(file *os.File, size int64) bool {
	if f.reading == nil || size < f.offset {
		return false
	}
	now := make([]byte, len(f.tail))
	_, err := file.ReadAt(now, f.offset-int64(len(now)))
	return err == nil && bytes.Equal(now, f.tail)
}

// upTo imports the file from where the last import ended up to an offset.
func (f *Follower) upTo(ctx context.Context, file *os.File, end int64) (rep *Report, err error) {
	part := io.NewSectionReader(file, f.offset, end-f.offset)
	var x *reading
	if f.reading != nil {
		x = f.reading.clone()
	} else {
		opts := f.Options
		opts.Progress = nil
		if x, f.why, err = begin(ctx, part, opts); err != nil {
			return nil, err
		}
	}
	if rep, err = bring(ctx, f.Scope, part, x, f.why, true); err != nil {
		return rep, err
	}
	if x.logged != nil || x.dialect != nil && x.dialect.holds {
		return rep, nil
	}
	f.tail = make([]byte, min(end, tailBytes))
	if _, err := file.ReadAt(f.tail, end-int64(len(f.tail))); err != nil {
		return rep, nil // it is being cut: the next call begins at the beginning, as f.reading is unchanged
	}
	f.reading, f.offset = x, end
	return rep, nil
}

// wholeLines returns where the last complete line of file[begin:end] ends; begin: there is none.
func wholeLines(file *os.File, begin, end int64) (int64, error) {
	for buf := make([]byte, 64<<10); end > begin; {
		from := max(begin, end-int64(len(buf)))
		n, err := file.ReadAt(buf[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return begin, fmt.Errorf("ctxpage: import: %w", err)
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		end = from
	}
	return begin, nil
}
