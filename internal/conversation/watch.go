package conversation

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// WatchEvents is the number of events that wait for a reader. Further events are dropped and counted.
const WatchEvents = 256

// planTries is the number of plans for a pass while the session changes under it. The last time runs under the lock.
const planTries = 3

// saveTries is the number of attempts to write a watch row that others write, too.
const saveTries = 5

// The rules are in Machine, a value that is stored with the session (WatchRow), so that any process can
// take the next step:
//
//	step: read the row ─▶ Machine.Step (what to do now) ─▶ act (do it) ─▶ Machine.Done (what came of it) ─▶ save
//	act:  Plan, under the lock ─▶ MakeForms, without it: a summarizer may be slow ─▶ Apply, under it, if Rev is unchanged
//	           ▲                                                                       │
//	           └──────────────── the session changed: plan again, planTries times ◀────┘
//
// After planTries changed sessions a pass is planned and applied under one lock, with extracts instead of summaries
// (actAtOnce): a session that is written to without a pause would otherwise leave all the work to its commits.
//
// The row is written only when there are events, in a commit of its own whose leaf names them. A phase in the middle of a
// move is never stored: after a crash the next step begins again.

// Watcher is the view that one process has of the watcher of a session. All methods are safe for concurrent use.
type Watcher struct {
	c        *Conversation
	actor    string
	events   chan session.Event
	seen     atomic.Uint64 // newest event that was handed on
	dropped  atomic.Int64
	expanded atomic.Int64 // turns that were read back after a pass compacted them
}

// Watch returns this process's watcher of the session. The first call decides who acts. ErrInvalid without a window.
func (c *Conversation) Watch(ctx context.Context, actor string) (*Watcher, error) {
	s, err := c.home.sight(ctx, c.name())
	if err != nil {
		return nil, err
	}
	if s.config == nil {
		return nil, noWindow(c)
	}
	w := c.home.register(&Watcher{c: c, actor: actor, events: make(chan session.Event, WatchEvents)}, s.row.Progress.Seq)
	c.home.Keep()
	return w, nil
}

// noWindow is the error of a session without a window.
func noWindow(c *Conversation) error {
	return store.Invalid("window", "none of session "+c.ID, "one that was set (Session.SetWindow; dbctl watch --total N --once)")
}

// sight is the knowledge of a session before its turns are loaded.
type sight struct {
	of      [2]string // scope and session
	config  *session.Config
	change  store.StateRow
	row     WatchRow
	lsn     uint64 // of the watch row; 0: there is none
	machine Machine
}

// sight reads how full the window of a session is and where its watcher stands.
func (t *Sessions) sight(ctx context.Context, of [2]string) (*sight, error) {
	s := &sight{of: of}
	state, err := t.Store.State(ctx, RowKey(SessionRowKey, of[0], of[1]))
	if err != nil {
		return nil, err
	}
	if s.config, err = WindowOf(state.Value); err != nil || s.config == nil {
		return s, err
	}
	if s.change, err = t.Store.State(ctx, RowKey(ChangeRowKey, of[0], of[1])); err != nil {
		return nil, err
	}
	if err := t.reread(ctx, s); err != nil {
		return nil, err
	}
	s.machine, err = ResumeMachine(*s.config, s.row.Progress)
	return s, err
}

// reread reads the watch row.
func (t *Sessions) reread(ctx context.Context, s *sight) error {
	row, err := t.Store.State(ctx, RowKey(WatchRowKey, s.of[0], s.of[1]))
	if err != nil {
		return err
	}
	s.lsn = row.LSN
	s.row, err = DecodeWatch(row.Value)
	return err
}

// save stores where the watcher stands, with the events of a step. If another process wrote the row meanwhile, its holder
// stays and our progress counts.
func (t *Sessions) save(ctx context.Context, s *sight, actor string, events []session.Event, tries int) error {
	if t.ReadOnly {
		return store.ErrReadOnly
	}
	leaf := manifest.Record{Type: manifest.TypePass, Session: s.of[1]}
	for _, e := range events {
		leaf.Action += fmt.Sprintf("; watch %s: pass %d, %d items, %d tokens", e.Kind, e.Pass, e.Items, e.Freed)
		leaf.Tokens, leaf.Budget = e.Actual, e.Usable
		if e.Reason != "" {
			leaf.Reason = e.Reason
		}
	}
	leaf.Action = strings.TrimPrefix(leaf.Action, "; ")
	for try := 1; ; try++ {
		s.row.Progress = s.machine.Progress
		s.row.Add(events)
		err := t.commitWatch(ctx, s, actor, leaf)
		if !errors.Is(err, store.ErrConflict) || try >= tries {
			return err
		}
		if err := t.reread(ctx, s); err != nil {
			return err
		}
	}
}

// commitWatch commits the watch row if nobody wrote it since it was read.
func (t *Sessions) commitWatch(ctx context.Context, s *sight, actor string, leaf manifest.Record) error {
	id, err := t.NewID()
	if err != nil {
		return err
	}
	key := RowKey(WatchRowKey, s.of[0], s.of[1])
	out, err := t.Store.Commit(ctx, store.Batch{
		ID: id, Scope: s.of[0], Actor: actor, Now: t.Clock(), OnStale: store.AllowStale, Leaf: leaf,
		State: []store.StateRow{{Key: key, Value: s.row.Encode()}}, ExpectState: []store.StatePre{{Key: key, LSN: s.lsn}},
	})
	if err == nil {
		if s.lsn = out.LSN; s.row.Holder != "" && s.row.Holder == t.self() {
			t.holding(s.of)
		}
	}
	return err
}

// Events returns what happened, in order, whichever process did it. Nobody has to read it: events that find no room are
// dropped and counted, and the manifest has all of them.
func (w *Watcher) Events() <-chan session.Event { return w.events }

// follow hands on the events of a watch row that are new to this process.
func (w *Watcher) follow(row *WatchRow) {
	for _, e := range row.Events {
		last := w.seen.Load()
		if e.Seq <= last {
			continue
		}
		w.seen.Store(e.Seq)
		w.dropped.Add(int64(e.Seq - last - 1))
		select {
		case w.events <- e:
		default:
			w.dropped.Add(1)
		}
	}
}

// Stats returns the limits, the phase and the counters of the watcher.
func (w *Watcher) Stats(ctx context.Context) (out session.WatchStats, err error) {
	s, err := w.c.home.sight(ctx, w.c.name())
	if err != nil {
		return out, err
	}
	out = session.WatchStats{Phase: s.machine.Phase.String(), Counters: s.machine.Counters, Dropped: w.dropped.Load(), Holder: s.row.Name}
	out.Counters.Expanded += int(w.expanded.Load())
	out.Running = w.c.home.runs(w.c.name())
	if s.config != nil {
		out.Limits = s.machine.Limits
	}
	return out, w.c.Exclusively(ctx, func() error {
		out.Actual, out.Analysis = w.c.Tokens(), w.c.Window().Analyse()
		return nil
	})
}

// Plan returns what a pass would do at that time. It changes nothing.
func (w *Watcher) Plan(ctx context.Context, now time.Time) (p session.Plan, err error) {
	err = w.c.Exclusively(ctx, func() error {
		p, err = w.plan(now)
		return err
	})
	return p, err
}

// plan is Plan for a caller that holds the lock of the session.
func (w *Watcher) plan(now time.Time) (session.Plan, error) {
	if !w.c.State.limited() {
		return session.Plan{}, noWindow(w.c)
	}
	return w.c.Window().Plan(now)
}

// Apply carries out a plan in one transaction, exactly, or fails: with session.ErrGeneration when the session has
// changed since the plan was made, with session.ErrPlan when the plan names a turn twice or a level that is not
// further. It makes the summaries first, under no lock.
func (w *Watcher) Apply(ctx context.Context, p session.Plan) (session.PassInfo, error) {
	return w.applyBy(ctx, p, w.c.host.Summarizer)
}

func (w *Watcher) applyBy(ctx context.Context, p session.Plan, by Summarizer) (info session.PassInfo, err error) {
	var forms []Form
	same := func() error {
		if p.Generation != w.c.Rev {
			return fmt.Errorf("%w (plan %d, session %d)", session.ErrGeneration, p.Generation, w.c.Rev)
		}
		return nil
	}
	err = w.c.Exclusively(ctx, func() error {
		forms = w.c.FormsOf(p)
		return same()
	})
	if err != nil {
		return info, err
	}
	if forms, err = w.c.MakeForms(ctx, forms, by); err != nil {
		return info, err
	}
	err = w.c.Exclusively(ctx, func() error {
		if err := same(); err != nil {
			return err
		}
		info, err = w.apply(ctx, p, forms)
		return err
	})
	return info, err
}

// apply carries out a plan and commits it. The caller holds the lock of the session and has checked the revision.
func (w *Watcher) apply(ctx context.Context, p session.Plan, forms []Form) (session.PassInfo, error) {
	c := w.c
	ch := c.Begin()
	items, err := c.CarryOut(ch, p, forms)
	if err != nil {
		c.Discard()
		return session.PassInfo{}, err
	}
	row := PassRow{Kind: session.PassWatcher, Items: items}
	c.Number(ch, &row, w.actor)
	leaf := manifest.Record{Type: manifest.TypePass, Reason: "headroom", Action: fmt.Sprintf("pass %d: %d compacted, %d tokens freed", row.Number, len(items), row.Freed())}
	return row.Info(), c.Commit(ctx, w.actor, ch, leaf)
}

// Step looks at the window once, in this process, whoever else runs the watcher. It warns, plans and compacts as the limits
// say, and returns the events.
func (w *Watcher) Step(ctx context.Context, now time.Time) ([]session.Event, error) {
	s, err := w.c.home.sight(ctx, w.c.name())
	if err != nil || s.config == nil {
		return nil, err
	}
	tokens := 0
	err = w.c.Exclusively(ctx, func() error { // a plain put may have added turns since the last commit of the session
		tokens = w.c.Tokens()
		return nil
	})
	if err != nil {
		return nil, err
	}
	events, err := w.step(ctx, now, s, tokens, w.c.host.Summarizer, nil)
	return events, err
}

// step is one step of the machine. may is asked before anything is done or stored; nil: yes.
func (w *Watcher) step(ctx context.Context, now time.Time, s *sight, tokens int, by Summarizer, may func(Move) (bool, error)) ([]session.Event, error) {
	m, move, events := s.machine.Step(now, s.change.LSN, tokens)
	if move == Rest && len(events) == 0 {
		s.machine = m
		return nil, nil
	}
	if may != nil {
		if yes, err := may(move); err != nil || !yes {
			return nil, err
		}
	}
	var err error
	tries := 1 // if nothing was done, the next look decides anew
	if s.machine = m; move != Rest {
		tries = saveTries
		var out Outcome
		var more []session.Event
		out, err = w.act(ctx, now, move, by)
		if !out.Applied && (ctx.Err() != nil || err == nil && out.Plan.Actual <= m.Limits.Trigger) {
			return nil, err // nothing was done, or others made room since the look: the next step begins again
		}
		out.Failed = err
		s.machine, more = m.Done(now, move, out)
		events = append(events, more...)
	}
	// What was done is recorded, also when the context has ended.
	return events, errors.Join(err, w.c.home.save(context.WithoutCancel(ctx), s, w.actor, events, tries))
}

// act carries out a move.
func (w *Watcher) act(ctx context.Context, now time.Time, move Move, by Summarizer) (out Outcome, err error) {
	if move != Compact {
		out.Plan, err = w.Plan(ctx, now)
		return out, err
	}
	for try := 1; ; try++ {
		var info session.PassInfo
		if try == planTries {
			out.Plan, info, err = w.actAtOnce(ctx, now)
		} else if out.Plan, err = w.Plan(ctx, now); err == nil && out.Plan.Blocked == "" {
			info, err = w.applyBy(ctx, out.Plan, by)
		}
		if errors.Is(err, session.ErrGeneration) {
			continue
		}
		if err == nil && out.Plan.Blocked == "" {
			out.Applied, out.Freed, out.Plan.Pass = true, info.Freed, info.Number
			err = w.c.Exclusively(context.WithoutCancel(ctx), func() error {
				out.Actual = w.c.Tokens()
				return nil
			})
		}
		return out, err
	}
}

// actAtOnce plans and applies under one lock, without a summarizer: appends wait for it.
func (w *Watcher) actAtOnce(ctx context.Context, now time.Time) (p session.Plan, info session.PassInfo, err error) {
	err = w.c.Exclusively(ctx, func() (err error) {
		if p, err = w.plan(now); err != nil || p.Blocked != "" {
			return err
		}
		forms, err := w.c.MakeForms(ctx, w.c.FormsOf(p), nil)
		if err != nil {
			return err
		}
		info, err = w.apply(ctx, p, forms)
		return err
	})
	return p, info, err
}

// Expanded counts a turn that was read back after a pass compacted it.
func (w *Watcher) Expanded() { w.expanded.Add(1) }

// undone puts into the batch of an undo that the watcher must not repeat at once what was undone. The caller holds the lock.
func (c *Conversation) undone(ctx context.Context, w *Writes, pass uint64) error {
	s, err := c.home.sight(ctx, c.name())
	if err != nil || s.config == nil {
		return err
	}
	m, e := s.machine.Undone(c.host.Clock(), pass, c.Tokens())
	s.row.Progress = m.Progress
	s.row.Add([]session.Event{e})
	key := c.Key(WatchRowKey)
	w.Raw(key, s.row.Encode())
	w.Expect = append(w.Expect, store.StatePre{Key: key, LSN: s.lsn})
	return nil
}

// What the process that runs the watcher of a session must know without loading the session: how full the window is (Mark,
// in the change row) and where the watcher stands (WatchRow). Both rows are told to it (store.Changes).

// Fullness is the range of the window's limits that its tokens are in.
type Fullness byte

// The values of a change row begin with one of these; the tokens of the window follow it as a varint.
const (
	NoWindow Fullness = iota + 1
	Calm              // at or below the target
	Busy              // at or below the warning
	Full              // above the warning: the watcher must look
)

// Mark returns the value of the change row for the window as it is in memory, with so many tokens that come in besides.
func (c *Turns) Mark(coming int) []byte {
	if !c.State.limited() {
		return []byte{byte(NoWindow)}
	}
	t := c.State.Config.Thresholds()
	tokens, f := c.Tokens()+coming, Full
	switch {
	case tokens <= t.Target:
		f = Calm
	case tokens <= t.Warn:
		f = Busy
	}
	return binary.AppendUvarint([]byte{byte(f)}, uint64(tokens))
}

// MarkOf reads the value of a change row.
func MarkOf(value []byte) (f Fullness, tokens int) {
	if len(value) == 0 {
		return NoWindow, 0
	}
	n, _ := binary.Uvarint(value[1:])
	return Fullness(value[0]), int(n)
}

// SessionOf returns the scope and the session of the key of a change row or a watch row; kind is its prefix.
func SessionOf(kind, key string) (of [2]string, ok bool) {
	if key, ok = strings.CutPrefix(key, kind); ok {
		of[0], of[1], ok = strings.Cut(key, "\x00")
	}
	return of, ok
}

// WindowOf returns the configuration in the state row of a session; nil: it has no window.
func WindowOf(raw []byte) (*session.Config, error) {
	if raw == nil {
		return nil, nil
	}
	s, err := readRow(&sessionFields, raw)
	if err != nil || !s.limited() {
		return nil, err
	}
	return &s.Config, nil
}
