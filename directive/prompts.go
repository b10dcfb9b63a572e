package directive

import (
	"context"
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// The codes of a clarify (Decision.Code). The last column of a line says what is the matter;
// the three Replace codes open a question that only a yes or no closes.
const (
	codePremiseEmpty          = "premise_empty"            // set or change without a value
	codePremiseExists         = "premise_exists"           // set while one is set
	codePremiseMissing        = "premise_missing"          // change while none is set
	codeNearMissSet           = "near_miss_set_premise"    // "set premise to x"
	codeNearMissChange        = "near_miss_change_premise" // "change premise x"
	codeItemEmpty             = "item_empty"               // use, prohibit or remove policy without an item
	codeItemProhibited        = "item_prohibited"          // use of a prohibited item
	codeItemInUse             = "item_in_use"              // prohibit of an item in use
	codeReplacementIncomplete = "replacement_incomplete"   // a side of "instead of" is missing
	codeReplaceAbsent         = "replace_absent"           // the old item has no policy
	codeReplaceProhibitedOld  = "replace_prohibited_old"   // the old item is prohibited
	codeReplaceProhibitedNew  = "replace_prohibited_new"   // the new item is prohibited
	codeAnswerNeeded          = "answer_needed"            // a question is open and this was no answer
	codeCompound              = "compound"                 // several directives at once, see RefuseCompound
	codeInheritedProhibition  = "inherited_prohibition"    // an ancestor prohibits the item
	codeInheritedUse          = "inherited_use"            // an ancestor has the item in use
)

// The prompts are part of the contract with hosts that show them, word for word.
const (
	promptEmptySet       = "Premise value cannot be empty.\nUse 'set premise <value>' with a non-empty value."
	promptEmptyChange    = "Premise value cannot be empty.\nUse 'change premise to <value>' with a non-empty value."
	promptPremiseExists  = "Premise already set.\nUse 'change premise to <value>' to modify it."
	promptPremiseMissing = "No premise is set.\nUse 'set premise <value>' to define one."
	promptIncomplete     = "Replacement requires both new and old items.\nUse 'use <new item> instead of <old item>' with non-empty values."
	promptProhibited     = "\"%s\" is currently prohibited.\nRemove or replace it before using it."
	promptInUse          = "\"%s\" is currently in use.\nRemove or replace it before prohibiting it."

	promptInheritedProhibition = "\"%s\" is prohibited by scope \"%s\".\nOnly a directive given in that scope can lift it."
	promptInheritedUse         = "\"%s\" is in use by scope \"%s\".\nOnly a directive given in that scope can remove it."
)

func promptEmptyItem(v verb) string {
	directive := "remove policy"
	switch v {
	case useItem:
		directive = "use"
	case prohibitItem:
		directive = "prohibit"
	}
	return "Policy item cannot be empty.\nUse '" + directive + " <item>' with a non-empty value."
}

// The questions show the items as they were typed.

func promptUseInstead(newItem string) string {
	return "Did you mean to use \"" + newItem + "\" instead?"
}

func promptOldProhibited(newItem, old string) string {
	return "\"" + old + "\" is currently prohibited. Did you mean to remove it and use \"" + newItem + "\" instead?"
}

func promptNewProhibited(newItem, old string) string {
	return "\"" + newItem + "\" is currently prohibited. Did you mean to remove \"" + old + "\" and use \"" + newItem + "\" instead?"
}

// The directives of a repair, from normalised operands.

func removeText(key string) string   { return "remove policy " + key }
func prohibitText(key string) string { return "prohibit " + key }
func changeText(value string) string { return "change premise to " + value }

// setText doubles the blank before a value that begins with "to", which the
// grammar would take for a near miss.
func setText(value string) string {
	if strings.HasPrefix(value, "to ") {
		return "set premise  " + value
	}
	return "set premise " + value
}

// useText doubles the blank within an "instead of" that belongs to the item, so
// that it is not read as a replacement. Normalising takes it out again.
func useText(key string) string {
	return "use " + strings.ReplaceAll(key, "instead of", "instead  of")
}

func clarifyCompound(parts []string) Decision {
	if len(parts) == 1 {
		return clarify(codeCompound, "A directive inside a premise.\nEnter it by itself: '"+parts[0]+"'.", parts...)
	}
	prompt := "Several directives in one.\nEnter them one at a time: '" + strings.Join(parts, "', then '") + "'."
	return clarify(codeCompound, prompt, parts...)
}

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
