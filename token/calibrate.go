package token

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"sync"
)

// The rules of calibration.
const (
	calibrationKeep  = 64  // observations remembered; older ones go
	calibrationFew   = 8   // below that many a factor only raises
	calibrationLeast = 32  // estimates below that many tokens teach nothing: framing dominates them
	calibrationStep  = 5   // percent; factors move in steps so that stored counts stay valid for long
	factorMin        = 80  // percent
	factorMax        = 300 // percent
)

// Calibration learns how far a counter is off for each model, from the usage providers report. It keeps the latest
// observations of a model and corrects by their upper quantile: about one count in twenty may still be too low.
// It marshals to JSON and back, so a host stores it where it likes. The zero value is ready; it is safe for concurrent
// use and must not be copied.
type Calibration struct {
	mu     sync.Mutex
	models map[string]*observed
}

// observed are the latest ratios of actual to estimated, in percent rounded up, oldest first.
type observed struct {
	Counter string `json:"counter"`
	Ratios  []int  `json:"ratios"`
}

// Observe notes that a request to model, estimated by the counter of that name, took actual tokens. Another counter
// name than before starts the model afresh. Numbers that cannot be right are ignored.
func (c *Calibration) Observe(model, counter string, estimated, actual int) {
	if estimated < calibrationLeast || actual <= 0 {
		return
	}
	ratio := factorMax
	if actual < math.MaxInt/200 {
		ratio = min((actual*100+estimated-1)/estimated, factorMax)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.models[model]
	if o == nil || o.Counter != counter {
		if c.models == nil {
			c.models = map[string]*observed{}
		}
		o = &observed{Counter: counter}
		c.models[model] = o
	}
	if o.Ratios = append(o.Ratios, ratio); len(o.Ratios) > calibrationKeep {
		o.Ratios = slices.Delete(o.Ratios, 0, len(o.Ratios)-calibrationKeep)
	}
}

// Counter returns base corrected for the model by what was observed so far; base itself when nothing was observed with
// it. What is observed later changes only counters asked for later.
func (c *Calibration) Counter(model string, base Counter) Counter {
	percent, n := c.factor(model, base.Name())
	switch {
	case n == 0:
		return base
	case n < calibrationFew:
		return Raise(base, percent)
	}
	return scaled{base, percent, Calibrated}
}

// factor is the correction in percent and the number of observations behind it.
func (c *Calibration) factor(model, counter string) (percent, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.models[model]
	if o == nil || o.Counter != counter || len(o.Ratios) == 0 {
		return 100, 0
	}
	sorted := slices.Sorted(slices.Values(o.Ratios))
	n = len(sorted)
	percent = sorted[min(n-1, n*95/100)]
	percent = (percent + calibrationStep - 1) / calibrationStep * calibrationStep
	low := factorMin
	if n < calibrationFew {
		low = 100
	}
	return min(max(percent, low), factorMax), n
}

// MarshalJSON implements json.Marshaler.
func (c *Calibration) MarshalJSON() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return json.Marshal(c.models)
}

// UnmarshalJSON implements json.Unmarshaler. Ratios that Observe would not have kept are dropped.
func (c *Calibration) UnmarshalJSON(data []byte) error {
	var models map[string]*observed
	if err := json.Unmarshal(data, &models); err != nil {
		return err
	}
	for m, o := range models {
		if o == nil {
			delete(models, m)
			continue
		}
		o.Ratios = slices.DeleteFunc(o.Ratios, func(r int) bool { return r <= 0 || r > factorMax })
		o.Ratios = o.Ratios[max(0, len(o.Ratios)-calibrationKeep):]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.models = models
	return nil
}

// Raise returns a counter that answers percent/100 of c, rounded up. It is an estimate, whatever c is; its name carries
// the percentage. A percentage of 100 or one that is not positive returns c itself.
func Raise(c Counter, percent int) Counter {
	if percent == 100 || percent <= 0 {
		return c
	}
	return scaled{c, percent, Estimated}
}

// scaled is a counter times a percentage.
type scaled struct {
	base    Counter
	percent int
	label   Label
}

func (s scaled) Name() string { return s.base.Name() + "*" + strconv.Itoa(s.percent) + "%" }

func (s scaled) Label() Label { return s.label }

func (s scaled) Count(text string) int {
	n := s.base.Count(text)
	if n > math.MaxInt/s.percent-1 {
		return math.MaxInt
	}
	return (n*s.percent + 99) / 100
}
