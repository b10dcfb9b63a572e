package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Session is one conversation of a scope: a group of message pages in their order, and a window on them. What a pass
// or the watcher takes out of the window stays where it is stored, one Recall away. A handle needs no creating and no
// closing, and is safe for concurrent use.
//
// The words of the user are stored with provenance chunk. What the assistant and the tools say is visible in this
// session only, until it is put through the gate like any other draft.
type Session struct {
	s  *Scope
	id string
}

// Session gives the handle of a conversation of the scope, named like an artefact. A wrong name is reported by the
// first method that is called.
func (s *Scope) Session(id string) *Session { return &Session{s, id} }

// ID is the name of the conversation: the Group of its turns and Query.Session.
func (c *Session) ID() string { return c.id }

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

func (c *Session) talk() (*conversation, error) {
	if c.s.err != nil {
		return nil, c.s.err
	}
	if err := store.CheckID("session", c.id); err != nil {
		return nil, err
	}
	return c.s.db.conversation(c.s.name, c.id), nil
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

// turn is the number of the newest turn.
func (c *conversation) turn() int64 {
	if len(c.blocks) == 0 {
		return 0
	}
	return max(c.blocks[len(c.blocks)-1].seq, 0)
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

func putHash(p *Put) uint64 {
	hashes := make([]uint64, len(p.Pages))
	for i := range p.Pages {
		hashes[i] = p.Pages[i].Hash
	}
	return turnHash(&p.Artefact, hashes)
}

// find gives the place of a turn by its id, -1: there is none.
func (c *conversation) find(id string) int {
	if i, ok := c.byID[id]; ok && i < len(c.blocks) && c.blocks[i].id == id {
		return i
	}
	return -1
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
func (c *conversation) freshBlock(p *Put) block {
	h := &Head{Artefact: p.Artefact}
	texts := make([]string, len(p.Pages))
	for i, np := range p.Pages {
		h.Rows = append(h.Rows, PageRow{Tokens: uint32(np.Tokens), Digest: np.Digest, Hash: np.Hash})
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

// Sessions lists the conversations of the scope that were appended to, by name. It serves no contents and leaves no
// manifest.
func (s *Scope) Sessions(ctx context.Context) ([]string, error) {
	if s.err != nil {
		return nil, s.err
	}
	prefix := sessionRowKey + s.name + "\x00"
	var out []string
	err := s.db.scanState(ctx, prefix, func(r StateRow) error {
		out = append(out, strings.TrimPrefix(r.Key, prefix))
		return nil
	})
	return out, err
}

// Window is what a session shows now.
type Window struct {
	Session string `json:"session"`
	LSN     uint64 `json:"lsn"`
	Pass    uint64 `json:"pass"`     // number of the last pass, 0: none
	InForce uint64 `json:"in_force"` // the pass whose verdicts hold, 0: none
	Tokens  int    `json:"tokens"`   // of all turns as they are shown
	Stored  int    `json:"stored"`   // of all turns whole
	// Limits are those of SetWindow, nil without.
	Limits *session.Thresholds `json:"limits,omitempty"`
	Turns  []WindowTurn        `json:"turns"`
}

// WindowTurn is one turn and how it is shown.
type WindowTurn struct {
	Ref     Ref           `json:"ref"`
	Seq     int64         `json:"seq"`
	Role    string        `json:"role,omitempty"`
	Kind    Kind          `json:"kind"`
	Level   session.Level `json:"level"`
	Tokens  int           `json:"tokens"` // as it is shown
	Stored  int           `json:"stored"` // whole
	Pinned  bool          `json:"pinned,omitempty"`
	Verdict string        `json:"verdict,omitempty"` // of the pass in force; empty: none has judged it
	Why     string        `json:"why,omitempty"`     // why it is not whole
}

// Window describes the turns without their texts: it serves no contents and leaves no manifest.
func (c *Session) Window(ctx context.Context) (*Window, error) {
	talk, err := c.talk()
	if err != nil {
		return nil, err
	}
	w := &Window{Session: c.id, Turns: []WindowTurn{}}
	err = talk.exclusively(ctx, func() error {
		w.LSN, w.Pass, w.InForce = talk.lsn, talk.state.Pass, talk.state.InForce
		if cfg := talk.state.Config; cfg != nil {
			t, err := cfg.Thresholds()
			if err != nil {
				return err
			}
			w.Limits = &t
		}
		w.Turns = make([]WindowTurn, 0, len(talk.blocks))
		for i := range talk.blocks {
			t := talk.windowTurn(i)
			w.Turns = append(w.Turns, t)
			w.Tokens += t.Tokens
			w.Stored += t.Stored
		}
		return nil
	})
	return w, err
}

func (c *conversation) windowTurn(i int) WindowTurn {
	b := &c.blocks[i]
	l := c.shown(i)
	t := WindowTurn{
		Ref: Ref{Scope: c.scope, ID: b.id, Version: b.version}, Seq: b.seq, Role: b.role, Kind: b.kind, Level: l, Tokens: c.size(b, l),
		Stored: c.size(b, session.Raw), Pinned: b.row.Pinned, Why: c.why(i),
	}
	if b.judged {
		t.Verdict = b.verdict.action.String()
	}
	return t
}

// size is what a turn takes at a level, in tokens as they are budgeted.
func (c *conversation) size(b *block, l session.Level) int {
	return c.cal.Budget(b.row.Sizes[l])
}

// calibrated is a calibration of a stored ratio, in parts per million.
func calibrated(ratio int64) session.Calibration {
	const unit = 1_000_000
	return session.Calibration{}.Observe(unit, int(ratio))
}

// shown is the level at which a turn stands in the window: the further of what the pass in force and the watcher say.
// A pin shows it whole, unless it gave way to the newest turn. A result is never without its call in the window, nor a call without its result, or a provider
// would refuse the sequence: what would leave alone stays as a stub.
func (c *conversation) shown(i int) session.Level {
	b := &c.blocks[i]
	u := &c.units[b.unit]
	if c.pinned(u) {
		return session.Raw
	}
	l, _ := c.asked(i)
	if l == session.Cold && len(u.members) > 1 {
		for _, j := range u.members {
			if other, _ := c.asked(j); other != session.Cold {
				l = session.Stub
				break
			}
		}
	}
	return b.row.settle(l)
}

func (c *conversation) pinned(u *unit) bool {
	for _, i := range u.members {
		if r := c.blocks[i].row; r.Pinned && !r.Yielded {
			return true
		}
	}
	return false
}

// levels of the verdicts of a pass.
var verdictLevels = [...]session.Level{session.Retain: session.Raw, session.Page: session.Stub, session.Evict: session.Cold}

// asked is the level that watcher and pass want for a turn, and whether it is the pass that wants it so far.
func (c *conversation) asked(i int) (l session.Level, byPass bool) {
	b := &c.blocks[i]
	l = session.Level(c.blocks[c.units[b.unit].members[0]].row.Level)
	if b.judged && verdictLevels[b.verdict.action] > l {
		return verdictLevels[b.verdict.action], true
	}
	return l, false
}

// why says why a turn is not whole, "" when it is.
func (c *conversation) why(i int) string {
	if c.shown(i) == session.Raw {
		return ""
	}
	l, byPass := c.asked(i)
	switch {
	case !byPass:
		return c.blocks[c.units[c.blocks[i].unit].members[0]].row.Because
	case l == session.Cold:
		return c.passed().evicted
	}
	return c.passed().paged
}

// passReasons is what a pass gives as its reasons, written once and not for each turn.
type passReasons struct {
	pass           uint64
	evicted, paged string
}

func (c *conversation) passed() *passReasons {
	if n := c.state.InForce; c.reasons.pass != n {
		c.reasons = passReasons{n, fmt.Sprintf("evicted by pass %d", n), fmt.Sprintf("paged by pass %d", n)}
	}
	return &c.reasons
}

// settle is the level that exists: a form that was never made, or would not be shorter, gives way to the one before.
func (r *turnRow) settle(l session.Level) session.Level {
	if l == session.Stub {
		if n := r.Sizes[session.Summary]; r.Sizes[l] > 0 && (n == 0 || n > r.Sizes[l] || r.Made&(1<<session.Summary) == 0) {
			return l
		}
		l--
	}
	for ; l > session.Raw && l < session.Cold; l-- {
		if r.Sizes[l] > 0 && r.Made&(1<<l) != 0 {
			return l
		}
	}
	return l
}

// Read gives up to limit turns (0: 100) whole, from a sequence number on, whatever the window shows of them; it is in
// the manifest as an export. Expired turns are not served.
func (c *Session) Read(ctx context.Context, from int64, limit int) ([]*Version, error) {
	talk, err := c.talk()
	if err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = 100
	}
	var list []Located
	now := c.s.db.opts.Clock()
	err = talk.exclusively(ctx, func() error {
		for i := range talk.blocks {
			b := &talk.blocks[i]
			if b.seq < from || len(list) == limit || b.expires != 0 && b.expires <= codec.Micros(now) {
				continue
			}
			l := Located{Scope: c.s.name, Version: b.version}
			for _, n := range b.nums {
				l.Pages = append(l.Pages, PageKey{Num: n, Version: b.version})
			}
			list = append(list, l)
		}
		return nil
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	leaf := &manifest.Record{Type: manifest.TypeExport, Session: c.id, Counter: c.s.db.opts.Counter.Name()}
	out := make([]*Version, len(list))
	for i, l := range list {
		if out[i], err = c.s.db.version(ctx, c.s.chain[:1], l); err != nil {
			return nil, err
		}
		for _, p := range out[i].Pages {
			leaf.Pages = append(leaf.Pages, manifest.Page{Num: p.Num, Version: out[i].Version, Tokens: p.Tokens})
			leaf.Tokens += p.Tokens
		}
		leaf.LSN = max(leaf.LSN, out[i].LSN)
	}
	return out, c.s.emit(ctx, leaf)
}
