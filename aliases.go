package ctxpage

import (
	"io"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/store"
)

// The names of other packages that every program writes. Kinds, trust, priorities and the errors stand in package store, where
// go doc shows them with the fields of an artefact.

type (
	Artefact       = store.Artefact           // what a caller puts; stored as one or more pages
	Ref            = store.Ref                // names an artefact, a page of it, or a version of either
	Filter         = store.Filter             // restricts a read to artefacts with given properties
	ExportOptions  = portable.ExportOptions   // what Admin.Export writes
	ImportOptions  = portable.ImportOptions   // what Admin.Import takes
	SalvageOptions = filestore.SalvageOptions // how Salvage copies
)

// ErrReplay is matched by the error of a past assembly that does not render to the recorded bytes. All other errors are in
// package store.
var ErrReplay = rendering.ErrReplay

// ExportOf reads the beginning of an export and returns the id and secret of its database, for Options.Identity of a new one.
func ExportOf(r io.Reader) (store.Info, error) {
	h, err := portable.ReadHeader(r)
	if err != nil {
		return store.Info{}, err
	}
	return h.Identity(), nil
}
