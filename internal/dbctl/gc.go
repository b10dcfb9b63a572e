package dbctl

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

type gcCmd struct {
	File         string        `arg:"" help:"Database."`
	KeepVersions int           `help:"Keep at least this many versions of each artefact, even deleted ones. The newest version of a live artefact is always kept." placeholder:"N"`
	KeepFor      time.Duration `help:"Keep a version for this long after it was replaced or deleted. 0s keeps none." default:"30d" placeholder:"D"`
	KeepRecords  int           `help:"Number of dropped versions that history still lists for each artefact." default:"4" placeholder:"N"`
	KeepNames    int           `help:"Number of deleted and dropped artefacts whose names are kept, newest first." default:"1024" placeholder:"N"`
	Expired      bool          `help:"Also delete and drop artefacts that expired longer ago than --keep-for."`
	Scope        string        `help:"Only this scope, without those below it."`
	KeepModel    []string      `help:"Also drop the vectors of every embedding model except this one. Repeatable." placeholder:"NAME"`
	By           string        `help:"Name of the operator, for the manifest." default:"operator"`
	DryRun       bool          `help:"Show what would be dropped. Opens the file read-only."`
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
	Journal int       `json:"journal"`
	Scopes  int       `json:"scopes"`
	Vectors int       `json:"vectors,omitempty"`
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
		KeepVersions: c.KeepVersions, KeepFor: c.KeepFor, Expired: c.Expired, Scope: c.Scope, Models: c.KeepModel, By: c.By, DryRun: c.DryRun, Progress: a.progress(),
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
		rep, err := db.Admin().GC(a.ctx, o)
		if err != nil && rep.Dropped.Versions == 0 {
			return err
		}
		return cmp.Or(err, a.emit(viewOfGC(rep), viewOfGC(rep).print)) // what was dropped before it is dropped
	})
}

func viewOfGC(rep store.GCReport) gcView {
	v := gcView{DryRun: rep.DryRun, Trace: rep.Trace, Dropped: tallyOf(rep.Dropped), Reasons: []gcTally{}, Kept: []gcTally{}, Refs: view.Refs(rep.Refs),
		Records: rep.Records, Names: rep.Names, Drafts: rep.Drafts, Reviews: rep.Reviews, Turns: rep.Turns, Journal: rep.Journal, Scopes: rep.Scopes, Vectors: rep.Vectors}
	for _, t := range rep.Reasons {
		v.Reasons = append(v.Reasons, tallyOf(t))
	}
	for _, t := range rep.Kept {
		v.Kept = append(v.Kept, tallyOf(t))
	}
	return v
}

func tallyOf(t store.GCTally) gcTally {
	return gcTally{t.Reason, t.Versions, t.Pages, t.Bytes, view.Refs(t.Nearest)}
}

func (v gcView) print(w io.Writer) {
	verb := would(v.DryRun, "dropped", "would drop")
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
		{v.Journal, "replaced record of a pass or a directive", "replaced records of passes and directives"}, {v.Scopes, "name of an empty scope", "names of empty scopes"},
		{v.Vectors, "vector of another model", "vectors of other models"},
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
