package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
)

// Intent is what the conversation is about now: a set of tokens. The zero
// Intent has none, and every similarity is 0. It is immutable.
type Intent struct {
	words  []string // sorted, distinct
	hashes []uint64 // sorted, distinct
}

// NewIntent tokenises keywords or whole sentences by the rule of TokenSet. It leaves stop words out unless there is
// nothing else. (The reference pager does not tokenise: "retention score" can never match there, and "the" pages
// everything.)
func NewIntent(texts ...string) Intent {
	var in Intent
	for _, t := range texts {
		in.words = append(in.words, words(t)...)
	}
	if content := slices.DeleteFunc(slices.Clone(in.words), isStopWord); len(content) > 0 {
		in.words = content
	}
	for i, w := range in.words {
		in.words[i] = stem(w)
	}
	slices.Sort(in.words)
	in.words = slices.Compact(in.words)
	for _, w := range in.words {
		in.hashes = append(in.hashes, hash(w))
	}
	slices.Sort(in.hashes)
	in.hashes = slices.Compact(in.hashes)
	return in
}

func isStopWord(w string) bool { return slices.Contains(stopWords, w) }

// Words returns the tokens, English words as stems, in alphabetical order. The caller owns the slice.
func (in Intent) Words() []string { return slices.Clone(in.words) }

// Len is the number of tokens, the denominator of the similarity.
func (in Intent) Len() int { return len(in.hashes) }

// Hits counts the tokens of the intent that a block contains. hashes are those of a Block.
func (in Intent) Hits(hashes []uint64) int {
	f := in.finder()
	return f.hits(hashes)
}

// finder counts the hits of one intent in many blocks. Most tokens of a block
// are none of the intent's: a bit for the low end of each of its hashes tells so
// in one look, where a walk along both lists guesses wrong at every turn.
type finder struct {
	hashes []uint64
	near   [finderBits / 64]uint64
}

const finderBits = 2048

func (in Intent) finder() finder {
	f := finder{hashes: in.hashes}
	for _, h := range in.hashes {
		f.near[h%finderBits/64] |= 1 << (h % 64)
	}
	return f
}

func (f *finder) hits(hashes []uint64) (n int) {
	if len(hashes) > 32*len(f.hashes) { // so long a block is searched
		for _, h := range f.hashes {
			at, found := slices.BinarySearch(hashes, h)
			if found {
				n++
			}
			hashes = hashes[at:]
		}
		return n
	}
	for _, h := range hashes {
		if f.near[h%finderBits/64]&(1<<(h%64)) != 0 {
			if _, found := slices.BinarySearch(f.hashes, h); found {
				n++
			}
		}
	}
	return n
}

// IntentIR is an intent as the prompt compiler writes it (schema prosecode.intent.v0), without the members that are not
// used here.
type IntentIR struct {
	Schema     string         `json:"schema,omitempty"`
	Verb       string         `json:"verb"`
	Slots      map[string]any `json:"slots"`
	Gaps       []any          `json:"gaps,omitempty"`
	AmberFlags []any          `json:"amber_flags,omitempty"`
	Secondary  []any          `json:"secondary_intents,omitempty"`
}

// Intent flattens the verb and the values of the slots. The names of the slots are not keywords; in the reference they
// were, which is a known fault.
func (ir IntentIR) Intent() Intent {
	return NewIntent(append(flatten(ir.Slots), ir.Verb)...)
}

// flatten returns the strings and numbers inside a decoded JSON value, objects in
// the order of their keys.
func flatten(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case json.Number:
		return []string{v.String()}
	case float64:
		return []string{short(v)}
	case []any:
		var out []string
		for _, item := range v {
			out = append(out, flatten(item)...)
		}
		return out
	case map[string]any:
		var out []string
		for _, k := range sortedKeys(v) {
			out = append(out, flatten(v[k])...)
		}
		return out
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// ParseIntentIR reads an intent IR object. It refuses an object with neither verb nor slots, so that no other object is
// taken for an intent.
func ParseIntentIR(raw []byte) (IntentIR, error) {
	var ir IntentIR
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&ir); err != nil {
		return ir, fmt.Errorf("%w: %w", ErrIntent, err)
	}
	if ir.Verb == "" && ir.Slots == nil {
		return ir, fmt.Errorf("%w: expected an object with \"verb\" or \"slots\"", ErrIntent)
	}
	return ir, nil
}
