package session

import "fmt"

// value reads a value, which may be computed of numbers.
func (p *parser) value() (expr, error) { return p.computed([]string{"plus", "minus"}, p.product) }

func (p *parser) product() (expr, error) {
	return p.computed([]string{"multiplied by", "divided by"}, p.atom)
}

func (p *parser) computed(ops []string, operand func() (expr, error)) (expr, error) {
	left, err := operand()
	for err == nil && p.peek(0).is(anOperator, ops...) {
		op, l := p.next().text, left
		var r expr
		if r, err = operand(); err == nil {
			left = expr{op: op, l: &l, r: &r}
		}
	}
	return left, err
}

func (p *parser) atom() (expr, error) {
	w := p.next()
	switch {
	case w.sort == aNumber:
		return expr{op: "number", text: w.text}, nil
	case w.sort == aDate && realDate(w.text):
		return expr{op: "date", text: w.text}, nil
	case w.sort == aName:
		return p.access(w.text)
	case w.sort == aQuote && !p.peek(0).is(aLink, "of"):
		return expr{op: "quote", text: w.text}, nil
	case w.is(aVerb, "each") && p.inEach:
		return expr{op: "each"}, nil
	}
	return expr{}, fmt.Errorf("expected a value, got %s", w)
}

// access reads a name, or the field of a record.
func (p *parser) access(name string) (expr, error) {
	if !p.skip(aLink, "of") {
		return expr{op: "word", text: name}, nil
	}
	w := p.next()
	if w.sort != aName || p.peek(0).is(aLink, "of") {
		return expr{}, fmt.Errorf("expected the name of one record after \"of\", got %s", w)
	}
	return expr{op: "of", text: name, of: w.text}, nil
}

// unmixed reads a condition. One that joins by "and" and by "or" is asked about
// by the interpreter, which a file cannot answer.
func (p *parser) unmixed() (*condition, error) {
	c, err := p.either()
	if err == nil && c.has("and") && c.has("or") {
		err = fmt.Errorf("a condition with both \"and\" and \"or\" can be read in two ways: split it")
	}
	return c, err
}

func (c *condition) has(op string) bool {
	return c != nil && (c.op == op || c.l.has(op) || c.r.has(op))
}

func (p *parser) either() (*condition, error) { return p.joined("or", p.all) }
func (p *parser) all() (*condition, error)    { return p.joined("and", p.comparison) }

func (p *parser) joined(link string, operand func() (*condition, error)) (*condition, error) {
	left, err := operand()
	for err == nil && p.peek(0).is(aLink, link) && p.peek(1).sort != aVerb {
		p.next()
		var right *condition
		if right, err = operand(); err == nil {
			left = &condition{op: link, l: left, r: right}
		}
	}
	return left, err
}

func (p *parser) comparison() (*condition, error) {
	c := &condition{}
	w := p.peek(0)
	switch {
	case p.elided && (w.is(anOperator, "is", "not") || w.is(aLink, "includes")):
		c.subject = expr{op: "each"}
	case w.is(aVerb, "each"):
		p.next()
		c.subject = expr{op: "each"}
	case w.sort == aName:
		p.next()
		v, err := p.access(w.text)
		if err != nil {
			return nil, err
		}
		if c.subject = v; v.op == "word" {
			c.subject.op = "name"
		}
	default:
		return nil, fmt.Errorf("expected a name to compare, got %s", w)
	}
	return c, p.compared(c)
}

// compared reads the rest of a comparison.
func (p *parser) compared(c *condition) (err error) {
	if p.peek(0).is(anOperator, "not") && p.peek(1).is(aLink, "includes") {
		p.next()
		c.negated = true
	}
	if p.skip(aLink, "includes") {
		c.op = "includes"
		c.value, err = p.value()
		return err
	}
	if err := p.take(anOperator, "is"); err != nil {
		return err
	}
	if p.skip(aLink, "within") {
		return p.within(c)
	}
	if c.negated = p.skip(anOperator, "not"); p.predicate(c) {
		return nil
	}
	c.op = "is"
	switch w := p.peek(0); {
	case w.is(anOperator, "above", "below", "equal to"):
		c.op = p.next().text
	case c.negated:
		return fmt.Errorf("expected above, below or equal to after \"is not\", got %s", w)
	}
	c.value, err = p.value()
	return err
}

func (p *parser) predicate(c *condition) bool {
	w := p.peek(0)
	if w.sort != aName || p.l.values[w.text].kind != predicate {
		return false
	}
	c.op, c.predicate = predicate, p.next().text
	return true
}

func (p *parser) within(c *condition) (err error) {
	c.op = "within"
	switch w := p.next(); w.sort {
	case aNumber:
		c.value = expr{op: "number", text: w.text}
	case aName:
		c.value = expr{op: "word", text: w.text}
	default:
		return fmt.Errorf("expected an amount after \"within\", got %s", w)
	}
	if err := p.take(aLink, "of"); err != nil {
		return err
	}
	c.value2, err = p.value()
	return err
}
