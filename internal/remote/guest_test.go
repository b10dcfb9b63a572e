package remote

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// jobs counts the jobs that it is asked for, and answers with an error.
type jobs struct {
	store.Store
	n   int
	err func() error
}

func (j *jobs) Maintain(context.Context, store.Job, store.Progress) (store.JobReport, error) {
	j.n++
	return store.JobReport{}, j.err()
}

// A client whose owner ended during a job does not run the job again in its own files if that could change anything. The controls:
// the owner never got it, or the job changes nothing.
func TestJobsAreNotRepeated(t *testing.T) {
	t.Parallel()
	for kind, writes := range map[store.JobKind]bool{
		store.JobCheckpoint: false, store.JobBackup: true, store.JobCheck: false, store.JobGCPlan: false, store.JobGC: true,
		store.JobErase: true, store.JobCompactPlan: false, store.JobCompact: true,
	} {
		for name, c := range map[string]struct {
			err  error
			sent bool
		}{
			"taken":            {&TakenError{}, false},
			"taken, sent":      {&TakenError{Sent: true}, true},
			"closed":           {store.ErrClosed, false},
			"closed, was sent": {fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, store.ErrClosed), true},
		} {
			g, mine := &guest{}, &jobs{err: func() error { return nil }}
			g.is.Store(&role{&jobs{err: func() error { g.is.Store(&role{mine}); return c.err }}})
			_, err := g.Maintain(t.Context(), store.Job{Kind: kind}, nil)
			if c.sent && writes {
				require.ErrorIs(t, err, store.ErrOutcomeUnknown, "%d, %s", kind, name)
				require.Zero(t, mine.n)
			} else {
				require.NoError(t, err, "%d, %s", kind, name)
				require.Equal(t, 1, mine.n)
			}
		}
	}
}
