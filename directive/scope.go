package directive

import (
	"maps"
	"slices"
	"strings"
)

// Scoped is the own state of a scope.
type Scoped struct {
	Scope string
	State State
}

// ScopedPremise is a premise and the scope that set it.
type ScopedPremise struct {
	Scope   string
	Premise string
}

// ScopedPolicy is a policy and the scope that set it.
type ScopedPolicy struct {
	Scope string
	Policy
}

// Effective is the effective state of a scope: its own joined with its ancestors'.
type Effective struct {
	Premises []ScopedPremise // outermost first
	Policies []ScopedPolicy  // in code point order of their items
}

// Join computes the effective state of levels, outermost first, the scope itself last. The premises of all levels apply
// together. If several levels set an item, a prohibition wins; of equal policies the outermost is named.
func Join(levels ...Scoped) Effective {
	var e Effective
	joined := map[string]ScopedPolicy{}
	for _, l := range levels {
		if p := l.State.premise; p != "" {
			e.Premises = append(e.Premises, ScopedPremise{l.Scope, p})
		}
		for p := range l.State.Policies() {
			if had, ok := joined[p.Item]; !ok || had.Polarity == Use && p.Polarity == Prohibit {
				joined[p.Item] = ScopedPolicy{l.Scope, p}
			}
		}
	}
	for _, item := range slices.Sorted(maps.Keys(joined)) {
		e.Policies = append(e.Policies, joined[item])
	}
	return e
}

// Text is the state as lines for a model: the premises, outermost first, then the policies; "" for an empty state. It
// names no scope.
func (e Effective) Text() string {
	var b strings.Builder
	for _, p := range e.Premises {
		b.WriteString("premise: " + p.Premise + "\n")
	}
	if len(e.Policies) > 0 {
		b.WriteString("policies:\n")
	}
	for _, p := range e.Policies {
		b.WriteString("- " + string(p.Polarity) + " " + p.Item + "\n")
	}
	return b.String()
}

// Text is the state as lines for a model, see [Effective.Text].
func (s State) Text() string { return Join(Scoped{State: s}).Text() }
