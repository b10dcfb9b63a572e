package filestore

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/store"
)

// Copy describes a database for another store that continues it, beside the rows: see Export and Import.
type Copy struct {
	Info    store.Info
	Created time.Time
	Base    engine.Base
	Leaves  uint64 // of the audit
	Audit   string // directory of its archive, which has all of them
}

// Export makes a checkpoint, unless s is read-only, and calls fn with a snapshot of the rows and the
// Copy that describes it. While fn runs, commits go on without entering the snapshot, and
// checkpoints wait. fn must not call the store. ErrKey: the database is encrypted.
func Export(ctx context.Context, s *Store, fn func(*bbolt.Tx, Copy) error) error {
	if err := s.startJob(ctx); err != nil {
		return err
	}
	defer s.ckptMu.Unlock()
	if s.ring.Load() != nil { // fn would be given sealed rows
		return fmt.Errorf("%w: %s is encrypted, and another store would keep it in plain text; import an export of it there, if that is what you want", store.ErrKey, s.opts.Path)
	}
	if !s.opts.ReadOnly {
		if _, err := s.checkpointLocked(ctx); err != nil {
			return err
		}
	}
	c := Copy{Info: store.Info{ID: s.sys.ID, Secret: s.sys.Secret}, Created: codec.FromMicros(s.sys.Created), Leaves: s.eng.Leaves.Archived(), Audit: s.opts.Path + "-manifest"}
	return s.view(func(tx *bbolt.Tx) error {
		c.Base = s.base(tx.Size())
		return fn(tx, c)
	})
}
