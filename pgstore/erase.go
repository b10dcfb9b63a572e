package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// An erase ends when neither the server's tables nor the cache of any live host has a byte of what was erased:
//
//	commits   the engine's: every host that follows installs them                                  engine.Erase
//	cache     each host writes its index and its rows anew, and says so in its row of the hosts     purgeCache
//	image     a new one replaces the old                                                           writeImage
//	trim      the records before it leave the log                                                  trim
//	done      the row of the run says so                                                           engine.EraseDone
//
// The server keeps deleted rows in its own files until it vacuums, and in its backups and archived WAL: those are its
// operator's (docs/postgres.md).

// purgeWait is the time that an erase waits for the caches of other hosts, beyond the time after which a host counts as gone.
const purgeWait = 15 * time.Second

// erase runs a job.
func (s *Store) erase(ctx context.Context, job *store.EraseJob, progress store.Progress) (rep store.JobReport, err error) {
	if job != nil && (job.Names || len(job.Leaves) > 0) {
		return rep, fmt.Errorf("pgstore: %w: to remove bodies of audit leaves, and names with them, is not supported on PostgreSQL yet; erase without names, and set no policy with prune", errors.ErrUnsupported)
	}
	if err := s.log.catchUp(ctx); err != nil {
		return rep, err
	}
	if rep.Erase, err = s.eng.Erase(ctx, job, progress); err != nil {
		return rep, err
	}
	if err = s.purge(ctx, &rep.Erase, progress); err != nil {
		return rep, fmt.Errorf("pgstore: erase %s is committed, and the server may still have what it took; FinishErase goes on with it: %w", rep.Erase.Trace, err)
	}
	if _, err = s.FinishErase(ctx, progress); err != nil { // of runs that were interrupted: nobody else may close them
		err = fmt.Errorf("pgstore: an earlier erase is committed, and the server may still have what it took; FinishErase goes on with it: %w", err)
	}
	return rep, err
}

// FinishErase continues erases that an error or a crash stopped before all of their content was gone, and returns them. It takes
// nothing that was written since they began, so it may run at any time, also while another host is in the middle of one. Each
// erase does it at its end.
func (s *Store) FinishErase(ctx context.Context, progress store.Progress) ([]store.EraseReport, error) {
	if progress == nil {
		progress = func(string, uint64, uint64) {}
	}
	if err := s.log.catchUp(ctx); err != nil {
		return nil, err
	}
	rest, err := s.eng.EraseRest(ctx)
	for i := range rest {
		if err == nil {
			err = s.purge(ctx, &rest[i], progress)
		}
	}
	return rest, err
}

// purge takes what was erased out of the caches and out of the server's tables.
func (s *Store) purge(ctx context.Context, rep *store.EraseReport, progress store.Progress) error {
	rep.FileBefore = s.cache.size()
	if _, err := s.purgeCache(ctx); err != nil {
		return err
	}
	rep.FileAfter = s.cache.size()
	if err := s.register(ctx); err != nil {
		return err
	}
	if err := s.awaitPurged(ctx, rep.LSN, progress); err != nil {
		return err
	}
	for try := 0; ; try++ {
		written, err := s.writeImage(ctx, progress)
		if err != nil {
			return err
		}
		if written {
			break
		}
		if !s.log.pause(ctx, try) || try == 20 {
			return fmt.Errorf("pgstore: another host is writing an image, which may have what was erased")
		}
	}
	if err := s.trim(ctx, 0); err != nil {
		return err
	}
	return s.eng.EraseDone(ctx, *rep)
}

// awaitPurged waits until each live host says that its cache has nothing of the erase.
func (s *Store) awaitPurged(ctx context.Context, lsn uint64, progress store.Progress) error {
	until := time.Now().Add(purgeWait + s.opts.gone())
	for try := 0; ; try++ {
		var all, left int64
		var first *string
		err := s.pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE purged < $2), min(name) FILTER (WHERE purged < $2)
			FROM ctxpage_hosts WHERE db = $1 AND seen > now() - $3::interval`, s.db.num, int64(lsn), s.opts.gone()).Scan(&all, &left, &first)
		if err != nil {
			return err
		}
		progress("caches of hosts", uint64(all-left), uint64(all))
		if left == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("pgstore: %d of %d hosts have not purged their caches, among them %q", left, all, *first)
		}
		if !s.log.pause(ctx, min(try, 4)) {
			return ctx.Err()
		}
	}
}

// purgeCache writes the cache anew if there was an erase since it was last.
func (s *Store) purgeCache(ctx context.Context) (did bool, err error) {
	newest, err := s.newestErase(ctx)
	if err != nil || newest <= s.purged.Load() {
		return false, err
	}
	if err := s.log.emptySpool(ctx); err != nil { // first: it waits for a turn, and a turn may wait for a checkpoint
		return false, err
	}
	s.ckptMu.Lock()
	defer s.ckptMu.Unlock()
	s.eng.Purging(true)
	defer s.eng.Purging(false)
	for range 2 { // an overlay that an earlier checkpoint could not write is written first
		if _, err := s.checkpointLocked(ctx); err != nil {
			return false, err
		}
	}
	if err := s.cache.compact(); err != nil {
		return false, s.die(fmt.Errorf("compact the cache: %w", err))
	}
	s.purged.Store(max(newest, s.purged.Load())) // a purge that began later may have ended before
	return true, nil
}

// newestErase is the LSN of the newest commit of an erase; 0: there was none. The row of a run is written with each of its
// commits.
func (s *Store) newestErase(ctx context.Context) (lsn uint64, err error) {
	q := store.ScanQuery{What: store.ScanState, Prefix: format.EraseRows, Limit: 100}
	for {
		page, err := s.eng.Scan(ctx, q)
		if err != nil {
			return 0, err
		}
		for _, r := range page.State {
			if strings.HasPrefix(r.Key, format.EraseRows) {
				lsn = max(lsn, r.LSN)
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return lsn, nil
		}
	}
}
