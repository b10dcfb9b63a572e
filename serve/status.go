package serve

import (
	"context"
	"time"

	"github.com/ctxpage/ctxpage/internal/filestore"
)

type statusOut struct {
	Version  int       `json:"version" jsonschema:"of the calls"`
	Database string    `json:"database" jsonschema:"its id"`
	Path     string    `json:"path,omitempty"`
	Format   int       `json:"format" jsonschema:"of the file"`
	LSN      uint64    `json:"lsn,omitempty" jsonschema:"this and the other counts are for operators of all scopes"`
	Leaves   uint64    `json:"leaves,omitempty"`
	Pages    int       `json:"pages,omitempty"`
	Held     int       `json:"held,omitempty" jsonschema:"batches that wait for review"`
	PID      int       `json:"pid"`
	Program  string    `json:"program"`
	Since    time.Time `json:"since"`
	Now      time.Time `json:"now"`
	Role     string    `json:"role" jsonschema:"the highest that this caller can have"`
	Within   string    `json:"within,omitempty" jsonschema:"only this scope and those below it are served"`
	Keys     int       `json:"keys,omitempty"`
	Open     int       `json:"transactions,omitempty" jsonschema:"that are open"`
	Calls    int       `json:"calls,omitempty" jsonschema:"under way, this one included"`
}

func (s *Server) status(ctx context.Context, most Role) (statusOut, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	stats, err := s.db.Stats(ctx)
	if err != nil {
		return statusOut{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := statusOut{
		Version: Version, Database: stats.ID, Path: stats.Path, Format: filestore.FormatVersion, LSN: stats.LSN, Leaves: stats.Leaves, Pages: stats.Pages, Held: stats.Held,
		PID: s.is.PID, Program: s.is.Program, Since: s.is.Since, Now: s.opts.Now().UTC(), Role: most.String(), Within: s.opts.Within,
		Keys: len(s.keys), Open: len(s.txns), Calls: s.busy,
	}
	if most < Operator || s.opts.Within != "" { // of other scopes they learn nothing, not even how much there is
		out.Path, out.LSN, out.Leaves, out.Pages, out.Held, out.Keys, out.Open, out.Calls = "", 0, 0, 0, 0, 0, 0, 0
	}
	return out, nil
}

// askToStop ends a server that exists only to serve. It answers first: Stop runs in a goroutine of its own, and Close waits for this call.
func (s *Server) askToStop(most Role) error {
	switch {
	case most < Operator:
		return refuse("role", "only an operator may end the server", "connect where that role is granted")
	case s.opts.Stop == nil:
		return refuse("stop", "this process serves the database beside its own work", "end it there")
	}
	s.stop.Do(func() { go s.opts.Stop() })
	return nil
}
