package engine

import (
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// The report of one run, and the list of drops that becomes a commit when it is long enough. A plan
// (dry run) counts the same versions as a run, but cannot know what is named between plan and drop,
// so a run may drop less.
//
// tally is a line of the report while it is made.
type tally struct {
	store.GCTally
	ended []int64 // of Nearest: when each ended, rising
}

// count adds a version to the line of a reason, and returns the line.
func count(by map[string]*tally, reason string, v *version) *tally {
	t := by[reason]
	if t == nil {
		t = &tally{GCTally: store.GCTally{Reason: reason}}
		by[reason] = t
	}
	addVersion(&t.GCTally, v)
	return t
}

// addVersion adds a version with what it would free: pages that no newer version has, and the bytes
// of their texts.
func addVersion(t *store.GCTally, v *version) {
	t.Versions++
	t.Pages += v.pages
	t.Bytes += v.bytes
}

// addDrop puts a version on the list of the next commit, and commits the list when it is long. If a
// version of the same artefact stayed in an earlier part, this one stays as well.
func (c *collector) addDrop(v *version) error {
	if c.dry {
		c.countDropped(v)
		return nil
	}
	if v.head.Art == c.stuck.art {
		v.kept = c.stuck.why
		c.countKept(v)
		return nil
	}
	d := &drop{head: tombstone(v.head, c.run.String()), from: v, group: format.GroupName(v.head)}
	d.cold = format.EncodeCold(d.head)
	c.part = append(c.part, d)
	c.size += len(v.head.Rows)
	if most := c.most(); len(c.part) >= dropVersions/most || c.size >= dropPages/most {
		return c.flush()
	}
	return nil
}

// most is the factor by which a commit must be smaller than usual. On a full disk it must fit into
// the reserve of the log, and its checkpoint into the little space there is: every page that loses
// rows is written anew.
func (c *collector) most() int {
	if !c.dry && c.s.opts.Space.Tight() {
		return 32
	}
	return 1
}

// countDropped counts a version that is dropped, or would be.
func (c *collector) countDropped(v *version) {
	count(c.gone, v.why, v)
	addVersion(&c.rep.Dropped, v)
	if len(c.rep.Refs) < gcRefs {
		c.rep.Refs = append(c.rep.Refs, v.ref())
	}
}

// report returns the tallies by reason, in the order of the reasons. Trace is empty if nothing was
// written.
func (c *collector) report() store.GCReport {
	rep := c.rep
	rep.DryRun = c.dry
	if c.wrote {
		rep.Trace = c.run.String()
	}
	for _, l := range []struct {
		from map[string]*tally
		to   *[]store.GCTally
	}{{c.gone, &rep.Reasons}, {c.kept, &rep.Kept}} {
		for _, reason := range slices.Sorted(maps.Keys(l.from)) {
			*l.to = append(*l.to, l.from[reason].GCTally)
		}
	}
	return rep
}
