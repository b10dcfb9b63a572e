package format

import (
	"cmp"
	"slices"

	"github.com/ctxpage/ctxpage/store"
)

// JournalRow is a row of a journal: its key, its number, and when it was written, in microseconds.
type JournalRow struct {
	Key    string
	Number uint64
	At     int64
}

// Replaced returns the rows of one journal that gc drops, without values. They are the oldest, without
// a gap, except for those that the head row needs: each was replaced before limit, which is when the
// next one was written, and is not among the newest. head reads the head row; it is asked only if
// rows may go.
func Replaced(j *store.StateJournal, rows []JournalRow, limit int64, keepVersions int, head func() ([]byte, error)) (old []store.StateRow, err error) {
	slices.SortFunc(rows, func(a, b JournalRow) int { return cmp.Compare(a.Number, b.Number) })
	last := len(rows) - max(1, j.Keep, keepVersions)
	if last <= 0 || rows[1].At > limit {
		return nil, nil
	}
	value, err := head()
	if err != nil {
		return nil, err
	}
	var needs []uint64
	if j.Needs != nil && value != nil {
		if needs, err = j.Needs(value); err != nil {
			return nil, err
		}
	}
	for i := 0; i < last && rows[i+1].At <= limit; i++ {
		if !slices.Contains(needs, rows[i].Number) {
			old = append(old, store.StateRow{Key: rows[i].Key})
		}
	}
	return old, nil
}
