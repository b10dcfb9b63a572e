package commands

import (
	"slices"
	"strconv"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/directivetext"
)

// PolicyChange is an item whose polarity differs between two states.
type PolicyChange struct {
	Item          string
	Before, After directive.Polarity
}

// Delta is the difference between two states. Its lists are in code point order
// of their items. "" stands for no premise.
type Delta struct {
	PremiseBefore, PremiseAfter string
	Added, Removed              []directive.Policy
	Changed                     []PolicyChange
}

// PremiseChanged reports whether the premises differ.
func (d Delta) PremiseChanged() bool { return d.PremiseBefore != d.PremiseAfter }

// Empty reports whether the two states are equal.
func (d Delta) Empty() bool {
	return !d.PremiseChanged() && len(d.Added)+len(d.Removed)+len(d.Changed) == 0
}

// Diff returns the changes that lead from one state to another.
func Diff(before, after directive.State) Delta {
	d := Delta{PremiseBefore: before.Premise(), PremiseAfter: after.Premise()}
	rest := slices.Collect(after.Policies())
	for a := range before.Policies() {
		for len(rest) > 0 && rest[0].Item < a.Item {
			d.Added = append(d.Added, rest[0])
			rest = rest[1:]
		}
		if len(rest) == 0 || rest[0].Item != a.Item {
			d.Removed = append(d.Removed, a)
			continue
		}
		if a.Polarity != rest[0].Polarity {
			d.Changed = append(d.Changed, PolicyChange{a.Item, a.Polarity, rest[0].Polarity})
		}
		rest = rest[1:]
	}
	d.Added = append(d.Added, rest...)
	return d
}

// AppendJSON appends the delta as canonical JSON.
func (d Delta) AppendJSON(b []byte) []byte {
	b = strconv.AppendBool(append(b, `{"changed":`...), !d.Empty())
	b = appendPolicies(append(b, `,"policies":{"added":`...), d.Added)
	b = append(b, `,"changed":{`...)
	for i, c := range d.Changed {
		b = directivetext.AppendString(appendComma(b, i), c.Item)
		b = directivetext.AppendString(append(b, `:{"after":`...), string(c.After))
		b = directivetext.AppendString(append(b, `,"before":`...), string(c.Before))
		b = append(b, '}')
	}
	b = appendPolicies(append(b, `},"removed":`...), d.Removed)
	b = directivetext.AppendText(append(b, `},"premise":{"after":`...), d.PremiseAfter)
	b = directivetext.AppendText(append(b, `,"before":`...), d.PremiseBefore)
	b = strconv.AppendBool(append(b, `,"changed":`...), d.PremiseChanged())
	return append(b, "}}"...)
}

func appendPolicies(b []byte, list []directive.Policy) []byte {
	b = append(b, '{')
	for i, p := range list {
		b = appendPolicy(appendComma(b, i), p)
	}
	return append(b, '}')
}

func appendPolicy(b []byte, p directive.Policy) []byte {
	return directivetext.AppendString(append(directivetext.AppendString(b, p.Item), ':'), string(p.Polarity))
}

func appendComma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}
