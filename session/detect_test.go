package session

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each detector, with a twin that differs in the one thing that counts.
func TestLowValueDetectors(t *testing.T) {
	tool := func(g Signals, traits Traits, tokens int) Section {
		return Section{Role: Tool, Kind: "tool", Sizes: EstimateSizes(tokens), Signals: g, Traits: traits, Turn: 50}
	}
	for _, c := range []struct {
		want         LowValue
		goal         Level
		sec, newer   Section
		twin, newer2 Section
	}{
		{want: Expired, goal: Cold, sec: tool(Signals{ExpiresAt: noon}, 0, 50), twin: tool(Signals{ExpiresAt: noon.Add(1)}, 0, 50)},
		{want: Duplicate, goal: Stub, sec: tool(Signals{Digest: 7}, 0, 50), newer: tool(Signals{Digest: 7}, 0, 50), twin: tool(Signals{Digest: 7}, 0, 50), newer2: tool(Signals{Digest: 8}, 0, 50)},
		{want: Superseded, goal: Stub, sec: tool(Signals{Source: "a", Version: 1}, 0, 50), newer: tool(Signals{Source: "a", Version: 2}, 0, 50), twin: tool(Signals{Source: "a", Version: 2}, 0, 50), newer2: tool(Signals{Source: "a", Version: 2}, 0, 50)},
		{want: StaleRead, goal: Stub, sec: tool(Signals{Source: "a", Stale: true}, 0, 50), twin: tool(Signals{Source: "a"}, 0, 50)},
		{want: Resolved, goal: Stub, sec: tool(Signals{Call: "make", Failed: true}, TraitError, 50), newer: tool(Signals{Call: "make"}, 0, 50), twin: tool(Signals{Call: "make", Failed: true}, TraitError, 50), newer2: tool(Signals{Call: "make", Failed: true}, 0, 50)},
		{want: OldDiff, goal: Stub, sec: tool(Signals{Source: "a"}, TraitDiff, 50), newer: tool(Signals{Source: "a"}, TraitDiff, 50), twin: tool(Signals{Source: "a"}, TraitDiff, 50), newer2: tool(Signals{Source: "b"}, TraitDiff, 50)},
		{want: Encoded, goal: Stub, sec: tool(Signals{}, TraitBinary, 50), twin: tool(Signals{}, TraitBinary|TraitError, 50)},
		{want: RawLog, goal: Stub, sec: tool(Signals{Finding: true}, TraitLog, 50), twin: tool(Signals{}, TraitLog, 50)},
		{want: Refetch, goal: Stub, sec: tool(Signals{Refetchable: true}, 0, 257), twin: tool(Signals{Refetchable: true}, 0, 256)},
		{want: ClosedTask, goal: Summary, sec: tool(Signals{Closed: true}, 0, 50), twin: tool(Signals{}, 0, 50)},
		{want: Chatter, goal: Cold, sec: Section{Role: Assistant, Sizes: Sizes{7}, Traits: TraitAck}, twin: Section{Role: Assistant, Sizes: Sizes{8}, Traits: TraitAck}},
		{want: Unread, goal: Raw, sec: Section{Role: Tool, Sizes: Sizes{50}, Signals: Signals{LastRead: 30}}, twin: Section{Role: Tool, Sizes: Sizes{50}, Signals: Signals{LastRead: 31}}},
	} {
		t.Run(c.want.String(), func(t *testing.T) {
			find := func(secs ...Section) LowValue {
				s := State{Config: Config{Total: 10_000, KeepLast: -1}, Turn: 50, Sections: secs}
				return s.LowValues(noon)[0]
			}
			require.Equal(t, c.want, find(c.sec, c.newer))
			require.Equal(t, c.goal, c.want.goal())
			require.Equal(t, Worth, find(c.twin, c.newer2), "the twin")
			for _, guard := range []func(*Section){
				func(s *Section) { s.Role = User }, func(s *Section) { s.Pinned = true }, func(s *Section) { s.Priority = Critical }, func(s *Section) { s.Signals.Keep = true },
			} {
				sec := c.sec
				guard(&sec)
				require.Equal(t, Worth, find(sec, c.newer), "never what is protected")
			}
		})
	}
}

func TestInspect(t *testing.T) {
	logs := strings.Repeat("2026-11-20T12:00:00Z info started worker\n", 5)
	for text, want := range map[string]Traits{
		logs:                                     TraitLog,
		logs + "ERROR: disk full\n":              TraitLog | TraitError,
		"diff --git a/x b/x\n--- a/x\n+++ b/x":   TraitDiff,
		"see data:image/png;base64,AAAA":         TraitBinary,
		strings.Repeat("QUJD", 80):               TraitBinary,
		"Traceback (most recent call last):":     TraitError,
		"TypeError: x is undefined":              TraitError,
		"make: *** [all] Error 2\nexit status 2": TraitError,
		"Ok, thanks!":                            TraitAck,
		"Got it. Done.":                          TraitAck,
		"Ok, I will delete the table":            0,
		"There was an error in my reasoning":     0,
		"plain text":                             0,
		"":                                       0,
	} {
		require.Equal(t, want, Inspect(text), "%.60q", text)
	}
}

func TestTrimSaysWhatItDropped(t *testing.T) {
	text := "start\n12:00:01 info worker a came up\n12:00:02 info worker b came up\n12:00:03 error: disk full\nthe same again\nthe same again\nthe same again\n\n\nend"
	require.Equal(t, "start\n[2 lines dropped]\n12:00:03 error: disk full\nthe same again\n[2 lines dropped]\n\nend", Trim(text))
	require.Equal(t, "a\nb", Trim("a\nb"))
	require.Equal(t, "a\na", Trim("a\na"), "the notice would be longer")
}

func TestExtractKeepsFailuresWithinTheLimit(t *testing.T) {
	count := func(s string) int { return len(strings.Fields(s)) }
	text := "build of the project\none two three\nfour five six\nerror: no such file\nseven eight nine\nten"
	for limit := 1; limit < 40; limit++ {
		got := Extract(text, limit, count)
		require.LessOrEqual(t, count(got), limit)
		if limit >= 10 {
			require.Contains(t, got, "error: no such file")
			require.True(t, strings.HasPrefix(got, "build of the project"))
		}
	}
	require.Equal(t, text, Extract(text, 40, count))
	require.Equal(t, "build of", strings.TrimSpace(Extract(text, 2, count)))
	require.Equal(t, "", Extract("", 5, count))
}

func TestStubText(t *testing.T) {
	require.Equal(t, "[paged s:m-1#0@2 digest ab 40 tokens] Hello  there", StubText("s:m-1#0@2", "ab", 40, "\n--\n  Hello\u202e there\nmore"))
	require.Len(t, []rune(Title(strings.Repeat("ä", 100))), 80)
	require.Empty(t, Title("---\n"))
}

func TestLowValuesLookAtTheClockGiven(t *testing.T) {
	s := State{Config: Config{Total: 1000, KeepLast: -1}, Sections: []Section{{ID: "a", Signals: Signals{ExpiresAt: noon}}}}
	require.Equal(t, Worth, s.LowValues(noon.Add(-time.Nanosecond))[0])
	require.Equal(t, Expired, s.LowValues(noon)[0])
}
