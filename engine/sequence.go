package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"
)

// outcomeDays is how long the outcome of a batch id is remembered. An older id is refused and never applied again.
const outcomeDays = 7 * 24 * time.Hour

// idAhead is how far the clock of whoever made a batch id may be ahead of ours. It is less than what forgetOutcomes
// keeps beyond outcomeDays, so that no id in use is ever forgotten.
const idAhead = 12 * time.Hour

// sequencer is the one place where an order is made. Under mu a batch is judged against the catalogue and the batches
// in flight, gets its LSN and its numbers, and enters the log's group buffer; so the order of the log is the order of
// LSNs, of leaves, and of installs. Judging outside loses updates: two batches that read x@5 would both pass before
// either is installed.
//
// mu is first in the lock order after ckptMu; flight is a leaf below it, and is also taken by the installer.
type sequencer struct {
	Mu        sync.Mutex
	lsn       uint64
	nextArt   uint64
	nextNum   uint64
	nextGroup uint64
	scopes    map[string]uint32
	groups    map[artKey]uint64
	reserve   int    // bytes of leaves in the log's reserve
	record    []byte // encoded last, to use again

	flight sync.Mutex
	queue  []*pending // in LSN order, not installed
	arts   map[string]*pending
	ids    map[ulid.ULID]*pending
	broken bool // abandoned: nothing is taken into flight any more

	watch *names // while gc runs: what it must know of commits that come meanwhile; under mu
}

// pending is a batch in the log's buffer that is not yet installed. done is closed by the installer, after which
// outcome may be read; a batch that conflicts only with one in flight waits for it and is judged again.
type pending struct {
	record  commitRecord
	keys    []string
	seq     uint64
	outcome store.Outcome
	done    chan struct{}
	// analysed is waited for by the installer; see analyse
	analysed sync.WaitGroup

	installed bool // set by the installer before done is closed
}

func (q *sequencer) init() {
	q.scopes, q.groups = map[string]uint32{}, map[artKey]uint64{}
	q.arts, q.ids = map[string]*pending{}, map[ulid.ULID]*pending{}
}

// start takes the next numbers from the recovered catalogue.
func (q *sequencer) start(s *Engine) {
	q.lsn = s.Catalogue.LSN
	q.nextArt, q.nextNum, q.nextGroup = uint64(len(s.Catalogue.arts))+1, uint64(len(s.Catalogue.pages))+1, uint64(len(s.Catalogue.groups))+1
	for name, n := range s.Catalogue.byName {
		q.scopes[name] = n
	}
	for k, n := range s.Catalogue.named {
		q.groups[k] = n
	}
}

// abandon wakes everybody who waits for a batch that will never be installed.
func (q *sequencer) abandon() {
	q.flight.Lock()
	defer q.flight.Unlock()
	q.broken = true
	for _, p := range q.queue {
		close(p.done)
	}
	q.queue = nil
}

// Commit: durable, then visible, then answered. See the Store interface.
func (s *Engine) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	return s.Submit(ctx, Request{Batch: b})
}

// Request is a batch with what only this package asks of one.
type Request struct {
	store.Batch
	// drops are the versions that gc takes away. One that is named by now stays, and says so.
	drops []*drop
	// forget are head rows by which gc takes rows of dropped versions away.
	forget []*store.Head
	// Carried: the batch was held in another database. A conflict that it has by now waits for review with it.
	Carried bool
}

func (s *Engine) Submit(ctx context.Context, b Request) (store.Outcome, error) {
	if err := s.Writable(); err != nil {
		return store.Outcome{}, err
	}
	if err := store.CheckClock(b.Now); err != nil {
		return store.Outcome{}, err
	}
	if age := b.Now.Sub(ulid.Time(b.ID.Time())); age > outcomeDays {
		return store.Outcome{}, fmt.Errorf("%w: %s is %s old; use a new id", store.ErrTxnExpired, b.ID, age.Round(time.Hour))
	}
	if now := max(b.Now.UnixMilli(), 0); b.ID.Time() > uint64(now+idAhead.Milliseconds()) { // it would look like the present to what forgets old outcomes
		return store.Outcome{}, store.Invalid("batch id", b.ID.String()+", of "+ulid.Time(b.ID.Time()).UTC().Format(time.DateOnly), "a ULID of about now")
	}
	if b.Bound == nil {
		if err := b.Bind(); err != nil {
			return store.Outcome{}, err
		}
	}
	if err := s.throttle(ctx, &b.Batch); err != nil {
		return store.Outcome{}, err
	}
	done, err := s.opts.Space.Admit(ctx, b.Bytes(), len(b.Puts) > 0)
	if err != nil {
		return store.Outcome{}, err
	}
	defer done()
	for full := false; ; {
		p, out, err := s.sequence(ctx, &b)
		if errors.Is(err, ErrLogFull) && !full && s.opts.Space.Relieve(ctx) == nil {
			full = true
			continue
		}
		if err != nil || p == nil {
			return out, s.opts.Space.NoRoom(err, b.Bytes())
		}
		if p.seq == 0 { // somebody else's, in flight under the same id or artefact
			if err := s.wait(ctx, p); err != nil {
				return store.Outcome{}, err
			}
			continue
		}
		go s.analyseBehind(p)
		if err := s.Log.SyncOr(ctx, p.seq, p.done); err != nil {
			return store.Outcome{}, s.SyncError(ctx, err)
		}
		if !p.installed { // the store failed meanwhile: durable, and never visible here
			return store.Outcome{}, s.Failure()
		}
		return p.outcome, nil
	}
}

func (s *Engine) Writable() error {
	switch {
	case s.Closed.Load():
		return store.ErrClosed
	case s.opts.ReadOnly:
		return store.ErrReadOnly
	}
	return s.Failure()
}

func (s *Engine) SyncError(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w; it may still happen: repeat with the same id", store.ErrOutcomeUnknown, err)
	}
	return s.Fail(err)
}

// wait is for a batch in flight. p is a copy that carries only the channel.
func (s *Engine) wait(ctx context.Context, p *pending) error {
	// Somebody must drive the log while we wait; whoever enqueued it does, unless its context ended.
	if err := s.Log.Sync(ctx, s.Log.Last()); err != nil {
		return s.SyncError(ctx, err)
	}
	select {
	case <-p.done:
		return s.Failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prepared is what can be done for a batch outside the sequencer.
type prepared struct {
	old      []*store.Head // newest head of each artefact put, nil: none
	again    []bool        // which of them another artefact superseded by now; filled in by judge
	beats    []bool        // which of them supersede an artefact that stands; filled in by judge
	heads    []*store.Head // what each put makes of it, the numbers still open
	cold     [][]byte
	keys     []string // writeKeys
	held     *store.HeldBatch
	releases uint64
	known    *store.Outcome
	spent    bool // the audit has its id; sequence tells one in flight from one whose outcome is no longer kept
}

// sequence judges a batch and puts it into the log's buffer. It returns the pending batch; or, with seq 0, one to wait
// for before trying again; or nil and the outcome, when the id is known.
func (s *Engine) sequence(ctx context.Context, b *Request) (*pending, store.Outcome, error) {
	pre, err := s.prepare(ctx, b)
	if err != nil {
		return nil, store.Outcome{}, err
	}
	if pre.known != nil {
		return nil, *pre.known, nil
	}
	s.Seq.Mu.Lock()
	defer s.Seq.Mu.Unlock()
	if err := s.Writable(); err != nil {
		return nil, store.Outcome{}, err
	}
	if w := s.Seq.blocker(b, pre.keys); w != nil {
		return &pending{done: w.done}, store.Outcome{}, nil
	}
	if pre.releases != s.Releases.Load() {
		return s.again()
	}
	if row, _ := s.overlayOutcome(b.ID); row != nil {
		out, err := s.answer(row, &b.Batch)
		if err != nil {
			return nil, store.Outcome{}, err
		}
		return nil, *out, nil
	}
	if pre.spent {
		return nil, store.Outcome{}, fmt.Errorf("%w: %s was used, and its outcome is no longer kept; the manifest has it under that trace", store.ErrTxnExpired, b.ID)
	}
	if decided, err := s.decidedMeanwhile(ctx, b); decided || err != nil {
		if err != nil {
			return nil, store.Outcome{}, err
		}
		return s.again()
	}
	v := s.judge(b, pre)
	switch {
	case v.retry:
		return s.again()
	case v.conflict != nil, v.err != nil:
		return nil, store.Outcome{}, s.refuse(b, v)
	}
	p, err := s.enqueue(b, pre, v)
	return p, store.Outcome{}, err
}

// decidedMeanwhile says whether a held batch was decided after it was prepared for review: then prepare must see that.
func (s *Engine) decidedMeanwhile(ctx context.Context, b *Request) (bool, error) {
	if b.From == (ulid.ULID{}) {
		return false, nil
	}
	h, err := s.Held(ctx, b.From)
	return h.Decided != "", err
}

// again asks for another round at once.
func (s *Engine) again() (*pending, store.Outcome, error) {
	done := make(chan struct{})
	close(done)
	return &pending{done: done}, store.Outcome{}, nil
}

// blocker finds a batch in flight that this one must wait for: the same id, or an artefact it judges or writes.
func (q *sequencer) blocker(b *Request, writes []string) *pending {
	q.flight.Lock()
	defer q.flight.Unlock()
	if p := q.ids[b.ID]; p != nil {
		return p
	}
	if len(q.arts) == 0 { // not the queue: it is empty while a group is being installed
		return nil
	}
	for _, key := range writes {
		if p := q.arts[key]; p != nil {
			return p
		}
	}
	for _, e := range b.Expect {
		if p := q.arts[FlightKey(e.Ref.Scope, e.Ref.ID)]; p != nil {
			return p
		}
	}
	for _, c := range b.Context {
		if p := q.arts[FlightKey(c.Scope, c.ID)]; p != nil {
			return p
		}
	}
	return nil
}

func FlightKey(scope, id string) string { return scope + "\x00" + id }

// writeKeys names the artefacts a batch writes or retires.
func writeKeys(b *Request) []string {
	keys := make([]string, 0, len(b.Puts)+len(b.Deletes)+1)
	for i := range b.Puts {
		a := &b.Puts[i].Artefact
		keys = append(keys, FlightKey(b.Scope, a.ID))
		for _, id := range a.Supersedes { // whoever saw those goes stale
			keys = append(keys, FlightKey(b.Scope, id))
		}
	}
	for _, id := range b.Deletes {
		keys = append(keys, FlightKey(b.Scope, id))
	}
	for _, h := range b.forget {
		keys = append(keys, FlightKey(h.Scope, h.ID))
	}
	if b.From != (ulid.ULID{}) {
		keys = append(keys, "\x00held"+b.From.String())
	}
	return keys
}

// prepare does the slow part outside the sequencer: reads the old heads, packs what is cold.
func (s *Engine) prepare(ctx context.Context, b *Request) (*prepared, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	pre := &prepared{releases: s.Releases.Load()}
	var err error
	if pre.known, pre.spent, err = s.outcome(&b.Batch); err != nil || pre.known != nil || pre.spent {
		return pre, err
	}
	if b.Action == store.ActApprove || b.Action == store.ActReject {
		if err := s.prepareReview(ctx, b, pre); err != nil || pre.known != nil {
			return pre, err
		}
	}
	for i := range b.Puts {
		p := &b.Puts[i]
		old, err := s.newest(b.Scope, p.Artefact.ID)
		if err == nil {
			old, err = s.withoutLost(old, p.Pages)
		}
		if err != nil {
			return nil, err
		}
		h := s.headOf(b, p)
		c, err := encodeCold(h)
		if err != nil {
			return nil, fmt.Errorf("ctxpage: encode %s: %w", p.Artefact.ID, err)
		}
		pre.old, pre.heads, pre.cold = append(pre.old, old), append(pre.heads, h), append(pre.cold, c)
	}
	pre.keys = writeKeys(b)
	return pre, nil
}

// headOf is the head a put makes, its numbers still open.
func (s *Engine) headOf(b *Request, p *store.Put) *store.Head {
	return &store.Head{Artefact: p.Artefact, Scope: b.Scope, PutAt: b.Now, Actor: b.Actor, Source: p.Source, PartBytes: p.PartBytes, Counter: p.Counter}
}

// newest reads the newest head of an artefact, nil when there is none.
func (s *Engine) newest(scope, id string) (*store.Head, error) {
	s.Catalogue.Mu.RLock()
	var k HeadKey
	if n := s.Catalogue.byName[scope]; n != 0 {
		if art := s.Catalogue.lookup(n, id); art != 0 {
			k = HeadKey{art, s.Catalogue.art(art).version}
		}
	}
	s.Catalogue.Mu.RUnlock()
	if k.Art == 0 {
		return nil, nil
	}
	return s.head(k)
}

// judgement is what the sequencer decides about a batch.
type judgement struct {
	conflict *store.ConflictError
	stale    []manifest.Stale
	refs     []store.Ref
	hold     string // reason, "": apply
	retry    bool   // the catalogue moved since prepare
	err      error
}

// judge checks preconditions, in the order of the gate: conflict, stale context, then what the caller asked for.
// Called under the sequencer, with nothing in flight on the same artefacts.
func (s *Engine) judge(b *Request, pre *prepared) (v judgement) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	for i, old := range pre.old {
		var have, now uint32
		if old != nil {
			have = old.Version
		}
		again, beats := false, false
		if n := s.Catalogue.byName[b.Scope]; n != 0 {
			a := &b.Puts[i].Artefact
			if art := s.Catalogue.lookup(n, a.ID); art != 0 {
				now, again = s.Catalogue.art(art).version, s.Catalogue.art(art).by != 0
			}
			beats = slices.ContainsFunc(a.Supersedes, func(id string) bool { return s.Catalogue.stands(n, id) })
		}
		if have != now {
			return judgement{retry: true}
		}
		pre.again, pre.beats = append(pre.again, again), append(pre.beats, beats)
	}
	for _, e := range b.Expect {
		if now := s.Catalogue.lsnOf(e.Ref); now != e.LSN && !b.Carried {
			v.conflict = &store.ConflictError{Ref: e.Ref, Have: e.LSN, Now: now}
			return v
		}
	}
	s.judgeContext(b, &v)
	switch {
	case b.Action == store.ActReject:
	case b.Action == store.ActHold:
		v.hold = b.Reason
	case len(v.refs) == 0 || b.OnStale == store.AllowStale || b.Force:
	case b.Action == store.ActApprove:
		v.err = fmt.Errorf("%w: %v; look at them, and approve them as stale if they do not matter", store.ErrStaleContext, v.refs)
	case b.OnStale == store.FailStale:
		v.err = fmt.Errorf("%w: %v", store.ErrStaleContext, v.refs)
	default:
		v.hold = store.ReasonStaleContext
	}
	return v
}

// judgeContext lists the page versions seen that were replaced, expired or deleted since.
func (s *Engine) judgeContext(b *Request, v *judgement) {
	now := codec.Micros(b.Now)
	for _, c := range b.Context {
		if c.Num == 0 || c.Num > uint64(len(s.Catalogue.pages)) {
			continue
		}
		p := s.Catalogue.page(c.Num)
		st := manifest.Stale{Num: c.Num, Seen: p.version}
		switch live := s.Catalogue.resolve(c.Num, 0, nil); {
		case live == c.Num && (p.expires == 0 || p.expires > now):
			continue
		case live == c.Num:
			st.Reason = "expired"
		case live == 0:
			st.Reason = "deleted"
		default:
			st.Reason, st.Now = "replaced", s.Catalogue.page(live).version
		}
		v.stale = append(v.stale, st)
		v.refs = append(v.refs, store.Ref{Scope: c.Scope, ID: c.ID, Page: c.Page, Version: p.version})
	}
}

// lsnOf is the LSN of the last commit that changed an artefact; 0: absent or deleted.
func (c *catalogue) lsnOf(r store.Ref) uint64 {
	n := c.byName[r.Scope]
	if n == 0 {
		return 0
	}
	art := c.lookup(n, r.ID)
	if art == 0 || c.art(art).pages == 0 {
		return 0
	}
	return c.art(art).lsn
}

// refuse records a conflict, or a stale context that was told to fail. Nothing of the batch is applied; the id stays
// free, so that the caller may retry with it.
func (s *Engine) refuse(b *Request, v judgement) error {
	leaf := b.Leaf
	leaf.Type, leaf.Status, leaf.Batch = manifest.TypeConflict, "conflict", b.ID.String()
	leaf.Writes, leaf.Stale = nil, v.stale
	leaf.Trace, leaf.Parent, leaf.Scope, leaf.Actor, leaf.Time = b.ID.String(), b.Trace, b.Scope, b.Actor, codec.Micros(b.Now)
	leaf.LSN = s.Seq.lsn
	why := v.err
	if v.conflict != nil {
		why = v.conflict
		leaf.Conflicts = []manifest.Conflict{{Ref: v.conflict.Ref.String(), Expect: v.conflict.Have, Found: v.conflict.Now}}
	} else {
		leaf.Status, leaf.Reason = "stale", store.ReasonStaleContext
	}
	if b.From != (ulid.ULID{}) {
		leaf.From = b.From.String()
	}
	if err := s.appendLocked([]*manifest.Record{&leaf}, nil); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// enqueue gives a batch its LSN and numbers and puts its record into the log's buffer.
func (s *Engine) enqueue(b *Request, pre *prepared, v judgement) (*pending, error) {
	p := &pending{done: make(chan struct{}), keys: pre.keys}
	rec := &p.record
	s.Seq.watch.commit(&b.Batch, v.hold != "")
	rec.LSN, rec.batch, rec.at, rec.leaf = s.Seq.lsn+1, b.ID, codec.Micros(b.Now), s.Leaves.Size()
	leaf, id := b.Leaf, b.ID.String()
	leaf.Trace, leaf.Parent, leaf.Scope, leaf.Actor, leaf.Time = id, b.Trace, b.Scope, b.Actor, rec.at
	leaf.LSN, leaf.Batch, leaf.Stale = rec.LSN, id, v.stale
	p.outcome = store.Outcome{LSN: rec.LSN, Leaf: rec.leaf, Stale: v.refs, Reason: v.hold}

	var err error
	switch {
	case v.hold != "":
		err = s.enqueueHold(b, v, p, &leaf)
	case b.Action == store.ActReject:
		err = s.enqueueReview(b, pre, p, &leaf, "rejected")
	default:
		if err = s.enqueueApply(b, pre, p, &leaf); err == nil && b.Action == store.ActApprove {
			err = s.enqueueReview(b, pre, p, &leaf, "approved")
		}
	}
	if err != nil {
		return nil, err
	}
	leaf.Status = p.outcome.Status.String()
	if rec.result, err = msgpack.Marshal(&outcomeRow{p.outcome, b.Bound}); err != nil {
		return nil, fmt.Errorf("ctxpage: encode outcome: %w", err)
	}
	if rec.body, err = manifest.Encode(&leaf); err != nil {
		return nil, fmt.Errorf("ctxpage: encode leaf: %w", err)
	}
	if err := s.log3(p, &leaf); err != nil {
		if p.seq != 0 { // the log has the record, the audit has not its leaf: memory no longer follows the log
			err = s.Fail(err)
		}
		return nil, err
	}
	return p, nil
}

// maxKeptRecord bounds the memory kept for the next record, bytes.
const maxKeptRecord = 1 << 20

// log3 takes the three steps that must not be parted: the record into the log's buffer, its leaf into the audit, the
// batch into flight. Numbers were taken before; the sequencer's counters move on only here.
func (s *Engine) log3(p *pending, leaf *manifest.Record) error {
	q := &s.Seq
	urgent := p.record.frees()
	q.flight.Lock()
	defer q.flight.Unlock()
	if q.broken { // since the caller looked: nobody would let go of it
		return s.Failure()
	}
	record := p.record.encode(q.record[:0])
	if cap(record) <= maxKeptRecord {
		q.record = record
	}
	seq, err := s.Log.Append(KindCommit, urgent, record)
	if err != nil {
		return enqueueError(err)
	}
	p.seq = seq
	if err := s.Leaves.AddNew(p.record.leaf, p.record.body, leaf); err != nil {
		return err
	}
	s.appended.Store(true)
	q.lsn = p.record.LSN
	for _, n := range p.record.Scopes {
		q.scopes[n.Name] = n.Num
	}
	for _, g := range p.record.groups {
		q.groups[artKey{g.scope, g.name}] = g.num
		q.nextGroup = g.num + 1
	}
	for i := range p.record.Heads {
		h := p.record.Heads[i].head
		q.nextArt = max(q.nextArt, h.Art+1)
		for _, t := range p.record.Heads[i].Texts {
			q.nextNum = max(q.nextNum, t.Num+1)
		}
	}
	p.analysed.Add(1)
	q.queue = append(q.queue, p)
	q.ids[p.record.batch] = p
	for _, k := range p.keys {
		q.arts[k] = p
	}
	return nil
}

// frees says that a record only takes away: deletes and what gc drops must get through on a full disk.
func (c *commitRecord) frees() bool {
	keeps := func(h headRecord) bool { return !h.head.Deleted && !h.head.Gone && !h.head.Forgotten && !h.head.Floor }
	sets := func(r store.StateRow) bool { return r.Value != nil }
	return len(c.Heads)+len(c.State) > 0 && len(c.Held) == 0 && !slices.ContainsFunc(c.Heads, keeps) && !slices.ContainsFunc(c.State, sets)
}

// analyseBehind lets those go first who are on their way to the log: their group is complete sooner, and the analyses are
// made while the disk works. Begun at once each stood between two members of a group.
func (s *Engine) analyseBehind(p *pending) {
	runtime.Gosched()
	s.analyse(p)
}

// packPages pages of an artefact are many: their analyses are packed while they wait.
const packPages = 64

// analyse makes ready what install gives to the index, while the log syncs: it takes about as long, and no record needs
// it. The installer waits for it before it takes a lock.
func (s *Engine) analyse(p *pending) {
	defer p.analysed.Done()
	heads := p.record.Heads
	for i := range heads {
		for j := range heads[i].Texts {
			if t := &heads[i].Texts[j]; t.analysis == nil {
				an := store.Analyse(s.opts.Analyzer, &heads[i].head.Artefact, t.Text)
				if len(heads[i].Texts) >= packPages {
					an = an.Pack()
				}
				t.analysis = &an
			}
		}
	}
	s.Index.Invert() // what commits before this one added
}

func enqueueError(err error) error {
	if errors.Is(err, ErrLogBroken) { // of this batch nothing was written, but the handle is of no use any more
		return fmt.Errorf("%w: %w; reopen the database and repeat with the same id", store.ErrOutcomeUnknown, err)
	}
	if errors.Is(err, ErrLogTooLarge) {
		return store.Invalid("transaction", "a log record above the limit", "at most 64 MiB; write it in several transactions")
	}
	return fmt.Errorf("ctxpage: log: %w", err)
}

// numbering hands out numbers for one batch without moving the sequencer, so that a failure later leaves no gap.
type numbering struct {
	q        *sequencer
	rec      *commitRecord
	art, num uint64
	group    uint64
}

func (s *Engine) numbering(rec *commitRecord) *numbering {
	return &numbering{q: &s.Seq, rec: rec, art: s.Seq.nextArt, num: s.Seq.nextNum, group: s.Seq.nextGroup}
}

func (n *numbering) scope(name string) uint32 {
	if num := n.q.scopes[name]; num != 0 {
		return num
	}
	for _, s := range n.rec.Scopes {
		if s.Name == name {
			return s.Num
		}
	}
	num := uint32(len(n.q.scopes) + len(n.rec.Scopes) + 1)
	n.rec.Scopes = append(n.rec.Scopes, newScope{num, name})
	return num
}

func (n *numbering) groupOf(scope uint32, name string) uint64 {
	if num := n.q.groups[artKey{scope, name}]; num != 0 {
		return num
	}
	for _, g := range n.rec.groups {
		if g.scope == scope && g.name == name {
			return g.num
		}
	}
	num := n.group
	n.group++
	n.rec.groups = append(n.rec.groups, newGroup{num, scope, name})
	return num
}

// enqueueApply turns puts and deletes into head records.
func (s *Engine) enqueueApply(b *Request, pre *prepared, p *pending, leaf *manifest.Record) error {
	rec := &p.record
	n := s.numbering(rec)
	var scope uint32
	if len(b.Puts)+len(b.Deletes) > 0 {
		scope = n.scope(b.Scope)
	}
	for i := range b.Puts {
		if err := s.applyPut(b, i, pre, n, scope, p, leaf); err != nil {
			return err
		}
	}
	for _, id := range b.Deletes {
		if err := s.applyDelete(b, id, scope, p, leaf); err != nil {
			return err
		}
	}
	rec.State = b.State
	if err := s.enqueueForget(b, p, leaf); err != nil {
		return err
	}
	return s.enqueueDrops(b, p, leaf)
}

func (s *Engine) applyPut(b *Request, i int, pre *prepared, n *numbering, scope uint32, p *pending, leaf *manifest.Record) error {
	rec, put, old, h := &p.record, &b.Puts[i], pre.old[i], pre.heads[i]
	h.LSN, h.Art, h.Version = rec.LSN, n.art, 1
	if old != nil {
		h.Art, h.Version = old.Art, old.Version+1
	} else {
		n.art++
	}
	switch {
	case h.Group != "":
		h.GroupNum = n.groupOf(scope, h.Group)
	case len(put.Pages) > 1:
		h.GroupNum = n.groupOf(scope, "\x00"+h.ID) // no user's group has a control character
	}
	same := old // whose pages go on
	if pre.again[i] && (h.Artefact.Source == "" || !Repeats(old, h, put)) {
		same = nil // it stands again, from now on; a source that says what it said has put nothing
	}
	if same != nil && foundOtherwise(old, h, put) && !Repeats(old, h, put) {
		same = nil // the index holds a page by the head it came with
	}
	hr := headRecord{head: h}
	changed := false
	for i := range put.Pages {
		np := &put.Pages[i]
		if row := samePage(same, i, np); row != nil {
			h.Rows = append(h.Rows, *row)
			h.Rows[i].Tokens = uint32(np.Tokens) // the counter may be another one
			continue
		}
		changed = true
		h.Rows = append(h.Rows, store.PageRow{
			Num: n.num, Version: h.Version, LSN: rec.LSN, Tokens: uint32(np.Tokens), Bytes: uint32(len(np.Text)),
			Hash: np.Hash, Salt: np.Salt, Digest: np.Digest,
		})
		hr.Texts = append(hr.Texts, pageText{n.num, np.Text, np.Analysis})
		n.num++
	}
	ref := store.Ref{Scope: b.Scope, ID: h.ID, Version: h.Version}
	if !changed && old != nil && len(old.Rows) == len(h.Rows) && sameHead(old, h, put.AsOfGiven) && !pre.beats[i] {
		ref.Version = old.Version
		p.outcome.Refs, p.outcome.Repeats = append(p.outcome.Refs, ref), append(p.outcome.Repeats, ref)
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: old.Rows[0].Num, Ref: ref.String(), Version: old.Version, Touch: true})
		return nil
	}
	p.outcome.Refs = append(p.outcome.Refs, ref)
	for i := range h.Rows {
		if r := &h.Rows[i]; r.LSN == rec.LSN {
			leaf.Writes = append(leaf.Writes, manifest.Write{
				Num: r.Num, Ref: store.Ref{Scope: b.Scope, ID: h.ID, Page: i + 1, Version: h.Version}.String(), Version: h.Version, Digest: r.Digest[:],
			})
		}
	}
	if len(hr.Texts) == 0 { // only the head changed: the leaf still says so
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: h.Rows[0].Num, Ref: ref.String(), Version: h.Version})
	}
	return s.addHead(rec, leaf, hr, scope, groupName(h), pre.cold[i])
}

// samePage finds the page of the old version that a new page repeats word for word. The fast hash only proposes: a
// text made to collide with it must not pass for the old one, so the salted digest decides.
func samePage(old *store.Head, i int, np *store.NewPage) *store.PageRow {
	if old == nil || i >= len(old.Rows) {
		return nil
	}
	r := &old.Rows[i]
	if r.Hash != np.Hash || int(r.Bytes) != len(np.Text) || store.SaltedDigest(r.Salt[:], np.Text) != r.Digest {
		return nil
	}
	return r
}

// foundOtherwise says whether a question finds a page under another head in another way: by its date, its author or its
// neighbours. A date counts when a caller gave the same words another one: a text that was edited later keeps what was
// not edited, as of when it was written.
func foundOtherwise(old, h *store.Head, put *store.Put) bool {
	if old.GroupNum != h.GroupNum {
		return true
	}
	was, is := old.Artefact, h.Artefact
	if store.IndexHeader(&was) == store.IndexHeader(&is) {
		return false
	}
	if !put.AsOfGiven || !sameTexts(old, put) {
		was.CurrentAsOf = is.CurrentAsOf
	}
	return store.IndexHeader(&was) != store.IndexHeader(&is)
}

// repeats says whether a put says what its artefact says already.
func Repeats(old, h *store.Head, put *store.Put) bool {
	return sameTexts(old, put) && sameHead(old, h, put.AsOfGiven)
}

func sameTexts(old *store.Head, put *store.Put) bool {
	for i := range put.Pages {
		if samePage(old, i, &put.Pages[i]) == nil {
			return false
		}
	}
	return len(old.Rows) == len(put.Pages)
}

// sameHead says whether a put changes nothing but the time of its writing and the stamp of its source.
func sameHead(old, h *store.Head, asOf bool) bool {
	plain := func(h *store.Head) *store.Head {
		c := *h
		c.Actor, c.Source = "", store.Validator{Hash: h.Source.Hash}
		c.CurrentAsOf, c.ExpiresAt = time.Time{}, time.Time{}
		return &c
	}
	a, errA := encodeCold(plain(old))
	b, errB := encodeCold(plain(h))
	return errA == nil && errB == nil && bytes.Equal(a, b) && old.Kind == h.Kind && old.Provenance == h.Provenance &&
		old.Priority == h.Priority && old.Seq == h.Seq && old.Pinned == h.Pinned && codec.Micros(old.ExpiresAt) == codec.Micros(h.ExpiresAt) &&
		(!asOf || codec.Micros(old.CurrentAsOf) == codec.Micros(h.CurrentAsOf))
}

func (s *Engine) applyDelete(b *Request, id string, scope uint32, p *pending, leaf *manifest.Record) error {
	old, err := s.newest(b.Scope, id)
	if err != nil {
		return err
	}
	if old == nil || old.Deleted {
		return nil
	}
	h := *old
	h.Deleted, h.Version, h.LSN, h.PutAt, h.Actor, h.Rows = true, old.Version+1, p.record.LSN, b.Now, b.Actor, nil
	h.Supersedes = nil // it replaced them once; what was put again since stays
	cold, err := encodeCold(&h)
	if err != nil {
		return fmt.Errorf("ctxpage: encode %s: %w", id, err)
	}
	ref := store.Ref{Scope: b.Scope, ID: id, Version: h.Version}
	p.outcome.Refs = append(p.outcome.Refs, ref)
	for i, r := range old.Rows {
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: r.Num, Ref: store.Ref{Scope: b.Scope, ID: id, Page: i + 1, Version: h.Version}.String(), Version: h.Version, Deleted: true})
	}
	return s.addHead(&p.record, leaf, headRecord{head: &h}, scope, groupName(&h), cold)
}

func (s *Engine) enqueueHold(b *Request, v judgement, p *pending, leaf *manifest.Record) error {
	p.outcome.Status = store.StatusHeld
	leaf.Type, leaf.Reason = manifest.TypeHeld, v.hold
	held := store.HeldBatch{Batch: b.Batch, Reason: v.hold, Stale: v.refs, At: b.Now, LSN: p.record.LSN}
	return s.setHeld(&p.record, leaf, b.ID, held)
}

// setHeld adds the row of a held batch to a commit, and its digest to the leaf.
func (s *Engine) setHeld(c *commitRecord, leaf *manifest.Record, id ulid.ULID, h store.HeldBatch) error {
	c.HeldID = id
	row, err := msgpack.Marshal(&h)
	if err != nil {
		return fmt.Errorf("ctxpage: encode held batch: %w", err)
	}
	p := rowProof{leaf: c.leaf, place: uint32(len(leaf.Rows))}
	if _, err := io.ReadFull(s.opts.Rand, p.salt[:]); err != nil {
		return fmt.Errorf("ctxpage: randomness: %w", err)
	}
	d := heldDigest(p.salt[:], id[:], row)
	leaf.Rows = append(leaf.Rows, d[:])
	c.Held = p.append(append([]byte{heldMark}, row...))
	return nil
}

// enqueueReview marks a held batch as decided.
func (s *Engine) enqueueReview(b *Request, pre *prepared, p *pending, leaf *manifest.Record, decided string) error {
	leaf.From = b.From.String()
	leaf.Type = manifest.TypeApprove
	if decided == "rejected" {
		leaf.Type, p.outcome.Status = manifest.TypeReject, store.StatusRejected
	}
	h := *pre.held
	h.Decided, h.By, h.Note, h.Outcome = decided, leaf.By, leaf.Note, p.outcome
	return s.setHeld(&p.record, leaf, b.From, h)
}

// prepareReview loads the held batch that is approved or rejected and takes over what it wanted to write. A batch that
// was decided the same way before gives its first outcome again.
func (s *Engine) prepareReview(ctx context.Context, b *Request, pre *prepared) error {
	lsn := s.LSN() // before the row is read: a decision up to here is in it
	h, err := s.Held(ctx, b.From)
	if err != nil {
		return err
	}
	want := map[store.Action]string{store.ActApprove: "approved", store.ActReject: "rejected"}[b.Action]
	if h.Decided == want {
		pre.known = &h.Outcome
		return nil
	}
	if h.Decided != "" {
		return fmt.Errorf("%w: %s was %s by %s", store.ErrReviewed, b.From, h.Decided, h.By)
	}
	if decided, err := s.Leaves.Decided(ctx, b.From.String(), lsn); decided && !s.opts.Trust {
		return s.Corrupt("held batch "+b.From.String(), errors.New("the audit says that it was decided, the row that it was not"))
	} else if err != nil {
		return AuditError(err)
	}
	pre.held = &h
	b.Scope, b.Actor, b.Trace = h.Batch.Scope, h.Batch.Actor, h.Batch.Trace
	if b.Action == store.ActReject {
		return nil
	}
	b.Expect, b.Context, b.Puts, b.Deletes, b.State = h.Batch.Expect, h.Batch.Context, h.Batch.Puts, h.Batch.Deletes, h.Batch.State
	if b.Raise {
		for i := range b.Puts {
			b.Puts[i].Artefact.Provenance = store.HumanVerified
		}
	}
	return nil
}

// installAtOnce is how many batches are made visible under one lock. Those who wait for the first of a large group are
// at work again while the rest is installed.
const installAtOnce = 4

// InstallDurable is called by the leader of a batch group after its sync, before anybody of the group is woken by the
// log: it makes the group visible in LSN order, and lets go those who wait for a batch as soon as it is.
func (s *Engine) InstallDurable(durable uint64) {
	q := &s.Seq
	q.flight.Lock()
	n := 0
	for n < len(q.queue) && q.queue[n].seq <= durable {
		n++
	}
	group := q.queue[:n:n]
	q.queue = q.queue[n:]
	q.flight.Unlock()
	for len(group) > 0 {
		some := group[:min(installAtOnce, len(group))]
		if !s.installSome(some) {
			for _, p := range group { // they left the queue that fail lets go
				close(p.done)
			}
			return
		}
		group = group[len(some):]
	}
}

// installSome makes batches visible and wakes those who wait for them.
func (s *Engine) installSome(group []*pending) bool {
	for _, p := range group {
		p.analysed.Wait()
	}
	ended, err := s.installAll(group)
	if err != nil { // our own rows: a bug, and the memory no longer follows the log
		s.Fail(err)
		return false
	}
	q := &s.Seq
	q.flight.Lock()
	for _, p := range group {
		delete(q.ids, p.record.batch)
		for _, k := range p.keys {
			if q.arts[k] == p {
				delete(q.arts, k)
			}
		}
	}
	q.flight.Unlock()
	s.changes.add(group[len(group)-1].record.LSN, ended)
	for _, p := range group {
		close(p.done)
	}
	return true
}

func (s *Engine) installAll(group []*pending) (ended []uint64, err error) {
	s.Catalogue.Mu.Lock()
	defer s.Catalogue.Mu.Unlock()
	for _, p := range group {
		e, err := s.install(&p.record, p.seq)
		if err != nil {
			return nil, err
		}
		p.installed = true
		ended = append(ended, e...)
	}
	return ended, nil
}

// Append writes audit leaves. They are handed to the operating system before it returns.
func (s *Engine) Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	if s.opts.ReadOnly && !s.Closed.Load() {
		return nil // a read-only database logs nothing, and its answers say so
	}
	if err := s.Writable(); err != nil {
		return err
	}
	asked, err := s.askedRows(leaves)
	if err != nil {
		return err
	}
	last, err := s.appendLeaves(leaves, asked)
	if errors.Is(err, ErrLogFull) && len(leaves) == 1 && s.opts.Space.Relieve(ctx) == nil {
		last, err = s.appendLeaves(leaves, asked)
	}
	if err != nil {
		return err
	}
	if d != store.Synced {
		err = s.Log.Write()
	}
	if d == store.Synced || errors.Is(err, ErrLogClosed) { // Close syncs what is in the log before it closes it
		err = s.Log.Sync(ctx, last)
	}
	if err != nil {
		return s.SyncError(ctx, err)
	}
	return nil
}

func (s *Engine) appendLeaves(leaves []*manifest.Record, asked [][]byte) (last uint64, err error) {
	s.Seq.Mu.Lock()
	defer s.Seq.Mu.Unlock()
	if err := s.Writable(); err != nil { // again: Close waits for those who are in here, and for nobody else
		return 0, err
	}
	err = s.appendLocked(leaves, asked)
	return s.Log.Last(), err
}

// appendLocked puts leaves into the log's buffer, each with the row of its question; asked nil: none has one. The caller
// holds the sequencer.
func (s *Engine) appendLocked(leaves []*manifest.Record, asked [][]byte) error {
	first := s.Leaves.Size()
	for i, leaf := range leaves {
		body, err := manifest.Encode(leaf)
		if err != nil {
			return fmt.Errorf("ctxpage: encode leaf: %w", err)
		}
		index := first + uint64(i)
		var question []byte
		if asked != nil {
			question = asked[i]
		}
		if err := s.enqueueLeaf(index, body, question); err != nil {
			return enqueueError(err)
		}
		if err := s.Leaves.AddNew(index, body, leaf); err != nil {
			return s.Fail(err)
		}
		leaf.Index = index
		if question != nil {
			s.Catalogue.Mu.Lock()
			s.addQuestion(index, question)
			s.CountUnflushed()
			s.Catalogue.Mu.Unlock()
		}
	}
	s.appended.Store(true)
	return nil
}

// readReserve is how many bytes of leaves may go into the log's reserve on a full disk: a quarter of it, so that reads go
// on for a while and deletes and a clean end always find the rest. After that reads fail: they cannot be audited.
const readReserve = 64 << 10

func (s *Engine) enqueueLeaf(index uint64, body, question []byte) error {
	head := auditBody(index, question)
	_, err := s.Log.Append(KindLeaf, false, head, body)
	switch size := len(head) + len(body) + 64; {
	case err == nil:
		s.Seq.reserve = 0
	case errors.Is(err, ErrLogFull) && s.Seq.reserve+size <= readReserve:
		s.Seq.reserve += size
		_, err = s.Log.Append(KindLeaf, true, head, body)
	}
	return err
}

// outcome looks the id of a batch up in overlay and file; nil: it is new, or spent. Spent: the audit has the id and
// neither of them has its outcome, which is so of an old one, and of one that is in flight or was until a moment ago: only
// under the sequencer the two can be told apart. Ids sort by time, so that one that was just made is above all those in
// the file, which need not be read then.
func (s *Engine) outcome(b *store.Batch) (out *store.Outcome, spent bool, err error) {
	id := b.ID
	row, above := s.overlayOutcome(id)
	if row == nil && !above {
		older := false // than all that are kept
		err := s.Rows.View(func(tx Reader) error {
			v := tx.Get(TableTxn, id[:])
			if v == nil {
				for k := range tx.From(TableTxn, nil) {
					older = bytes.Compare(id[:], k) < 0
					break
				}
				return nil
			}
			sealed, err := codec.Unseal('t', id[:], v)
			if err != nil {
				return s.Corrupt("outcome of "+id.String(), err)
			}
			row = slices.Clone(sealed)
			return nil
		})
		if err == nil && older {
			spent, err = s.usedBefore(id)
		}
		if err != nil {
			return nil, false, err
		}
	}
	if row == nil {
		return nil, spent, nil
	}
	out, err = s.answer(row, b)
	return out, false, err
}

// overlayOutcome returns the row of an id that is not in the file yet, and whether it is above every id in the file.
func (s *Engine) overlayOutcome(id ulid.ULID) (row []byte, above bool) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	row = s.Overlay.result[id]
	if row == nil && s.Old != nil {
		row = s.Old.result[id]
	}
	return row, id.Compare(s.Filed) > 0
}

// NewestOutcome returns the greatest id that has an outcome in the file.
func NewestOutcome(tx Reader) (id ulid.ULID) {
	copy(id[:], tx.Last(TableTxn))
	return id
}
