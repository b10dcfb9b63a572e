package session

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
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
	pass    int
	lastKey string
}

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
	l := new(Ledger)
	l.prepare()
	l.torn = torn(file)
	for i, line := range strings.Split(string(file), "\n") {
		if err := l.exec(strings.TrimSuffix(line, "\r")); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrContract, i+1, err)
		}
	}
	return l, nil
}

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
	stDeclare  = regexp.MustCompile(`^remember a list called ([a-z0-9-]+)$`)
	stRemember = regexp.MustCompile(`^remember a (string|source|claim) called ([a-z0-9-]+) with "([^"]+)"$`)
	stFacts    = regexp.MustCompile(`^remember a (source|claim) called ([a-z0-9-]+) with ([a-z0-9-]+ as "[^"]+"(?: and [a-z0-9-]+ as "[^"]+")*)$`)
	stAdd      = regexp.MustCompile(`^(add|remove) "([^"]+)" (to|from) ([a-z0-9-]+)(?: because "([^"]+)")?$`)
	stCite     = regexp.MustCompile(`^cite "([^"]+)" from ([a-z0-9-]+)$`)
	stVerify   = regexp.MustCompile(`^verify ([a-z0-9-]+) from ([a-z0-9-]+)$`)
	stAbout    = regexp.MustCompile(`^about "[^"]+"$`)
	stPass     = regexp.MustCompile(`^-- pass (\d+)(?: key ([0-9a-f]{16}))?$`)
	stOther    = regexp.MustCompile(`^(?:when|show|count|require|permit|forbid|expect|each|filter|keep|choose|gather|combine)(?: |$)`)
)

// exec executes one line. Lines of other statements of the language, and
// indented ones, are passed over.
func (l *Ledger) exec(line string) error {
	fresh := !l.started
	text := strings.TrimSpace(line)
	l.started = l.started || text != "" && !strings.HasPrefix(text, "--")
	switch {
	case strings.HasPrefix(line, "\t"):
		return fmt.Errorf("a line must not start with a tab")
	case text == "", strings.HasPrefix(line, " "):
		return nil
	case strings.HasPrefix(line, "--"):
		l.comment(line)
		return nil
	case stOther.MatchString(line):
		l.guarded = l.guarded || line == guardLine
		return nil
	case stAbout.MatchString(line):
		if !fresh {
			return fmt.Errorf("\"about\" must be the first line")
		}
		return nil
	}
	return l.statement(line)
}

func (l *Ledger) comment(line string) {
	if m := stPass.FindStringSubmatch(line); m != nil {
		l.pass, _ = strconv.Atoi(m[1])
		l.lastKey = m[2]
	}
}

func (l *Ledger) statement(line string) error {
	if m := stDeclare.FindStringSubmatch(line); m != nil {
		return l.declare(m[1])
	}
	if m := stRemember.FindStringSubmatch(line); m != nil {
		return l.bind(m[2], binding{sort: m[1], text: m[3]})
	}
	if m := stFacts.FindStringSubmatch(line); m != nil {
		return l.bind(m[2], binding{sort: m[1], facts: m[3]})
	}
	if m := stAdd.FindStringSubmatch(line); m != nil && (m[1] == "add") == (m[3] == "to") {
		return l.change(m[1] == "add", m[2], m[4], m[5])
	}
	if m := stCite.FindStringSubmatch(line); m != nil {
		return l.cite(m[1], m[2])
	}
	if m := stVerify.FindStringSubmatch(line); m != nil {
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

// verify compares structures, so both sides need facts.
func (l *Ledger) verify(claim, source string) error {
	c, s := l.values[claim], l.values[source]
	if c.sort != "claim" || c.facts == "" || s.sort != "source" || s.facts == "" {
		return fmt.Errorf("verify needs a claim with facts and a source with facts, got %s and %s", claim, source)
	}
	return nil
}

// torn reports whether a file's last line lacks its end.
func torn(file []byte) bool { return len(file) > 0 && !bytes.HasSuffix(file, []byte("\n")) }
