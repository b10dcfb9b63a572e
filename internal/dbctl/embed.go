package dbctl

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/embed"
	"github.com/ctxpage/ctxpage/embed/static"
	"github.com/ctxpage/ctxpage/store"
)

// keyVar has the key of an endpoint: a flag would stand in the list of processes.
const keyVar = "CTXPAGE_EMBED_KEY"

// modelFlags name the model that pages and questions are compared by.
type modelFlags struct {
	Model string `help:"What compares texts by meaning: small, the model in this program, for English; the folder of a static model; an endpoint with the name of its model, like http://localhost:11434/v1#nomic-embed-text; or none, to find by words alone. CTXPAGE_EMBED_KEY has the key of an endpoint." env:"CTXPAGE_MODEL" default:"small" placeholder:"small|none|DIR|URL"`
}

// Names of models that are no folder.
const (
	modelSmall = "small"
	modelNone  = "none"
)

// endpoint says that the model is at a server.
func (f *modelFlags) endpoint() bool {
	return strings.HasPrefix(f.Model, "http://") || strings.HasPrefix(f.Model, "https://")
}

// embedWith makes the embedder of the databases that this call opens.
func (f *modelFlags) embedWith(a *app) error {
	switch {
	case f.Model == "", f.Model == modelNone:
		return nil
	case f.Model == modelSmall:
		a.embedder = static.Small()
		return nil
	case f.endpoint():
		base, name, _ := strings.Cut(f.Model, "#")
		if name, err := url.PathUnescape(name); err != nil || name == "" {
			return usage("--model %s: expected the name of the model behind a #, like http://localhost:11434/v1#nomic-embed-text", base)
		}
		c, err := embed.New(embed.Options{URL: base, Model: name, Key: os.Getenv(keyVar)})
		if err != nil {
			return usage("--model: %v", err)
		}
		a.embedder = c
		return nil
	}
	m, err := static.Load(f.Model)
	if err != nil {
		return failed("--model: %v", err)
	}
	a.embedder = m
	return nil
}

type embedCmd struct {
	File   string `arg:"" help:"Database."`
	Scope  string `help:"Only the pages of this scope, without its ancestors. Default: all scopes."`
	DryRun bool   `help:"Count the pages without a vector, or with one of another length than the model answers now; make and write nothing."`
	modelFlags
}

func (c *embedCmd) Run(a *app) error {
	if c.Model == "" || c.Model == modelNone {
		return usage("--model: expected small, the folder of a static model, or an endpoint and the name of its model, like http://localhost:11434/v1#nomic-embed-text")
	}
	if err := c.embedWith(a); err != nil {
		return err
	}
	return a.with(c.File, !c.DryRun, func(db *ctxpage.DB) error {
		if c.Scope != "" {
			if err := a.noteEmptyScope(db, c.Scope); err != nil {
				return err
			}
		}
		r, err := db.Admin().Embed(a.ctx, store.EmbedOptions{Scope: c.Scope, DryRun: c.DryRun, Progress: a.progress()})
		if err != nil {
			return fmt.Errorf("embed stopped after %s; run it again to continue: %w", plural(r.Made, "page", "pages"), err)
		}
		return unless(len(r.Failed) == 0, exitFailed, a.emit(r, func(w io.Writer) { printEmbedded(w, &r) }))
	})
}

func printEmbedded(w io.Writer, r *store.EmbedReport) {
	for _, s := range r.Scopes {
		if r.DryRun {
			fmt.Fprintf(w, "%s: %s without a vector\n", line(s.Scope), plural(s.Pages, "page", "pages"))
		} else {
			fmt.Fprintf(w, "%s: %d of %s embedded\n", line(s.Scope), s.Made, plural(s.Pages, "page", "pages"))
		}
	}
	for i, f := range r.Failed {
		if i == importNames {
			fmt.Fprintf(w, "and %d more that failed; --json lists them all\n", len(r.Failed)-i)
			break
		}
		fmt.Fprintf(w, "failed: %s: %s\n", line(f.Ref.String()), line(f.Err))
	}
	if len(r.Scopes) == 0 {
		fmt.Fprintf(w, "every page has a vector by %s\n", line(r.Model))
	}
}

// noteDegraded tells a person that meaning did not take part, or not of all pages.
func (a *app) noteDegraded(why string) {
	if why != "" && !a.JSON {
		fmt.Fprintln(a.err, "degraded:", printable(a.err, why))
	}
}
