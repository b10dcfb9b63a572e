package session

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Ledger is what a strict contract file declares: lists with their items, strings, sources, claims. ReadLedger reads it
// from the file. It returns the bytes to append, one slice per export, to be written with one write. The rules of what it
// writes were found by running the real interpreter: each export is a continuation that runs there.
//
// A ledger computes nothing. Statements that do more than declare are passed over: they stay in the file, and the ledger
// forgets what they may change. So it may know less than the interpreter, and never anything else.
//
// The zero Ledger is an empty file. It is not safe for concurrent use.
type Ledger struct {
	names   map[string]value
	bodies  map[string][]word // of each composition
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

// value is what a name stands for. Only the members of its kind are set.
type value struct {
	kind    string          // one of the kinds below; "": not known, because of a statement that was passed over
	text    string          // of a text, a number or a date, as it is written
	fields  map[string]item // of a record
	items   []item          // of a list: they are there
	partial bool            // of a list: others may be there as well
}

// item is an item of a list, or the value of a field.
type item struct {
	kind, text string
	why        string // the reason it was added with, where there was one
}

func (i item) same(o item) bool { return i.kind == o.kind && i.text == o.text }

// The kinds of values.
const (
	aText  = "string"
	number = "number"
	date   = "date"
	record = "record"
	aList  = "list"
)

// Buckets returns the bucket of each contract name. The caller owns the map. A block that somebody filed twice has the
// lowest of its buckets.
func (l *Ledger) Buckets() map[string]Action {
	out := map[string]Action{}
	for a, name := range bucketNames {
		for _, i := range l.names[name].items {
			out[i.text] = Action(a)
		}
	}
	return out
}

// Passes is the number of passes in the file.
func (l *Ledger) Passes() int { return l.pass }

// List returns the items of a list in order: those that are known to be there.
func (l *Ledger) List(name string) (texts []string) {
	for _, i := range l.names[name].items {
		texts = append(texts, i.text)
	}
	return texts
}

// Value returns a remembered text, number or date as it is written, and false for any other name. A record has no value;
// for it only ok is meaningful.
func (l *Ledger) Value(name string) (string, bool) {
	v := l.names[name]
	return v.text, v.kind != "" && v.kind != aList
}

// find returns the last item of a list with that text.
func (l *Ledger) find(list, text string) (i item, ok bool) {
	for _, i := range slices.Backward(l.names[list].items) {
		if i.same(item{kind: aText, text: text}) {
			return i, true
		}
	}
	return i, false
}

// ReadLedger reads a strict contract file. It refuses no file that the interpreter runs. ErrContract names the line of
// what certainly fails there: bytes that are no UTF-8, a quote that is open or empty, an item for a list that nothing
// declares. A contract that the published pager wrote fails so in its first line.
func ReadLedger(file []byte) (*Ledger, error) {
	if !utf8.Valid(file) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrContract)
	}
	l := new(Ledger)
	l.prepare()
	l.torn = torn(file)
	for i, line := range strings.Split(lineEnds.Replace(string(file)), "\n") {
		if err := l.read(line); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrContract, i+1, err)
		}
	}
	return l, nil
}

// lineEnds makes one of all that ends a line for the interpreter, so that no
// statement hides behind a character that others do not see.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\x1c", "\n", "\x1d", "\n", "\x1e", "\n",
	"\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

func (l *Ledger) prepare() {
	if l.names == nil {
		l.names, l.bodies = map[string]value{}, map[string][]word{}
	}
}

// clone is a copy that shares nothing that read changes in place.
func (l *Ledger) clone() *Ledger {
	c := *l
	c.names, c.bodies = maps.Clone(l.names), maps.Clone(l.bodies)
	for name, v := range c.names {
		v.items = slices.Clip(v.items)
		c.names[name] = v
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
	if d.err = d.l.read(line); d.err == nil {
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
	if r.Repeated || l.lastKey == r.Key.String() {
		return nil, nil
	}
	names, err := contractNames(r.Verdicts)
	if err != nil {
		return nil, err
	}
	filed := map[string][len(bucketNames)]int{} // how often each block is in each bucket
	for a, bucket := range bucketNames {
		for _, i := range l.names[bucket].items {
			n := filed[i.text]
			n[a]++
			filed[i.text] = n
		}
	}
	return l.export(func(d *draft) {
		d.buckets() // a file that somebody else began has none
		d.emit("-- pass %d key %s", l.pass+1, r.Key)
		for i, v := range r.Verdicts {
			d.file(names[i], v, filed[names[i]])
		}
		d.emit(`remember a string called last-pager-pass with "%s"`, at.UTC().Format("2006-01-02T15:04:05+00:00"))
	})
}

// buckets declares what is not declared yet.
func (d *draft) buckets() {
	for _, name := range bucketNames {
		d.declare(name)
	}
}

// declare declares a list of texts, unless the file has it. To declare it again would empty it.
func (d *draft) declare(name string) {
	v := d.l.names[name]
	texts := v.kind == aList && (len(v.items) == 0 || v.items[0].kind == aText)
	switch {
	case d.err != nil || texts:
	case v.kind != "":
		d.err = fmt.Errorf("%w: %s is no list of texts in the file, and the lines to append need one of that name; rename it there", ErrContract, name)
	default:
		d.emit("remember a list called %s", name)
	}
}

// file moves a block into the bucket of its verdict.
func (d *draft) file(name string, v Verdict, filed [len(bucketNames)]int) {
	for a, times := range filed {
		for range times {
			if Action(a) != v.Action {
				d.emit(`remove "%s" from %s`, name, Action(a).Bucket())
			}
		}
	}
	if filed[v.Action] > 0 {
		return
	}
	why := ""
	if v.Reason != ByScore {
		why = "; " + v.Reason.String()
	}
	d.emit(`add "%s" to %s because "R=%s similarity=%s delta_t=%d%s"`, name, v.Action.Bucket(), short(v.R), short(v.Similarity), v.Delta, why)
}

var stPass = expression(`^-- pass (\d+)(?: key ([0-9a-f]{16}))?$`)

// read reads one line. The actions of handlers are passed over: they come after the whole file.
func (l *Ledger) read(line string) error {
	text := strings.TrimFunc(line, spaced)
	if text == "" || strings.HasPrefix(text, "--") {
		l.comment(line)
		return nil
	}
	l.started = true
	words, err := wordsOf(text)
	indent := len(line) - len(strings.TrimLeft(line, " "))
	if err != nil || l.action(indent) || len(words) == 0 {
		return err
	}
	if indent == 0 && (words[0].is(aLink, "when") || words[0].is(anOperator, "inherited") && len(words) > 1 && words[1].is(aLink, "when")) {
		l.block = unindented
		l.guarded = l.guarded || text == guardLine
		return nil
	}
	plain, err := l.plain(words)
	if !plain {
		l.passOver(words)
	}
	return err
}

// action reports whether a line of that indentation is an action of the handler
// above it. An indented line below no handler is a statement like any other.
func (l *Ledger) action(indent int) bool {
	if l.block == unindented {
		l.block = indent
	}
	if indent != l.block {
		l.block = 0
	}
	return l.block > 0
}

func (l *Ledger) comment(line string) {
	if m := stPass().FindStringSubmatch(line); m != nil {
		l.pass, _ = strconv.Atoi(m[1])
		l.lastKey = m[2]
	}
}

// torn reports whether a file's last line lacks its end.
func torn(file []byte) bool { return len(file) > 0 && !bytes.HasSuffix(file, []byte("\n")) }
