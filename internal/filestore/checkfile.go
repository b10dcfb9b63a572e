package filestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/store"
)

// check walks the invariants of the whole database: bbolt's own pages here, everything else in the
// engine. A checkpoint comes first, so that what is checked is the newest state; damage that it
// finds is the first problem. Problems are findings, not errors: at most MaxProblems are reported,
// and an error means that the check itself could not go on.
func (s *Store) check(ctx context.Context, progress store.Progress) (rep store.JobReport, err error) {
	if err := s.startJob(ctx); err != nil {
		return rep, err
	}
	defer s.ckptMu.Unlock()
	bad := func(invariant, where, format string, args ...any) {
		if len(rep.Problems) < engine.MaxProblems {
			rep.Problems = append(rep.Problems, store.Problem{Invariant: invariant, Where: where, What: fmt.Sprintf(format, args...)})
		}
	}
	if !s.opts.ReadOnly {
		switch rep, err = s.checkpointLocked(ctx); {
		case errors.Is(err, store.ErrCorrupt):
			bad("I1", "file", "%v", err)
		case err != nil:
			return rep, err
		}
	}
	st, err := s.file.Load().Stat()
	if err != nil {
		return rep, fmt.Errorf("ctxpage: check: %w", err)
	}
	// bbolt's own check would die of a damaged page.
	progress("pages of the file", 0, 1)
	walkBolt(s.file.Load(), st.Size(), nil, func(format string, args ...any) { bad("I11", "bbolt", format, args...) })
	progress("pages of the file", 1, 1)
	problems, err := s.eng.Check(ctx, s.base(st.Size()), progress)
	rep.Problems = append(rep.Problems, problems...)
	return rep, err
}
