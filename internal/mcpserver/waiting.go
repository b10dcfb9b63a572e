package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/ctxpage/ctxpage"
)

// Limits of what is told of drafts that wait.
const (
	maxWaiting  = 20
	waitingRead = 1000 // held batches of the scope that are looked at, oldest first
)

// waitingOut names a write of the caller that waits for a person. It has no text: a draft is in no context and is not read
// back before somebody lets it pass.
type waitingOut struct {
	Batch   string    `json:"batch"`
	IDs     []string  `json:"ids,omitempty"`
	Deletes []string  `json:"deletes,omitempty"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
}

// waiting lists the newest held writes of the actor that match.
func (s *server) waiting(ctx context.Context, match func(*ctxpage.Held) bool) (out []waitingOut, err error) {
	actor := cmp.Or(s.Actor, s.Scope)
	read := 0
	for h, err := range s.DB.Review().Batches(ctx, s.Scope, false) {
		if errors.Is(err, ctxpage.ErrCorrupt) { // the others are listed all the same
			break
		} else if err != nil {
			return nil, err
		}
		if h.Actor == actor && match(&h) {
			w := waitingOut{Batch: h.ID, Deletes: h.Deletes, Reason: h.Reason, Since: h.At}
			for i := range h.Writes {
				w.IDs = append(w.IDs, h.Writes[i].ID)
			}
			out = append(out, w)
		}
		if read++; read == waitingRead {
			break
		}
	}
	return out[max(0, len(out)-maxWaiting):], nil
}

// named matches drafts of ids with a prefix.
func named(prefix string) func(*ctxpage.Held) bool {
	has := func(id string) bool { return strings.HasPrefix(id, prefix) }
	return func(h *ctxpage.Held) bool {
		return slices.ContainsFunc(h.Writes, func(v ctxpage.Version) bool { return has(v.ID) }) || slices.ContainsFunc(h.Deletes, has)
	}
}

// mentions matches drafts that have a longer word of a question in their id or text; in a question without one, any word.
func mentions(question string) func(*ctxpage.Held) bool {
	words := wordsOf(question)
	if long := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return len(w) < 4 }); len(long) > 0 {
		words = long
	}
	return func(h *ctxpage.Held) bool {
		var all []string
		for i := range h.Writes {
			all = append(all, wordsOf(h.Writes[i].ID+" "+h.Writes[i].Text)...)
		}
		for _, id := range h.Deletes {
			all = append(all, wordsOf(id)...)
		}
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(all, w) })
	}
}

func wordsOf(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
