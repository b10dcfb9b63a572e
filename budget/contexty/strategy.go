package contexty

import (
	"context"
	"fmt"
	"slices"
)

// EvictionStrategy shrinks a block that does not fit. Apply gets the messages, their count and the limit, and returns
// what stays; nothing means the block is dropped. It is called only when originalTokens > limit.
type EvictionStrategy interface {
	Apply(ctx context.Context, msgs []Message, originalTokens, limit int, counter TokenCounter) ([]Message, error)
}

// Summarizer turns messages into one.
type Summarizer interface {
	Summarize(ctx context.Context, msgs []Message) (Message, error)
}

// label is what the report says of a block that did not fit.
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

func (strict) Apply(ctx context.Context, _ []Message, n, limit int, _ TokenCounter) ([]Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("contexty: strict: %w", err)
	}
	return nil, fmt.Errorf("%w (%d tokens, limit %d)", ErrBudgetExceeded, n, limit)
}

// NewDropStrategy returns the strategy of blocks that come whole or not at all.
func NewDropStrategy() EvictionStrategy { return drop{} }

type drop struct{}

func (drop) Apply(ctx context.Context, _ []Message, _, _ int, _ TokenCounter) ([]Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("contexty: drop: %w", err)
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

func (s *summarize) Apply(ctx context.Context, msgs []Message, _, limit int, counter TokenCounter) ([]Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("contexty: summarize: %w", err)
	}
	m, err := s.Summarize(ctx, msgs)
	if err != nil {
		return nil, fmt.Errorf("contexty: summarize: %w", err)
	}
	out := []Message{m}
	n, err := counter.Count(ctx, out)
	if err != nil {
		return nil, fmt.Errorf("contexty: counting the summary: %w", err)
	}
	if n > limit {
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
// next message of the block.
func (t *truncate) Apply(ctx context.Context, msgs []Message, n, limit int, counter TokenCounter) ([]Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("contexty: truncate: %w", err)
	}
	l := newLeft(msgs, counter)
	total := n
	for i := 0; i < len(msgs) && total > limit; i++ {
		if slices.Contains(t.protected, msgs[i].Role) {
			continue
		}
		l.remove(i)
		if t.pairs && msgs[i].Role == "user" && i+1 < len(msgs) && msgs[i+1].Role == "assistant" {
			i++
			l.remove(i)
		}
		var err error
		if total, err = l.count(ctx); err != nil {
			return nil, fmt.Errorf("contexty: truncate: %w", err)
		}
		if total > n {
			return nil, fmt.Errorf("contexty: truncate: %w: the count grew from %d to %d while messages went",
				ErrTokenCountFailed, n, total)
		}
	}
	if t.least > 0 && l.n < t.least {
		return nil, nil
	}
	return l.messages(), nil
}

// left is what truncation has left of a block. With a stock counter a count is a subtraction; any other counter is
// asked again for the whole list, since nothing says that its counts add up.
type left struct {
	all     []Message
	gone    []bool
	n       int
	counter TokenCounter
	weigher weigher // nil for a counter that is not ours
	sum     weight
}

func newLeft(msgs []Message, counter TokenCounter) *left {
	l := &left{all: msgs, gone: make([]bool, len(msgs)), n: len(msgs), counter: counter}
	if l.weigher = stock(counter); l.weigher != nil {
		for i := range msgs {
			l.sum = l.sum.plus(l.weigher.weigh(&msgs[i]))
		}
	}
	return l
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

func (l *left) remove(i int) {
	l.gone[i] = true
	l.n--
	if l.weigher != nil {
		l.sum = l.sum.minus(l.weigher.weigh(&l.all[i]))
	}
}

func (l *left) count(ctx context.Context) (int, error) {
	if l.weigher != nil {
		return l.weigher.tokens(l.sum), nil
	}
	return l.counter.Count(ctx, l.messages())
}

func (l *left) messages() []Message {
	if l.n == 0 {
		return nil
	}
	out := make([]Message, 0, l.n)
	for i := range l.all {
		if !l.gone[i] {
			out = append(out, l.all[i])
		}
	}
	return out
}
