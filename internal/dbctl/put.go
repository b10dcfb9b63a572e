package dbctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

type putCmd struct {
	File  string `arg:"" help:"Database."`
	Scope string `arg:"" help:"Scope to write to, like acme/support."`
	ID    string `arg:"" help:"Id of the artefact. An existing id gets a new version."`
	Text  string `arg:"" optional:"" help:"Text; - reads standard input, as does no text without --source."`

	Kind       string            `help:"Kind: system, fact, chunk, message, tool, scratch or summary. Default: chunk with a source, message with a role, otherwise fact."`
	Provenance string            `help:"Provenance: chunk, validated, tool or scratch. Default: depends on the kind."`
	Source     string            `help:"Source of the text: file:PATH or page:REF. Each use checks it and refetches the text if it changed."`
	Root       string            `help:"Directory that file: sources may read from. Recorded in the database." placeholder:"DIR"`
	TTL        time.Duration     `name:"ttl" help:"Expire after this time, like 12h or 7d."`
	Expires    string            `help:"Expire at this time, like 2027-01-31 or 2027-01-31T12:00:00Z."`
	AsOf       string            `help:"When the text was true. Recency is measured from this time." placeholder:"TIME"`
	Pin        bool              `help:"Always include it, ahead of scored pages."`
	Tag        []string          `sep:"none" help:"Tag. Repeatable."`
	Meta       map[string]string `mapsep:"none" help:"Metadata as KEY=VALUE. Repeatable."`
	Group      string            `help:"Conversation, file or thread that it belongs to."`
	Seq        int64             `help:"Position in the group."`
	Role       string            `help:"Role of a message: user, assistant, tool, system or developer (an alias of system). A message with any other role is treated as data."`
	Subject    string            `help:"Person or thing that it is about."`
	Supersedes []string          `sep:"none" help:"Id of or reference to an artefact of the scope that this one replaces. Repeatable."`
	From       []string          `sep:"none" help:"Id or reference it is derived from. Repeatable. It becomes dirty when that changes."`
	Verified   bool              `help:"A person vouches for it: the highest provenance. Requires --by."`
	By         string            `help:"Name of the writer, for the manifest."`
	DryRun     bool              `help:"Validate the input and show what would be written."`
}

type putView struct {
	Ref    string `json:"ref"`
	Tokens int    `json:"tokens"`
	Pages  int    `json:"pages"`
	DryRun bool   `json:"dry_run,omitempty"`
	// Unchanged: that version stood there already and says the same, so no new one was made.
	Unchanged bool `json:"unchanged"`
}

// errDry ends an Update that must not be committed.
var errDry = errors.New("dry run")

func (c *putCmd) Run(a *app) error {
	art, err := c.artefact(a)
	if err != nil {
		return err
	}
	if c.Root != "" {
		if err := a.allowRoot(c.Root); err != nil {
			return err
		}
	}
	return a.with(c.File, true, func(db *ctxpage.DB) error {
		if err := c.named(a, db, &art); err != nil {
			return err
		}
		v, err := c.put(a.ctx, db, art)
		if err != nil {
			return err
		}
		if c.Root != "" && !c.DryRun { // after the put: one that failed has allowed nothing
			if err := db.Admin().AddFileRoot(a.ctx, c.Root); err != nil {
				return fmt.Errorf("wrote %s, but --root was not recorded: %w", v.Ref, err)
			}
		}
		return a.emit(v, func(w io.Writer) {
			if v.Unchanged {
				fmt.Fprintf(w, "unchanged: %s says the same, no new version %s made\n", v.Ref, would(c.DryRun, "was", "would be"))
				return
			}
			fmt.Fprintf(w, "%s %s: %s, %s\n", would(c.DryRun, "wrote", "would write"), v.Ref, plural(v.Tokens, "token", "tokens"), plural(v.Pages, "page", "pages"))
		})
	})
}

func (c *putCmd) put(ctx context.Context, db *ctxpage.DB, art ctxpage.Artefact) (putView, error) {
	s := db.Scope(c.Scope, ctxpage.WithActor(or(c.By, c.Scope)))
	out := putView{DryRun: c.DryRun}
	before, err := loop.Collect(s.Artefacts(ctx, art.ID, ctxpage.AtMost(1, "", nil))) // nobody else writes meanwhile
	if err != nil {
		return out, err
	}
	done := func(ref ctxpage.Ref) {
		out.Ref = ref.String()
		out.Unchanged = len(before) > 0 && before[0].Ref == ref
	}
	measure := func(tx *ctxpage.Txn) error {
		if err := tx.Put(ctx, art); err != nil {
			return err
		}
		v, err := tx.Get(ctx, art.ID)
		if err != nil {
			return err
		}
		out.Ref, out.Tokens, out.Pages = v.Ref.String(), v.Tokens, len(v.Pages)
		if c.DryRun {
			return c.unchanged(ctx, tx, before, art.ID, &out)
		}
		if c.Verified {
			return errDry // a verified one is written below, by the operator
		}
		return nil
	}
	var last *ctxpage.Txn
	err = s.Update(ctx, func(tx *ctxpage.Txn) error { last = tx; return measure(tx) })
	switch {
	case errors.Is(err, errDry) && c.DryRun:
		return out, nil
	case errors.Is(err, errDry):
		ref, err := db.Admin().PutVerified(ctx, c.Scope, c.By, art)
		if err == nil {
			done(ref)
		}
		return out, err
	case err != nil:
		return out, err
	}
	done(last.Outcome().Refs[0])
	return out, nil
}

// unchanged ends a dry run and reports whether it would make a version.
func (c *putCmd) unchanged(ctx context.Context, tx *ctxpage.Txn, before []*ctxpage.Version, id string, out *putView) error {
	var trust store.Provenance
	if c.Verified {
		trust = store.HumanVerified
	}
	same, err := tx.Unchanged(ctx, id, trust)
	if err != nil {
		return err
	}
	if out.Unchanged = same; same {
		out.Ref = before[0].Ref.String()
	}
	return errDry
}

// named finds the artefacts that the new one comes from, and replaces.
func (c *putCmd) named(a *app, db *ctxpage.DB, art *ctxpage.Artefact) error {
	n := &namer{a: a, db: db, scope: c.Scope, writes: true}
	for _, f := range c.From {
		ref, err := n.find(a.ctx, f)
		if err != nil {
			return fmt.Errorf("put: --from: %w", err)
		}
		ref.Scope = or(ref.Scope, c.Scope)
		art.DerivedFrom = append(art.DerivedFrom, ref)
	}
	for i, s := range c.Supersedes {
		ref, err := n.own(a.ctx, s)
		if err != nil {
			return fmt.Errorf("put: --supersedes: %w", err)
		}
		art.Supersedes[i] = ref.ID
	}
	if key, ok := strings.CutPrefix(c.Source, "page:"); ok && strings.ContainsAny(key, ":#@") {
		ref, err := n.find(a.ctx, key)
		if err != nil {
			return fmt.Errorf("put: --source: %w", err)
		}
		if ref.Scope != "" { // else the library says what is wrong with it
			art.Source = "page:" + ref.String()
		}
	}
	return n.fresh(a.ctx, c.ID)
}

func (c *putCmd) artefact(a *app) (art ctxpage.Artefact, err error) {
	w := view.Write{
		ID: c.ID, Text: c.Text, Kind: c.Kind, Provenance: c.Provenance, Role: c.Role, Source: c.Source, Group: c.Group, Seq: c.Seq, Subject: c.Subject,
		Supersedes: slices.Clone(c.Supersedes), Pinned: c.Pin, Tags: c.Tag, Meta: c.Meta,
	}
	if c.Verified && c.By == "" {
		return art, usage("put: --verified needs --by: who answers for it")
	}
	if c.Verified && c.Provenance != "" {
		return art, usage("put: --verified and --provenance exclude each other")
	}
	if w.ExpiresAt, err = parseTime("--expires", c.Expires); err != nil {
		return art, err
	}
	if w.CurrentAsOf, err = parseTime("--as-of", c.AsOf); err != nil {
		return art, err
	}
	if art, err = w.Artefact(); err != nil {
		return art, err
	}
	if art.TTL = c.TTL; art.Provenance == triage.Verified {
		return art, usage("put: --provenance human-verified: expected --verified --by WHO: a person answers for it")
	}
	if path, ok := strings.CutPrefix(c.Source, "file:"); ok && path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return art, usage("put: --source: %v", err)
		}
		art.Source = "file:" + filepath.ToSlash(abs)
	}
	if c.Text == "" && c.Source == "" || c.Text == "-" {
		art.Text, err = a.readText("the text")
	}
	return art, err
}

// readText reads standard input whole.
func (a *app) readText(what string) (string, error) {
	if isTerminal(a.in) {
		fmt.Fprintf(a.err, "reading %s from the terminal; end it with Ctrl-D on an empty line\n", what)
	}
	b, err := io.ReadAll(io.LimitReader(interruptible{a.ctx, a.in}, store.MaxText+1))
	switch {
	case a.ctx.Err() != nil:
		return "", err
	case err != nil:
		return "", failed("read %s from standard input: %v", what, err)
	case len(b) > store.MaxText:
		return "", usage("%s on standard input has more than %d bytes, the most an artefact may have", what, store.MaxText)
	case strings.TrimSpace(string(b)) == "":
		return "", usage("expected %s on standard input, found nothing", what)
	}
	return string(b), nil
}

func parseTime(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage("%s %q: expected a time like 2027-01-31 or 2027-01-31T12:00:00Z", flag, s)
}
