package directive

// PolicyChange is an item whose polarity differs.
type PolicyChange struct {
	Item          string
	Before, After Polarity
}

// Delta is the difference between two states. Items are in code point order.
type Delta struct {
	PremiseBefore, PremiseAfter string
	Added, Removed              []Policy
	Changed                     []PolicyChange
}

// Empty reports whether the two states were equal.
func (d Delta) Empty() bool { panic("skeleton") }

// Diff compares two states.
func Diff(before, after State) Delta { panic("skeleton") }

// Trial is what a step would do.
type Trial struct {
	Decision      Decision
	Before, After State
	Delta         Delta
}

// WouldMutate tells whether the authoritative state would differ. Whether a
// question would be opened or closed does not count.
func (t Trial) WouldMutate() bool { return !t.Delta.Empty() }

// Preview tells what [Step] would answer; nothing is changed.
func Preview(s Session, input string, opts ...Option) Trial { return PreviewIn(nil, s, input, opts...) }

// PreviewIn tells what [StepIn] would answer.
func PreviewIn(ancestors []Scoped, s Session, input string, opts ...Option) Trial { panic("skeleton") }
