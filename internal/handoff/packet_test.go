package handoff

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func handoffInput() Input {
	return Input{
		For: "agent-8", By: "agent-7", Session: "acme/support#s1", At: time.Date(2026, 11, 20, 10, 0, 0, 0, time.FixedZone("", 3600)),
		Goal: "Answer the escalation\n# not a heading", State: "Limit found",
		Intent: session.IntentIR{Verb: "Fix", Slots: map[string]any{"target": "refund | limit", "case": "4711"}, Gaps: []any{"who approves"}, AmberFlags: []any{"money"}, Secondary: []any{"explain"}},
		Status: "active",
		Sources: []SourceFact{
			{Source: "file:policy.md", Type: "file", Digest: "ab12", Checked: true, Same: true, Read: true},
			{Source: "file:old.md", Type: "file", Checked: true, Read: true},
			{Source: "file:seen.md", Type: "file", Checked: true, Same: true},
			{Source: "http://kb/1", Type: "http", Read: true},
			{Source: "file:gone.md", Gone: true, Read: true},
		},
		Claims:      []session.BasisItem{{Text: "the customer is right", Basis: "inference from two turns"}},
		Decisions:   []session.BasisItem{{Text: "refund $400", Basis: "directive 3"}},
		Questions:   []session.QuestionItem{{Question: "who pays?", WhyItMatters: "budget"}},
		Corrections: []session.CorrectionItem{{Correction: "not Gus, Wendell", MeaningForNextAgent: "address Wendell"}},
		Window: []WindowItem{
			{Ref: "acme%2Fsupport:m-1#0@3", Digest: "cd34", Tokens: 12, Action: session.Retain, Title: "Hello |\nworld"},
			{Ref: "acme%2Fsupport:m-2#0@1", Digest: "ef56", Tokens: 40, Action: session.Page},
			{Ref: "acme%2Fsupport:m-3#0@1", Tokens: 9, Action: session.Evict},
			{Ref: "acme%2Fsupport:m-4#0@1", Digest: "99", Tokens: 7, Action: session.Retain, Pinned: true, Why: "asked for"},
		},
		Done: []string{"read the policy"}, Open: []string{"reply", " "}, Boundaries: []session.BoundaryItem{{Boundary: "legal advice", Reason: "not asked"}},
		Next: "Reply to Wendell", Notes: "",
	}
}

func TestHandoffSourcesFollowHashesAndManifests(t *testing.T) {
	p := Handoff(handoffInput())
	var states []string
	for _, s := range p.VerifiedSources {
		states = append(states, s.State)
	}
	require.Equal(t, []string{"verified", "referenced", "referenced", "scanned", "unavailable"}, states)
	require.Len(t, p.DoNotClaim, 4, "the given one, and the changed, the unread and the gone source")
	require.Equal(t, "fix", p.ActiveIntent.PrimaryIntent)
	require.Equal(t, "4711, refund | limit", p.ActiveIntent.TargetOrArtifact)
	require.Equal(t, "2026-11-20T09:00:00Z", p.Date)
	in := handoffInput()
	in.Intent.Verb = "dance"
	require.Equal(t, "unknown", Handoff(in).ActiveIntent.PrimaryIntent)
}

func TestPacketJSONRoundTrip(t *testing.T) {
	p := Handoff(handoffInput())
	raw := must(p.JSON())(t)
	back := must(session.ReadPacket(raw))(t)
	require.Equal(t, p, back)
	var members map[string]any
	require.NoError(t, json.Unmarshal(raw, &members))
	require.Len(t, members, 18)
	empty := must(Handoff(Input{}).JSON())(t)
	require.NoError(t, errOf(session.ReadPacket(empty)), "an empty session still gives a valid packet")
	require.NotContains(t, string(empty), "null")
}

func TestParsePacketHoldsTheSchema(t *testing.T) {
	good := must(Handoff(handoffInput()).JSON())(t)
	for name, change := range map[string][2]string{
		"missing field": {`"date"`, `"dates"`},
		"wrong case":    {`"date"`, `"Date"`},
		"extra field":   {`"date"`, `"x": 1, "date"`},
		"twice by case": {`"date"`, `"DATE": "x", "date"`},
		"null":          {`"handoff_notes": "none recorded"`, `"handoff_notes": null`},
		"null list":     {`"work_completed": [`, `"work_completed": null, "flags": [`},
		"missing deep":  {`"basis": "inference from two turns"`, `"base": ""`},
		"enum":          {`"fix"`, `"fixing"`},
		"state":         {`"unavailable"`, `"lost"`},
		"type":          {`"current_goal": "`, `"current_goal": 7, "x": "`},
		"null item":     {`"read the policy"`, `null`},
		"not an array":  {`"work_completed": [`, `"work_completed": {}, "x": [`},
		"cut":           {"\n}\n", ""},
		"two packets":   {"\n}\n", "\n}{}\n"},
		"null optional": {`"secondary_intent": "explain"`, `"secondary_intent": null`},
	} {
		bad := strings.Replace(string(good), change[0], change[1], 1)
		require.NotEqual(t, string(good), bad, name)
		require.ErrorIs(t, errOf(session.ReadPacket([]byte(bad))), session.ErrPacket, name)
	}
	require.ErrorIs(t, errOf(session.ReadPacket([]byte("null"))), session.ErrPacket)
}

// Every field that is not in the schema is named with its path, however deep, and beside other faults.
func TestParsePacketNamesEveryStray(t *testing.T) {
	good := must(Handoff(handoffInput()).JSON())(t)
	var tree map[string]any
	require.NoError(t, json.Unmarshal(good, &tree))
	tree["extra"], tree["we ird\n"] = 1, map[string]any{"x": 1}
	tree["active_intent"].(map[string]any)["mood"] = "calm"
	tree["verified_sources"].([]any)[2].(map[string]any)["url"] = nil
	tree["open_questions"].([]any)[0].(map[string]any)["Question"] = "?"
	tree["active_intent"].(map[string]any)["primary_intent"] = "dance"
	tree["work_completed"].([]any)[0] = 7.5
	raw := must(json.Marshal(tree))(t)
	_, err := session.ReadPacket(raw)
	require.ErrorIs(t, err, session.ErrPacket)
	for _, want := range []string{
		"packet.extra is not in the schema", `packet["we ird\n"] is not in the schema`, "packet.active_intent.mood is not in the schema",
		"packet.verified_sources[2].url is not in the schema", "packet.open_questions[0].Question is not in the schema", "packet.work_completed[0] must be a text",
	} {
		require.ErrorContains(t, err, want)
	}
	tree["work_completed"].([]any)[0] = "x"
	raw = must(json.Marshal(tree))(t)
	_, err = session.ReadPacket(raw)
	require.ErrorContains(t, err, `primary_intent "dance"`)
	require.ErrorContains(t, err, "packet.extra is not in the schema")
	require.ErrorContains(t, errOf(session.ReadPacket([]byte(`[]`))), "packet must be an object")
}

func TestPacketMarkdown(t *testing.T) {
	md := string(Handoff(handoffInput()).Markdown())
	var titles []string
	for _, l := range strings.Split(md, "\n") {
		if strings.HasPrefix(l, "#") {
			titles = append(titles, l)
		}
	}
	require.Equal(t, strings.Split(`# Handoff Packet
## 1. Current Goal
## 2. Current State
## 3. Active Intent
## 4. Verified Sources
## 5. Inferred Claims
## 6. Locked Decisions
## 7. Open Questions
## 8. Active User Corrections
## 9. Context to Preserve
## 10. Work Completed
## 11. Work Not Yet Completed
## 12. Do Not Claim Beyond This
## 13. Recommended Next Action
## 14. Handoff Notes for the Receiving Agent`, "\n"), titles)
	require.Contains(t, md, `\# not a heading`)
	require.Contains(t, md, `- Target/artifact: 4711, refund \| limit`)
	require.Contains(t, md, "| file:policy.md | file | verified | hash ab12 checked at the handoff; read by an answer of this session |\n")
	require.Equal(t, md, string(Handoff(handoffInput()).Markdown()), "the same input gives the same bytes")
}

func TestPacketLimnIsStrict(t *testing.T) {
	l := new(Ledger)
	b := must(l.Packet(Handoff(handoffInput())))(t)
	read := must(ReadLedger(b))(t)
	require.Equal(t, l, read)
	require.Contains(t, string(b), `add "handoff-packet-created" to tracked-decisions because "agent-7 for agent-8, 2026-11-20T09:00:00Z"`)
	require.Contains(t, string(b), `remember a string called handoff-state with "ready"`)
	state, _ := read.Value("source-state")
	require.Equal(t, "scanned", state, "one source is not verified")
	interpreted(t, b)
	again := must(l.Packet(Handoff(handoffInput())))(t)
	require.Nil(t, again)
}

// A later packet of the session says what holds now: what it has no more is taken back, what others wrote stays, and each
// packet records that it was made.
func TestPacketLimnIsADelta(t *testing.T) {
	others := "about \"refunds\"\nremember a list called work-completed\nadd \"greeted\" to work-completed\nadd \"called Ann\" to work-completed because \"noted in [other:chat]\"\n"
	l := must(ReadLedger([]byte(others)))(t)
	in := handoffInput()
	in.Session = "acme%2Fsupport:chat-1"
	file := []byte(others)
	export := func() string {
		b := must(l.Packet(Handoff(in)))(t)
		file = append(file, b...)
		read := must(ReadLedger(file))(t)
		require.Equal(t, l, read)
		interpreted(t, file)
		return string(b)
	}
	first := export()
	require.NotContains(t, first, "about")
	require.NotContains(t, first, "called work-completed")
	require.Contains(t, l.List("work-completed"), "read the policy")
	require.Contains(t, l.List("inferred-claims"), in.Claims[0].Text)
	require.Empty(t, export(), "the same packet says nothing new")

	in.At = in.At.Add(time.Hour)
	in.Done, in.Open, in.Questions, in.Decisions, in.Corrections, in.Claims, in.Boundaries = []string{"reply"}, nil, nil, nil, nil, nil, nil
	in.Window = in.Window[:1]
	second := export()
	require.NotContains(t, second, "a list called", "nothing is declared again")
	require.Equal(t, []string{"greeted", "called Ann", "reply"}, l.List("work-completed"))
	for _, list := range []string{"work-remaining", "open-questions", "session-corrections", "inferred-claims"} {
		require.Empty(t, l.List(list), list)
	}
	require.Len(t, l.List("context-to-preserve"), 1)
	require.Equal(t, []string{"handoff-packet-created", "handoff-packet-created"}, l.List("tracked-decisions"))

	in.Done = append(in.Done, "closed")
	export()
	require.Len(t, l.List("tracked-decisions"), 3, "another packet of the same second")
}

// What a packet has no room for still holds: nothing is taken back by a list that is cut.
func TestPacketLimnTakesBackNothingItLeftOut(t *testing.T) {
	l := new(Ledger)
	in := handoffInput()
	for i := range 900 {
		in.Decisions = append(in.Decisions, session.BasisItem{Text: fmt.Sprintf("use item %d of many", i), Basis: "directive of the user in acme"})
		in.Sources = append(in.Sources, SourceFact{Source: fmt.Sprintf("file:/data/%d.md", i), Read: true})
	}
	must(l.Packet(Handoff(in)))(t)
	had, sources := len(l.List("tracked-decisions")), len(l.List("scanned-sources"))
	in.Decisions = append([]session.BasisItem{{Text: "use a longer name before the others", Basis: "directive of the user in acme"}}, in.Decisions...)
	in.Sources = append(in.Sources, SourceFact{Source: "file:/data/new.md", Read: true})
	must(l.Packet(Handoff(in)))(t)
	require.GreaterOrEqual(t, len(l.List("tracked-decisions")), had+2)
	require.Greater(t, len(l.List("scanned-sources")), sources)
}

// Bytes that are no UTF-8 are replaced one by one, in every form and whichever form came first.
func TestPacketFormsReplaceAlike(t *testing.T) {
	p := Handoff(handoffInput())
	const bad, good = "caf\xff\xfe", "caf\uFFFD\uFFFD"
	p.CurrentGoal, p.WorkCompleted = bad, []string{bad}
	p.LockedDecisions, p.SessionOrProject = []session.BasisItem{{Text: bad, Basis: bad}}, bad
	p.VerifiedSources = []session.PacketSource{{Source: bad, Type: "file", State: "scanned", WhatWasVerified: bad}}
	raw := must(p.JSON())(t)
	back := must(session.ReadPacket(raw))(t)
	require.Equal(t, good, back.WorkCompleted[0])
	made, parsed := new(Ledger), new(Ledger)
	byHand := must(made.Packet(p))(t)
	byJSON := must(parsed.Packet(back))(t)
	require.Equal(t, string(byJSON), string(byHand))
	require.Equal(t, []string{good}, made.List("work-completed"))
	require.Equal(t, string(back.Markdown()), string(p.Markdown()))
	require.Equal(t, string(back.Brief("x")), string(p.Brief("x")))
}

// A list of the contract holds the sources of its own state only, also where a file says otherwise from before.
func TestPacketLimnSourcesByState(t *testing.T) {
	packet := func(states ...string) session.Packet {
		p := Handoff(handoffInput())
		p.VerifiedSources = nil
		for i, state := range states {
			p.VerifiedSources = append(p.VerifiedSources, session.PacketSource{Source: fmt.Sprint("file:", i), Type: "file", State: state, WhatWasVerified: "hash"})
		}
		return p
	}
	l := new(Ledger)
	file := []byte{}
	for _, states := range [][]string{
		{"verified", "scanned", "referenced", "unavailable", "verified"}, {"referenced", "verified", "referenced", "verified", "verified"}, {"verified"},
	} {
		b := must(l.Packet(packet(states...)))(t)
		file = append(file, b...)
		for i, state := range states {
			for _, of := range sourceStates {
				require.Equal(t, of == state, slices.Contains(l.List(of+"-sources"), fmt.Sprint("file:", i)), "file:%d, %s", i, of)
			}
		}
		read := must(ReadLedger(file))(t)
		require.Equal(t, l.names, read.names)
		interpreted(t, file)
	}
	require.Equal(t, []string{"file:0"}, l.List("verified-sources"), "the last packet has one source only")
}

func TestReceivedPacketVerifiesNothing(t *testing.T) {
	p := Handoff(handoffInput())
	r := unverified(p)
	for _, s := range r.VerifiedSources {
		require.Contains(t, []string{"referenced", "unavailable"}, s.State)
	}
	require.Contains(t, r.LockedDecisions[0].Basis, "unverified")
	require.Equal(t, "verified", p.VerifiedSources[0].State, "the packet itself is unchanged")
	require.Equal(t, []Reference{
		{"acme%2Fsupport:m-1#0@3", "retained", "cd34", "retained acme%2Fsupport:m-1#0@3 (12 tokens, digest cd34): Hello | world"},
		{"acme%2Fsupport:m-2#0@1", "paged", "ef56", "paged acme%2Fsupport:m-2#0@1 (40 tokens, digest ef56)"},
		{"acme%2Fsupport:m-3#0@1", "evicted", "none-recorded", "evicted acme%2Fsupport:m-3#0@1 (9 tokens, digest none-recorded)"},
		{"acme%2Fsupport:m-4#0@1", "pinned", "99", "pinned acme%2Fsupport:m-4#0@1 (7 tokens, digest 99)"},
	}, References(r))
	p.Context = append(p.Context, p.Context[0], session.ContextItem{Context: "keep in mind", WhyItMatters: "x"})
	require.Len(t, References(p), 4)
}

// longInput is a session of n turns whose pass judged each by its number.
func longInput(n int, judge func(i int, w *WindowItem)) Input {
	in := handoffInput()
	in.Window = nil
	for i := range n {
		w := WindowItem{
			Ref: fmt.Sprintf("acme%%2Fsupport:block-chat-%d#0@1", i+1), Digest: "0123456789ab", Tokens: 100,
			Title: strings.Repeat("t", 80), Why: "evicted by pass 3",
		}
		judge(i, &w)
		in.Window = append(in.Window, w)
		in.Sources = append(in.Sources, SourceFact{Source: fmt.Sprintf("file:/data/%d.md", i), Type: "file", Digest: "ab", Checked: true, Same: true, Read: i%3 == 0})
		in.Decisions = append(in.Decisions, session.BasisItem{Text: fmt.Sprintf("use item %d", i), Basis: "directive of the user in acme"})
		in.Corrections = append(in.Corrections, session.CorrectionItem{Correction: fmt.Sprintf("prohibit item %d", i), MeaningForNextAgent: "do not use it"})
	}
	in.Decisions[0].Text = strings.Repeat("long ", 10_000)
	return in
}

var longSessions = map[string]func(i int, w *WindowItem){
	"all whole":   func(i int, w *WindowItem) { w.Action = session.Retain },
	"all pinned":  func(i int, w *WindowItem) { w.Pinned = true },
	"all evicted": func(i int, w *WindowItem) { w.Action = session.Evict },
	"a window": func(i int, w *WindowItem) {
		w.Action = map[bool]session.Action{true: session.Evict, false: session.Retain}[i < 4900]
	},
	"mixed": func(i int, w *WindowItem) { w.Action, w.Pinned = session.Action(i%3), i%50 == 7 },
}

// However long the session was, the packet is bounded in each of its forms, and every turn is in it: by name or in a
// range with its number and tokens.
func TestHandoffOfALongSessionIsBounded(t *testing.T) {
	for name, judge := range longSessions {
		t.Run(name, func(t *testing.T) {
			const turns = 5000
			p := Handoff(longInput(turns, judge))
			raw := must(p.JSON())(t)
			require.Less(t, len(raw), session.MaxHandoff+4<<10, "and what the host recorded")
			back := must(session.ReadPacket(raw))(t)
			require.Equal(t, p, back)
			require.Less(t, len(p.Markdown()), session.MaxHandoff+4<<10)
			limn := must(new(Ledger).Packet(p))(t)
			require.Less(t, len(limn), 2*session.MaxHandoff)
			interpreted(t, limn)

			seen, tokens := 0, 0
			for _, c := range p.Context {
				if m := contextForm().FindStringSubmatch(c.Context); m != nil {
					n := must(strconv.Atoi(m[3]))(t)
					seen, tokens = seen+1, tokens+n
					continue
				}
				var form, of string
				var n, size int
				_, err := fmt.Sscanf(c.Context, "%s %d", &form, &n)
				require.NoError(t, err, c.Context)
				of = c.Context[strings.LastIndex(c.Context, "(")+1:]
				_, err = fmt.Sscanf(of, "%d tokens)", &size)
				require.NoError(t, err, c.Context)
				seen, tokens = seen+n, tokens+size
			}
			require.Equal(t, turns, seen)
			require.Equal(t, turns*100, tokens)
			require.Equal(t, p, Handoff(longInput(turns, judge)))
		})
	}
}

func TestHandoffNamesWhatItLeavesOut(t *testing.T) {
	p := Handoff(longInput(5000, longSessions["a window"]))
	require.Equal(t, "evicted 4900 turns from acme%2Fsupport:block-chat-1#0@1 to acme%2Fsupport:block-chat-4900#0@1 (490000 tokens)", p.Context[0].Context)
	refs := References(p)
	require.Equal(t, "acme%2Fsupport:block-chat-5000#0@1", refs[len(refs)-1].Ref, "the newest stand alone")
	last := p.VerifiedSources[len(p.VerifiedSources)-1]
	require.Regexp(t, `^\d+ more sources$`, last.Source)
	require.Equal(t, "referenced", last.State)
	require.Contains(t, p.DoNotClaim[len(p.DoNotClaim)-1].Reason, last.Source)
	require.Equal(t, "file:/data/4998.md", p.VerifiedSources[len(p.VerifiedSources)-2].Source, "the newest that was read")
	require.Regexp(t, `^\d+ more decisions$`, p.LockedDecisions[len(p.LockedDecisions)-1].Text)
	require.Regexp(t, `^\d+ more corrections$`, p.Corrections[len(p.Corrections)-1].Correction)
	require.Contains(t, p.LockedDecisions[0].Text, " ... (cut, 50000 bytes in all)")

	mixed := Handoff(longInput(5000, longSessions["mixed"]))
	require.Regexp(t, `^pinned|^retained \d+ of the \d+ turns from`, mixed.Context[0].Context)
	pins := 0
	for _, r := range References(mixed) {
		if r.Form == "pinned" {
			pins++
		}
	}
	require.Greater(t, pins, 10, "pinned ones have the room first")
}

func TestBriefIsBounded(t *testing.T) {
	in := longInput(3000, longSessions["mixed"])
	for i := range in.Corrections {
		in.Corrections[i].Correction = strings.Repeat("[", i)
	}
	in.Open = []string{strings.Repeat("|", 9999)}
	in.Questions = []session.QuestionItem{{Question: in.Open[0], WhyItMatters: in.Open[0]}, {Question: in.Open[0], WhyItMatters: in.Open[0]}}
	in.Goal, in.Next, in.By = strings.Repeat("[", 9999), strings.Repeat("|", 9999), strings.Repeat("`", 9999)
	b := string(Handoff(in).Brief(strings.Repeat("x", 256)))
	require.Less(t, len(b), session.MaxBrief)
	require.Regexp(t, `\n- \d+ of \d+ are in the whole packet only\n`, b)

	b = string(unverified(Handoff(handoffInput())).Brief("handoff-1"))
	for _, want := range []string{"**Whole packet:** handoff-1\n", "Answer the escalation", "- not Gus, Wendell (address Wendell)\n", "- legal advice (not asked)\n", "- refund $400 (handed over by agent-7, unverified"} {
		require.Contains(t, b, want)
	}
	require.NotContains(t, b, "in the whole packet only")
}

// No text can add a section, a bullet or a statement.
func TestPacketTextsStayInTheirPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching("[#\n\r|\\-\" `a]{0,12}"))
		in := handoffInput()
		in.Goal, in.Notes, in.Done = text.Draw(t, "goal"), text.Draw(t, "notes"), []string{text.Draw(t, "done")}
		in.Claims[0] = session.BasisItem{Text: text.Draw(t, "claim"), Basis: text.Draw(t, "basis")}
		in.Sources[0].Source = text.Draw(t, "source")
		p := Handoff(in)
		md := "\n" + string(p.Markdown())
		for i, title := range strings.Split("Current Goal|Current State|Active Intent|Verified Sources|Inferred Claims|Locked Decisions|Open Questions|Active User Corrections|Context to Preserve|Work Completed|Work Not Yet Completed|Do Not Claim Beyond This|Recommended Next Action|Handoff Notes for the Receiving Agent", "|") {
			require.Equal(t, 1, strings.Count(md, fmt.Sprintf("\n## %d. %s\n", i+1, title)))
		}
		require.Equal(t, 15, strings.Count(md, "\n#"))
		b := must(new(Ledger).Packet(p))(t)
		must(ReadLedger(b))(t)
		interpreted(t, b)
		raw := must(p.JSON())(t)
		must(session.ReadPacket(raw))(t)
	})
}

func FuzzReadPacket(f *testing.F) {
	good, _ := Handoff(handoffInput()).JSON()
	f.Add(good)
	f.Add([]byte(`{"created_for":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := session.ReadPacket(raw)
		if err != nil {
			require.ErrorIs(t, err, session.ErrPacket)
			return
		}
		out := must(p.JSON())(t)
		back := must(session.ReadPacket(out))(t)
		require.Equal(t, References(p), References(back))
	})
}

func FuzzReadLedger(f *testing.F) {
	var l Ledger
	b, _ := l.Pass(verdicts(1, "block-1", session.Retain), then)
	f.Add(b)
	f.Add([]byte("remember a list called l-a\nadd \"x\" to l-a"))
	f.Fuzz(func(t *testing.T, file []byte) {
		l, err := ReadLedger(file)
		if err != nil {
			require.ErrorIs(t, err, session.ErrContract)
			return
		}
		more, err := l.Records(Records{Corrections: []Entry{{"c", ""}}})
		if err != nil {
			return // the file gave a name another meaning
		}
		must(ReadLedger(append(file, more...)))(t)
	})
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call whose value does not matter.
func errOf[T any](_ T, err error) error { return err }
