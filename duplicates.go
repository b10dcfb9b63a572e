package ctxpage

import (
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
)

// dropDuplicates leaves out the worse of two winners that say the same, and names the other one. Protected pages and
// pages that a person verified win over pages that are only ranked higher, so they are taken in a first round. Pages of
// one artefact are not compared, nor messages of different speakers, because the speaker is part of what a message says.
//
// Turns of the asking session are compared with nothing, however they entered: a result that says what an earlier one
// said answers another call, and a user who repeats himself asks again.
func (a *assembling) dropDuplicates() {
	seen := &a.scratch.sketched
	defer seen.Clear() // a page that was left out must not stay in memory
	for _, sure := range [...]bool{true, false} {
		for i := range a.ranked {
			it := a.ranked[i]
			if it.reason != "" || it.own != nil || rendering.IsTurn(it.head, a.q.Session) || (it.protected() || it.cand.Provenance == store.HumanVerified) != sure {
				continue
			}
			sketch := it.sketch()
			if other, found := seen.First(sketch, it.repeats); found && !sure {
				it.reason, it.via, it.twin = triage.Duplicate, other.cand.Key.Num, other.ref()
				continue
			}
			seen.Add(sketch, it)
		}
	}
}

// repeats reports whether one of two pages is enough.
func (it *item) repeats(other *item) bool {
	if it.head.Scope == other.head.Scope && it.head.ID == other.head.ID {
		return false
	}
	message := it.cand.Kind == store.KindMessage
	if message != (other.cand.Kind == store.KindMessage) || message && it.head.Name != other.head.Name {
		return false
	}
	if same, known := it.sketch().Same(other.sketch()); known {
		return same
	}
	return prose.SameText(it.text, other.text)
}

// sketch is computed once for each frame.
func (it *item) sketch() *prose.Sketch {
	if it.frame != nil {
		if s := it.frame.sketch.Load(); s != nil {
			return s
		}
	}
	s := prose.SketchOf(it.text)
	if it.frame != nil {
		it.frame.sketch.Store(&s)
	}
	return &s
}
