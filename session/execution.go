package session

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errStopped ends a line whose duty is not kept. It is no error of the file.
var errStopped = errors.New("a requirement is not met, or a forbidden condition holds")

// errAbsent is known when a line is executed, not before.
var errAbsent = errors.New("the item to remove is not in the list")

const deepest = 150 // calls and predicates in one another

// handler checks the first line of a handler.
func (l *Ledger) handler(words []word) error {
	words, err := ordered(words)
	if err != nil {
		return err
	}
	p := &parser{words: words, l: l}
	inherited := p.skip(anOperator, "inherited")
	p.next() // when
	for {
		c, err := p.unmixed()
		if err != nil {
			return err
		}
		if err := l.checkCondition(c); err != nil {
			return err
		}
		if !p.skip(aLink, "unless") {
			break
		}
	}
	if inherited && p.skip(aLink, "from") && p.next().sort != aName {
		return errors.New("expected the name of an agent after \"from\"")
	}
	p.skip(aColon)
	if len(p.words) > 0 {
		return fmt.Errorf("%s was not expected there", p.peek(0))
	}
	return nil
}

// run executes a statement.
func (l *Ledger) run(s *sentence) error { return l.runIn(s, 0) }

func (l *Ledger) runIn(s *sentence, depth int) error {
	if err := l.spend(1, depth); err != nil {
		return err
	}
	switch s.verb {
	case "sequence":
		for _, part := range s.body {
			if err := l.runIn(part, depth); err != nil {
				return err
			}
		}
		return nil
	case "remember":
		return l.remember(s, depth)
	case "how to":
		return l.put(s.name, binding{kind: composition, body: s.body[0], param: s.param})
	case "define":
		return l.define(s)
	case "add", "remove":
		return l.change(s)
	case "call":
		_, err := l.call(s, false, depth)
		return err
	case "choose":
		return l.choose(s, depth)
	case "cite":
		return l.cite(s)
	case "verify":
		return l.verify(s.values[0].text, s.name)
	case "show":
		return l.show(s)
	case "count", "sum":
		_, err := l.counted(s)
		return err
	case "keep", "each", "require each":
		return l.listStatement(s)
	}
	return l.duty(s)
}

// spend counts what is done for a file.
func (l *Ledger) spend(work, depth int) error {
	if depth > deepest {
		return errors.New("compositions call each other too deeply")
	}
	if l.work == nil {
		return nil
	}
	if *l.work -= work; *l.work < 0 {
		return errors.New("it needs too much work")
	}
	return nil
}

// put keeps a value. A list that is declared again would be emptied.
func (l *Ledger) put(name string, v binding) error {
	_, list := l.lists[name]
	_, value := l.values[name]
	switch {
	case list && v.kind == aList:
		return fmt.Errorf("list %s is declared twice, which empties it", name)
	case list:
		return fmt.Errorf("%s is a list already", name)
	case value && v.kind == aList:
		return fmt.Errorf("%s is a value already", name)
	case v.kind != aList:
		l.values[name] = v
		return nil
	}
	l.lists[name] = v.list
	if len(v.list) > 0 {
		l.items[name] = v.of
	}
	for _, item := range v.list {
		l.refile(true, item, name)
	}
	return nil
}

func (l *Ledger) remember(s *sentence, depth int) (err error) {
	var v binding
	switch {
	case len(s.fields) > 0:
		v, err = l.recordOf(s.fields)
	case len(s.body) > 0:
		v, err = l.valueOf(s.body[0], depth)
	case s.list:
		v, err = l.listOf(s.values)
	default:
		v, err = l.eval(s.values[0], nil)
	}
	if err != nil {
		return err
	}
	v.sort = s.sort
	return l.put(s.name, v)
}

func (l *Ledger) recordOf(fields []field) (v binding, err error) {
	v.kind = record
	var written []string
	for _, f := range fields {
		x, err := l.eval(f.value, nil)
		if err != nil {
			return v, err
		}
		x.sort = f.name
		if at := slices.IndexFunc(v.fields, func(o binding) bool { return o.sort == f.name }); at >= 0 {
			v.fields[at] = x // of two with one name the last holds
		} else {
			v.fields = append(v.fields, x)
		}
		written = append(written, f.name+" as "+x.written())
	}
	v.facts = strings.Join(written, " and ")
	return v, nil
}

// written is a value as a line has it.
func (v binding) written() string {
	switch v.kind {
	case aText:
		return `"` + v.text + `"`
	case record:
		return v.facts
	case aList:
		return strings.Join(v.list, ", ")
	}
	return v.text
}

func (l *Ledger) listOf(values []expr) (v binding, err error) {
	v.kind = aList
	for _, e := range values {
		x, err := l.eval(e, nil)
		if err != nil {
			return v, err
		}
		if !slices.Contains([]string{aText, number, date, record}, x.kind) {
			return v, fmt.Errorf("a list cannot have a %s in it", x.kind)
		}
		if v.of != "" && v.of != x.kind {
			return v, fmt.Errorf("a list cannot have a %s and a %s", v.of, x.kind)
		}
		v.of = x.kind
		v.list = append(v.list, x.item())
	}
	return v, nil
}

// item is a value as an item of a list.
func (v binding) item() string {
	if v.kind == record {
		return v.facts
	}
	return v.text
}

func (l *Ledger) define(s *sentence) error {
	if l.leadsTo(s.cond, s.name, 0) {
		return fmt.Errorf("%s is defined in terms of itself", s.name)
	}
	return l.put(s.name, binding{kind: predicate, cond: s.cond})
}

// leadsTo says whether a condition names what it defines, or applies what leads there.
func (l *Ledger) leadsTo(c *condition, name string, depth int) bool {
	if c == nil || depth > deepest {
		return c != nil
	}
	if c.predicate != "" {
		return c.predicate == name || l.leadsTo(l.values[c.predicate].cond, name, depth+1)
	}
	for _, e := range []expr{c.subject, c.value, c.value2} {
		if (e.op == "word" || e.op == "name") && e.text == name {
			return true
		}
	}
	return l.leadsTo(c.l, name, depth) || l.leadsTo(c.r, name, depth)
}

func (l *Ledger) change(s *sentence) error {
	items, ok := l.lists[s.name]
	if !ok {
		return fmt.Errorf("list %s is not declared", s.name)
	}
	v, err := l.eval(s.values[0], nil)
	if err != nil {
		return err
	}
	seeds := l.items[s.name] == aText && !slices.ContainsFunc(items, func(item string) bool { return item != empty })
	if !slices.Contains([]string{aText, number, date, record}, v.kind) {
		return fmt.Errorf("a list cannot have a %s in it", v.kind)
	}
	if len(items) > 0 && !seeds && l.items[s.name] != v.kind {
		return fmt.Errorf("%s is a list of the kind %s, and %s is a %s", s.name, l.items[s.name], v.written(), v.kind)
	}
	if s.verb == "remove" {
		if len(items) == 0 || l.items[s.name] != v.kind {
			return fmt.Errorf("%w: %q, of %s", errAbsent, v.item(), s.name)
		}
		return l.takeOut(v.item(), s.name)
	}
	if len(items) == 1 && seeds {
		if err := l.takeOut(empty, s.name); err != nil {
			return err
		}
	}
	l.putIn(v, s.name, s.why)
	return nil
}

func (l *Ledger) putIn(v binding, name, why string) {
	if len(l.lists[name]) == 0 {
		l.items[name] = v.kind
	}
	item := v.item()
	l.lists[name] = append(l.lists[name], item)
	if delete(l.why, filed{name, item}); why != "" {
		l.why[filed{name, item}] = why
	}
	l.refile(true, item, name)
}

func (l *Ledger) takeOut(item, name string) error {
	items := l.lists[name]
	at := slices.Index(items, item)
	if at < 0 {
		return fmt.Errorf("%w: %q, of %s", errAbsent, item, name)
	}
	l.lists[name] = slices.Concat(items[:at], items[at+1:])
	delete(l.why, filed{name, item})
	l.refile(false, item, name)
	return nil
}

// refile keeps the bucket of a block in step with the lists.
func (l *Ledger) refile(add bool, item, name string) {
	at := slices.Index(bucketNames[:], name)
	if at < 0 {
		return
	}
	if add {
		l.where[item] = Action(at)
	} else if l.where[item] == Action(at) {
		delete(l.where, item)
	}
}

// choose runs the first branch that holds. All of them must make sense as the
// ledger is, which is tried on copies.
func (l *Ledger) choose(s *sentence, depth int) error {
	var taken *sentence
	for _, b := range s.body {
		if err := l.makesSense(b.body[0], depth); err != nil {
			return err
		}
		if b.cond == nil {
			taken = cmp.Or(taken, b.body[0])
			continue
		}
		if err := l.checkCondition(b.cond); err != nil {
			return err
		}
		if taken != nil {
			continue
		}
		holds, err := l.holds(b.cond, nil, 0)
		if err != nil {
			return err
		}
		if holds {
			taken = b.body[0]
		}
	}
	if taken == nil {
		return nil
	}
	return l.runIn(taken, depth)
}

// makesSense tries each part of a branch for itself.
func (l *Ledger) makesSense(s *sentence, depth int) error {
	if l.trial {
		return nil
	}
	parts := []*sentence{s}
	if s.verb == "sequence" {
		parts = s.body
	}
	for _, part := range parts {
		if err := l.spend(len(l.values)+len(l.lists)+len(l.where)+len(l.why), depth); err != nil {
			return err
		}
		copied := l.clone()
		copied.trial = true
		if err := copied.runIn(part, depth); err != nil && !errors.Is(err, errStopped) && !errors.Is(err, errAbsent) {
			return err
		}
	}
	return nil
}

// duty checks a requirement. One that is not kept is what the file says of its
// data, not a fault of the file.
func (l *Ledger) duty(s *sentence) error {
	holds, err := l.decide(s.cond)
	if err != nil {
		return err
	}
	excepted := false
	if s.except != nil {
		if excepted, err = l.decide(s.except); err != nil {
			return err
		}
	}
	if !excepted && (s.verb == "require" && !holds || s.verb == "forbid" && holds) {
		return errStopped
	}
	return nil
}

func (l *Ledger) show(s *sentence) error {
	if len(s.values) == 0 {
		return nil
	}
	v := s.values[0]
	if v.op == "name" {
		if _, ok := l.symbol(v.text); !ok {
			return unknown(v.text)
		}
		return nil
	}
	_, err := l.eval(v, nil)
	return err
}

func unknown(name string) error { return fmt.Errorf("nothing is remembered as %s", name) }

// counted is what count or sum gives.
func (l *Ledger) counted(s *sentence) (binding, error) {
	items, ok := l.lists[s.name]
	if !ok {
		return binding{}, fmt.Errorf("list %s is not declared", s.name)
	}
	if s.verb == "count" {
		return binding{kind: number, text: fmt.Sprint(len(items))}, nil
	}
	if len(items) > 0 && l.items[s.name] != number {
		return binding{}, fmt.Errorf("%s has no numbers to add up", s.name)
	}
	all := "0"
	for _, item := range items {
		sum, err := calculate("plus", all, item)
		if err != nil {
			return binding{}, err
		}
		all = sum
	}
	return binding{kind: number, text: all}, nil
}

// cite looks for a text in what is remembered.
func (l *Ledger) cite(s *sentence) error {
	what, name := s.values[0], s.name
	text := what.text
	if what.op == "name" {
		v, ok := l.symbol(text)
		if !ok || v.kind != aText {
			return fmt.Errorf("%w: %s is not a text", ErrCite, text)
		}
		text = v.text
	}
	src, ok := l.values[name]
	if !ok || src.kind != aText {
		return fmt.Errorf("%w: %s is not a source with a text", ErrCite, name)
	}
	if !strings.Contains(src.text, text) {
		return fmt.Errorf("%w: %q in %s", ErrCite, text, name)
	}
	return nil
}

// verify compares two values, of records fact by fact in any order, and keeps
// what came of it under the names of the pack.
func (l *Ledger) verify(claim, source string) error {
	c, okC := l.symbol(claim)
	s, okS := l.symbol(source)
	if !okC || !okS {
		return fmt.Errorf("verify needs a claim and a source that are remembered, got %s and %s", claim, source)
	}
	if !c.same(s) {
		return fmt.Errorf("%w: %s and %s", ErrCheck, claim, source)
	}
	for _, name := range []string{"verification-status", "verification-divergences"} {
		delete(l.values, name)
		delete(l.lists, name)
		delete(l.items, name)
	}
	l.values["verification-status"] = binding{kind: aText, text: "match"}
	l.lists["verification-divergences"] = nil
	return nil
}

// byName are the facts of a record.
func (v binding) byName() map[string]filed {
	out := map[string]filed{}
	for _, f := range v.fields {
		out[f.sort] = filed{f.kind, f.item()}
	}
	return out
}
