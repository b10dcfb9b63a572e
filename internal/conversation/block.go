package conversation

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// Block is a turn, or another artefact of the group. A long session has hundreds of thousands, and the collector looks
// through all of them, so rare fields stand apart.
type Block struct {
	ID       string
	Nums     []uint64
	Version  uint32
	Seq      int64
	Kind     store.Kind
	Prov     store.Provenance
	priority store.Priority
	AsOf     int64 // microseconds
	Expires  int64 // 0: never
	rated    *float64
	Role     string
	Trace    string   // of the context that it was written from; "": of none that is recorded
	Tool     *toolUse // nil: it has none
	Digest   [32]byte
	Stored   int // tokens of its pages as stored
	Row      *TurnRow
	Unit     int
	Judged   bool // by the pass in force, as it is now
	Verdict  Verdict
}

// toolUse ties a turn to other turns.
type toolUse struct {
	answers  string   // id of the call it is the result of
	calls    []string // ids of the calls it makes
	callKeys []string
}

// Expired reports whether the time of the turn is over at now, in microseconds: nothing shows it any more.
func (b *Block) Expired(now int64) bool { return b.Expires != 0 && b.Expires <= now }

func (b *Block) answers() string {
	if b.Tool == nil {
		return ""
	}
	return b.Tool.answers
}

func (b *Block) calls() []string {
	if b.Tool == nil {
		return nil
	}
	return b.Tool.calls
}

// unit is a group of turns that change levels together: an assistant turn with its calls and their results, or a turn alone.
type unit struct{ Members []int }

func (c *Turns) blockOf(h *store.Head) Block {
	b := Block{
		ID: h.ID, Version: h.Version, Seq: h.Seq, Kind: h.Kind, Prov: h.Provenance, AsOf: codec.Micros(h.CurrentAsOf), Expires: codec.Micros(h.ExpiresAt),
		priority: h.Priority, rated: h.Relevance, Role: commonRole(h.Role), Trace: h.Trace, Digest: h.Rows[0].Digest,
	}
	if len(h.Rows) == 1 {
		b.Nums = c.Numbers.one(h.Rows[0].Num)
	}
	for _, r := range h.Rows {
		if len(h.Rows) > 1 {
			b.Nums = append(b.Nums, r.Num)
		}
		b.Stored += int(r.Tokens)
	}
	if h.ToolCallID == "" && len(h.ToolCalls) == 0 {
		return b
	}
	b.Tool = &toolUse{answers: h.ToolCallID}
	for _, t := range h.ToolCalls {
		b.Tool.calls = append(b.Tool.calls, t.ID)
		b.Tool.callKeys = append(b.Tool.callKeys, fmt.Sprintf("%s %016x", t.Name, xxhash.Sum64String(t.Arguments)))
	}
	return b
}

// commonRole lets go of the string that was read.
func commonRole(role string) string {
	for _, r := range []string{"user", "assistant", "tool", "system"} {
		if role == r {
			return r
		}
	}
	return role
}

// headHash is over everything a row is made from.
func headHash(h *store.Head) uint64 {
	hashes := make([]uint64, len(h.Rows))
	for i, r := range h.Rows {
		hashes[i] = r.Hash
	}
	return turnHash(&h.Artefact, hashes)
}

// contentOf tells equal texts, whoever said them.
func contentOf(rows []store.PageRow) uint64 {
	var b []byte
	for _, r := range rows {
		if r.Tokens > 0 {
			b = binary.LittleEndian.AppendUint64(b, r.Hash)
		}
	}
	if len(b) == 0 {
		return 0
	}
	return xxhash.Sum64(b)
}

func turnHash(a *store.Artefact, pages []uint64) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(pages)))
	for _, p := range pages {
		b = binary.LittleEndian.AppendUint64(b, p)
	}
	for _, s := range []string{a.Role, a.Name, a.ToolCallID} {
		b = append(append(b, s...), 0)
	}
	for _, t := range a.ToolCalls {
		b = append(append(append(append(b, t.ID...), 0), t.Name...), 0)
		b = append(append(b, t.Arguments...), 0)
	}
	return xxhash.Sum64(b)
}

// PutHash is over everything the row of a turn is made from, as the write has it: TurnRow.Hash of what it becomes.
func PutHash(p *store.Put) uint64 {
	hashes := make([]uint64, len(p.Pages))
	for i := range p.Pages {
		hashes[i] = p.Pages[i].Hash
	}
	return turnHash(&p.Artefact, hashes)
}

// SumTokens counts the pages of a turn as they are stored.
func SumTokens(rows []store.PageRow) (n int) {
	for _, r := range rows {
		n += int(r.Tokens)
	}
	return n
}

// stub returns the text that stands for a turn, from that of its first page.
func (c *Turns) stub(id string, digest [32]byte, tokens int) func(text string) string {
	ref := store.Ref{Scope: c.Scope, ID: id}.String()
	return func(text string) string {
		return prose.StubText(ref, hex.EncodeToString(digest[:6]), tokens, text)
	}
}

// measure makes the row of a turn. The text has so many tokens; below 0: it must be counted.
func measure(counter token.Counter, a *store.Artefact, texts []string, tokens int, hash uint64, stub func(text string) string) *TurnRow {
	count := counter.Count
	text := strings.Join(texts, "")
	extra := 0
	for _, t := range a.ToolCalls {
		extra += count(t.Name) + count(t.Arguments)
	}
	if tokens < 0 {
		tokens = count(text)
	}
	raw := tokens + extra
	sizes := EstimateSizes(raw)
	if t := prose.Trim(text); t != text {
		if n := count(t) + extra; n < raw {
			sizes[session.Trimmed] = n
		}
	}
	below := cmp.Or(sizes[session.Trimmed], raw)
	for _, l := range []session.Level{session.Summary, session.Stub} {
		if l == session.Stub { // exact; not held against a summary that is a guess and may never be made
			sizes[l] = count(stub(texts[0]))
		}
		if sizes[l] >= below {
			sizes[l] = 0
		}
	}
	return &TurnRow{Hash: hash, Counter: counter.Name(), Sizes: sizes, Traits: uint16(prose.Inspect(text))}
}

// FreshBlock is the block that a write will become, but for its numbers. What is known of the turn before it is measured is in
// told. If that is nothing, the put takes the row along (Put.Turn); else it will be stored beside the head.
func (c *Turns) FreshBlock(p *store.Put, told *TurnRow) Block {
	h := &store.Head{Artefact: p.Artefact}
	texts := make([]string, len(p.Pages))
	for i, np := range p.Pages {
		h.Rows = append(h.Rows, store.PageRow{Tokens: uint32(np.Tokens), Digest: np.Digest, Hash: np.Hash})
		texts[i] = np.Text
	}
	b := c.blockOf(h)
	b.Nums = nil // the commit assigns them
	tokens := -1
	if len(p.Pages) == 1 && p.Counter == c.counter.Name() { // several pages may have more than their text as a whole
		tokens = p.Pages[0].Tokens
	}
	b.Row = measure(c.counter, &p.Artefact, texts, tokens, headHash(h), c.stub(b.ID, b.Digest, b.Stored))
	b.Row.Content = contentOf(h.Rows)
	b.Row.takeOver(told)
	p.Turn = b.Row.inHead(p.Counter)
	return b
}

// slab allocates slices of one element in a few large arrays: many small arrays would slow the garbage collector.
type slab[T any] struct{ Free []T }

func (s *slab[T]) one(v T) []T {
	if len(s.Free) == 0 {
		s.Free = make([]T, 512)
	}
	out := s.Free[:1:1]
	s.Free = s.Free[1:]
	out[0] = v
	return out
}
