package directive

import "context"

// Class is what a preprocessor makes of a whole message.
type Class uint8

// The classes.
const (
	Unknown     Class = iota // may be about a directive; do not touch it
	NoDirective              // certainly none
	IsDirective              // exactly one
)

// Finding is the answer of the rule-based preprocessor.
type Finding struct {
	Class     Class
	Directive string // canonical, for IsDirective
	Rule      string // the id of the rule that decided
}

// Preprocess reads a whole message as one canonical directive or abstains.
func Preprocess(message string) Finding { panic("skeleton") }

// Drafter is a host's own preprocessor, a model say. It may be slow; it is called under no lock.
type Drafter func(ctx context.Context, message string) (string, error)

// Suggestion is a directive to show to the user. It is never applied by itself:
// the host steps Directive once the user agreed.
type Suggestion struct {
	Class     Class
	Directive string // "" unless Class is IsDirective
	Grounded  bool   // the message itself says it, word for word
	Trial     Trial  // what it would do
}

// Suggest asks the drafter and validates its answer as [Validate] does.
func Suggest(ctx context.Context, draft Drafter, s Session, message string, opts ...Option) (Suggestion, error) {
	panic("skeleton")
}
