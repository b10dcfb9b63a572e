package ctxpage

import (
	"context"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
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

func (c *Session) talk() (*conversation, error) {
	if c.s.err != nil {
		return nil, c.s.err
	}
	if err := store.CheckID("session", c.id); err != nil {
		return nil, err
	}
	return c.s.db.conversation(c.s.name, c.id), nil
}

// turn is the number of the newest turn.
func (c *conversation) turn() int64 {
	if len(c.blocks) == 0 {
		return 0
	}
	return max(c.blocks[len(c.blocks)-1].seq, 0)
}

// find gives the place of a turn by its id, -1: there is none.
func (c *conversation) find(id string) int {
	if i, ok := c.byID[id]; ok && i < len(c.blocks) && c.blocks[i].id == id {
		return i
	}
	return -1
}

// Sessions lists the conversations of the scope that were appended to, by name. It serves no contents and leaves no
// manifest.
func (s *Scope) Sessions(ctx context.Context) ([]string, error) {
	if s.err != nil {
		return nil, s.err
	}
	prefix := sessionRowKey + s.name + "\x00"
	var out []string
	err := s.db.scanState(ctx, prefix, func(r store.StateRow) error {
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
	var list []store.Located
	now := c.s.db.opts.Clock()
	err = talk.exclusively(ctx, func() error {
		for i := range talk.blocks {
			b := &talk.blocks[i]
			if b.seq < from || len(list) == limit || b.expires != 0 && b.expires <= codec.Micros(now) {
				continue
			}
			l := store.Located{Scope: c.s.name, Version: b.version}
			for _, n := range b.nums {
				l.Pages = append(l.Pages, store.PageKey{Num: n, Version: b.version})
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
