package engine

import (
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/rules"
	"github.com/ctxpage/ctxpage/store"
)

// The report of one run, and the list of drops that becomes a commit when it is long enough. A plan
// (dry run) counts the same versions as a run, but cannot know what is named between plan and drop,
// so a run may drop less.

// addDrop puts a version on the list of the next commit, and commits the list when it is long. If a
// version of the same artefact stayed in an earlier part, this one stays as well.
func (c *collector) addDrop(v *rules.Version) error {
	if c.dry {
		c.countDropped(v)
		return nil
	}
	if v.Head.Art == c.stuck.art {
		v.Kept = c.stuck.why
		c.kept.AddKept(v)
		return nil
	}
	d := &drop{head: rules.Tombstone(v.Head, c.run.String()), from: v, group: format.GroupName(v.Head)}
	d.cold = format.EncodeCold(d.head)
	c.part = append(c.part, d)
	c.size += len(v.Head.Rows)
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
func (c *collector) countDropped(v *rules.Version) {
	c.gone.Add(v.Why, v)
	rules.Count(&c.rep.Dropped, v)
	if len(c.rep.Refs) < gcRefs {
		c.rep.Refs = append(c.rep.Refs, v.Ref())
	}
}

// report returns the tallies by reason, in the order of the reasons. Trace is empty if nothing was
// written.
func (c *collector) report() store.GCReport {
	rep := c.rep
	rep.DryRun, rep.Reasons, rep.Kept = c.dry, c.gone.Lines(), c.kept.Lines()
	if c.wrote {
		rep.Trace = c.run.String()
	}
	return rep
}
