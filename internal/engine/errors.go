package engine

import (
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// AuditError turns an error of the audit into the error that store.Store promises. Damage has the
// right type already. Errors that are about one leaf (manifest.ErrNoLeaf, ErrNoQuestion) pass as
// they are: they are part of the interface.
func AuditError(err error) error {
	switch {
	case errors.Is(err, manifest.ErrOldFormat):
		return fmt.Errorf("%w: %w", store.ErrOldFormat, err)
	case errors.Is(err, manifest.ErrNewerFormat):
		return fmt.Errorf("%w: %w", store.ErrNewerFormat, err)
	case errors.Is(err, manifest.ErrClosed):
		return store.ErrClosed
	case errors.Is(err, manifest.ErrGap):
		return &store.CorruptError{File: "the audit", Err: err, Hint: "leaves are in neither the log nor the archive; " + store.HintSalvage}
	}
	return err
}
