package commands

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// shower prints answers in one of the two forms.
type shower interface {
	step(command string, s directive.Session, d directive.Decision)
	preview(directive.Trial)
	suggestion(directive.Suggestion)
	state(own directive.State, inherited *directive.Effective)
	history([]Entry)
	fault(commandFault)
}

// commandFault is a line that is no use to the engine.
type commandFault struct{ command, code, message string }

var (
	missingStep    = commandFault{"step", "missing_step_input", "step requires input.\nUse 'step <input>'."}
	missingPreview = commandFault{"preview", "missing_preview_input", "preview requires input.\nUse 'preview <input>'."}
	answerFirst    = commandFault{"step", "pending_confirmation_required", "step command only accepts confirmation while clarification is pending.\nUse yes/no (or variants), or use preview/state."}
)

type loop struct {
	engine   Engine
	in       *lineReader
	out      *bufio.Writer
	show     shower
	flags    flags
	terminal bool
	hint     func(strict string)
	draft    func(context.Context, string) (string, error) // nil: none
}

var errLeave = errors.New("leave")

func (l loop) run() error {
	if l.terminal {
		fmt.Fprintln(l.out, "Directives: type help for commands, exit to leave.")
	}
	for {
		if l.terminal {
			fmt.Fprint(l.out, "> ")
		}
		if err := l.out.Flush(); err != nil {
			return err
		}
		line, err := l.in.next()
		if err == nil {
			err = l.line(line)
		}
		if err != nil {
			return errors.Join(l.out.Flush(), leaving(err))
		}
	}
}

// leaving takes the two good ends out of the errors.
func leaving(err error) error {
	if err == io.EOF || err == errLeave {
		return nil
	}
	return err
}

// line answers one line. The order of the tests is the language.
func (l loop) line(line string) error {
	token := lowerASCII(trim(line))
	switch {
	case token == "exit" || token == "quit":
		return errLeave
	case token == "state":
		return l.state()
	case l.terminal && token == "":
		return nil
	case l.terminal && (token == "help" || token == "?"):
		fmt.Fprint(l.out, directiveHelp)
		return nil
	case token == "history" && l.remembers():
		return l.history()
	case token == "step" && strings.HasPrefix(line, "step"):
		l.show.fault(missingStep)
		return nil
	case token == "preview":
		l.show.fault(missingPreview)
		return nil
	}
	if payload, ok := strings.CutPrefix(line, "step "); ok {
		return l.stepCommand(trimLeft(payload))
	}
	if payload, ok := strings.CutPrefix(line, "preview "); ok {
		return l.preview(payload)
	}
	return l.step("input", line)
}

const directiveHelp = `Directives, each at the start of a line and in lower case:
  set premise VALUE            change premise to VALUE      clear premise
  use ITEM                     prohibit ITEM                remove policy ITEM
  use NEW ITEM instead of OLD ITEM
  reset policies               clear state
Commands: state, preview INPUT, step INPUT, exit.
Anything else is no directive and passes through. A question is closed by yes or no only.
`

func (l loop) state() error {
	s, err := l.engine.Session()
	if err != nil {
		return err
	}
	var inherited *directive.Effective
	if i, ok := l.engine.(Inheritor); ok {
		e, err := i.Inherited()
		if err != nil {
			return err
		}
		inherited = &e
	}
	l.show.state(s.State, inherited)
	return nil
}

func (l loop) remembers() bool { _, ok := l.engine.(Historian); return ok }

func (l loop) history() error {
	entries, err := l.engine.(Historian).History()
	if err == nil {
		l.show.history(entries)
	}
	return err
}

// stepCommand is "step INPUT": while a question is open it takes an answer only.
func (l loop) stepCommand(payload string) error {
	s, err := l.engine.Session()
	if err != nil {
		return err
	}
	if s.Pending != nil && !directivetext.IsAnswer(payload) {
		l.show.fault(answerFirst)
		return nil
	}
	return l.step("step", payload)
}

func (l loop) step(command, input string) error {
	input, err := l.prepare(input)
	if err != nil {
		return err
	}
	s, d, err := l.engine.Step(input, l.flags.options...)
	if err != nil {
		return err
	}
	if d.Hint != "" && l.hint != nil {
		l.hint(d.Hint)
	}
	l.show.step(command, s, d)
	if d.Kind != directive.Passthrough || l.draft == nil {
		return nil
	}
	return l.suggest(s, input)
}

// suggest shows the directive that the preprocessor of the host reads in an input that passed through, and what it would
// do. It changes nothing.
func (l loop) suggest(s directive.Session, input string) error {
	found, err := directive.Suggest(context.Background(), l.draft, s, input, l.flags.options...)
	if err != nil || found.Directive == "" {
		return err
	}
	if found.Trial, err = l.engine.Preview(found.Directive, l.flags.options...); err == nil { // with what its ancestors hold
		l.show.suggestion(found)
	}
	return err
}

func (l loop) preview(input string) error {
	input, err := l.prepare(input)
	if err != nil {
		return err
	}
	t, err := l.engine.Preview(input, l.flags.options...)
	if err == nil {
		l.show.preview(t)
	}
	return err
}

// prepare runs the preprocessor, if it is on and no question is open. A line of
// JSON is left alone: it is validated as output of a preprocessor elsewhere, but
// nobody who types it here means a directive.
func (l loop) prepare(input string) (string, error) {
	if !l.flags.preprocess {
		return input, nil
	}
	s, err := l.engine.Session()
	if err != nil || s.Pending != nil || strings.HasPrefix(trimLeft(input), "{") {
		return input, err
	}
	if v := directivetext.ValidateAgainst(input, input); v.Class == directivetext.IsDirective {
		return v.Directive, nil
	}
	return input, nil
}

// The white space of the directive grammar.
func isSpace(r rune) bool      { return unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F }
func trim(s string) string     { return strings.TrimFunc(s, isSpace) }
func trimLeft(s string) string { return strings.TrimLeftFunc(s, isSpace) }

// lowerASCII leaves other runes alone: strings.ToLower would make a dotted capital
// I an "i", and so take a word of no command for one.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

// lineReader reads lines that end in LF, CRLF or CR; the last may lack its end.
// It never reads past a CR to see whether an LF follows: on a pipe there may be
// nothing to read until the answer is out.
type lineReader struct {
	r      *bufio.Reader
	skipLF bool // the line before ended in CR: an LF right here belongs to it
}

func (l *lineReader) next() (string, error) {
	var line []byte
	for {
		c, err := l.r.ReadByte()
		afterCR := l.skipLF
		l.skipLF = false
		switch {
		case err == io.EOF && len(line) > 0:
			return string(line), nil
		case err != nil:
			return "", err
		case c == '\n' && afterCR && len(line) == 0:
			continue
		case c == '\n' || c == '\r':
			l.skipLF = c == '\r'
			return string(line), nil
		}
		line = append(line, c)
	}
}
