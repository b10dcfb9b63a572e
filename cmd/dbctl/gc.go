package main

import (
	"fmt"
	"io"
	"time"

	"github.com/ctxpage/ctxpage"
)

type gcCmd struct {
	File         string        `arg:"" help:"Database."`
	KeepVersions int           `help:"So many of the newest versions of an artefact stay whatever their age, also of a deleted one. The newest of a live artefact always does." placeholder:"N"`
	KeepFor      time.Duration `help:"How long a version stays after it was replaced or deleted; 0s: not at all." default:"30d" placeholder:"D"`
	KeepRecords  int           `help:"How many dropped versions of an artefact history still lists one by one." default:"4" placeholder:"N"`
	KeepNames    int           `help:"How many artefacts stay known after they were deleted and dropped, the newest of them." default:"1024" placeholder:"N"`
	Expired      bool          `help:"Also delete and drop artefacts that expired so long ago."`
	Scope        string        `help:"Look at this one scope only, not at those below it."`
	By           string        `help:"Who asks, in the manifest." default:"operator"`
	DryRun       bool          `help:"Only say what would be dropped. It opens the file read-only."`
}

func (gcCmd) Help() string {
	return `Drops versions that nobody can name any more: replaced or deleted longer ago than --keep-for, not among the --keep-versions newest, and not named by a held batch, by the lineage or the source of a live artefact, or by a session. Their texts and vectors go, and what their words led to is not found by them any more; their names, times and digests stay. Reading such a version, or replaying a context that had it, then says that it is gone, when, and by which run. The manifests stay as they are, and why still answers.

What is left is bounded, too: of the dropped versions of an artefact the newest --keep-records stay listed one by one, of the artefacts that were deleted and dropped the newest --keep-names stay known. Without --scope, drafts that old contexts showed, reviews that were decided and what sessions kept of deleted turns go as well once they are older than --keep-for.

It is no erasure: copies stay in backups and in the log until it is cut, and the salted digests can prove them. The file does not shrink: what is free in it is used again by what is written next.

It works in commits of some hundred versions. Ctrl-C leaves whole ones of them, and the next run does the rest. Expired artefacts stay unless --expired says otherwise.

Example: dbctl gc agent.ctx --keep-versions 3 --keep-for 90d --dry-run`
}

// gcView is a report. Refs are the first 100.
type gcView struct {
	DryRun  bool      `json:"dry_run,omitempty"`
	Trace   string    `json:"trace,omitempty"`
	Dropped gcTally   `json:"dropped"`
	Reasons []gcTally `json:"reasons"`
	Kept    []gcTally `json:"kept"`
	Refs    []string  `json:"refs"`
	Records int       `json:"records"`
	Names   int       `json:"names"`
	Drafts  int       `json:"drafts"`
	Reviews int       `json:"reviews"`
	Turns   int       `json:"turns"`
}

type gcTally struct {
	Reason   string   `json:"reason,omitempty"`
	Versions int      `json:"versions"`
	Pages    int      `json:"pages"`
	Bytes    int64    `json:"bytes"`
	Nearest  []string `json:"nearest,omitempty"`
}

func (c *gcCmd) Run(a *app) error {
	if c.KeepFor < 0 {
		return usage("gc: --keep-for %s: expected zero or more", c.KeepFor)
	}
	if c.KeepRecords < 0 || c.KeepNames < 0 {
		return usage("gc: --keep-records and --keep-names: expected zero or more")
	}
	o := ctxpage.GCOptions{
		KeepVersions: c.KeepVersions, KeepFor: c.KeepFor, Expired: c.Expired, Scope: c.Scope, By: c.By, DryRun: c.DryRun, Progress: a.progress(),
	}
	for _, x := range []struct {
		from int
		to   *int
	}{{c.KeepRecords, &o.KeepRecords}, {c.KeepNames, &o.KeepNames}} {
		if *x.to = x.from; x.from == 0 {
			*x.to = -1 // 0 is the default there
		}
	}
	if c.KeepFor == 0 {
		o.KeepFor = -1
	}
	return a.with(c.File, !c.DryRun, func(db *ctxpage.DB) error {
		rep, err := db.GC(a.ctx, o)
		if err != nil && rep.Dropped.Versions == 0 {
			return err
		}
		if perr := a.emit(viewOfGC(rep), func(w io.Writer) { viewOfGC(rep).print(w) }); err == nil {
			err = perr
		}
		return err // what was dropped before it is dropped
	})
}

func viewOfGC(rep ctxpage.GCReport) gcView {
	v := gcView{DryRun: rep.DryRun, Trace: rep.Trace, Dropped: tallyOf(rep.Dropped), Reasons: []gcTally{}, Kept: []gcTally{}, Refs: nonNil(refStrings(rep.Refs)),
		Records: rep.Records, Names: rep.Names, Drafts: rep.Drafts, Reviews: rep.Reviews, Turns: rep.Turns}
	for _, t := range rep.Reasons {
		v.Reasons = append(v.Reasons, tallyOf(t))
	}
	for _, t := range rep.Kept {
		v.Kept = append(v.Kept, tallyOf(t))
	}
	return v
}

func tallyOf(t ctxpage.GCTally) gcTally {
	return gcTally{t.Reason, t.Versions, t.Pages, t.Bytes, refStrings(t.Nearest)}
}

func (v gcView) print(w io.Writer) {
	verb := "dropped"
	if v.DryRun {
		verb = "would drop"
	}
	fmt.Fprintf(w, "%s %s, %s, %d bytes of text", verb, plural(v.Dropped.Versions, "version", "versions"), plural(v.Dropped.Pages, "page", "pages"), v.Dropped.Bytes)
	if v.Trace != "" {
		fmt.Fprintf(w, "; trace %s", v.Trace)
	}
	fmt.Fprintln(w)
	for _, x := range []struct {
		n         int
		one, many string
	}{
		{v.Records, "record of a dropped version", "records of dropped versions"}, {v.Names, "deleted artefact, now forgotten", "deleted artefacts, now forgotten"},
		{v.Drafts, "context's drafts", "contexts' drafts"}, {v.Reviews, "decided review", "decided reviews"}, {v.Turns, "row of a deleted turn", "rows of deleted turns"},
	} {
		if x.n > 0 {
			fmt.Fprintln(w, verb, plural(x.n, x.one, x.many))
		}
	}
	if len(v.Reasons)+len(v.Kept) > 0 {
		table(w, "WHAT WHY VERSIONS PAGES BYTES", func(row func(...any)) {
			for _, t := range v.Reasons {
				row(verb, t.Reason, t.Versions, t.Pages, t.Bytes)
			}
			for _, t := range v.Kept {
				row("stays", t.Reason, t.Versions, t.Pages, t.Bytes)
			}
		})
	}
	for _, r := range v.Refs {
		fmt.Fprintln(w, verb, line(r))
	}
	if more := v.Dropped.Versions - len(v.Refs); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}
