package dbctl

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

type retentionCmd struct {
	Set    retentionSetCmd    `cmd:"" help:"Change the policy of a scope. Deletes nothing."`
	Show   retentionShowCmd   `cmd:"" help:"Show the stored policies, or what holds in a scope."`
	Preset retentionPresetCmd `cmd:"" help:"Store a policy by name: year keeps the audit and its questions for a year."`
	Run    retentionRunCmd    `cmd:"" help:"Remove what is older than the policies allow."`
}

// policyScope names the scope of a policy.
type policyScope struct {
	File    string `arg:"" help:"Database."`
	Scope   string `arg:"" optional:"" help:"Scope; it includes those below it."`
	Default bool   `help:"The policy of the whole database, instead of a scope."`
}

func (p *policyScope) check(verb string) error {
	if (p.Scope == "") != p.Default {
		return usage("%s: expected a scope, or --default for the whole database, not both", verb)
	}
	return nil
}

type retentionSetCmd struct {
	policyScope
	Kind         []string `help:"Delete artefacts of a kind (fact, chunk, message, tool, scratch, summary) that were last written longer ago." placeholder:"KIND=AGE" sep:"none"`
	Sessions     string   `help:"Remove sessions whose newest turn is older." placeholder:"AGE"`
	Held         string   `help:"Reject batches that wait for review longer." placeholder:"AGE"`
	Decided      string   `help:"Drop decided batches that were held longer ago." placeholder:"AGE"`
	Directives   string   `help:"Drop versions of directives that were replaced longer ago; the newest 32 stay." placeholder:"AGE"`
	Versions     string   `help:"Let gc drop versions that were replaced or deleted longer ago." placeholder:"AGE"`
	Prune        string   `help:"Remove the bodies of older audit leaves, and the texts of their questions; hashes stay, and every head still verifies." placeholder:"AGE"`
	KeepVersions string   `help:"Number of the newest versions of an artefact that gc keeps regardless of their age." placeholder:"N"`
	Clear        bool     `help:"Begin with an empty policy instead of changing the stored one. Alone it removes the policy."`
	By           string   `help:"Name of the operator, for the manifest." default:"operator"`
	DryRun       bool     `help:"Show the policy that would be stored."`
}

func (c *retentionSetCmd) Run(a *app) error {
	if err := c.check("retention set"); err != nil {
		return err
	}
	if _, err := c.changed(&ops.Policy{}); err != nil {
		return usage("retention set: %v", err)
	}
	return show(a, c.File, !c.DryRun, func(db *ctxpage.DB) (v ops.Stored, err error) {
		k := db.Admin().Retention()
		v = ops.Stored{Scope: c.Scope, By: c.By, At: a.now().UTC()}
		err = c.apply(a, k, func(was *ops.Policy) (_ ops.Policy, err error) {
			v.Policy, err = c.changed(was)
			return v.Policy, err
		})
		return v, err
	}, func(v ops.Stored, w io.Writer) { fmt.Fprintln(w, policyLine(v.Scope, &v.Policy)) })
}

// apply stores what change makes of the policy, or only asks it.
func (c *retentionSetCmd) apply(a *app, k *ops.Retention, change func(*ops.Policy) (ops.Policy, error)) error {
	if !c.DryRun {
		return k.Change(a.ctx, c.Scope, c.By, change)
	}
	all, err := k.All(a.ctx)
	if err != nil {
		return err
	}
	was := ops.Policy{}
	for _, s := range all {
		if s.Scope == c.Scope {
			was = s.Policy
		}
	}
	p, err := change(&was)
	if err == nil {
		err = p.Check()
	}
	return err
}

// changed is a policy with what the flags say.
func (c *retentionSetCmd) changed(was *ops.Policy) (p ops.Policy, err error) {
	if !c.Clear {
		p = *was
	}
	p.Kinds = maps.Clone(p.Kinds)
	given := []string{c.Sessions, c.Held, c.Decided, c.Directives, c.Versions, c.Prune}
	for i, f := range ages(&p) {
		if given[i] == "" {
			continue
		}
		if *f.age, err = ageOf(given[i]); err != nil {
			return p, fmt.Errorf("--%s: %w", f.name, err)
		}
	}
	for _, s := range c.Kind {
		name, text, ok := strings.Cut(s, "=")
		age, err := ageOf(text)
		if !ok || text == "" || err != nil {
			return p, fmt.Errorf("--kind %s: expected a kind, =, and an age such as 30d, forever or inherit", s)
		}
		if p.Kinds == nil {
			p.Kinds = map[string]ops.Age{}
		}
		if p.Kinds[name] = age; age == 0 {
			delete(p.Kinds, name)
		}
	}
	if c.KeepVersions != "" {
		if p.KeepVersions, err = strconv.Atoi(c.KeepVersions); err != nil {
			return p, fmt.Errorf("--keep-versions %s: expected a number", c.KeepVersions)
		}
	}
	if p.Versions == 0 {
		p.KeepVersions = 0
	}
	return p, p.Check()
}

type retentionPresetCmd struct {
	File   string `arg:"" help:"Database."`
	Name   string `arg:"" help:"year: bodies of audit leaves, questions and decided batches go after 365 days; contents, conversations and hashes stay."`
	Scope  string `arg:"" optional:"" help:"Scope. Without it the policy is that of the whole database."`
	By     string `help:"Name of the operator, for the manifest." default:"operator"`
	DryRun bool   `help:"Show the policy that would be stored."`
}

func (c *retentionPresetCmd) Run(a *app) error {
	p, ok := ops.Presets()[c.Name]
	if !ok {
		return usage("retention preset %s: expected %s", c.Name, strings.Join(slices.Sorted(maps.Keys(ops.Presets())), ", "))
	}
	set := retentionSetCmd{policyScope: policyScope{File: c.File, Scope: c.Scope, Default: c.Scope == ""}, Prune: p.Prune.String(), Decided: p.Decided.String(), By: c.By, DryRun: c.DryRun}
	return set.Run(a)
}

func ageOf(s string) (ops.Age, error) {
	if s == "inherit" {
		return 0, nil
	}
	return ops.ParseAge(s)
}

// policyAge is an age of a policy, by the name of its flag.
type policyAge struct {
	name string
	age  *ops.Age
}

// ages lists the ages of a policy but for the ages of kinds.
func ages(p *ops.Policy) []policyAge {
	return []policyAge{{"sessions", &p.Sessions}, {"held", &p.Held}, {"decided", &p.Decided}, {"directives", &p.Directives}, {"versions", &p.Versions}, {"prune", &p.Prune}}
}

// policyLine is a policy on one line.
func policyLine(scope string, p *ops.Policy) string {
	out := []string{scopeOrAll(scope) + ":"}
	for _, kind := range slices.Sorted(maps.Keys(p.Kinds)) {
		out = append(out, fmt.Sprintf("%s %s,", kind, p.Kinds[kind]))
	}
	for _, f := range ages(p) {
		if *f.age != 0 {
			out = append(out, fmt.Sprintf("%s %s,", f.name, f.age))
		}
	}
	if p.KeepVersions > 0 {
		out = append(out, fmt.Sprintf("keep %d versions,", p.KeepVersions))
	}
	if len(out) == 1 {
		return out[0] + " no policy"
	}
	return strings.TrimSuffix(strings.Join(out, " "), ",")
}

func scopeOrAll(scope string) string {
	if scope == "" {
		return "(whole database)"
	}
	return line(scope)
}

type retentionShowCmd struct {
	File  string `arg:"" help:"Database."`
	Scope string `arg:"" optional:"" help:"Show what holds in this scope, and which policy says it."`
}

func (c *retentionShowCmd) Run(a *app) error {
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		k := db.Admin().Retention()
		if c.Scope == "" {
			all, err := k.All(a.ctx)
			if err != nil {
				return err
			}
			return a.emit(nonNil(all), func(w io.Writer) {
				for i := range all {
					fmt.Fprintln(w, policyLine(all[i].Scope, &all[i].Policy))
				}
				if len(all) == 0 {
					fmt.Fprintln(w, "no policy is stored: everything is kept")
				}
			})
		}
		if err := store.CheckScope(c.Scope); err != nil {
			return err
		}
		e, err := k.Effective(a.ctx, c.Scope)
		if err != nil {
			return err
		}
		return a.emit(e, func(w io.Writer) { printEffective(w, &e) })
	})
}

func printEffective(w io.Writer, e *ops.Effective) {
	table(w, "WHAT AGE POLICY-OF", func(row func(...any)) {
		rule := func(what string, r ops.Rule) {
			if r.Age == 0 {
				row(what, "forever", "no policy")
				return
			}
			row(what, r.Age, scopeOrAll(r.From))
		}
		for _, kind := range slices.Sorted(maps.Keys(e.Kinds)) {
			rule(kind, e.Kinds[kind])
		}
		rule("sessions", e.Sessions)
		rule("held", e.Held)
		rule("decided", e.Decided)
		rule("directives", e.Directives)
		rule("versions", e.Versions)
		rule("prune", e.Prune)
	})
	if e.KeepVersions > 0 {
		fmt.Fprintf(w, "of each artefact the newest %s stay\n", plural(e.KeepVersions, "version", "versions"))
	}
}

type retentionRunCmd struct {
	File   string `arg:"" help:"Database."`
	Scope  string `help:"Only this scope and those below it."`
	By     string `help:"Name of the operator, for the manifest." default:"operator"`
	DryRun bool   `help:"Show what would go. Opens the file read-only. Versions that gc could drop only after this run's deletes are not counted."`
}

func (c *retentionRunCmd) Run(a *app) error {
	if c.Scope != "" {
		if err := store.CheckScope(c.Scope); err != nil {
			return err
		}
	}
	return a.with(c.File, !c.DryRun, func(db *ctxpage.DB) error {
		rep, err := db.Admin().Retention().Run(a.ctx, ops.RunOptions{Scope: c.Scope, By: c.By, DryRun: c.DryRun, Progress: a.progress()})
		if err != nil && len(rep.Items) == 0 {
			return err
		}
		v := retentionView{RunReport: rep}
		if rep.GC != nil {
			gc := viewOfGC(*rep.GC)
			v.GC = &gc
		}
		return cmp.Or(err, a.emit(v, func(w io.Writer) { printRetention(w, rep) }))
	})
}

// retentionView is a report in which gc has the form of dbctl gc.
type retentionView struct {
	*ops.RunReport
	GC *gcView `json:"gc,omitempty"`
}

func printRetention(w io.Writer, rep *ops.RunReport) {
	if len(rep.Items) > 0 {
		table(w, "SCOPE WHAT COUNT OLDER-THAN POLICY-OF FIRST", func(row func(...any)) {
			for _, it := range rep.Items {
				row(it.Scope, it.What, it.Count, it.Age, scopeOrAll(it.From), cut(strings.Join(it.First, " "), 60))
			}
		})
	}
	if rep.GC != nil {
		fmt.Fprintf(w, "gc: %s of %s of text %s\n", plural(rep.GC.Dropped.Versions, "version", "versions"), plural(int(rep.GC.Dropped.Bytes), "byte", "bytes"), would(rep.DryRun, "went", "would go"))
	}
	if rep.Changed > 0 {
		fmt.Fprintf(w, "%d were written to meanwhile, and stay until the next run\n", rep.Changed)
	}
	if len(rep.Items) == 0 && rep.GC == nil {
		fmt.Fprintln(w, "nothing is older than the policies say")
	}
}

type sessionRmCmd struct {
	talkArgs
	By     string `help:"Name of the operator, for the manifest." default:"operator"`
	DryRun bool   `help:"Show how much would be removed."`
}

func (c *sessionRmCmd) Run(a *app) error {
	return show(a, c.File, !c.DryRun, func(db *ctxpage.DB) (ops.Removed, error) {
		return db.Admin().Retention().RemoveSession(a.ctx, c.Scope, c.Session, c.By, c.DryRun)
	}, func(rep ops.Removed, w io.Writer) {
		fmt.Fprintf(w, "%s %s, %s, %s of state\n", would(rep.DryRun, "removed", "would remove"), plural(rep.Turns, "turn", "turns"), plural(rep.Forms, "shorter form", "shorter forms"), plural(rep.Rows, "row", "rows"))
	})
}

type reviewPurgeCmd struct {
	File    string `arg:"" help:"Database."`
	Scope   string `help:"Only batches of this scope and those below it."`
	Older   string `help:"Only batches held longer ago." placeholder:"AGE"`
	Waiting bool   `help:"Also reject and drop batches that still wait for review."`
	By      string `help:"Name of the operator, for the manifest." required:""`
	DryRun  bool   `help:"Show which batches would be dropped."`
}

func (c *reviewPurgeCmd) Run(a *app) error {
	age, err := ops.ParseAge(c.Older)
	if err != nil || age < 0 {
		return usage("review purge: --older %s: expected a duration such as 36h, 30d or 8w", c.Older)
	}
	return show(a, c.File, !c.DryRun, func(db *ctxpage.DB) (*ops.RunReport, error) {
		return db.Admin().Retention().PurgeReviews(a.ctx, ops.Purge{Scope: c.Scope, Older: age, Waiting: c.Waiting, By: c.By, DryRun: c.DryRun})
	}, func(rep *ops.RunReport, w io.Writer) {
		n := 0
		for _, it := range rep.Items {
			n += it.Count
			fmt.Fprintf(w, "%s %s of %s: %s\n", would(rep.DryRun, "dropped", "would drop"), plural(it.Count, it.What+" batch", it.What+" batches"), line(it.Scope), line(strings.Join(it.First, " ")))
		}
		if n == 0 {
			fmt.Fprintln(w, "nothing matches")
		}
	})
}
