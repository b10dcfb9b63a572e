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

// Ledger is what a strict contract file says so far: lists with their items,
// strings, sources, claims. It is read from the file (ReadLedger) and gives the
// bytes to append, one slice an export, to be written with one write. Every
// line it gives was first executed on the ledger itself, under the rules found
// by running the real interpreter, so a line that would fail there is an error
// here, and then neither bytes nor ledger change.
//
// The zero Ledger is an empty file. Not safe for concurrent use.
type Ledger struct {
	lists   map[string][]string
	values  map[string]binding
	where   map[string]Action // bucket of each block
	why     map[filed]string  // the reason an item was added with, where there was one
	started bool              // it has a line that is neither blank nor a comment
	torn    bool              // the file's last line has no end
	guarded bool
	block   int // indentation of the handler that is being read; unindented before its first line, 0 outside
	pass    int
	lastKey string
}

// unindented is the block of a handler whose first action is still to come.
const unindented = -1

// empty is what the language takes for the sign of an empty list: where it is
// the only item, the next one added takes its place.
const empty = "none"

// filed is an item in its list.
type filed struct{ list, item string }

// binding is a remembered value: a text, or facts.
type binding struct {
	sort  string // string, source, claim
	text  string
	facts string // the facts as they are written; empty for a text
}

// Buckets gives the bucket of each contract name; the map is the caller's.
func (l *Ledger) Buckets() map[string]Action { return maps.Clone(l.where) }

// Passes is the number of passes in the file.
func (l *Ledger) Passes() int { return l.pass }

// Holds says whether the file records a pass of that key as its last.
func (l *Ledger) Holds(k PassKey) bool { return l.lastKey == k.String() }

// List gives the items of a list in order.
func (l *Ledger) List(name string) []string { return slices.Clone(l.lists[name]) }

// Value gives a remembered text.
func (l *Ledger) Value(name string) (string, bool) {
	v, ok := l.values[name]
	return v.text, ok
}

// ReadLedger executes a strict contract file. ErrContract names the line that
// breaks a rule; a compatible contract breaks them in its first line.
func ReadLedger(file []byte) (*Ledger, error) {
	if !utf8.Valid(file) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrContract)
	}
	l := new(Ledger)
	l.prepare()
	l.torn = torn(file)
	lines := strings.Split(lineEnds.Replace(string(file)), "\n")
	for i, line := range lines {
		if err := l.exec(line); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrContract, i+1, err)
		}
	}
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
		l.lists, l.values, l.where, l.why = map[string][]string{}, map[string]binding{}, map[string]Action{}, map[filed]string{}
	}
}

// clone is a copy that shares nothing that exec changes in place.
func (l *Ledger) clone() *Ledger {
	c := *l
	c.lists, c.values, c.where, c.why = make(map[string][]string, len(l.lists)), maps.Clone(l.values), maps.Clone(l.where), maps.Clone(l.why)
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

// Pass gives the lines of one pass: blocks that are new or changed their
// bucket, then the time. A repeated pass, or one that the file ends with, gives
// nothing.
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

// The statements a ledger understands. Words outside quotes are lower case.
var (
	stDeclare  = expression(`^remember a list called ([a-z0-9-]+)$`)
	stRemember = expression(`^remember a (string|source|claim) called ([a-z0-9-]+) with "([^"]+)"$`)
	stFacts    = expression(`^remember a (source|claim) called ([a-z0-9-]+) with ([a-z0-9-]+ as "[^"]+"(?: and [a-z0-9-]+ as "[^"]+")*)$`)
	stFact     = expression(`([a-z0-9-]+) as "([^"]+)"`)
	stAdd      = expression(`^(add|remove) "([^"]+)" (to|from) ([a-z0-9-]+)(?: because "([^"]+)")?$`)
	stCite     = expression(`^cite "([^"]+)" from ([a-z0-9-]+)$`)
	stVerify   = expression(`^verify ([a-z0-9-]+) from ([a-z0-9-]+)$`)
	stAbout    = expression(`^about "[^"]+"$`)
	stPass     = expression(`^-- pass (\d+)(?: key ([0-9a-f]{16}))?$`)
	stOther    = expression(`^(?:show|count|require|permit|forbid|expect|each|keep|choose)(?: |$)`)
	inQuotes   = expression(`"[^"]*"`)
)

// changing are the verbs that change what a ledger keeps, wherever in a line.
var changing = []string{"add", "remove", "remember", "filter", "gather", "sort", "transform", "assign", "weakens"}

// changes says whether a statement that begins with another verb goes on to
// one that changes something.
func changes(text string) bool {
	words := strings.Fields(strings.ToLower(strings.ReplaceAll(inQuotes().ReplaceAllString(text, " "), ":", " ")))
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(changing, strings.Trim(w, ",.?!")) })
}

// exec executes one line. Statements that change nothing are passed over, and
// so are the actions of handlers, which come after the whole file.
func (l *Ledger) exec(line string) error {
	text := strings.TrimSpace(line)
	if text == "" || strings.HasPrefix(text, "--") {
		l.comment(line)
		return nil
	}
	fresh := !l.started
	l.started = true
	indent := len(line) - len(strings.TrimLeft(line, " "))
	if strings.HasPrefix(line[indent:], "\t") {
		return fmt.Errorf("a line must not start with a tab")
	}
	if action, err := l.action(indent); action || err != nil {
		return err
	}
	switch {
	case indent == 0 && strings.HasPrefix(text, "when "):
		l.block = unindented
		l.guarded = l.guarded || text == guardLine
		return nil
	case stOther().MatchString(text) && !changes(text):
		return nil
	case stAbout().MatchString(text):
		if !fresh {
			return fmt.Errorf("\"about\" must be the first line")
		}
		return nil
	}
	return l.statement(text)
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

func (l *Ledger) statement(line string) error {
	if m := stDeclare().FindStringSubmatch(line); m != nil {
		return l.declare(m[1])
	}
	if m := stRemember().FindStringSubmatch(line); m != nil {
		return l.bind(m[2], binding{sort: m[1], text: m[3]})
	}
	if m := stFacts().FindStringSubmatch(line); m != nil {
		return l.bind(m[2], binding{sort: m[1], facts: m[3]})
	}
	if m := stAdd().FindStringSubmatch(line); m != nil && (m[1] == "add") == (m[3] == "to") {
		return l.change(m[1] == "add", m[2], m[4], m[5])
	}
	if m := stCite().FindStringSubmatch(line); m != nil {
		return l.cite(m[1], m[2])
	}
	if m := stVerify().FindStringSubmatch(line); m != nil {
		return l.verify(m[1], m[2])
	}
	return fmt.Errorf("not a statement of the strict dialect: %q", line)
}

// declare refuses a second declaration: it would empty the list.
func (l *Ledger) declare(name string) error {
	if _, ok := l.lists[name]; ok {
		return fmt.Errorf("list %s is declared twice, which empties it", name)
	}
	if _, ok := l.values[name]; ok {
		return fmt.Errorf("%s is a value already", name)
	}
	l.lists[name] = nil
	return nil
}

func (l *Ledger) bind(name string, b binding) error {
	if _, ok := l.lists[name]; ok {
		return fmt.Errorf("%s is a list already", name)
	}
	if old, ok := l.values[name]; ok && old.sort != b.sort {
		return fmt.Errorf("%s is a %s already", name, old.sort)
	}
	l.values[name] = b
	return nil
}

func (l *Ledger) change(add bool, item, name, why string) error {
	items, ok := l.lists[name]
	if !ok {
		return fmt.Errorf("list %s is not declared", name)
	}
	if add {
		if len(items) == 1 && items[0] == empty {
			if err := l.change(false, empty, name, ""); err != nil {
				return err
			}
			items = l.lists[name]
		}
		items = append(items, item)
	} else {
		at := slices.Index(items, item)
		if at < 0 {
			return fmt.Errorf("%q is not in %s", item, name)
		}
		items = slices.Concat(items[:at], items[at+1:])
	}
	l.lists[name] = items
	if delete(l.why, filed{name, item}); add && why != "" {
		l.why[filed{name, item}] = why
	}
	l.refile(add, item, name)
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

func (l *Ledger) cite(text, name string) error {
	src, ok := l.values[name]
	if !ok || src.sort != "source" || src.facts != "" {
		return fmt.Errorf("%w: %s is not a source with a text", ErrCite, name)
	}
	if !strings.Contains(src.text, text) {
		return fmt.Errorf("%w: %q in %s", ErrCite, text, name)
	}
	return nil
}

// verify compares structures, so both sides need facts; their order is free.
func (l *Ledger) verify(claim, source string) error {
	c, s := l.values[claim], l.values[source]
	if c.sort != "claim" || c.facts == "" || s.sort != "source" || s.facts == "" {
		return fmt.Errorf("verify needs a claim with facts and a source with facts, got %s and %s", claim, source)
	}
	if !maps.Equal(factsOf(c.facts), factsOf(s.facts)) {
		return fmt.Errorf("%w: %s and %s", ErrCheck, claim, source)
	}
	return nil
}

// factsOf are written facts by their names; of two with one name the last holds.
func factsOf(written string) map[string]string {
	out := map[string]string{}
	for _, m := range stFact().FindAllStringSubmatch(written, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// torn reports whether a file's last line lacks its end.
func torn(file []byte) bool { return len(file) > 0 && !bytes.HasSuffix(file, []byte("\n")) }
