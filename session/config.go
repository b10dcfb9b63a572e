package session

import "time"

// Mode is what the background watcher may do.
type Mode uint8

// The modes of the watcher.
const (
	ModeApply     Mode = iota // plan at the trigger and apply
	ModeDeferred              // mark at the trigger, apply at the usable limit
	ModeRecommend             // events only, nothing is written
)

// Config is the watcher's configuration. Zero fields take the defaults named
// beside them; shares are of Total.
type Config struct {
	Total         int           // window in tokens; required
	Reserve       PPM           // 15 %: kept free; Usable = Total − Reserve
	Band          PPM           // 5 %: the background starts at Usable − Band
	WarnBand      PPM           // 5 %: the warning comes at Usable − Band − WarnBand
	Target        PPM           // 70 %: a pass lands here or below
	MinRefill     PPM           // 5 %: growth since the last pass before another may start
	MinGainPass   PPM           // 2 %: a pass that frees less is not applied
	MinGainTokens int           // 64: an item that frees less than this
	MinGainShare  PPM           // 20 %: ... and less than this share of itself is skipped
	OutputReserve int           // 4,096, in small windows the reserve: admission refuses above Total − OutputReserve
	UsableCap     int           // absolute limit of Usable; 0: none
	KeepLast      int           // 6: newest sections never touched; -1: none
	UserCap       int           // user turns are protected newest first up to so many tokens; 0: all of them
	AllowHigh     bool          // the background may compact High too; the backstop always may
	Recency       RecencyModel  // Exp24
	HalfLife      time.Duration // 24 h, for HalfLife
	Weights       [4]float64    // 1, 2, 4, 8 for low .. critical; strictly rising, above 0
	BackOffMin    time.Duration // 1 s: after a blocked pass
	BackOffMax    time.Duration // 60 s
	RefetchTokens int           // 256: a re-fetchable tool output above this is low-value
	UnreadTurns   int64         // 20: not read for so many turns is low-value
	Mode          Mode
	Allocation    []Cap
}

// Cap limits the tokens of one kind: by Tokens, or by Share of the total when
// Tokens is 0.
type Cap struct {
	Kind   string
	Share  PPM
	Tokens int
}

// Thresholds are the effective values of a configuration, in tokens.
type Thresholds struct {
	Total, Hard, Usable, Trigger, Warn, Target, MinRefill, MinGain int
}
