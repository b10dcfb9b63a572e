package handoff

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/session"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var then = time.Date(2026, 11, 20, 9, 26, 33, 5, time.UTC)

// verdicts makes a result of a pass from id, action pairs.
func verdicts(key int, pairs ...any) *session.StoredPass {
	r := &session.StoredPass{Key: fmt.Sprintf("%016x", key), At: then}
	for i := 0; i < len(pairs); i += 2 {
		r.Verdicts = append(r.Verdicts, session.Verdict{Reason: "score", Index: i / 2, ID: pairs[i].(string), Action: pairs[i+1].(session.Action), R: 0.72631, Similarity: 5.0 / 6, Delta: 2})
	}
	return r
}

func TestStrictContractOfTwoPasses(t *testing.T) {
	var l Ledger
	first := must(l.Pass(verdicts(1, "block-0x01", session.Retain, "block-0x02", session.Evict, "m 3", session.Page), then))(t)
	require.Equal(t, `about "ctxpage pager contract"
remember a list called retained-blocks
remember a list called paged-blocks
remember a list called evicted-blocks
-- pass 1 key 0000000000000001
add "block-0x01" to retained-blocks because "R=0.7263 similarity=0.8333 delta_t=2"
add "block-0x02" to evicted-blocks because "R=0.7263 similarity=0.8333 delta_t=2"
add "`+ContractName("m 3")+`" to paged-blocks because "R=0.7263 similarity=0.8333 delta_t=2"
remember a string called last-pager-pass with "2026-11-20T09:26:33+00:00"
`, string(first))

	repeated := must(l.Pass(verdicts(1, "block-0x01", session.Retain), then))(t)
	require.Nil(t, repeated, "the file ends with that pass")

	second := must(l.Pass(verdicts(2, "block-0x01", session.Retain, "block-0x02", session.Retain, "m 3", session.Page), then.Add(time.Minute)))(t)
	require.Equal(t, `-- pass 2 key 0000000000000002
remove "block-0x02" from evicted-blocks
add "block-0x02" to retained-blocks because "R=0.7263 similarity=0.8333 delta_t=2"
remember a string called last-pager-pass with "2026-11-20T09:27:33+00:00"
`, string(second), "changes only")

	read := must(ReadLedger(append(first, second...)))(t)
	require.Equal(t, &l, read)
	require.Equal(t, 2, read.pass)
	interpreted(t, append(first, second...))
	require.Equal(t, []string{"block-0x01", "block-0x02"}, read.List("retained-blocks"))
	require.Equal(t, []string{ContractName("m 3")}, read.List("paged-blocks"))
	require.Empty(t, read.List("evicted-blocks"))
}

func TestContractOfThePublishedPager(t *testing.T) {
	_, err := ReadLedger([]byte("add \"block-1\" to paged-blocks\nset last-pager-pass to 2026-11-20T09:26:33+00:00\n"))
	require.ErrorIs(t, err, session.ErrContract)
	require.ErrorContains(t, err, "line 1: list paged-blocks is not declared")
}

func TestContractNamesCannotBeForged(t *testing.T) {
	require.Equal(t, "block-a.b:c_1", ContractName("block-a.b:c_1"))
	evil := "block-1\" to evicted-blocks\nset last-pager-pass to 2000-01-01T00:00:00Z\nadd \"block-x"
	for _, id := range []string{evil, "", "x", "block-", "block-ä", `block-"`, "block-a b", "block-" + strings.Repeat("a", 121), ContractName("other")} {
		n := ContractName(id)
		require.Regexp(t, `^block-x[0-9a-f]{16}$`, n)
		require.NotEqual(t, id, n)
	}
	var l Ledger
	b := must(l.Pass(verdicts(1, evil, session.Retain), then))(t)
	require.NotContains(t, string(b), "2000-01-01")
	require.ErrorIs(t, errOf(l.Pass(verdicts(2, "block-a", session.Retain, "block-a", session.Page), then)), errNameClash)
}

func TestRecordsAreWrittenOnce(t *testing.T) {
	var l Ledger
	r := Records{
		SourceState: "scanned", ClaimBasis: "document",
		Claims:      []string{"The limit is \"$400\"\nper case."},
		Decisions:   []Entry{{"Use PostgreSQL", "asked twice"}},
		Questions:   []Entry{{"question-who-pays", ""}},
		Corrections: []Entry{{"Not Gus, Wendell", "turn 7"}},
		Lists:       []List{{"work-completed", []Entry{{"read the policy", ""}}}, {"Last-Pager-Pass", []Entry{{"x", ""}}}},
	}
	b := must(l.Records(r))(t)
	want := `about "ctxpage pager contract"
remember a list called retained-blocks
remember a list called paged-blocks
remember a list called evicted-blocks
remember a string called source-state with "scanned"
remember a string called claim-basis with "document"
remember a claim called claim-the-limit-is-400-per-case-x with "The limit is '$400' per case."
remember a list called tracked-decisions
add "decision-use-postgresql-x" to tracked-decisions because "Use PostgreSQL (asked twice)"
remember a list called open-questions
add "question-who-pays" to open-questions because "question-who-pays"
remember a list called session-corrections
add "Not Gus, Wendell" to session-corrections because "turn 7"
remember a list called work-completed
add "read the policy" to work-completed
remember a list called list-last-pager-pass-x
add "x" to list-last-pager-pass-x
`
	require.Equal(t, unhash(want), unhash(string(b)))
	again := must(l.Records(r))(t)
	require.Empty(t, again)
	read := must(ReadLedger(append(b, again...)))(t)
	require.Equal(t, &l, read)
	interpreted(t, append(b, again...))
}

// unhash drops the hashes at the end of made names.
func unhash(s string) string {
	for _, w := range strings.Fields(s) {
		if at := strings.LastIndex(w, "-x"); at > 0 && !strings.Contains(w, `block`) {
			bare := strings.TrimRight(w, `"`)
			bare = strings.TrimSuffix(bare, "-facts")
			s = strings.ReplaceAll(s, bare, w[:at])
		}
	}
	return s
}

func TestRecordsFailWhole(t *testing.T) {
	var l Ledger
	b, err := l.Records(Records{Decisions: []Entry{{"Use PostgreSQL", ""}}, Corrections: []Entry{{" \n ", ""}}})
	require.ErrorIs(t, err, errText)
	require.Nil(t, b)
	require.Equal(t, Ledger{}, l, "nothing changes")
}

func TestReadLedgerRefusesWhatCannotRun(t *testing.T) {
	head := "remember a list called l-a\n"
	for line, ok := range map[string]bool{
		`add "x" to l-a`: true, `add "x" to l-a because "y: z"`: true, `show l-a`: true, `-- anything`: true, `  show "indented"`: true, head: true,
		`add "x" to l-b`: false, `remove "x" from l-b`: false, `add "" to l-a`: false, `add "a"b" to l-a`: false, "add \"a\u2028b\" to l-a": false, "add \"\xff\" to l-a": false,
	} {
		_, err := ReadLedger([]byte(head + line + "\n"))
		require.Equal(t, ok, err == nil, "%q: %v", line, err)
		if i, none := theInterpreter(); none == nil && i != nil && line != "add \"\xff\" to l-a" {
			e := must(i.run([]byte(head + line + "\n")))(t)
			require.Equal(t, ok, len(e.Errors) == 0, "%q: %v", line, e.Errors)
		}
	}
	l := must(ReadLedger([]byte(head + `add "x" to l-a`)))(t)
	b := must(l.Records(Records{ClaimBasis: "none"}))(t)
	require.Equal(t, "\nremember a string called claim-basis with \"none\"\n", string(b), "a torn line is ended")
}

// Whatever ids and texts come in, each export is a valid continuation of the
// file, and the file read back is the ledger.
func TestLedgerStaysValid(t *testing.T) {
	wild := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z"\n\r\t :-]{0,20}`), rapid.SampledFrom([]string{
		"block-1", "source-state", "claim-basis", "a\u2028b", "x\" to evicted-blocks\nadd \"y", "\u202e", "\xff"}))
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		var file []byte
		for range rapid.IntRange(1, 5).Draw(t, "exports") {
			var b []byte
			var err error
			if rapid.Bool().Draw(t, "pass") {
				ids := rapid.SliceOfNDistinct(wild, 0, 6, rapid.ID[string]).Draw(t, "ids")
				var pairs []any
				for _, id := range ids {
					pairs = append(pairs, id, session.Action(rapid.IntRange(0, 2).Draw(t, "action")))
				}
				b = must(l.Pass(verdicts(rapid.IntRange(1, 3).Draw(t, "key"), pairs...), then))(t)
			} else {
				text := wild.Draw(t, "text")
				b, err = l.Records(Records{
					Claims:    []string{text},
					Decisions: []Entry{{wild.Draw(t, "d"), ""}}, Corrections: []Entry{{wild.Draw(t, "c"), wild.Draw(t, "why")}},
					Lists: []List{{wild.Draw(t, "list"), []Entry{{"x", ""}}}},
				})
				if err != nil {
					require.Nil(t, b)
				}
			}
			file = append(file, b...)
		}
		read, err := ReadLedger(file)
		require.NoError(t, err, "%s", file)
		if len(file) > 0 {
			require.Equal(t, &l, read)
		}
		interpreted(t, file)
	})
}

// A file that somebody else began: comments alone, or other statements. The buckets are declared in it once.
func TestContractInAnothersFile(t *testing.T) {
	for begun, first := range map[string]string{
		"-- of Ann\n\n": `about "ctxpage pager contract"`,
		"-- of Ann\nabout \"refunds\"\nremember a list called work-completed\nadd \"greeted\" to work-completed\n": "remember a list called retained-blocks",
	} {
		l := must(ReadLedger([]byte(begun)))(t)
		nothing := must(l.Records(Records{}))(t)
		require.Empty(t, nothing)
		out := must(l.Pass(verdicts(1, "block-1", session.Retain), then))(t)
		require.True(t, strings.HasPrefix(string(out), first+"\n"), string(out))
		l = must(ReadLedger([]byte(begun + string(out))))(t)
		out = must(l.Pass(verdicts(2, "block-1", session.Evict), then))(t)
		require.NotContains(t, string(out), "a list called")
	}
}

// What people declare in contracts of their own is read as the interpreter reads it.
func TestReadLedgerReadsWhatPeopleDeclare(t *testing.T) {
	file := []byte("remember a list called open with \"none\"\nremember a list called seeds with \"x\" and \"y\"\n" +
		"remember a number called limit with 400\nremember a number called half with 0.5\nremember a date called due with 2026-11-20\n" +
		"remember a list called twice with \"gone\"\nremember a list called twice\nadd \"kept\" to twice\nRemember the string called S-A with limits.\n" +
		"inherited add \"i\" to open because \"r\" from agent-7\nadd s-a to the open\nremember a string called changes with \"x\"\nremember a list called changes\n" +
		"remember a case called refund with limit as 400 and unit as \"case\" and unit as due\nshow limit\nshow \"done\"\n")
	interpreted(t, file)
	l := must(ReadLedger(file))(t)
	for list, want := range map[string][]string{"seeds": {"x", "y"}, "open": {"i", "limits"}, "twice": {"kept"}, "changes": nil} {
		require.Equal(t, want, l.List(list), list)
	}
	for name, want := range map[string][2]string{"limit": {number, "400"}, "half": {number, "0.5"}, "due": {date, "2026-11-20"}, "s-a": {aText, "limits"}, "refund": {record, ""}} {
		text, ok := l.Value(name)
		require.True(t, ok)
		require.Equal(t, want, [2]string{l.names[name].kind, text})
	}
	_, ok := l.Value("changes")
	require.False(t, ok, "it is a list")
}

// A statement that computes is passed over, and with it what it may change: the writer adds again what it no longer sees,
// takes nothing out of which it is not sure, and declares nothing a second time. Each file, grown so, runs.
func TestWhatComputesIsPassedOver(t *testing.T) {
	begun := "remember a list called work-completed\nadd \"old\" to work-completed because \"mine\"\nremember a string called claim-basis with \"none\"\n"
	for statement, want := range map[string][]string{
		"show work-completed": {"new"}, // the control: nothing is passed over
		"remember how to tidy: remove \"old\" from work-completed\ntidy":                                      {"old", "new"},
		"remember how to tidy from it: remove \"old\" from it\ntidy from work-completed":                      {"old", "new"},
		"remember how to tidy: remove \"old\" from work-completed\nremember how to a-b: tidy\ninherited a-b":  {"old", "new"},
		"remember how to tidy: remove \"old\" from work-completed":                                            {"new"},
		"choose if claim-basis is \"none\": remove \"old\" from work-completed otherwise show claim-basis":    {"old", "new"},
		"show \"a\" then remove \"old\" from work-completed":                                                  {"old", "new"},
		"remember a list called work-completed from work-completed":                                           {"old", "new"},
		"remember a number called n-a from count work-completed\nwork-completed count":                        {"old", "new"},
		"when claim-basis is \"none\"\n  remove \"old\" from work-completed\nrequire claim-basis is \"none\"": {"new"},
	} {
		file := begun + statement + "\n"
		run := func() (e executed) {
			if i, err := theInterpreter(); err == nil && i != nil {
				e = must(i.run([]byte(file)))(t)
				require.Empty(t, e.Errors, "%s", file)
			}
			return e
		}
		run()
		l, err := ReadLedger([]byte(file))
		require.NoError(t, err, statement)
		b := must(l.Records(Records{ClaimBasis: "document", Lists: []List{{"work-completed", []Entry{{"old", "mine"}, {"new", ""}}}}, OwnReasons: []string{"mine"}}))(t)
		var got []string
		for _, line := range strings.Split(string(b), "\n") {
			if name, ok := strings.CutPrefix(line, "add \""); ok {
				got = append(got, name[:strings.IndexByte(name, '"')])
			}
		}
		require.Equal(t, want, got, statement)
		require.NotContains(t, string(b), "work-completed\nadd", "declared again: %s", statement)
		file += string(b)
		run()
		b = must(l.Records(Records{OwnReasons: []string{"mine"}}))(t)
		require.Contains(t, string(b), "remove \"old\" from work-completed")
		file += string(b)
		run()
	}
}

// What somebody else has under the name of a list of ours is not written over.
func TestNameOfAList(t *testing.T) {
	for _, begun := range []string{"remember a string called work-completed with \"x\"\n", "remember a list called work-completed with 1 and 2\n"} {
		l := must(ReadLedger([]byte(begun)))(t)
		_, err := l.Records(Records{Lists: []List{{"work-completed", []Entry{{"x", ""}}}}})
		require.ErrorIs(t, err, session.ErrContract)
		require.ErrorContains(t, err, "rename it")
		b := must(l.Records(Records{Lists: []List{{"work-remaining", []Entry{{"x", ""}}}}}))(t)
		interpreted(t, append([]byte(begun), b...))
	}
}

// An item "none" that stands alone is the language's sign for an empty list: the next item takes its place. So a list
// that is to hold it and others gets it last, and once.
func TestNoneAloneIsAnEmptyList(t *testing.T) {
	var l Ledger
	none, x, y := Entry{"none", "as told"}, Entry{"x", ""}, Entry{"y", ""}
	write := func(standing []string, items ...Entry) []byte {
		return must(l.Records(Records{Lists: []List{{"work-remaining", items}}, OwnReasons: standing}))(t)
	}
	file := write(nil, none)
	require.Equal(t, []string{"none"}, l.List("work-remaining"))
	file = append(file, write(nil, none, x, y)...)
	require.Equal(t, []string{"x", "y", "none"}, l.List("work-remaining"))
	require.Empty(t, write(nil, none, x, y))
	file = append(file, write([]string{"as told"}, x)...)
	require.Equal(t, []string{"x", "y"}, l.List("work-remaining"), "an item that was displaced and added again can be taken back")
	interpreted(t, file)
	read := must(ReadLedger(file))(t)
	require.Equal(t, &l, read)

	read = must(ReadLedger([]byte("remember a list called l-a\nadd \"none\" to l-a because \"y\"\nadd \"x\" to l-a\n")))(t)
	require.Equal(t, []string{"x"}, read.List("l-a"))
}

// One name is one thing: what is remembered under it, a list or a text. No name the caller chooses, and no claim or
// source however it is called, takes a name of another kind, or the name that was made for another text.
func TestNamesStayApart(t *testing.T) {
	var l Ledger
	p := session.Packet{InferredClaims: []session.BasisItem{{Text: "boundaries", Basis: "x"}, {Text: "basis", Basis: "x"}}, DoNotClaim: []session.BoundaryItem{{Boundary: "more", Reason: "y"}}}
	must(l.Packet(p))(t)
	require.Equal(t, []string{"more"}, l.List("do-not-claim"))
	must(l.Records(Records{Claims: []string{"a"}, Lists: []List{{"source-a", []Entry{{"x", ""}}}, {"claim-a", []Entry{{"y", ""}}}}}))(t)
	text, _ := l.Value("claim-a")
	require.Equal(t, "a", text)

	made := slug("decision", "Use PostgreSQL")
	require.Equal(t, "decision-use-postgresql", slug("decision", "decision-use-postgresql"))
	require.NotEqual(t, made, slug("decision", made))
	require.NotEqual(t, made, slug("decision", strings.TrimPrefix(made, "decision-")))
}

// A few lines can name one another so often that to follow each mention would never end.
func TestReadLedgerIsBounded(t *testing.T) {
	b := new(strings.Builder)
	b.WriteString("remember a list called l-a\nremember how to c-0: c-60 and add \"x\" to l-a\n")
	for i := range 60 {
		fmt.Fprintf(b, "remember how to c-%d: inherited c-%[2]d and inherited c-%[2]d\n", i+1, i)
	}
	b.WriteString("add \"x\" to l-a\nc-60\n")
	l := must(ReadLedger([]byte(b.String())))(t)
	require.True(t, l.names["l-a"].partial)
	require.Empty(t, l.List("l-a"))
}

// The reader sees what the interpreter executes: its line ends, its handlers, indented lines outside of them, and no
// statement behind another one.
func TestReadLedgerSeesWhatIsExecuted(t *testing.T) {
	head := "remember a list called l-a\n"
	when := "remember a string called s-a with \"x\"\nwhen s-a is equal to \"x\"\n"
	for body, want := range map[string][]string{
		"  add \"x\" to l-a\n":        {"x"},
		"add \"x\" to l-a  \n":        {"x"},
		when + "  add \"x\" to l-a\n": nil,
		when + "  show \"y\"\n\n\t-- z\n  show \"y\"\nadd \"x\" to l-a\n": {"x"},
		when + "  show \"y\"\n add \"x\" to l-a\n":                        {"x"},
		"-- c\vadd \"x\" to l-a\n":                                        {"x"},
		"-- c\u2028add \"x\" to l-a\radd \"y\" to l-a\r\n":                {"x", "y"},
		"\t\n\t-- c\nshow \"add\" because \"add\"\n":                      nil,
	} {
		l, err := ReadLedger([]byte(head + body))
		require.NoError(t, err, "%q", body)
		require.Equal(t, want, l.List("l-a"), "%q", body)
		interpreted(t, []byte(head+body))
	}
}
