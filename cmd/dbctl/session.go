package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/pagercli"
	"github.com/ctxpage/ctxpage/portable"
	"github.com/ctxpage/ctxpage/portable/foreign"
	"github.com/ctxpage/ctxpage/session"
)

type sessionCmd struct {
	Ls       sessionLsCmd       `cmd:"" help:"List the sessions of a scope."`
	Show     sessionShowCmd     `cmd:"" help:"Show the window of a session: each turn, its form and the reason."`
	Append   sessionAppendCmd   `cmd:"" help:"Append turns."`
	Export   sessionExportCmd   `cmd:"" help:"Print the conversation: messages of OpenAI or Anthropic, or Markdown."`
	Pass     sessionPassCmd     `cmd:"" help:"Decide which turns stay in the window for an intent."`
	Recall   sessionRecallCmd   `cmd:"" help:"Print a turn in full, even if the window shows less of it."`
	Explain  sessionExplainCmd  `cmd:"" help:"Explain the form a turn has in the window."`
	Pin      sessionPinCmd      `cmd:"" help:"Keep a turn whole regardless of passes, or stop doing so."`
	Undo     sessionUndoCmd     `cmd:"" help:"Undo a pass."`
	Passes   sessionPassesCmd   `cmd:"" help:"List the passes, oldest first."`
	Notes    sessionNotesCmd    `cmd:"" help:"Record goal, claims, questions and work for the contract and the handoff."`
	Contract sessionContractCmd `cmd:"" help:"Append the current pass to a contract file."`
	Receive  sessionReceiveCmd  `cmd:"" help:"Receive a handoff packet as unverified references."`
	Rm       sessionRmCmd       `cmd:"" help:"Remove a session: its turns, and what was decided and noted about them."`
	Page     sessionPageCmd     `cmd:"" passthrough:"" help:"Run the compatible pager: reads a history, writes a contract. Needs no database."`
}

func (sessionCmd) Help() string {
	return `A session is a conversation of a scope. Turns that a pass removes from the window stay in the file: recall prints them, undo brings them back.

Example: dbctl session pass agent.ctx acme/support chat-1 'refund limit' --dry-run`
}

// sessionPageCmd hands its arguments on as they are.
type sessionPageCmd struct {
	Args []string `arg:"" optional:"" passthrough:"" help:"--history H --contract C [--alpha A] [--beta B] [--retain-cut R] [--evict-cut E], or --matrix."`
}

func (sessionPageCmd) Help() string {
	return "Example: dbctl session page --history history.json --contract session.limn"
}

func (c *sessionPageCmd) Run(a *app) error {
	return a.passedOn(pagercli.Run(c.Args, interruptible{a.ctx, a.in}, a.out, a.err, a.now))
}

// talkArgs name a session.
type talkArgs struct {
	File    string `arg:"" help:"Database."`
	Scope   string `arg:"" help:"Scope of the session."`
	Session string `arg:"" help:"Name of the session."`
}

func (t *talkArgs) with(a *app, write bool, fn func(s *ctxpage.Session) error) error {
	return a.with(t.File, write, func(db *ctxpage.DB) error { return fn(db.Scope(t.Scope).Session(t.Session)) })
}

// withKnown is with for the verbs that need a session which is there: a mistyped name is an error, not an empty answer.
func (t *talkArgs) withKnown(a *app, write bool, fn func(s *ctxpage.Session) error) error {
	return a.with(t.File, write, func(db *ctxpage.DB) error {
		if err := t.known(a, db); err != nil {
			return err
		}
		return fn(db.Scope(t.Scope).Session(t.Session))
	})
}

func (t *talkArgs) known(a *app, db *ctxpage.DB) error {
	scope := db.Scope(t.Scope)
	names, err := scope.Sessions(a.ctx)
	if err != nil || slices.Contains(names, t.Session) {
		return err
	}
	w, err := scope.Session(t.Session).Window(a.ctx) // one that plain puts alone have written to has no row
	if err == nil && len(w.Turns) == 0 {
		err = fmt.Errorf("%w: scope %s has no session %q; it has %s", ctxpage.ErrNotFound, t.Scope, t.Session, listed(names))
	}
	return err
}

// listed names the first of many.
func listed(names []string) string {
	const most = 8
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > most:
		return fmt.Sprintf("%s and %d more (dbctl session ls)", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}

type sessionLsCmd struct {
	File  string `arg:"" help:"Database."`
	Scope string `arg:"" help:"Scope."`
}

type sessionsView struct {
	Sessions []string `json:"sessions"`
}

func (sessionLsCmd) Help() string {
	return "Example: dbctl session ls agent.ctx acme/support"
}

func (c *sessionLsCmd) Run(a *app) error {
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		names, err := db.Scope(c.Scope).Sessions(a.ctx)
		if err != nil {
			return err
		}
		return a.emit(sessionsView{nonNil(names)}, func(w io.Writer) {
			for _, n := range names {
				fmt.Fprintln(w, line(n))
			}
			if len(names) == 0 {
				fmt.Fprintln(w, "none")
			}
		})
	})
}

type sessionShowCmd struct {
	talkArgs
	Text bool `help:"Show the first lines of the turns. This is a read and writes a manifest."`
}

type turnView struct {
	Ref     string `json:"ref"`
	ID      string `json:"id"`
	Seq     int64  `json:"seq"`
	Role    string `json:"role"`
	Kind    string `json:"kind"`
	Level   string `json:"level"`
	Tokens  int    `json:"tokens"`
	Stored  int    `json:"stored"`
	Pinned  bool   `json:"pinned"`
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
	Text    string `json:"text,omitempty"`
}

type windowView struct {
	Session string              `json:"session"`
	LSN     uint64              `json:"lsn"`
	Pass    uint64              `json:"pass"`
	InForce uint64              `json:"in_force"`
	Tokens  int                 `json:"tokens"`
	Stored  int                 `json:"stored"`
	Limits  *session.Thresholds `json:"limits,omitempty"`
	Turns   []turnView          `json:"turns"`
}

func (sessionShowCmd) Help() string {
	return "Example: dbctl session show agent.ctx acme/support chat-1 --text"
}

func (c *sessionShowCmd) Run(a *app) error {
	return c.withKnown(a, c.Text, func(s *ctxpage.Session) error {
		w, err := s.Window(a.ctx)
		if err != nil {
			return err
		}
		v := windowView{w.Session, w.LSN, w.Pass, w.InForce, w.Tokens, w.Stored, w.Limits, []turnView{}}
		for _, t := range w.Turns {
			v.Turns = append(v.Turns, turnView{
				ctxpage.Ref{Scope: c.Scope, ID: t.ID, Version: t.Version}.String(), t.ID, t.Seq, t.Role, t.Kind, t.Level.String(), t.Tokens, t.Stored, t.Pinned, t.Verdict, t.Why, "",
			})
		}
		if c.Text {
			if err := v.fill(a, s); err != nil {
				return err
			}
		}
		return a.emit(v, v.print)
	})
}

// fill reads the turns, a page at a time.
func (v *windowView) fill(a *app, s *ctxpage.Session) error {
	for i := 0; i < len(v.Turns); {
		got, err := s.Read(a.ctx, v.Turns[i].Seq, 200)
		if err != nil || len(got) == 0 {
			return err
		}
		texts := map[string]string{}
		for _, t := range got {
			texts[t.ID] = textOf(t)
		}
		last := got[len(got)-1].Seq
		for ; i < len(v.Turns) && v.Turns[i].Seq <= last; i++ {
			v.Turns[i].Text = texts[v.Turns[i].ID]
		}
	}
	return nil
}

func (v *windowView) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s, %d of %d tokens in the window", line(v.Session), plural(len(v.Turns), "turn", "turns"), v.Tokens, v.Stored)
	if v.Limits != nil {
		fmt.Fprintf(w, "; usable %d of %d", v.Limits.Usable, v.Limits.Total)
	}
	if v.InForce > 0 {
		fmt.Fprintf(w, "; pass %d in force", v.InForce)
	}
	fmt.Fprintln(w)
	table(w, "TURN ROLE ID SHOWN TOKENS STORED VERDICT WHY", func(row func(...any)) {
		for _, t := range v.Turns {
			pin := ""
			if t.Pinned {
				pin = " (pinned)"
			}
			row(t.Seq, or(t.Role, t.Kind), t.ID, t.Level+pin, t.Tokens, t.Stored, or(t.Verdict, "-"), cut(or(t.Why, t.Text), 60))
		}
	})
}

type sessionAppendCmd struct {
	talkArgs
	Text   string `arg:"" optional:"" help:"Text. Without it, standard input is read."`
	Role   string `help:"Speaker: user, assistant or tool." default:"user"`
	ID     string `name:"id" help:"Id of the turn. Appending the same turn under the same id changes nothing. Default: a new id."`
	Name   string `help:"Name of the speaker."`
	Call   string `help:"For a tool turn: id of the call that it answers."`
	Trace  string `help:"For an answer: trace of the assembly it is based on, or a unique beginning of it."`
	JSONL  bool   `name:"jsonl" help:"Read turns from standard input, one JSON object a line: messages of OpenAI or Anthropic and items of the Responses API as they are, or id, role, name, text, tool_calls, tool_call_id, at, trace. The turns of one call may name at most one trace."`
	DryRun bool   `help:"Show whether the turns would fit and what would have to make room; write nothing."`
}

func (sessionAppendCmd) Help() string {
	return `Trusted path: the commit gate does not apply. Turns of the assistant and of tools are visible in this session only. All turns of one call are one transaction.

Example: dbctl session append agent.ctx acme/support chat-1 'what may I refund?'

  dbctl session append agent.ctx acme/support chat-1 --jsonl < messages.jsonl`
}

// turnLine is a turn of --jsonl.
type turnLine struct {
	ID         string             `json:"id"`
	Role       string             `json:"role"`
	Name       string             `json:"name"`
	Text       string             `json:"text"`
	ToolCalls  []ctxpage.ToolCall `json:"tool_calls"`
	ToolCallID string             `json:"tool_call_id"`
	At         time.Time          `json:"at"`
	Trace      string             `json:"trace"`
}

func (c *sessionAppendCmd) turns(a *app) ([]ctxpage.Turn, error) {
	if !c.JSONL {
		text := c.Text
		if text == "" {
			var err error
			if text, err = a.readText("the turn"); err != nil {
				return nil, err
			}
		}
		return []ctxpage.Turn{{ID: c.ID, Role: c.Role, Name: c.Name, Text: text, ToolCallID: c.Call, Trace: c.Trace}}, nil
	}
	return c.lines(a)
}

// lines reads the turns of --jsonl. Instructions of the system are no turns.
func (c *sessionAppendCmd) lines(a *app) (out []ctxpage.Turn, err error) {
	n := 0
	err = foreign.Elements(a.ctx, interruptible{a.ctx, a.in}, func(raw []byte, line int) error {
		n++
		turns, err := turnsOf(raw, line)
		if err != nil {
			return usage("turn %d on standard input: %v", n, err)
		}
		for _, t := range turns {
			if t.Role == "system" || t.Role == "developer" {
				fmt.Fprintf(a.err, "dbctl: turn %d left out: a message of role %s is no turn; put it as an artefact of kind system\n", n, t.Role)
				continue
			}
			out = append(out, t)
		}
		return nil
	})
	var at *portable.LineError
	switch {
	case err == nil:
		return out, nil
	case n == 0 && errors.As(err, &at) && strings.Contains(err.Error(), "got nothing"):
		return nil, usage(`expected turns on standard input, one JSON object a line like {"role":"user","text":"…"}, found nothing`)
	case errors.As(err, &at):
		return nil, usage("turn %d on standard input: %v", n+1, err)
	}
	return nil, err
}

// turnsOf reads one line: a turn, or a message of a provider, which has content or a type.
func turnsOf(raw []byte, line int) ([]ctxpage.Turn, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, err
	}
	if keys["content"] == nil && keys["type"] == nil {
		var l turnLine
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			return nil, err
		}
		return []ctxpage.Turn{{ID: l.ID, Role: l.Role, Name: l.Name, Text: l.Text, ToolCalls: l.ToolCalls, ToolCallID: l.ToolCallID, At: l.At, Trace: l.Trace}}, nil
	}
	messages, err := foreign.ParseMessage(raw, line)
	if err != nil {
		return nil, err
	}
	var out []ctxpage.Turn
	for _, m := range messages {
		out = append(out, ctxpage.Turn{ID: m.ID, Role: m.Role, Name: m.Name, Text: m.Text, Parts: m.Parts, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID})
	}
	return out, nil
}

type appendedView struct {
	Refs []string `json:"refs"`
}

// triedView is what --dry-run says.
type triedView struct {
	DryRun    bool `json:"dry_run"`
	Turns     int  `json:"turns"`
	Compacted int  `json:"compacted"`
	Freed     int  `json:"freed"`
}

func (c *sessionAppendCmd) Run(a *app) error {
	turns, err := c.turns(a)
	if err != nil {
		return err
	}
	return a.with(c.File, true, func(db *ctxpage.DB) error {
		if err := c.complete(a, db, turns); err != nil {
			return err
		}
		s := db.Scope(c.Scope).Session(c.Session)
		if c.DryRun {
			return c.try(a, s, turns)
		}
		refs, err := s.Append(a.ctx, turns...)
		if err != nil {
			return err
		}
		v := appendedView{nonNil(refStrings(refs))}
		return a.emit(v, func(w io.Writer) {
			for _, r := range v.Refs {
				fmt.Fprintln(w, r)
			}
		})
	})
}

// complete makes whole traces of their beginnings, and tells which ids read as something else, too.
func (c *sessionAppendCmd) complete(a *app, db *ctxpage.DB, turns []ctxpage.Turn) (err error) {
	n := &namer{a: a, db: db, scope: c.Scope, writes: true}
	whole := map[string]string{}
	for i := range turns {
		given := turns[i].Trace
		if _, done := whole[given]; !done {
			if whole[given], err = fullTrace(a.ctx, db.Manifests(), given); err != nil {
				return err
			}
		}
		turns[i].Trace = whole[given]
		if err := n.fresh(a.ctx, turns[i].ID); err != nil {
			return err
		}
	}
	return nil
}

func (c *sessionAppendCmd) try(a *app, s *ctxpage.Session, turns []ctxpage.Turn) error {
	info, err := s.Try(a.ctx, turns...)
	if err != nil {
		return err
	}
	v := triedView{true, len(turns), info.Items, info.Freed}
	return a.emit(v, func(w io.Writer) {
		fmt.Fprintf(w, "dry run: %s would come in, %d compacted, %d tokens freed\n", plural(v.Turns, "turn", "turns"), v.Compacted, v.Freed)
	})
}

type sessionPassCmd struct {
	talkArgs
	Keywords []string `arg:"" optional:"" help:"Words or sentences that say what the conversation is about now."`
	Intent   string   `help:"JSON file with an intent IR object. Keywords are added to it." type:"path"`
	Preset   string   `help:"Parameters: recommended, or compat (those of the reference pager, without guards)." enum:"recommended,compat" default:"recommended"`
	Alpha    *float64 `help:"Weight of the similarity."`
	Beta     *float64 `help:"Weight of the recency."`
	Retain   *float64 `name:"retain-cut" help:"Keep turns with at least this score whole."`
	Evict    *float64 `name:"evict-cut" help:"Evict turns below this score."`
	KeepLast *int     `help:"Number of newest turns that always stay."`
	DryRun   bool     `help:"Show the verdicts and write nothing."`
	Verdicts bool     `short:"v" help:"Print the verdict of each turn."`
}

func (sessionPassCmd) Help() string {
	return `A pass is one transaction; undo reverts it. Repeating a pass with the same history, intent and parameters writes nothing.

Example: dbctl session pass agent.ctx acme/support chat-1 'refund limit' --keep-last 8`
}

type verdictView struct {
	ID         string  `json:"id"`
	Action     string  `json:"action"`
	Score      float64 `json:"score"`
	Similarity float64 `json:"similarity"`
	Delta      int64   `json:"delta"`
	Reason     string  `json:"reason"`
	Why        string  `json:"why"`
}

type passView struct {
	Pass     uint64        `json:"pass"`
	Key      string        `json:"key"`
	Repeated bool          `json:"repeated"`
	DryRun   bool          `json:"dry_run"`
	Retained int           `json:"retained"`
	Paged    int           `json:"paged"`
	Evicted  int           `json:"evicted"`
	Verdicts []verdictView `json:"verdicts"`
}

func (c *sessionPassCmd) query() (q session.PassQuery, err error) {
	q = session.PassQuery{Keywords: c.Keywords, Params: session.RecommendedParams(), DryRun: c.DryRun}
	if c.Preset == "compat" {
		q.Params = session.CompatParams()
	}
	for _, f := range []struct{ from, to *float64 }{{c.Alpha, &q.Params.Alpha}, {c.Beta, &q.Params.Beta}, {c.Retain, &q.Params.RetainCut}, {c.Evict, &q.Params.EvictCut}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if c.KeepLast != nil {
		q.Params.KeepLast = *c.KeepLast
	}
	if c.Intent == "" {
		return q, nil
	}
	raw, err := os.ReadFile(c.Intent)
	if err != nil {
		return q, failed("--intent: %v", err)
	}
	ir, err := session.ParseIntentIR(raw)
	if err != nil {
		return q, usage("--intent %s: %v", c.Intent, err)
	}
	q.IR = &ir
	return q, nil
}

func (c *sessionPassCmd) Run(a *app) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	if len(q.Keywords) == 0 && q.IR == nil {
		return usage("session pass: expected keywords, or --intent: a pass without an intent would judge by age alone")
	}
	return c.withKnown(a, !c.DryRun, func(s *ctxpage.Session) error {
		p, err := s.Pass(a.ctx, q)
		if err != nil {
			return err
		}
		v := passOf(p)
		v.DryRun = c.DryRun
		return a.emit(v, func(w io.Writer) { v.print(w, c.Verdicts || c.DryRun) })
	})
}

func passOf(p *session.StoredPass) passView {
	v := passView{
		Pass: p.Number, Key: p.Key.String(), Repeated: p.Repeated, Retained: p.Count[session.Retain], Paged: p.Count[session.Page],
		Evicted: p.Count[session.Evict], Verdicts: []verdictView{},
	}
	for _, x := range p.Verdicts {
		v.Verdicts = append(v.Verdicts, verdictView{x.ID, x.Action.String(), x.R, x.Similarity, x.Delta, x.Reason.String(), p.Explain(x)})
	}
	return v
}

func (v *passView) print(w io.Writer, verdicts bool) {
	if verdicts {
		table(w, "TURN ACTION SCORE WHY", func(row func(...any)) {
			for _, x := range v.Verdicts {
				row(x.ID, x.Action, fmt.Sprintf("%.4f", x.Score), cut(x.Why, 120))
			}
		})
	}
	name := fmt.Sprintf("pass %d", v.Pass)
	switch {
	case v.DryRun:
		name = "dry run, nothing written"
	case v.Repeated:
		name += ", in force already"
	}
	fmt.Fprintf(w, "%s: retain %d, page %d, evict %d\n", name, v.Retained, v.Paged, v.Evicted)
}

type turnArgs struct {
	talkArgs
	Turn string `arg:"" help:"Id of or reference to the turn."`
}

// withTurn is with for the verbs about one turn, which a text names as it names any artefact of the scope.
func (t *turnArgs) withTurn(a *app, write bool, fn func(s *ctxpage.Session, id string) error) error {
	return a.with(t.File, write, func(db *ctxpage.DB) error {
		if err := t.known(a, db); err != nil {
			return err
		}
		n := &namer{a: a, db: db, scope: t.Scope, writes: write}
		ref, err := n.turn(a.ctx, t.Turn)
		if err != nil {
			return err
		}
		return n.hinted(fn(db.Scope(t.Scope).Session(t.Session), ref.ID), ref, t.Turn)
	})
}

type sessionRecallCmd struct {
	turnArgs
	rootFlags
}

func (sessionRecallCmd) Help() string {
	return "Example: dbctl session recall agent.ctx acme/support chat-1 block-chat-1-3"
}

func (c *sessionRecallCmd) Run(a *app) error {
	if err := c.allow(a); err != nil {
		return err
	}
	return c.withTurn(a, true, func(s *ctxpage.Session, id string) error {
		got, err := s.Recall(a.ctx, id)
		if err != nil {
			return err
		}
		v := viewOf(got)
		return a.emit(v, func(w io.Writer) {
			fmt.Fprint(w, printable(w, v.Text))
			for _, call := range got.ToolCalls {
				fmt.Fprintf(w, "\n%s(%s) as %s\n", line(call.Name), printable(w, call.Arguments), line(call.ID))
			}
			if isTerminal(w) {
				fmt.Fprintln(w)
			}
		})
	})
}

type sessionExplainCmd struct{ turnArgs }

type explainView struct {
	ID    string   `json:"id"`
	Steps []string `json:"steps"`
}

func (sessionExplainCmd) Help() string {
	return "Example: dbctl session explain agent.ctx acme/support chat-1 block-chat-1-3"
}

func (c *sessionExplainCmd) Run(a *app) error {
	return c.withTurn(a, false, func(s *ctxpage.Session, id string) error {
		why, err := s.Explain(a.ctx, id)
		if err != nil {
			return err
		}
		v := explainView{id, strings.Split(why, "\n")}
		return a.emit(v, func(w io.Writer) { fmt.Fprintln(w, printable(w, why)) })
	})
}

type sessionPinCmd struct {
	turnArgs
	Off bool `help:"Remove the pin."`
}

func (sessionPinCmd) Help() string {
	return "Example: dbctl session pin agent.ctx acme/support chat-1 block-chat-1-3"
}

type pinView struct {
	ID     string `json:"id"`
	Pinned bool   `json:"pinned"`
}

func (c *sessionPinCmd) Run(a *app) error {
	return c.withTurn(a, true, func(s *ctxpage.Session, id string) error {
		set, said := s.Pin, "pinned"
		if c.Off {
			set, said = s.Unpin, "no longer pinned"
		}
		if err := set(a.ctx, id); err != nil {
			return err
		}
		return a.emit(pinView{id, !c.Off}, func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", line(id), said) })
	})
}

type sessionUndoCmd struct {
	talkArgs
	Pass   uint64 `arg:"" optional:"" help:"Number of the pass. Default: the newest that was not undone."`
	DryRun bool   `help:"Show which pass would be undone."`
}

func (sessionUndoCmd) Help() string {
	return "Example: dbctl session undo agent.ctx acme/support chat-1"
}

func (c *sessionUndoCmd) Run(a *app) error {
	return c.withKnown(a, !c.DryRun, func(s *ctxpage.Session) error {
		if c.DryRun {
			return c.name(a, s)
		}
		info, err := s.Undo(a.ctx, c.Pass)
		if err != nil {
			return err
		}
		return a.emit(passInfoOf(info), func(w io.Writer) { fmt.Fprintf(w, "pass %d undone\n", info.Number) })
	})
}

// name says which pass it would be.
func (c *sessionUndoCmd) name(a *app, s *ctxpage.Session) error {
	list, err := s.Passes(a.ctx)
	if err != nil {
		return err
	}
	for i := len(list) - 1; i >= 0; i-- {
		p := list[i]
		if !p.Undone && (c.Pass == 0 || c.Pass == p.Number) {
			return a.emit(passInfoOf(p), func(w io.Writer) {
				fmt.Fprintf(w, "dry run: would undo pass %d (%s) of %s, while nothing changed what it did\n", p.Number, p.Kind, when(p.At))
			})
		}
	}
	return failed("no such pass that was not undone")
}

type passInfoView struct {
	Pass     uint64    `json:"pass"`
	Kind     string    `json:"kind"`
	At       time.Time `json:"at"`
	Actor    string    `json:"actor"`
	Keywords []string  `json:"keywords"`
	Retained int       `json:"retained"`
	Paged    int       `json:"paged"`
	Evicted  int       `json:"evicted"`
	Items    int       `json:"items"`
	Freed    int       `json:"freed"`
	Undone   bool      `json:"undone"`
}

func passInfoOf(p session.PassInfo) passInfoView {
	return passInfoView{p.Number, p.Kind, p.At, p.Actor, nonNil(p.Keywords), p.Retained, p.Paged, p.Evicted, p.Items, p.Freed, p.Undone}
}

type passesView struct {
	Passes []passInfoView `json:"passes"`
}

type sessionPassesCmd struct{ talkArgs }

func (sessionPassesCmd) Help() string {
	return "Example: dbctl session passes agent.ctx acme/support chat-1"
}

func (c *sessionPassesCmd) Run(a *app) error {
	return c.withKnown(a, false, func(s *ctxpage.Session) error {
		list, err := s.Passes(a.ctx)
		if err != nil {
			return err
		}
		v := passesView{[]passInfoView{}}
		for _, p := range list {
			v.Passes = append(v.Passes, passInfoOf(p))
		}
		return a.emit(v, func(w io.Writer) {
			table(w, "PASS AT KIND RETAIN PAGE EVICT COMPACTED FREED UNDONE ABOUT", func(row func(...any)) {
				for _, p := range v.Passes {
					row(p.Pass, when(p.At), p.Kind, p.Retained, p.Paged, p.Evicted, p.Items, p.Freed, p.Undone, cut(strings.Join(p.Keywords, ", "), 40))
				}
			})
		})
	})
}

type sessionNotesCmd struct {
	talkArgs
	Show bool `help:"Print the recorded notes instead of replacing them from standard input."`
}

func (sessionNotesCmd) Help() string {
	return `Reads a JSON object from standard input: goal, state, status, claims [{text, basis}], questions [{question, why_it_matters}], done, open, boundaries [{boundary, reason}], next, text. It replaces the recorded notes.

Example: dbctl session notes agent.ctx acme/support chat-1 <notes.json`
}

func (c *sessionNotesCmd) Run(a *app) error {
	if c.Show {
		return c.with(a, false, func(s *ctxpage.Session) error {
			n, err := s.Notes(a.ctx)
			if err != nil {
				return err
			}
			b, err := json.MarshalIndent(n, "", "  ")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, escapedFor(a.out, string(b)))
			return err
		})
	}
	var n session.Notes
	d := json.NewDecoder(interruptible{a.ctx, a.in})
	d.DisallowUnknownFields()
	if err := d.Decode(&n); err != nil {
		return usage("notes on standard input: %v", err)
	}
	return c.with(a, true, func(s *ctxpage.Session) error {
		if err := s.Record(a.ctx, n); err != nil {
			return err
		}
		return a.emit(n, func(w io.Writer) { fmt.Fprintf(w, "notes of %s recorded\n", c.Session) })
	})
}

type sessionContractCmd struct {
	talkArgs
	Path    string `arg:"" help:"Contract file. Created if missing." type:"path"`
	Dialect string `help:"Dialect: strict (accepted by the real interpreter) or compat (as the reference writes it)." enum:"strict,compat" default:"strict"`
	DryRun  bool   `help:"Print what would be appended and write nothing."`
}

func (sessionContractCmd) Help() string {
	return `Appends in one write. A strict contract that already contains everything is left unchanged.

Example: dbctl session contract agent.ctx acme/support chat-1 session.limn`
}

func (c *sessionContractCmd) Run(a *app) error {
	return c.withKnown(a, false, func(s *ctxpage.Session) error {
		delta := func(have []byte) ([]byte, error) {
			return s.Contract(a.ctx, session.Dialect(c.Dialect), have, session.Records{})
		}
		if c.DryRun {
			return previewContract(a, c.Path, delta)
		}
		return growContract(a, c.Path, delta)
	})
}

type sessionReceiveCmd struct {
	talkArgs
	DryRun bool `help:"Validate the packet and list its references; write nothing."`
}

func (sessionReceiveCmd) Help() string {
	return `Reads a handoff packet as JSON from standard input. Up to 512 turns that it lists one by one become references, pins are kept while there is room, and nothing counts as verified. If the packet is long, a brief of it is pinned and the packet itself becomes a stub; session recall prints it in full.

Example: dbctl handoff agent.ctx acme/support chat-1 --format json >packet.json; dbctl session receive agent.ctx acme/night chat-2 <packet.json`
}

func (c *sessionReceiveCmd) Run(a *app) error {
	raw, err := io.ReadAll(io.LimitReader(a.in, ctxpage.MaxText))
	if err != nil {
		return failed("read the packet: %v", err)
	}
	p, err := session.ParsePacket(raw)
	if err != nil {
		return usage("%v; expected what dbctl handoff --format json writes", err)
	}
	if err := p.Receivable(); err != nil {
		return usage("%v", err)
	}
	if c.DryRun {
		v := appendedView{[]string{}}
		for _, r := range p.References() {
			v.Refs = append(v.Refs, r.Ref)
		}
		return a.emit(v, func(w io.Writer) {
			fmt.Fprintf(w, "dry run: %s\n%s\n", plural(len(v.Refs), "reference", "references"), line(strings.Join(v.Refs, " ")))
		})
	}
	return c.with(a, true, func(s *ctxpage.Session) error {
		refs, err := s.Receive(a.ctx, p)
		if err != nil {
			return err
		}
		v := appendedView{nonNil(refStrings(slices.Clone(refs)))}
		return a.emit(v, func(w io.Writer) { fmt.Fprintf(w, "%s received\n", plural(len(refs), "reference", "references")) })
	})
}
