// Package contexty has the exported names and the observable rules of github.com/skosovsky/contexty v0.2.3, so that
// migrating is a change of import path.
//
// It answers as that version does, its known weaknesses included: truncation may separate a tool call from its
// results, a block cap is not enforced on what a strategy returns, a failed Compile has an empty report, and the
// messages returned share memory with the blocks. Compile has none of these: it puts blocks of messages into a window with a floor and a
// cap each, keeps turn groups whole, and cuts a history at the same message until it overflows again.
//
// Not taken over: FactExtractor, which that version reserved and never used. Two things are better: truncation takes time
// in proportion to the history, and a Message carries an ID. The first can be observed by a TokenCounter of your own that
// counts more of fewer messages: truncation asks it for a few lists, not for one after each removal, so it may cut elsewhere.
package contexty

import (
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/triage"
)

// Tier orders blocks: a lower tier is served first and stands first. Any int is a legal tier.
type Tier int

// The named tiers.
const (
	TierSystem     Tier = 0 // instructions
	TierCore       Tier = 1 // pinned facts
	TierRAG        Tier = 2 // retrieved knowledge
	TierHistory    Tier = 3 // the conversation
	TierScratchpad Tier = 4 // working notes
)

// String returns the name of a named tier and Tier(N) for others.
func (t Tier) String() string {
	if t >= TierSystem && t <= TierScratchpad {
		return triage.Class(t).String()
	}
	return fmt.Sprintf("Tier(%d)", int(t))
}

// Errors of Compile. Test with errors.Is.
var (
	ErrInvalidConfig        = errors.New("contexty: invalid config: MaxTokens must be positive and TokenCounter set")
	ErrNilStrategy          = errors.New("contexty: block has no strategy: set MemoryBlock.Strategy")
	ErrTokenCountFailed     = errors.New("contexty: counting tokens failed")
	ErrInvalidCharsPerToken = errors.New("contexty: CharsPerToken must be positive")

	// ErrBudgetExceeded comes from the strict strategy: the block does not fit.
	ErrBudgetExceeded = errors.New("contexty: block does not fit: raise MaxTokens or shorten the block")

	// ErrStrategyExceededBudget says that a strategy returned more than the budget had left.
	ErrStrategyExceededBudget = errors.New("contexty: strategy returned more tokens than the budget has left")
)
