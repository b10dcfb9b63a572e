package ctxpage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/live"
	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Turn is one message of a conversation.
type Turn struct {
	// ID is unique in the scope; "": block-SESSION-NUMBER, and a count behind it where that is taken. Appending the same turn again under its ID repeats it.
	ID         string
	Role       string // user, assistant or tool
	Name       string
	Text       string
	Parts      []Part // instead of Text
	ToolCalls  []ToolCall
	ToolCallID string    // of a tool turn: the call it is the result of
	At         time.Time // zero: now
	// Priority and Relevance are for the watcher; PriorityAuto: user high, assistant medium, tool low.
	Priority  Priority
	Relevance *float64
	ExpiresAt time.Time
	Tags      []string
	Meta      map[string]string
	// Trace names the assembly that an assistant turn was written from. It makes what the assembly served count as
	// read when the session is handed over. The turns of one Append name one assembly at most. An *InvalidError that
	// matches ErrNotFound where the session's own scope has recorded no assembly, and no other read, under it.
	Trace string
	// Signals are facts the host knows of the turn; they tell the watcher what is of little value. Digest and
	// ExpiresAt are the database's own.
	Signals session.Signals
}

// Append adds turns at the end, in one transaction vouched for by the host, and gives their references. A tool turn
// must answer a call that an earlier turn made and nothing has answered. A call that no provider takes is an
// *InvalidError: its function name is empty, or longer than 128 bytes, or not of letters, digits and _-.: for one. What one
// of them takes is kept, and refused when a request is written for another: only Anthropic takes a name longer than 64
// bytes, only Gemini one with . or :, which takes none that begins with a digit or -; OpenAI takes no id longer than 64
// bytes, Anthropic none that was used before. Where SetWindow was called the window is held
// below its limit: older turns are compacted in the same transaction. The newest turn goes in; pins and other protections give way
// to it where they leave no room, the oldest first, and pins come back with the first append that leaves room for them. A
// user turn that alone is larger than the usable window gives a *HeadroomError of package session, matching ErrHeadroom,
// which names it, and nothing is added; of an assistant or a tool turn as large a stub goes in. With Config.UserCap
// protections do not give way, and the error also tells that they alone are too much.
func (c *Session) Append(ctx context.Context, turns ...Turn) ([]Ref, error) {
	conv, err := c.hostConversation("Append")
	if err != nil {
		return nil, err
	}
	var refs []Ref
	err = conv.Exclusively(ctx, func() error { // again, too, when somebody put a page under the id of a turn meanwhile
		a := c.s.appending(conv, "append")
		refs, err = a.run(ctx, turns)
		return err
	})
	if err == nil {
		conv.Wake()
	}
	return refs, err
}

// Try says what Append would do and writes nothing: its errors, and the pass it would make room with, Items 0 when there
// is room.
func (c *Session) Try(ctx context.Context, turns ...Turn) (session.PassInfo, error) {
	conv, err := c.hostConversation("Try")
	if err != nil {
		return session.PassInfo{}, err
	}
	info := session.PassInfo{Kind: session.PassBackstop}
	err = conv.Exclusively(ctx, func() error {
		a := c.s.appending(conv, "append")
		a.try = &info
		_, err := a.run(ctx, turns)
		if err == nil {
			a.takeBack()
		}
		return err
	})
	return info, err
}

// appending is one Append under way.
type appending struct {
	*talk.Incoming
	c    *live.Conversation
	s    *Scope
	tx   *Txn
	refs []Ref

	action string            // for the audit
	try    *session.PassInfo // instead of committing
}

func (s *Scope) appending(c *live.Conversation, action string) *appending {
	return &appending{Incoming: c.Incoming(), c: c, s: s, action: action}
}

// takeBack takes out of memory what no commit will bring.
func (a *appending) takeBack() {
	if !a.TakeBack() {
		a.c.Discard()
	}
}

func (a *appending) run(ctx context.Context, turns []Turn) (refs []Ref, err error) {
	if a.tx, err = a.s.newTxn(nil); err != nil {
		return nil, err
	}
	a.tx.managed = true
	a.refs = make([]Ref, len(turns))
	trace := ""
	for i := range turns {
		t, err := turns[i].trace()
		if err == nil {
			err = a.turn(ctx, i, &turns[i])
		}
		if err == nil && t != "" && trace != "" && t != trace {
			err = store.Invalid("trace", strconv.Quote(t)+" beside "+strconv.Quote(trace), "one assembly in an append: a transaction has one")
		}
		if err != nil {
			a.takeBack()
			return nil, fmt.Errorf("turn %d: %w", i+1, err)
		}
		trace = cmp.Or(trace, t)
	}
	if len(a.Fresh) == 0 {
		return a.refs, nil
	}
	if err := a.s.recorded(ctx, trace); err != nil {
		a.takeBack()
		return nil, err
	}
	if err := a.commit(ctx, trace); err != nil {
		return nil, err
	}
	return a.refs, nil
}

// trace is the trace of a turn in the spelling of the manifest.
func (t *Turn) trace() (string, error) {
	if t.Trace == "" {
		return "", nil
	}
	id, err := parseBatchID(t.Trace)
	if err != nil {
		return "", store.Invalid("trace", strconv.Quote(t.Trace), "the trace of an assembly, a ULID")
	}
	return id.String(), nil
}

// recorded refuses a trace under which the scope has read nothing: the audit would name a context that nobody was given.
// What other scopes have recorded is not told.
func (s *Scope) recorded(ctx context.Context, trace string) error {
	if trace == "" {
		return nil
	}
	leaves, err := s.readSet(ctx, trace)
	if err == nil && len(leaves) == 0 {
		err = store.InvalidMissing(ErrNotFound, "trace", strconv.Quote(trace)+", under which scope "+s.name+" has recorded no assembly",
			"the Trace of an Assembly of this scope, or nothing")
	}
	return err
}

// turn checks one turn and prepares its write and its row.
func (a *appending) turn(ctx context.Context, i int, t *Turn) error {
	art, err := a.artefact(t)
	if err != nil {
		return err
	}
	if ref, repeated, err := a.repeats(&art, t); err != nil || repeated {
		a.refs[i] = ref
		return err
	}
	if t.Role == "tool" {
		if err := a.Pair(t.ToolCallID); err != nil {
			return err
		}
	}
	put, err := a.tx.makePut(ctx, art)
	if err != nil {
		return err
	}
	if err := a.tx.add(ctx, put); err != nil {
		return err
	}
	set(&a.tx.expect, put.Artefact.ID, 0) // a page that is put under this id before the commit is not rewritten
	b := a.c.FreshBlock(&put)
	b.Row.Signals = talk.SignalsOf(&t.Signals)
	a.Bring(i, b)
	return nil
}

// speaks says whether there are words in a turn.
func (t *Turn) speaks() bool {
	return t.Text != "" || slices.ContainsFunc(t.Parts, func(p Part) bool { return p.Type == "text" && p.Text != "" })
}

// artefact is the page a turn becomes.
func (a *appending) artefact(t *Turn) (Artefact, error) {
	defaults := map[string]Priority{"user": PriorityHigh, "assistant": PriorityMedium, "tool": PriorityLow}
	priority, known := defaults[t.Role]
	switch {
	case !known:
		return Artefact{}, store.Invalid("role", strconv.Quote(t.Role), "user, assistant or tool")
	case len(t.ToolCalls) > 0 && t.Role != "assistant":
		return Artefact{}, store.Invalid("tool_calls", "calls of a "+t.Role+" turn", "calls of an assistant turn")
	case (t.ToolCallID != "") != (t.Role == "tool"):
		return Artefact{}, store.Invalid("tool_call_id", strconv.Quote(t.ToolCallID)+" of a "+t.Role+" turn", "the id of a call, of tool turns and of no others")
	case !t.speaks() && len(t.ToolCalls) == 0 && t.Role != "tool":
		return Artefact{}, store.Invalid("text", "no words in a "+t.Role+" turn",
			"words or calls, also beside an image: a context is text, and providers refuse a conversation with an empty turn")
	}
	if err := checkCalls(t.ToolCalls); err != nil {
		return Artefact{}, err
	}
	if t.Priority != PriorityAuto {
		priority = t.Priority
	}
	seq, err := a.Next()
	if err != nil {
		return Artefact{}, err
	}
	id := t.ID
	if id == "" {
		id = a.freeID(seq)
	}
	return Artefact{
		ID: id, Kind: KindMessage, Text: t.Text, Parts: t.Parts, Role: t.Role, Name: t.Name, ToolCalls: t.ToolCalls, ToolCallID: t.ToolCallID,
		ExpiresAt: t.ExpiresAt, CurrentAsOf: t.At, Priority: priority, Relevance: t.Relevance, Group: a.c.ID, Seq: seq, Tags: t.Tags, Meta: t.Meta,
	}, nil
}

// freeID names a turn by its number. Where a host gave that name to something else a count follows it: what is there would
// be rewritten.
func (a *appending) freeID(seq int64) string {
	name := "block-" + a.c.ID + "-" + strconv.FormatInt(seq, 10)
	id := name
	for n := 2; a.c.Find(id) >= 0 || a.brings(id) || a.elsewhere(id); n++ {
		id = name + "-" + strconv.Itoa(n)
	}
	return id
}

// brings says whether a turn on its way in has the id.
func (a *appending) brings(id string) bool { return a.tx.writes[id] != nil }

// elsewhere says whether an artefact of the scope that is not in the session has the id.
func (a *appending) elsewhere(id string) bool {
	l, err := a.s.db.store.Resolve(context.Background(), a.s.chain[:1], Ref{ID: id})
	return err == nil && !l.Deleted
}

// checkCalls refuses calls that no result could name, and those that no provider takes.
func checkCalls(calls []ToolCall) error {
	for i, c := range calls {
		if c.ID == "" || slices.ContainsFunc(calls[:i], func(o ToolCall) bool { return o.ID == c.ID }) {
			return store.Invalid("tool_calls", strconv.Quote(c.ID)+" as the id of call "+strconv.Itoa(i+1), "an id of its own, by which its result names it")
		}
		if err := store.CheckID("tool_calls", c.ID); err != nil {
			return err
		}
		if wants := render.CallRefused(render.ToolCall{ID: c.ID, Type: c.Type, Name: c.Name}); wants != "" {
			return store.Invalid("tool_calls", fmt.Sprintf("call %d of %.80q", i+1, c.Name), wants)
		}
	}
	return nil
}

// repeats finds the turn that was appended before under the same id. A turn is never rewritten.
func (a *appending) repeats(art *Artefact, t *Turn) (Ref, bool, error) {
	if t.ID == "" {
		return Ref{}, false, nil
	}
	if a.brings(t.ID) {
		return Ref{}, false, store.Invalid("id", strconv.Quote(t.ID), "an id for each turn of its own")
	}
	i := a.c.Find(t.ID)
	if i < 0 {
		if a.elsewhere(t.ID) {
			return Ref{}, false, store.Invalid("id", strconv.Quote(t.ID), "an id that no other artefact of the scope has")
		}
		return Ref{}, false, nil
	}
	b := &a.c.Blocks[i]
	probe, err := a.s.db.makePut(*art, store.Validator{})
	if err != nil {
		return Ref{}, false, err
	}
	if talk.PutHash(&probe) != b.Row.Hash {
		return Ref{}, false, store.Invalid("id", strconv.Quote(t.ID), "a new id: the turn that has it says something else, and a turn is not rewritten")
	}
	return Ref{Scope: a.s.name, ID: b.ID, Version: b.Version}, true, nil
}

// admit holds the window below its limit while turns come in: turns that fit are let in whole, those for which room can be
// made after a compaction, and a large one that nobody protects as a stub.
func (a *appending) admit(ctx context.Context, leaf *manifest.Record) error {
	if fits, err := a.Fits(); fits || err != nil {
		return err
	}
	var items []talk.PassItem
	for i, f := range a.Fresh {
		more, err := a.admitOne(ctx, i)
		if err != nil {
			a.takeBack()
			return fmt.Errorf("turn %d: %w", f.At+1, err)
		}
		items = talk.JoinItems(items, more)
	}
	if len(items) > 0 {
		row := talk.PassRow{Kind: session.PassBackstop, Items: items}
		a.c.Number(a.Writes, &row, a.s.db.opts.Clock(), a.s.actor)
		if a.try != nil {
			*a.try = row.Info()
		}
		leaf.Action += fmt.Sprintf("; pass %d: %d compacted, %d tokens freed", row.Number, len(items), row.Freed())
	}
	return nil
}

func (a *appending) admitOne(ctx context.Context, i int) ([]talk.PassItem, error) {
	var texts []string
	for _, p := range a.tx.writes[a.Fresh[i].Block.ID].Pages {
		texts = append(texts, p.Text)
	}
	clock := a.s.db.opts.Clock
	adm, err := a.Stage(i, texts, clock())
	if err != nil {
		return nil, err
	}
	if adm.Yield {
		return a.c.MakeRoom(ctx, a.Writes, func(s session.State) (session.Plan, error) { return s.MakeRoom(clock()) })
	}
	return a.c.Relieve(ctx, a.Writes)
}

func (a *appending) commit(ctx context.Context, trace string) error {
	leaf := manifest.Record{Type: manifest.TypeCommit, Session: a.c.ID, Action: a.action, Reason: "vouched by the host"}
	if err := a.admit(ctx, &leaf); err != nil {
		return err
	}
	if a.try != nil {
		return nil
	}
	if a.c.State.Created == 0 {
		a.c.State.Created = codec.Micros(a.s.db.opts.Clock())
		a.Put(a.c.Key(talk.SessionRowKey), &a.c.State)
	}
	b := a.tx.batch()
	b.Puts = append(b.Puts, a.Puts...)
	b.OnStale, b.State, b.Trace, b.Leaf = AllowStale, append(b.State, a.Rows...), trace, leaf
	a.c.Guard(&b)
	err := a.Err
	if err == nil {
		err = a.tx.finish(ctx, b)
	}
	if err != nil {
		a.c.Failed(err)
		return err
	}
	for i, f := range a.Fresh {
		a.refs[f.At] = a.tx.out.Refs[i]
	}
	a.c.Committed(a.tx.out.LSN)
	return nil
}
