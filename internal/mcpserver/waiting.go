package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// Limits of what is told of drafts that wait.
const (
	waitingInList   = 20
	waitingInSearch = 5
	waitingRead     = 1000 // held batches of the scope that are looked at, oldest first
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

// waiting lists the newest held writes of the actor that have an id with a prefix, at most limit. A search names them
// whatever it asks for: their texts are not read.
func (s *server) waiting(ctx context.Context, prefix string, limit int) (out []waitingOut, err error) {
	has := func(id string) bool { return strings.HasPrefix(id, prefix) }
	actor := cmp.Or(s.Actor, s.Scope)
	read := 0
	for h, err := range s.DB.Review().Batches(ctx, s.Scope, false) {
		if errors.Is(err, store.ErrCorrupt) { // the others are listed all the same
			break
		} else if err != nil {
			return nil, err
		}
		if h.Actor == actor && (slices.ContainsFunc(h.Writes, func(v ctxpage.Version) bool { return has(v.ID) }) || slices.ContainsFunc(h.Deletes, has)) {
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
	return out[max(0, len(out)-limit):], nil
}
