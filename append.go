package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
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
	talk, err := c.hostTalk("Append")
	if err != nil {
		return nil, err
	}
	var refs []Ref
	for try := 1; ; try++ {
		err = talk.exclusively(ctx, func() error {
			a := &appending{c: talk, s: c.s, changes: talk.begin(), action: "append"}
			refs, err = a.run(ctx, turns)
			return err
		})
		if !errors.Is(err, ErrConflict) || try == updateTries { // else somebody put a page under the id of a turn meanwhile
			break
		}
	}
	if err == nil {
		talk.wake()
	}
	return refs, err
}

// Try says what Append would do and writes nothing: its errors, and the pass it would make room with, Items 0 when there
// is room.
func (c *Session) Try(ctx context.Context, turns ...Turn) (PassInfo, error) {
	talk, err := c.hostTalk("Try")
	if err != nil {
		return PassInfo{}, err
	}
	info := PassInfo{Kind: PassBackstop}
	err = talk.exclusively(ctx, func() error {
		a := &appending{c: talk, s: c.s, changes: talk.begin(), try: &info}
		rev := talk.rev
		_, err := a.run(ctx, turns)
		if err == nil && talk.rev != rev {
			talk.loaded = false // a plan was made in memory
		} else if err == nil {
			a.takeBack()
		}
		return err
	})
	return info, err
}

// appending is one Append under way.
type appending struct {
	*changes
	c     *conversation
	s     *Scope
	tx    *Txn
	refs  []Ref
	fresh []freshTurn

	opened map[string]int // units of the calls that the turns on their way make again; see takeOut

	action string    // for the audit
	try    *PassInfo // instead of committing
}

// freshTurn is a turn on its way in: its place among refs, and what its block will be but for its numbers.
type freshTurn struct {
	at    int
	block block
	was   *turnRow // what stood under its id: of a turn that was deleted
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
	if len(a.fresh) == 0 {
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

// takeBack takes the rows of turns out of memory that no commit will bring: one would pass for stored when a page of the
// same words is put under its id.
func (a *appending) takeBack() {
	for _, f := range a.fresh {
		if delete(a.c.rows, f.block.id); f.was != nil {
			a.c.rows[f.block.id] = f.was
		}
	}
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
	if err := a.pair(t); err != nil {
		return err
	}
	put, err := a.tx.makePut(ctx, art)
	if err != nil {
		return err
	}
	if err := a.tx.add(ctx, put); err != nil {
		return err
	}
	set(&a.tx.expect, put.Artefact.ID, 0) // a page that is put under this id before the commit is not rewritten
	b := a.c.freshBlock(&put)
	b.row.Signals = signalsOf(&t.Signals)
	a.bring(i, b)
	return nil
}

// bring notes a turn on its way in, whose reference will be that at a place.
func (a *appending) bring(at int, b block) {
	a.fresh = append(a.fresh, freshTurn{at, b, a.c.rows[b.id]})
	a.c.storeRow(a.changes, b.id, b.row)
}

func signalsOf(s *session.Signals) turnSignals {
	return turnSignals{
		Source: s.Source, Version: s.Version, Call: s.Call, Stale: s.Stale, Failed: s.Failed, Refetchable: s.Refetchable,
		Finding: s.Finding, Closed: s.Closed, Keep: s.Keep, LastRead: s.LastRead,
	}
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
	seq, err := a.next()
	if err != nil {
		return Artefact{}, err
	}
	id := t.ID
	if id == "" {
		id = a.freeID(seq)
	}
	return Artefact{
		ID: id, Kind: KindMessage, Text: t.Text, Parts: t.Parts, Role: t.Role, Name: t.Name, ToolCalls: t.ToolCalls, ToolCallID: t.ToolCallID,
		ExpiresAt: t.ExpiresAt, CurrentAsOf: t.At, Priority: priority, Relevance: t.Relevance, Group: a.c.id, Seq: seq, Tags: t.Tags, Meta: t.Meta,
	}, nil
}

// freeID names a turn by its number. Where a host gave that name to something else a count follows it: what is there would
// be rewritten.
func (a *appending) freeID(seq int64) string {
	name := "block-" + a.c.id + "-" + strconv.FormatInt(seq, 10)
	id := name
	for n := 2; a.c.find(id) >= 0 || a.brings(id) || a.elsewhere(id); n++ {
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

// next is the number of the turn: one more than the highest there is.
func (a *appending) next() (int64, error) {
	last := a.c.turn()
	if n := len(a.fresh); n > 0 {
		last = a.fresh[n-1].block.seq
	}
	if last == math.MaxInt64 { // of a plain put
		return 0, store.Invalid("seq", fmt.Sprintf("a turn behind number %d", last), "a session without a page of the highest number, behind which nothing can stand")
	}
	return last + 1, nil
}

// repeats finds the turn that was appended before under the same id. A turn is never rewritten.
func (a *appending) repeats(art *Artefact, t *Turn) (Ref, bool, error) {
	if t.ID == "" {
		return Ref{}, false, nil
	}
	if a.brings(t.ID) {
		return Ref{}, false, store.Invalid("id", strconv.Quote(t.ID), "an id for each turn of its own")
	}
	i := a.c.find(t.ID)
	if i < 0 {
		if a.elsewhere(t.ID) {
			return Ref{}, false, store.Invalid("id", strconv.Quote(t.ID), "an id that no other artefact of the scope has")
		}
		return Ref{}, false, nil
	}
	b := &a.c.blocks[i]
	probe, err := a.s.db.makePut(*art, Validator{})
	if err != nil {
		return Ref{}, false, err
	}
	if putHash(&probe) != b.row.Hash {
		return Ref{}, false, store.Invalid("id", strconv.Quote(t.ID), "a new id: the turn that has it says something else, and a turn is not rewritten")
	}
	return Ref{Scope: a.s.name, ID: b.id, Version: b.version}, true, nil
}

func putHash(p *store.Put) uint64 {
	hashes := make([]uint64, len(p.Pages))
	for i := range p.Pages {
		hashes[i] = p.Pages[i].Hash
	}
	return turnHash(&p.Artefact, hashes)
}

// pair holds results to their calls: providers refuse a result without its call.
func (a *appending) pair(t *Turn) error {
	if t.Role != "tool" {
		return nil
	}
	open := false
	look := func(b *block) {
		if slices.Contains(b.calls(), t.ToolCallID) {
			open = true
		} else if b.answers() == t.ToolCallID {
			open = false
		}
	}
	if u, ok := a.c.open[t.ToolCallID]; ok {
		for _, i := range a.c.units[u].members {
			look(&a.c.blocks[i])
		}
	}
	for i := range a.fresh {
		look(&a.fresh[i].block)
	}
	if !open {
		return store.Invalid("tool_call_id", strconv.Quote(t.ToolCallID), "a call that an earlier turn of the session made and nothing has answered")
	}
	return nil
}

// freshBlock is the block that a write will become, but for its numbers.
func (c *conversation) freshBlock(p *store.Put) block {
	h := &store.Head{Artefact: p.Artefact}
	texts := make([]string, len(p.Pages))
	for i, np := range p.Pages {
		h.Rows = append(h.Rows, store.PageRow{Tokens: uint32(np.Tokens), Digest: np.Digest, Hash: np.Hash})
		texts[i] = np.Text
	}
	b := c.blockOf(h)
	b.row = c.db.turnRow(&p.Artefact, texts, headHash(h), c.stub(b.id, b.digest, b.stored))
	b.row.Content = contentOf(h.Rows)
	return b
}

func (a *appending) commit(ctx context.Context, trace string) error {
	leaf := manifest.Record{Type: manifest.TypeCommit, Session: a.c.id, Action: a.action, Reason: "vouched by the host"}
	if err := a.admit(ctx, &leaf); err != nil {
		return err
	}
	if a.try != nil {
		return nil
	}
	if a.c.state.Created == 0 {
		a.c.state.Created = codec.Micros(a.s.db.opts.Clock())
		a.put(a.c.key(sessionRowKey), &a.c.state)
	}
	b := a.tx.batch()
	b.Puts = append(b.Puts, a.puts...)
	b.OnStale, b.State, b.Trace, b.Leaf = AllowStale, append(b.State, a.rows...), trace, leaf
	err := a.err
	if err == nil {
		err = a.tx.finish(ctx, b)
	}
	if err != nil {
		a.c.failed(err)
		return err
	}
	for i, f := range a.fresh {
		a.refs[f.at] = a.tx.out.Refs[i]
	}
	a.c.saved()
	return nil
}
