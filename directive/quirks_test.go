package directive_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/directivetext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Where the reference's behaviour is better not copied, ours is pinned here, one
// test for each of its known quirks.

// replay steps inputs on a fresh session and returns the last decision.
func replay(inputs ...string) (directive.Session, directive.Decision) {
	var s directive.Session
	var d directive.Decision
	for _, in := range inputs {
		s, d = directive.Step(s, in)
	}
	return s, d
}

const sidesMissing = "Replacement requires both new and old items.\nUse 'use <new item> instead of <old item>' with non-empty values."

// An article alone names no item, so it cannot be put in use. As the old side of a replacement it is an item that is
// not there: the user is asked whether the new one is meant.
func TestArticleAloneInAReplacement(t *testing.T) {
	tests := []struct {
		name  string
		given []string
		input string
		state string
	}{
		{"new side, old in use", []string{"use vim"}, "use an instead of vim", `{"policies":{"vim":"use"},"premise":null,"version":2}`},
		{"new side, old absent", nil, "use The instead of vim", `{"policies":{},"premise":null,"version":2}`},
		{"both sides", nil, "use the instead of an", `{"policies":{},"premise":null,"version":2}`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s, d := replay(append(tc.given, tc.input)...)
			require.Equal(t, directive.Clarify, d.Kind)
			require.Equal(t, "replacement_incomplete", d.Code)
			require.Equal(t, sidesMissing, d.Prompt)
			require.Nil(t, s.Pending, "there is no question to answer")
			require.Equal(t, tc.state, string(directive.ExportJSON(s.State)))
			back, err := directive.ImportCheckpoint(directive.ExportCheckpoint(s))
			require.NoError(t, err, "a checkpoint can still be taken")
			require.True(t, s.State.Equal(back.State))

			before, _ := replay(tc.given...)
			trial := directive.Preview(nil, before, tc.input)
			require.Equal(t, "replacement_incomplete", trial.Decision.Code)
			require.True(t, trial.Before.Equal(trial.After))
			_, out := directive.Apply(before, []directive.Message{{Role: "user", Content: tc.input}, {Role: "user", Content: "yes"}})
			require.True(t, out.Stopped)
			require.Equal(t, sidesMissing, out.Prompt)
			require.Equal(t, tc.state, string(directive.ExportJSON(out.State)))
		})
	}
}

// An article is a premise like any other text, and no checkpoint can bring an empty key in.
func TestArticleAloneElsewhere(t *testing.T) {
	s, d := replay("set premise the", "use vim", "use the instead of vim")
	require.Equal(t, "replacement_incomplete", d.Code)
	require.Equal(t, `{"policies":{"vim":"use"},"premise":"the","version":2}`, string(directive.ExportJSON(s.State)))
	for _, in := range []string{"use the", "prohibit an", "remove policy The a"} {
		_, d := directive.Step(s, in)
		require.Equal(t, "item_empty", d.Code, in)
	}
	for _, key := range []string{"", "an", "the a"} {
		_, err := directive.ImportJSON([]byte(`{"policies":{"` + key + `":"use"},"premise":null,"version":2}`))
		require.Equal(t, "invalid_state", directive.ErrorCode(err), "%q", key)
		_, err = directive.ImportCheckpoint([]byte(`{"authoritative_state":{"policies":{},"premise":null,"version":2},"checkpoint_version":1,` +
			`"pending":{"kind":"replacement","prompt_to_user":"?","replacement":{"kind":"use_only","new_item":"` + key + `","old_item":null}}}`))
		require.Equal(t, "invalid_checkpoint", directive.ErrorCode(err), "%q", key)
	}
}

func TestArticleAsTheOldSideIsAsked(t *testing.T) {
	for _, given := range []string{"hello", "prohibit nix"} {
		s, d := replay(given, "use nix instead of an")
		require.Equal(t, directive.Clarify, d.Kind)
		require.Equal(t, "replace_absent", d.Code)
		require.Equal(t, `Did you mean to use "nix" instead?`, d.Prompt)
		back := must(directive.ImportCheckpoint(directive.ExportCheckpoint(s)))(t)
		require.Equal(t, s.Pending, back.Pending)
		s, d = directive.Step(back, "yes")
		require.Equal(t, directive.Update, d.Kind)
		require.Equal(t, `{"policies":{"nix":"use"},"premise":null,"version":2}`, string(directive.ExportJSON(s.State)))
	}
}

func TestKeysAreFixedPoints(t *testing.T) {
	tests := []struct{ name, input, key string }{
		{"two articles", "use the the dog", "dog"},
		{"two different articles", "use An A y", "y"},
		{"an abbreviation behind an article", "use the a.m. shift", "a.m. shift"},
		{"an abbreviation", "use A.M. shift", "a.m. shift"},
		{"an article before a full stop", "use the a. shift", ". shift"},
		{"composed only in lower case", "use J\u030c1", "\u01f01"},
		{"an article that ends at a zero-width space stays apart", "use a\u200b the x", "\u200b the x"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s, d := replay(tc.input)
			require.Equal(t, directive.Update, d.Kind)
			require.Equal(t, []string{tc.key}, s.State.Items())

			text := directive.ExportJSON(s.State)
			again := must(directive.ImportJSON(text))(t)
			require.Equal(t, text, directive.ExportJSON(again), "an import is the identity")
			session := must(directive.ImportCheckpoint(directive.ExportCheckpoint(s)))(t)
			require.Equal(t, []string{tc.key}, session.State.Items(), "so is a directive checkpoint")

			directive.Preview(nil, s, "hello")
			require.Equal(t, text, directive.ExportJSON(s.State), "a preview leaves the live state alone")

			require.Equal(t, []directive.Policy{{Item: tc.key, Polarity: directive.Use}}, slices.Collect(again.Policies()))
			require.True(t, s.State.Equal(again))

			removed, d := directive.Step(s, "remove policy "+tc.key)
			require.True(t, d.Changed, "the key as shown names the item")
			require.Zero(t, removed.State.Len())
		})
	}
}

func TestUpperAndLowerCaseAreOneItem(t *testing.T) {
	_, d := replay("use J\u030c1", "prohibit \u01f01")
	require.Equal(t, "item_in_use", d.Code)
}

func TestImportRefusesWhatTheReferenceLetsPass(t *testing.T) {
	state := func(premise, policies, version string) string {
		return `{"premise":` + premise + `,"policies":{` + policies + `},"version":` + version + `}`
	}
	checkpoint := func(version, pending string) string {
		return `{"checkpoint_version":` + version + `,"authoritative_state":` + state("null", "", "2") + `,"pending":` + pending + `}`
	}
	tests := []struct {
		name, payload string
		checkpoint    bool
		want          string
	}{
		{"version 2.0", state("null", "", "2.0"), false, "unsupported_state_version"},
		{"version 2e0", state("null", "", "2e0"), false, "unsupported_state_version"},
		{"directive checkpoint version true", checkpoint("true", "null"), true, "unsupported_checkpoint_version"},
		{"directive checkpoint version 1.0", checkpoint("1.0", "null"), true, "unsupported_checkpoint_version"},
		{"list for a polarity", state("null", `"vim":[]`, "2"), false, "invalid_state"},
		{"object for a polarity", state("null", `"vim":{}`, "2"), false, "invalid_state"},
		{"list for the kind of a replacement", checkpoint("1", `{"kind":"replacement","prompt_to_user":"","replacement":{"kind":[],"new_item":"vim","old_item":null}}`), true, "invalid_checkpoint"},
		{"items alike, the later prohibited", state("null", `"Vim":"use","vim":"prohibit"`, "2"), false, "invalid_state"},
		{"items alike, the later in use", state("null", `"vim":"prohibit","VIM":"use"`, "2"), false, "invalid_state"},
		{"an item three times", state("null", `"v":"use","V":"prohibit","v":"use"`, "2"), false, "invalid_state"},
		{"a key twice at the top", `{"premise":"p","premise":"q","policies":{},"version":2}`, false, "invalid_state"},
		{"blank premise", state(`" \t"`, "", "2"), false, "invalid_state"},
		{"empty premise", state(`""`, "", "2"), false, "invalid_state"},
		{"NaN", state("NaN", "", "2"), false, "invalid_json"},
		{"Infinity", state("null", "", "Infinity"), false, "invalid_json"},
		{"lone surrogate", state(`"\udc00"`, "", "2"), false, "invalid_json"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var err error
			if tc.checkpoint {
				_, err = directive.ImportCheckpoint([]byte(tc.payload))
			} else {
				_, err = directive.ImportJSON([]byte(tc.payload))
			}
			require.Equal(t, tc.want, directive.ErrorCode(err))
			require.NotEmpty(t, directive.ErrorCode(err))
		})
	}
}

// The two words alone are an item; with a blank at either end of them a side of a replacement is missing.
func TestInsteadOfAloneIsAnItem(t *testing.T) {
	for _, in := range []string{"use instead of", "use instead of\n", "use instead of\u00a0", "use \tinstead of"} {
		s, d := replay(in)
		require.Equal(t, directive.Update, d.Kind, "%q: %s", in, d.Prompt)
		require.Equal(t, directive.Use, s.State.Policy("instead of"), "%q", in)
		trial := directive.Preview(nil, directive.Session{}, in)
		require.False(t, trial.Before.Equal(trial.After), "%q", in)
	}
	for _, in := range []string{
		"use  instead of", "use instead of ", "use  instead of ", "use x instead of", "use instead of x", "use the instead of",
		"use \u00a0 instead of x", "use x instead of \n",
	} {
		s, d := replay(in)
		require.Equal(t, "replacement_incomplete", d.Code, "%q", in)
		require.Equal(t, sidesMissing, d.Prompt, "%q", in)
		require.Zero(t, s.State.Len(), "%q", in)
	}
	s, d := replay("prohibit instead of", "use instead of")
	require.Equal(t, "item_prohibited", d.Code)
	require.Equal(t, 1, s.State.Len())
	s, d = directive.Step(directive.Session{}, "Use  Instead Of ", directive.AnyCase)
	require.Equal(t, directive.Update, d.Kind)
	require.Equal(t, directive.Use, s.State.Policy("instead of"), "in any case it means the same")
	_, d = directive.Step(directive.Session{}, "Use instead of")
	require.Empty(t, d.Hint, "nothing to propose")
}

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
