package dbctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

type sessionAppendCmd struct {
	talkArgs
	Text    string `arg:"" optional:"" help:"Text. Without it, standard input is read."`
	Role    string `help:"Speaker: user, assistant or tool." default:"user"`
	ID      string `name:"id" help:"Id of the turn. Appending the same turn under the same id changes nothing. Default: a new id."`
	Name    string `help:"Name of the speaker."`
	Call    string `help:"For a tool turn: id of the call that it answers."`
	Trace   string `help:"For an answer: trace of the assembly it is based on, or a unique beginning of it."`
	Subject string `help:"Whom the turn is about, for exports and erases."`
	priorityFlags
	JSONL  bool `name:"jsonl" help:"Read turns from standard input, one JSON object a line: messages of OpenAI or Anthropic and items of the Responses API as they are (a transcript of another program is refused; dbctl import reads those), or id, role, name, text, tool_calls, tool_call_id, at, subject, trace, priority, relevance. --subject is for turns that name none. The turns of one call may name at most one trace."`
	DryRun bool `help:"Show whether the turns would fit and what would have to make room; write nothing."`
}

// turnLine is a turn of --jsonl.
type turnLine struct {
	ID         string           `json:"id"`
	Role       string           `json:"role"`
	Name       string           `json:"name"`
	Text       string           `json:"text"`
	ToolCalls  []store.ToolCall `json:"tool_calls"`
	ToolCallID string           `json:"tool_call_id"`
	At         time.Time        `json:"at"`
	Subject    string           `json:"subject,omitempty"`
	Trace      string           `json:"trace"`
	Priority   string           `json:"priority,omitempty"`
	Relevance  *float64         `json:"relevance,omitempty"`
}

// priorityFlags say how much a turn matters to the watcher.
type priorityFlags struct {
	Priority  string   `help:"How long the watcher keeps the turn whole: low, medium, high or critical. Default: high for the user, medium for the assistant, low for tools." placeholder:"PRIORITY"`
	Relevance *float64 `help:"How much the turn matters to the task, from 0 to 1. Of turns of one priority the least relevant are compacted first." placeholder:"0-1"`
}

// rate sets priority and relevance of the turns that have none of their own.
func (f *priorityFlags) rate(turns []ctxpage.Turn) error {
	p, err := store.ParsePriority(f.Priority)
	if err != nil {
		return usage("--priority: %v", err)
	}
	if f.Relevance != nil && !(*f.Relevance >= 0 && *f.Relevance <= 1) {
		return usage("--relevance %v: expected 0 to 1", *f.Relevance)
	}
	for i := range turns {
		if turns[i].Priority == store.PriorityAuto {
			turns[i].Priority = p
		}
		if turns[i].Relevance == nil {
			turns[i].Relevance = f.Relevance
		}
	}
	return nil
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
		return []ctxpage.Turn{{ID: c.ID, Role: c.Role, Name: c.Name, Text: text, Subject: c.Subject, ToolCallID: c.Call, Trace: c.Trace}}, nil
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
		if len(turns) == 0 {
			fmt.Fprintf(a.err, "dbctl: turn %d, line %d, left out: it has no words\n", n, line)
		}
		for _, t := range turns {
			if t.Role == "system" || t.Role == "developer" {
				fmt.Fprintf(a.err, "dbctl: turn %d left out: a message of role %s is no turn; put it as an artefact of kind system\n", n, t.Role)
				continue
			}
			t.Subject = cmp.Or(t.Subject, c.Subject)
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
		p, err := store.ParsePriority(l.Priority)
		if err != nil {
			return nil, err
		}
		return []ctxpage.Turn{{ID: l.ID, Role: l.Role, Name: l.Name, Text: l.Text, ToolCalls: l.ToolCalls, ToolCallID: l.ToolCallID, At: l.At, Subject: l.Subject, Trace: l.Trace, Priority: p, Relevance: l.Relevance}}, nil
	}
	messages, err := foreign.ParseMessage(raw, line)
	if err != nil {
		return nil, err
	}
	var out []ctxpage.Turn
	for _, m := range messages {
		if !m.Speaks() && m.ToolCallID == "" {
			continue
		}
		out = append(out, ctxpage.Turn{ID: m.ID, Role: m.Role, Name: m.Name, Text: m.Text, Parts: m.Parts, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID})
	}
	return out, nil
}

type appendedView struct {
	Refs []string `json:"refs"`
}

// triedView is the JSON of --dry-run.
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
	if err := c.rate(turns); err != nil {
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
		v := appendedView{view.Refs(refs)}
		return a.emit(v, func(w io.Writer) { printEach(w, "%s\n", v.Refs) })
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
