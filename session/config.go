package session

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// PPM is a share in parts per million: 150,000 is 15 %. Shares are integers
// because 0.15*x is off by one at the edges.
type PPM int64

const million = 1_000_000

// Of returns the share of n, rounded down.
func (p PPM) Of(n int) int { return int(int64(n) * int64(p) / million) }

// Mode limits the background watcher. The zero Mode is ModeApply.
type Mode string

// The modes of the watcher.
const (
	ModeApply     Mode = "apply"     // plan at the trigger and apply
	ModeDeferred  Mode = "deferred"  // plan at the trigger, apply only when nothing is left to the usable limit
	ModeRecommend Mode = "recommend" // events only, nothing is written
)

// Config is the configuration of a window. Zero fields take the defaults named beside them. Shares are of Total, or of
// the smaller window that UsableCap or OutputReserve leave.
type Config struct {
	Total         int           // window in tokens; required
	Reserve       PPM           // 15 %: kept free, Usable = Total − Reserve. Above 15 % the defaults of the next five shrink with Usable
	Band          PPM           // 5 %: the background starts at Usable − Band
	WarnBand      PPM           // 5 %: the warning comes at Usable − Band − WarnBand
	Target        PPM           // 70 %: a pass lands here or below
	MinRefill     PPM           // 5 %: growth since the last pass before another may start
	MinGainPass   PPM           // 2 %: a pass that frees less is not applied
	MinGainTokens int           // 64: an item that frees less than this ...
	MinGainShare  PPM           // 20 %: ... and less than this share of itself is skipped
	OutputReserve int           // 4,096 or, in small windows, the reserve: admission refuses above Total − OutputReserve
	UsableCap     int           // absolute limit of Usable; 0: none
	KeepLast      int           // 6: newest messages never touched; -1: only the newest user turn
	KeepShare     PPM           // 50 % of Usable: ... while they are no more than this
	UserCap       int           // user turns are protected newest first up to so many tokens; 0: up to UserShare, the newest always
	UserShare     PPM           // 25 % of Usable: ... where UserCap is 0
	StubShare     PPM           // 20 % of Usable: a pass takes the stubs above it out of the window before it compacts anything else
	AllowHigh     bool          // the background may compact High too; the backstop always may
	Recency       RecencyModel  // Exp24
	HalfLife      time.Duration // 24 h, for HalfLife
	Weights       [4]float64    // 1, 2, 4, 8 for low .. critical: rising, above 0
	BackOffMin    time.Duration // 1 s: after a blocked pass ...
	BackOffMax    time.Duration // 60 s: ... doubling up to this
	RefetchTokens int           // 256: a re-fetchable tool output above this is low-value
	UnreadTurns   int64         // 20: not read for so many turns is low-value
	Mode          Mode
	Allocation    []Cap
}

// Cap limits the tokens of one kind: to Tokens, or to Share of the total where
// Tokens is 0.
type Cap struct {
	Kind   string
	Share  PPM
	Tokens int
}

// Thresholds are the effective limits in tokens, readable at any time. Target < Warn < Trigger < Usable ≤ Hard ≤ Total.
type Thresholds struct {
	Total     int `json:"total"`
	Hard      int `json:"hard"`       // admission refuses above
	Usable    int `json:"usable"`     // never exceeded after a commit
	Trigger   int `json:"trigger"`    // the background starts above
	Warn      int `json:"warn"`       // the warning comes above
	Target    int `json:"target"`     // a pass lands here or below
	MinRefill int `json:"min_refill"` // growth between passes
	MinGain   int `json:"min_gain"`   // a pass frees at least this
}

// setDefault sets a zero value to its default.
func setDefault[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

// beside returns a default share of the window. Defaults are made for a reserve of 15 %; a larger reserve shrinks them in
// proportion to the usable part, so that a reserve can be set alone.
func (c *Config) beside(share PPM) PPM {
	if c.Reserve <= 150_000 || c.Reserve >= million {
		return share
	}
	return share * (million - c.Reserve) / 850_000
}

// WithDefaults returns the configuration with the defaults in place of zeros.
func (c Config) WithDefaults() Config {
	setDefault(&c.Reserve, 150_000)
	setDefault(&c.Band, c.beside(50_000))
	setDefault(&c.WarnBand, c.beside(50_000))
	setDefault(&c.Target, c.beside(700_000))
	setDefault(&c.MinRefill, c.beside(50_000))
	setDefault(&c.MinGainPass, c.beside(20_000))
	setDefault(&c.MinGainTokens, 64)
	setDefault(&c.MinGainShare, 200_000)
	setDefault(&c.OutputReserve, min(4096, c.Total-(million-c.Reserve).Of(c.Total)))
	setDefault(&c.KeepLast, 6)
	setDefault(&c.KeepShare, 500_000)
	setDefault(&c.UserShare, 250_000)
	setDefault(&c.StubShare, 200_000)
	setDefault(&c.Mode, ModeApply)
	setDefault(&c.Recency, Exp24)
	setDefault(&c.HalfLife, 24*time.Hour)
	setDefault(&c.Weights, [4]float64{1, 2, 4, 8})
	setDefault(&c.BackOffMin, time.Second)
	setDefault(&c.BackOffMax, time.Minute)
	setDefault(&c.RefetchTokens, 256)
	setDefault(&c.UnreadTurns, 20)
	return c
}

// Thresholds returns the effective limits of a valid configuration. If a cap makes the usable window smaller than the
// reserve does, all limits shrink with it: the distances between them stay in proportion.
func (c Config) Thresholds() Thresholds {
	c = c.WithDefaults()
	t := Thresholds{Total: c.Total, Hard: c.Total - c.OutputReserve, Usable: (million - c.Reserve).Of(c.Total)}
	base := c.Total
	limit := t.Hard
	if c.UsableCap > 0 {
		limit = min(limit, c.UsableCap)
	}
	if t.Usable > limit {
		t.Usable = limit
		base = int(int64(limit) * million / int64(max(million-c.Reserve, 1)))
	}
	t.Trigger = t.Usable - c.Band.Of(base)
	t.Warn = t.Trigger - c.WarnBand.Of(base)
	t.Target = c.Target.Of(base)
	t.MinRefill = c.MinRefill.Of(base)
	t.MinGain = c.MinGainPass.Of(base)
	return t
}

// Validate reports every fault. The error matches ErrConfig.
func (c Config) Validate() error {
	var faults []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
		}
	}
	require(c.Total > 0 && c.Total < math.MaxInt32, "Total %d must be above 0 and below 2^31", c.Total)
	c = c.WithDefaults()
	for _, s := range []struct {
		name string
		v    PPM
	}{{"Reserve", c.Reserve}, {"Band", c.Band}, {"WarnBand", c.WarnBand}, {"Target", c.Target}, {"MinRefill", c.MinRefill},
		{"MinGainPass", c.MinGainPass}, {"MinGainShare", c.MinGainShare}, {"KeepShare", c.KeepShare},
		{"UserShare", c.UserShare}, {"StubShare", c.StubShare}} {
		if s.v < 0 || s.v >= million { // require allocates its arguments, and this runs for each turn
			require(false, "%s %d must be a share of 0 to 999,999 ppm", s.name, s.v)
		}
	}
	require(c.OutputReserve >= 0 && c.OutputReserve < max(c.Total, 1), "OutputReserve %d must be below Total", c.OutputReserve)
	require(c.UsableCap >= 0 && c.UserCap >= 0 && c.MinGainTokens >= 0 && c.RefetchTokens >= 0 && c.UnreadTurns >= 0 && c.KeepLast >= -1, "counts must not be negative")
	require(c.BackOffMin > 0 && c.BackOffMax >= c.BackOffMin && c.HalfLife > 0, "BackOffMin, BackOffMax and HalfLife must be above 0 and in order")
	for i, w := range c.Weights {
		require(w > 0 && !math.IsInf(w, 0) && (i == 0 || w > c.Weights[i-1]), "Weights must be above 0 and rise from low to critical")
	}
	require(slices.Contains([]Mode{ModeApply, ModeDeferred, ModeRecommend}, c.Mode), "Mode is %q", c.Mode)
	require(c.Recency == Exp24 || c.Recency == HalfLife, "Recency is %q", c.Recency)
	if len(faults) == 0 {
		t := c.Thresholds()
		require(0 < t.Target && t.Target < t.Warn && t.Warn < t.Trigger && t.Trigger < t.Usable,
			"a window of %d tokens has the limits target %d, warn %d, trigger %d and usable %d, and each must be above the one before; enlarge Total, or lower Target, Band or WarnBand", c.Total, t.Target, t.Warn, t.Trigger, t.Usable)
		faults = append(faults, c.checkAllocation(t))
	}
	return errors.Join(faults...)
}

func (c Config) checkAllocation(t Thresholds) error {
	sum, seen := 0, map[string]bool{}
	for _, a := range c.Allocation {
		if a.Share < 0 || a.Tokens < 0 || a.Share == 0 && a.Tokens == 0 || seen[a.Kind] {
			return fmt.Errorf("%w: allocation of kind %q must be given once and be above 0", ErrConfig, a.Kind)
		}
		seen[a.Kind] = true
		sum += a.tokens(c.Total)
	}
	if sum > t.Usable {
		return fmt.Errorf("%w: allocations add up to %d, usable are %d", ErrConfig, sum, t.Usable)
	}
	return nil
}

func (a Cap) tokens(total int) int {
	if a.Tokens > 0 {
		return a.Tokens
	}
	return a.Share.Of(total)
}

// RecencyModel is the formula by which age lowers a score. The zero RecencyModel is Exp24.
type RecencyModel string

// The recency models. The written rule asks for a half-life of about 24 hours, but the half-life of its formula is 16.64.
const (
	Exp24    RecencyModel = "exp24"    // exp(-age/24 h), the formula
	HalfLife RecencyModel = "halflife" // 2^(-age/half-life)
)

// Errors of passes, windows, contracts and handoff packets.
var (
	ErrConfig     = errors.New("session: window configuration out of range")
	ErrGeneration = errors.New("session: the sections changed since the plan was made; plan again")
	ErrPlan       = errors.New("session: plan is malformed")
	ErrUndo       = errors.New("session: the pass cannot be undone, a section changed after it")
	ErrHeadroom   = errors.New("session: no headroom")
	ErrContract   = errors.New("session: contract file breaks the strict dialect")
	ErrPacket     = errors.New("session: handoff packet breaks the schema")
)

// HeadroomError reports how many tokens the window would have above its usable part. There are three causes: one section
// alone (Tokens is above Usable), protected content alone (Protected is above Usable), or content that would come back.
// It matches ErrHeadroom.
type HeadroomError struct {
	Shortfall int // tokens missing
	Protected int // tokens that no pass may touch; they include the refused section if it is protected
	Usable    int
	Section   string // the refused section, or one that is larger than the usable window; "" if there is none
	Tokens    int    // of Section; 0: not known
}

func (e *HeadroomError) Error() string {
	what := ""
	if e.Section != "" {
		what = fmt.Sprintf(" admitting %q", e.Section)
	}
	switch {
	case e.Tokens > e.Usable:
		return fmt.Sprintf("%v: turn %q alone takes %d tokens, %d more than the usable window of %d; split or shorten it, or enlarge the window",
			ErrHeadroom, e.Section, e.Tokens, e.Tokens-e.Usable, e.Usable)
	case e.Protected <= e.Usable:
		return fmt.Sprintf("%v: more than the usable window would stand in it:%s %d usable tokens, %d short; enlarge the window",
			ErrHeadroom, what, e.Usable, e.Shortfall)
	}
	return fmt.Sprintf("%v: protected content alone exceeds the usable window:%s %d protected tokens, %d usable, %d short; unpin something, protect fewer user turns (Config.UserCap), or enlarge the window",
		ErrHeadroom, what, e.Protected, e.Usable, e.Shortfall)
}

// Is reports whether target is ErrHeadroom.
func (e *HeadroomError) Is(target error) bool { return target == ErrHeadroom }
