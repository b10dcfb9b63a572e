package filestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// An erase ends when no file of the database has a byte of the erased content:
//
//	commits   the engine's: what goes is deleted, in the log and in memory                         engine.Erase
//	index     segments with a removed page are written anew, without its words                     cutBefore
//	cut       checkpoints until no record of the log is as old as the last of those commits        cutBefore
//	names     outcomes of batches whose leaf loses its body lose their references                  engine.EraseOutcomes
//	bodies    a prune leaf vouches for the stubs that take the place of bodies of leaves           prune
//	compact   the rows go to a new file, which takes the place of the old one                      compact.go
//	destroy   of an encrypted database: the keyring loses the keys of what went, so no backup opens it  destroy.go
//	done      the row of the run says so; until it does, the next open continues here              engine.EraseDone
//
// The archive of the audit has no content: only digests, under salts that went with the texts.
// Names are in it; an erase that takes them, or a prune by age, removes the bodies of leaves. A
// prune by age leaves the file as it is.
//
// Locks: eraseMu from the first commit to the last step, so that nobody purges for a run under way.
// The commits are made under the engine's gcMu, which is released before the purge takes ckptMu.
// Between the two, and after a crash, readers already get ErrErased, and only the files still have
// the content.

// erase runs a job, then purges what earlier runs left. An error after the commits says that the erase is committed: repeating
// it continues it, and so does the next open for writing.
func (s *Store) erase(ctx context.Context, job *store.EraseJob, progress store.Progress) (rep store.JobReport, err error) {
	if err := s.eraseMu.Take(ctx); err != nil {
		return rep, err
	}
	defer s.eraseMu.Unlock()
	if rep.Erase, err = s.eng.Erase(ctx, job, progress); err != nil {
		return rep, err
	}
	if err = s.eng.At("erase committed"); err == nil {
		err = s.purge(ctx, &rep.Erase, progress)
	}
	if err != nil {
		return rep, fmt.Errorf("ctxpage: erase %s is committed, and files may still have what it took; the same erase again, or opening the database for writing, goes on with it: %w", rep.Erase.Trace, err)
	}
	return rep, s.purgeWaiting(ctx, progress)
}

// purgeWaiting finishes the runs that an error, the end of a context or a crash interrupted: their missing commits, then their
// files. The caller holds eraseMu, or is the open.
func (s *Store) purgeWaiting(ctx context.Context, progress store.Progress) error {
	rest, err := s.eng.EraseRest(ctx)
	for i := 0; i < len(rest) && err == nil; i++ {
		err = s.purge(ctx, &rest[i], progress)
	}
	if err != nil {
		return fmt.Errorf("ctxpage: an earlier erase is committed, and files may still have what it took: %w", err)
	}
	return nil
}

// finishErase continues the runs that a crash interrupted. On a full disk the open succeeds all the
// same, and a later one continues.
func (s *Store) finishErase(ctx context.Context) error {
	if s.opts.ReadOnly {
		return nil
	}
	err := s.purgeWaiting(ctx, func(string, uint64, uint64) {})
	if noSpace(err) && s.eng.Failure() == nil {
		s.opts.Logger.Warn("an erase is not finished: the disk is full; the next open continues", "path", s.opts.Path, "error", err)
		return nil
	}
	return err
}

// purge removes the erased content from the files.
func (s *Store) purge(ctx context.Context, rep *store.EraseReport, progress store.Progress) error {
	if err := s.purgeFiles(ctx, rep, progress); err != nil {
		return noSpaceError(s.opts.Path, err, max(rep.FileBefore, checkpointSpace))
	}
	if err := s.eng.At("erase purged"); err != nil {
		return err
	}
	return s.eng.EraseDone(ctx, *rep)
}

// purgeFiles does the steps of an erase in the files, in the order of the table above. Each is safe
// to do twice, because an open after a crash begins with the first step. The columns go first:
// they have ids, tags and metadata of what was erased, and no later step would miss them.
//
//	after           a crash or error leaves                                    readers get
//	commits         the content in log, file, columns and archive              ErrErased
//	columns, cut    the content in the pages of the file                       ErrErased
//	bodies          the same; leaves are stubs                                 ErrErased
//	compact         nothing; the keyring still opens it in backups             ErrErased
//	destroy         nothing                                                    ErrErased
//
// At each the row of the run is still open, so finishErase begins again. compact comes before
// destroy: the other way round, a crash would leave rows that live under keys that are gone.
func (s *Store) purgeFiles(ctx context.Context, rep *store.EraseReport, progress store.Progress) error {
	if err := s.mustJob(); err != nil {
		return err
	}
	defer s.ckptMu.Unlock()
	ctx = inJob(ctx)
	s.eng.Purging(true)
	defer s.eng.Purging(false)
	if err := s.dropColumns(); err != nil {
		return err
	}
	if err := s.cutBefore(ctx, s.log.Last()); err != nil {
		return err
	}
	if err := s.eng.At("erase cut"); err != nil {
		return err
	}
	p, err := s.eng.Purge(ctx, rep.Trace)
	if err != nil {
		return err
	}
	if err := s.pruneBodies(ctx, rep, p.Leaves, p.Names); err != nil {
		return err
	}
	if len(p.Leaves) > 0 && rep.Artefacts+rep.Held+rep.State == 0 && !p.Names {
		return nil // a prune by age: the file reuses its free space
	}
	if err := s.planDestroy(&p); err != nil {
		return err
	}
	defer func() { s.nextRing = nil }()
	before, after, err := s.compact(ctx, progress)
	rep.FileBefore, rep.FileAfter = before, after
	if err != nil {
		return err
	}
	return s.destroy()
}

// pruneBodies removes the bodies of leaves from the archive. A prune leaf of an earlier try is
// carried out as it is. The caller holds ckptMu, and the log begins behind those leaves. The leaf
// is durable before a body goes: a stub without a leaf that vouches for it would be damage.
func (s *Store) pruneBodies(ctx context.Context, rep *store.EraseReport, bodies []manifest.Span, names bool) error {
	if len(bodies) == 0 {
		return nil
	}
	if err := s.eng.EraseOutcomes(bodies); err != nil {
		return err
	}
	if _, err := s.checkpointLocked(ctx); err != nil {
		return err
	}
	leaves, err := s.eng.Leaves.ByTrace(ctx, rep.Trace)
	if err != nil {
		return LogError(err)
	}
	for _, l := range leaves {
		if l.Type == manifest.TypePrune {
			if err := s.eng.Leaves.Prune(ctx, l); err != nil {
				return LogError(err)
			}
		}
	}
	action := archive.ActionPrune
	if names {
		action = archive.ActionErase
	}
	for _, part := range archive.Parts(bodies) {
		id, err := store.NewID(s.opts.Now(), s.opts.Rand)
		if err != nil {
			return err
		}
		leaf, err := s.eng.Leaves.PlanPrune(ctx, manifest.Record{
			Trace: id.String(), Parent: rep.Trace, Time: codec.Micros(s.opts.Now()), By: rep.By, Reason: rep.Reason, Action: action,
		}, part)
		if err != nil {
			return LogError(err)
		}
		if leaf.Size == 0 {
			continue
		}
		if err := s.eng.Note(ctx, []*manifest.Record{leaf}, store.Synced); err != nil {
			return err
		}
		if err := s.eng.At("prune vouched"); err != nil {
			return err
		}
		if err := s.eng.Leaves.Prune(ctx, leaf); err != nil {
			return LogError(err)
		}
	}
	return s.eng.At("prune done")
}

// cutRounds is more than it takes: one checkpoint for the overlay of an earlier one that failed,
// one that starts a segment, and two that move on the record down to which the log is kept.
const cutRounds = 6

// cutBefore makes checkpoints until the log begins behind a record. The caller holds ckptMu. An error is
// better than to go round forever when a checkpoint no longer moves the front of the log.
func (s *Store) cutBefore(ctx context.Context, seq uint64) error {
	defer func() { s.purging = false }()
	s.purging = true
	done, err := s.squeezeLog(ctx, cutRounds, func(store.JobReport) bool { return s.log.First() > seq })
	if err == nil && !done {
		err = errors.New("ctxpage: the log still has the records of an erase")
	}
	return err
}
