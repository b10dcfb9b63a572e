package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"
)

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
