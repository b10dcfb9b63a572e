package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// SetWindow sets the window of the session in tokens and how it is kept, for every handle and process from now on: no
// commit leaves more than its usable part in the window. A zero Total takes the limit away. Where the window is above
// the limit now it is compacted in the same transaction; ErrHeadroom when that cannot be done, and then nothing changes.
func (c *Session) SetWindow(ctx context.Context, cfg session.Config) error {
	talk, err := c.hostTalk("SetWindow")
	if err != nil {
		return err
	}
	if cfg.Total != 0 {
		if err := cfg.Validate(); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	leaf := manifest.Record{Type: manifest.TypeCommit, Action: "window", Note: fmt.Sprintf("total %d", cfg.Total), Reason: "vouched by the host"}
	err = talk.change(ctx, c.s, leaf, func(w *changes, _ *manifest.Record) error {
		if talk.state.Config = &cfg; cfg.Total == 0 {
			talk.state.Config = nil
		}
		talk.rev++
		if talk.state.Created == 0 {
			talk.state.Created = codec.Micros(c.s.db.opts.Clock())
		}
		w.put(talk.key(sessionRowKey), &talk.state)
		return nil
	})
	if w := talk.watch.Load(); w != nil && (err == nil || errors.Is(err, ErrOutcomeUnknown)) {
		// The watcher must keep what is stored, also when the context has ended.
		err = errors.Join(err, w.configure(context.WithoutCancel(ctx)))
	}
	return err
}

// Observe tells what a provider counted where the database had estimated: from then on turns are budgeted by it, never
// below the estimate. ErrHeadroom tells that the window is too full by the truth; the observation is kept.
func (c *Session) Observe(ctx context.Context, estimated, actual int) error {
	talk, err := c.hostTalk("Observe")
	if err != nil {
		return err
	}
	return talk.exclusively(ctx, func() error {
		talk.cal = talk.cal.Observe(estimated, actual)
		talk.state.Ratio = int64(talk.cal.Ratio())
		talk.rev++
		w := talk.begin()
		items, tooFull := talk.relieve(ctx, w)
		if tooFull != nil && !errors.Is(tooFull, ErrHeadroom) {
			talk.loaded = false
			return tooFull
		}
		if len(items) > 0 {
			talk.number(c.s, w, &passRow{Kind: PassBackstop, Items: items})
		}
		w.put(talk.key(sessionRowKey), &talk.state)
		leaf := manifest.Record{Type: manifest.TypeCommit, Action: "calibrate", Note: fmt.Sprintf("estimated %d, actual %d", estimated, actual), Reason: "vouched by the host"}
		return errors.Join(talk.commit(ctx, c.s, w, leaf), tooFull)
	})
}

// tokens counts the window. Once counted, the sum follows what changes a single unit; every other change moves rev on, and
// the next call counts anew.
func (c *conversation) tokens() int {
	if c.sumRev != c.rev {
		c.sum, c.sumRev = 0, c.rev
		for u := range c.units {
			c.sum += c.unitTokens(u)
		}
	}
	return c.sum
}

func (c *conversation) unitTokens(u int) (n int) {
	for _, i := range c.units[u].members {
		n += c.size(&c.blocks[i], c.shown(i))
	}
	return n
}

// recount makes a change that concerns one unit and no other.
func (c *conversation) recount(u int, change func()) {
	if c.insideRev == c.rev && c.inWindow(u) {
		c.insideRev++
	}
	if c.sumRev != c.rev {
		change()
		c.rev++
		return
	}
	before := c.unitTokens(u)
	change()
	c.rev++
	c.sum, c.sumRev = c.sum+c.unitTokens(u)-before, c.rev
}

// inWindow says whether a unit is listed as in the window, where a new one comes first.
func (c *conversation) inWindow(u int) bool {
	at, listed := slices.BinarySearch(c.inside, u)
	if !listed && len(c.units[u].members) == 0 {
		c.inside, listed = slices.Insert(c.inside, at, u), true
	}
	return listed
}

// fits is nil, or the *session.HeadroomError of a window above its limit.
func (c *conversation) fits() error {
	if c.state.Config == nil {
		return nil
	}
	t, err := c.state.Config.Thresholds()
	if err != nil {
		return err
	}
	if over := c.tokens() - t.Usable; over > 0 {
		return &session.HeadroomError{Shortfall: over, Protected: c.window().Analyse().Protected, Usable: t.Usable}
	}
	return nil
}

// window is the session as the planner sees it: a section for each unit that is in the window. Units are whole
// sections, because a call and its results go through the levels together.
func (c *conversation) window() session.State {
	if at := [2]uint64{c.gen, c.rev}; c.win == nil || c.winRev != at {
		st := c.makeWindow()
		c.win, c.winRev = &st, at
	}
	return *c.win
}

// makeWindow looks at what was in the window the last time and at what changed since: of a long session most turns are
// out of it for good.
func (c *conversation) makeWindow() session.State {
	st := session.State{Generation: c.gen, Turn: c.turn(), Pass: c.state.Pass, Sections: make([]session.Section, 0, len(c.inside))}
	if c.state.Config != nil {
		st.Config = *c.state.Config
	}
	c.list()
	for _, u := range c.inside {
		if sec, ok := c.section(u); ok {
			st.Sections = append(st.Sections, sec)
		}
	}
	return st
}

// list brings up to date which units are in the window. What went out of it is summed up, and looked at again only when it
// changes.
func (c *conversation) list() {
	if c.insideRev != c.rev {
		c.inside, c.outside, c.insideRev = everyIndex(c.inside[:0], len(c.units)), outside{}, c.rev
	}
	c.inside = slices.DeleteFunc(c.inside, func(u int) bool {
		out := c.shown(c.units[u].members[0]) == session.Cold // then all of it is
		if out {
			for _, i := range c.units[u].members {
				c.outside.add(c, i)
			}
		}
		return out
	})
}

// outside is what is out of the window: how many turns for which reason, and those of each that are named first.
type outside struct {
	sums     map[outReason]*outSum
	expiring []int // turns that have an expiry, which may be another reason
}

// outReason is why a turn is out, and its kind, which may be another reason.
type outReason struct {
	kind Kind
	why  string
}

type outSum struct {
	count int
	first []outTurn // up to namedLeft, the better before the worse, the newer before the older
}

type outTurn struct {
	at    int
	score float64
}

func (o *outside) add(c *conversation, i int) {
	b := &c.blocks[i]
	if b.expires != 0 {
		o.expiring = append(o.expiring, i)
		return
	}
	if o.sums == nil {
		o.sums = map[outReason]*outSum{}
	}
	of := outReason{b.kind, c.why(i)}
	s := o.sums[of]
	if s == nil {
		s = &outSum{}
		o.sums[of] = s
	}
	s.count++
	t := outTurn{i, c.score(i)}
	at, _ := slices.BinarySearchFunc(s.first, t, func(x, y outTurn) int { return cmp.Or(cmp.Compare(y.score, x.score), y.at-x.at) })
	if at < namedLeft {
		s.first = slices.Insert(s.first, at, t)
		s.first = s.first[:min(len(s.first), namedLeft)]
	}
}

func (o *outside) counts() map[outReason]int {
	n := make(map[outReason]int, len(o.sums))
	for of, s := range o.sums {
		n[of] = s.count
	}
	return n
}

func everyIndex(into []int, n int) []int {
	into = slices.Grow(into, n)
	for i := range n {
		into = append(into, i)
	}
	return into
}

// section describes one unit; false: nothing of it is in the window.
func (c *conversation) section(u int) (session.Section, bool) {
	members := c.units[u].members
	lead, main := &c.blocks[members[0]], &c.blocks[members[len(members)-1]]
	sec := session.Section{
		ID: lead.id, Kind: main.kind.String(), Priority: priorityOf(main.priority), At: codec.FromMicros(main.asOf), Turn: max(main.seq, 0),
		Level: session.Level(lead.row.Level), Pinned: c.pinned(&c.units[u]), Because: lead.row.Because,
	}
	if main.kind == KindMessage {
		sec.Kind, sec.Role = main.role, session.Role(store.SpokenAs(main.role))
	}
	if main.rated != nil {
		sec.Relevance, sec.Rated = *main.rated, true
	}
	if sec.Pinned {
		sec.Level = session.Raw
	}
	c.signals(u, &sec)
	for _, i := range members {
		if p := priorityOf(c.blocks[i].priority); p > session.Medium {
			sec.Priority = max(sec.Priority, p)
		}
	}
	for _, i := range members {
		sec.Sizes[sec.Level] += c.size(&c.blocks[i], c.shown(i))
	}
	below := sec.Tokens()
	for l := sec.Level + 1; l < session.Cold; l++ {
		if n := c.planned(u, l); n < below {
			sec.Sizes[l], below = n, n
		}
	}
	return sec, sec.Level != session.Cold && sec.Tokens() > 0
}

func priorityOf(p Priority) session.Priority {
	if p == PriorityAuto {
		p = PriorityMedium
	}
	return session.Priority(p) - session.Priority(PriorityMedium)
}

// signals are what the host told of the members, and what the database sees itself.
func (c *conversation) signals(u int, sec *session.Section) {
	members := c.units[u].members
	for _, i := range members {
		b := &c.blocks[i]
		s := &b.row.Signals
		sec.Traits |= session.Traits(b.row.Traits)
		sec.Signals.Keep = sec.Signals.Keep || s.Keep
		sec.Signals.LastRead = max(sec.Signals.LastRead, s.LastRead, c.reads[b.id])
	}
	b := &c.blocks[members[len(members)-1]]
	s := &b.row.Signals
	out := &sec.Signals
	out.Source, out.Version, out.Stale, out.Finding, out.Closed, out.Refetchable = s.Source, s.Version, s.Stale, s.Finding, s.Closed, s.Refetchable
	out.Failed = s.Failed || b.role == "tool" && session.Traits(b.row.Traits)&session.TraitError != 0
	out.ExpiresAt, out.Call = codec.FromMicros(b.expires), s.Call
	if len(members) > 2 {
		return // of a unit with several results none speaks for all
	}
	out.Digest = b.row.Content
	lead := &c.blocks[members[0]]
	if k := slices.Index(lead.calls(), b.answers()); k >= 0 && b.answers() != "" && out.Call == "" {
		out.Call = lead.tool.callKeys[k]
	}
}

// planned is what a unit would take at a level, by estimates where a form was not made yet.
func (c *conversation) planned(u int, l session.Level) (n int) {
	for _, i := range c.units[u].members {
		n += c.size(&c.blocks[i], c.plannedLevel(i, l))
	}
	return n
}

// plannedLevel is where a turn would stand if its unit went to a level, every form that may exist taken as made.
func (c *conversation) plannedLevel(i int, l session.Level) session.Level {
	b := &c.blocks[i]
	if b.judged && verdictLevels[b.verdict.action] > l {
		if l = verdictLevels[b.verdict.action]; l == session.Cold {
			return c.shown(i)
		}
	}
	for l > session.Raw && l < session.Cold && b.row.Sizes[l] == 0 {
		l--
	}
	return l
}

// reached is what a unit takes at a level with the forms that were made.
func (c *conversation) reached(u int, l session.Level) (n int) {
	for _, i := range c.units[u].members {
		b := &c.blocks[i]
		n += c.size(b, b.row.settle(c.plannedLevel(i, l)))
	}
	return n
}
