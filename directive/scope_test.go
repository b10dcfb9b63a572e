package directive_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ctxpage/ctxpage/directive"
)

func ancestors(t require.TestingT) []directive.Scoped {
	org, d := replay("set premise We sell shoes.", "prohibit peanuts", "use docker")
	require.Equal(t, directive.Update, d.Kind)
	team, d := replay("set premise Answer in French.", "use peanuts", "use vim", "prohibit vendor X")
	require.Equal(t, directive.Update, d.Kind)
	return []directive.Scoped{{Scope: "acme", State: org.State}, {Scope: "acme/support", State: team.State}}
}

func TestJoin(t *testing.T) {
	own, _ := replay("set premise The customer is a nurse.", "prohibit docker", "use vim", "use emacs")
	e := directive.Join(append(ancestors(t), directive.Scoped{Scope: "acme/support/7", State: own.State})...)
	require.Equal(t, []directive.ScopedPremise{
		{Scope: "acme", Premise: "We sell shoes."},
		{Scope: "acme/support", Premise: "Answer in French."},
		{Scope: "acme/support/7", Premise: "The customer is a nurse."},
	}, e.Premises)
	require.Equal(t, []directive.ScopedPolicy{
		{Scope: "acme/support/7", Policy: directive.Policy{Item: "docker", Polarity: directive.Prohibit}},
		{Scope: "acme/support/7", Policy: directive.Policy{Item: "emacs", Polarity: directive.Use}},
		{Scope: "acme", Policy: directive.Policy{Item: "peanuts", Polarity: directive.Prohibit}},
		{Scope: "acme/support", Policy: directive.Policy{Item: "vendor x", Polarity: directive.Prohibit}},
		{Scope: "acme/support", Policy: directive.Policy{Item: "vim", Polarity: directive.Use}},
	}, e.Policies)
	require.Equal(t, `premise: We sell shoes.
premise: Answer in French.
premise: The customer is a nurse.
policies:
- prohibit docker
- use emacs
- prohibit peanuts
- prohibit vendor x
- use vim
`, e.Text())
	require.Empty(t, directive.Join().Text())
}

func TestStepIn(t *testing.T) {
	tests := []struct {
		name  string
		own   []string
		input string
		kind  directive.Kind
		code  string
		scope string
		after string // items of the own state
	}{
		{"an inherited prohibition cannot be overridden", nil, "use peanuts", directive.Clarify, "inherited_prohibition", "acme", ""},
		{"nor one of the nearer ancestor", nil, "use Vendor X", directive.Clarify, "inherited_prohibition", "acme/support", ""},
		{"nor lifted", nil, "remove policy peanuts", directive.Clarify, "inherited_prohibition", "acme", ""},
		{"an inherited use cannot be prohibited", nil, "prohibit docker", directive.Clarify, "inherited_use", "acme", ""},
		{"nor removed", nil, "remove policy vim", directive.Clarify, "inherited_use", "acme/support", ""},
		{"nor replaced", nil, "use podman instead of docker", directive.Clarify, "inherited_use", "acme", ""},
		{"a replacement cannot bring in what is prohibited above", []string{"use emacs"}, "use peanuts instead of emacs", directive.Clarify, "inherited_prohibition", "acme", "emacs"},
		{"and is not even asked about", nil, "use peanuts instead of soap", directive.Clarify, "inherited_prohibition", "acme", ""},
		{"what is inherited may be said again", nil, "prohibit peanuts", directive.Update, "", "", "peanuts"},
		{"also an inherited use", nil, "use docker", directive.Update, "", "", "docker"},
		{"own items are free", []string{"use emacs"}, "remove policy emacs", directive.Update, "", "", ""},
		{"own contradictions clarify as ever", []string{"use emacs"}, "prohibit emacs", directive.Clarify, "item_in_use", "", "emacs"},
		{"an own premise stands beside the inherited", nil, "set premise Be kind.", directive.Update, "", "", ""},
		{"only the own premise can be changed", nil, "change premise to Be kind.", directive.Clarify, "premise_missing", "", ""},
		{"reset clears the own policies", []string{"use emacs"}, "reset policies", directive.Update, "", "", ""},
		{"talk passes through", nil, "hello", directive.Passthrough, "", "", ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			own, _ := replay(tc.own...)
			above := ancestors(t)
			after, d := directive.StepIn(above, own, tc.input)
			require.Equal(t, tc.kind, d.Kind, d.Prompt)
			require.Equal(t, tc.code, d.Code)
			require.Equal(t, tc.scope, d.Scope)
			if tc.scope != "" {
				require.Contains(t, d.Prompt, `"`+tc.scope+`"`)
			}
			items := after.State.Items()
			require.LessOrEqual(t, len(items), 1)
			require.Equal(t, tc.after != "", len(items) == 1 && items[0] == tc.after)
			trial := directive.Preview(above, own, tc.input)
			require.Equal(t, d.AppendJSON(nil), trial.Decision.AppendJSON(nil))
		})
	}
}

// An own policy given before the ancestor ruled otherwise stays stored, does not
// hold, and can be dropped where it lies beneath the ruling.
func TestStepInAfterTheAncestorRuled(t *testing.T) {
	own, _ := replay("use peanuts", "prohibit vim")
	above := ancestors(t)
	_, d := directive.StepIn(above, own, "use peanuts")
	require.Equal(t, "inherited_prohibition", d.Code)
	s, d := directive.StepIn(above, own, "prohibit peanuts")
	require.Equal(t, directive.Update, d.Kind, "it agrees with the ancestor now")
	require.Equal(t, directive.Prohibit, s.State.Policy("peanuts"))
	s, d = directive.StepIn(above, own, "remove policy vim")
	require.Equal(t, directive.Update, d.Kind, "the prohibition is its own, the use above shows again")
	require.Zero(t, s.State.Policy("vim"))
}

func TestAQuestionOvertakenByAnAncestorIsClosed(t *testing.T) {
	open, d := replay("use peanuts instead of soap")
	require.Equal(t, "replace_absent", d.Code)
	closed, d := directive.StepIn(ancestors(t), open, "yes")
	require.Equal(t, "inherited_prohibition", d.Code)
	require.Nil(t, closed.Pending)
	require.Zero(t, closed.State.Len())
	// Without the ancestor the same answer is carried out.
	_, d = directive.Step(open, "yes")
	require.Equal(t, directive.Update, d.Kind)
}

func TestNoStepBelowLiftsAProhibitionAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		above := []directive.Scoped{
			{Scope: "a", State: session().Draw(t, "outer").State},
			{Scope: "a/b", State: session().Draw(t, "inner").State},
		}
		before := directive.Join(above...)
		s := session().Draw(t, "own")
		for _, in := range inputs().Draw(t, "inputs") {
			was := s
			var d directive.Decision
			s, d = directive.StepIn(above, s, in)
			require.Equal(t, d.Changed, !was.State.Equal(s.State))
			require.Equal(t, d.Scope != "", d.Code == "inherited_prohibition" || d.Code == "inherited_use")
		}
		e := directive.Join(append(above, directive.Scoped{Scope: "a/b/c", State: s.State})...)
		for _, p := range before.Policies {
			i := slices.IndexFunc(e.Policies, func(now directive.ScopedPolicy) bool { return now.Item == p.Item })
			require.GreaterOrEqual(t, i, 0)
			if p.Polarity == directive.Prohibit {
				require.Equal(t, p, e.Policies[i])
			}
		}
	})
}

func TestStepInWithoutAncestorsIsStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, in := session().Draw(t, "s"), input().Draw(t, "in")
		a, da := directive.Step(s, in)
		b, db := directive.StepIn([]directive.Scoped{{Scope: "root"}}, s, in)
		require.Equal(t, bytesOf(a), bytesOf(b))
		require.Equal(t, da.Code, db.Code)
		require.Equal(t, da.AppendJSON(nil), db.AppendJSON(nil))
	})
}
