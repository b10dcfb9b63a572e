package engine

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Rows of a journal are numbered as they come, and each replaces the one before: the passes of a
// session, the steps of a scope's directives. Without a bound they grow while the live set stays
// the same. A row goes by the rule for versions: it was replaced longer ago than KeepFor, it is not
// among the newest, and it is not named.
//
// The head row of a journal names the rows that are in use. The commit that drops rows expects the
// head as gc saw it. So a row that comes into use during the run stays, and the next run looks
// again.

// oldJournal is what goes of one journal.
type oldJournal struct {
	name string
	head store.StatePre
	rows []store.StateRow // their keys
}

// journalRow is a row of a journal.
type journalRow struct {
	key    string
	number uint64
	at     int64
}

// forgetJournals drops the rows of journals that were replaced before a time.
func (c *collector) forgetJournals(limit int64) error {
	for i := range c.s.opts.State {
		k := &c.s.opts.State[i]
		if k.Journal == nil {
			continue
		}
		journals, err := c.journals(k)
		if err != nil {
			return err
		}
		var old []oldJournal
		for _, name := range slices.Sorted(maps.Keys(journals)) {
			o, err := c.replaced(k.Journal, name, journals[name], limit)
			if err != nil {
				return err
			}
			if len(o.rows) > 0 {
				old = append(old, o)
			}
		}
		if err := c.dropJournals(old); err != nil {
			return err
		}
	}
	return nil
}

// journals returns the rows of a kind without their values: some dozen bytes each.
func (c *collector) journals(k *store.StateKind) (map[string][]journalRow, error) {
	out := map[string][]journalRow{}
	for q := (store.ScanQuery{What: store.ScanState, Prefix: k.Prefix, Limit: 1000}); ; {
		page, err := c.s.Scan(c.ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.State {
			name, number := k.Journal.Entry(r.Key)
			if number == 0 {
				continue
			}
			at, err := k.Journal.At(r.Value)
			if err != nil {
				return nil, c.s.Corrupt("state row "+r.Key, err)
			}
			out[name] = append(out[name], journalRow{r.Key, number, at})
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return out, nil
		}
	}
}

// replaced returns the rows of a journal that go. They are the oldest, without a gap, except for
// those that the head names.
func (c *collector) replaced(j *store.StateJournal, name string, rows []journalRow, limit int64) (oldJournal, error) {
	o := oldJournal{name: name, head: store.StatePre{Key: j.Head(name)}}
	slices.SortFunc(rows, func(a, b journalRow) int { return cmp.Compare(a.number, b.number) })
	last := len(rows) - max(1, j.Keep, c.job.KeepVersions)
	if last <= 0 || rows[1].at > limit {
		return o, nil
	}
	head, err := c.s.State(c.ctx, o.head.Key) // after the rows: what came since can only keep more of them
	if err != nil {
		return o, err
	}
	o.head.LSN = head.LSN
	var needs []uint64
	if j.Needs != nil && head.Value != nil {
		if needs, err = j.Needs(head.Value); err != nil {
			return o, c.s.Corrupt("state row "+o.head.Key, err)
		}
	}
	for i := 0; i < last && rows[i+1].at <= limit; i++ {
		if !slices.Contains(needs, rows[i].number) {
			o.rows = append(o.rows, store.StateRow{Key: rows[i].key})
		}
	}
	return o, nil
}

// dropJournals commits what goes, some journals at a time. A journal whose head changed during the
// run is left to the next one.
func (c *collector) dropJournals(old []oldJournal) error {
	for len(old) > 0 {
		part, n := 0, 0
		for part < len(old) && (part == 0 || n+len(old[part].rows) <= dropPages) {
			n += len(old[part].rows)
			part++
		}
		if err := c.dropPart(old[:part]); err != nil {
			return err
		}
		old = old[part:]
	}
	return nil
}

// dropPart commits the rows that go of some journals, together. A journal whose head was written
// since gc looked is a conflict: it is left out, and the others are tried again.
func (c *collector) dropPart(part []oldJournal) error {
	for len(part) > 0 {
		b := Request{Batch: store.Batch{Scope: store.OperatorScope, Leaf: manifest.Record{Action: "drop replaced records"}}}
		for i := range part {
			b.ExpectState, b.State = append(b.ExpectState, part[i].head), append(b.State, part[i].rows...)
		}
		var err error
		if !c.dry {
			err = c.commit(b)
		}
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) {
			if err == nil {
				c.rep.Journal += len(b.State)
			}
			return err
		}
		part = slices.DeleteFunc(slices.Clone(part), func(o oldJournal) bool { return o.head.Key == conflict.Key })
	}
	return nil
}
