package engine

import (
	"errors"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/rules"
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
func (c *collector) journals(k *store.StateKind) (map[string][]rules.JournalRow, error) {
	out := map[string][]rules.JournalRow{}
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
			out[name] = append(out[name], rules.JournalRow{Key: r.Key, Number: number, At: at})
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return out, nil
		}
	}
}

// replaced returns the rows of a journal that go. The head is read after the rows: what came since
// can only keep more of them.
func (c *collector) replaced(j *store.StateJournal, name string, rows []rules.JournalRow, limit int64) (oldJournal, error) {
	o := oldJournal{name: name, head: store.StatePre{Key: j.Head(name)}}
	var read bool
	var err error
	o.rows, err = rules.Replaced(j, rows, limit, c.job.KeepVersions, func() ([]byte, error) {
		head, err := c.s.State(c.ctx, o.head.Key)
		o.head.LSN, read = head.LSN, err == nil
		return head.Value, err
	})
	if err != nil && read { // it is not what the journal understands
		err = c.s.Corrupt("state row "+o.head.Key, err)
	}
	return o, err
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
// since gc looked is a conflict: it is left out, and the others are tried again. The conflict names
// the head row of one of them, so each round has one journal less and the loop ends.
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
