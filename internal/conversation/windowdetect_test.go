package conversation

import (
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
	"github.com/stretchr/testify/require"
)

// Each detector, with a twin that differs in the one thing that counts.
func TestLowValueDetectors(t *testing.T) {
	tool := func(g session.Signals, traits prose.Traits, tokens int) Section {
		return Section{Role: Tool, Kind: "tool", Sizes: EstimateSizes(tokens), Signals: g, Traits: traits, Turn: 50}
	}
	for _, c := range []struct {
		want         LowValue
		goal         session.Level
		sec, newer   Section
		twin, newer2 Section
	}{
		{want: Expired, goal: session.Cold, sec: tool(session.Signals{ExpiresAt: noon}, 0, 50), twin: tool(session.Signals{ExpiresAt: noon.Add(1)}, 0, 50)},
		{want: Duplicate, goal: session.Stub, sec: tool(session.Signals{Digest: 7}, 0, 50), newer: tool(session.Signals{Digest: 7}, 0, 50), twin: tool(session.Signals{Digest: 7}, 0, 50), newer2: tool(session.Signals{Digest: 8}, 0, 50)},
		{want: Superseded, goal: session.Stub, sec: tool(session.Signals{Source: "a", Version: 1}, 0, 50), newer: tool(session.Signals{Source: "a", Version: 2}, 0, 50), twin: tool(session.Signals{Source: "a", Version: 2}, 0, 50), newer2: tool(session.Signals{Source: "a", Version: 2}, 0, 50)},
		{want: StaleRead, goal: session.Stub, sec: tool(session.Signals{Source: "a", Stale: true}, 0, 50), twin: tool(session.Signals{Source: "a"}, 0, 50)},
		{want: Resolved, goal: session.Stub, sec: tool(session.Signals{Call: "make", Failed: true}, prose.TraitError, 50), newer: tool(session.Signals{Call: "make"}, 0, 50), twin: tool(session.Signals{Call: "make", Failed: true}, prose.TraitError, 50), newer2: tool(session.Signals{Call: "make", Failed: true}, 0, 50)},
		{want: OldDiff, goal: session.Stub, sec: tool(session.Signals{Source: "a"}, prose.TraitDiff, 50), newer: tool(session.Signals{Source: "a"}, prose.TraitDiff, 50), twin: tool(session.Signals{Source: "a"}, prose.TraitDiff, 50), newer2: tool(session.Signals{Source: "b"}, prose.TraitDiff, 50)},
		{want: Encoded, goal: session.Stub, sec: tool(session.Signals{}, prose.TraitBinary, 50), twin: tool(session.Signals{}, prose.TraitBinary|prose.TraitError, 50)},
		{want: RawLog, goal: session.Stub, sec: tool(session.Signals{Finding: true}, prose.TraitLog, 50), twin: tool(session.Signals{}, prose.TraitLog, 50)},
		{want: Refetch, goal: session.Stub, sec: tool(session.Signals{Refetchable: true}, 0, 257), twin: tool(session.Signals{Refetchable: true}, 0, 256)},
		{want: ClosedTask, goal: session.Summary, sec: tool(session.Signals{Closed: true}, 0, 50), twin: tool(session.Signals{}, 0, 50)},
		{want: Chatter, goal: session.Cold, sec: Section{Role: Assistant, Sizes: Sizes{7}, Traits: prose.TraitAck}, twin: Section{Role: Assistant, Sizes: Sizes{8}, Traits: prose.TraitAck}},
		{want: Unread, goal: session.Raw, sec: Section{Role: Tool, Sizes: Sizes{50}, Signals: session.Signals{LastRead: 30}}, twin: Section{Role: Tool, Sizes: Sizes{50}, Signals: session.Signals{LastRead: 31}}},
	} {
		t.Run(c.want.String(), func(t *testing.T) {
			find := func(secs ...Section) LowValue {
				s := State{Config: session.Config{Total: 10_000, KeepLast: -1}, Turn: 50, Sections: secs}
				return s.lowValues(noon, s.Protections())[0]
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

func TestLowValuesLookAtTheClockGiven(t *testing.T) {
	s := State{Config: session.Config{Total: 1000, KeepLast: -1}, Sections: []Section{{ID: "a", Signals: session.Signals{ExpiresAt: noon}}}}
	require.Equal(t, Worth, s.lowValues(noon.Add(-time.Nanosecond), s.Protections())[0])
	require.Equal(t, Expired, s.lowValues(noon, s.Protections())[0])
}
