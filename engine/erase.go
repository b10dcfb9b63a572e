package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/rules"
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
// between them do not write it: it holds the whole job, which grows with the number of erased artefacts. After a crash the
// next open goes on from it (EraseRest): in stage "commits" with the commits that are missing, in stage "purge" with the
// files. A follower of the log installs the same commits; it purges its own files.
//
// Unlike gc an erase does not ask whether a version is named. A version that a held batch, a
// session or a transaction names goes all the same, and readers of it get ErrErased.
//
// gcMu is held from the first commit to the last, so that gc does not plan with versions that are
// about to go.

// Stages of a run.
const (
	eraseCommits = "commits" // some commits are missing; the row has the whole job
	erasePurge   = "purge"   // everything is committed; files may still have the content
	eraseDone    = "done"    // no file of the store has the content
)

// eraseVersions and eraseState are about how many versions and state rows one commit takes.
const (
	eraseVersions = 128 // readers append their leaves behind it, and wait
	eraseState    = 4096
)

// eraseRow is the state row of a run.
type eraseRow struct {
	Stage  string            `json:"stage"`
	Report store.EraseReport `json:"report"`
	Job    *store.EraseJob   `json:"job,omitempty"` // only while some commits are missing
	// Leaves and Names are those of the job, until the files are purged. They name no person.
	Leaves []manifest.Span `json:"leaves,omitempty"`
	Names  bool            `json:"names,omitempty"`
	// Pages are numbers of the pages that go, where the rows are encrypted and none stays that has them.
	Pages []manifest.Span `json:"pages,omitempty"`
}

// erasure is what one commit erases.
type erasure struct {
	run  string
	job  *store.EraseJob
	refs []store.Ref
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
	if err := cmp.Or(job.Check(), s.Writable()); err != nil {
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
	all := *job // a caller's job is not changed
	if job = &all; s.opts.Sealed {
		job.State, job.Questions = slices.Clip(job.State), slices.Clip(job.Questions)
	}
	if err := s.takeDestroyed(ctx, job); err != nil {
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
	err = s.eraseAll(ctx, &row, progress)
	return row.Report, err
}

// eraseAll commits a run part by part. The end of ctx stops it before the first part only: parts that are missing are committed
// by the next open, and would take what was put under the same names until then.
func (s *Engine) eraseAll(ctx context.Context, row *eraseRow, progress store.Progress) error {
	if err := s.gcMu.Take(ctx); err != nil {
		return err
	}
	defer s.gcMu.Unlock()
	parts := s.eraseParts(row.Job)
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	for i := range parts {
		b := &parts[i]
		if b.erase.last { // rows of artefacts name their scopes: they go first
			if err := s.opts.Checkpoint(ctx); err != nil {
				return err
			}
		}
		row.Stage = eraseCommits
		if i == len(parts)-1 {
			row.Stage = erasePurge
		}
		if err := s.eraseCommit(ctx, b, row, i == 0); err != nil {
			return err
		}
		progress("erase", uint64(i+1), uint64(len(parts)))
		if err := s.At("erase commit"); err != nil {
			return err
		}
	}
	return nil
}

// eraseParts cuts a job into commits.
func (s *Engine) eraseParts(job *store.EraseJob) (parts []Request) {
	part, versions := newErasure(job), 0
	full := func() {
		parts = append(parts, part)
		part, versions = newErasure(job), 0
	}
	for _, ref := range job.Refs {
		n := s.versionsOf(ref)
		if versions > 0 && versions+n > eraseVersions {
			full()
		}
		part.erase.refs = append(part.erase.refs, store.Ref{Scope: ref.Scope, ID: ref.ID})
		versions += n + 1
	}
	for _, r := range eraseStateRows(job) {
		if len(part.State) >= eraseState {
			full()
		}
		if part.State = append(part.State, store.StateRow{Key: r.Key, Value: r.Value}); r.LSN != 0 {
			part.ExpectState = append(part.ExpectState, store.StatePre{Key: r.Key, LSN: r.LSN})
		}
	}
	parts = append(parts, part)
	if !job.Names {
		return parts
	}
	for refs := range slices.Chunk(job.Refs, eraseVersions) { // behind the commits that erased them
		part = newErasure(job)
		part.erase.forget = refs
		parts = append(parts, part)
	}
	part = newErasure(job)
	part.erase.last = true
	return append(parts, part)
}

// forgets returns the head rows that make a checkpoint delete all rows of erased artefacts. An artefact keeps its rows if
// it was put again since, or if one of them supersedes another artefact, which would come back without it.
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
	return Request{Batch: store.Batch{Scope: store.OperatorScope, Actor: "operator"}, erase: &erasure{job: job}}
}

// versionsOf returns at least how many rows an artefact has.
func (s *Engine) versionsOf(ref store.Ref) int {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	if art := s.cat.artOf(ref.Scope, ref.ID); art != 0 {
		return int(s.cat.art(art).version)
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

// eraseCommit commits one part, and with the first and the last of them the row that says how far the run has come.
func (s *Engine) eraseCommit(ctx context.Context, b *Request, row *eraseRow, first bool) error {
	id, err := store.NewID(s.opts.Now(), s.opts.Rand)
	if err != nil {
		return err
	}
	e := b.erase
	b.ID, b.Trace, b.Now = id, row.Report.Trace, s.opts.Now()
	b.Leaf = manifest.Record{Type: manifest.TypeErase, Action: "erase", By: row.Report.By, Reason: row.Report.Reason,
		Query: store.AskedDigest(row.Report.Asked, row.Report.Cascade)}
	e.run, e.sum, e.groups = row.Report.Trace, &row.Report, s.groupNumbers(e.job.Groups)
	if row.Stage == erasePurge {
		e.tail.Held, e.tail.Questions, e.tail.State = len(e.job.Held), len(e.job.Questions), len(e.job.State)
		e.tail.Bodies = manifest.CountOf(e.job.Leaves)
	}
	if first || row.Stage == erasePurge {
		value, err := row.encode()
		if err != nil {
			return err
		}
		b.State = append(b.State, store.StateRow{Key: store.EraseRows + e.run, Value: value})
	}
	if b.forget, err = s.forgets(e.forget); err != nil {
		return err
	}
	if e.last {
		b.unname, b.ungroup = e.job.Scopes, s.groupsBeside(e.job)
		if b.grouped, err = s.pastGroups(b.ungroup); err != nil {
			return err
		}
	}
	out, err := s.Submit(ctx, *b)
	if errors.Is(err, errNoneLeft) { // a scope or an artefact was written to again: the names stay
		b.forget, b.unname = nil, nil
		out, err = s.Submit(ctx, *b)
	}
	if err != nil {
		return err
	}
	row.Report = joinErased(row.Report, e.tail)
	row.Report.Leaf, row.Report.LSN = out.Leaf, out.LSN
	return nil
}

// encode leaves the job out once all commits are there: the job names what was erased.
func (r eraseRow) encode() ([]byte, error) {
	if r.Stage != eraseCommits {
		r.Job = nil
	}
	b, err := json.Marshal(&r)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: encode the row of an erase: %w", err)
	}
	return b, nil
}

func joinErased(a, b store.EraseReport) store.EraseReport {
	a.Artefacts, a.Versions, a.Pages, a.Bytes = a.Artefacts+b.Artefacts, a.Versions+b.Versions, a.Pages+b.Pages, a.Bytes+b.Bytes
	a.Held, a.Questions, a.State, a.Bodies = a.Held+b.Held, a.Questions+b.Questions, a.State+b.State, a.Bodies+b.Bodies
	return a
}

// enqueueErase makes head records of what is erased, including versions that were put since the job
// was made. A commit may be built more than once (Submit), so the tally starts anew each time.
func (s *Engine) enqueueErase(b *Request, p *Commit, leaf *manifest.Record) error {
	e := b.erase
	if e == nil {
		return nil
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
	leaf.Note = n.Counts()
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
	rest := rules.Erase(heads, p.record.LSN, codec.FromMicros(p.record.At), &e.tail)
	for i, num := range lastPages(heads) {
		r := store.Ref{Scope: ref.Scope, ID: ref.ID, Page: i + 1, Version: rest[0].Version}
		w := manifest.Write{Num: num, Ref: r.String(), Version: r.Version, Deleted: true}
		if e.job.Names {
			w.Ref = ""
		}
		leaf.Writes = append(leaf.Writes, w)
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
	return s.addHead(&p.record, leaf, format.HeadRecord{Head: h}, s.seq.scope(h.Scope), group, format.EncodeCold(h))
}

// EraseRest finishes the commits of runs that a crash interrupted, and returns the runs whose files
// are still to be purged. Nobody may have written since.
func (s *Engine) EraseRest(ctx context.Context) (rest []store.EraseReport, err error) {
	err = s.eraseRows(ctx, func(row *eraseRow) error {
		if row.Stage == eraseCommits && row.Job != nil {
			for i := range row.Job.State { // the run itself may have written some; no other caller could since
				row.Job.State[i].LSN = 0
			}
			if err := s.eraseTold(ctx, &row.Report); err != nil { // the commits that are there
				return err
			}
			if err := s.eraseAll(ctx, row, func(string, uint64, uint64) {}); err != nil {
				return err
			}
		}
		if row.Stage == eraseDone {
			return nil
		}
		rest = append(rest, row.Report)
		return s.eraseTold(ctx, &rest[len(rest)-1])
	})
	return rest, err
}

// EraseWaiting returns the committed runs whose files are still to be purged, for a store that is in use. It leaves runs whose
// commits are missing to EraseRest.
func (s *Engine) EraseWaiting(ctx context.Context) (rest []store.EraseReport, err error) {
	err = s.eraseRows(ctx, func(row *eraseRow) error {
		if row.Stage != erasePurge {
			return nil
		}
		rest = append(rest, row.Report)
		return s.eraseTold(ctx, &rest[len(rest)-1])
	})
	return rest, err
}

// eraseTold takes from the audit what the row of a run could not know when it was written: the
// place and counts of its commit.
func (s *Engine) eraseTold(ctx context.Context, rep *store.EraseReport) error {
	leaves, err := s.Leaves.ByTrace(ctx, rep.Trace)
	if err != nil {
		return AuditError(err)
	}
	for _, l := range leaves {
		if l.Type == manifest.TypeErase {
			rep.Leaf, rep.LSN = l.Index, l.LSN
			err = rep.TakeCounts(l.Note)
		}
	}
	if err != nil {
		return s.Corrupt("leaf of erase "+rep.Trace, err)
	}
	return nil
}

// eraseRows shows fn the rows of all runs, oldest first.
func (s *Engine) eraseRows(ctx context.Context, fn func(*eraseRow) error) error {
	for q := (store.ScanQuery{What: store.ScanState, Prefix: store.EraseRows, Limit: 100}); ; {
		page, err := s.Scan(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.State {
			var row eraseRow
			if err := json.Unmarshal(r.Value, &row); err != nil || row.Report.Trace != strings.TrimPrefix(r.Key, store.EraseRows) {
				return s.Corrupt(fmt.Sprintf("state row %q", r.Key), fmt.Errorf("it is no row of an erase: %w", cmp.Or(err, format.ErrEdited)))
			}
			if err := fn(&row); err != nil {
				return err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// Purge is what the owner of the files removes from them for one erase run.
type Purge struct {
	Leaves []manifest.Span // the audit leaves whose bodies are pruned
	Names  bool            // the run takes names, too
	// Pages and Tags tell an encrypted store whose keys to destroy. Pages are numbers of pages of which no row stays; Tags name
	// the rows of TableState, TableHeld and TableQuestion that the run erased or wrote anew (ErasedTag). Nil if the rows are
	// not encrypted.
	Pages []uint64
	Tags  [][8]byte
}

// Purge returns what the owner of the files must remove for a run. Call it before EraseDone, whose
// row keeps none of it.
func (s *Engine) Purge(ctx context.Context, trace string) (p Purge, err error) {
	err = s.eraseRows(ctx, func(row *eraseRow) error {
		if row.Report.Trace != trace {
			return nil
		}
		p.Leaves, p.Names = row.Leaves, row.Names
		for _, span := range row.Pages {
			for num := span[0]; num < span[1]; num++ {
				p.Pages = append(p.Pages, num)
			}
		}
		return nil
	})
	if err == nil && s.opts.Sealed {
		p.Tags, err = s.erasedTags(ctx, trace)
	}
	return p, err
}

// EraseDone records that no file of the store still has what a run erased.
func (s *Engine) EraseDone(ctx context.Context, rep store.EraseReport) error {
	s.bodiesChanged()
	id, err := store.NewID(s.opts.Now(), s.opts.Rand)
	if err != nil {
		return err
	}
	value, err := eraseRow{Stage: eraseDone, Report: rep}.encode()
	if err != nil {
		return err
	}
	_, err = s.Submit(context.WithoutCancel(ctx), Request{Batch: store.Batch{
		ID: id, Trace: rep.Trace, Scope: store.OperatorScope, Actor: "operator", Now: s.opts.Now(),
		State: []store.StateRow{{Key: store.EraseRows + rep.Trace, Value: value}},
		Leaf:  manifest.Record{Type: manifest.TypeCommit, Action: "erase", By: rep.By, Note: "the files are written anew"},
	}})
	return err
}

// Purging makes the index rewrite every segment that has a removed page, until it is switched off.
func (s *Engine) Purging(on bool) { s.index.Purge(on) }
