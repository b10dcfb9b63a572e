package directive

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// Polarity says whether an item is to be used or prohibited.
type Polarity uint8

// The two polarities. The zero Polarity means "no policy".
const (
	Use Polarity = 1 + iota
	Prohibit
)

// String gives the wire word: "use", "prohibit", or "" for no policy.
func (p Polarity) String() string {
	switch p {
	case Use:
		return "use"
	case Prohibit:
		return "prohibit"
	}
	return ""
}

// Policy is one item with its polarity. Item is a normalised key, see [Item].
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

// NewState builds a state from texts of the caller, which it normalises as an
// import does: a premise of white space only, an item that normalises to nothing
// and two items that normalise alike are errors ([ErrState]). No premise is "".
func NewState(premise string, policies map[string]Polarity) (State, error) {
	if premise != "" && Premise(premise) == "" {
		return State{}, fmt.Errorf("%w: a premise must not be blank; give \"\" for none", ErrState)
	}
	list := make([]Policy, 0, len(policies))
	for _, item := range slices.Sorted(maps.Keys(policies)) {
		list = append(list, Policy{item, policies[item]})
	}
	set, err := normalisedSet(list)
	if err != nil {
		return State{}, err
	}
	return State{Premise(premise), set}, nil
}

// normalisedSet takes over list and makes a set of it.
func normalisedSet(list []Policy) (policySet, error) {
	for i, p := range list {
		key := Item(p.Item)
		if key == "" {
			return policySet{}, fmt.Errorf("%w: policy item %q has no text left once normalised", ErrState, p.Item)
		}
		if p.Polarity != Use && p.Polarity != Prohibit {
			return policySet{}, fmt.Errorf("%w: policy %q must be \"use\" or \"prohibit\"", ErrState, p.Item)
		}
		list[i].Item = key
	}
	slices.SortFunc(list, byItem)
	for i := 1; i < len(list); i++ {
		if list[i].Item == list[i-1].Item {
			return policySet{}, fmt.Errorf("%w: two policy items stand for %q; keep one", ErrState, list[i].Item)
		}
	}
	return policySetOf(list), nil
}

func byItem(a, b Policy) int { return cmp.Compare(a.Item, b.Item) }

// Premise returns the premise, "" when none is set. A set premise is never blank.
func (s State) Premise() string { return s.premise }

// Policy returns the polarity of an item, 0 when it has none. The item is
// normalised first.
func (s State) Policy(item string) Polarity { return s.policies.get(Item(item)) }

// Len is the number of policies.
func (s State) Len() int { return s.policies.n }

// Items returns the item keys in code point order: all of them, or those with
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

// Equal reports whether both states say the same.
func (s State) Equal(o State) bool { return Diff(s, o).Empty() }

func (s State) withPremise(premise string) State { s.premise = premise; return s }

func (s State) with(key string, p Polarity) State {
	s.policies = s.policies.with(key, p)
	return s
}

func (s State) without(key string) State {
	s.policies = s.policies.without(key)
	return s
}
