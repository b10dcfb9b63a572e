package session

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// symbol is what a name stands for.
func (l *Ledger) symbol(name string) (binding, bool) {
	if items, ok := l.lists[name]; ok {
		return binding{kind: aList, list: items, of: l.items[name]}, true
	}
	v, ok := l.values[name]
	return v, ok
}

// eval gives a value; item is what a condition or a predicate is asked of.
func (l *Ledger) eval(e expr, item *binding) (binding, error) {
	switch e.op {
	case "quote":
		return binding{kind: aText, text: e.text}, nil
	case "date":
		return binding{kind: date, text: e.text}, nil
	case "number":
		text, err := plainNumber(e.text)
		return binding{kind: number, text: text}, err
	case "each":
		if item == nil {
			return binding{}, errors.New("\"each\" stands for an item of a list only")
		}
		return *item, nil
	case "word", "name":
		return l.named(e, item)
	case "of":
		return l.fieldOf(e)
	}
	a, err := l.eval(*e.l, item)
	if err != nil {
		return a, err
	}
	b, err := l.eval(*e.r, item)
	if err != nil {
		return b, err
	}
	return arithmetic(e.op, a, b)
}

func (l *Ledger) named(e expr, item *binding) (binding, error) {
	if item != nil {
		for _, f := range item.fields {
			if f.sort == e.text {
				return f, nil
			}
		}
	}
	v, ok := l.symbol(e.text)
	switch {
	case !ok && e.op == "word":
		return binding{kind: aText, text: e.text}, nil
	case !ok:
		return v, unknown(e.text)
	case v.kind == composition || v.kind == predicate:
		return v, fmt.Errorf("%s is a %s, which is not a value", e.text, v.kind)
	}
	v.sort = ""
	return v, nil
}

func (l *Ledger) fieldOf(e expr) (binding, error) {
	r, ok := l.symbol(e.of)
	if !ok {
		return r, unknown(e.of)
	}
	for _, f := range r.fields {
		if f.sort == e.text {
			return f, nil
		}
	}
	return r, fmt.Errorf("%s is not a record with a field %s", e.of, e.text)
}

func arithmetic(op string, a, b binding) (binding, error) {
	switch {
	case a.kind == number && b.kind == number:
		text, err := calculate(op, a.text, b.text)
		return binding{kind: number, text: text}, err
	case a.kind == date && b.kind == date && op == "minus":
		return binding{kind: number, text: strconv.Itoa(daysBetween(b.text, a.text))}, nil
	case a.kind == date && b.kind == number && (op == "plus" || op == "minus"):
		days, err := strconv.Atoi(b.text)
		if err != nil {
			return a, errors.New("only whole days can be added to a date")
		}
		if op == "minus" {
			days = -days
		}
		at, _ := time.Parse(time.DateOnly, a.text)
		if at = at.AddDate(0, 0, days); at.Year() < 1 || at.Year() > 9999 {
			return a, errors.New("a date must be in the years 1 to 9999")
		}
		return binding{kind: date, text: at.Format(time.DateOnly)}, nil
	}
	return a, fmt.Errorf("%s is for numbers, got a %s and a %s", op, a.kind, b.kind)
}

func daysBetween(from, to string) int {
	a, _ := time.Parse(time.DateOnly, from)
	b, _ := time.Parse(time.DateOnly, to)
	return int(b.Sub(a) / (24 * time.Hour))
}

// plainNumber writes a number in one way: 1.0 and 01 are 1.
func plainNumber(text string) (string, error) {
	if !strings.Contains(text, ".") {
		n, ok := new(big.Int).SetString(text, 10)
		if !ok || len(text) > 4300 { // the interpreter reads no longer ones
			return "", errors.New("not a readable number")
		}
		return n.String(), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return "", errors.New("not a readable number")
	}
	return floating(f), nil
}

// floating writes a whole number in all its digits, another as short as it can be read back.
func floating(f float64) string {
	switch {
	case f == 0:
		return "0"
	case f == math.Trunc(f):
		return strconv.FormatFloat(f, 'f', 0, 64)
	case math.Abs(f) >= 1e-4:
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// calculate is exact for whole numbers, but for a division.
func calculate(op, a, b string) (string, error) {
	x, okX := new(big.Int).SetString(a, 10)
	y, okY := new(big.Int).SetString(b, 10)
	if okX && okY && op != "divided by" {
		switch op {
		case "plus":
			return x.Add(x, y).String(), nil
		case "minus":
			return x.Sub(x, y).String(), nil
		}
		return x.Mul(x, y).String(), nil
	}
	f, g := toFloat(a), toFloat(b)
	switch op {
	case "plus":
		f += g
	case "minus":
		f -= g
	case "multiplied by":
		f *= g
	default:
		if g == 0 {
			return "", errors.New("division by zero")
		}
		f /= g
	}
	return floating(f), nil
}

func toFloat(text string) float64 {
	f, _ := strconv.ParseFloat(text, 64) // it is written by plainNumber
	return f
}

// decide checks a condition and says whether it holds.
func (l *Ledger) decide(c *condition) (bool, error) {
	if err := l.checkCondition(c); err != nil {
		return false, err
	}
	return l.holds(c, nil, 0)
}

// checkCondition looks whether what is compared is there and can be compared.
func (l *Ledger) checkCondition(c *condition) error {
	if c.op == "and" || c.op == "or" {
		if err := l.checkCondition(c.l); err != nil {
			return err
		}
		return l.checkCondition(c.r)
	}
	operands := []expr{c.subject}
	switch c.op {
	case predicate:
	case "within":
		operands = append(operands, c.value, c.value2)
	default:
		operands = append(operands, c.value)
	}
	for _, e := range operands {
		kind, err := l.kindOf(e)
		if err != nil {
			return err
		}
		if (c.op == "above" || c.op == "below" || c.op == "within") && kind != number && kind != date {
			return fmt.Errorf("%q compares numbers or dates, not a %s", c.op, kind)
		}
	}
	return nil
}

func (l *Ledger) kindOf(e expr) (string, error) {
	if e.op == "word" || e.op == "name" {
		if v, ok := l.symbol(e.text); ok {
			return v.kind, nil
		}
	}
	if e.l != nil && (e.op == "multiplied by" || e.op == "divided by") && !e.l.literal() && !e.r.literal() {
		return "", fmt.Errorf("%s needs a plain number on one side of a condition", e.op)
	}
	v, err := l.eval(e, nil)
	return v.kind, err
}

func (e expr) literal() bool {
	if e.l != nil {
		return e.l.literal() && e.r.literal()
	}
	return e.op == "number" || e.op == "date"
}

func (l *Ledger) holds(c *condition, item *binding, depth int) (bool, error) {
	if depth > deepest {
		return false, errors.New("a definition refers to itself")
	}
	if c.op == "and" || c.op == "or" {
		first, err := l.holds(c.l, item, depth)
		if err != nil || first == (c.op == "or") {
			return first, err
		}
		return l.holds(c.r, item, depth)
	}
	subject, err := l.subjectOf(c.subject, item)
	if err != nil {
		return false, err
	}
	if c.op == predicate {
		is, err := l.holds(l.values[c.predicate].cond, &subject, depth+1)
		return is != c.negated, err
	}
	v, err := l.eval(c.value, item)
	if err != nil {
		return false, err
	}
	if c.op == "within" {
		target, err := l.eval(c.value2, item)
		if err != nil {
			return false, err
		}
		return within3(subject, v, target)
	}
	is, err := compared(c.op, subject, v)
	return is != c.negated, err
}

// subjectOf is what is compared: a list and a predicate may be, too.
func (l *Ledger) subjectOf(e expr, item *binding) (binding, error) {
	if e.op == "name" && item == nil {
		if v, ok := l.symbol(e.text); ok {
			return v, nil
		}
	}
	return l.eval(e, item)
}

func compared(op string, a, b binding) (bool, error) {
	switch op {
	case "is", "equal to":
		return a.same(b), nil
	case "includes":
		return a.kind == aList && a.of == b.kind && slices.Contains(a.list, b.item()), nil
	}
	if a.kind != b.kind || a.kind != number && a.kind != date {
		return false, fmt.Errorf("%q compares numbers with numbers and dates with dates, not a %s with a %s", op, a.kind, b.kind)
	}
	if a.kind == date {
		return op == "above" && a.text > b.text || op == "below" && a.text < b.text, nil
	}
	return op == "above" && toFloat(a.text) > toFloat(b.text) || op == "below" && toFloat(a.text) < toFloat(b.text), nil
}

func (v binding) same(o binding) bool {
	if v.kind == aList && o.kind == aList {
		return slices.Equal(v.list, o.list) && (v.of == o.of || len(v.list) == 0)
	}
	if v.kind == record && o.kind == record {
		a, b := v.byName(), o.byName()
		for name, f := range a {
			if b[name] != f {
				return false
			}
		}
		return len(a) == len(b)
	}
	return v.kind == o.kind && v.text == o.text
}

func within3(v, amount, target binding) (bool, error) {
	if amount.kind == number && v.kind == date && target.kind == date {
		days := daysBetween(v.text, target.text)
		return float64(max(days, -days)) <= toFloat(amount.text), nil
	}
	if v.kind != number || amount.kind != number || target.kind != number {
		return false, errors.New("\"within\" compares numbers, or dates by a number of days")
	}
	apart := toFloat(v.text) - toFloat(target.text)
	return max(apart, -apart) <= toFloat(amount.text), nil
}
