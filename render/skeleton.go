package render

import "errors"

var errSkeleton = errors.New("render: not built yet")

// Provider names a shape.
type Provider uint8

// The shapes.
const (
	ProviderText Provider = iota
	ProviderOpenAI
	ProviderAnthropic
	ProviderGemini
)

// Message is the neutral message. Parts are escaped texts, one a page (fenced blocks
// that stand together share a message, so do system pages; the first part of all is
// the preamble). Stable counts the leading parts that belong to the stable prefix.
type Message struct {
	Role       string
	Name       string
	Parts      []string
	Stable     int
	ToolCalls  []ToolCall
	ToolCallID string
}

// Fence derives the fence number from seed (database id and scope).
func Fence(seed string, texts ...string) string { return "000000000" }

// Text renders plain text.
func Text(seed string, pages []Page) []byte { return nil }

// ParseText parses what Text wrote.
func ParseText(b []byte) (Pack, error) { return Pack{}, errSkeleton }

// Preamble is the line every pack starts with; PreambleCost is what to count for it, once.
func PreambleCost() string { return "" }

// Cost is the text whose tokens are the cost of one page in that shape: header, fences, escaped text.
func Cost(p Page, shape Provider) string { return p.Text }

// Messages gives the neutral message list.
func Messages(seed string, pages []Page) []Message { return nil }

// Validate refuses what the provider would refuse.
func Validate(msgs []Message, p Provider) error { return errSkeleton }

// OpenAI renders {"messages":[…]}.
func OpenAI(msgs []Message) ([]byte, error) { return nil, errSkeleton }

// Anthropic renders {"system":[…],"messages":[…]}.
func Anthropic(msgs []Message) ([]byte, error) { return nil, errSkeleton }

// Gemini renders {"systemInstruction":…,"contents":[…]}.
func Gemini(msgs []Message) ([]byte, error) { return nil, errSkeleton }

// Parse reads back what OpenAI, Anthropic, Gemini or Text wrote.
func Parse(b []byte, p Provider) (Pack, error) { return Pack{}, errSkeleton }

// Escape makes every hiding or structure-changing character visible; Unescape takes it back.
func Escape(s string) string { return s }

// Unescape reverses Escape.
func Unescape(s string) (string, error) { return s, nil }
