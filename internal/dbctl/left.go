package dbctl

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// rootFlags let a verb read files from directories that the database does not record: an application may name them in
// its own options only.
type rootFlags struct {
	Root []string `sep:"none" help:"Directory that file: sources may read from during this call. Repeatable." placeholder:"DIR"`
}

func (f *rootFlags) allow(a *app) error {
	for _, dir := range f.Root {
		if err := a.allowRoot(dir); err != nil {
			return err
		}
	}
	return nil
}

// allowRoot takes only a directory that is there: a mistyped one would look like a database without content.
func (a *app) allowRoot(dir string) error {
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return usage("--root %q: expected a directory that is there", dir)
	}
	a.roots = append(a.roots, dir)
	return nil
}

type leftView struct {
	Ref    string  `json:"ref"`
	Reason string  `json:"reason"`
	Score  float64 `json:"score"`
	Detail string  `json:"detail,omitempty"`
}

// countView counts what was left out for one reason, and says what a caller can do about it.
type countView struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	Advice string `json:"advice,omitempty"`
}

func leftOf(left []ctxpage.LeftOut) []leftView {
	out := []leftView{}
	for _, l := range left {
		v := leftView{Ref: l.Ref.String(), Reason: l.Reason, Score: l.Score}
		if l.Err != nil {
			v.Detail = hint(l.Err)
		}
		out = append(out, v)
	}
	return out
}

// countsOf adds the advice to what was counted.
func countsOf(counts []ctxpage.LeftCount, left []ctxpage.LeftOut) []countView {
	out := []countView{}
	for _, c := range counts {
		out = append(out, countView{c.Reason, c.Count, triage.Advice(c.Reason, cmp.Or(commonDir(left), "DIR"))})
	}
	return out
}

// countsInManifest are the counts of an assembly.
func countsInManifest(r *manifest.Record) (out []ctxpage.LeftCount) {
	for _, e := range r.Excluded {
		out = append(out, ctxpage.LeftCount{Reason: e.Reason, Count: e.Count})
	}
	return out
}

// commonDir is the nearest directory that holds all files no root allows; "": they are on several drives of Windows.
func commonDir(left []ctxpage.LeftOut) string {
	var dir string
	for _, l := range left {
		var e *store.FileRootError
		if !errors.As(l.Err, &e) {
			continue
		}
		if dir == "" {
			dir = filepath.Dir(e.Path)
		}
		for rel, err := filepath.Rel(dir, e.Path); err != nil || !filepath.IsLocal(rel); rel, err = filepath.Rel(dir, e.Path) {
			if dir == filepath.Dir(dir) {
				return ""
			}
			dir = filepath.Dir(dir)
		}
	}
	return dir
}

// noteLeft says on standard error how much was left out, why, and what to do. With --json it is silent: the answer has it.
func (a *app) noteLeft(counts []countView, left []ctxpage.LeftOut) {
	if a.JSON || len(counts) == 0 {
		return
	}
	all, whys := 0, []string{}
	for _, c := range counts {
		all += c.Count
		whys = append(whys, fmt.Sprintf("%d %s", c.Count, c.Reason))
	}
	fmt.Fprintf(a.err, "%d left out: %s\n", all, strings.Join(whys, ", "))
	for _, c := range counts {
		if c.Advice == "" {
			continue
		}
		fmt.Fprintf(a.err, "  %s%s: %s\n", line(c.Reason), line(example(c, left)), line(c.Advice))
	}
}

func example(c countView, left []ctxpage.LeftOut) string {
	i := slices.IndexFunc(left, func(l ctxpage.LeftOut) bool { return l.Reason == c.Reason })
	if i < 0 {
		return ""
	}
	what := left[i].Ref.String()
	var root *store.FileRootError
	switch err := left[i].Err; {
	case errors.As(err, &root):
		what += ", file:" + root.Path
	case err != nil:
		what += ", " + said.Replace(strings.TrimPrefix(err.Error(), "ctxpage: "))
	}
	if c.Count > 1 {
		what += fmt.Sprintf(", and %d more", c.Count-1)
	}
	return " (" + what + ")"
}
