package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
)

// recordRecovery writes the leaf of an open after an unclean end. If the disk is full, the leaf is
// written when there is space, and until then no end counts as clean, so a later open writes it.
func (s *Store) recordRecovery(rec wal.Recovery) error {
	if rec.Fresh || rec.Clean || s.opts.ReadOnly {
		return nil
	}
	s.opts.Logger.Warn("recovered after an unclean end", "path", s.opts.Path, "cut_bytes", rec.CutBytes)
	leaf := &manifest.Record{
		Type: manifest.TypeRecovered, Cut: rec.Last, Lost: uint64(rec.CutBytes),
		Reason: "reads of the last 100 ms before the end may be missing",
	}
	err := s.note(context.Background(), s.opts.Audit, leaf)
	if noSpace(err) && s.eng.Failure() == nil {
		s.unrecorded.Store(leaf)
		return nil
	}
	if err != nil {
		s.eng.Fail(err) // otherwise Close would mark this end as clean, and no open would ever write the leaf
	}
	return err
}

// leftBehind reports whether a log or an archive says that there was a database here. Then an empty
// file in its place is damage, and a new database would hide that. A killed creation leaves a log
// without records: nothing is written before the system row is.
func (s *Store) leftBehind() (bool, error) {
	names, err := s.opts.FS.ReadDir(s.opts.Path + "-manifest")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("ctxpage: open: %w", err)
	}
	if len(names) > 0 {
		return true, nil
	}
	errFirst := errors.New("a record")
	rec, err := wal.Scan(context.Background(), s.opts.Path+"-wal", s.opts.FS, func(wal.Record) error { return errFirst })
	var damaged *store.CorruptError
	switch {
	case err == nil:
		return !rec.Fresh, nil
	case errors.Is(err, errFirst), errors.As(err, &damaged), errors.Is(err, store.ErrNewerFormat):
		return true, nil
	}
	return false, fmt.Errorf("ctxpage: open: %w", err)
}

// openLog opens the log and calls replay for its records.
func (s *Store) openLog(ctx context.Context, mustExist bool, replay func(wal.Record) error) (*wal.Log, wal.Recovery, error) {
	least := int64(leastReserve)
	if free := s.free(); free < spaceCacheAbove {
		least = 0
		s.reserved.Store(true)
	}
	log, rec, err := wal.Open(ctx, s.opts.Path+"-wal", wal.Options{
		LeastReserve: least, Sync: s.opts.sync(), FS: s.opts.FS, ReadOnly: s.opts.ReadOnly, MustExist: mustExist, OnDurable: s.line.durable, NoSync: s.opts.NoSync,
		SegmentBytes: s.opts.Segment, Sealed: s.ring.Load() != nil, MaxRecord: maxRecord + Overhead,
	}, replay)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, rec, &store.CorruptError{File: s.opts.Path + "-wal", Err: errors.New("the log is missing: only the log has the commits since the last checkpoint"),
			Hint: "it was removed, or not copied with the file: put it back; or " + store.HintSalvage}
	}
	return log, rec, LogError(err)
}

// sync returns what syncs a file of the log; nil: the file itself.
func (o *Options) sync() func(wal.File) error {
	if o.Synced == nil {
		return nil
	}
	return func(f wal.File) error {
		began := o.Now()
		err := f.Sync()
		o.Synced(began, err)
		return err
	}
}

// hintCopy is appended to the hints about files that do not fit together.
const hintCopy = "; a copy made while the database was written does not fit together: copy with Backup (dbctl backup) instead; or " + store.HintSalvage

// recover replays the log: leaves into the audit, commits above the applied LSN into catalogue and
// overlay. Then it compares where the three parts end. The file names the record that carries its
// LSN (Seq), so a log that begins after it or ends before it is another log, or lacks segments. The
// archive must not have more leaves than log and file know of, nor fewer than the file's commits
// need.
//
//	log      first ≤ Seq + 1                else segments are missing at its front
//	log      last ≥ Seq                     else it was cut or replaced
//	archive  at most what log and file name else the log was cut or replaced
//	audit    at least what the file needs   else the archive was replaced
//	audit    at least what its mark says    else leaves of it are lost
//
// ErrMisfit tells a caller that each part may be sound and that they are of different moments.
func (s *Store) recover(ctx context.Context) (wal.Recovery, error) {
	if s.log != nil { // made with the file
		return s.made, nil
	}
	first := true
	log, rec, err := s.openLog(ctx, true, func(r wal.Record) error {
		if first && r.Seq > s.sys.Seq+1 {
			return &store.CorruptError{File: r.Segment, Err: fmt.Errorf("%w: log begins at record %d, the file ends at %d", store.ErrMisfit, r.Seq, s.sys.Seq),
				Hint: "segments of the log are missing: put them back" + hintCopy}
		}
		first = false
		return s.redo(r)
	})
	if err != nil {
		return rec, err
	}
	s.log = log
	if rec.First > s.sys.Seq+1 { // a log without records did not reach the same test above
		return rec, &store.CorruptError{File: s.opts.Path + "-wal", Err: fmt.Errorf("%w: log begins at record %d, the file ends at %d", store.ErrMisfit, rec.First, s.sys.Seq),
			Hint: "segments of the log are missing: put them back" + hintCopy}
	}
	if s.sys.Seq > rec.Last {
		return rec, &store.CorruptError{File: s.opts.Path + "-wal", Err: fmt.Errorf("%w: log ends at record %d, the file at %d", store.ErrMisfit, rec.Last, s.sys.Seq),
			Hint: "the log was removed or replaced: put it back" + hintCopy}
	}
	if last := max(s.eng.Followed(), s.sys.Leaves); s.archived > last {
		return rec, &store.CorruptError{File: s.opts.Path + "-manifest", Err: fmt.Errorf("%w: the archive has %d leaves, but log and file name only %d", store.ErrMisfit, s.archived, last),
			Hint: "the log was cut or replaced: put it back" + hintCopy}
	}
	if have := s.eng.Leaves.Size(); have < s.sys.Leaves {
		return rec, &store.CorruptError{File: s.opts.Path + "-manifest", Err: fmt.Errorf("%w: archive and log have %d leaves, but the file has commits up to leaf %d", store.ErrMisfit, have, s.sys.Leaves),
			Hint: "the archive was replaced: put it back" + hintCopy}
	}
	if have, want := s.eng.Leaves.Size(), s.eng.Leaves.Marked(); have < want {
		return rec, &store.CorruptError{File: s.opts.Path + "-manifest", Err: fmt.Errorf("%w: the mark of the archive vouches for %d leaves, archive and log have %d", store.ErrMisfit, want, have),
			Hint: "leaves are lost: put the archive and the log back" + hintCopy}
	}
	return rec, nil
}

// LogError turns an error of the log or the archive into the error that store.Store promises.
func LogError(err error) error {
	switch {
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNewerFormat), errors.Is(err, store.ErrOldFormat):
		return err
	case errors.Is(err, archive.ErrSealed):
		return fmt.Errorf("%w: %w", store.ErrKey, err)
	}
	return engine.AuditError(err)
}

// redo passes a record of the log to the engine, and adds the place of the record to an error.
func (s *Store) redo(r wal.Record) error {
	r, err := openRecord(s.ring.Load(), r)
	if err != nil {
		return err
	}
	kind, ok := map[wal.Kind]engine.Kind{wal.KindCommit: engine.KindCommit, wal.KindAudit: engine.KindLeaf, wal.KindMark: engine.KindMark}[r.Kind]
	if !ok {
		kind = engine.KindCommit // a kind of a later release: the version of its record is refused
	}
	err = s.eng.Follow(kind, r.Seq, r.Body)
	var bad *engine.RecordError
	if errors.Is(err, codec.ErrNewer) {
		return fmt.Errorf("%w: %s: record %d: %w; use a newer release", store.ErrNewerFormat, r.Segment, r.Seq, err)
	}
	if errors.As(err, &bad) {
		return &store.CorruptError{File: r.Segment, Offset: r.Offset, Unit: codec.UnitLSN, Num: bad.LSN, Err: bad.Err, Hint: bad.Hint}
	}
	return LogError(err)
}
