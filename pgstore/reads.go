package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Reads are the engine's, as long as this host hears from the server.

// Resolve: see store.Store.
func (s *Store) Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (store.Located, error) {
	if err := s.fresh(); err != nil {
		return store.Located{}, err
	}
	return s.eng.Resolve(ctx, scopes, ref)
}

// Load: see store.Store.
func (s *Store) Load(ctx context.Context, scopes store.Scopes, pages []store.PageKey, want store.Want) ([]store.Loaded, error) {
	if err := s.fresh(); err != nil {
		return nil, err
	}
	return s.eng.Load(ctx, scopes, pages, want)
}

// Candidates: see store.Store.
func (s *Store) Candidates(ctx context.Context, q store.CandidateQuery) (store.Candidates, error) {
	if err := s.fresh(); err != nil {
		return store.Candidates{}, err
	}
	return s.eng.Candidates(ctx, q)
}

// Scan: see store.Store.
func (s *Store) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	if err := s.fresh(); err != nil {
		return store.ScanPage{}, err
	}
	return s.eng.Scan(ctx, q)
}

// Held: see store.Store.
func (s *Store) Held(ctx context.Context, id ulid.ULID) (store.HeldBatch, error) {
	if err := s.fresh(); err != nil {
		return store.HeldBatch{}, err
	}
	return s.eng.Held(ctx, id)
}

// Vectors: see store.Store. Each host keeps its own, because they can be made again.
func (s *Store) Vectors(ctx context.Context, scopes store.Scopes, model string, nums []uint64) ([][]float32, error) {
	if err := s.fresh(); err != nil {
		return nil, err
	}
	return s.eng.Vectors(ctx, scopes, model, nums)
}

// State: see store.Store.
func (s *Store) State(ctx context.Context, key string) (store.StateRow, error) {
	if err := s.fresh(); err != nil {
		return store.StateRow{}, err
	}
	return s.eng.State(ctx, key)
}

// Outcome: see store.Store. It asks the server first: the batch may have been committed from another host.
func (s *Store) Outcome(ctx context.Context, id ulid.ULID) (store.Outcome, error) {
	if err := s.eng.Readable(ctx); err != nil {
		return store.Outcome{}, err
	}
	if err := s.log.catchUp(ctx); err != nil {
		return store.Outcome{}, fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	}
	return s.eng.Outcome(ctx, id)
}

// Mark: see store.Store.
func (s *Store) Mark() store.Mark {
	heard := time.Unix(0, s.log.heard.Load()) // before the LSN: what is seen may be newer than that, never older
	m := s.eng.Mark()
	m.Heard = heard
	return m
}

// Refresh: see store.Store. It costs a round trip. Unlike the reads it may be called on a host that is behind: it ends that.
func (s *Store) Refresh(ctx context.Context, atLeast uint64) (store.Mark, error) {
	if err := s.eng.Readable(ctx); err != nil {
		return store.Mark{}, err
	}
	if err := s.whyDead(); err != nil {
		return store.Mark{}, err
	}
	if err := s.log.landed(ctx); err != nil {
		return store.Mark{}, err
	}
	if err := s.log.catchUp(ctx); err != nil {
		return store.Mark{}, fmt.Errorf("ctxpage: log: %w", err)
	}
	m := s.Mark()
	if m.LSN < atLeast {
		return m, store.Invalid("lsn", strconv.FormatUint(atLeast, 10), fmt.Sprintf("at most %d, the newest", m.LSN))
	}
	return m, nil
}

// landed waits for the commits that are in flight. Leaves of reads need not be waited for: no reader sees them.
func (l *serverLog) landed(ctx context.Context) error {
	l.mu.Lock()
	g := l.group
	l.mu.Unlock()
	if g == nil {
		return nil
	}
	return l.wait(ctx, g)
}

// wait waits until a group is durable or lost, for at most Options.Patience.
func (l *serverLog) wait(ctx context.Context, g *group) error {
	t := time.NewTimer(l.s.opts.Patience)
	defer t.Stop()
	select {
	case <-g.done:
		return g.err
	case <-l.s.dead:
		return l.s.whyDead()
	case <-t.C:
		return ErrUnavailable
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Head returns the head over all leaves that were left on this host before the call, and all that the server has.
func (s *Store) Head(ctx context.Context) (manifest.Head, error) {
	if err := s.eng.Readable(ctx); err != nil {
		return manifest.Head{}, err
	}
	if err := s.log.Sync(ctx, 0, nil); err != nil {
		return manifest.Head{}, err
	}
	if err := s.log.catchUp(ctx); err != nil {
		return manifest.Head{}, err
	}
	now := s.opts.Now()
	if err := store.CheckClock(now); err != nil {
		return manifest.Head{}, err
	}
	return s.eng.Leaves.Head(s.eng.Leaves.Size(), codec.Micros(now))
}

// Stat returns sizes and counters of this moment. LogBytes is the approximate size of the records on the server.
func (s *Store) Stat(ctx context.Context) (store.StoreStats, error) {
	if err := s.eng.Readable(ctx); err != nil {
		return store.StoreStats{}, err
	}
	var st store.StoreStats
	s.eng.Count(&st, func() {
		st.ID, st.Format, st.Created, st.Applied = s.db.id, cacheFormat, s.db.created, s.cache.now().Applied
	})
	st.Leaves, st.Archived = s.eng.Leaves.Size(), s.eng.Leaves.Archived()
	st.FileBytes = s.cache.size()
	var err error
	st.Held, err = s.eng.Undecided()
	return st, err
}

// Maintain: see store.Store. A backup is the server's; see docs/postgres.md.
func (s *Store) Maintain(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	if s.eng.Closed() {
		return store.JobReport{}, store.ErrClosed
	}
	if err := cmp.Or(s.whyDead(), format.CheckJob(&job)); err != nil {
		return store.JobReport{}, err
	}
	if progress == nil {
		progress = func(string, uint64, uint64) {}
	}
	switch job.Kind {
	case store.JobCheckpoint:
		if err := s.log.Sync(ctx, 0, nil); err != nil {
			return store.JobReport{}, err
		}
		return s.checkpoint(ctx)
	case store.JobBackup:
		return store.JobReport{}, store.Invalid("job", "a backup of a database on a server",
			"the server's own backup (pg_basebackup, pg_dump), and a head kept elsewhere")
	case store.JobCompact:
		return store.JobReport{}, store.Invalid("job", "compact, of a database on a server", "the server's own VACUUM")
	case store.JobCheck:
		return s.check(ctx, progress)
	case store.JobGCPlan, store.JobGC:
		return s.collect(ctx, job, progress)
	case store.JobErase:
		return s.erase(ctx, job.Erase, progress)
	}
	return store.JobReport{}, store.Invalid("job", fmt.Sprint(job.Kind), "checkpoint, check, gc or erase")
}

// check holds the rows of this host against the audit.
func (s *Store) check(ctx context.Context, progress store.Progress) (rep store.JobReport, err error) {
	if err := s.log.catchUp(ctx); err != nil {
		return rep, err
	}
	s.ckptMu.Lock()
	defer s.ckptMu.Unlock()
	if rep, err = s.checkpointLocked(ctx); err != nil {
		return rep, err
	}
	rep.Problems, err = s.eng.Check(ctx, s.cache.base(), progress)
	return rep, err
}

// collect runs gc or plans it. What readers of other hosts need stays: each host tells the oldest moment they read at with its
// heartbeat, and it is held here meanwhile.
func (s *Store) collect(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	if err := s.log.catchUp(ctx); err != nil {
		return store.JobReport{}, err
	}
	held, err := s.heldElsewhere(ctx)
	if err != nil {
		return store.JobReport{}, err
	}
	for _, at := range held {
		t, err := s.eng.Hold(ctx, at)
		if err != nil {
			return store.JobReport{}, err
		}
		defer s.eng.Release(t)
	}
	return s.eng.Collect(ctx, job, progress)
}
