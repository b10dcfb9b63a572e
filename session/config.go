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

// shareOf returns a share of n, rounded down.
func shareOf(n int, share PPM) int { return int(int64(n) * int64(share) / million) }

// Mode is what the background watcher may do.
type Mode uint8

// The modes of the watcher.
const (
	ModeApply     Mode = iota // plan at the trigger and apply
	ModeDeferred              // plan at the trigger, apply only when nothing is left to the usable limit
	ModeRecommend             // events only, nothing is written
)

var modeNames = [...]string{"apply", "deferred", "recommend"}

func (m Mode) String() string { return modeNames[m] }

// MarshalText is String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the name of a mode.
func (m *Mode) UnmarshalText(b []byte) error { return byName(m, modeNames[:], b) }

// byName finds a name among those of a type.
func byName[T ~uint8](v *T, names []string, b []byte) error {
	i := slices.Index(names, string(b))
	if i < 0 {
		return fmt.Errorf("%w: got %q, expected one of %q", ErrConfig, b, names)
	}
	*v = T(i)
	return nil
}

// Config is the watcher's configuration. Zero fields take the defaults named beside them. Shares are of Total, or of
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
	UserCap       int           // user turns are protected newest first up to so many tokens; 0: up to UserShare, see State.Protections
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

// landing is where a backstop lands that has to leave so many tokens: at Target,
// or, where they would leave little of it to everything else, half way between
// them and Usable. So a large newest turn does not push all others out, and the
// next commit has room.
func (t Thresholds) landing(protected int) int {
	return max(t.Target, t.Usable-(t.Usable-protected)/2)
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

// filled has the defaults in place of zeros.
func (c Config) filled() Config {
	setDefault(&c.Reserve, 150_000)
	setDefault(&c.Band, c.beside(50_000))
	setDefault(&c.WarnBand, c.beside(50_000))
	setDefault(&c.Target, c.beside(700_000))
	setDefault(&c.MinRefill, c.beside(50_000))
	setDefault(&c.MinGainPass, c.beside(20_000))
	setDefault(&c.MinGainTokens, 64)
	setDefault(&c.MinGainShare, 200_000)
	setDefault(&c.OutputReserve, min(4096, c.Total-shareOf(c.Total, million-c.Reserve)))
	setDefault(&c.KeepLast, 6)
	setDefault(&c.KeepShare, 500_000)
	setDefault(&c.UserShare, 250_000)
	setDefault(&c.StubShare, 200_000)
	setDefault(&c.HalfLife, 24*time.Hour)
	setDefault(&c.Weights, [4]float64{1, 2, 4, 8})
	setDefault(&c.BackOffMin, time.Second)
	setDefault(&c.BackOffMax, time.Minute)
	setDefault(&c.RefetchTokens, 256)
	setDefault(&c.UnreadTurns, 20)
	return c
}

// Thresholds returns the effective limits, or every fault of the configuration.
func (c Config) Thresholds() (Thresholds, error) {
	if err := c.Validate(); err != nil {
		return Thresholds{}, err
	}
	return c.thresholds(), nil
}

// thresholds does so without validation. Where a cap makes the usable window
// smaller than the reserve asks for, all limits are those of a window that is
// smaller as a whole: the distances between them stay in proportion.
func (c Config) thresholds() Thresholds {
	c = c.filled()
	t := Thresholds{Total: c.Total, Hard: c.Total - c.OutputReserve, Usable: shareOf(c.Total, million-c.Reserve)}
	base := c.Total
	limit := t.Hard
	if c.UsableCap > 0 {
		limit = min(limit, c.UsableCap)
	}
	if t.Usable > limit {
		t.Usable = limit
		base = int(int64(limit) * million / int64(max(million-c.Reserve, 1)))
	}
	t.Trigger = t.Usable - shareOf(base, c.Band)
	t.Warn = t.Trigger - shareOf(base, c.WarnBand)
	t.Target = shareOf(base, c.Target)
	t.MinRefill = shareOf(base, c.MinRefill)
	t.MinGain = shareOf(base, c.MinGainPass)
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
	c = c.filled()
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
	require(int(c.Mode) < len(modeNames) && c.Recency <= HalfLife, "Mode or Recency is unknown")
	if len(faults) == 0 {
		t := c.thresholds()
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
	return shareOf(total, a.Share)
}

// caps returns the limit of each capped kind.
func (c Config) caps() map[string]int {
	if len(c.Allocation) == 0 {
		return nil
	}
	out := make(map[string]int, len(c.Allocation))
	for _, a := range c.Allocation {
		out[a.Kind] = a.tokens(c.Total)
	}
	return out
}

// Calibration corrects token estimates by what a provider reported. The zero
// value trusts the estimates. It only ever enlarges them: a trigger that comes
// late is the fault to avoid.
type Calibration struct{ ratio PPM }

// Observe takes one estimate with the true count. The ratio rises at once and
// falls by a quarter of the difference, within 0.5 and 4.
func (c Calibration) Observe(estimated, actual int) Calibration {
	if estimated <= 0 || actual <= 0 {
		return c
	}
	seen := PPM(min(int64(actual)*million/int64(estimated), 4*million))
	seen = max(seen, million/2)
	if c.ratio == 0 || seen > c.ratio {
		return Calibration{seen}
	}
	return Calibration{c.ratio + (seen-c.ratio)/4}
}

// Ratio is true tokens per estimated token, in parts per million.
func (c Calibration) Ratio() PPM {
	if c.ratio == 0 {
		return million
	}
	return c.ratio
}

// Budget is what an estimate counts as: never less than the estimate.
func (c Calibration) Budget(estimate int) int {
	corrected := (int64(estimate)*int64(c.Ratio()) + million - 1) / million
	return max(int(corrected), estimate)
}
