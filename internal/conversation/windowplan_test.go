package conversation

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/session"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// sections makes n assistant messages of the given tokens, an hour apart, of
// changing priority below critical.
func sections(n, tokens int) []Section {
	out := make([]Section, n)
	for i := range out {
		out[i] = Section{
			ID: fmt.Sprint("s", i), Kind: []string{"message", "tool", "chunk"}[i%3], Role: Assistant, Priority: Priority(i%3 - 1),
			At: noon.Add(time.Duration(i-n) * time.Hour), Turn: int64(i), Sizes: EstimateSizes(tokens),
		}
	}
	return out
}

// full is a state filled to the given share of 10,000 tokens.
func full(share session.PPM) State {
	return State{Config: session.Config{Total: 10_000}, Sections: sections(share.Of(100), 100)}
}

// apply carries out a plan on a copy.
func (s State) apply(p session.Plan, made map[string]int) (State, error) {
	next := s
	next.Sections = slices.Clone(s.Sections)
	if err := next.CarryOut(p, made); err != nil {
		return s, err
	}
	return next, nil
}

func score(c session.Config, sec Section) float64 {
	c = c.WithDefaults()
	return worth(&c, &sec, noon)
}

func TestScoreVectors(t *testing.T) {
	age := func(h float64) time.Time { return noon.Add(-time.Duration(h * float64(time.Hour))) }
	for _, c := range []struct {
		sec       Section
		exp, half float64
	}{
		{Section{Priority: High, Relevance: .8, Rated: true, At: age(12)}, 1.940898111, 2.262741700},
		{Section{Priority: Low, Relevance: 1, Rated: true, At: age(0)}, 1, 1},
		{Section{Priority: Low}, .25, .25},
		{Section{Priority: Medium, Relevance: .25, Rated: true, At: age(24)}, .1839397206, .25},
		{Section{Priority: High, At: age(48)}, .2706705665, .5},
		{Section{Priority: Low, Relevance: .9, Rated: true, At: age(240)}, 4.085993679e-05, 8.7890625e-04},
		{Section{Priority: Critical, Relevance: .1, Rated: true, At: age(1000)}, 6.419283768e-19, 2.291783039e-13},
	} {
		require.InEpsilon(t, c.exp, score(session.Config{}, c.sec), 1e-9)
		require.InEpsilon(t, c.half, score(session.Config{Recency: session.HalfLife}, c.sec), 1e-9)
	}
	require.Equal(t, 2.0, score(session.Config{}, Section{Relevance: 7, Rated: true, At: noon.Add(time.Hour)}), "clamped, and the future is now")
	require.Equal(t, 0.0, score(session.Config{}, Section{Relevance: -1, Rated: true, At: noon}))
}

func TestR1Hysteresis(t *testing.T) {
	t.Run("constant load below the trigger: no pass in 1,000 ticks", func(t *testing.T) {
		m := must(ResumeMachine(session.Config{Total: 10_000}, Progress{}))(t)
		for i := range 1000 {
			var move Move
			m, move, _ = m.Step(noon.Add(time.Duration(i)*time.Second), 0, 8000)
			require.Equal(t, Rest, move)
		}
		_, move, _ := m.Step(noon.Add(time.Hour), 0, 8001)
		require.Equal(t, Compact, move, "control: one token more starts a pass")
	})
	t.Run("no two passes without a refill", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			m := must(ResumeMachine(session.Config{Total: 10_000}, Progress{}))(t)
			now, actual, low := noon, 0, 0
			for i := range 200 {
				now = now.Add(time.Second)
				actual = min(max(actual+rapid.IntRange(-300, 400).Draw(t, "change"), 0), 8500)
				low = min(low, actual)
				var move Move
				m, move, _ = m.Step(now, uint64(i), actual)
				if move == Rest {
					continue
				}
				require.GreaterOrEqual(t, actual-low, 500)
				require.Greater(t, actual, 8000)
				freed := rapid.IntRange(200, 2000).Draw(t, "freed")
				actual -= freed
				low = actual
				m, _ = m.Done(now, move, Outcome{Plan: session.Plan{Items: make([]session.PlanItem, 1), Freed: freed}, Applied: true, Actual: actual, Freed: freed})
			}
		})
	})
}

func TestR2ThresholdsAreSharesWithCaps(t *testing.T) {
	th := session.Config{Total: 200_000}.Thresholds()
	require.Equal(t, session.Thresholds{Total: 200_000, Hard: 195_904, Usable: 170_000, Trigger: 160_000, Warn: 150_000, Target: 140_000, MinRefill: 10_000, MinGain: 4_000}, th)
	small := session.Config{Total: 1001}.Thresholds()
	require.Equal(t, 850, small.Usable, "floor(1001 × 0.85)")
	require.Equal(t, small.Usable, small.Hard)
	capped := session.Config{Total: 200_000, UsableCap: 85_000}.Thresholds()
	require.Equal(t, session.Thresholds{Total: 200_000, Hard: 195_904, Usable: 85_000, Trigger: 80_000, Warn: 75_000, Target: 70_000, MinRefill: 5_000, MinGain: 2_000}, capped)
	long := session.Config{Total: 8_000, OutputReserve: 4_096}.Thresholds()
	require.Equal(t, 3_904, long.Usable)
	require.Less(t, long.Target, long.Warn)
	for name, c := range map[string]session.Config{
		"no total": {}, "reserve": {Total: 100, Reserve: million}, "negative": {Total: 100, Band: -1}, "target above trigger": {Total: 10_000, Target: 810_000},
		"weights": {Total: 100, Weights: [4]float64{1, 1, 2, 3}}, "back-off": {Total: 100, BackOffMin: time.Hour}, "output": {Total: 100, OutputReserve: 100},
		"allocation": {Total: 1000, Allocation: []session.Cap{{Kind: "a", Share: 900_000}}}, "twice": {Total: 1000, Allocation: []session.Cap{{Kind: "a", Tokens: 1}, {Kind: "a", Tokens: 1}}},
		"too small": {Total: 10}, "mode": {Total: 1000, Mode: "x"}, "NaN": {Total: 1000, Weights: [4]float64{1, 2, math.NaN(), 3}},
	} {
		require.ErrorIs(t, c.Validate(), session.ErrConfig, name)
		require.ErrorIs(t, errOf(ResumeMachine(c, Progress{})), session.ErrConfig, name)
	}
	err := session.Config{Total: -1, Reserve: -1, Mode: "x"}.Validate()
	require.Equal(t, 3, strings.Count(err.Error(), session.ErrConfig.Error()), "all faults at once: %v", err)
	rapid.Check(t, func(t *rapid.T) {
		c := session.Config{Total: rapid.IntRange(100, 1<<30).Draw(t, "total")}
		require.NoError(t, c.Validate())
		th := c.Thresholds()
		require.True(t, th.Target < th.Warn && th.Warn < th.Trigger && th.Trigger < th.Usable && th.Usable <= th.Hard && th.Hard <= th.Total)
		require.Equal(t, int(int64(c.Total)*85/100), th.Usable)
	})
}

func TestR3PassesAreBatches(t *testing.T) {
	s := full(830_000)
	p := must(s.Plan(noon))(t)
	require.Empty(t, p.Blocked)
	require.LessOrEqual(t, p.Predicted, p.Thresholds.Target)
	require.GreaterOrEqual(t, p.Freed, p.Thresholds.MinGain)
	lowest := slices.MinFunc(p.Items, func(a, b session.PlanItem) int { return a.Index - b.Index }).Index
	require.Equal(t, lowest, p.FirstChanged)
	for _, it := range p.Items {
		gain := it.Before - it.After
		require.True(t, gain >= 64 || gain*5 >= it.Before)
	}
	// A window in which nothing gives enough is not touched.
	for i := range s.Sections {
		s.Sections[i].Pinned = i > 0
	}
	p = must(s.Plan(noon))(t)
	require.Contains(t, p.Blocked, "of at least 200 tokens")
	// Deferred: marked at the trigger, applied when nothing is left.
	m := must(ResumeMachine(session.Config{Total: 10_000, Mode: session.ModeDeferred}, Progress{}))(t)
	m, move, _ := m.Step(noon, 0, 8100)
	require.Equal(t, Mark, move)
	m, events := m.Done(noon, move, Outcome{Plan: session.Plan{Items: make([]session.PlanItem, 1), Actual: 8100}})
	require.Len(t, events, 1)
	m, move, _ = m.Step(noon, 0, 8400)
	require.Equal(t, Rest, move)
	_, move, _ = m.Step(noon, 0, 8500)
	require.Equal(t, Compact, move)
}

// A step never grows a section. (That an undo restores it exactly is tested with the conversation, which has the undo.)
func TestR4StepsOnlyShrink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := full(session.PPM(rapid.IntRange(750_000, 850_000).Draw(t, "share")))
		p := must(before.Plan(noon))(t)
		made := map[string]int{}
		for _, it := range p.Items {
			if rapid.Bool().Draw(t, "made") {
				made[it.ID] = rapid.IntRange(1, 200).Draw(t, "size") // some grow: those must be skipped
			}
		}
		after := must(before.apply(p, made))(t)
		for i, sec := range after.Sections {
			require.LessOrEqual(t, sec.Tokens(), before.Sections[i].Tokens())
		}
	})
}

func TestR5PlanIsOrderedExactAndGuarded(t *testing.T) {
	s := full(850_000)
	s.Sections[4].Signals = session.Signals{Stale: true} // medium
	p := must(s.Plan(noon))(t)
	again, _ := s.Plan(noon)
	require.Equal(t, p, again, "same state, same time, same plan")
	for i, it := range p.Items {
		require.Contains(t, []string{"low", "medium"}, it.Priority)
		if i > 0 && p.Items[i-1].Priority == it.Priority && p.Items[i-1].Reason == it.Reason {
			require.LessOrEqual(t, p.Items[i-1].Score, it.Score)
		}
		if i > 0 {
			require.LessOrEqual(t, p.Items[i-1].Priority, it.Priority, "low before medium")
			require.Equal(t, p.Items[i-1].Cumulative+it.Before-it.After, it.Cumulative)
		}
		if it.ID == "s4" {
			require.Equal(t, "stale source", it.Reason)
			require.Equal(t, session.Stub, it.To)
			require.Equal(t, "low", p.Items[i-1].Priority, "first of its priority")
		}
	}
	after := must(s.apply(p, nil))(t)
	require.Equal(t, p.Predicted, after.Tokens())
	require.Equal(t, s.Pass+1, after.Pass)
	require.ErrorIs(t, errOf(after.apply(p, nil)), session.ErrGeneration)
	moved := s
	moved.Sections = slices.Clone(s.Sections)
	slices.Reverse(moved.Sections)
	require.ErrorIs(t, errOf(moved.apply(p, nil)), session.ErrGeneration)
	raw := must(json.Marshal(p))(t)
	require.Contains(t, string(raw), `"from":"raw","to":"summary"`)
	require.Contains(t, string(raw), `"recency_model":"exp24"`)
}

// A plan made by hand that no planner makes is refused whole: a section that it names twice could not be undone, and a
// level beyond the last has no size.
func TestPlanMadeByHand(t *testing.T) {
	s := State{Config: session.Config{Total: 4000}, Sections: []Section{
		{ID: "a", Sizes: Sizes{session.Raw: 1000, session.Summary: 200, session.Stub: 20}}, {ID: "b", Sizes: Sizes{session.Raw: 500, session.Stub: 20}},
	}}
	step := func(i int, id string, from, to session.Level) session.PlanItem {
		return session.PlanItem{Index: i, ID: id, From: from, To: to, After: s.Sections[i].Sizes[min(to, session.Cold)]}
	}
	for name, items := range map[string][]session.PlanItem{
		"twice, one after the other": {step(0, "a", session.Raw, session.Summary), step(0, "a", session.Summary, session.Stub)},
		"twice the same":             {step(0, "a", session.Raw, session.Stub), step(1, "b", session.Raw, session.Stub), step(0, "a", session.Raw, session.Stub)},
		"beyond the last level":      {step(0, "a", session.Raw, session.Cold+1)},
		"no further":                 {step(0, "a", session.Raw, session.Raw)},
	} {
		same, err := s.apply(session.Plan{Items: items}, nil)
		require.ErrorIs(t, err, session.ErrPlan, name)
		require.Equal(t, s, same, name)
	}
	next := must(s.apply(session.Plan{Items: []session.PlanItem{step(0, "a", session.Raw, session.Stub), step(1, "b", session.Raw, session.Stub)}}, nil))(t)
	require.Equal(t, 40, next.Tokens())
}

func TestR6RecommendWritesNothing(t *testing.T) {
	m := must(ResumeMachine(session.Config{Total: 10_000, Mode: session.ModeRecommend}, Progress{}))(t)
	m, move, events := m.Step(noon, 0, 8300)
	require.Equal(t, Recommend, move)
	require.Equal(t, session.EventWarn, events[0].Kind)
	m, events = m.Done(noon, move, Outcome{Plan: session.Plan{Items: make([]session.PlanItem, 3), Freed: 900, Actual: 8300}})
	require.Len(t, events, 1)
	require.Equal(t, session.EventPlanned, events[0].Kind)
	require.Equal(t, 3, events[0].Items)
	m, move, events = m.Step(noon.Add(time.Minute), 0, 8500)
	require.Equal(t, Rest, move, "shown once a crossing")
	require.Empty(t, events)
	require.Zero(t, m.Counters.Passes)
}

func TestR7EventsFireOncePerCrossing(t *testing.T) {
	m := must(ResumeMachine(session.Config{Total: 10_000}, Progress{}))(t)
	var got []string
	now := noon
	step := func(actual int, apply bool) {
		now = now.Add(time.Second)
		var move Move
		var events, more []session.Event
		m, move, events = m.Step(now, uint64(actual), actual)
		if move != Rest {
			o := Outcome{Plan: session.Plan{Blocked: "all pinned", Actual: actual}}
			if apply {
				o = Outcome{Plan: session.Plan{Items: make([]session.PlanItem, 2), Freed: 1500, Pass: 9}, Applied: true, Actual: actual - 1500, Freed: 1500}
			}
			m, more = m.Done(now, move, o)
		}
		for _, e := range append(events, more...) {
			require.Equal(t, uint64(len(got)+1), e.Seq)
			got = append(got, string(e.Kind))
		}
	}
	for _, a := range []int{7000, 7600, 7400, 7600, 7999, 8000} {
		step(a, false)
	}
	require.Equal(t, []string{"warn"}, got, "once, although the line was crossed twice")
	for range 5 {
		step(8200, false)
	}
	require.Equal(t, []string{"warn", "blocked"}, got)
	for m.Phase == Blocked {
		step(8300, true)
	}
	require.Equal(t, []string{"warn", "blocked", "planned", "applied", "headroom_ok"}, got)
	step(7600, true)
	require.Equal(t, "warn", got[len(got)-1], "armed again by the calm")
	var e session.Event
	m, e = m.Undone(now, 9, 8300)
	require.Equal(t, session.EventUndone, e.Kind)
	_, move, _ := m.Step(now, 0, 8300)
	require.Equal(t, Rest, move, "what was undone is not done again at once")
	require.Equal(t, session.Counters{Warnings: 2, Plans: 4, Passes: 1, Freed: 1500, Blocked: 3, Undone: 1}, m.Counters)
}

func TestBlockedBacksOffAndListens(t *testing.T) {
	m := must(ResumeMachine(session.Config{Total: 10_000}, Progress{}))(t)
	now := noon
	var waits []time.Duration
	for range 9 {
		var move Move
		m, move, _ = m.Step(now, 0, 8200)
		require.Equal(t, Compact, move)
		m, _ = m.Done(now, move, Outcome{})
		require.Equal(t, Blocked, m.Phase)
		wait := m.RetryAt().Sub(now)
		waits = append(waits, wait)
		_, move, _ = m.Step(now.Add(wait-1), 0, 8200)
		require.Equal(t, Rest, move)
		now = now.Add(wait)
	}
	s := time.Second
	require.Equal(t, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s}, waits)
	m, move, _ := m.Step(now.Add(-59*s), 5, 8200)
	require.Equal(t, Compact, move, "a write shortens the wait to a second")
	m, _ = m.Done(now, move, Outcome{})
	now = m.RetryAt()
	m, move, _ = m.Step(now, 0, 8200)
	require.Equal(t, Compact, move)
	_, move, _ = m.Step(now, 0, 8200)
	require.Equal(t, Rest, move, "no second move before Done")
}

func TestR8ProtectedStaysByteIdentical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := State{Config: session.Config{Total: 4000, AllowHigh: rapid.Bool().Draw(t, "high"), UserCap: rapid.SampledFrom([]int{0, 4000}).Draw(t, "cap")}}
		n := rapid.IntRange(20, 60).Draw(t, "n")
		for i := range n {
			s.Sections = append(s.Sections, Section{
				ID: fmt.Sprint(i), Turn: int64(i), Role: rapid.SampledFrom([]string{User, Assistant, Tool, System, ""}).Draw(t, "role"),
				Priority: Priority(rapid.IntRange(-1, 2).Draw(t, "priority")), Pinned: rapid.IntRange(0, 9).Draw(t, "pin") == 0,
				Sizes: EstimateSizes(rapid.IntRange(1, 150).Draw(t, "tokens")), At: noon,
				Signals: session.Signals{Keep: rapid.IntRange(0, 9).Draw(t, "keep") == 0, Stale: rapid.Bool().Draw(t, "stale"), Digest: uint64(i % 7)},
			})
		}
		protected := s.Protections()
		before := slices.Clone(s.Sections)
		for range 8 {
			var p session.Plan
			if rapid.Bool().Draw(t, "backstop") {
				p, _ = s.Backstop(noon, false)
			} else {
				p, _ = s.Plan(noon)
			}
			var err error
			s, err = s.apply(p, nil)
			require.NoError(t, err)
		}
		for i, sec := range s.Sections {
			if protected[i] != Unprotected {
				require.Equal(t, before[i], sec)
			}
			if sec.Role == User && s.Config.UserCap > 0 || sec.Role == System || sec.Pinned || sec.Priority == Critical || sec.Signals.Keep {
				require.NotEqual(t, Unprotected, protected[i])
			}
		}
	})
	s := full(500_000)
	s.Config.KeepLast = 3
	p := s.Protections()
	require.Equal(t, []Protection{Unprotected, IsNewest, IsNewest, IsNewest}, p[len(p)-4:])
	s.Sections[48].Sizes = EstimateSizes(6000)
	p = s.Protections()
	require.Equal(t, []Protection{Unprotected, Unprotected, Unprotected, IsNewest}, p[len(p)-4:], "no more than half of what is usable")
	s.Sections[1].Role, s.Sections[9].Role, s.Sections[20].Role = User, User, User
	s.Config.UserCap = 210
	p = s.Protections()
	require.Equal(t, []Protection{Unprotected, IsUserTurn, IsUserTurn}, []Protection{p[1], p[9], p[20]}, "the cap keeps the newest")
}

func TestR9Calibration(t *testing.T) {
	var c Calibration
	require.Equal(t, session.PPM(million), c.Ratio())
	require.Equal(t, 100, c.Budget(100))
	c = c.Observe(1000, 1550)
	require.Equal(t, 155, c.Budget(100))
	require.Equal(t, 16, c.Budget(10), "rounded up")
	c = c.Observe(1000, 1150)
	require.Equal(t, session.PPM(1_450_000), c.Ratio(), "falls by a quarter")
	require.Equal(t, session.PPM(4_000_000), c.Observe(1, 99).Ratio())
	require.Equal(t, session.PPM(500_000), Calibration{}.Observe(100, 1).Ratio())
	require.Equal(t, 100, Calibration{}.Observe(100, 1).Budget(100), "never below the estimate")
	require.Equal(t, c, c.Observe(0, 5))
}

func TestR11AdmissionOfTheTooLarge(t *testing.T) {
	s := full(800_000)
	big := Section{ID: "big", Role: Tool, Turn: 99, Sizes: EstimateSizes(9000)}
	a, err := s.Admit(big, noon)
	require.NoError(t, err)
	require.Equal(t, AdmitStub, a.How)
	require.Equal(t, session.Stub, a.Section.Level)
	require.Empty(t, a.Plan.Items, "others do not pay for it")
	for name, spoil := range map[string]func(*Section){
		"critical": func(s *Section) { s.Priority = Critical }, "pinned": func(s *Section) { s.Pinned = true }, "user": func(s *Section) { s.Role = User },
	} {
		sec := big
		spoil(&sec)
		_, err = s.Admit(sec, noon)
		require.ErrorIs(t, err, session.ErrHeadroom, name)
		var h *session.HeadroomError
		require.ErrorAs(t, err, &h)
		require.Equal(t, 500, h.Shortfall, name)
		require.Equal(t, "big", h.Section)
	}
	a = must(s.Admit(Section{ID: "fits", Role: Tool, Sizes: EstimateSizes(300), Turn: 99}, noon))(t)
	require.Equal(t, AdmitWhole, a.How)
	a = must(s.Admit(Section{ID: "needs room", Role: Tool, Sizes: EstimateSizes(900), Turn: 99}, noon))(t)
	require.Equal(t, AdmitCompact, a.How)
	next := must(s.With(a.Section).apply(a.Plan, nil))(t)
	require.LessOrEqual(t, next.Tokens(), 8500)
}

// 10,000 random appends, pins and unpins: after each, the window is within its
// limit, or the refusal says that the protected content is too much.
func TestWindowIsNeverAboveTheLimit(t *testing.T) {
	t.Run("capped", func(t *testing.T) {
		require.Positive(t, neverAboveTheLimit(t, session.Config{Total: 20_000, UserCap: 20_000}))
	})
	t.Run("default", func(t *testing.T) { require.Zero(t, neverAboveTheLimit(t, session.Config{Total: 20_000})) })
}

func neverAboveTheLimit(t *testing.T, c session.Config) (refused int) {
	r := rand.New(rand.NewPCG(1, 2))
	s := State{Config: c}
	stubs, compacted := 0, 0
	for i := range 10_000 {
		now := noon.Add(time.Duration(i) * time.Minute)
		if n := len(s.Sections); n > 0 && r.IntN(4) == 0 {
			s.Sections = slices.Clone(s.Sections)
			s.Sections[r.IntN(n)].Pinned = r.IntN(3) == 0
			s.Generation++
		}
		sec := Section{ID: fmt.Sprint(i), Role: []string{User, Assistant, Tool, Tool}[r.IntN(4)], Turn: int64(i), At: now,
			Priority: Priority(r.IntN(3) - 1), Sizes: EstimateSizes(1 + r.IntN(1+r.IntN(3000))), Pinned: r.IntN(8) == 0}
		if sec.Role == User {
			sec.Sizes = EstimateSizes(1 + r.IntN(40))
		}
		a, err := s.Admit(sec, now)
		if err != nil {
			var h *session.HeadroomError
			require.True(t, errors.As(err, &h), "%v", err)
			require.Greater(t, h.Protected, h.Usable)
			refused++
			for j := range s.Sections { // the user unpins and lets old turns go
				s.Sections[j].Pinned = false
			}
			s.Sections = s.Sections[len(s.Sections)/2:]
			continue
		}
		s = must(s.With(a.Section).apply(a.Plan, nil))(t)
		require.LessOrEqual(t, s.Tokens(), 17_000)
		stubs += int(a.How) / 2
		compacted += int(a.How) % 2
		if len(s.Sections) > 200 {
			s.Sections = s.Sections[50:]
		}
	}
	require.Positive(t, compacted)
	t.Logf("refused %d, stubs %d, compacted %d", refused, stubs, compacted)
	return refused
}

// Without UserCap what is protected never fills the window: only a section that is larger than all of it is refused.
func TestProtectionLeavesRoom(t *testing.T) {
	user := func(i, tokens int) Section {
		return Section{ID: fmt.Sprint("u", i), Kind: "user", Role: User, Priority: High, Turn: int64(i), At: noon, Sizes: EstimateSizes(tokens)}
	}
	s := State{Config: session.Config{Total: 10_000, KeepLast: 1}}
	for i := range 85 {
		s.Sections = append(s.Sections, user(i, 100))
	}
	p := s.Protections()
	require.Equal(t, 21, 85-slices.Index(p, IsUserTurn), "a quarter of 8,500, newest first")
	require.NotContains(t, p[85-21:], Unprotected)
	plan := must(s.Plan(noon))(t)
	require.Empty(t, plan.Blocked, "the background pages them as it does others")
	require.Equal(t, "user turn above the protected share", plan.Items[0].Reason)
	capped := s
	capped.Config.UserCap = 10_000
	plan = must(capped.Plan(noon))(t)
	require.NotEmpty(t, plan.Blocked, "control: all protected")

	for _, tokens := range []int{100, 6000, 8500} {
		a := must(s.Admit(user(99, tokens), noon))(t)
		require.Equal(t, AdmitCompact, a.How)
		require.False(t, a.Yield)
		next := must(s.With(a.Section).apply(a.Plan, nil))(t)
		require.LessOrEqual(t, next.Tokens(), 8500)
		require.Equal(t, session.Raw, next.Sections[85].Level)
		require.ErrorIs(t, errOf(capped.Admit(user(99, tokens), noon)), session.ErrHeadroom, "control")
	}
	_, err := s.Admit(user(99, 8501), noon)
	require.EqualError(t, err, `session: no headroom: turn "u99" alone takes 8501 tokens, 1 more than the usable window of 8500; split or shorten it, or enlarge the window`)

	for i := range s.Sections { // what the host protects gives way only to the newest, oldest first
		s.Sections[i].Pinned = true
	}
	over := s.With(user(98, 100))
	over.Sections[85].Pinned = true
	require.ErrorIs(t, errOf(over.Backstop(noon, false)), session.ErrHeadroom)
	a := must(s.Admit(user(99, 1000), noon))(t)
	require.True(t, a.Yield)
	next := must(s.With(a.Section).apply(a.Plan, nil))(t)
	require.LessOrEqual(t, next.Tokens(), 8500)
	require.NotEqual(t, session.Raw, next.Sections[0].Level)
	require.Equal(t, ReasonYielded, next.Sections[0].Because)
	require.Equal(t, session.Raw, next.Sections[84].Level)
}

// Stubs do not crowd out the turns: what fills more than their share of the window goes before anything else is compacted.
func TestStubsAreBounded(t *testing.T) {
	s := State{Config: session.Config{Total: 10_000}, Sections: sections(300, 100)}
	for i := range 200 {
		s.Sections[i].Level = session.Stub
	}
	p := must(s.Backstop(noon, false))(t)
	next := must(s.apply(p, nil))(t)
	stubs := 0
	for i, sec := range next.Sections {
		if i < 200 && sec.Level == session.Stub {
			stubs += sec.Tokens()
		}
	}
	require.InDelta(t, 8500/10, stubs, 30)
	require.LessOrEqual(t, next.Tokens(), 8500)
}

// With a step after each append, the backstop at the commit is hardly needed.
func TestBackgroundKeepsAhead(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	s := State{Config: session.Config{Total: 20_000, AllowHigh: true}}
	m := must(ResumeMachine(s.Config, Progress{}))(t)
	backstops := 0
	for i := range 5_000 {
		now := noon.Add(time.Duration(i) * time.Second)
		a := must(s.Admit(Section{ID: fmt.Sprint(i), Role: []string{Assistant, Tool}[r.IntN(2)], Turn: int64(i), At: now,
			Priority: Priority(r.IntN(3) - 1), Sizes: EstimateSizes(1 + r.IntN(800))}, now))(t)
		backstops += len(a.Plan.Items) / max(len(a.Plan.Items), 1)
		s = must(s.With(a.Section).apply(a.Plan, nil))(t)
		var move Move
		if m, move, _ = m.Step(now, s.Generation, s.Tokens()); move == Compact {
			o := Outcome{}
			o.Plan = must(s.Plan(now))(t)
			if o.Plan.Blocked == "" {
				s = must(s.apply(o.Plan, nil))(t)
				o.Applied, o.Actual = true, s.Tokens()
			}
			m, _ = m.Done(now, move, o)
		}
		if len(s.Sections) > 300 {
			s.Sections = s.Sections[100:]
		}
	}
	passes := m.Counters.Passes
	t.Logf("%d passes in the background, %d at the commit", passes, backstops)
	require.Greater(t, passes, 100)
	require.LessOrEqual(t, backstops*100, (passes+backstops)*5)
}

func TestBackstopGoesAsFarAsItTakes(t *testing.T) {
	s := full(850_000)
	for i := range s.Sections {
		s.Sections[i].Priority = High
	}
	p := must(s.Plan(noon))(t)
	require.NotEmpty(t, p.Blocked, "the background leaves high ones alone")
	s.Config.Total = 1_765 // usable: 1,500
	p = must(s.Backstop(noon, false))(t)
	require.LessOrEqual(t, p.Predicted, 1500)
	seen := map[string]bool{}
	for _, it := range p.Items {
		require.False(t, seen[it.ID], "one item a section, however many steps")
		seen[it.ID] = true
	}
	for i := range 16 {
		s.Sections[i].Pinned = true
	}
	require.ErrorIs(t, errOf(s.Backstop(noon, false)), session.ErrHeadroom, "what is pinned stays")
}

func TestAllocationCaps(t *testing.T) {
	s := full(600_000)
	s.Config.Allocation = []session.Cap{{Kind: "tool", Share: 150_000}}
	p := must(s.Plan(noon))(t)
	require.Equal(t, session.Row{Name: "tool", Items: 20, Tokens: 2000, Share: 200_000, Cap: 1500, Over: 500}, p.Analysis.ByKind[2])
	require.NotEmpty(t, p.Items)
	for _, it := range p.Items {
		require.Equal(t, "tool", it.Kind, "below the target only the kind above its cap")
	}
	after := must(s.apply(p, nil))(t)
	require.LessOrEqual(t, after.Analyse().ByKind[2].Tokens, 1500)
}

func TestAnalysisAddsUp(t *testing.T) {
	s := full(700_000)
	s.Sections[3].Priority = Critical
	a := s.Analyse()
	sum := func(rows []session.Row) (items, tokens int) {
		for _, r := range rows {
			items, tokens = items+r.Items, tokens+r.Tokens
		}
		return
	}
	for _, rows := range [][]session.Row{a.ByKind, a.ByPriority} {
		items, tokens := sum(rows)
		require.Equal(t, [2]int{70, 7000}, [2]int{items, tokens})
	}
	require.Equal(t, []string{"critical", "high", "medium", "low"}, []string{a.ByPriority[0].Name, a.ByPriority[1].Name, a.ByPriority[2].Name, a.ByPriority[3].Name})
	require.Equal(t, 700, a.Protected)
	require.Equal(t, s.Tokens(), a.Tokens)
}

// A plan for many sections is quick, or the machine is slow: then one for a tenth of them takes about a tenth.
func TestR12PlanIsQuick(t *testing.T) {
	quickest := func(sections int) time.Duration {
		s, best := bigState(sections), time.Hour
		for range 5 {
			start := dbtest.CPUTime()
			p, err := s.Plan(noon)
			best = min(best, dbtest.CPUTime()-start)
			require.NoError(t, err)
			require.NotEmpty(t, p.Items)
		}
		return best
	}
	some, many := quickest(1000), quickest(10_000)
	t.Logf("processor time of a plan for 1,000 sections: %v, for 10,000: %v", some, many)
	require.Less(t, many, max(100*time.Millisecond, 64*some), "far above the goal of 5 ms, to hold under -race; what grows with the square takes 100 times as long")
}

// bigState is a window of n sections with signals of every sort, over its trigger.
func bigState(n int) State {
	r := rand.New(rand.NewPCG(7, 7))
	s := State{Config: session.Config{Total: n * 120}, Turn: int64(n), Sections: sections(n, 100)}
	for i := range s.Sections {
		s.Sections[i].Relevance, s.Sections[i].Rated = r.Float64(), true
		s.Sections[i].Signals = session.Signals{Digest: r.Uint64() % uint64(n*8), Source: fmt.Sprint("file:", r.IntN(n)), Version: r.Uint64() % 4}
	}
	return s
}

func TestNamesAndMessages(t *testing.T) {
	var names []string
	for _, s := range []fmt.Stringer{session.Retain, session.Page, session.Evict, ByAge, High, session.Cold, Blocked, Resolved} {
		names = append(names, s.String())
	}
	require.Equal(t, []string{"retain", "page", "evict", "too young to evict", "high", "cold", "blocked", "resolved error"}, names)
	require.EqualError(t, &session.HeadroomError{Shortfall: 5, Protected: 105, Usable: 100, Section: "m-1"},
		`session: no headroom: protected content alone exceeds the usable window: admitting "m-1" 105 protected tokens, 100 usable, 5 short; unpin something, protect fewer user turns (Config.UserCap), or enlarge the window`)
	require.EqualError(t, &session.HeadroomError{Shortfall: 63, Protected: 202, Usable: 255},
		`session: no headroom: more than the usable window would stand in it: 255 usable tokens, 63 short; enlarge the window`)
}

// A step that frees too little must not keep a section whole forever.
func TestPlanSkipsSmallSteps(t *testing.T) {
	s := State{Config: session.Config{Total: 2000, KeepLast: -1}}
	for i := range 9 {
		s = s.With(Section{ID: fmt.Sprint("log-", i), Role: Tool, Priority: Low, Turn: int64(i),
			Sizes: Sizes{session.Raw: 180, session.Trimmed: 170, session.Summary: 60, session.Stub: 20}})
	}
	p := must(s.Plan(time.Now()))(t)
	require.Empty(t, p.Blocked)
	require.Equal(t, session.Summary, p.Items[0].To)
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call whose value does not matter.
func errOf[T any](_ T, err error) error { return err }
