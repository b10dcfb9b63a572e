package session

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Ledger is the current content of a strict contract file: lists with their items, strings, sources, claims. ReadLedger
// reads it from the file. It returns the bytes to append, one slice per export, to be written with one write. Every
// line is first executed on the ledger itself, under rules that were found by running the real interpreter. A line that
// would fail there is an error here, and then neither bytes nor ledger change.
//
// The zero Ledger is an empty file. It is not safe for concurrent use.
type Ledger struct {
	lists   map[string][]string
	items   map[string]string // of each list that has items: their kind
	values  map[string]binding
	where   map[string]Action // bucket of each block
	why     map[filed]string  // the reason an item was added with, where there was one
	started bool              // it has a line that is neither blank nor a comment
	torn    bool              // the file's last line has no end
	guarded bool
	block   int // indentation of the handler that is being read; unindented before its first line, 0 outside
	pass    int
	lastKey string
	trial   bool // it is a copy on which a part of a line is tried
	work    *int // what is left to do for a file, of maxWork; nil without a file
}

// maxWork bounds what a file may have done: compositions call one another.
const maxWork = 10_000_000

// unindented is the block of a handler whose first action is still to come.
const unindented = -1

// empty is what the language takes for the sign of an empty list: where it is
// the only item, the next one added takes its place.
const empty = "none"

// filed is an item in its list.
type filed struct{ list, item string }

// binding is a remembered value. Only the members of its kind are set.
type binding struct {
	kind   string    // one of the kinds below
	sort   string    // as it was written: string, source, claim
	text   string    // of a text, a number, a date
	facts  string    // of a record, as they are written
	fields []binding // of a record, the sort being the name
	list   []string  // of a list, on its way
	of     string    // the kind of its items
	body   *sentence // of a composition
	param  string    // of a composition
	cond   *condition
}

// The kinds of values.
const (
	aText       = "string"
	number      = "number"
	date        = "date"
	record      = "record"
	aList       = "list"
	composition = "composition"
	predicate   = "predicate"
)

// Buckets returns the bucket of each contract name. The caller owns the map.
func (l *Ledger) Buckets() map[string]Action { return maps.Clone(l.where) }

// Passes is the number of passes in the file.
func (l *Ledger) Passes() int { return l.pass }

// Holds reports whether the last pass in the file has that key.
func (l *Ledger) Holds(k PassKey) bool { return l.lastKey == k.String() }

// List returns the items of a list in order.
func (l *Ledger) List(name string) []string { return slices.Clone(l.lists[name]) }

// Value returns a remembered text, number or date as it is written. A record has no value; for it only ok is
// meaningful.
func (l *Ledger) Value(name string) (string, bool) {
	v, ok := l.values[name]
	return v.text, ok && v.kind != composition && v.kind != predicate
}

// ReadLedger executes a strict contract file as the interpreter does: what is remembered, added, removed and called,
// checks and conditions. ErrContract names the line that breaks a rule; a compatible contract breaks one in its first
// line. ReadLedger refuses more than the interpreter does: a list that is declared again, which would empty it; a list
// in a list; a name that is a list first and a value later, or the reverse; conditions about which the interpreter
// would ask; and the verbs that compute lists (filter, gather, sort, transform, ...).
func ReadLedger(file []byte) (*Ledger, error) {
	if !utf8.Valid(file) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrContract)
	}
	l := new(Ledger)
	l.prepare()
	l.torn = torn(file)
	left := maxWork
	l.work = &left
	lines := strings.Split(lineEnds.Replace(string(file)), "\n")
	for i, line := range lines {
		if err := l.exec(line); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrContract, i+1, err)
		}
	}
	l.work = nil
	if l.block == unindented {
		return nil, fmt.Errorf("%w: line %d: %w", ErrContract, len(lines), errHandler)
	}
	return l, nil
}

// lineEnds makes one of all that ends a line for the interpreter, so that no
// statement hides behind a character that others do not see.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\x1c", "\n", "\x1d", "\n", "\x1e", "\n",
	"\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

var errHandler = errors.New("a \"when\" needs an indented line after it")

func (l *Ledger) prepare() {
	if l.values == nil {
		l.lists, l.items, l.values = map[string][]string{}, map[string]string{}, map[string]binding{}
		l.where, l.why = map[string]Action{}, map[filed]string{}
	}
}

// clone is a copy that shares nothing that exec changes in place.
func (l *Ledger) clone() *Ledger {
	c := *l
	c.lists, c.items, c.values = make(map[string][]string, len(l.lists)), maps.Clone(l.items), maps.Clone(l.values)
	c.where, c.why = maps.Clone(l.where), maps.Clone(l.why)
	for k, v := range l.lists {
		c.lists[k] = slices.Clip(v)
	}
	c.prepare()
	return &c
}

// draft collects lines on a copy of the ledger; the first error sticks.
type draft struct {
	l     *Ledger
	lines []string
	err   error
}

func (d *draft) emit(format string, args ...any) {
	if d.err != nil {
		return
	}
	line := fmt.Sprintf(format, args...)
	if d.err = d.l.exec(line); d.err == nil {
		d.lines = append(d.lines, line)
	}
}

// quoted is quote with the error kept.
func (d *draft) quoted(text string) string {
	q, err := quote(text)
	if d.err == nil {
		d.err = err
	}
	return q
}

// export runs fill on a draft and takes it over if nothing failed.
func (l *Ledger) export(fill func(*draft)) ([]byte, error) {
	d := &draft{l: l.clone()}
	if !l.started {
		d.emit(`about "ctxpage pager contract"`)
		d.buckets()
	}
	heading := len(d.lines)
	fill(d)
	if d.err != nil || len(d.lines) == heading {
		return nil, d.err
	}
	out := joinLines(l.torn, d.lines)
	d.l.torn = false
	*l = *d.l
	return out, nil
}

// Pass returns the lines of one pass: blocks that are new or changed their bucket, then the time. It returns nothing
// for a repeated pass, or for the one that the file ends with.
func (l *Ledger) Pass(r Result, at time.Time) ([]byte, error) {
	if r.Repeated || l.Holds(r.Key) {
		return nil, nil
	}
	names, err := contractNames(r.Verdicts)
	if err != nil {
		return nil, err
	}
	return l.export(func(d *draft) {
		d.buckets() // a file that somebody else began has none
		d.emit("-- pass %d key %s", l.pass+1, r.Key)
		for i, v := range r.Verdicts {
			d.file(names[i], v)
		}
		d.emit(`remember a string called last-pager-pass with "%s"`, stamp(at))
	})
}

// buckets declares what is not declared yet.
func (d *draft) buckets() {
	for _, name := range bucketNames {
		if _, ok := d.l.lists[name]; !ok {
			d.emit("remember a list called %s", name)
		}
	}
}

// file moves a block into the bucket of its verdict.
func (d *draft) file(name string, v Verdict) {
	old, filed := d.l.where[name]
	if filed && old == v.Action {
		return
	}
	if filed {
		d.emit(`remove "%s" from %s`, name, old.Bucket())
	}
	why := ""
	if v.Reason != ByScore {
		why = "; " + v.Reason.String()
	}
	d.emit(`add "%s" to %s because "R=%s similarity=%s delta_t=%d%s"`, name, v.Action.Bucket(), short(v.R), short(v.Similarity), v.Delta, why)
}

var stPass = expression(`^-- pass (\d+)(?: key ([0-9a-f]{16}))?$`)

// exec executes one line. The actions of handlers are parsed and not executed:
// they come after the whole file.
func (l *Ledger) exec(line string) error {
	text := strings.TrimFunc(line, spaced)
	if text == "" || strings.HasPrefix(text, "--") {
		l.comment(line)
		return nil
	}
	fresh := !l.started
	l.started = true
	indent := len(line) - len(strings.TrimLeft(line, " "))
	if strings.HasPrefix(line[indent:], "\t") {
		return errors.New("a line must not start with a tab")
	}
	action, err := l.action(indent)
	if err != nil {
		return err
	}
	words, err := wordsOf(line)
	switch {
	case err != nil || len(words) == 0:
		return err
	case action:
		_, err = l.parse(words)
		return err
	case words[0].is(aDeclaration, "about"):
		return about(words[1:], fresh)
	case indent == 0 && (words[0].is(aLink, "when") || words[0].is(anOperator, "inherited") && len(words) > 1 && words[1].is(aLink, "when")):
		l.block = unindented
		l.guarded = l.guarded || text == guardLine
		return l.handler(words)
	}
	s, err := l.parse(words)
	if err != nil {
		return err
	}
	if err := l.run(s); !errors.Is(err, errStopped) {
		return err
	}
	return nil // a duty that is not kept ends its line and changes nothing of the file
}

func about(topic []word, fresh bool) error {
	switch {
	case !fresh:
		return errors.New("\"about\" must be the first line")
	case len(topic) == 0:
		return errors.New("\"about\" needs a topic")
	case topic[0].sort == aQuote && len(topic) > 1:
		return errors.New("nothing can follow the quoted topic of \"about\"")
	}
	return nil
}

// action says whether a line of that indentation is an action of the handler
// above it. An indented line below no handler is a statement like any other.
func (l *Ledger) action(indent int) (bool, error) {
	switch {
	case l.block == unindented && indent == 0:
		return false, errHandler
	case l.block == unindented:
		l.block = indent
	case l.block > 0 && indent > l.block:
		return false, fmt.Errorf("a line is indented deeper than its handler")
	}
	if indent == 0 || indent != l.block {
		l.block = 0
	}
	return l.block > 0, nil
}

func (l *Ledger) comment(line string) {
	if m := stPass().FindStringSubmatch(line); m != nil {
		l.pass, _ = strconv.Atoi(m[1])
		l.lastKey = m[2]
	}
}

// torn reports whether a file's last line lacks its end.
func torn(file []byte) bool { return len(file) > 0 && !bytes.HasSuffix(file, []byte("\n")) }
