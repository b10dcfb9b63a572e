package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

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
// version in a record before its drop keeps it.
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
	from  *format.Version
}

// Limits of a run: what one commit may drop, and after how many commits a checkpoint frees the
// space.
const (
	dropVersions = 256
	dropPages    = 4096 // page rows in one commit, shared ones too: they are the bulk of its record
	dropCommits  = 32
	gcRefs       = 100 // references in a report
)

// collector is one run. It holds one part of the drops at a time, so its memory does not grow with
// their number. The names grow with the number of references.
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
		art uint64 // some of its versions in an earlier part stayed after all, and may share pages with the rest
		why string
	}
	commits int           // that dropped something
	wrote   bool          // a commit of this run succeeded
	forget  []*store.Head // rows that go, planned by planRows
	deleted []*store.Head // artefacts that are deleted and dropped
	rep     store.GCReport
	gone    format.Tallies
	kept    format.Tallies
}

// Collect runs gc, or only plans it. The report says what was dropped even if the run ended with an
// error. A last checkpoint frees the space of the dropped versions, even after an error, unless the
// store is closed.
func (s *Engine) Collect(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	if err := s.gcMu.Take(ctx); err != nil {
		return store.JobReport{}, err
	}
	defer s.gcMu.Unlock()
	c := &collector{s: s, ctx: ctx, job: job.GC, dry: job.Kind == store.JobGCPlan, progress: progress, names: &names{kinds: s.opts.State, Names: format.NewNames()},
		now: codec.Micros(s.opts.Now()), gone: format.Tallies{}, kept: format.Tallies{}}
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
	return c.s.eachState(c.ctx, k.Prefix, func(r store.StateRow) error {
		c.names.mu.Lock()
		err := c.names.State(k, r.Value)
		c.names.mu.Unlock()
		if err != nil {
			return c.s.Corrupt(fmt.Sprintf("state row %q", r.Key), err)
		}
		return nil
	})
}

// each calls fn for every artefact, in the order of their numbers. Artefacts that come later are
// not visited: what they name was reported by the sequencer.
//
// It takes cat.mu for moments only, so commits go on. The number of artefacts only grows, so a
// number that was valid stays valid.
func (c *collector) each(what string, fn func(art uint64) error) error {
	c.s.cat.mu.RLock()
	total := uint64(c.s.cat.arts.len())
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
// expires is the expiry of the newest version; it is in the column of each of its pages.
func (c *collector) state(art uint64) (scope string, newest uint32, live bool, expires int64) {
	cat := c.s.cat
	cat.mu.RLock()
	defer cat.mu.RUnlock()
	a := cat.art(art)
	if live = a.live(); live {
		expires = cat.expires(cat.page(uint64(a.first)))
	}
	return cat.scopeName(a.scope), cat.newestOf(a).version, live, expires
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
	c.names.Lineage(h.Scope, &h.Artefact)
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
	_, ours := format.KeepIn(c.job, scope)
	if newest == 1 && !expired || !ours {
		return nil
	}
	heads, err := c.s.heads(art, newest)
	if err != nil || newest == 0 {
		return err
	}
	c.planRows(heads)
	c.passNames(heads)
	for _, v := range format.Judge(heads, c.job, codec.FromMicros(c.now), c.whyNamed) {
		if v.Kept != "" {
			c.kept.AddKept(v)
		} else if err := c.addDrop(v); err != nil {
			return err
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

// passNames tells names which pages of dropped versions still belong to later versions: a reference
// to such a page keeps those.
func (c *collector) passNames(heads []*store.Head) {
	if !slices.ContainsFunc(heads, func(h *store.Head) bool { return h.Gone }) {
		return
	}
	still := map[uint64]bool{}
	for _, h := range heads {
		for i := 0; i < len(h.Rows) && !h.Gone; i++ {
			still[h.Rows[i].Num] = true
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

// whyNamed says what names a version, or that a reader in flight may read it.
func (c *collector) whyNamed(v *format.Version) string {
	if why := c.names.why(v.Head); why != "" || !c.s.holds.keep(v.By, v.Ended) {
		return why
	}
	return format.KeptInUse
}

// flush commits the part. Readers in flight are asked again first: one may have begun since the
// plan. The two test steps around that question pin its place. Versions that the sequencer kept are
// counted as kept, and the rest of their artefact stays in this run (stuck), because its pages may
// be shared. The drop is one commit, so a part that failed dropped nothing.
func (c *collector) flush() error {
	if len(c.part) == 0 {
		return nil
	}
	if err := c.s.At("gc asks"); err != nil {
		return err
	}
	for _, d := range c.part {
		if c.s.holds.keep(d.from.By, d.from.Ended) {
			d.kept = format.KeptInUse
		}
	}
	if err := c.s.At("gc asked"); err != nil {
		return err
	}
	if err := c.deleteExpired(); err != nil {
		return err
	}
	err := c.commit(Request{Batch: store.Batch{Scope: cmp.Or(c.job.Scope, store.OperatorScope), Leaf: manifest.Record{Action: "drop"}}, extra: &extra{drops: c.part}})
	if err != nil && !errors.Is(err, errNoneLeft) {
		return err
	}
	for _, d := range c.part {
		if d.from.Kept = d.kept; d.kept != "" {
			c.stuck.art, c.stuck.why = d.head.Art, d.kept
			c.kept.AddKept(d.from)
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
		if d.from.Why == format.GoneExpired && d.kept == "" {
			byScope[d.head.Scope] = append(byScope[d.head.Scope], d)
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(byScope)) {
		for {
			b := Request{Batch: store.Batch{Scope: scope, Leaf: manifest.Record{Action: "delete expired"}}}
			for _, d := range byScope[scope] {
				if d.kept == "" {
					b.Deletes = append(b.Deletes, d.head.ID)
					b.Expect = append(b.Expect, store.Precondition{Ref: store.Ref{Scope: scope, ID: d.head.ID}, LSN: d.from.Head.LSN})
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
					d.kept = format.KeptChanged
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

// names collects the references that keep versions from gc. It collects them twice: from what is
// stored, and then from every commit while gc runs (sequencer.watch), because a batch may name a
// version between the plan and the drop. enqueueDrops asks for the last time, at the tail of the
// log, where no other commit can come in between. So gc needs no lock that keeps commits out for as
// long as it walks.
//
// A name is only ever added during a run. A version whose last name goes away during the run stays
// until the next run.

// names is a set of names that commits and gc fill at the same time.
type names struct {
	kinds []store.StateKind
	mu    sync.Mutex // a leaf; StateKind.Names runs under it and must not call the store
	format.Names
}

// commit adds what a batch names, held or applied. The sequencer calls it for each batch while gc
// runs.
func (n *names) commit(b *store.Batch, held bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if held {
		n.Held(b)
	}
	for i := 0; i < len(b.Puts) && !held; i++ {
		n.Lineage(b.Scope, &b.Puts[i].Artefact)
	}
	for _, r := range b.State {
		if k := format.KindOf(n.kinds, r.Key); k != nil && k.Names != nil && r.Value != nil {
			_ = n.State(k, r.Value) // bytes of just now
		}
	}
}

// followed adds what a commit of another host names. A log has the tail when it calls Follow; nil:
// no gc runs.
func (n *names) followed(c *format.Commit) {
	if n == nil {
		return
	}
	if len(c.Held) > 0 {
		if h, err := format.DecodeHeld(c.Held); err == nil && h.Decided == "" {
			n.commit(&h.Batch, true)
		}
	}
	n.commit(&store.Batch{State: c.State}, false)
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range c.Heads {
		if h := c.Heads[i].Head; h != nil {
			n.Lineage(h.Scope, &h.Artefact)
		}
	}
}

// pass is Names.Pass under the lock.
func (n *names) pass(h *store.Head, nums []uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Pass(h, nums)
}

// why is Names.Why under the lock.
func (n *names) why(h *store.Head) string {
	if n == nil {
		return format.KeptChanged // gc has ended: without names nothing may be dropped
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Why(h)
}

// The report of one run, and the list of drops that becomes a commit when it is long enough. A plan
// (dry run) counts the same versions as a run, but cannot know what is named between plan and drop,
// so a run may drop less.

// addDrop puts a version on the list of the next commit, and commits the list when it is long. If a
// version of the same artefact stayed in an earlier part, this one stays as well.
func (c *collector) addDrop(v *format.Version) error {
	if c.dry {
		c.countDropped(v)
		return nil
	}
	if v.Head.Art == c.stuck.art {
		v.Kept = c.stuck.why
		c.kept.AddKept(v)
		return nil
	}
	d := &drop{head: format.Tombstone(v.Head, c.run.String()), from: v, group: format.GroupName(v.Head)}
	d.cold = format.EncodeCold(d.head)
	c.part = append(c.part, d)
	c.size += len(v.Head.Rows)
	if most := c.most(); len(c.part) >= dropVersions/most || c.size >= dropPages/most {
		return c.flush()
	}
	return nil
}

// most is the factor by which a commit must be smaller than usual. On a full disk it must fit into
// the reserve of the log, and its checkpoint into the little space there is: every page that loses
// rows is written anew.
func (c *collector) most() int {
	if !c.dry && c.s.opts.Space.Tight() {
		return 32
	}
	return 1
}

// countDropped counts a version that is dropped, or would be.
func (c *collector) countDropped(v *format.Version) {
	c.gone.Add(v.Why, v)
	format.Count(&c.rep.Dropped, v)
	if len(c.rep.Refs) < gcRefs {
		c.rep.Refs = append(c.rep.Refs, v.Ref())
	}
}

// report returns the tallies by reason, in the order of the reasons. Trace is empty if nothing was
// written.
func (c *collector) report() store.GCReport {
	rep := c.rep
	rep.DryRun, rep.Reasons, rep.Kept = c.dry, c.gone.Lines(), c.kept.Lines()
	if c.wrote {
		rep.Trace = c.run.String()
	}
	return rep
}
