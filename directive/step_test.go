package directive_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/directivetext"
	"github.com/stretchr/testify/require"
)

func TestGrammar(t *testing.T) {
	const (
		empty      = "cannot be empty"
		incomplete = "Replacement requires both"
	)
	tests := []struct {
		input   string
		premise string // wanted after a set
		item    string // wanted in use or prohibited
		clarify string // or part of the prompt
	}{
		{input: "set premise to", premise: "to"},
		{input: "set premise to ", premise: "to"},
		{input: "set premise today", premise: "today"},
		{input: "set premise  to x", premise: "to x"},
		{input: "set premise  Mind  the\tgap\n", premise: "Mind the gap"},
		{input: "set premise it’s `so`", premise: "it's 'so'"},
		{input: "set premise to x", clarify: "Did you mean 'set premise x'?"},
		{input: "set premise to  a  b\t", clarify: "Did you mean 'set premise a  b'?"},
		{input: "change premise toX", clarify: "Did you mean 'change premise to toX'?"},
		{input: "change premise  to x", clarify: "Did you mean 'change premise to to x'?"},
		{input: "change premise TO x", clarify: "Did you mean 'change premise to TO x'?"},
		{input: "change premise to x", clarify: "No premise is set.\nUse 'set premise <value>' to define one."},
		{input: "change premise to", clarify: "Use 'change premise to <value>'"},
		{input: "change premise to \t", clarify: "Use 'change premise to <value>'"},
		{input: "change premise"}, {input: "change premise "}, {input: "change premises x"},
		{input: "set premise", clarify: "Use 'set premise <value>'"},
		{input: "use", clarify: "Use 'use <item>'"},
		{input: "use  ", clarify: empty},
		{input: "use the", clarify: empty},
		{input: "prohibit", clarify: "Use 'prohibit <item>'"},
		{input: "remove policy", clarify: "Use 'remove policy <item>'"},
		{input: "use  instead of x", clarify: incomplete},
		{input: "use x instead of ", clarify: incomplete},
		{input: "use x instead of", clarify: incomplete},
		{input: "use instead of x", clarify: incomplete},
		{input: "use x INSTEAD OF y", item: "x instead of y"},
		{input: "use x instead  of y", item: "x instead of y"},
		{input: "use x\tinstead of y", item: "x instead of y"},
		{input: "prohibit x instead of y", item: "x instead of y"},
		{input: "use a\nprohibit b", item: "prohibit b"},
		{input: "use a-team", item: "-team"},
		{input: "use an", clarify: empty},
		{input: "use theory", item: "theory"},
		{input: "use \"quoted\"", item: `"quoted"`},
		{input: "use a/b", item: "/b"},
		{input: "use dont_go", item: "dont_go"},
		{input: "use DONT", item: "don't"},
		{input: "use ΣΑΣ'", item: "σας'"},
		{input: "use x instead of y instead of z", clarify: `Did you mean to use "x" instead?`},
		{input: "Use x"}, {input: " use x"}, {input: "use\tx"}, {input: "use\u00a0x"}, {input: "user x"},
		{input: "clear state "}, {input: "clear premise\n"}, {input: "reset policies now"}, {input: "yes"}, {input: ""},
	}
	for _, tc := range tests {
		t.Run(tc.input, func(t *testing.T) {
			s, d := directive.Step(directive.Session{}, tc.input)
			switch {
			case tc.clarify != "":
				require.Equal(t, directive.Clarify, d.Kind)
				require.Contains(t, d.Prompt, tc.clarify)
			case tc.premise != "":
				require.Equal(t, tc.premise, s.State.Premise())
			case tc.item != "":
				require.Equal(t, []string{tc.item}, s.State.Items())
			default:
				require.Equal(t, directive.Passthrough, d.Kind)
			}
		})
	}
}

// TestTransitions is the table of all that can be refused, by code, with the
// prompt word for word and what is offered instead.
func TestTransitions(t *testing.T) {
	tests := []struct {
		given  string // inputs, parted by "; "
		input  string
		code   string
		prompt string
		repair []string
	}{
		{"set premise a", "set premise b", "premise_exists", "Premise already set.\nUse 'change premise to <value>' to modify it.", []string{"change premise to b"}},
		{"", "change premise to  to b", "premise_missing", "No premise is set.\nUse 'set premise <value>' to define one.", []string{"set premise  to b"}},
		{"", "set premise to b", "near_miss_set_premise", "Did you mean 'set premise b'?", []string{"set premise b"}},
		{"set premise a", "set premise to b", "near_miss_set_premise", "Did you mean 'set premise b'?", []string{"change premise to b"}},
		{"", "change premise b", "near_miss_change_premise", "Did you mean 'change premise to b'?", []string{"set premise b"}},
		{"prohibit x", "use The X", "item_prohibited", "\"x\" is currently prohibited.\nRemove or replace it before using it.", []string{"remove policy x", "use x"}},
		{"use x", "prohibit X", "item_in_use", "\"x\" is currently in use.\nRemove or replace it before prohibiting it.", []string{"remove policy x", "prohibit x"}},
		{"prohibit x  instead of y", "use x  instead of y", "replace_absent", "Did you mean to use \"x \" instead?", []string{"use x"}},
		{"prohibit x instead of y", "use x\tinstead of y", "item_prohibited", "\"x instead of y\" is currently prohibited.\nRemove or replace it before using it.", []string{"remove policy x instead of y", "use x instead  of y"}},
		{"", "use  New instead of Old ", "replace_absent", "Did you mean to use \" New\" instead?", []string{"use new"}},
		{"prohibit new", "use new instead of old", "replace_absent", "Did you mean to use \"new\" instead?", []string{"remove policy new", "use new"}},
		{"prohibit old", "use New instead of Old", "replace_prohibited_old", "\"Old\" is currently prohibited. Did you mean to remove it and use \"New\" instead?", []string{"remove policy old", "use new"}},
		{"use old; prohibit new", "use New instead of Old", "replace_prohibited_new", "\"New\" is currently prohibited. Did you mean to remove \"Old\" and use \"New\" instead?", []string{"remove policy old", "remove policy new", "use new"}},
	}
	for _, tc := range tests {
		t.Run(tc.input, func(t *testing.T) {
			s, _ := replay(strings.Split(tc.given, "; ")...)
			after, d := directive.Step(s, tc.input)
			require.Equal(t, directive.Clarify, d.Kind)
			require.Equal(t, tc.code, d.Code)
			require.Equal(t, tc.prompt, d.Prompt)
			require.Equal(t, tc.repair, d.Repair)
			require.True(t, s.State.Equal(after.State))
			require.Equal(t, strings.HasPrefix(string(tc.code), "replace_"), after.Pending != nil)
		})
	}
}

func TestReplacement(t *testing.T) {
	s, d := replay("use docker", "use podman instead of The Docker")
	require.True(t, d.Changed)
	require.Equal(t, []string{"podman"}, s.State.Items(directive.Use))

	_, d = replay("prohibit vim", "use Vim instead of the vim")
	require.Equal(t, directive.Update, d.Kind, "equal keys change nothing, whatever their policy")
	require.False(t, d.Changed)
}

func TestConfirmation(t *testing.T) {
	const question = "use new instead of old"
	for _, yes := range []string{"yes", "Yes please.", "YEP", "yeah!!", " sure ", "ok", "o\u212A", "okay?", "ＹＥＳ！", "yes…", "yep‼", "yes \u3000please,."} {
		s, d := replay(question, yes)
		require.Equal(t, directive.Update, d.Kind, yes)
		require.Equal(t, []string{"new"}, s.State.Items(), yes)
		require.True(t, directivetext.IsAnswer(yes))
	}
	for _, no := range []string{"no", "Nope.", "no thanks!"} {
		s, d := replay(question, no)
		require.Equal(t, directive.Update, d.Kind, no)
		require.False(t, d.Changed)
		require.Nil(t, s.Pending, no)
		require.Zero(t, s.State.Len())
	}
	for _, neither := range []string{"", "y", "yes。", "yes. !", "yes, please", "no, thanks", "ok\u200b", "clear state", "use x"} {
		s, d := replay(question, neither)
		require.Equal(t, directive.Clarify, d.Kind, neither)
		require.Equal(t, "answer_needed", d.Code)
		require.Equal(t, `Did you mean to use "new" instead?`, d.Prompt)
		require.NotNil(t, s.Pending, neither)
		require.False(t, directivetext.IsAnswer(neither))
	}
}

func TestConfirmedReplacements(t *testing.T) {
	tests := []struct{ given, input, use, prohibit string }{
		{"prohibit new; use other", "use new instead of old", "new other", ""},
		{"prohibit old", "use new instead of old", "new", ""},
		{"use old; prohibit new; prohibit x", "use new instead of old", "new", "x"},
	}
	for _, tc := range tests {
		s, _ := replay(append(strings.Split(tc.given, "; "), tc.input, "yes")...)
		require.Equal(t, tc.use, strings.Join(s.State.Items(directive.Use), " "))
		require.Equal(t, tc.prohibit, strings.Join(s.State.Items(directive.Prohibit), " "))
	}
}

func TestAnyCase(t *testing.T) {
	tests := []struct{ input, strict string }{
		{"Use Docker", "use Docker"},
		{"  USE \t Docker  \n", "use Docker"},
		{"Clear  State ", "clear state"},
		{"Set Premise Be Kind", "set premise Be Kind"},
		{"SET PREMISE TO x", "set premise to x"},
		{"change\tpremise to x", "change premise to x"},
		{"Change Premise x", "change premise x"},
		{"Remove  Policy x", "remove policy x"},
		{"Prohibit", "prohibit"},
		{"use New  INSTEAD\tof Old", "use New instead of Old"},
		{"Use instead of old", "use instead of old"},
		{"Use new Instead Of", "use new instead of "},
		{"Use insteadof x", "use insteadof x"},
		{"used to it", "used to it"},
		{"use\u00a0x", "use\u00a0x"},
		{"o\u212A", "o\u212A"},
		{"", ""},
	}
	s, _ := replay("use old")
	for _, tc := range tests {
		t.Run(tc.input, func(t *testing.T) {
			got, d := directive.Step(s, tc.input, directive.AnyCase)
			want, wanted := directive.Step(s, tc.strict)
			require.Equal(t, bytesOf(want), bytesOf(got))
			require.Equal(t, wanted.Kind, d.Kind)
			require.Equal(t, wanted.Prompt, d.Prompt)
			_, off := directive.Step(s, tc.input)
			if tc.input != tc.strict && !strings.HasPrefix(tc.input, "use ") {
				require.Equal(t, directive.Passthrough, off.Kind, "off by default")
			}
		})
	}
}

func TestRefuseCompound(t *testing.T) {
	tests := []struct {
		input string
		parts []string // nil: taken as one
	}{
		{"use docker and prohibit podman", []string{"use docker", "prohibit podman"}},
		{"use docker, prohibit podman; clear premise", []string{"use docker", "prohibit podman", "clear premise"}},
		{"use docker then use podman instead of docker", []string{"use docker", "use podman instead of docker"}},
		{"use docker\nprohibit podman", []string{"use docker", "prohibit podman"}},
		{"prohibit vim and Use emacs", []string{"prohibit vim", "use emacs"}},
		{"remove policy vim;reset policies", []string{"remove policy vim", "reset policies"}},
		{"clear state and use vim", []string{"clear state", "use vim"}},
		{"set premise be kind; use vim", []string{"set premise be kind", "use vim"}},
		{"set premise x and use y", []string{"set premise x", "use y"}},
		{"set premise we prohibit smoking, use no cars and use bikes", []string{"set premise we prohibit smoking", "use no cars", "use bikes"}},
		{"set premise use docker", []string{"use docker"}},
		{"change premise to  Use docker, prohibit podman", []string{"use docker", "prohibit podman"}},
		{"set premise we used docker and podman", nil},
		{"set premise", nil},
		{"use salt and pepper", nil},
		{"use salt and used bottles", nil},
		{"use sand use", nil},
		{"clear state machine", nil},
		{"well, use docker and prohibit podman", nil},
	}
	for _, tc := range tests {
		t.Run(tc.input, func(t *testing.T) {
			s, d := directive.Step(directive.Session{}, tc.input, directive.RefuseCompound)
			if tc.parts == nil {
				_, plain := directive.Step(directive.Session{}, tc.input)
				require.Equal(t, plain.Kind, d.Kind)
				require.Equal(t, plain.Code, d.Code)
				return
			}
			require.Equal(t, directive.Clarify, d.Kind)
			require.Equal(t, "compound", d.Code)
			require.Equal(t, tc.parts, d.Repair)
			for _, p := range tc.parts {
				require.Contains(t, d.Prompt, "'"+p+"'")
			}
			require.Equal(t, directive.Session{}, s)
			_, off := directive.Step(directive.Session{}, tc.input)
			require.NotEqual(t, "compound", off.Code, "off by default")
		})
	}
}

func TestBothOptions(t *testing.T) {
	_, d := directive.Step(directive.Session{}, " Use docker AND  Prohibit podman", directive.AnyCase, directive.RefuseCompound)
	require.Equal(t, []string{"use docker", "prohibit podman"}, d.Repair)
}

func TestStepCosts(t *testing.T) {
	s, _ := replay("use docker", "prohibit podman")
	talk := strings.Repeat("How do I use this? ", 20)
	require.Zero(t, testing.AllocsPerRun(100, func() { directive.Step(s, talk) }), "talk passes through without an allocation")
	require.Zero(t, testing.AllocsPerRun(100, func() { directive.Step(s, "use docker") }), "so does what holds already")
	require.NotZero(t, testing.AllocsPerRun(100, func() { directive.Step(s, "use vim") }), "a change cannot")
}

// TestNoQuadraticOperands steps operands that would take minutes if any rule
// went over the whole text once per word.
func TestNoQuadraticOperands(t *testing.T) {
	const n = 100_000
	for name, operand := range map[string]string{
		"articles": strings.Repeat("the ", n) + "x", "dont": strings.Repeat("dont ", n), "sigma": strings.Repeat("Σ", n),
		"ignorable": "Σ" + strings.Repeat("'", n), "instead": strings.Repeat("instead of\t", n), "replace": strings.Repeat("instead of ", n) + "\n",
		"commas": strings.Repeat(", ", n),
		"marks":  "e" + strings.Repeat("\u0301", n), "blanks": strings.Repeat(" ", n) + "x",
	} {
		t.Run(name, func(t *testing.T) {
			directive.Step(directive.Session{}, "use "+operand, directive.AnyCase, directive.RefuseCompound)
			directive.Step(directive.Session{}, "set premise "+operand)
			directivetext.Preprocess("use " + operand)
			directivetext.ValidateAgainst("use "+operand, "use "+operand)
		})
	}
}

func TestNewState(t *testing.T) {
	s := must(directive.NewState(" Be  kind ", directive.Policy{Item: "The Vim", Polarity: directive.Use},
		directive.Policy{Item: "soap", Polarity: directive.Use}, directive.Policy{Item: "VIM", Polarity: directive.Prohibit}))(t)
	require.Equal(t, "Be kind", s.Premise())
	require.Equal(t, 2, s.Len())
	require.Equal(t, directive.Prohibit, s.Policy("vim"), "the later counts")
	require.Equal(t, []string{"soap"}, s.Items(directive.Use))
	for name, make := range map[string]func() (directive.State, error){
		"blank premise": func() (directive.State, error) { return directive.NewState("\t") },
		"empty item": func() (directive.State, error) {
			return directive.NewState("", directive.Policy{Item: "the", Polarity: "other"})
		},
		"no polarity": func() (directive.State, error) { return directive.NewState("", directive.Policy{Item: "x"}) },
	} {
		_, err := make()
		require.Equal(t, "invalid_state", directive.ErrorCode(err), name)
	}
}

// An input that is a directive but for its case passes as before, and the decision says how it is written.
func TestHint(t *testing.T) {
	for in, want := range map[string]string{
		"Use zerolog": "use zerolog", "PROHIBIT  peanuts": "prohibit peanuts", "Remove policy docker": "remove policy docker", " use docker": "use docker",
		"Use podman Instead Of docker": "use podman instead of docker", "Clear State": "clear state", "Set premise to brief": "set premise to brief",
		"Useful things": "", "hello": "", "Used docker": "", "Use docker\nand more": "", "": "",
	} {
		s, d := directive.Step(directive.Session{}, in)
		require.Equal(t, directive.Passthrough, d.Kind, in)
		require.Equal(t, want, d.Hint, in)
		require.Equal(t, 0, s.State.Len(), in)
		require.Equal(t, string(directive.Decision{}.AppendJSON(nil)), string(d.AppendJSON(nil)), "the JSON form is what it was")
		if want != "" {
			_, d = directive.Step(directive.Session{}, want)
			require.NotEqual(t, directive.Passthrough, d.Kind, want)
			require.Empty(t, d.Hint)
		}
	}
}

// TestLongInputs: whoever types a megabyte keeps nobody waiting for long, or the machine is slow: then a sixteenth of it takes about
// a sixteenth. What looks at the whole text for each rune takes minutes for one of these, and its time grows with the square.
func TestLongInputs(t *testing.T) {
	takes := func(in string) time.Duration {
		start := time.Now()
		directive.Step(directive.Session{}, in)
		directivetext.IsAnswer(in)
		return time.Since(start)
	}
	for _, s := range []string{"\uFFFD", "\xff", "\u0327\u0301", "e\u0301", ".\u03a3'", "\u0130", "J\u030c", "the ", "dont ", "`"} {
		in := "use a" + strings.Repeat(s, 1<<20/len(s))
		if took := takes(in); took > 20*time.Second && took > 64*takes("use a"+strings.Repeat(s, 1<<16/len(s))) {
			t.Errorf("%+q: %v", s, took)
		}
	}
}
