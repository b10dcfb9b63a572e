package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/budget"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/triage"
)

type assembleCmd struct {
	File     string   `arg:"" help:"Database."`
	Scope    string   `arg:"" help:"Scope that reads; it sees itself and its ancestors."`
	Question []string `arg:"" help:"What the context is for. It is not itself part of the context."`
	Budget   int      `help:"Tokens the context may take." default:"4000"`
	Reserve  int      `help:"Tokens of it kept free for the answer."`
	Top      int      `help:"Pages that may win a place." default:"50"`
	Kind     []string `sep:"none" help:"Only this kind; may be repeated."`
	Floor    string   `help:"Lowest provenance that may enter." default:"tool"`
	Session  string   `help:"Group whose own turns enter as turns."`
	Preset   string   `help:"default, or START, the published two-pass form." default:"default"`
	Overflow string   `help:"When not all fits: fill as much as fits, or give up whole rungs of the ladder." enum:"fill,ladder" default:"fill"`
	AsOf     uint64   `help:"Assemble from the past, as of this LSN; one that is not there yet is refused, and the newest named." placeholder:"LSN"`
	Trace    string   `help:"Name the assembly in the manifest, a ULID. Default: a new one."`
	Format   string   `help:"text, or the request of a provider: openai, anthropic, gemini." enum:"text,openai,anthropic,gemini" default:"text"`
	readFlags
}

func (assembleCmd) Help() string {
	return `Prints the context on standard output and a line about it on standard error. Commit the answer to it with dbctl commit --trace. The manifest of it leads to dbctl why, replay and diff; so the file is opened for writing, unless --read-only: then there is no manifest, and a trace nobody can follow.

Example: dbctl assemble agent.ctx acme/support 'what may I refund?' --budget 4000 >context.txt`
}

type blockView struct {
	Ref    string  `json:"ref"`
	Num    uint64  `json:"num"`
	Form   string  `json:"form"`
	Tokens int     `json:"tokens"`
	Score  float64 `json:"score"`
	Stale  bool    `json:"stale,omitempty"`
}

type assemblyView struct {
	Trace    string          `json:"trace"`
	LSN      uint64          `json:"lsn"`
	Tier     int             `json:"tier"`
	Tokens   int             `json:"tokens"`
	Limit    int             `json:"limit"`
	Review   bool            `json:"review"`
	ReadOnly bool            `json:"read_only,omitempty"`
	Digest   manifest.Digest `json:"digest"`
	Blocks   []blockView     `json:"blocks"`
	Left     []leftView      `json:"left"`
	Counts   []countView     `json:"left_counts"` // as in the manifest: of all pages the scope sees
	Text     string          `json:"text,omitempty"`
	Request  json.RawMessage `json:"request,omitempty"`
}

func (c *assembleCmd) Run(a *app) error {
	q, err := c.query()
	if err := errors.Join(err, c.allow(a)); err != nil {
		return err
	}
	return a.with(c.File, !c.ReadOnly, func(db *ctxpage.DB) error {
		if err := a.noteEmptyScope(db, c.Scope); err != nil {
			return err
		}
		got, err := c.scope(db, c.Scope).Assemble(a.ctx, q)
		if err != nil {
			return err
		}
		v := assemblyOf(got)
		if v.ReadOnly = c.ReadOnly; c.Format == "text" {
			v.Text = got.Text()
		} else if v.Request, err = providerRequest(c.Format, got.Messages()); err != nil {
			return err
		}
		err = a.emit(v, func(w io.Writer) {
			fmt.Fprint(w, printable(w, v.Text), escapedFor(w, string(v.Request)))
			if v.Request != nil {
				fmt.Fprintln(w)
			}
		})
		if err == nil && !a.JSON {
			c.summary(a, &v)
			a.noteLeft(v.Counts, got.Left)
		}
		return err
	})
}

func (c *assembleCmd) summary(a *app, v *assemblyView) {
	fmt.Fprintf(a.err, "trace %s: %s, %d of %d tokens, tier %s\n", v.Trace, plural(len(v.Blocks), "page", "pages"), v.Tokens, v.Limit, budget.Tier(v.Tier))
	if v.Review {
		fmt.Fprintln(a.err, "not even what is protected fitted: a person should look at this")
	}
	if c.ReadOnly {
		fmt.Fprintln(a.err, "read-only: no manifest was written, so this trace leads nowhere")
	}
}

func (c *assembleCmd) query() (q ctxpage.Query, err error) {
	q = ctxpage.Query{
		Text: strings.Join(c.Question, " "), Budget: c.Budget, Reserve: c.Reserve, TopK: c.Top, Session: c.Session, Preset: c.Preset,
		ServeStale: c.ServeStale, AsOf: c.AsOf, Trace: c.Trace,
	}
	for _, k := range c.Kind {
		kind, err := ctxpage.ParseKind(k)
		if err != nil {
			return q, err
		}
		q.Kinds = append(q.Kinds, kind)
	}
	if q.Floor, err = triage.ParseProvenance(c.Floor); err != nil {
		return q, usage("--floor: %v", err)
	}
	if c.Overflow == "ladder" {
		q.Overflow = budget.Ladder
	}
	q.Check, err = c.policy()
	return q, err
}

func assemblyOf(got *ctxpage.Assembly) assemblyView {
	v := assemblyView{
		Trace: got.Trace, LSN: got.LSN, Tier: int(got.Tier), Tokens: got.Tokens, Limit: got.Limit, Review: got.Review,
		Digest: got.Manifest.Rendered, Blocks: []blockView{}, Left: leftOf(got.Left), Counts: countsOf(countsInManifest(got.Manifest), got.Left),
	}
	for _, b := range got.Blocks {
		v.Blocks = append(v.Blocks, blockView{b.Ref.String(), b.Num, b.Form.String(), b.Tokens, b.Score, b.Stale})
	}
	return v
}

func providerRequest(format string, msgs []render.Message) (json.RawMessage, error) {
	switch format {
	case "openai":
		return render.OpenAI(msgs)
	case "anthropic":
		return render.Anthropic(msgs)
	}
	return render.Gemini(msgs)
}
