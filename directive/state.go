package directive

import (
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// Polarity is the decision about an item: "use", "prohibit", or "" for no policy.
type Polarity string

// The two polarities.
const (
	Use      Polarity = "use"
	Prohibit Polarity = "prohibit"
)

// Policy is one item with its polarity. Item is a normalised key, see the package comment.
type Policy struct {
	Item     string
	Polarity Polarity
}

// State is the authoritative state: one premise and a set of policies.
// It is immutable: a copy costs nothing and any number of goroutines may read it.
// The zero State is the initial state, without premise and policies.
type State struct {
	premise  string // normalised; "" is none
	policies policySet
}

// NewState builds a state from texts, normalised as Step does. They are set in order, so of two items with
// the same key the later one counts. "" is no premise. A premise of white space only, an item that normalises to
// nothing and an unknown polarity are errors (errState).
func NewState(premise string, policies ...Policy) (State, error) {
	if premise != "" && directivetext.Premise(premise) == "" {
		return State{}, fmt.Errorf("%w: a premise must not be blank; give \"\" for none", errState)
	}
	list, err := normalised(policies)
	if err != nil {
		return State{}, err
	}
	slices.Reverse(list)
	sort.SliceStable(list, func(i, j int) bool { return byItem(list[i], list[j]) < 0 })
	list = slices.CompactFunc(list, func(a, b Policy) bool { return a.Item == b.Item })
	return State{directivetext.Premise(premise), policySetOf(list)}, nil
}

// normalised returns the list with keys for items.
func normalised(list []Policy) ([]Policy, error) {
	keyed := make([]Policy, len(list))
	for i, p := range list {
		keyed[i] = Policy{directivetext.Item(p.Item), p.Polarity}
		if keyed[i].Item == "" {
			return nil, fmt.Errorf("%w: policy item %q has no text left once normalised", errState, p.Item)
		}
		if p.Polarity != Use && p.Polarity != Prohibit {
			return nil, fmt.Errorf("%w: policy %q must be \"use\" or \"prohibit\"", errState, p.Item)
		}
	}
	return keyed, nil
}

// distinctSet makes a set of a list; it refuses items that normalise alike, for
// the order of a JSON object says nothing about which one was meant.
func distinctSet(list []Policy) (policySet, error) {
	keyed, err := normalised(list)
	if err != nil {
		return policySet{}, err
	}
	sort.Slice(keyed, func(i, j int) bool { return byItem(keyed[i], keyed[j]) < 0 })
	for i := 1; i < len(keyed); i++ {
		if keyed[i].Item == keyed[i-1].Item {
			return policySet{}, fmt.Errorf("%w: two policy items stand for %q; keep one", errState, keyed[i].Item)
		}
	}
	return policySetOf(keyed), nil
}

func byItem(a, b Policy) int { return strings.Compare(a.Item, b.Item) }

// Premise returns the premise, "" when none is set. A set premise is never blank.
func (s State) Premise() string { return s.premise }

// Policy returns the polarity of an item, "" when it has none. The item is
// normalised first.
func (s State) Policy(item string) Polarity { return s.policies.get(directivetext.Item(item)) }

// Len is the number of policies.
func (s State) Len() int { return s.policies.n }

// Items returns the item keys in code point order: all, or those with
// one of the given polarities.
func (s State) Items(only ...Polarity) []string {
	items := make([]string, 0, s.Len())
	for p := range s.Policies() {
		if len(only) == 0 || slices.Contains(only, p.Polarity) {
			items = append(items, p.Item)
		}
	}
	return items
}

// Policies yields the policies in code point order of their items.
func (s State) Policies() iter.Seq[Policy] { return s.policies.all() }

// Equal reports whether both states are equal.
func (s State) Equal(o State) bool {
	return s.premise == o.premise && s.Len() == o.Len() && (s.policies.root == o.policies.root || slices.Equal(slices.Collect(s.Policies()), slices.Collect(o.Policies())))
}

func (s State) withPremise(premise string) State { s.premise = premise; return s }

func (s State) add(key string, p Polarity) (State, Polarity) {
	set, had := s.policies.add(key, p)
	s.policies = set
	return s, had
}

func (s State) remove(key string) (State, Polarity) {
	set, had := s.policies.remove(key)
	s.policies = set
	return s, had
}

// set is add for a key that may have another polarity.
func (s State) set(key string, p Polarity) State {
	s, _ = s.remove(key)
	s, _ = s.add(key, p)
	return s
}

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

// Message is one message of a transcript. Only those whose Role is exactly
// "user" count.
type Message struct {
	Role    string
	Content string
}

// Outcome is the result of a transcript: a state, or a question that stopped it.
type Outcome struct {
	State   State  // the state reached, also when it stopped
	Stopped bool   // a clarify ended the run; later messages were not read
	Prompt  string // what it asked
	Read    int    // messages read, the stopping one included
}

// Apply steps a transcript on s. The first clarification ends it; changes made before it stay, and a question that it
// opened stays open. The first user message answers a question that was open before.
func Apply(s Session, messages []Message, opts ...Option) (Session, Outcome) {
	for i, m := range messages {
		if m.Role != "user" {
			continue
		}
		var d Decision
		if s, d = Step(s, m.Content, opts...); d.Kind == Clarify {
			return s, Outcome{s.State, true, d.Prompt, i + 1}
		}
	}
	return s, Outcome{State: s.State, Read: len(messages)}
}

// Entry is one version of the directives of a scope: its state and how it came about.
type Entry struct {
	Version  uint64
	At       time.Time
	Actor    string
	Action   string   // step, restore or import
	Input    string   // of a step
	Decision Decision // the answer to a step; of the others its Kind is Update
	After    Session
}
