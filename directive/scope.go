package directive

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

// ScopedPolicy is a policy and the outermost scope that set it.
type ScopedPolicy struct {
	Scope string
	Policy
}

// Effective is what holds in a scope: its own state joined with its ancestors'.
type Effective struct {
	Premises []ScopedPremise // outermost first
	Policies []ScopedPolicy  // in code point order of their items; a prohibition anywhere wins
}

// Join computes the effective state over levels, outermost first, own state last.
func Join(levels ...Scoped) Effective { panic("skeleton") }

// Policy returns what holds for an item and the scope that set it.
func (e Effective) Policy(item string) (ScopedPolicy, bool) { panic("skeleton") }

// Text renders the effective state for a model: premises outermost first, then policies; "" when empty.
func (e Effective) Text() string { panic("skeleton") }

// StepIn is [Step] in a scope with ancestors (outermost first): transitions are
// judged on the effective state, and only the own session changes.
func StepIn(ancestors []Scoped, s Session, input string, opts ...Option) (Session, Decision) {
	panic("skeleton")
}
