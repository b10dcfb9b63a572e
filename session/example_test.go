package session_test

import (
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage/session"
)

// A pass decides what stays in the window, and says why.
func ExamplePass() {
	blocks := []session.Block{
		{ID: "m-1", Turn: 1, Role: session.User, Hashes: session.TokenSet("Ann", "What is the refund limit?")},
		{ID: "m-2", Turn: 2, Role: session.Tool, Hashes: session.TokenSet("npm WARN deprecated left-pad")},
		{ID: "m-3", Turn: 9, Role: session.Assistant, Hashes: session.TokenSet("The limit for refunds is $400.")},
	}
	params := session.RecommendedParams()
	params.KeepLast = 1
	r, err := session.Pass(session.Input{Blocks: blocks, Intent: session.NewIntent("refund limit"), Params: params, Head: 30})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range r.Verdicts {
		fmt.Println(v.ID, r.Explain(v))
	}
	// Output:
	// m-1 retain: R 0.7682 = 0.7 × similarity 1 (2 of 2 keywords) + 0.3 × recency 0.2272 (29 turns behind); retain from 0.3, evict below 0.1
	// m-2 evict: R 0.0687 = 0.7 × similarity 0 (0 of 2 keywords) + 0.3 × recency 0.229 (28 turns behind); retain from 0.3, evict below 0.1
	// m-3 retain: R 0.7733 = 0.7 × similarity 1 (2 of 2 keywords) + 0.3 × recency 0.2444 (21 turns behind); retain from 0.3, evict below 0.1
}

// The caller's loop around a Machine: here a tick is a second of virtual time, and
// each brings 40 tokens. The work is done before the usable limit is
// reached, so a commit never has to wait for it.
func ExampleMachine() {
	state := session.State{Config: session.Config{Total: 2_000}}
	machine, err := session.NewMachine(state.Config)
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i := range 46 {
		now := start.Add(time.Duration(i) * time.Second)
		state = state.With(session.Section{
			ID: fmt.Sprint("m-", i), Role: session.Tool, Priority: session.Low, At: now, Turn: int64(i),
			Sizes: session.Sizes{session.Raw: 40, session.Stub: 12},
		})
		var move session.Move
		var events, more []session.Event
		machine, move, events = machine.Step(now, session.Snapshot{Generation: state.Generation, Actual: state.Tokens()})
		if move != session.Rest {
			out := session.Outcome{}
			if out.Plan, err = state.Plan(now); err == nil && move == session.Compact && out.Plan.Blocked == "" {
				state, _, err = state.Apply(out.Plan, nil) // in one transaction
				out.Applied, out.Actual = err == nil, state.Tokens()
			}
			machine, more = machine.Done(now, move, out)
		}
		for _, e := range append(events, more...) {
			fmt.Println(e.Seq, e.At.Format("15:04:05"), e.Kind, "actual", e.Actual, "of", e.Usable, "freed", e.Freed)
		}
	}
	fmt.Println(machine.Phase(), machine.Counters().Passes, "pass")
	// Output:
	// 1 12:00:37 warn actual 1520 of 1700 freed 0
	// 2 12:00:40 planned actual 1640 of 1700 freed 252
	// 3 12:00:40 applied actual 1388 of 1700 freed 252
	// 4 12:00:40 headroom_ok actual 1388 of 1700 freed 0
	// 5 12:00:43 warn actual 1508 of 1700 freed 0
	// warned 1 pass
}
