package session

import (
	"fmt"
	"slices"
)

// valueOf is what a statement gives where a value stands.
func (l *Ledger) valueOf(s *sentence, depth int) (binding, error) {
	switch {
	case s.verb == "count" || s.verb == "sum":
		return l.counted(s)
	case s.verb == "call":
		return l.call(s, true, depth)
	case s.verb == "remember" && len(s.body) > 0:
		v, err := l.valueOf(s.body[0], depth)
		if err == nil {
			v.sort = s.sort
			err = l.put(s.name, v)
		}
		return v, err
	}
	return binding{}, fmt.Errorf("%q returns no value", s.verb)
}

// call executes a composition: with its parameter as it is given, which is what
// it was before afterwards.
func (l *Ledger) call(s *sentence, wanted bool, depth int) (v binding, err error) {
	c := l.values[s.name]
	switch {
	case c.kind != composition:
		return v, fmt.Errorf("%s is not a composition", s.name)
	case (c.param != "") != (s.param != ""):
		return v, fmt.Errorf("%s is called with an argument that it does not take, or without one that it needs", s.name)
	}
	if c.param != "" {
		given, err := l.eval(s.values[0], nil)
		if err != nil {
			return v, err
		}
		defer l.bindFor(c.param, given)()
	}
	body, last := c.body, c.body
	if body.verb == "sequence" {
		if err := l.makesSense(body, depth+1); err != nil {
			return v, err
		}
		last = body.body[len(body.body)-1]
	}
	if err := l.spend(1, depth); err != nil {
		return v, err
	}
	if !wanted {
		return v, l.runIn(body, depth+1)
	}
	if body != last {
		for _, part := range body.body[:len(body.body)-1] {
			if err := l.runIn(part, depth+1); err != nil {
				return v, err
			}
		}
	}
	return l.valueOf(last, depth+1)
}

// bindFor gives a name a value until what it returns is called.
func (l *Ledger) bindFor(name string, v binding) (restore func()) {
	list, wasList := l.lists[name]
	of, was := l.items[name], l.values[name]
	_, wasValue := l.values[name]
	delete(l.lists, name)
	delete(l.values, name)
	if v.kind == aList {
		l.lists[name], l.items[name] = slices.Clone(v.list), v.of
	} else {
		l.values[name] = v
	}
	return func() {
		delete(l.lists, name)
		delete(l.items, name)
		delete(l.values, name)
		if wasList {
			l.lists[name] = list
			if of != "" {
				l.items[name] = of
			}
		}
		if wasValue {
			l.values[name] = was
		}
	}
}
