package dbctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
)

type assembleCmd struct {
	File     string   `arg:"" help:"Database."`
	Scope    string   `arg:"" help:"Scope to read as. It sees its own pages and those of its ancestors."`
	Question []string `arg:"" help:"Question to collect pages for. The context does not include it."`
	Budget   int      `help:"Token budget of the context." default:"4000"`
	Reserve  int      `help:"Tokens of the budget to keep free for the answer."`
	Top      int      `help:"Maximum number of ranked pages." default:"50"`
	Kind     []string `sep:"none" help:"Include only this kind. Repeatable."`
	Floor    string   `help:"Lowest provenance to include." default:"tool"`
	Session  string   `help:"Session whose turns appear as conversation turns."`
	Preset   string   `help:"Ranking preset: default, or START (the published two-pass method)." default:"default"`
	Overflow string   `help:"If not everything fits: fill with as much as fits, or degrade by whole tiers (ladder)." enum:"fill,ladder" default:"fill"`
	Charge   string   `help:"What the budget counts: the rendered context, or its texts alone (contents) if you render them yourself." enum:"rendered,contents" default:"rendered"`
	Form     string   `help:"How pages are shown: dense, which says once what pages have in common and names them by number, or long, with a header and a reference for each." enum:"dense,long" default:"dense"`
	Summary  int      `name:"summary-tokens" help:"About how many tokens a page takes that is shortened." default:"200"`
	Recent   bool     `help:"Fill the context with recent pages even if nothing matches the question."`
	AsOf     uint64   `help:"Assemble from the past, as of this LSN. An LSN beyond the newest is rejected; the error names the newest." placeholder:"LSN"`
	Trace    string   `help:"Trace to record the assembly under, a ULID. Default: a new one."`
	Format   string   `help:"Output format: text, or a provider's request (openai, anthropic, gemini)." enum:"text,openai,anthropic,gemini" default:"text"`
	readFlags
	filterFlags
	modelFlags
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
	Degraded string          `json:"degraded,omitempty"`
	Match    manifest.Match  `json:"match,omitempty"`
	Covered  float64         `json:"covered"`
	Text     string          `json:"text,omitempty"`
	Request  json.RawMessage `json:"request,omitempty"`
}

func (c *assembleCmd) Run(a *app) error {
	q, err := c.query()
	if err := errors.Join(err, c.allow(a), c.embedWith(a)); err != nil {
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
			if len(v.Blocks) == 0 {
				a.noteUnknownKeys(db, c.Scope, &c.filterFlags)
			}
		}
		return err
	})
}

func (c *assembleCmd) summary(a *app, v *assemblyView) {
	tier := triage.Tier(v.Tier).String()
	if c.Overflow == triage.Fill.String() {
		tier = triage.Tier(v.Tier).Lost()
	}
	fmt.Fprintf(a.err, "trace %s: %s, %d of %d tokens, tier %d (%s)\n", v.Trace, plural(len(v.Blocks), "page", "pages"), v.Tokens, v.Limit, v.Tier, tier)
	switch v.Match {
	case manifest.MatchNone:
		fmt.Fprintln(a.err, "nothing matches the question; --recent shows recent pages all the same")
	case manifest.MatchWeak:
		fmt.Fprintf(a.err, "a weak match: the pages have %.0f %% of the words of the question\n", 100*v.Covered)
	}
	a.noteDegraded(v.Degraded)
	if v.Review {
		fmt.Fprintln(a.err, "not even what is protected fitted: a person should look at this")
	}
	if c.ReadOnly {
		fmt.Fprintln(a.err, "read-only: no manifest was written, so this trace leads nowhere")
	}
}

func (c *assembleCmd) query() (q ctxpage.Query, err error) {
	q = ctxpage.Query{
		Text: strings.Join(c.Question, " "), Budget: c.Budget, Reserve: c.Reserve, TopK: c.Top, Session: c.Session,
		SummaryTokens: c.Summary, ServeStale: c.ServeStale, AsOf: c.AsOf, Trace: c.Trace, Recent: c.Recent,
	}
	if q.Kinds, err = view.Kinds(c.Kind); err != nil {
		return q, err
	}
	if err := q.SetNames(c.Floor, c.Preset, c.Overflow, c.Charge, c.Form); err != nil {
		return q, usage("%v", err)
	}
	if q.Filter, err = c.filter(); err != nil {
		return q, err
	}
	q.Check, err = c.policy()
	return q, err
}

func assemblyOf(got *ctxpage.Assembly) assemblyView {
	v := assemblyView{
		Trace: got.Trace, LSN: got.LSN, Tier: int(got.Tier), Tokens: got.Tokens, Limit: got.Limit, Review: got.Review,
		Digest: got.Manifest.Rendered, Blocks: []blockView{}, Left: leftOf(got.Left), Degraded: got.Degraded, Match: got.Match, Covered: manifest.Quantise(got.Covered).Float(), Counts: countsOf(countsInManifest(got.Manifest), got.Left),
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
