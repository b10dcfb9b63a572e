package directive

// Trial is the result that a step would have.
type Trial struct {
	Decision      Decision
	Before, After State
}

// Preview returns what StepIn would answer. It changes nothing.
func Preview(ancestors []Scoped, s Session, input string, opts ...Option) Trial {
	after, decision := StepIn(ancestors, s, input, opts...)
	return Trial{decision, s.State, after.State}
}
