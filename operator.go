package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/ops"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// What only the operator may do (Admin). File roots are one state row of the database: it is read, changed and
// committed on the condition that it is unchanged (format.Retry).

// PutVerified writes a fact that a person answers for. It gets the highest provenance, which no Scope can give. by
// names the person; the manifest records it.
func (ad *Admin) PutVerified(ctx context.Context, scope, by string, a Artefact) (Ref, error) {
	s := ad.db.Scope(scope, WithActor(by))
	tx, err := s.vouched()
	if err != nil {
		return Ref{}, err
	}
	if err := checkPut(&a); err != nil {
		return Ref{}, err
	}
	a.Provenance = 0
	put, err := tx.makePut(ctx, a)
	if err != nil {
		return Ref{}, err
	}
	put.Artefact.Provenance = store.HumanVerified
	refs, err := tx.vouch(ctx, manifest.Record{Type: manifest.TypeCommit, By: by, Reason: "human-verified"}, put)
	if err != nil {
		return Ref{}, err
	}
	return refs[0], nil
}

// vouch commits puts with a leaf that says on whose authority.
func (tx *Txn) vouch(ctx context.Context, leaf manifest.Record, puts ...store.Put) ([]Ref, error) {
	for _, p := range puts {
		if err := tx.add(ctx, p); err != nil {
			return nil, err
		}
	}
	if err := tx.whole(); err != nil {
		return nil, err
	}
	b := tx.batch()
	b.OnStale, b.Leaf = store.AllowStale, leaf
	if err := tx.finish(ctx, b); err != nil {
		return nil, err
	}
	return tx.out.Refs, nil
}

// Promote copies an artefact to an ancestor of its scope, where siblings can see it. The copy keeps its provenance. It
// does not keep its lineage, because that names artefacts which the ancestor does not see.
func (ad *Admin) Promote(ctx context.Context, ref Ref, to, by string) (Ref, error) {
	chain := store.ScopeChain(ref.Scope)
	if !slices.Contains(chain[1:], to) {
		return Ref{}, store.Invalid("scope", to, "an ancestor of "+ref.Scope)
	}
	if err := checkReserved("id", ref.ID); err != nil {
		return Ref{}, err
	}
	v, _, err := ad.db.read(ctx, store.Scopes{ref.Scope}, Ref{Scope: ref.Scope, ID: ref.ID, Version: ref.Version})
	if err != nil {
		return Ref{}, err
	}
	tx, err := ad.db.Scope(to, WithActor(by)).vouched()
	if err != nil {
		return Ref{}, err
	}
	a := v.Artefact
	a.Supersedes, a.DerivedFrom = nil, nil // both name artefacts the ancestor does not see
	put, err := ad.db.makePut(a, v.src.Source)
	if err != nil {
		return Ref{}, err
	}
	refs, err := tx.vouch(ctx, manifest.Record{Type: manifest.TypePromote, By: by, Reason: eraseplan.PromotedFrom + v.Ref.String()}, put)
	if err != nil {
		return Ref{}, err
	}
	return refs[0], nil
}

// Raise names artefacts of one scope and the provenance that they get.
type Raise struct {
	To      store.Provenance
	By, Why string // who answers for them, and why; By is required
	// IDs and Where say which: all that are among IDs (nil: any) and pass Where.
	IDs    []string
	Where  Filter
	DryRun bool
	// Progress, if not nil, hears how many artefacts were looked at.
	Progress store.Progress
}

// Raised says what a Raise did.
type Raised struct {
	Refs  []Ref `json:"refs"`  // new versions; of a dry run, the versions that would be raised
	Above int   `json:"above"` // artefacts that have the provenance or a higher one already
}

const raiseAtOnce = 200 // artefacts of one commit

// Raise raises the provenance of artefacts: each gets a new version with the same text, whose leaf in the manifest says by whom and
// why. Artefacts that have it already, and pages of the database's own, are left alone. Raising stops between two commits; a second
// call continues.
//
// Errors: ErrInvalid, ErrNotFound for IDs that the scope itself does not have, ErrConflict if an artefact changed meanwhile.
func (ad *Admin) Raise(ctx context.Context, scope string, r Raise) (*Raised, error) {
	switch {
	case !r.To.Valid() || r.To == store.Scratch:
		return nil, store.Invalid("provenance", r.To.String(), "tool, validated, chunk or human-verified")
	case r.By == "":
		return nil, store.Invalid("by", "nobody", "who answers for it, for the audit")
	}
	if err := checkVerdict(r.By, r.Why); err != nil {
		return nil, err
	}
	s, out := ad.db.Scope(scope, WithActor(r.By)), &Raised{Refs: []Ref{}}
	missing := map[string]bool{}
	for _, id := range r.IDs {
		missing[id] = true
	}
	looked := uint64(0)
	for cursor := ""; ; {
		list, next, err := s.list(ctx, "", cursor, raiseAtOnce, readOptions{filter: r.Where})
		if err != nil {
			return out, err
		}
		list = slices.DeleteFunc(list, func(v *Version) bool {
			looked++
			named := missing[v.ID]
			delete(missing, v.ID)
			if r.IDs != nil && !named || strings.HasPrefix(v.ID, store.ReservedPrefix) {
				return true
			}
			if v.Provenance >= r.To {
				out.Above++
			}
			return v.Provenance >= r.To
		})
		if err := s.raise(ctx, r, list, out); err != nil {
			return out, err
		}
		if r.Progress != nil {
			r.Progress("artefacts", looked, 0)
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if len(missing) > 0 {
		return out, fmt.Errorf("%w: scope %s has no artefact %q that the rest of the selection takes", store.ErrNotFound, scope, sortedKeys(missing)[0])
	}
	return out, nil
}

// raise commits new versions of artefacts in one batch.
func (s *Scope) raise(ctx context.Context, r Raise, list []*Version, out *Raised) error {
	if r.DryRun || len(list) == 0 {
		for _, v := range list {
			out.Refs = append(out.Refs, v.Ref)
		}
		return nil
	}
	tx, err := s.vouched()
	if err != nil {
		return err
	}
	var puts []store.Put
	for _, v := range list {
		v, _, err := s.db.read(ctx, s.chain[:1], v.Ref)
		if err != nil {
			return err
		}
		a := v.Artefact
		a.Provenance = r.To
		put, err := s.db.makePut(a, v.src.Source)
		if err != nil {
			return err
		}
		puts = append(puts, put)
		set(&tx.expect, v.ID, v.LSN)
	}
	refs, err := tx.vouch(ctx, manifest.Record{Type: manifest.TypeCommit, By: r.By, Note: r.Why, Reason: "raised to " + r.To.String()}, puts...)
	out.Refs = append(out.Refs, refs...)
	return err
}

// Scopes ranges over the scopes that were written to, by name; AtMost applies. Scopes whose names gc dropped are not
// listed. Scopes that are first written to meanwhile may or may not be listed.
func (db *DB) Scopes(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[store.ScopeInfo, error] {
	return ranged(ctx, readOpts(opts).part, 4*listedAtOnce, func(cursor string, limit int) ([]store.ScopeInfo, string, error) { // each part goes through all names
		page, err := db.store.Scan(ctx, store.ScanQuery{What: store.ScanScopes, Prefix: prefix, Cursor: cursor, Limit: limit})
		return page.Names, page.Next, err
	})
}

// checkFileRoot refuses a directory that does not exist: every source below it would fail without an apparent reason. A
// root that was recorded earlier may be missing today or on this computer; its pages are then left out and say so.
func checkFileRoot(field, dir string) error {
	info, err := os.Stat(dir)
	switch {
	case dir == "":
		return store.Invalid(field, "an empty name", "a directory")
	case errors.Is(err, fs.ErrNotExist):
		return store.InvalidMissing(err, field, strconv.Quote(dir)+", which is not there", "a directory; create it first, or leave it out")
	case err != nil:
		return fmt.Errorf("ctxpage: %s %q: %w", field, dir, err)
	case !info.IsDir():
		return store.Invalid(field, strconv.Quote(dir)+", which is not a directory", "a directory")
	}
	return nil
}

const rootState = "root/"

// AddFileRoot allows file: sources of this database to read a directory, now and, for processes that open with
// Options.RecordedRoots, from now on.
func (ad *Admin) AddFileRoot(ctx context.Context, dir string) error {
	if err := checkFileRoot("file root", dir); err != nil {
		return err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("ctxpage: file root %q: %w", dir, err)
	}
	if err := ad.db.checker.Files.AddRoot(abs); err != nil {
		return err
	}
	return format.Retry(ctx, func() error { return ad.db.recordFileRoot(ctx, abs) })
}

// recordFileRoot adds a root to the row of roots, sorted, on the condition that the row is unchanged.
func (db *DB) recordFileRoot(ctx context.Context, abs string) error {
	roots, lsn, err := db.fileRoots(ctx)
	if err != nil || slices.Contains(roots, abs) {
		return err
	}
	roots = append(roots, abs)
	slices.Sort(roots)
	row, err := codec.PackStrings(roots)
	if err != nil {
		return err
	}
	_, err = db.commit(ctx, store.Batch{
		Scope: store.OperatorScope, Actor: "operator", State: []store.StateRow{{Key: rootState, Value: row}},
		ExpectState: []store.StatePre{{Key: rootState, LSN: lsn}},
		Leaf:        manifest.Record{Type: manifest.TypeCommit, Action: "file root", Reason: "vouched by the host"},
	})
	return err
}

// rootPaths narrows the row of roots to those that keep accepts.
func rootPaths(_ string, value []byte, keep func(dir string) bool) (kept []byte, left []string, err error) {
	var roots, taken []string
	if err := codec.Unpack(value, &roots); err != nil {
		return nil, nil, err
	}
	for _, dir := range roots {
		if keep(dir) {
			taken = append(taken, dir)
		} else {
			left = append(left, dir)
		}
	}
	if len(taken) == 0 {
		return nil, left, nil
	}
	kept, err = codec.PackStrings(taken)
	return kept, left, err
}

// FileRoots returns the directories recorded by AddFileRoot.
func (ad *Admin) FileRoots(ctx context.Context) ([]string, error) {
	roots, _, err := ad.db.fileRoots(ctx)
	return roots, err
}

// fileRoots returns the recorded roots and the LSN of their row.
func (db *DB) fileRoots(ctx context.Context) (roots []string, lsn uint64, err error) {
	row, err := db.store.State(ctx, rootState)
	if err != nil || row.Value == nil {
		return nil, 0, err
	}
	return roots, row.LSN, codec.Unpack(row.Value, &roots)
}

// Checkpoint applies the log to the file and cuts the part of the log that is no longer needed. It runs by itself in
// the background and changes no answer.
func (ad *Admin) Checkpoint(ctx context.Context) (store.JobReport, error) {
	return ad.db.store.Maintain(ctx, store.Job{Kind: store.JobCheckpoint}, nil)
}

// Backup copies the database to another path, where it can be opened. The directory must exist and hold no part of a
// database. Writers are not stopped; the copy is a whole prefix of their commits. On a full disk the error says how
// much space the copy needs and how much was free, and nothing of the copy is left. Progress, if not nil, is called
// from this goroutine.
func (ad *Admin) Backup(ctx context.Context, path string, progress func(what string, done, total uint64)) (store.JobReport, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return store.JobReport{}, fmt.Errorf("ctxpage: backup: %w", err)
	}
	return ad.db.store.Maintain(ctx, store.Job{Kind: store.JobBackup, Path: abs}, progress)
}

// Check walks the whole database and reports every broken invariant, numbered as in engine/check.go. Damage is in the
// report. The error is for a walk that could not be finished.
func (ad *Admin) Check(ctx context.Context, progress func(what string, done, total uint64)) ([]store.Problem, error) {
	rep, err := ad.db.store.Maintain(ctx, store.Job{Kind: store.JobCheck}, progress)
	if err != nil {
		return rep.Problems, err
	}
	problems, err := ad.db.checkDirectives(ctx)
	return append(rep.Problems, problems...), err
}

// Compact returns the free space of the file to the disk: the rows go to a new file, which takes the place of the old
// one. It takes the time and space of a copy; reads and writes go on, and a crash leaves one whole file. With dryRun it only
// says how much. Errors: ErrReadOnly (except for a dry run), ErrNoSpace, ErrCorrupt.
func (ad *Admin) Compact(ctx context.Context, dryRun bool, progress func(what string, done, total uint64)) (store.CompactReport, error) {
	job := store.Job{Kind: store.JobCompact}
	if dryRun {
		job.Kind = store.JobCompactPlan
	}
	rep, err := ad.db.store.Maintain(ctx, job, progress)
	return rep.Compact, err
}

// Erase removes content from the database for good: all versions of what the request names, everything else that holds
// its words (turns and what was decided about them, drafts, held batches, questions, summaries, vectors, the index), and,
// depending on its cascade, what was derived from it. When Erase returns, no file of the database holds a byte of it. The
// salts are gone too, so no digest in the audit can be used to guess the text. The audit keeps names, times and counts and
// verifies against every earlier head; Why and Replay of a context that showed it say when it was erased and by whom. The
// report says what goes and what is affected; with DryRun nothing else happens. ops.NewReceipt proves an erase to others.
// docs/erase.md says what an erase cannot reach.
//
// Only the operator can erase. It takes about the time of a copy of the file, and its space. Reads and writes go on
// meanwhile. An erase is bound to its first commit: what is written later stays, also under the same names. Once that commit
// is made, an error, such as the end of ctx, leaves the content in the files: any other erase, a compaction or the next open
// for writing finishes it. The same erase again does, too, and takes what was written since.
//
// Errors: ErrInvalid, ErrNotFound when the database holds nothing of what was named, ErrConflict when a session was written
// to meanwhile (repeating is safe), ErrNoSpace, ErrReadOnly, ErrCorrupt. ErrOutcomeUnknown: the process that owns the files
// ended before it answered; Erasures lists the erase once the next owner has finished it.
func (ad *Admin) Erase(ctx context.Context, req ops.Request) (*ops.Report, error) {
	defer ad.db.swept(ctx)
	return eraseplan.Run(ctx, ad.db.store, &req)
}

// Erasures lists the erases that are finished, oldest first, so that ops.NewReceipt can make their receipts again. An
// erase that was interrupted, and finished by a later open, has no receipt yet.
func (ad *Admin) Erasures(ctx context.Context) ([]store.EraseReport, error) {
	return eraseplan.Finished(ctx, ad.db.store)
}

// swept forgets what is in memory of artefacts and sessions that went.
func (db *DB) swept(ctx context.Context) {
	_ = db.table.dropEnded(ctx) // else the next fault does
	db.sessions.Swept()
}

// Retention keeps the retention policies of the database and carries them out. Only the operator can.
func (ad *Admin) Retention() *ops.Retention {
	return &ops.Retention{Store: ad.db.store, Now: ad.db.opts.Clock, NewID: ad.db.newID, Swept: ad.db.swept}
}

// Quotas sets and shows how much scopes may hold. Only the operator can.
func (ad *Admin) Quotas() *ops.Quotas {
	return &ops.Quotas{Store: ad.db.store, Now: ad.db.opts.Clock, NewID: ad.db.newID}
}

// RepeatErase erases what receipts say was erased after this database was copied: after a restore of an older backup.
// Receipts that are in the audit already are skipped. Errors: ops.ErrReceipt for one that is not valid, and the errors of
// Erase.
func (ad *Admin) RepeatErase(ctx context.Context, receipts []*ops.Receipt, dryRun bool, progress func(what string, done, total uint64)) ([]*ops.Report, error) {
	defer ad.db.swept(ctx)
	return eraseplan.Repeat(ctx, ad.db.store, receipts, dryRun, progress)
}

// Health reports which pages of the scope itself are stored twice, contradict each other, are never served or no longer
// answer anything, and names the command that mends each. It reads every text of the scope and writes nothing. The
// report names artefacts and has no contents, so it leaves no manifest.
// Options.Now is set to the clock.
func (s *Scope) Health(ctx context.Context, o ops.HealthOptions) (*ops.HealthReport, error) {
	if err := s.hostOnly("Health"); err != nil {
		return nil, err
	}
	o.Now = s.db.opts.Clock()
	return ops.Health(ctx, s.db.store, s.name, o)
}
