package commands_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ctxpage/ctxpage/compat/commands"
	"github.com/ctxpage/ctxpage/directive"
)

// run gives lines to a fresh command line.
func run(t *testing.T, opt commands.Options, stdin string, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	exit = commands.RunDirective(args, strings.NewReader(stdin), &out, &errs, opt)
	return exit, out.String(), errs.String()
}

func TestText(t *testing.T) {
	tests := []struct {
		name, stdin, want string
		args              []string
	}{
		{name: "a session", stdin: "hello\nuse vim\nprohibit Vim\nuse emacs instead of nano\nstep no\nstate\nEXIT\nuse x\n", want: `passthrough
updated
premise: (none)
policies:
- use vim
error: "vim" is currently in use.
Remove or replace it before prohibiting it.
confirm: Did you mean to use "emacs" instead?
updated
premise: (none)
policies:
- use vim
premise: (none)
policies:
- use vim
`},
		{name: "preview", stdin: "set premise a\nprohibit b\nuse c\npreview clear state\npreview use b instead of c\npreview hello\n", want: `updated
premise: a
policies: (none)
updated
premise: a
policies:
- prohibit b
updated
premise: a
policies:
- prohibit b
- use c
preview
updated
premise: (none)
policies: (none)
would_mutate: yes
diff:
- premise: a -> (none)
- - prohibit b
- - use c
preview
confirm: "b" is currently prohibited. Did you mean to remove "c" and use "b" instead?
would_mutate: no
diff:
- (none)
preview
passthrough
would_mutate: no
diff:
- (none)
`},
		{name: "a changed polarity", stdin: "prohibit b\nuse b instead of c\npreview yes\n", want: `updated
premise: (none)
policies:
- prohibit b
confirm: Did you mean to use "b" instead?
preview
updated
premise: (none)
policies:
- use b
would_mutate: yes
diff:
- ~ prohibit b -> use b
`},
		{name: "words that are no commands", stdin: "STEP use x\n step use x\nstep\tuse x\nsteps use x\nPreview x\nhelp\n?\nEX\u0130T\nhistory\n", want: strings.Repeat("passthrough\n", 9)},
		{name: "commands without input", stdin: "step\nstep \t\npreview\nPREVIEW \npreview  \n", want: strings.Repeat("error: step requires input.\nUse 'step <input>'.\n", 2) +
			strings.Repeat("error: preview requires input.\nUse 'preview <input>'.\n", 3)},
		{name: "all line ends", stdin: "a\rb\r\nc\n\r\nd", want: strings.Repeat("passthrough\n", 5)},
		{name: "an answer first", stdin: "use a1 instead of b\nstep use c\nstep  Yes!\n", want: `confirm: Did you mean to use "a1" instead?
error: step command only accepts confirmation while clarification is pending.
Use yes/no (or variants), or use preview/state.
updated
premise: (none)
policies:
- use a1
`},
		{name: "a preprocessed line", args: []string{"--with-preprocessor"}, stdin: "  use vim  \nUse vim\n", want: "updated\npremise: (none)\npolicies:\n- use vim\npassthrough\n"},
		{name: "a prompt with line ends", args: []string{"--initial-checkpoint-json", `{"authoritative_state":{"premise":null,"policies":{},"version":2},"checkpoint_version":1,"pending":` +
			`{"kind":"replacement","prompt_to_user":"a\r\nb\n","replacement":{"kind":"use_only","new_item":"x","old_item":null}}}`}, stdin: "?\n", want: "error: a\nb\n"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			exit, stdout, stderr := run(t, commands.Options{}, tc.stdin, tc.args...)
			require.Zero(t, exit)
			require.Empty(t, stderr)
			require.Equal(t, tc.want, stdout)
		})
	}
}

func TestJSON(t *testing.T) {
	const empty = `{"policies":{},"premise":null,"version":2}`
	_, stdout, _ := run(t, commands.Options{}, "hé\nuse a1 instead of b\nstep x\nstate\npreview yes\npreview\nstep\n", "--json")
	require.Equal(t, `{"command":"input","decision":{"kind":"passthrough","prompt_to_user":null,"state":null},"mode":"step","output_version":1,"state":`+empty+`}
{"command":"input","decision":{"kind":"clarify","prompt_to_user":"Did you mean to use \"a1\" instead?","state":null},"mode":"step","output_version":1,"state":`+empty+`}
{"command":"step","error":{"code":"pending_confirmation_required","message":"step command only accepts confirmation while clarification is pending.\nUse yes/no (or variants), or use preview/state."},"mode":"error","output_version":1}
{"command":"state","mode":"state","output_version":1,"state":`+empty+`}
{"command":"preview","decision":{"kind":"update","prompt_to_user":null,"state":{"policies":{"a1":"use"},"premise":null,"version":2}},"diff":{"changed":true,"policies":{"added":{"a1":"use"},"changed":{},"removed":{}},"premise":{"after":null,"before":null,"changed":false}},"mode":"preview","output_version":1,"state_after":{"policies":{"a1":"use"},"premise":null,"version":2},"state_before":`+empty+`,"would_mutate":true}
{"command":"preview","error":{"code":"missing_preview_input","message":"preview requires input.\nUse 'preview <input>'."},"mode":"error","output_version":1}
{"command":"step","error":{"code":"missing_step_input","message":"step requires input.\nUse 'step <input>'."},"mode":"error","output_version":1}
`, stdout)
}

// Three of the reference's quirks show on the command line only.

func TestTypedJSONIsNoDirective(t *testing.T) {
	_, stdout, _ := run(t, commands.Options{}, `{"classification":"directive","output":"use vim"}`+"\n", "--with-preprocessor")
	require.Equal(t, "passthrough\n", stdout)
}

func TestPromptsArePrintedAsTheyAre(t *testing.T) {
	_, stdout, _ := run(t, commands.Options{}, "use x\u2028y instead of z\n")
	require.Equal(t, "confirm: Did you mean to use \"x\u2028y\" instead?\n", stdout)
}

func TestOneConfirmationRule(t *testing.T) {
	for _, line := range []string{"ＹＥＳ", "step ＹＥＳ"} {
		_, stdout, _ := run(t, commands.Options{}, "use x instead of y\n"+line+"\nstate\n")
		require.Contains(t, stdout, "- use x\n", line)
	}
}

func TestFlags(t *testing.T) {
	const state = `{"policies":{"The Vim":"use"},"premise":null,"version":2}`
	files := commands.Options{ReadFile: func(path string) ([]byte, error) {
		switch path {
		case "s":
			return []byte(state), nil
		case "c":
			return []byte(`{"authoritative_state":` + state + `,"checkpoint_version":1}`), nil
		}
		return nil, fs.ErrNotExist
	}}
	for _, args := range [][]string{
		{"--initial-state-json", state}, {"--initial-state-file", "s"}, {"--initial-checkpoint-file", "c"},
		{"--initial-checkpoint-json", `{"authoritative_state":` + state + `,"checkpoint_version":1,"pending":null}`},
	} {
		exit, stdout, stderr := run(t, files, "state\n", args...)
		require.Zero(t, exit, stderr)
		require.Equal(t, "premise: (none)\npolicies:\n- use vim\n", stdout)
	}
	for _, tc := range []struct {
		args string
		want string
	}{
		{"x", "unknown option 'x'"},
		{"--json --help", "unknown option '--help'"},
		{"--version --json", "unknown option '--version'"},
		{"--initial-state-json", "option '--initial-state-json' requires a value"},
		{"--initial-state-file s --initial-state-file s", "option '--initial-state-file' was provided more than once"},
		{"--initial-state-file s --initial-state-json {}", "mutually exclusive"},
		{"--initial-checkpoint-file s --initial-checkpoint-json {}", "mutually exclusive"},
		{"--initial-state-file s --initial-checkpoint-json {}", "mutually exclusive"},
		{"--initial-state-json {", "preload failed"},
		{"--initial-state-json {}", "preload failed"},
		{"--initial-checkpoint-file s", "preload failed"},
		{"--initial-state-file absent", "preload failed: file does not exist"},
	} {
		exit, stdout, stderr := run(t, files, "use x\n", strings.Fields(tc.args)...)
		require.Equal(t, 1, exit, tc.args)
		require.Empty(t, stdout, tc.args)
		require.Contains(t, stderr, "error: ")
		require.Contains(t, stderr, tc.want)
		require.Equal(t, !strings.Contains(tc.want, "preload"), strings.Contains(stderr, "--help' for usage."), "usage errors say where to read on")
	}
	exit, stdout, _ := run(t, commands.Options{Program: "dbctl directive --memory"}, "", "--help")
	require.Zero(t, exit)
	require.True(t, strings.HasPrefix(stdout, "Usage: dbctl directive --memory [options]\n"))
	_, stdout, _ = run(t, commands.Options{Version: "1.2"}, "", "--version")
	require.Equal(t, "1.2\n", stdout)
}

func TestTerminal(t *testing.T) {
	terminal := commands.Options{Terminal: true}
	exit, stdout, _ := run(t, terminal, "\nuse x\nhelp\n?\npreview use y\nstate\nquit\n")
	require.Zero(t, exit)
	require.Contains(t, stdout, "> > \nupdated\n", "a blank line is no input; an empty line goes before an answer")
	require.Equal(t, 2, strings.Count(stdout, "Anything else is no directive"))
	require.Contains(t, stdout, "> \npreview\nupdated\n")

	exit, stdout, stderr := run(t, terminal, "use x\n", "--json")
	require.Equal(t, 1, exit)
	require.Empty(t, stdout)
	require.Equal(t, "error: --json requires non-interactive stdin/stdout.\n", stderr)
}

// A caller on a pipe reads each answer before it writes the next line.
func TestAnswersBeforeItReadsOn(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\r\n"} {
		in, lines := io.Pipe()
		answers, out := io.Pipe()
		done := make(chan int)
		go func() { done <- commands.RunDirective(nil, in, out, io.Discard, commands.Options{}) }()
		buffer := make([]byte, 100)
		for range 3 {
			go io.WriteString(lines, "hello"+end)
			n, err := answers.Read(buffer)
			require.NoError(t, err)
			require.Equal(t, "passthrough\n", string(buffer[:n]))
		}
		lines.Close()
		require.Zero(t, <-done)
	}
}

// keeper is an engine that remembers, and that breaks on demand.
type keeper struct {
	commands.Memory
	entries []commands.Entry
	broken  error
}

func (k *keeper) Step(input string, opts ...directive.Option) (directive.Session, directive.Decision, error) {
	s, d, _ := k.Memory.Step(input, opts...)
	k.entries = append(k.entries, commands.Entry{Version: uint64(len(k.entries) + 1), Actor: "ann", Input: input, Kind: d.Kind, Changed: d.Changed})
	return s, d, k.broken
}

func (k *keeper) History() ([]commands.Entry, error) { return k.entries, k.broken }

func TestHistory(t *testing.T) {
	_, stdout, _ := run(t, commands.Options{Engine: &keeper{}}, "history\nuse x\nhistory\n")
	require.Equal(t, "history: (none)\nupdated\npremise: (none)\npolicies:\n- use x\n1 ann update: \"use x\"\n", stdout)
	_, stdout, _ = run(t, commands.Options{Engine: &keeper{}}, "use x\nhistory\n", "--json")
	require.Contains(t, stdout, `{"command":"history","entries":[{"actor":"ann","changed":true,"input":"use x","kind":"update","version":1}],"mode":"history","output_version":1}`)
}

func TestEngineErrorsEndTheRun(t *testing.T) {
	exit, stdout, stderr := run(t, commands.Options{Engine: &keeper{broken: errors.New("disk full")}}, "state\nuse x\nuse y\n")
	require.Equal(t, 1, exit)
	require.Equal(t, "premise: (none)\npolicies: (none)\n", stdout, "what was answered before stays answered")
	require.Equal(t, "error: disk full\n", stderr)
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriteErrorsEndTheRun(t *testing.T) {
	var errs bytes.Buffer
	require.Equal(t, 1, commands.RunDirective(nil, strings.NewReader("a\nb\n"), brokenPipe{}, &errs, commands.Options{}))
	require.Contains(t, errs.String(), "closed pipe")
}

func TestOptionsReachTheEngine(t *testing.T) {
	_, stdout, _ := run(t, commands.Options{}, "Use Vim\n", "--any-case")
	require.Contains(t, stdout, "- use vim\n")
	_, stdout, _ = run(t, commands.Options{}, "set premise x and use y\nuse x and prohibit y\npreview use x; use y\nUse z\n", "--refuse-compound")
	require.Equal(t, 3, strings.Count(stdout, "Enter them one at a time"), stdout)
	require.Contains(t, stdout, "'set premise x', then 'use y'")
	require.NotContains(t, stdout, "updated", "neither stored, nor read in any case")
	_, stdout, _ = run(t, commands.Options{}, "set premise x and use y\nUse z\n")
	require.Contains(t, stdout, "premise: x and use y\n", "off by default")
}

// An input that passes through is given to the program of --suggest. What it reads there is shown, and never applied.
func TestSuggestions(t *testing.T) {
	suggest := func(program string) func(context.Context, string) (string, error) {
		require.Equal(t, "reader", program)
		return func(_ context.Context, message string) (string, error) {
			if message == "broken" {
				return "", errors.New("no network")
			}
			return map[string]string{"I would rather have soap": "use soap", "Prohibit sand.": "prohibit sand"}[message], nil
		}
	}
	opt := commands.Options{Suggest: suggest}
	_, stdout, _ := run(t, opt, "prohibit soap\nI would rather have soap\nhello\nstate\n", "--suggest", "reader")
	require.Equal(t, `updated
premise: (none)
policies:
- prohibit soap
passthrough
suggestion: use soap
preview
error: "soap" is currently prohibited.
Remove or replace it before using it.
would_mutate: no
diff:
- (none)
passthrough
premise: (none)
policies:
- prohibit soap
`, stdout)
	_, stdout, _ = run(t, opt, "Prohibit sand.\n", "--json", "--suggest", "reader")
	require.Contains(t, stdout, `{"command":"suggest","decision":{"kind":"update",`)
	require.Contains(t, stdout, `"directive":"prohibit sand","grounded":true,"mode":"suggestion","output_version":1,"would_mutate":true}`)
	exit, _, stderr := run(t, opt, "broken\n", "--suggest", "reader")
	require.Equal(t, 1, exit)
	require.Contains(t, stderr, "no network")
	for _, args := range [][]string{{"--suggest"}, {"--suggest", ""}} {
		exit, _, stderr = run(t, opt, "", args...)
		require.Equal(t, 1, exit)
		require.Contains(t, stderr, "option '--suggest' requires a value")
	}
	_, _, stderr = run(t, commands.Options{}, "", "--suggest", "reader")
	require.Contains(t, stderr, "unknown option '--suggest'")
}

func TestDiffLeadsFromOneStateToTheOther(t *testing.T) {
	state := func(t *rapid.T, name string) directive.State {
		premise := rapid.SampledFrom([]string{"", "a shop", "a school"}).Draw(t, name)
		s, err := directive.NewState(premise, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) directive.Policy {
			return directive.Policy{Item: rapid.StringMatching(`[b-d]{1,2}`).Draw(t, "item"),
				Polarity: rapid.SampledFrom([]directive.Polarity{directive.Use, directive.Prohibit}).Draw(t, "polarity")}
		}), 0, 12).Draw(t, name)...)
		require.NoError(t, err)
		return s
	}
	policies := func(s directive.State) map[string]directive.Polarity {
		m := map[string]directive.Polarity{}
		for p := range s.Policies() {
			m[p.Item] = p.Polarity
		}
		return m
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := state(t, "a"), state(t, "b")
		d := commands.Diff(a, b)
		require.Equal(t, a.Premise(), d.PremiseBefore)
		require.Equal(t, b.Premise(), d.PremiseAfter)
		model := policies(a)
		for _, p := range d.Removed {
			require.Equal(t, p.Polarity, model[p.Item])
			delete(model, p.Item)
		}
		for _, p := range d.Added {
			require.NotContains(t, model, p.Item)
			model[p.Item] = p.Polarity
		}
		for _, c := range d.Changed {
			require.Equal(t, c.Before, model[c.Item])
			model[c.Item] = c.After
		}
		require.Equal(t, policies(b), model)
		require.Equal(t, a.Equal(b), d.Empty())
	})
}
