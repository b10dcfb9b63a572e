package dbctl

import (
	"errors"
	"fmt"
	"io"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

type commitCmd struct {
	File       string   `arg:"" help:"Database."`
	Scope      string   `arg:"" help:"Scope of the assembly. The answer is written to it."`
	Trace      string   `required:"" help:"Trace of the assembly the answer is based on. Its pages are the read set."`
	Confidence *float64 `help:"Confidence of the verdict, 0 to 1."`
	By         string   `help:"Who gave the verdict: a checker, a rule or a person, but not the actor."`
	ID         string   `name:"id" help:"Id of the answer. Default: answer- followed by the trace."`
	Kind       string   `help:"Kind of the answer." default:"fact"`
	Actor      string   `help:"Who wrote the answer. Default: the scope."`
	Note       string   `help:"Note on the verdict, for the manifest."`
	Batch      string   `help:"Batch id, a ULID. Repeating an id does not apply the batch twice." placeholder:"ULID"`
	OnStale    string   `help:"What to do if a page of the context has changed since: hold, fail or allow." enum:"hold,fail,allow" default:"hold"`
	evaluatorFlag
	DryRun bool `help:"Show how the gate would decide and write nothing. Staleness is only checked by a real commit."`
}

type commitView struct {
	Status string   `json:"status"`
	Batch  string   `json:"batch"`
	Trace  string   `json:"trace"`
	Refs   []string `json:"refs"`
	LSN    uint64   `json:"lsn"`
	Reason string   `json:"reason,omitempty"`
	Stale  []string `json:"stale,omitempty"`
	DryRun bool     `json:"dry_run,omitempty"`
}

func (c *commitCmd) Run(a *app) error {
	verdict, opts, err := c.verdict()
	if err != nil {
		return err
	}
	var judge []ctxpage.ScopeOption
	if e, err := c.evaluator(); err != nil {
		return err
	} else if e != nil {
		judge = append(judge, ctxpage.JudgedBy(e))
	}
	art := ctxpage.Artefact{ID: c.ID}
	if art.Kind, err = store.ParseKind(c.Kind); err != nil {
		return err
	}
	if art.Text, err = a.readText("the answer"); err != nil {
		return err
	}
	return a.with(c.File, true, func(db *ctxpage.DB) error {
		scope := (&readFlags{Actor: c.Actor}).scope(db, c.Scope, judge...)
		trace, err := assemblyTrace(a, db, c.Trace)
		if err != nil {
			return err
		}
		if c.ID == "" {
			art.ID = "answer-" + trace
		} else if err := (&namer{a: a, db: db, scope: c.Scope}).fresh(a.ctx, c.ID); err != nil {
			return err
		}
		tx, err := scope.Resume(a.ctx, trace, opts...)
		if err != nil {
			return err
		}
		if err := tx.Put(a.ctx, art); err != nil {
			return err
		}
		if c.DryRun {
			return c.dry(a, tx, art.ID)
		}
		err = tx.Commit(a.ctx, verdict)
		if errors.Is(err, store.ErrStaleContext) {
			return fmt.Errorf("%w; nothing was written or held: commit with --on-stale hold or allow, or assemble anew", err)
		}
		return a.committed(tx, err)
	})
}

func (c *commitCmd) verdict() (v ctxpage.Verdict, opts []ctxpage.TxnOption, err error) {
	if c.Evaluator != "" && (c.By != "" || c.Note != "" || c.DryRun) {
		return v, nil, usage("--evaluator judges by itself, when it commits: leave --by, --confidence, --note and --dry-run out")
	}
	v = ctxpage.Verdict{By: c.By, Note: c.Note}
	if c.Confidence != nil {
		if v.Confidence = *c.Confidence; !(v.Confidence >= 0 && v.Confidence <= 1) {
			return v, nil, usage("--confidence %v: expected a number from 0 to 1", v.Confidence)
		}
		if c.By == "" {
			return v, nil, usage("--confidence needs --by: who is that sure")
		}
	} else if c.By != "" {
		return v, nil, usage("--by needs --confidence: how sure %s is, 0 to 1", c.By)
	}
	if c.Batch != "" {
		opts = append(opts, ctxpage.WithID(c.Batch))
	}
	stale := map[string]store.OnStale{"hold": store.HoldStale, "fail": store.FailStale, "allow": store.AllowStale}[c.OnStale]
	return v, append(opts, ctxpage.WithOnStale(stale)), nil
}

// assemblyTrace completes the trace of an assembly, and refuses what cannot be one.
func assemblyTrace(a *app, db *ctxpage.DB, s string) (string, error) {
	trace, err := fullTrace(a.ctx, db.Manifests(), s)
	if err != nil {
		return "", err
	}
	if _, err := ulid.ParseStrict(trace); err != nil {
		return "", usage("--trace %q: expected the trace of an assembly, a ULID of 26 characters", trace)
	}
	return trace, nil
}

// dry tells what the default gate says. The transaction is dropped without a trace.
func (c *commitCmd) dry(a *app, tx *ctxpage.Txn, id string) error {
	v := commitView{Status: "applied", Batch: tx.ID(), Trace: tx.Trace(), Refs: []string{ctxpage.Ref{Scope: c.Scope, ID: id}.String()}, DryRun: true}
	verdict := ctxpage.Verdict{By: c.By}
	if c.Confidence != nil {
		verdict.Confidence = *c.Confidence
	}
	if v.Reason = tx.Judge(verdict); v.Reason != "" {
		v.Status = "held"
	}
	return a.emit(v, func(w io.Writer) {
		fmt.Fprintf(w, "would be %s", v.Status)
		if v.Reason != "" {
			fmt.Fprintf(w, ": %s", v.Reason)
		}
		fmt.Fprintln(w)
	})
}

func (a *app) committed(tx *ctxpage.Txn, err error) error {
	var held *store.HeldError
	if err != nil && !errors.As(err, &held) {
		return err
	}
	out := tx.Outcome()
	v := commitView{Status: out.Status.String(), Batch: tx.ID(), Trace: tx.Trace(), Refs: view.Refs(out.Refs), LSN: out.LSN, Reason: out.Reason, Stale: view.Refs(out.Stale)}
	return unless(held == nil, exitHeld, a.emit(v, v.print))
}

func (v *commitView) print(w io.Writer) {
	if v.Status == "held" {
		fmt.Fprintf(w, "held for review as %s: %s\n", v.Batch, v.Reason)
		printEach(w, "  changed since it was read: %s\n", v.Stale)
		return
	}
	fmt.Fprintf(w, "%s as batch %s, lsn %d\n", v.Status, v.Batch, v.LSN)
	printEach(w, "  %s\n", v.Refs)
	if len(v.Refs) == 0 {
		fmt.Fprintln(w, "  nothing new: the answer repeats a page of its context word for word")
	}
}
