package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"
)

// From a judged batch to a record. Everything here is computed for the place at the tail of the log that the batch is
// about to get, and nothing is changed before enter: a batch that fails on the way leaves no gap in any numbering.
//
// Owned by the sequencer: the numbers (numbering hands them out, the Log moves them on with Commit.After), and the record
// until it is in the log. From then on the record is read by the installer and by redo, and no longer changed but for
// analyses and the index built of them, which Commit.analysed guards.

// build makes a commit of a batch that was judged: its record, its leaf and its outcome, with the numbers from next on. It
// changes nothing; so a failure later leaves no gap.
func (s *Engine) build(b *Request, pre *prepared, v judgement, next Counters) (*Commit, error) {
	p := &Commit{done: make(chan struct{}), keys: pre.keys, parent: b.Trace}
	rec := &p.record
	s.seq.watch.commit(&b.Batch, v.hold != "")
	rec.LSN, rec.batch, rec.at, rec.leaf = next.LSN, b.ID, codec.Micros(b.Now), next.Leaf
	leaf, id := b.Leaf, b.ID.String()
	leaf.Trace, leaf.Parent, leaf.Scope, leaf.Actor, leaf.Time = id, b.Trace, b.Scope, b.Actor, rec.at
	leaf.LSN, leaf.Batch, leaf.Stale = rec.LSN, id, v.stale
	p.outcome = store.Outcome{LSN: rec.LSN, Leaf: rec.leaf, Stale: v.refs, Reason: v.hold}
	n := s.numbering(rec, next)

	var err error
	switch {
	case v.hold != "":
		err = s.enqueueHold(b, v, p, &leaf)
	case b.Action == store.ActReject:
		err = s.enqueueReview(b, pre, p, &leaf, "rejected")
	default:
		if err = s.enqueueApply(b, pre, v, n, p, &leaf); err == nil && b.Action == store.ActApprove {
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
	if p.leaf, err = manifest.NewLeaf(&leaf); err != nil {
		return nil, fmt.Errorf("ctxpage: encode leaf: %w", err)
	}
	rec.body, p.After = p.leaf.Body(), n.after()
	return p, nil
}

// frees says that a record only takes away: deletes and what gc drops must get through on a full disk.
func (c *commitRecord) frees() bool {
	keeps := func(h headRecord) bool { return !h.head.Deleted && !h.head.Gone && !h.head.Forgotten && !h.head.Floor }
	sets := func(r store.StateRow) bool { return r.Value != nil }
	return len(c.Heads)+len(c.State) > 0 && len(c.Held) == 0 && !slices.ContainsFunc(c.Heads, keeps) && !slices.ContainsFunc(c.State, sets)
}

// analyseBehind lets those go first who are on their way to the log: their group is complete sooner, and the analyses are
// made while the disk works. Begun at once each stood between two members of a group.
func (s *Engine) analyseBehind(p *Commit) {
	runtime.Gosched()
	s.analyse(p)
}

// analyse makes ready what install gives to the index, while the log syncs: it takes about as long, and no record needs
// it. The installer waits for it before it takes a lock.
func (s *Engine) analyse(p *Commit) {
	defer p.analysed.Done()
	if p.record.textBytes() >= builtBytes {
		p.record.built = s.buildIndex(p.record.Heads)
		return
	}
	heads := p.record.Heads
	for i := range heads {
		for j := range heads[i].Texts {
			if t := &heads[i].Texts[j]; t.analysis == nil {
				an := store.Analyse(s.opts.Analyzer, &heads[i].head.Artefact, t.Text)
				t.analysis = &an
			}
		}
	}
	s.index.Invert() // what commits before this one added
}

// builtBytes of text in one commit are much: its pages are inverted one after the other while the log syncs. An analysis
// takes up to twelve times its text, and all of them would wait for the installer at once.
const builtBytes = 256 << 10

func (s *Engine) buildIndex(heads []headRecord) *lexical.Built {
	b := &lexical.Built{}
	for i := range heads {
		h := &heads[i]
		d := codec.Decoder{B: h.Row}
		t := DecodeHot(&d)
		for _, x := range h.Texts {
			store.VisitAnalysis(s.opts.Analyzer, &h.head.Artefact, x.Text, func(a lexical.Analysis) {
				b.Add(s.doc(x.Num, t.Scope, h.head, x.Text, &a))
			})
		}
	}
	b.End()
	return b
}

// textBytes is how long the new texts of a commit are.
func (c *commitRecord) textBytes() (n int) {
	for i := range c.Heads {
		for _, t := range c.Heads[i].Texts {
			n += len(t.Text)
		}
	}
	return n
}

// numbering hands out numbers for one batch without moving the sequencer.
type numbering struct {
	q        *sequencer
	rec      *commitRecord
	art, num uint64
	group    uint64
}

func (s *Engine) numbering(rec *commitRecord, next Counters) *numbering {
	return &numbering{q: &s.seq, rec: rec, art: next.Art, num: next.Num, group: next.Group}
}

// after are the numbers for the next batch.
func (n *numbering) after() Counters {
	return Counters{LSN: n.rec.LSN + 1, Leaf: n.rec.leaf + 1, Art: n.art, Num: n.num, Group: n.group}
}

func (n *numbering) scope(name string) uint32 {
	if num := n.q.scope(name); num != 0 {
		return num
	}
	for _, s := range n.rec.Scopes {
		if s.Name == name {
			return s.Num
		}
	}
	num := n.q.nextScope() + uint32(len(n.rec.Scopes))
	n.rec.Scopes = append(n.rec.Scopes, newScope{num, name})
	return num
}

func (n *numbering) groupOf(scope uint32, name string) uint64 {
	if num := n.q.group(artKey{scope, name}); num != 0 {
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
func (s *Engine) enqueueApply(b *Request, pre *prepared, v judgement, n *numbering, p *Commit, leaf *manifest.Record) error {
	rec := &p.record
	var scope uint32
	if len(b.Puts)+len(b.Deletes) > 0 {
		scope = n.scope(b.Scope)
	}
	for i := range b.Puts {
		w := &written{put: &b.Puts[i], prev: pre.prev[i], head: pre.heads[i], replacing: v.puts[i]}
		n.number(w, scope)
		n.pages(w)
		if touch := w.report(&p.outcome, leaf); touch {
			continue
		}
		if err := s.addHead(rec, leaf, headRecord{head: w.head, Texts: w.texts}, scope, groupName(w.head), pre.cold[i]); err != nil {
			return err
		}
	}
	for _, id := range b.Deletes {
		if err := s.applyDelete(b, id, scope, p, leaf); err != nil {
			return err
		}
	}
	if err := s.addState(rec, leaf, b.State); err != nil {
		return err
	}
	if err := s.enqueueForget(b, p, leaf); err != nil {
		return err
	}
	if err := s.enqueueErase(b, p, leaf); err != nil {
		return err
	}
	return s.enqueueDrops(b, p, leaf)
}

func (s *Engine) applyDelete(b *Request, id string, scope uint32, p *Commit, leaf *manifest.Record) error {
	prev, err := s.newest(b.Scope, id)
	if err != nil {
		return err
	}
	if prev == nil || prev.Deleted {
		return nil
	}
	h := *prev
	h.Deleted, h.Version, h.LSN, h.PutAt, h.Actor, h.Rows = true, prev.Version+1, p.record.LSN, b.Now, b.Actor, nil
	h.Supersedes = nil // it replaced them once; what was put again since stays
	ref := store.Ref{Scope: b.Scope, ID: id, Version: h.Version}
	p.outcome.Refs = append(p.outcome.Refs, ref)
	for i, r := range prev.Rows {
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: r.Num, Ref: store.Ref{Scope: b.Scope, ID: id, Page: i + 1, Version: h.Version}.String(), Version: h.Version, Deleted: true})
	}
	return s.addHead(&p.record, leaf, headRecord{head: &h}, scope, groupName(&h), encodeCold(&h))
}

func (s *Engine) enqueueHold(b *Request, v judgement, p *Commit, leaf *manifest.Record) error {
	p.outcome.Status = store.StatusHeld
	leaf.Type, leaf.Reason = manifest.TypeHeld, v.hold
	held := store.HeldBatch{Batch: b.Batch, Reason: v.hold, Stale: v.refs, At: b.Now, LSN: p.record.LSN}
	return s.setHeld(&p.record, leaf, b.ID, held)
}

// setHeld adds the row of a held batch to a commit, and its digest to the leaf.
func (s *Engine) setHeld(c *commitRecord, leaf *manifest.Record, id ulid.ULID, h store.HeldBatch) error {
	c.HeldID = id
	row := encodeHeld(&h)
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
func (s *Engine) enqueueReview(b *Request, pre *prepared, p *Commit, leaf *manifest.Record, decided string) error {
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
	lsn := s.Mark().LSN // before the row is read: a decision up to here is in it
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
	if b.Action == store.ActApprove {
		if err := approvable(&h.Batch); err != nil {
			return fmt.Errorf("%w: held batch %s: %w", store.ErrNewerFormat, b.From, err)
		}
	}
	pre.held = &h
	b.Scope, b.Actor, b.Trace = h.Batch.Scope, h.Batch.Actor, h.Batch.Trace
	if b.Action == store.ActReject {
		return nil
	}
	b.Expect, b.ExpectState, b.Context = h.Batch.Expect, h.Batch.ExpectState, h.Batch.Context
	b.Puts, b.Deletes, b.State = h.Batch.Puts, h.Batch.Deletes, h.Batch.State
	if err := b.CheckIDs(); err != nil { // held by a release that let it pass
		return err
	}
	if b.Raise {
		for i := range b.Puts {
			b.Puts[i].Artefact.Provenance = store.HumanVerified
		}
	}
	return nil
}
