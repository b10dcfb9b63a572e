package session

import (
	"errors"
	"fmt"
	"slices"
)

// sentence is one parsed statement. Which members it has follows from its verb.
type sentence struct {
	verb   string // of the language; "call" of a composition, "define", "how to", "sequence"
	name   string // what is remembered, defined or called; the list or value that a verb is about
	sort   string // of what is remembered, as written: "string", "list", "source"
	list   bool   // a list is remembered
	values []expr
	fields []field
	body   []*sentence
	cond   *condition
	except *condition
	param  string // of a composition; of a call whether there is one
	why    string
}

// field is a named value of a record.
type field struct {
	name  string
	value expr
}

// expr is a value as written.
type expr struct {
	op   string // number, date, word, name, quote, of, each, plus, minus, multiplied by, divided by
	text string
	of   string // the record of a field
	l, r *expr
}

// condition is a comparison, or two of them joined.
type condition struct {
	op            string // and, or, is, above, ..., predicate
	l, r          *condition
	subject       expr
	value, value2 expr
	predicate     string
	negated       bool
}

// parser reads the words of one line.
type parser struct {
	words  []word
	l      *Ledger
	inEach bool // in the action of each
	elided bool // a condition may leave its subject out
}

func (p *parser) peek(n int) word {
	if n < len(p.words) {
		return p.words[n]
	}
	return word{}
}

func (p *parser) next() word {
	w := p.peek(0)
	if len(p.words) > 0 {
		p.words = p.words[1:]
	}
	return w
}

// take reads a word that must be there.
func (p *parser) take(sort wordSort, text string) error {
	if w := p.peek(0); !w.is(sort, text) {
		return fmt.Errorf("expected %q, got %s", text, w)
	}
	p.next()
	return nil
}

// skip reads a word that may be there.
func (p *parser) skip(sort wordSort, texts ...string) bool {
	if p.peek(0).is(sort, texts...) {
		p.next()
		return true
	}
	return false
}

func (w word) String() string {
	switch w.sort {
	case 0:
		return "the end of the line"
	case aQuote:
		return `a quoted text`
	case aVerb, aLink, anOperator, anArticle, aDeclaration:
		return fmt.Sprintf("%q, a word of the language", w.text)
	}
	return fmt.Sprintf("%q", w.text)
}

// newName reads a name that the sentence gives.
func (p *parser) newName() (string, error) {
	w := p.next()
	if w.sort != aName || slices.Contains(halves, w.text) {
		return "", fmt.Errorf("expected a name, got %s; quoted texts, numbers, dates and words of the language are not names", w)
	}
	return w.text, nil
}

// oldName reads a name that is there already.
func (p *parser) oldName() (string, error) {
	p.skip(anArticle)
	w := p.next()
	if w.sort != aName {
		return "", fmt.Errorf("expected a name that was remembered, got %s", w)
	}
	return w.text, nil
}

// parse reads a whole line.
func (l *Ledger) parse(words []word) (*sentence, error) {
	words, err := ordered(words)
	if err != nil {
		return nil, err
	}
	p := &parser{words: words, l: l}
	s, err := p.sequence()
	if err != nil {
		return nil, err
	}
	if len(p.words) > 0 {
		return nil, fmt.Errorf("%s was not expected there", p.peek(0))
	}
	return s, nil
}

func starts(w word) bool { return w.sort == aVerb || w.is(anOperator, "inherited") }

// sequence is one operation, or several joined by "and" or "then".
func (p *parser) sequence() (*sentence, error) {
	first, err := p.operation()
	if err != nil {
		return nil, err
	}
	all := []*sentence{first}
	for {
		w := p.peek(0)
		if !w.is(aLink, "then") && !(w.is(aLink, "and") && starts(p.peek(1))) {
			break
		}
		p.next()
		if !starts(p.peek(0)) {
			return nil, fmt.Errorf("expected a verb after %q, got %s", w.text, p.peek(0))
		}
		s, err := p.operation()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if len(all) == 1 {
		return first, nil
	}
	return &sentence{verb: "sequence", body: all}, nil
}

// operation is a statement with what may stand before and after it.
func (p *parser) operation() (*sentence, error) {
	for _, link := range []string{"starting", "until"} {
		if !p.skip(aLink, link) {
			continue
		}
		w := p.next()
		if w.sort == aQuote && !isDate().MatchString(w.text) || w.sort == aDate && !realDate(w.text) || w.sort != aQuote && w.sort != aDate {
			return nil, fmt.Errorf("expected a date such as 2026-11-20 after %q, got %s", link, w)
		}
	}
	inherited := p.skip(anOperator, "inherited")
	s, err := p.statement()
	if err != nil {
		return nil, err
	}
	if p.skip(aLink, "because") {
		w := p.next()
		if w.sort != aQuote {
			return nil, fmt.Errorf("expected a quoted reason after \"because\", got %s", w)
		}
		s.why = w.text
	}
	if inherited && p.skip(aLink, "from") {
		if w := p.next(); w.sort != aName {
			return nil, fmt.Errorf("expected the name of an agent after \"from\", got %s", w)
		}
	}
	return s, nil
}

func (p *parser) statement() (*sentence, error) {
	w := p.peek(0)
	switch {
	case w.sort == aVerb:
		p.next()
		return p.verb(w.text)
	case w.sort == aName && p.l.values[w.text].kind == composition:
		p.next()
		return p.call(w.text)
	case w.is(aDeclaration, "define"):
		p.next()
		return p.definition()
	}
	return nil, fmt.Errorf("expected a statement, got %s; one begins with a verb such as remember, add, remove or show", w)
}

// call is a composition, with what it is given.
func (p *parser) call(name string) (*sentence, error) {
	s := &sentence{verb: "call", name: name}
	if !p.skip(aLink, "from") {
		return s, nil
	}
	w := p.next()
	given := expr{text: w.text}
	switch w.sort {
	case aNumber:
		given.op = "number"
	case aQuote:
		given.op = "quote"
	case aName:
		given.op = "name"
	default:
		return nil, fmt.Errorf("%s takes a name, a number or a quoted text, not %s", name, w)
	}
	s.values, s.param = []expr{given}, "given"
	return s, nil
}

// definition is a predicate.
func (p *parser) definition() (s *sentence, err error) {
	s = &sentence{verb: "define"}
	if s.name, err = p.newName(); err != nil {
		return nil, err
	}
	if err := p.take(aColon, ":"); err != nil {
		return nil, err
	}
	defer func(was bool) { p.elided = was }(p.elided)
	p.elided = true
	s.cond, err = p.unmixed()
	return s, err
}

var errUnfollowed = errors.New("not supported here: it computes values; write the result with add, remove and remember")

// verb reads what follows a verb.
func (p *parser) verb(verb string) (s *sentence, err error) {
	switch verb {
	case "remember":
		return p.remember()
	case "show":
		return p.show()
	case "count", "sum":
		s = &sentence{verb: verb}
		s.name, err = p.oldName()
		return s, err
	case "add", "remove":
		return p.listChange(verb)
	case "require", "forbid", "permit", "expect":
		return p.duty(verb)
	case "each":
		return p.each()
	case "choose":
		return p.choose()
	case "keep":
		return p.keep()
	case "cite", "verify":
		return p.check(verb)
	}
	return nil, fmt.Errorf("%q is %w", verb, errUnfollowed)
}

func (p *parser) listChange(verb string) (s *sentence, err error) {
	link := map[string]string{"add": "to", "remove": "from"}[verb]
	p.skip(anArticle)
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	if err := p.take(aLink, link); err != nil {
		return nil, err
	}
	s = &sentence{verb: verb, values: []expr{v}}
	s.name, err = p.oldName()
	return s, err
}

// check is a statement of the pack for sessions.
func (p *parser) check(verb string) (s *sentence, err error) {
	s = &sentence{verb: verb}
	v := expr{op: "name", text: p.peek(0).text}
	if w := p.next(); w.sort == aQuote && verb == "cite" {
		v.op = "quote"
	} else if w.sort != aName {
		return nil, fmt.Errorf("%s was not expected after %q", w, verb)
	}
	s.values = []expr{v}
	if err := p.take(aLink, "from"); err != nil {
		return nil, err
	}
	s.name, err = p.oldName()
	return s, err
}

func (p *parser) show() (s *sentence, err error) {
	s = &sentence{verb: "show"}
	p.skip(anArticle)
	w := p.peek(0)
	switch {
	case w.sort == 0 || w.is(aLink, "and") && p.peek(1).sort == aVerb:
		return s, p.onlyInEach(w)
	case w.is(aVerb, "each"):
		p.next()
		return s, p.onlyInEach(w)
	case w.sort == aQuote:
		p.next()
		if p.inEach || p.peek(0).is(aLink, "of") {
			return nil, fmt.Errorf("the name of a field cannot be quoted: %q", w.text)
		}
		s.values = []expr{{op: "quote", text: w.text}}
		return s, nil
	case w.sort != aName:
		return nil, fmt.Errorf("expected a name or a quoted text after \"show\", got %s", w)
	}
	v, err := p.access(p.next().text)
	if err != nil {
		return nil, err
	}
	if v.op == "word" {
		v.op = "name"
	}
	s.values = []expr{v}
	for p.inEach && v.op == "name" && p.peek(0).is(aLink, "and") && p.peek(1).sort == aName {
		p.next()
		s.values = append(s.values, expr{op: "name", text: p.next().text})
	}
	return s, nil
}

func (p *parser) onlyInEach(w word) error {
	if p.inEach {
		return nil
	}
	return fmt.Errorf("expected a name or a quoted text after \"show\", got %s", w)
}

func (p *parser) each() (s *sentence, err error) {
	s = &sentence{verb: "each"}
	if s.name, err = p.oldName(); err != nil {
		return nil, err
	}
	defer func(was bool) { p.inEach = was }(p.inEach)
	p.inEach = true
	action, err := p.operation()
	if err != nil {
		return nil, err
	}
	if action.verb != "show" {
		return nil, fmt.Errorf("%q in \"each\" is %w", action.verb, errUnfollowed)
	}
	s.body = []*sentence{action}
	return s, nil
}

func (p *parser) keep() (s *sentence, err error) {
	s = &sentence{verb: "keep"}
	if s.name, err = p.oldName(); err != nil {
		return nil, err
	}
	if err := p.take(aLink, "where"); err != nil {
		return nil, err
	}
	s.cond, err = p.unmixed()
	return s, err
}

func (p *parser) choose() (s *sentence, err error) {
	if p.inEach {
		return nil, errors.New("\"choose\" cannot stand in \"each\"")
	}
	s = &sentence{verb: "choose"}
	if err := p.take(aLink, "if"); err != nil {
		return nil, err
	}
	for {
		b := &sentence{verb: "if"}
		if b.cond, err = p.unmixed(); err != nil {
			return nil, err
		}
		if err := p.take(aColon, ":"); err != nil {
			return nil, err
		}
		if err := p.branch(s, b); err != nil {
			return nil, err
		}
		if !p.skip(aLink, "otherwise") {
			return s, nil
		}
		if !p.skip(aLink, "if") {
			return s, p.branch(s, &sentence{verb: "if"})
		}
	}
}

func (p *parser) branch(s, b *sentence) error {
	action, err := p.sequence()
	b.body = []*sentence{action}
	s.body = append(s.body, b)
	return err
}

// duty is require, forbid, permit or expect.
func (p *parser) duty(verb string) (s *sentence, err error) {
	s = &sentence{verb: verb}
	if verb == "require" && p.skip(aVerb, "each") {
		return s, p.requireEach(s)
	}
	if s.cond, err = p.unmixed(); err == nil && p.skip(aLink, "unless") {
		s.except, err = p.unmixed()
	}
	return s, err
}

func (p *parser) requireEach(s *sentence) (err error) {
	s.verb = "require each"
	if s.param, err = p.newName(); err != nil {
		return err
	}
	if err := p.take(aName, "in"); err != nil {
		return err
	}
	if s.name, err = p.oldName(); err != nil {
		return err
	}
	defer func(was bool) { p.elided = was }(p.elided)
	p.elided = true
	s.cond, err = p.unmixed()
	return err
}

func (p *parser) remember() (s *sentence, err error) {
	if p.skip(aLink, "how") {
		return p.composition()
	}
	s = &sentence{verb: "remember"}
	for !p.peek(0).is(aLink, "called") {
		switch w := p.next(); {
		case w.sort == anArticle:
		case w.sort == aName:
			if s.sort != "" {
				s.sort += " "
			}
			s.sort += w.text
			s.list = s.list || w.text == "list"
		default:
			return nil, fmt.Errorf("expected \"called\", got %s", w)
		}
	}
	p.next()
	if s.name, err = p.newName(); err != nil {
		return nil, err
	}
	switch {
	case len(p.words) == 0 && s.list:
		return s, nil
	case p.skip(aLink, "with"):
		return s, p.with(s)
	case p.skip(aLink, "from"):
		return s, p.from(s)
	}
	return nil, fmt.Errorf("expected \"with\" or \"from\" after the name %s, got %s", s.name, p.peek(0))
}

// composition is "remember how to": what its name does when it is called.
func (p *parser) composition() (s *sentence, err error) {
	s = &sentence{verb: "how to"}
	if err := p.take(aLink, "to"); err != nil {
		return nil, err
	}
	if s.name, err = p.newName(); err != nil {
		return nil, err
	}
	if p.skip(aLink, "from") {
		if s.param, err = p.newName(); err != nil {
			return nil, err
		}
	}
	if err := p.take(aColon, ":"); err != nil {
		return nil, err
	}
	body, err := p.sequence()
	if err != nil {
		return nil, err
	}
	s.body = []*sentence{body}
	return s, nil
}

// with reads the value, the values or the fields that are remembered.
func (p *parser) with(s *sentence) error {
	more := func() bool {
		return p.peek(0).is(aLink, "and") && p.peek(1).sort != aVerb && p.skip(aLink, "and")
	}
	if p.peek(0).sort == aName && p.peek(1).is(aLink, "as") {
		for {
			name := p.next()
			if name.sort != aName {
				return fmt.Errorf("expected the name of a field, got %s", name)
			}
			if err := p.take(aLink, "as"); err != nil {
				return err
			}
			v, err := p.value()
			if err != nil {
				return err
			}
			if s.fields = append(s.fields, field{name.text, v}); !more() {
				return nil
			}
		}
	}
	for {
		v, err := p.value()
		if err != nil {
			return err
		}
		if s.values = append(s.values, v); !more() {
			break
		}
	}
	s.list = s.list || len(s.values) > 1
	return nil
}

// from reads what is copied, counted or given by a composition.
func (p *parser) from(s *sentence) error {
	s.list = false
	w := p.peek(0)
	if w.sort == aVerb || w.sort == aName && p.l.values[w.text].kind == composition {
		inner, err := p.statement()
		s.body = []*sentence{inner}
		return err
	}
	v, err := p.value()
	s.values = []expr{v.copied()}
	return err
}

// copied has names that must be there, where other values take a name nobody gave for a text.
func (e expr) copied() expr {
	switch {
	case e.op == "word":
		e.op = "name"
	case e.l != nil:
		l, r := e.l.copied(), e.r.copied()
		e.l, e.r = &l, &r
	}
	return e
}
