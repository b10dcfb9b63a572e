package dbctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

type reviewCmd struct {
	Ls      reviewLsCmd      `cmd:"" help:"List held batches, oldest first."`
	Show    reviewShowCmd    `cmd:"" help:"Show everything that approving a held batch does, and what has changed since."`
	Approve reviewApproveCmd `cmd:"" help:"Commit a held batch."`
	Reject  reviewRejectCmd  `cmd:"" help:"Reject a held batch."`
	Purge   reviewPurgeCmd   `cmd:"" help:"Drop held batches that were decided."`
}

type reviewLsCmd struct {
	File  string `arg:"" help:"Database."`
	Scope string `help:"Only batches of this scope."`
	All   bool   `help:"Include decided batches."`
	pageFlags
}

// heldView is a held batch; Writes have their text in review show only.
type heldView struct {
	ID          string      `json:"id"`
	Scope       string      `json:"scope"`
	Actor       string      `json:"actor"`
	Trace       string      `json:"trace,omitempty"`
	Reason      string      `json:"reason"`
	Confidence  float64     `json:"confidence"`
	By          string      `json:"by,omitempty"`
	Note        string      `json:"note,omitempty"`
	At          time.Time   `json:"at"`
	Decided     string      `json:"decided,omitempty"`
	DecidedBy   string      `json:"decided_by,omitempty"`
	DecidedNote string      `json:"decided_note,omitempty"`
	Writes      []view.Page `json:"writes"`
	Deletes     []string    `json:"deletes"`
	Replaces    []string    `json:"replaces"`
	Drops       []string    `json:"drops,omitempty"`
	Stale       []string    `json:"stale"`
	StaleNow    []string    `json:"stale_now"`
	Conflicts   []string    `json:"conflicts"`
	LookAlikes  []string    `json:"look_alikes,omitempty"`
	held        *ctxpage.Held
}

func heldOf(h *ctxpage.Held) heldView {
	v := heldView{
		ID: h.ID, Scope: h.Scope, Actor: h.Actor, Trace: h.Trace, Reason: h.Reason, Confidence: h.Confidence, By: h.By, Note: h.Note, At: h.At,
		Decided: h.Decided, DecidedBy: h.DecidedBy, DecidedNote: h.DecidedNote, Writes: []view.Page{}, Deletes: nonNil(h.Deletes), Replaces: view.Refs(h.Replaces), Drops: h.Drops, held: h, Stale: view.Refs(h.Stale),
		StaleNow: view.Refs(h.StaleNow), Conflicts: view.Refs(h.Conflicts), LookAlikes: h.LookAlikes,
	}
	for i := range h.Writes {
		v.Writes = append(v.Writes, view.Whole(&h.Writes[i]))
	}
	return v
}

// name is a name for people who decide by it: one with characters beyond ASCII is followed by their codes, so that it is
// not taken for another that looks the same.
func name(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0 {
		return s
	}
	return s + " (" + strings.Trim(strconv.QuoteToASCII(s), `"`) + ")"
}

type heldList struct {
	Held []heldView `json:"held"`
	Next string     `json:"next,omitempty"`
}

func (c *reviewLsCmd) Run(a *app) error {
	cursor, err := c.raw("review")
	if err != nil {
		return err
	}
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		var next string
		held, damage := loop.Collect(db.Review().Batches(a.ctx, c.Scope, c.All, ctxpage.AtMost(c.Limit, cursor, &next)))
		if damage != nil && !errors.Is(damage, store.ErrCorrupt) {
			return damage
		}
		out := heldList{Held: []heldView{}, Next: cursorOut("review", next)}
		for i := range held {
			out.Held = append(out.Held, heldOf(&held[i]))
		}
		err := a.emit(out, func(w io.Writer) {
			if len(out.Held) == 0 && damage == nil {
				fmt.Fprintln(w, "nothing is held")
				return
			}
			rows(w, "BATCH HELD SCOPE ACTOR REASON CONFIDENCE BY WRITES REPLACES DECIDED", out.Held, func(h *heldView) []any {
				return []any{h.ID, when(h.At), name(h.Scope), name(h.Actor), h.Reason, h.Confidence, or(name(h.By), "-"), len(h.Writes) + len(h.Deletes), view.Replaced(h.held), or(h.Decided, "-")}
			})
			for _, h := range out.Held {
				printEach(w, h.ID+": %s\n", h.LookAlikes)
			}
			more(w, out.Next)
		})
		return errors.Join(err, damage)
	})
}

type reviewShowCmd struct {
	File  string `arg:"" help:"Database."`
	Batch string `arg:"" help:"Batch id."`
	quietFlags
}

func (c *reviewShowCmd) Run(a *app) error {
	return show(a, c.File, !c.ReadOnly, func(db *ctxpage.DB) (v heldView, err error) {
		h, err := db.Review().Show(a.ctx, c.Batch)
		if err == nil {
			v = heldOf(h)
		}
		return v, err
	}, heldView.print)
}

func (v heldView) print(w io.Writer) {
	table(w, "", func(row func(...any)) {
		verdict, decided := "", ""
		if v.By != "" {
			verdict = fmt.Sprintf("%v by %s", v.Confidence, name(v.By))
		}
		if v.Decided != "" {
			decided = v.Decided + " by " + name(v.DecidedBy)
		}
		setRows(row, "batch", v.ID, "held", when(v.At), "scope", name(v.Scope), "written by", name(v.Actor), "context", or(v.Trace, "-"), "reason", or(v.Reason, " "),
			"verdict", verdict, "note", v.Note, "decided", decided, "decision note", v.DecidedNote)
		for _, l := range []struct {
			what string
			refs []string
		}{{"conflict: written since", v.Conflicts}, {"had changed when held", v.Stale}, {"has changed since read", v.StaleNow}, {"deletes", v.Deletes}, {"look-alike", v.LookAlikes}} {
			for _, r := range l.refs {
				row(l.what, r)
			}
		}
	})
	for i, x := range v.Writes {
		fmt.Fprintf(w, "\n%s (%s, %s)\n", line(x.Ref), x.Kind, plural(x.Tokens, "token", "tokens"))
		v.effects(w, &v.held.Writes[i])
		fmt.Fprintln(w, printable(w, x.Text))
	}
}

// effects prints what the approval of a draft does besides storing its text, gravest first, and then every field that is
// set. The fields come from the JSON of the artefact, so a field that is added later is shown, too.
func (v *heldView) effects(w io.Writer, x *ctxpage.Version) {
	for _, r := range v.held.Replaces {
		if r.ID == x.ID {
			fmt.Fprintf(w, "  REPLACES %s\n", line(r.String()))
			for _, d := range v.Drops {
				if lost, of := strings.CutPrefix(d, r.String()+": "); of {
					fmt.Fprintf(w, "  DROPS %s\n", line(lost))
				}
			}
		}
	}
	printEach(w, "  SUPERSEDES %s, which is no longer found\n", x.Supersedes)
	if x.Kind == store.KindSystem || x.Role == "system" || x.Role == "developer" {
		fmt.Fprintln(w, "  INSTRUCTS the model: every context of the scope shows it as an instruction")
	}
	if x.Role != "" && x.Group != "" {
		fmt.Fprintf(w, "  BECOMES a turn of the %s in %s, at place %d\n", line(x.Role), line(x.Group), x.Seq)
	}
	a := x.Artefact
	a.ID, a.Text, a.Supersedes = "", "", nil
	for _, f := range setFields(a) {
		fmt.Fprintf(w, "  %s: %s\n", f.name, line(f.value))
	}
}

type setField struct{ name, value string }

// setFields lists the fields of an artefact that are set, in their order.
func setFields(a ctxpage.Artefact) (out []setField) {
	b, err := json.Marshal(a)
	if err != nil {
		return []setField{{"fields", err.Error()}}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	_, _ = d.Token()
	for d.More() {
		name, _ := d.Token()
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return append(out, setField{fmt.Sprint(name), err.Error()})
		}
		text := string(value)
		switch name {
		case "kind": // stands in the heading
			continue
		case "provenance":
			text = a.Provenance.String()
		case "priority":
			text = [...]string{"", "low", "medium", "high", "critical"}[min(a.Priority, store.PriorityCritical)]
		}
		switch text {
		case "", `""`, "0", "null", "false", "[]", "{}":
			continue
		}
		var plain string
		if json.Unmarshal(value, &plain) == nil {
			text = plain
		}
		out = append(out, setField{strings.ReplaceAll(fmt.Sprint(name), "_", " "), text})
	}
	return out
}

type reviewApproveCmd struct {
	File  string `arg:"" help:"Database."`
	Batch string `arg:"" optional:"" help:"Batch id. Not with --all."`
	All   bool   `help:"Approve all held batches that the filters below select."`
	batchFilter
	By            string `required:"" help:"Name of the approver, who must not be the writer."`
	Note          string `help:"Note for the manifest."`
	HumanVerified bool   `help:"Mark what is written as human-verified, the highest provenance."`
	Stale         bool   `help:"Approve even if pages it is based on have changed."`
	DryRun        bool   `help:"Show conflicts and changes; decide nothing."`
}

func (c *reviewApproveCmd) Run(a *app) error {
	switch {
	case c.All && c.Batch != "":
		return usage("--all: expected no batch id")
	case c.All:
		return c.all(a)
	case c.Batch == "":
		return usage("expected a batch id, or --all")
	case c.batchFilter != (batchFilter{}):
		return usage("--scope, --actor, --kind, --tag, --reason, --older and --replacing select batches: give --all, too")
	}
	if c.DryRun {
		return (&reviewShowCmd{c.File, c.Batch, quietFlags{true}}).Run(a)
	}
	return a.with(c.File, true, func(db *ctxpage.DB) error {
		out, err := db.Review().Approve(a.ctx, c.Batch, ctxpage.Approval{By: c.By, Note: c.Note, HumanVerified: c.HumanVerified, Stale: c.Stale})
		if errors.Is(err, store.ErrStaleContext) {
			return fmt.Errorf("%w; dbctl review show names them, --stale approves all the same", err)
		}
		if err != nil {
			return err
		}
		return a.reviewed(db, c.Batch, c.By, out)
	})
}

type reviewRejectCmd struct {
	File   string `arg:"" help:"Database."`
	Batch  string `arg:"" help:"Batch id."`
	By     string `required:"" help:"Name of the reviewer."`
	Note   string `help:"Reason, for the manifest."`
	DryRun bool   `help:"Show the batch; decide nothing."`
}

func (c *reviewRejectCmd) Run(a *app) error {
	if c.DryRun {
		return (&reviewShowCmd{c.File, c.Batch, quietFlags{true}}).Run(a)
	}
	return a.with(c.File, true, func(db *ctxpage.DB) error {
		out, err := db.Review().Reject(a.ctx, c.Batch, c.By, c.Note)
		if err != nil {
			return err
		}
		return a.reviewed(db, c.Batch, c.By, out)
	})
}

type reviewedView struct {
	Batch     string   `json:"batch"`
	Status    string   `json:"status"`
	DecidedBy string   `json:"decided_by"` // who decided first: a later call returns that outcome again
	LSN       uint64   `json:"lsn"`
	Refs      []string `json:"refs"`
}

// reviewed prints the outcome of a batch that by has decided, or somebody before.
func (a *app) reviewed(db *ctxpage.DB, batch, by string, out store.Outcome) error {
	h, err := db.Review().Show(a.ctx, batch)
	if err != nil {
		return err
	}
	v := reviewedView{batch, out.Status.String(), h.DecidedBy, out.LSN, view.Refs(out.Refs)}
	return a.emit(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s by %s, lsn %d\n", v.Batch, v.Status, line(v.DecidedBy), v.LSN)
		if by != v.DecidedBy {
			fmt.Fprintf(w, "  it was decided before; nothing was recorded for %s\n", line(by))
		}
		printEach(w, "  %s\n", v.Refs)
	})
}

// batchFilter selects held batches. A batch is decided as a whole, so all its writes must match.
type batchFilter struct {
	Scope     string        `help:"With --all: only batches of this scope."`
	Actor     string        `help:"With --all: only batches that this actor wrote."`
	Kind      string        `help:"With --all: only batches whose writes are all of this kind."`
	Tag       string        `help:"With --all: only batches whose writes all have this tag."`
	Reason    string        `help:"With --all: only batches held for this reason, such as 'no verdict', or a part of it."`
	Older     time.Duration `help:"With --all: only batches held for at least this time, such as 7d." placeholder:"DURATION"`
	Replacing bool          `help:"With --all: also batches that replace, supersede or delete pages."`
}

// all approves what the filters select.
func (c *reviewApproveCmd) all(a *app) error {
	return a.with(c.File, !c.DryRun, func(db *ctxpage.DB) error {
		bulk := view.BulkApproval{
			Scope: c.Scope, Actor: c.Actor, Kind: c.Kind, Tag: c.Tag, Reason: c.Reason, Older: c.Older, Replacing: c.Replacing, DryRun: c.DryRun,
			Approval: ctxpage.Approval{By: c.By, Note: c.Note, HumanVerified: c.HumanVerified, Stale: c.Stale},
		}
		list, damage := bulk.Approve(a.ctx, db, a.now())
		if damage != nil && !errors.Is(damage, store.ErrCorrupt) {
			return damage
		}
		out := approvedList(list)
		return errors.Join(damage, unless(out.Left == 0, exitFailed, a.emit(out, out.print)))
	})
}

type approvedList view.ApprovedList

func (v *approvedList) print(w io.Writer) {
	if len(v.Batches) == 0 {
		fmt.Fprintln(w, "no held batch matches")
		return
	}
	rows(w, "BATCH HELD SCOPE ACTOR REASON IDS REPLACES STATUS", v.Batches, func(b *view.Approved) []any {
		return []any{b.Batch, when(b.At), name(b.Scope), name(b.Actor), b.Reason, cut(strings.Join(b.IDs, " "), 60), b.Replaces, b.Status}
	})
	for _, b := range v.Batches {
		if b.Error != "" {
			fmt.Fprintf(w, "%s is still held: %s\n", b.Batch, line(b.Error))
		}
	}
	if v.DryRun {
		fmt.Fprintf(w, "dry run: would approve %d, leave %d\n", v.Approved, v.Left)
		return
	}
	fmt.Fprintf(w, "approved %d, left %d\n", v.Approved, v.Left)
}
