package freshness

import (
	"context"
	"errors"
	"github.com/ctxpage/ctxpage/store"
	"strings"
)

// Unfetched says that an artefact cannot be brought up to date.
func Unfetched(err error) Finding {
	return Finding{Dirty: true, Reason: reasonOf(err), Err: err}
}

// writeTogether commits what several sources gave as few transactions: after a checkout hundreds of files change at
// once, and a commit waits for the disk. What it cannot write, a conflict among it, is left to be written one by one.
func (s *View) writeTogether(ctx context.Context, heads []*store.Head, open []int, out []Finding, c *round) {
	byScope := map[string][]int{}
	var scopes []string
	for _, i := range open {
		h := heads[i]
		r := c.own[KeyOf(h)]
		if !out[i].pending || r == nil || r.err != nil || r.got.Validator.Hash == 0 || len(h.DerivedFrom) > 0 || strings.HasPrefix(h.Artefact.Source, "page:") || s.replaced(ctx, h) {
			continue
		}
		if byScope[h.Scope] == nil {
			scopes = append(scopes, h.Scope)
		}
		byScope[h.Scope] = append(byScope[h.Scope], i)
	}
	for _, name := range scopes {
		group, bytes := []int{}, 0
		flush := func() {
			if len(group) > 1 {
				s.writeGroup(ctx, heads, group, c)
			}
			group, bytes = group[:0], 0
		}
		for _, i := range byScope[name] {
			size := len(c.own[KeyOf(heads[i])].got.Text)
			if bytes+size > batchBytes || len(group) == BatchFiles {
				flush()
			}
			group, bytes = append(group, i), bytes+size
		}
		flush()
	}
}

// What one transaction of files takes.
const (
	BatchFiles = 300
	batchBytes = 8 << 20
)

func (s *View) writeGroup(ctx context.Context, heads []*store.Head, group []int, c *round) {
	hs, got := make([]*store.Head, len(group)), make([]Got, len(group))
	for n, i := range group {
		hs[n], got[n] = heads[i], c.own[KeyOf(heads[i])].got
	}
	if err := s.Write(ctx, hs, got); err != nil && !errors.Is(err, store.ErrConflict) {
		s.Logger.Warn("changed sources were not written together; they are written one by one", "error", err)
	}
}
