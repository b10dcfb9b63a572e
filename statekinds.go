package ctxpage

import (
	"context"
	"slices"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// StateKinds describes the state rows that directives, sessions and file roots keep in a store. Open a store for
// Options.Store with it: its gc then knows which page versions those rows name and which rows are no longer needed.
func StateKinds() []store.StateKind {
	return slices.Concat(conversation.StateKinds(), ops.StateKinds(), []store.StateKind{
		{Prefix: rootState, Copy: true, Paths: rootPaths},
		freshness.DirectoryKind(),
		directivelog.StateKind(),
		rendering.DraftsKind(),
		eraseplan.StateKind(),
		eraseplan.ReceiptKind(),
	})
}

// Salvage copies the readable part of a damaged database to a new database at another path, and lists what is lost. It
// reads the damaged files and never changes them. It takes a row only if its checksum is right and the audit has its
// digest, and a text only if its digest is right. Where commits are lost and nothing says what they wrote, it copies
// the newest state that can be proved and lists each artefact that may have changed since. If the newest version of an
// artefact is known to be lost, it copies an older one only with SalvageOptions.Older.
//
// The copy is another database: versions begin at 1, older versions and the audit stay behind, and sessions keep their
// turns but not their passes, pins and windows. A page that derives from a version other than the copied one counts as
// changed.
//
// An error means that nothing can be salvaged: ErrLocked, ErrNotExist, or an error of the file system. On a full disk
// the error says how much space the copy needs and how much was free, and nothing of the copy is left.
func Salvage(ctx context.Context, path, to string, opts SalvageOptions) (filestore.Salvaged, error) {
	opts.State = StateKinds()
	return filestore.Salvage(ctx, path, to, opts)
}
