package directive

import "iter"

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

// Policy is one item with its polarity. Item is always a normalised key (see [Item]).
type Policy struct {
	Item     string
	Polarity Polarity
}

// State is the authoritative state: one premise and a set of policies.
// It is immutable, so copies are free and every use is safe concurrently.
// The zero State is the initial state: no premise, no policies.
type State struct {
	premise  string
	policies policySet
}

// NewState builds a state from texts of the caller, normalising them as an
// import does. The errors are those of [ImportJSON].
func NewState(premise string, policies map[string]Polarity) (State, error) { panic("skeleton") }

// Premise returns the premise, "" when none is set. A set premise is never blank.
func (s State) Premise() string { return s.premise }

// Policy returns the polarity of an item, or zero. The item is normalised first.
func (s State) Policy(item string) Polarity { panic("skeleton") }

// Len is the number of policies.
func (s State) Len() int { panic("skeleton") }

// Items returns the item keys in code point order: all of them, or only those
// with one of the given polarities.
func (s State) Items(only ...Polarity) []string { panic("skeleton") }

// Policies yields the policies in code point order of their items.
func (s State) Policies() iter.Seq[Policy] { panic("skeleton") }

// Equal reports whether both states say the same.
func (s State) Equal(o State) bool { panic("skeleton") }

type policySet struct{}
