package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// How turns come in. All of it happens in one transaction and under the lock of the session:
//
//	checked (artefact, repeats, Pair) ─▶ put and row made ─▶ Bring: staged in memory ─▶ admit ─▶ commit ─▶ refs
//	    │                                                        │                        │        │
//	    └ refused: nothing changed                               └──── takeBack ◀─────────┘        └ failed: Discard
//
//	admit:  fits ─▶ let in whole
//	        does not fit ─▶ older turns are compacted (Relieve, MakeRoom) ─▶ a large turn that nothing protects: a stub
//
// Invariants: a turn is never rewritten; the same turn under the same id repeats it, another one is refused. A tool
// turn answers a call that nothing has answered. A staged turn has no page number before the commit, and leaves memory
// again on every way out that does not commit (takeBack), so a refused append costs no second reading of the session.
// Try takes the same path and stops before the commit, so it cannot answer differently.

// Turn is one message of a conversation.
type Turn struct {
	// ID is unique in the scope; "": block-SESSION-NUMBER, followed by a count if that is taken. Appending the same
	// turn again under its ID repeats it.
	ID         string
	Role       string // user, assistant or tool
	Name       string
	Text       string
	Parts      []store.Part // instead of Text
	ToolCalls  []store.ToolCall
	ToolCallID string    // of a tool turn: the call that it answers
	At         time.Time // zero: now
	// Priority and Relevance are for the watcher. PriorityAuto: user high, assistant medium, tool low.
	Priority  store.Priority
	Relevance *float64
	ExpiresAt time.Time
	Subject   string // whom it is about, so that an export or erase of that person has it
	Tags      []string
	Meta      map[string]string
	// Trace names the assembly from which an assistant turn was written. A handoff then counts what that assembly
	// served as read. All turns of one Append must name the same assembly, or none. An *InvalidError that matches
	// ErrNotFound if the session's own scope recorded no read under it.
	Trace string
	// Batch, a ULID, names the Append, as WithID names a transaction: repeated under it, also after its turns were deleted, it
	// appends nothing and returns the references of the first time. All turns of one Append have the same Batch, or none.
	Batch string
	// Signals are facts that the host knows of the turn. They tell the watcher which turns are of little value. The
	// database sets Digest and ExpiresAt itself.
	Signals session.Signals
}

// Append adds turns at the end, in one transaction that the host vouches for, and returns their references.
//
// A tool turn must answer a call that an earlier turn made and nothing has answered. A call that no provider accepts is
// an *InvalidError: its function name is empty, longer than 128 bytes, or has characters other than letters, digits and
// _-.: in it. A call that only some providers accept is kept, and refused when a request is rendered for another one:
// only Anthropic accepts names longer than 64 bytes; only Gemini accepts . and :, but no name that begins with a digit
// or -. A call id that the session has used before is stored, and shown in every context, with the number of its turn behind
// it (call_0_t17), because providers accept no id twice. Its result still names it as it was given.
//
// If SetWindow was called, the window stays below its limit: older turns are compacted in the same transaction. The
// newest turn goes in. Pins and other protections give way to it where they leave no room, the oldest first, and pins
// come back with the first append that leaves room for them. A user turn that alone exceeds the usable window is
// refused with a *session.HeadroomError that names it and matches ErrHeadroom, and nothing is added. An assistant or
// tool turn of that size goes in as a stub; a result whose call is pinned (until Unpin) or critical is refused, too.
// With Config.UserCap protections do not give way, and the error also says when they alone are too large.
func (c *Session) Append(ctx context.Context, turns ...Turn) ([]Ref, error) {
	conv, err := c.hostConversation("Append")
	if err != nil {
		return nil, err
	}
	var refs []Ref
	err = conv.Exclusively(ctx, func() error { // runs again also when somebody put a page under the id of a turn
		a := c.s.appending(conv, "append")
		refs, err = a.run(ctx, turns)
		return err
	})
	return refs, err
}

// Try returns what Append would do and writes nothing: its errors, and the pass by which it would make room. Items is 0
// when there is room.
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

// Truncate deletes the newest turns, those with a number above after, in one transaction that the host vouches for, and returns the
// references of their tombstones; after 0 deletes all turns. Their versions stay readable by reference until gc. If last is not "", the
// newest turn must have that id: ErrConflict otherwise, and nothing is deleted. So several callers that each take the newest turn
// take each turn once. WithID makes it idempotent.
func (c *Session) Truncate(ctx context.Context, after int64, last string, opts ...TxnOption) ([]Ref, error) {
	conv, err := c.hostConversation("Truncate")
	if err != nil {
		return nil, err
	}
	var refs []Ref
	var refused error // no conflict that another try could end
	err = conv.Exclusively(ctx, func() error {
		refs, refused, err = c.s.appending(conv, "truncate").truncate(ctx, after, store.Canonical(last), opts)
		return err
	})
	return refs, cmp.Or(err, refused)
}

// appending is one Append in flight. It belongs to the holder of the session's lock.
type appending struct {
	*conversation.Incoming
	c    *conversation.Conversation
	s    *Scope
	tx   *Txn
	refs []Ref

	trace string // of the assembly that the turns name

	action string            // for the audit
	try    *session.PassInfo // instead of committing
}

// appending prepares an Append; the caller holds the lock of the session.
func (s *Scope) appending(c *conversation.Conversation, action string) *appending {
	return &appending{Incoming: c.Incoming(), c: c, s: s, action: action}
}

// begin begins the transaction of n turns.
func (a *appending) begin(n int, opts ...TxnOption) (err error) {
	a.tx, err = a.s.vouched(opts...)
	a.refs = make([]Ref, n)
	return err
}

// takeBack removes the staged turns from memory.
func (a *appending) takeBack() {
	if !a.TakeBack() {
		a.c.Discard()
	}
}

// run carries the turns through all steps. An error of one turn names it by its place, from 1. Turns that only repeat
// stored ones need no commit.
func (a *appending) run(ctx context.Context, turns []Turn) ([]Ref, error) {
	opts, err := batchOf(turns)
	if err != nil {
		return nil, err
	}
	if err := a.begin(len(turns), opts...); err != nil {
		return nil, err
	}
	if len(opts) > 0 {
		if applied, err := a.applied(ctx, turns); applied || err != nil {
			return a.refs, err
		}
	}
	for i := range turns {
		t, err := turns[i].trace()
		if err == nil && t != "" && a.trace != "" && t != a.trace {
			err = store.Invalid("trace", strconv.Quote(t)+" beside "+strconv.Quote(a.trace), "one assembly in an append: a transaction has one")
		}
		if err != nil {
			return nil, fmt.Errorf("turn %d: %w", i+1, err)
		}
		a.trace = cmp.Or(a.trace, t)
	}
	for i := range turns {
		if err := a.turn(ctx, i, &turns[i]); err != nil {
			a.takeBack()
			return nil, fmt.Errorf("turn %d: %w", i+1, err)
		}
	}
	if len(a.Fresh) == 0 {
		return a.refs, nil
	}
	if err := a.s.recorded(ctx, a.trace); err != nil {
		a.takeBack()
		return nil, err
	}
	if err := a.commit(ctx); err != nil {
		return nil, err
	}
	return a.refs, nil
}

// batchOf returns the option that the Batch of the turns stands for.
func batchOf(turns []Turn) (opts []TxnOption, _ error) {
	for i := range turns {
		switch id := turns[i].Batch; {
		case id != turns[0].Batch:
			return nil, fmt.Errorf("turn %d: %w", i+1, store.Invalid("batch", strconv.Quote(id)+" beside "+strconv.Quote(turns[0].Batch), "one batch in an append"))
		case id != "" && i == 0:
			opts = append(opts, WithID(id))
		}
	}
	return opts, nil
}

// applied reports whether a batch was appended before, and fills in the references of that time. The turns must be those of
// that time; turns that were deleted since are not compared.
func (a *appending) applied(ctx context.Context, turns []Turn) (bool, error) {
	out, err := a.s.db.store.Outcome(ctx, a.tx.id)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	other := store.Invalid("batch", a.tx.ID(), "an id of your own: a new one, or that of the same append")
	rest := out.Refs
	for i := range turns {
		t := turns[i]
		if len(rest) > 0 && (t.ID == "" || store.Canonical(t.ID) == rest[0].ID) {
			t.ID, a.refs[i], rest = rest[0].ID, rest[0], rest[1:]
		}
		art, err := a.artefact(&t)
		if err != nil || t.ID == "" || a.refs[i].Scope != "" && a.refs[i].Scope != a.s.name {
			return false, cmp.Or(err, other)
		}
		if a.c.Find(t.ID) < 0 {
			continue
		}
		if a.refs[i], _, err = a.repeats(&art, &t); err != nil {
			return false, err
		}
	}
	if len(rest) > 0 {
		return false, other
	}
	return true, nil
}

// trace returns the trace of a turn in the spelling of the manifest.
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

// recorded refuses a trace under which the scope has read nothing: the audit would name a context that nobody was
// given. It does not reveal what other scopes recorded.
func (s *Scope) recorded(ctx context.Context, trace string) error {
	if trace == "" {
		return nil
	}
	leaves, err := s.readSet(ctx, trace)
	if err == nil && len(leaves) == 0 {
		err = store.InvalidMissing(store.ErrNotFound, "trace", strconv.Quote(trace)+", under which scope "+s.name+" has recorded no assembly",
			"the Trace of an Assembly of this scope, or nothing")
	}
	return err
}

// turn checks one turn and prepares its write and its row. What a role demands:
//
//	user       words; no calls
//	assistant  words or calls; each call has an id of its own
//	tool       the id of a call that an earlier turn made and nothing has answered; words are optional
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
		if art.ToolCallID, err = a.Pair(t.ToolCallID); err != nil {
			return err
		}
	}
	art.ToolCalls = a.UniqueCalls(art.ToolCalls, art.Seq)
	id, err := a.bring(ctx, i, art, &conversation.TurnRow{Signals: conversation.SignalsOf(&t.Signals)})
	if err == nil {
		set(&a.tx.expect, id, 0) // a page that somebody puts under this id before the commit is not overwritten
	}
	return err
}

// speaks reports whether a turn has words.
func (t *Turn) speaks() bool {
	return t.Text != "" || slices.ContainsFunc(t.Parts, func(p store.Part) bool { return p.Type == "text" && p.Text != "" })
}

// artefact makes the page of a turn.
func (a *appending) artefact(t *Turn) (Artefact, error) {
	defaults := map[string]store.Priority{"user": store.PriorityHigh, "assistant": store.PriorityMedium, "tool": store.PriorityLow}
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
	if t.Priority != store.PriorityAuto {
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
		ID: id, Kind: store.KindMessage, Text: t.Text, Parts: t.Parts, Role: t.Role, Name: t.Name, ToolCalls: t.ToolCalls, ToolCallID: t.ToolCallID,
		ExpiresAt: t.ExpiresAt, CurrentAsOf: t.At, Priority: priority, Relevance: t.Relevance, Group: a.c.ID, Seq: seq, Subject: t.Subject, Tags: t.Tags, Meta: t.Meta,
	}, nil
}

// freeID names a turn by its number, followed by a count if the host uses that name for something else.
func (a *appending) freeID(seq int64) string {
	name := "block-" + a.c.ID + "-" + strconv.FormatInt(seq, 10)
	id := name
	for n := 2; a.c.Find(id) >= 0 || a.brings(id) || a.elsewhere(id); n++ {
		id = name + "-" + strconv.Itoa(n)
	}
	return id
}

// brings reports whether one of the turns being appended has the id.
func (a *appending) brings(id string) bool { return a.tx.writes[id] != nil }

// elsewhere reports whether an artefact of the scope that is not in the session has the id.
func (a *appending) elsewhere(id string) bool {
	_, err := a.s.db.store.Resolve(context.Background(), a.s.chain[:1], Ref{ID: id})
	return err == nil
}

// checkCalls refuses calls that no result could name, and calls that no provider accepts.
func checkCalls(calls []store.ToolCall) error {
	for i, c := range calls {
		if c.ID == "" || slices.ContainsFunc(calls[:i], func(o store.ToolCall) bool { return o.ID == c.ID }) {
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
	a.c.StoredIDs(i, art)
	probe, err := a.s.db.makePut(*art, store.Validator{})
	if err != nil {
		return Ref{}, false, err
	}
	if conversation.PutHash(&probe) != b.Row.Hash {
		return Ref{}, false, store.Invalid("id", strconv.Quote(t.ID), "a new id: the turn that has it says something else, and a turn is not rewritten")
	}
	return Ref{Scope: a.s.name, ID: b.ID, Version: b.Version}, true, nil
}

// admit keeps the window below its limit while turns come in. It lets in whole the turns that fit and those for which a
// compaction makes room, and takes a large unprotected turn as a stub. The turns are admitted one after the other,
// because the room that one takes decides what the next one finds. All compactions of an append are one pass of kind
// backstop, so that one Undo reverses them.
func (a *appending) admit(ctx context.Context, leaf *manifest.Record) error {
	if fits, err := a.Fits(); fits || err != nil {
		return err
	}
	var items []conversation.PassItem
	for i, f := range a.Fresh {
		more, err := a.admitOne(ctx, i)
		if err != nil {
			a.takeBack()
			return fmt.Errorf("turn %d: %w", f.At+1, err)
		}
		items = conversation.JoinItems(items, more)
	}
	if len(items) > 0 {
		row := conversation.PassRow{Kind: session.PassBackstop, Items: items}
		a.c.Number(a.Writes, &row, a.s.actor)
		if a.try != nil {
			*a.try = row.Info()
		}
		leaf.Action += fmt.Sprintf("; pass %d: %d compacted, %d tokens freed", row.Number, len(items), row.Freed())
	}
	return nil
}

// admitOne stages one turn and makes the room that it needs. Only when protections must give way (Yield) does it use
// MakeRoom; otherwise the backstop may compact unprotected turns only.
func (a *appending) admitOne(ctx context.Context, i int) ([]conversation.PassItem, error) {
	var texts []string
	for _, p := range a.tx.writes[a.Fresh[i].Block.ID].Pages {
		texts = append(texts, p.Text)
	}
	adm, err := a.Stage(i, texts, a.s.db.opts.Clock())
	if err != nil {
		return nil, err
	}
	return a.c.MakeRoom(ctx, a.Writes, adm.Yield)
}

// commit stores the turns, their rows, the compaction that made room for them and the change row in one batch. The
// first commit of a session also stores when it began.
func (a *appending) commit(ctx context.Context) error {
	leaf := manifest.Record{Type: manifest.TypeCommit, Session: a.c.ID, Action: a.action, Reason: "vouched by the host"}
	if err := a.admit(ctx, &leaf); err != nil {
		return err
	}
	if a.try != nil {
		return nil
	}
	if a.c.State.Created == 0 {
		a.c.State.Created = codec.Micros(a.s.db.opts.Clock())
		a.c.StoreState(a.Writes)
	}
	b := a.tx.batch()
	b.Puts = append(b.Puts, a.Puts...)
	b.OnStale, b.State, b.Trace, b.Leaf = store.AllowStale, append(b.State, a.Rows...), a.trace, leaf
	a.c.Guard(&b, a.Coming())
	if err := a.tx.finish(ctx, b); err != nil {
		a.c.Failed(err)
		return err
	}
	pages := 0
	for i, f := range a.Fresh {
		a.refs[f.At] = a.tx.out.Refs[i]
		pages += len(a.tx.writes[f.Block.ID].Pages)
	}
	a.Stored(pages)
	a.c.Committed(a.tx.out.LSN)
	return nil
}

// truncate deletes the turns behind a number. Every commit of a session expects that no other was made since it was read (Guard), so
// no turn that another process appends meanwhile is deleted, and none stays before one that is. refused is the conflict of last.
func (a *appending) truncate(ctx context.Context, after int64, last string, opts []TxnOption) (refs []Ref, refused, err error) {
	if after < 0 {
		return nil, nil, store.Invalid("after", strconv.FormatInt(after, 10), "the number of a turn, or 0")
	}
	if err := a.begin(0, opts...); err != nil {
		return nil, nil, err
	}
	if len(opts) > 0 {
		out, err := a.s.db.store.Outcome(ctx, a.tx.id)
		if !errors.Is(err, store.ErrNotFound) {
			return out.Refs, nil, err
		}
	}
	if n := len(a.c.Blocks); last != "" && (n == 0 || a.c.Blocks[n-1].ID != last) {
		return nil, fmt.Errorf("%w: turn %q is not the newest one of session %s; read the newest again", store.ErrConflict, last, a.c.ID), nil
	}
	for i := range a.c.Blocks {
		if a.c.Blocks[i].Seq > after {
			set(&a.tx.drop, a.c.Blocks[i].ID, true)
		}
	}
	if len(a.tx.drop) == 0 {
		return nil, nil, nil
	}
	b := a.tx.batch()
	b.OnStale, b.State = store.AllowStale, append(b.State, a.Rows...)
	b.Leaf = manifest.Record{Type: manifest.TypeCommit, Session: a.c.ID, Action: a.action, Reason: "vouched by the host"}
	a.c.Guard(&b, 0)
	if err := a.tx.finish(ctx, b); err != nil {
		a.c.Failed(err)
		return nil, nil, err
	}
	a.c.Committed(a.tx.out.LSN)
	return a.tx.out.Refs, nil, nil
}

// receive makes the pages of a packet pages of the session. Their ids derive from the content, so receiving the same packet
// twice is refused.
func (a *appending) receive(ctx context.Context, pages []handoff.Page) ([]Ref, error) {
	if a.c.Find(pages[0].ID) >= 0 {
		return nil, store.Invalid("packet", "one that was received before", "another packet")
	}
	if err := a.begin(len(pages)); err != nil {
		return nil, err
	}
	for i, p := range pages {
		if err := a.receivePage(ctx, i, p); err != nil {
			a.takeBack()
			return nil, err
		}
	}
	return a.refs, a.commit(ctx)
}

func (a *appending) receivePage(ctx context.Context, i int, p handoff.Page) (err error) {
	art := p.Artefact
	if art.Seq, err = a.Next(); err != nil {
		return err
	}
	art.Kind, art.Provenance, art.Group, art.Priority = store.KindScratch, store.Scratch, a.c.ID, store.PriorityMedium
	row := conversation.TurnRow{Pinned: p.Pinned}
	if p.Stub {
		row.Level, row.Because = uint8(session.Stub), "its brief stands for it"
	}
	_, err = a.bring(ctx, i, art, &row)
	return err
}

// bring puts the page of a turn, and brings the turn in. told has its pin, its level and its signals.
func (a *appending) bring(ctx context.Context, i int, art Artefact, told *conversation.TurnRow) (id string, err error) {
	put, err := a.tx.makePut(ctx, art)
	if err != nil {
		return "", err
	}
	b := a.c.FreshBlock(&put, told)
	if art.Role != "user" { // as format.WrittenFrom
		b.Trace = a.trace
	}
	if err := a.tx.add(ctx, put); err != nil {
		return "", err
	}
	a.Bring(i, b, put.Turn != nil)
	return put.Artefact.ID, nil
}
