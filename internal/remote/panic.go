package remote

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// A call that panics is a fault of this program. It must not take the owner of the database down with it: the owner is
// somebody's agent, and any client could repeat the call at the next owner. So the call ends in an error, and the others go
// on.
//
// A panic may have left a lock behind, which would hold up every later call. So the store is asked once afterwards; if it
// does not answer, the process ends after all, and another process takes the files over.

// probeWait is how long a store may take to answer after a call panicked.
const probeWait = 30 * time.Second

// panicked returns the error of a call that panicked. A call that writes may have been carried out.
func (s *Server) panicked(m method, name string, why any) error {
	at := fmt.Sprintf("%v\n%s", why, debug.Stack())
	go s.probe(name, at)
	err := fmt.Errorf("ctxpage: internal error: call %s panicked: %v; please report it", name, why)
	if m.once || m.whole {
		return fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	}
	return err
}

// probe asks the store for something that takes its locks.
func (s *Server) probe(name, at string) {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = s.store.Stat(context.Background())
		_, _ = s.store.Scan(context.Background(), store.ScanQuery{What: store.ScanScopes, Limit: 1})
	}()
	select {
	case <-answered:
	case <-time.After(probeWait):
		why := fmt.Sprintf("ctxpage: the store does not answer since call %s panicked: %s", name, at)
		if s.opts.fatal == nil {
			panic(why)
		}
		s.opts.fatal(why)
	}
}
