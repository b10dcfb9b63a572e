package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// SourceState is how far the sources of a session were checked.
type SourceState string

// The states of a source.
const (
	Unscanned SourceState = "unscanned"
	Scanned   SourceState = "scanned"
	Verified  SourceState = "verified"
)

// ClaimBasis is what the claims of a session rest on.
type ClaimBasis string

// The bases of a claim.
const (
	BasisNone      ClaimBasis = "none"
	BasisInference ClaimBasis = "inference"
	BasisDocument  ClaimBasis = "document"
	BasisVerified  ClaimBasis = "verified"
)

// Fact is one named value of a structured claim or source.
type Fact struct{ Name, Value string }

// Statement is a named source or claim: a text, or facts, or both (the facts then get a name of their own).
type Statement struct {
	Name  string // any text; becomes a contract name
	Text  string
	Facts []Fact
}

// Cite says that Text occurs in the source of that name.
type Cite struct{ Text, Source string }

// Check says that a claim is to be compared with a source, fact by fact.
type Check struct{ Claim, Source string }

// Entry is one item of a list, with an optional reason.
type Entry struct{ Text, Because string }

// List is a list of the caller's own, such as work-completed.
type List struct {
	Name  string
	Items []Entry
}

// Records are the session's records in a contract, besides the pager's buckets. Only what the file does not say yet is
// written, so the same records may be passed again and again.
type Records struct {
	SourceState SourceState // empty: unchanged
	ClaimBasis  ClaimBasis  // empty: unchanged
	Sources     []Statement
	Claims      []Statement
	Cites       []Cite  // written each time: a check is made when it is read
	Checks      []Check // likewise
	Decisions   []Entry
	Questions   []Entry
	Corrections []Entry
	Lists       []List
	// OwnReasons are phrases that mark the reasons of entries that this writer keeps up to date. An entry of the file
	// whose reason contains one of them, and that is not among the entries given here, is removed.
	OwnReasons []string
	keep       []string // lists that nothing is withdrawn from
	Guard      bool     // warn, when read, of inference from sources that are not verified
}

const (
	guardLine = `when claim-basis is equal to "inference" unless source-state is equal to "verified"`
	guardShow = `  show "the claim rests on inference and the source is not verified"`
)

// Records returns the lines for what is new in r. An unknown state, a blank text, a cite that is not in its source, or
// a check that fails or has no facts fails the whole export, and nothing changes.
func (l *Ledger) Records(r Records) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return l.export(func(d *draft) { d.records(r) })
}

func (d *draft) records(r Records) {
	d.state("source-state", string(r.SourceState))
	d.state("claim-basis", string(r.ClaimBasis))
	if r.Guard && !d.l.guarded {
		d.guard()
	}
	for _, s := range r.Sources {
		d.statement("source", s)
	}
	for _, c := range r.Claims {
		d.statement("claim", c)
	}
	for _, c := range r.Cites {
		d.cite(c)
	}
	for _, c := range r.Checks {
		d.check(c)
	}
	d.lists(r)
}

// cite writes a cite that holds.
func (d *draft) cite(c Cite) {
	q, source := d.quoted(c.Text), slug("source", c.Source)
	if d.err == nil && !strings.Contains(d.have(source, ""), strings.Trim(q, `"`)) {
		d.err = fmt.Errorf("%w: %s in %s", ErrCite, q, source)
	}
	d.emit("cite %s from %s", q, source)
}

// check writes a check that holds.
func (d *draft) check(c Check) {
	claim, source := d.factsName("claim", c.Claim), d.factsName("source", c.Source)
	a, b := d.l.names[claim], d.l.names[source]
	if d.err == nil && (a.kind != aText && a.kind != record || a.kind != b.kind || a.text != b.text || !maps.Equal(a.fields, b.fields)) {
		d.err = fmt.Errorf("%w: %s and %s", ErrCheck, claim, source)
	}
	d.emit("verify %s from %s", claim, source)
}

// guard adds the handler; the two values it watches must exist before it.
func (d *draft) guard() {
	d.state("source-state", d.have("source-state", string(Unscanned)))
	d.state("claim-basis", d.have("claim-basis", string(BasisNone)))
	d.emit("%s", guardLine)
	d.emit("%s", guardShow)
}

func (r Records) check() error {
	states := []SourceState{"", Unscanned, Scanned, Verified}
	bases := []ClaimBasis{"", BasisNone, BasisInference, BasisDocument, BasisVerified}
	if !slices.Contains(states, r.SourceState) {
		return fmt.Errorf("%w: source state %q", ErrName, r.SourceState)
	}
	if !slices.Contains(bases, r.ClaimBasis) {
		return fmt.Errorf("%w: claim basis %q", ErrName, r.ClaimBasis)
	}
	return nil
}

// have returns the text that is remembered under a name, or another one.
func (d *draft) have(name, otherwise string) string {
	if v := d.l.names[name]; v.kind == aText {
		return v.text
	}
	return otherwise
}

// state remembers a string unless it is the one remembered.
func (d *draft) state(name, value string) {
	if value != "" && d.have(name, "") != value {
		d.emit("remember a string called %s with %s", name, d.quoted(value))
	}
}

func (d *draft) statement(sort string, s Statement) {
	name := slug(sort, s.Name)
	if s.Text != "" {
		q := d.quoted(s.Text)
		if `"`+d.have(name, "")+`"` != q {
			d.emit("remember a %s called %s with %s", sort, name, q)
		}
		name += "-facts"
	}
	if len(s.Facts) == 0 {
		if s.Text == "" && d.err == nil {
			d.err = fmt.Errorf("%w: %s %q has neither text nor facts", ErrText, sort, s.Name)
		}
		return
	}
	facts := make([]string, len(s.Facts))
	fields := map[string]item{}
	for i, f := range s.Facts {
		field, q := slug("fact", f.Name), d.quoted(f.Value)
		facts[i] = field + " as " + q
		fields[field] = item{kind: aText, text: strings.Trim(q, `"`)}
	}
	if !maps.Equal(d.l.names[name].fields, fields) {
		d.emit("remember a %s called %s with %s", sort, name, strings.Join(facts, " and "))
	}
}

// factsName is the name under which the facts of a statement are.
func (d *draft) factsName(sort, name string) string {
	n := slug(sort, name)
	if d.l.names[n].kind == aText {
		return n + "-facts"
	}
	return n
}

func (d *draft) lists(r Records) {
	lists := []List{
		{"tracked-decisions", named("decision", r.Decisions)},
		{"open-questions", named("question", r.Questions)},
		{"session-corrections", r.Corrections},
	}
	for _, own := range r.Lists {
		lists = append(lists, List{listName(own.Name), own.Items})
	}
	d.withdraw(r, lists)
	for _, l := range lists {
		d.list(l.Name, l.Items)
	}
}

// withdraw removes entries of the file that have one of the writer's own reasons and are no longer given.
func (d *draft) withdraw(r Records, given []List) {
	if len(r.OwnReasons) == 0 {
		return
	}
	holds := map[[2]string]bool{}
	for _, l := range given {
		for _, e := range l.Items {
			holds[[2]string{l.Name, strings.Trim(d.quoted(e.Text), `"`)}] = true
		}
	}
	for _, list := range sortedKeys(d.l.names) {
		if slices.Contains(r.keep, list) {
			continue
		}
		for _, i := range slices.Clone(d.l.names[list].items) {
			owned := slices.ContainsFunc(r.OwnReasons, func(phrase string) bool { return strings.Contains(i.why, phrase) })
			if owned && i.kind == aText && !holds[[2]string{list, i.text}] {
				d.emit(`remove "%s" from %s because "withdrawn"`, i.text, list)
			}
		}
	}
}

// named turns entries into short names, the text going to the reason.
func named(prefix string, entries []Entry) []Entry {
	out := make([]Entry, len(entries))
	for i, e := range entries {
		why := e.Text
		if !blank(e.Because) {
			why += " (" + e.Because + ")"
		}
		out[i] = Entry{slug(prefix, e.Text), why}
	}
	return out
}

// list declares a list once and adds what it does not hold. Going over the
// items twice brings back an item "none" whose place the next one took.
func (d *draft) list(name string, items []Entry) {
	for _, e := range slices.Concat(items, items) {
		item := d.quoted(e.Text)
		if _, ok := d.l.find(name, strings.Trim(item, `"`)); d.err != nil || ok {
			continue
		}
		d.declare(name)
		if blank(e.Because) {
			d.emit("add %s to %s", item, name)
		} else {
			d.emit("add %s to %s because %s", item, name, d.quoted(e.Because))
		}
	}
}
