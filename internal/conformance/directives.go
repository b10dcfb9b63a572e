package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ctxpage/ctxpage/compat/commands"
	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// directiveRequest holds the arguments of all operations. Raw ones may be of any type.
type directiveRequest struct {
	Op            string
	Input         string
	State         json.RawMessage
	Before, After json.RawMessage
	Payload       string
	Messages      []json.RawMessage
	Fresh         bool
	Raw           json.RawMessage
	SourceInput   *string `json:"source_input"`
	Args          []string
	Stdin         string
}

type reply map[string]any

// directives serves the directive engine: one live session, as the runner expects.
func directives(in io.Reader, out io.Writer) error {
	requests, replies := json.NewDecoder(in), json.NewEncoder(out)
	var s directive.Session
	for {
		var r directiveRequest
		if err := requests.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		answer, err := directiveOp(&s, r)
		if err != nil {
			answer = reply{"ok": false, "error": reply{"code": directive.ErrorCode(err), "message": err.Error()}}
		} else {
			answer["ok"] = true
		}
		if err := replies.Encode(answer); err != nil {
			return err
		}
	}
}

func directiveOp(s *directive.Session, r directiveRequest) (reply, error) {
	switch r.Op {
	case "new":
		return newSession(s, r)
	case "step":
		var d directive.Decision
		*s, d = directive.Step(*s, r.Input)
		return reply{"decision": decisionJSON(d), "state": stateJSON(s.State), "pending": s.Pending != nil}, nil
	case "state":
		return describe(*s), nil
	case "preview":
		return preview(*s, r.Input), nil
	case "diff":
		return diff(r)
	case "export":
		return reply{"payload": string(directive.ExportJSON(s.State))}, nil
	case "export_checkpoint":
		return reply{"payload": string(directive.ExportCheckpoint(*s))}, nil
	case "import":
		state, err := directive.ImportJSON([]byte(r.Payload))
		return load(s, directive.Session{State: state}, err)
	case "import_checkpoint":
		session, err := directive.ImportCheckpoint([]byte(r.Payload))
		return load(s, session, err)
	case "transcript":
		return transcript(s, r), nil
	case "preprocess":
		f := directivetext.Preprocess(r.Input)
		return reply{"outcome": f.Class.String(), "directive": orNull(f.Directive), "rule_id": f.Rule}, nil
	case "validate":
		return validate(r), nil
	case "cli":
		return commandLine(r), nil
	}
	return nil, fmt.Errorf("unknown op %q", r.Op)
}

// load replaces the session unless the import failed.
func load(s *directive.Session, to directive.Session, err error) (reply, error) {
	if err == nil {
		*s = to
	}
	return reply{}, err
}

func newSession(s *directive.Session, r directiveRequest) (reply, error) {
	if r.State == nil || string(r.State) == "null" {
		*s = directive.Session{}
		return reply{}, nil
	}
	state, err := directive.ImportJSON(r.State)
	if premise, policies, ok := listed(r.State); err != nil && ok {
		state, err = directive.NewState(premise, policies...)
	}
	return load(s, directive.Session{State: state}, err)
}

// listed reads an initial state as a host in Go writes one: its policies are a
// list in the order of the text. An import would refuse items that normalise
// alike; of a list the later counts.
func listed(state json.RawMessage) (premise string, policies []directive.Policy, ok bool) {
	var fields map[string]json.RawMessage
	var text *string
	if json.Unmarshal(state, &fields) != nil || len(fields) != 3 || string(fields["version"]) != "2" ||
		json.Unmarshal(fields["premise"], &text) != nil {
		return "", nil, false
	}
	if text != nil {
		premise = *text
	}
	d := json.NewDecoder(bytes.NewReader(fields["policies"]))
	if open, err := d.Token(); err != nil || open != json.Delim('{') || text != nil && premise == "" {
		return "", nil, false
	}
	polarities := map[any]directive.Polarity{"use": directive.Use, "prohibit": directive.Prohibit}
	for d.More() {
		key, _ := d.Token()
		value, err := d.Token()
		if _, nested := value.(json.Delim); err != nil || nested {
			return "", nil, false
		}
		policies = append(policies, directive.Policy{Item: key.(string), Polarity: polarities[value]})
	}
	return premise, policies, true
}

func describe(s directive.Session) reply {
	return reply{
		"state": stateJSON(s.State), "pending": s.Pending != nil, "premise": orNull(s.State.Premise()),
		"items":    s.State.Items(),
		"use":      s.State.Items(directive.Use),
		"prohibit": s.State.Items(directive.Prohibit),
	}
}

func preview(s directive.Session, input string) reply {
	t := directive.Preview(nil, s, input)
	return reply{
		"decision": decisionJSON(t.Decision), "state_before": stateJSON(t.Before), "state_after": stateJSON(t.After),
		"diff": deltaJSON(commands.Diff(t.Before, t.After)), "would_mutate": !t.Before.Equal(t.After),
	}
}

func diff(r directiveRequest) (reply, error) {
	before, err1 := directive.ImportJSON(r.Before)
	after, err2 := directive.ImportJSON(r.After)
	return reply{"diff": deltaJSON(commands.Diff(before, after))}, errors.Join(err1, err2)
}

func transcript(s *directive.Session, r directiveRequest) reply {
	var messages []directive.Message
	for _, raw := range r.Messages {
		var m map[string]any // a struct would take "ROLE" for "role"
		if json.Unmarshal(raw, &m) != nil {
			continue
		}
		role, _ := m["role"].(string)
		if content, ok := m["content"].(string); ok {
			messages = append(messages, directive.Message{Role: role, Content: content})
		}
	}
	live := *s
	if r.Fresh {
		live = directive.Session{}
	}
	live, o := directive.Apply(live, messages)
	if !r.Fresh {
		*s = live
	}
	if o.Stopped {
		return reply{"result": reply{"kind": "confirm", "prompt_to_user": o.Prompt}}
	}
	return reply{"result": reply{"kind": "state", "state": stateJSON(o.State)}}
}

// validate passes a string unchanged and any other value as its JSON text, as a preprocessor's structured output arrives.
func validate(r directiveRequest) reply {
	raw := string(r.Raw)
	var text string
	if json.Unmarshal(r.Raw, &text) == nil && bytes.HasPrefix(r.Raw, []byte(`"`)) {
		raw = text
	}
	v := directivetext.Validate(raw)
	if r.SourceInput != nil {
		v = directivetext.ValidateAgainst(raw, *r.SourceInput)
	}
	return reply{"classification": v.Class.String(), "output": orNull(v.Directive), "parsed": orNull(v.Directive)}
}

func commandLine(r directiveRequest) reply {
	var out, errs strings.Builder
	exit := commands.RunDirective(r.Args, strings.NewReader(r.Stdin), &out, &errs, commands.Options{})
	return reply{"exit": exit, "stdout": out.String(), "stderr": errs.String()}
}

func decisionJSON(d directive.Decision) json.RawMessage { return d.AppendJSON(nil) }
func deltaJSON(d commands.Delta) json.RawMessage        { return d.AppendJSON(nil) }
func stateJSON(s directive.State) json.RawMessage       { return directive.ExportJSON(s) }

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
