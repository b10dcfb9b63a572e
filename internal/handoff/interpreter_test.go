package handoff

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ctxpage/ctxpage/session"
	"github.com/stretchr/testify/require"
)

// interpreterEnv names a Python that has the interpreter of the language. Where it is set, every contract of these tests
// is executed there, too.
const interpreterEnv = "CTXPAGE_INTERPRETER"

// interpreter is the process of testdata/interpreter.py.
type interpreter struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
	ran int
}

// executed is what the interpreter says of a contract.
type executed struct {
	Errors []struct {
		Line            int
		Status, Message string
	}
	Names map[string]said
}

// said is a value: a kind, and a text, items or fields.
type said struct {
	kind, text string
	items      []said
	fields     map[string]said
}

func (s *said) UnmarshalJSON(raw []byte) error {
	var pair [2]json.RawMessage
	if err := json.Unmarshal(raw, &pair); err != nil {
		return err
	}
	if err := json.Unmarshal(pair[0], &s.kind); err != nil {
		return err
	}
	switch s.kind {
	case aList:
		return json.Unmarshal(pair[1], &s.items)
	case record:
		return json.Unmarshal(pair[1], &s.fields)
	}
	return json.Unmarshal(pair[1], &s.text)
}

var theInterpreter = sync.OnceValues(func() (*interpreter, error) {
	python := os.Getenv(interpreterEnv)
	if python == "" {
		return nil, nil
	}
	cmd := exec.Command(python, "testdata/interpreter.py")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &interpreter{in: in, out: bufio.NewReaderSize(out, 1<<20)}, cmd.Start()
})

func (i *interpreter) run(contract []byte) (e executed, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	raw, err := json.Marshal(string(contract))
	if err != nil {
		return e, err
	}
	if _, err := fmt.Fprintf(i.in, "%s\n", raw); err != nil {
		return e, err
	}
	line, err := i.out.ReadBytes('\n')
	if err != nil {
		return e, err
	}
	i.ran++
	return e, json.Unmarshal(line, &e)
}

// interpreted has a contract executed by the interpreter, where there is one, and compares all that is remembered. The
// contract declares all of it, but for what the interpreter's own pack keeps.
func interpreted(t require.TestingT, contract []byte) {
	i := must(theInterpreter())(t)
	if i == nil {
		return
	}
	e := must(i.run(contract))(t)
	require.Empty(t, e.Errors, "%s", contract)
	l, err := ReadLedger(contract)
	require.NoError(t, err, "%s", contract)
	differs, _ := l.compare(e)
	require.Empty(t, differs, "%s", contract)
	for name, v := range l.names {
		require.False(t, v.partial || v.kind == "" && !strings.HasPrefix(name, "verification-"), "%s is not known: %s", name, contract)
	}
}

// compare names what a ledger says otherwise than the interpreter, and counts the names of which it knows all.
func (l *Ledger) compare(e executed) (differs []string, known int) {
	names := map[string]bool{}
	for name := range e.Names {
		names[name] = true
	}
	for name := range l.names {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		v, ours := l.names[name]
		other, theirs := e.Names[name]
		switch {
		case ours && v.kind == "", v.partial && other.kind != aList:
		case !ours || !theirs || !v.says(other):
			differs = append(differs, fmt.Sprintf("%s: %v %+v, the interpreter: %v %+v", name, ours, v, theirs, other))
		case !v.partial:
			known++
		}
	}
	return differs, known
}

// says compares a value with the interpreter's, item by item. A partial list has some of the items.
func (v value) says(o said) bool {
	switch v.kind {
	case aList:
		left := slices.Clone(o.items)
		for n, i := range v.items {
			at := slices.IndexFunc(left, i.says)
			if at < 0 || !v.partial && !i.says(o.items[n]) {
				return false
			}
			left = slices.Delete(left, at, at+1)
		}
		return o.kind == aList && (v.partial || len(left) == 0)
	case record:
		for name, f := range v.fields {
			if !f.says(o.fields[name]) {
				return false
			}
		}
		return o.kind == record && len(v.fields) == len(o.fields)
	}
	return item{kind: v.kind, text: v.text}.says(o)
}

func (i item) says(o said) bool {
	if i.kind == number && o.kind == number { // each writes it in its own way
		a, errA := strconv.ParseFloat(i.text, 64)
		b, errB := strconv.ParseFloat(o.text, 64)
		return errA == nil && errB == nil && a == b
	}
	return i.kind == o.kind && i.text == o.text
}

// needsInterpreter skips a test that is about the interpreter alone.
func needsInterpreter(t *testing.T) *interpreter {
	i := must(theInterpreter())(t)
	if i == nil {
		t.Skip(interpreterEnv + " names no Python with the package liminate")
	}
	return i
}

// made are contracts put together at random from what people write and from what they get wrong.
func made(r *rand.Rand) []byte {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	name := func() string {
		return pick("l-a", "l-a", "l-b", "s-a", "s-a", "n-a", "d-a", "r-a", "add-one", "big", "note", "List", "café", "sum", "2026-11-20", "12", "equal", "combine", "source", "the", "x.y", "claim-basis")
	}
	value := func() string {
		return pick(`"x"`, `"y z"`, `"none"`, "x", "none", "7", "-3.50", "0.1", "007", "2026-11-20", "2026-13-40", "s-a", "n-a", "l-a", "r-a", "limit of r-a", "n-a plus 1", "2 multiplied by n-a", "7 divided by 2", `""`, `"a"b"`, "to", "each", "above", "add-one")
	}
	cond := func() string {
		c := pick("s-a", "n-a", "l-a", "limit of r-a", "missing", "each") + pick(" is ", " is not ", " is above ", " is below ", " is equal to ", " is not above ", " includes ", " not includes ", " is within 3 of ", " are ") + value()
		if r.IntN(6) == 0 {
			c += pick(" and ", " or ") + `s-a is "x"`
		}
		return c
	}
	var b strings.Builder
	if r.IntN(3) > 0 {
		b.WriteString("about \"refunds\"\n")
	}
	b.WriteString("remember a list called l-a" + pick("", ` with "none"`, " with 1 and 2", ` with "x" and "y"`, " with none") + "\n")
	b.WriteString("remember a string called s-a with \"x\"\nremember a number called n-a with " + pick("0", "3", "2.5") + "\n")
	if r.IntN(2) == 0 {
		b.WriteString("remember a record called r-a with limit as 400 and unit as \"case\"\nremember how to add-one: add \"one\" to l-a\ndefine big: each is above 2\n")
	}
	sound := func() string {
		text := pick(`"x"`, `"y z"`, `"none"`, "x", "none", "s-a", `"ünï: \\ 'q' -- # 1"`)
		num := pick("n-a", "2", "0.5", "-7", "n-a plus 1", "2 multiplied by n-a minus 1", "limit of r-b", "7 divided by 2 plus n-a", "12345678901234567890 plus 1")
		holds := pick(`s-a is "x"`, "n-a is above 1", "n-a is not below "+num, "l-s includes "+text, "l-s not includes \"x\"", "s-a is not equal to "+text, "n-a is within 2 of 3", "n-a is within 1 of "+num, "n-a is large", "n-a is not large", `s-a is "x" and n-a is 3`, `n-a is 3 or n-a is 0`, "limit of r-b is 400", "d-b is above 2026-01-01")
		return pick(
			"add "+text+" to l-s", "add "+text+" to l-s because \"r\"", "inherited add \"i\" to l-s because \"r\" from agent-7", "add "+num+" to l-n", "remember a string called s-a with "+text,
			"remember a number called n-a with "+num, "remember a number called n-a from "+pick("count l-s", "sum l-n", "count l-n", num, "total", "twice from 2", "twice from n-a"), "put-x", "put-it from "+text, "put-it from s-a",
			"choose if "+holds+": add \"c\" to l-s otherwise if "+holds+": add \"d\" to l-s and put-x otherwise show s-a", "require "+holds+" and add \"kept\" to l-s", "forbid "+holds+" unless "+holds+" then add \"free\" to l-s",
			"permit "+holds, "expect "+holds, "when "+holds+"\n  add \"later\" to l-s\n  show l-s", "inherited when "+holds+" unless "+holds+" from agent-7:\n   show \"w\"", "keep l-n where each is above "+num, "keep l-s where each is "+text,
			"require each v in l-n is above -100 and add \"all\" to l-s", "require each v in l-n v is large then add \"large\" to l-s", "each l-s show", "show limit of r-b", "l-n sum", "count the l-s", "show highest", "define large: is above 2", "define large: each is not below n-a",
			"remember a date called d-b with 2026-02-28 plus "+pick("1", "2", "n-a", "400"), "remember a number called n-a from d-b minus 2026-01-01", "remember a record called r-b with limit as "+num+" and unit as "+text, "remember a list called l-x"+fmt.Sprint(r.IntN(9))+" with "+num+" and 3",
			"remember a list called l-y"+fmt.Sprint(r.IntN(9))+" from l-s", "remember a thing called l-z"+fmt.Sprint(r.IntN(9))+" with l-n", "remove "+text+" from l-s", "remove 2 from l-n", "Show \"Hi\" and Add \"Up\" to L-S!", "remember how to put-x: add \"v2\" to l-s then count l-s", "verify r-b from r-b",
			"remember a list called l-w"+fmt.Sprint(r.IntN(9))+" with "+text, "until \"2027-01-01\" inherited add "+text+" to l-s", "remember a list called l-r"+fmt.Sprint(r.IntN(9))+" with r-b", "starting 2026-01-01 until 2026-12-31 put-x", "cite \"x\" from s-a",
		)
	}
	friendly := r.IntN(3) > 0
	if friendly {
		b.WriteString("remember a list called l-s with \"none\"\nremember a list called l-n with 1 and 2\nremember a record called r-b with limit as 400 and unit as \"case\"\n" +
			"remember how to put-x: add \"x\" to l-s\nremember how to put-it from it: add it to l-s and count l-s\nremember how to total: sum l-n\n" +
			"remember how to twice from v: put-it from \"t\" and remember a number called t-v from v multiplied by 2 and count l-s\ndefine large: is above 2\nremember a date called d-b with 2026-11-20\n")
	}
	for range 1 + r.IntN(4) {
		if friendly {
			b.WriteString(sound() + "\n")
			continue
		}
		line := pick(
			"add "+value()+" to "+name(), "add "+value()+" to "+name()+" because "+value(), "remove "+value()+" from "+name(), "add "+value()+" to the l-a",
			"remember a "+pick("list", "string", "number", "source", "verified claim", "")+" called "+name()+" with "+value(),
			"remember a list called l-b", "remember a list called "+name()+" with "+value()+" and "+value(), "remember a date called d-a from "+value(),
			"remember a number called n-a from "+pick("count", "sum", "keep", "show")+" "+name(), "remember a claim called "+name()+" with limit as "+value()+" and unit as "+value(),
			"remember how to "+name()+pick("", " from x", " x")+": "+pick("add x to l-a", "show "+name(), "count l-a", `add "x" to l-a and remove "x" from l-a`, "add-one"),
			"add-one", "add-one from "+value(), name()+" from "+value(), name(), "inherited add "+value()+" to l-a"+pick("", " from agent-7", ` because "y" from agent-7`, " from"),
			"show "+pick(name(), value(), "the "+name(), "", "l-a and n-a", "x y"), "count "+name(), "sum "+name(), "l-a count", "each l-a show", "each l-a show "+name(),
			pick("require ", "forbid ", "permit ", "expect ")+cond()+pick("", "", " unless "+cond(), ` because "why"`),
			pick("require each x in l-a ", "keep l-a where each ", "keep l-a where x ", "require each l-a in l-a ")+pick("is above 0", "includes 3", "is big", "is \"x\" or each is \"y\"", "is not equal to "+value(), "is within 2 of x"), "choose if "+cond()+": add \"c\" to l-a"+pick("", " otherwise add \"d\" to l-a", " otherwise if "+cond()+": show s-a"),
			"when "+cond()+pick("", " unless "+cond(), ":")+"\n"+pick("  show \"w\"", "  add \"w\" to l-a", "    show n-a\n  show s-a", "show s-a", "  show x y", "  filter l-a where each is 1"),
			"starting \"2026-01-01\" add \"t\" to l-a", "until 2026-01-01 "+pick("show s-a", "inherited show s-a"), "Add \"Up\" to L-A!", "add \"x\" to l-a and add \"y\" to l-a", "require "+cond()+" and add \"q\" to l-a",
			"define "+name()+": "+cond(), "about \"late\"", "cite \"x\" from s-a", "verify r-a from "+name(), "\tshow s-a", "  show s-a", "-- note", "set s-a to \"x\"", "add \"x\" l-a", ",", "then show s-a", "show \"a\" then add \"z\" to l-a",
		)
		b.WriteString(line + "\n")
	}
	return []byte(b.String())
}

// What the interpreter executes is read, and what the reader says is what the interpreter remembers.
func TestInterpreterReadsAlike(t *testing.T) {
	i := needsInterpreter(t)
	r := rand.New(rand.NewPCG(13, 4))
	read, refused, known := 0, 0, 0
	for range 4000 {
		contract := made(r)
		e := must(i.run(contract))(t)
		if len(e.Errors) > 0 {
			refused++
			continue
		}
		l, err := ReadLedger(contract)
		if err != nil {
			t.Errorf("%s\nrefused here: %v", contract, err)
			continue
		}
		differs, n := l.compare(e)
		if len(differs) > 0 {
			t.Errorf("%s\n%s", contract, strings.Join(differs, "\n"))
		}
		read, known = read+1, known+n
	}
	require.Greater(t, read, 400)
	require.Greater(t, known, 2*read, "a reader that knows nothing is never wrong")
	t.Logf("%d read, %d refused by the interpreter, %d names known", read, refused, known)
}

// A reader that passes over more than it knows is seen: the same comparison, with a value that the interpreter has not.
func TestInterpreterSeesAnother(t *testing.T) {
	i := needsInterpreter(t)
	contract := []byte("remember a list called l-a with \"x\" and \"y\"\nremember a number called n-a with 3\n")
	e := must(i.run(contract))(t)
	for _, other := range []string{"remember a list called l-a with \"y\" and \"x\"", "add \"x\" to l-a", "remove \"x\" from l-a", "remember a number called n-a with 4", "remember a string called s-a with \"x\""} {
		l := must(ReadLedger(append(slices.Clip(contract), other...)))(t)
		differs, _ := l.compare(e)
		require.Len(t, differs, 1, other)
	}
}

// The packet's facts are what the interpreter has after its lines, item by item; the JSON is the measure.
func TestInterpreterHasTheFactsOfPackets(t *testing.T) {
	i := needsInterpreter(t)
	first, second := Handoff(handoffInput()), Handoff(longInput(20, longSessions["mixed"]))
	first.SessionOrProject = second.SessionOrProject
	third := first
	third.WorkCompleted = []string{"none", "say \"yes\"", "two\nlines", "caf\xff", "remember", "-- x", "2026-11-20", "12"}
	third.OpenQuestions, third.LockedDecisions, third.Date = nil, nil, "later"
	l, file := new(Ledger), []byte(nil)
	for _, p := range []session.Packet{first, second, third} {
		b := must(l.Packet(p))(t)
		file = append(file, b...)
		e := must(i.run(file))(t)
		require.Empty(t, e.Errors)
		raw := must(p.JSON())(t)
		var facts map[string]any
		require.NoError(t, json.Unmarshal(raw, &facts))
		require.Empty(t, missing(facts, e.Names))
	}
	e := must(i.run([]byte(strings.Replace(string(file), "two lines", "two  lines", 1))))(t)
	require.Empty(t, e.Errors)
	raw := must(third.JSON())(t)
	var facts map[string]any
	require.NoError(t, json.Unmarshal(raw, &facts))
	require.NotEmpty(t, missing(facts, e.Names), "the comparison sees one blank")
	e = must(i.run(append(file, "set handoff-state to \"ready\"\n"...)))(t)
	require.Len(t, e.Errors, 1)
}

// missing compares the lists of the interpreter with the facts of a packet's JSON, both ways.
func missing(facts map[string]any, names map[string]said) (out []string) {
	shown := strings.NewReplacer(`"`, "'", "\n", " ")
	for list, of := range map[string][2]string{
		"work-completed": {"work_completed", ""}, "work-remaining": {"work_not_yet_completed", ""}, "do-not-claim": {"do_not_claim_beyond_this", "boundary"},
		"context-to-preserve": {"context_to_preserve", "context"}, "inferred-claims": {"inferred_claims", "text"}, "session-corrections": {"active_user_corrections", "correction"},
	} {
		var want, got []string
		for _, item := range facts[of[0]].([]any) {
			if of[1] != "" {
				item = item.(map[string]any)[of[1]]
			}
			if text := shown.Replace(item.(string)); !blank(text) && !slices.Contains(want, text) {
				want = append(want, text)
			}
		}
		for _, item := range names[list].items {
			got = append(got, item.text)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			out = append(out, fmt.Sprintf("%s: %q, the interpreter: %q", list, want, got))
		}
	}
	sources := map[string][]string{}
	for _, s := range facts["verified_sources"].([]any) {
		state := s.(map[string]any)["state"].(string)
		sources[state] = append(sources[state], s.(map[string]any)["source"].(string))
	}
	for _, state := range sourceStates {
		var got []string
		for _, item := range names[state+"-sources"].items {
			got = append(got, item.text)
		}
		if !slices.Equal(slices.Sorted(slices.Values(sources[state])), slices.Sorted(slices.Values(got))) {
			out = append(out, state+"-sources")
		}
	}
	if n := len(facts["locked_decisions"].([]any)); len(names["tracked-decisions"].items) < n+1 {
		out = append(out, "tracked-decisions")
	}
	if n := len(facts["open_questions"].([]any)); len(names["open-questions"].items) != n {
		out = append(out, "open-questions")
	}
	return out
}
