package directive

import (
	"fmt"

	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// Kind is the result of a step.
type Kind uint8

// The kinds of a decision.
const (
	Passthrough Kind = iota // no directive: hand the input on to the model
	Update                  // a directive was carried out; Changed reports whether anything differs
	Clarify                 // nothing was changed; Prompt is for the user, and the model is not called
)

// String returns the wire word of the kind.
func (k Kind) String() string {
	switch k {
	case Update:
		return "update"
	case Clarify:
		return "clarify"
	}
	return "passthrough"
}

// Decision is the answer to one input.
type Decision struct {
	Kind    Kind
	State   State  // the own state after an Update; zero otherwise
	Changed bool   // whether that state differs from its predecessor
	Prompt  string // for the user, when it clarifies; "" otherwise
	// Code says for programs why it clarifies; "" otherwise. The words are part of the wire format and do not change:
	// premise_empty, premise_exists, premise_missing, near_miss_set_premise, near_miss_change_premise, item_empty,
	// item_prohibited, item_in_use, replacement_incomplete, replace_absent, replace_prohibited_old,
	// replace_prohibited_new, answer_needed, compound, inherited_prohibition, inherited_use.
	Code string

	// Repair lists directives of the strict grammar which, stepped in order with
	// no question open, do what was asked. For a question it is the change that "yes" stands
	// for. It is nil when only the user can supply what is missing.
	Repair []string

	// Scope is the ancestor that set the item, for the codes
	// inherited_prohibition and inherited_use.
	Scope string

	// Hint is the strict form of an input that passed through and that [AnyCase]
	// would read as a directive, such as "use zerolog" for "Use zerolog"; ""
	// otherwise. It is for the user's eyes: nothing was changed, and prose may
	// look like a directive, too. It is no part of the JSON form.
	Hint string
}

// Pending is an open question. It is never modified once made.
type Pending struct {
	New    string // to be used; as typed, not normalised
	Old    string // to be dropped; as typed. "": nothing is
	Prompt string // what was asked, and is asked again until answered
}

// Session is a state and the question that is open, if one is. It is a value: a
// step returns a new one. The zero Session is the initial one.
type Session struct {
	State   State
	Pending *Pending // nil when no question is open
}

// Option widens or narrows the grammar. All are off by default.
type Option uint8

// The options.
const (
	// AnyCase reads keywords in any ASCII case, with blanks and tabs before,
	// between and after them, and drops blanks at the ends: "Use Docker" is a
	// directive. The price is that more of ordinary prose is, too.
	AnyCase Option = 1 << iota

	// RefuseCompound answers "use x and prohibit y" with a clarify, which lists
	// the parts, where the grammar would store "x and prohibit y" as one item.
	// Inside a premise it does the same.
	RefuseCompound
)

// Step judges one input of the user and returns the session after it. It is pure; the given session does not change.
// Pass it only what the user typed, never the contents of a page.
func Step(s Session, input string, opts ...Option) (Session, Decision) {
	return StepIn(nil, s, input, opts...)
}

// StepIn is Step in a scope with ancestors, outermost first. It judges transitions on the joined state of the scope
// (see Join); only the scope's own session changes. What an ancestor prohibits cannot be used, and what it has set
// cannot be removed or reversed from below: such a step clarifies and names the ancestor.
func StepIn(ancestors []Scoped, s Session, input string, opts ...Option) (Session, Decision) {
	l := level{ancestors, s}
	if s.Pending != nil {
		d := l.answer(input)
		return l.own, d
	}
	var on Option
	for _, o := range opts {
		on |= o
	}
	if on&AnyCase != 0 {
		input = strictly(input)
	}
	c, ok := parse(input)
	if on&RefuseCompound != 0 {
		if parts := compound(c, input); parts != nil {
			return s, clarifyCompound(parts)
		}
	}
	if !ok {
		return s, Decision{Hint: hint(input)}
	}
	d := l.carryOut(c)
	return l.own, d
}

// level is a session at its place below its ancestors. A step leaves there the
// session after it.
type level struct {
	ancestors []Scoped
	own       Session
}

// holding is the rule for an item in a scope; scope is named when inherited.
type holding struct {
	polarity  Polarity
	inherited bool
	scope     string
}

// holds tells what holds for an item of which the own state says own: a
// prohibition of any level wins, and of equals the outermost.
func (l *level) holds(key string, own Polarity) holding {
	held := holding{polarity: own}
	for _, a := range l.ancestors {
		switch p := a.State.policies.get(key); {
		case p == Prohibit:
			return holding{Prohibit, true, a.Scope}
		case p == Use && own != Prohibit && !held.inherited:
			held = holding{Use, true, a.Scope}
		}
	}
	return held
}

// carryOut makes the transition of a directive, or says why not.
func (l *level) carryOut(c command) Decision {
	s := l.own.State
	switch c.verb {
	case clearPremise:
		return l.update(s.withPremise(""), s.premise != "")
	case resetPolicies:
		return l.update(State{premise: s.premise}, s.Len() > 0)
	case clearState:
		return l.update(State{}, s.premise != "" || s.Len() > 0)
	case nearSet, nearChange:
		return clarifyNearMiss(c, s)
	case setPremise, changePremise:
		return l.premise(c)
	case incomplete:
		return clarify(codeReplacementIncomplete, promptIncomplete)
	case replaceItem:
		return l.replace(c)
	}
	return l.item(c)
}

func (l *level) update(to State, changed bool) Decision {
	l.own = Session{State: to}
	return Decision{Kind: Update, State: to, Changed: changed}
}

func (l *level) premise(c command) Decision {
	value, before := directivetext.Premise(c.a), l.own.State.premise
	switch {
	case value == "" && c.verb == setPremise:
		return clarify(codePremiseEmpty, promptEmptySet)
	case value == "":
		return clarify(codePremiseEmpty, promptEmptyChange)
	case c.verb == setPremise && before != "":
		return clarify(codePremiseExists, promptPremiseExists, changeText(value))
	case c.verb == changePremise && before == "":
		return clarify(codePremiseMissing, promptPremiseMissing, setText(value))
	}
	return l.update(l.own.State.withPremise(value), value != before)
}

// item carries out use, prohibit and remove policy.
func (l *level) item(c command) Decision {
	key := directivetext.Item(c.a)
	if key == "" {
		return clarify(codeItemEmpty, promptEmptyItem(c.verb))
	}
	if c.verb == removeItem {
		return l.remove(key)
	}
	want, text := Use, useText
	if c.verb == prohibitItem {
		want, text = Prohibit, prohibitText
	}
	to, own := l.own.State.add(key, want)
	switch held := l.holds(key, own); {
	case held.polarity != "" && held.polarity != want:
		return clarifyHeld(key, held, text(key))
	case own != "" && own != want: // an ancestor has prohibited what is in use here
		return l.update(to.set(key, want), true)
	}
	return l.update(to, own == "")
}

func (l *level) remove(key string) Decision {
	to, own := l.own.State.remove(key)
	if held := l.holds(key, own); held.inherited {
		return clarifyInherited(key, held)
	}
	return l.update(to, own != "")
}

// replace carries out "use new instead of old", or opens a question about it.
func (l *level) replace(c command) Decision {
	newKey, oldKey := directivetext.Item(c.a), directivetext.Item(c.b)
	if newKey == "" {
		return clarify(codeReplacementIncomplete, promptIncomplete)
	}
	s := l.own.State
	if newKey == oldKey {
		return l.update(s, false)
	}
	if d, refused := l.refusesSwap(newKey, oldKey); refused {
		return d
	}
	to, oldOwn := s.remove(oldKey)
	if oldOwn == "" {
		return l.ask(codeReplaceAbsent, Pending{c.a, "", promptUseInstead(c.a)}, newKey, "")
	}
	to, newOwn := to.add(newKey, Use)
	switch {
	case oldOwn == Prohibit:
		return l.ask(codeReplaceProhibitedOld, Pending{c.a, c.b, promptOldProhibited(c.a, c.b)}, newKey, oldKey)
	case newOwn == Prohibit:
		return l.ask(codeReplaceProhibitedNew, Pending{c.a, c.b, promptNewProhibited(c.a, c.b)}, newKey, oldKey)
	}
	return l.update(to, true)
}

// refusesSwap reports whether an ancestor stands against dropping old and using new.
// oldKey is "" when nothing is dropped.
func (l *level) refusesSwap(newKey, oldKey string) (Decision, bool) {
	if len(l.ancestors) == 0 {
		return Decision{}, false
	}
	own := l.own.State.policies
	if held := l.holds(oldKey, own.get(oldKey)); oldKey != "" && held.inherited {
		return clarifyInherited(oldKey, held), true
	}
	if held := l.holds(newKey, own.get(newKey)); held.inherited && held.polarity == Prohibit {
		return clarifyInherited(newKey, held), true
	}
	return Decision{}, false
}

// ask opens a question about two keys; oldKey is "" when nothing is dropped.
func (l *level) ask(code string, p Pending, newKey, oldKey string) Decision {
	s := l.own.State
	l.own.Pending = &p
	return clarify(code, p.Prompt, s.swap(newKey, oldKey)...)
}

// answer takes an input for the answer to the open question. The grammar is off:
// whatever is no answer has the question asked again.
func (l *level) answer(input string) Decision {
	s, p := l.own.State, l.own.Pending
	kind := directivetext.AnswerTo(input)
	if kind == directivetext.No {
		return l.update(s, false)
	}
	newKey, oldKey := directivetext.Item(p.New), ""
	if p.Old != "" {
		oldKey = directivetext.Item(p.Old)
	}
	if kind == directivetext.NoAnswer {
		return clarify(codeAnswerNeeded, p.Prompt, s.swap(newKey, oldKey)...)
	}
	if newKey == oldKey {
		return l.update(s, false)
	}
	if d, refused := l.refusesSwap(newKey, oldKey); refused {
		// An ancestor has ruled since the question was put, so no answer can
		// carry it out any more: close it.
		l.own.Pending = nil
		return d
	}
	to, oldOwn := s.remove(oldKey)
	return l.update(to.set(newKey, Use), s.policies.get(newKey) != Use || oldOwn != "")
}

// swap lists the directives that drop old and put new in use.
func (s State) swap(newKey, oldKey string) []string {
	if newKey == oldKey {
		return nil
	}
	var list []string
	if s.policies.get(oldKey) != "" {
		list = append(list, removeText(oldKey))
	}
	if s.policies.get(newKey) == Prohibit {
		list = append(list, removeText(newKey))
	}
	return append(list, useText(newKey))
}

func clarify(code string, prompt string, repair ...string) Decision {
	return Decision{Kind: Clarify, Prompt: prompt, Code: code, Repair: repair}
}

// clarifyHeld refuses to use what is prohibited, or the reverse.
func clarifyHeld(key string, held holding, wanted string) Decision {
	switch {
	case held.inherited:
		return clarifyInherited(key, held)
	case held.polarity == Prohibit:
		return clarify(codeItemProhibited, fmt.Sprintf(promptProhibited, key), removeText(key), wanted)
	}
	return clarify(codeItemInUse, fmt.Sprintf(promptInUse, key), removeText(key), wanted)
}

func clarifyInherited(key string, held holding) Decision {
	d := clarify(codeInheritedUse, fmt.Sprintf(promptInheritedUse, key, held.scope))
	if held.polarity == Prohibit {
		d = clarify(codeInheritedProhibition, fmt.Sprintf(promptInheritedProhibition, key, held.scope))
	}
	d.Scope = held.scope
	return d
}

// clarifyNearMiss suggests what was probably meant; the repair fits the state.
func clarifyNearMiss(c command, s State) Decision {
	code, prompt := codeNearMissSet, "Did you mean 'set premise "+directivetext.Trim(c.a)+"'?"
	if c.verb == nearChange {
		code, prompt = codeNearMissChange, "Did you mean 'change premise to "+directivetext.Trim(c.a)+"'?"
	}
	if s.premise != "" {
		return clarify(code, prompt, changeText(directivetext.Premise(c.a)))
	}
	return clarify(code, prompt, setText(directivetext.Premise(c.a)))
}
