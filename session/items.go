package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// listStatement runs the statements that go over the items of a list.
func (l *Ledger) listStatement(s *sentence) error {
	items, ok := l.lists[s.name]
	if !ok {
		return fmt.Errorf("list %s is not declared", s.name)
	}
	of := l.items[s.name]
	if s.verb == "each" && of != record {
		if show := s.body[0]; len(show.values) > 1 {
			return errors.New("several fields are shown of records only")
		}
		return l.show(s.body[0])
	}
	if of == record || s.verb == "each" {
		return nil // what a record of a list has is not looked at
	}
	if s.param == s.name {
		return fmt.Errorf("an item of %s needs a name of its own", s.name)
	}
	if of == "" {
		of = number // what an empty list has for the language
	}
	if err := l.checkItems(s.cond, of, s.param); err != nil {
		return err
	}
	for _, item := range items {
		holds, err := l.holdsFor(s, binding{kind: of, text: item})
		if err != nil {
			return err
		}
		if s.verb == "require each" && !holds {
			return errStopped
		}
	}
	return nil
}

// holdsFor asks a condition of an item, which has a name there.
func (l *Ledger) holdsFor(s *sentence, item binding) (bool, error) {
	if s.param != "" {
		defer l.bindFor(s.param, item)()
	}
	return l.holds(s.cond, &item, 0)
}

// checkItems looks whether what is compared with the items of a list can be.
func (l *Ledger) checkItems(c *condition, of, name string) error {
	if c.op == "and" || c.op == "or" {
		if err := l.checkItems(c.l, of, name); err != nil {
			return err
		}
		return l.checkItems(c.r, of, name)
	}
	if c.subject.op != "each" && (c.subject.op != "name" || c.subject.text != name) {
		return errors.New("an item of a list is \"each\" in a condition")
	}
	if c.op == predicate {
		return nil
	}
	item := &binding{kind: of}
	if name != "" {
		defer l.bindFor(name, *item)()
	}
	kinds := []string{of}
	for _, e := range []expr{c.value, c.value2} {
		if e.op == "" {
			continue
		}
		kind := of
		if e.op != "each" && e.l == nil {
			var err error
			if kind, err = l.kindOf(e); err != nil {
				return err
			}
		}
		kinds = append(kinds, kind)
	}
	ordered := c.op == "above" || c.op == "below" || c.op == "within"
	if c.op == "includes" || ordered && slices.ContainsFunc(kinds, func(k string) bool { return k != number && k != date }) {
		return fmt.Errorf("%q cannot compare %s", c.op, strings.Join(kinds, " with "))
	}
	return nil
}
