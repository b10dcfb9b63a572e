package archive

import (
	"errors"

	"github.com/ctxpage/ctxpage/internal/codec"
)

var (
	// ErrSealed: the archive is encrypted, and no keys were given.
	ErrSealed = errors.New("manifest: the archive is encrypted, and no key was given")

	// ErrGap: a leaf was added that is not the next one and not one the log has.
	ErrGap = errors.New("manifest: leaves are missing between the archive and the log")

	// ErrFailed: an earlier write or sync of the archive failed. The leaves are still in the log; close
	// and open again.
	ErrFailed = errors.New("manifest: archiving failed earlier; close the database and open it again")

	// ErrClosed: the log was closed.
	ErrClosed = codec.ErrClosed

	errReadOnly = errors.New("manifest: opened read-only")
)
