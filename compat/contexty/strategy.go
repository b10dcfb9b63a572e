package contexty

import (
	"context"
	"fmt"
	"slices"
)

// EvictionStrategy shrinks a block that does not fit. Apply gets the messages, their count and the limit, and returns
// what stays; nothing means the block is dropped. Compile calls it only when originalTokens > limit. A strategy of your
// own may call a strategy of this package with the messages it keeps: they return messages that fit unchanged.
type EvictionStrategy interface {
	Apply(ctx context.Context, msgs []Message, originalTokens, limit int, counter TokenCounter) ([]Message, error)
}

// Summarizer turns messages into one.
type Summarizer interface {
	Summarize(ctx context.Context, msgs []Message) (Message, error)
}

// label is the report's word for a block that did not fit.
func label(s EvictionStrategy) string {
	switch s.(type) {
	case strict:
		return "rejected"
	case drop:
		return "dropped"
	case *truncate:
		return "truncated"
	case *summarize:
		return "summarized"
	}
	return "evicted"
}

// NewStrictStrategy returns the strategy of blocks that must fit: it fails with ErrBudgetExceeded.
func NewStrictStrategy() EvictionStrategy { return strict{} }

type strict struct{}

func (strict) Apply(ctx context.Context, msgs []Message, n, limit int, _ TokenCounter) ([]Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("contexty: strict: %w", err)
	}
	if n <= limit {
		return msgs, nil
	}
	return nil, fmt.Errorf("%w (%d tokens, limit %d)", ErrBudgetExceeded, n, limit)
}

// NewDropStrategy returns the strategy of blocks that come whole or not at all.
func NewDropStrategy() EvictionStrategy { return drop{} }

type drop struct{}

func (drop) Apply(ctx context.Context, msgs []Message, n, limit int, _ TokenCounter) ([]Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("contexty: drop: %w", err)
	}
	if n <= limit {
		return msgs, nil
	}
	return nil, nil
}

// NewSummarizeStrategy returns the strategy that replaces a block by the summarizer's message, or drops it when that
// is too long as well. It panics on a nil summarizer.
func NewSummarizeStrategy(summarizer Summarizer) EvictionStrategy {
	if summarizer == nil {
		panic("contexty: NewSummarizeStrategy needs a Summarizer")
	}
	return &summarize{summarizer}
}

type summarize struct{ Summarizer }

func (s *summarize) Apply(ctx context.Context, msgs []Message, n, limit int, counter TokenCounter) ([]Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("contexty: summarize: %w", err)
	}
	if n <= limit {
		return msgs, nil
	}
	m, err := s.Summarize(ctx, msgs)
	if err != nil {
		return nil, fmt.Errorf("contexty: summarize: %w", err)
	}
	out := []Message{m}
	size, err := counter.Count(ctx, out)
	if err != nil {
		return nil, fmt.Errorf("contexty: counting the summary: %w", err)
	}
	if size > limit {
		return nil, nil
	}
	return out, nil
}

// TruncateOption configures NewTruncateOldestStrategy.
type TruncateOption func(*truncate)

// KeepUserAssistantPairs makes a user message at the cut go together with the assistant message right after it, even
// if that one's role is protected.
func KeepUserAssistantPairs(keep bool) TruncateOption {
	return func(t *truncate) { t.pairs = keep }
}

// MinMessages drops the whole block when fewer than n messages would stay. It is not looked at when the block fits;
// values of 0 or less are ignored.
func MinMessages(n int) TruncateOption {
	return func(t *truncate) {
		if n > 0 {
			t.least = n
		}
	}
}

// ProtectRole keeps messages of a role; the next oldest go instead. It can be given several times.
func ProtectRole(role string) TruncateOption {
	return func(t *truncate) { t.protected = append(t.protected, role) }
}

// NewTruncateOldestStrategy returns the strategy that removes the oldest messages until the block fits. What is
// protected stays even when it is too much.
func NewTruncateOldestStrategy(opts ...TruncateOption) EvictionStrategy {
	t := &truncate{}
	for _, o := range opts {
		o(t)
	}
	return t
}

type truncate struct {
	pairs     bool
	least     int
	protected []string
}

// Apply walks forward once: whatever stays left of the walk is protected, so the next message in what is left is the
// next message of the block. With a stock counter a count is a subtraction. Any other counter is asked for whole lists,
// since nothing says that its counts add up, but only for a few (cuts.search): it must not count more of fewer
// messages.
func (t *truncate) Apply(ctx context.Context, msgs []Message, n, limit int, counter TokenCounter) ([]Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("contexty: truncate: %w", err)
	}
	c := t.cuts(msgs, counter)
	k := 0
	if n > limit {
		var err error
		if w := stock(counter); w != nil {
			k, err = c.subtract(w, n, limit)
		} else {
			k, err = c.search(ctx, n, limit)
		}
		if err != nil {
			return nil, err
		}
	}
	out, borrowed := c.rest(k)
	if len(out) == 0 || t.least > 0 && len(out) < t.least {
		return nil, nil
	}
	if borrowed {
		out = slices.Clone(out)
	}
	return out, nil
}

func (t *truncate) protects(m *Message) bool { return slices.Contains(t.protected, m.Role) }

// pairAt reports whether the message after i goes together with i.
func (t *truncate) pairAt(msgs []Message, i int) bool {
	return t.pairs && msgs[i].Role == "user" && i+1 < len(msgs) && msgs[i+1].Role == "assistant"
}

// stock returns a usable counter of this package as a weigher. It looks at the very type: one that embeds a stock
// counter may count differently.
func stock(counter TokenCounter) weigher {
	switch c := counter.(type) {
	case *CharFallbackCounter:
		if c.CharsPerToken > 0 {
			return c
		}
	case *FixedCounter:
		return c
	}
	return nil
}
