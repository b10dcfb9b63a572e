package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A packet that is written as a document can be read again, and so can one that another program wrote. What has no place is refused
// with its line.
func TestParseMarkdown(t *testing.T) {
	p := Packet{
		CreatedFor: "night | shift", CreatedBy: "day", Date: "2026-05-17", SessionOrProject: "acme", CurrentGoal: "Fix [it].\n# not a title", CurrentState: "open",
		ActiveIntent:    ActiveIntent{PrimaryIntent: "fix", TargetOrArtifact: "t", Status: "s", Basis: "b", UnresolvedSlots: []string{"x", "y"}},
		VerifiedSources: []PacketSource{{"a|b.go", "file", "scanned", `says \n`}},
		InferredClaims:  []BasisItem{{"c: d", "e"}}, LockedDecisions: []BasisItem{{"use tea", ""}}, OpenQuestions: []QuestionItem{{"why?", "because"}},
		Corrections: []CorrectionItem{{"no", "never"}}, Context: []ContextItem{{"ctx", "w"}}, WorkCompleted: []string{"one", "two"}, WorkNotYetCompleted: []string{"three"},
		DoNotClaim: []BoundaryItem{{"b", "r"}}, NextAction: "go on", Notes: "- a list\n- of two",
	}
	got, err := ReadPacket(p.Markdown())
	require.NoError(t, err)
	require.Equal(t, p, got)
	empty, err := ReadPacket(Packet{ActiveIntent: ActiveIntent{PrimaryIntent: "plan"}}.Markdown())
	require.NoError(t, err)
	require.Equal(t, Packet{ActiveIntent: ActiveIntent{PrimaryIntent: "plan"}}.filled(), empty)

	got, err = ReadPacket([]byte("\ufeff# Handoff Packet\r\n\r\n**Created by:** Claude\r\n\r\n## Open Questions\r\n\r\n- Question: Should it\r\n  be shown?\r\n  - Why it matters: It affects\r\n    the design.\r\n\r\n## 10. Work Completed\r\n\r\n* chose a queue\r\n"))
	require.NoError(t, err)
	require.Equal(t, []QuestionItem{{"Should it be shown?", "It affects the design."}}, got.OpenQuestions)
	require.Equal(t, []string{"chose a queue"}, got.WorkCompleted)
	for doc, says := range map[string]string{
		"# Notes\n\nhello":          `line 1: section "notes"`,
		"# Handoff Packet\n\nhello": "outside of the sections",
		"## 4. Verified Sources\n\n| a | b | c | d |\n|---|---|---|---|\n| x | file | perhaps | y |": `"perhaps" is not one of`,
		"## 4. Verified Sources\n\nthe manual":                                                       "line 3: expected a row",
		"## 3. Active Intent\n\n- Mood: good":                                                        "line 3",
		"## 3. Active Intent\n\n- Primary intent: wonder":                                            "primary_intent",
		"**Created with:** x\n\n## 1. Current Goal\n\nwin\n":                                         "line 1: Created with",
	} {
		_, err := ReadPacket([]byte(doc))
		require.ErrorIs(t, err, ErrPacket, doc)
		require.ErrorContains(t, err, says)
	}
}
