package directive

import "slices"

// PolicyChange is an item whose polarity differs between two states.
type PolicyChange struct {
	Item          string
	Before, After Polarity
}

// Delta is the difference between two states. Its lists are in code point order
// of their items. "" stands for no premise.
type Delta struct {
	PremiseBefore, PremiseAfter string
	Added, Removed              []Policy
	Changed                     []PolicyChange
}

// PremiseChanged reports whether the premises differ.
func (d Delta) PremiseChanged() bool { return d.PremiseBefore != d.PremiseAfter }

// Empty reports whether the two states are equal.
func (d Delta) Empty() bool {
	return !d.PremiseChanged() && len(d.Added)+len(d.Removed)+len(d.Changed) == 0
}

// Diff returns the changes that lead from one state to another.
func Diff(before, after State) Delta {
	d := Delta{PremiseBefore: before.premise, PremiseAfter: after.premise}
	if before.policies.root == after.policies.root {
		return d
	}
	rest := slices.Collect(after.Policies())
	for a := range before.Policies() {
		for len(rest) > 0 && rest[0].Item < a.Item {
			d.Added = append(d.Added, rest[0])
			rest = rest[1:]
		}
		if len(rest) == 0 || rest[0].Item != a.Item {
			d.Removed = append(d.Removed, a)
			continue
		}
		if a.Polarity != rest[0].Polarity {
			d.Changed = append(d.Changed, PolicyChange{a.Item, a.Polarity, rest[0].Polarity})
		}
		rest = rest[1:]
	}
	d.Added = append(d.Added, rest...)
	return d
}

// Trial is what a step would do.
type Trial struct {
	Decision      Decision
	Before, After State
	Delta         Delta
}

// WouldMutate reports whether the state would change. Opening or closing a question does not count.
func (t Trial) WouldMutate() bool { return !t.Delta.Empty() }

// Preview returns what Step would answer. It changes nothing.
func Preview(s Session, input string, opts ...Option) Trial {
	return PreviewIn(nil, s, input, opts...)
}

// PreviewIn returns what StepIn would answer. It changes nothing.
func PreviewIn(ancestors []Scoped, s Session, input string, opts ...Option) Trial {
	after, decision := StepIn(ancestors, s, input, opts...)
	return Trial{decision, s.State, after.State, Diff(s.State, after.State)}
}
