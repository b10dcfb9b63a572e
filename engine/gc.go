package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// How gc goes:
//
//	names     held batches, lineage and sources of what is live, verdicts of sessions; then every commit adds its own
//	plan      artefact by artefact, in the order of their numbers: which versions ended long ago and nobody names
//	drop      some hundred at a time, as a commit: in the place of each head row one that only says what it was
//	apply     a checkpoint writes those rows and deletes texts and vectors, in the transaction that moves the applied LSN
//
// A drop has an LSN, so the log orders it among commits, redo repeats it, and a crash leaves it done or not. The rows of
// what is gone stay because the past needs them: when each version stood, what answers for it, what it replaced.
//
// What is named is decided in the sequencer: whatever names a version in a record before that of its drop keeps it.

// drop is a version to be dropped. kept says why it was not; the sequencer sets it.
type drop struct {
	head *store.Head // what stays of it
	kept string

	cold  []byte
	group string // what the catalogue calls the group that Head.GroupNum stands for
	from  *version
}

// How much one commit drops, and after how many of them a checkpoint frees what they dropped.
const (
	dropVersions = 256
	dropPages    = 4096 // in their rows, shared ones too: they are what its record is made of
	dropCommits  = 32
	gcRefs       = 100 // of a report
)

// names is what names versions, and so keeps them: a reference, the LSN of a commit, or the number of a page.
type names struct {
	kinds []store.StateKind
	mu    sync.Mutex // a leaf
	refs  map[store.Ref]string
	lsns  map[writtenAt]string
	nums  map[uint64]string
	// passed are the pages of dropped versions that later ones have: a reference to such a page leads on to those
	// (locateGone). gc adds what it comes by.
	passed map[store.Ref][]uint64
}

type writtenAt struct {
	scope, id string
	lsn       uint64
}

func newNames(kinds []store.StateKind) *names {
	return &names{kinds: kinds, refs: map[store.Ref]string{}, lsns: map[writtenAt]string{}, nums: map[uint64]string{}, passed: map[store.Ref][]uint64{}}
}

// commit adds what a batch names, held or applied. The sequencer calls it for each while gc runs; nil: it does not.
func (n *names) commit(b *store.Batch, held bool) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if held {
		n.held(b)
	}
	for i := range b.Puts {
		n.lineage(b.Scope, &b.Puts[i].Artefact, held)
	}
	for _, r := range b.State {
		if k := KindOf(n.kinds, r.Key); k != nil && k.Names != nil && r.Value != nil {
			_ = n.state(k, r.Value) // bytes of just now
		}
	}
}

func (n *names) held(b *store.Batch) {
	for _, c := range b.Context {
		n.nums[c.Num] = store.KeptHeld
	}
	for _, e := range b.Expect {
		n.lsns[writtenAt{e.Ref.Scope, e.Ref.ID, e.LSN}] = store.KeptHeld
	}
}

// lineage adds the versions that an artefact was made from.
func (n *names) lineage(scope string, a *store.Artefact, held bool) {
	why := map[bool]string{false: store.KeptParent, true: store.KeptHeld}[held]
	for _, r := range a.DerivedFrom {
		n.ref(store.Ref{Scope: r.Scope, ID: r.ID, Version: r.Version}, why)
	}
	key, ok := strings.CutPrefix(a.Source, "page:")
	if ref, err := store.SourceRef(key); ok && err == nil && ref.Version != 0 {
		if !held {
			why = store.KeptSource
		}
		for _, s := range store.ScopeChain(scope) {
			n.ref(store.Ref{Scope: cmp.Or(ref.Scope, s), ID: ref.ID, Version: ref.Version}, why)
		}
	}
}

func (n *names) ref(r store.Ref, why string) {
	n.refs[r] = why
	for _, num := range n.passed[r] {
		n.nums[num] = why
	}
}

// pass adds a dropped version.
func (n *names) pass(h *store.Head, nums []uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
	n.passed[r] = nums
	if why := n.refs[r]; why != "" {
		n.ref(r, why)
	}
}

// state adds what a state row names.
func (n *names) state(k *store.StateKind, row []byte) error {
	nums, err := k.Names(row)
	for _, num := range nums {
		n.nums[num] = store.KeptSession
	}
	return err
}

// why says what names a version; "": nothing does.
func (n *names) why(h *store.Head) string {
	if n == nil {
		return store.KeptChanged // nobody looked: gc alone drops
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	why := cmp.Or(n.refs[store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}], n.lsns[writtenAt{h.Scope, h.ID, h.LSN}])
	for i := 0; i < len(h.Rows) && why == ""; i++ {
		why = n.nums[h.Rows[i].Num]
	}
	return why
}

// version is one version of an artefact that gc looks at.
type version struct {
	head   *store.Head
	ended  int64
	by     uint64 // LSN of the commit that ended it; 0: it expired
	why    string // it goes
	kept   string // it stays
	live   bool   // it is the newest, and its artefact is not deleted
	pages  int    // that go with it: those that no newer version has
	bytes  int64
	expect uint64 // LSN its artefact must have when it is deleted first; 0: it need not be
}

// collector is one run.
type collector struct {
	s        *Engine
	ctx      context.Context
	job      *store.GCJob
	dry      bool
	progress store.Progress
	names    *names
	run      ulid.ULID
	now      int64
	part     []*drop
	size     int // page rows in part
	stuck    struct {
		art uint64 // of its versions in an earlier part some stayed after all, and they may share pages with the rest
		why string
	}
	commits int           // of drops
	wrote   bool          // anything
	forget  []*store.Head // rows that go, planned by trim
	deleted []*store.Head // artefacts that are deleted and dropped
	rep     store.GCReport
	gone    map[string]*tally
	kept    map[string]*tally
}

// Collect runs gc, or its plan.
func (s *Engine) Collect(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	s.gcMu.Lock()
	defer s.gcMu.Unlock()
	c := &collector{s: s, ctx: ctx, job: job.GC, dry: job.Kind == store.JobGCPlan, progress: progress, names: newNames(s.opts.State),
		now: codec.Micros(s.opts.Now()), gone: map[string]*tally{}, kept: map[string]*tally{}}
	err := s.Readable(ctx)
	if err == nil && !c.dry {
		err = s.Writable()
	}
	if err == nil {
		c.run, err = store.NewID(s.opts.Now(), s.opts.Rand)
	}
	if err == nil && !c.dry && s.opts.Space.Tight() {
		_ = s.opts.Space.Relieve(ctx) // what is in the log twice takes the space that gc needs
	}
	if err == nil {
		err = c.walk()
	}
	if c.wrote && !s.Closed.Load() { // also of what an error ended
		cerr := s.opts.Checkpoint(context.WithoutCancel(ctx))
		err = errors.Join(err, cerr)
	}
	return store.JobReport{GC: c.report()}, err
}

func (c *collector) walk() error {
	if !c.dry {
		defer c.s.unwatch()
		if err := c.s.watch(c.ctx, c.names); err != nil {
			return err
		}
	}
	if err := c.stored(); err != nil {
		return err
	}
	if err := c.each("what names versions", c.parents); err != nil {
		return err
	}
	if err := c.each("versions", c.artefact); err != nil {
		return err
	}
	if err := c.flush(); err != nil {
		return err
	}
	if err := c.forgetRows(); err != nil {
		return err
	}
	return c.forgetState()
}

// watch lets the sequencer tell what commits name from now on, and waits for those that were in it already.
func (s *Engine) watch(ctx context.Context, n *names) error {
	s.Seq.Mu.Lock()
	s.Seq.watch = n
	s.Seq.flight.Lock()
	under := slices.Collect(maps.Values(s.Seq.ids))
	s.Seq.flight.Unlock()
	s.Seq.Mu.Unlock()
	for _, p := range under {
		if err := s.wait(ctx, p); err != nil {
			return cmp.Or(ctx.Err(), err) // whose outcome is unknown then is not ours
		}
	}
	return nil
}

func (s *Engine) unwatch() {
	s.Seq.Mu.Lock()
	defer s.Seq.Mu.Unlock()
	s.Seq.watch = nil
}

// stored finds what held batches and sessions name.
func (c *collector) stored() error {
	var damage error
	_, err := c.s.eachHeld(ulid.ULID{}, func(id ulid.ULID, row []byte, err error) bool {
		var h store.HeldBatch
		if err == nil {
			err = UnpackHeld(row, &h)
		}
		if err == nil {
			err = c.s.provedHeld(id[:], row)
		}
		if err != nil {
			damage = c.s.Corrupt("held batch "+id.String(), err)
			return false
		}
		if h.Decided == "" {
			c.names.commit(&h.Batch, true)
		}
		return true
	})
	if err = errors.Join(err, damage); err != nil {
		return err
	}
	for i := range c.s.opts.State {
		if k := &c.s.opts.State[i]; k.Names != nil {
			if err := c.stateRows(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// stateRows adds what the stored rows of a kind name.
func (c *collector) stateRows(k *store.StateKind) error {
	for q := (store.ScanQuery{What: store.ScanState, Prefix: k.Prefix, Limit: 100}); ; {
		page, err := c.s.Scan(c.ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.State {
			c.names.mu.Lock()
			err := c.names.state(k, r.Value)
			c.names.mu.Unlock()
			if err != nil {
				return c.s.Corrupt(fmt.Sprintf("state row %q", r.Key), err)
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// each calls fn for the artefacts there are, in the order of their numbers.
func (c *collector) each(what string, fn func(art uint64) error) error {
	c.s.Catalogue.Mu.RLock()
	total := uint64(len(c.s.Catalogue.arts))
	c.s.Catalogue.Mu.RUnlock()
	for art := uint64(1); art <= total; art++ {
		if art%1024 == 0 {
			c.progress(what, art, total)
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := fn(art); err != nil {
			return err
		}
	}
	c.progress(what, total, total)
	return nil
}

// state is what the catalogue says of an artefact.
func (c *collector) state(art uint64) (scope string, newest uint32, live bool, expires int64) {
	cat := c.s.Catalogue
	cat.Mu.RLock()
	defer cat.Mu.RUnlock()
	a := cat.art(art)
	if live = a.pages > 0; live {
		expires = cat.page(cat.nums(art)[0]).expires
	}
	return cat.scopeName(a.scope), a.version, live, expires
}

// parents adds what a live artefact was made from.
func (c *collector) parents(art uint64) error {
	_, newest, live, _ := c.state(art)
	if !live {
		return nil
	}
	h, err := c.s.head(HeadKey{art, newest})
	if err != nil {
		return err
	}
	c.names.mu.Lock()
	defer c.names.mu.Unlock()
	c.names.lineage(h.Scope, &h.Artefact, false)
	return nil
}

// artefact plans what goes of one artefact.
func (c *collector) artefact(art uint64) error {
	scope, newest, live, expires := c.state(art)
	expired := live && expires != 0 && expires <= c.now
	if newest == 1 && !expired || c.job.Scope != "" && c.job.Scope != scope {
		return nil
	}
	heads, err := c.heads(art, newest)
	if err != nil || newest == 0 {
		return err
	}
	if c.job.Scope == "" || c.job.Scope == scope {
		c.trim(heads)
	}
	vs := c.versions(heads, expired)
	c.passed(heads, vs)
	for i := range vs {
		vs[i].kept = c.keeps(vs[i], len(vs)-1-i)
	}
	share(vs)
	for _, v := range vs {
		switch {
		case v.kept != "":
			c.stays(v)
		default:
			if err := c.goes(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// heads gives the rows of an artefact, oldest first.
func (c *collector) heads(art uint64, newest uint32) (heads []*store.Head, err error) {
	for v := newest; v > 0; v-- {
		h, err := c.s.head(HeadKey{art, v})
		if err != nil {
			return nil, err
		}
		heads = append(heads, h)
		if h.Floor {
			break
		}
	}
	slices.Reverse(heads)
	return heads, nil
}

// versions gives those that have content, oldest first.
func (c *collector) versions(heads []*store.Head, expired bool) (vs []*version) {
	last := len(heads) - 1
	for i, h := range heads {
		if h.Gone || len(h.Rows) == 0 {
			continue
		}
		v := &version{head: h, live: i == last}
		switch {
		case v.live && expired:
			v.ended, v.why, v.expect = codec.Micros(h.ExpiresAt), store.GoneExpired, h.LSN
		case !v.live:
			next := heads[i+1]
			v.ended, v.by, v.why = codec.Micros(next.PutAt), next.LSN, store.GoneSuperseded
			if next.Deleted {
				v.why = store.GoneDeleted
			}
			if at := codec.Micros(h.ExpiresAt); c.job.Expired && at != 0 && at < v.ended {
				v.ended = at
			}
		}
		vs = append(vs, v)
	}
	for i, v := range vs {
		for j, r := range v.head.Rows { // a page keeps its place (samePage)
			if i == len(vs)-1 || j >= len(vs[i+1].head.Rows) || vs[i+1].head.Rows[j].Num != r.Num {
				v.pages++
				v.bytes += int64(r.Bytes)
			}
		}
	}
	return vs
}

// passed tells names of the pages that dropped versions had, and others have still.
func (c *collector) passed(heads []*store.Head, vs []*version) {
	if len(vs) == len(heads) {
		return
	}
	still := map[uint64]bool{}
	for _, v := range vs {
		for _, r := range v.head.Rows {
			still[r.Num] = true
		}
	}
	for _, h := range heads {
		if !h.Gone {
			continue
		}
		var nums []uint64
		for _, r := range h.Rows {
			if still[r.Num] {
				nums = append(nums, r.Num)
			}
		}
		if nums != nil {
			c.names.pass(h, nums)
		}
	}
}

// keeps says why a version stays, "" when it goes. newer is how many versions of its artefact are.
func (c *collector) keeps(v *version, newer int) string {
	switch {
	case v.why == "":
		return store.KeptNewest
	case newer < c.job.KeepVersions:
		return store.KeptNewest
	case v.why == store.GoneExpired && !c.job.Expired:
		return store.KeptExpired
	case v.ended > c.now-c.job.KeepFor.Microseconds():
		return store.KeptYoung
	}
	if why := c.names.why(v.head); why != "" {
		return why
	}
	if c.job.InUse(v.by, v.ended, v.nums()) {
		return store.KeptInUse
	}
	return ""
}

func (v *version) nums() []uint64 {
	out := make([]uint64, len(v.head.Rows))
	for i := range out {
		out[i] = v.head.Rows[i].Num
	}
	return out
}

// share keeps versions whose pages versions that stay have, too: a page is known by the newest version that has it, so that
// one stays where any of them does. And a version all of whose pages stay would free nothing.
func share(vs []*version) {
	newest := map[uint64]*version{} // by page
	for _, v := range vs {
		for _, r := range v.head.Rows {
			newest[r.Num] = v
		}
	}
	for _, v := range vs { // oldest first: what one makes stay is not older
		for i := 0; i < len(v.head.Rows) && v.kept != ""; i++ {
			if n := newest[v.head.Rows[i].Num]; n.kept == "" {
				n.kept = store.KeptShared
			}
		}
	}
	for _, v := range vs {
		if v.kept == "" && !slices.ContainsFunc(v.head.Rows, func(r store.PageRow) bool { return newest[r.Num].kept == "" }) {
			v.kept = store.KeptShared
		}
	}
}

// stays counts a version that ended and is kept.
func (c *collector) stays(v *version) {
	if v.live && v.why == "" {
		return // it has not ended
	}
	t := count(c.kept, v.kept, v)
	at, _ := slices.BinarySearch(t.ended, v.ended+1)
	if at < nearestMisses {
		t.ended, t.Nearest = slices.Insert(t.ended, at, v.ended), slices.Insert(t.Nearest, at, v.ref())
		n := min(len(t.ended), nearestMisses)
		t.ended, t.Nearest = t.ended[:n], t.Nearest[:n]
	}
}

func (v *version) ref() store.Ref {
	return store.Ref{Scope: v.head.Scope, ID: v.head.ID, Version: v.head.Version}
}

// tally is a line of the report while it is made.
type tally struct {
	store.GCTally
	ended []int64 // of Nearest: when each ended, rising
}

func count(by map[string]*tally, reason string, v *version) *tally {
	t := by[reason]
	if t == nil {
		t = &tally{GCTally: store.GCTally{Reason: reason}}
		by[reason] = t
	}
	addVersion(&t.GCTally, v)
	return t
}

func addVersion(t *store.GCTally, v *version) {
	t.Versions++
	t.Pages += v.pages
	t.Bytes += v.bytes
}

// goes puts a version on the list of the next commit.
func (c *collector) goes(v *version) error {
	if c.dry {
		c.went(v)
		return nil
	}
	if v.head.Art == c.stuck.art {
		v.kept = c.stuck.why
		c.stays(v)
		return nil
	}
	d := &drop{head: tombstone(v.head, c.run.String()), from: v, group: groupName(v.head)}
	var err error
	if d.cold, err = encodeCold(d.head); err != nil {
		return fmt.Errorf("ctxpage: encode %s: %w", v.ref(), err)
	}
	c.part = append(c.part, d)
	c.size += len(v.head.Rows)
	if most := c.most(); len(c.part) >= dropVersions/most || c.size >= dropPages/most {
		return c.flush()
	}
	return nil
}

// most is by how much a commit is smaller than it may be: on a full disk it must fit into the reserve of the log, and its
// checkpoint into the little space there is, since a page that loses rows is written anew.
func (c *collector) most() int {
	if !c.dry && c.s.opts.Space.Tight() {
		return 16
	}
	return 1
}

func (c *collector) went(v *version) {
	count(c.gone, v.why, v)
	addVersion(&c.rep.Dropped, v)
	if len(c.rep.Refs) < gcRefs {
		c.rep.Refs = append(c.rep.Refs, v.ref())
	}
}

// tombstone is what stays of a dropped version: what names it and its pages, and what it replaced, which holds on; and
// what the index knows its pages by (analyse), for newer versions may have them.
func tombstone(h *store.Head, by string) *store.Head {
	return &store.Head{
		Artefact: store.Artefact{
			ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Priority: h.Priority, CurrentAsOf: h.CurrentAsOf, ExpiresAt: h.ExpiresAt,
			Seq: h.Seq, Name: h.Name, Source: h.Artefact.Source, Supersedes: h.Supersedes,
		},
		Scope: h.Scope, Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Rows: h.Rows, Gone: true, GoneBy: by,
	}
}

// flush commits what is on the list.
func (c *collector) flush() error {
	if len(c.part) == 0 {
		return nil
	}
	for _, d := range c.part {
		if c.job.InUse(d.from.by, d.from.ended, d.from.nums()) {
			d.kept = store.KeptInUse
		}
	}
	if err := c.deleteExpired(); err != nil {
		return err
	}
	err := c.commit(Request{Batch: store.Batch{Scope: cmp.Or(c.job.Scope, store.OperatorScope), Leaf: manifest.Record{Action: "drop"}}, drops: c.part})
	if err != nil && !errors.Is(err, errNoneLeft) {
		return err
	}
	for _, d := range c.part {
		if d.from.kept = d.kept; d.kept != "" {
			c.stuck.art, c.stuck.why = d.head.Art, d.kept
			c.stays(d.from)
			continue
		}
		c.went(d.from)
	}
	c.part, c.size = nil, 0
	if err == nil {
		c.commits++
		if err := c.s.At("gc commit"); err != nil {
			return err
		}
		if c.s.opts.Space.Tight() {
			return c.s.opts.Space.Relieve(c.ctx)
		}
		if c.commits%dropCommits == 0 {
			return c.s.opts.Checkpoint(c.ctx)
		}
	}
	return nil
}

// deleteExpired deletes the artefacts whose newest version is on the list. Who writes to one meanwhile keeps it.
func (c *collector) deleteExpired() error {
	byScope := map[string][]*drop{}
	for _, d := range c.part {
		if d.from.expect != 0 && d.kept == "" {
			byScope[d.head.Scope] = append(byScope[d.head.Scope], d)
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(byScope)) {
		for {
			b := Request{Batch: store.Batch{Scope: scope, Leaf: manifest.Record{Action: "delete expired"}}}
			for _, d := range byScope[scope] {
				if d.kept == "" {
					b.Deletes = append(b.Deletes, d.head.ID)
					b.Expect = append(b.Expect, store.Precondition{Ref: store.Ref{Scope: scope, ID: d.head.ID}, LSN: d.from.expect})
				}
			}
			if len(b.Deletes) == 0 {
				break
			}
			var conflict *store.ConflictError
			err := c.commit(b)
			if err == nil {
				break
			}
			if !errors.As(err, &conflict) {
				return err
			}
			for _, d := range byScope[scope] {
				if d.head.ID == conflict.Ref.ID {
					d.kept = store.KeptChanged
				}
			}
		}
	}
	return nil
}

// commit is one of the run. An end of ctx comes before it or after it, so that the report has all that was dropped.
func (c *collector) commit(b Request) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	id, err := store.NewID(c.s.opts.Now(), c.s.opts.Rand)
	if err != nil {
		return err
	}
	b.ID, b.Trace, b.Actor, b.Now = id, c.run.String(), "operator", c.s.opts.Now()
	b.Leaf.Type, b.Leaf.By = manifest.TypeGC, c.job.By
	b.Leaf.Note = fmt.Sprintf("kept for %s, and %d of an artefact", c.job.KeepFor, c.job.KeepVersions)
	_, err = c.s.Submit(context.WithoutCancel(c.ctx), b)
	c.wrote = c.wrote || err == nil
	return err
}

func (c *collector) report() store.GCReport {
	rep := c.rep
	rep.DryRun = c.dry
	if c.wrote {
		rep.Trace = c.run.String()
	}
	for _, l := range []struct {
		from map[string]*tally
		to   *[]store.GCTally
	}{{c.gone, &rep.Reasons}, {c.kept, &rep.Kept}} {
		for _, reason := range slices.Sorted(maps.Keys(l.from)) {
			*l.to = append(*l.to, l.from[reason].GCTally)
		}
	}
	return rep
}

// errNoneLeft means that all that was to be dropped is named by now.
var errNoneLeft = errors.New("ctxpage: nothing is left to drop")

// enqueueDrops makes head records of what gc drops, but for what has been named since it was planned: what keeps one
// version keeps the others of its artefact this time, because pages may be shared among them.
func (s *Engine) enqueueDrops(b *Request, p *pending, leaf *manifest.Record) error {
	if len(b.drops) == 0 {
		return nil
	}
	stays := map[uint64]string{}
	for _, d := range b.drops {
		if why := cmp.Or(d.kept, s.Seq.watch.why(d.head)); why != "" {
			stays[d.head.Art] = why
		}
	}
	for _, d := range b.drops {
		if d.kept = stays[d.head.Art]; d.kept != "" {
			continue
		}
		h := d.head
		if err := s.addHead(&p.record, leaf, headRecord{head: h}, s.Seq.scopes[h.Scope], d.group, d.cold); err != nil {
			return err
		}
		ref := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: h.Rows[0].Num, Ref: ref.String(), Version: h.Version, Gone: true})
	}
	if len(p.record.Heads) == 0 {
		return errNoneLeft
	}
	return nil
}

// dropped is a version that gc took, in an overlay, with the pages that no version has any more.
type dropped struct {
	key  HeadKey
	nums []uint64
}

// installGone makes the drop of a version visible. The caller holds cat.mu, or is recovery.
func (s *Engine) installGone(t *hot, rows []store.PageRow, row []byte, ended *[]uint64) error {
	gone, err := s.Catalogue.drop(t, rows)
	if err != nil {
		return err
	}
	o := s.Overlay
	d := dropped{HeadKey{t.Art, t.Version}, gone}
	o.heads[d.key] = row
	o.Bytes += len(row)
	o.gone = append(o.gone, d)
	for _, num := range gone {
		o.Bytes -= len(o.texts[num])
		delete(o.texts, num)
	}
	s.Index.Remove(gone...)
	*ended = append(*ended, gone...)
	return nil
}

// goneCol is the column of a page that no version has any more. It is the same whatever the page was, because nothing
// else is known of it after a reopen.
func goneCol(art uint64, scope uint32, r *store.PageRow, page uint32) pageCol {
	return pageCol{art: art, lsn: r.LSN, page: page, version: r.Version, scope: scope, flags: FlagGone}
}

// drop takes a version that is not the newest out of the catalogue, and gives its pages that no version has any more:
// those for which it was the newest that had them (share).
func (c *catalogue) drop(t *hot, rows []store.PageRow) (gone []uint64, err error) {
	if t.Art > uint64(len(c.arts)) || t.Version >= c.art(t.Art).version {
		return nil, codec.ErrMalformed
	}
	for i := range rows {
		num := rows[i].Num
		if num > uint64(len(c.pages)) || c.page(num).art != t.Art {
			return nil, codec.ErrMalformed
		}
		p := c.page(num)
		if p.head != t.Version || p.gone() {
			continue
		}
		col := goneCol(t.Art, t.Scope, &rows[i], uint32(i+1))
		col.end, col.next = p.end, p.next
		*p = col
		c.grouped.set(num, false)
		c.Versions--
		c.dropped++
		gone = append(gone, num)
	}
	return gone, nil
}

// locateGone finds a page of a dropped version that newer ones have: a reference to a page names the version in which it
// appeared. The caller holds cat.mu.
func (s *Engine) locateGone(scope string, h *store.Head, ref store.Ref) (store.Located, error) {
	if ref.Page > 0 && ref.Page <= len(h.Rows) {
		num := h.Rows[ref.Page-1].Num
		if p := s.Catalogue.page(num); !p.gone() {
			return store.Located{Scope: scope, Version: p.head, LSN: h.LSN, Pages: []store.PageKey{{Num: num, Version: p.head}}, Expires: p.expires}, nil
		}
	}
	return store.Located{}, store.GoneError(h, ref.Page)
}

// GoneRow says whether a head row is that of a dropped version.
func GoneRow(row []byte) bool {
	t := DecodeHot(&codec.Decoder{B: row})
	return t.Flags&FlagGone != 0
}

// replacedRows counts the stored head rows in whose place come those that say that the version is gone.
func replacedRows(tx Reader, o *Overlay, rows map[HeadKey][]byte) (n int) {
	keys := map[HeadKey]bool{}
	for _, d := range o.gone {
		keys[d.key] = true
	}
	for _, f := range o.forgot {
		keys[HeadKey{f.art, f.below}] = true
	}
	for k := range keys {
		if rows[k] != nil && tx.Get(TableMeta, headRowKey(k)) != nil {
			n++
		}
	}
	return n
}

// applyGone deletes the texts of the pages that no version has any more, and their vectors, also those that came late.
func applyGone(tx Writer, o *Overlay, n *RowCounts) error {
	for _, d := range o.gone {
		for _, num := range d.nums {
			key := textRowKey(num)
			if tx.Get(TableContent, key) != nil {
				n.Content--
			}
			if err := tx.Delete(TableContent, key); err != nil {
				return err
			}
			if err := deletePrefix(tx, TableVec, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// deletePrefix deletes the rows whose keys begin with a prefix.
func deletePrefix(tx Writer, t Table, prefix []byte) error {
	var keys [][]byte
	for k := range tx.From(t, prefix) {
		if !bytes.HasPrefix(k, prefix) {
			break
		}
		keys = append(keys, slices.Clone(k))
	}
	for _, k := range keys {
		if err := tx.Delete(t, k); err != nil {
			return err
		}
	}
	return nil
}

// nameGone says how many pages that stood at the moment of the past that is asked of were dropped since. The caller
// holds cat.mu.
func (s *Engine) nameGone(v *corpus, q *store.CandidateQuery, out *store.Candidates) {
	if v.past == nil || s.Catalogue.dropped == 0 {
		return
	}
	n := 0
	for i := range s.Catalogue.pages {
		p := &s.Catalogue.pages[i]
		if !p.gone() || p.lsn > q.AsOf || p.end <= q.AsOf || v.masked[p.art] || !slices.Contains(v.chain, p.scope) {
			continue
		}
		if n++; n <= nearestMisses {
			c := s.Catalogue.candidate(uint64(i + 1))
			c.Excluded = store.ReasonGone
			addMiss(out, c)
		}
	}
	if n > 0 {
		i := slices.IndexFunc(out.Excluded, func(e store.Excluded) bool { return e.Reason == store.ReasonGone })
		out.Excluded[i].Count = n
	}
}
