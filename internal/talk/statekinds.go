package talk

import (
	"maps"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/store"
)

// StateKinds describes the rows of sessions to a store.
func StateKinds() []store.StateKind {
	return []store.StateKind{
		{Prefix: VerdictRowKey, Names: verdictNums},
		{Prefix: TurnRowKey, Past: turnPast(TurnRowKey)},
		{Prefix: PlaceRowKey, Past: turnPast(PlaceRowKey)},
		{Prefix: SessionRowKey, Lost: "what was decided about the turns of sessions", Why: "it names pages by their old numbers; the turns themselves are artefacts"},
	}
}

// turnPast: a turn that is deleted is in no window any more.
func turnPast(prefix string) func(key string) (int64, store.Ref) {
	return func(key string) (int64, store.Ref) {
		if part := strings.SplitN(strings.TrimPrefix(key, prefix), "\x00", 3); len(part) == 3 {
			return 0, store.Ref{Scope: part[0], ID: part[2]}
		}
		return 0, store.Ref{}
	}
}

// verdictNums are the pages that the verdicts of a session are about.
func verdictNums(row []byte) ([]uint64, error) {
	of, err := DecodeVerdicts(row)
	return slices.Sorted(maps.Keys(of)), err
}
