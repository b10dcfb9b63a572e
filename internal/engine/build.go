package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// From a judged batch to a record. Everything here is computed for the place at the tail of the log
// that the batch is about to get, and nothing is changed before enter. So a batch that fails on the
// way leaves no gap in any numbering.
//
//	numbering   hands out numbers from tail.Next on; the Log moves its own on with Commit.After
//	apply       puts and deletes become head records; then state rows, what gc forgets, what is erased, what gc drops
//	hold        the batch becomes one row, unchanged; nothing of it is visible
//	review      the row of the held batch is written again as decided; an approval applies the batch as well
//	leaf        the audit record, made last: it has the digests of all rows above
//
// The order of apply is part of the format: a leaf refers to rows by their place in it
// (format.Proof.Place), and redo installs heads in the order of the record.
//
// Ownership: the sequencer owns the record until it is in the log. From then on the installer and
// redo only read it. The exception is the index built of a large commit, which Commit.built guards.

// build makes a commit of a judged batch: its record, its leaf and its outcome, with the numbers
// from next on. It changes nothing, so a later failure leaves no gap. The one exception is
// seq.watch: while gc runs it learns what the batch names. If the batch then fails, gc keeps a
// version too many, never one too few.
func (s *Engine) build(b *Request, pre *prepared, v judgement, next Counters) (*Commit, error) {
	id := b.ID.String()
	p := &Commit{done: make(chan struct{}), keys: pre.keys, trace: id, parent: b.Trace}
	rec := &p.record
	if s.seq.watch != nil {
		s.seq.watch.commit(&b.Batch, v.hold != "")
	}
	rec.LSN, rec.Batch, rec.At, rec.Leaf = next.LSN, b.ID, codec.Micros(b.Now), next.Leaf
	leaf := new(manifest.Record)
	*leaf = b.Leaf // a batch may be built more than once
	leaf.Writes, leaf.Rows = slices.Clone(b.Leaf.Writes), slices.Clone(b.Leaf.Rows)
	leaf.Trace, leaf.Parent, leaf.Scope, leaf.Actor, leaf.Time = id, b.Trace, b.Scope, b.Actor, rec.At
	leaf.LSN, leaf.Batch, leaf.Stale = rec.LSN, id, v.stale
	p.outcome = store.Outcome{LSN: rec.LSN, Leaf: rec.Leaf, Stale: v.refs, Reason: v.hold}
	n := &numbering{s: s, rec: rec, next: next}

	var err error
	switch {
	case v.hold != "":
		err = s.enqueueHold(b, v, p, leaf)
	case b.Action == store.ActReject:
		err = s.enqueueReview(b, pre, p, leaf)
	default:
		if err = s.enqueueApply(b, pre, v, n, p, leaf); err == nil && b.Action == store.ActApprove {
			err = s.enqueueReview(b, pre, p, leaf)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := n.possible(); err != nil {
		return nil, err
	}
	leaf.Status = p.outcome.Status.String()
	rec.Result = (&format.OutcomeRow{Outcome: p.outcome, Bound: b.Bound}).Encode()
	if p.leaf, err = archive.NewLeaf(leaf); err != nil {
		return nil, fmt.Errorf("ctxpage: encode leaf: %w", err)
	}
	p.large = rec.TextBytes() >= builtBytes
	rec.Body, p.After = p.leaf.Body(), n.next
	p.After.LSN, p.After.Leaf = rec.LSN+1, rec.Leaf+1
	p.setUse(b)
	return p, nil
}

// Pages are analysed and entered into the index after their commit was answered: by the next question,
// checkpoint or background work, or by a goroutine of their own when many wait (indexBehind). No
// record needs an analysis, and readers cannot tell.
//
// Rejected: a goroutine that analyses a commit beside its sync, for which the installer waits. To
// start it cost a lone writer more than the analysis: 55 of 210 µs of CPU, for waking a thread that
// then looks for other work, and for the monitor of the scheduler, which sleeps as long as one thread
// alone is busy.

// indexBehind enters the pages that wait into the index, if they are many.
func (s *Engine) indexBehind() {
	if s.index.Due() && s.indexing.CompareAndSwap(false, true) {
		go func() {
			defer s.indexing.Store(false)
			s.IndexWaiting()
		}()
	}
}

// IndexWaiting enters the pages that wait into the index. It yields before each few of them, so that
// commits reach the log first: their group is complete sooner, and the analysis runs while the disk is
// busy.
func (s *Engine) IndexWaiting() {
	for more := true; more; more = s.index.Invert() {
		runtime.Gosched()
	}
}

// prebuild inverts the texts of a large commit while the log syncs. The installer calls it as well,
// before it takes a lock, and waits for it here.
func (s *Engine) prebuild(c *Commit) {
	c.built.Do(func() { c.record.Built = s.buildIndex(c.record.Heads) })
}

// builtBytes is the length of text from which a commit is inverted page by page while the log
// syncs. An analysis takes up to twelve times the memory of its text, and the analyses of a whole
// commit would wait for the installer at once.
const builtBytes = 256 << 10

// buildIndex inverts the texts of a commit into a piece of index that install adds as a whole. Only
// one analysis is in memory at a time.
func (s *Engine) buildIndex(heads []format.HeadRecord) *lexical.Built {
	b := &lexical.Built{}
	for i := range heads {
		h := &heads[i]
		d := codec.Decoder{B: h.Row}
		t := format.DecodeHot(&d)
		for _, x := range h.Texts {
			b.Add(s.doc(x.Num, t.Scope, h.Head, x.Text, nil))
		}
	}
	b.End()
	return b
}

// numbering hands out numbers for one batch without moving the sequencer.
//
// It works on a copy of the counters. The Log takes them over for the next commit when it has the
// record, so a batch that fails on the way has used up nothing. A name that the same batch brought
// earlier is found in rec.
type numbering struct {
	s    *Engine
	rec  *format.Commit
	next Counters
}

// possible refuses a batch that would need a number above mostNumber: nothing was given out yet.
func (n *numbering) possible() error {
	for _, x := range [...]struct {
		what string
		next uint64
	}{{"artefacts", n.next.Art}, {"page versions", n.next.Num}, {"groups", n.next.Group}} {
		if x.next > mostNumber+1 {
			return store.Invalid("transaction", fmt.Sprintf("%d %s in the life of the database", x.next-1, x.what),
				fmt.Sprintf("at most %d: export what is live and import it into a new database", uint64(mostNumber)))
		}
	}
	return nil
}

// scope returns the number of a scope, a new one if there is none.
func (n *numbering) scope(name string) uint32 {
	if num := n.s.scopeNumber(name); num != 0 {
		return num
	}
	for _, s := range n.rec.Scopes {
		if s.Name == name {
			return s.Num
		}
	}
	num := n.s.nextScope() + uint32(len(n.rec.Scopes))
	n.rec.Scopes = append(n.rec.Scopes, format.NewScope{Num: num, Name: name})
	return num
}

// groupOf returns the number of a group of a scope, a new one if there is none.
func (n *numbering) groupOf(scope uint32, name string) uint64 {
	if num := n.s.groupNumber(artKey{scope, name}); num != 0 {
		return num
	}
	for _, g := range n.rec.Groups {
		if g.Scope == scope && g.Name == name {
			return g.Num
		}
	}
	num := n.next.Group
	n.next.Group++
	n.rec.Groups = append(n.rec.Groups, format.NewGroup{Num: num, Scope: scope, Name: name})
	return num
}

// enqueueApply turns puts, carried versions and deletes into head records, and adds state rows.
func (s *Engine) enqueueApply(b *Request, pre *prepared, v judgement, n *numbering, p *Commit, leaf *manifest.Record) error {
	rec := &p.record
	var scope uint32
	if len(b.Puts)+len(b.Deletes) > 0 {
		scope = n.scope(b.Scope)
	}
	for i := range b.Puts {
		w := &written{put: &b.Puts[i], prev: pre.prev[i], head: pre.heads[i], replacing: v.puts[i], renew: pre.prev[i] != nil && pre.prev[i].LSN <= v.erased}
		n.number(w, scope)
		n.pages(w)
		if touch := w.report(&p.outcome, leaf); touch {
			continue
		}
		if err := s.addHead(rec, leaf, format.HeadRecord{Head: w.head, Texts: w.texts}, scope, format.GroupName(w.head), pre.cold[i]); err != nil {
			return err
		}
	}
	if len(b.Carry) > 0 {
		if err := s.enqueueImported(b, pre, n, p, leaf); err != nil {
			return err
		}
	}
	for _, id := range b.Deletes {
		if err := s.applyDelete(b, id, scope, p, leaf); err != nil {
			return err
		}
	}
	switch {
	case b.extra != nil:
		return s.enqueueExtra(b, p, leaf)
	case len(b.State) > 0:
		return s.addState(rec, leaf, b.State)
	}
	return nil
}

// enqueueExtra adds what gc or an erase takes away: names, rows of dropped versions, content,
// versions.
func (s *Engine) enqueueExtra(b *Request, p *Commit, leaf *manifest.Record) error {
	x, gone := b.extra, []store.StateRow(nil)
	if len(x.unname) > 0 {
		if gone = s.unname(x.unname); len(gone) == 0 {
			return errNoneLeft
		}
	}
	if len(x.ungroup) > 0 {
		gone = append(gone, s.ungroup(x.ungroup, &x.grouped)...)
	}
	if err := s.addState(&p.record, leaf, append(b.State, gone...)); err != nil {
		return err
	}
	if len(x.forget) > 0 {
		if err := s.enqueueForget(b, p, leaf); err != nil {
			return err
		}
	}
	if x.erase != nil {
		if err := s.enqueueErase(b, p, leaf); err != nil {
			return err
		}
	}
	if len(x.drops) > 0 {
		return s.enqueueDrops(b, p, leaf)
	}
	return nil
}

// applyDelete adds a head without pages: the tombstone of an artefact. An artefact that is absent
// or already deleted is left as it is, without an error. The tombstone does not supersede anything:
// what its artefact replaced stays replaced.
func (s *Engine) applyDelete(b *Request, id string, scope uint32, p *Commit, leaf *manifest.Record) error {
	prev, err := s.newest(b.Scope, id)
	if err != nil {
		return err
	}
	if prev == nil || prev.Deleted {
		return nil
	}
	h := format.Deletion(prev, &b.Batch, p.record.LSN)
	ref := store.Ref{Scope: b.Scope, ID: id, Version: h.Version}
	p.outcome.Refs = append(p.outcome.Refs, ref)
	for i, r := range prev.Rows {
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: r.Num, Ref: store.Ref{Scope: b.Scope, ID: id, Page: i + 1, Version: h.Version}.String(), Version: h.Version, Deleted: true})
	}
	return s.addHead(&p.record, leaf, format.HeadRecord{Head: h}, scope, format.GroupName(h), format.EncodeCold(h))
}

// enqueueHold stores the whole batch as one row. Nothing of it is visible until a review applies
// it.
func (s *Engine) enqueueHold(b *Request, v judgement, p *Commit, leaf *manifest.Record) error {
	p.outcome.Status = store.StatusHeld
	leaf.Type, leaf.Reason = manifest.TypeHeld, v.hold
	return s.setHeld(&p.record, leaf, b.ID, format.Hold(&b.Batch, v.hold, v.refs, p.record.LSN))
}

// setHeld adds the row of a held batch to a commit, and its digest to the leaf.
func (s *Engine) setHeld(c *format.Commit, leaf *manifest.Record, id ulid.ULID, h store.HeldBatch) error {
	c.HeldID = id
	row := format.EncodeHeld(&h)
	p := format.Proof{Leaf: c.Leaf, Place: uint32(len(leaf.Rows))}
	if _, err := io.ReadFull(s.opts.Rand, p.Salt[:]); err != nil {
		return fmt.Errorf("ctxpage: randomness: %w", err)
	}
	d := format.HeldDigest(p.Salt[:], id[:], row)
	leaf.Rows = append(leaf.Rows, d[:])
	c.Held = p.Append(row)
	return nil
}

// enqueueReview marks a held batch as decided.
func (s *Engine) enqueueReview(b *Request, pre *prepared, p *Commit, leaf *manifest.Record) error {
	leaf.From = b.From.String()
	leaf.Type = manifest.TypeApprove
	if b.Action == store.ActReject {
		leaf.Type, p.outcome.Status = manifest.TypeReject, store.StatusRejected
	}
	h := *pre.held
	h.Decided, h.By, h.Note, h.Outcome = format.Decision(b.Action), leaf.By, leaf.Note, p.outcome
	return s.setHeld(&p.record, leaf, b.From, h)
}

// prepareReview loads the held batch that is approved or rejected, and takes over what it wanted to
// write. A batch that was decided the same way before gets the first outcome again.
//
// The audit is asked too whether the batch was decided. A row that was put back to its state before
// the decision would else be applied a second time. The LSN is read before the row, so every
// decision up to that LSN must show in the row.
func (s *Engine) prepareReview(ctx context.Context, b *Request, pre *prepared) error {
	lsn := s.Mark().LSN // before the row is read: it has every decision up to here
	h, err := s.Held(ctx, b.From)
	if err != nil {
		return err
	}
	if pre.known, err = format.Decided(&b.Batch, &h); err != nil || pre.known != nil {
		return err
	}
	if decided, err := s.Leaves.Decided(ctx, b.From.String(), lsn); decided && !s.opts.Trust {
		return s.Corrupt("held batch "+b.From.String(), errors.New("the audit says it was decided, its row says it was not"))
	} else if err != nil {
		return AuditError(err)
	}
	if b.Action == store.ActApprove {
		if err := approvable(&h.Batch); err != nil {
			return fmt.Errorf("%w: held batch %s: %w", store.ErrNewerFormat, b.From, err)
		}
	}
	pre.held = &h
	format.TakeOver(&b.Batch, &h.Batch)
	if b.Action == store.ActReject {
		return nil
	}
	return format.CheckIDs(&b.Batch) // it may have been held by a release that accepted such ids
}

// written is one put on its way to a version. It goes through these steps in order, and each fills its own
// fields:
//
//	given            put, the head its artefact has, the head it makes, what the catalogue says of supersession
//	number           the head gets its artefact, version and group
//	pages            the head gets its rows: pages of the old version that continue, and new ones with their texts
//	report           the caller's references and the leaf's writes
//
// A put that changes nothing (touches) makes no head. number has then counted nothing, because a
// touch needs an artefact and a group that exist, and pages has counted nothing, because all its
// pages continue.
//
// A page keeps its number as long as its content stays in its place. So a new version of a long
// document costs the pages that changed, and a question finds each text once.
type written struct {
	put  *store.Put
	prev *store.Head // nil: the artefact is new
	head *store.Head
	replacing
	renew bool // an erase that has begun takes prev: the put makes a version even if it repeats prev

	texts []format.PageText // of new pages
}

// number sets the numbers of the head. A new artefact and a new group get the next ones. A put of
// several pages without a group gets a group of its own, so that its pages are neighbours; the name
// begins with a zero byte, which no caller can use.
func (n *numbering) number(w *written, scope uint32) {
	h := w.head
	h.LSN, h.Art, h.Version = n.rec.LSN, n.next.Art, 1
	if w.prev != nil {
		h.Art, h.Version = w.prev.Art, w.prev.Version+1
	} else {
		n.next.Art++
	}
	switch {
	case h.Group != "":
		h.GroupNum = n.groupOf(scope, h.Group)
	case len(w.put.Pages) > 1:
		h.GroupNum = n.groupOf(scope, "\x00"+h.ID) // callers cannot use control characters
	}
}

// pages sets the rows of the head, with numbers for new pages.
func (n *numbering) pages(w *written) {
	h, goesOn := w.head, w.prev
	if goesOn != nil {
		goesOn = w.goesOn()
	}
	for i := range w.put.Pages {
		np := &w.put.Pages[i]
		if row := format.SamePage(goesOn, i, np); row != nil {
			h.Rows = append(h.Rows, *row)
			h.Rows[i].Tokens = uint32(np.Tokens) // the counter may have changed
			continue
		}
		h.Rows = append(h.Rows, store.PageRow{
			Num: n.next.Num, Version: h.Version, LSN: h.LSN, Tokens: uint32(np.Tokens), Bytes: uint32(len(np.Text)),
			Hash: np.Hash, Salt: np.Salt, Digest: np.Digest,
		})
		w.texts = append(w.texts, format.PageText{Num: n.next.Num, Text: np.Text, Analysis: np.Analysis})
		n.next.Num++
	}
}

// goesOn returns the old version, which exists, if the new one may share pages with it; nil: all
// pages are new. Pages are not shared when the artefact becomes current again (recency and supersession count
// from now on), unless a source repeats its text, nor when the index would find them in another way
// (foundOtherwise).
func (w *written) goesOn() *store.Head {
	switch {
	case w.superseded && (w.head.Artefact.Source == "" || !format.Repeats(w.prev, w.head, w.put)):
		return nil // it is current again, from now on; a source that repeats its text has put nothing
	case foundOtherwise(w.prev, w.head, w.put) && !format.Repeats(w.prev, w.head, w.put):
		return nil // the index holds a page by the head it came with
	}
	return w.prev
}

// touches reports whether the put repeats what its artefact says and replaces no other artefact.
// Then no version is made.
func (w *written) touches() bool {
	return !w.renew && len(w.texts) == 0 && len(w.prev.Rows) == len(w.head.Rows) && !w.supersedes && format.SameHead(w.prev, w.head, w.put.AsOfGiven)
}

// report adds a put to the outcome and to the leaf. touch is true if nothing was. A leaf has a
// write for each new page, with its digest: so the audit knows what was committed.
func (w *written) report(out *store.Outcome, leaf *manifest.Record) (touch bool) {
	h := w.head
	ref := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
	if w.prev != nil && w.touches() {
		ref.Version = w.prev.Version
		out.Refs, out.Repeats = append(out.Refs, ref), append(out.Repeats, ref)
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: w.prev.Rows[0].Num, Ref: ref.String(), Version: ref.Version, Touch: true})
		return true
	}
	out.Refs = append(out.Refs, ref)
	for i := range h.Rows {
		if r := &h.Rows[i]; r.LSN == h.LSN {
			page := store.Ref{Scope: h.Scope, ID: h.ID, Page: i + 1, Version: h.Version}
			leaf.Writes = append(leaf.Writes, manifest.Write{Num: r.Num, Ref: page.String(), Version: h.Version, Digest: r.Digest[:]})
		}
	}
	if len(w.texts) == 0 { // only the head changed: the leaf still says so
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: h.Rows[0].Num, Ref: ref.String(), Version: h.Version})
	}
	return false
}

// foundOtherwise reports whether a question finds a page under another head in another way: by its
// date, its author or its neighbours. A date counts when a caller gave the same words another one:
// in a text that was edited later, unedited pages keep the date at which they were written.
func foundOtherwise(prev, h *store.Head, put *store.Put) bool {
	if prev.GroupNum != h.GroupNum {
		return true
	}
	was, is := prev.Artefact, h.Artefact
	if format.FoundAlike(&was, &is) {
		return false
	}
	if !put.AsOfGiven || !format.SameTexts(prev, put) {
		was.CurrentAsOf = is.CurrentAsOf
	}
	return !format.FoundAlike(&was, &is)
}
