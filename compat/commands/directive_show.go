package commands

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// text is the form for people. On a terminal an empty line goes before each answer.
type text struct {
	*bufio.Writer
	terminal bool
}

func (t text) begin() {
	if t.terminal {
		fmt.Fprintln(t)
	}
}

func (t text) step(_ string, _ directive.Session, d directive.Decision) {
	t.begin()
	t.decision(d)
}

func (t text) decision(d directive.Decision) {
	switch d.Kind {
	case directive.Passthrough:
		fmt.Fprintln(t, "passthrough")
	case directive.Update:
		fmt.Fprintln(t, "updated")
		t.stateLines(d.State)
	case directive.Clarify:
		word := "error"
		if strings.HasSuffix(d.Prompt, "?") {
			word = "confirm"
		}
		prompt := strings.TrimSuffix(lineEnds.Replace(d.Prompt), "\n")
		fmt.Fprintf(t, "%s: %s\n", word, prompt)
	}
}

// A prompt may come from a preloaded directive checkpoint, with any line ends.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func (t text) state(s directive.State, inherited *directive.Effective) {
	t.begin()
	t.stateLines(s)
	if inherited == nil || len(inherited.Premises)+len(inherited.Policies) == 0 {
		return
	}
	fmt.Fprintln(t, "inherited:")
	for _, p := range inherited.Premises {
		fmt.Fprintf(t, "- premise: %s (%s)\n", p.Premise, p.Scope)
	}
	for _, p := range inherited.Policies {
		fmt.Fprintf(t, "- %s %s (%s)\n", p.Polarity, p.Item, p.Scope)
	}
}

func (t text) stateLines(s directive.State) {
	fmt.Fprintf(t, "premise: %s\n", orNone(s.Premise()))
	if s.Len() == 0 {
		fmt.Fprintln(t, "policies: (none)")
		return
	}
	fmt.Fprintln(t, "policies:")
	for p := range s.Policies() {
		fmt.Fprintf(t, "- %s %s\n", p.Polarity, p.Item)
	}
}

func orNone(premise string) string {
	if premise == "" {
		return "(none)"
	}
	return premise
}

func (t text) preview(trial directive.Trial) {
	t.begin()
	fmt.Fprintln(t, "preview")
	t.decision(trial.Decision)
	would := "no"
	if !trial.Before.Equal(trial.After) {
		would = "yes"
	}
	fmt.Fprintf(t, "would_mutate: %s\ndiff:\n", would)
	t.delta(Diff(trial.Before, trial.After))
}

// suggestion shows what a preprocessor read; the user steps it, or not.
func (t text) suggestion(s directive.Suggestion) {
	fmt.Fprintf(t, "suggestion: %s\n", s.Directive)
	t.preview(s.Trial)
}

func (t text) delta(d Delta) {
	if d.Empty() {
		fmt.Fprintln(t, "- (none)")
	}
	if d.PremiseChanged() {
		fmt.Fprintf(t, "- premise: %s -> %s\n", orNone(d.PremiseBefore), orNone(d.PremiseAfter))
	}
	for _, p := range d.Added {
		fmt.Fprintf(t, "- + %s %s\n", p.Polarity, p.Item)
	}
	for _, p := range d.Removed {
		fmt.Fprintf(t, "- - %s %s\n", p.Polarity, p.Item)
	}
	for _, c := range d.Changed {
		fmt.Fprintf(t, "- ~ %s %s -> %s %s\n", c.Before, c.Item, c.After, c.Item)
	}
}

func (t text) history(entries []Entry) {
	t.begin()
	if len(entries) == 0 {
		fmt.Fprintln(t, "history: (none)")
	}
	for _, e := range entries {
		if e.done() {
			fmt.Fprintf(t, "%d %s %s\n", e.Version, e.Actor, e.Action)
			continue
		}
		fmt.Fprintf(t, "%d %s %s: %q\n", e.Version, e.Actor, e.Kind, e.Input)
	}
}

// done says that an entry is no step.
func (e Entry) done() bool { return e.Action != "" && e.Action != "step" }

func (t text) fault(f commandFault) {
	t.begin()
	fmt.Fprintf(t, "error: %s\n", f.message)
}

// ndjson is the form for programs: one canonical JSON object a line.
type ndjson struct{ *bufio.Writer }

func (j ndjson) write(b []byte) { j.Write(append(b, '\n')) }

func (j ndjson) step(command string, s directive.Session, d directive.Decision) {
	b := directivetext.AppendString([]byte(`{"command":`), command)
	b = d.AppendJSON(append(b, `,"decision":`...))
	b = append(append(b, `,"mode":"step","output_version":1,"state":`...), directive.ExportJSON(s.State)...)
	j.write(append(b, '}'))
}

func (j ndjson) preview(t directive.Trial) {
	b := t.Decision.AppendJSON([]byte(`{"command":"preview","decision":`))
	b = Diff(t.Before, t.After).AppendJSON(append(b, `,"diff":`...))
	b = append(append(b, `,"mode":"preview","output_version":1,"state_after":`...), directive.ExportJSON(t.After)...)
	b = append(append(b, `,"state_before":`...), directive.ExportJSON(t.Before)...)
	b = strconv.AppendBool(append(b, `,"would_mutate":`...), !t.Before.Equal(t.After))
	j.write(append(b, '}'))
}

func (j ndjson) suggestion(s directive.Suggestion) {
	b := s.Trial.Decision.AppendJSON([]byte(`{"command":"suggest","decision":`))
	b = Diff(s.Trial.Before, s.Trial.After).AppendJSON(append(b, `,"diff":`...))
	b = directivetext.AppendString(append(b, `,"directive":`...), s.Directive)
	b = strconv.AppendBool(append(b, `,"grounded":`...), s.Grounded)
	b = strconv.AppendBool(append(b, `,"mode":"suggestion","output_version":1,"would_mutate":`...), !s.Trial.Before.Equal(s.Trial.After))
	j.write(append(b, '}'))
}

func (j ndjson) state(s directive.State, inherited *directive.Effective) {
	b := []byte(`{"command":"state",`)
	if inherited != nil {
		b = appendInherited(b, *inherited)
	}
	b = append(append(b, `"mode":"state","output_version":1,"state":`...), directive.ExportJSON(s)...)
	j.write(append(b, '}'))
}

func appendInherited(b []byte, e directive.Effective) []byte {
	b = append(b, `"inherited":{"policies":[`...)
	for i, p := range e.Policies {
		if i > 0 {
			b = append(b, ',')
		}
		b = directivetext.AppendString(append(b, `{"item":`...), p.Item)
		b = directivetext.AppendString(append(b, `,"polarity":`...), string(p.Polarity))
		b = directivetext.AppendString(append(b, `,"scope":`...), p.Scope)
		b = append(b, '}')
	}
	b = append(b, `],"premises":[`...)
	for i, p := range e.Premises {
		if i > 0 {
			b = append(b, ',')
		}
		b = directivetext.AppendString(append(b, `{"premise":`...), p.Premise)
		b = directivetext.AppendString(append(b, `,"scope":`...), p.Scope)
		b = append(b, '}')
	}
	return append(b, `]},`...)
}

func (j ndjson) history(entries []Entry) {
	b := []byte(`{"command":"history","entries":[`)
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		if e.done() {
			b = append(directivetext.AppendString(append(b, `"action":`...), e.Action), ',')
		}
		b = directivetext.AppendString(append(b, `"actor":`...), e.Actor)
		b = strconv.AppendBool(append(b, `,"changed":`...), e.Changed)
		b = directivetext.AppendString(append(b, `,"input":`...), e.Input)
		b = directivetext.AppendString(append(b, `,"kind":`...), e.Kind.String())
		b = strconv.AppendUint(append(b, `,"version":`...), e.Version, 10)
		b = append(b, '}')
	}
	j.write(append(b, `],"mode":"history","output_version":1}`...))
}

func (j ndjson) fault(f commandFault) {
	b := directivetext.AppendString([]byte(`{"command":`), f.command)
	b = directivetext.AppendString(append(b, `,"error":{"code":`...), f.code)
	b = directivetext.AppendString(append(b, `,"message":`...), f.message)
	j.write(append(b, `},"mode":"error","output_version":1}`...))
}
