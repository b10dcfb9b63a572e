package handoff

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
)

var (
	errNameClash = errors.New("session: two blocks share one contract name")
	errText      = errors.New("session: quoted text is blank")
)

var bucketNames = [3]string{"retained-blocks", "paged-blocks", "evicted-blocks"}

// A contract is a .limn file that records what a session decided, in a language that an interpreter runs. A Ledger reads
// and writes it.

var (
	safeID = prose.Expression(`^block-[A-Za-z0-9._:-]{1,120}$`)
	madeID = prose.Expression(`^block-x[0-9a-f]{16}$`)
)

// ContractName is the name of a block in a contract: its id if that is harmless, otherwise a name made from its hash,
// so that no id can smuggle a statement in. An id that looks like a made name is hashed too, so that no block can pose
// as another.
func ContractName(id string) string {
	if safeID().MatchString(id) && !madeID().MatchString(id) {
		return id
	}
	return fmt.Sprintf("block-x%016x", xxhash.Sum64String(id))
}

// contractNames returns the name of each verdict's block and refuses two blocks
// with one name.
func contractNames(vs []session.Verdict) ([]string, error) {
	names := make([]string, len(vs))
	owner := make(map[string]string, len(vs))
	for i, v := range vs {
		n := ContractName(v.ID)
		if other, taken := owner[n]; taken {
			return nil, fmt.Errorf("%w: %q and %q are both %q", errNameClash, other, v.ID, n)
		}
		names[i], owner[n] = n, v.ID
	}
	return names, nil
}

// joinLines ends every line, and the torn one that stands before them.
func joinLines(torn bool, lines []string) []byte {
	out := strings.Join(lines, "\n") + "\n"
	if torn {
		out = "\n" + out
	}
	return []byte(out)
}

// quote puts a text between double quotes. The language has no escape, so a
// quote becomes an apostrophe; line ends, controls and characters that reorder
// text become spaces. Each character is replaced by one character: what is
// contained in a text is still contained in it afterwards, which cite needs.
func quote(text string) (string, error) {
	safe := strings.Map(quotable, text) // what is no UTF-8 comes as U+FFFD, one for each byte
	if strings.TrimSpace(safe) == "" {
		return "", errText
	}
	return `"` + safe + `"`, nil
}

func quotable(r rune) rune {
	if r == '"' {
		return '\''
	}
	return prose.Unbroken(r)
}

var contractName = prose.Expression(`^[a-z][a-z0-9]*(-[a-z0-9]+)+$`)

// reservedNames have a meaning in the contract itself or in the interpreter's session
// pack. Reserved words proper have no hyphen, and every name has one.
var reservedNames = []string{
	"retained-blocks", "paged-blocks", "evicted-blocks", "last-pager-pass", "source-state", "claim-basis",
	"tracked-decisions", "open-questions", "session-corrections", "handoff-state",
	"verification-status", "verification-divergences", "measure-status", "measure-matched", "measure-delta",
}

const longestName = 80

// madeName are the endings that slug itself or a statement's facts give a name.
var madeName = prose.Expression(`-x[0-9a-f]{16}$|-facts$`)

// listName is the name of a list of the caller's: its own where that is a
// contract name that neither the contract nor a source or claim may have.
func listName(own string) string {
	taken := slices.Contains(reservedNames, own) || strings.HasPrefix(own, "source-") || strings.HasPrefix(own, "claim-")
	if taken || !contractName().MatchString(own) || len(own) > longestName {
		return slug("list", own)
	}
	return own
}

// slug makes a contract name with a prefix from any text. A text that is such a
// name stays; one that loses something on the way, or looks as if it had, gets a
// hash at its end, so that no text can pose as another.
func slug(prefix, text string) string {
	free := func(name string) bool { return !slices.Contains(reservedNames, name) && !madeName().MatchString(name) }
	if strings.HasPrefix(text, prefix+"-") && len(text) <= longestName && contractName().MatchString(text) && free(text) {
		return text
	}
	var b strings.Builder
	b.WriteString(prefix)
	gap := true
	for _, r := range strings.ToLower(text) {
		if r < utf8.RuneSelf && (unicode.IsLower(r) || unicode.IsDigit(r)) {
			if gap {
				b.WriteByte('-')
			}
			b.WriteRune(r)
			gap = false
		} else {
			gap = true
		}
		if b.Len() >= longestName-20 {
			break
		}
	}
	name := b.String()
	if name == prefix+"-"+text && free(name) {
		return name
	}
	return fmt.Sprintf("%s-x%016x", name, xxhash.Sum64String(text))
}

// Ledger has the declarations of a strict contract file: lists with their items, strings, sources, claims. ReadLedger reads it
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
	block   int               // indentation of the handler that is being read; unindented before its first line, 0 outside
	pass    int
	lastKey string
}

// unindented is the block of a handler whose first action is still to come.
const unindented = -1

// empty is the text by which the language marks an empty list: if it is the only item, the next one replaces it.
const empty = "none"

// value is the value of a name. Only the members of its kind are set.
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

// List returns the items of a list in order: those that are known to be there.
func (l *Ledger) List(name string) (texts []string) {
	for _, i := range l.names[name].items {
		texts = append(texts, i.text)
	}
	return texts
}

// Value returns a remembered text, number or date as it is written, and false for any other name. Of a record only ok is
// meaningful.
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
		return nil, fmt.Errorf("%w: not UTF-8", session.ErrContract)
	}
	l := new(Ledger)
	l.prepare()
	l.torn = len(file) > 0 && !bytes.HasSuffix(file, []byte("\n"))
	for i, line := range strings.Split(lineEnds.Replace(string(file)), "\n") {
		if err := l.read(line); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", session.ErrContract, i+1, err)
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
func (l *Ledger) Pass(r *session.StoredPass, at time.Time) ([]byte, error) {
	if r.Repeated || l.lastKey == r.Key {
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
		d.err = fmt.Errorf("%w: %s is no list of texts in the file, and the lines to append need one of that name; rename it there", session.ErrContract, name)
	default:
		d.emit("remember a list called %s", name)
	}
}

// file moves a block into the bucket of its verdict.
func (d *draft) file(name string, v session.Verdict, filed [len(bucketNames)]int) {
	for a, times := range filed {
		for range times {
			if session.Action(a) != v.Action {
				d.emit(`remove "%s" from %s`, name, bucketNames[a])
			}
		}
	}
	if filed[v.Action] > 0 {
		return
	}
	why := ""
	if v.Reason != conversation.ByScore.String() {
		why = "; " + v.Reason
	}
	d.emit(`add "%s" to %s because "R=%s similarity=%s delta_t=%d%s"`, name, bucketNames[v.Action], prose.Short(v.R), prose.Short(v.Similarity), v.Delta, why)
}

var stPass = prose.Expression(`^-- pass (\d+)(?: key ([0-9a-f]{16}))?$`)

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
