package ctxpage

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// What the database keeps of a session beside its pages, as state rows (FORMAT.md names their keys). A row of a turn
// holds what a pass and a plan need of it, so that neither pages a text in; everything in it but level and pin can be
// made again from the page, and is, when the page changed or another counter counts.

const (
	sessionRowKey = "session/state/"    // SCOPE \0 SESSION
	turnRowKey    = "session/turn/"     // SCOPE \0 SESSION \0 ID
	placeRowKey   = "session/place/"    // SCOPE \0 SESSION \0 ID
	passRowKey    = "session/pass/"     // SCOPE \0 SESSION \0 NUMBER
	verdictRowKey = "session/verdicts/" // SCOPE \0 SESSION \0 NUMBER
)

// keptVerdicts is how many passes back the verdicts are kept, and so how far back an undo reaches.
const keptVerdicts = 32

// sessionRow is the state of a session.
type sessionRow struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack struct{} `msgpack:",as_array"`
	Created  int64
	Pass     uint64   // number of the last pass of either kind
	InForce  uint64   // the pass whose verdicts hold; 0: none
	Kept     []uint64 // passes whose verdicts are stored, oldest first
	Key      uint64   // its session.PassKey
	Config   *session.Config
	Ratio    int64 // of the calibration, parts per million; 0: none
}

// passRow is the record of one pass.
type passRow struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack struct{} `msgpack:",as_array"`
	Number   uint64
	Kind     string
	At       int64
	Actor    string
	Key      uint64
	History  uint64
	Intent   uint64
	Keywords []string
	Tokens   int // of the intent
	IR       []byte
	Params   session.Params
	Previous uint64 // pass whose verdicts held before
	Count    [3]int
	Sum      [3]int
	Items    []passItem
	Undone   bool
}

// passItem is one unit that a watcher's pass compacted.
type passItem struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack    struct{} `msgpack:",as_array"`
	ID          string
	From, To    uint8
	FromBecause string
	Because     string
	Before      int
	After       int
	Unpinned    bool // a pin of it gave way
}

// conversation is a session in the memory of this process. Its lock comes before all others (db.go): one change of a
// session at a time, decided on what is stored and committed before the next. What others write to the group by plain
// puts is found by refresh.
type conversation struct {
	db        *DB
	scope, id string
	lock      chan struct{} // of one place; a channel, so that a context can end the wait

	loaded    bool
	unsure    bool // a commit that failed may still happen
	gcs       uint64
	lsn       uint64
	gen       uint64 // changes with everything a plan depends on
	keys      []store.PageKey
	rows      map[string]*turnRow
	blocks    []block
	units     []unit
	numbers   slab[uint64]       // of blocks of one page
	alone     slab[int]          // members of units of one block
	at        map[uint64]int     // first page number → block
	open      map[string]int     // call id → unit that made it last
	byID      map[string]int     // place of a turn; may name places that are gone
	yielded   map[string]bool    // turns whose pin gave way; may name some whose pin is back
	stored    map[uint64]verdict // of the pass in force, by first page number; nil: the blocks have them
	rev       uint64             // changes with everything the window depends on that is not committed yet
	win       *session.State     // the window at winRev
	winRev    [2]uint64
	sum       int             // tokens of the window, while sumRev is rev
	sumRev    uint64          // 0: never counted
	inside    []int           // units that are in the window, or may be, ascending, while insideRev is rev
	outside   outside         // the others
	insideRev uint64          // 0: never listed
	unsaved   map[string]bool // ids whose rows were made again and are not stored yet
	state     sessionRow
	cal       session.Calibration
	force     passRow          // the pass in force
	reasons   passReasons      // of the pass in force, once one was asked for
	reads     map[string]int64 // turn at which a turn was last recalled; the next commit stores it
	watch     atomic.Pointer[Watcher]
}

// block is a turn, or another artefact of the group. A long session has hundreds of thousands, and the collector looks
// through all of them: what few have stands apart.
type block struct {
	id       string
	nums     []uint64
	version  uint32
	seq      int64
	kind     Kind
	prov     Provenance
	priority Priority
	asOf     int64 // microseconds
	expires  int64 // 0: never
	rated    *float64
	role     string
	tool     *toolUse // nil: it has none
	digest   [32]byte
	stored   int // tokens of its pages as stored
	row      *turnRow
	unit     int
	judged   bool // by the pass in force, as it is now
	verdict  verdict
}

// toolUse is what ties a turn to others.
type toolUse struct {
	answers  string   // id of the call it is the result of
	calls    []string // ids of the calls it makes
	callKeys []string
}

func (b *block) answers() string {
	if b.tool == nil {
		return ""
	}
	return b.tool.answers
}

func (b *block) calls() []string {
	if b.tool == nil {
		return nil
	}
	return b.tool.calls
}

// unit is what goes together: an assistant turn with its calls and their results, or a turn alone.
type unit struct{ members []int }

// verdict is what a pass decided about one block, as it is stored.
type verdict struct {
	action session.Action
	reason session.Reason
	hits   int
	delta  int64
}

// exclusively runs fn on the session as it is now.
func (c *conversation) exclusively(ctx context.Context, fn func() error) error {
	select {
	case c.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	whole := false
	defer func() {
		if !whole { // a counter of the host panicked: what is in memory may be half of something
			c.loaded = false
		}
		<-c.lock
	}()
	err := c.refresh(ctx)
	if err == nil {
		err = fn()
	}
	whole = true
	return err
}

func (c *conversation) key(kind string) string { return kind + c.scope + "\x00" + c.id }

func (c *conversation) turnKey(kind, id string) string {
	return kind + c.scope + "\x00" + c.id + "\x00" + id
}

func (c *conversation) passKey(kind string, n uint64) string {
	return c.key(kind) + "\x00" + fmt.Sprintf("%016x", n)
}

// refresh brings the memory up to the store: nothing, the new turns, or everything that changed.
func (c *conversation) refresh(ctx context.Context) error {
	if gcs := c.db.talks.gcs.Load(); gcs != c.gcs { // rows of turns that were deleted are gone
		c.gcs, c.loaded = gcs, false
	}
	if !c.loaded {
		if err := c.load(ctx); err != nil {
			return err
		}
	}
	page, err := c.db.store.Scan(ctx, store.ScanQuery{What: store.ScanMembers, Scopes: store.Scopes{c.scope}, Group: c.id, Known: c.lsn})
	if err != nil {
		return err
	}
	keys, known := page.Keys, len(c.keys)
	if page.Same {
		keys = append(c.keys, keys...)
	} else if known > len(keys) || !slices.Equal(keys[:known], c.keys) {
		known = 0
	}
	if c.lsn = max(c.lsn, page.LSN); known == len(keys) && known == len(c.keys) {
		return nil
	}
	if err := c.take(ctx, keys, known); err != nil {
		c.loaded = false // half taken over: read all of it again
		return err
	}
	c.keys = keys
	c.gen++
	return nil
}

// load reads the rows. A session without a row is one that only plain puts have written to.
func (c *conversation) load(ctx context.Context) error {
	if c.unsure { // what is read before the commit becomes visible would stay: nothing tells of rows that change
		if _, err := c.db.store.Head(ctx); err != nil && ctx.Err() != nil {
			return err
		}
		c.unsure = false
	}
	c.keys, c.blocks, c.units, c.lsn = nil, nil, nil, 0
	c.rows, c.at, c.open, c.byID = map[string]*turnRow{}, map[uint64]int{}, map[string]int{}, map[string]int{}
	c.unsaved, c.yielded = map[string]bool{}, map[string]bool{}
	c.rev++
	if c.reads == nil {
		c.reads = map[string]int64{}
	}
	raw, err := c.db.store.State(ctx, c.key(sessionRowKey))
	if err != nil {
		return err
	}
	c.state = sessionRow{}
	if raw != nil {
		if err := codec.Unpack(raw, &c.state); err != nil {
			return fmt.Errorf("ctxpage: state of session %s: %w", c.id, err)
		}
	}
	c.cal = calibrated(c.state.Ratio)
	if err := c.loadRows(ctx); err != nil {
		return err
	}
	if c.stored, err = c.loadVerdicts(ctx, c.state.InForce); err != nil {
		return err
	}
	if c.force = (passRow{}); c.state.InForce != 0 {
		if c.force, err = c.loadPass(ctx, c.state.InForce); err != nil {
			return err
		}
	}
	c.loaded = true
	return nil
}

// loadRows reads what is kept of the turns, and over it what has become of them since.
func (c *conversation) loadRows(ctx context.Context) error {
	each := func(kind string, take func(id string, raw []byte) error) error {
		prefix := c.turnKey(kind, "")
		return c.db.scanState(ctx, prefix, func(r store.StateRow) error {
			id := r.Key[len(prefix):]
			if err := take(id, r.Value); err != nil {
				return fmt.Errorf("ctxpage: turn %s of session %s: %w", id, c.id, errors.Join(codec.ErrMalformed, err))
			}
			return nil
		})
	}
	err := each(turnRowKey, func(id string, raw []byte) error {
		c.rows[id] = new(turnRow)
		return codec.Unpack(raw, c.rows[id])
	})
	if err != nil {
		return err
	}
	return each(placeRowKey, func(id string, raw []byte) error {
		row := c.rows[id]
		if row == nil { // gc took the turn's row while a place was written
			return nil
		}
		return row.decodePlace(raw)
	})
}

// scanState walks state rows by prefix.
func (db *DB) scanState(ctx context.Context, prefix string, fn func(store.StateRow) error) error {
	for cursor := ""; ; {
		page, err := db.store.Scan(ctx, store.ScanQuery{What: store.ScanState, Prefix: prefix, Cursor: cursor, Limit: 4096})
		if err != nil {
			return err
		}
		for _, r := range page.State {
			if err := fn(r); err != nil {
				return err
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

// take rebuilds the blocks from the keys, of which the first known are unchanged.
func (c *conversation) take(ctx context.Context, keys []store.PageKey, known int) error {
	old, oldAt := c.blocks, c.at
	if known == 0 {
		c.rev++
		c.blocks, c.units = nil, nil
		c.at, c.open, c.byID = make(map[uint64]int, len(keys)), map[string]int{}, make(map[string]int, len(keys))
	}
	kept := func(k store.PageKey) (int, bool) {
		i, ok := oldAt[k.Num]
		return i, ok && known == 0 && old[i].version == k.Version
	}
	var fresh []store.PageKey
	for _, k := range keys[known:] {
		if _, ok := kept(k); !ok {
			fresh = append(fresh, k)
		}
	}
	made, err := c.makeBlocks(ctx, fresh)
	if err != nil {
		return err
	}
	for i := range made {
		b := &made[i]
		if i, ok := oldAt[b.nums[0]]; ok && i < len(old) && old[i].nums[0] == b.nums[0] {
			b.judged, b.verdict = old[i].judged, old[i].verdict
		} else {
			b.verdict, b.judged = c.stored[b.nums[0]]
		}
	}
	c.blocks = slices.Grow(c.blocks, len(made))
	for _, k := range keys[known:] {
		switch i, ok := kept(k); {
		case ok:
			c.add(old[i])
		case len(made) > 0 && made[0].nums[0] == k.Num:
			c.add(made[0])
			made = made[1:]
		} // else a later page of a block
	}
	return nil
}

// add appends a block and finds its unit: a result joins the turn that made the call.
func (c *conversation) add(b block) {
	i := len(c.blocks)
	u, ok := c.open[b.answers()]
	if b.answers() == "" || !ok {
		u = len(c.units)
		c.units = append(c.units, unit{})
	}
	b.unit = u
	c.recount(u, func() {
		if m := &c.units[u].members; *m == nil {
			*m = c.alone.one(i)
		} else {
			*m = append(slices.Clip(*m), i)
		}
		c.blocks = append(c.blocks, b)
	})
	for _, id := range b.calls() {
		c.open[id] = u
	}
	if c.at[b.nums[0]], c.byID[b.id] = i, i; b.row.Yielded {
		c.yielded[b.id] = true
	}
}

// makeBlocks makes the blocks whose first page is among the keys, in their order. It reads heads, and texts only of
// turns whose row is missing or out of date.
func (c *conversation) makeBlocks(ctx context.Context, keys []store.PageKey) ([]block, error) {
	loaded, err := c.db.store.Load(ctx, store.Scopes{c.scope}, keys, store.WantHead)
	if err != nil {
		return nil, err
	}
	made := make([]block, 0, len(keys))
	for i := range loaded {
		l := &loaded[i]
		if l.Err != nil {
			return nil, l.Err
		}
		if l.Page != 1 {
			continue
		}
		b := c.blockOf(l.Head)
		if b.row = c.rows[b.id]; b.row == nil || b.row.Hash != headHash(l.Head) || b.row.Counter != c.db.opts.Counter.Name() {
			if b.row, err = c.remakeRow(ctx, l.Head, b.row); err != nil {
				return nil, err
			}
			c.rows[b.id], c.unsaved[b.id] = b.row, true
		}
		made = append(made, b)
	}
	return made, nil
}

func (c *conversation) blockOf(h *store.Head) block {
	b := block{
		id: h.ID, version: h.Version, seq: h.Seq, kind: h.Kind, prov: h.Provenance, asOf: codec.Micros(h.CurrentAsOf), expires: codec.Micros(h.ExpiresAt),
		priority: h.Priority, rated: h.Relevance, role: commonRole(h.Role), digest: h.Rows[0].Digest,
	}
	if len(h.Rows) == 1 {
		b.nums = c.numbers.one(h.Rows[0].Num)
	}
	for _, r := range h.Rows {
		if len(h.Rows) > 1 {
			b.nums = append(b.nums, r.Num)
		}
		b.stored += int(r.Tokens)
	}
	if h.ToolCallID == "" && len(h.ToolCalls) == 0 {
		return b
	}
	b.tool = &toolUse{answers: h.ToolCallID}
	for _, t := range h.ToolCalls {
		b.tool.calls = append(b.tool.calls, t.ID)
		b.tool.callKeys = append(b.tool.callKeys, callKey(t))
	}
	return b
}

// commonRole lets go of the string that was read.
func commonRole(role string) string {
	for _, r := range []string{"user", "assistant", "tool", "system"} {
		if role == r {
			return r
		}
	}
	return role
}

// callKey names what was asked, so that asking again is recognised.
func callKey(t ToolCall) string {
	return fmt.Sprintf("%s %016x", t.Name, xxhash.Sum64String(t.Arguments))
}

// headHash is over everything a row is made from.
func headHash(h *store.Head) uint64 {
	hashes := make([]uint64, len(h.Rows))
	for i, r := range h.Rows {
		hashes[i] = r.Hash
	}
	return turnHash(&h.Artefact, hashes)
}

// contentOf tells equal texts, whoever said them.
func contentOf(rows []store.PageRow) uint64 {
	var b []byte
	for _, r := range rows {
		if r.Tokens > 0 {
			b = binary.LittleEndian.AppendUint64(b, r.Hash)
		}
	}
	if len(b) == 0 {
		return 0
	}
	return xxhash.Sum64(b)
}

func turnHash(a *Artefact, pages []uint64) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(pages)))
	for _, p := range pages {
		b = binary.LittleEndian.AppendUint64(b, p)
	}
	for _, s := range []string{a.Role, a.Name, a.ToolCallID} {
		b = append(append(b, s...), 0)
	}
	for _, t := range a.ToolCalls {
		b = append(append(append(append(b, t.ID...), 0), t.Name...), 0)
		b = append(append(b, t.Arguments...), 0)
	}
	return xxhash.Sum64(b)
}

// remakeRow pages a turn in to make its row: one that was put past the session, or changed, or counted by another
// counter. Pin, level and signals stay; what was derived from another content does not.
func (c *conversation) remakeRow(ctx context.Context, h *store.Head, old *turnRow) (*turnRow, error) {
	keys := make([]store.PageKey, len(h.Rows))
	for i, r := range h.Rows {
		keys[i] = store.PageKey{Num: r.Num, Version: h.Version}
	}
	texts, err := c.db.texts(ctx, store.Scopes{c.scope}, keys)
	if err != nil {
		return nil, err
	}
	digests := h.Rows[0].Digest
	row := c.db.turnRow(&h.Artefact, texts, headHash(h), c.stub(h.ID, digests, sumTokens(h.Rows)))
	row.Content = contentOf(h.Rows)
	if old != nil {
		row.Pinned, row.Yielded, row.Level, row.Because, row.Signals, row.moved = old.Pinned, old.Yielded, old.Level, old.Because, old.Signals, old.moved
	}
	return row, nil
}

func sumTokens(rows []store.PageRow) (n int) {
	for _, r := range rows {
		n += int(r.Tokens)
	}
	return n
}

// texts pages texts in, through the working set.
func (db *DB) texts(ctx context.Context, scopes store.Scopes, keys []store.PageKey) ([]string, error) {
	frames, errs, err := db.table.load(ctx, scopes, keys)
	if err != nil {
		return nil, err
	}
	defer db.table.unpin(frames)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	out := make([]string, len(frames))
	for i, f := range frames {
		out[i] = f.text
	}
	return out, nil
}

// stub gives the text that stands for a turn, from its title.
func (c *conversation) stub(id string, digest [32]byte, tokens int) func(title string) string {
	ref := Ref{Scope: c.scope, ID: id}.String()
	return func(title string) string {
		return session.StubText(ref, hex.EncodeToString(digest[:6]), tokens, title)
	}
}

// turnRow measures a turn. The title is taken from its first page, as a replay will.
func (db *DB) turnRow(a *Artefact, texts []string, hash uint64, stub func(title string) string) *turnRow {
	count := db.opts.Counter.Count
	text := strings.Join(texts, "")
	words := []string{a.Name, text}
	extra := 0
	for _, t := range a.ToolCalls {
		words = append(words, t.Name, t.Arguments)
		extra += count(t.Name) + count(t.Arguments)
	}
	title := session.Title(texts[0])
	raw := count(text) + extra
	sizes := session.EstimateSizes(raw)
	if t := session.Trim(text); t != text {
		if n := count(t) + extra; n < raw {
			sizes[session.Trimmed] = n
		}
	}
	below := cmp.Or(sizes[session.Trimmed], raw)
	for _, l := range []session.Level{session.Summary, session.Stub} {
		if l == session.Stub { // exact; not held against a summary that is a guess and may never be made
			sizes[l] = count(stub(title))
		}
		if sizes[l] >= below {
			sizes[l] = 0
		}
	}
	return &turnRow{
		Hash: hash, Counter: db.opts.Counter.Name(), Sizes: sizes, Traits: uint16(session.Inspect(text)), Title: strings.Clone(title), // which may be part of the text

		Hashes: session.TokenSet(words...),
	}
}
