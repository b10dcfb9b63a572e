package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// The engine commits an erase; the owner of the files purges them:
//
//	commit    a new version says that the artefact is deleted; each version before it gets a row that only names it, with no
//	          salt and no digest; held batches, questions and state rows go. It is one batch, or several where one would be too
//	          long; each has a leaf of its own                                                                    Erase
//	purge     the owner writes it into its rows, cuts the log behind it and writes the rows to a new file
//	done      the row of the run says so                                                                       EraseDone
//
// The row of the run is in the first of these commits and says what is still to do; the last one replaces it. The commits
// between them do not write it: it holds the whole job, which grows with the number of erased artefacts. Whoever continues
// the run later goes on from it (EraseRest): in stage "commits" with the commits that are missing, in stage "purge" with the
// files. A follower of the log installs the same commits; it purges its own files.
//
// A run is bound to its first commit: it takes what that LSN or an earlier one wrote, and nothing that was written since,
// whoever finishes it and however late. Every later commit of the run compares LSNs with it, so that doing a part again
// changes nothing. While commits are missing, a put that repeats an older version makes a new one (eraseOpen): else the put
// would be answered with a version that the run still takes.
//
// A row counts only if the leaf of its commit is one of this erase (erasedIn). Any other row is
// passed over.
//
// Unlike gc an erase does not ask whether a version is named. A version that a held batch, a
// session or a transaction names goes all the same, and readers of it get ErrErased.
//
// gcMu is held from the first commit to the last, so that gc does not plan with versions that are
// about to go.

// eraseVersions and eraseState are about how many versions and state rows one commit takes.
const (
	eraseVersions = 128 // readers append their leaves behind it, and wait
	eraseState    = 4096
)

// erasure has the part of an erase that one commit carries out.
type erasure struct {
	run   string
	job   *store.EraseJob
	refs  []store.Ref
	from  uint64 // LSN of the first commit of the run; 0: this is the first
	more  bool   // commits follow
	state []store.StateRow
	// forget are artefacts that were erased and of which no row stays; last: the names of scopes and groups go.
	forget []store.Ref
	last   bool
	groups map[uint64]bool    // whose names go: the rows that stay do not need them
	tail   store.EraseReport  // what this commit erased; the sequencer sets it
	sum    *store.EraseReport // what the commits before it erased
}

// Erase commits a job. The caller then purges the files and calls EraseDone. The end of ctx stops it before the first commit
// only. After any other error some of the commits may be done: the report has them, and EraseRest continues the run.
func (s *Engine) Erase(ctx context.Context, job *store.EraseJob, progress store.Progress) (store.EraseReport, error) {
	if err := cmp.Or(format.CheckErase(job), s.Writable()); err != nil {
		return store.EraseReport{}, err
	}
	now := s.opts.Now() // of the trace and of the report: whoever has the report can compare them
	run, err := store.NewID(now, s.opts.Rand)
	if err != nil {
		return store.EraseReport{}, err
	}
	if n := len(job.Leaves); n > 0 && job.Leaves[n-1][1] > s.Leaves.Size() {
		return store.EraseReport{}, store.Invalid("erase", fmt.Sprintf("leaf %d", job.Leaves[n-1][1]-1), fmt.Sprintf("leaves of the audit, which has %d", s.Leaves.Size()))
	}
	if err := s.gcMu.Take(ctx); err != nil {
		return store.EraseReport{}, err
	}
	defer s.gcMu.Unlock()
	all := *job // a caller's job is not changed
	job = &all
	job.State, job.Questions, job.Leaves = slices.Clip(job.State), slices.Clip(job.Questions), slices.Clone(job.Leaves)
	if err := s.takeDestroyed(ctx, job); err != nil {
		return store.EraseReport{}, err
	}
	if err := s.namedSince(ctx, job); err != nil {
		return store.EraseReport{}, err
	}
	row := eraseRow{Leaves: job.Leaves, Names: job.Names, Report: store.EraseReport{
		Trace: run.String(), At: now.UTC(), By: job.By, Reason: job.Reason, Asked: job.Asked, Cascade: job.Cascade, Backups: job.Backups,
	}, Job: job}
	if s.opts.Sealed {
		row.Report.Batches = slices.Clone(job.Held)
		if row.Report.Numbers, err = s.pagesOf(job.Refs); err != nil {
			return store.EraseReport{}, err
		}
		if job.Names {
			row.Pages = row.Report.Numbers
		}
	}
	err = s.eraseAll(ctx, &row, 0, progress)
	return row.Report, err
}

// namedSince adds to a job that takes names the leaves and the held batches that were written since its search and name what
// goes. A gc that ran until this erase got its turn may have listed them.
func (s *Engine) namedSince(ctx context.Context, job *store.EraseJob) error {
	n := &job.Named
	if len(n.Refs)+len(n.Scopes)+len(n.Sessions)+len(n.Words) == 0 {
		return nil
	}
	names := format.NewNameSet(n)
	size, err := s.Audit().Size(ctx) // with the leaves of reads that ended and are not on the disk yet
	if err != nil {
		return err
	}
	var bodies []uint64
	_ = archive.EachOf(job.Leaves, func(i uint64) error { bodies = append(bodies, i); return nil })
	err = store.EachRecord(ctx, s.Audit(), job.Named.Leaves, size, false, func(r *manifest.Record) error {
		if r.Pruned == nil && archive.Prunable(r.Type) && names.InLeaf(r) {
			if bodies = append(bodies, r.Index); r.QuestionKept {
				job.Questions = append(job.Questions, r.Index)
			}
		}
		return nil
	})
	if job.Leaves = archive.SpansOf(bodies); err != nil {
		return err
	}
	return s.heldSince(ctx, job, names)
}

// heldSince adds the held batches. They are few: a batch waits, or was decided, under an id of its own.
func (s *Engine) heldSince(ctx context.Context, job *store.EraseJob, names *format.NameSet) error {
	job.Held = slices.Clone(job.Held)
	for q := (store.ScanQuery{What: store.ScanHeld, All: true, Limit: 1000}); ; {
		page, err := s.Scan(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Held {
			if id := page.Held[i].Batch.ID; names.InBatch(&page.Held[i].Batch) && !slices.Contains(job.Held, id) {
				job.Held = append(job.Held, id)
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// eraseAll commits a run part by part; from is the LSN of its first commit, if that is there. The end of ctx stops it before
// the first part only, so that readers do not see half of it for long. The caller holds gcMu.
func (s *Engine) eraseAll(ctx context.Context, row *eraseRow, from uint64, progress store.Progress) error {
	parts, err := s.eraseParts(row.Job, from)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	for i := range parts {
		b := &parts[i]
		if b.extra.erase.last { // rows of artefacts name their scopes: they go first
			if err := s.opts.Checkpoint(ctx); err != nil {
				return err
			}
		}
		b.extra.erase.from, b.extra.erase.more, row.Stage = from, i < len(parts)-1, eraseCommits
		if !b.extra.erase.more {
			row.Stage = erasePurge
		}
		if err := s.eraseCommit(ctx, b, row); err != nil {
			return s.eraseFailed(row, from, i, len(parts), err)
		}
		if from == 0 {
			from = row.Report.LSN
		}
		progress("erase", uint64(i+1), uint64(len(parts)))
		if err := s.At("erase commit"); err != nil {
			return err
		}
	}
	return nil
}

// eraseFailed returns the error of a run of which part i failed.
func (s *Engine) eraseFailed(row *eraseRow, from uint64, i, parts int, err error) error {
	if from != 0 {
		return fmt.Errorf("ctxpage: erase %s: %d of %d commits are made; repeat the same erase, run another one or a compaction, or open the database again, to finish it: %w", row.Report.Trace, i, parts, err)
	}
	if !errors.Is(err, store.ErrOutcomeUnknown) {
		s.eraseCloses(row.Report.Trace)
	}
	return err
}

// eraseParts cuts a job into commits. from is the LSN of the first one if that is there: then artefacts are left out of which
// nothing is left that was written by then.
func (s *Engine) eraseParts(job *store.EraseJob, from uint64) (parts []Request, err error) {
	part, versions := newErasure(job), 0
	full := func() {
		parts = append(parts, part)
		part, versions = newErasure(job), 0
	}
	for _, ref := range job.Refs {
		if from != 0 {
			if left, err := s.unerased(ref, from); err != nil {
				return nil, err
			} else if !left {
				continue
			}
		}
		n := s.versionsOf(ref)
		if versions > 0 && versions+n > eraseVersions {
			full()
		}
		part.extra.erase.refs = append(part.extra.erase.refs, store.Ref{Scope: ref.Scope, ID: ref.ID})
		versions += n + 1
	}
	for _, r := range eraseStateRows(job) {
		if len(part.extra.erase.state) >= eraseState {
			full()
		}
		part.extra.erase.state = append(part.extra.erase.state, r)
	}
	parts = append(parts, part)
	if !job.Names {
		return parts, nil
	}
	for refs := range slices.Chunk(job.Refs, eraseVersions) { // behind the commits that erased them
		part = newErasure(job)
		part.extra.erase.forget = refs
		parts = append(parts, part)
	}
	part = newErasure(job)
	part.extra.erase.last = true
	return append(parts, part), nil
}

// unerased reports whether a version that was written up to an LSN still has its content.
func (s *Engine) unerased(ref store.Ref, upTo uint64) (bool, error) {
	newest, err := s.newest(ref.Scope, ref.ID)
	if err != nil || newest == nil || newest.Deleted && newest.ErasedBy != "" {
		return false, err
	}
	heads, err := s.heads(newest.Art, newest.Version)
	return slices.ContainsFunc(heads, func(h *store.Head) bool { return h.LSN <= upTo && h.ErasedBy == "" }), err
}

// eraseRowsOf returns the state rows that one commit writes, with its expectations. The first commit of a run expects
// every row of the job as the search saw it, and fails otherwise. In later ones, rows that were written since are left alone.
func (s *Engine) eraseRowsOf(ctx context.Context, e *erasure) (rows []store.StateRow, expect []store.StatePre, err error) {
	if e.from == 0 {
		for _, r := range e.job.State {
			if r.LSN != 0 {
				expect = append(expect, store.StatePre{Key: r.Key, LSN: r.LSN})
			}
		}
	}
	for _, r := range e.state {
		if e.from != 0 && r.Key[0] != 0 { // keys of held batches and questions begin with a zero byte, and are used once
			now, err := s.State(ctx, r.Key)
			if err != nil {
				return nil, nil, err
			}
			if now.LSN > e.from || r.LSN != 0 && r.LSN != now.LSN {
				continue
			}
			expect = append(expect, store.StatePre{Key: r.Key, LSN: now.LSN})
		}
		rows = append(rows, store.StateRow{Key: r.Key, Value: r.Value})
	}
	return rows, expect, nil
}

// forgets returns the head rows that make a checkpoint delete all rows of erased artefacts. An artefact keeps its rows if
// it was put again since, or if a row supersedes another artefact, which would come back without it.
func (s *Engine) forgets(refs []store.Ref) (out []*store.Head, err error) {
	for _, ref := range refs {
		h, err := s.newest(ref.Scope, ref.ID)
		if err != nil {
			return nil, err
		}
		if h == nil || !h.Deleted || h.ErasedBy == "" {
			continue
		}
		heads, err := s.heads(h.Art, h.Version)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(heads, s.replaces) {
			continue
		}
		f := *h
		f.Forgotten = true
		out = append(out, &f)
	}
	return out, nil
}

// replaces reports whether a version supersedes an artefact that would become current again without the row.
func (s *Engine) replaces(h *store.Head) bool {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return slices.ContainsFunc(h.Supersedes, func(id string) bool {
		art := s.cat.lookup(s.cat.byName[h.Scope], id)
		return art != 0 && uint64(s.cat.succession(art).by) == h.Art
	})
}

func newErasure(job *store.EraseJob) Request {
	return Request{Batch: store.Batch{Scope: store.OperatorScope, Actor: "operator"}, extra: &extra{erase: &erasure{job: job}}}
}

// versionsOf returns at least how many rows an artefact has.
func (s *Engine) versionsOf(ref store.Ref) int {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	if art := s.cat.artOf(ref.Scope, ref.ID); art != 0 {
		return int(s.cat.newestOf(s.cat.art(art)).version)
	}
	return 0
}

// eraseStateRows returns the state rows by which a commit takes held batches, questions and other
// state away.
func eraseStateRows(job *store.EraseJob) (rows []store.StateRow) {
	for _, id := range job.Held {
		rows = append(rows, store.StateRow{Key: reviewGonePrefix + string(id[:])})
	}
	for _, leaf := range job.Questions {
		rows = append(rows, store.StateRow{Key: format.QuestionGonePrefix + string(format.QuestionKey(leaf))})
	}
	return append(rows, job.State...)
}

// eraseCommit commits one part, and with the first and the last part the row that says how far the run has come.
func (s *Engine) eraseCommit(ctx context.Context, b *Request, row *eraseRow) (err error) {
	e := b.extra.erase
	b.Trace = row.Report.Trace
	b.Leaf = manifest.Record{Type: manifest.TypeErase, Action: "erase", By: row.Report.By, Reason: row.Report.Reason,
		Query: format.AskedDigest(row.Report.Asked, row.Report.Cascade)}
	e.run, e.sum, e.groups = row.Report.Trace, &row.Report, s.groupNumbers(e.job.Groups)
	if !e.more {
		e.tail.Held, e.tail.Questions, e.tail.State = len(e.job.Held), len(e.job.Questions), len(e.job.State)
		e.tail.Bodies = archive.CountOf(e.job.Leaves)
	}
	if b.extra.forget, err = s.forgets(e.forget); err != nil {
		return err
	}
	if e.last {
		b.extra.unname, b.extra.ungroup = e.job.Scopes, s.groupsBeside(e.job)
		if b.extra.grouped, err = s.pastGroups(b.extra.ungroup); err != nil {
			return err
		}
	}
	for {
		out, err := s.eraseSubmit(ctx, b, row)
		switch {
		case errors.Is(err, errNoneLeft) && len(b.extra.forget)+len(b.extra.unname) > 0: // a scope or an artefact was written to again: the names stay
			b.extra.forget, b.extra.unname = nil, nil
		case errors.Is(err, store.ErrConflict) && e.from != 0: // a row was written since: it stays
		case err != nil:
			return err
		default:
			row.Report = joinErased(row.Report, e.tail)
			row.Report.Leaf, row.Report.LSN = out.Leaf, out.LSN
			return nil
		}
	}
}

// eraseSubmit submits one part with its rows of state.
func (s *Engine) eraseSubmit(ctx context.Context, b *Request, row *eraseRow) (out store.Outcome, err error) {
	e := b.extra.erase
	if b.ID, err = store.NewID(s.opts.Now(), s.opts.Rand); err != nil {
		return out, err
	}
	b.Now = s.opts.Now()
	if b.State, b.ExpectState, err = s.eraseRowsOf(ctx, e); err != nil {
		return out, err
	}
	if e.from == 0 || !e.more {
		value, err := row.encode()
		if err != nil {
			return out, err
		}
		b.State = append(b.State, store.StateRow{Key: format.EraseRows + e.run, Value: value})
	}
	return s.Submit(ctx, *b)
}

func joinErased(a, b store.EraseReport) store.EraseReport {
	a.Artefacts, a.Versions, a.Pages, a.Bytes = a.Artefacts+b.Artefacts, a.Versions+b.Versions, a.Pages+b.Pages, a.Bytes+b.Bytes
	a.Held, a.Questions, a.State, a.Bodies = a.Held+b.Held, a.Questions+b.Questions, a.State+b.State, a.Bodies+b.Bodies
	return a
}

// enqueueErase makes head records of the erased versions: those up to the first commit of the run, which may be newer than
// the job. A commit may be built more than once (Submit), so the tally starts anew each time.
func (s *Engine) enqueueErase(b *Request, p *Commit, leaf *manifest.Record) error {
	e := b.extra.erase
	if e.from == 0 && e.more { // from the next batch on
		s.cat.mu.Lock()
		s.eraseOpens(e.run, p.record.LSN)
		s.cat.mu.Unlock()
	}
	t := e.tail
	t.Artefacts, t.Versions, t.Pages, t.Bytes = 0, 0, 0, 0
	e.tail = t
	for _, ref := range e.refs {
		if err := s.eraseArtefact(e, ref, p, leaf); err != nil {
			return err
		}
	}
	n := joinErased(*e.sum, e.tail)
	leaf.Note = format.EraseCounts(&n)
	return nil
}

func (s *Engine) eraseArtefact(e *erasure, ref store.Ref, p *Commit, leaf *manifest.Record) error {
	newest, err := s.newest(ref.Scope, ref.ID)
	if err != nil || newest == nil || newest.Deleted && newest.ErasedBy != "" {
		return err
	}
	heads, err := s.heads(newest.Art, newest.Version)
	if err != nil {
		return err
	}
	e.tail.Trace, e.tail.By = e.run, e.job.By
	end, rest := format.Erase(heads, cmp.Or(e.from, p.record.LSN), p.record.LSN, codec.FromMicros(p.record.At), &e.tail)
	if len(rest) == 0 && end == nil {
		return nil
	}
	last := end
	if last == nil { // a newer version stays
		last = rest[len(rest)-1]
	}
	for i, num := range lastPages(heads[:len(heads)-newer(heads, last)]) {
		r := store.Ref{Scope: ref.Scope, ID: ref.ID, Page: i + 1, Version: last.Version}
		w := manifest.Write{Num: num, Ref: r.String(), Version: r.Version, Deleted: end != nil, Gone: end == nil}
		if e.job.Names {
			w.Ref = ""
		}
		leaf.Writes = append(leaf.Writes, w)
	}
	if end != nil { // first: what goes is then no longer the newest
		rest = append([]*store.Head{end}, rest...)
	}
	for _, h := range rest {
		if e.groups[h.GroupNum] {
			h.GroupNum, h.Group = 0, ""
		}
		if err := s.addErased(p, leaf, h); err != nil {
			return err
		}
	}
	return nil
}

// newer counts the versions that are newer than one.
func newer(heads []*store.Head, than *store.Head) (n int) {
	for _, h := range heads {
		if h.Version > than.Version {
			n++
		}
	}
	return n
}

// lastPages returns the pages of the newest version that had any. If no page is known, the leaf
// still says that the artefact is deleted.
func lastPages(heads []*store.Head) (nums []uint64) {
	for i := len(heads) - 1; i >= 0 && nums == nil; i-- {
		for _, r := range heads[i].Rows {
			nums = append(nums, r.Num)
		}
	}
	if nums == nil {
		nums = []uint64{0}
	}
	return nums
}

func (s *Engine) addErased(p *Commit, leaf *manifest.Record, h *store.Head) error {
	s.cat.mu.RLock()
	_, group := s.cat.names(&format.Hot{Group: h.GroupNum})
	s.cat.mu.RUnlock()
	return s.addHead(&p.record, leaf, format.HeadRecord{Head: h}, s.scopeNumber(h.Scope), group, format.EncodeCold(h))
}
