package directive

import (
	"context"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// Suggestion is a directive to be shown to the user. Nothing applies it: a host
// steps Directive when the user has agreed, and only then.
type Suggestion struct {
	Directive string // its case is kept; "": the drafter named none
	Grounded  bool   // the message says it, word for word and nothing besides
	Trial     Trial  // what it would do; zero without a directive
}

// Suggest asks a drafter about a message and validates its answer. A drafter is the host's own preprocessor, such as a
// model. It may be slow and may be wrong. It answers with one canonical directive, the word <NO_DIRECTIVE>, or a JSON
// object with exactly the keys classification and output; anything else suggests nothing. While a question is open
// Suggest does not ask, because only yes or no counts then. The error is the drafter's own.
//
// Without a drafter (nil) Suggest reads the message by its words: the first sentence with a standing instruction ("from now
// on use tabs", "… when I ask about medicines") or a preference ("I'd rather have tea") is suggested as premise, behind the
// premise that there is.
func Suggest(ctx context.Context, draft func(ctx context.Context, message string) (string, error), s Session, message string, opts ...Option) (Suggestion, error) {
	if s.Pending != nil {
		return Suggestion{}, nil
	}
	if draft == nil {
		draft = func(context.Context, string) (string, error) { return draftPremise(s.State.Premise(), message), nil }
	}
	output, err := draft(ctx, message)
	if err != nil {
		return Suggestion{}, fmt.Errorf("directive: draft: %w", err)
	}
	v := directivetext.Validate(output)
	if v.Class != directivetext.IsDirective {
		return Suggestion{}, nil
	}
	return Suggestion{v.Directive, directivetext.Grounded(v.Directive, message), Preview(nil, s, v.Directive, opts...)}, nil
}

// draftPremise drafts the directive that adds what a message wants of later answers to a premise; "": it wants nothing.
func draftPremise(premise, message string) string {
	switch wants := directivetext.StandingIn(message); {
	case wants == "":
		return ""
	case premise == "":
		return "set premise " + wants
	default:
		return "change premise to " + premise + "; " + wants
	}
}
