package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/compat/contexty"
)

// allocator answers allocator cases with package budget/contexty.
func allocator(in io.Reader, out io.Writer) error {
	dec := json.NewDecoder(bufio.NewReader(in))
	dec.UseNumber() // metadata comes back as it was written
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for {
		var c allocCase
		if err := dec.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := enc.Encode(c.answer()); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

type allocCase struct {
	ID        string         `json:"id"`
	Op        string         `json:"op"`
	MaxTokens int            `json:"max_tokens"`
	Counter   allocCounter   `json:"counter"`
	Blocks    []allocBlock   `json:"blocks"`
	Ctx       string         `json:"ctx"`
	Repeat    int            `json:"repeat"`
	System    allocMessage   `json:"system"`
	Facts     []allocMessage `json:"facts"`
	Messages  []allocMessage `json:"messages"`
}

type allocMessage struct {
	Role       string              `json:"role"`
	Text       *string             `json:"text,omitempty"`
	Parts      []allocPart         `json:"parts,omitempty"`
	Name       string              `json:"name,omitempty"`
	ToolCalls  []contexty.ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string              `json:"tool_call_id,omitempty"`
	Metadata   map[string]any      `json:"metadata,omitempty"`
}

type allocPart struct {
	Type     string             `json:"type"`
	Text     string             `json:"text,omitempty"`
	ImageURL *contexty.ImageURL `json:"image_url,omitempty"`
}

type allocCounter struct {
	Kind         string `json:"kind"`
	Chars        int    `json:"chars_per_token"`
	NonText      int    `json:"tokens_per_non_text_part"`
	EstimateTool *int   `json:"estimate_tool"`
	PerMessage   int    `json:"tokens_per_message"`
	PerPart      int    `json:"tokens_per_content_part"`
	PerCall      int    `json:"tokens_per_tool_call"`
	FailRole     string `json:"fail_role"`
}

type allocBlock struct {
	ID        string         `json:"id"`
	Tier      int            `json:"tier"`
	MaxTokens int            `json:"max_tokens"`
	Messages  []allocMessage `json:"messages"`
	Strategy  string         `json:"strategy"`
	Opts      struct {
		Pairs   bool     `json:"keep_user_assistant_pairs"`
		Min     int      `json:"min_messages"`
		Protect []string `json:"protect_roles"`
	} `json:"opts"`
	Summarizer allocSummarizer `json:"summarizer"`
}

type allocReply struct {
	ID       string         `json:"id"`
	Messages []allocMessage `json:"messages,omitempty"`
	Message  *allocMessage  `json:"message,omitempty"`
	Tokens   *int           `json:"tokens,omitempty"`
	Report   *allocReport   `json:"report,omitempty"`
	Error    string         `json:"error,omitempty"`
	ErrorIs  []string       `json:"error_is,omitempty"`
	Block    *string        `json:"block,omitempty"`
}

type allocReport struct {
	Used       int               `json:"total_tokens_used"`
	Original   int               `json:"original_tokens"`
	Remaining  int               `json:"remaining_tokens"`
	OriginalBy map[string]int    `json:"original_tokens_per_block"`
	UsedBy     map[string]int    `json:"tokens_per_block"`
	Evictions  map[string]string `json:"evictions"`
	Dropped    []string          `json:"blocks_dropped"`
}

var (
	errAllocCounter    = errors.New("counter failed")
	errAllocSummarizer = errors.New("summarizer failed")
	errAllocStrategy   = errors.New("strategy failed")
)

// allocErrors are the names a reply may carry; the first that matches is the error.
var allocErrors = []struct {
	name string
	err  error
}{
	{"ErrInvalidConfig", contexty.ErrInvalidConfig},
	{"ErrNilStrategy", contexty.ErrNilStrategy},
	{"ErrTokenCountFailed", contexty.ErrTokenCountFailed},
	{"ErrBudgetExceeded", contexty.ErrBudgetExceeded},
	{"ErrStrategyExceededBudget", contexty.ErrStrategyExceededBudget},
	{"ErrInvalidCharsPerToken", contexty.ErrInvalidCharsPerToken},
	{"Canceled", context.Canceled},
	{"SummarizerFailed", errAllocSummarizer},
	{"CounterFailed", errAllocCounter},
	{"StrategyFailed", errAllocStrategy},
}

func (c *allocCase) answer() allocReply {
	switch c.Op {
	case "inject":
		m := allocFromMessage(contexty.InjectIntoSystem(c.System.message(), allocMessages(c.Facts)...))
		return allocReply{ID: c.ID, Message: &m}
	case "count":
		n, err := c.Counter.counter().Count(context.Background(), allocMessages(c.Messages))
		if err != nil {
			return c.failure(err)
		}
		return allocReply{ID: c.ID, Tokens: &n}
	}
	return c.compile()
}

func (c *allocCase) compile() allocReply {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.Ctx == "cancelled" {
		cancel()
	}
	b := contexty.NewBuilder(contexty.AllocatorConfig{MaxTokens: c.MaxTokens, TokenCounter: c.Counter.counter()})
	for i := range c.Blocks {
		b.AddBlock(c.Blocks[i].block(cancel))
	}
	var msgs []contexty.Message
	var rep contexty.CompileReport
	var err error
	for range max(c.Repeat, 1) {
		msgs, rep, err = b.Compile(ctx)
	}
	if err != nil {
		return c.failure(err)
	}
	r := allocReply{ID: c.ID, Report: &allocReport{
		rep.TotalTokensUsed, rep.OriginalTokens, rep.RemainingTokens,
		rep.OriginalTokensPerBlock, rep.TokensPerBlock, rep.Evictions, rep.BlocksDropped,
	}}
	for _, m := range msgs {
		r.Messages = append(r.Messages, allocFromMessage(m))
	}
	return r
}

// allocBlockName finds the id an error names.
var allocBlockName = regexp.MustCompile(`^block ("(?:[^"\\]|\\.)*"): `)

func (c *allocCase) failure(err error) allocReply {
	r := allocReply{ID: c.ID}
	for _, e := range allocErrors {
		if errors.Is(err, e.err) {
			r.ErrorIs = append(r.ErrorIs, e.name)
		}
	}
	if len(r.ErrorIs) > 0 {
		r.Error = r.ErrorIs[0]
	} else {
		r.Error = err.Error()
	}
	slices.Sort(r.ErrorIs)
	if m := allocBlockName.FindStringSubmatch(err.Error()); m != nil {
		if id, err := strconv.Unquote(m[1]); err == nil {
			r.Block = &id
		}
	}
	return r
}

func (m *allocMessage) message() contexty.Message {
	out := contexty.Message{Role: m.Role, Name: m.Name, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Metadata: m.Metadata}
	if m.Text != nil {
		out.Content = contexty.TextMessage("", *m.Text).Content
	}
	for _, p := range m.Parts {
		out.Content = append(out.Content, contexty.ContentPart(p))
	}
	return out
}

func allocFromMessage(m contexty.Message) allocMessage {
	out := allocMessage{Role: m.Role, Name: m.Name, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Metadata: m.Metadata}
	for _, p := range m.Content {
		out.Parts = append(out.Parts, allocPart(p))
	}
	return out
}

func allocMessages(in []allocMessage) []contexty.Message {
	out := make([]contexty.Message, len(in))
	for i := range in {
		out[i] = in[i].message()
	}
	return out
}

// allocFailing is a counter that fails on a role.
type allocFailing struct {
	contexty.TokenCounter
	role string
}

func (f allocFailing) Count(ctx context.Context, msgs []contexty.Message) (int, error) {
	for i := range msgs {
		if msgs[i].Role == f.role {
			return 0, errAllocCounter
		}
	}
	return f.TokenCounter.Count(ctx, msgs)
}

func (c *allocCounter) counter() contexty.TokenCounter {
	var counter contexty.TokenCounter
	switch c.Kind {
	case "char":
		char := &contexty.CharFallbackCounter{CharsPerToken: c.Chars, TokensPerNonTextPart: c.NonText}
		if e := c.EstimateTool; e != nil {
			char.EstimateTool = func(contexty.ToolCall) int { return *e }
		}
		counter = char
	case "fixed":
		counter = &contexty.FixedCounter{TokensPerMessage: c.PerMessage, TokensPerContentPart: c.PerPart, TokensPerToolCall: c.PerCall}
	default:
		return nil
	}
	if c.FailRole != "" {
		return allocFailing{counter, c.FailRole}
	}
	return counter
}

func (b *allocBlock) block(cancel func()) contexty.MemoryBlock {
	return contexty.MemoryBlock{
		ID: b.ID, Tier: contexty.Tier(b.Tier), MaxTokens: b.MaxTokens,
		Messages: allocMessages(b.Messages), Strategy: b.strategy(cancel),
	}
}

func (b *allocBlock) strategy(cancel func()) contexty.EvictionStrategy {
	switch b.Strategy {
	case "strict":
		return contexty.NewStrictStrategy()
	case "drop":
		return contexty.NewDropStrategy()
	case "truncate":
		opts := []contexty.TruncateOption{contexty.KeepUserAssistantPairs(b.Opts.Pairs), contexty.MinMessages(b.Opts.Min)}
		for _, r := range b.Opts.Protect {
			opts = append(opts, contexty.ProtectRole(r))
		}
		return contexty.NewTruncateOldestStrategy(opts...)
	case "summarize":
		s := b.Summarizer
		s.cancel = cancel
		return contexty.NewSummarizeStrategy(s)
	case "custom:identity":
		return allocCustom(func(m []contexty.Message) ([]contexty.Message, error) { return m, nil })
	case "custom:last":
		return allocCustom(func(m []contexty.Message) ([]contexty.Message, error) { return m[len(m)-1:], nil })
	case "custom:empty":
		return allocCustom(func([]contexty.Message) ([]contexty.Message, error) { return nil, nil })
	case "custom:error":
		return allocCustom(func([]contexty.Message) ([]contexty.Message, error) { return nil, errAllocStrategy })
	}
	return nil
}

type allocCustom func([]contexty.Message) ([]contexty.Message, error)

func (f allocCustom) Apply(_ context.Context, msgs []contexty.Message, _, _ int, _ contexty.TokenCounter) ([]contexty.Message, error) {
	return f(msgs)
}

// allocSummarizer is the deterministic summarizer of the cases.
type allocSummarizer struct {
	Kind   string `json:"kind"`
	Role   string `json:"role"`
	Pad    int    `json:"pad"`
	cancel func()
}

func (s allocSummarizer) Summarize(_ context.Context, msgs []contexty.Message) (contexty.Message, error) {
	role := s.Role
	if role == "" {
		role = "system"
	}
	switch s.Kind {
	case "error":
		return contexty.Message{}, errAllocSummarizer
	case "empty":
		return contexty.Message{Role: role}, nil
	case "pad":
		return contexty.TextMessage(role, fmt.Sprintf("summary:%d:%s", len(msgs), strings.Repeat("x", s.Pad))), nil
	case "cancel":
		s.cancel()
	}
	return contexty.TextMessage(role, fmt.Sprintf("summary:%d", len(msgs))), nil
}
