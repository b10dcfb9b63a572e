package ctxpage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// The kinds of passes, as PassInfo.Kind and the audit name them.
const (
	PassPager    = "pager"    // Session.Pass decided what stays in the window
	PassWatcher  = "watcher"  // the watcher compacted ahead of need
	PassBackstop = "backstop" // a commit made the room it needed
)

// PassQuery asks for a pass.
type PassQuery struct {
	// Keywords say what the conversation is about now, as words or whole sentences; IR says the same as an intent IR
	// object, and then Keywords are added to it.
	Keywords []string
	IR       *session.IntentIR
	// Params: zero takes session.RecommendedParams; session.CompatParams are the reference's defaults.
	Params session.Params
	// Head is the turn that counts as now; 0: the newest.
	Head int64
	// DryRun decides and writes nothing; the pass has no number then.
	DryRun bool
}

func (q PassQuery) intent() session.Intent {
	if q.IR == nil {
		return session.NewIntent(q.Keywords...)
	}
	return session.NewIntent(append(q.IR.Intent().Words(), q.Keywords...)...)
}

// Pass is the outcome of a pass: its number, and the verdicts in the order of the turns.
type Pass struct {
	session.Result
	Number uint64
	At     time.Time
}

// Pass decides which turns stay whole, which become stubs and which leave the window, in one transaction. It reads
// metadata only. The same history, intent and parameters as of the pass in force give its verdicts again and write
// nothing. Where SetWindow was called and the verdicts would overfill the window, the same transaction compacts it;
// ErrHeadroom when that is not enough, and then nothing changes.
func (c *Session) Pass(ctx context.Context, q PassQuery) (*Pass, error) {
	if !q.DryRun {
		if err := c.s.hostOnly("Session.Pass"); err != nil {
			return nil, err
		}
	}
	talk, err := c.talk()
	if err != nil {
		return nil, err
	}
	var out *Pass
	err = talk.exclusively(ctx, func() error {
		out, err = talk.pass(ctx, c.s, q)
		return err
	})
	if err == nil && out.Number != 0 && !out.Repeated {
		talk.wake()
	}
	return out, err
}

func (c *conversation) pass(ctx context.Context, s *Scope, q PassQuery) (*Pass, error) {
	if q.Params == (session.Params{}) {
		q.Params = session.RecommendedParams()
	}
	in := session.Input{Blocks: c.history(), Intent: q.intent(), Params: q.Params, Head: q.Head, Last: session.PassKey(c.state.Key)}
	r, err := session.Pass(in)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if q.DryRun {
		return &Pass{Result: r, At: c.db.opts.Clock()}, nil
	}
	if r.Repeated {
		return &Pass{Result: r, Number: c.force.Number, At: codec.FromMicros(c.force.At)}, nil
	}
	row := passRow{
		Kind: PassPager, Key: uint64(r.Key), History: r.History, Intent: r.Intent, Keywords: q.Keywords, Tokens: r.Keywords, Params: r.Params,
		Previous: c.state.InForce, Count: r.Count, Sum: r.Tokens,
	}
	if q.IR != nil {
		if row.IR, err = json.Marshal(q.IR); err != nil {
			return nil, fmt.Errorf("%w: intent: %w", ErrInvalid, err)
		}
	}
	if err := c.storePass(ctx, s, r, &row); err != nil {
		return nil, err
	}
	return &Pass{Result: r, Number: row.Number, At: codec.FromMicros(row.At)}, nil
}

// history is what a pass needs of the turns.
func (c *conversation) history() []session.Block {
	out := make([]session.Block, len(c.blocks))
	for i := range c.blocks {
		b := &c.blocks[i]
		out[i] = session.Block{
			ID: b.id, Turn: max(b.seq, 0), Tokens: b.row.Sizes[session.Raw], Hashes: b.row.Hashes, Role: session.Role(b.role), Kind: b.kind.String(),
			Pinned: b.row.Pinned, Source: b.row.Hash,
		}
	}
	return out
}

// storePass puts new verdicts in force. Memory changes first, so that the window they make can be measured.
func (c *conversation) storePass(ctx context.Context, s *Scope, r session.Result, row *passRow) (err error) {
	defer func() {
		if err != nil {
			c.loaded = false
		}
	}()
	w := c.begin()
	for i := range r.Verdicts {
		v, b := &r.Verdicts[i], &c.blocks[i]
		b.judged, b.verdict = true, verdict{v.Action, v.Reason, v.Hits, v.Delta}
	}
	n := c.state.Pass + 1
	c.stored, c.state.InForce, c.state.Key = nil, n, row.Key
	c.force = *row // which scores are computed with
	c.rev++
	c.state.Kept = append(c.state.Kept, n)
	for len(c.state.Kept) > keptVerdicts {
		w.raw(c.passKey(verdictRowKey, c.state.Kept[0]), nil)
		c.state.Kept = c.state.Kept[1:]
	}
	w.raw(c.passKey(verdictRowKey, n), encodeVerdicts(c.blocks))
	if row.Items, err = c.relieve(ctx, w); err != nil {
		return err
	}
	c.number(s, w, row)
	c.force = *row
	return c.commit(ctx, s, w, manifest.Record{
		Type: manifest.TypePass, Reason: "vouched by the host",
		Action: fmt.Sprintf("pass %d: retain %d, page %d, evict %d", n, r.Count[session.Retain], r.Count[session.Page], r.Count[session.Evict]),
	})
}

// number gives a pass its number and stores its record with the state.
func (c *conversation) number(s *Scope, w *changes, row *passRow) {
	c.state.Pass++
	row.Number, row.At, row.Actor = c.state.Pass, codec.Micros(s.db.opts.Clock()), s.actor
	if c.state.Created == 0 {
		c.state.Created = row.At
	}
	w.put(c.passKey(passRowKey, row.Number), row)
	w.put(c.key(sessionRowKey), &c.state)
}

// result puts the pass in force together again.
func (c *conversation) result() (*Pass, error) {
	p := &c.force
	if p.Number == 0 {
		return nil, fmt.Errorf("%w: session %s has had no pass, or all were undone", ErrNotFound, c.id)
	}
	out := &Pass{Number: p.Number, At: codec.FromMicros(p.At), Result: session.Result{
		Key: session.PassKey(p.Key), History: p.History, Intent: p.Intent, Keywords: p.Tokens, Params: p.Params,
	}}
	for i := range c.blocks {
		b := &c.blocks[i]
		if !b.judged {
			continue
		}
		out.Verdicts = append(out.Verdicts, out.verdict(b.id, len(out.Verdicts), b.verdict))
		out.Count[b.verdict.action]++
		out.Tokens[b.verdict.action] += b.row.Sizes[session.Raw]
	}
	return out, nil
}

// verdict computes the score again from what is stored; it is the same on every machine.
func (p *Pass) verdict(id string, at int, v verdict) session.Verdict {
	out := session.Verdict{Index: at, ID: id, Action: v.action, Reason: v.reason, Hits: v.hits, Delta: v.delta}
	if p.Keywords > 0 {
		out.Similarity = float64(v.hits) / float64(p.Keywords)
	}
	out.Recency = session.RecencyOf(v.delta)
	out.R = session.Score(p.Params.Alpha, p.Params.Beta, out.Similarity, out.Recency)
	return out
}

// InForce gives the pass whose verdicts hold, put together from what is stored. ErrNotFound before the first.
func (c *Session) InForce(ctx context.Context) (*Pass, error) {
	talk, err := c.talk()
	if err != nil {
		return nil, err
	}
	var out *Pass
	err = talk.exclusively(ctx, func() error {
		out, err = talk.result()
		return err
	})
	return out, err
}

// place finds a turn by its id.
func (c *conversation) place(id string) (int, error) {
	if i := c.find(id); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("%w: session %s has no turn %q", ErrNotFound, c.id, id)
}

// Explain says in plain words why a turn stands in the window as it does.
func (c *Session) Explain(ctx context.Context, id string) (string, error) {
	talk, err := c.talk()
	if err != nil {
		return "", err
	}
	var out []string
	err = talk.exclusively(ctx, func() error {
		i, err := talk.place(id)
		if err != nil {
			return err
		}
		out = talk.explain(i)
		return nil
	})
	return strings.Join(out, "\n"), err
}

func (c *conversation) explain(i int) []string {
	b := &c.blocks[i]
	l := c.shown(i)
	out := []string{fmt.Sprintf("shown as %s with %d of %d tokens", l, c.size(b, l), c.size(b, session.Raw))}
	if b.judged {
		pass := Pass{Result: session.Result{Params: c.force.Params, Keywords: c.force.Tokens}}
		out = append(out, fmt.Sprintf("pass %d: %s", c.force.Number, pass.Explain(pass.verdict(b.id, 0, b.verdict))))
	} else {
		out = append(out, "no pass has judged it as it is now, so it is retained")
	}
	u := &c.units[b.unit]
	if lead := c.blocks[u.members[0]].row; lead.Level > 0 {
		out = append(out, fmt.Sprintf("watcher: compacted to %s: %s", session.Level(lead.Level), lead.Because))
	}
	if c.pinned(u) {
		out = append(out, "pinned: shown whole whatever pass and watcher say")
	} else if b.row.Pinned {
		out = append(out, "pinned, but the window has no room for it beside the newest turn: it is shown whole again by the first append that leaves room for it")
	}
	if asked, _ := c.asked(i); asked == session.Cold && l == session.Stub {
		out = append(out, "kept as a stub: a call and its results are in the window together or not at all")
	}
	return out
}

// Recall reads a turn in full, whatever the window shows of it: what left the window is one call away. The read is in
// the manifest under the session. It does not bring the turn back into the window; Pin does.
func (c *Session) Recall(ctx context.Context, id string) (*Version, error) {
	talk, err := c.talk()
	if err != nil {
		return nil, err
	}
	compacted := false
	err = talk.exclusively(ctx, func() error {
		i, err := talk.place(id)
		if err != nil {
			return err
		}
		l := talk.shown(i)
		compacted = l != session.Raw
		if talk.reads[id] = talk.turn(); l != session.Cold {
			talk.recount(talk.blocks[i].unit, func() {}) // when it was read is part of its section
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	v, leaf, err := c.s.read(ctx, Ref{Scope: c.s.name, ID: id}, readOptions{})
	if err != nil {
		return nil, err
	}
	leaf.Type, leaf.Session = manifest.TypeRecall, c.id
	if w := talk.watch.Load(); w != nil && compacted {
		w.expanded(ctx)
	}
	return v, c.s.emit(ctx, leaf)
}

// Pin shows a turn whole, with the calls and results it goes with, whatever a pass or the watcher says, until it is
// unpinned. ErrHeadroom when the window cannot take it. A pin gives way to a newest turn that has no room beside it, and
// comes back (Append); WindowTurn.Why says so meanwhile.
func (c *Session) Pin(ctx context.Context, id string) error { return c.pin(ctx, id, true) }

// Unpin takes a pin back.
func (c *Session) Unpin(ctx context.Context, id string) error { return c.pin(ctx, id, false) }

func (c *Session) pin(ctx context.Context, id string, on bool) error {
	talk, err := c.hostTalk("Pin")
	if err != nil {
		return err
	}
	action := map[bool]string{true: "pin", false: "unpin"}[on]
	return talk.change(ctx, c.s, manifest.Record{Type: manifest.TypeCommit, Action: action, Reason: "vouched by the host"}, func(w *changes, leaf *manifest.Record) error {
		i, err := talk.place(id)
		if err != nil {
			return err
		}
		if row := talk.blocks[i].row; row.Pinned == on && !row.Yielded {
			return nil
		}
		leaf.Note = Ref{Scope: talk.scope, ID: id}.String()
		talk.setRow(w, i, func(r *turnRow) { r.Pinned, r.Yielded = on, false })
		return nil
	})
}

// change carries out a change that may make the window larger: what it adds is made room for in the same transaction.
// Without a row to write nothing is committed.
func (c *conversation) change(ctx context.Context, s *Scope, leaf manifest.Record, fn func(*changes, *manifest.Record) error) error {
	err := c.exclusively(ctx, func() (err error) {
		w := c.begin()
		before := w.sets
		defer func() {
			if err != nil {
				c.loaded = false
			}
		}()
		if err := fn(w, &leaf); err != nil || w.sets == before {
			return err
		}
		items, err := c.relieve(ctx, w)
		if err != nil {
			return err
		}
		if len(items) > 0 {
			row := passRow{Kind: PassBackstop, Items: items}
			c.number(s, w, &row)
		}
		return c.commit(ctx, s, w, leaf)
	})
	if err == nil {
		c.wake()
	}
	return err
}

// PassInfo is the record of one pass.
type PassInfo struct {
	Number   uint64    `json:"number"`
	Kind     string    `json:"kind"` // PassPager, PassWatcher or PassBackstop
	At       time.Time `json:"at"`
	Actor    string    `json:"actor"`
	Keywords []string  `json:"keywords,omitempty"`
	Retained int       `json:"retained"` // turns by verdict, of the pager
	Paged    int       `json:"paged"`
	Evicted  int       `json:"evicted"`
	Items    int       `json:"items"` // units compacted, of the watcher and the backstop
	Freed    int       `json:"freed"` // tokens freed by them
	Undone   bool      `json:"undone,omitempty"`
}

func (p *passRow) info() PassInfo {
	out := PassInfo{
		Number: p.Number, Kind: p.Kind, At: codec.FromMicros(p.At), Actor: p.Actor, Keywords: p.Keywords, Undone: p.Undone, Items: len(p.Items),
		Retained: p.Count[session.Retain], Paged: p.Count[session.Page], Evicted: p.Count[session.Evict],
	}
	for _, it := range p.Items {
		out.Freed += it.Before - it.After
	}
	return out
}

// Passes lists the passes of the session of all kinds, oldest first.
func (c *Session) Passes(ctx context.Context) ([]PassInfo, error) {
	talk, err := c.talk()
	if err != nil {
		return nil, err
	}
	out := []PassInfo{}
	err = c.s.db.scanState(ctx, talk.key(passRowKey)+"\x00", func(r store.StateRow) error {
		var p passRow
		if err := codec.Unpack(r.Value, &p); err != nil {
			return fmt.Errorf("ctxpage: pass of session %s: %w", c.id, err)
		}
		out = append(out, p.info())
		return nil
	})
	return out, err
}

// Undo takes a pass back, 0: the newest that was not undone. The window shows again what it showed before, byte for
// byte and in order. A pager's pass can be undone while its verdicts are in force, and the verdicts of the one before
// are then; a watcher's while nothing changed what it compacted: else session.ErrUndo. ErrGone when the verdicts of
// the pass before are not kept any more, ErrHeadroom when the window has no room for what would come back.
func (c *Session) Undo(ctx context.Context, pass uint64) (PassInfo, error) {
	talk, err := c.hostTalk("Undo")
	if err != nil {
		return PassInfo{}, err
	}
	var info PassInfo
	err = talk.exclusively(ctx, func() error {
		info, err = talk.undo(ctx, c.s, pass)
		return err
	})
	if w := talk.watch.Load(); w != nil && err == nil {
		err = w.undone(context.WithoutCancel(ctx), info.Number) // it is undone, also when the context has ended
	}
	return info, err
}

func (c *conversation) undo(ctx context.Context, s *Scope, n uint64) (info PassInfo, err error) {
	p, err := c.undoable(ctx, n)
	if err != nil {
		return info, err
	}
	for _, it := range p.Items { // before anything is changed: a refusal costs nothing
		if i := c.find(it.ID); i < 0 || c.blocks[i].row.Level != it.To || c.blocks[i].row.Because != it.Because {
			return info, fmt.Errorf("%w: pass %d, turn %q", session.ErrUndo, p.Number, it.ID)
		}
	}
	w := c.begin()
	was := c.rowsOf(p.Items)
	defer func() {
		switch {
		case err == nil:
		case errors.Is(err, ErrHeadroom) && p.Kind != PassPager:
			c.putBack(was) // what is in memory is what is stored: nothing has to be read again
		default:
			c.loaded = false
		}
	}()
	if p.Kind == PassPager {
		if err := c.reinstate(ctx, p.Previous); err != nil {
			return info, err
		}
		w.raw(c.passKey(verdictRowKey, p.Number), nil) // nobody comes back to them: they must not push out those of others
		c.state.Kept = slices.DeleteFunc(slices.Clone(c.state.Kept), func(n uint64) bool { return n == p.Number })
	}
	for _, it := range p.Items {
		i := c.find(it.ID)
		c.setRow(w, i, func(r *turnRow) { r.Level, r.Because = it.From, it.FromBecause })
		if it.Unpinned {
			c.yield(w, c.blocks[i].unit, false)
		}
	}
	if err := c.fits(); err != nil {
		return info, err
	}
	p.Undone = true
	w.put(c.passKey(passRowKey, p.Number), &p)
	w.put(c.key(sessionRowKey), &c.state)
	leaf := manifest.Record{Type: manifest.TypePass, Action: fmt.Sprintf("undo pass %d", p.Number), Reason: "vouched by the host"}
	return p.info(), c.commit(ctx, s, w, leaf)
}

// rowsOf gives the rows of all turns of the units that a pass compacted, by place.
func (c *conversation) rowsOf(items []passItem) map[int]*turnRow {
	out := map[int]*turnRow{}
	for _, it := range items {
		for _, i := range c.units[c.blocks[c.find(it.ID)].unit].members {
			out[i] = c.blocks[i].row
		}
	}
	return out
}

// putBack takes changes of rows back that are in no batch.
func (c *conversation) putBack(rows map[int]*turnRow) {
	for _, i := range slices.Sorted(maps.Keys(rows)) {
		b := &c.blocks[i]
		c.recount(b.unit, func() { b.row = rows[i] })
		c.rows[b.id] = b.row
	}
}

// undoable finds the pass to undo.
func (c *conversation) undoable(ctx context.Context, n uint64) (p passRow, err error) {
	if n == 0 {
		for n = c.state.Pass; n > 0; n-- {
			if p, err = c.loadPass(ctx, n); err != nil || !p.Undone {
				break
			}
		}
	} else {
		p, err = c.loadPass(ctx, n)
	}
	switch {
	case err != nil:
		return p, err
	case n == 0:
		return p, fmt.Errorf("%w: session %s has no pass to undo", ErrNotFound, c.id)
	case p.Undone:
		return p, fmt.Errorf("%w: pass %d was undone before", session.ErrUndo, n)
	case p.Kind == PassPager && c.state.InForce != n:
		return p, fmt.Errorf("%w: pass %d is not in force, pass %d is", session.ErrUndo, n, c.state.InForce)
	}
	return p, nil
}

// reinstate puts the verdicts of an older pass in force again.
func (c *conversation) reinstate(ctx context.Context, n uint64) (err error) {
	judged, err := c.loadVerdicts(ctx, n)
	if err != nil {
		return err
	}
	for i := range c.blocks {
		b := &c.blocks[i]
		b.verdict, b.judged = judged[b.nums[0]]
	}
	c.stored = nil
	c.rev++
	if c.force = (passRow{}); n != 0 {
		c.force, err = c.loadPass(ctx, n)
	}
	c.state.InForce, c.state.Key = n, c.force.Key
	return err
}
