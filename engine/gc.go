package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// How gc works:
//
//	names     what held batches, lineage and sources of live artefacts, and sessions name; then every new commit adds its own
//	plan      artefact by artefact, in the order of their numbers: which versions ended long ago and are not named
//	drop      some hundred at a time, in a commit: each head row is replaced by one that only says what the version was
//	apply     a checkpoint writes those rows and deletes texts and vectors, in the transaction that moves the applied LSN
//
// A drop has an LSN. So the log orders it among commits, redo repeats it, and a crash leaves it
// done or not done. The rows of dropped versions stay because questions about the past need them:
// when each version was current, which page answers for it, and which artefacts it superseded.
//
// Whether a version is named is decided in the sequencer, at the tail of the log: whatever names a
// version in a record before that of its drop keeps it.
//
// If a run crashes or its context ends, its completed commits stay. The next run does not resume:
// it makes a new plan and finds less to do. gcMu keeps a second run, and an erase, away for the
// whole run; commits and reads go on.

// drop is a version to be dropped. kept says why it was not; the sequencer sets it.
type drop struct {
	head *store.Head // the row that stays of it
	kept string

	cold  []byte
	group string // the name of the group Head.GroupNum in the catalogue
	from  *version
}

// Limits of a run: what one commit may drop, and after how many commits a checkpoint frees the
// space.
const (
	dropVersions = 256
	dropPages    = 4096 // page rows in one commit, shared ones too: they are the bulk of its record
	dropCommits  = 32
	gcRefs       = 100 // references in a report
)

// version is one version of an artefact, as gc judges it. kept and why are never both empty once
// whyKept has run.
type version struct {
	head   *store.Head
	ended  int64  // when it stopped being current, microseconds
	by     uint64 // the LSN of the commit that ended it; 0: it expired
	why    string // why it may go
	kept   string // why it stays; "": it goes
	live   bool   // it is the newest, and its artefact is not deleted
	pages  int    // how many go with it: those that no newer version has
	bytes  int64
	expect uint64 // the artefact must have this LSN when it is deleted first; 0: no delete is needed
}

// collector is one run. It holds one part of the drops at a time, so its memory does not grow with
// their number. The names grow with the number of references.
//
// Life of a run (walk); each step commits its own part, and an error or an end of ctx leaves what
// was committed:
//
//	watch          the sequencer reports what new commits name
//	nameStored     names of held batches and state rows
//	nameLineage    names of live artefacts
//	planArtefact   plans versions, and commits full parts of drops (addDrop, flush)
//	forgetRows     rows of dropped versions and of deleted artefacts
//	forgetState    drafts, reviews, rows of deleted turns, journals, names of scopes
//	vectors        rows of models that are not used any more
type collector struct {
	s        *Engine
	ctx      context.Context
	job      *store.GCJob
	keep     store.GCKeep // in the scope of the artefact at hand
	dry      bool
	progress store.Progress
	names    *names
	run      ulid.ULID
	now      int64
	part     []*drop
	size     int // page rows in part
	stuck    struct {
		art uint64 // some of its versions in an earlier part stayed after all, and may share pages with the rest
		why string
	}
	commits int           // that dropped something
	wrote   bool          // a commit of this run succeeded
	forget  []*store.Head // rows that go, planned by planRows
	deleted []*store.Head // artefacts that are deleted and dropped
	rep     store.GCReport
	gone    map[string]*tally
	kept    map[string]*tally
}

// Collect runs gc, or only plans it. The report says what was dropped even if the run ended with an
// error. A last checkpoint frees the space of the dropped versions, even after an error, unless the
// store is closed.
func (s *Engine) Collect(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	if err := s.gcMu.Take(ctx); err != nil {
		return store.JobReport{}, err
	}
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
		_ = s.opts.Space.Relieve(ctx) // the log repeats rows of the file, and takes the space that gc needs
	}
	if err == nil {
		err = c.walk()
	}
	if c.wrote && !s.closed.Load() { // after an error too
		cerr := s.opts.Checkpoint(context.WithoutCancel(ctx))
		if !errors.Is(cerr, store.ErrClosed) { // Close makes the checkpoint
			err = errors.Join(err, cerr)
		}
	}
	return store.JobReport{GC: c.report()}, err
}

// walk does the steps of a run. Names are complete before the first version is planned: stored rows
// are read after watch begins, so each commit is seen by one of the two.
func (c *collector) walk() error {
	if c.job.Reviews != nil {
		return c.reviews()
	}
	if !c.dry {
		defer c.s.unwatch()
		if err := c.s.watch(c.ctx, c.names); err != nil {
			return err
		}
	}
	if err := c.nameStored(); err != nil {
		return err
	}
	if err := c.each("what names versions", c.nameLineage); err != nil {
		return err
	}
	if err := c.each("versions", c.planArtefact); err != nil {
		return err
	}
	if err := c.flush(); err != nil {
		return err
	}
	if err := c.forgetRows(); err != nil {
		return err
	}
	if err := c.forgetState(); err != nil {
		return err
	}
	return c.vectors()
}

// watch makes the sequencer report what commits name from now on, and waits for the commits that
// were in flight before.
//
// Commits in flight are waited for, because their references went into the sequencer before it
// reported any; once they are installed, the walk over what is stored sees them.
func (s *Engine) watch(ctx context.Context, n *names) error {
	tail, err := s.log.Acquire(ctx)
	if err != nil {
		return err
	}
	s.seq.watch = n
	s.seq.flight.Lock()
	under := slices.Collect(maps.Values(s.seq.ids))
	s.seq.flight.Unlock()
	tail.Release()
	for _, p := range under {
		if err := s.wait(ctx, p); err != nil {
			return cmp.Or(ctx.Err(), err) // the unknown outcome is another caller's
		}
	}
	return nil
}

// unwatch ends what watch began.
func (s *Engine) unwatch() {
	tail, err := s.log.Acquire(context.Background())
	if err != nil {
		return // there will be no commits either
	}
	defer tail.Release()
	s.seq.watch = nil
}

// eachHeldBatch shows fn every held batch, decoded and compared with the audit. A damaged one ends
// the walk: its references are not known, so no version may be dropped.
func (c *collector) eachHeldBatch(fn func(id ulid.ULID, h *store.HeldBatch)) error {
	var damage error
	_, err := c.s.eachHeld(ulid.ULID{}, func(id ulid.ULID, row []byte, err error) bool {
		var h store.HeldBatch
		if err == nil {
			h, err = format.DecodeHeld(row)
		}
		if err == nil {
			err = c.s.provedHeld(id[:], row)
		}
		if err != nil {
			damage = c.s.Corrupt("held batch "+id.String(), err)
			return false
		}
		fn(id, &h)
		return true
	})
	return errors.Join(err, damage)
}

// nameStored collects what held batches and session rows name.
func (c *collector) nameStored() error {
	err := c.eachHeldBatch(func(_ ulid.ULID, h *store.HeldBatch) {
		if h.Decided == "" {
			c.names.commit(&h.Batch, true)
		}
	})
	if err != nil {
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

// each calls fn for every artefact, in the order of their numbers. Artefacts that come later are
// not visited: what they name was reported by the sequencer.
//
// It takes cat.mu for moments only, so commits go on. The number of artefacts only grows, so a
// number that was valid stays valid.
func (c *collector) each(what string, fn func(art uint64) error) error {
	c.s.cat.mu.RLock()
	total := uint64(len(c.s.cat.arts))
	c.s.cat.mu.RUnlock()
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

// state returns what the catalogue says of an artefact.
//
// expires is that of the newest version; it is in the column of each of its pages.
func (c *collector) state(art uint64) (scope string, newest uint32, live bool, expires int64) {
	cat := c.s.cat
	cat.mu.RLock()
	defer cat.mu.RUnlock()
	a := cat.art(art)
	if live = a.pages > 0; live {
		expires = cat.page(cat.nums(art)[0]).expires
	}
	return cat.scopeName(a.scope), a.version, live, expires
}

// nameLineage adds what a live artefact was made from.
func (c *collector) nameLineage(art uint64) error {
	_, newest, live, _ := c.state(art)
	if !live {
		return nil
	}
	h, err := c.s.head(format.HeadKey{Art: art, Version: newest})
	if err != nil {
		return err
	}
	c.names.mu.Lock()
	defer c.names.mu.Unlock()
	c.names.lineage(h.Scope, &h.Artefact, false)
	return nil
}

// planArtefact plans what goes of one artefact. An artefact with a single version that has not
// expired has nothing to drop.
//
// The rows of versions that lost their content earlier are planned first (planRows), then the
// versions that still have it. Only whole artefacts are planned at once, because keepShared must
// see every version that may share a page.
func (c *collector) planArtefact(art uint64) error {
	scope, newest, live, expires := c.state(art)
	expired := live && expires != 0 && expires <= c.now
	keep, ours := c.job.KeepIn(scope)
	if newest == 1 && !expired || !ours {
		return nil
	}
	c.keep = keep
	heads, err := c.s.heads(art, newest)
	if err != nil || newest == 0 {
		return err
	}
	c.planRows(heads)
	vs := c.versions(heads, expired)
	c.passNames(heads, vs)
	for i := range vs {
		vs[i].kept = c.whyKept(vs[i], len(vs)-1-i)
	}
	keepShared(vs)
	for _, v := range vs {
		switch {
		case v.kept != "":
			c.countKept(v)
		default:
			if err := c.addDrop(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// heads returns the rows of an artefact, oldest first, down to its floor.
func (s *Engine) heads(art uint64, newest uint32) (heads []*store.Head, err error) {
	for v := newest; v > 0; v-- {
		h, err := s.head(format.HeadKey{Art: art, Version: v})
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

// versions returns the versions that still have content, oldest first. A version ended with the
// commit of the next one, or when it expired if that was earlier and expired versions may go.
//
// The pages and bytes of a version are those that go if all older versions go too: pages that no
// newer version has. So the sums in the report count each page once.
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

// passNames tells names which pages of dropped versions still belong to later versions: a reference
// to such a page keeps those.
func (c *collector) passNames(heads []*store.Head, vs []*version) {
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

// whyKept says why a version stays; "": it goes. newer is the number of newer versions of its
// artefact. Versions that a reader in flight may read stay too (holds).
func (c *collector) whyKept(v *version, newer int) string {
	switch {
	case v.why == "":
		return store.KeptNewest
	case newer < c.keep.Versions:
		return store.KeptNewest
	case v.why == store.GoneExpired && !c.job.Expired:
		return store.KeptExpired
	case v.ended > c.now-c.keep.For.Microseconds():
		return store.KeptYoung
	}
	if why := c.names.why(v.head); why != "" {
		return why
	}
	if c.s.holds.keep(v.by, v.ended) {
		return store.KeptInUse
	}
	return ""
}

// keepShared keeps versions that share pages with versions that stay. A page is known by the newest
// version that has it, so that one stays if any of them does. And a version whose pages all stay
// would free nothing, so it stays too.
//
// Its time grows as the number of page rows does: one walk down the ages is enough, because a
// version that is made to stay is never older than the one that made it stay.
func keepShared(vs []*version) {
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

// countKept counts a version that has ended and is kept, and names those that ended first.
func (c *collector) countKept(v *version) {
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

// flush commits the part. Readers in flight are asked again first: one may have begun since the
// plan. The two test steps around that question pin its place. Versions that the sequencer kept are
// counted as kept, and the rest of their artefact stays in this run (stuck), because its pages may
// be shared.
func (c *collector) flush() error {
	if len(c.part) == 0 {
		return nil
	}
	if err := c.s.At("gc asks"); err != nil {
		return err
	}
	for _, d := range c.part {
		if c.s.holds.keep(d.from.by, d.from.ended) {
			d.kept = store.KeptInUse
		}
	}
	if err := c.s.At("gc asked"); err != nil {
		return err
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
			c.countKept(d.from)
			continue
		}
		c.countDropped(d.from)
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

// deleteExpired deletes the artefacts whose newest version is in the part, in a commit of its own
// before the drop. An artefact that was written since the plan is a conflict: it stays, and the
// others are tried again.
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

// commit submits one batch of the run. The context is looked at before, never during: a commit that
// began is waited for, so the report has everything that was dropped.
func (c *collector) commit(b Request) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	id, err := store.NewID(c.s.opts.Now(), c.s.opts.Rand)
	if err != nil {
		return err
	}
	b.ID, b.Trace, b.Actor, b.Now = id, c.run.String(), store.OperatorScope, c.s.opts.Now()
	b.Leaf.Type, b.Leaf.By = manifest.TypeGC, c.job.By
	b.Leaf.Reason = c.job.Why
	if c.job.Scopes == nil && c.job.Reviews == nil {
		b.Leaf.Note = fmt.Sprintf("kept for %s, and %d of an artefact", c.job.KeepFor, c.job.KeepVersions)
	}
	_, err = c.s.Submit(context.WithoutCancel(c.ctx), b)
	c.wrote = c.wrote || err == nil
	return err
}
