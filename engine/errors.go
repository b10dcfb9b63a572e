package engine

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// AuditError gives damage in the audit the type of the store.
func AuditError(err error) error {
	switch {
	case errors.Is(err, manifest.ErrNewerFormat):
		return fmt.Errorf("%w: %w", store.ErrNewerFormat, err)
	case errors.Is(err, manifest.ErrClosed):
		return store.ErrClosed
	}
	var me *manifest.CorruptError
	if errors.As(err, &me) {
		return &store.CorruptError{File: cmp.Or(me.File, "the audit"), Offset: me.Offset, Err: err, Hint: me.Hint}
	}
	if errors.Is(err, manifest.ErrGap) {
		return &store.CorruptError{File: "the audit", Err: err, Hint: "leaves are in neither the log nor the archive; " + store.HintSalvage}
	}
	return err
}
