package ctxpage

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// StateKinds describes the state rows that directives, sessions and file roots keep in a store. A store of Options.Store
// is opened with it, so that its gc knows which page versions those rows name and which rows are no longer needed.
func StateKinds() []store.StateKind {
	return []store.StateKind{
		{Prefix: rootState, Copy: true},
		{Prefix: directoryState, Copy: true},
		{Prefix: directivePrefix, Copy: true, Unit: directiveUnit},
		{Prefix: verdictRowKey, Names: verdictNums},
		{Prefix: draftsPrefix, Past: draftsPast},
		{Prefix: turnRowKey, Past: turnPast(turnRowKey)},
		{Prefix: placeRowKey, Past: turnPast(placeRowKey)},
		{Prefix: sessionRowKey, Lost: "what was decided about the turns of sessions", Why: "it names pages by their old numbers; the turns themselves are artefacts"},
	}
}

// directiveUnit is the rows of one scope, without whose state row the journal says nothing.
func directiveUnit(key string) store.StateUnit {
	scope, ok := strings.CutPrefix(key, directiveStatePrefix)
	if !ok {
		scope = strings.TrimPrefix(key, directiveLogPrefix)
		scope = scope[:max(0, strings.LastIndexByte(scope, '/'))]
	}
	return store.StateUnit{Name: "directives of " + scope, Key: directiveStateKey(scope), Page: Ref{Scope: scope, ID: DirectivesID}}
}

// draftsPast: only a replay of its context reads the row.
func draftsPast(key string) (at int64, of Ref) {
	trace, _, _ := strings.Cut(strings.TrimPrefix(key, draftsPrefix), "/")
	if id, err := ulid.ParseStrict(trace); err == nil {
		at = int64(id.Time()) * 1000
	}
	return at, Ref{}
}

// turnPast: a turn that is deleted is in no window any more.
func turnPast(prefix string) func(key string) (int64, Ref) {
	return func(key string) (int64, Ref) {
		if part := strings.SplitN(strings.TrimPrefix(key, prefix), "\x00", 3); len(part) == 3 {
			return 0, Ref{Scope: part[0], ID: part[2]}
		}
		return 0, Ref{}
	}
}

// verdictNums are the pages that the verdicts of a session are about.
func verdictNums(row []byte) ([]uint64, error) {
	of, err := decodeVerdicts(row)
	return slices.Sorted(maps.Keys(of)), err
}

// Salvage copies what can be read of a damaged database to a new one at another path, and lists what is lost. It reads
// the damaged files and never changes them. It takes a row only when its checksum fits, and a text only when its digest
// fits. Where commits are lost and nothing says what they wrote, it copies the newest state that can be proved, and lists
// each artefact that may have changed since; of an artefact whose newest version is known to be lost it copies an older one
// only with SalvageOptions.Older.
//
// The copy is another database: versions begin at 1, older versions and the audit stay behind, and sessions keep their
// turns without what was decided about them. What is derived from a version other than the copied one counts as changed.
//
// An error means that nothing can be salvaged: ErrLocked, ErrNotExist, or what the file system said. On a full disk the
// error says how much space the copy needs and how much was free, and nothing of the copy is left.
func Salvage(ctx context.Context, path, to string, opts SalvageOptions) (Salvaged, error) {
	opts.State = StateKinds()
	return filestore.Salvage(ctx, path, to, opts)
}
