// Package token counts what a text costs a model.
//
// A [Counter] is named, and the name keys stored counts: a page is counted once, when it is written, and the number
// stays valid for as long as the same counter is asked for. [Default] estimates by character class and errs high;
// package token/bpe counts exactly for the encodings that are public; [Calibration] learns a factor from the usage a
// provider reports. The package is pure: no files, no clock, no goroutines.
package token

import "strings"

// Counter counts the tokens of a text.
//
// Count is deterministic, never negative, 0 for the empty text, and safe for concurrent use. It may be slow, so a
// caller holds no lock while it runs. Name identifies the way of counting and keys stored counts: two counters of one
// name must agree on every text, and a counter whose answers change takes a new name.
type Counter interface {
	Name() string
	Count(text string) int
}

// Label says how far a count can be trusted.
type Label string

// The three qualities of a count.
const (
	Exact      Label = "exact"      // the model's own tokenizer
	Estimated  Label = "estimated"  // a rule of thumb that errs high
	Calibrated Label = "calibrated" // an estimate corrected by observed usage
)

// labeler is implemented by counters that know their quality.
type labeler interface{ Label() Label }

// LabelOf returns the quality of c. A counter that does not say is taken for an estimate.
func LabelOf(c Counter) Label {
	if l, ok := c.(labeler); ok {
		return l.Label()
	}
	return Estimated
}

// Factors for models whose tokenizer is not public, in percent of o200k_base. They are estimates, not bounds: set high for
// English and code, and exceeded in languages that these models split finer. Calibration learns the factor of your texts.
const (
	factorClaude   = 135
	factorGemini   = 115
	factorLlama    = 115
	factorMistral  = 130
	factorDeepSeek = 120
	factorQwen     = 120
)

// The encodings that package token/bpe counts exactly.
const (
	O200k  = "o200k_base"
	CL100k = "cl100k_base"
)

// Profile describes a model to a host before it sends anything.
type Profile struct {
	Model    string `json:"model"`    // a name, or the start of one up to a separator: see Profiles.Find
	Window   int    `json:"window"`   // tokens in and out together
	Output   int    `json:"output"`   // tokens of one answer at most
	Encoding string `json:"encoding"` // the nearest encoding with public data
	Percent  int    `json:"percent"`  // what that encoding's count is multiplied by; 0 and 100 = the encoding is the model's own
}

// Counter returns the model's counter. find looks encodings up, as bpe.Find does; with nil, or without the encoding,
// the estimator of the encoding takes its place, an upper bound.
func (p Profile) Counter(find func(encoding string) (Counter, bool)) Counter {
	if find != nil {
		if c, ok := find(p.Encoding); ok {
			return Raise(c, p.Percent)
		}
	}
	return Raise(Estimate(p.Encoding), p.Percent)
}

// Profiles is a list of models. A host extends it by appending; of equally good matches the last wins.
type Profiles []Profile

// Find returns the profile whose Model is the name or the longest start of it that ends at a separator (one of
// "-.:@_"). What stands before a slash names a provider and is ignored, as is case. An unknown model is not found.
func (ps Profiles) Find(model string) (Profile, bool) {
	name := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	best, found := Profile{}, false
	for _, p := range ps {
		if startsName(name, strings.ToLower(p.Model)) && (!found || len(p.Model) >= len(best.Model)) {
			best, found = p, true
		}
	}
	return best, found
}

func startsName(name, start string) bool {
	rest, ok := strings.CutPrefix(name, start)
	return ok && start != "" && (rest == "" || strings.IndexByte("-.:@_", rest[0]) >= 0)
}

// Builtin returns the models known when this version was made, with the limits their makers published. The list is the
// caller's own copy.
func Builtin() Profiles {
	return Profiles{
		{"gpt-5", 400_000, 128_000, O200k, 100},
		{"gpt-4.1", 1_047_576, 32_768, O200k, 100},
		{"gpt-4o", 128_000, 16_384, O200k, 100},
		{"gpt-4-turbo", 128_000, 4_096, CL100k, 100},
		{"gpt-4", 8_192, 8_192, CL100k, 100},
		{"gpt-3.5-turbo", 16_385, 4_096, CL100k, 100},
		{"o1", 200_000, 100_000, O200k, 100},
		{"o3", 200_000, 100_000, O200k, 100},
		{"o4-mini", 200_000, 100_000, O200k, 100},
		{"gpt-oss", 131_072, 131_072, O200k, 100},
		{"claude", 200_000, 8_192, O200k, factorClaude},
		{"claude-3-7-sonnet", 200_000, 64_000, O200k, factorClaude},
		{"claude-sonnet-4", 200_000, 64_000, O200k, factorClaude},
		{"claude-opus-4", 200_000, 32_000, O200k, factorClaude},
		{"gemini", 1_048_576, 8_192, O200k, factorGemini},
		{"gemini-2.5", 1_048_576, 65_536, O200k, factorGemini},
		{"llama-3", 8_192, 2_048, O200k, factorLlama},
		{"llama-3.1", 131_072, 4_096, O200k, factorLlama},
		{"llama-3.3", 131_072, 4_096, O200k, factorLlama},
		{"mistral", 32_768, 4_096, O200k, factorMistral},
		{"mistral-large", 131_072, 4_096, O200k, factorMistral},
		{"deepseek", 65_536, 8_192, O200k, factorDeepSeek},
		{"qwen2.5", 32_768, 8_192, O200k, factorQwen},
		{"qwen3", 32_768, 8_192, O200k, factorQwen},
	}
}
