package contexty

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// AllocatorConfig is the budget and the way to count.
type AllocatorConfig struct {
	MaxTokens    int          // the whole budget; must be positive
	TokenCounter TokenCounter // must be set
}

// MemoryBlock is a list of messages that share a tier, a cap and a strategy.
type MemoryBlock struct {
	ID           string    // names the block in errors and report; may be empty or repeat
	Messages     []Message // an empty block is skipped
	Tier         Tier
	Strategy     EvictionStrategy // applied when the block does not fit
	MaxTokens    int              // cap for the strategy; 0 or less = none. It counts only below what the budget has left
	CacheControl string           // opaque, not interpreted
}

// CompileReport says where the tokens went. Maps are by block ID; of blocks that share one, the last wins.
type CompileReport struct {
	TotalTokensUsed        int
	OriginalTokens         int // before eviction
	RemainingTokens        int
	OriginalTokensPerBlock map[string]int
	TokensPerBlock         map[string]int    // dropped blocks have no entry
	Evictions              map[string]string // label of the strategy of each block that did not fit
	BlocksDropped          []string          // may repeat an ID
}

// Builder collects blocks and compiles them. It keeps them: Compile can be called again. It is not safe for concurrent
// use with AddBlock.
type Builder struct {
	cfg    AllocatorConfig
	blocks []MemoryBlock
}

// NewBuilder returns an empty builder. The config is checked by Compile.
func NewBuilder(cfg AllocatorConfig) *Builder { return &Builder{cfg: cfg} }

// AddBlock appends a block and returns the builder.
func (b *Builder) AddBlock(block MemoryBlock) *Builder {
	b.blocks = append(b.blocks, block)
	return b
}

// Compile returns the messages that fit, in order of tier and then of AddBlock. A context that is done stops it before
// the next block. After an error there are no messages and the report is zero.
func (b *Builder) Compile(ctx context.Context) ([]Message, CompileReport, error) {
	if b.cfg.MaxTokens <= 0 || b.cfg.TokenCounter == nil {
		return nil, CompileReport{}, ErrInvalidConfig
	}
	blocks := slices.Clone(b.blocks)
	slices.SortStableFunc(blocks, func(x, y MemoryBlock) int { return cmp.Compare(x.Tier, y.Tier) })
	c := building{counter: b.cfg.TokenCounter, remaining: b.cfg.MaxTokens, report: CompileReport{
		OriginalTokensPerBlock: map[string]int{}, TokensPerBlock: map[string]int{}, Evictions: map[string]string{},
	}}
	for i := range blocks {
		if err := ctx.Err(); err != nil {
			return nil, CompileReport{}, fmt.Errorf("contexty: compile: %w", err)
		}
		if err := c.add(ctx, &blocks[i]); err != nil {
			return nil, CompileReport{}, fmt.Errorf("block %q: %w", blocks[i].ID, err)
		}
	}
	c.report.RemainingTokens = b.cfg.MaxTokens - c.report.TotalTokensUsed
	return c.messages, c.report, nil
}

type building struct {
	counter   TokenCounter
	remaining int
	messages  []Message
	report    CompileReport
}

func (c *building) add(ctx context.Context, b *MemoryBlock) error {
	if len(b.Messages) == 0 {
		return nil
	}
	if b.Strategy == nil {
		return ErrNilStrategy
	}
	n, err := c.count(ctx, b.Messages)
	if err != nil {
		return err
	}
	c.report.OriginalTokens += n
	c.report.OriginalTokensPerBlock[b.ID] = n
	out := b.Messages
	if limit := c.limit(b); n > limit {
		if out, err = b.Strategy.Apply(ctx, b.Messages, n, limit, c.counter); err != nil {
			return err
		}
		c.report.Evictions[b.ID] = label(b.Strategy)
		if len(out) == 0 {
			c.report.BlocksDropped = append(c.report.BlocksDropped, b.ID)
		}
	}
	return c.emit(ctx, b.ID, out)
}

func (c *building) limit(b *MemoryBlock) int {
	if b.MaxTokens > 0 {
		return min(b.MaxTokens, c.remaining)
	}
	return c.remaining
}

func (c *building) emit(ctx context.Context, id string, out []Message) error {
	if len(out) == 0 {
		return nil
	}
	used, err := c.count(ctx, out)
	if err != nil {
		return err
	}
	if used > c.remaining {
		return ErrStrategyExceededBudget
	}
	c.report.TokensPerBlock[id] = used
	c.report.TotalTokensUsed += used
	c.remaining -= used
	c.messages = append(c.messages, out...)
	return nil
}

func (c *building) count(ctx context.Context, msgs []Message) (int, error) {
	n, err := c.counter.Count(ctx, msgs)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrTokenCountFailed, err)
	}
	return n, nil
}
