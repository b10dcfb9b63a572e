package ctxpage

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// watchTick is how often the background looks again while it is not at rest.
const watchTick = time.Second

// watchEvents is how many events wait for a reader before they are dropped and counted.
const watchEvents = 256

// formWorkers is how many summaries are asked for at once.
const formWorkers = 8

// planTries is how often a pass is planned when the session changes under it; the last time nobody can change it.
const planTries = 3

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

// relieve makes room where the window is above its limit: the backstop. It changes rows in memory and in the batch and
// says what it compacted, with an error as well. No summariser is asked: a commit does not wait for a model.
func (c *conversation) relieve(ctx context.Context, w *changes) ([]passItem, error) {
	return c.makeRoom(ctx, w, func(s session.State) (session.Plan, error) { return s.Backstop(c.db.opts.Clock(), 0) })
}

// reliefTries is how often room is made for one commit: a form may turn out longer than was thought, and then the next plan
// knows its size.
const reliefTries = 16

func (c *conversation) makeRoom(ctx context.Context, w *changes, planned func(session.State) (session.Plan, error)) ([]passItem, error) {
	if c.fits() == nil {
		return nil, nil
	}
	var items []passItem
	for range reliefTries {
		plan, err := planned(c.window())
		if err != nil {
			return items, err
		}
		forms := c.formsOf(plan)
		for i := range forms {
			forms[i].texts = w.texts[forms[i].block.nums[0]]
		}
		if forms, err = c.makeForms(ctx, forms, nil); err != nil {
			return items, err
		}
		more, err := c.carryOut(w, plan, forms)
		if err != nil {
			return items, err
		}
		if items = joinItems(items, more); c.fits() == nil {
			return items, nil
		}
	}
	return items, c.fits()
}

// joinItems is two passes as one.
func joinItems(items, more []passItem) []passItem {
	if len(items) == 0 {
		return more
	}
	for _, it := range more {
		if k := slices.IndexFunc(items, func(x passItem) bool { return x.ID == it.ID }); k >= 0 {
			items[k].To, items[k].Because, items[k].After, items[k].Unpinned = it.To, it.Because, it.After, items[k].Unpinned || it.Unpinned
		} else {
			items = append(items, it)
		}
	}
	return items
}

// form is a shorter text of a turn that a plan needs, made or to be made.
type form struct {
	at    int
	block block
	texts []string // of a turn on its way in; nil: they are stored
	level session.Level
	put   *Put // nil: it would not be shorter
	size  int
}

// formsOf lists the forms that a plan needs and that were never made.
func (c *conversation) formsOf(p session.Plan) []form {
	var out []form
	for _, it := range p.Items {
		i := c.find(it.ID)
		if i < 0 {
			continue
		}
		for _, m := range c.units[c.blocks[i].unit].members {
			l := c.plannedLevel(m, it.To)
			if (l == session.Trimmed || l == session.Summary) && c.blocks[m].row.Made&(1<<l) == 0 {
				out = append(out, form{at: m, block: c.blocks[m], level: l})
			}
		}
	}
	return out
}

// makeForms writes the forms. It may run without the session's lock: it reads immutable pages. A summariser is asked for
// several at once.
func (c *conversation) makeForms(ctx context.Context, forms []form, by Summarizer) ([]form, error) {
	errs := make([]error, len(forms))
	gate := make(chan struct{}, formWorkers)
	var wg sync.WaitGroup
	for i := range forms {
		if by == nil {
			errs[i] = c.makeForm(ctx, &forms[i], nil)
			continue
		}
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			errs[i] = c.makeForm(ctx, &forms[i], by)
		})
	}
	wg.Wait()
	return forms, errors.Join(errs...)
}

func (c *conversation) makeForm(ctx context.Context, f *form, by Summarizer) error {
	b := &f.block
	keys := make([]PageKey, len(b.nums))
	for i, n := range b.nums {
		keys[i] = PageKey{Num: n, Version: b.version}
	}
	texts, version := f.texts, b.version
	var err error
	if texts == nil {
		texts, err = c.db.texts(ctx, Scopes{c.scope}, keys)
	} else {
		version, err = c.nextVersion(ctx, b.id)
	}
	if err != nil {
		return err
	}
	count := c.db.opts.Counter.Count
	whole := strings.Join(texts, "")
	text, author := "", "ctxpage"
	if f.level == session.Trimmed {
		text = session.Trim(whole)
	} else {
		text, author = c.summary(ctx, whole, b.row.Sizes[session.Summary], by)
	}
	n := count(text)
	size := n + max(b.row.Sizes[session.Raw]-count(whole), 0) // calls stay
	if n == 0 || n > MaxPageTokens || size >= b.row.Sizes[session.Raw] {
		return nil
	}
	put, err := c.db.makePut(Artefact{
		ID: c.formID(b, f.level), Kind: KindSummary, Provenance: Scratch, Priority: PriorityLow, Text: text, CurrentAsOf: codec.FromMicros(b.asOf), Name: author,
		DerivedFrom: []Ref{{Scope: c.scope, ID: b.id, Version: version}},
	}, Validator{})
	f.put, f.size = &put, size
	return err
}

// nextVersion is the version that a turn on its way in will be: its id may have been deleted before.
func (c *conversation) nextVersion(ctx context.Context, id string) (uint32, error) {
	l, err := c.db.store.Resolve(ctx, Scopes{c.scope}, Ref{ID: id})
	if errors.Is(err, ErrNotFound) {
		return 1, nil
	}
	return l.Version + 1, err
}

func (c *conversation) summary(ctx context.Context, text string, tokens int, by Summarizer) (summary, author string) {
	if by != nil {
		if got := c.db.shorten(ctx, by, text, tokens); got != "" {
			return got, by.Name()
		}
		c.db.opts.Logger.Warn("summariser gave nothing, an extract stands in", "session", c.id, "summarizer", by.Name())
	}
	return session.Extract(text, tokens, c.db.opts.Counter.Count), "ctxpage"
}

// formPrefix begins the ids of the pages that stand for compacted turns.
const formPrefix = "ctxpage:form/"

// formID names the derived page of a turn's content at a level.
func (c *conversation) formID(b *block, l session.Level) string {
	key := binary.BigEndian.AppendUint64(append([]byte(c.id), 0), b.row.Hash)
	return fmt.Sprintf("%s%s/%016x", formPrefix, l, xxhash.Sum64(append(key, b.id...)))
}

// carryOut does what a plan says: rows in memory and in the batch, derived pages in the batch. It gives what it
// changed, unit by unit.
func (c *conversation) carryOut(w *changes, plan session.Plan, forms []form) ([]passItem, error) {
	state := c.window()
	c.win = nil                        // it is changed in place
	state.Generation = plan.Generation // the caller holds the lock and has compared it
	made := make(map[string]int, len(plan.Items))
	w.expect(len(plan.Items))
	for _, f := range forms {
		c.setRow(w, f.at, func(r *turnRow) {
			if r.Sizes[f.level] = f.size; f.put == nil {
				r.Sizes[f.level] = 0
			} else {
				r.Made |= 1 << f.level
			}
		})
		if f.put != nil {
			w.puts = append(w.puts, *f.put)
		}
	}
	for _, it := range plan.Items {
		if i := c.find(it.ID); i >= 0 && it.To < session.Cold {
			made[it.ID] = c.reached(c.blocks[i].unit, it.To)
		}
	}
	if _, err := state.CarryOut(plan, made); err != nil {
		return nil, err
	}
	planned := slices.Clone(plan.Items)
	slices.SortFunc(planned, func(a, b session.PlanItem) int { return a.Index - b.Index })
	items := make([]passItem, 0, len(planned))
	for _, it := range planned {
		sec := &state.Sections[it.Index]
		if sec.Level == it.From {
			continue
		}
		i := c.find(sec.ID)
		row := c.blocks[i].row
		items = append(items, passItem{
			ID: sec.ID, From: row.Level, To: uint8(sec.Level), FromBecause: row.Because, Because: sec.Because, Before: sec.Sizes[it.From], After: sec.Tokens(),
			Unpinned: sec.Pinned,
		})
		c.setRow(w, i, func(r *turnRow) { r.Level, r.Because = uint8(sec.Level), sec.Because })
		if sec.Pinned {
			c.yield(w, c.blocks[i].unit, true)
		}
	}
	return items, nil
}

// admit holds the window below its limit while turns come in: turns that fit are let in whole, those for which room can
// be made after a compaction, and a large one that nobody protects as a stub. The new blocks stand in memory while
// the window is planned, and are taken out again: the commit brings them in with their numbers.
func (a *appending) admit(ctx context.Context, leaf *manifest.Record) error {
	c := a.c
	if c.state.Config == nil {
		return nil
	}
	limits, err := c.state.Config.Thresholds()
	if err != nil {
		return err
	}
	sets := a.sets
	sum, largest := 0, 0
	for i := range a.fresh {
		n := c.size(&a.fresh[i].block, session.Raw)
		sum, largest = sum+n, max(largest, n)
		a.reopen(&a.fresh[i].block)
	}
	c.repin(a.changes, limits.Warn-sum)
	if sum += c.tokens(); sum <= limits.Usable && largest <= limits.Usable {
		return nil
	}
	blocks, units := len(c.blocks), len(c.units)
	a.opened = map[string]int{}
	defer func() { c.takeOut(blocks, units, a.opened) }()
	var items []passItem
	for i := range a.fresh {
		more, err := a.admitOne(ctx, i)
		if err != nil {
			if err = fmt.Errorf("turn %d: %w", a.fresh[i].at+1, err); a.sets == sets {
				a.takeBack() // nothing was compacted yet: what was loaded still is what is stored
			} else {
				c.loaded = false
			}
			return err
		}
		items = joinItems(items, more)
	}
	if len(items) > 0 {
		row := passRow{Kind: PassBackstop, Items: items}
		c.number(a.s, a.changes, &row)
		if a.try != nil {
			*a.try = row.info()
		}
		leaf.Action += fmt.Sprintf("; pass %d: %d compacted, %d tokens freed", row.Number, len(items), row.freed())
	}
	return nil
}

// takeOut takes the newest blocks out again, down to so many blocks and units; opened is which unit had made a call before,
// -1: none had. What is known of the others stays, so that it costs what the new ones cost and not what the session does.
func (c *conversation) takeOut(blocks, units int, opened map[string]int) {
	for i := len(c.blocks) - 1; i >= blocks; i-- {
		b := &c.blocks[i]
		delete(c.at, b.nums[0])
		c.recount(b.unit, func() {
			m := &c.units[b.unit].members
			*m = (*m)[:len(*m)-1]
			c.blocks = c.blocks[:i]
		})
	}
	c.units = c.units[:units]
	at, _ := slices.BinarySearch(c.inside, units)
	c.inside = c.inside[:at]
	for id, u := range opened {
		if c.open[id] = u; u < 0 {
			delete(c.open, id)
		}
	}
}

func (p *passRow) freed() (n int) {
	for _, it := range p.Items {
		n += it.Before - it.After
	}
	return n
}

func (a *appending) admitOne(ctx context.Context, i int) ([]passItem, error) {
	c := a.c
	f := &a.fresh[i]
	rest := c.window()
	f.block.nums = []uint64{^uint64(i)} // a number no page has
	if a.texts == nil {
		a.texts = map[uint64][]string{}
	}
	for _, p := range a.tx.writes[f.block.id].Pages {
		a.texts[^uint64(i)] = append(a.texts[^uint64(i)], p.Text)
	}
	for _, id := range f.block.calls() {
		if _, twice := a.opened[id]; !twice {
			a.opened[id] = -1
			if u, ok := c.open[id]; ok {
				a.opened[id] = u
			}
		}
	}
	c.add(f.block)
	u := c.blocks[len(c.blocks)-1].unit
	sec, _ := c.section(u)
	rest.Sections = slices.DeleteFunc(slices.Clone(rest.Sections), func(s session.Section) bool { return s.ID == sec.ID })
	adm, err := rest.Admit(sec, c.db.opts.Clock())
	if err != nil {
		return nil, err
	}
	if adm.How == session.AdmitStub {
		c.setRow(a.changes, c.units[u].members[0], func(r *turnRow) { r.Level, r.Because = uint8(adm.Section.Level), adm.Section.Because })
	}
	if adm.Yield {
		return c.makeRoom(ctx, a.changes, func(s session.State) (session.Plan, error) { return s.MakeRoom(c.db.opts.Clock()) })
	}
	return c.relieve(ctx, a.changes)
}

// reopen shows a call whole again that left the window before its result came: a result goes where its call is, and the
// newest turn goes in.
func (a *appending) reopen(b *block) {
	u, ok := a.c.open[b.answers()]
	if b.answers() == "" || !ok {
		return
	}
	if lead := a.c.units[u].members[0]; a.c.blocks[lead].row.Level > 0 {
		a.c.setRow(a.changes, lead, func(r *turnRow) { r.Level, r.Because = 0, "" })
	}
}

// yield lets the pins of a unit give way, or takes that back.
func (c *conversation) yield(w *changes, u int, gives bool) {
	for _, i := range c.units[u].members {
		if r := c.blocks[i].row; r.Pinned && r.Yielded != gives {
			c.setRow(w, i, func(r *turnRow) { r.Yielded = gives })
		}
		if gives {
			c.yielded[c.blocks[i].id] = true
		}
	}
}

// repin shows turns whole again whose pin gave way, newest first, while the window stays below a limit.
func (c *conversation) repin(w *changes, limit int) {
	if len(c.yielded) == 0 {
		return
	}
	var at []int
	for id := range c.yielded {
		if i := c.find(id); i >= 0 && c.blocks[i].row.Yielded {
			at = append(at, i)
		} else {
			delete(c.yielded, id)
		}
	}
	slices.Sort(at)
	for _, i := range slices.Backward(at) {
		u, whole := c.blocks[i].unit, 0
		for _, m := range c.units[u].members {
			whole += c.size(&c.blocks[m], session.Raw)
		}
		if c.tokens()-c.unitTokens(u)+whole > limit {
			return
		}
		c.yield(w, u, false)
	}
}

// Watcher keeps the headroom of one session ahead of need, so that commits rarely have to make room themselves. There
// is one for each session of an open database; Watch gives it. It works when Step is called, or in the background
// between Start and Stop. All methods may be used concurrently.
type Watcher struct {
	s      *Scope
	c      *conversation
	events chan session.Event
	signal chan struct{}

	// Under c.lock.
	machine session.Machine

	dropped atomic.Int64
	mu      sync.Mutex // guards those below
	stop    context.CancelFunc
	ending  <-chan struct{} // of the context of the background work
	done    chan struct{}
}

// WatchStats is a snapshot of a watcher.
type WatchStats struct {
	Limits   session.Thresholds `json:"limits"`
	Phase    session.Phase      `json:"phase"`
	Counters session.Counters   `json:"counters"`
	Actual   int                `json:"actual"`
	Analysis session.Analysis   `json:"analysis"`
	Dropped  int64              `json:"dropped_events"`
	Running  bool               `json:"running"`
}

// Watch gives the watcher of the session, which stays in memory with it until Close. ErrInvalid without a window: SetWindow comes first.
func (c *Session) Watch(ctx context.Context) (*Watcher, error) {
	talk, err := c.hostTalk("Watch")
	if err != nil {
		return nil, err
	}
	var w *Watcher
	err = talk.exclusively(ctx, func() error {
		if w = talk.watch.Load(); w != nil {
			return nil
		}
		machine, err := talk.machine()
		if err != nil {
			return err
		}
		w = &Watcher{s: c.s, c: talk, machine: machine, events: make(chan session.Event, watchEvents), signal: make(chan struct{}, 1)}
		talk.watch.Store(w)
		talk.db.talks.watch(talk)
		return nil
	})
	return w, err
}

func (c *conversation) machine() (session.Machine, error) {
	if c.state.Config == nil {
		return session.Machine{}, c.noWindow()
	}
	return session.NewMachine(*c.state.Config)
}

func (c *conversation) noWindow() error {
	return store.Invalid("window", "none of session "+c.id, "one that was set (Session.SetWindow; dbctl watch --total N --once)")
}

// configure starts anew with a changed window.
func (w *Watcher) configure(ctx context.Context) error {
	return w.c.exclusively(ctx, func() (err error) {
		if w.c.state.Config == nil {
			return nil // Step rests
		}
		w.machine, err = w.c.machine()
		return err
	})
}

// Events gives what happened, in order. Nobody has to read it: what does not find room is dropped and counted, and all
// of it is in the manifest.
func (w *Watcher) Events() <-chan session.Event { return w.events }

// Stats tells where the watcher stands.
func (w *Watcher) Stats(ctx context.Context) (out WatchStats, err error) {
	err = w.c.exclusively(ctx, func() error {
		out = WatchStats{
			Limits: w.machine.Thresholds(), Phase: w.machine.Phase(), Counters: w.machine.Counters(), Actual: w.c.tokens(),
			Analysis: w.c.window().Analyse(), Dropped: w.dropped.Load(),
		}
		if w.c.state.Config == nil { // the window was taken away
			out.Limits = session.Thresholds{}
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	out.Running = w.running()
	return out, err
}

// running says whether the background works; a context that ended has ended it. The caller holds w.mu.
func (w *Watcher) running() bool {
	if w.stop == nil {
		return false
	}
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// Plan says what a pass would do at that time, and changes nothing.
func (w *Watcher) Plan(ctx context.Context, now time.Time) (p session.Plan, err error) {
	err = w.c.exclusively(ctx, func() error {
		p, err = w.plan(now)
		return err
	})
	return p, err
}

func (w *Watcher) plan(now time.Time) (session.Plan, error) {
	if w.c.state.Config == nil {
		return session.Plan{}, w.c.noWindow()
	}
	return w.c.window().Plan(now)
}

// Apply does exactly what a plan says, in one transaction, or fails: with session.ErrGeneration when the session has
// changed since it was made, with session.ErrPlan when it names a turn twice or a level that is no further. Summaries are made first, under no lock.
func (w *Watcher) Apply(ctx context.Context, p session.Plan) (info PassInfo, err error) {
	var forms []form
	same := func() error {
		if p.Generation != w.c.gen {
			return fmt.Errorf("%w (plan %d, session %d)", session.ErrGeneration, p.Generation, w.c.gen)
		}
		return nil
	}
	err = w.c.exclusively(ctx, func() error {
		forms = w.c.formsOf(p)
		return same()
	})
	if err != nil {
		return info, err
	}
	if forms, err = w.c.makeForms(ctx, forms, w.c.db.opts.Summarizer); err != nil {
		return info, err
	}
	err = w.c.exclusively(ctx, func() error {
		if err := same(); err != nil {
			return err
		}
		info, err = w.apply(ctx, p, forms)
		return err
	})
	return info, err
}

func (w *Watcher) apply(ctx context.Context, p session.Plan, forms []form) (PassInfo, error) {
	c := w.c
	ch := c.begin()
	items, err := c.carryOut(ch, p, forms)
	if err != nil {
		c.loaded = false
		return PassInfo{}, err
	}
	row := passRow{Kind: PassWatcher, Items: items}
	c.number(w.s, ch, &row)
	leaf := manifest.Record{Type: manifest.TypePass, Reason: "headroom", Action: fmt.Sprintf("pass %d: %d compacted, %d tokens freed", row.Number, len(items), row.freed())}
	return row.info(), c.commit(ctx, w.s, ch, leaf)
}

// Step looks at the window once: it warns, plans and compacts as the limits say, and gives the events.
func (w *Watcher) Step(ctx context.Context, now time.Time) ([]session.Event, error) {
	var move session.Move
	var events []session.Event
	err := w.c.exclusively(ctx, func() error {
		if w.c.state.Config == nil {
			return nil
		}
		w.machine, move, events = w.machine.Step(now, session.Snapshot{Generation: w.c.gen, Actual: w.c.tokens()})
		return nil
	})
	if err != nil || move == session.Rest {
		return events, errors.Join(err, w.publish(ctx, events))
	}
	out, err := w.act(ctx, now, move)
	// The answer must reach the machine even when the context has ended, or it would rest for ever.
	doneErr := w.c.exclusively(context.WithoutCancel(ctx), func() error {
		var more []session.Event
		if out.Applied {
			out.Actual = w.c.tokens()
		}
		w.machine, more = w.machine.Done(now, move, out)
		events = append(events, more...)
		return nil
	})
	return events, errors.Join(err, doneErr, w.publish(ctx, events))
}

// act carries a move out. A session that changes under its plan is planned anew, and at last while nobody can change it:
// else one that is written to without a pause would leave all the work to its commits.
func (w *Watcher) act(ctx context.Context, now time.Time, move session.Move) (out session.Outcome, err error) {
	if move != session.Compact {
		out.Plan, err = w.Plan(ctx, now)
		return out, err
	}
	for try := 1; ; try++ {
		var info PassInfo
		if try == planTries {
			out.Plan, info, err = w.actAtOnce(ctx, now)
		} else if out.Plan, err = w.Plan(ctx, now); err == nil && out.Plan.Blocked == "" {
			info, err = w.Apply(ctx, out.Plan)
		}
		if errors.Is(err, session.ErrGeneration) {
			continue
		}
		if err == nil && out.Plan.Blocked == "" {
			out.Applied, out.Freed, out.Plan.Pass = true, info.Freed, info.Number
		}
		return out, err
	}
}

// actAtOnce plans and applies in one go. No summariser is asked: turns that come in wait for it.
func (w *Watcher) actAtOnce(ctx context.Context, now time.Time) (p session.Plan, info PassInfo, err error) {
	err = w.c.exclusively(ctx, func() (err error) {
		if p, err = w.plan(now); err != nil || p.Blocked != "" {
			return err
		}
		forms, err := w.c.makeForms(ctx, w.c.formsOf(p), nil)
		if err != nil {
			return err
		}
		info, err = w.apply(ctx, p, forms)
		return err
	})
	return p, info, err
}

// publish hands events on and writes those to the manifest that are not the end of a transaction, which has its own
// leaf.
func (w *Watcher) publish(ctx context.Context, events []session.Event) error {
	var errs []error
	for _, e := range events {
		select {
		case w.events <- e:
		default:
			w.dropped.Add(1)
		}
		if e.Kind == session.EventApplied || e.Kind == session.EventUndone || w.c.db.opts.ReadOnly {
			continue
		}
		errs = append(errs, w.s.emit(ctx, &manifest.Record{
			Type: manifest.TypePass, Session: w.c.id, Tokens: e.Actual, Budget: e.Usable, Reason: e.Reason,
			Action: fmt.Sprintf("watch %s: pass %d, %d items, %d tokens", e.Kind, e.Pass, e.Items, e.Freed),
		}))
	}
	return errors.Join(errs...)
}

func (w *Watcher) expanded(ctx context.Context) {
	_ = w.c.exclusively(ctx, func() error {
		w.machine = w.machine.Expanded()
		return nil
	})
}

func (w *Watcher) undone(ctx context.Context, pass uint64) error {
	var e session.Event
	err := w.c.exclusively(ctx, func() error {
		w.machine, e = w.machine.Undone(w.c.db.opts.Clock(), pass, w.c.tokens())
		return nil
	})
	return errors.Join(err, w.publish(ctx, []session.Event{e}))
}

// Start works in the background until Stop, until the context ends, or until the database is closed. It looks at once,
// after each commit of the session, and once a second while it is not at rest. ErrInvalid when it is running already.
func (w *Watcher) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running() {
		select {
		case <-w.ending:
			<-w.done // it was told to end, and does
		default:
			return store.Invalid("watcher", "running already", "Stop first")
		}
	}
	if w.stop != nil {
		w.stop()
	}
	ctx, w.stop = context.WithCancel(ctx)
	w.ending, w.done = ctx.Done(), make(chan struct{})
	go w.run(ctx, w.done)
	return nil
}

// Stop ends the background work and waits for it. It is harmless when nothing runs.
func (w *Watcher) Stop() {
	w.mu.Lock()
	stop, done := w.stop, w.done
	w.stop = nil
	w.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}

func (w *Watcher) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		case <-tick.C:
		}
		_, err := w.Step(ctx, w.c.db.opts.Clock())
		if errors.Is(err, ErrClosed) {
			return // Start after Close: nobody would stop it
		}
		if err != nil && ctx.Err() == nil {
			w.c.db.opts.Logger.Warn("watcher", "session", w.c.id, "error", err)
		}
		if w.armed(ctx) {
			tick.Reset(watchTick)
		}
	}
}

// armed says whether to look again without a commit.
func (w *Watcher) armed(ctx context.Context) (yes bool) {
	_ = w.c.exclusively(ctx, func() error {
		yes = w.machine.Phase() != session.Idle
		return nil
	})
	return yes
}

// wake tells the background that something was committed; signals that wait are one.
func (c *conversation) wake() {
	if w := c.watch.Load(); w != nil {
		select {
		case w.signal <- struct{}{}:
		default:
		}
	}
}

// stopWatchers ends all background work.
func (db *DB) stopWatchers() {
	for _, w := range db.talks.watchers() {
		w.Stop()
	}
}
