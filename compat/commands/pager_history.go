package commands

import (
	"errors"
	"fmt"
	"math/big"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/prose"
)

var errMissing = errors.New("missing")

// history is a history file whose head turn is known. Blocks keep their raw
// fields: each is judged in its turn, so that the first fault is reported.
type history struct {
	head     number
	blocks   []*block
	keywords map[string]struct{}
}

type block struct {
	id    value
	turn  number
	text  value
	kind  value
	fault string // field that the current step is about
}

func readHistory(raw []byte) (*history, error) {
	doc, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("pager: history: %w", err)
	}
	if doc.kind != object {
		return nil, fmt.Errorf("pager: history: expected an object, got %s", kindNames[doc.kind])
	}
	intent, ok := doc.get("intent_ir")
	if !ok {
		return nil, fmt.Errorf("pager: history: field \"intent_ir\": %w", errMissing)
	}
	h := new(history)
	if h.keywords, err = keywords(intent); err != nil {
		return nil, fmt.Errorf("pager: history: field \"intent_ir\": %w", err)
	}
	if h.blocks, err = readBlocks(doc); err != nil {
		return nil, err
	}
	h.head = highest(h.blocks)
	if current, ok := doc.get("current_turn"); ok {
		if h.head, err = asNumber(current); err != nil {
			return nil, fmt.Errorf("pager: history: field \"current_turn\": %w", err)
		}
	}
	return h, nil
}

// readBlocks takes the blocks apart. Turns are read first, for all blocks: the
// head turn is their maximum, and an unusable one spoils the whole history.
func readBlocks(doc value) ([]*block, error) {
	blocks, ok := doc.get("blocks")
	if !ok {
		return nil, fmt.Errorf("pager: history: field \"blocks\": %w", errMissing)
	}
	if blocks.kind != list || len(blocks.list) == 0 {
		return nil, errors.New(`pager: history: field "blocks": expected a list with at least one block`)
	}
	out := make([]*block, len(blocks.list))
	for i, v := range blocks.list {
		b, err := readBlock(v)
		if err != nil {
			return nil, &BlockError{Index: i, ID: b.name(), Field: b.fault, Err: err}
		}
		out[i] = b
	}
	return out, nil
}

func readBlock(v value) (*block, error) {
	b := &block{fault: "block"}
	if v.kind != object {
		return b, fmt.Errorf("expected an object, got %s", kindNames[v.kind])
	}
	b.id, b.text, b.kind = v.member("id"), v.member("text"), v.member("kind")
	if b.kind.kind == absent {
		b.kind = value{}
	}
	b.fault = "turn"
	turn, ok := v.get("turn")
	if !ok {
		return b, errMissing
	}
	var err error
	b.turn, err = asNumber(turn)
	return b, err
}

// absent marks a member that is not there, to tell it from null.
const absent kind = 255

func (v value) member(key string) value {
	if got, ok := v.vals[key]; ok {
		return got
	}
	return value{kind: absent}
}

// expectString refuses everything but a string.
func expectString(v value) error {
	switch v.kind {
	case str:
		return nil
	case absent:
		return errMissing
	}
	return fmt.Errorf("expected a string, got %s", kindNames[v.kind])
}

// name is the block's id where it has a usable one.
func (b *block) name() string {
	if b.id.kind != str {
		return ""
	}
	return b.id.text
}

// contractID is the id as the contract can hold it. Ids of other types never
// pass the word gate of the reference.
func (b *block) contractID() (string, error) {
	if err := expectString(b.id); err != nil {
		return "", err
	}
	if !utf8.ValidString(b.id.text) {
		return "", errors.New("holds a lone surrogate, which UTF-8 cannot carry")
	}
	return b.id.text, nil
}

func (b *block) similarity(h *history) (float64, error) {
	b.fault = "text"
	if err := expectString(b.text); err != nil {
		return 0, err
	}
	return similarity(h.keywords, tokens(b.text.text)), nil
}

// asNumber reads a turn: a number, or a boolean, which counts as 0 or 1.
func asNumber(v value) (number, error) {
	switch v.kind {
	case numeric:
		return v.num, nil
	case boolean:
		n := int64(0)
		if v.yes {
			n = 1
		}
		return number{i: big.NewInt(n)}, nil
	}
	return number{}, fmt.Errorf("expected a number, got %s", kindNames[v.kind])
}

// highest is the maximum turn: the first of equals, a NaN only if it is first.
func highest(blocks []*block) number {
	head := blocks[0].turn
	for _, b := range blocks[1:] {
		if b.turn.above(head) {
			head = b.turn
		}
	}
	return head
}

// keywords returns the lower-cased keyword set of an intent: the elements of a
// list, the keys of an object, the characters of a string; none for whatever
// Python holds to be false. Keywords are not tokenised.
func keywords(v value) (map[string]struct{}, error) {
	set := map[string]struct{}{}
	switch {
	case falsy(v):
	case v.kind == list:
		for i, item := range v.list {
			if err := expectString(item); err != nil {
				return nil, fmt.Errorf("element %d: %w", i, err)
			}
			set[prose.Lower(item.text)] = struct{}{}
		}
	case v.kind == object:
		for _, k := range v.keys {
			set[prose.Lower(k)] = struct{}{}
		}
	case v.kind == str:
		for s := v.text; s != ""; {
			_, size := decodeRune(s)
			set[prose.Lower(s[:size])] = struct{}{}
			s = s[size:]
		}
	default:
		return nil, fmt.Errorf("expected a list of keywords, got %s", kindNames[v.kind])
	}
	return set, nil
}

func falsy(v value) bool {
	switch v.kind {
	case numeric:
		return v.num.i != nil && v.num.i.Sign() == 0 || v.num.i == nil && v.num.f == 0
	case null, boolean:
		return !v.yes
	case str:
		return v.text == ""
	}
	return len(v.list) == 0 && len(v.keys) == 0
}
