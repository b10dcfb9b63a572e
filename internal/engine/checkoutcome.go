package engine

import (
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// I19. An outcome has no digest: all of it that matters is in its leaf (confirmedBy). If an outcome is
// removed from the file, its batch can be applied a second time, but only if its id is ahead of the
// clock: for every other id the audit is asked (usedBefore).
//
// Which outcomes may be missing follows from the audit alone. A checkpoint drops the outcomes with
// the smallest ids, those beyond the newest outcomesKept and those older by OutcomeDays and a day
// than the newest. So an outcome is due if fewer than outcomesKept batches with greater ids were
// ever committed, and none of them is that much younger.

// outcomeWalk is what a check knows of outcomes.
type outcomeWalk struct {
	rows map[ulid.ULID]store.Outcome // of the file
	seen map[ulid.ULID]bool          // of rows: their leaf was found
	told []ulid.ULID                 // batches that the audit names; the newest of them, at least
}

// row takes an outcome of the file, which decodes.
func (w *outcomeWalk) row(id, row []byte) {
	r, err := decodeOutcome(row)
	if len(id) != len(ulid.ULID{}) || err != nil {
		return
	}
	if w.rows == nil {
		w.rows, w.seen = map[ulid.ULID]store.Outcome{}, map[ulid.ULID]bool{}
	}
	w.rows[ulid.ULID(id)] = r.Outcome
}

// newest drops batches that are too old to be due, and says from which time on an outcome is.
func (w *outcomeWalk) newest() (from uint64) {
	slices.SortFunc(w.told, func(a, b ulid.ULID) int { return b.Compare(a) })
	w.told = slices.Compact(w.told)
	w.told = w.told[:min(len(w.told), outcomesKept)]
	if len(w.told) == 0 {
		return 0
	}
	return w.told[0].Time() - min(w.told[0].Time(), outcomeAge)
}

// outcomeStatuses are the statuses of leaves whose batch has an outcome.
var outcomeStatuses = []string{store.StatusApplied.String(), store.StatusHeld.String(), store.StatusRejected.String()}

// outcome takes a leaf of the audit, in any order.
func (c *invariantWalk) outcome(r *manifest.Record) {
	if r.Batch == "" || r.LSN == 0 || r.LSN > c.base.Applied || !slices.Contains(outcomeStatuses, r.Status) {
		return
	}
	id, err := ulid.ParseStrict(r.Batch)
	if err != nil {
		return
	}
	w := &c.outcomes
	if w.told = append(w.told, id); len(w.told) > 4*outcomesKept {
		w.newest()
	}
	out, ok := w.rows[id]
	if !ok || out.Leaf != r.Index {
		return
	}
	w.seen[id] = true
	if !confirmedBy(&out, r, r.Batch) {
		c.bad("I19", "outcome of "+r.Batch, "%v", errOutcome)
	}
}

// outcomesDue ends the walk of I19.
func (c *invariantWalk) outcomesDue() {
	w := &c.outcomes
	for _, id := range slices.SortedFunc(maps.Keys(w.rows), ulid.ULID.Compare) {
		if !w.seen[id] {
			c.bad("I19", "outcome of "+id.String(), "no audit leaf tells it")
		}
	}
	from := w.newest()
	for _, id := range w.told {
		if _, ok := w.rows[id]; !ok && id.Time() > from {
			c.bad("I19", "outcome of "+id.String(), "it is missing, and the audit says that the batch was committed, held or decided")
		}
	}
}
