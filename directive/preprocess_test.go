package directive_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/directivetext"
)

func TestPreprocess(t *testing.T) {
	tests := []struct{ message, rule, directive string }{
		{"  Prohibit   SOAP. ", "canonical.full_match", "prohibit soap"},
		{"[clear premise]!", "canonical.full_match", "clear premise"},
		{"(Use soap instead of sand)", "canonical.full_match", "use soap instead of sand"},
		{`"use soap".`, "canonical.full_match", "use soap"},
		{"set premise todo lists", "canonical.full_match", "set premise todo lists"},
		{"set premise to-do lists", "reject.directive_adjacent_unsafe", ""},
		{"٣) use soap", "reject.list_or_enumeration", ""},
		{"* use soap", "reject.list_or_enumeration", ""},
		{"1.use soap", "reject.directive_adjacent_unsafe", ""},
		{"may I use soap?", "reject.question_form", ""},
		{"where is it?", "reject.confident_non_directive", ""},
		{"for example soap", "reject.meta_or_reporting", ""},
		{"for examples use", "reject.directive_adjacent_unsafe", ""},
		{"They said no", "reject.meta_or_reporting", ""},
		{"use soap because it foams", "reject.multi_segment_or_mixed_prose", ""},
		{"use sandy soap", "canonical.full_match", "use sandy soap"},
		{"change premise and rest", "reject.directive_adjacent_unsafe", ""},
		{"use docker, actually prohibit docker", "reject.multi_instruction", ""},
		{"my [use soap] notes: x", "reject.quoted_reported_bracket", ""},
		{"'use soap'", "reject.quoted_exact", ""},
		{`The doc literally says: "clear premise".`, "reject.quoted_reported", ""},
		{"Wipe  policies", "reject.near_miss_alias", ""},
		{"RESET POLICY", "reject.admin_near_miss_alias", ""},
		{"use soap instead sand", "reject.malformed_replacement_syntax", ""},
		{"soap in stead of sand", "reject.malformed_replacement_syntax", ""},
		{"prohibit soap,use sand", "reject.multi_candidate_directive", ""},
		{"please use soap", "reject.directive_adjacent_unsafe", ""},
		{"users and prohibition", "reject.confident_non_directive", ""},
		{"use\u0301 x", "reject.directive_adjacent_unsafe", ""},
		{"", "reject.confident_non_directive", ""},
	}
	for _, tc := range tests {
		t.Run(tc.message, func(t *testing.T) {
			f := directivetext.Preprocess(tc.message)
			require.Equal(t, tc.rule, f.Rule)
			require.Equal(t, tc.directive, f.Directive)
			want := directivetext.Unknown
			switch tc.rule {
			case "canonical.full_match":
				want = directivetext.IsDirective
			case "reject.confident_non_directive":
				want = directivetext.NoDirective
			}
			require.Equal(t, want, f.Class)
		})
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		output string
		class  directivetext.Class
		text   string
	}{
		{" use Soap\n", directivetext.IsDirective, "use Soap"},
		{"use soap instead of sand instead of ash", directivetext.IsDirective, "use soap instead of sand instead of ash"},
		{"use soap instead of", directivetext.Unknown, ""},
		{"use instead of soap", directivetext.IsDirective, "use instead of soap"},
		{"use  soap", directivetext.Unknown, ""},
		{"use soap\nplease", directivetext.Unknown, ""},
		{"use soap\u2028please", directivetext.IsDirective, "use soap\u2028please"},
		{"<no_directive>", directivetext.NoDirective, ""},
		{"<no_d\u0131rective>", directivetext.NoDirective, ""},
		{`{"classification":"directive","output":" clear state "}`, directivetext.IsDirective, "clear state"},
		{`{"classification":"no_directive","output":null}`, directivetext.NoDirective, ""},
		{`{"classification":"no_directive","output":"use x"}`, directivetext.Unknown, ""},
		{`{"classification":"unknown","output":null}`, directivetext.Unknown, ""},
		{`{"classification":"directive","output":"use x","why":"so"}`, directivetext.Unknown, ""},
		{`{"classification":"directive","output":"use x, use y"}`, directivetext.Unknown, ""},
		{`["use x"]`, directivetext.Unknown, ""},
		{"", directivetext.Unknown, ""},
	}
	for _, tc := range tests {
		require.Equal(t, directivetext.Verdict{Class: tc.class, Directive: tc.text}, directivetext.Validate(tc.output), tc.output)
	}
}

func TestValidateAgainst(t *testing.T) {
	const out = "use soap"
	for message, ok := range map[string]bool{
		"use soap": true, "USE  Soap!": true, "(use soap).": true, ` {"output":"Use soap","classification":"directive"}`: true,
		`"use soap".`: false, "`use soap`": false, "use soap?": false, "use soap\n": false, "use sand": false,
		"docs say use soap": false, "I see. use soap": false, "use soap and go": false, "please use soap": false,
		"~~~ use soap": false, "soap": false, "": false, `{"classification":"directive","output":"use sand"}`: false,
	} {
		require.Equal(t, ok, directivetext.ValidateAgainst(out, message).Class == directivetext.IsDirective, message)
	}
}

func TestPreprocessedDirectivesAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message := input().Draw(t, "message")
		f := directivetext.Preprocess(message)
		if f.Class != directivetext.IsDirective {
			require.Empty(t, f.Directive)
			return
		}
		require.Equal(t, directivetext.IsDirective, directivetext.Validate(f.Directive).Class, "%q", f.Directive)
		_, d := directive.Step(directive.Session{}, f.Directive)
		require.NotEqual(t, directive.Passthrough, d.Kind, "%q", f.Directive)
		require.NotEqual(t, "near_miss_set_premise", d.Code)
	})
}

func TestSuggest(t *testing.T) {
	s, _ := replay("prohibit sand")
	before := bytesOf(s)
	says := func(output string) func(context.Context, string) (string, error) {
		return func(context.Context, string) (string, error) { return output, nil }
	}

	got := must(directive.Suggest(t.Context(), says("use soap instead of sand"), s, "soap would be nicer than sand, I think"))(t)
	require.Equal(t, "use soap instead of sand", got.Directive)
	require.False(t, got.Grounded, "the user did not say it in these words")
	require.Equal(t, "replace_prohibited_old", got.Trial.Decision.Code, "what it would do is shown")
	require.Equal(t, before, bytesOf(s), "and nothing is done")

	got = must(directive.Suggest(t.Context(), says("use soap"), s, "Use soap."))(t)
	require.True(t, got.Grounded)
	require.True(t, !got.Trial.Before.Equal(got.Trial.After))

	for _, output := range []string{"use soap and use sand", "Sure! use soap", "<NO_DIRECTIVE>", "", `{"output":"use soap"}`} {
		got = must(directive.Suggest(t.Context(), says(output), s, "use soap"))(t)
		require.Empty(t, got.Directive, output)
		require.Equal(t, directive.Trial{}, got.Trial)
	}

	broken := errors.New("no network")
	_, err := directive.Suggest(t.Context(), func(context.Context, string) (string, error) { return "use soap", broken }, s, "x")
	require.ErrorIs(t, err, broken)

	open, _ := replay("use soap instead of sand")
	got = must(directive.Suggest(t.Context(), says("clear state"), open, "yes"))(t)
	require.Empty(t, got.Directive, "an open question takes yes or no, not a suggestion")
}

// TestSuggestWithoutADrafter: what a message wants of all later answers is suggested as premise, and nothing is done.
func TestSuggestWithoutADrafter(t *testing.T) {
	for message, want := range map[string]string{
		"Thanks. Always cite the source when I ask about laws!": "set premise Always cite the source when I ask about laws",
		"I’d rather have short answers.":                        "set premise I’d rather have short answers",
		"What is the refund limit?":                             "",
		"Always use tabs; use spaces":                           "", // two directives
	} {
		got := must(directive.Suggest(t.Context(), nil, directive.Session{}, message))(t)
		require.Equal(t, want, got.Directive, message)
		if want != "" {
			require.True(t, got.Trial.Decision.Changed, message)
			require.False(t, got.Grounded)
		}
	}
	s, _ := replay("set premise be brief")
	before := bytesOf(s)
	got := must(directive.Suggest(t.Context(), nil, s, "Never mention prices."))(t)
	require.Equal(t, "change premise to be brief; Never mention prices", got.Directive)
	require.True(t, got.Trial.Decision.Changed)
	require.Equal(t, before, bytesOf(s), "it is the user who decides")
}
