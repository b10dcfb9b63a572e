package conversation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// A pass changes which turns the window shows, and how. There is one mechanism for all kinds:
//
//	decide   the pager judges every turn by intent and age (Judge); watcher and backstop plan what to compact until
//	         the window fits (State.Plan, Backstop, MakeRoom)
//	carry    verdicts are adopted, then planned units are compacted (CarryOut); a pager's pass whose verdicts overfill the
//	         window makes room with the backstop, in the same pass
//	record   one row has all of it: verdicts, compacted units, and the pass that was in force before (Number)
//	undo     restores both (Undo): only of the pass in force, or of one whose units are as it left them
//
// Memory changes first and is written with the same commit (Writes). After a commit that fails, the conversation is read
// again, so nothing here takes a change back.
//
// The verdicts of the newest KeptVerdicts passes stay in their rows, so an undo reaches that far back. Undoing a pass
// that follows one without verdicts returns ErrGone. State.InForce names the pass whose verdicts hold, 0 before the first.

// encode is the row.
func (p *PassRow) encode() []byte {
	return codec.Row(&passFields, rowVersion, p, 256+len(p.IR)+len(p.Verdicts)+64*len(p.Items))
}

// Info returns the record as users see it.
func (p *PassRow) Info() session.PassInfo {
	return session.PassInfo{
		Number: p.Number, Kind: p.Kind, At: codec.FromMicros(p.At), Actor: p.Actor, Keywords: p.Keywords, Undone: p.Undone, Items: len(p.Items), Freed: p.Freed(),
		Retained: p.Count[session.Retain], Paged: p.Count[session.Page], Evicted: p.Count[session.Evict],
	}
}

// Freed returns the tokens that the pass took out of the window.
func (p *PassRow) Freed() (n int) {
	for _, it := range p.Items {
		n += it.Before - it.After
	}
	return n
}

// JoinItems returns the items of two plans of one pass.
func JoinItems(items, more []PassItem) []PassItem {
	if len(items) == 0 {
		return more
	}
	for _, it := range more {
		if k := slices.IndexFunc(items, func(x PassItem) bool { return x.ID == it.ID }); k >= 0 {
			items[k].To, items[k].Because, items[k].After, items[k].Unpinned = it.To, it.Because, it.After, items[k].Unpinned || it.Unpinned
		} else {
			items = append(items, it)
		}
	}
	return items
}

// Pass decides on the turns of the session and puts the verdicts in force.
func (c *Conversation) Pass(ctx context.Context, actor string, q session.PassQuery) (out *session.StoredPass, err error) {
	err = c.Exclusively(ctx, func() error {
		out, err = c.pass(ctx, actor, q)
		return err
	})
	return out, err
}

func (c *Conversation) pass(ctx context.Context, actor string, q session.PassQuery) (*session.StoredPass, error) {
	if err := c.Exists(ctx); err != nil {
		return nil, err
	}
	if q.Params == (session.Params{}) {
		q.Params = session.RecommendedParams()
	}
	if err := c.readWords(ctx); err != nil {
		return nil, err
	}
	intent := IntentOf(q)
	key, verdicts, err := Judge(c.history(), intent, q.Params, q.Head)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	row := PassRow{Kind: session.PassPager, Key: key, Keywords: q.Keywords, Tokens: intent.Len(), Params: q.Params, Previous: c.State.InForce}
	if q.IR != nil {
		if row.IR, err = json.Marshal(q.IR); err != nil {
			return nil, fmt.Errorf("%w: intent: %w", store.ErrInvalid, err)
		}
	}
	out := c.passOf(&row, func(i int) (Verdict, bool) { return verdicts[i], true })
	row.Count = out.Count
	switch out.Repeated = key == c.State.Key; {
	case q.DryRun:
		out.At = c.host.Clock()
		return out, nil
	case out.Repeated:
		out.Number, out.At = c.Force.Number, codec.FromMicros(c.Force.At)
		return out, nil
	}
	if err := c.storePass(ctx, actor, verdicts, &row); err != nil {
		c.loaded = false
		return nil, err
	}
	out.Number, out.At = row.Number, codec.FromMicros(row.At)
	return out, nil
}

// wordsAtOnce is how many turns readWords reads in one call.
const wordsAtOnce = 256

// readWords makes the token sets of the turns that have none yet. Only a pass by intent asks for them, so they are made from
// the texts when the first one runs and stay in memory with the turns: in the heads they took 55 bytes of a turn of 150, and
// making them 2 µs of an append.
func (c *Conversation) readWords(ctx context.Context) error {
	var missing []int
	for i := range c.Blocks {
		if c.Blocks[i].Row.words == nil {
			missing = append(missing, i)
		}
	}
	for some := range slices.Chunk(missing, wordsAtOnce) {
		var keys []store.PageKey
		for _, i := range some {
			for _, n := range c.Blocks[i].Nums {
				keys = append(keys, store.PageKey{Num: n, Version: c.Blocks[i].Version})
			}
		}
		pages, err := c.host.Store.Load(ctx, store.Scopes{c.Scope}, keys, store.WantText)
		if err != nil {
			return err
		}
		for _, i := range some {
			b := &c.Blocks[i]
			if err := b.takeWords(pages[:len(b.Nums)]); err != nil {
				return err
			}
			pages = pages[len(b.Nums):]
		}
	}
	return nil
}

// takeWords makes the token set of a turn from its pages.
func (b *Block) takeWords(pages []store.Loaded) error {
	var text strings.Builder
	for i := range pages {
		if pages[i].Err != nil {
			return pages[i].Err
		}
		text.WriteString(pages[i].Text)
	}
	words := []string{pages[0].Head.Name, text.String()}
	for _, t := range pages[0].Head.ToolCalls {
		words = append(words, t.Name, t.Arguments)
	}
	b.Row.words = append([]uint64{}, prose.TokenSet(words...)...) // of a turn without words: empty, not nil
	return nil
}

// history returns the turns as a pass sees them.
func (c *Turns) history() []PassBlock {
	out := make([]PassBlock, len(c.Blocks))
	for i := range c.Blocks {
		b := &c.Blocks[i]
		out[i] = PassBlock{
			ID: b.ID, Turn: max(b.Seq, 0), Tokens: b.Row.Sizes[session.Raw], Hashes: b.Row.words, Role: b.Role, Kind: b.Kind.String(),
			Pinned: b.Row.Pinned, Source: b.Row.Hash,
		}
	}
	return out
}

// passOf returns the outcome of a pass as users see it. of returns the verdict on a turn; false: there is none.
func (c *Turns) passOf(p *PassRow, of func(i int) (Verdict, bool)) *session.StoredPass {
	out := &session.StoredPass{
		Number: p.Number, At: codec.FromMicros(p.At), Key: fmt.Sprintf("%016x", p.Key), Keywords: p.Tokens, Params: p.Params,
		Verdicts: make([]session.Verdict, 0, len(c.Blocks)),
	}
	for i := range c.Blocks {
		b := &c.Blocks[i]
		v, ok := of(i)
		if !ok {
			continue
		}
		out.Verdicts = append(out.Verdicts, Judged(&p.Params, p.Tokens, len(out.Verdicts), b.ID, v))
		out.Count[v.Action]++
		out.Tokens[v.Action] += b.Row.Sizes[session.Raw]
	}
	return out
}

// InForce returns the pass in force, made of what is stored; nil: there is none.
func (c *Turns) InForce() *session.StoredPass {
	if c.Force.Number == 0 {
		return nil
	}
	return c.passOf(&c.Force, func(i int) (Verdict, bool) { return c.Blocks[i].Verdict, c.Blocks[i].Judged })
}

// storePass puts new verdicts in force. Memory changes first, so that the resulting window can be measured.
func (c *Conversation) storePass(ctx context.Context, actor string, verdicts []Verdict, row *PassRow) (err error) {
	w := c.Begin()
	if len(c.State.Kept) >= KeptVerdicts {
		old, err := c.loadPass(ctx, c.State.Kept[0])
		if err == nil {
			old.Verdicts = nil
			w.Raw(c.PassKey(old.Number), old.encode())
		} else if !errors.Is(err, store.ErrGone) {
			return err
		}
	}
	c.adopt(verdicts, row)
	if row.Items, err = c.Relieve(ctx, w); err != nil {
		return err
	}
	c.Number(w, row, actor)
	return c.Commit(ctx, actor, w, manifest.Record{
		Type: manifest.TypePass, Reason: vouched,
		Action: fmt.Sprintf("pass %d: retain %d, page %d, evict %d", row.Number, row.Count[session.Retain], row.Count[session.Page], row.Count[session.Evict]),
	})
}

// adopt puts verdicts in force, of the pass that gets the next number. The number comes later, so that the window can be
// measured, and made smaller in the same pass.
func (c *Turns) adopt(verdicts []Verdict, row *PassRow) {
	for i, v := range verdicts {
		c.Blocks[i].Judged, c.Blocks[i].Verdict = true, v
	}
	row.Verdicts = encodeVerdicts(c.Blocks)
	c.stored, c.State.InForce, c.State.Key = nil, c.State.Pass+1, row.Key
	c.inForce(*row)
	c.Changed()
	c.State.Kept = append(c.State.Kept, c.State.InForce)
	c.State.Kept = c.State.Kept[max(len(c.State.Kept)-KeptVerdicts, 0):]
}

// inForce notes the record that scores are computed with. The blocks have its verdicts.
func (c *Turns) inForce(p PassRow) {
	c.Force = p
	c.Force.Verdicts = nil
}

// Number assigns a pass its number and stores its record with the state of the session. A pass of the pager is in force by
// then. A backstop that compacted nothing is no pass.
func (c *Conversation) Number(w *Writes, row *PassRow, actor string) {
	if row.Kind == session.PassBackstop && len(row.Items) == 0 {
		return
	}
	c.note(func() { c.State.Pass++ })
	row.Number, row.At, row.Actor = c.State.Pass, codec.Micros(c.host.Clock()), actor
	c.State.Created = cmp.Or(c.State.Created, row.At)
	if row.Kind == session.PassPager {
		c.inForce(*row)
	}
	w.Raw(c.PassKey(row.Number), row.encode())
	c.StoreState(w)
}

// undo undoes pass n. The caller holds the lock.
func (c *Conversation) undo(ctx context.Context, actor string, n uint64) (info session.PassInfo, err error) {
	p, err := c.toUndo(ctx, n)
	if err != nil { // memory is unchanged: a refusal costs nothing
		return info, err
	}
	w := c.Begin()
	if p.Kind == session.PassPager {
		force, verdicts, err := c.loadForce(ctx, p.Previous)
		if err != nil {
			return info, err
		}
		c.reinstate(&p, force, verdicts)
	}
	if err := c.giveBack(w, &p); err != nil {
		c.loaded = c.loaded && p.Kind != session.PassPager // only reinstate has changed memory so far
		return info, err
	}
	if err := c.undone(ctx, w, p.Number); err != nil {
		c.loaded = false
		return info, err
	}
	leaf := manifest.Record{Type: manifest.TypePass, Action: fmt.Sprintf("undo pass %d", p.Number), Reason: vouched}
	return p.Info(), c.Commit(ctx, actor, w, leaf)
}

// toUndo loads pass n if it can be undone; 0: the newest that was not undone.
func (c *Conversation) toUndo(ctx context.Context, n uint64) (p PassRow, err error) {
	newest := n == 0
	if newest {
		n = c.State.Pass
	}
	for ; n > 0; n-- {
		if p, err = c.loadPass(ctx, n); err != nil || !newest || !p.Undone {
			break
		}
	}
	switch {
	case err != nil:
		return p, err
	case n == 0:
		return p, fmt.Errorf("%w: session %s has no pass to undo", store.ErrNotFound, c.ID)
	case p.Undone:
		return p, fmt.Errorf("%w: pass %d was undone before", session.ErrUndo, p.Number)
	case p.Kind == session.PassPager && c.State.InForce != p.Number:
		return p, fmt.Errorf("%w: pass %d is not in force, pass %d is", session.ErrUndo, p.Number, c.State.InForce)
	}
	for _, it := range p.Items {
		if i := c.Find(it.ID); i < 0 || c.Blocks[i].Row.Level != it.To || c.Blocks[i].Row.Because != it.Because {
			return p, fmt.Errorf("%w: pass %d, turn %q", session.ErrUndo, p.Number, it.ID)
		}
	}
	return p, nil
}

// reinstate puts the verdicts of the pass before p in force, by first page number.
func (c *Turns) reinstate(p *PassRow, force PassRow, verdicts map[uint64]Verdict) {
	for i := range c.Blocks {
		b := &c.Blocks[i]
		b.Verdict, b.Judged = verdicts[b.Nums[0]]
	}
	c.stored = nil
	c.inForce(force)
	c.State.InForce, c.State.Key = p.Previous, force.Key
	c.Changed()
	p.Verdicts = nil // no undo comes back to them: they must not push out those of others
	c.State.Kept = slices.DeleteFunc(slices.Clone(c.State.Kept), func(n uint64) bool { return n == p.Number })
}

// giveBack returns the units that a pass compacted to their levels, and records that it was undone. If the window has no
// room for them the error is a *session.HeadroomError, and the units are as they were.
func (c *Turns) giveBack(w *Writes, p *PassRow) error {
	was := map[int]*TurnRow{} // by place, of all turns of the units
	for _, it := range p.Items {
		i := c.Find(it.ID)
		for _, m := range c.Units[c.Blocks[i].Unit].Members {
			was[m] = c.Blocks[m].Row
		}
		c.SetRow(w, i, func(r *TurnRow) { r.Level, r.Because = it.From, it.FromBecause })
		if it.Unpinned {
			c.yield(w, c.Blocks[i].Unit, false)
		}
	}
	if err := c.Fits(); err != nil {
		for _, i := range slices.Sorted(maps.Keys(was)) { // they are in no batch
			b := &c.Blocks[i]
			c.Recount(b.Unit, func() { b.Row = was[i] })
			c.Rows[b.ID] = b.Row
		}
		return err
	}
	p.Undone = true
	w.Raw(c.PassKey(p.Number), p.encode())
	c.StoreState(w)
	return nil
}

// Passes lists all passes, oldest first.
func (c *Conversation) Passes(ctx context.Context) ([]session.PassInfo, error) {
	out := []session.PassInfo{}
	err := format.Walk(ctx, c.host.Store, c.Key(PassRowKey)+"\x00", func(r store.StateRow) error {
		p, err := DecodePass(r.Value)
		if err != nil {
			return fmt.Errorf("ctxpage: pass of session %s: %w", c.ID, err)
		}
		out = append(out, p.Info())
		return nil
	})
	return out, err
}

// loadForce reads a pass that is to be in force, and its verdicts; 0: none.
func (c *Conversation) loadForce(ctx context.Context, n uint64) (p PassRow, verdicts map[uint64]Verdict, err error) {
	if n == 0 {
		return p, map[uint64]Verdict{}, nil
	}
	if p, err = c.loadPass(ctx, n); err != nil {
		return p, nil, err
	}
	if p.Verdicts == nil {
		return p, nil, fmt.Errorf("%w: verdicts of pass %d of session %s", store.ErrGone, n, c.ID)
	}
	if verdicts, err = decodeVerdicts(p.Verdicts); err != nil {
		err = fmt.Errorf("ctxpage: verdicts of pass %d of session %s: %w", n, c.ID, err)
	}
	return p, verdicts, err
}

func (c *Conversation) loadPass(ctx context.Context, n uint64) (p PassRow, err error) {
	row, err := c.host.Store.State(ctx, c.PassKey(n))
	if err != nil {
		return p, err
	}
	if row.Value == nil {
		if n <= c.State.Pass {
			return p, fmt.Errorf("%w: gc dropped pass %d of session %s", store.ErrGone, n, c.ID)
		}
		return p, fmt.Errorf("%w: session %s has no pass %d", store.ErrNotFound, c.ID, n)
	}
	return DecodePass(row.Value)
}

// Intent returns the intent of the pass in force.
func (c *Turns) Intent() (ir session.IntentIR, err error) {
	if len(c.Force.IR) > 0 {
		return session.ParseIntentIR(c.Force.IR)
	}
	if len(c.Force.Keywords) > 0 {
		words := make([]any, len(c.Force.Keywords))
		for i, w := range c.Force.Keywords {
			words[i] = w
		}
		ir.Slots = map[string]any{"keywords": words}
	}
	return ir, nil
}

// WithoutIntent returns the record of a pass without its keywords and intent, which are words of a turn.
func WithoutIntent(row []byte) ([]byte, error) {
	p, err := DecodePass(row)
	if err != nil {
		return nil, err
	}
	p.Keywords, p.IR = nil, nil
	return p.encode(), nil
}

// The verdicts of a pass: a version, their number, then for each, in the order of page numbers, the number's growth,
// action and reason in a byte, keywords found, turns behind the head. A row for each turn was rejected: a pass would
// rewrite them all.
const verdictVersion = 1

func encodeVerdicts(blocks []Block) []byte {
	at := make([]*Block, 0, len(blocks))
	for i := range blocks {
		if blocks[i].Judged {
			at = append(at, &blocks[i])
		}
	}
	byNum := func(a, b *Block) int { return cmp.Compare(a.Nums[0], b.Nums[0]) }
	if !slices.IsSortedFunc(at, byNum) {
		slices.SortFunc(at, byNum)
	}
	e := codec.Encoder{B: make([]byte, 0, 8*len(at)+8)}
	e.U8(verdictVersion)
	e.Count(len(at))
	last := uint64(0)
	for _, b := range at {
		e.Count(int(b.Nums[0] - last))
		e.U8(uint8(b.Verdict.Action) | uint8(b.Verdict.Reason)<<2)
		e.Count(b.Verdict.Hits)
		e.Count(int(b.Verdict.Delta))
		last = b.Nums[0]
	}
	return e.B
}

// decodeVerdicts reads the verdicts of a pass, by the first page numbers of the turns.
func decodeVerdicts(b []byte) (map[uint64]Verdict, error) {
	d := codec.Decoder{B: b}
	if v := d.U8(); v != verdictVersion {
		return nil, fmt.Errorf("%w: verdicts of version %d, expected %d", codec.ErrMalformed, v, verdictVersion)
	}
	n := d.Count(4)
	out := make(map[uint64]Verdict, n)
	num := uint64(0)
	for range n {
		num += d.Uvarint()
		kind := d.U8()
		out[num] = Verdict{Action: session.Action(kind & 3), Reason: Reason(kind >> 2), Hits: int(d.Uvarint()), Delta: int64(d.Uvarint())}
		if kind&3 == 3 || kind>>2 > uint8(ByAge) {
			d.Fail()
		}
	}
	return out, d.Done()
}

// renumber returns the record of a pass for a database that has the pages under other numbers.
func renumber(row []byte, to map[uint64]uint64) ([]byte, error) {
	p, err := DecodePass(row)
	if err != nil || p.Verdicts == nil {
		return row, err
	}
	of, err := decodeVerdicts(p.Verdicts)
	if err != nil {
		return nil, err
	}
	blocks := make([]Block, 0, len(of))
	for num, v := range of {
		if to[num] != 0 {
			blocks = append(blocks, Block{Nums: []uint64{to[num]}, Judged: true, Verdict: v})
		}
	}
	p.Verdicts = encodeVerdicts(blocks)
	return p.encode(), nil
}

// judgedPages returns the pages that the verdicts of a pass are about.
func judgedPages(row []byte) ([]uint64, error) {
	p, err := DecodePass(row)
	if err != nil || p.Verdicts == nil {
		return nil, err
	}
	of, err := decodeVerdicts(p.Verdicts)
	return slices.Sorted(maps.Keys(of)), err
}

// ranking has the turns of the window in the order in which a context makes room for them: whole ones before stubs, the better
// before the worse, the newer before the older. A context reads as many as find room, so its cost follows the budget and
// not that of the window. A change of one unit costs a pass over the list, which is memory in order, and no look at a turn.
//
// Sorting the turns anew for every context was tried: at ten thousand turns in the window it was three quarters of an
// assembly.
type ranking struct {
	list     []place
	kinds    map[store.Kind]int // how many of each are in the list
	pinned   map[int]int        // turns that come in whatever is before them: turn → unit
	expiring map[int]int        // turns that may have expired, likewise
}

// place is the position of a turn in the order.
type place struct {
	at, unit int
	kind     store.Kind
	stub     bool
	score    float64
}

func (p place) compare(o place) int {
	stubs := 0
	if p.stub != o.stub {
		if stubs = -1; p.stub {
			stubs = 1
		}
	}
	return cmp.Or(stubs, cmp.Compare(o.score, p.score), o.at-p.at)
}

// remove takes units out, which are sorted.
func (r *ranking) remove(units []int) {
	if len(r.list) == 0 {
		return
	}
	of := func(u int) bool {
		_, yes := slices.BinarySearch(units, u)
		return yes
	}
	r.list = slices.DeleteFunc(r.list, func(p place) bool {
		if !of(p.unit) {
			return false
		}
		r.kinds[p.kind]--
		delete(r.pinned, p.at)
		delete(r.expiring, p.at)
		return true
	})
}

// places adds the places of a unit's turns to a list.
func (r *ranking) places(list []place, c *Turns, u int) []place {
	unit := &c.Units[u]
	pinned := c.Pinned(unit)
	for _, i := range unit.Members {
		b := &c.Blocks[i]
		list = append(list, place{at: i, unit: u, kind: b.Kind, stub: c.Shown(i) == session.Stub && len(unit.Members) == 1, score: c.score(i)})
		if pinned {
			put(&r.pinned, i, u)
		}
		if b.Expires != 0 {
			put(&r.expiring, i, u)
		}
	}
	return list
}

func put[K comparable](m *map[K]int, k K, v int) {
	if *m == nil {
		*m = map[K]int{}
	}
	(*m)[k] = v
}

// insert takes places in.
func (r *ranking) insert(fresh []place) {
	for _, p := range fresh {
		put(&r.kinds, p.kind, r.kinds[p.kind]+1)
	}
	if len(fresh) < 8 {
		for _, p := range fresh {
			at, _ := slices.BinarySearchFunc(r.list, p, place.compare)
			r.list = slices.Insert(r.list, at, p)
		}
		return
	}
	r.list = append(r.list, fresh...)
	slices.SortFunc(r.list, place.compare)
}

func (r *ranking) isPinned(i int) bool {
	_, yes := r.pinned[i]
	return yes
}

// outside counts the turns that left the window, by reason, with those of each reason that are named first.
type outside struct {
	sums     map[OutReason]*outSum
	expiring []int // turns that have an expiry, which may be another reason
}

// OutReason is why a turn is out, and its kind, which may be another reason.
type OutReason struct {
	Kind store.Kind
	Why  string
}

// MaxNamed is the number of turns that are named for one reason.
const MaxNamed = 8

type outSum struct {
	count int
	first []outTurn // up to MaxNamed, the better before the worse, the newer before the older
}

type outTurn struct {
	at    int
	score float64
}

func (o *outside) add(c *Turns, i int) {
	b := &c.Blocks[i]
	if b.Expires != 0 {
		o.expiring = append(o.expiring, i)
		return
	}
	if o.sums == nil {
		o.sums = map[OutReason]*outSum{}
	}
	of := OutReason{b.Kind, c.Why(i)}
	s := o.sums[of]
	if s == nil {
		s = &outSum{}
		o.sums[of] = s
	}
	s.count++
	t := outTurn{i, c.score(i)}
	at, _ := slices.BinarySearchFunc(s.first, t, func(x, y outTurn) int { return cmp.Or(cmp.Compare(y.score, x.score), y.at-x.at) })
	if at < MaxNamed {
		s.first = slices.Insert(s.first, at, t)
		s.first = s.first[:min(len(s.first), MaxNamed)]
	}
}

func (o *outside) counts() map[OutReason]int {
	n := make(map[OutReason]int, len(o.sums))
	for of, s := range o.sums {
		n[of] = s.count
	}
	return n
}
