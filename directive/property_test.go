package directive_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/directivetext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// words are few, so that directives meet each other's items; among them are the
// spellings that normalising joins.
var words = []string{
	"docker", "Docker", " the docker ", "ＤＯＣＫＥＲ", "podman", "a podman", "vim", "The the vim", "c++",
	"don't panic", "dont panic", "Don’t  panic", "ΟΔΟΣ", "οδος", "J\u030cx", "ǰx", "İzmir", "ﬁle", "file", "Ⅳ", "iv",
	"instead of", "x\tinstead of y", "to x", "a", "the", "", " ", "\u3000", "\u200b", "naïve\nrule", "\xff", "😀", "\x00",
}

func operand() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom(words), rapid.SampledFrom(words), rapid.String())
}

// input draws directives, near misses, answers and other talk.
func input() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		a, b := operand().Draw(t, "a"), operand().Draw(t, "b")
		return rapid.SampledFrom([]string{
			"use " + a, "use " + a, "prohibit " + a, "prohibit " + a, "remove policy " + a, "use " + a + " instead of " + b,
			"use " + a + " instead of " + b, "set premise " + a, "change premise to " + a, "set premise to " + a,
			"change premise " + a, "clear premise", "reset policies", "clear state", "yes", "No!", "ok", "hello", a, "Use " + a,
		}).Draw(t, "input")
	})
}

func inputs() *rapid.Generator[[]string] { return rapid.SliceOfN(input(), 0, 25) }

func run(s directive.Session, inputs []string) directive.Session {
	for _, in := range inputs {
		s, _ = directive.Step(s, in)
	}
	return s
}

func session() *rapid.Generator[directive.Session] {
	return rapid.Custom(func(t *rapid.T) directive.Session { return run(directive.Session{}, inputs().Draw(t, "past")) })
}

// settled draws a session without an open question.
func settled() *rapid.Generator[directive.Session] {
	return rapid.Map(session(), func(s directive.Session) directive.Session { s.Pending = nil; return s })
}

// bytesOf is all there is to know of a session.
func bytesOf(s directive.Session) string { return string(directive.ExportCheckpoint(s)) }

func TestStepIsAFunction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, in := session().Draw(t, "s"), input().Draw(t, "in")
		before := bytesOf(s)
		a, da := directive.Step(s, in)
		b, db := directive.Step(s, in)
		require.Equal(t, bytesOf(a), bytesOf(b))
		require.Equal(t, da.AppendJSON(nil), db.AppendJSON(nil))
		require.Equal(t, da.Repair, db.Repair)
		require.Equal(t, before, bytesOf(s), "the session given stays as it was")
	})
}

func TestDecisionIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, in := session().Draw(t, "s"), input().Draw(t, "in")
		after, d := directive.Step(s, in)
		require.Equal(t, d.Changed, !s.State.Equal(after.State))
		require.Equal(t, d.Kind == directive.Clarify, d.Code != "")
		if d.Kind == directive.Update {
			require.True(t, d.State.Equal(after.State))
			require.Nil(t, after.Pending)
		} else {
			require.Zero(t, d.State.Len())
			require.True(t, s.State.Equal(after.State), "only an update touches the state")
		}
		require.Equal(t, d.Kind == directive.Clarify, d.Prompt != "")
		if d.Kind == directive.Passthrough {
			require.Equal(t, bytesOf(s), bytesOf(after))
		}
		for _, item := range after.State.Items() {
			require.NotEmpty(t, item)
			require.Equal(t, item, directivetext.Item(item))
		}
		require.True(t, slices.IsSorted(after.State.Items()))
	})
}

func TestUseAndProhibitAreIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, x := settled().Draw(t, "s"), operand().Draw(t, "x")
		in := rapid.SampledFrom([]string{"use ", "prohibit "}).Draw(t, "verb") + x
		once, d1 := directive.Step(s, in)
		twice, d2 := directive.Step(once, in)
		if d1.Kind != directive.Update {
			require.Equal(t, bytesOf(s), bytesOf(directive.Session{State: once.State}))
			return
		}
		require.Equal(t, directive.Update, d2.Kind)
		require.False(t, d2.Changed)
		require.Equal(t, bytesOf(once), bytesOf(twice))
	})
}

func TestTalkPassesThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := settled().Draw(t, "s")
		in := rapid.SampledFrom([]string{"", " ", "hello", "yes", "Use ", " use ", "use\t", "clear premise ", "clear state\n", "don't use ", "set premises ", "change premise"}).Draw(t, "in")
		if in != strings.TrimSpace(in) && in[0] != 'c' || in == "don't use " {
			in += operand().Draw(t, "more")
		}
		after, d := directive.Step(s, in)
		require.Equal(t, directive.Passthrough, d.Kind, "%q", in)
		require.Equal(t, bytesOf(s), bytesOf(after))
	})
}

func TestContradictionClarifies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, x := settled().Draw(t, "s"), operand().Draw(t, "x")
		first, second := "use ", "prohibit "
		if rapid.Bool().Draw(t, "turned") {
			first, second = second, first
		}
		s, d := directive.Step(s, first+x)
		if d.Kind != directive.Update || strings.Contains(x, "instead of") {
			return
		}
		after, d := directive.Step(s, second+x)
		require.Equal(t, directive.Clarify, d.Kind)
		require.Contains(t, []string{"item_in_use", "item_prohibited"}, d.Code)
		require.Equal(t, bytesOf(s), bytesOf(after))
	})
}

func TestEmptyOperandsClarify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := settled().Draw(t, "s")
		blank := rapid.SampledFrom([]string{"", " ", " \t", " \u3000\u2028", " \x1c"}).Draw(t, "blank")
		verb := rapid.SampledFrom([]string{"use", "prohibit", "remove policy", "set premise", "change premise to"}).Draw(t, "verb")
		after, d := directive.Step(s, verb+blank)
		require.Equal(t, directive.Clarify, d.Kind, "%q", verb+blank)
		require.Contains(t, d.Prompt, "cannot be empty")
		require.Equal(t, bytesOf(s), bytesOf(after))
	})
}

func TestRoundTripsAreFixedPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		past, future := inputs().Draw(t, "past"), inputs().Draw(t, "future")
		s := run(directive.Session{}, past)

		text := directive.ExportJSON(s.State)
		require.True(t, json.Valid(text))
		state := must(directive.ImportJSON(text))(t)
		require.Equal(t, text, directive.ExportJSON(state))

		checkpoint := directive.ExportCheckpoint(s)
		require.True(t, json.Valid(checkpoint))
		restored := must(directive.ImportCheckpoint(checkpoint))(t)
		require.Equal(t, string(checkpoint), bytesOf(restored))
		require.Equal(t, bytesOf(run(s, future)), bytesOf(run(restored, future)), "an interrupted run goes on as an uninterrupted one")
	})
}

func TestRefusedImportsGiveNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := session().Draw(t, "s")
		before := bytesOf(s)
		payload := []byte(before)
		at := rapid.IntRange(0, len(payload)-1).Draw(t, "at")
		payload = slices.Replace(payload, at, at+1, rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "bytes")...)
		if got, err := directive.ImportCheckpoint(payload); err != nil {
			require.NotEmpty(t, directive.ErrorCode(err))
			require.Equal(t, directive.Session{}, got)
		} else {
			again := must(directive.ImportCheckpoint(directive.ExportCheckpoint(got)))(t)
			require.Equal(t, bytesOf(got), bytesOf(again))
		}
		require.Equal(t, before, bytesOf(s))
	})
}

func TestPreviewForetellsAndChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, in := session().Draw(t, "s"), input().Draw(t, "in")
		before := bytesOf(s)
		trial := directive.Preview(nil, s, in)
		require.Equal(t, before, bytesOf(s))
		after, d := directive.Step(s, in)
		require.Equal(t, d.AppendJSON(nil), trial.Decision.AppendJSON(nil))
		require.True(t, trial.Before.Equal(s.State))
		require.True(t, trial.After.Equal(after.State))
		require.Equal(t, d.Changed, !trial.Before.Equal(trial.After))
	})
}

func TestItemIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.OneOf(operand(), rapid.SampledFrom([]string{
			"a", "an", "the", "The", " ", "dont", "J", "\u030c", "H", "\u0331", "Σ", "'", "İ", "\u0323", "`", "-",
		})), 0, 8).Draw(t, "parts")
		text := strings.Join(parts, "")
		key := directivetext.Item(text)
		require.Equal(t, key, directivetext.Item(key), "%+q", text)
		premise := directivetext.Premise(text)
		require.Equal(t, premise, directivetext.Premise(premise), "%+q", text)
	})
}

func TestItemIsIdempotentForEachRune(t *testing.T) {
	for r := rune(0); r <= 0x2FFFF; r++ {
		for _, text := range [...]string{string(r), "a" + string(r), "Σ" + string(r) + "Σ", "H" + string(r)} {
			if key := directivetext.Item(text); key != directivetext.Item(key) {
				t.Fatalf("%+q → %+q → %+q", text, key, directivetext.Item(key))
			}
		}
	}
}

func TestTranscriptIsStepsUpToTheFirstClarify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start, list := session().Draw(t, "start"), inputs().Draw(t, "inputs")
		var messages []directive.Message
		want, stopped, prompt := start, false, ""
		for _, in := range list {
			role := rapid.SampledFrom([]string{"user", "user", "assistant", "User", "system"}).Draw(t, "role")
			messages = append(messages, directive.Message{Role: role, Content: in})
			if role != "user" || stopped {
				continue
			}
			var d directive.Decision
			want, d = directive.Step(want, in)
			stopped, prompt = d.Kind == directive.Clarify, d.Prompt
		}
		got, outcome := directive.Apply(start, messages)
		require.Equal(t, bytesOf(want), bytesOf(got))
		require.Equal(t, stopped, outcome.Stopped)
		require.Equal(t, prompt, outcome.Prompt)
		require.True(t, outcome.State.Equal(want.State))
		require.LessOrEqual(t, outcome.Read, len(messages))
	})
}

// model is the state as one would naively keep it.
type model struct {
	premise  string
	policies map[string]directive.Polarity
}

func modelOf(s directive.State) model {
	m := model{s.Premise(), map[string]directive.Polarity{}}
	for p := range s.Policies() {
		m.policies[p.Item] = p.Polarity
	}
	return m
}

// step carries a directive out on the model and tells whether it can be.
func (m *model) step(verb, key string) bool {
	switch verb {
	case "use ", "prohibit ":
		want := directive.Use
		if verb == "prohibit " {
			want = directive.Prohibit
		}
		if had, ok := m.policies[key]; ok && had != want {
			return false
		}
		m.policies[key] = want
	case "remove policy ":
		delete(m.policies, key)
	case "reset policies":
		clear(m.policies)
	case "set premise ":
		if m.premise != "" {
			return false
		}
		m.premise = key
	case "change premise to ":
		if m.premise == "" {
			return false
		}
		m.premise = key
	case "clear premise":
		m.premise = ""
	case "clear state":
		m.premise = ""
		clear(m.policies)
	}
	return true
}

func TestLifecyclesEqualAMap(t *testing.T) {
	verbs := []string{
		"use ", "use ", "prohibit ", "prohibit ", "remove policy ", "remove policy ",
		"set premise ", "change premise to ", "reset policies", "clear premise", "clear state",
	}
	rapid.Check(t, func(t *rapid.T) {
		var s directive.Session
		m := model{policies: map[string]directive.Polarity{}}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			verb := rapid.SampledFrom(verbs).Draw(t, "verb")
			key := rapid.SampledFrom([]string{"a1", "b", "c", "d d", "é", "f", "g", "h", "i", "j"}).Draw(t, "key")
			in := verb
			if strings.HasSuffix(verb, " ") {
				in += key
			}
			var d directive.Decision
			s, d = directive.Step(s, in)
			require.Equal(t, m.step(verb, key), d.Kind == directive.Update, "%q", in)
			require.Equal(t, m, modelOf(s.State), "%q", in)
			require.Equal(t, len(m.policies), s.State.Len())
		}
	})
}

// TestManyPoliciesEqualAMap grows and shrinks a large state, for the tree below.
func TestManyPoliciesEqualAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s directive.Session
		m := model{policies: map[string]directive.Polarity{}}
		keys := rapid.SliceOfN(rapid.StringMatching(`[b-z]{1,2}`), 1, 300).Draw(t, "keys")
		for i, key := range keys {
			verb := "use "
			if i%3 == 2 {
				verb = "remove policy "
				key = keys[rapid.IntRange(0, i).Draw(t, "which")]
			}
			m.step(verb, key)
			s, _ = directive.Step(s, verb+key)
		}
		require.Equal(t, m, modelOf(s.State))
		require.True(t, slices.IsSorted(s.State.Items()))
	})
}

func TestEquivalentOperandsAreOneItem(t *testing.T) {
	wide := func(s string) string {
		return strings.Map(func(r rune) rune {
			if '!' <= r && r <= '~' {
				return r + 0xFEE0
			}
			return r
		}, s)
	}
	disguises := []func(string) string{
		strings.ToUpper, wide,
		func(s string) string { return "the " + s },
		func(s string) string { return " an\u3000" + s + "\t" },
		func(s string) string { return strings.ReplaceAll(s, " ", " \u00a0\n") },
		func(s string) string { return strings.ReplaceAll(s, "'", "’") },
		func(s string) string { return strings.ReplaceAll(s, "'", "`") },
		func(s string) string { return strings.ReplaceAll(s, "don't", "Dont") },
	}
	rapid.Check(t, func(t *rapid.T) {
		s := settled().Draw(t, "s")
		x := rapid.SampledFrom([]string{"docker", "don't panic", "it's c++", "café", "file x 4", "οδός b"}).Draw(t, "x")
		y := x
		for range rapid.IntRange(0, 4).Draw(t, "times") {
			y = rapid.SampledFrom(disguises).Draw(t, "disguise")(y)
		}
		require.Equal(t, directivetext.Item(x), directivetext.Item(y))
		for _, verb := range []string{"use ", "prohibit ", "remove policy "} {
			a, da := directive.Step(s, verb+x)
			b, db := directive.Step(s, verb+y)
			require.Equal(t, bytesOf(a), bytesOf(b), "%q %q", x, y)
			require.Equal(t, da.AppendJSON(nil), db.AppendJSON(nil))
		}
	})
}

// TestRepairDoesWhatWasAsked steps the repair of a clarify and expects the state
// that was wanted: for a question the one of "yes", else one that no longer clarifies.
func TestRepairDoesWhatWasAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, in := session().Draw(t, "s"), input().Draw(t, "in")
		asked, d := directive.Step(s, in)
		if d.Repair == nil {
			return
		}
		repaired := directive.Session{State: asked.State}
		for _, r := range d.Repair {
			var done directive.Decision
			repaired, done = directive.Step(repaired, r)
			require.Equal(t, directive.Update, done.Kind, "%q of %q", r, in)
		}
		if asked.Pending != nil {
			yes, _ := directive.Step(asked, "yes")
			require.Equal(t, bytesOf(yes), bytesOf(repaired), "%q", d.Repair)
			return
		}
		if d.Code == "item_in_use" || d.Code == "item_prohibited" {
			after, again := directive.Step(repaired, in)
			require.Equal(t, directive.Update, again.Kind)
			require.Equal(t, bytesOf(repaired), bytesOf(after), "it is what was asked")
		}
	})
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

func FuzzStep(f *testing.F) {
	f.Add("use docker", "prohibit The Docker", "yes")
	f.Add("prohibit a", "use J\u030c instead of a", "ＹＥＳ！")
	f.Add("set premise to x", "change premise x", "clear state")
	f.Add("use x and prohibit y", "use x\tinstead of\xff y", "no")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for _, opts := range [][]directive.Option{nil, {directive.AnyCase}, {directive.AnyCase, directive.RefuseCompound}} {
			var s directive.Session
			for _, in := range []string{a, b, c} {
				trial := directive.Preview(nil, s, in, opts...)
				next, d := directive.Step(s, in, opts...)
				if d.Kind == directive.Clarify && !s.State.Equal(next.State) || !trial.Before.Equal(trial.After) != d.Changed {
					t.Fatalf("%q: %+v", in, d)
				}
				checkpoint := directive.ExportCheckpoint(next)
				back, err := directive.ImportCheckpoint(checkpoint)
				if err != nil || string(directive.ExportCheckpoint(back)) != string(checkpoint) {
					t.Fatalf("%q: %s: %v", in, checkpoint, err)
				}
				s = next
			}
		}
	})
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"policies":{"The Docker":"use","x":"prohibit"},"premise":"p","version":2}`))
	f.Add([]byte(`{"authoritative_state":{"policies":{},"premise":null,"version":2},"checkpoint_version":1,"pending":` +
		`{"kind":"replacement","prompt_to_user":"\ud83d\ude00","replacement":{"kind":"replace_use","new_item":"a b","old_item":"\u0301"}}}`))
	f.Add([]byte(`[{"a":[1e5,-0.1,true]},"\udead"]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := directive.ImportJSON(data); err == nil {
			text := directive.ExportJSON(s)
			again, err := directive.ImportJSON(text)
			if err != nil || !again.Equal(s) {
				t.Fatalf("%s: %v", text, err)
			}
		} else if directive.ErrorCode(err) == "" {
			t.Fatal(err)
		}
		if s, err := directive.ImportCheckpoint(data); err == nil {
			directive.Step(s, "yes")
			again, err := directive.ImportCheckpoint(directive.ExportCheckpoint(s))
			if err != nil || string(directive.ExportCheckpoint(again)) != string(directive.ExportCheckpoint(s)) {
				t.Fatal(err)
			}
		}
	})
}

func FuzzPreprocess(f *testing.F) {
	f.Add("use docker", "Use Docker.")
	f.Add(`{"classification":"directive","output":"clear state"}`, "1) for example, 'clear state'?")
	f.Add("<NO_DIRECTIVE>", "use x instead y and prohibit z; notes: [a]")
	f.Fuzz(func(t *testing.T, output, message string) {
		if found := directivetext.Preprocess(message); found.Class == directivetext.IsDirective {
			if directivetext.Validate(found.Directive).Class != directivetext.IsDirective {
				t.Fatalf("%q", found.Directive)
			}
		}
		loose, strict := directivetext.Validate(output), directivetext.ValidateAgainst(output, message)
		if strict != loose && strict != (directivetext.Verdict{}) {
			t.Fatalf("%+v %+v", loose, strict)
		}
		if loose.Class == directivetext.IsDirective && utf8.ValidString(output) {
			if _, d := directive.Step(directive.Session{}, loose.Directive); d.Kind == directive.Passthrough {
				t.Fatalf("%q is no directive", loose.Directive)
			}
		}
	})
}
