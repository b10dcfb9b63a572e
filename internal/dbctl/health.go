package dbctl

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
)

type healthCmd struct {
	File       string `arg:"" help:"Database."`
	Scope      string `arg:"" help:"Scope. Its ancestors are not examined."`
	Assemblies int    `help:"An artefact counts as never served if none of this many newest contexts showed it." default:"1000"`
	Examples   int    `help:"How many artefacts to name for each finding." default:"5"`
}

func (c *healthCmd) Run(a *app) error {
	if c.Assemblies < 1 {
		return usage("--assemblies %d: expected at least 1", c.Assemblies)
	}
	if c.Examples < 1 {
		return usage("--examples %d: expected at least 1", c.Examples)
	}
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		r, err := db.Scope(c.Scope).Health(a.ctx, ops.HealthOptions{Assemblies: c.Assemblies, Examples: c.Examples, Progress: a.progress()})
		if err != nil {
			return err
		}
		v := healthView{HealthReport: r}
		policies, err := db.Admin().Retention().All(a.ctx)
		if err != nil {
			return err
		}
		if !onServer(c.File) && !slices.ContainsFunc(policies, func(p ops.Stored) bool { return p.Prune != 0 }) {
			v.Advice = append(v.Advice, "no policy bounds the audit and its questions, which grow with every read: "+presetCommand(c.File))
		}
		return a.emit(v, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %s, %s; %s looked at\n", line(r.Scope), plural(r.Artefacts, "artefact", "artefacts"), plural(r.Pages, "page", "pages"), plural(r.Assemblies, "context", "contexts"))
			for _, f := range r.Findings {
				fmt.Fprintf(w, "%d %s\n", f.Count, f.What)
				for _, e := range f.Examples {
					if e.With != "" {
						fmt.Fprintf(w, "    %s (%s)\n", line(e.ID), line(e.With))
					} else {
						fmt.Fprintf(w, "    %s\n", line(e.ID))
					}
				}
				if f.Count > 0 {
					fmt.Fprintf(w, "    it %s; mend: %s\n", f.Meaning, line(mending(c.File, c.Scope, f.Examples)))
				}
			}
			for _, advice := range v.Advice {
				fmt.Fprintln(w, line(advice))
			}
		})
	})
}

// healthView is a report with what the database as a whole lacks.
type healthView struct {
	*ops.HealthReport
	Advice []string `json:"advice,omitempty"`
}

// mending is the command that deletes what a finding names, as a shell takes it.
func mending(file, scope string, of []ops.Example) string {
	words := []string{"dbctl", "rm", file, scope}
	if slices.ContainsFunc(of, func(e ops.Example) bool { return strings.HasPrefix(e.ID, "-") }) {
		words = slices.Insert(words, 2, "--")
	}
	for _, e := range of {
		words = append(words, e.ID)
	}
	return command(words...)
}
