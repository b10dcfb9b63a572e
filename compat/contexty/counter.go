package contexty

import (
	"context"
	"unicode/utf8"
)

// TokenCounter counts a list of messages. It gets the context of Compile.
type TokenCounter interface {
	Count(ctx context.Context, msgs []Message) (int, error)
}

// DefaultTokensPerNonTextPart is the weight of a part that is not text when the counter sets none.
const DefaultTokensPerNonTextPart = 85

// ToolCallEstimator weighs one tool call in tokens.
type ToolCallEstimator func(call ToolCall) int

// CharFallbackCounter estimates by characters: runes over CharsPerToken, rounded up once per counted list. Role, ids
// and metadata are free; the text of a part that is not text does not count.
type CharFallbackCounter struct {
	CharsPerToken        int               // must be positive
	TokensPerNonTextPart int               // 0 or less = DefaultTokensPerNonTextPart
	EstimateTool         ToolCallEstimator // nil = by the runes of name and arguments
}

// Count implements TokenCounter. It fails with ErrInvalidCharsPerToken, for an empty list too.
func (c *CharFallbackCounter) Count(_ context.Context, msgs []Message) (int, error) {
	if c.CharsPerToken <= 0 {
		return 0, ErrInvalidCharsPerToken
	}
	var sum weight
	for i := range msgs {
		sum = sum.plus(c.weigh(&msgs[i]))
	}
	return c.tokens(sum), nil
}

// weight is the contribution of a message to a list: runes, which are rounded up once over the list, and whole tokens.
type weight struct{ runes, tokens int }

func (w weight) plus(o weight) weight { return weight{w.runes + o.runes, w.tokens + o.tokens} }

func (w weight) minus(o weight) weight { return weight{w.runes - o.runes, w.tokens - o.tokens} }

// weigher is a counter whose count of a list follows from the sum of its messages' weights.
type weigher interface {
	weigh(m *Message) weight
	tokens(sum weight) int
}

func (c *CharFallbackCounter) weigh(m *Message) weight {
	w := weight{runes: utf8.RuneCountInString(m.Name)}
	for i := range m.Content {
		if p := &m.Content[i]; p.Type == "text" {
			w.runes += utf8.RuneCountInString(p.Text)
		} else {
			w.runes += c.nonText() * c.CharsPerToken
		}
	}
	for _, call := range m.ToolCalls {
		if c.EstimateTool != nil {
			w.tokens += c.EstimateTool(call)
			continue
		}
		w.runes += utf8.RuneCountInString(call.Function.Name) + utf8.RuneCountInString(call.Function.Arguments)
	}
	return w
}

func (c *CharFallbackCounter) nonText() int {
	if c.TokensPerNonTextPart <= 0 {
		return DefaultTokensPerNonTextPart
	}
	return c.TokensPerNonTextPart
}

func (c *CharFallbackCounter) tokens(sum weight) int {
	n := sum.runes / c.CharsPerToken
	if sum.runes%c.CharsPerToken > 0 {
		n++
	}
	return n + sum.tokens
}

// FixedCounter counts by structure alone, for tests and examples.
type FixedCounter struct {
	TokensPerMessage     int
	TokensPerContentPart int
	TokensPerToolCall    int
}

// Count implements TokenCounter and never fails.
func (c *FixedCounter) Count(_ context.Context, msgs []Message) (int, error) {
	n := 0
	for i := range msgs {
		n += c.weigh(&msgs[i]).tokens
	}
	return n, nil
}

func (c *FixedCounter) weigh(m *Message) weight {
	return weight{tokens: c.TokensPerMessage + c.TokensPerContentPart*len(m.Content) + c.TokensPerToolCall*len(m.ToolCalls)}
}

func (c *FixedCounter) tokens(sum weight) int { return sum.tokens }
