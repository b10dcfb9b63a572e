package contexty

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/token"
)

// DefaultLow is the share of a block's limit to which a truncated history is cut.
const DefaultLow = 0.85

// ErrBlock means that a block is malformed. The text names the block and what to change.
var ErrBlock = errors.New("blocks: bad block")

// Strategy is the treatment of a block that does not fit.
type Strategy int

// The strategies. Auto is Strict for System and Core, Choose for RAG, Truncate for History and Drop for the rest.
const (
	Auto     Strategy = iota
	Strict            // Compile fails with ErrBudget
	Drop              // the block is left out whole
	Truncate          // the oldest turn groups go
	Choose            // the turn groups of the best score per token stay
)

// String returns the lower-case name of the strategy.
func (s Strategy) String() string {
	names := [...]string{"auto", "strict", "drop", "truncate", "choose"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("Strategy(%d)", int(s))
	}
	return names[s]
}

// Action says what happened to a block.
type Action = string

// The actions of Compile.
const (
	ActionKept      Action = "kept"
	ActionTruncated Action = "truncated"
	ActionChosen    Action = "chosen"
	ActionDropped   Action = "dropped"
	ActionRejected  Action = "rejected"    // Compile failed here
	ActionUnreached Action = "not reached" // Compile failed before
)

// The reasons why Compile leaves a message out, beside triage.OverBudget.
const (
	ReasonOldest triage.Reason = "oldest turns over budget"
	ReasonBlock  triage.Reason = "block over budget"
	ReasonPair   triage.Reason = "tool call and result not together" // no provider would take it
)

// Block is messages that Compile gets under one key. Compile only reads it.
type Block struct {
	Key      string       // unique; names the block in the report
	Class    triage.Class // precedence when room is short
	Place    triage.Place // position in the window; PlaceAuto derives it from Class. A PlaceNewest block is served whole, right after System
	Strategy Strategy     // when it does not fit
	Messages []Message    // a turn group lives in one block: a call and its results must not be spread over two
	Weights  []int        // what each message costs, counted once and stored; nil = counted here
	Scores   []float64    // for Choose: the worth of each message; nil = all equal
	Max      int          // cap on the block; 0 or less = none
	Min      int          // floor: tokens that blocks served before it must leave to it
	Protect  []string     // roles that Truncate and Choose never give up, with their groups
	Low      float64      // for Truncate: share of the limit to cut to; outside (0, 1] = DefaultLow
	Mark     Mark         // for Truncate: the Mark of the block's last report
	Turns    *Turns       // optional index of exactly these messages, kept by the caller between calls; Weights is then unused
}

// Config is the size of the window.
type Config struct {
	Budget  int           // tokens of the whole window; above 2^36 it counts as that
	Reserve int           // of them kept free for the answer and tool definitions; negative counts as 0
	Counter token.Counter // weighs messages of blocks without Weights; nil = token.Default()
}

// Compiled is the result of Compile. Its messages share no memory with the blocks.
type Compiled struct {
	Messages []Message
	Report   Report
}

// Report says where the tokens went. It is complete even beside an error.
type Report struct {
	Budget   int           `json:"budget"`
	Reserve  int           `json:"reserve"`
	Limit    int           `json:"limit"`    // budget − reserve
	Original int           `json:"original"` // tokens asked for
	Used     int           `json:"used"`     // never above limit
	Blocks   []BlockReport `json:"blocks"`   // in window order
}

// Block returns the report of a block by key.
func (r *Report) Block(key string) (BlockReport, bool) {
	for i := range r.Blocks {
		if r.Blocks[i].Key == key {
			return r.Blocks[i], true
		}
	}
	return BlockReport{}, false
}

// BlockReport is the outcome of one block.
type BlockReport struct {
	Key      string    `json:"key"`
	Action   Action    `json:"action"`
	Original int       `json:"original"` // tokens asked for
	Floor    int       `json:"floor"`    // tokens set aside for it
	Limit    int       `json:"limit"`    // tokens it might use
	Used     int       `json:"used"`     // tokens it uses; never above limit
	Kept     int       `json:"kept"`     // messages kept
	Evicted  []Evicted `json:"evicted,omitempty"`
	Mark     Mark      `json:"mark"` // for the Block's next Compile
}

// Evicted is a message left out of the window. It stays where it came from.
type Evicted struct {
	Index  int           `json:"index"`
	ID     string        `json:"id,omitempty"`
	Tokens int           `json:"tokens"`
	Reason triage.Reason `json:"reason"`
}

// Compile puts the blocks into the window and returns the messages of the request. It is for a caller that has whole
// blocks of messages, each with a floor, a cap and a strategy of its own. triage.Fit is for the pages of an assembly, which
// the database ranked and may show shorter.
//
// Compile subtracts the reserve first, then the floor of every block: all of a strict block and of the newest turn,
// what a history must keep, and Min of the others. It serves blocks by class and orders them by place. No block exceeds
// its cap, no answer exceeds Budget − Reserve, a tool call never comes without its results nor a result without its
// call, and the newest user message of a truncated block stays.
//
// If a strict block, or what a block must keep, does not fit, the error is a *triage.BudgetError that names the block. A
// malformed block is ErrBlock. In both cases the report says what happened to each block.
func Compile(cfg Config, blocks []Block) (Compiled, error) {
	c := newCompilation(cfg, blocks)
	err := c.checkBlocks()
	if err == nil {
		c.index()
		err = c.serve()
	}
	if err != nil {
		return Compiled{Report: c.report()}, err
	}
	return Compiled{Messages: c.messages(), Report: c.report()}, nil
}

// compilation is one run of Compile. parts are in the order in which they are served.
type compilation struct {
	cfg    Config
	limit  int
	blocks []Block
	parts  []part
}

// part is a block at work.
type part struct {
	*Block
	n       int // in blocks
	history *Turns
	keep    []int // messages kept
	report  BlockReport
}

func newCompilation(cfg Config, blocks []Block) *compilation {
	cfg.Reserve = max(cfg.Reserve, 0)
	if cfg.Counter == nil {
		cfg.Counter = token.Default()
	}
	c := &compilation{cfg: cfg, limit: min(available(cfg.Budget, cfg.Reserve), maxWeight-1), blocks: blocks}
	for i := range blocks {
		b := &blocks[i]
		c.parts = append(c.parts, part{Block: b, n: i, report: BlockReport{Key: b.Key, Action: ActionUnreached, Mark: b.Mark}})
	}
	slices.SortStableFunc(c.parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.turn(), b.turn()), cmp.Compare(a.Class, b.Class))
	})
	return c
}

// available is budget − reserve without overflow.
func available(budget, reserve int) int {
	if left := budget - reserve; left <= budget {
		return left
	}
	return math.MinInt
}

// turn is the order of service: system, newest turn, the rest by class.
func (p *part) turn() int {
	switch {
	case p.Class == triage.System:
		return 0
	case p.Place == triage.PlaceNewest:
		return 1
	}
	return 2
}

func (p *part) place() triage.Place {
	if p.Place > triage.PlaceAuto && p.Place <= triage.PlaceNewest {
		return p.Place
	}
	switch p.Class {
	case triage.System:
		return triage.PlaceSystem
	case triage.Core:
		return triage.PlaceCore
	case triage.RAG:
		return triage.PlaceChunks
	case triage.History:
		return triage.PlaceHistory
	}
	return triage.PlaceScratchpad
}

func (p *part) strategy() Strategy {
	switch {
	case p.Place == triage.PlaceNewest:
		return Strict
	case p.Strategy > Auto && p.Strategy <= Choose:
		return p.Strategy
	}
	switch p.Class {
	case triage.System, triage.Core:
		return Strict
	case triage.RAG:
		return Choose
	case triage.History:
		return Truncate
	}
	return Drop
}

func (c *compilation) checkBlocks() error {
	seen := map[string]bool{}
	for i := range c.blocks {
		b := &c.blocks[i]
		switch {
		case seen[b.Key]:
			return fmt.Errorf("%w %q: the key is used twice, give each block its own", ErrBlock, b.Key)
		case b.Turns != nil && b.Turns.Len() != len(b.Messages):
			return fmt.Errorf("%w %q: its Turns has %d messages and the block %d, append what is missing",
				ErrBlock, b.Key, b.Turns.Len(), len(b.Messages))
		case b.Weights != nil && len(b.Weights) != len(b.Messages):
			return fmt.Errorf("%w %q: %d weights for %d messages, give one each", ErrBlock, b.Key, len(b.Weights), len(b.Messages))
		case b.Scores != nil && len(b.Scores) != len(b.Messages):
			return fmt.Errorf("%w %q: %d scores for %d messages, give one each", ErrBlock, b.Key, len(b.Scores), len(b.Messages))
		}
		seen[b.Key] = true
	}
	return nil
}

// index weighs the messages of every block and finds their turn groups.
func (c *compilation) index() {
	for i := range c.parts {
		p := &c.parts[i]
		p.history = p.Turns
		if p.history == nil {
			p.history = NewTurns(p.Protect...)
			for j := range p.Messages {
				p.history.Append(&p.Messages[j], p.weigh(c.cfg.Counter, j))
			}
		}
		p.report.Original = p.history.total()
	}
}

func (p *part) weigh(c token.Counter, i int) int {
	if p.Weights != nil {
		return p.Weights[i]
	}
	return Weigh(c, &p.Messages[i])
}

// serve grants the floors and then lets each block use what the floors of the later ones leave.
func (c *compilation) serve() error {
	if c.limit < 0 {
		return shortfall("", 0, c.limit)
	}
	left, later := c.limit, 0
	for i := range c.parts {
		p := &c.parts[i]
		p.report.Floor = min(p.floor(), left)
		left -= p.report.Floor
		later += p.report.Floor
	}
	left = c.limit
	for i := range c.parts {
		p := &c.parts[i]
		later -= p.report.Floor
		p.report.Limit = left - later
		if p.Max > 0 {
			p.report.Limit = min(p.report.Limit, p.Max)
		}
		if err := p.apply(); err != nil {
			return err
		}
		left -= p.report.Used
	}
	return nil
}

// floor is the part of the budget that is set aside for the block first.
func (p *part) floor() int {
	total := p.report.Original
	need := min(max(p.Min, 0), total)
	switch p.strategy() {
	case Strict:
		need = total
	case Truncate:
		need = max(need, p.history.must())
	case Choose:
		need = max(need, p.history.held)
	case Drop:
		if need < total {
			need = 0 // half a floor is no use to a block that comes whole
		}
	}
	if p.Max > 0 {
		need = min(need, p.Max)
	}
	return need
}

// apply fits the block into its limit.
func (p *part) apply() error {
	strategy := p.strategy()
	switch {
	case strategy == Truncate:
		return p.truncate()
	case p.report.Original <= p.report.Limit:
		p.retain(ActionKept, ReasonBlock, func(int32) bool { return true })
		return nil
	case strategy == Choose:
		return p.choose()
	case strategy == Drop:
		p.retain(ActionDropped, ReasonBlock, func(int32) bool { return false })
		return nil
	}
	return p.reject(p.report.Original)
}

func (p *part) reject(need int) error {
	p.retain(ActionRejected, ReasonBlock, func(int32) bool { return false })
	return shortfall(p.Key, need, p.report.Limit)
}

func (p *part) truncate() error {
	h := p.history
	from, ok := h.cut(p.report.Limit, lowMark(p.Low), h.marked(p.Mark, p.Messages))
	if !ok {
		return p.reject(h.must())
	}
	p.report.Mark = h.mark(from, p.Messages)
	p.retain(ActionTruncated, ReasonOldest, func(g int32) bool { return h.keeps(g, from) })
	return nil
}

// choose keeps what is protected and the best of the other groups, in their old order.
func (p *part) choose() error {
	h := p.history
	if h.held > p.report.Limit {
		return p.reject(h.held)
	}
	kept := make([]bool, len(h.groups))
	values := make([]float64, len(h.groups))
	for i, g := range h.of {
		values[g] += p.worth(i)
	}
	req := triage.Request{Budget: p.report.Limit - h.held}
	var groups []int
	for g := range h.groups {
		t := &h.groups[g]
		if kept[g] = t.protected; t.protected || t.missing != 0 {
			continue
		}
		groups = append(groups, g)
		req.Items = append(req.Items, triage.Item{Key: fmt.Sprintf("%09d", g), Class: triage.RAG, Tokens: t.weight, Score: values[g]})
	}
	res, err := triage.Fit(req)
	if err != nil {
		return err
	}
	for _, placed := range res.Placed {
		kept[groups[placed.Index]] = true
	}
	p.retain(ActionChosen, triage.OverBudget, func(g int32) bool { return kept[g] })
	return nil
}

// worth is the score of a message, made safe for sums.
func (p *part) worth(i int) float64 {
	switch {
	case p.Scores == nil:
		return 1
	case math.IsNaN(p.Scores[i]):
		return 0
	}
	return min(max(p.Scores[i], -1e12), 1e12)
}

// shortfall is the error of a block that needs more than there is.
func shortfall(block string, need, have int) error {
	return &triage.BudgetError{Block: block, Need: need, Have: have, Shortfall: need - max(have, need-math.MaxInt)}
}

// retain keeps the messages of the groups that stay and can be emitted, and reports the others.
func (p *part) retain(action Action, reason triage.Reason, stays func(g int32) bool) {
	h, gone := p.history, 0
	kept := func(g int32) bool { return h.groups[g].missing == 0 && stays(g) }
	n := p.countKept(kept)
	p.keep = make([]int, 0, n)
	if n < len(h.of) {
		p.report.Evicted = make([]Evicted, 0, len(h.of)-n)
	}
	for i, g := range h.of {
		switch {
		case kept(g):
			p.keep = append(p.keep, i)
			p.report.Used += h.weights[i]
		case h.groups[g].missing != 0:
			p.evict(i, ReasonPair)
		default:
			gone++
			p.evict(i, reason)
		}
	}
	p.report.Kept = len(p.keep)
	p.report.Action = action
	switch {
	case action == ActionRejected:
	case gone == 0:
		p.report.Action = ActionKept
	case len(p.keep) == 0:
		p.report.Action = ActionDropped
	}
}

// countKept sizes the lists, so that a long history is listed without growing them.
func (p *part) countKept(kept func(g int32) bool) (n int) {
	for _, g := range p.history.of {
		if kept(g) {
			n++
		}
	}
	return n
}

func (p *part) evict(i int, reason triage.Reason) {
	p.report.Evicted = append(p.report.Evicted,
		Evicted{Index: i, ID: p.Messages[i].ID, Tokens: p.history.weights[i], Reason: reason})
}

// window orders the parts as they stand: by place, then as they were given.
func (c *compilation) window() []*part {
	parts := make([]*part, len(c.parts))
	for i := range c.parts {
		parts[i] = &c.parts[i]
	}
	slices.SortFunc(parts, func(a, b *part) int { return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(a.n, b.n)) })
	return parts
}

func (c *compilation) messages() []Message {
	n := 0
	for i := range c.parts {
		n += len(c.parts[i].keep)
	}
	out := make([]Message, 0, n)
	for _, p := range c.window() {
		s := newSlab(p.Messages, p.keep)
		for _, i := range p.keep {
			out = append(out, s.copy(&p.Messages[i]))
		}
	}
	return out
}

func (c *compilation) report() Report {
	r := Report{Budget: c.cfg.Budget, Reserve: c.cfg.Reserve, Limit: c.limit}
	for _, p := range c.window() {
		r.Original += p.report.Original
		r.Used += p.report.Used
		r.Blocks = append(r.Blocks, p.report)
	}
	return r
}
